//! An NBD client of our own, written from the specification and apart from `wire`.
//!
//! 1. Many requests may be in flight; replies are matched by cookie, in whatever order they come.
//! 2. A reply that the specification does not allow is an error of the connection, never ignored.
//! 3. Waiting is bounded: a reply that does not come within [`PATIENCE`] is an error.

mod connection;
mod negotiate;
mod replies;

use std::time::Duration;

pub use connection::{Nbd, describe};
pub use negotiate::{Refused, list};

/// How long a reply may take; far above what a loaded machine needs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a client asks for.
#[derive(Clone, Debug)]
pub enum Request {
    /// Bytes of a range.
    Read {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// Store bytes.
    Write {
        /// Byte offset.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
        /// Durable before the reply.
        fua: bool,
    },
    /// Make a range a hole.
    Trim {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u32,
        /// Durable before the reply.
        fua: bool,
    },
    /// Make a range zero.
    Zero {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u32,
        /// Keep the space allocated.
        no_hole: bool,
        /// Fail rather than be slow.
        fast: bool,
    },
    /// Make everything that was acknowledged durable.
    Flush,
    /// Fetch into the server's cache.
    Cache {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// Data and holes of a range.
    Status {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u32,
    },
}

/// What came of a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Done; nothing to say.
    Done,
    /// The bytes of a read.
    Bytes(Vec<u8>),
    /// The runs of a block status, from the offset that was asked.
    Status(Vec<StatusRun>),
    /// The errno of a failed request.
    Error(u32),
}

/// A run of one kind in a block status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRun {
    /// Bytes.
    pub length: u32,
    /// Flags of the context; for `base:allocation` 1 is a hole and 2 reads as zeros.
    pub flags: u32,
}

/// A reply with the cookie of its request.
#[derive(Clone, Debug)]
pub struct Completion {
    /// What `send` returned for the request.
    pub cookie: u64,
    /// What came of it.
    pub reply: Reply,
}

/// `EPERM`: writing to a read-only export.
pub const EPERM: u32 = 1;
/// `EINVAL`: malformed or beyond the end.
pub const EINVAL: u32 = 22;
/// `ENOSPC`: a write beyond the end, or a full pool.
pub const ENOSPC: u32 = 28;
