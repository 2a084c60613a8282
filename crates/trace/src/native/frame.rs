//! Frames: some names of devices, some requests, or the end.

use format::checksum::{put_crc, verify_crc};
use format::field::{get, get_u32, put, verify_zero};
use format::{Place, Result};
use model::Request;

use super::layout;
use super::request::{self, Before, REQUEST_BYTES_MAX};

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = layout::FRAME_BYTES;
/// The most bytes that follow a frame's header.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// The longest name of a device.
pub const NAME_BYTES_MAX: usize = 255;

const MAGIC: u32 = u32::from_le_bytes(*b"HSTF");
const SALT: u32 = u32::from_le_bytes(*b"tfrm");

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Names of devices, which get the numbers that follow those of earlier frames.
    Names,
    /// Requests.
    Requests,
    /// Nothing: the trace is whole.
    End,
    /// Nothing: requests that came here were not recorded.
    Lost,
}

impl FrameKind {
    const ALL: [(u32, FrameKind); 4] = [
        (1, FrameKind::Names),
        (2, FrameKind::Requests),
        (3, FrameKind::End),
        (4, FrameKind::Lost),
    ];

    fn number(self) -> u32 {
        match self {
            FrameKind::Names => 1,
            FrameKind::Requests => 2,
            FrameKind::End => 3,
            FrameKind::Lost => 4,
        }
    }
}

/// What stands first in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What it holds.
    pub kind: FrameKind,
    /// Bytes that follow the header.
    pub payload_bytes: usize,
    /// Names or requests in it, or that were lost.
    pub count: u32,
    /// Names (in a frame of names) or requests (in others) in earlier frames.
    pub before: u64,
    /// Time of its first request, or of the last one before it; nanoseconds since the start.
    pub time_ns: u64,
}

impl FrameHeader {
    /// Reads a header, so that it is known how much follows. The checksum is not yet looked at.
    ///
    /// # Errors
    /// `NotThis` or `Invalid`, at the byte `address` of the trace.
    pub fn peek(bytes: &[u8], address: u64) -> Result<FrameHeader> {
        let place = place(address);
        let bytes = place.require_bytes(bytes, FRAME_HEADER_BYTES)?;
        place.require_magic(u64::from(get_u32(bytes, layout::FRAME_MAGIC)), u64::from(MAGIC))?;
        let number = get_u32(bytes, layout::FRAME_KIND);
        let known = FrameKind::ALL.iter().find(|(known, _)| *known == number);
        place.require(known.is_some(), "a kind of frame", number)?;
        let kind = known.map_or(FrameKind::End, |(_, kind)| *kind);
        let payload_bytes = get_u32(bytes, layout::FRAME_PAYLOAD_BYTES) as usize;
        let fits = payload_bytes <= FRAME_PAYLOAD_BYTES_MAX;
        place.require(fits, "a payload of at most 64 KiB", payload_bytes)?;
        let count = get_u32(bytes, layout::FRAME_COUNT);
        let is_empty = kind == FrameKind::End;
        place.require(is_empty == (count == 0), "something in a frame but the last", count)?;
        // Each name or request takes two bytes or more; what was lost takes none.
        let is_lost = kind == FrameKind::Lost;
        let bounded = is_lost || count as usize <= payload_bytes / 2;
        place.require(bounded, "no more than fits in the payload", count)?;
        let is_bare = !is_lost || payload_bytes == 0;
        place.require(is_bare, "no payload where requests were lost", payload_bytes)?;
        verify_zero(place, bytes, layout::FRAME_ZERO)?;
        let before = get(bytes, layout::FRAME_BEFORE);
        let time_ns = get(bytes, layout::FRAME_TIME);
        Ok(FrameHeader { kind, payload_bytes, count, before, time_ns })
    }
}

/// A verified frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its header.
    pub header: FrameHeader,
    payload: &'a [u8],
    place: Place,
}

