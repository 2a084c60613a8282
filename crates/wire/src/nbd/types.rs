//! The words of the protocol: codes, flags, headers and decoded options.

pub(crate) const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
pub(crate) const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;
/// The server's handshake flags: fixed newstyle, and no padding if the client agrees.
pub(crate) const SERVER_FLAGS: u16 = 3;
pub(crate) const CHUNK_DONE: u16 = 1;

/// The client's answer to the greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientFlags {
    /// It speaks fixed newstyle.
    pub fixed_newstyle: bool,
    /// It wants no padding after the answer to `NBD_OPT_EXPORT_NAME`.
    pub no_zeroes: bool,
}

/// Number of an option; any number can arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionCode(pub u32);

impl OptionCode {
    /// Choose an export and begin; cannot fail other than by disconnecting.
    pub const EXPORT_NAME: OptionCode = OptionCode(1);
    /// End the session.
    pub const ABORT: OptionCode = OptionCode(2);
    /// Name the exports.
    pub const LIST: OptionCode = OptionCode(3);
    /// Go over to TLS.
    pub const START_TLS: OptionCode = OptionCode(5);
    /// Describe an export.
    pub const INFO: OptionCode = OptionCode(6);
    /// Describe an export and begin.
    pub const GO: OptionCode = OptionCode(7);
    /// Use structured replies.
    pub const STRUCTURED_REPLY: OptionCode = OptionCode(8);
    /// Name the metadata contexts of an export.
    pub const LIST_META_CONTEXT: OptionCode = OptionCode(9);
    /// Choose the metadata contexts to use.
    pub const SET_META_CONTEXT: OptionCode = OptionCode(10);
    /// Use extended headers.
    pub const EXTENDED_HEADERS: OptionCode = OptionCode(11);
}

/// Header of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Which option.
    pub code: OptionCode,
    /// Bytes of data that follow.
    pub length_bytes: u32,
}

