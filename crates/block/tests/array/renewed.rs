//! Members with a layer of their own, which is made anew with another device in their place, or
//! with the same one.

use std::sync::Arc;

use format::integrity::GROUPS_OFFSET;
use hindsight_block::{Array, BlockDevice, Candidate, Guard, Standing};
use sim::{Failure, Op, SimMedia};

use crate::{AREA_BYTES, DATA_BYTES, MIB, Rig, bring_up, candidate, lose, read, standings, write};

/// Writes here and there, and says what is there.
pub fn fill(array: &Array) -> Vec<u8> {
    let len = array.len_bytes() as usize;
    let mut expected = vec![0; len];
    for n in 0..(len as u64 / MIB).div_ceil(2) {
        write(array, n * 2 * MIB + 777, &[n as u8 + 1; 300_000]);
        expected[(n * 2 * MIB) as usize + 777..][..300_000].fill(n as u8 + 1);
    }
    array.flush().expect("a flush");
    expected
}

/// What was written is there, as far as something was.
pub fn check(array: &Array, expected: &[u8], what: &str) {
    for (at, bytes) in (0..).step_by(2 << 20).zip(expected.chunks(2 << 20)) {
        if bytes.len() > 300_777 {
            assert!(read(array, at + 777, 300_000) == bytes[777..300_777], "{what}, at {at}");
        }
    }
}

pub fn itself(path: &str) -> Candidate {
    Candidate { path: path.to_owned(), device: None }
}

/// A member that lost checksums is put out by the first write that needs them, and again whenever
/// it comes back: only what is made anew can be brought up to date.
#[test]
fn a_member_that_lost_its_checksums_takes_its_own_place() {
    for (stack, gone) in [
        ("mirror(integrity(a), integrity(b))", 1),
        ("mirror(stripe(integrity(a), integrity(b)), stripe(c, d))", 2),
        ("parity[journal=64KiB](integrity(a), integrity(b), integrity(c))", 2),
    ] {
        let rig = Rig::new(stack, 31);
        let array = rig.open();
        let expected = fill(&array);
        array.replace(0, itself("a"), 70).expect_err("it is in use");
        array.close().expect("closed");
        drop(array);
        // The first page of checksums: all of its sectors.
        let page = AREA_BYTES + GROUPS_OFFSET;
        (0..8).for_each(|sector| rig.media[0].rot(page + sector * 512 + 100, 3));
        let array = rig.open();
        write(&array, 777, &[1; 100]);
        write(&array, 64 << 10, &[1; 100]);
        assert_eq!(standings(&array)[0], Standing::Out, "{stack}: it cannot note the write");
        // Who is under the same stripe is out with it.
        for (member, path) in [(0, "a"), (1, "b")] {
            if standings(&array)[member] == Standing::Out {
                array.replace(member, itself(path), 71 + member as u128).expect("made anew");
                assert_eq!(standings(&array)[member], Standing::Stale, "{stack}");
            }
        }
        bring_up(&array);
        assert!(standings(&array).iter().all(|s| *s == Standing::In), "{stack}");
        check(&array, &expected, stack);
        array.close().expect("closed");
        drop(array);
        let array = rig.open_without(gone);
        check(&array, &expected, stack);
    }
}

#[test]
fn another_device_takes_the_place_of_one_under_integrity_and_gets_everything() {
    for (stack, gone) in [
        ("mirror(integrity(a), integrity(b))", 0),
        ("parity[journal=64KiB](integrity(a), integrity(b), c)", 2),
    ] {
        let mut rig = Rig::new(stack, 32);
        let array = rig.open();
        let expected = fill(&array);
        let fresh = Arc::new(SimMedia::filled(AREA_BYTES + DATA_BYTES, 77, 0));
        lose(&array, &rig.media[1], 1);
        array.replace(1, candidate("new", &fresh), 71).expect("replaced");
        write(&array, 777, &[1; 300_000]);
        bring_up(&array);
        array.close().expect("closed");
        drop(array);
        rig.media[1] = fresh;
        check(&rig.open_without(gone), &expected, stack);
    }
}

#[test]
fn a_spare_takes_a_place_under_integrity_and_the_next_one_if_it_fails() {
    let mut rig = Rig::new("mirror(integrity(a), integrity(b))", 33);
    let array = rig.open();
    let expected = fill(&array);
    let [bad, good] = [1, 2].map(|seed| Arc::new(SimMedia::new(AREA_BYTES + DATA_BYTES, seed)));
    array.add_spare(candidate("bad", &bad), 71).expect("a spare");
    array.add_spare(candidate("good", &good), 72).expect("a spare");
    rig.media[1].fail(Failure::for_ever(Op::Write));
    write(&array, 777, &[1; 300_000]);
    assert_eq!(standings(&array)[1], Standing::Out);
    bad.fail(Failure::for_ever(Op::Write));
    array.use_spare().expect_err("it fails at once");
    assert!(array.use_spare().expect("the next one"));
    bring_up(&array);
    array.close().expect("closed");
    drop(array);
    rig.media[1] = good;
    check(&rig.open_without(0), &expected, "the spare alone");
}

/// Where a block is on a member that lies under integrity.
fn place(number: u64) -> u64 {
    AREA_BYTES + GROUPS_OFFSET + (number / 960 * 961 + 1 + number % 960) * 4096
}

/// Until its group is clean a block may have been in flight.
fn close_clean(array: &Array) {
    (0..4).for_each(|_| array.flush().expect("a flush"));
    array.close().expect("closed");
}

/// What layers guard since a member was away it calls its owner's; unless it is told again, it
/// keeps no checksums of it.
#[test]
fn a_member_that_was_away_keeps_checksums_of_what_layers_guard_meanwhile() {
    let rig = Rig::new("mirror(integrity(a), integrity(b))", 34);
    let (start, length) = (MIB, 3 * MIB);
    let array = rig.open();
    array.guard(start, length, Guard::Owner).expect("a guard");
    write(&array, start, &vec![1; length as usize]);
    array.close().expect("closed");
    drop(array);
    let array = rig.open_without(1);
    array.guard(start, length, Guard::Layers).expect("a guard");
    // Half of it is what it was.
    write(&array, start, &vec![1; length as usize / 2]);
    write(&array, start + length / 2, &vec![2; length as usize / 2]);
    array.close().expect("closed");
    drop(array);
    let array = rig.open();
    array.guard(start, length, Guard::Again).expect("a guard");
    let mut expected = vec![1; length as usize / 2];
    expected.resize(length as usize, 2);
    assert!(read(&array, start, length as usize) == expected, "what is there stays");
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::In; 2]);
    close_clean(&array);
    drop(array);
    // A sector of checksums at each end may be its neighbours' as well.
    for number in [start / 4096 + 120, (start + length / 2) / 4096, (start + length) / 4096 - 121] {
        rig.media[1].rot(place(number) + 7, 2);
        let array = rig.open();
        let at = number * 4096;
        array.read_copy(1, at, &mut [0; 4096]).expect_err("it has a checksum");
        assert!(read(&array, at, 4096) == expected[(at - start) as usize..][..4096]);
        close_clean(&array);
    }
}
