//! The process ends, the machine goes on: what was answered is there. More of it in `crashes.rs`.

use std::io::IoSlice;

use hindsight_block::{Array, BlockDevice};
use sim::{Failure, Op, Random};

use crate::rig::{JOURNAL_BYTES, MIB, Rig, bring_up, copy, noise, read, write};

const DATA_BYTES: u64 = JOURNAL_BYTES + 2 * MIB;
const THREE: &str = "parity[chunk=4KiB,journal=64KiB](a, b, c)";
const CELL: u64 = 4096;

/// Ends the process and opens the array again.
fn killed(rig: &Rig, array: Array) -> Array {
    rig.media[0].halt_now();
    drop(array);
    rig.kill();
    rig.open()
}

#[test]
fn a_stripe_that_went_to_its_sides_is_not_written_over_by_what_waited_before() {
    let rig = Rig::new(THREE, DATA_BYTES, 31);
    let array = rig.open();
    // A part, then the whole; two halves, then the whole; a half again.
    write(&array, 0, &[1; 4096]);
    write(&array, 0, &[2; 8192]);
    write(&array, 8192, &[3; 4096]);
    write(&array, 12_288, &[4; 4096]);
    write(&array, 8192, &[5; 8192]);
    write(&array, 16_384, &[6; 4096]);
    write(&array, 16_384, &[7; 8192]);
    write(&array, 16_384 + 512, &[8; 512]);
    let array = killed(&rig, array);
    assert_eq!(read(&array, 0, 8192), [2; 8192]);
    assert_eq!(read(&array, 8192, 8192), [5; 8192]);
    let mut last = vec![7; 8192];
    last[512..1024].fill(8);
    assert_eq!(read(&array, 16_384, 8192), last);
    for number in 0..2 {
        assert_eq!(copy(&array, number, 16_384, 8192), last);
    }
}

#[test]
fn what_is_written_while_a_record_cannot_be_is_there_as_well() {
    let rig = Rig::new(THREE, DATA_BYTES, 32);
    let array = rig.open();
    write(&array, 0, &[1; 4096]);
    rig.media.iter().for_each(|media| media.fail(Failure::for_ever(Op::Read)));
    array.flush().expect_err("no parity can be computed");
    write(&array, 8192, &[2; 4096]);
    write(&array, 4 * 8192, &[3; 8192]);
    rig.media.iter().for_each(|media| media.calm());
    let array = killed(&rig, array);
    for _ in 0..2 {
        assert_eq!(read(&array, 0, 4096), [1; 4096]);
        assert_eq!(read(&array, 8192, 4096), [2; 4096]);
        assert_eq!(read(&array, 4 * 8192, 8192), [3; 8192]);
    }
    // A flush that succeeds again leaves nothing behind that an opening would take for newer.
    array.flush().expect("a flush");
    write(&array, 0, &[4; 8192]);
    let array = killed(&rig, array);
    assert_eq!(read(&array, 0, 4096), [4; 4096]);
}

#[test]
fn an_area_is_never_too_small_for_long() {
    let rig = Rig::new(THREE, DATA_BYTES, 33);
    let array = rig.open();
    // Nothing waits in the end, whatever the area is full of.
    for n in 0..100 {
        write(&array, 0, &[n; 4096]);
        write(&array, 4096, &[n; 4096]);
        write(&array, 8192 + u64::from(n), &[n]);
    }
    let array = killed(&rig, array);
    assert_eq!(read(&array, 0, 8192), [99; 8192]);
    assert_eq!(read(&array, 8192, 100), (0..100).collect::<Vec<u8>>());
}

/// What one of several writers wrote, and what it was writing in the end.
type Written = (Vec<u8>, Option<(usize, Vec<u8>)>);

/// Writes one cell of each four, until the machine halts.
fn keep_writing(array: &Array, mine: u64, mut bytes: Vec<u8>, mut random: Random) -> Written {
    loop {
        let cell = random.below(24) * 4 + mine;
        let (start, end) = match random.below(3) {
            0 => (0, CELL),
            1 => (512 * random.below(4), CELL - 512 * random.below(4)),
            _ => (random.below(1000), 1000 + random.below(3000)),
        };
        let from = cell * CELL + start;
        let new = noise(&mut random, end - start);
        if array.write_at(from, &[IoSlice::new(&new)]).is_err() {
            return (bytes, Some((from as usize, new)));
        }
        bytes[from as usize..from as usize + new.len()].copy_from_slice(&new);
    }
}

#[test]
fn several_writers_find_what_was_answered_while_others_flush() {
    for seed in 0..24 {
        let rig = Rig::new(THREE, DATA_BYTES, 100 + seed);
        let mut random = Random::new(seed);
        let mut expected = vec![0; 96 * CELL as usize];
        let array = rig.open();
        write(&array, 0, &expected);
        array.flush().expect("a flush");
        let mut array = Some(array);
        for _ in 0..3 {
            let open = array.take().expect("an array");
            rig.media[0].halt_after(50 + random.below(300));
            let written: Vec<Written> = std::thread::scope(|scope| {
                let writers: Vec<_> = (0..4)
                    .map(|mine| {
                        let (bytes, random) = (expected.clone(), random.fork());
                        let open = &open;
                        scope.spawn(move || keep_writing(open, mine, bytes, random))
                    })
                    .collect();
                scope.spawn(|| while open.flush().is_ok() {});
                writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
            });
            let open = killed(&rig, open);
            let found = read(&open, 0, expected.len());
            for (at, byte) in found.iter().enumerate() {
                let (bytes, under_way) = &written[at / CELL as usize % 4];
                let new =
                    under_way.as_ref().and_then(|(from, new)| new.get(at.wrapping_sub(*from)));
                assert!(*byte == bytes[at] || Some(byte) == new, "seed {seed}: byte {at}");
            }
            bring_up(&open);
            for number in 0..2 {
                assert!(copy(&open, number, 0, found.len()) == found, "seed {seed}: {number}");
            }
            expected = found;
            array = Some(open);
        }
    }
}
