//! Requests, as far as all front ends have them in common.

use std::time::Duration;

use units::BLOCK_BYTES;
use volume::{Error, WriteOp};

/// The kinds of requests that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Read,
    Write,
    Trim,
    Zero,
    Flush,
    Other,
}

/// A request of a client as traces have it, at no time yet; `None` for what they have not.
pub(crate) fn as_in_traces(
    kind: RequestKind,
    offset_bytes: u64,
    length_bytes: u64,
    is_fua: bool,
) -> Option<trace::Request> {
    let kind = match kind {
        RequestKind::Read => trace::RequestKind::Read,
        RequestKind::Write => trace::RequestKind::Write,
        RequestKind::Zero => trace::RequestKind::Zero,
        RequestKind::Trim => trace::RequestKind::Trim,
        RequestKind::Flush => trace::RequestKind::Flush,
        RequestKind::Other => return None,
    };
    let (offset_bytes, length_bytes) = match kind {
        trace::RequestKind::Flush => (0, 0),
        _ if length_bytes == 0 => return None,
        _ => (offset_bytes, length_bytes),
    };
    Some(trace::Request { time_ns: 0, device: 0, kind, is_fua, offset_bytes, length_bytes })
}

/// A request to write, as its front end knows it.
pub(crate) trait Asked: Copy + Send + Sync + 'static {
    /// How long it waits for room; as long as it takes, if nothing is said.
    const PATIENCE: Option<Duration> = None;
    /// The answers of a job.
    type Replies: Default + Send + 'static;
    /// Its kind, to be counted.
    fn kind(&self) -> RequestKind;
    /// The first byte that it writes.
    fn offset(&self) -> u64;
    /// How many bytes it writes.
    fn length_bytes(&self) -> u64;
    /// Whether it is answered only once it is durable.
    fn is_durable(&self) -> bool;
    /// Adds its answer; the number of failures.
    fn answer(&self, outcome: Result<(), &Error>, out: &mut Self::Replies) -> u64;

    /// Zeros in its range.
    fn zeros(&self) -> WriteOp<'static> {
        WriteOp::Zero { offset: self.offset(), length_bytes: self.length_bytes() }
    }

    /// Whether it covers whole blocks, so that nothing has to be read first.
    fn is_whole_blocks(&self) -> bool {
        self.offset().is_multiple_of(BLOCK_BYTES) && self.length_bytes().is_multiple_of(BLOCK_BYTES)
    }
}
