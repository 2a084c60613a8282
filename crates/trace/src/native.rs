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
pub mod layout;
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
