//! CRC32C (Castagnoli): of blocks of data, plain, and of structures, salted by their type.
//!
//! 1. A block's checksum is the plain CRC32C of its 4096 bytes, so that any tool can check it.
//! 2. A structure's checksum begins with its type's salt, so that bytes of one type never pass for
//!    another's, and leaves out the four bytes of the checksum itself.

use crc_fast::{CrcAlgorithm, Digest};

use crate::error::{FormatErrorKind, Place, Result};
use crate::field::{Field, get, put};

/// The CRC32C of 4096 zero bytes.
pub const ZERO_BLOCK_CRC: u32 = 0x98f9_4189;

/// The plain CRC32C of a block (or of any bytes).
#[inline]
pub fn block_crc(block: &[u8]) -> u32 {
    low_half(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, block))
}

/// The plain CRC32C of bytes that come in pieces.
#[derive(Debug)]
pub struct CrcStream(Digest);

impl Default for CrcStream {
    fn default() -> CrcStream {
        CrcStream(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl CrcStream {
    /// Adds the next piece.
    pub fn append(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all pieces so far.
    pub fn crc(&self) -> u32 {
        low_half(self.0.finalize())
    }
}

/// The CRC32C of the salt's four bytes followed by `bytes`.
pub fn salted_crc(salt: u32, bytes: &[u8]) -> u32 {
    salted_crc_of_parts(salt, &[bytes])
}

/// The salted CRC32C of a structure: all its bytes but those of `field`, which holds it.
pub fn structure_crc(salt: u32, bytes: &[u8], field: Field) -> u32 {
    salted_crc_of_parts(salt, &[&bytes[..field.offset], &bytes[field.offset + field.bytes..]])
}

/// Writes the salted CRC32C of a structure into its field.
pub fn put_crc(salt: u32, bytes: &mut [u8], field: Field) {
    put(bytes, field, u64::from(structure_crc(salt, bytes, field)));
}

/// Fails unless `bytes` hold their own checksum.
///
/// # Errors
/// `Checksum`.
pub fn verify_crc(place: Place, salt: u32, bytes: &[u8], field: Field) -> Result<()> {
    let computed = structure_crc(salt, bytes, field);
    let stored = get(bytes, field);
    if stored == u64::from(computed) {
        return Ok(());
    }
    let expected = format!("checksum {computed:#010x} of the bytes");
    let found = format!("checksum {stored:#010x} in them");
    Err(place.error(FormatErrorKind::Checksum, expected, found))
}

fn salted_crc_of_parts(salt: u32, parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&salt.to_le_bytes());
    for part in parts {
        digest.update(part);
    }
    low_half(digest.finalize())
}

fn low_half(crc: u64) -> u32 {
    u32::try_from(crc).expect("a CRC32C has 32 bits")
}

#[cfg(test)]
mod tests {
    use super::{CrcStream, ZERO_BLOCK_CRC, block_crc, salted_crc};

    #[test]
    fn the_check_value_of_crc32c_is_the_published_one() {
        assert_eq!(block_crc(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn zeros_have_the_constant_checksum() {
        assert_eq!(block_crc(&[0; 4096]), ZERO_BLOCK_CRC);
    }

    #[test]
    fn a_checksum_of_pieces_is_that_of_the_whole() {
        let mut stream = CrcStream::default();
        for piece in [&b"1234"[..], b"", b"56789"] {
            stream.append(piece);
        }
        assert_eq!(stream.crc(), block_crc(b"123456789"));
    }

    #[test]
    fn the_salt_is_the_first_four_bytes() {
        assert_eq!(salted_crc(0x3433_3231, b"56789"), 0xe306_9283);
        assert_ne!(salted_crc(1, b"56789"), salted_crc(2, b"56789"));
    }
}
