//! Answers to requests, whether made in a turn or by a job; the one place where failures of the
//! engine become error numbers of the protocol.

use block::is_zero;
use volume::ErrorKind;
use wire::nbd::{Command, Errno, ReplyStyle, Request, encode};

use crate::buffers::Chain;
use crate::serving::{Export, Replies};

/// Puts the header before data that was read in place, or a hole in its place; bytes of the reply.
pub(super) fn finish_read(style: ReplyStyle, request: &Request, reply: &mut [u8]) -> usize {
    let prefix = encode::read_data_bytes(style);
    let length = u32::try_from(request.length_bytes).expect("checked to be at most 32 MiB");
    if may_be_hole(style, length) && is_zero(&reply[prefix..]) {
        let hole = encode::read_hole(style, request, length);
        reply[..hole.as_bytes().len()].copy_from_slice(hole.as_bytes());
        return hole.as_bytes().len();
    }
    let header = encode::read_data(style, request, length);
    reply[..prefix].copy_from_slice(header.as_bytes());
    reply.len()
}

/// Reads into buffers, and adds the answer; the number of failures.
pub(super) fn read_and_answer(
    export: &dyn Export,
    style: ReplyStyle,
    request: &Request,
    mut data: Chain,
    out: &mut Replies,
) -> u64 {
    let mut offset = request.offset;
    for piece in data.pieces_mut() {
        if let Err(error) = export.read(offset, piece) {
            return fail(style, request, &error, &mut out.words);
        }
        offset += piece.len() as u64;
    }
    let length = u32::try_from(data.len()).expect("checked to be at most 32 MiB");
    if may_be_hole(style, length) && data.pieces().all(is_zero) {
        out.done.extend_from_slice(encode::read_hole(style, request, length).as_bytes());
        return 0;
    }
    data.set_header(encode::read_data(style, request, length).as_bytes());
    out.data = Some(data);
    0
}

/// Whether a hole may be told in place of so many zeros: it takes 12 bytes where data takes 8 and
/// itself.
fn may_be_hole(style: ReplyStyle, length: u32) -> bool {
    style != ReplyStyle::Simple && length >= 512
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
