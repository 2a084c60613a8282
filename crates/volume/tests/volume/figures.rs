//! What is told of space, against a count of everything that was ever written.

use std::collections::BTreeMap;

use hindsight_volume::{Budget, Granularity, Pool, Volume, VolumeChange, VolumeSpace};
use units::Moment;

use crate::hook::{Rig, SECOND_NS, make, put};

const ALL: Budget = Budget { bytes: 64 << 20 };
const HOUR_NS: u64 = 3600 * SECOND_NS;

fn step_all(pool: &Pool) {
    for _ in 0..10_000 {
        if !pool.step(ALL).expect("stepped") {
            return;
        }
    }
    panic!("background work never ends");
}

/// Every write there was, and what is pinned.
#[derive(Default)]
struct Written {
    /// Block, seq, time.
    writes: Vec<(u64, u64, u64)>,
    /// Seq and name.
    pins: BTreeMap<u64, String>,
}

impl Written {
    fn put(&mut self, rig: &Rig, volume: &Volume, block: u64) {
        let seq = put(volume, block, (self.writes.len() % 251) as u8);
        self.writes.push((block, seq.0, rig.clock_now()));
    }

    /// Each block that was written over: seqs of its write and of the next, and the latter's time.
    fn superseded(&self) -> Vec<(u64, u64, u64)> {
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        let mut all = Vec::new();
        for &(block, seq, time) in &self.writes {
            if let Some(before) = last.insert(block, seq) {
                all.push((before, seq, time));
            }
        }
        all
    }

    /// What the last pin to see a block holds, by pin: all, and what no other sees.
    fn held(&self) -> BTreeMap<u64, (u64, u64)> {
        let mut held: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (written, over, _) in self.superseded() {
            let mut seen = self.pins.range(written..over);
            if let Some((&pin, _)) = seen.next_back() {
                let one = held.entry(pin).or_default();
                *one = (one.0 + 4096, one.1 + if seen.next().is_none() { 4096 } else { 0 });
            }
        }
        held
    }

    fn check(&self, space: &VolumeSpace, now_ns: u64) {
        let mut blocks: Vec<u64> = self.writes.iter().map(|write| write.0).collect();
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!(space.live_bytes, blocks.len() as u64 * 4096);
        assert!(space.live_exact);
        let superseded = self.superseded();
        assert_eq!(space.history_bytes, superseded.len() as u64 * 4096);
        let told: u64 = space.ages.iter().map(|age| age.bytes).sum();
        assert_eq!(told + space.unsorted_bytes, space.history_bytes);
        assert_eq!(space.unsorted_bytes, 0);
        let mut begin = 0;
        for age in &space.ages {
            let end = age.below_ns.unwrap_or(u64::MAX);
            let is_so_old = |time: u64| (begin..end).contains(&(now_ns - time));
            let expected = superseded.iter().filter(|one| is_so_old(one.2)).count() * 4096;
            let off = age.bytes.abs_diff(expected as u64);
            assert!(off <= superseded.len() as u64 * 40, "{age:?} is not {expected}");
            begin = end;
        }
        let held = self.held();
        let pinned: u64 = held.values().map(|one| one.0).sum();
        assert_eq!(space.pinned_bytes, pinned);
        assert_eq!(space.holders.len(), self.pins.len());
        for holder in &space.holders {
            let (bytes, own) = held.get(&holder.first.0).copied().unwrap_or_default();
            assert_eq!(holder.names, [self.pins[&holder.first.0].clone()]);
            assert_eq!((holder.held_bytes, holder.own_bytes), (bytes, own), "{holder:?}");
        }
    }
}

/// Writes over the same 500 blocks, each at its own pace, with versions and marks on the way.
fn history(rig: &Rig, volume: &Volume, writes: u64) -> Written {
    let mut written = Written::default();
    for turn in 0..writes {
        let block = if turn % 3 == 0 { turn % 500 } else { turn % 7 };
        written.put(rig, volume, block);
        rig.clock.advance(50 * HOUR_NS / writes);
        if turn % (writes / 6) == writes / 12 {
            let version = volume.create_version("").expect("captured");
            written.pins.insert(version.stamp.seq.0, format!("v:{}", version.number));
        }
        if turn == writes / 2 {
            let mark = volume.create_mark("m", &Moment::Latest, true).expect("marked");
            written.pins.insert(mark.stamp.seq.0, "mark:m".to_owned());
        }
    }
    written
}

#[test]
fn what_a_small_volume_holds_is_told_at_once() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open_with(64 << 20);
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    let written = history(&rig, &volume, 3000);
    written.check(&volume.space_told().expect("told"), rig.clock_now());
    let info = volume.info().expect("told");
    assert_eq!(info.pinned_bytes, written.held().values().map(|one| one.0).sum::<u64>());
}

