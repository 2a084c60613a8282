//! NFS version 3: RFC 1813. Sections named in this module are those of that RFC.
//!
//! A call is its procedure with the arguments, borrowed from the record it came in. Results are a
//! `Result` for each procedure: the structure of a success (`resok`), or a status with the
//! attributes that a failure carries (`resfail`), so that none can be forgotten.
//!
//! Data of READ and the list of READDIR and READDIRPLUS are not part of the results here: the
//! caller puts them behind, the data with its [padding](crate::xdr::padding).

mod call;
pub mod decode;
mod dir_list;
pub mod encode;
pub mod limits;
mod results;
mod types;

pub use call::{Call, CreateHow, DirOpArgs, MknodData, Procedure, Sattr3, SetTime};
pub use dir_list::{DirList, Entry3, EntryPlus3};
pub use results::{
    AccessOk, CommitOk, CreateOk, Fail, FsinfoOk, FsstatOk, LinkAttributes, LookupOk, PathconfOk,
    ReadOk, ReaddirOk, ReadlinkOk, RenameWcc, Res, Results, WriteOk,
};
pub use types::{
    Access, Fattr3, FileHandle, FsProperties, Ftype3, Name, Nfspath3, Nfsstat3, Nfstime3,
    PostOpAttr, Specdata3, StableHow, Verifier, WccAttr, WccData,
};

/// Number of the program.
pub const PROGRAM: u32 = 100_003;
/// Version of the program.
pub const VERSION: u32 = 3;
