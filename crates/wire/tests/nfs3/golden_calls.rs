//! The arguments of each procedure of NFS, written by hand from RFC 1813, section 3.3.

use hindsight_wire as wire;
use wire::nfs3::{
    Access, Call, CreateHow, DirOpArgs, FileHandle, MknodData, Name, Nfspath3, Nfstime3, Sattr3,
    SetTime, Specdata3, StableHow, decode,
};

use crate::{caller, hex};

/// A handle of five bytes: length, bytes, padding.
const HANDLE: &str = "00000005 0102030405 000000";
/// Another, of four.
const OTHER: &str = "00000004 aabbccdd";
/// Nothing is set.
const NO_ATTRIBUTES: &str = "00000000 00000000 00000000 00000000 00000000 00000000";
/// Mode 0640, uid 1000, gid 100, size 2^32 + 1, atime of the server, mtime of the client.
const ALL_ATTRIBUTES: &str = "00000001 000001a0  00000001 000003e8  00000001 00000064
    00000001 0000000100000001  00000001  00000002 65000002 3b9ac9ff";
/// The directory `OTHER` and the name "abc".
const PLACE: &str = "00000004 aabbccdd 00000003 616263 00";

pub fn handle() -> FileHandle {
    FileHandle::new(&[1, 2, 3, 4, 5]).expect("a short handle")
}

fn other() -> FileHandle {
    FileHandle::new(&[0xaa, 0xbb, 0xcc, 0xdd]).expect("a short handle")
}

