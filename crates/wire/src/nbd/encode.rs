//! Messages to bytes. The headers of the transmission phase are small values, so that a session can
//! put them in place without allocating.

use super::limits::{EXPORT_NAME_PADDING_BYTES, GREETING_BYTES, STRING_BYTES_MAX};
use super::types::{
    CHUNK_DONE, EXTENDED_REPLY_MAGIC, EXTENDED_REQUEST_MAGIC, GREETING_MAGIC, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, REQUEST_MAGIC, SERVER_FLAGS, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
};
use super::{
    ChunkKind, ClientFlags, Errno, HeaderStyle, InfoItem, OptionCode, OptionReplyKind, ReplyStyle,
    Request, Status, TransmissionFlags,
};

/// A short message, or what goes before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    bytes: [u8; Prefix::BYTES_MAX],
    length: usize,
}

impl Prefix {
    /// The longest: an extended chunk's header with a hole.
    pub const BYTES_MAX: usize = 44;

    const fn new() -> Prefix {
        Prefix { bytes: [0; Prefix::BYTES_MAX], length: 0 }
    }

    fn put<const N: usize>(mut self, bytes: [u8; N]) -> Prefix {
        self.bytes[self.length..self.length + N].copy_from_slice(&bytes);
        self.length += N;
        self
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The server's first words.
#[must_use]
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&SERVER_FLAGS.to_be_bytes());
    bytes
}

/// A client's answer to the greeting.
#[must_use]
pub fn client_flags(flags: ClientFlags) -> [u8; 4] {
    (u32::from(flags.fixed_newstyle) | u32::from(flags.no_zeroes) << 1).to_be_bytes()
}

/// An option of a client.
///
/// # Panics
/// When `data` is 4 GiB or longer.
pub fn option(code: OptionCode, data: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(data.len()).expect("an option is short");
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(data);
}

