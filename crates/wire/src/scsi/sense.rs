//! Sense data: why a command ended as it did, in fixed and in descriptor format.

use crate::fields::{be16, be32, be64, put};

/// Kind of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenseKey(pub u8);

impl SenseKey {
    /// Nothing to tell.
    pub const NO_SENSE: SenseKey = SenseKey(0x0);
    /// Done, with help.
    pub const RECOVERED_ERROR: SenseKey = SenseKey(0x1);
    /// The unit cannot be reached.
    pub const NOT_READY: SenseKey = SenseKey(0x2);
    /// Data is damaged.
    pub const MEDIUM_ERROR: SenseKey = SenseKey(0x3);
    /// The device failed.
    pub const HARDWARE_ERROR: SenseKey = SenseKey(0x4);
    /// The command makes no sense.
    pub const ILLEGAL_REQUEST: SenseKey = SenseKey(0x5);
    /// Something has changed.
    pub const UNIT_ATTENTION: SenseKey = SenseKey(0x6);
    /// Writes are not allowed, or find no room.
    pub const DATA_PROTECT: SenseKey = SenseKey(0x7);
    /// Ended by the device.
    pub const ABORTED_COMMAND: SenseKey = SenseKey(0xb);
    /// The data compared differs.
    pub const MISCOMPARE: SenseKey = SenseKey(0xe);
}

/// Additional sense code and qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u8, pub u8);

impl Code {
    /// Nothing to tell.
    pub const NONE: Code = Code(0x00, 0x00);
    /// Manual intervention required.
    pub const MANUAL_INTERVENTION: Code = Code(0x04, 0x03);
    /// Write error.
    pub const WRITE_ERROR: Code = Code(0x0c, 0x00);
    /// The initiator sent no data, or too much of it, that it had not announced.
    pub const UNEXPECTED_UNSOLICITED_DATA: Code = Code(0x0c, 0x0c);
    /// The initiator sent too little data.
    pub const NOT_ENOUGH_UNSOLICITED_DATA: Code = Code(0x0c, 0x0d);
    /// Invalid field in command information unit: more or less data than the command is of.
    pub const INVALID_INFORMATION_UNIT: Code = Code(0x0e, 0x03);
    /// Unrecovered read error.
    pub const READ_ERROR: Code = Code(0x11, 0x00);
    /// Parameter list length error.
    pub const PARAMETER_LIST_LENGTH: Code = Code(0x1a, 0x00);
    /// Miscompare during verify operation.
    pub const MISCOMPARE: Code = Code(0x1d, 0x00);
    /// Invalid command operation code.
    pub const INVALID_OPCODE: Code = Code(0x20, 0x00);
    /// Logical block address out of range.
    pub const LBA_OUT_OF_RANGE: Code = Code(0x21, 0x00);
    /// Invalid field in CDB.
    pub const INVALID_CDB_FIELD: Code = Code(0x24, 0x00);
    /// Logical unit not supported.
    pub const NO_SUCH_UNIT: Code = Code(0x25, 0x00);
    /// Invalid field in parameter list.
    pub const INVALID_PARAMETER: Code = Code(0x26, 0x00);
    /// Invalid release of persistent reservation.
    pub const INVALID_RELEASE: Code = Code(0x26, 0x04);
    /// Write protected.
    pub const WRITE_PROTECTED: Code = Code(0x27, 0x00);
    /// Space allocation failed write protect.
    pub const NO_SPACE: Code = Code(0x27, 0x07);
    /// Power on, reset, or bus device reset occurred.
    pub const POWER_ON: Code = Code(0x29, 0x00);
    /// SCSI bus reset occurred.
    pub const BUS_RESET: Code = Code(0x29, 0x02);
    /// Bus device reset function occurred.
    pub const DEVICE_RESET: Code = Code(0x29, 0x03);
    /// I_T nexus loss occurred.
    pub const NEXUS_LOSS: Code = Code(0x29, 0x07);
    /// Mode parameters changed.
    pub const MODE_CHANGED: Code = Code(0x2a, 0x01);
    /// Reservations preempted.
    pub const RESERVATIONS_PREEMPTED: Code = Code(0x2a, 0x03);
    /// Reservations released.
    pub const RESERVATIONS_RELEASED: Code = Code(0x2a, 0x04);
    /// Registrations preempted.
    pub const REGISTRATIONS_PREEMPTED: Code = Code(0x2a, 0x05);
    /// Capacity data has changed.
    pub const CAPACITY_CHANGED: Code = Code(0x2a, 0x09);
    /// Command sequence error.
    pub const SEQUENCE_ERROR: Code = Code(0x2c, 0x00);
    /// Commands cleared by another initiator.
    pub const COMMANDS_CLEARED: Code = Code(0x2f, 0x00);
    /// Thin provisioning soft threshold reached.
    pub const THRESHOLD_REACHED: Code = Code(0x38, 0x07);
    /// Saving parameters not supported.
    pub const NO_SAVING: Code = Code(0x39, 0x00);
    /// Medium not present.
    pub const NO_MEDIUM: Code = Code(0x3a, 0x00);
    /// Reported LUNs data has changed.
    pub const LUNS_CHANGED: Code = Code(0x3f, 0x0e);
    /// Internal target failure.
    pub const INTERNAL_FAILURE: Code = Code(0x44, 0x00);
    /// Protocol service CRC error.
    pub const CRC_ERROR: Code = Code(0x47, 0x05);
    /// Insufficient registration resources.
    pub const NO_REGISTRATION_RESOURCES: Code = Code(0x55, 0x04);
    /// Insufficient resources.
    pub const NO_RESOURCES: Code = Code(0x55, 0x03);
}

