//! The receive buffer of one connection: allocated once, filled by one receive per wake-up, emptied
//! request by request without copying.
//!
//! Invariant: `start <= end <= bytes.len()`; what lies between is received and not consumed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::socket::Connection;

/// Bytes of the buffer: two of the longest inline payload, so that one can be received while the
/// rest of another is still there. Pages of it that are not reached cost nothing.
pub(crate) const INPUT_BYTES: usize = 512 << 10;
/// The longest payload that is received here; longer ones get a buffer of their own.
pub(crate) const INLINE_PAYLOAD_BYTES_MAX: usize = 256 << 10;
/// Move what is left to the front when there is less space than this behind it.
const TAIL_BYTES_MIN: usize = 64 << 10;

/// A receive buffer.
pub(crate) struct Input {
    bytes: Arc<Vec<u8>>,
    start: usize,
    end: usize,
    is_lent: bool,
}

/// A receive buffer to read from, until it is given back.
pub(crate) struct Lent(Arc<Vec<u8>>);

impl Lent {
    /// So many bytes at that place.
    pub(crate) fn at(&self, place: usize, count: usize) -> &[u8] {
        &self.0[place..place + count]
    }
}

impl Input {
    pub(crate) fn new() -> Input {
        Input { bytes: Arc::new(vec![0; INPUT_BYTES]), start: 0, end: 0, is_lent: false }
    }

    /// Lends the buffer; nothing of it is unread, and nothing received, before it is given back.
    pub(crate) fn lend(&mut self) -> Lent {
        self.is_lent = true;
        Lent(Arc::clone(&self.bytes))
    }

    /// Takes the buffer back.
    pub(crate) fn take_back(&mut self, lent: Lent) {
        drop(lent);
        self.is_lent = false;
    }

    /// Whether the buffer is lent.
    pub(crate) fn is_lent(&self) -> bool {
        self.is_lent
    }

    /// Where in the buffer a part of it is. Until more is received it stays there, also when it is
    /// consumed.
    pub(crate) fn place_of(&self, part: &[u8]) -> usize {
        part.as_ptr().addr() - self.bytes.as_ptr().addr()
    }

    /// The bytes received and not consumed; none while the buffer is lent.
    pub(crate) fn unread(&self) -> &[u8] {
        if self.is_lent { &[] } else { self.behind() }
    }

    /// The same, also while the buffer is lent.
    pub(crate) fn behind(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Drops the first `count` bytes of what is unread.
    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "only received bytes can be consumed");
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Receives once; the number of bytes, 0 at the end of the stream.
    pub(crate) fn poll_receive(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<std::io::Result<usize>> {
        let bytes = Arc::get_mut(&mut self.bytes).expect("received only while it is not lent");
        if bytes.len() - self.end < TAIL_BYTES_MIN && self.start > 0 {
            bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        // A whole inline request always fits, so a full buffer has one that the session can
        // execute.
        assert!(self.end < bytes.len(), "received only while there is space");
        let mut space = ReadBuf::new(&mut bytes[self.end..]);
        ready!(Pin::new(connection).poll_read(cx, &mut space))?;
        let count = space.filled().len();
        self.end += count;
        Poll::Ready(Ok(count))
    }
}
