//! Calls and replies of RPC, written by hand from RFC 5531, section 9 and appendix A.

use hindsight_wire as wire;
use wire::rpc::decode::{self, CallError};
use wire::rpc::{
    Accepted, ArgumentsError, AuthStat, AuthSys, Call, Credentials, Denied, Flavor, Gids, Reply,
    encode,
};
use wire::xdr::{Reader, XdrError};

use crate::{caller, hex, replies};

/// xid, CALL, RPC 2, NFS 3, GETATTR.
const HEAD: &str = "12345678 00000000 00000002 000186a3 00000003 00000001";
const NO_AUTH: &str = "00000000 00000000";
/// AUTH_SYS of 36 bytes: stamp, "host", uid 1000, gid 100, groups 4 and 27.
const SYS: &str = "00000001 00000020 0000abcd 00000004 686f7374 000003e8 00000064
    00000002 00000004 0000001b";

fn gids(gids: &[u32]) -> Gids {
    let mut all = Gids::default();
    assert!(gids.iter().all(|gid| all.push(*gid)));
    all
}

fn sys() -> Credentials<'static> {
    Credentials::Sys(AuthSys {
        stamp: 0xabcd,
        machine_name: b"host",
        uid: 1000,
        gid: 100,
        gids: gids(&[4, 27]),
    })
}

