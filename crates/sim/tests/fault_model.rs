//! Each sentence of the fault model, shown to be so: a simulator that is too kind hides the bugs it
//! is for.

use std::io::{ErrorKind, IoSlice};

use env::{Clock, Entropy, Media};
use hindsight_sim::{
    Failure, Keep, Op, Random, SECTOR_BYTES, SimClock, SimEntropy, SimMedia, Trick,
};
use units::WallTime;

const LEN_BYTES: u64 = 1 << 30;

fn write(media: &SimMedia, offset: u64, bytes: &[u8]) {
    media.write_at(offset, &[IoSlice::new(bytes)]).expect("a write within the media");
}

fn read(media: &SimMedia, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0x5a; length];
    media.read_at(offset, &mut buffer).expect("a read within the media");
    buffer
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_any_subset_of_the_rest() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let media = SimMedia::new(LEN_BYTES, seed);
        write(&media, 100, &[1; 4000]);
        media.sync().expect("a sync");
        write(&media, 100, &[2; 4000]);
        write(&media, 900_000, &[3; 100]);
        media.crash(&mut Random::new(seed));
        assert!(media.unsynced().is_empty());
        let seen = read(&media, 100, 4000);
        match (seen.contains(&1), seen.contains(&2)) {
            (true, false) => lost += 1,
            (false, true) => kept += 1,
            _ => torn += 1,
        }
        let boundaries = seen.windows(2).enumerate().filter(|(_, w)| w[0] != w[1]);
        for (index, _) in boundaries {
            assert_eq!((100 + index as u64 + 1) % SECTOR_BYTES, 0, "torn inside a sector");
        }
    }
    assert!(lost > 20 && kept > 20 && torn > 20, "lost {lost} kept {kept} torn {torn}");
}

#[test]
fn an_older_write_may_survive_a_newer_one_to_the_same_place() {
    let media = SimMedia::new(LEN_BYTES, 0);
    write(&media, 0, &[1; 512]);
    write(&media, 0, &[2; 512]);
    assert_eq!(read(&media, 0, 512), [2; 512]);
    let seen = media.unsynced();
    assert_eq!((seen.len(), seen[0].sectors, seen[0].length_bytes), (2, 1, 512));
    media.crash_with(&mut |index, _| if index == 0 { Keep::All } else { Keep::Nothing });
    assert_eq!(read(&media, 0, 512), [1; 512]);
}

#[test]
fn the_death_of_the_process_loses_nothing_but_makes_nothing_durable() {
    let media = SimMedia::new(LEN_BYTES, 0);
    write(&media, 0, &[1; 512]);
    media.kill();
    assert_eq!(read(&media, 0, 512), [1; 512]);
    media.crash_with(&mut |_, _| Keep::Nothing);
    assert_eq!(read(&media, 0, 512), [0; 512]);
}

#[test]
fn a_halt_stops_in_the_middle_of_a_change_and_stays() {
    let mut in_part = false;
    for seed in 0..20 {
        let media = SimMedia::new(LEN_BYTES, seed);
        media.halt_after(2);
        write(&media, 0, &[1; 4096]);
        media.sync().expect("the second change");
        assert!(!media.is_halted());
        assert!(media.write_at(0, &[IoSlice::new(&[2; 4096])]).is_err());
        assert!(media.is_halted());
        assert!(media.sync().is_err() && media.read_at(0, &mut [0; 1]).is_err());
        assert_eq!(media.changes(), 3);
        media.halt_now();
        assert!(media.sync().is_err());
        media.kill();
        let seen = read(&media, 0, 4096);
        in_part |= seen.contains(&1) && seen.contains(&2);
    }
    assert!(in_part);
}

#[test]
fn errors_strike_once_or_for_ever_and_in_their_range() {
    let media = SimMedia::new(LEN_BYTES, 5);
    media.fail(Failure { range: Some(4096..8192), after: 1, ..Failure::once(Op::Write) });
    let attempt = |offset| media.write_at(offset, &[IoSlice::new(&[1; 512])]).is_ok();
    assert_eq!(
        [attempt(0), attempt(4096), attempt(8191), attempt(4096)],
        [true, true, false, true]
    );
    media.fail(Failure::for_ever(Op::Read));
    assert!((0..3).all(|_| media.read_at(0, &mut [0; 1]).is_err()));
    media.calm();
    assert_eq!(read(&media, 0, 1), [1]);
}

#[test]
fn a_failed_sync_may_lose_writes_that_reads_still_return() {
    let mut lost = false;
    for seed in 0..20 {
        let media = SimMedia::new(LEN_BYTES, seed);
        write(&media, 0, &[1; 512]);
        media.fail(Failure::once(Op::Sync));
        assert!(media.sync().is_err());
        assert_eq!(read(&media, 0, 512), [1; 512]);
        media.sync().expect("the second one claims success");
        media.crash_with(&mut |_, _| Keep::All);
        lost |= read(&media, 0, 512) == [0; 512];
    }
    assert!(lost);
}

#[test]
fn a_halt_during_a_sync_loses_nothing_that_was_written() {
    for seed in 0..20 {
        let media = SimMedia::new(LEN_BYTES, seed);
        write(&media, 0, &[1; 512]);
        media.halt_after(0);
        assert!(media.sync().is_err());
        media.kill();
        media.sync().expect("the next process's sync");
        media.crash_with(&mut |_, _| Keep::Nothing);
        assert_eq!(read(&media, 0, 512), [1; 512]);
    }
}

