//! Blocks that rot, writes over them and beside them, and what is left when a side fails.

use std::ops::Range;
use std::sync::Arc;

use format::checksum::block_crc;
use format::parity::{Entry, Record, WRITTEN, peek_header_bytes};
use hindsight_block::{Array, BlockDevice, MediaDevice, Outcome};
use sim::{Random, SimMedia};

use crate::rig::{AREA_BYTES, JOURNAL_BYTES, MIB, Rig, noise, read, write};

pub const THREE: &str = "parity[chunk=8KiB,journal=64KiB](a, b, c)";
pub const FOUR: &str = "parity[failures=2,chunk=8KiB,journal=64KiB](a, b, c, d)";
/// Bytes of a stripe's data.
pub const ROW: u64 = 2 * 8192;
/// Where the first stripe is, as it is told.
const STRIPE: &[Range<u64>] = std::slice::from_ref(&(0..ROW));
/// The second cells of the first stripe's chunks.
pub const FIRST: u64 = 4096;
pub const SECOND: u64 = 8192 + 4096;
/// Where they are on their sides.
pub const PLACE: u64 = AREA_BYTES + JOURNAL_BYTES + 4096;

/// An array with something in it, and what that is.
pub fn filled(stack: &str, data_bytes: u64, seed: u64) -> (Rig, Array, Vec<u8>) {
    let rig = Rig::new(stack, data_bytes, seed);
    let array = rig.open();
    let expected = noise(&mut Random::new(seed), 16 * ROW);
    write(&array, 0, &expected);
    array.close().expect("closed");
    (rig, array, expected)
}

/// The same, of which the first cell of the second row rotted where it lies, on this side.
pub fn rotten(stack: &str, seed: u64) -> (Rig, Array, Vec<u8>, usize) {
    let (rig, array, expected) = filled(stack, JOURNAL_BYTES + 2 * MIB, seed);
    // Stripe 0 has its first data on the side after its parities.
    let side = rig.media.len() - 3;
    rig.media[side].rot(PLACE + 9, 3);
    assert!(read(&array, FIRST, 4096) != expected[4096..8192], "{stack}");
    (rig, array, expected, side)
}

pub fn put(array: &Array, expected: &mut [u8], at: u64, bytes: &[u8]) {
    write(array, at, bytes);
    expected[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
}

/// Whether this can be had of a range, by whoever knows what is right; if not that is said.
pub fn is_there(array: &Array, at: u64, expected: &[u8]) -> bool {
    let mut buffer = vec![0; expected.len()];
    let outcome = array.heal(at, &mut buffer, &|bytes| bytes == expected).expect("readable");
    let is_healed = matches!(outcome, Outcome::Recovered | Outcome::Transient);
    assert!(!is_healed || buffer == expected, "never other bytes");
    is_healed
}

pub fn cell(expected: &[u8], at: u64) -> &[u8] {
    &expected[at as usize..][..4096]
}

/// The cells that cannot be had.
pub fn lost(array: &Array, expected: &[u8]) -> Vec<u64> {
    let cells = (0..expected.len() as u64).step_by(4096);
    cells.filter(|&at| !is_there(array, at, cell(expected, at))).collect()
}

/// Looks at ranges as a pool does that was told of them.
fn look(array: &Array, expected: &[u8], ranges: Vec<Range<u64>>) {
    for told in ranges {
        let found = array.disagreements(told.start, told.end - told.start).expect("a look");
        assert_eq!(lost(array, expected), []);
        found.iter().for_each(|range| array.compute_again(range).expect("computed"));
    }
}

#[test]
fn what_was_written_over_rot_is_there_without_a_side_once_it_was_looked_at() {
    for (stack, ends) in [(THREE, 0), (THREE, 1), (THREE, 2), (FOUR, 0), (FOUR, 1), (FOUR, 2)] {
        for (is_looked_at, is_neighbour) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            let (rig, array, mut expected, side) = rotten(stack, 41);
            put(&array, &mut expected, FIRST, &[7; 4096]);
            array.flush().expect("a flush");
            let told = array.noticed();
            assert_eq!(told, STRIPE, "{stack}");
            if is_looked_at {
                look(&array, &expected, told);
                array.flush().expect("a flush");
            }
            match ends {
                0 => array.close().expect("closed"),
                1 => rig.kill(),
                _ => rig.crash(&mut Random::new(41)),
            }
            drop(array);
            let array = rig.open_without(&[side + usize::from(is_neighbour)]);
            let all = match (is_looked_at, is_neighbour) {
                (true, _) => vec![],
                (false, false) => vec![FIRST],
                // Two parities know it without the side that rotted.
                (false, true) if stack == FOUR => vec![],
                (false, true) => vec![SECOND],
            };
            let what = format!("{stack} {ends} {is_looked_at} {is_neighbour}");
            assert_eq!(lost(&array, &expected), all, "{what}");
        }
    }
}

#[test]
fn what_rotted_beside_what_was_written_is_there() {
    for stack in [THREE, FOUR] {
        for is_without in [false, true] {
            let (rig, array, mut expected, side) = rotten(stack, 43);
            put(&array, &mut expected, SECOND, &[7; 4096]);
            array.close().expect("closed");
            drop(array);
            let without = if is_without { vec![side] } else { vec![] };
            let array = rig.open_as_it_is(&without);
            assert_eq!(lost(&array, &expected), [], "{stack} {is_without}");
        }
    }
}