/// A decoded option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOption<'a> {
    /// `NBD_OPT_EXPORT_NAME`
    ExportName(&'a str),
    /// `NBD_OPT_ABORT`
    Abort,
    /// `NBD_OPT_LIST`
    List,
    /// `NBD_OPT_STARTTLS`
    StartTls,
    /// `NBD_OPT_INFO`
    Info(InfoRequest<'a>),
    /// `NBD_OPT_GO`
    Go(InfoRequest<'a>),
    /// `NBD_OPT_STRUCTURED_REPLY`
    StructuredReply,
    /// `NBD_OPT_LIST_META_CONTEXT`
    ListMetaContext(MetaRequest<'a>),
    /// `NBD_OPT_SET_META_CONTEXT`
    SetMetaContext(MetaRequest<'a>),
    /// `NBD_OPT_EXTENDED_HEADERS`
    ExtendedHeaders,
    /// One this side does not know.
    Unknown(OptionCode),
}

/// Data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// The export's name; empty for the default one.
    pub name: &'a str,
    /// Numbers of the items asked for, known or not.
    pub items: Vec<u16>,
}

/// Data of the two options about metadata contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaRequest<'a> {
    /// The export's name.
    pub name: &'a str,
    /// Queries, each `namespace:leaf`.
    pub queries: Vec<&'a str>,
}

/// An item of information about an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfoItem<'a> {
    /// Size and transmission flags.
    Export {
        /// Bytes of the export.
        size_bytes: u64,
        /// Its abilities.
        flags: TransmissionFlags,
    },
    /// Its canonical name.
    Name(&'a str),
    /// A description for people.
    Description(&'a str),
    /// Block sizes, in bytes.
    BlockSize {
        /// Smallest.
        min: u32,
        /// Preferred.
        preferred: u32,
        /// Longest payload.
        payload_max: u32,
    },
}

impl InfoItem<'_> {
    /// Number of `Export`.
    pub const EXPORT: u16 = 0;
    /// Number of `Name`.
    pub const NAME: u16 = 1;
    /// Number of `Description`.
    pub const DESCRIPTION: u16 = 2;
    /// Number of `BlockSize`.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Kind of a reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyKind(pub u32);

impl OptionReplyKind {
    /// Done.
    pub const ACK: OptionReplyKind = OptionReplyKind(1);
    /// An export.
    pub const SERVER: OptionReplyKind = OptionReplyKind(2);
    /// An item of information.
    pub const INFO: OptionReplyKind = OptionReplyKind(3);
    /// A metadata context.
    pub const META_CONTEXT: OptionReplyKind = OptionReplyKind(4);
    /// The option is not known here.
    pub const UNSUPPORTED: OptionReplyKind = OptionReplyKind(0x8000_0001);
    /// Known, and not allowed here.
    pub const POLICY: OptionReplyKind = OptionReplyKind(0x8000_0002);
    /// Malformed, or makes no sense now.
    pub const INVALID: OptionReplyKind = OptionReplyKind(0x8000_0003);
    /// TLS first.
    pub const TLS_REQUIRED: OptionReplyKind = OptionReplyKind(0x8000_0005);
    /// No such export.
    pub const UNKNOWN: OptionReplyKind = OptionReplyKind(0x8000_0006);
    /// The server is shutting down.
    pub const SHUTDOWN: OptionReplyKind = OptionReplyKind(0x8000_0007);
    /// Too much was asked at once.
    pub const TOO_BIG: OptionReplyKind = OptionReplyKind(0x8000_0009);
    /// Extended headers are in use already.
    pub const EXTENDED_HEADERS_REQUIRED: OptionReplyKind = OptionReplyKind(0x8000_000a);

    /// Whether it tells of a failure.
    #[must_use]
    pub fn is_error(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

/// The abilities of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmissionFlags(pub u16);

impl TransmissionFlags {
    /// The flags field holds something; always set.
    pub const HAS_FLAGS: TransmissionFlags = TransmissionFlags(1);
    /// Writes are refused.
    pub const READ_ONLY: TransmissionFlags = TransmissionFlags(1 << 1);
    /// FLUSH is served.
    pub const FLUSH: TransmissionFlags = TransmissionFlags(1 << 2);
    /// FUA is obeyed.
    pub const FUA: TransmissionFlags = TransmissionFlags(1 << 3);
    /// TRIM is served.
    pub const TRIM: TransmissionFlags = TransmissionFlags(1 << 5);
    /// WRITE_ZEROES is served.
    pub const WRITE_ZEROES: TransmissionFlags = TransmissionFlags(1 << 6);
    /// The "do not fragment" flag of READ is obeyed.
    pub const DF: TransmissionFlags = TransmissionFlags(1 << 7);
    /// Many connections see one consistent export.
    pub const MULTI_CONN: TransmissionFlags = TransmissionFlags(1 << 8);
    /// RESIZE is served.
    pub const RESIZE: TransmissionFlags = TransmissionFlags(1 << 9);
    /// CACHE is served.
    pub const CACHE: TransmissionFlags = TransmissionFlags(1 << 10);
    /// WRITE_ZEROES knows the "only if fast" flag.
    pub const FAST_ZERO: TransmissionFlags = TransmissionFlags(1 << 11);
    /// BLOCK_STATUS takes a payload that chooses contexts.
    pub const STATUS_PAYLOAD: TransmissionFlags = TransmissionFlags(1 << 12);

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: TransmissionFlags) -> TransmissionFlags {
        TransmissionFlags(self.0 | other.0)
    }

    /// Whether every flag of `other` is set.
    #[must_use]
    pub const fn has(self, other: TransmissionFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Flags of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandFlags(pub u16);

impl CommandFlags {
    /// Reply when it is durable.
    pub const FUA: CommandFlags = CommandFlags(1);
    /// WRITE_ZEROES: leave no hole.
    pub const NO_HOLE: CommandFlags = CommandFlags(1 << 1);
    /// READ: one chunk of data at most.
    pub const DF: CommandFlags = CommandFlags(1 << 2);
    /// BLOCK_STATUS: one extent.
    pub const REQ_ONE: CommandFlags = CommandFlags(1 << 3);
    /// WRITE_ZEROES: only if it is fast.
    pub const FAST_ZERO: CommandFlags = CommandFlags(1 << 4);
    /// Extended headers: the length is that of a payload that follows.
    pub const PAYLOAD_LEN: CommandFlags = CommandFlags(1 << 5);

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: CommandFlags) -> CommandFlags {
        CommandFlags(self.0 | other.0)
    }

    /// Whether every flag of `other` is set.
    #[must_use]
    pub const fn has(self, other: CommandFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether no flag outside `allowed` is set.
    #[must_use]
    pub const fn is_within(self, allowed: CommandFlags) -> bool {
        self.0 & !allowed.0 == 0
    }
}

/// The operation that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read bytes.
    Read,
    /// Write the payload.
    Write,
    /// End the session.
    Disconnect,
    /// Make durable what was answered.
    Flush,
    /// The range is not needed any more.
    Trim,
    /// The range will be needed soon.
    Cache,
    /// The range shall read as zeros.
    WriteZeroes,
    /// Describe the range.
    BlockStatus,
    /// The offset is the new size.
    Resize,
    /// A number this side does not know.
    Unknown(u16),
}

impl Command {
    /// The command of a number.
    #[must_use]
    pub const fn from_number(number: u16) -> Command {
        match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            8 => Command::Resize,
            other => Command::Unknown(other),
        }
    }

    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Command::Read => 0,
            Command::Write => 1,
            Command::Disconnect => 2,
            Command::Flush => 3,
            Command::Trim => 4,
            Command::Cache => 5,
            Command::WriteZeroes => 6,
            Command::BlockStatus => 7,
            Command::Resize => 8,
            Command::Unknown(other) => other,
        }
    }
}

/// Which request headers a connection uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderStyle {
    /// 28 bytes, lengths of 32 bits.
    Compact,
    /// 32 bytes, lengths of 64 bits.
    Extended,
}

/// Which replies a connection uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStyle {
    /// Simple only.
    Simple,
    /// Chunks for everything with a payload.
    Structured,
    /// Chunks with extended headers for everything.
    Extended,
}