fn place(name: &'static [u8]) -> DirOpArgs<'static> {
    DirOpArgs { dir: other(), name: Name::new(name) }
}

fn all_attributes() -> Sattr3 {
    Sattr3 {
        mode: Some(0o640),
        uid: Some(1000),
        gid: Some(100),
        size: Some((1 << 32) + 1),
        atime: SetTime::ToServerTime,
        mtime: SetTime::ToClientTime(Nfstime3 { seconds: 0x6500_0002, nseconds: 999_999_999 }),
    }
}

/// The parts one after the other.
fn bytes(parts: &[&str]) -> Vec<u8> {
    hex(&parts.concat())
}

/// Number of the procedure, its arguments as bytes, and as a value.
pub fn calls() -> Vec<(u32, Vec<u8>, Call<'static>)> {
    let (object, file, dir, fsroot) = (handle(), handle(), handle(), handle());
    let mut calls = vec![
        (0, vec![], Call::Null),
        (1, hex(HANDLE), Call::Getattr { object }),
        (3, hex(PLACE), Call::Lookup { what: place(b"abc") }),
        (4, bytes(&[HANDLE, "0000001f"]), Call::Access { object, access: Access(0x1f) }),
        (5, hex(HANDLE), Call::Readlink { symlink: object }),
        (
            6,
            bytes(&[HANDLE, "0000000100000000 00010000"]),
            Call::Read { file, offset: 1 << 32, count: 65536 },
        ),
        (
            7,
            bytes(&[HANDLE, "0000000000001000 00000006 00000002 00000006 68656c6c6f21 0000"]),
            Call::Write { file, offset: 4096, stable: StableHow::FileSync, data: b"hello!" },
        ),
        (12, hex(PLACE), Call::Remove { object: place(b"abc") }),
        (13, hex(PLACE), Call::Rmdir { object: place(b"abc") }),
        (
            14,
            bytes(&[PLACE, OTHER, "00000004 64656667"]),
            Call::Rename { from: place(b"abc"), to: place(b"defg") },
        ),
        (15, bytes(&[HANDLE, PLACE]), Call::Link { file, link: place(b"abc") }),
        (
            16,
            bytes(&[HANDLE, "7fffffffffffffff 1112131415161718 00000200"]),
            Call::Readdir {
                dir,
                cookie: u64::MAX >> 1,
                cookieverf: [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18],
                count: 512,
            },
        ),
        (
            17,
            bytes(&[HANDLE, "0000000000000000 0000000000000000 00001000 00008000"]),
            Call::Readdirplus {
                dir,
                cookie: 0,
                cookieverf: [0; 8],
                dircount: 4096,
                maxcount: 32768,
            },
        ),
        (18, hex(HANDLE), Call::Fsstat { fsroot }),
        (19, hex(HANDLE), Call::Fsinfo { fsroot }),
        (20, hex(HANDLE), Call::Pathconf { object }),
        (
            21,
            bytes(&[HANDLE, "0000000000010000 00000000"]),
            Call::Commit { file, offset: 65536, count: 0 },
        ),
    ];
    calls.extend(setting());
    calls.extend(making());
    calls
}

/// SETATTR.
fn setting() -> [(u32, Vec<u8>, Call<'static>); 2] {
    let without =
        Call::Setattr { object: handle(), new_attributes: Sattr3::default(), guard: None };
    let guarded = Call::Setattr {
        object: handle(),
        new_attributes: all_attributes(),
        guard: Some(Nfstime3 { seconds: 7, nseconds: 8 }),
    };
    [
        (2, bytes(&[HANDLE, NO_ATTRIBUTES, "00000000"]), without),
        (2, bytes(&[HANDLE, ALL_ATTRIBUTES, "00000001 00000007 00000008"]), guarded),
    ]
}

/// The procedures that make a file.
fn making() -> Vec<(u32, Vec<u8>, Call<'static>)> {
    let create = |how| Call::Create { place: place(b"abc"), how };
    let mknod = |what| Call::Mknod { place: place(b"abc"), what };
    let device = Specdata3 { specdata1: 8, specdata2: 1 };
    let (none, all) = (Sattr3::default(), all_attributes());
    vec![
        (8, bytes(&[PLACE, "00000000", NO_ATTRIBUTES]), create(CreateHow::Unchecked(none))),
        (8, bytes(&[PLACE, "00000001", ALL_ATTRIBUTES]), create(CreateHow::Guarded(all))),
        (
            8,
            bytes(&[PLACE, "00000002 1112131415161718"]),
            create(CreateHow::Exclusive([0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18])),
        ),
        (9, bytes(&[PLACE, ALL_ATTRIBUTES]), Call::Mkdir { place: place(b"abc"), attributes: all }),
        (
            10,
            bytes(&[PLACE, NO_ATTRIBUTES, "00000005 2e2e2f7a7a 000000"]),
            Call::Symlink { place: place(b"abc"), attributes: none, data: Nfspath3::new(b"../zz") },
        ),
        (
            11,
            bytes(&[PLACE, "00000004", ALL_ATTRIBUTES, "00000008 00000001"]),
            mknod(MknodData::Chr(all, device)),
        ),
        (
            11,
            bytes(&[PLACE, "00000003", NO_ATTRIBUTES, "00000008 00000001"]),
            mknod(MknodData::Blk(none, device)),
        ),
        (11, bytes(&[PLACE, "00000006", NO_ATTRIBUTES]), mknod(MknodData::Sock(none))),
        (11, bytes(&[PLACE, "00000007", ALL_ATTRIBUTES]), mknod(MknodData::Fifo(all))),
        (11, bytes(&[PLACE, "00000001"]), mknod(MknodData::Other(1))),
    ]
}

#[test]
fn each_procedure_has_its_known_arguments() {
    let mut seen = [false; 22];
    for (procedure, bytes, call) in calls() {
        assert_eq!(decode::call(procedure, &bytes), Ok(call));
        let (number, encoded) = caller::nfs_call(&call);
        assert_eq!((number.number(), encoded), (procedure, bytes));
        seen[usize::try_from(procedure).unwrap()] = true;
    }
    assert_eq!(seen, [true; 22]);
}

#[test]
fn bytes_behind_the_arguments_and_in_the_padding_change_nothing() {
    for (procedure, mut bytes, call) in calls() {
        bytes.extend_from_slice(&[0xff; 9]);
        assert_eq!(decode::call(procedure, &bytes), Ok(call));
    }
    let padded = hex("00000005 0102030405 fffefd");
    assert_eq!(decode::call(1, &padded), Ok(Call::Getattr { object: handle() }));
}
