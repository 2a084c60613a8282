//! Two losses of a row, of which one is a parity that rotted and the other a side that is missing:
//! what is written then changes nothing of what the other parities say of the rest.

use std::ops::Range;

use hindsight_block::{Array, BlockDevice};
use sim::Random;

use crate::rig::{JOURNAL_BYTES, MIB, Rig, bring_up, copy, noise, read};
use crate::rot::{FIRST, FOUR, PLACE, ROW, SECOND, cell, filled, is_there, lost, put, rotten};

const SEVEN: &str = "parity[failures=3,chunk=8KiB,journal=128KiB](a, b, c, d, e)";

/// An array whose second row has a parity that rotted in two sectors; its side with the row's first
/// data.
fn with_rotten_parity(stack: &str, parity: usize, seed: u64) -> (Rig, Vec<u8>, usize) {
    let (rig, _, expected) = filled(stack, 2 * JOURNAL_BYTES + 2 * MIB, seed);
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
            let array = rig.open_as_it_is(&[]);
            bring_up(&array);
            for at in [FIRST, SECOND] {
                assert!(is_there(&array, at, cell(&expected, at)), "{stack} {parity} {at}");
            }
            assert!(read(&array, 0, expected.len()) == expected, "{stack} {parity} {at}");
        }
    }
}

/// A row of two parities of which one side rotted, while others come and go.
struct Row {
    rig: Rig,
    expected: Vec<u8>,
    /// How often one of its cells was looked for, and was lost.
    looks: u32,
    losses: u32,
}

impl Row {
    /// Looks for the cells of the row. A lost cell is written anew, as a client would.
    fn check(&mut self, array: &Array, random: &mut Random) {
        for at in [FIRST, SECOND] {
            self.looks += 1;
            if !is_there(array, at, cell(&self.expected, at)) {
                self.losses += 1;
                put(array, &mut self.expected, at, &noise(random, 4096));
            }
        }
    }

    /// Computes parity as a pool does: of what is right for whoever reads it.
    fn compute(&self, array: &Array, found: &[Range<u64>]) {
        let is_right = |at| copy(array, 0, at, 4096) == cell(&self.expected, at);
        if [FIRST, SECOND].into_iter().all(is_right) {
            found.iter().for_each(|range| array.compute_again(range).expect("computed"));
        }
    }

    /// Opens it as a pool does: what was in flight is looked at before parity is computed of it.
    fn open(&mut self, without: &[usize], random: &mut Random) -> Array {
        let array = self.rig.try_open(without).expect("enough members are there");
        let unsettled = array.unsettled().into_iter();
        let look = |range: Range<u64>| array.disagreements(range.start, range.end - range.start);
        let found: Vec<_> = unsettled.flat_map(|range| look(range).expect("a look")).collect();
        self.check(&array, random);
        self.compute(&array, &found);
        array.end_settling(&[]);
        array
    }
}

/// Only cells of the row may be lost, whichever side is missing and whatever is written.
fn run(seed: u64) -> (u32, u32) {
    let random = &mut Random::new(seed);
    let (rig, mut array, expected, side) = rotten(FOUR, seed);
    rig.media[side].rot(PLACE + 600, 1);
    let mut row = Row { rig, expected, looks: 0, losses: 0 };
    for _ in 0..6 {
        for _ in 0..random.below(4) {
            let at = random.below(2) * 8192 + 4096 + random.below(3) * 512;
            let length = random.between(1, 3) * 512;
            let bytes = noise(random, length);
            put(&array, &mut row.expected, at, &bytes);
            if random.chance(500) {
                array.flush().expect("a flush");
            }
        }
        array.flush().expect("a flush");
        row.check(&array, random);
        if random.chance(300) {
            let found = array.disagreements(0, ROW).expect("a look");
            row.check(&array, random);
            row.compute(&array, &found);
        }
        array.flush().expect("a flush");
        row.rig.crash(random);
        drop(array);
        array = row.open(&[], random);
        bring_up(&array);
        row.check(&array, random);
        array.flush().expect("a flush");
        assert_eq!(lost(&array, &row.expected), [], "{seed}: all are there");
        if random.chance(300) {
            array.close().expect("closed");
        }
        let away = random.below(5) as usize;
        if away < 4 {
            drop(array);
            array = row.open(&[away], random);
            row.check(&array, random);
            array.flush().expect("a flush");
            assert_eq!(lost(&array, &row.expected), [], "{seed}: without {away}");
        }
    }
    (row.looks, row.losses)
}

#[test]
fn one_side_rots_and_others_come_and_go() {
    let runs: Vec<_> = (0..100).map(run).collect();
    let sum = |of: fn(&(u32, u32)) -> u32| runs.iter().map(of).sum::<u32>();
    let (looks, losses) = (sum(|run| run.0), sum(|run| run.1));
    println!("{losses} of {looks}");
    assert!(losses * 20 < looks, "{losses} of {looks} were lost");
}
