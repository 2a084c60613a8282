//! MOUNT, written by hand from RFC 1813, appendix I.

use hindsight_wire as wire;
use wire::mount::limits::PATH_BYTES_MAX;
use wire::mount::{
    Call, ExportNode, MntOk, MountBody, Mountstat3, Path, Procedure, Results, decode, encode,
};
use wire::rpc::Flavor;
use wire::xdr::Reader;

use crate::golden_calls::handle;
use crate::{caller, hex, replies};

/// Number of the procedure, its arguments as bytes, and as a value.
pub fn calls() -> [(u32, Vec<u8>, Call<'static>); 6] {
    let path = Path::new(b"/home");
    let path_bytes = hex("00000005 2f686f6d65 000000");
    [
        (0, vec![], Call::Null),
        (1, path_bytes.clone(), Call::Mnt(path)),
        (2, vec![], Call::Dump),
        (3, path_bytes, Call::Umnt(path)),
        (4, vec![], Call::Umntall),
        (5, vec![], Call::Export),
    ]
}

fn encoded(results: &Results<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::results(results, &mut bytes);
    bytes
}

#[test]
fn calls_have_their_known_bytes() {
    for (procedure, bytes, call) in calls() {
        assert_eq!(decode::call(procedure, &bytes), Ok(call));
        assert_eq!(caller::mount_call(&call), (procedure, bytes));
    }
    assert_eq!(Procedure::ALL.len(), calls().len());
}

#[test]
fn results_have_their_known_bytes() {
    let ok = MntOk { fhandle: handle(), auth_flavors: &[Flavor::SYS, Flavor::NONE] };
    let bytes = hex("00000000 00000005 0102030405 000000 00000002 00000001 00000000");
    assert_eq!(encoded(&Results::Mnt(Ok(ok))), bytes);
    let mounted = replies::mnt(&mut Reader::new(&bytes));
    assert_eq!(mounted, Ok(Ok((handle(), vec![Flavor::SYS, Flavor::NONE]))));
    for (status, number) in Mountstat3::ALL.iter().zip([1, 2, 5, 13, 20, 22, 63, 10004, 10006]) {
        let bytes = u32::to_be_bytes(number);
        assert_eq!(encoded(&Results::Mnt(Err(*status))), bytes, "{}", status.name());
        assert_eq!(replies::mnt(&mut Reader::new(&bytes)), Ok(Err(*status)));
    }
    assert_eq!(encoded(&Results::Nothing), []);
}

#[test]
fn lists_have_their_known_bytes() {
    let mounts = [
        MountBody { hostname: b"10.0.0.7", directory: b"/home" },
        MountBody { hostname: b"b", directory: b"/" },
    ];
    let dump = encoded(&Results::Dump(&mounts));
    let known = "00000001 00000008 31302e302e302e37 00000005 2f686f6d65 000000
        00000001 00000001 62 000000 00000001 2f 000000 00000000";
    assert_eq!(dump, hex(known));
    let exports = [
        ExportNode { dir: b"/home", groups: &[b"10.0.0.0/8", b"abcd"] },
        ExportNode { dir: b"/all", groups: &[] },
    ];
    let export = encoded(&Results::Export(&exports));
    let known = "00000001 00000005 2f686f6d65 000000
        00000001 0000000a 31302e302e302e302f38 0000 00000001 00000004 61626364 00000000
        00000001 00000004 2f616c6c 00000000 00000000";
    assert_eq!(export, hex(known));
    let read = replies::list(&mut Reader::new(&export), |from| {
        let dir = from.opaque(1024)?;
        Ok((dir, replies::list(from, |from| from.opaque(255))?))
    });
    let expected = vec![(&b"/home"[..], vec![&b"10.0.0.0/8"[..], b"abcd"]), (b"/all", vec![])];
    assert_eq!(read, Ok(expected));
    assert_eq!(encoded(&Results::Dump(&[])), hex("00000000"));
}

#[test]
fn a_path_that_is_too_long_can_be_refused_by_name() {
    for (length, fits) in [(PATH_BYTES_MAX, true), (PATH_BYTES_MAX + 1, false)] {
        let path = vec![b'/'; length];
        let (procedure, bytes) = caller::mount_call(&Call::Mnt(Path::new(&path)));
        let Ok(Call::Mnt(decoded)) = decode::call(procedure, &bytes) else { panic!("a path") };
        assert_eq!(decoded.within_limit().is_some(), fits);
    }
}

#[test]
#[should_panic(expected = "a longer path cannot be mounted")]
fn an_export_that_nobody_could_mount_is_not_told() {
    let long = [b'/'; PATH_BYTES_MAX + 1];
    encoded(&Results::Export(&[ExportNode { dir: &long, groups: &[] }]));
}