/// Waiting cells are placed when their region gets quiet; only then the row is seen to be apart.
#[test]
fn a_region_stays_open_for_what_was_noticed_when_it_got_quiet() {
    for stack in [THREE, FOUR] {
        let (rig, array, mut expected, _) = rotten(stack, 44);
        put(&array, &mut expected, FIRST, &[7; 4096]);
        array.tidy().expect("tidied");
        assert_eq!(array.noticed(), [], "{stack}: it waits");
        array.tidy().expect("tidied");
        rig.kill();
        drop(array);
        let array = rig.try_open(&[]).expect("all are there");
        assert_eq!(array.unsettled().len(), 1, "{stack}");
        array.end_settling(&[]);
        put(&array, &mut expected, FIRST, &[8; 4096]);
        (0..2).for_each(|_| array.tidy().expect("tidied"));
        let told = array.noticed();
        assert_eq!(told, STRIPE, "{stack}");
        look(&array, &expected, told);
        (0..2).for_each(|_| array.tidy().expect("tidied"));
        rig.kill();
        drop(array);
        assert_eq!(rig.try_open(&[]).expect("again").unsettled(), [], "{stack}");
    }
}

/// Of a cell of which a part is written over rot, that part is there and the rest can be healed, by
/// who has a checksum of each.
#[test]
fn a_part_that_is_written_over_rot_leaves_the_rest_to_be_healed() {
    for stack in [THREE, FOUR] {
        for (from, to) in [(0, 512), (512, 1024), (3584, 4096)] {
            let (rig, array, mut expected, side) = rotten(stack, 49);
            // A second wrong byte: one in each of two sectors.
            rig.media[side].rot(PLACE + 600, 1);
            put(&array, &mut expected, FIRST + from, &vec![7; (to - from) as usize]);
            array.flush().expect("a flush");
            for at in (FIRST..FIRST + 4096).step_by(512) {
                let sector = &expected[at as usize..][..512];
                assert!(is_there(&array, at, sector), "{stack} {from}: {at}");
            }
        }
    }
}

/// A stripe that was being written as a whole when the power failed, with the third side missing.
fn torn(seed: u64, random: &mut Random) -> (Rig, Vec<u8>) {
    let (rig, array, expected) = filled(FOUR, JOURNAL_BYTES + 2 * MIB, seed);
    drop(array);
    let array = rig.open_without(&[2]);
    write(&array, 0, &noise(random, ROW));
    rig.crash(random);
    (rig, expected)
}

#[test]
fn what_is_written_into_a_torn_stripe_outlives_the_next_side() {
    let mut torn_ones = 0;
    for seed in 0..60 {
        let random = &mut Random::new(seed + 1000);
        let (rig, mut expected) = torn(seed, random);
        let array = rig.try_open(&[2]).expect("three are enough");
        let look = |range: Range<u64>| array.disagreements(range.start, range.end - range.start);
        let unsettled = array.unsettled().into_iter();
        let apart: Vec<_> = unsettled.flat_map(|range| look(range).expect("a look")).collect();
        torn_ones += usize::from(!apart.is_empty());
        put(&array, &mut expected, FIRST, &noise(random, 4096));
        array.flush().expect("flushed");
        apart.iter().for_each(|range| array.compute_again(range).expect("computed"));
        array.end_settling(&[]);
        array.close().expect("closed");
        drop(array);
        let array = rig.open_without(&[1, 2]);
        assert!(is_there(&array, FIRST, cell(&expected, FIRST)), "{seed}");
    }
    assert!(torn_ones > 20, "{torn_ones}");
}

/// The newest record of a member's journal, and where it is.
fn newest_record(media: &Arc<SimMedia>) -> (u64, Record) {
    let device = MediaDevice::new(Arc::<SimMedia>::clone(media));
    let of_slot = |slot: u64| {
        let bytes = read(&device, AREA_BYTES + slot * (64 << 10), 64 << 10);
        let address = slot * (64 << 10);
        peek_header_bytes(&bytes, address).expect("a record");
        let id = u128::from_le_bytes(bytes[16..32].try_into().expect("16 bytes"));
        (slot, Record::decode(&bytes, address, id).expect("sound"))
    };
    let both = [of_slot(0), of_slot(1)];
    both.into_iter().max_by_key(|(_, record)| record.sequence).expect("two")
}

/// Until 2026-11-25 records had by how much parities were apart from their rows. That is not used
/// any more, and what it was of is looked at.
#[test]
fn what_an_earlier_version_kept_of_a_row_has_it_looked_at() {
    for stack in [THREE, FOUR] {
        let (rig, array, mut expected, side) = rotten(stack, 50);
        put(&array, &mut expected, FIRST, &[7; 4096]);
        array.close().expect("closed");
        drop(array);
        let (slot, newest) = newest_record(&rig.media[0]);
        let (cell, parities) = (vec![0; 4096], rig.media.len() as u16 - 2);
        let entry = |side| Entry {
            offset: JOURNAL_BYTES + 4096,
            cells_crc: block_crc(&cell),
            cells: 1,
            side,
        };
        let count = rig.media.len() as u16;
        let sides = (0..parities).map(|k| (count - 1 + k) % count).chain([WRITTEN]);
        let differences: Vec<Entry> = sides.map(entry).collect();
        let (sequence, entries) = (newest.sequence + 1, Vec::new());
        let record = Record { sequence, entries, differences, ..newest };
        let address = (1 - slot) * (64 << 10);
        let mut bytes = record.encode(address);
        record.all().for_each(|_| bytes.extend_from_slice(&cell));
        for media in &rig.media {
            write(&MediaDevice::new(Arc::<SimMedia>::clone(media)), AREA_BYTES + address, &bytes);
        }
        let array = rig.open();
        let told = array.noticed();
        assert_eq!(told, STRIPE, "{stack}");
        look(&array, &expected, told);
        array.close().expect("closed");
        drop(array);
        assert_eq!(newest_record(&rig.media[0]).1.differences, []);
        assert_eq!(lost(&rig.open_without(&[side]), &expected), [], "{stack}");
    }
}