#[test]
fn figures_of_runs_are_what_counting_everything_says() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let mut pool = rig.open();
    let mut volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    let mut written = history(&rig, &volume, 24_000);
    // Until runs are merged the present is told as a bound, and the rest adds up all the same.
    let space = volume.space_told().expect("told");
    assert!(!space.live_exact && space.live_bytes >= 500 * 4096, "{space:?}");
    let ages: u64 = space.ages.iter().map(|age| age.bytes).sum();
    assert_eq!(ages + space.unsorted_bytes, space.history_bytes);
    assert_eq!(space.live_bytes + space.history_bytes, 24_000 * 4096);
    // A deletion has all of it merged; figures survive a restart.
    drop(volume);
    pool.close().expect("closed");
    drop(pool);
    pool = rig.open();
    volume = pool.volume("v").expect("there");
    volume.delete_version(2).expect("deleted");
    written.pins.retain(|_, name| name != "v:2");
    step_all(&pool);
    written.check(&volume.space_told().expect("told"), rig.clock_now());
    drop(volume);
    pool = rig.kill(pool);
    volume = pool.volume("v").expect("there");
    let before = volume.info().expect("told").device_io;
    written.check(&volume.space_told().expect("told"), rig.clock_now());
    let reads = |io: &[hindsight_volume::IoCount]| io.iter().map(|one| one.bytes).sum::<u64>();
    let read = reads(&volume.info().expect("told").device_io) - reads(&before);
    assert!(read <= 64 << 10, "{read} bytes were read to tell of space");
    pool.verify_invariants().expect("sound");
}

#[test]
fn what_left_the_window_is_held_by_pins_or_reclaimable() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open_with(64 << 20);
    let volume = make(&pool, Granularity::EveryWrite, HOUR_NS);
    for turn in 0..100 {
        put(&volume, 0, turn);
        if turn == 50 {
            volume.create_version("").expect("captured");
        }
    }
    let clone = pool.clone_volume("v", &Moment::Seq(units::Seq(20)), "c").expect("cloned");
    rig.clock.advance(2 * HOUR_NS);
    put(&volume, 1, 1);
    rig.clock.advance(2 * HOUR_NS);
    step_all(&pool);
    let space = volume.space_told().expect("told");
    assert_eq!(space.beyond_bytes, 2 * 4096, "{space:?}");
    let told: Vec<_> = space.holders.iter().map(|h| (h.names[0].as_str(), h.own_bytes)).collect();
    assert_eq!(told, [("clone c", 4096), ("v:0", 4096)]);
    assert_eq!(clone.space_told().expect("told").live_bytes, 4096);
}

#[test]
fn growth_is_measured_through_restarts_and_says_when_it_is_full() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let mut pool = rig.open();
    let mut volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    assert_eq!(pool.space().expect("told").growth, None, "nothing was measured");
    // Two MiB an hour for four hours, with a restart after each.
    for turn in 0..4 {
        for write in 0..512 {
            put(&volume, write % 100, turn);
        }
        rig.clock.advance(HOUR_NS);
        step_all(&pool);
        drop(volume);
        pool.close().expect("closed");
        drop(pool);
        pool = rig.open();
        volume = pool.volume("v").expect("there");
    }
    let growth = volume.growth().expect("measured");
    assert!(growth.measured_ns >= 3 * HOUR_NS, "{growth:?}");
    let expected = 48 << 20;
    let off = (growth.bytes_a_day - expected).abs();
    assert!(off < expected / 2, "{growth:?} is not about {expected} a day");
    let lasts = growth.lasts_ns(48 << 20).expect("it grows");
    assert!((12 * HOUR_NS..48 * HOUR_NS).contains(&lasts), "{lasts}");
    let of_pool = pool.space().expect("told").growth.expect("measured");
    assert!(of_pool.bytes_a_day > 0, "{of_pool:?}");
}

#[test]
fn new_data_does_not_count_against_the_history_limit() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    let limit =
        VolumeChange { history_limit_bytes: Some(Some(48 << 20)), ..VolumeChange::default() };
    volume.change(&limit).expect("set");
    // Half a MiB of new blocks an hour, in two halves.
    let mut block = 0;
    let mut hour = |write: &mut dyn FnMut(u64)| {
        for _ in 0..2 {
            (0..64).for_each(|_| {
                write(block);
                block += 1;
            });
            rig.clock.advance(HOUR_NS / 2);
            step_all(&pool);
        }
    };
    for _ in 0..4 {
        hour(&mut |block| {
            put(&volume, block, 1);
        });
    }
    assert!(volume.growth().expect("measured").bytes_a_day > 10 << 20, "the log grows");
    assert_eq!(volume.limit_lasts_ns().expect("told"), None, "but no history");
    // From now on as much is written over.
    for _ in 0..8 {
        hour(&mut |block| {
            put(&volume, block % 64, 2);
        });
    }
    let of_log = volume.growth().expect("measured");
    let of_history = volume.history_growth().expect("measured");
    assert!(of_history.bytes_a_day < of_log.bytes_a_day, "{of_history:?} {of_log:?}");
    let lasts = volume.limit_lasts_ns().expect("told").expect("it grows");
    assert!((4 * 24 * HOUR_NS..9 * 24 * HOUR_NS).contains(&lasts), "{} h", lasts / HOUR_NS);
}

