//! Ways of reading everything, of which one is right though members are wrong all over.

use std::sync::Arc;

use hindsight_block::{BlockDevice, Outcome};
use sim::{Op, Random, SimMedia};

use crate::rig::{AREA_BYTES, JOURNAL_BYTES, MIB, Rig, noise, read, write};

const THREE: &str = "parity[chunk=4KiB,journal=64KiB](a, b, c)";
const FOUR: &str = "parity[failures=2,chunk=4KiB,journal=64KiB](a, b, c, d)";
const LEN: usize = 256 << 10;

/// Spoils what a member has, but for a journal.
fn spoil(rig: &Rig, member: usize) {
    let start = AREA_BYTES + if rig.stack.has_parity() { JOURNAL_BYTES } else { 0 };
    (start..start + LEN as u64).step_by(4096).for_each(|at| rig.media[member].rot(at + 77, 2));
}

/// A stack with something in it, and members of it that rot.
fn spoiled(stack: &str, members: &[usize]) -> (Rig, Vec<u8>) {
    let rig = Rig::new(stack, JOURNAL_BYTES + 2 * MIB, 12);
    let array = rig.open();
    let expected = noise(&mut Random::new(12), LEN as u64);
    write(&array, 0, &expected);
    array.close().expect("closed");
    drop(array);
    members.iter().for_each(|&member| spoil(&rig, member));
    (rig, expected)
}

/// The ways in which everything is right.
fn right_ways(device: &dyn BlockDevice, expected: &[u8]) -> Vec<usize> {
    let is_right = |way: &usize| {
        let mut bytes = vec![0; expected.len()];
        device.read_way(*way, 0, &mut bytes).is_ok() && bytes == expected
    };
    (0..device.ways()).filter(is_right).collect()
}

#[test]
fn whichever_members_rot_there_is_a_way_in_which_all_is_right() {
    let stripe = "stripe[chunk=4KiB](parity[chunk=4KiB,journal=64KiB](a, b, c), \
                  parity[chunk=4KiB,journal=64KiB](d, e, f))";
    let mirrors = "stripe[chunk=4KiB](mirror(a, b), mirror(c, d))";
    let cases: [(&str, &[usize], usize); 9] = [
        (THREE, &[], 4),
        (THREE, &[0], 4),
        (THREE, &[1], 4),
        (THREE, &[2], 4),
        (FOUR, &[1], 11),
        (FOUR, &[0, 2], 11),
        (FOUR, &[2, 3], 11),
        (stripe, &[1, 3], 16),
        (mirrors, &[0, 3], 4),
    ];
    for (stack, members, ways) in cases {
        let (rig, expected) = spoiled(stack, members);
        let array = rig.open();
        assert_eq!(array.ways(), ways, "{stack}");
        let right = right_ways(&array, &expected);
        assert!(!right.is_empty(), "{stack} without {members:?}");
        assert_eq!(right.contains(&0), members.is_empty(), "{stack}: {right:?}");
    }
    let (rig, expected) = spoiled(THREE, &[0, 1]);
    assert!(right_ways(&rig.open(), &expected).is_empty(), "one too many");
}

#[test]
fn one_that_is_out_is_left_out_of_every_way() {
    let (rig, expected) = spoiled(FOUR, &[2]);
    let array = rig.open_without(&[0]);
    assert_eq!(array.ways(), 4, "one more of three");
    assert_eq!(right_ways(&array, &expected).len(), 1);
    array.close().expect("closed");
    drop(array);
    let array = rig.open_without(&[0, 1]);
    assert_eq!((array.ways(), right_ways(&array, &expected).len()), (1, 0));
}

#[test]
fn two_wrong_cells_of_a_row_are_healed_by_two_parities() {
    for (first, second) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        let (rig, expected) = spoiled(FOUR, &[first, second]);
        let array = rig.open();
        for (i, cell) in expected.chunks_exact(4096).enumerate() {
            let mut bytes = read(&array, i as u64 * 4096, 4096);
            if bytes == cell {
                continue;
            }
            let outcome = array.heal(i as u64 * 4096, &mut bytes, &|bytes| bytes == cell);
            assert_eq!(outcome.expect("readable"), Outcome::Recovered, "cell {i}");
            assert_eq!(bytes, cell);
        }
        assert!(read(&array, 0, LEN) == expected, "{first} and {second}: written again");
    }
}

#[test]
fn three_wrong_cells_of_a_row_are_healed_by_three_parities() {
    let stack = "parity[failures=3,chunk=4KiB,journal=64KiB](a, b, c, d, e, f, g, h)";
    for rotten in [[1, 2, 3], [0, 4, 7], [5, 6, 7], [0, 1, 2]] {
        let (rig, expected) = spoiled(stack, &rotten);
        let array = rig.open();
        for (i, cell) in expected.chunks_exact(4096).enumerate() {
            let mut bytes = read(&array, i as u64 * 4096, 4096);
            if bytes == cell {
                continue;
            }
            let outcome = array.heal(i as u64 * 4096, &mut bytes, &|bytes| bytes == cell);
            assert_eq!(outcome.expect("readable"), Outcome::Recovered, "cell {i} {rotten:?}");
            assert!(bytes == cell);
        }
        assert!(read(&array, 0, LEN) == expected, "{rotten:?}: written again");
    }
}

#[test]
fn what_is_lost_is_read_a_few_times_of_each_side_however_many_ways_there_are() {
    let stack = "parity[failures=3,chunk=4KiB,journal=64KiB](a, b, c, d, e, f, g, h)";
    let (rig, _) = spoiled(stack, &[0, 2, 4, 6]);
    let array = rig.open();
    rig.media.iter().for_each(|media| media.start_log());
    let outcome = array.heal(0, &mut [0; 4096], &|_| false).expect("readable");
    assert_eq!(outcome, Outcome::Unrecoverable);
    let reads = |media: &Arc<SimMedia>| {
        media.take_log().iter().filter(|record| record.op == Op::Read).count()
    };
    let most = rig.media.iter().map(reads).max();
    assert!(most.is_some_and(|most| most <= 5), "{most:?}, of {} ways", array.ways());
}

#[test]
fn a_range_with_one_checksum_is_healed_where_no_copy_of_its_parts_is_right() {
    let stripe =
        format!("stripe[chunk=4KiB]({FOUR}, {})", FOUR.replace("a, b, c, d", "e, f, g, h"));
    // Both sides with data of the first stripe; of the second as well, which are others.
    let (first, second) = ([1, 2], [0, 1]);
    for (stack, len, rotten) in [
        (FOUR.to_owned(), 8192, vec![(first, 0)]),
        (FOUR.to_owned(), 16_384, vec![(first, 0), (second, 1)]),
        (stripe, 16_384, vec![(first, 0), ([5, 6], 0)]),
    ] {
        let rig = Rig::new(&stack, JOURNAL_BYTES + 2 * MIB, 12);
        let array = rig.open();
        let expected = noise(&mut Random::new(12), len);
        write(&array, 0, &expected);
        array.close().expect("closed");
        for (members, stripe) in rotten {
            let at = AREA_BYTES + JOURNAL_BYTES + stripe * 4096;
            members.iter().for_each(|&member| rig.media[member].rot(at + 77, 2));
        }
        let mut bytes = vec![0; len as usize];
        let is_right = |bytes: &[u8]| bytes == expected;
        let outcome = array.heal(0, &mut bytes, &is_right).expect("readable");
        assert!(outcome == Outcome::Recovered && bytes == expected, "{stack}: {outcome:?}");
        assert!(read(&array, 0, bytes.len()) == expected, "{stack}: written again");
    }
}