/// The field that a command is refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// In the CDB, not in the parameter list.
    pub in_cdb: bool,
    /// First byte of the field.
    pub byte: u16,
    /// Its highest bit, where it is smaller than a byte.
    pub bit: Option<u8>,
}

/// Why a command ended as it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// The kind.
    pub key: SenseKey,
    /// The condition.
    pub code: Code,
    /// A block address or an offset, as the condition has it.
    pub information: Option<u64>,
    /// The field that is wrong.
    pub pointer: Option<Pointer>,
}

impl Sense {
    /// Nothing to tell.
    pub const NONE: Sense = Sense::new(SenseKey::NO_SENSE, Code::NONE);

    /// A condition without details.
    #[must_use]
    pub const fn new(key: SenseKey, code: Code) -> Sense {
        Sense { key, code, information: None, pointer: None }
    }

    /// ILLEGAL REQUEST.
    #[must_use]
    pub const fn illegal(code: Code) -> Sense {
        Sense::new(SenseKey::ILLEGAL_REQUEST, code)
    }

    /// UNIT ATTENTION.
    #[must_use]
    pub const fn attention(code: Code) -> Sense {
        Sense::new(SenseKey::UNIT_ATTENTION, code)
    }

    /// A block address beyond the end.
    #[must_use]
    pub const fn lba_out_of_range(lba: u64) -> Sense {
        Sense::illegal(Code::LBA_OUT_OF_RANGE).with_information(lba)
    }

    /// A field of the CDB that holds nothing that is served.
    #[must_use]
    pub const fn cdb_field(byte: u16, bit: Option<u8>) -> Sense {
        let pointer = Some(Pointer { in_cdb: true, byte, bit });
        Sense { pointer, ..Sense::illegal(Code::INVALID_CDB_FIELD) }
    }

    /// A field of a parameter list that holds nothing that is served.
    #[must_use]
    pub const fn parameter(byte: u16, bit: Option<u8>) -> Sense {
        let pointer = Some(Pointer { in_cdb: false, byte, bit });
        Sense { pointer, ..Sense::illegal(Code::INVALID_PARAMETER) }
    }

    /// The same with a block address or an offset.
    #[must_use]
    pub const fn with_information(self, information: u64) -> Sense {
        Sense { information: Some(information), ..self }
    }