#[test]
fn a_window_that_was_cut_short_says_so() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 100 * HOUR_NS);
    put(&volume, 1, 1);
    rig.clock.advance(HOUR_NS);
    let info = volume.info().expect("told");
    assert!(info.is_held, "everything since it was made");
    let mut turn = 0;
    while !pool.audit(0, 1000).expect("read").iter().any(|one| one.action == "sacrifice") {
        put(&volume, turn % 64, turn as u8);
        rig.clock.advance(SECOND_NS);
        turn += 1;
    }
    let info = volume.info().expect("told");
    assert!(!info.is_held && info.held_ns < 100 * HOUR_NS, "{} ns are held", info.held_ns);
}

/// A volume of so many bytes whose history is kept whatever its age, but no more of it than that.
fn wide(pool: &Pool, size_bytes: u64, limit: Option<u64>) -> std::sync::Arc<Volume> {
    let volume = make(pool, Granularity::EveryWrite, 1 << 60);
    let change = VolumeChange {
        size_bytes: Some(size_bytes),
        history_limit_bytes: Some(limit),
        grace_ns: Some(0),
        ..VolumeChange::default()
    };
    volume.change(&change).expect("set");
    volume
}

#[test]
fn history_that_waits_in_memory_is_told() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open_with(256 << 20);
    let volume = wide(&pool, 256 << 20, None);
    let trim = |offset: u64, length_bytes: u64| {
        let op = hindsight_volume::WriteOp::Zero { offset, length_bytes };
        volume.write_batch(&[op]).expect("trimmed");
    };
    let check = |live: u64, writes: u64| {
        assert_eq!(pool.status().pending_entries > 20_000, writes > 20_000, "all of it waits");
        let space = volume.space_told().expect("told");
        assert_eq!((space.live_bytes, space.live_exact), (live * 4096, true));
        // Entries of trims take a little in the log too.
        let more = space.history_bytes.checked_sub((writes - live) * 4096).expect("all is told");
        assert!(more <= 10 * 4096 && (live == 600) == (more == 0), "{more} bytes too much");
    };
    for turn in 0..25_000 {
        put(&volume, turn % 600, (turn % 251) as u8);
        if turn % 5000 == 4999 {
            check(600, turn + 1);
        }
    }
    trim(10 * 4096, 40 * 4096);
    check(560, 25_000);
    trim(0, 2 << 20);
    check(88, 25_000);
    put(&volume, 20, 1);
    check(89, 25_001);
    drop(volume);
    let pool = rig.kill(pool);
    let volume = pool.volume("v").expect("there");
    assert!(volume.info().expect("told").history_bytes >= 24_000 * 4096, "after a restart");
}

#[test]
fn a_clone_has_what_it_wrote_over_as_history() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open_with(64 << 20);
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    (0..200).for_each(|block| _ = put(&volume, block, 1));
    let clone = pool.clone_volume("v", &Moment::Latest, "c").expect("cloned");
    (0..100).for_each(|turn| _ = put(&clone, 7, turn));
    let space = clone.space_told().expect("told");
    assert_eq!((space.live_bytes, space.history_bytes), (200 * 4096, 99 * 4096));
    let now = clone.info().expect("told").latest.seq;
    clone.revert(&Moment::Seq(units::Seq(now.0 - 10)), false).expect("reverted");
    (0..200).for_each(|turn| _ = put(&clone, 8, turn));
    let space = clone.space_told().expect("told");
    // Of what was before the revert any version may be seen.
    assert!((199 * 4096..=298 * 4096).contains(&space.history_bytes), "{space:?}");
}

#[test]
fn telling_of_space_does_not_lock_up_with_captures() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    let (done, ends) = std::sync::mpsc::channel();
    for part in 0..2 {
        let (volume, done) = (std::sync::Arc::clone(&volume), done.clone());
        std::thread::spawn(move || {
            for turn in 0..1000 {
                if part == 0 {
                    put(&volume, turn % 8, 1);
                    volume.space_told().expect("told");
                } else {
                    let name = turn.to_string();
                    volume.create_mark(&name, &Moment::Latest, false).expect("marked");
                    volume.delete_mark(&name).expect("deleted");
                }
            }
            done.send(()).expect("awaited");
        });
    }
    for _ in 0..2 {
        ends.recv_timeout(std::time::Duration::from_secs(60)).expect("both end");
    }
}

#[test]
fn a_limit_bites_although_each_run_writes_over_what_others_hold() {
    let rig = Rig::new(1 << 30, 1 << 20);
    let pool = rig.open();
    let limit = 16 << 20;
    let volume = wide(&pool, 512 << 20, Some(limit));
    // 24,000 blocks in the first of 131,072: a bound by the size of the volume says nothing.
    let live = 24_000;
    let mut most = 0;
    for turn in 0..4 * live {
        put(&volume, turn % live, (turn % 251) as u8);
        if turn % 200 == 199 {
            step_all(&pool);
            let stored = pool.space().expect("told").stored_bytes;
            most = most.max(stored.saturating_sub(live * 4096));
        }
    }
    let allowed = limit + (live * 4096) / 4;
    assert!(most <= allowed, "{most} bytes of history where {limit} are allowed");
    pool.verify_invariants().expect("sound");
}
