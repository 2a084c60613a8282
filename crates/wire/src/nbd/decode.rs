//! Bytes to messages. Every length is compared with the bytes that are there before anything is
//! allocated.

use super::limits::{
    EXTENDED_CHUNK_BYTES, EXTENDED_REQUEST_BYTES, META_QUERIES_MAX, OPTION_HEADER_BYTES,
    REQUEST_BYTES, SIMPLE_REPLY_BYTES, STRING_BYTES_MAX, STRUCTURED_CHUNK_BYTES,
};
use super::types::{
    CHUNK_DONE, EXTENDED_REPLY_MAGIC, EXTENDED_REQUEST_MAGIC, OPTION_MAGIC, REQUEST_MAGIC,
    SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
};
use super::{
    ChunkKind, ClientFlags, ClientOption, Command, CommandFlags, HeaderStyle, InfoRequest,
    MetaRequest, OptionCode, OptionHeader, ReplyHeader, Request,
};

/// Bytes that are not NBD: the connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Garbage {
    /// The client's flags hold a bit this side does not know.
    #[error("unknown client flags {0:#x}")]
    ClientFlags(u32),
    /// An option does not begin with its magic number.
    #[error("an option begins with {0:#x}")]
    OptionMagic(u64),
    /// A request does not begin with its magic number.
    #[error("a request begins with {0:#x}")]
    RequestMagic(u32),
    /// A reply does not begin with a magic number.
    #[error("a reply begins with {0:#x}")]
    ReplyMagic(u32),
}

/// Why an option's data cannot be used; the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// It breaks the protocol.
    #[error("{0}")]
    Invalid(&'static str),
    /// It asks for too much at once.
    #[error("{0}")]
    TooBig(&'static str),
}

/// The bytes not yet decoded.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn string(&mut self) -> Result<&'a str, OptionError> {
        let length = self.u32().ok_or(CUT_SHORT)?;
        let length = usize::try_from(length).map_err(|_| CUT_SHORT)?;
        text(self.take(length).ok_or(CUT_SHORT)?)
    }
}

const CUT_SHORT: OptionError = OptionError::Invalid("the option's data is cut short");
const NOT_EMPTY: OptionError = OptionError::Invalid("this option takes no data");

fn text(bytes: &[u8]) -> Result<&str, OptionError> {
    if bytes.len() > STRING_BYTES_MAX {
        return Err(OptionError::TooBig("a string is longer than 4096 bytes"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(OptionError::Invalid("a string is not UTF-8, or holds a zero byte")),
    }
}

/// The client's answer to the greeting.
///
/// # Errors
/// On flags this side does not know, as the protocol wants.
pub fn client_flags(bytes: [u8; 4]) -> Result<ClientFlags, Garbage> {
    let flags = u32::from_be_bytes(bytes);
    if flags & !3 != 0 {
        return Err(Garbage::ClientFlags(flags));
    }
    Ok(ClientFlags { fixed_newstyle: flags & 1 != 0, no_zeroes: flags & 2 != 0 })
}

/// The header of an option.
///
/// # Errors
/// When it does not begin as one.
pub fn option_header(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<OptionHeader, Garbage> {
    let [m0, m1, m2, m3, m4, m5, m6, m7, c0, c1, c2, c3, l0, l1, l2, l3] = *bytes;
    let magic = u64::from_be_bytes([m0, m1, m2, m3, m4, m5, m6, m7]);
    if magic != OPTION_MAGIC {
        return Err(Garbage::OptionMagic(magic));
    }
    Ok(OptionHeader {
        code: OptionCode(u32::from_be_bytes([c0, c1, c2, c3])),
        length_bytes: u32::from_be_bytes([l0, l1, l2, l3]),
    })
}

/// The option of a header and its data.
///
/// # Errors
/// When the data is malformed or asks for too much.
pub fn option(code: OptionCode, data: &[u8]) -> Result<ClientOption<'_>, OptionError> {
    let without_data = |option| if data.is_empty() { Ok(option) } else { Err(NOT_EMPTY) };
    match code {
        OptionCode::EXPORT_NAME => text(data).map(ClientOption::ExportName),
        OptionCode::ABORT => Ok(ClientOption::Abort),
        OptionCode::LIST => without_data(ClientOption::List),
        OptionCode::START_TLS => without_data(ClientOption::StartTls),
        OptionCode::INFO => info(data).map(ClientOption::Info),
        OptionCode::GO => info(data).map(ClientOption::Go),
        OptionCode::STRUCTURED_REPLY => without_data(ClientOption::StructuredReply),
        OptionCode::LIST_META_CONTEXT => meta(data).map(ClientOption::ListMetaContext),
        OptionCode::SET_META_CONTEXT => meta(data).map(ClientOption::SetMetaContext),
        OptionCode::EXTENDED_HEADERS => without_data(ClientOption::ExtendedHeaders),
        other => Ok(ClientOption::Unknown(other)),
    }
}

fn info(data: &[u8]) -> Result<InfoRequest<'_>, OptionError> {
    let mut rest = Rest(data);
    let name = rest.string()?;
    let count = rest.u16().ok_or(CUT_SHORT)?;
    if rest.0.len() != usize::from(count) * 2 {
        return Err(OptionError::Invalid("the list of items does not fill the option's data"));
    }
    let items = std::iter::from_fn(|| rest.u16()).collect();
    Ok(InfoRequest { name, items })
}

fn meta(data: &[u8]) -> Result<MetaRequest<'_>, OptionError> {
    let mut rest = Rest(data);
    let name = rest.string()?;
    let count = rest.u32().ok_or(CUT_SHORT)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > rest.0.len() / 4 {
        return Err(CUT_SHORT);
    }
    if count > META_QUERIES_MAX {
        return Err(OptionError::TooBig("more than 64 queries at once"));
    }
    let mut queries = Vec::with_capacity(count);
    for _ in 0..count {
        queries.push(rest.string()?);
    }
    if !rest.0.is_empty() {
        return Err(OptionError::Invalid("something follows the last query"));
    }
    Ok(MetaRequest { name, queries })
}

