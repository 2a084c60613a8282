//! Two losses of a row, of which one is a parity that rotted and the other a side that is missing:
//! what is written then changes nothing of what the other parities say of the rest.

use hindsight_block::BlockDevice;

use crate::rig::{JOURNAL_BYTES, MIB, Rig, bring_up, read};
use crate::rot::{FIRST, FOUR, PLACE, SECOND, cell, filled, is_there, put};

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
            let array = rig.open();
            bring_up(&array);
            for at in [FIRST, SECOND] {
                assert!(is_there(&array, at, cell(&expected, at)), "{stack} {parity} {at}");
            }
            assert!(read(&array, 0, expected.len()) == expected, "{stack} {parity} {at}");
        }
    }
}
