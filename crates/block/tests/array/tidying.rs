//! Marks that are taken off by several at a time.

use std::sync::Arc;

use hindsight_block::{Array, BlockDevice};
use sim::{Failure, Op, Random};

use crate::settling::Settling;
use crate::{AREA_BYTES, MIB, Rig, write};

#[test]
fn a_mark_stays_while_parity_cannot_be_computed_however_many_tidy() {
    for seed in 0..8 {
        let rig = Rig::new("parity[journal=64KiB](a, b, c)", 80 + seed);
        let array = rig.open();
        write(&array, 5000, &[1; 200_000]);
        rig.media.iter().for_each(|media| media.halt_now());
        drop(array);
        rig.crash(&mut Random::new(seed));
        rig.media.iter().for_each(|media| media.calm());
        let array = Arc::new(rig.open());
        assert!(!array.unsettled().is_empty(), "it was in flight");
        // Two of three cannot be read: nothing can be computed.
        rig.media[..2].iter().for_each(|media| media.fail(Failure::for_ever(Op::Read)));
        array.settle_as_it_is();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..60).for_each(|_| _ = array.tidy()));
            }
        });
        drop(array);
        rig.media.iter().for_each(|media| media.calm());
        assert!(!rig.open().unsettled().is_empty(), "seed {seed}: the mark was taken off");
    }
}

/// Regions with a mark.
fn marked(array: &Array) -> u64 {
    array.marked().0 / MIB
}

/// A whole region.
fn region(byte: u8) -> Vec<u8> {
    vec![byte; 1 << 20]
}

#[test]
fn where_much_is_marked_what_was_filled_loses_its_mark_at_once_and_other_regions_keep_it() {
    let rig = Rig::new("mirror(a, b)", 90);
    let array = rig.open();
    array.allocate(2 * MIB, 2 * MIB).expect("space");
    write(&array, 0, &region(1));
    write(&array, 5 * MIB, &[1; 4096]);
    assert_eq!(marked(&array), 4);
    array.tidy_early().expect("tidied");
    assert_eq!(marked(&array), 3, "what was reserved, and what little was written to");
    array.tidy_early().expect("tidied");
    rig.media.iter().for_each(|media| media.start_log());
    write(&array, 2 * MIB, &region(2));
    for media in &rig.media {
        let log = media.take_log();
        assert!(log.iter().all(|r| r.offset >= AREA_BYTES), "no mark is waited for: {log:?}");
    }
    array.tidy_early().expect("tidied");
    assert_eq!(marked(&array), 2, "what is still reserved, and what little was written to");
    array.tidy().expect("tidied");
    array.tidy().expect("tidied");
    assert_eq!(marked(&array), 0, "nobody came");
}

#[test]
fn a_region_that_is_written_again_soon_keeps_its_mark_until_it_is_quiet_for_long() {
    let rig = Rig::new("mirror(a, b)", 91);
    let array = rig.open();
    let early = |left: u64, why: &str| {
        array.tidy_early().expect("tidied");
        assert_eq!(marked(&array), left, "{why}");
    };
    write(&array, 0, &region(1));
    write(&array, MIB, &region(1));
    early(0, "both came to rest");
    write(&array, 0, &region(2));
    early(1, "it came back");
    early(1, "it may again");
    array.tidy().expect("tidied");
    assert_eq!(marked(&array), 1, "it was not quiet for long");
    array.tidy().expect("tidied");
    assert_eq!(marked(&array), 0, "it was");
    write(&array, 0, &region(3));
    early(0, "that was long ago");
    (0..2).for_each(|_| array.tidy().expect("tidied"));
    write(&array, 0, &region(4));
    early(0, "and so was this");
    array.discard(0, MIB).expect("discarded");
    early(0, "nothing is there");
    write(&array, 0, &region(5));
    early(0, "it is another's");
}
