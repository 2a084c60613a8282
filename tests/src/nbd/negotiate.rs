//! The start of a connection: options until GO, or LIST.

use std::fmt;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

const INIT: &[u8; 8] = b"NBDMAGIC";
const OPTION: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const SET_META_CONTEXT: u32 = 10;
const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFO: u32 = 3;
const META_CONTEXT: u32 = 4;
const ERROR_BIT: u32 = 1 << 31;
/// Longest option reply we accept, bytes.
const OPTION_REPLY_MAX: u32 = 1 << 20;

/// The server said no to an option.
#[derive(Clone, Debug)]
pub struct Refused {
    /// `NBD_REP_ERR_...`, without the error bit; 6 is an unknown export.
    pub code: u32,
    /// What the server said for people.
    pub message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server refused (error {}): {}", self.code, self.message)
    }
}

impl std::error::Error for Refused {}

/// What negotiation came to.
pub(super) struct Agreed {
    pub size: u64,
    pub flags: u16,
    pub structured: bool,
    /// Id of `context`, if it was asked for and granted.
    pub context: Option<u32>,
}

struct OptionReply {
    kind: u32,
    data: Vec<u8>,
}

/// Negotiates a connection to an export, with block status in `context` where the server has it.
pub(super) fn go(stream: &mut UnixStream, export: &str, context: &str) -> Result<Agreed> {
    greet(stream)?;
    send(stream, STRUCTURED_REPLY, &[])?;
    let structured = reply(stream, STRUCTURED_REPLY)?.kind == ACK;
    let context = if structured { set_context(stream, export, context)? } else { None };
    let mut body = length_prefixed(export);
    body.extend_from_slice(&0u16.to_be_bytes());
    send(stream, GO, &body)?;
    let mut agreed = None;
    loop {
        let answer = granted(reply(stream, GO)?)?;
        match answer.kind {
            ACK => break,
            INFO if answer.data.starts_with(&[0, 0]) => {
                ensure!(answer.data.len() == 12, "NBD_INFO_EXPORT of {} bytes", answer.data.len());
                agreed = Some((big_endian(&answer.data[2..10]), answer.data[10..12].to_vec()));
            }
            INFO => {}
            other => bail!("reply {other} to GO"),
        }
    }
    let (size, flags) = agreed.context("GO without NBD_INFO_EXPORT")?;
    let flags = u16::try_from(big_endian(&flags)).expect("two bytes");
    Ok(Agreed { size, flags, structured, context })
}

/// The names of the exports.
pub fn list(socket: &Path) -> Result<Vec<String>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(super::PATIENCE))?;
    greet(&mut stream)?;
    send(&mut stream, LIST, &[])?;
    let mut names = Vec::new();
    loop {
        let answer = granted(reply(&mut stream, LIST)?)?;
        match answer.kind {
            ACK => break,
            SERVER => {
                let length = usize::try_from(big_endian(&answer.data[..4]))?;
                let name =
                    answer.data.get(4..4 + length).context("a name longer than its reply")?;
                names.push(String::from_utf8(name.to_vec())?);
            }
            other => bail!("reply {other} to LIST"),
        }
    }
    send(&mut stream, ABORT, &[])?;
    Ok(names)
}

fn greet(stream: &mut UnixStream) -> Result<()> {
    let hello = take(stream, 18)?;
    ensure!(hello[..8] == *INIT && hello[8..16] == *OPTION, "not a newstyle NBD server");
    let flags = big_endian(&hello[16..18]);
    ensure!(flags & 1 != 0, "the server does not do fixed newstyle");
    let no_zeroes = flags & 2;
    stream.write_all(&u32::try_from(1 | no_zeroes)?.to_be_bytes())?;
    Ok(())
}

fn set_context(stream: &mut UnixStream, export: &str, context: &str) -> Result<Option<u32>> {
    let mut body = length_prefixed(export);
    body.extend_from_slice(&1u32.to_be_bytes());
    body.extend(length_prefixed(context));
    send(stream, SET_META_CONTEXT, &body)?;
    let mut id = None;
    loop {
        let answer = reply(stream, SET_META_CONTEXT)?;
        match answer.kind {
            ACK => return Ok(id),
            META_CONTEXT => {
                ensure!(answer.data.len() >= 4, "a meta context without an id");
                ensure!(answer.data[4..] == *context.as_bytes(), "a context nobody asked for");
                id = Some(u32::try_from(big_endian(&answer.data[..4]))?);
            }
            // GO will say the same about an unknown export, with a better message.
            kind if kind & ERROR_BIT != 0 => return Ok(None),
            other => bail!("reply {other} to SET_META_CONTEXT"),
        }
    }
}

fn send(stream: &mut UnixStream, option: u32, data: &[u8]) -> Result<()> {
    let mut message = OPTION.to_vec();
    message.extend_from_slice(&option.to_be_bytes());
    message.extend_from_slice(&u32::try_from(data.len())?.to_be_bytes());
    message.extend_from_slice(data);
    Ok(stream.write_all(&message)?)
}

fn reply(stream: &mut UnixStream, option: u32) -> Result<OptionReply> {
    let head = take(stream, 20)?;
    ensure!(big_endian(&head[..8]) == OPTION_REPLY, "bad magic of an option reply");
    ensure!(big_endian(&head[8..12]) == u64::from(option), "a reply to another option");
    let kind = u32::try_from(big_endian(&head[12..16]))?;
    let length = u32::try_from(big_endian(&head[16..20]))?;
    ensure!(length <= OPTION_REPLY_MAX, "an option reply of {length} bytes");
    Ok(OptionReply { kind, data: take(stream, length as usize)? })
}

fn granted(answer: OptionReply) -> Result<OptionReply> {
    if answer.kind & ERROR_BIT != 0 {
        let message = String::from_utf8_lossy(&answer.data).into_owned();
        return Err(Refused { code: answer.kind & !ERROR_BIT, message }.into());
    }
    Ok(answer)
}

fn length_prefixed(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("a short name");
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}

fn take(stream: &mut UnixStream, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).context("the server went away in negotiation")?;
    Ok(bytes)
}

pub(super) fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