    /// Appends it as sense data: with descriptors, as the control mode page's D_SENSE has it, or of
    /// fixed format, which leaves out information of more than 32 bits.
    pub fn encode(&self, descriptor: bool, out: &mut Vec<u8>) {
        if descriptor {
            self.encode_descriptors(out);
        } else {
            out.extend_from_slice(&self.fixed());
        }
    }

    fn fixed(&self) -> [u8; FIXED_BYTES] {
        let mut bytes = [0; FIXED_BYTES];
        bytes[0] = 0x70;
        bytes[2] = self.key.0 & 0xf;
        if let Some(Ok(information)) = self.information.map(u32::try_from) {
            bytes[0] |= VALID;
            put(&mut bytes, 3, &information.to_be_bytes());
        }
        bytes[7] = 10;
        bytes[12] = self.code.0;
        bytes[13] = self.code.1;
        if let Some(pointer) = self.pointer {
            put(&mut bytes, 15, &pointer.key_specific());
        }
        bytes
    }

    fn encode_descriptors(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0x72, self.key.0 & 0xf, self.code.0, self.code.1, 0, 0, 0, 0]);
        if let Some(information) = self.information {
            out.extend_from_slice(&[0, 0x0a, VALID, 0]);
            out.extend_from_slice(&information.to_be_bytes());
        }
        if let Some(pointer) = self.pointer {
            let [first, second, third] = pointer.key_specific();
            out.extend_from_slice(&[2, 6, 0, 0, first, second, third, 0]);
        }
        let length = out.len() - start - 8;
        out[start + 7] = u8::try_from(length).expect("two short descriptors");
    }

    /// Reads sense data of either format; `None` when it is of neither or cut short.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Sense> {
        match bytes.first()? & 0x7f {
            0x70 | 0x71 => Sense::decode_fixed(bytes.first_chunk()?),
            0x72 | 0x73 => Sense::decode_descriptors(bytes.split_first_chunk()?),
            _ => None,
        }
    }

    fn decode_fixed(bytes: &[u8; FIXED_BYTES]) -> Option<Sense> {
        let has_information = bytes[0] & VALID != 0;
        Some(Sense {
            key: SenseKey(bytes[2] & 0xf),
            code: Code(bytes[12], bytes[13]),
            information: has_information.then(|| u64::from(be32(bytes, 3))),
            pointer: Pointer::of_key_specific([bytes[15], bytes[16], bytes[17]]),
        })
    }

    fn decode_descriptors((header, rest): (&[u8; 8], &[u8])) -> Option<Sense> {
        let mut sense = Sense::new(SenseKey(header[1] & 0xf), Code(header[2], header[3]));
        let mut rest = rest.get(..usize::from(header[7]))?;
        while !rest.is_empty() {
            let (&[kind, length], after) = rest.split_first_chunk::<2>()?;
            let (body, next) = after.split_at_checked(usize::from(length))?;
            match (kind, length) {
                (0, 0x0a) if body[0] & VALID != 0 => sense.information = Some(be64(body, 2)),
                (2, 6) => sense.pointer = Pointer::of_key_specific([body[2], body[3], body[4]]),
                _ => {}
            }
            rest = next;
        }
        Some(sense)
    }
}

/// Bytes of sense data of fixed format.
pub const FIXED_BYTES: usize = 18;
const VALID: u8 = 0x80;

impl Pointer {
    fn key_specific(self) -> [u8; 3] {
        let [high, low] = self.byte.to_be_bytes();
        let in_cdb = if self.in_cdb { 0x40 } else { 0 };
        let bit = self.bit.map_or(0, |bit| 0x08 | bit & 7);
        [VALID | in_cdb | bit, high, low]
    }

    fn of_key_specific(bytes: [u8; 3]) -> Option<Pointer> {
        let [flags, ..] = bytes;
        let bit = (flags & 8 != 0).then_some(flags & 7);
        let pointer = Pointer { in_cdb: flags & 0x40 != 0, byte: be16(&bytes, 1), bit };
        (flags & VALID != 0).then_some(pointer)
    }
}
