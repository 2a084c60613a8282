//! Names of things in a share: inodes, their generations, and names in directories.

/// The number of an inode: of a file, a directory or anything else with a name in a share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u64);

impl Inode {
    /// The directory at the top of a share.
    pub const ROOT: Inode = Inode(1);
    /// No inode has a number from here on.
    pub const END: Inode = Inode(1 << 34);
}

impl std::fmt::Display for Inode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Tells the objects apart that had one inode number, one after the other. Never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// An object of a share, for as long as there are shares: its number is used again only with
/// another generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Its number.
    pub inode: Inode,
    /// Its life.
    pub generation: Generation,
}

/// Bytes of a name at most.
pub const FILE_NAME_BYTES_MAX: usize = 255;

/// A name in a directory: 1 to 255 bytes, any but `/` and NUL, and neither `.` nor `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName<'a>(&'a [u8]);

/// Why bytes are no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileNameError {
    /// There are none.
    #[error("a name is empty")]
    Empty,
    /// There are more than [`FILE_NAME_BYTES_MAX`].
    #[error("a name has more than {FILE_NAME_BYTES_MAX} bytes")]
    TooLong,
    /// One of them is `/` or NUL.
    #[error("a name has a `/` or a NUL in it")]
    Separator,
    /// They are `.` or `..`, which every directory has by itself.
    #[error("a name is `.` or `..`")]
    Dots,
}

impl<'a> FileName<'a> {
    /// Checks that bytes are a name.
    ///
    /// # Errors
    /// Says which part of the rule is broken.
    pub fn new(bytes: &'a [u8]) -> Result<FileName<'a>, FileNameError> {
        match bytes {
            [] => Err(FileNameError::Empty),
            _ if bytes.len() > FILE_NAME_BYTES_MAX => Err(FileNameError::TooLong),
            b"." | b".." => Err(FileNameError::Dots),
            _ if bytes.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(FileNameError::Separator),
            _ => Ok(FileName(bytes)),
        }
    }

    /// Its bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{FileName, FileNameError};

    #[test]
    fn names_keep_to_the_rule() {
        let long = [b'a'; 256];
        for good in [&b"a"[..], b"...", b".a", b"\xff\n ", &long[..255]] {
            assert_eq!(FileName::new(good).map(FileName::as_bytes), Ok(good));
        }
        for (bad, error) in [
            (&b""[..], FileNameError::Empty),
            (b".", FileNameError::Dots),
            (b"..", FileNameError::Dots),
            (b"a/b", FileNameError::Separator),
            (b"a\0", FileNameError::Separator),
            (&long, FileNameError::TooLong),
        ] {
            assert_eq!(FileName::new(bad), Err(error));
        }
    }
}
