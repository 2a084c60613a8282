//! Sides that are asked beside each other, and what is read without waiting.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use hindsight_block::{BlockDevice, Standing, Together};
use sim::{Failure, Op, Random};

use crate::rig::{AREA_BYTES, JOURNAL_BYTES, MIB, Rig, noise, read, standings, write};

const THREE: &str = "parity[chunk=4KiB,journal=64KiB](a, b, c)";

/// Threads, of which each waits until all are there.
#[derive(Default)]
struct Threads {
    asked: AtomicUsize,
}

impl Together for Threads {
    fn each(&self, count: usize, ask: &(dyn Fn(usize) + Sync)) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let barrier = &Barrier::new(count);
        std::thread::scope(|scope| {
            for number in 0..count {
                scope.spawn(move || {
                    barrier.wait();
                    ask(number);
                });
            }
        });
    }
}

#[test]
fn sides_flush_beside_each_other_and_one_that_fails_is_put_out() {
    let rig = Rig::new(THREE, JOURNAL_BYTES + 2 * MIB, 41);
    let threads = Arc::new(Threads::default());
    let array = rig.open_asked(Arc::<Threads>::clone(&threads));
    let asked = || threads.asked.swap(0, Ordering::SeqCst);
    let expected = noise(&mut Random::new(41), 64 << 10);
    write(&array, 0, &expected);
    asked();
    array.flush().expect("a flush");
    assert_eq!(asked(), 1, "that of the record");
    array.flush().expect("a flush");
    assert_eq!(asked(), 1, "that of the places");
    rig.media[1].fail(Failure::once(Op::Sync));
    write(&array, 0, &[4; 4096]);
    array.flush().expect("the others have it");
    assert_eq!(standings(&array), [Standing::In, Standing::Out, Standing::In]);
    assert!(read(&array, 0, 4096) == [4; 4096] && read(&array, 4096, 4096) == expected[4096..8192]);
    rig.media[0].fail(Failure::once(Op::Sync));
    write(&array, 0, &[5; 4096]);
    array.flush().expect_err("too few would stay");
    assert_eq!(standings(&array)[0], Standing::In);
}

#[test]
fn what_cannot_be_read_is_computed_for_whoever_may_wait() {
    let rig = Rig::new(THREE, JOURNAL_BYTES + 2 * MIB, 43);
    let array = rig.open();
    let expected = noise(&mut Random::new(43), 64 << 10);
    write(&array, 0, &expected);
    array.close().expect("closed");
    drop(array);
    for array in [rig.open_without(&[0]), rig.open_without(&[0])] {
        let mut buffer = vec![0; expected.len()];
        // What it is computed from cannot be read at once.
        rig.media[1].fail(Failure::once(Op::Read));
        assert!(!array.try_read_at(0, &mut buffer).expect("readable"));
        array.read_at(0, &mut buffer).expect("readable");
        assert!(buffer == expected);
        buffer.fill(0);
        assert!(array.try_read_at(0, &mut buffer).expect("readable"));
        assert!(buffer == expected);
    }
}

#[test]
fn several_look_where_parity_agrees_and_find_what_one_finds() {
    let rig = Rig::new(THREE, JOURNAL_BYTES + 8 * MIB, 44);
    let array = rig.open();
    let expected = noise(&mut Random::new(44), array.len_bytes());
    write(&array, 0, &expected);
    array.close().expect("closed");
    drop(array);
    // Stripes in the first part that is looked at together, in a later one, and in the last one.
    for stripe in [3, 700, 701, 2047] {
        rig.media[1].rot(AREA_BYTES + JOURNAL_BYTES + stripe * 4096 + 9, 1);
    }
    let threads = Arc::new(Threads::default());
    let beside = rig.open_asked(Arc::<Threads>::clone(&threads));
    threads.asked.store(0, Ordering::SeqCst);
    let found = beside.disagreements(0, beside.len_bytes()).expect("readable");
    assert_eq!(threads.asked.load(Ordering::SeqCst), 1);
    let stripes: Vec<u64> = found.iter().map(|range| range.start / 8192).collect();
    assert_eq!(stripes, [3, 700, 701, 2047]);
    let part = beside.disagreements(700 * 8192 + 4096, 8192).expect("readable");
    assert_eq!(part, found[1..3]);
    drop(beside);
    let in_turn = rig.open();
    assert_eq!(in_turn.disagreements(0, in_turn.len_bytes()).expect("readable"), found);
}
