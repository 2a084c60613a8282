//! Results (3.3).

use super::call::Procedure;
use super::types::{
    Access, Fattr3, FileHandle, FsProperties, Nfsstat3, Nfstime3, PostOpAttr, StableHow, Verifier,
    WccData,
};
use crate::xdr::{Encode, Writer};

/// A `resfail`: the status, and the attributes that the failure of the procedure carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fail<A> {
    /// The status.
    pub status: Nfsstat3,
    /// The attributes.
    pub attributes: A,
}

/// The results of a procedure: its `resok`, or its `resfail`.
pub type Res<T, A> = Result<T, Fail<A>>;

/// `LOOKUP3resok` (3.3.3)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the RFC's fields, by their names")]
pub struct LookupOk {
    pub object: FileHandle,
    pub obj_attributes: PostOpAttr,
    pub dir_attributes: PostOpAttr,
}

/// `ACCESS3resok` (3.3.4)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the RFC's fields, by their names")]
pub struct AccessOk {
    pub obj_attributes: PostOpAttr,
    pub access: Access,
}

/// `READLINK3resok` (3.3.5)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the RFC's fields, by their names")]
pub struct ReadlinkOk<'a> {
    pub symlink_attributes: PostOpAttr,
    pub data: &'a [u8],
}

/// `READ3resok` (3.3.6), up to the data: `count` bytes of it and their padding go behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the RFC's fields, by their names")]
pub struct ReadOk {
    pub file_attributes: PostOpAttr,
    pub count: u32,
    pub eof: bool,
}

/// `WRITE3resok` (3.3.7)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the RFC's fields, by their names")]
pub struct WriteOk {
    pub file_wcc: WccData,
    pub count: u32,
    pub committed: StableHow,
    pub verf: Verifier,
}

/// `CREATE3resok`, and those of MKDIR, SYMLINK and MKNOD (3.3.8 to 3.3.11)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the RFC's fields, by their names")]
pub struct CreateOk {
    pub obj: Option<FileHandle>,
    pub obj_attributes: PostOpAttr,
    pub dir_wcc: WccData,
}

/// `RENAME3resok` and `RENAME3resfail` (3.3.14)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the RFC's fields, by their names")]
pub struct RenameWcc {
    pub fromdir_wcc: WccData,
    pub todir_wcc: WccData,
}

/// `LINK3resok` and `LINK3resfail` (3.3.15)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the RFC's fields, by their names")]
pub struct LinkAttributes {
    pub file_attributes: PostOpAttr,
    pub linkdir_wcc: WccData,
}

/// `READDIR3resok` and `READDIRPLUS3resok` (3.3.16 and 3.3.17), up to the list: what
/// [`DirList::finish`](super::DirList::finish) gives goes behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the RFC's fields, by their names")]
pub struct ReaddirOk {
    pub dir_attributes: PostOpAttr,
    pub cookieverf: Verifier,
}

/// `FSSTAT3resok` (3.3.18)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsstatOk {
    /// Attributes of the root.
    pub obj_attributes: PostOpAttr,
    /// Bytes of the file system.
    pub tbytes: u64,
    /// Free bytes.
    pub fbytes: u64,
    /// Free bytes that the user may have.
    pub abytes: u64,
    /// Files that the file system can have.
    pub tfiles: u64,
    /// Free ones.
    pub ffiles: u64,
    /// Free ones that the user may have.
    pub afiles: u64,
    /// For how many seconds this will hold; 0 promises nothing.
    pub invarsec: u32,
}

/// `FSINFO3resok` (3.3.19)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsinfoOk {
    /// Attributes of the root.
    pub obj_attributes: PostOpAttr,
    /// Most bytes of a READ.
    pub rtmax: u32,
    /// Preferred bytes of a READ.
    pub rtpref: u32,
    /// Bytes of which those of a READ should be a multiple.
    pub rtmult: u32,
    /// Most bytes of a WRITE.
    pub wtmax: u32,
    /// Preferred bytes of a WRITE.
    pub wtpref: u32,
    /// Bytes of which those of a WRITE should be a multiple.
    pub wtmult: u32,
    /// Preferred bytes of a READDIR.
    pub dtpref: u32,
    /// Most bytes of a file.
    pub maxfilesize: u64,
    /// How exact times are.
    pub time_delta: Nfstime3,
    /// Abilities.
    pub properties: FsProperties,
}

/// `PATHCONF3resok` (3.3.20)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathconfOk {
    /// Attributes of the object.
    pub obj_attributes: PostOpAttr,
    /// Most hard links.
    pub linkmax: u32,
    /// Most bytes of a name.
    pub name_max: u32,
    /// Longer names are refused, not cut.
    pub no_trunc: bool,
    /// Only root gives files away.
    pub chown_restricted: bool,
    /// Names differ not only by case.
    pub case_insensitive: bool,
    /// Names keep their case.
    pub case_preserving: bool,
}

/// `COMMIT3resok` (3.3.21)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the RFC's fields, by their names")]
pub struct CommitOk {
    pub file_wcc: WccData,
    pub verf: Verifier,
}

/// The results of each procedure: of a success, and the attributes of a failure.
macro_rules! results {
    ($($procedure:ident: $ok:ty, $attributes:ty;)+) => {
        /// The results of a call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "one for each procedure")]
        pub enum Results<'a> {
            Null,
            $($procedure(Res<$ok, $attributes>),)+
        }

        impl Results<'_> {
            /// The failure of a procedure without any attributes, as when its handle names nothing;
            /// NULL cannot fail.
            #[must_use]
            pub fn failed(procedure: Procedure, status: Nfsstat3) -> Results<'static> {
                match procedure {
                    Procedure::Null => Results::Null,
                    $(Procedure::$procedure => {
                        Results::$procedure(Err(Fail { status, attributes: Default::default() }))
                    })+
                }
            }
        }

        impl Encode for Results<'_> {
            fn encode(&self, out: &mut Writer<'_>) {
                match self {
                    Results::Null => {}
                    $(Results::$procedure(res) => res.encode(out),)+
                }
            }
        }
    };
}

results! {
    Getattr: Fattr3, ();
    Setattr: WccData, WccData;
    Lookup: LookupOk, PostOpAttr;
    Access: AccessOk, PostOpAttr;
    Readlink: ReadlinkOk<'a>, PostOpAttr;
    Read: ReadOk, PostOpAttr;
    Write: WriteOk, WccData;
    Create: CreateOk, WccData;
    Mkdir: CreateOk, WccData;
    Symlink: CreateOk, WccData;
    Mknod: CreateOk, WccData;
    Remove: WccData, WccData;
    Rmdir: WccData, WccData;
    Rename: RenameWcc, RenameWcc;
    Link: LinkAttributes, LinkAttributes;
    Readdir: ReaddirOk, PostOpAttr;
    Readdirplus: ReaddirOk, PostOpAttr;
    Fsstat: FsstatOk, PostOpAttr;
    Fsinfo: FsinfoOk, PostOpAttr;
    Pathconf: PathconfOk, PostOpAttr;
    Commit: CommitOk, WccData;
}
