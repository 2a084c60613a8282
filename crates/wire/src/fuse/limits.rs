//! Sizes of FUSE messages, in bytes.

/// The header of a request.
pub const REQUEST_BYTES: usize = 40;
/// The header of an answer.
pub const REPLY_BYTES: usize = 16;
/// The longest read or write that is agreed to.
pub const DATA_BYTES_MAX: u32 = 1 << 20;
/// Pages of 4 KiB of that.
pub const PAGES_MAX: u16 = 256;
/// A read of the device must have room for so much: the longest write and what stands before it.
pub const MESSAGE_BYTES_MAX: usize = DATA_BYTES_MAX as usize + 4096;
/// The major and the minor version that are spoken; the kernel speaks older ones too.
pub const VERSION: (u32, u32) = (7, 31);
/// The oldest minor version with all that is used: that directories are not opened is the newest.
pub const MINOR_MIN: u32 = 29;

const _: () = assert!(DATA_BYTES_MAX == PAGES_MAX as u32 * 4096);
