//! FUSE: requests of the kernel about a mounted tree, and the answers, as `/dev/fuse` carries them.
//!
//! 1. A request is one read of the device; its length is in its header and is the whole of it.
//! 2. Numbers are those of a little-endian machine: the kernel writes them as its machine has them,
//!    and the other kind is refused when a program is built for it.
//! 3. Node 1 is the top.
//!
//! Only what a tree needs that nobody changes but by writing bytes of files in place; of the rest
//! the request's number is read, so that it can be refused.

pub mod decode;
pub mod encode;
pub mod limits;
mod types;

pub use types::{Attributes, Errno, Operation, Request, Whence};

#[cfg(not(target_endian = "little"))]
compile_error!("the codec of FUSE is for little-endian machines");
