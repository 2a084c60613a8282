//! What is known of a file system before it is opened.

/// What a part holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// `ext4`, `xfs`, `fat32`, ...; also what is known and cannot be read.
    pub kind: &'static str,
    /// Its label, as bytes of the disk.
    pub label: Vec<u8>,
    /// Its identity as it is printed, or empty.
    pub uuid: String,
    /// Whether [`crate::open`] has a reader for it.
    pub is_readable: bool,
}
