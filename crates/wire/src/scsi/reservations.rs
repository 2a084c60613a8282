//! Persistent reservations: the data of PERSISTENT RESERVE IN and OUT. Their
//! state is the caller's.

use super::sense::{Code, Sense};
use crate::fields::{be16, be64, put};

/// Type of a reservation: who may do what beside its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReservationType {
    /// Only the holder writes.
    WriteExclusive,
    /// Only the holder reads and writes.
    ExclusiveAccess,
    /// Only those that are registered write.
    WriteExclusiveRegistrants,
    /// Only those that are registered read and write.
    ExclusiveAccessRegistrants,
    /// As `WriteExclusiveRegistrants`, and all of them hold it.
    WriteExclusiveAll,
    /// As `ExclusiveAccessRegistrants`, and all of them hold it.
    ExclusiveAccessAll,
}

impl ReservationType {
    /// The type of a scope and type field whose scope is the whole unit.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<ReservationType> {
        match number {
            1 => Some(ReservationType::WriteExclusive),
            3 => Some(ReservationType::ExclusiveAccess),
            5 => Some(ReservationType::WriteExclusiveRegistrants),
            6 => Some(ReservationType::ExclusiveAccessRegistrants),
            7 => Some(ReservationType::WriteExclusiveAll),
            8 => Some(ReservationType::ExclusiveAccessAll),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            ReservationType::WriteExclusive => 1,
            ReservationType::ExclusiveAccess => 3,
            ReservationType::WriteExclusiveRegistrants => 5,
            ReservationType::ExclusiveAccessRegistrants => 6,
            ReservationType::WriteExclusiveAll => 7,
            ReservationType::ExclusiveAccessAll => 8,
        }
    }

    /// Whether others may read.
    #[must_use]
    pub const fn lets_others_read(self) -> bool {
        matches!(
            self,
            ReservationType::WriteExclusive
                | ReservationType::WriteExclusiveRegistrants
                | ReservationType::WriteExclusiveAll
        )
    }

    /// Whether those that are registered may do as the holder does.
    #[must_use]
    pub const fn is_for_registrants(self) -> bool {
        !matches!(self, ReservationType::WriteExclusive | ReservationType::ExclusiveAccess)
    }

    /// Whether all that are registered hold it.
    #[must_use]
    pub const fn is_of_all(self) -> bool {
        matches!(self, ReservationType::WriteExclusiveAll | ReservationType::ExclusiveAccessAll)
    }
}

/// Service action of PERSISTENT RESERVE IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InAction {
    /// READ KEYS.
    Keys,
    /// READ RESERVATION.
    Reservation,
    /// REPORT CAPABILITIES.
    Capabilities,
    /// READ FULL STATUS.
    FullStatus,
}

impl InAction {
    /// The action of a number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<InAction> {
        match number {
            0 => Some(InAction::Keys),
            1 => Some(InAction::Reservation),
            2 => Some(InAction::Capabilities),
            3 => Some(InAction::FullStatus),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            InAction::Keys => 0,
            InAction::Reservation => 1,
            InAction::Capabilities => 2,
            InAction::FullStatus => 3,
        }
    }
}

/// Service action of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutAction {
    /// REGISTER.
    Register,
    /// RESERVE.
    Reserve,
    /// RELEASE.
    Release,
    /// CLEAR.
    Clear,
    /// PREEMPT.
    Preempt,
    /// PREEMPT AND ABORT.
    PreemptAndAbort,
    /// REGISTER AND IGNORE EXISTING KEY.
    RegisterAndIgnore,
}

impl OutAction {
    /// The action of a number; REGISTER AND MOVE is none that is served.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<OutAction> {
        match number {
            0 => Some(OutAction::Register),
            1 => Some(OutAction::Reserve),
            2 => Some(OutAction::Release),
            3 => Some(OutAction::Clear),
            4 => Some(OutAction::Preempt),
            5 => Some(OutAction::PreemptAndAbort),
            6 => Some(OutAction::RegisterAndIgnore),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            OutAction::Register => 0,
            OutAction::Reserve => 1,
            OutAction::Release => 2,
            OutAction::Clear => 3,
            OutAction::Preempt => 4,
            OutAction::PreemptAndAbort => 5,
            OutAction::RegisterAndIgnore => 6,
        }
    }
}

/// Bytes of the parameter list of PERSISTENT RESERVE OUT.
pub const OUT_LIST_BYTES: usize = 24;

/// The parameter list of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutList {
    /// The key under which the initiator is registered.
    pub key: u64,
    /// The key of the action: the new one, or that of the preempted.
    pub action_key: u64,
    /// ALL_TG_PT: through all ports of the target.
    pub all_ports: bool,
    /// APTPL: kept over a loss of power.
    pub persists: bool,
}

impl OutList {
    /// Reads the list, of which the CDB says that it has `list_bytes`.
    ///
    /// # Errors
    /// On another length, and on SPEC_I_PT.
    pub fn decode(list_bytes: u32, list: &[u8]) -> Result<OutList, Sense> {
        const LENGTH: Sense = Sense::illegal(Code::PARAMETER_LIST_LENGTH);
        let list = list.first_chunk::<OUT_LIST_BYTES>().ok_or(LENGTH)?;
        if list[20] & 8 != 0 {
            return Err(Sense::parameter(20, Some(3)));
        }
        if u32::try_from(OUT_LIST_BYTES) != Ok(list_bytes) {
            return Err(LENGTH);
        }
        Ok(OutList {
            key: be64(list, 0),
            action_key: be64(list, 8),
            all_ports: list[20] & 4 != 0,
            persists: list[20] & 1 != 0,
        })
    }

