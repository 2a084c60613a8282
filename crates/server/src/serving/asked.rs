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
