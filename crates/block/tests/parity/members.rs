//! Members that fail, rot, come back, are replaced.

use std::ops::Range;
use std::sync::Arc;

use hindsight_block::{Array, BlockDevice, Candidate, MediaDevice, Outcome, Resync, Standing};
use sim::{Failure, Op, Random, SimMedia};

use crate::rig::{
    AREA_BYTES, JOURNAL_BYTES, MIB, Rig, bring_up, copy, lose, noise, read, standings, wipe, write,
};

const DATA_BYTES: u64 = JOURNAL_BYTES + 2 * MIB;
const THREE: &str = "parity[chunk=4KiB,journal=64KiB](a, b, c)";
const FOUR: &str = "parity[failures=2,chunk=4KiB,journal=64KiB](a, b, c, d)";

/// Where the bytes of a stripe begin on every member.
fn place(stripe: u64) -> u64 {
    AREA_BYTES + JOURNAL_BYTES + stripe * 4096
}

#[test]
fn any_loss_is_read_and_written_around_and_made_good() {
    for (stack, failures) in [(THREE, 1), (FOUR, 2)] {
        let rig = Rig::new(stack, DATA_BYTES, 1);
        let mut random = Random::new(1);
        let array = rig.open();
        let len = array.len_bytes();
        let mut expected = noise(&mut random, len);
        write(&array, 0, &expected);
        array.close().expect("closed");
        drop(array);
        let count = rig.media.len();
        for lost in 0..count * count {
            let mut without = vec![lost / count, lost % count];
            without.dedup();
            if without.len() > failures {
                continue;
            }
            let array = rig.open_without(&without);
            assert!(read(&array, 0, len as usize) == expected, "without {without:?}");
            for _ in 0..20 {
                let at = random.below(len - 9000);
                let length = random.between(1, 9000);
                let bytes = noise(&mut random, length);
                write(&array, at, &bytes);
                expected[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
            }
            array.close().expect("closed");
            assert!(read(&array, 0, len as usize) == expected, "without {without:?}");
            drop(array);
            let array = rig.open();
            bring_up(&array);
            assert_eq!(standings(&array), vec![Standing::In; count]);
            for number in 0..=failures {
                assert!(copy(&array, number, 0, len as usize) == expected, "copy {number}");
            }
            array.close().expect("closed");
        }
        let all: Vec<usize> = (0..=failures).collect();
        assert!(rig.try_open(&all).is_err(), "one too many");
    }
}

#[test]
fn rot_is_healed_and_a_neighbour_that_is_written_takes_no_way_of_healing_it() {
    for (stack, failures) in [(THREE, 1), (FOUR, 2)] {
        let rig = Rig::new(stack, DATA_BYTES, 2);
        let array = rig.open();
        let expected = noise(&mut Random::new(2), 64 << 10);
        write(&array, 0, &expected);
        array.close().expect("closed");
        // Stripe 0 has its first data on the side after its parities.
        rig.media[failures - 1].rot(place(0) + 100, 3);
        assert_ne!(read(&array, 0, 4096), expected[..4096]);
        // Somebody writes the other cell of the row.
        write(&array, 4096, &[7; 4096]);
        array.flush().expect("a flush");
        let heal = || {
            let mut buffer = vec![0; 4096];
            let right = |bytes: &[u8]| bytes == &expected[..4096];
            let outcome = array.heal(0, &mut buffer, &right).expect("readable");
            (outcome, buffer == expected[..4096])
        };
        assert_eq!(heal(), (Outcome::Recovered, true));
        assert_eq!(heal(), (Outcome::Transient, true));
        assert_eq!(read(&array, 0, 4096), expected[..4096], "it was written back");
        for number in 0..=failures {
            assert_eq!(copy(&array, number, 0, 4096), expected[..4096]);
            assert_eq!(copy(&array, number, 4096, 4096), [7; 4096]);
        }
        assert_eq!(array.heal(0, &mut [0; 4096], &|_| false).expect("read"), Outcome::Agreed);
    }
}

#[test]
fn a_wrong_parity_is_computed_anew_and_by_nobody_before() {
    let rig = Rig::new(THREE, DATA_BYTES, 3);
    let array = rig.open();
    let expected = noise(&mut Random::new(3), 8192);
    write(&array, 0, &expected);
    array.close().expect("closed");
    rig.media[2].rot(place(0) + 9, 1);
    assert_ne!(copy(&array, 1, 0, 4096), expected[..4096]);
    let right = |bytes: &[u8]| bytes == &expected[..4096];
    let outcome = array.heal(0, &mut [0; 4096], &right).expect("readable");
    assert_eq!(outcome, Outcome::Transient);
    assert_ne!(copy(&array, 1, 0, 4096), expected[..4096]);
    array.resync(0, 4096, Resync::All).expect("computed");
    assert_eq!(copy(&array, 1, 0, 8192), expected);
}

/// Computes the parity anew of all that is in a range.
fn compute(array: &Array) -> Vec<Range<u64>> {
    let apart = array.disagreements(0, array.len_bytes()).expect("readable");
    apart.iter().for_each(|range| array.compute_again(range).expect("computed"));
    apart
}

#[test]
fn parity_is_computed_only_where_somebody_asks_for_it() {
    let rig = Rig::new(THREE, DATA_BYTES, 14);
    let array = rig.open();
    let expected = noise(&mut Random::new(14), array.len_bytes());
    write(&array, 0, &expected);
    array.close().expect("closed");
    assert_eq!(compute(&array), []);
    // Stripe 0 has its parity on the last side, stripe 3 as well.
    rig.media[2].rot(place(0) + 9, 1);
    rig.media[2].rot(place(3) + 9, 1);
    let apart = array.disagreements(0, array.len_bytes()).expect("readable");
    assert_eq!(apart, [0..8192, 24_576..32_768]);
    array.compute_again(&apart[0]).expect("computed");
    assert_eq!(copy(&array, 1, 0, 8192), expected[..8192]);
    assert_ne!(copy(&array, 1, 24_576, 8192), expected[24_576..32_768]);
    assert_eq!(compute(&array), apart[1..]);
    assert_eq!(compute(&array), []);
}

#[test]
fn a_cell_that_cannot_be_read_and_that_nobody_reads_does_not_keep_parity_from_being_looked_at() {
    let rig = Rig::new(THREE, DATA_BYTES, 16);
    let array = rig.open();
    let expected = noise(&mut Random::new(16), array.len_bytes());
    write(&array, 0, &expected);
    array.close().expect("closed");
    let range = Some(place(3)..place(3) + 512);
    rig.media[0].fail(Failure { range, times: Some(4), ..Failure::for_ever(Op::Read) });
    // A parity is wrong as well in stripe 0, where all can be read.
    rig.media[2].rot(place(0) + 9, 1);
    let apart = array.disagreements(0, array.len_bytes()).expect("written again");
    let first = 0..8192;
    assert_eq!(apart, [first]);
    assert_eq!(standings(&array), [Standing::In; 3]);
    assert!(array.take_events().iter().any(|event| event.what == "read-healed"));
    assert_eq!(read(&array, 0, expected.len()), expected);
}

#[test]
fn what_parity_is_computed_of_is_told_in_the_addresses_of_the_top() {
    const PART: &str = "parity[chunk=4KiB,journal=64KiB]";
    for stack in [
        format!("stripe[chunk=8KiB]({PART}(a, b, c), {PART}(d, e, f))"),
        format!("concat({PART}(a, b, c), {PART}(d, e, f))"),
    ] {
        let rig = Rig::new(&stack, 8 * MIB, 15);
        let array = rig.open();
        let len = array.len_bytes();
        let expected = noise(&mut Random::new(15), len);
        write(&array, 0, &expected);
        array.close().expect("closed");
        assert_eq!(compute(&array), [], "{stack}");
        let last = rig.media.len() - 1;
        for stripe in [60, 300, 1200] {
            // The parity of these is on the last side.
            rig.media[last].rot(place(stripe) + 9, 1);
            let apart = array.disagreements(0, len).expect("readable");
            assert_eq!(apart.len(), 1, "{stack}: stripe {stripe}, {apart:?}");
            let Range { start, end } = apart[0];
            assert!(start < end && end - start <= 64 << 10 && end <= len, "{stack}: {apart:?}");
            // Of the first of the stripe's chunks, which is there if it is anywhere.
            let device = MediaDevice::new(Arc::<SimMedia>::clone(&rig.media[last - 2]));
            let cell = read(&device, place(stripe), 4096);
            let range = &expected[start as usize..end as usize];
            assert!(range.chunks_exact(4096).any(|bytes| bytes == cell), "{stack}: {apart:?}");
            array.compute_again(&apart[0]).expect("computed");
            assert_eq!(compute(&array), [], "{stack}");
        }
    }
}

#[test]
fn a_read_that_fails_is_computed_and_written_again() {
    let rig = Rig::new(THREE, DATA_BYTES, 4);
    let array = rig.open();
    write(&array, 0, &[9; 8192]);
    array.close().expect("closed");
    rig.media[0].fail(Failure { times: Some(2), ..Failure::once(Op::Read) });
    rig.media[0].rot(place(0) + 5, 1);
    assert_eq!(read(&array, 0, 4096), [9; 4096]);
    assert_eq!(standings(&array), [Standing::In; 3]);
    assert_eq!(copy(&array, 0, 0, 4096), [9; 4096]);
    assert!(array.take_events().iter().any(|event| event.what == "read-healed"));
}

#[test]
fn whole_stripes_go_to_their_places_at_once_and_parts_through_the_journal() {
    let rig = Rig::new(THREE, DATA_BYTES, 5);
    let array = rig.open();
    write(&array, 0, &[1; 8192]);
    write(&array, 64 << 10, &[1; 4096]);
    array.close().expect("closed");
    rig.media.iter().for_each(|media| media.start_log());
    write(&array, 16 << 10, &[1; 8192]);
    let log = rig.media[0].take_log();
    let places: Vec<u64> =
        log.iter().filter(|r| r.offset >= AREA_BYTES).map(|r| r.offset).collect();
    assert!(places.contains(&place(2)) && places.iter().all(|&at| at >= place(0)), "{places:?}");
    // Two halves make a whole; a half waits.
    let log_of = |member: usize, request: &dyn Fn()| {
        rig.media[member].start_log();
        request();
        rig.media[member].take_log()
    };
    let is_in_place = |r: &sim::OpRecord| r.offset >= place(0);
    assert!(!log_of(0, &|| write(&array, 24 << 10, &[2; 4096])).iter().any(is_in_place));
    let log = log_of(0, &|| write(&array, 28 << 10, &[3; 4096]));
    assert!(log.iter().any(|r| r.offset == place(3)));
    write(&array, 32 << 10, &[4; 4096]);
    let log = log_of(1, &|| array.flush().expect("a flush"));
    let ops: Vec<(Op, bool)> = log
        .iter()
        .filter(|r| r.op != Op::Read && (r.op == Op::Sync || r.offset >= AREA_BYTES))
        .map(|r| (r.op, r.offset >= place(0)))
        .skip_while(|op| *op == (Op::Write, true))
        .collect();
    let expected = [(Op::Write, false), (Op::Sync, false), (Op::Write, true)];
    assert_eq!(ops, expected, "journal, flush, place");
    // It is in the journal now, so even as a whole it goes there again.
    assert!(!log_of(1, &|| write(&array, 32 << 10, &[5; 8192])).iter().any(is_in_place));
    assert_eq!(read(&array, 32 << 10, 8192), [5; 8192]);
    array.flush().expect("a flush");
    array.close().expect("closed");
    for number in 0..2 {
        assert_eq!(copy(&array, number, 32 << 10, 8192), [5; 8192]);
    }
}

#[test]
fn a_new_device_takes_the_place_of_a_member_and_gets_everything() {
    let mut rig = Rig::new(FOUR, DATA_BYTES, 6);
    let mut random = Random::new(6);
    let array = rig.open();
    let len = array.len_bytes();
    let mut expected = noise(&mut random, len);
    write(&array, 0, &expected);
    array.flush().expect("a flush");
    let fresh = Arc::new(SimMedia::filled(AREA_BYTES + DATA_BYTES, 77, 0x11));
    wipe(&fresh);
    let device = Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(&fresh)));
    let candidate = Candidate { path: "new".to_owned(), device: Some(device) };
    lose(&array, &rig.media[1], 1);
    array.replace(1, candidate, 71).expect("replaced");
    assert_eq!(standings(&array)[1], Standing::Stale);
    array.step().expect("a step");
    write(&array, 5000, b"between");
    expected[5000..5007].copy_from_slice(b"between");
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::In; 4]);
    write(&array, 9000, b"and after");
    expected[9000..9009].copy_from_slice(b"and after");
    array.flush().expect("a flush");
    drop(array);
    rig.media[1] = fresh;
    rig.crash(&mut random);
    // It and another are all there is.
    for without in [[0, 2], [2, 3], [0, 3]] {
        let array = rig.open_without(&without);
        assert!(read(&array, 0, len as usize) == expected, "without {without:?}");
        drop(array);
        let array = rig.open();
        bring_up(&array);
        array.close().expect("closed");
    }
}

