//! The conditions under which a request is carried out, else the error number that the
//! specification names.
//!
//! Knows nothing of sockets or engines: a request, what the export is, and a verdict.

use wire::nbd::limits::PAYLOAD_BYTES_MAX;
use wire::nbd::{Command, CommandFlags, Errno, HeaderStyle, ReplyStyle, Request, decode};

/// The facts about the export and the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) size_bytes: u64,
    pub(super) is_read_only: bool,
    pub(super) style: ReplyStyle,
    pub(super) has_contexts: bool,
}

/// Why a request is not carried out.
pub(super) type Refusal = (Errno, &'static str);

const FLAGS: Refusal = (Errno::Invalid, "a flag that this command does not take");
const READ_ONLY: Refusal = (Errno::Perm, "the export is read-only");
const PAYLOAD: Refusal = (Errno::Invalid, "this command takes no payload");

/// Checks everything but the payload of BLOCK_STATUS.
pub(super) fn check(request: &Request, facts: &Facts) -> Result<(), Refusal> {
    check_flags(request, facts)?;
    match request.command {
        Command::Read => {
            within(request, facts, Errno::Invalid)?;
            if request.length_bytes > u64::from(PAYLOAD_BYTES_MAX) {
                return Err((Errno::Overflow, "more than 32 MiB at once"));
            }
            Ok(())
        }
        Command::Write => {
            writable(facts)?;
            if request.length_bytes > u64::from(PAYLOAD_BYTES_MAX) {
                return Err((Errno::Invalid, "more than 32 MiB at once"));
            }
            within(request, facts, Errno::NoSpace)
        }
        Command::WriteZeroes => {
            writable(facts)?;
            within(request, facts, Errno::NoSpace)
        }
        Command::Trim => {
            writable(facts)?;
            within(request, facts, Errno::Invalid)
        }
        Command::Cache => within(request, facts, Errno::Invalid),
        Command::BlockStatus => check_status(request, facts),
        Command::Resize => writable(facts),
        Command::Flush => {
            if request.offset != 0 || request.length_bytes != 0 {
                return Err((Errno::Invalid, "a flush has neither offset nor length"));
            }
            Ok(())
        }
        Command::Disconnect => Ok(()),
        Command::Unknown(_) => Err((Errno::Invalid, "unknown command")),
    }
}

fn check_flags(request: &Request, facts: &Facts) -> Result<(), Refusal> {
    let extended = facts.style == ReplyStyle::Extended;
    let has_payload = request.flags.has(CommandFlags::PAYLOAD_LEN);
    let own = match request.command {
        Command::Read if facts.style != ReplyStyle::Simple => CommandFlags::DF,
        Command::WriteZeroes => CommandFlags::NO_HOLE.with(CommandFlags::FAST_ZERO),
        Command::BlockStatus => CommandFlags::REQ_ONE,
        _ => CommandFlags(0),
    };
    let payload = match request.command {
        Command::Write | Command::BlockStatus if extended => CommandFlags::PAYLOAD_LEN,
        _ if has_payload && extended => return Err(PAYLOAD),
        _ => CommandFlags(0),
    };
    if request.command == Command::Write && extended && !has_payload {
        return Err((Errno::Invalid, "a write without its payload"));
    }
    // FUA is to be accepted on every command; existing clients set it on some that write nothing.
    if request.flags.is_within(own.with(payload).with(CommandFlags::FUA)) {
        Ok(())
    } else {
        Err(FLAGS)
    }
}

fn writable(facts: &Facts) -> Result<(), Refusal> {
    if facts.is_read_only { Err(READ_ONLY) } else { Ok(()) }
}

fn within(request: &Request, facts: &Facts, errno: Errno) -> Result<(), Refusal> {
    match request.offset.checked_add(request.length_bytes) {
        Some(end) if end <= facts.size_bytes => Ok(()),
        _ => Err((errno, "beyond the end of the export")),
    }
}

fn check_status(request: &Request, facts: &Facts) -> Result<(), Refusal> {
    if !facts.has_contexts {
        return Err((Errno::Invalid, "no metadata context was chosen"));
    }
    if request.payload_bytes(facts.style.headers()) > 0 {
        return Ok(()); // The range is in the payload.
    }
    check_status_range(request.offset, request.length_bytes, facts)
}

/// Checks the range of a BLOCK_STATUS request.
pub(super) fn check_status_range(offset: u64, length: u64, facts: &Facts) -> Result<(), Refusal> {
    if length == 0 {
        return Err((Errno::Invalid, "a range of no bytes"));
    }
    let range = Request {
        flags: CommandFlags(0),
        command: Command::BlockStatus,
        cookie: 0,
        offset,
        length_bytes: length,
    };
    within(&range, facts, Errno::Invalid)
}

/// Whether DISC is among requests of which the first is behind so many bytes of a payload.
pub(super) fn has_goodbye(received: &[u8], payload_bytes: u64, headers: HeaderStyle) -> bool {
    let mut at = usize::try_from(payload_bytes).unwrap_or(usize::MAX);
    while let Some(rest) = received.get(at..)
        && let Ok(Some(request)) = decode::request(rest, headers)
    {
        if request.command == Command::Disconnect {
            return true;
        }
        let bytes = decode::request_header_bytes(headers) as u64 + request.payload_bytes(headers);
        at = at.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    false
}

/// Whether a refused request's payload is too long to be skipped: the connection ends.
pub(super) fn is_flood(request: &Request, headers: HeaderStyle) -> bool {
    let payload = request.payload_bytes(headers);
    match headers {
        // The specification: a longer one is a reason to disconnect.
        HeaderStyle::Extended => payload > u64::from(PAYLOAD_BYTES_MAX),
        // A compact length may be skipped; beyond four times the limit it is rather garbage.
        HeaderStyle::Compact => payload > 4 * u64::from(PAYLOAD_BYTES_MAX),
    }
}

#[cfg(test)]
mod tests {
    use wire::nbd::limits::PAYLOAD_BYTES_MAX;
    use wire::nbd::{Command, CommandFlags, Errno, HeaderStyle, ReplyStyle, Request};

    use super::{Facts, check, is_flood};

    const FACTS: Facts = Facts {
        size_bytes: 1 << 30,
        is_read_only: false,
        style: ReplyStyle::Structured,
        has_contexts: true,
    };

    fn request(command: Command, offset: u64, length_bytes: u64) -> Request {
        Request { flags: CommandFlags(0), command, cookie: 1, offset, length_bytes }
    }

    fn errno(request: Request, facts: &Facts) -> Option<Errno> {
        check(&request, facts).err().map(|(errno, _)| errno)
    }

    #[test]
    fn a_range_beyond_the_end_has_the_error_of_its_command() {
        let end = FACTS.size_bytes;
        for (command, expected) in [
            (Command::Read, Errno::Invalid),
            (Command::Trim, Errno::Invalid),
            (Command::Cache, Errno::Invalid),
            (Command::BlockStatus, Errno::Invalid),
            (Command::Write, Errno::NoSpace),
            (Command::WriteZeroes, Errno::NoSpace),
        ] {
            assert_eq!(errno(request(command, end - 1, 1), &FACTS), None, "{command:?}");
            assert_eq!(errno(request(command, end - 1, 2), &FACTS), Some(expected));
            assert_eq!(errno(request(command, u64::MAX, 2), &FACTS), Some(expected));
        }
    }

    #[test]
    fn a_read_only_export_takes_no_writes() {
        let facts = Facts { is_read_only: true, ..FACTS };
        for command in [Command::Write, Command::Trim, Command::WriteZeroes, Command::Resize] {
            assert_eq!(errno(request(command, 0, 512), &facts), Some(Errno::Perm));
        }
        assert_eq!(errno(request(Command::Read, 0, 512), &facts), None);
        assert_eq!(errno(request(Command::Flush, 0, 0), &facts), None);
    }

    #[test]
    fn flags_belong_to_commands() {
        let with = |command, flags| Request { flags, ..request(command, 0, 512) };
        assert_eq!(errno(with(Command::Read, CommandFlags::DF), &FACTS), None);
        let simple = Facts { style: ReplyStyle::Simple, ..FACTS };
        assert_eq!(errno(with(Command::Read, CommandFlags::DF), &simple), Some(Errno::Invalid));
        assert_eq!(errno(with(Command::Read, CommandFlags::FUA), &FACTS), None);
        assert_eq!(
            errno(with(Command::Write, CommandFlags::NO_HOLE), &FACTS),
            Some(Errno::Invalid)
        );
        assert_eq!(errno(with(Command::Read, CommandFlags(1 << 9)), &FACTS), Some(Errno::Invalid));
        let extended = Facts { style: ReplyStyle::Extended, ..FACTS };
        assert_eq!(errno(request(Command::Write, 0, 512), &extended), Some(Errno::Invalid));
        assert_eq!(errno(with(Command::Write, CommandFlags::PAYLOAD_LEN), &extended), None);
        let trim = with(Command::Trim, CommandFlags::PAYLOAD_LEN);
        assert_eq!(errno(trim, &extended), Some(Errno::Invalid));
    }

    #[test]
    fn the_longest_payload_passes_and_one_more_byte_does_not() {
        let longest = u64::from(PAYLOAD_BYTES_MAX);
        assert_eq!(errno(request(Command::Read, 0, longest), &FACTS), None);
        assert_eq!(errno(request(Command::Read, 0, longest + 1), &FACTS), Some(Errno::Overflow));
        assert_eq!(errno(request(Command::Write, 0, longest), &FACTS), None);
        let long = request(Command::Write, 0, longest + 1);
        assert_eq!(errno(long, &FACTS), Some(Errno::Invalid));
        assert!(!is_flood(&long, HeaderStyle::Compact));
        let flagged = Request { flags: CommandFlags::PAYLOAD_LEN, ..long };
        assert!(is_flood(&flagged, HeaderStyle::Extended));
        assert!(is_flood(&request(Command::Write, 0, 4 * longest + 1), HeaderStyle::Compact));
        assert_eq!(errno(request(Command::WriteZeroes, 0, 1 << 30), &FACTS), None);
    }
}
