//! Columns of a timeline against the sums of `history`, which reads every entry.

use std::sync::Arc;

use block::{BlockDevice, MediaDevice};
use history::{IoCount, IoKind};
use sim::{Random, SimClock, SimEntropy, SimMedia};
use units::{Moment, WallTime};

use super::edges;
use crate::types::{HistoryPage, TimelineColumns, VolumeSpec, WriteOp};
use crate::volume::Volume;
use crate::{ErrorKind, Machine, Pool, PoolFormat, PoolOptions};

const SECOND_NS: u64 = 1_000_000_000;

struct Rig {
    media: Arc<SimMedia>,
    clock: Arc<SimClock>,
    machine: Machine,
}

impl Rig {
    fn new() -> Rig {
        let media = Arc::new(SimMedia::new(256 << 20, 1));
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(1_795_255_200 * SECOND_NS)));
        let machine =
            Machine { clock: Arc::clone(&clock) as _, entropy: Arc::new(SimEntropy::new(1)) };
        let rig = Rig { media, clock, machine };
        let format = PoolFormat { zone_bytes: 1 << 20 };
        Pool::create(&rig.device(), &rig.machine, &format).expect("made");
        rig
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(MediaDevice::new(Arc::clone(&self.media) as _))
    }

    fn open(&self) -> Arc<Pool> {
        let options = PoolOptions { memory_bytes: 0 };
        Pool::open(self.device(), self.machine.clone(), options).expect("opened")
    }
}

fn make(pool: &Pool) -> Arc<Volume> {
    let spec = VolumeSpec { window_ns: 1 << 60, ..VolumeSpec::new("v", 8 << 20) };
    pool.create_volume(&spec).expect("made")
}

/// Writes, flushes, versions, reverts: now and then many at once, now and then nothing for long.
fn live(rig: &Rig, volume: &Volume, random: &mut Random, turns: u64) {
    for turn in 0..turns {
        rig.clock.advance(match random.below(20) {
            0 => 600 * SECOND_NS,
            1..4 => SECOND_NS,
            _ => 1 + random.below(1_000_000),
        });
        let bytes = vec![turn as u8; 4096 * (1 + random.below(4) as usize)];
        let op = WriteOp::Data { offset: 4096 * random.below(1000), bytes: &bytes };
        let seq = volume.write_batch(&[op]).expect("written");
        match random.below(200) {
            0 => drop(volume.create_version("").expect("captured")),
            1 => drop(volume.revert(&Moment::Seq(seq), false).expect("reverted")),
            2..20 => volume.flush().expect("flushed"),
            _ => {}
        }
        if turn % 700 == 699 {
            volume.flush_map().expect("flushed");
        }
    }
}

/// The same columns, of everything that was written when.
fn expected(page: &HistoryPage, told: &TimelineColumns, columns: usize) -> Vec<(u64, u64, u64)> {
    let edges = edges(told.since, told.until, columns);
    let sum = |i: usize| {
        let inside = page.buckets.iter().filter(|b| edges[i] < b.time && b.time <= edges[i + 1]);
        let all: Vec<_> = inside.collect();
        let of = |of: fn(&crate::Bucket) -> u64| all.iter().map(|bucket| of(bucket)).sum::<u64>();
        (of(|b| b.writes), of(|b| b.bytes), of(|b| b.flushes))
    };
    (0..columns).map(sum).collect()
}

fn check(volume: &Volume, since: Option<&Moment>, until: Option<&Moment>, columns: usize) {
    let what = format!("{since:?} to {until:?} in {columns}");
    let told = volume.timeline(since, until, columns).expect(&what);
    let page = volume.history(since, until, 1, usize::MAX).expect(&what);
    let got: Vec<_> = (0..columns)
        .map(|i| (told.seqs[i + 1].0 - told.seqs[i].0, told.bytes[i], told.flushes[i]))
        .collect();
    assert_eq!(got, expected(&page, &told, columns), "{what}");
    assert_eq!(told.events, page.events, "{what}");
    for event in &told.events {
        let column = told.column_of(event.stamp.time);
        assert!(column < columns, "{what}");
        if event.stamp.time > told.since && event.stamp.time <= told.until {
            let edges = edges(told.since, told.until, columns);
            let time = event.stamp.time;
            assert!(edges[column] < time && time <= edges[column + 1], "{what}: {event:?}");
        }
    }
}

