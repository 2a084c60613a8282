//! Records in a stream: RFC 5531, section 11.
//!
//! A record is one fragment or more, each behind a mark of four bytes: the highest bit says that it
//! is the last one, the others how long it is.
//!
//! 1. A mark is held against [`RECORD_BYTES_MAX`] before a byte of its fragment is waited for.
//! 2. No mark is looked at twice while a record arrives, but for the newest.

use std::borrow::Cow;

use super::limits::{MARK_BYTES, RECORD_BYTES_MAX};

const LAST: u32 = 1 << 31;

/// A record will be longer than the limit: the connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of {0} bytes or more")]
pub struct TooLong(pub usize);

/// That with which the bytes of a stream begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// The beginning of a record, which has at least so many bytes in all.
    Beginning(usize),
    /// A whole record.
    Whole(Record<'a>),
}

/// A whole record, with its marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a>(&'a [u8]);

/// The search for the end of a record: where the first mark is that was not passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    mark_at: usize,
}

impl Search {
    /// Looks for the end of the record that begins with `bytes`. Until it is found, they are those
    /// of the call before and more; then the search is ready for the next record.
    ///
    /// # Errors
    /// As soon as a mark says that the record will be too long.
    pub fn find<'a>(&mut self, bytes: &'a [u8]) -> Result<Found<'a>, TooLong> {
        loop {
            let mark_end = self.mark_at + MARK_BYTES;
            let Some((length, is_last)) = bytes.get(self.mark_at..).and_then(mark_at_start) else {
                return Ok(Found::Beginning(mark_end));
            };
            let end = mark_end + length;
            let least = if is_last { end } else { end + MARK_BYTES };
            if least > RECORD_BYTES_MAX {
                return Err(TooLong(least));
            }
            if !is_last {
                self.mark_at = end;
                continue;
            }
            let Some(record) = bytes.get(..end) else { return Ok(Found::Beginning(end)) };
            self.mark_at = 0;
            return Ok(Found::Whole(Record(record)));
        }
    }
}

fn mark_at_start(bytes: &[u8]) -> Option<(usize, bool)> {
    let mark = u32::from_be_bytes(*bytes.first_chunk::<MARK_BYTES>()?);
    Some((usize::try_from(mark & !LAST).ok()?, mark & LAST != 0))
}

impl<'a> Record<'a> {
    /// Bytes of the stream that it takes.
    #[must_use]
    pub const fn stream_bytes(&self) -> usize {
        self.0.len()
    }

    /// The data of its fragments that have some, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (length, _) = mark_at_start(rest)?;
            let (data, behind) = rest.get(MARK_BYTES..)?.split_at_checked(length)?;
            rest = behind;
            Some(data)
        })
        .filter(|data| !data.is_empty())
    }

    /// Its data; copied only when it came in several pieces.
    #[must_use]
    pub fn body(&self) -> Cow<'a, [u8]> {
        let mut pieces = self.pieces();
        let first = pieces.next().unwrap_or_default();
        let Some(second) = pieces.next() else { return Cow::Borrowed(first) };
        let mut body = Vec::with_capacity(self.0.len());
        body.extend_from_slice(first);
        body.extend_from_slice(second);
        pieces.for_each(|piece| body.extend_from_slice(piece));
        Cow::Owned(body)
    }
}

/// The mark before the last, or only, fragment of a record.
///
/// # Panics
/// When the fragment has 2 GiB or more.
#[must_use]
pub fn last_mark(fragment_bytes: usize) -> [u8; MARK_BYTES] {
    let length = u32::try_from(fragment_bytes).expect("a fragment is short");
    assert!(length & LAST == 0, "a mark has 31 bits of length");
    (length | LAST).to_be_bytes()
}
