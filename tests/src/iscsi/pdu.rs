//! PDUs as bytes: the header of 48, the data behind it, digests of both where they were agreed.

use std::io::Read;

use anyhow::{Result, ensure};

pub(super) const HEADER_BYTES: usize = 48;
/// Longest data of a PDU that we say we take.
pub(super) const DATA_BYTES_MAX: usize = 256 << 10;

pub(super) const NOP_OUT: u8 = 0x00;
pub(super) const COMMAND: u8 = 0x01;
pub(super) const LOGIN: u8 = 0x03;
pub(super) const DATA_OUT: u8 = 0x05;
pub(super) const LOGOUT: u8 = 0x06;
pub(super) const NOP_IN: u8 = 0x20;
pub(super) const RESPONSE: u8 = 0x21;
pub(super) const LOGIN_RESPONSE: u8 = 0x23;
pub(super) const DATA_IN: u8 = 0x25;
pub(super) const LOGOUT_RESPONSE: u8 = 0x26;
pub(super) const R2T: u8 = 0x31;
pub(super) const ASYNC: u8 = 0x32;
pub(super) const IMMEDIATE: u8 = 0x40;
pub(super) const FINAL: u8 = 0x80;
/// The tag that is none.
pub(super) const NO_TAG: u32 = u32::MAX;

/// Which digests a connection has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Digests {
    pub header: bool,
    pub data: bool,
}

/// One PDU.
#[derive(Clone, Debug)]
pub(super) struct Pdu {
    pub header: [u8; HEADER_BYTES],
    pub data: Vec<u8>,
}

impl Pdu {
    pub fn new(kind: u8, flags: u8, tag: u32) -> Pdu {
        let mut pdu = Pdu { header: [0; HEADER_BYTES], data: Vec::new() };
        (pdu.header[0], pdu.header[1]) = (kind, flags);
        pdu.set(16, tag);
        pdu
    }

    pub fn kind(&self) -> u8 {
        self.header[0] & 0x3f
    }

    pub fn flags(&self) -> u8 {
        self.header[1]
    }

    /// The number at an offset of the header.
    pub fn get(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.header[at..at + 4].try_into().expect("four bytes"))
    }

    pub fn set(&mut self, at: usize, number: u32) {
        self.header[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }

    pub fn tag(&self) -> u32 {
        self.get(16)
    }

    /// The bytes to be sent.
    pub fn bytes(mut self, digests: Digests) -> Vec<u8> {
        let length = u32::try_from(self.data.len()).expect("data of a PDU are short");
        self.header[5..8].copy_from_slice(&length.to_be_bytes()[1..]);
        let mut bytes = self.header.to_vec();
        if digests.header {
            bytes.extend(crc32c(&self.header).to_le_bytes());
        }
        self.data.resize(self.data.len().next_multiple_of(4), 0);
        bytes.extend(&self.data);
        if digests.data && !self.data.is_empty() {
            bytes.extend(crc32c(&self.data).to_le_bytes());
        }
        bytes
    }

    /// The next PDU of a connection.
    pub fn receive(stream: &mut impl Read, digests: Digests) -> Result<Pdu> {
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header)?;
        ensure!(header[4] == 0, "additional headers, which nobody asked for");
        if digests.header {
            ensure!(digest(stream)? == crc32c(&header), "a header whose digest is another");
        }
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        ensure!(length <= DATA_BYTES_MAX, "a PDU of {length} bytes");
        let mut data = vec![0; length.next_multiple_of(4)];
        stream.read_exact(&mut data)?;
        if digests.data && length > 0 {
            ensure!(digest(stream)? == crc32c(&data), "data whose digest is another");
        }
        data.truncate(length);
        Ok(Pdu { header, data })
    }
}

fn digest(stream: &mut impl Read) -> Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Castagnoli's checksum, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0x82f6_3b78 & (sum & 1).wrapping_neg());
        }
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn the_checksum_is_that_of_rfc_7143() {
        // Appendix A.4 gives these bytes in the order in which they are sent.
        assert_eq!(crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
    }
}
