//! The answer to REPORT SUPPORTED OPERATION CODES, from one table of all commands that are served.

use super::command::OpcodeQuestion;
use super::decode::cdb_bytes;
use super::sense::Sense;

/// A command that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supported {
    /// Its operation code.
    pub opcode: u8,
    /// Its service action, where the operation code has some.
    pub action: Option<u16>,
    /// The bits of its CDB that are looked at, without operation code and service action.
    usage: &'static [u8],
}

const fn plain(opcode: u8, usage: &'static [u8]) -> Supported {
    assert!(usage.len() + 1 == cdb_bytes(opcode), "as many bytes as the CDB has");
    Supported { opcode, action: None, usage }
}

const fn with_action(opcode: u8, action: u16, usage: &'static [u8]) -> Supported {
    Supported { action: Some(action), ..plain(opcode, usage) }
}

const X: u8 = 0xff;
/// The control byte: NACA is looked at, and refused.
const C: u8 = 4;

/// All commands that are served, in order.
pub const COMMANDS: [Supported; 55] = [
    plain(0x00, &[0, 0, 0, 0, C]),
    plain(0x03, &[1, 0, 0, X, C]),
    plain(0x08, &[0x1f, X, X, X, C]),
    plain(0x0a, &[0x1f, X, X, X, C]),
    plain(0x12, &[3, X, X, X, C]),
    plain(0x15, &[0x11, 0, 0, X, C]),
    plain(0x16, &[0x11, 0, 0, 0, C]),
    plain(0x17, &[0x11, 0, 0, 0, C]),
    plain(0x1a, &[8, X, X, X, C]),
    plain(0x1b, &[1, 0, 0, 0xf3, C]),
    plain(0x1d, &[0xe4, 0, X, X, C]),
    plain(0x25, &[0, 0, 0, 0, 0, 0, 0, 0, C]),
    plain(0x28, &[0xf8, X, X, X, X, 0, X, X, C]),
    plain(0x2a, &[0xf8, X, X, X, X, 0, X, X, C]),
    plain(0x2e, &[0xf6, X, X, X, X, 0, X, X, C]),
    plain(0x2f, &[0xf6, X, X, X, X, 0, X, X, C]),
    plain(0x34, &[2, X, X, X, X, 0, X, X, C]),
    plain(0x35, &[2, X, X, X, X, 0, X, X, C]),
    plain(0x41, &[0xfe, X, X, X, X, 0, X, X, C]),
    plain(0x42, &[1, 0, 0, 0, 0, 0, X, X, C]),
    plain(0x4d, &[1, 0x3f, X, 0, X, X, X, X, C]),
    plain(0x55, &[0x11, 0, 0, 0, 0, 0, X, X, C]),
    plain(0x56, &[0x11, 0, 0, 0, 0, 0, 0, 0, C]),
    plain(0x57, &[0x11, 0, 0, 0, 0, 0, 0, 0, C]),
    plain(0x5a, &[0x18, X, X, 0, 0, 0, X, X, C]),
    with_action(0x5e, 0, &[0x1f, 0, 0, 0, 0, 0, X, X, C]),
    with_action(0x5e, 1, &[0x1f, 0, 0, 0, 0, 0, X, X, C]),
    with_action(0x5e, 2, &[0x1f, 0, 0, 0, 0, 0, X, X, C]),
    with_action(0x5e, 3, &[0x1f, 0, 0, 0, 0, 0, X, X, C]),
    with_action(0x5f, 0, &[0x1f, 0, 0, 0, X, X, X, X, C]),
    with_action(0x5f, 1, &[0x1f, X, 0, 0, X, X, X, X, C]),
    with_action(0x5f, 2, &[0x1f, X, 0, 0, X, X, X, X, C]),
    with_action(0x5f, 3, &[0x1f, 0, 0, 0, X, X, X, X, C]),
    with_action(0x5f, 4, &[0x1f, X, 0, 0, X, X, X, X, C]),
    with_action(0x5f, 5, &[0x1f, X, 0, 0, X, X, X, X, C]),
    with_action(0x5f, 6, &[0x1f, 0, 0, 0, X, X, X, X, C]),
    plain(0x88, &[0xf8, X, X, X, X, X, X, X, X, X, X, X, X, 0, C]),
    plain(0x89, &[0xf8, X, X, X, X, X, X, X, X, 0, 0, 0, X, 0, C]),
    plain(0x8a, &[0xf8, X, X, X, X, X, X, X, X, X, X, X, X, 0, C]),
    plain(0x8b, &[0xf8, X, X, X, X, X, X, X, X, X, X, X, X, 0, C]),
    plain(0x8e, &[0xf6, X, X, X, X, X, X, X, X, X, X, X, X, 0, C]),
    plain(0x8f, &[0xf6, X, X, X, X, X, X, X, X, X, X, X, X, 0, C]),
    plain(0x90, &[2, X, X, X, X, X, X, X, X, X, X, X, X, 0, C]),
    plain(0x91, &[2, X, X, X, X, X, X, X, X, X, X, X, X, 0, C]),
    plain(0x93, &[0xff, X, X, X, X, X, X, X, X, X, X, X, X, 0, C]),
    with_action(0x9e, 0x10, &[0x1f, 0, 0, 0, 0, 0, 0, 0, 0, X, X, X, X, 0, C]),
    with_action(0x9e, 0x12, &[0x1f, X, X, X, X, X, X, X, X, X, X, X, X, X, C]),
    plain(0xa0, &[0, X, 0, 0, 0, X, X, X, X, 0, C]),
    with_action(0xa3, 0x0a, &[0xff, 0, 0, 0, 0, X, X, X, X, 0, C]),
    with_action(0xa3, 0x0c, &[0x1f, 0x87, X, X, X, X, X, X, X, 0, C]),
    with_action(0xa3, 0x0d, &[0x1f, 0x80, 0, 0, 0, X, X, X, X, 0, C]),
    plain(0xa8, &[0xf8, X, X, X, X, X, X, X, X, 0, C]),
    plain(0xaa, &[0xf8, X, X, X, X, X, X, X, X, 0, C]),
    plain(0xae, &[0xf6, X, X, X, X, X, X, X, X, 0, C]),
    plain(0xaf, &[0xf6, X, X, X, X, X, X, X, X, 0, C]),
];

