//! The words of a repair.

/// Operations that are undone too, though nobody named them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Follow {
    /// None: an operation on which another stands is not undone.
    #[default]
    Nothing,
    /// Those that cannot be done without the undone ones: that found their object by an undone
    /// name, or changed one that would not be there.
    Names,
    /// These, and those that wrote over bytes that an undone one wrote.
    Bytes,
    /// These, and all that a client's user did after it had read a file that an undone one wrote:
    /// more than need be, as a server does not see what a write owes to a read.
    Reads,
}

/// The relation by which an operation stands on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The object that it changes would not be there.
    Object,
    /// The directory that it makes a name in would not be there.
    Directory,
    /// Its name would have another object.
    NameTaken,
    /// Its name would not have its object.
    NameGone,
    /// The directory that it removes would have entries.
    NotEmpty,
    /// It wrote over bytes of theirs, or took a file away whose bytes are at no moment.
    Bytes,
    /// Its sender had read a file that they wrote.
    Reads,
}

/// Operations that hang together so that no order of single transactions does them.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum Entangled {
    /// A directory would be in itself.
    #[error("a directory would come into itself: name more operations, or fewer")]
    Loop,
    /// Each time operations are left out others cannot be done.
    #[error("too many operations stand on one another: name fewer of them, or follow names")]
    Chain,
    /// An operation of a later release: nobody here knows what it changed.
    #[error("an operation since then is of a kind that this release does not know")]
    Unknown,
    /// Reads are followed from before they were logged on.
    #[error(
        "reads were not logged when the first of these operations was done: follow bytes, or \
             name operations since then"
    )]
    Reads,
    /// Names that change at once are more than a transaction takes.
    #[error("more names have to change at once than the pool's zones take: name fewer operations")]
    Names,
}
