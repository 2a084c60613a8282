//! The crypt layer's structures: a header with the key of the data, itself under another key.
//! `docs/format/crypt.md`.
//!
//! 1. Nothing in the header is a secret. The wrapped key says whether the key that is to open it
//!    is the right one; the checksum of the header says whether it is damaged. Neither is taken for
//!    the other.

use crate::error::{FormatErrorKind, Place, Result};
use crate::field::{codec, get_u32, put, verify_zero};
use crate::head::seal;

/// Where the fields of the header are.
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
        CIPHER = "cipher", 16, 4;
        DERIVATION = "derivation", 20, 4;
        SECTORS = "sectors", 24, 8;
        ADDRESS = "address", 32, 8;
        SALT = "salt", 40, 32;
        WRAPPED_KEY = "wrapped_key", 72, 72;
        ZERO = "zero", 144, 368;
    }
}

/// Bytes of a sector: of the header, and what one tweak is for.
pub const SECTOR_BYTES: usize = layout::BYTES;
/// Where the two copies of the header are.
pub const COPY_OFFSETS: [u64; 2] = [0, 64 << 10];
/// Where the data begins.
pub const DATA_OFFSET: u64 = 128 << 10;
/// Sectors that there can be: offsets have 63 bits.
pub const SECTORS_MAX: u64 = (i64::MAX as u64 - DATA_OFFSET) / SECTOR_BYTES as u64;
/// The magic: `HINDCRYP`, as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HINDCRYP");
const SALT: u32 = u32::from_le_bytes(*b"cryp");
/// AES-256 in XTS mode, the tweak of a sector being its number.
const CIPHER_AES_256_XTS: u32 = 1;
/// HKDF with SHA-256.
const DERIVATION_HKDF_SHA256: u32 = 1;

/// How a device is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CryptHeader {
    /// Sectors of data.
    pub sectors: u64,
    /// Random; what the key that wraps is derived with.
    pub salt: [u8; 32],
    /// The key of the data, 64 bytes, as AES key wrap (RFC 3394) leaves it.
    pub wrapped_key: [u8; 72],
}

codec!(CryptHeader: sectors = SECTORS, salt = SALT, wrapped_key = WRAPPED_KEY;);

impl CryptHeader {
    /// The bytes of one of the two copies. Asserts that every field is in its range.
    pub fn encode(&self, copy: usize) -> [u8; SECTOR_BYTES] {
        let place = place(copy);
        self.verify(place).expect("a crypt header that we write is in range");
        let mut b = [0; SECTOR_BYTES];
        put(&mut b, layout::CIPHER, u64::from(CIPHER_AES_256_XTS));
        put(&mut b, layout::DERIVATION, u64::from(DERIVATION_HKDF_SHA256));
        put(&mut b, layout::ADDRESS, place.address);
        self.put_fields(&mut b);
        seal(&mut b, MAGIC, SALT);
        b
    }

    /// Decodes copy number `copy` from its 512 bytes (`bytes` may be longer).
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, `Version` (in this order of checking; an unknown cipher or derivation
    /// is one of another version), or `Invalid`.
    pub fn decode(bytes: &[u8], copy: usize) -> Result<CryptHeader> {
        let place = place(copy);
        let b = place.head(bytes, layout::BYTES, MAGIC, SALT)?;
        require_known(place, "cipher", get_u32(b, layout::CIPHER))?;
        require_known(place, "derivation", get_u32(b, layout::DERIVATION))?;
        place.require_own_address(b, layout::ADDRESS)?;
        verify_zero(place, b, layout::ZERO)?;
        let header = CryptHeader::get_fields(b);
        header.verify(place)?;
        Ok(header)
    }

    fn verify(&self, place: Place) -> Result<()> {
        let holds = (1..=SECTORS_MAX).contains(&self.sectors);
        place.require(holds, "1 to 2^54 - 257 sectors", self.sectors)
    }
}

fn place(copy: usize) -> Place {
    Place { structure: "crypt header", address: COPY_OFFSETS[copy] }
}

/// Both numbers know one value so far, and it is 1.
fn require_known(place: Place, name: &str, found: u32) -> Result<()> {
    if found == CIPHER_AES_256_XTS {
        return Ok(());
    }
    let (expected, found) = (format!("{name} 1"), format!("{name} {found}"));
    Err(place.error(FormatErrorKind::Version, expected, found))
}
