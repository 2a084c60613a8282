//! The results of each procedure of NFS, written by hand from RFC 1813, section 3.3.

use hindsight_wire as wire;
use wire::nfs3::{
    Access, AccessOk, CommitOk, CreateOk, Fail, Fattr3, FsProperties, FsinfoOk, FsstatOk, Ftype3,
    LinkAttributes, LookupOk, Nfsstat3, Nfstime3, PathconfOk, Procedure, ReadOk, ReaddirOk,
    ReadlinkOk, RenameWcc, Results, Specdata3, StableHow, WccAttr, WccData, WriteOk, encode,
};
use wire::xdr::Reader;

use crate::golden_calls::handle;
use crate::{hex, replies};

/// Type, mode, links, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime.
const FATTR: &str = "00000001 000001a4 00000002 000003e8 00000064 0000000100000005
    0000000000002000 0000000800000001 0102030405060708 0000000000000011
    65000001 00000005 65000002 00000006 65000003 00000007";
/// A `post_op_attr` that has attributes, and one that has none.
const POST: &str = "00000001 00000001 000001a4 00000002 000003e8 00000064 0000000100000005
    0000000000002000 0000000800000001 0102030405060708 0000000000000011
    65000001 00000005 65000002 00000006 65000003 00000007";
const NO_POST: &str = "00000000";
/// A `pre_op_attr`: size, mtime, ctime.
const PRE: &str = "00000001 0000000000000003 65000000 00000001 65000000 00000002";
/// A `wcc_data` without attributes.
const NO_WCC: &str = "00000000 00000000";
/// A `post_op_fh3`.
const POST_HANDLE: &str = "00000001 00000005 0102030405 000000";
const VERIFIER: &str = "1112131415161718";

pub const ATTRIBUTES: Fattr3 = Fattr3 {
    ftype: Ftype3::Reg,
    mode: 0o644,
    nlink: 2,
    uid: 1000,
    gid: 100,
    size: (1 << 32) + 5,
    used: 8192,
    rdev: Specdata3 { specdata1: 8, specdata2: 1 },
    fsid: 0x0102_0304_0506_0708,
    fileid: 17,
    atime: Nfstime3 { seconds: 0x6500_0001, nseconds: 5 },
    mtime: Nfstime3 { seconds: 0x6500_0002, nseconds: 6 },
    ctime: Nfstime3 { seconds: 0x6500_0003, nseconds: 7 },
};

const WCC: WccData = WccData {
    before: Some(WccAttr {
        size: 3,
        mtime: Nfstime3 { seconds: 0x6500_0000, nseconds: 1 },
        ctime: Nfstime3 { seconds: 0x6500_0000, nseconds: 2 },
    }),
    after: Some(ATTRIBUTES),
};

const VERF: [u8; 8] = [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];

