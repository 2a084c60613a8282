//! The limits of one message. A decoder refuses more before it allocates anything.

/// Longest payload of a request or of one chunk of a reply, in bytes; announced to clients.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Longest data of an option that is looked at, in bytes.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Longest data of an option that is skipped and answered, in bytes; beyond it the client is cut
/// off.
pub const OPTION_SKIP_BYTES_MAX: u32 = 1 << 20;
/// Longest string (export name, query, message), in bytes: the specification's.
pub const STRING_BYTES_MAX: usize = 4096;
/// Most queries in one option about metadata contexts.
pub const META_QUERIES_MAX: usize = 64;
/// Most metadata contexts in use on one connection.
pub const META_CONTEXTS_MAX: usize = 16;
/// Most extents of one context in one reply: the specification's 2^20 would be 16 MiB.
pub const STATUS_EXTENTS_MAX: usize = 1 << 16;

/// Smallest block size announced, in bytes: any range is served.
pub const BLOCK_BYTES_MIN: u32 = 1;
/// Preferred block size announced, in bytes.
pub const BLOCK_BYTES_PREFERRED: u32 = 4096;

/// Bytes of the server's greeting.
pub const GREETING_BYTES: usize = 18;
/// Bytes of the header of an option.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of the header of a reply to an option.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Zero bytes after the answer to `NBD_OPT_EXPORT_NAME` for clients that did not refuse them.
pub const EXPORT_NAME_PADDING_BYTES: usize = 124;
/// Bytes of a compact request header.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of an extended request header.
pub const EXTENDED_REQUEST_BYTES: usize = 32;
/// Bytes of a simple reply's header.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a structured reply chunk's header.
pub const STRUCTURED_CHUNK_BYTES: usize = 20;
/// Bytes of an extended reply chunk's header.
pub const EXTENDED_CHUNK_BYTES: usize = 32;

const _: () = {
    assert!(PAYLOAD_BYTES_MAX >= BLOCK_BYTES_PREFERRED);
    assert!(BLOCK_BYTES_PREFERRED.is_power_of_two() && BLOCK_BYTES_PREFERRED >= 512);
    assert!(OPTION_BYTES_MAX as usize > STRING_BYTES_MAX + 4 + META_QUERIES_MAX);
    assert!(OPTION_SKIP_BYTES_MAX > OPTION_BYTES_MAX);
    assert!(8 + 16 * STATUS_EXTENTS_MAX < PAYLOAD_BYTES_MAX as usize);
};
