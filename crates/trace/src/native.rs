//! A trace of our own format: the requests that a volume, or several, received, with their times.
//! `docs/format/trace.md`.
//!
//! 1. Times never fall, within a frame and from frame to frame.
//! 2. Every frame is decoded alone: nothing in it refers to another frame but device numbers.
//! 3. A trace is whole when it ends with an end frame that counts what came before.
//!
//! It does not know where requests come from, nor what they cost.

use format::checksum::{put_crc, verify_crc};
use format::field::{get, get_u32, put, verify_zero};
use format::{FormatErrorKind, Place, Result};

mod frame;
mod request;

pub use frame::{
    FRAME_HEADER_BYTES, FRAME_PAYLOAD_BYTES_MAX, Frame, FrameEncoder, FrameHeader, FrameKind,
    NAME_BYTES_MAX,
};
pub use request::REQUEST_BYTES_MAX;

/// The version of trace that this program writes, and the only one it reads.
pub const TRACE_VERSION: u32 = 1;
/// Bytes of a trace's header.
pub const TRACE_HEADER_BYTES: usize = layout::BYTES;
/// What a trace begins with.
pub const TRACE_MAGIC: [u8; 8] = *b"HSTRACES";

/// Where the header's fields are.
pub mod layout {
    use format::field::{Field, tile};

    pub(crate) const BYTES: usize = 32;
    pub(crate) const MAGIC: Field = Field::new("magic", 0, 8);
    pub(crate) const CRC: Field = Field::new("crc", 8, 4);
    pub(crate) const VERSION: Field = Field::new("version", 12, 4);
    pub(crate) const START: Field = Field::new("start", 16, 8);
    pub(crate) const ZERO: Field = Field::new("zero", 24, 8);
    /// In order.
    pub const FIELDS: &[Field] = &[MAGIC, CRC, VERSION, START, ZERO];
    const _: () = assert!(tile(FIELDS, BYTES));

    pub(crate) const FRAME_BYTES: usize = 40;
    pub(crate) const FRAME_MAGIC: Field = Field::new("magic", 0, 4);
    pub(crate) const FRAME_CRC: Field = Field::new("crc", 4, 4);
    pub(crate) const FRAME_KIND: Field = Field::new("kind", 8, 4);
    pub(crate) const FRAME_PAYLOAD_BYTES: Field = Field::new("payload_bytes", 12, 4);
    pub(crate) const FRAME_COUNT: Field = Field::new("count", 16, 4);
    pub(crate) const FRAME_ZERO: Field = Field::new("zero", 20, 4);
    pub(crate) const FRAME_BEFORE: Field = Field::new("before", 24, 8);
    pub(crate) const FRAME_TIME: Field = Field::new("time", 32, 8);
    /// In order.
    pub const FRAME_FIELDS: &[Field] = &[
        FRAME_MAGIC,
        FRAME_CRC,
        FRAME_KIND,
        FRAME_PAYLOAD_BYTES,
        FRAME_COUNT,
        FRAME_ZERO,
        FRAME_BEFORE,
        FRAME_TIME,
    ];
    const _: () = assert!(tile(FRAME_FIELDS, FRAME_BYTES));
}

const PLACE: Place = Place { structure: "trace header", address: 0 };
const SALT: u32 = u32::from_le_bytes(*b"trac");

/// What stands first in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceHeader {
    /// Nanoseconds since 1970 at which the trace's time is 0; 0 where that is not known.
    pub start: u64,
}

impl TraceHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; TRACE_HEADER_BYTES] {
        let mut bytes = [0; TRACE_HEADER_BYTES];
        put(&mut bytes, layout::MAGIC, u64::from_le_bytes(TRACE_MAGIC));
        put(&mut bytes, layout::VERSION, u64::from(TRACE_VERSION));
        put(&mut bytes, layout::START, self.start);
        put_crc(SALT, &mut bytes, layout::CRC);
        bytes
    }

    /// Verifies a header.
    ///
    /// # Errors
    /// `NotThis`, `Checksum`, `Version` or `Invalid`.
    pub fn decode(bytes: &[u8]) -> Result<TraceHeader> {
        let bytes = PLACE.require_bytes(bytes, TRACE_HEADER_BYTES)?;
        PLACE.require_magic(get(bytes, layout::MAGIC), u64::from_le_bytes(TRACE_MAGIC))?;
        verify_crc(PLACE, SALT, bytes, layout::CRC)?;
        let version = get_u32(bytes, layout::VERSION);
        if version != TRACE_VERSION {
            let expected = format!("trace version {TRACE_VERSION}");
            let found = format!("trace version {version}");
            return Err(PLACE.error(FormatErrorKind::Version, expected, found));
        }
        verify_zero(PLACE, bytes, layout::ZERO)?;
        Ok(TraceHeader { start: get(bytes, layout::START) })
    }
}

#[cfg(test)]
mod tests;