#[test]
fn full_media_refuse_new_pages_and_go_on_with_old_ones() {
    let media = SimMedia::new(LEN_BYTES, 0);
    media.set_space_limit(Some(8 * 4096));
    media.allocate(0, 6 * 4096).expect("below the limit");
    write(&media, 100 * 4096, &[1; 4096]);
    assert_eq!(media.allocated_bytes(), 7 * 4096);
    let full = media.allocate(200 * 4096, 2 * 4096).expect_err("beyond the limit");
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    media.allocate(4096, 4096).expect("it is there already");
    write(&media, 0, &[2; 4096]);
    media.discard(0, 4 * 4096).expect("space given back");
    assert_eq!(media.allocated_bytes(), 3 * 4096);
    media.allocate(200 * 4096, 2 * 4096).expect("there is room again");
    media.set_space_limit(Some(0));
    let full = media.write_at(300 * 4096, &[IoSlice::new(&[1])]).expect_err("no page left");
    assert_eq!(full.kind(), ErrorKind::StorageFull);
}

#[test]
fn discarded_ranges_read_as_old_content_zeros_or_junk() {
    let mut seen = [false; 3];
    for seed in 0..30 {
        let media = SimMedia::new(LEN_BYTES, seed);
        write(&media, 0, &[1; 8192]);
        media.discard(1000, 5000).expect("a discard");
        let content = read(&media, 0, 8192);
        assert!(content[..1000].iter().chain(&content[6000..]).all(|&b| b == 1));
        let byte = content[1000];
        assert!(content[1000..6000].iter().all(|&b| b == byte));
        seen[[1, 0, 0xdd].iter().position(|&b| b == byte).expect("one of three")] = true;
    }
    assert_eq!(seen, [true; 3]);
}

#[test]
fn lies_are_told_once() {
    let media = SimMedia::new(LEN_BYTES, 0);
    write(&media, 0, &[1; 512]);
    media.trick(Trick::LoseWrite);
    media.trick(Trick::MisdirectWrite(8192));
    write(&media, 0, &[2; 512]);
    write(&media, 0, &[3; 512]);
    assert_eq!(read(&media, 0, 512), [1; 512]);
    media.trick(Trick::MisdirectRead(8192));
    assert_eq!(read(&media, 0, 512), [3; 512]);
    media.rot(0, 1);
    assert_eq!(read(&media, 0, 2), [3, 1]);
}

#[test]
fn a_large_media_costs_only_what_is_written_and_forks_go_their_own_ways() {
    let media = SimMedia::new(1 << 50 >> 8, 0);
    let end = media.len_bytes();
    write(&media, end - 3, &[1, 2, 3]);
    let fork = media.fork();
    write(&fork, end - 3, &[9]);
    assert_eq!(read(&media, end - 3, 3), [1, 2, 3]);
    assert_eq!(read(&fork, end - 3, 3), [9, 2, 3]);
    assert_ne!(media.digest(), fork.digest());
    let beyond = media.write_at(end - 2, &[IoSlice::new(&[0; 3])]).expect_err("beyond the end");
    assert_eq!(beyond.kind(), ErrorKind::InvalidInput);
}

#[test]
fn the_same_seed_and_calls_give_the_same_digest() {
    let run = |seed| {
        let media = SimMedia::new(LEN_BYTES, seed);
        let mut random = Random::new(seed);
        for _ in 0..500 {
            let offset = random.below(1 << 20);
            match random.below(10) {
                0 => drop(media.sync()),
                1 => drop(media.discard(offset, 5000)),
                2 => media.fail(Failure::once(Op::Write)),
                3 => media.crash(&mut random),
                _ => drop(media.write_at(offset, &[IoSlice::new(&[offset as u8; 3000])])),
            }
        }
        media.digest()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn the_record_shows_every_operation_and_whether_it_succeeded() {
    let media = SimMedia::new(LEN_BYTES, 0);
    media.start_log();
    write(&media, 512, &[1; 10]);
    media.fail(Failure::once(Op::Sync));
    assert!(media.sync().is_err());
    let log = media.take_log();
    let seen: Vec<_> = log.iter().map(|r| (r.op, r.offset, r.length_bytes, r.ok)).collect();
    assert_eq!(seen, [(Op::Write, 512, 10, true), (Op::Sync, 0, 0, false)]);
    assert!(media.take_log().is_empty());
}

#[test]
fn the_clock_moves_when_told_and_entropy_repeats() {
    let clock = SimClock::new(WallTime::from_nanos(1000));
    clock.advance(5);
    clock.set_wall(WallTime::from_nanos(3));
    assert_eq!((clock.wall().as_nanos(), clock.monotonic_ns()), (3, 5));
    let draw = |seed| {
        let entropy = SimEntropy::new(seed);
        [entropy.next_u64(), entropy.next_u64()]
    };
    assert_eq!(draw(4), draw(4));
    assert_ne!(draw(4), draw(5));
    assert_ne!(draw(4)[0], draw(4)[1]);
}

#[test]
fn somewhere_is_each_page_that_has_space_as_often() {
    let media = SimMedia::new(1 << 30, 5);
    // Far apart, so that few of all pages have space.
    let pages = [0, 1, 2, 3, 900, 5_000, 5_001, 200_000];
    for page in pages {
        write(&media, page * 4096, &[1]);
    }
    let mut random = Random::new(9);
    let mut counts = [0; 8];
    for _ in 0..8_000 {
        let at = media.somewhere(0..u64::MAX, &mut random).expect("there is some");
        let page = pages.iter().position(|&page| page == at / 4096).expect("one that has space");
        counts[page] += 1;
    }
    assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    let within = media.somewhere(4096..4097 + 4096, &mut random).expect("there is one");
    assert_eq!(within / 4096, 1, "of the pages that lie in the range as a whole");
    assert_eq!(media.somewhere(4 * 4096..900 * 4096, &mut random), None);
}
