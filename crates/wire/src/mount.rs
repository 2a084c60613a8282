//! MOUNT version 3: RFC 1813, appendix I. From a path to the first file handle.

pub mod decode;
pub mod encode;
pub mod limits;
mod types;

pub use types::{Call, ExportNode, MntOk, MountBody, Mountstat3, Path, Procedure, Results};

/// Number of the program.
pub const PROGRAM: u32 = 100_005;
/// Version of the program.
pub const VERSION: u32 = 3;