impl<'a> Frame<'a> {
    /// Verifies a whole frame that stands at the byte `address` of the trace.
    ///
    /// # Errors
    /// `NotThis`, `Checksum` or `Invalid`.
    pub fn decode(bytes: &'a [u8], address: u64) -> Result<Frame<'a>> {
        let place = place(address);
        let header = FrameHeader::peek(bytes, address)?;
        let whole = place.require_bytes(bytes, FRAME_HEADER_BYTES + header.payload_bytes)?;
        verify_crc(place, SALT, whole, layout::FRAME_CRC)?;
        Ok(Frame { header, payload: &whole[FRAME_HEADER_BYTES..], place })
    }

    /// Appends its requests.
    ///
    /// # Errors
    /// `Invalid`; what was appended before is then to be thrown away.
    pub fn requests(&self, requests: &mut Vec<Request>) -> Result<()> {
        assert_eq!(self.header.kind, FrameKind::Requests, "a frame of requests");
        let mut rest = self.payload;
        let mut before = Before::first(self.header.time_ns);
        for _ in 0..self.header.count {
            requests.push(request::decode(self.place, &mut rest, &mut before)?);
        }
        self.place.require(rest.is_empty(), "no bytes after the last request", rest.len())
    }

    /// Its names.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn names(&self) -> Result<Vec<&'a str>> {
        assert_eq!(self.header.kind, FrameKind::Names, "a frame of names");
        let mut rest = self.payload;
        let mut names = Vec::new();
        for _ in 0..self.header.count {
            let name = rest.split_first().and_then(|(&bytes, tail)| {
                let (name, tail) = tail.split_at_checked(usize::from(bytes))?;
                rest = tail;
                std::str::from_utf8(name).ok().filter(|name| !name.is_empty())
            });
            self.place.require(name.is_some(), "a name in UTF-8", "other bytes")?;
            names.extend(name);
        }
        self.place.require(rest.is_empty(), "no bytes after the last name", rest.len())?;
        Ok(names)
    }
}

fn place(address: u64) -> Place {
    Place { structure: "trace frame", address }
}

/// Builds one frame after the other.
#[derive(Debug)]
pub struct FrameEncoder {
    pub(super) bytes: Vec<u8>,
    pub(super) count: u32,
    first_ns: u64,
    before: Before,
}

impl Default for FrameEncoder {
    fn default() -> FrameEncoder {
        let bytes = vec![0; FRAME_HEADER_BYTES];
        FrameEncoder { bytes, count: 0, first_ns: 0, before: Before::default() }
    }
}

impl FrameEncoder {
    /// Whether nothing is in the frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Names or requests in it.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of the frame as it stands, its header included.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether one more request, of any size, has room.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.bytes.len() + REQUEST_BYTES_MAX <= FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX
    }

    /// Appends a request. Asserts that there is room, and order.
    pub fn push_request(&mut self, request: &Request) {
        assert!(self.has_room(), "a frame is sealed when it is full");
        if self.count == 0 {
            self.first_ns = request.time_ns;
            self.before = Before::first(request.time_ns);
        }
        request::encode(&mut self.bytes, &mut self.before, request);
        self.count += 1;
    }

    /// The frame of one device's name.
    #[must_use]
    pub fn name(name: &str, before: u64) -> Vec<u8> {
        assert!((1..=NAME_BYTES_MAX).contains(&name.len()), "{name:?} is a name");
        let mut encoder = FrameEncoder::default();
        encoder.bytes.push(name.len() as u8);
        encoder.bytes.extend_from_slice(name.as_bytes());
        encoder.count = 1;
        encoder.seal(FrameKind::Names, before, 0).to_vec()
    }

    /// The frame that ends a trace of so many requests, the last of them at this time.
    #[must_use]
    pub fn end(requests: u64, last_ns: u64) -> Vec<u8> {
        FrameEncoder::default().seal(FrameKind::End, requests, last_ns).to_vec()
    }

    /// The frame that says that so many requests, at least one, are missing here: after so many
    /// that are not, the last of them at this time.
    #[must_use]
    pub fn lost(count: u32, requests: u64, last_ns: u64) -> Vec<u8> {
        assert!(count > 0, "something is lost");
        let mut encoder = FrameEncoder { count, ..FrameEncoder::default() };
        encoder.seal(FrameKind::Lost, requests, last_ns).to_vec()
    }

    /// The bytes of the frame of requests; the next one may then be begun with [`Self::clear`].
    pub fn requests(&mut self, before: u64) -> &[u8] {
        assert!(self.count > 0, "an empty frame is not written");
        let first_ns = self.first_ns;
        self.seal(FrameKind::Requests, before, first_ns)
    }

    /// Begins the next frame.
    pub fn clear(&mut self) {
        self.bytes.truncate(FRAME_HEADER_BYTES);
        self.count = 0;
    }

    pub(super) fn seal(&mut self, kind: FrameKind, before: u64, time_ns: u64) -> &[u8] {
        let payload_bytes = self.bytes.len() - FRAME_HEADER_BYTES;
        let bytes = &mut self.bytes;
        put(bytes, layout::FRAME_MAGIC, u64::from(MAGIC));
        put(bytes, layout::FRAME_KIND, u64::from(kind.number()));
        put(bytes, layout::FRAME_PAYLOAD_BYTES, payload_bytes as u64);
        put(bytes, layout::FRAME_COUNT, u64::from(self.count));
        put(bytes, layout::FRAME_ZERO, 0);
        put(bytes, layout::FRAME_BEFORE, before);
        put(bytes, layout::FRAME_TIME, time_ns);
        put_crc(SALT, bytes, layout::FRAME_CRC);
        bytes
    }
}