/// The header of a request at the start of `bytes`; `None` when there are too few of them.
///
/// # Errors
/// When they do not begin as a request.
pub fn request(bytes: &[u8], style: HeaderStyle) -> Result<Option<Request>, Garbage> {
    match style {
        HeaderStyle::Compact => match bytes.first_chunk::<REQUEST_BYTES>() {
            Some(header) => compact(header).map(Some),
            None => Ok(None),
        },
        HeaderStyle::Extended => match bytes.first_chunk::<EXTENDED_REQUEST_BYTES>() {
            Some(header) => extended(header).map(Some),
            None => Ok(None),
        },
    }
}

/// Bytes of a request's header.
#[must_use]
pub const fn request_header_bytes(style: HeaderStyle) -> usize {
    match style {
        HeaderStyle::Compact => REQUEST_BYTES,
        HeaderStyle::Extended => EXTENDED_REQUEST_BYTES,
    }
}

const PROOF: &str = "the header's length is in its type";

fn compact(header: &[u8; REQUEST_BYTES]) -> Result<Request, Garbage> {
    let mut rest = Rest(header);
    let magic = rest.u32().expect(PROOF);
    if magic != REQUEST_MAGIC {
        return Err(Garbage::RequestMagic(magic));
    }
    Ok(Request {
        flags: CommandFlags(rest.u16().expect(PROOF)),
        command: Command::from_number(rest.u16().expect(PROOF)),
        cookie: rest.u64().expect(PROOF),
        offset: rest.u64().expect(PROOF),
        length_bytes: u64::from(rest.u32().expect(PROOF)),
    })
}

fn extended(header: &[u8; EXTENDED_REQUEST_BYTES]) -> Result<Request, Garbage> {
    let mut rest = Rest(header);
    let magic = rest.u32().expect(PROOF);
    if magic != EXTENDED_REQUEST_MAGIC {
        return Err(Garbage::RequestMagic(magic));
    }
    Ok(Request {
        flags: CommandFlags(rest.u16().expect(PROOF)),
        command: Command::from_number(rest.u16().expect(PROOF)),
        cookie: rest.u64().expect(PROOF),
        offset: rest.u64().expect(PROOF),
        length_bytes: rest.u64().expect(PROOF),
    })
}

/// The payload of a BLOCK_STATUS request: bytes of the range, and the contexts asked about.
///
/// `None` when it is malformed or names more contexts than can be in use.
#[must_use]
pub fn status_payload(bytes: &[u8]) -> Option<(u64, Vec<u32>)> {
    let mut rest = Rest(bytes);
    let length_bytes = rest.u64()?;
    let count = rest.0.len() / 4;
    if !rest.0.len().is_multiple_of(4) || count == 0 || count > super::limits::META_CONTEXTS_MAX {
        return None;
    }
    Some((length_bytes, std::iter::from_fn(|| rest.u32()).collect()))
}

/// The header of a reply at the start of `bytes`, and its length; `None` when there are too few of
/// them.
///
/// # Errors
/// When they do not begin as a reply.
pub fn reply(bytes: &[u8]) -> Result<Option<(ReplyHeader, usize)>, Garbage> {
    let mut rest = Rest(bytes);
    let Some(magic) = rest.u32() else { return Ok(None) };
    let needed = match magic {
        SIMPLE_REPLY_MAGIC => SIMPLE_REPLY_BYTES,
        STRUCTURED_REPLY_MAGIC => STRUCTURED_CHUNK_BYTES,
        EXTENDED_REPLY_MAGIC => EXTENDED_CHUNK_BYTES,
        other => return Err(Garbage::ReplyMagic(other)),
    };
    if bytes.len() < needed {
        return Ok(None);
    }
    if magic == SIMPLE_REPLY_MAGIC {
        let error = rest.u32().expect(PROOF);
        let cookie = rest.u64().expect(PROOF);
        return Ok(Some((ReplyHeader::Simple { error, cookie }, needed)));
    }
    let done = rest.u16().expect(PROOF) & CHUNK_DONE != 0;
    let kind = ChunkKind(rest.u16().expect(PROOF));
    let cookie = rest.u64().expect(PROOF);
    let (offset, length_bytes) = if magic == EXTENDED_REPLY_MAGIC {
        (rest.u64().expect(PROOF), rest.u64().expect(PROOF))
    } else {
        (0, u64::from(rest.u32().expect(PROOF)))
    };
    Ok(Some((ReplyHeader::Chunk { done, kind, cookie, offset, length_bytes }, needed)))
}
