//! The file tree of one share at one moment, and its transactions. `docs/format/share.md`;
//! `docs/design/2026-11-28-shares.md`.
//!
//! 1. Every update is one change of all that belongs to it, or none; so is every transaction.
//! 2. The past is read by the same code as the present ([`Tree`]); it cannot be changed.
//! 3. Bytes of the volume never make a panic: what cannot be is `Corrupt`.
//!
//! Deliberately unaware of protocols, handles, clocks and threads. It stands on [`Blocks`] and
//! [`Present`], which volumes ([`VolumeBlocks`]) and their views ([`ViewBlocks`]) are.
//!
//! - [`Share`]: `make`, `open`, `suspend`, `reload`; `tree` and `read` for readers; `begin`,
//!   `try_begin`.
//! - [`Transaction`]: `create`, `make_directory`, `make_symlink`, `make_node`, `link`, `remove`,
//!   `remove_directory`, `rename`, `set_attributes`, `write`, `make_hole`; `commit`.
//! - [`Past`]: a share at a moment of the past.
//! - [`Tree`]: `look_up`, `attributes`, `access`, `read`, `read_link`, `read_directory`.
//! - [`OperationLog`]: who changed something, and when; [`Naming`]: the paths of that.
//! - [`repair`]: the tree without some of the operations; [`Changer`]: changes of a command.
//! - [`restore`]: a subtree put back as it was.
//! - [`Importing`]: objects of elsewhere, put into a share.
//! - [`differences`]: the paths that differ between two moments.
//! - [`check::check`]: what is wrong with a share.

mod allocation;
mod attributes;
mod blocks;
mod cache;
mod changer;
pub mod check;
mod content;
mod content_change;
mod difference;
mod directory;
mod directory_change;
mod error;
mod extents;
mod import;
mod layered;
mod moment;
mod on_volume;
mod operation_log;
mod operations;
mod part;
mod past;
mod path;
mod paths;
mod permission;
pub mod repair;
mod restore;
mod seen_reads;
mod share;
mod source;
mod transaction;
mod tree;
mod work;

pub use attributes::{Attributes, SetAttributes, SetTime};
pub use blocks::{
    BlockWrite, Blocks, HOLE_BLOCKS_MAX, Present, WHOLE_BLOCKS_MIN, Wait, hole_parts,
};
pub use changer::Changer;
pub use difference::{Difference, differences};
pub use error::{Damage, Error, ErrorKind, Lack, NotKept, Result, TooSmall};
pub use import::{Import, ImportError, Imported, Importing};
pub use moment::Moment;
pub use on_volume::{ViewBlocks, VolumeBlocks};
pub use operation_log::{At, Logged, OperationLog};
pub use operations::create::{Create, Like, Special};
pub use operations::rename::Place;
pub use past::Past;
pub use path::{DEPTH_MAX, FilePath, PathError};
pub use paths::{Naming, OperationPaths, Paths};
pub use permission::{Access, Credentials};
pub use restore::{Effect, Restore, RestoreError, Restored, Told, restore};
pub use share::{Opening, PresentTree, Share, ShareSpec, Statistics};
pub use transaction::{Caller, Transaction};
pub use tree::{Listed, ReadBytes, Tree};
pub use work::LINKS_MAX;

pub use format::share::inode::{FileKind, SYMLINK_BYTES_MAX};
pub use format::share::log::{LogBlock, State};
pub use format::share::operation::{
    Before, Cause, CauseKind, Operation, Origin, Procedure, Set, Target,
};
pub use format::share::place::{FILE_BYTES_MAX, VOLUME_BLOCKS, inode_block};
