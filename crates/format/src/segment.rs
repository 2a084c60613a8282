//! A segment's header: the first 512 bytes of a zone of the log. `docs/format/segment.md`.
//!
//! 1. A segment belongs to one log, and is named by a number that is never used again.
//! 2. Its nonce is in every batch of it, so that what an earlier segment left in the zone, or what
//!    a client wrote to look like a batch, is never replayed.

use units::{Seq, WallTime};

use crate::checksum::salted_crc;
use crate::error::{Place, Result};
use crate::field::{codec, verify_zero};
use crate::head::seal;
use crate::location::SEGMENT_NUMBER_MAX;

/// Where the header's fields are.
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
        POOL_ID = "pool_id", 16, 16;
        SEGMENT = "segment", 32, 8;
        ZONE = "zone", 40, 4;
        ZERO = "zero", 44, 4;
        LOG = "log", 48, 8;
        NONCE = "nonce", 56, 8;
        CREATED = "created", 64, 8;
        FIRST_SEQ = "first_seq", 72, 8;
        UNUSED = "unused", 80, 16;
        ZERO_TO_END = "zero", 96, 416;
    }
}

/// Bytes of the header; the first batch follows.
pub const SEGMENT_HEADER_BYTES: usize = layout::BYTES;
/// The magic: `HSEGMENT`, as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HSEGMENT");
const SALT: u32 = u32::from_le_bytes(*b"segm");
const NONCE_SALT: u32 = u32::from_le_bytes(*b"nonc");

/// The nonce of a segment. Its upper half is drawn anew whenever a segment is begun; its lower half
/// is computed from that with the pool's secret, so that a batch proves by itself that it is of a
/// segment whose header is damaged: no client knows what to write.
pub fn nonce(secret: u64, segment: u64, random: u32) -> u64 {
    let mut told = [0; 20];
    told[..8].copy_from_slice(&secret.to_le_bytes());
    told[8..16].copy_from_slice(&segment.to_le_bytes());
    told[16..].copy_from_slice(&random.to_le_bytes());
    u64::from(random) << 32 | u64::from(salted_crc(NONCE_SALT, &told))
}

/// Whether a nonce is one of a segment, told without its header.
pub fn is_nonce_of(secret: u64, segment: u64, found: u64) -> bool {
    nonce(secret, segment, (found >> 32) as u32) == found
}

/// The identity of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The pool it belongs to.
    pub pool_id: u128,
    /// Its number, 1 to `SEGMENT_NUMBER_MAX`.
    pub segment: u64,
    /// The zone it is in: its own address.
    pub zone: u32,
    /// The log it belongs to.
    pub log: u64,
    /// Half of it random ([`nonce`]); repeated in each of its batches.
    pub nonce: u64,
    /// When it was opened.
    pub created: WallTime,
    /// No write in it has a smaller seq, but for relocated ones.
    pub first_seq: Seq,
}

codec! {
    SegmentHeader:
    pool_id = POOL_ID, segment = SEGMENT, zone = ZONE, log = LOG, nonce = NONCE,
    created = CREATED, first_seq = FIRST_SEQ;
}

impl SegmentHeader {
    /// The header's bytes. Asserts that every field is in its range.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        self.verify(self.place()).expect("a segment header that we write is in range");
        let mut b = [0; SEGMENT_HEADER_BYTES];
        self.put_fields(&mut b);
        seal(&mut b, MAGIC, SALT);
        b
    }

    /// Decodes the header from its 512 bytes (`bytes` may be longer). The caller compares the pool,
    /// the zone and the segment with what it looked for.
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, `Version` (in this order of checking), or `Invalid`.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader> {
        let place = Place { structure: "segment", address: 0 };
        let b = place.head(bytes, layout::BYTES, MAGIC, SALT)?;
        verify_zero(place, b, layout::ZERO)?;
        verify_zero(place, b, layout::ZERO_TO_END)?;
        let header = SegmentHeader::get_fields(b);
        header.verify(header.place())?;
        Ok(header)
    }

    fn place(&self) -> Place {
        Place { structure: "segment", address: u64::from(self.zone) }
    }

    fn verify(&self, place: Place) -> Result<()> {
        let segment_holds = (1..=SEGMENT_NUMBER_MAX).contains(&self.segment);
        place.require(segment_holds, "segment 1 to 2^29 - 1", self.segment)?;
        place.require(self.zone != 0, "a zone other than 0", self.zone)?;
        place.require(self.first_seq <= Seq::MAX, "first_seq below 2^48", self.first_seq)
    }
}
