//! Parity is computed anew of what was looked at, and of nothing else.

use std::sync::Arc;

use hindsight_block::{Array, BlockDevice, CryptDevice, CryptKey, Resync};
use sim::{Failure, Op, Random};

use crate::rig::{AREA_BYTES, JOURNAL_BYTES, MIB, Rig, copy, noise, read, write};

const THREE: &str = "parity[chunk=4KiB,journal=64KiB](a, b, c)";
/// Of three and of four sides: the last stripe of the longer one is reached in part.
const UNEQUAL: &str = "stripe[chunk=4KiB](parity[chunk=4KiB,journal=64KiB](a, b, c), \
                       parity[chunk=4KiB,journal=64KiB](d, e, f, g))";

/// Where a stripe of a chunk's size begins on every member.
fn place(stripe: u64, chunk_bytes: u64) -> u64 {
    AREA_BYTES + JOURNAL_BYTES + stripe * chunk_bytes
}

fn compute(array: &Array) -> usize {
    let apart = array.disagreements(0, array.len_bytes()).expect("readable");
    apart.iter().for_each(|range| array.compute_again(range).expect("computed"));
    apart.len()
}

#[test]
fn parity_is_not_computed_of_a_row_of_which_a_part_was_looked_at() {
    let rig = Rig::new(THREE, JOURNAL_BYTES + 2 * MIB, 31);
    let array = rig.open();
    let expected = noise(&mut Random::new(31), 16_384);
    write(&array, 0, &expected);
    array.close().expect("closed");
    // The parity of stripe 0 is on the last side, that of stripe 1 on the one before.
    rig.media[2].rot(place(0, 4096) + 9, 1);
    rig.media[1].rot(place(1, 4096) + 9, 1);
    let others_say = copy(&array, 1, 0, 4096);
    assert_eq!(array.disagreements(0, array.len_bytes()).expect("readable").len(), 2);
    array.compute_again(&(4096..16_384)).expect("computed");
    assert_eq!(copy(&array, 1, 0, 4096), others_say, "one of its cells may be lost");
    assert_eq!(copy(&array, 1, 8192, 8192), expected[8192..]);
    // It is still known what was there.
    array.compute_again(&(0..8192)).expect("computed");
    assert_eq!(copy(&array, 1, 0, 8192), expected[..8192]);
}

#[test]
fn a_write_over_what_rotted_is_told_of_once() {
    let stripe = format!("stripe[chunk=8KiB]({THREE}, {})", THREE.replace("a, b, c", "d, e, f"));
    for stack in [THREE.to_owned(), stripe] {
        let rig = Rig::new(&stack, JOURNAL_BYTES + 2 * MIB, 38);
        let array = rig.open();
        let expected = noise(&mut Random::new(38), 64 << 10);
        write(&array, 0, &expected);
        array.close().expect("closed");
        // The first cells of these stripes are on the first side.
        rig.media[0].rot(place(0, 4096) + 9, 1);
        write(&array, 0, &[7; 4096]);
        array.flush().expect("a flush");
        let noticed = array.noticed();
        assert_eq!((noticed.len(), array.noticed()), (1, Vec::new()), "{stack}");
        let told = noticed[0].clone();
        assert!(told.start == 0 && (4096..=40_960).contains(&told.end), "{stack} {told:?}");
        assert!(copy(&array, 1, 0, 4096) != [7; 4096], "{stack}");
        let look = || array.disagreements(told.start, told.end - told.start).expect("readable");
        assert!(look().contains(&told), "{stack}");
        array.compute_again(&told).expect("computed");
        assert!(copy(&array, 1, 0, 4096) == [7; 4096] && !look().contains(&told), "{stack}");
    }
}

#[test]
fn parity_is_computed_of_rows_of_which_a_part_is_beyond_what_can_be_reached() {
    let rig = Rig::new(UNEQUAL, JOURNAL_BYTES + 2 * MIB, 32);
    let array = rig.open();
    let expected = noise(&mut Random::new(32), array.len_bytes());
    write(&array, 0, &expected);
    array.close().expect("closed");
    assert_eq!(compute(&array), 0);
    // The stripe has as much of each of the two as the shorter one has.
    let last = (2 * MIB / 4096 * 2 - 1) / 3;
    for stripe in last - 3..=last {
        let parity = 3 - stripe % 4;
        rig.media[3 + parity as usize].rot(place(stripe, 4096) + 9, 1);
        assert_eq!(compute(&array), 1, "stripe {stripe}");
        assert_eq!(compute(&array), 0, "stripe {stripe} was computed");
    }
    assert!(read(&array, 0, expected.len()) == expected);
}

#[test]
fn headers_of_keys_are_looked_at_before_parity_is_computed_of_them() {
    let stack = "parity[failures=2,chunk=64KiB,journal=64KiB](a, b, c, d, e)";
    let rig = Rig::new(stack, JOURNAL_BYTES + 2 * MIB, 35);
    let array = Arc::new(rig.open());
    let mut random = Random::new(35);
    let key = CryptKey::new(vec![3; 32]).expect("a key");
    let mut fill = |bytes: &mut [u8]| random.fill(bytes);
    CryptDevice::format(&*array, &key, &mut fill).expect("formatted");
    let device = CryptDevice::open(Arc::<Array>::clone(&array), &key).expect("opened");
    let len = device.len_bytes();
    let compute = || {
        let apart = device.disagreements(0, len).expect("readable");
        let computed = |range: &std::ops::Range<u64>| {
            device.resync(range.start, range.end - range.start, Resync::Computed)
        };
        apart.iter().for_each(|range| computed(range).expect("computed"));
        apart.len()
    };
    let expected = noise(&mut Random::new(36), len);
    write(&device, 0, &expected);
    array.close().expect("closed");
    assert_eq!(compute(), 0);
    // Both copies of the header are in the first row of stripe 0; its parities are on the sides e
    // and a.
    for (member, row) in [(1, 0), (2, 0), (0, 7), (4, 7)] {
        rig.media[member].rot(place(0, 64 << 10) + row * 4096 + 100, 3);
    }
    assert_eq!(compute(), 1);
    let device = CryptDevice::open(Arc::<Array>::clone(&array), &key).expect("a header is right");
    assert!(read(&device, 0, expected.len()) == expected);
    assert_eq!(compute(), 0, "the header was healed");
}

#[test]
fn a_cell_that_cannot_be_read_is_computed_and_its_neighbours_are_not() {
    let rig = Rig::new("parity[chunk=64KiB,journal=64KiB](a, b, c)", JOURNAL_BYTES + 2 * MIB, 39);
    let array = rig.open();
    let expected = noise(&mut Random::new(39), 128 << 10);
    write(&array, 0, &expected);
    array.flush().expect("a flush");
    // A fault in another row, which nobody has met.
    rig.media[1].rot(place(0, 64 << 10) + 9 * 4096 + 5, 1);
    let bad = place(0, 64 << 10) + 3 * 4096;
    let range = Some(bad..bad + 4096);
    rig.media[0].fail(Failure { range, times: Some(2), ..Failure::for_ever(Op::Read) });
    assert!(read(&array, 0, 64 << 10) == expected[..64 << 10]);
    assert!(read(&array, 0, 64 << 10) == expected[..64 << 10], "what was written over");
}
