//! Rot and a side that is missing: what is written then changes nothing of what parities say of the
//! rest, and what is computed anew of one that is wrong.

use std::ops::Range;

use hindsight_block::{Array, BlockDevice};

use crate::differences::{FOUR, ROW, THREE, is_there, put, rotten};
use crate::rig::{AREA_BYTES, JOURNAL_BYTES, MIB, Rig, bring_up, noise, read, write};
use sim::Random;

const CELL: usize = 4096;
/// The second row of the first stripe: its first cell of data, and the second.
const FIRST: u64 = 4096;
const SECOND: u64 = 8192 + 4096;
const PLACE: u64 = AREA_BYTES + JOURNAL_BYTES + 4096;
const SEVEN: &str = "parity[failures=3,chunk=8KiB,journal=128KiB](a, b, c, d, e)";

fn cell(expected: &[u8], at: u64) -> &[u8] {
    &expected[at as usize..][..CELL]
}

/// Of a cell that rotted in two sectors one is written, then, without a side, some other.
#[test]
fn what_is_written_without_a_side_is_right_and_so_is_what_was_before() {
    for stack in [THREE, FOUR] {
        for (seed, sector) in [(60, 0), (61, 1), (62, 2)] {
            for away in 0..stack.matches(", ").count() + 1 {
                let (rig, array, mut expected, side) = rotten(stack, seed);
                rig.media[side].rot(PLACE + 600, 1);
                put(&array, &mut expected, FIRST + 512, &[7; 512]);
                array.flush().expect("a flush");
                rig.crash(&mut Random::new(seed));
                drop(array);
                let array = rig.open_without(&[away]);
                put(&array, &mut expected, FIRST + sector * 512, &[8; 512]);
                array.flush().expect("a flush");
                let with = |array: &Array, at| is_there(array, at, cell(&expected, at));
                let what = format!("{stack} {sector} without {away}");
                if away == side || stack == FOUR {
                    assert!(with(&array, FIRST), "{what}");
                }
                assert!(with(&array, SECOND), "{what}: its neighbour");
                array.close().expect("closed");
                drop(array);
                let array = rig.open();
                bring_up(&array);
                assert!(with(&array, SECOND), "{what}: all are there");
                if away == side || stack == FOUR {
                    assert!(with(&array, FIRST), "{what}: all are there");
                    assert!(with(&array, SECOND), "{what}: after that was healed");
                    array.close().expect("closed");
                    drop(array);
                    let array = rig.open_without(&[(side + 1) % rig.media.len()]);
                    assert!(with(&array, FIRST) && with(&array, SECOND), "{what}: the other");
                }
            }
        }
    }
}

#[test]
fn a_neighbour_of_what_was_healed_is_there() {
    for stack in [THREE, FOUR] {
        let (rig, array, mut expected, side) = rotten(stack, 63);
        rig.media[side].rot(PLACE + 600, 1);
        put(&array, &mut expected, FIRST + 512, &[7; 512]);
        // No record has it any more that an opening would put in its place again.
        for stripe in 1..4 {
            array.flush().expect("a flush");
            put(&array, &mut expected, stripe * ROW, &[8; 512]);
        }
        array.flush().expect("a flush");
        assert!(is_there(&array, FIRST, cell(&expected, FIRST)));
        assert!(read(&array, FIRST, CELL) == cell(&expected, FIRST), "written again");
        rig.crash(&mut Random::new(63));
        drop(array);
        let array = rig.open_without(&[(side + 1) % rig.media.len()]);
        assert!(is_there(&array, SECOND, cell(&expected, SECOND)), "{stack}");
    }
}

/// An array whose second row has a parity that rotted in two sectors; its side with the row's first
/// data.
fn with_rotten_parity(stack: &str, parity: usize, seed: u64) -> (Rig, Vec<u8>, usize) {
    let rig = Rig::new(stack, 2 * JOURNAL_BYTES + 2 * MIB, seed);
    let array = rig.open();
    let expected = noise(&mut Random::new(seed), 16 * ROW);
    write(&array, 0, &expected);
    array.close().expect("closed");
    let count = rig.media.len();
    let journals = if stack == SEVEN { JOURNAL_BYTES } else { 0 };
    let side = (count - 1 + parity) % count;
    rig.media[side].rot(PLACE + journals + 9, 3);
    rig.media[side].rot(PLACE + journals + 600, 1);
    (rig, expected, (count - 1 + stack_parities(stack)) % count)
}

fn stack_parities(stack: &str) -> usize {
    if stack == SEVEN { 3 } else { 2 }
}

