//! Readers of the file systems that lie on volumes: what is on a disk, as files.
//!
//! 1. Nothing is ever written. What a journal holds is laid over the disk in memory.
//! 2. Nothing that the disk says is believed: each length is held against what is there before it
//!    allocates or loops, each checksum that is there is checked, and what has no end has a limit
//!    with a name. A disk can make a reader refuse; it cannot make it panic or go on for ever.
//! 3. A reader gives what the kernel would give after a mount that replays, or it refuses. Bytes
//!    that nobody can vouch for are an error.
//!
//! Archives of trees are written and read, too ([`Writer`], [`Reader`]).
//!
//! There is no clock, thread, file or socket here: a [`Source`] is handed in.

mod archive;
mod bytes;
mod crc;
mod detect;
mod error;
mod ext4;
mod fat;
mod lvm;
mod ntfs;
mod part;
mod parts;
mod pieces;
mod source;
mod system;
mod tree;
mod whole;
mod xfs;

pub use archive::{Link, Member, Reader, What, Writer};
pub use detect::open;
pub use error::{Error, ErrorKind, Result};
pub use part::Part;
pub use parts::{PartTable, parts};
pub use source::{ReadAhead, Slice, Source};
pub use system::FileSystem;
pub use tree::{
    Attributes, DEPTH_MAX, ENTRIES_MAX, Entry, Identity, Kind, LINK_BYTES_MAX, NAME_BYTES_MAX,
    Node, PIECES_MAX, Piece, State, Time, Tree, Visit, check_name, look_up_path, read_all, walk,
};
pub use whole::Whole;
