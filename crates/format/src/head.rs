//! The beginning that most structures have, here and in later versions: magic, checksum, version.

use crate::FORMAT_VERSION;
use crate::checksum::{put_crc, verify_crc};
use crate::error::{Place, Result};
use crate::field::{Field, get, get_u32, put};

const MAGIC: Field = Field::new("magic", 0, 8);
const CRC: Field = Field::new("crc", 8, 4);
const VERSION: Field = Field::new("format_version", 12, 4);

/// Puts the beginning of a structure before the rest of it, which is there.
pub(crate) fn seal(b: &mut [u8], magic: u64, salt: u32) {
    put(b, MAGIC, magic);
    put(b, VERSION, u64::from(FORMAT_VERSION));
    put_crc(salt, b, CRC);
}

impl Place {
    /// The first `count` bytes, which begin with the beginning of a structure and have its
    /// checksum.
    pub(crate) fn head(self, bytes: &[u8], count: usize, magic: u64, salt: u32) -> Result<&[u8]> {
        let b = self.require_bytes(bytes, count)?;
        self.require_magic(get(b, MAGIC), magic)?;
        verify_crc(self, salt, b, CRC)?;
        self.require_version(get_u32(b, VERSION))?;
        Ok(b)
    }

    /// An `Invalid` error unless the address that a structure has in it is its own.
    pub(crate) fn require_own_address(self, b: &[u8], address: Field) -> Result<()> {
        let found = get(b, address);
        self.require(found == self.address, "its own address", found)
    }
}
