//! What is written over rot, and the row's neighbours, are there though a side fails before anybody
//! looked.

use std::io::IoSlice;
use std::sync::Arc;

use hindsight_block::{Array, BlockDevice, Candidate, MediaDevice, Outcome};
use sim::{Keep, Random};

use crate::rig::{AREA_BYTES, JOURNAL_BYTES, MIB, Rig, bring_up, noise, read, write};

pub const THREE: &str = "parity[chunk=8KiB,journal=64KiB](a, b, c)";
pub const FOUR: &str = "parity[failures=2,chunk=8KiB,journal=64KiB](a, b, c, d)";
pub const ROW: u64 = 2 * 8192;

/// An array of which the first cell of the second row rotted where it lies, on this side.
pub fn rotten(stack: &str, seed: u64) -> (Rig, Array, Vec<u8>, usize) {
    let rig = Rig::new(stack, JOURNAL_BYTES + 2 * MIB, seed);
    let array = rig.open();
    let expected = noise(&mut Random::new(seed), 16 * ROW);
    write(&array, 0, &expected);
    array.close().expect("closed");
    // Stripe 0 has its first data on the side after its parities.
    let side = rig.media.len() - 3;
    rig.media[side].rot(AREA_BYTES + JOURNAL_BYTES + 4096 + 9, 3);
    assert!(read(&array, 4096, 4096) != expected[4096..8192], "{stack}");
    (rig, array, expected, side)
}

