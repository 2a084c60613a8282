//! The one error of this crate: its kind says what the caller may do.

use std::error::Error as StdError;

use units::FileNameError;

/// The things that a volume may have to have before it takes a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lack {
    /// Its map written out as far as its log is ahead of it.
    Map,
    /// Room, that is made by giving up history.
    Room,
}

/// The fault, and so the caller's choices. Front ends have one function from here to their codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No entry of that name.
    NotFound,
    /// The name is taken.
    Exists,
    /// The object is gone; its number may have another by now.
    Stale,
    /// The mode of an object forbids it to this user.
    Access,
    /// Only its owner, or root, may do this.
    NotPermitted,
    /// Not a directory, where one is needed.
    NotDirectory,
    /// A directory, where none may be.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// The name, or the content of a symbolic link, is too long.
    NameTooLong,
    /// The object has as many links as there can be.
    TooManyLinks,
    /// Beyond the largest file.
    FileTooLarge,
    /// No number left for another object, slab or name.
    NoSpace,
    /// The object changed since: the guard of a change of attributes.
    NotSync,
    /// A value that can never be right, or that does not fit the object's kind.
    Invalid,
    /// The transaction has no room for this: commit it and ask again.
    TransactionFull,
    /// The blocks are not in memory, and the caller does not want to wait for them.
    WouldWait,
    /// The volume takes no write before it has this. Nothing was written: wait for it, and do the
    /// same again.
    Lacks(Lack),
    /// The pool is full, and nothing can be given up for room.
    Full,
    /// The blocks say what cannot be: the share has to be checked.
    Corrupt,
    /// The share can be read only: it has features that are not known here, or its operation log is
    /// damaged.
    ReadOnly,
    /// The share has to be loaded again: a revert did not come to its end.
    Unusable,
    /// The volume failed; the source says how.
    Storage,
}

impl std::fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ErrorKind::NotFound => "no such entry",
            ErrorKind::Exists => "the name is taken",
            ErrorKind::Stale => "the object is gone",
            ErrorKind::Access => "its mode forbids it",
            ErrorKind::NotPermitted => "only its owner may",
            ErrorKind::NotDirectory => "not a directory",
            ErrorKind::IsDirectory => "a directory",
            ErrorKind::NotEmpty => "the directory has entries",
            ErrorKind::NameTooLong => "the name is too long",
            ErrorKind::TooManyLinks => "too many links",
            ErrorKind::FileTooLarge => "beyond the largest file",
            ErrorKind::NoSpace => "no number is left",
            ErrorKind::NotSync => "changed since",
            ErrorKind::Invalid => "not possible",
            ErrorKind::TransactionFull => "the transaction is full",
            ErrorKind::WouldWait => "not in memory",
            ErrorKind::Lacks(Lack::Map) => "the map is to be written out first",
            ErrorKind::Lacks(Lack::Room) => "room is to be made first",
            ErrorKind::Full => "the pool is full",
            ErrorKind::Corrupt => "damaged",
            ErrorKind::ReadOnly => "the share can be read only",
            ErrorKind::Unusable => "the share has to be loaded again",
            ErrorKind::Storage => "the volume failed",
        })
    }
}

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub struct Error {
    /// The fault.
    pub kind: ErrorKind,
    /// Its cause, of faults of what lies below.
    #[source]
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Two structures that say what cannot both be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {block}: {found}")]
pub struct Damage {
    /// Where it was seen.
    pub block: u64,
    /// The contradiction.
    pub found: &'static str,
}

/// A volume whose batches are too small for the updates of a share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a share needs whole writes of {least} blocks, and the volume has {most}: larger zones")]
pub struct TooSmall {
    /// Blocks that have to fit.
    pub least: usize,
    /// Blocks that do.
    pub most: usize,
}

/// A moment that is needed is not in history.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("bytes or records of then are not in the history any more (its window or granularity)")]
pub struct NotKept;

/// The fault of a moment that is not kept.
pub(crate) fn not_kept() -> Error {
    Error::with_source(ErrorKind::NotFound, NotKept)
}

impl Error {
    /// A fault with its cause.
    pub fn with_source(kind: ErrorKind, source: impl StdError + Send + Sync + 'static) -> Error {
        Error { kind, source: Some(Box::new(source)) }
    }

    /// Something in a block that cannot be.
    pub(crate) fn damage(block: u64, found: &'static str) -> Error {
        Error::with_source(ErrorKind::Corrupt, Damage { block, found })
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error { kind, source: None }
    }
}

impl From<format::FormatError> for Error {
    fn from(source: format::FormatError) -> Error {
        Error::with_source(ErrorKind::Corrupt, source)
    }
}

impl From<FileNameError> for Error {
    fn from(error: FileNameError) -> Error {
        Error::from(match error {
            FileNameError::TooLong => ErrorKind::NameTooLong,
            FileNameError::Empty | FileNameError::Separator | FileNameError::Dots => {
                ErrorKind::Invalid
            }
        })
    }
}

/// Fails with a kind unless something holds.
pub(crate) fn require(holds: bool, kind: ErrorKind) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::from(kind)) }
}
