//! The receive buffer of one connection: allocated once, filled by one receive per wake-up, emptied
//! request by request without copying.
//!
//! Invariant: `start <= end <= bytes.len()`; what lies between is received and not consumed.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::socket::Connection;

/// Bytes of the buffer: two of the longest inline payload, so that one can be received while the
/// rest of another is still there. Pages of it that are not reached cost nothing.
pub(super) const INPUT_BYTES: usize = 512 << 10;
/// The longest payload that is received here; longer ones get a buffer of their own.
pub(super) const INLINE_PAYLOAD_BYTES_MAX: usize = 256 << 10;
/// Move what is left to the front when there is less space than this behind it.
const TAIL_BYTES_MIN: usize = 64 << 10;

/// A receive buffer.
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn new() -> Input {
        Input { bytes: vec![0; INPUT_BYTES], start: 0, end: 0 }
    }

    /// Gives the buffer away; nothing is received before it is put back.
    pub(super) fn lend(&mut self) -> Input {
        std::mem::replace(self, Input { bytes: Vec::new(), start: 0, end: 0 })
    }

    /// Whether the buffer is given away.
    pub(super) fn is_lent(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Where in the buffer a part of it is. Until more is received it stays there, also when it is
    /// consumed.
    pub(super) fn place_of(&self, part: &[u8]) -> usize {
        part.as_ptr().addr() - self.bytes.as_ptr().addr()
    }

    /// So many bytes at that place.
    pub(super) fn at(&self, place: usize, count: usize) -> &[u8] {
        &self.bytes[place..place + count]
    }

    /// What is received and not consumed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Drops the first `count` bytes of what is unread.
    pub(super) fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "only received bytes can be consumed");
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Receives once; the number of bytes, 0 at the end of the stream.
    pub(super) fn poll_receive(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<std::io::Result<usize>> {
        if self.bytes.len() - self.end < TAIL_BYTES_MIN && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        // A whole inline request always fits, so a full buffer has one that the session can
        // execute.
        assert!(self.end < self.bytes.len(), "received only while there is space");
        let mut space = ReadBuf::new(&mut self.bytes[self.end..]);
        ready!(Pin::new(connection).poll_read(cx, &mut space))?;
        let count = space.filled().len();
        self.end += count;
        Poll::Ready(Ok(count))
    }
}
