//! Two parities, a side missing, and rows of which the parities say different things.

use std::ops::Range;

use hindsight_block::{Array, BlockDevice, Outcome};
use sim::Random;

use crate::rig::{AREA_BYTES, JOURNAL_BYTES, MIB, Rig, bring_up, noise, write};

const FOUR: &str = "parity[failures=2,chunk=8KiB,journal=64KiB](a, b, c, d)";
/// Bytes of a stripe's data.
const STRIPE: u64 = 2 * 8192;
/// The second cells of the first stripe's chunks, on the second side and on the third.
const FIRST: u64 = 4096;
const SECOND: u64 = 8192 + 4096;
/// Where the first of them is on its side.
const PLACE: u64 = AREA_BYTES + JOURNAL_BYTES + 4096;

fn put(array: &Array, expected: &mut [u8], at: u64, bytes: &[u8]) {
    write(array, at, bytes);
    expected[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
}

/// Whether a cell can be had by who has a checksum of it.
fn can_be_had(array: &Array, expected: &[u8], at: u64) -> bool {
    let wanted = &expected[at as usize..at as usize + 4096];
    let mut found = vec![0; 4096];
    let outcome = array.heal(at, &mut found, &|bytes| bytes == wanted);
    matches!(outcome, Ok(Outcome::Recovered | Outcome::Transient)) && found == wanted
}

fn filled(seed: u64) -> (Rig, Vec<u8>) {
    let rig = Rig::new(FOUR, JOURNAL_BYTES + 2 * MIB, seed);
    let array = rig.open();
    let expected = noise(&mut Random::new(seed), 16 * STRIPE);
    write(&array, 0, &expected);
    array.close().expect("closed");
    (rig, expected)
}

fn unsettled(array: &Array) -> Vec<Range<u64>> {
    let look = |range: Range<u64>| {
        array.disagreements(range.start, range.end - range.start).expect("a look")
    };
    array.unsettled().into_iter().flat_map(look).collect()
}

/// A stripe that was being written as a whole when the power failed, with the third side missing.
fn torn(seed: u64, random: &mut Random) -> (Rig, Vec<u8>) {
    let (rig, expected) = filled(seed);
    let array = rig.open_without(&[2]);
    write(&array, 0, &noise(random, STRIPE));
    rig.crash(random);
    (rig, expected)
}

#[test]
fn what_is_written_beside_rot_is_there_though_its_side_is_missing() {
    let before = [None, Some(SECOND + 1536), Some(SECOND), Some(FIRST + 1536), Some(FIRST)];
    for (healthy, sectors) in before.into_iter().map(|at| (at, 8)).chain([(None, 1)]) {
        let (rig, mut expected) = filled(7);
        rig.media[1].rot(PLACE + 9, 3);
        if let Some(at) = healthy {
            let array = rig.open();
            put(&array, &mut expected, at, &[5; 512]);
            array.flush().expect("flushed");
            array.close().expect("closed");
        }
        let array = rig.open_without(&[2]);
        put(&array, &mut expected, SECOND, &vec![9; sectors * 512]);
        array.flush().expect("flushed");
        for cell in [SECOND, FIRST, SECOND] {
            assert!(can_be_had(&array, &expected, cell), "{healthy:?}, {sectors}: {cell}");
        }
    }
}

#[test]
fn it_is_told_and_is_there_when_the_side_is_lost_again() {
    let (rig, mut expected) = filled(8);
    rig.media[1].rot(PLACE + 9, 3);
    let array = rig.open_without(&[2]);
    put(&array, &mut expected, SECOND, &[9; 4096]);
    array.flush().expect("flushed");
    assert!(!array.noticed().is_empty(), "somebody is to look");
    array.close().expect("closed");
    drop(array);
    let array = rig.open();
    bring_up(&array);
    assert!(can_be_had(&array, &expected, FIRST) && can_be_had(&array, &expected, SECOND));
    array.close().expect("closed");
    drop(array);
    let array = rig.open_without(&[2]);
    assert!(can_be_had(&array, &expected, FIRST) && can_be_had(&array, &expected, SECOND));
}

#[test]
fn what_is_written_into_a_torn_stripe_outlives_the_next_side() {
    let mut torn_ones = 0;
    for seed in 0..60 {
        let random = &mut Random::new(seed + 1000);
        let (rig, mut expected) = torn(seed, random);
        let array = rig.try_open(&[2]).expect("three are enough");
        let apart = unsettled(&array);
        torn_ones += usize::from(!apart.is_empty());
        put(&array, &mut expected, FIRST, &noise(random, 4096));
        array.flush().expect("flushed");
        apart.iter().for_each(|range| array.compute_again(range).expect("computed"));
        array.end_settling(&[]).expect("settled");
        array.close().expect("closed");
        drop(array);
        let array = rig.open_without(&[1, 2]);
        assert!(can_be_had(&array, &expected, FIRST), "{seed}");
    }
    assert!(torn_ones > 20, "{torn_ones}");
}

#[test]
fn what_is_healed_by_the_second_parity_leaves_other_rows_to_be_looked_at() {
    let mut tried = 0;
    for seed in 0..200 {
        let random = &mut Random::new(seed + 1000);
        let (rig, mut expected) = torn(seed, random);
        let array = rig.try_open(&[2]).expect("three are enough");
        let apart = unsettled(&array);
        let (mut by_first, mut by_second) = (vec![0; 4096], vec![0; 4096]);
        array.read_copy(0, 8192, &mut by_first).expect("read");
        array.read_copy(1, 8192, &mut by_second).expect("read");
        if by_first == by_second {
            continue;
        }
        tried += 1;
        let right = |bytes: &[u8]| bytes == by_second;
        let outcome = array.heal(8192, &mut vec![0; 4096], &right).expect("healed");
        assert_eq!(outcome, Outcome::Recovered);
        apart.iter().for_each(|range| array.compute_again(range).expect("computed"));
        array.end_settling(&[]).expect("settled");
        put(&array, &mut expected, FIRST, &noise(random, 4096));
        array.flush().expect("flushed");
        array.close().expect("closed");
        drop(array);
        let array = rig.open_without(&[1, 2]);
        assert!(can_be_had(&array, &expected, FIRST), "{seed}");
    }
    assert!(tried > 50, "{tried}");
}
