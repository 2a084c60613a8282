//! The root of a share: its identity, and where its operation log nearly is.

use units::WallTime;

use crate::FORMAT_VERSION;
use crate::error::{FormatErrorKind, Place, Result};
use crate::field::{codec, get, get_u32, put, verify_zero};
use crate::share::place::{BLOCK_BYTES, ROOT_BLOCK, ShareAddress};

/// Where the fields are.
pub mod layout {
    use crate::field::{Field, fields, tile};

    /// The whole structure.
    pub const BYTES: usize = 4096;
    fields! {
        /// In order.
        FIELDS[BYTES]:
        MAGIC = "magic", 0, 8;
        FORMAT_VERSION = "format_version", 8, 4;
        ZERO = "zero", 12, 4;
        SHARE_ID = "share_id", 16, 16;
        HASH_KEY = "hash_key", 32, 16;
        CREATED = "created", 48, 8;
        LOG_HINT = "log_hint", 56, 8;
        INCOMPATIBLE = "features_incompatible", 64, 8;
        READ_ONLY = "features_read_only", 72, 8;
        COMPATIBLE = "features_compatible", 80, 8;
        REST = "zero", 88, 4008;
    }
}

/// The magic: `HSHAROOT`, as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HSHAROOT");
/// The root is written anew with each block of the log whose number is a multiple of this.
pub const HINT_BLOCKS: u64 = 4096;

/// The root of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRoot {
    /// A random number.
    pub share_id: u128,
    /// The secret of the hashes of names.
    pub hash_key: u128,
    /// The birth of the share.
    pub created: WallTime,
    /// The last block of the log has this number, or one of the `HINT_BLOCKS - 1` after it.
    pub log_hint: u64,
    /// Features, unknown to this program, without which the share can be read, and not written.
    pub features_read_only: u64,
    /// Features, unknown to this program, that it may be without.
    pub features_compatible: u64,
}

codec! {
    ShareRoot:
    share_id = SHARE_ID, hash_key = HASH_KEY, created = CREATED, log_hint = LOG_HINT,
    features_read_only = READ_ONLY, features_compatible = COMPATIBLE;
}

impl ShareRoot {
    /// The tag of the share's blocks.
    pub fn tag(&self) -> u32 {
        self.share_id as u32
    }

    /// The address of a block of the share.
    pub fn address(&self, block: u64) -> ShareAddress {
        ShareAddress { tag: self.tag(), block, has_more: self.features_read_only != 0 }
    }

    /// Its block.
    pub fn encode(&self) -> Box<[u8; BLOCK_BYTES]> {
        assert!(self.log_hint.is_multiple_of(HINT_BLOCKS));
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        let b = &mut bytes[..];
        put(b, layout::MAGIC, MAGIC);
        put(b, layout::FORMAT_VERSION, u64::from(FORMAT_VERSION));
        self.put_fields(b);
        bytes
    }

    /// Sets the hint in a root's block; the rest stays, whatever it means.
    pub fn set_log_hint(bytes: &mut [u8; BLOCK_BYTES], log_hint: u64) {
        assert!(log_hint.is_multiple_of(HINT_BLOCKS));
        put(&mut bytes[..], layout::LOG_HINT, log_hint);
    }

    /// Decodes the root from its block.
    ///
    /// # Errors
    /// `NotThis`, `Version`, or `Invalid`.
    pub fn decode(bytes: &[u8; BLOCK_BYTES]) -> Result<ShareRoot> {
        let place = Place { structure: "share root", address: ROOT_BLOCK };
        let b = &bytes[..];
        place.require_magic(get(b, layout::MAGIC), MAGIC)?;
        place.require_version(get_u32(b, layout::FORMAT_VERSION))?;
        let features = get(b, layout::INCOMPATIBLE);
        if features != 0 {
            let found = format!("features {features:#x}");
            return Err(place.error(FormatErrorKind::Version, "no feature", found));
        }
        verify_zero(place, b, layout::ZERO)?;
        let root = ShareRoot::get_fields(b);
        if root.features_read_only | root.features_compatible == 0 {
            verify_zero(place, b, layout::REST)?;
        }
        place.require_countable("block of the log", root.log_hint)?;
        let is_whole = root.log_hint.is_multiple_of(HINT_BLOCKS);
        place.require(is_whole, "a log_hint that is a multiple of 4096", root.log_hint)?;
        Ok(root)
    }
}
