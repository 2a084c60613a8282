//! The limits of MOUNT (5.1.2).

/// `MNTPATHLEN`: longest path, in bytes.
pub const PATH_BYTES_MAX: usize = 1024;
/// `MNTNAMLEN`: longest name of a host or group, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
