//! Replies on their way to the client: small ones and inline reads in one buffer, replies of jobs
//! as they come; all sent together.
//!
//! Invariants: 1. replies are sent whole: at most one is partly sent, and it goes on first; 2. the
//! buffer grows to what one turn needs and falls back when it is empty and large.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use tokio::io::AsyncWrite;

use super::replies::Replies;
use super::socket::Connection;

/// Bytes of the buffer to begin with.
const BUFFER_BYTES: usize = 64 << 10;
/// Bytes above which an empty buffer is given back.
const BUFFER_BYTES_KEPT: usize = 1 << 20;
/// Most pieces in one send.
const PIECES_MAX: usize = 32;

/// The bytes to be sent.
pub(crate) struct Output {
    /// Replies made in place: `start..end` is to be sent.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Replies of jobs, whole.
    replies: VecDeque<Replies>,
    /// How much of the first of `replies` is sent.
    first_sent: usize,
    replies_bytes: usize,
    /// All bytes that were sent so far.
    sent_bytes: u64,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output {
            bytes: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            replies: VecDeque::new(),
            first_sent: 0,
            replies_bytes: 0,
            sent_bytes: 0,
        }
    }

    /// Bytes that are still to be sent.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.end - self.start + self.replies_bytes
    }

    /// Bytes that were sent so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Space for a reply of `count` bytes, to be `commit`ted; holds arbitrary bytes.
    pub(crate) fn space(&mut self, count: usize) -> &mut [u8] {
        let needed = self.end + count;
        if needed > self.bytes.len() {
            self.bytes.resize(needed.next_power_of_two(), 0);
        }
        &mut self.bytes[self.end..needed]
    }

    /// The first `count` bytes of `space` are a reply.
    pub(crate) fn commit(&mut self, count: usize) {
        assert!(self.end + count <= self.bytes.len(), "only space can be committed");
        self.end += count;
    }

    /// Adds a short reply.
    pub(crate) fn push(&mut self, reply: &[u8]) {
        self.space(reply.len()).copy_from_slice(reply);
        self.commit(reply.len());
    }

    /// Adds the replies of a job.
    pub(crate) fn push_whole(&mut self, replies: Replies) {
        if replies.len() > 0 {
            self.replies_bytes += replies.len();
            self.replies.push_back(replies);
        }
    }

    /// Forgets everything: the client is gone.
    pub(crate) fn clear(&mut self) {
        *self = Output::new();
    }

    /// Sends once; ready when something was sent.
    pub(crate) fn poll_send(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        let inline = &self.bytes[self.start..self.end];
        let count = if self.replies.is_empty() {
            ready!(Pin::new(connection).poll_write(cx, inline))?
        } else {
            let mut pieces: SmallVec<[IoSlice<'_>; PIECES_MAX]> = SmallVec::new();
            // A reply that is partly sent goes on first.
            let begun = usize::from(self.first_sent > 0);
            let first = self.replies.iter().take(begun);
            let others = self.replies.iter().skip(begun);
            let inline = Some(inline).filter(|inline| !inline.is_empty());
            let all = first
                .flat_map(|reply| reply.pieces(self.first_sent))
                .chain(inline)
                .chain(others.flat_map(|reply| reply.pieces(0)));
            pieces.extend(all.take(PIECES_MAX).map(IoSlice::new));
            ready!(Pin::new(connection).poll_write_vectored(cx, &pieces))?
        };
        if count == 0 {
            return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
        }
        self.sent(count);
        Poll::Ready(Ok(()))
    }

    /// Accounts for `count` bytes sent, in the order in which `poll_send` lays them out.
    fn sent(&mut self, mut count: usize) {
        self.sent_bytes += count as u64;
        if self.first_sent > 0 {
            count = self.sent_first(count);
        }
        let inline = count.min(self.end - self.start);
        self.start += inline;
        count -= inline;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > BUFFER_BYTES_KEPT {
                self.bytes = vec![0; BUFFER_BYTES];
            }
        }
        while count > 0 {
            count = self.sent_first(count);
        }
    }

    /// Accounts for bytes of the first reply of a job; how many of `count` were beyond it.
    fn sent_first(&mut self, count: usize) -> usize {
        let first = self.replies.front().expect("what was sent is still here");
        let part = count.min(first.len() - self.first_sent);
        self.first_sent += part;
        self.replies_bytes -= part;
        if self.first_sent == first.len() {
            self.replies.pop_front();
            self.first_sent = 0;
        }
        count - part
    }
}