#[test]
fn a_journal_of_an_earlier_life_is_not_taken() {
    let mut rig = Rig::new(THREE, DATA_BYTES, 7);
    let array = rig.open();
    for n in 0..9 {
        write(&array, n * 8192, &[1; 4096]);
        array.flush().expect("a flush");
    }
    drop(array);
    let media = std::mem::take(&mut rig.media);
    let fresh = Rig::new(THREE, DATA_BYTES, 8);
    // The labels and the whole journal of another array, but for two of its sides.
    let area = AREA_BYTES + JOURNAL_BYTES;
    for (from, to) in media.iter().zip(&fresh.media).skip(2) {
        let from = MediaDevice::new(Arc::<SimMedia>::clone(from));
        let to = MediaDevice::new(Arc::<SimMedia>::clone(to));
        let journal = read(&from, AREA_BYTES, JOURNAL_BYTES as usize);
        write(&to, AREA_BYTES, &journal);
        to.flush().expect("a flush");
    }
    let array = fresh.open();
    assert_eq!(read(&array, 0, 1), [fresh_byte(&fresh, area)], "nothing was placed");
}

#[test]
fn what_a_device_has_of_another_part_is_not_taken() {
    const PART: &str = "parity[chunk=4KiB,journal=64KiB]";
    let stack = format!("stripe[chunk=4KiB]({PART}(a, b, c), {PART}(d, e, f))");
    let mut rig = Rig::new(&stack, DATA_BYTES, 13);
    let area = AREA_BYTES + 2 * (64 << 10)..AREA_BYTES + JOURNAL_BYTES;
    let areas_of = |media: &Arc<SimMedia>| {
        let device = MediaDevice::new(Arc::<SimMedia>::clone(media));
        read(&device, area.start, (area.end - area.start) as usize)
    };
    let are_clear = |media: &Arc<SimMedia>| areas_of(media).iter().all(|&byte| byte == 0);
    assert!(rig.media.iter().all(are_clear), "whatever was there before");
    let id_of = |media: &Arc<SimMedia>| {
        read(&MediaDevice::new(Arc::<SimMedia>::clone(media)), AREA_BYTES + 16, 16)
    };
    assert_ne!(id_of(&rig.media[0]), id_of(&rig.media[3]), "each part has its own journal");
    assert_eq!(id_of(&rig.media[3]), id_of(&rig.media[5]));
    let array = rig.open();
    let expected = noise(&mut Random::new(13), 128 << 10);
    write(&array, 0, &expected);
    array.flush().expect("a flush");
    array.flush().expect("another");
    // Every second chunk is of the first part: five of them wait.
    let cells = 0..5;
    cells.clone().for_each(|n| write(&array, n * 32_768, &[9; 4096]));
    let used = Arc::new(rig.media[0].fork());
    assert!(!are_clear(&used), "there are entries");
    cells.clone().for_each(|n| write(&array, n * 32_768, &expected[..4096]));
    array.flush().expect("a flush");
    wipe(&used);
    let device = Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(&used)));
    let candidate = Candidate { path: "used".to_owned(), device: Some(device) };
    lose(&array, &rig.media[5], 5);
    array.replace(5, candidate, 71).expect("replaced");
    bring_up(&array);
    assert!(are_clear(&used), "what it had is gone");
    // Two wait in the other part.
    (0..2).for_each(|n| write(&array, n * 32_768 + 4096, &[7; 4096]));
    let before = read(&array, 0, 256 << 10);
    drop(array);
    rig.media[5] = used;
    rig.kill();
    let array = rig.open();
    assert!(read(&array, 0, 256 << 10) == before, "nothing else was placed");
}

