//! One request in a frame: a tag that says what follows, then numbers of as many bytes as needed.

use format::{FormatError, FormatErrorKind, Place, Result};
use model::request::ADDRESS_MAX;
use model::{Request, RequestKind};

/// The most bytes that one request takes.
pub const REQUEST_BYTES_MAX: usize = 1 + 4 * VARINT_BYTES_MAX;
/// Seven bits a byte: 64 bits take ten.
const VARINT_BYTES_MAX: usize = 10;
/// The unit of offsets and lengths that are multiples of it.
const SECTOR_BYTES: u64 = 512;

const KIND_BITS: u8 = 0b111;
const OTHER_DEVICE: u8 = 1 << 3;
const CONTINUES: u8 = 1 << 4;
const SAME_LENGTH: u8 = 1 << 5;
const IN_BYTES: u8 = 1 << 6;
const FUA: u8 = 1 << 7;

/// What a request is written as a difference to: the one before it in the frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    pub(crate) time_ns: u64,
    pub(crate) device: u32,
    end_bytes: u64,
    length_bytes: u64,
}

impl Before {
    pub(crate) fn first(time_ns: u64) -> Before {
        Before { time_ns, ..Before::default() }
    }

    fn advance(&mut self, request: &Request) {
        self.time_ns = request.time_ns;
        self.device = request.device;
        if request.kind != RequestKind::Flush {
            self.end_bytes = request.end_bytes();
            self.length_bytes = request.length_bytes;
        }
    }
}

/// Appends a request. Asserts that it is valid and not earlier than the one before.
pub(crate) fn encode(bytes: &mut Vec<u8>, before: &mut Before, request: &Request) {
    assert!(request.is_valid(), "{request:?} has a range");
    assert!(request.time_ns >= before.time_ns, "{request:?} is in order");
    let is_flush = request.kind == RequestKind::Flush;
    let all = request.offset_bytes | request.length_bytes;
    let unit = if all.is_multiple_of(SECTOR_BYTES) { SECTOR_BYTES } else { 1 };
    let base = before.end_bytes / unit;
    let other_device = request.device != before.device;
    // In sectors an end that is no multiple is rounded down, so it continues nothing.
    let continues = request.offset_bytes == base * unit;
    let same_length = request.length_bytes == before.length_bytes;
    let mut tag = request.kind as u8;
    tag |= if other_device { OTHER_DEVICE } else { 0 };
    tag |= if request.is_fua { FUA } else { 0 };
    if !is_flush {
        tag |= if continues { CONTINUES } else { 0 };
        tag |= if same_length { SAME_LENGTH } else { 0 };
        tag |= if unit == 1 { IN_BYTES } else { 0 };
    }
    bytes.push(tag);
    put_varint(bytes, request.time_ns - before.time_ns);
    if other_device {
        put_varint(bytes, u64::from(request.device));
    }
    if !is_flush && !continues {
        let offset = request.offset_bytes / unit;
        put_varint(bytes, zigzag(offset as i64 - base as i64));
    }
    if !is_flush && !same_length {
        put_varint(bytes, request.length_bytes / unit);
    }
    before.advance(request);
}

/// Takes a request off the front of `bytes`.
#[inline]
pub(crate) fn decode(place: Place, bytes: &mut &[u8], before: &mut Before) -> Result<Request> {
    let Some((&tag, rest)) = bytes.split_first() else {
        return Err(ends_early(place));
    };
    *bytes = rest;
    let Some(&kind) = RequestKind::ALL.get(usize::from(tag & KIND_BITS)) else {
        let found = (tag & KIND_BITS).to_string();
        return Err(place.error(FormatErrorKind::Invalid, "a kind of request", found));
    };
    let mut request = Request { kind, is_fua: tag & FUA != 0, ..Request::default() };
    let later = before.time_ns.checked_add(varint(place, bytes)?);
    place.require(later.is_some(), "a time below 2^64", "a later one")?;
    request.time_ns = later.unwrap_or_default();
    request.device = before.device;
    if tag & OTHER_DEVICE != 0 {
        let device = varint(place, bytes)?;
        place.require(u32::try_from(device).is_ok(), "a device below 2^32", device)?;
        request.device = device as u32;
    }
    if kind == RequestKind::Flush {
        let unused = tag & (CONTINUES | SAME_LENGTH | IN_BYTES);
        place.require(unused == 0, "a flush without a range", tag)?;
    } else {
        decode_range(place, bytes, before, tag, &mut request)?;
    }
    before.advance(&request);
    Ok(request)
}

#[inline]
fn decode_range(
    place: Place,
    bytes: &mut &[u8],
    before: &Before,
    tag: u8,
    request: &mut Request,
) -> Result<()> {
    let unit = if tag & IN_BYTES != 0 { 1 } else { SECTOR_BYTES };
    let mut offset = before.end_bytes / unit;
    if tag & CONTINUES == 0 {
        // Ends are at most 2^63 - 1, so this does not overflow.
        offset = (offset as i64).wrapping_add(unzigzag(varint(place, bytes)?)) as u64;
    }
    let scale = |value: u64| value.checked_mul(unit).filter(|v| *v <= ADDRESS_MAX);
    let scaled = scale(offset);
    place.require(scaled.is_some(), "an offset below 2^63", offset)?;
    request.offset_bytes = scaled.unwrap_or_default();
    request.length_bytes = before.length_bytes;
    if tag & SAME_LENGTH == 0 {
        let length = varint(place, bytes)?;
        let scaled = scale(length);
        place.require(scaled.is_some(), "a length below 2^63", length)?;
        request.length_bytes = scaled.unwrap_or_default();
    }
    place.require(request.is_valid(), "a range below 2^63", request.length_bytes)
}

fn zigzag(value: i64) -> u64 {
    (value.wrapping_shl(1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[inline]
fn varint(place: Place, bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0_u64;
    for (i, &byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        value |= bits << (7 * i);
        if byte & 0x80 == 0 {
            place.require(i < 9 || bits <= 1, "a number below 2^64", byte)?;
            *bytes = &bytes[i + 1..];
            return Ok(value);
        }
    }
    if bytes.len() >= VARINT_BYTES_MAX {
        place.require(false, "a number of at most ten bytes", "a longer one")?;
    }
    Err(ends_early(place))
}

fn ends_early(place: Place) -> FormatError {
    let expected = "as many requests as the frame counts";
    place.error(FormatErrorKind::Invalid, expected, "the end of its payload")
}