/// Appends the answer.
///
/// # Errors
/// Invalid field in CDB, when a service action is asked for where there are none, or left out where
/// there are some.
pub fn put(question: OpcodeQuestion, timeouts: bool, out: &mut Vec<u8>) -> Result<(), Sense> {
    let of = |opcode| COMMANDS.iter().filter(move |command| command.opcode == opcode);
    let has_actions = |opcode| of(opcode).any(|command| command.action.is_some());
    let found = |opcode, action| of(opcode).find(|command| command.action == action);
    match question {
        OpcodeQuestion::All => {
            put_all(timeouts, out);
            return Ok(());
        }
        OpcodeQuestion::Opcode(opcode) if has_actions(opcode) => {
            return Err(Sense::cdb_field(2, Some(2)));
        }
        OpcodeQuestion::ServiceAction(opcode, _)
            if of(opcode).next().is_some() && !has_actions(opcode) =>
        {
            return Err(Sense::cdb_field(2, Some(2)));
        }
        OpcodeQuestion::Opcode(opcode) => put_one(found(opcode, None), timeouts, out),
        OpcodeQuestion::ServiceAction(opcode, action) => {
            put_one(found(opcode, Some(action)), timeouts, out);
        }
        OpcodeQuestion::Either(opcode, action) => {
            let wanted = if has_actions(opcode) { Some(action) } else { None };
            // An operation without service actions has the action 0.
            let is_named = wanted.is_some() || action == 0;
            put_one(found(opcode, wanted).filter(|_| is_named), timeouts, out);
        }
    }
    Ok(())
}

fn put_all(timeouts: bool, out: &mut Vec<u8>) {
    const HAS_TIMEOUTS: u8 = 2;
    const HAS_ACTION: u8 = 1;
    let each = if timeouts { 20 } else { 8 };
    let length = u32::try_from(COMMANDS.len() * each).expect("few commands");
    out.extend_from_slice(&length.to_be_bytes());
    for command in &COMMANDS {
        let [high, low] = command.action.unwrap_or(0).to_be_bytes();
        let flags = if timeouts { HAS_TIMEOUTS } else { 0 }
            | if command.action.is_some() { HAS_ACTION } else { 0 };
        let [_, bytes] = size(command);
        out.extend_from_slice(&[command.opcode, 0, high, low, 0, flags, 0, bytes]);
        if timeouts {
            put_timeouts(out);
        }
    }
}

fn put_one(command: Option<&Supported>, timeouts: bool, out: &mut Vec<u8>) {
    const HAS_TIMEOUTS: u8 = 0x80;
    const NOT_SUPPORTED: u8 = 1;
    const AS_THE_STANDARD: u8 = 3;
    let Some(command) = command else {
        out.extend_from_slice(&[0, NOT_SUPPORTED, 0, 0]);
        return;
    };
    let flags = if timeouts { HAS_TIMEOUTS } else { 0 };
    let [high, low] = size(command);
    out.extend_from_slice(&[0, flags | AS_THE_STANDARD, high, low, command.opcode]);
    let usage = out.len();
    out.extend_from_slice(command.usage);
    put_action(command, &mut out[usage..]);
    if timeouts {
        put_timeouts(out);
    }
}

/// A service action stands in the usage data as itself, not as a mask.
fn put_action(command: &Supported, usage: &mut [u8]) {
    if let Some(action) = command.action {
        let [_, low] = action.to_be_bytes();
        usage[0] = usage[0] & 0xe0 | low;
    }
}

fn size(command: &Supported) -> [u8; 2] {
    u16::try_from(cdb_bytes(command.opcode)).expect("16 at most").to_be_bytes()
}

/// A timeouts descriptor that tells none.
fn put_timeouts(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}
