//! Answers to requests, whether made in a turn or by a job; the one place where failures of the
//! engine become error numbers of the protocol.

use std::sync::Arc;

use volume::{ErrorKind, WriteOp};
use wire::nbd::{Command, CommandFlags, Errno, ReplyStyle, Request, encode};

use super::export::Export;
use super::jobs::Jobs;

/// Starts a write that may have to wait: of parts of blocks, or a long one.
pub(super) fn start_write(
    jobs: &mut Jobs,
    export: &Arc<dyn Export>,
    style: ReplyStyle,
    request: Request,
    payload: Vec<u8>,
) {
    let export = Arc::clone(export);
    jobs.start(payload.len() as u64, move |out| {
        let op = WriteOp::Data { offset: request.offset, bytes: &payload };
        write_and_answer(&*export, style, &request, &[op], out)
    });
}

/// Writes, makes it durable if that is asked for, and adds the answer; the number of failures.
pub(super) fn write_and_answer(
    export: &dyn Export,
    style: ReplyStyle,
    request: &Request,
    ops: &[WriteOp<'_>],
    out: &mut Vec<u8>,
) -> u64 {
    let written = export.write_batch(ops);
    let durable = request.flags.has(CommandFlags::FUA);
    match written.and_then(|()| if durable { export.flush() } else { Ok(()) }) {
        Ok(()) => {
            out.extend_from_slice(encode::done(style, request).as_bytes());
            0
        }
        Err(error) => fail(style, request, &error, out),
    }
}

/// Puts the header before data that was read in place, or a hole in its place; bytes of the reply.
pub(super) fn finish_read(style: ReplyStyle, request: &Request, reply: &mut [u8]) -> usize {
    let prefix = encode::read_data_bytes(style);
    let length = u32::try_from(request.length_bytes).expect("checked to be at most 32 MiB");
    // A hole takes 12 bytes where data takes 8 and itself.
    let has_holes = style != ReplyStyle::Simple && length >= 512;
    if has_holes && is_zero(&reply[prefix..]) {
        let hole = encode::read_hole(style, request, length);
        reply[..hole.as_bytes().len()].copy_from_slice(hole.as_bytes());
        return hole.as_bytes().len();
    }
    let header = encode::read_data(style, request, length);
    reply[..prefix].copy_from_slice(header.as_bytes());
    reply.len()
}

fn is_zero(bytes: &[u8]) -> bool {
    // Most data gives itself away in its first bytes; zeros are compared in long steps.
    let (steps, rest) = bytes.as_chunks::<64>();
    steps.iter().all(|step| *step == [0; 64]) && rest.iter().all(|&b| b == 0)
}

/// Adds the answer to a request that the engine refused; 1, the number of failures.
pub(super) fn fail(
    style: ReplyStyle,
    request: &Request,
    error: &volume::Error,
    out: &mut Vec<u8>,
) -> u64 {
    let errno = errno(&error.kind, request.command);
    tracing::debug!(?request, %error, ?errno, "a request failed");
    encode::error(style, request, errno, &error.message, out);
    1
}

/// The error number of the protocol for a failure of the engine.
fn errno(kind: &ErrorKind, command: Command) -> Errno {
    match kind {
        ErrorKind::OutOfBounds => match command {
            Command::Write | Command::WriteZeroes => Errno::NoSpace,
            _ => Errno::Invalid,
        },
        ErrorKind::Invalid => Errno::Invalid,
        ErrorKind::Full => Errno::NoSpace,
        ErrorKind::Busy => Errno::Perm,
        ErrorKind::NotFound
        | ErrorKind::Exists
        | ErrorKind::OutsideWindow { .. }
        | ErrorKind::Refused
        | ErrorKind::Corrupt
        | ErrorKind::Io
        | ErrorKind::Unusable => Errno::Io,
    }
}
