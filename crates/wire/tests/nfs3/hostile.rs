//! Bytes that are cut, damaged or random are decoded or refused, never a panic, and nothing is
//! allocated for lengths that are not there.

use hindsight_wire as wire;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use proptest::{collection, sample};
use wire::nfs3::limits::TRANSFER_BYTES_MAX;
use wire::nfs3::{
    Call, CreateHow, FileHandle, Name, Nfsstat3, Nfstime3, Procedure, StableHow, decode,
};
use wire::rpc::ArgumentsError;
use wire::xdr::{Reader, TEXT_BYTES_MAX, XdrError};
use wire::{mount, rpc};

use crate::{caller, golden_calls, hex, mounting, replies, rpc_messages};

#[test]
fn every_prefix_of_the_arguments_is_garbage() {
    for (procedure, bytes, call) in golden_calls::calls() {
        for end in 0..bytes.len() {
            let refused = decode::call(procedure, &bytes[..end]);
            let garbage = Err(ArgumentsError::Garbage(XdrError::CutShort));
            assert_eq!(refused, garbage, "{end} bytes of {call:?}");
        }
    }
    for (procedure, bytes, call) in mounting::calls() {
        for end in 0..bytes.len() {
            let refused = mount::decode::call(procedure, &bytes[..end]);
            let garbage = Err(ArgumentsError::Garbage(XdrError::CutShort));
            assert_eq!(refused, garbage, "{end} bytes of {call:?}");
        }
    }
}

#[test]
fn every_word_may_be_huge() {
    for (procedure, bytes, call) in golden_calls::calls() {
        for at in (0..bytes.len()).step_by(4) {
            for huge in [u32::MAX, u32::MAX - 3, 1 << 31, (1 << 31) - 1] {
                let mut damaged = bytes.clone();
                damaged[at..at + 4].copy_from_slice(&huge.to_be_bytes());
                if let Ok(other) = decode::call(procedure, &damaged) {
                    assert_eq!(other == call, damaged == bytes, "word {at} of {call:?}");
                }
            }
        }
    }
    for (bytes, _) in rpc_messages::calls() {
        for at in (0..bytes.len()).step_by(4) {
            let mut bytes = bytes.clone();
            bytes[at..at + 4].fill(0xff);
            let _ = rpc::decode::call(&bytes);
        }
    }
}

/// A handle of four bytes and the name "a".
const PLACE: &str = "00000004 aabbccdd 00000001 61 000000";

#[test]
fn calls_own_no_memory_that_a_length_could_ask_for() {
    fn is_copy<T: Copy>() {}
    is_copy::<Call<'_>>();
    is_copy::<mount::Call<'_>>();
    is_copy::<rpc::Call<'_>>();
}

#[test]
fn values_that_are_not_defined_are_garbage() {
    let garbage = |procedure, parts: &[&str]| match decode::call(procedure, &hex(&parts.concat())) {
        Err(ArgumentsError::Garbage(XdrError::Value { what, value })) => (what, value),
        other => panic!("{other:?}"),
    };
    let sattr = "00000000 00000000 00000000 00000000";
    assert_eq!(garbage(8, &[PLACE, "00000003"]), ("createmode3", 3));
    assert_eq!(garbage(9, &[PLACE, sattr, "00000003"]), ("time_how", 3));
    assert_eq!(garbage(9, &[PLACE, sattr, "00000000 00000004"]), ("time_how", 4));
    assert_eq!(garbage(9, &[PLACE, "00000002"]), ("bool", 2));
    let write = "00000004 aabbccdd 0000000000000000 00000001";
    assert_eq!(garbage(7, &[write, "00000003 00000001 61000000"]), ("stable_how", 3));
}

#[test]
fn a_write_has_as_much_data_as_it_says() {
    let write = "00000004 aabbccdd 0000000000000000 00000002 00000000 00000001 61000000";
    let bytes = hex(write);
    let refused = decode::call(7, &bytes);
    assert!(matches!(refused, Err(ArgumentsError::Garbage(XdrError::Contradiction(_)))));
}

#[test]
fn limits_hold_exactly() {
    let file = FileHandle::new(&[7; 64]).unwrap();
    assert_eq!((file.as_bytes(), FileHandle::new(&[7; 65])), (&[7; 64][..], None));
    let long = [&hex("00000041")[..], &[7; 68]].concat();
    let refused = decode::call(1, &long);
    let too_long = XdrError::TooLong { length: 65, length_max: 64 };
    assert_eq!(refused, Err(ArgumentsError::Garbage(too_long)));
    let data = vec![5; TRANSFER_BYTES_MAX + 1];
    for (length, fits) in [(TRANSFER_BYTES_MAX, true), (TRANSFER_BYTES_MAX + 1, false)] {
        let data = &data[..length];
        let write = Call::Write { file, offset: 0, stable: StableHow::Unstable, data };
        let (procedure, bytes) = caller::nfs_call(&write);
        assert_eq!(decode::call(procedure.number(), &bytes).is_ok(), fits);
        let Ok(Call::Write { data: decoded, .. }) = decode::call(procedure.number(), &bytes) else {
            continue;
        };
        assert!(bytes.as_ptr_range().contains(&decoded.as_ptr()), "data is not copied");
    }
}