fn call(credentials: Credentials<'static>) -> Call<'static> {
    Call {
        xid: 0x1234_5678,
        program: wire::nfs3::PROGRAM,
        version: wire::nfs3::VERSION,
        procedure: 1,
        credentials,
        arguments: b"args",
    }
}

/// Calls as bytes and as values.
pub fn calls() -> [(Vec<u8>, Call<'static>); 3] {
    let whole = |credentials: &str| hex(&[HEAD, credentials, NO_AUTH, "61726773"].concat());
    [
        (whole(NO_AUTH), call(Credentials::None)),
        (whole(SYS), call(sys())),
        (whole("00000007 00000000"), call(Credentials::Other(Flavor::TLS))),
    ]
}

#[test]
fn calls_have_their_known_bytes() {
    for (bytes, call) in calls() {
        assert_eq!(decode::call(&bytes), Ok(call));
        assert_eq!(caller::rpc_call(&call), bytes);
    }
}

#[test]
fn replies_have_their_known_bytes() {
    let accepted = "00000007 00000001 00000000 00000000 00000000";
    let denied = "00000007 00000001 00000001";
    let known = [
        (accepted, "00000000", Reply::Accepted(Accepted::Success)),
        (accepted, "00000001", Reply::Accepted(Accepted::ProgUnavail)),
        (
            accepted,
            "00000002 00000003 00000004",
            Reply::Accepted(Accepted::ProgMismatch { low: 3, high: 4 }),
        ),
        (accepted, "00000003", Reply::Accepted(Accepted::ProcUnavail)),
        (accepted, "00000004", Reply::Accepted(Accepted::GarbageArgs)),
        (accepted, "00000005", Reply::Accepted(Accepted::SystemErr)),
        (denied, "00000000 00000002 00000002", Reply::Denied(Denied::RpcMismatch)),
        (denied, "00000001 00000001", Reply::Denied(Denied::AuthError(AuthStat::BadCred))),
        (denied, "00000001 00000005", Reply::Denied(Denied::AuthError(AuthStat::TooWeak))),
        (denied, "00000001 0000000d", Reply::Denied(Denied::AuthError(AuthStat::CredProblem))),
    ];
    for (head, rest, reply) in known {
        let mut bytes = Vec::new();
        encode::reply(7, &reply, &mut bytes);
        assert_eq!(bytes, hex(&[head, rest].concat()), "{reply:?}");
        let mut from = Reader::new(&bytes);
        assert_eq!(replies::rpc_reply(&mut from), Ok((7, reply)));
        assert_eq!(from.rest(), []);
    }
}

#[test]
fn every_prefix_of_a_header_is_no_call() {
    for (bytes, call) in calls() {
        let header = bytes.len() - call.arguments.len();
        for end in 0..header {
            let refused = decode::call(&bytes[..end]);
            assert_eq!(refused, Err(CallError::NoCall), "{end} bytes of {call:?}");
        }
        assert_eq!(decode::call(&bytes[..header]), Ok(Call { arguments: b"", ..call }));
    }
}

#[test]
fn a_reply_is_no_call() {
    let (mut bytes, _) = calls()[0].clone();
    bytes[7] = 1;
    assert_eq!(decode::call(&bytes), Err(CallError::NoCall));
}

#[test]
fn another_version_of_rpc_is_denied_by_its_first_words() {
    let denied = CallError::Denied { xid: 0x1234_5678, denied: Denied::RpcMismatch };
    assert_eq!(decode::call(&hex("12345678 00000000 00000003")), Err(denied));
}

#[test]
fn malformed_credentials_and_verifiers_are_denied_by_their_names() {
    let long = format!("00000001 00000194 {}", "00".repeat(404));
    let seventeen = format!(
        "00000001 00000058 00000000 00000000 00000000 00000000 00000011 {}",
        "00000001".repeat(17)
    );
    let name = format!(
        "00000001 00000114 00000000 00000100 {} 00000000 00000000 00000000",
        "61".repeat(256)
    );
    let bad_cred = AuthStat::BadCred;
    let bad_verf = AuthStat::BadVerf;
    let cases = [
        ("00000000 00000004 00000000", NO_AUTH, bad_cred),
        (long.as_str(), NO_AUTH, bad_cred),
        (seventeen.as_str(), NO_AUTH, bad_cred),
        (name.as_str(), NO_AUTH, bad_cred),
        ("00000001 00000000", NO_AUTH, bad_cred),
        // One group is said to be there, and is not.
        ("00000001 00000014 00000000 00000000 00000000 00000000 00000001", NO_AUTH, bad_cred),
        // A word behind the groups.
        (
            "00000001 00000018 00000000 00000000 00000000 00000000 00000000 00000000",
            NO_AUTH,
            bad_cred,
        ),
        (NO_AUTH, "00000001 00000000", bad_verf),
        (SYS, "00000000 00000004 00000000", bad_verf),
        (SYS, long.as_str(), bad_verf),
    ];
    for (credentials, verifier, stat) in cases {
        let bytes = hex(&[HEAD, credentials, verifier].concat());
        let refused = decode::call(&bytes);
        let denied = Denied::AuthError(stat);
        assert_eq!(refused, Err(CallError::Denied { xid: 0x1234_5678, denied }), "{credentials}");
    }
}

#[test]
fn limits_of_auth_sys_hold_exactly() {
    let most = [7; 16];
    let name = [b'n'; 255];
    let sys = AuthSys { stamp: 0, machine_name: &name, uid: 1, gid: 2, gids: gids(&most) };
    let longest = Call { credentials: Credentials::Sys(sys), ..call(Credentials::None) };
    let bytes = caller::rpc_call(&longest);
    assert_eq!(decode::call(&bytes), Ok(longest));
    let mut full = gids(&most);
    assert!(!full.push(8) && full.as_slice() == most);
}

#[test]
fn other_credentials_may_have_any_body_and_verifier() {
    let gss = hex(&[HEAD, "00000006 00000004 01020304 00000006 00000004 05060708"].concat());
    let known = Call { arguments: b"", ..call(Credentials::Other(Flavor::RPCSEC_GSS)) };
    assert_eq!(decode::call(&gss), Ok(known));
}

#[test]
fn arguments_that_cannot_be_used_have_their_answers() {
    let garbage = ArgumentsError::Garbage(XdrError::CutShort);
    assert_eq!(garbage.answer(), Accepted::GarbageArgs);
    assert_eq!(wire::nfs3::decode::call(1, &[]), Err(garbage));
    for number in [22, u32::MAX] {
        let missing = ArgumentsError::Procedure(number);
        assert_eq!(wire::nfs3::decode::call(number, &[]), Err(missing));
        assert_eq!(missing.answer(), Accepted::ProcUnavail);
    }
    let missing = wire::mount::decode::call(6, &[]);
    assert_eq!(missing, Err(ArgumentsError::Procedure(6)));
}
