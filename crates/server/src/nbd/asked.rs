//! Requests of NBD as sessions of all front ends see them.

use wire::nbd::{Command, CommandFlags, ReplyStyle, Request, encode};

use super::answer::fail;
use crate::serving;
use crate::serving::{Asked, Replies, RequestKind};

/// A request that writes, and how it is answered.
#[derive(Clone, Copy)]
pub(super) struct WriteRequest {
    pub(super) style: ReplyStyle,
    pub(super) request: Request,
}

impl Asked for WriteRequest {
    type Replies = Replies;

    fn kind(&self) -> RequestKind {
        kind(&self.request)
    }

    fn offset(&self) -> u64 {
        self.request.offset
    }

    fn length_bytes(&self) -> u64 {
        self.request.length_bytes
    }

    fn is_durable(&self) -> bool {
        self.request.flags.has(CommandFlags::FUA)
    }

    fn answer(&self, outcome: Result<(), &volume::Error>, out: &mut Replies) -> u64 {
        match outcome {
            Ok(()) => {
                out.done.extend_from_slice(encode::done(self.style, &self.request).as_bytes());
                0
            }
            Err(error) => fail(self.style, &self.request, error, &mut out.words),
        }
    }
}

/// The kind of a request, as it is counted.
pub(super) fn kind(request: &Request) -> RequestKind {
    match request.command {
        Command::Read => RequestKind::Read,
        Command::Write => RequestKind::Write,
        Command::Trim => RequestKind::Trim,
        Command::WriteZeroes => RequestKind::Zero,
        Command::Flush => RequestKind::Flush,
        _ => RequestKind::Other,
    }
}

/// A request as traces have it, at no time yet; `None` for what they have not.
pub(super) fn as_in_traces(request: &Request) -> Option<trace::Request> {
    let is_fua = request.flags.has(CommandFlags::FUA);
    serving::as_in_traces(kind(request), request.offset, request.length_bytes, is_fua)
}
