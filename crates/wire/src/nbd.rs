//! NBD, the network block device protocol: fixed newstyle handshake, simple, structured and
//! extended replies.
//!
//! Everything is big-endian. The decoders of the server's side are what a client can reach; the
//! encoders of the client's side serve tests and measuring tools. Oldstyle handshakes are not
//! spoken.
//!
//! `NBD_CMD_RESIZE` and its transmission flag are those of the protocol's experimental branch: the
//! request's offset is the new size.

pub mod decode;
pub mod encode;
pub mod limits;
mod types;

pub use types::{
    ChunkKind, ClientFlags, ClientOption, Command, CommandFlags, Errno, HeaderStyle, InfoItem,
    InfoRequest, MetaRequest, OptionCode, OptionHeader, OptionReplyKind, ReplyHeader, ReplyStyle,
    Request, Status, TransmissionFlags,
};