impl ReplyStyle {
    /// The request headers that go with it.
    #[must_use]
    pub const fn headers(self) -> HeaderStyle {
        match self {
            ReplyStyle::Extended => HeaderStyle::Extended,
            ReplyStyle::Simple | ReplyStyle::Structured => HeaderStyle::Compact,
        }
    }
}

/// Header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its flags.
    pub flags: CommandFlags,
    /// The operation.
    pub command: Command,
    /// The client's name for it, echoed in the reply.
    pub cookie: u64,
    /// Byte offset.
    pub offset: u64,
    /// Bytes of the payload if there is one, else of the range.
    pub length_bytes: u64,
}

impl Request {
    /// Bytes of payload that follow the header.
    #[must_use]
    pub const fn payload_bytes(&self, style: HeaderStyle) -> u64 {
        let has_payload = match style {
            HeaderStyle::Compact => matches!(self.command, Command::Write),
            HeaderStyle::Extended => self.flags.has(CommandFlags::PAYLOAD_LEN),
        };
        if has_payload { self.length_bytes } else { 0 }
    }
}

/// Error numbers of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted.
    Perm = 1,
    /// Input or output failed.
    Io = 5,
    /// No memory.
    NoMem = 12,
    /// The request makes no sense.
    Invalid = 22,
    /// No space, or beyond the end.
    NoSpace = 28,
    /// Too large for one reply.
    Overflow = 75,
    /// Not supported.
    NotSupported = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

/// Kind of a chunk of a structured or extended reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkKind(pub u16);

impl ChunkKind {
    /// Nothing but the end.
    pub const NONE: ChunkKind = ChunkKind(0);
    /// Offset and data.
    pub const OFFSET_DATA: ChunkKind = ChunkKind(1);
    /// Offset and length of zeros.
    pub const OFFSET_HOLE: ChunkKind = ChunkKind(2);
    /// Extents with 32-bit lengths.
    pub const BLOCK_STATUS: ChunkKind = ChunkKind(5);
    /// Extents with 64-bit lengths.
    pub const BLOCK_STATUS_EXT: ChunkKind = ChunkKind(6);
    /// Failed.
    pub const ERROR: ChunkKind = ChunkKind(0x8001);
    /// Failed at an offset.
    pub const ERROR_OFFSET: ChunkKind = ChunkKind(0x8002);
}

/// Header of a reply, as a client reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A simple reply; data follows a successful READ.
    Simple {
        /// 0 or an error number.
        error: u32,
        /// The request's.
        cookie: u64,
    },
    /// A chunk.
    Chunk {
        /// Whether it is the last of its reply.
        done: bool,
        /// The kind of its payload.
        kind: ChunkKind,
        /// The request's.
        cookie: u64,
        /// The request's; 0 where the header has no such field.
        offset: u64,
        /// Bytes of its payload.
        length_bytes: u64,
    },
}

/// One extent of a block status reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Bytes.
    pub length_bytes: u64,
    /// Bits that the context defines.
    pub flags: u32,
}

impl Status {
    /// `base:allocation`: nothing is stored there.
    pub const HOLE: u32 = 1;
    /// `base:allocation`: reads as zeros.
    pub const ZERO: u32 = 2;
    /// `x-hindsight:changed@MOMENT`: differs from that moment.
    pub const CHANGED: u32 = 1;
}