    /// The list as an initiator sends it.
    #[must_use]
    pub fn encode(&self) -> [u8; OUT_LIST_BYTES] {
        let mut list = [0; OUT_LIST_BYTES];
        put(&mut list, 0, &self.key.to_be_bytes());
        put(&mut list, 8, &self.action_key.to_be_bytes());
        list[20] = u8::from(self.all_ports) << 2 | u8::from(self.persists);
        list
    }
}

/// READ KEYS.
pub fn put_keys(generation: u32, keys: &[u64], out: &mut Vec<u8>) {
    put_header(generation, keys.len() * 8, out);
    for key in keys {
        out.extend_from_slice(&key.to_be_bytes());
    }
}

/// The reservation that is held, and the key of its holder: 0 when all that are registered hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The holder's key.
    pub key: u64,
    /// Its type.
    pub kind: ReservationType,
}

/// READ RESERVATION.
pub fn put_reservation(generation: u32, held: Option<Held>, out: &mut Vec<u8>) {
    put_header(generation, if held.is_some() { 16 } else { 0 }, out);
    if let Some(held) = held {
        out.extend_from_slice(&held.key.to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 0, 0, held.kind.number(), 0, 0]);
    }
}

/// REPORT CAPABILITIES: all types, and all ports at once; whether registrations can be kept over a
/// loss of power (PTPL_C), and whether they are (PTPL_A).
pub fn put_capabilities(can_persist: bool, persists: bool, out: &mut Vec<u8>) {
    const ALL_PORTS: u8 = 0x04;
    const TYPE_MASK_VALID: u8 = 0x80;
    let flags = [ALL_PORTS | u8::from(can_persist), TYPE_MASK_VALID | u8::from(persists)];
    out.extend_from_slice(&[0, 8, flags[0], flags[1]]);
    out.extend_from_slice(&[0xea, 0x01, 0, 0]);
}

/// A registration, as READ FULL STATUS shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration<'a> {
    /// Its key.
    pub key: u64,
    /// It was made through all ports.
    pub all_ports: bool,
    /// The type of the reservation, if this one holds it.
    pub holds: Option<ReservationType>,
    /// The relative identifier of the target's port.
    pub port: u16,
    /// The initiator's name.
    pub initiator: &'a str,
    /// The session's part of its port.
    pub isid: [u8; 6],
}

/// READ FULL STATUS.
///
/// # Panics
/// When a name is longer than an iSCSI name may be.
pub fn put_full_status(generation: u32, registrations: &[Registration<'_>], out: &mut Vec<u8>) {
    let start = out.len();
    put_header(generation, 0, out);
    for registration in registrations {
        put_registration(registration, out);
    }
    let length = u32::try_from(out.len() - start - 8).expect("registrations are limited");
    put(out, start + 4, &length.to_be_bytes());
}

fn put_registration(registration: &Registration<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&registration.key.to_be_bytes());
    let flags = u8::from(registration.all_ports) << 1 | u8::from(registration.holds.is_some());
    let kind = registration.holds.map_or(0, ReservationType::number);
    out.extend_from_slice(&[0, 0, 0, 0, flags, kind, 0, 0, 0, 0]);
    out.extend_from_slice(&registration.port.to_be_bytes());
    let mut transport = Vec::new();
    put_transport_id(registration.initiator, registration.isid, &mut transport);
    let length = u32::try_from(transport.len()).expect("a name is short");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&transport);
}

/// TransportID of an initiator's port: its name and ISID.
///
/// # Panics
/// When the name is longer than an iSCSI name may be.
pub fn put_transport_id(initiator: &str, isid: [u8; 6], out: &mut Vec<u8>) {
    assert!(initiator.len() <= 223, "an iSCSI name has at most 223 bytes");
    let mut port = format!("{initiator},i,0x");
    for byte in isid {
        port.push_str(&format!("{byte:02x}"));
    }
    let length = (port.len() + 1).next_multiple_of(4).max(20);
    out.extend_from_slice(&[0x45, 0]);
    out.extend_from_slice(&u16::try_from(length).expect("asserted above").to_be_bytes());
    let end = out.len() + length;
    out.extend_from_slice(port.as_bytes());
    out.resize(end, 0);
}

fn put_header(generation: u32, bytes: usize, out: &mut Vec<u8>) {
    let bytes = u32::try_from(bytes).expect("registrations are limited");
    out.extend_from_slice(&generation.to_be_bytes());
    out.extend_from_slice(&bytes.to_be_bytes());
}

/// The keys in an answer to READ KEYS; `None` when it is cut short.
#[must_use]
pub fn keys(answer: &[u8]) -> Option<(u32, Vec<u64>)> {
    let (generation, rest) = answer_parts(answer)?;
    Some((generation, rest.chunks_exact(8).map(|key| be64(key, 0)).collect()))
}

/// The reservation in an answer to READ RESERVATION; `None` when it is cut short.
#[must_use]
pub fn reservation(answer: &[u8]) -> Option<(u32, Option<Held>)> {
    let (generation, rest) = answer_parts(answer)?;
    if rest.is_empty() {
        return Some((generation, None));
    }
    let rest = rest.first_chunk::<16>()?;
    let kind = ReservationType::from_number(rest[13])?;
    Some((generation, Some(Held { key: be64(rest, 0), kind })))
}

fn answer_parts(answer: &[u8]) -> Option<(u32, &[u8])> {
    let (header, rest) = answer.split_first_chunk::<8>()?;
    let [generation, length] =
        [0, 4].map(|at| u32::from(be16(header, at)) << 16 | u32::from(be16(header, at + 2)));
    Some((generation, rest.get(..usize::try_from(length).ok()?)?))
}