/// Procedure, results as bytes, and as a value.
pub type Golden = (Procedure, Vec<u8>, Results<'static>);

/// Status 0 and the parts.
fn ok(parts: &[&str]) -> Vec<u8> {
    hex(&["00000000", &parts.concat()].concat())
}

/// All successes.
pub fn successes() -> Vec<Golden> {
    let post = Some(ATTRIBUTES);
    let created = CreateOk { obj: Some(handle()), obj_attributes: post, dir_wcc: WCC };
    let make = ok(&[POST_HANDLE, POST, PRE, POST]);
    let listed = ReaddirOk { dir_attributes: post, cookieverf: VERF };
    let lookup = LookupOk { object: handle(), obj_attributes: post, dir_attributes: None };
    let access = AccessOk { obj_attributes: post, access: Access::READ.with(Access::EXECUTE) };
    let readlink = ReadlinkOk { symlink_attributes: post, data: b"../zz" };
    let read = ReadOk { file_attributes: post, count: 6, eof: true };
    let write = WriteOk { file_wcc: WCC, count: 6, committed: StableHow::DataSync, verf: VERF };
    let renamed = RenameWcc { fromdir_wcc: WCC, todir_wcc: WccData::default() };
    let linked = LinkAttributes { file_attributes: post, linkdir_wcc: WCC };
    let commit = CommitOk { file_wcc: WCC, verf: VERF };
    let mut goldens = vec![
        (Procedure::Null, vec![], Results::Null),
        (Procedure::Getattr, ok(&[FATTR]), Results::Getattr(Ok(ATTRIBUTES))),
        (Procedure::Setattr, ok(&[PRE, POST]), Results::Setattr(Ok(WCC))),
        (
            Procedure::Lookup,
            ok(&["00000005 0102030405 000000", POST, NO_POST]),
            Results::Lookup(Ok(lookup)),
        ),
        (Procedure::Access, ok(&[POST, "00000021"]), Results::Access(Ok(access))),
        (
            Procedure::Readlink,
            ok(&[POST, "00000005 2e2e2f7a7a 000000"]),
            Results::Readlink(Ok(readlink)),
        ),
        (Procedure::Read, ok(&[POST, "00000006 00000001 00000006"]), Results::Read(Ok(read))),
        (
            Procedure::Write,
            ok(&[PRE, POST, "00000006 00000001", VERIFIER]),
            Results::Write(Ok(write)),
        ),
        (Procedure::Create, make.clone(), Results::Create(Ok(created))),
        (Procedure::Mkdir, make.clone(), Results::Mkdir(Ok(created))),
        (Procedure::Symlink, make.clone(), Results::Symlink(Ok(created))),
        (Procedure::Mknod, make, Results::Mknod(Ok(created))),
        (Procedure::Remove, ok(&[PRE, POST]), Results::Remove(Ok(WCC))),
        (Procedure::Rmdir, ok(&[NO_WCC]), Results::Rmdir(Ok(WccData::default()))),
        (Procedure::Rename, ok(&[PRE, POST, NO_WCC]), Results::Rename(Ok(renamed))),
        (Procedure::Link, ok(&[POST, PRE, POST]), Results::Link(Ok(linked))),
        (Procedure::Readdir, ok(&[POST, VERIFIER]), Results::Readdir(Ok(listed))),
        (Procedure::Readdirplus, ok(&[POST, VERIFIER]), Results::Readdirplus(Ok(listed))),
        (Procedure::Commit, ok(&[PRE, POST, VERIFIER]), Results::Commit(Ok(commit))),
    ];
    goldens.extend(about_file_systems());
    goldens
}

fn about_file_systems() -> [Golden; 3] {
    let fsstat = FsstatOk {
        obj_attributes: None,
        tbytes: 1 << 40,
        fbytes: 1 << 39,
        abytes: 1 << 38,
        tfiles: 1000,
        ffiles: 900,
        afiles: 800,
        invarsec: 0,
    };
    let fsinfo = FsinfoOk {
        obj_attributes: Some(ATTRIBUTES),
        rtmax: 1 << 20,
        rtpref: 1 << 19,
        rtmult: 4096,
        wtmax: 1 << 18,
        wtpref: 1 << 17,
        wtmult: 512,
        dtpref: 1 << 16,
        maxfilesize: 1 << 44,
        time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
        properties: FsProperties::LINK
            .with(FsProperties::SYMLINK)
            .with(FsProperties::HOMOGENEOUS)
            .with(FsProperties::CANSETTIME),
    };
    let pathconf = PathconfOk {
        obj_attributes: None,
        linkmax: 65_000,
        name_max: 255,
        no_trunc: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    };
    let fsstat_bytes = "0000010000000000 0000008000000000 0000004000000000
        00000000000003e8 0000000000000384 0000000000000320 00000000";
    let fsinfo_bytes = "00100000 00080000 00001000 00040000 00020000 00000200 00010000
        0000100000000000 00000000 00000001 0000001b";
    let pathconf_bytes = "0000fde8 000000ff 00000001 00000001 00000000 00000001";
    [
        (Procedure::Fsstat, ok(&[NO_POST, fsstat_bytes]), Results::Fsstat(Ok(fsstat))),
        (Procedure::Fsinfo, ok(&[POST, fsinfo_bytes]), Results::Fsinfo(Ok(fsinfo))),
        (Procedure::Pathconf, ok(&[NO_POST, pathconf_bytes]), Results::Pathconf(Ok(pathconf))),
    ]
}

/// A failure of each procedure, with the attributes that it can carry.
pub fn failures() -> Vec<Golden> {
    fn fail<T, A>(status: Nfsstat3, attributes: A) -> Result<T, Fail<A>> {
        Err(Fail { status, attributes })
    }
    let status = Nfsstat3::Stale;
    let none = hex("00000046");
    let post = hex(&["00000046", POST].concat());
    let wcc = hex(&["00000046", PRE, POST].concat());
    let attributes = Some(ATTRIBUTES);
    let both = RenameWcc { fromdir_wcc: WccData::default(), todir_wcc: WCC };
    let link = LinkAttributes { file_attributes: attributes, linkdir_wcc: WCC };
    let renamed = hex(&["00000046", NO_WCC, PRE, POST].concat());
    let linked = hex(&["00000046", POST, PRE, POST].concat());
    vec![
        (Procedure::Getattr, none, Results::Getattr(fail(status, ()))),
        (Procedure::Setattr, wcc.clone(), Results::Setattr(fail(status, WCC))),
        (Procedure::Lookup, post.clone(), Results::Lookup(fail(status, attributes))),
        (Procedure::Access, post.clone(), Results::Access(fail(status, attributes))),
        (Procedure::Readlink, post.clone(), Results::Readlink(fail(status, attributes))),
        (Procedure::Read, post.clone(), Results::Read(fail(status, attributes))),
        (Procedure::Write, wcc.clone(), Results::Write(fail(status, WCC))),
        (Procedure::Create, wcc.clone(), Results::Create(fail(status, WCC))),
        (Procedure::Mkdir, wcc.clone(), Results::Mkdir(fail(status, WCC))),
        (Procedure::Symlink, wcc.clone(), Results::Symlink(fail(status, WCC))),
        (Procedure::Mknod, wcc.clone(), Results::Mknod(fail(status, WCC))),
        (Procedure::Remove, wcc.clone(), Results::Remove(fail(status, WCC))),
        (Procedure::Rmdir, wcc.clone(), Results::Rmdir(fail(status, WCC))),
        (Procedure::Rename, renamed, Results::Rename(fail(status, both))),
        (Procedure::Link, linked, Results::Link(fail(status, link))),
        (Procedure::Readdir, post.clone(), Results::Readdir(fail(status, attributes))),
        (Procedure::Readdirplus, post.clone(), Results::Readdirplus(fail(status, attributes))),
        (Procedure::Fsstat, post.clone(), Results::Fsstat(fail(status, attributes))),
        (Procedure::Fsinfo, post.clone(), Results::Fsinfo(fail(status, attributes))),
        (Procedure::Pathconf, post, Results::Pathconf(fail(status, attributes))),
        (Procedure::Commit, wcc, Results::Commit(fail(status, WCC))),
    ]
}

fn encoded(results: &Results<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::results(results, &mut bytes);
    bytes
}

#[test]
fn each_procedure_has_its_known_results() {
    let all = [successes(), failures()].concat();
    for (procedure, bytes, results) in &all {
        assert_eq!(encoded(results), *bytes, "{results:?}");
        let mut from = Reader::new(bytes);
        assert_eq!(replies::results(*procedure, &mut from), Ok(*results));
        assert_eq!(from.rest(), []);
    }
    for procedure in Procedure::ALL {
        let count = all.iter().filter(|(of, _, _)| of == procedure).count();
        assert_eq!(count, if *procedure == Procedure::Null { 1 } else { 2 }, "{procedure:?}");
    }
}

#[test]
fn a_failure_without_attributes_says_that_there_are_none() {
    for procedure in Procedure::ALL {
        let flags = match procedure {
            Procedure::Null => {
                assert_eq!(Results::failed(*procedure, Nfsstat3::Io), Results::Null);
                continue;
            }
            Procedure::Getattr => 0,
            Procedure::Lookup
            | Procedure::Access
            | Procedure::Readlink
            | Procedure::Read
            | Procedure::Readdir
            | Procedure::Readdirplus
            | Procedure::Fsstat
            | Procedure::Fsinfo
            | Procedure::Pathconf => 1,
            Procedure::Link => 3,
            Procedure::Rename => 4,
            _ => 2,
        };
        let mut expected = hex("00002711");
        expected.resize(4 + 4 * flags, 0);
        let failed = Results::failed(*procedure, Nfsstat3::BadHandle);
        assert_eq!(encoded(&failed), expected, "{procedure:?}");
        assert_eq!(replies::results(*procedure, &mut Reader::new(&expected)), Ok(failed));
    }
}

#[test]
fn data_of_a_read_goes_behind_its_results() {
    let read = ReadOk { file_attributes: None, count: 5, eof: false };
    let mut bytes = encoded(&Results::Read(Ok(read)));
    bytes.extend_from_slice(b"hello");
    bytes.extend_from_slice(wire::xdr::padding(5));
    assert_eq!(bytes, hex("00000000 00000000 00000005 00000000 00000005 68656c6c6f 000000"));
}

#[test]
fn attributes_before_an_operation_are_some_of_those_after_it() {
    let before = WccAttr::from(&ATTRIBUTES);
    assert_eq!(before.size, ATTRIBUTES.size);
    assert_eq!((before.mtime, before.ctime), (ATTRIBUTES.mtime, ATTRIBUTES.ctime));
}

#[test]
fn statuses_have_the_numbers_and_names_of_the_rfc() {
    let known = [
        (1, "NFS3ERR_PERM"),
        (2, "NFS3ERR_NOENT"),
        (5, "NFS3ERR_IO"),
        (6, "NFS3ERR_NXIO"),
        (13, "NFS3ERR_ACCES"),
        (17, "NFS3ERR_EXIST"),
        (18, "NFS3ERR_XDEV"),
        (19, "NFS3ERR_NODEV"),
        (20, "NFS3ERR_NOTDIR"),
        (21, "NFS3ERR_ISDIR"),
        (22, "NFS3ERR_INVAL"),
        (27, "NFS3ERR_FBIG"),
        (28, "NFS3ERR_NOSPC"),
        (30, "NFS3ERR_ROFS"),
        (31, "NFS3ERR_MLINK"),
        (63, "NFS3ERR_NAMETOOLONG"),
        (66, "NFS3ERR_NOTEMPTY"),
        (69, "NFS3ERR_DQUOT"),
        (70, "NFS3ERR_STALE"),
        (71, "NFS3ERR_REMOTE"),
        (10001, "NFS3ERR_BADHANDLE"),
        (10002, "NFS3ERR_NOT_SYNC"),
        (10003, "NFS3ERR_BAD_COOKIE"),
        (10004, "NFS3ERR_NOTSUPP"),
        (10005, "NFS3ERR_TOOSMALL"),
        (10006, "NFS3ERR_SERVERFAULT"),
        (10007, "NFS3ERR_BADTYPE"),
        (10008, "NFS3ERR_JUKEBOX"),
    ];
    let ours: Vec<_> =
        Nfsstat3::ALL.iter().map(|status| (status.number(), status.name())).collect();
    assert_eq!(ours, known);
    assert!(Nfsstat3::ALL.iter().all(|s| Nfsstat3::from_number(s.number()) == Some(*s)));
    assert_eq!(Nfsstat3::from_number(0), None);
}