/// A string with its length.
///
/// # Panics
/// When it is 4 GiB or longer.
pub fn string(text: &str, out: &mut Vec<u8>) {
    let length = u32::try_from(text.len()).expect("a string is short");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
///
/// # Panics
/// With more than 65535 items.
pub fn info_request(name: &str, items: &[u16], out: &mut Vec<u8>) {
    string(name, out);
    let count = u16::try_from(items.len()).expect("few items");
    out.extend_from_slice(&count.to_be_bytes());
    for item in items {
        out.extend_from_slice(&item.to_be_bytes());
    }
}

/// Data of the two options about metadata contexts.
///
/// # Panics
/// With 2^32 queries or more.
pub fn meta_request(name: &str, queries: &[&str], out: &mut Vec<u8>) {
    string(name, out);
    let count = u32::try_from(queries.len()).expect("few queries");
    out.extend_from_slice(&count.to_be_bytes());
    for query in queries {
        string(query, out);
    }
}

/// A reply to an option.
///
/// # Panics
/// When `data` is 4 GiB or longer.
pub fn option_reply(code: OptionCode, kind: OptionReplyKind, data: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(data.len()).expect("a reply to an option is short");
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(&kind.0.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(data);
}

/// A reply that refuses an option, with words for people.
pub fn option_error(code: OptionCode, kind: OptionReplyKind, message: &str, out: &mut Vec<u8>) {
    assert!(kind.is_error(), "a refusal has bit 31 set");
    option_reply(code, kind, clipped(message).as_bytes(), out);
}

/// An export, in answer to `NBD_OPT_LIST`.
pub fn listed_export(name: &str, description: &str, out: &mut Vec<u8>) {
    let mut data = Vec::with_capacity(4 + name.len() + description.len());
    string(name, &mut data);
    data.extend_from_slice(clipped(description).as_bytes());
    option_reply(OptionCode::LIST, OptionReplyKind::SERVER, &data, out);
}

/// An item of information, in answer to `NBD_OPT_INFO` or `NBD_OPT_GO`.
pub fn info_item(code: OptionCode, item: InfoItem<'_>, out: &mut Vec<u8>) {
    let mut data = Vec::with_capacity(16);
    match item {
        InfoItem::Export { size_bytes, flags } => {
            data.extend_from_slice(&InfoItem::EXPORT.to_be_bytes());
            data.extend_from_slice(&size_bytes.to_be_bytes());
            data.extend_from_slice(&flags.0.to_be_bytes());
        }
        InfoItem::Name(name) => {
            data.extend_from_slice(&InfoItem::NAME.to_be_bytes());
            data.extend_from_slice(clipped(name).as_bytes());
        }
        InfoItem::Description(text) => {
            data.extend_from_slice(&InfoItem::DESCRIPTION.to_be_bytes());
            data.extend_from_slice(clipped(text).as_bytes());
        }
        InfoItem::BlockSize { min, preferred, payload_max } => {
            data.extend_from_slice(&InfoItem::BLOCK_SIZE.to_be_bytes());
            data.extend_from_slice(&min.to_be_bytes());
            data.extend_from_slice(&preferred.to_be_bytes());
            data.extend_from_slice(&payload_max.to_be_bytes());
        }
    }
    option_reply(code, OptionReplyKind::INFO, &data, out);
}

/// A metadata context, in answer to one of the two options about them.
pub fn meta_context(code: OptionCode, id: u32, name: &str, out: &mut Vec<u8>) {
    let mut data = Vec::with_capacity(4 + name.len());
    data.extend_from_slice(&id.to_be_bytes());
    data.extend_from_slice(name.as_bytes());
    option_reply(code, OptionReplyKind::META_CONTEXT, &data, out);
}

/// The answer to `NBD_OPT_EXPORT_NAME`.
pub fn export_name_answer(
    size_bytes: u64,
    flags: TransmissionFlags,
    client: ClientFlags,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&size_bytes.to_be_bytes());
    out.extend_from_slice(&flags.0.to_be_bytes());
    if !client.no_zeroes {
        out.extend_from_slice(&[0; EXPORT_NAME_PADDING_BYTES]);
    }
}

/// The header of a request.
///
/// # Panics
/// When a compact header cannot hold its length.
#[must_use]
pub fn request(request: &Request, style: HeaderStyle) -> Prefix {
    let magic = match style {
        HeaderStyle::Compact => REQUEST_MAGIC,
        HeaderStyle::Extended => EXTENDED_REQUEST_MAGIC,
    };
    let prefix = Prefix::new()
        .put(magic.to_be_bytes())
        .put(request.flags.0.to_be_bytes())
        .put(request.command.number().to_be_bytes())
        .put(request.cookie.to_be_bytes())
        .put(request.offset.to_be_bytes());
    match style {
        HeaderStyle::Compact => {
            let length = u32::try_from(request.length_bytes).expect("a compact length has 32 bits");
            prefix.put(length.to_be_bytes())
        }
        HeaderStyle::Extended => prefix.put(request.length_bytes.to_be_bytes()),
    }
}

fn simple(error: u32, cookie: u64) -> Prefix {
    Prefix::new()
        .put(SIMPLE_REPLY_MAGIC.to_be_bytes())
        .put(error.to_be_bytes())
        .put(cookie.to_be_bytes())
}

/// The header of a chunk; only for styles that have chunks.
fn chunk(style: ReplyStyle, to: &Request, done: bool, kind: ChunkKind, length: u32) -> Prefix {
    let flags = if done { CHUNK_DONE } else { 0 };
    match style {
        ReplyStyle::Simple => unreachable!("simple replies have no chunks"),
        ReplyStyle::Structured => Prefix::new()
            .put(STRUCTURED_REPLY_MAGIC.to_be_bytes())
            .put(flags.to_be_bytes())
            .put(kind.0.to_be_bytes())
            .put(to.cookie.to_be_bytes())
            .put(length.to_be_bytes()),
        ReplyStyle::Extended => Prefix::new()
            .put(EXTENDED_REPLY_MAGIC.to_be_bytes())
            .put(flags.to_be_bytes())
            .put(kind.0.to_be_bytes())
            .put(to.cookie.to_be_bytes())
            .put(to.offset.to_be_bytes())
            .put(u64::from(length).to_be_bytes()),
    }
}

/// Success without data, to anything but a READ of at least a byte.
#[must_use]
pub fn done(style: ReplyStyle, to: &Request) -> Prefix {
    match style {
        // Allowed also among structured replies, and shorter.
        ReplyStyle::Simple | ReplyStyle::Structured => simple(0, to.cookie),
        ReplyStyle::Extended => chunk(style, to, true, ChunkKind::NONE, 0),
    }
}

/// Success of a READ of no bytes.
#[must_use]
pub fn read_nothing(style: ReplyStyle, to: &Request) -> Prefix {
    match style {
        ReplyStyle::Simple => simple(0, to.cookie),
        ReplyStyle::Structured | ReplyStyle::Extended => chunk(style, to, true, ChunkKind::NONE, 0),
    }
}

/// The header before the `length` bytes (at least one) that a READ got.
///
/// # Panics
/// When a chunk cannot hold so many bytes.
#[must_use]
pub fn read_data(style: ReplyStyle, to: &Request, length: u32) -> Prefix {
    match style {
        ReplyStyle::Simple => simple(0, to.cookie),
        ReplyStyle::Structured | ReplyStyle::Extended => {
            let length = length.checked_add(8).expect("a payload is much shorter than 4 GiB");
            chunk(style, to, true, ChunkKind::OFFSET_DATA, length).put(to.offset.to_be_bytes())
        }
    }
}

/// Bytes of what [`read_data`] gives.
#[must_use]
pub const fn read_data_bytes(style: ReplyStyle) -> usize {
    match style {
        ReplyStyle::Simple => 16,
        ReplyStyle::Structured => 28,
        ReplyStyle::Extended => 40,
    }
}

/// The whole answer to a READ of `length` zeros; only for styles that have chunks.
#[must_use]
pub fn read_hole(style: ReplyStyle, to: &Request, length: u32) -> Prefix {
    chunk(style, to, true, ChunkKind::OFFSET_HOLE, 12)
        .put(to.offset.to_be_bytes())
        .put(length.to_be_bytes())
}

/// Failure, with words for people where the style has room for them.
pub fn error(style: ReplyStyle, to: &Request, errno: Errno, message: &str, out: &mut Vec<u8>) {
    if style == ReplyStyle::Simple {
        out.extend_from_slice(simple(errno as u32, to.cookie).as_bytes());
        return;
    }
    let message = clipped(message);
    let length = u32::try_from(message.len()).expect("clipped");
    let short = u16::try_from(length).expect("clipped");
    let header = chunk(style, to, true, ChunkKind::ERROR, 6 + length);
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&(errno as u32).to_be_bytes());
    out.extend_from_slice(&short.to_be_bytes());
    out.extend_from_slice(message.as_bytes());
}

