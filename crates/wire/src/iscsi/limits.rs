//! The limits of iSCSI messages. A decoder refuses more before it allocates anything.

/// Bytes of the basic header segment of every PDU.
pub const BHS_BYTES: usize = 48;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;
/// Most bytes of additional header segments: 255 words.
pub const AHS_BYTES_MAX: usize = 255 * 4;
/// Longest data segment that its 24-bit length can name, in bytes.
pub const DATA_SEGMENT_FIELD_MAX: usize = (1 << 24) - 1;
/// Longest data segment that we take in the full feature phase, in bytes; announced to initiators.
pub const DATA_SEGMENT_BYTES_MAX: u32 = 262_144;
/// Longest data segment of a Login, in bytes: the default, since nothing was declared yet.
pub const LOGIN_SEGMENT_BYTES_MAX: u32 = 8192;
/// Smallest MaxRecvDataSegmentLength and burst length that may be declared, in bytes.
pub const SEGMENT_BYTES_MIN: u32 = 512;

/// Most bytes of text of one negotiation, over all its PDUs.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Most pairs in one text.
pub const PAIRS_MAX: usize = 256;
/// Longest name of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 63;
/// Longest value of a key, in bytes: room for a list or a large number (8192 by the RFC).
pub const VALUE_BYTES_MAX: usize = 8192;
/// Longest binary value of a key, in bytes, as CHAP has.
pub const BINARY_BYTES_MAX: usize = 1024;
/// Longest iSCSI name, in bytes.
pub const NAME_BYTES_MAX: usize = 223;

const _: () = {
    assert!(DATA_SEGMENT_BYTES_MAX as usize <= DATA_SEGMENT_FIELD_MAX);
    assert!(LOGIN_SEGMENT_BYTES_MAX as usize <= TEXT_BYTES_MAX);
    assert!(KEY_BYTES_MAX + 1 + VALUE_BYTES_MAX < TEXT_BYTES_MAX);
};