fn fresh_byte(rig: &Rig, at: u64) -> u8 {
    read(&MediaDevice::new(Arc::<SimMedia>::clone(&rig.media[0])), at, 1)[0]
}

#[test]
fn what_a_missing_member_had_is_read_without_waiting() {
    for (stack, without) in [
        ("parity[journal=64KiB](a, b, c)", vec![1]),
        ("parity[journal=64KiB,chunk=4KiB](a, b, c, d, e)", vec![2]),
        ("parity[journal=64KiB,failures=2](a, b, c, d, e)", vec![0, 3]),
    ] {
        let rig = Rig::new(stack, JOURNAL_BYTES + MIB, 61);
        let mut random = Random::new(61);
        let array = rig.open();
        let length = array.len_bytes();
        let mut expected = noise(&mut random, length);
        write(&array, 0, &expected);
        array.close().expect("closed");
        drop(array);
        let array = rig.open_without(&without);
        let (mut asked, mut answered) = (0, 0);
        for round in 0..600 {
            let at = random.below(length - 9000);
            let count = 1 + random.below(9000);
            let bytes = noise(&mut random, count);
            write(&array, at, &bytes);
            expected[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
            if round % 50 == 0 {
                array.flush().expect("flushed");
            }
            let at = random.below(length - 9000) as usize;
            let mut found = vec![0; 1 + random.below(9000) as usize];
            asked += 1;
            if array.try_read_at(at as u64, &mut found).expect("read") {
                answered += 1;
                assert!(found == expected[at..at + found.len()], "{stack}: at {at}");
            }
        }
        // With two lost, rows that have lost their first parity as well are left to those who wait.
        let least = if without.len() == 1 { asked } else { asked / 4 };
        assert!(answered >= least, "{stack}: {answered} of {asked}");
        assert_eq!(read(&array, 0, length as usize), expected);
    }
}

#[test]
fn what_is_computed_without_waiting_is_never_of_two_states_of_a_row() {
    let rig = Rig::new("parity[journal=64KiB](a, b, c)", JOURNAL_BYTES + MIB, 62);
    let mut random = Random::new(62);
    let array = rig.open();
    let expected = noise(&mut random, array.len_bytes());
    write(&array, 0, &expected);
    array.close().expect("closed");
    drop(array);
    let array = rig.open_without(&[0]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    // Every other cell is written, the ones between are read.
    let cells = array.len_bytes() / 4096;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..300_u64 {
                let cell = random.below(cells / 2) * 2;
                write(&array, cell * 4096, &noise(&mut random, 4096));
                if round % 3 == 0 {
                    array.flush().expect("flushed");
                }
            }
            stop.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        let mut random = Random::new(63);
        let (mut asked, mut answered) = (0_u64, 0_u64);
        while !stop.load(std::sync::atomic::Ordering::SeqCst) || answered == 0 {
            let cell = random.below(cells / 2) * 2 + 1;
            let mut found = [0; 4096];
            asked += 1;
            if array.try_read_at(cell * 4096, &mut found).expect("read") {
                answered += 1;
                assert!(found == expected[cell as usize * 4096..][..4096], "cell {cell}");
            }
        }
        assert!(answered > asked / 10, "{answered} of {asked}");
    });
}