/// Random ranges, by times and by seqs, in few and in many columns.
fn check_all(rig: &Rig, volume: &Volume, random: &mut Random) {
    let whole = volume.timeline(None, None, 1).expect("told");
    for columns in [1, 2, 7, 4000] {
        check(volume, None, None, columns);
    }
    let (first, last) = (whole.oldest.time.as_nanos(), whole.latest.time.as_nanos());
    let now = env::Clock::wall(&*rig.clock).as_nanos();
    for turn in 0..60 {
        let mut ends = [0, 0].map(|_| match random.below(3) {
            0 => random.between(first - SECOND_NS, now + SECOND_NS),
            // Near an entry, or its very time.
            _ => {
                let seq = random.between(whole.oldest.seq.0, whole.latest.seq.0);
                let time = volume.resolve(&Moment::Seq(units::Seq(seq))).expect("there").time;
                time.as_nanos() - random.below(2)
            }
        });
        ends.sort_unstable();
        let [since, until] = ends.map(|time| Moment::At(WallTime::from_nanos(time)));
        check(volume, Some(&since), Some(&until), [1, 2, 7, 90][turn % 4]);
    }
    let middle = Moment::Seq(units::Seq(whole.oldest.seq.0.midpoint(whole.latest.seq.0)));
    check(volume, Some(&middle), None, 7);
    check(volume, None, Some(&middle), 7);
    assert!(first < last, "something was written");
}

#[test]
fn columns_are_the_sums_of_history_across_reverts_and_what_is_only_in_memory() {
    for seed in 1..=4 {
        let rig = Rig::new();
        let random = &mut Random::new(seed);
        let pool = rig.open();
        let volume = make(&pool);
        check(&volume, None, None, 7);
        live(&rig, &volume, random, 200);
        assert!(volume.times().runs().is_empty(), "all of it is in memory");
        check_all(&rig, &volume, random);
        live(&rig, &volume, random, 3000);
        while volume.log().with_times(<[_]>::len) <= 100 {
            live(&rig, &volume, random, 50);
        }
        let in_memory = volume.log().with_times(<[_]>::len);
        let pages: u32 = volume.times().runs().iter().map(|run| run.pages.count).sum();
        assert!(in_memory > 100 && pages > 10, "{in_memory} in memory, {pages} pages");
        check_all(&rig, &volume, random);
        pool.close().expect("closed");
        drop((volume, pool));
        let pool = rig.open();
        let volume = pool.volume("v").expect("there");
        check_all(&rig, &volume, random);
        let clone = pool.clone_volume("v", &Moment::Latest, "c").expect("cloned");
        live(&rig, &clone, random, 500);
        check_all(&rig, &clone, random);
    }
}

#[test]
fn a_timeline_reads_few_pages_of_times_however_many_there_are() {
    let rig = Rig::new();
    let pool = rig.open();
    let volume = make(&pool);
    let mut reads = Vec::new();
    for _ in 0..2 {
        for turn in 0..20_000_u64 {
            rig.clock.advance(SECOND_NS / 10 + turn % 7 * 10_000_000);
            let op = WriteOp::Data { offset: 4096 * (turn % 500), bytes: &[1; 4096] };
            volume.write_batch(&[op]).expect("written");
        }
        volume.flush_map().expect("flushed");
        let before = volume.device_io();
        volume.timeline(None, None, 20).expect("told");
        let after = volume.device_io();
        let read = |counts: &[IoCount]| {
            let of_maps = counts.iter().filter(|count| count.kind == IoKind::MapRead);
            of_maps.map(|count| count.requests).sum::<u64>()
        };
        reads.push(read(&after) - read(&before));
    }
    assert!(reads[1] <= 60 && reads[1] <= reads[0] + 20, "{reads:?} reads of 20 columns");
}

#[test]
fn what_a_damaged_page_of_times_would_tell_is_an_error_and_no_sum() {
    let rig = Rig::new();
    let pool = rig.open();
    let volume = make(&pool);
    live(&rig, &volume, &mut Random::new(9), 2800);
    volume.flush_map().expect("flushed");
    let run = volume.times().runs().into_iter().max_by_key(|run| run.pages.count).expect("one");
    assert!(run.pages.count > 4, "{} pages", run.pages.count);
    // No look-up of another time comes by this one.
    let page = 1;
    let inside = run.page(&volume.core.store, page).expect("whole")[5].time;
    let mut pages = run.pages.list.iter().flat_map(|e| (0..e.count).map(|i| (e.zone, e.first + i)));
    let (zone, within) = pages.nth(page as usize).expect("it is somewhere");
    let offset = volume.core.store.zone_offset(zone) + u64::from(within) * 4096;
    rig.media.rot(offset + 100, 3);
    let at = Moment::At(inside);
    let error = volume.timeline(Some(&at), None, 3).expect_err("damaged");
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    let later = Moment::At(WallTime::from_nanos(run.last.time.as_nanos()));
    check(&volume, Some(&later), None, 7);
}

#[test]
fn no_columns_and_a_range_that_runs_backwards_are_refused() {
    let rig = Rig::new();
    let pool = rig.open();
    let volume = make(&pool);
    let kind =
        |since, until, columns| volume.timeline(since, until, columns).expect_err("refused").kind;
    assert_eq!(kind(None, None, 0), ErrorKind::Invalid);
    let [early, late] = [5, 9].map(|seconds| Moment::Ago(units::Span(seconds * SECOND_NS)));
    assert_eq!(kind(Some(&early), Some(&late), 5), ErrorKind::Invalid);
}