#[test]
fn a_name_that_is_too_long_can_be_refused_by_name() {
    let dir = FileHandle::new(&[7]).unwrap();
    for (length, fits) in [(255, true), (256, false), (TEXT_BYTES_MAX, false)] {
        let name = vec![b'n'; length];
        let what = wire::nfs3::DirOpArgs { dir, name: Name::new(&name) };
        let (procedure, bytes) = caller::nfs_call(&Call::Lookup { what });
        let Ok(Call::Lookup { what }) = decode::call(procedure.number(), &bytes) else {
            panic!("a name")
        };
        let checked = what.name.within_limit().ok_or(Nfsstat3::NameTooLong);
        assert_eq!(checked, if fits { Ok(&name[..]) } else { Err(Nfsstat3::NameTooLong) });
    }
}

#[test]
fn nanoseconds_of_a_second_or_more_are_told() {
    let time = |nseconds| Nfstime3 { seconds: 1, nseconds };
    assert!(time(999_999_999).is_valid() && !time(1_000_000_000).is_valid());
}

/// Bytes that a decoder cannot have made up: the value encodes to what it was read from, but for
/// padding, which is written as zeros.
fn check_nfs(procedure: u32, bytes: &[u8]) {
    let Ok(call) = decode::call(procedure, bytes) else { return };
    let (number, encoded) = caller::nfs_call(&call);
    assert!(number.number() == procedure && encoded.len() <= bytes.len());
    assert_eq!(decode::call(procedure, &encoded), Ok(call));
    if let Call::Create { how: CreateHow::Exclusive(verifier), .. } = call {
        assert!(bytes.windows(8).any(|window| window == verifier));
    }
}

proptest! {
    #[test]
    fn random_replies_are_read_or_refused(
        procedure in sample::select(Procedure::ALL.to_vec()),
        mut bytes in collection::vec(any::<u8>(), 0..400),
        is_success in any::<bool>(),
    ) {
        if is_success {
            let end = bytes.len().min(4);
            bytes[..end].fill(0);
        }
        let mut from = Reader::new(&bytes);
        let _ = replies::results(procedure, &mut from);
        let _ = replies::dir_list(&bytes, true);
        let _ = replies::dir_list(&bytes, false);
        let _ = replies::mnt(&mut Reader::new(&bytes));
        let _ = replies::rpc_reply(&mut Reader::new(&bytes));
    }
}

proptest! {
    #[test]
    fn damaged_arguments_are_decoded_or_refused(
        which in any::<sample::Index>(),
        damages in collection::vec((any::<sample::Index>(), any::<u8>()), 1..6),
        procedure in 0..23_u32,
    ) {
        let calls = golden_calls::calls();
        let (own, bytes, _) = &calls[which.index(calls.len())];
        // NULL has no arguments.
        let mut bytes = [bytes.as_slice(), &[0]].concat();
        for (at, byte) in &damages {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        check_nfs(*own, &bytes);
        check_nfs(procedure, &bytes);
    }

    #[test]
    fn random_bytes_are_decoded_or_refused(
        procedure in 0..24_u32,
        words in collection::vec(0..9_u32, 0..40),
        bytes in collection::vec(any::<u8>(), 0..200),
    ) {
        check_nfs(procedure, &bytes);
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        check_nfs(procedure, &words);
        for bytes in [&bytes, &words] {
            if let Ok(call) = mount::decode::call(procedure, bytes) {
                let (number, encoded) = caller::mount_call(&call);
                prop_assert!(number == procedure && encoded.len() <= bytes.len());
            }
            if let Ok(call) = rpc::decode::call(bytes) {
                prop_assert!(bytes.ends_with(call.arguments));
            }
        }
    }

    #[test]
    fn a_damaged_header_is_a_call_or_refused(
        which in 0..3_usize,
        damages in collection::vec((any::<sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (mut bytes, _) = rpc_messages::calls()[which].clone();
        for (at, byte) in &damages {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        let Ok(call) = rpc::decode::call(&bytes) else { return Ok(()) };
        let again = caller::rpc_call(&call);
        prop_assert_eq!(rpc::decode::call(&again), Ok(call));
    }
}
