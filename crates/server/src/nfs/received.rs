//! The receive buffer of a connection: jobs hold it while they use calls in it.
//!
//! Invariants
//! 1. `start <= end <= bytes.len()`; what lies between is received and not consumed.
//! 2. Beyond [`OWN_BYTES`] a connection has memory only while a record is in it that needs it, and
//!    all connections together have [`ALL_BYTES_MAX`]. A buffer grows at once to what its record
//!    needs, so that none waits half received for another.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use wire::rpc::limits::RECORD_BYTES_MAX;

use super::context::NfsContext;
use crate::serving::Connection;

/// Bytes that each connection may have.
const OWN_BYTES: usize = 64 << 10;
/// Bytes beyond that of all connections together.
const ALL_BYTES_MAX: u64 = 256 << 20;

const _: () = assert!(RECORD_BYTES_MAX > OWN_BYTES);

/// A receive buffer.
pub(super) struct Received {
    context: Arc<NfsContext>,
    bytes: Arc<Vec<u8>>,
    start: usize,
    end: usize,
    /// Bytes that the record needs that `start` is the beginning of.
    wanted: usize,
    /// Bytes that count among those of all connections.
    counted: u64,
}

impl Received {
    pub(super) fn new(context: &Arc<NfsContext>) -> Received {
        let context = Arc::clone(context);
        Received { context, bytes: Arc::default(), start: 0, end: 0, wanted: 0, counted: 0 }
    }

    /// The buffer.
    pub(super) fn bytes(&self) -> &Arc<Vec<u8>> {
        &self.bytes
    }

    /// The part of it that is not consumed.
    pub(super) fn unread(&self) -> Range<usize> {
        self.start..self.end
    }

    /// So many bytes were carried out.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "only what is there is consumed");
        self.wanted = 0;
    }

    /// The record that begins now has at least so many bytes.
    pub(super) fn wants(&mut self, count: usize) {
        self.wanted = count;
    }

    /// Receives once; ready with the number of bytes, 0 at the end of the stream. Pending also if
    /// there is no memory now: nobody is woken for that.
    pub(super) fn poll_receive(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<std::io::Result<usize>> {
        if !self.make_space() {
            return Poll::Pending;
        }
        let bytes = Arc::get_mut(&mut self.bytes).expect("just made, or nobody had it");
        let mut space = ReadBuf::new(&mut bytes[self.end..]);
        ready!(Pin::new(connection).poll_read(cx, &mut space))?;
        let count = space.filled().len();
        self.end += count;
        Poll::Ready(Ok(count))
    }

    /// Makes the buffer one that has space, and that nobody else holds.
    fn make_space(&mut self) -> bool {
        let unread = self.end - self.start;
        let least = self.wanted.max(unread + 1).max(OWN_BYTES);
        let is_held = Arc::get_mut(&mut self.bytes).is_none();
        let is_large = self.bytes.len() > OWN_BYTES && least == OWN_BYTES && unread == 0;
        if is_held || is_large || self.bytes.len() < least {
            if !self.count(least) {
                return false;
            }
            let mut bytes = vec![0; least];
            bytes[..unread].copy_from_slice(&self.bytes[self.start..self.end]);
            self.bytes = Arc::new(bytes);
            (self.start, self.end) = (0, unread);
        } else if self.bytes.len() - self.start < least || unread == 0 {
            let bytes = Arc::get_mut(&mut self.bytes).expect("nobody has it");
            bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, unread);
        }
        true
    }

    /// Counts a buffer of so many bytes in place of the one that is there, if there is memory.
    fn count(&mut self, bytes: usize) -> bool {
        let beyond = bytes.saturating_sub(OWN_BYTES) as u64;
        let all = &self.context.received_bytes;
        let before = all.fetch_add(beyond, Ordering::Relaxed);
        if beyond > self.counted && before + beyond > ALL_BYTES_MAX {
            all.fetch_sub(beyond, Ordering::Relaxed);
            return false;
        }
        all.fetch_sub(self.counted, Ordering::Relaxed);
        self.counted = beyond;
        true
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.context.received_bytes.fetch_sub(self.counted, Ordering::Relaxed);
    }
}
