//! The mark of a write buffer: a member of which some of what was acknowledged is elsewhere says
//! so. `docs/format/write-buffer.md`.

use crate::error::{Place, Result};
use crate::field::{codec, put, verify_zero};
use crate::head::seal;

/// Where the fields are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// The whole structure.
    pub const BYTES: usize = 512;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        MAGIC = "magic", 0, 8;
        CRC = "crc", 8, 4;
        FORMAT_VERSION = "format_version", 12, 4;
        TAG = "tag", 16, 16;
        BOOT = "boot", 32, 16;
        ADDRESS = "address", 48, 8;
        ZERO = "zero", 56, 456;
    }
}

/// The magic: `HINDWBUF`, as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HINDWBUF");
const SALT: u32 = u32::from_le_bytes(*b"wbuf");
/// Where it is on a member: in its label's MiB.
pub const OFFSET: u64 = 384 << 10;
/// Bytes of it: a sector, which is written whole or not at all.
pub const BYTES: usize = layout::BYTES;
/// A mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The random number of the memory.
    pub tag: u128,
    /// The start of the machine in which it was made.
    pub boot: u128,
}

codec!(Mark: tag = TAG, boot = BOOT;);

impl Mark {
    /// Its bytes.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut b = [0; BYTES];
        self.put_fields(&mut b);
        put(&mut b, layout::ADDRESS, OFFSET);
        seal(&mut b, MAGIC, SALT);
        b
    }

    /// Decodes a mark from its 512 bytes.
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, `Version` (in this order of checking), or `Invalid`.
    pub fn decode(bytes: &[u8]) -> Result<Mark> {
        let place = Place { structure: "mark of a write buffer", address: OFFSET };
        let b = place.head(bytes, BYTES, MAGIC, SALT)?;
        verify_zero(place, b, layout::ZERO)?;
        place.require_own_address(b, layout::ADDRESS)?;
        Ok(Mark::get_fields(b))
    }
}