/// The extents of one context; only for styles that have chunks.
///
/// # Panics
/// Without extents, with more than the limit, or with one too long for the style.
pub fn block_status(
    style: ReplyStyle,
    to: &Request,
    done: bool,
    context: u32,
    extents: &[Status],
    out: &mut Vec<u8>,
) {
    assert!(!extents.is_empty() && extents.len() <= super::limits::STATUS_EXTENTS_MAX);
    let count = u32::try_from(extents.len()).expect("within the limit");
    if style == ReplyStyle::Extended {
        let header = chunk(style, to, done, ChunkKind::BLOCK_STATUS_EXT, 8 + 16 * count);
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(&context.to_be_bytes());
        out.extend_from_slice(&count.to_be_bytes());
        for extent in extents {
            out.extend_from_slice(&extent.length_bytes.to_be_bytes());
            out.extend_from_slice(&u64::from(extent.flags).to_be_bytes());
        }
        return;
    }
    let header = chunk(style, to, done, ChunkKind::BLOCK_STATUS, 4 + 8 * count);
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&context.to_be_bytes());
    for extent in extents {
        let length = u32::try_from(extent.length_bytes).expect("a compact extent has 32 bits");
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&extent.flags.to_be_bytes());
    }
}

/// As much of a text as a string of the protocol can hold.
fn clipped(text: &str) -> &str {
    &text[..text.floor_char_boundary(STRING_BYTES_MAX)]
}