#[test]
fn parity_that_is_computed_anew_is_of_what_was_looked_at() {
    for (stack, parity) in [(FOUR, 0), (FOUR, 1), (SEVEN, 0), (SEVEN, 1), (SEVEN, 2)] {
        let (rig, expected, side) = with_rotten_parity(stack, parity, 64);
        let array = rig.open_without(&[side]);
        let found = array.disagreements(0, ROW).expect("a look");
        for at in (0..16 * ROW).step_by(CELL) {
            assert!(is_there(&array, at, cell(&expected, at)), "{stack} {parity} {at}");
        }
        for range in found {
            array.compute_again(&range).expect("computed");
        }
        for at in (0..16 * ROW).step_by(CELL) {
            assert!(is_there(&array, at, cell(&expected, at)), "{stack} {parity} {at}: after");
        }
        rig.crash(&mut Random::new(64));
        drop(array);
        let array = rig.open_without(&[side]);
        for at in (0..16 * ROW).step_by(CELL) {
            assert!(is_there(&array, at, cell(&expected, at)), "{stack} {parity} {at}: again");
        }
    }
}

#[test]
fn what_is_written_beside_a_missing_cell_leaves_what_the_other_parity_says_of_it() {
    for (stack, parity) in [(FOUR, 0), (FOUR, 1), (SEVEN, 0), (SEVEN, 1), (SEVEN, 2)] {
        for at in [FIRST, SECOND] {
            let (rig, mut expected, side) = with_rotten_parity(stack, parity, 65);
            let array = rig.open_without(&[side]);
            put(&array, &mut expected, at + 1024, &[7; 512]);
            array.flush().expect("a flush");
            for at in [FIRST, SECOND] {
                assert!(is_there(&array, at, cell(&expected, at)), "{stack} {parity} {at}");
            }
            array.close().expect("closed");
            drop(array);
            let array = rig.open();
            bring_up(&array);
            for at in [FIRST, SECOND] {
                assert!(is_there(&array, at, cell(&expected, at)), "{stack} {parity} {at}");
            }
            assert!(read(&array, 0, expected.len()) == expected, "{stack} {parity} {at}");
        }
    }
}

/// Opens it as a pool does: what was in flight is looked at before parity is computed of it.
fn open_looking(rig: &Rig, without: &[usize], check: impl Fn(&Array)) -> Array {
    let array = rig.try_open(without).expect("enough members are there");
    let unsettled = array.unsettled().into_iter();
    let look = |range: Range<u64>| array.disagreements(range.start, range.end - range.start);
    let found: Vec<_> = unsettled.flat_map(|range| look(range).expect("a look")).collect();
    check(&array);
    found.iter().for_each(|range| array.compute_again(range).expect("computed"));
    array.end_settling(&[]).expect("settled");
    array
}

/// Of two parities one makes good for what rotted, the other for a side that is missing, whichever
/// that is by then, and whatever is written.
fn run(seed: u64) {
    let random = &mut Random::new(seed);
    let (rig, mut array, mut expected, side) = rotten(FOUR, seed);
    rig.media[side].rot(PLACE + 600, 1);
    let mut done = Vec::new();
    let check = |array: &Array, expected: &[u8], done: &[String]| {
        for at in [FIRST, SECOND] {
            assert!(is_there(array, at, cell(expected, at)), "{seed}: {at} after {done:#?}");
        }
    };
    for _ in 0..6 {
        for _ in 0..random.below(4) {
            let at = random.below(2) * 8192 + 4096 + random.below(3) * 512;
            let length = random.between(1, 3) * 512;
            done.push(format!("put {length} at {at}"));
            put(&array, &mut expected, at, &noise(random, length));
            if random.chance(500) {
                done.push("flush".to_owned());
                array.flush().expect("a flush");
            }
        }
        array.flush().expect("a flush");
        check(&array, &expected, &done);
        if random.chance(300) {
            done.push("computed".to_owned());
            let found = array.disagreements(0, ROW).expect("a look");
            check(&array, &expected, &done);
            found.iter().for_each(|range| array.compute_again(range).expect("computed"));
            check(&array, &expected, &done);
        }
        done.push("all are there".to_owned());
        rig.crash(random);
        drop(array);
        array = open_looking(&rig, &[], |array| check(array, &expected, &done));
        bring_up(&array);
        check(&array, &expected, &done);
        if random.chance(300) {
            array.close().expect("closed");
        }
        let away = random.below(5) as usize;
        if away < 4 {
            drop(array);
            done.push(format!("without {away}"));
            array = open_looking(&rig, &[away], |array| check(array, &expected, &done));
            check(&array, &expected, &done);
        }
    }
}

#[test]
fn one_side_rots_and_others_come_and_go() {
    for seed in 0..100 {
        run(seed);
    }
}