pub fn put(array: &Array, expected: &mut [u8], at: u64, bytes: &[u8]) {
    write(array, at, bytes);
    expected[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
}

/// Whether this can be had of a range, by whoever knows what is right.
pub fn is_there(array: &Array, at: u64, expected: &[u8]) -> bool {
    let mut buffer = vec![0; expected.len()];
    let outcome = array.heal(at, &mut buffer, &|bytes| bytes == expected);
    matches!(outcome, Ok(Outcome::Recovered | Outcome::Transient)) && buffer == expected
}

/// Whether a copy is this.
fn has_copy(array: &Array, at: u64, expected: &[u8]) -> bool {
    let mut buffer = vec![0; expected.len()];
    (0..array.copies(at, expected.len() as u64))
        .any(|copy| array.read_copy(copy, at, &mut buffer).is_ok() && buffer == expected)
}

/// Whether there is a way that gives this.
fn has_way(array: &Array, at: u64, expected: &[u8]) -> bool {
    let mut buffer = vec![0; expected.len()];
    (0..array.ways()).any(|way| array.read_way(way, at, &mut buffer).is_ok() && buffer == expected)
}

/// How many ways there are where nothing was kept.
fn plain_ways(stack: &str) -> usize {
    Rig::new(stack, JOURNAL_BYTES + 2 * MIB, 1).open().ways()
}

#[test]
fn what_was_written_over_rot_is_there_without_the_side_that_rotted() {
    for (stack, ends) in [(THREE, 0), (THREE, 1), (THREE, 2), (FOUR, 0), (FOUR, 1), (FOUR, 2)] {
        let (rig, array, mut expected, side) = rotten(stack, 41);
        put(&array, &mut expected, 4096, &[7; 4096]);
        array.flush().expect("a flush");
        match ends {
            0 => array.close().expect("closed"),
            1 => rig.kill(),
            _ => rig.crash(&mut Random::new(41)),
        }
        drop(array);
        let array = rig.open_without(&[side]);
        for at in (0..16 * ROW).step_by(4096) {
            let cell = &expected[at as usize..][..4096];
            assert!(has_copy(&array, at, cell), "{stack} {ends} {at}");
            assert!(has_way(&array, at, cell), "{stack} {ends} {at}");
            assert!(is_there(&array, at, cell), "{stack} {ends} {at}");
        }
        // It is so after more of the row was written, and again after another crash.
        put(&array, &mut expected, 8192 + 4096 + 512, &[8; 512]);
        array.flush().expect("a flush");
        rig.crash(&mut Random::new(42));
        drop(array);
        let array = rig.open_without(&[side]);
        assert!(is_there(&array, 4096, &[7; 4096]), "{stack} {ends}");
        assert!(is_there(&array, 12_288, &expected[12_288..16_384]), "{stack} {ends}");
    }
}

#[test]
fn a_range_has_as_many_copies_as_the_row_in_it_that_has_most() {
    let rig = Rig::new(THREE, JOURNAL_BYTES + 2 * MIB, 47);
    let array = rig.open();
    let mut expected = noise(&mut Random::new(47), 16 * ROW);
    write(&array, 0, &expected);
    array.close().expect("closed");
    // The last stripe here, whose first data is where that of stripe 0 is.
    rig.media[0].rot(AREA_BYTES + JOURNAL_BYTES + 15 * 8192 + 9, 3);
    put(&array, &mut expected, 15 * ROW, &[7; 4096]);
    array.close().expect("closed");
    drop(array);
    let array = rig.open_without(&[0]);
    assert_eq!([array.copies(0, 15 * ROW), array.copies(0, 16 * ROW)], [1, 3]);
    let mut all = vec![0; 16 * ROW as usize];
    array.read_copy(1, 0, &mut all).expect("readable");
    assert!(all == expected);
}

#[test]
fn what_rotted_beside_what_was_written_is_there_without_the_side_of_either() {
    for stack in [THREE, FOUR] {
        for without in 0..2 {
            let (rig, array, mut expected, side) = rotten(stack, 43);
            // The other cell of the row.
            put(&array, &mut expected, 8192 + 4096, &[7; 4096]);
            array.close().expect("closed");
            let side = (side + without) % rig.media.len();
            let array = rig.open_without(&[side]);
            // What rotted is not there any more without the other: that is two losses of a row.
            let at = if without == 0 { 4096 } else { 8192 + 4096 };
            let cell = &expected[at as usize..][..4096];
            assert!(is_there(&array, at, cell), "{stack} without {side} at {at}");
        }
    }
}

/// Parity is computed of what was written over rot, other rows are written, and the power fails
/// anywhere in between, with the side that rotted.
#[test]
fn no_record_is_without_a_difference_before_the_parity_is_durable() {
    for (stack, halts_on) in [(THREE, 0), (THREE, 1), (THREE, 2), (FOUR, 0), (FOUR, 3)] {
        for changes in 0.. {
            let (rig, array, mut expected, side) = rotten(stack, 48);
            put(&array, &mut expected, 4096, &[7; 4096]);
            array.flush().expect("a flush");
            rig.media[halts_on].halt_after(changes);
            let end = || -> hindsight_block::Result<()> {
                array.disagreements(0, ROW)?;
                array.compute_again(&(0..ROW))?;
                for stripe in 2..5 {
                    array.write_at(stripe * ROW, &[IoSlice::new(&[8; 4096])])?;
                    array.flush()?;
                }
                Ok(())
            };
            let is_over = end().is_ok();
            // What is not durable is lost.
            rig.media.iter().for_each(|media| media.crash_with(&mut |_, _| Keep::Nothing));
            drop(array);
            let array = rig.open_without(&[side]);
            assert!(is_there(&array, 4096, &[7; 4096]), "{stack} {halts_on} {changes}");
            if is_over {
                assert!(changes > 4, "{stack}: something was tried");
                break;
            }
        }
    }
}

#[test]
fn a_new_member_gets_what_was_written_over_rot_when_somebody_looks() {
    for stack in [THREE, FOUR] {
        let (rig, array, mut expected, side) = rotten(stack, 44);
        put(&array, &mut expected, 4096, &[7; 4096]);
        array.close().expect("closed");
        drop(array);
        let array = rig.open_without(&[side]);
        assert!(array.noticed().is_empty(), "nobody can tell before all sides are in");
        let media = Arc::new(sim::SimMedia::filled(AREA_BYTES + JOURNAL_BYTES + 2 * MIB, 9, 0));
        let device = Arc::new(MediaDevice::new(media)) as Arc<dyn BlockDevice>;
        let with = Candidate { path: "new".to_owned(), device: Some(device) };
        array.replace(side, with, 77).expect("replaced");
        array.flush().expect("a flush");
        bring_up(&array);
        assert!(read(&array, 4096, 4096) != [7; 4096], "{stack}: that is computed first");
        let told = array.noticed();
        assert_eq!(told.len(), 1, "{stack}");
        let range = &told[0];
        let found = array.disagreements(range.start, range.end - range.start).expect("a look");
        assert_eq!(found, told, "{stack}");
        for at in (0..16 * ROW).step_by(4096) {
            assert!(is_there(&array, at, &expected[at as usize..][..4096]), "{stack} {at}");
        }
        // What is there is not what it was at the look: it is to be looked at again.
        array.compute_again(range).expect("computed");
        assert_eq!((array.noticed(), array.ways()), (told.clone(), 3 * plain_ways(stack)));
        array.disagreements(range.start, range.end - range.start).expect("a look");
        array.compute_again(range).expect("computed");
        assert_eq!((array.noticed(), array.ways()), (vec![], plain_ways(stack)), "{stack}");
        assert!(read(&array, 0, 16 * ROW as usize) == expected);
    }
}

#[test]
fn a_difference_is_forgotten_when_its_row_is_written_or_given_back() {
    let ways = plain_ways(THREE);
    for how in 0..4 {
        let (rig, array, mut expected, _) = rotten(THREE, 45);
        put(&array, &mut expected, 4096, &[7; 4096]);
        array.flush().expect("a flush");
        assert_eq!(array.ways(), 3 * ways);
        match how {
            // The row, through the journal; the stripe, to its sides; it is nobody's.
            0 => {
                put(&array, &mut expected, 4096, &[8; 4096]);
                put(&array, &mut expected, 8192 + 4096, &[9; 4096]);
            }
            1 => {
                (0..4).for_each(|_| array.flush().expect("a flush"));
                put(&array, &mut expected, 0, &[8; ROW as usize]);
            }
            2 => array.discard(0, ROW).expect("given back"),
            // Looked at, and computed, with no record after it.
            _ => {
                array.disagreements(0, ROW).expect("a look");
                array.compute_again(&(0..ROW)).expect("computed");
            }
        }
        array.flush().expect("a flush");
        assert_eq!(array.ways(), ways, "{how}");
        rig.kill();
        drop(array);
        let array = rig.open();
        if how >= 2 {
            // The newest record is of before. It does no harm, and goes when somebody looks.
            let told = array.noticed();
            assert_eq!((array.ways(), told.len()), (3 * ways, 1));
            array.disagreements(0, ROW).expect("a look");
            array.compute_again(&told[0]).expect("computed");
        } else {
            assert!(read(&array, 0, 16 * ROW as usize) == expected, "{how}");
        }
        assert_eq!(array.ways(), ways, "{how}: no record has it");
    }
}

#[test]
fn more_rot_than_a_record_has_room_for_is_as_without() {
    let rig = Rig::new(THREE, JOURNAL_BYTES + 2 * MIB, 46);
    let array = rig.open();
    let mut expected = noise(&mut Random::new(46), 16 * ROW);
    write(&array, 0, &expected);
    array.close().expect("closed");
    for stripe in 0..16 {
        let place = AREA_BYTES + JOURNAL_BYTES + stripe * 8192;
        rig.media.iter().for_each(|media| media.rot(place + 100, 1));
        put(&array, &mut expected, stripe * ROW, &[stripe as u8; 4096]);
        array.flush().expect("a flush");
    }
    for stripe in 0..16 {
        assert_eq!(read(&array, stripe * ROW, 4096), [stripe as u8; 4096]);
    }
    assert_eq!(array.noticed().len(), 16);
    array.close().expect("closed");
}

/// Of a cell of which a part is written over rot, that part is there and the rest can be healed,
/// with the side and without.
#[test]
fn a_part_that_is_written_over_rot_leaves_the_rest_to_be_healed() {
    for (stack, ends) in [(THREE, 0), (THREE, 1), (FOUR, 0), (FOUR, 1)] {
        for (from, to) in [(0, 512), (512, 1024), (3584, 4096)] {
            let (rig, array, mut expected, side) = rotten(stack, 49);
            // A second wrong byte: one in each of two sectors.
            rig.media[side].rot(AREA_BYTES + JOURNAL_BYTES + 4096 + 600, 1);
            put(&array, &mut expected, 4096 + from, &vec![7; (to - from) as usize]);
            array.flush().expect("a flush");
            let cell = &expected[4096..8192];
            if ends == 0 {
                assert!(is_there(&array, 4096, cell), "{stack} {from}: with the side");
                continue;
            }
            rig.crash(&mut Random::new(49));
            drop(array);
            let array = rig.open_without(&[side]);
            assert!(is_there(&array, 4096, cell), "{stack} {from}: without it");
        }
    }
}
