//! Changing a volume's architecture: at once, behind it the work, and the past stays what it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::{BlockDevice, MediaDevice, Operation};
use hindsight_volume::{
    Architecture, Budget, CacheChange, ErrorKind, Granularity, IoKind, Machine, Pool, PoolFormat,
    PoolOptions, Volume, VolumeChange, VolumeSpec, WriteOp,
};
use sim::{Random, SimClock, SimEntropy, SimMedia};
use units::{Moment, Seq, WallTime};

use crate::hook;

const BLOCK: u64 = 4096;
const SIZE_BYTES: u64 = 3 << 20;
const ZONE_BYTES: u64 = 256 << 10;
const WINDOW_NS: u64 = 1 << 60;
/// A block that only one version has, which nothing else looks like.
const MARKED: u64 = 100;
const MARK: u8 = 0xee;

/// A pool on simulated media.
struct Rig {
    media: Arc<SimMedia>,
    clock: Arc<SimClock>,
    pool: Option<Arc<Pool>>,
}

impl Rig {
    fn new(media_bytes: u64) -> Rig {
        let media = Arc::new(SimMedia::filled(media_bytes, 5, 0xdd));
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(1 << 60)));
        let mut rig = Rig { media, clock, pool: None };
        let format = PoolFormat { zone_bytes: ZONE_BYTES };
        Pool::create(&rig.device(), &rig.machine(), &format).expect("a pool on empty media");
        rig.open();
        rig
    }

    fn machine(&self) -> Machine {
        let entropy = Arc::new(SimEntropy::new(self.media.changes()));
        Machine { clock: Arc::<SimClock>::clone(&self.clock), entropy }
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(&self.media)))
    }

    fn open(&mut self) -> Arc<Volume> {
        let options = PoolOptions { memory_bytes: 4 << 20 };
        let pool = Pool::open(self.device(), self.machine(), options).expect("opens");
        let volume = pool.volume("v");
        self.pool = Some(pool);
        volume.unwrap_or_else(|_| self.make(Architecture::Logging))
    }

    fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().expect("open")
    }

    fn make(&self, architecture: Architecture) -> Arc<Volume> {
        let spec =
            VolumeSpec { architecture, window_ns: WINDOW_NS, ..VolumeSpec::new("v", SIZE_BYTES) };
        self.pool().create_volume(&spec).expect("made")
    }

    fn restart(&mut self) -> Arc<Volume> {
        self.pool().close().expect("closed");
        self.pool = None;
        self.open()
    }

    fn kill(&mut self) -> Arc<Volume> {
        self.media.halt_now();
        self.pool = None;
        self.media.kill();
        self.open()
    }

    fn cut_power(&mut self) -> Arc<Volume> {
        self.media.halt_now();
        self.pool = None;
        self.media.crash(&mut Random::new(3));
        self.open()
    }

    fn step(&self) -> bool {
        self.pool().step(Budget { bytes: 64 << 10 }).expect("a step")
    }

    fn settle(&self) {
        while self.step() {}
    }

    /// Some seconds pass.
    fn rest(&self) {
        self.clock.advance(6_000_000_000);
        self.settle();
    }

    fn audited(&self, action: &str) -> Vec<String> {
        let records = self.pool().audit(0, usize::MAX).expect("the audit log");
        records.into_iter().filter(|r| r.action == action).map(|r| r.detail).collect()
    }
}

/// The change of architecture, with a cache where one is needed and without one elsewhere.
fn to(architecture: Architecture) -> VolumeChange {
    let bytes = if architecture.needs_cache() { 256 << 10 } else { 0 };
    let cache = CacheChange { bytes: Some(bytes), dirty_percent: None };
    VolumeChange { architecture: Some(architecture), cache, ..VolumeChange::default() }
}

fn put(volume: &Volume, block: u64, byte: u8, blocks: u64) -> Seq {
    let bytes = vec![byte; (blocks * BLOCK) as usize];
    volume.write_batch(&[WriteOp::Data { offset: block * BLOCK, bytes: &bytes }]).expect("written")
}

fn content(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xee; volume.size_bytes() as usize];
    volume.read(0, &mut bytes).expect("read");
    bytes
}

fn requests(volume: &Volume, kind: IoKind) -> u64 {
    let info = volume.info().expect("info");
    info.device_io.iter().find(|count| count.kind == kind).expect("every kind is told").requests
}

/// What every moment of a volume must show.
#[derive(Default)]
struct Story {
    moments: BTreeMap<u64, Vec<u8>>,
    present: Vec<u8>,
}

impl Story {
    fn new() -> Story {
        Story { moments: BTreeMap::new(), present: vec![0; SIZE_BYTES as usize] }
    }

    fn scribble(&mut self, volume: &Volume, random: &mut Random, times: u64) {
        for _ in 0..times {
            let block = random.below(SIZE_BYTES / BLOCK);
            let byte = random.below(200) as u8 + 1;
            let length = random.between(1, 4).min(SIZE_BYTES / BLOCK - block);
            let seq = put(volume, block, byte, length);
            self.present[(block * BLOCK) as usize..][..(length * BLOCK) as usize].fill(byte);
            if random.chance(30) {
                self.moments.insert(seq.0, self.present.clone());
            }
        }
    }

    fn check(&self, volume: &Arc<Volume>, what: &str) {
        assert!(content(volume) == self.present, "{what}: the present");
        for (&seq, expected) in &self.moments {
            let view = volume.view(&Moment::Seq(Seq(seq))).expect("in the window");
            let mut bytes = vec![0xee; view.size_bytes() as usize];
            view.read(0, &mut bytes).expect("read");
            assert!(bytes == *expected, "{what}: seq {seq}");
        }
    }
}

fn pairs() -> impl Iterator<Item = (Architecture, Architecture)> {
    let all = Architecture::ALL;
    all.into_iter().flat_map(move |a| all.into_iter().map(move |b| (a, b))).filter(|(a, b)| a != b)
}

/// Writes until something has settled where the architecture puts it.
fn with_a_past(rig: &Rig, from: Architecture, random: &mut Random) -> (Arc<Volume>, Story) {
    let volume = rig.pool().volume("v").expect("there");
    volume.change(&to(from)).expect("the first architecture");
    rig.settle();
    let mut story = Story::new();
    story.scribble(&volume, random, 300);
    let version = volume.create_version("before").expect("a version");
    story.moments.insert(version.stamp.seq.0, story.present.clone());
    for _ in 0..3 {
        story.scribble(&volume, random, 200);
        volume.flush().expect("flushed");
        rig.settle();
    }
    if from.has_base() {
        settle_at_home(rig, &volume, &mut story, random);
    }
    (volume, story)
}

/// Brings blocks home: with captures only, what is there has settled.
fn settle_at_home(rig: &Rig, volume: &Arc<Volume>, story: &mut Story, random: &mut Random) {
    let set =
        |granularity| VolumeChange { granularity: Some(granularity), ..VolumeChange::default() };
    volume.change(&set(Granularity::OnDemand)).expect("captures only");
    story.scribble(volume, random, 200);
    let version = volume.create_version("again").expect("a version");
    story.moments.insert(version.stamp.seq.0, story.present.clone());
    while volume.info().expect("info").base_bytes == 0 {
        volume.delete_version(volume.create_version("").expect("one").number).expect("gone");
        for block in 0..200 {
            let byte = if block == MARKED { MARK } else { 8 };
            put(volume, block, byte, 1);
            story.present[(block * BLOCK) as usize..][..BLOCK as usize].fill(byte);
        }
        volume.delete_version(volume.create_version("").expect("one").number).expect("gone");
        (0..70).for_each(|_| _ = put(volume, SIZE_BYTES / BLOCK - 1, 9, 1));
        story.present[(SIZE_BYTES - BLOCK) as usize..].fill(9);
        rig.settle();
    }
    let pinned = volume.versions().expect("versions");
    story.moments.retain(|&seq, _| pinned.iter().any(|v| v.stamp.seq.0 == seq));
    volume.change(&set(Granularity::EveryWrite)).expect("all of it again");
}

#[test]
fn every_architecture_becomes_every_other_and_the_past_stays_what_it_was() {
    for (from, target) in pairs() {
        let what = format!("{} to {}", from.name(), target.name());
        let mut rig = Rig::new(128 << 20);
        let mut random = Random::new(7);
        let (volume, mut story) = with_a_past(&rig, from, &mut random);
        story.check(&volume, &what);
        volume.change(&to(target)).expect("changed");
        assert_eq!(volume.info().expect("info").architecture, target, "{what}: at once");
        story.check(&volume, &what);
        story.scribble(&volume, &mut random, 50);
        rig.step();
        story.check(&volume, &what);
        volume.flush().expect("flushed");
        drop(volume);
        for (index, reopen) in [Rig::restart, Rig::kill, Rig::cut_power].into_iter().enumerate() {
            let volume = reopen(&mut rig);
            assert_eq!(volume.info().expect("info").architecture, target, "{what}");
            story.check(&volume, &format!("{what}, opened again {index}"));
            (0..3).for_each(|_| _ = rig.step());
            story.scribble(&volume, &mut random, 30);
            rig.pool().verify_invariants().unwrap_or_else(|e| panic!("{what}: {e}"));
            volume.flush().expect("flushed");
        }
        let volume = rig.pool().volume("v").expect("there");
        rig.settle();
        let info = volume.info().expect("info");
        assert_eq!(info.conversion, None, "{what}: it ends");
        // What was written last comes home within seconds, or once it has settled.
        (0..4).for_each(|_| rig.rest());
        let info = volume.info().expect("info");
        let late_bytes = if target == Architecture::Redirect { 128 << 12 } else { 0 };
        assert!(info.unplaced_bytes <= late_bytes, "{what}: {}", info.unplaced_bytes);
        assert!(target.has_base() || info.base_bytes == 0, "{what}: the base is empty");
        story.check(&volume, &format!("{what}, at the end"));
        rig.pool().verify_invariants().unwrap_or_else(|e| panic!("{what}: {e}"));
        let expected = format!("from {} to {}", from.name(), target.name());
        assert_eq!(rig.audited("convert").last(), Some(&expected));
        assert_eq!(rig.audited("converted").last(), Some(&expected));
        if target.has_current_store() && !target.needs_cache() {
            let before = requests(&volume, IoKind::HistoryRead);
            assert!(content(&volume) == story.present);
            let logged = requests(&volume, IoKind::HistoryRead) - before;
            assert_eq!(logged, 0, "{what}: all of the present is read in place");
        }
    }
}

#[test]
fn what_the_old_one_held_is_given_back() {
    for from in [Architecture::SplitStream, Architecture::Redirect, Architecture::Checkpointing] {
        let mut rig = Rig::new(128 << 20);
        let (volume, story) = with_a_past(&rig, from, &mut Random::new(9));
        assert!(rig.pool().status().current_bytes > 0, "{}", from.name());
        volume.change(&to(Architecture::Logging)).expect("changed");
        rig.settle();
        assert_eq!(rig.pool().status().current_bytes, 0, "{}", from.name());
        drop(volume);
        let volume = rig.restart();
        assert_eq!(rig.pool().status().current_bytes, 0, "{}", from.name());
        story.check(&volume, from.name());
        rig.pool().verify_invariants().expect("the invariants");
    }
}

#[test]
fn progress_is_told_and_goes_on_after_a_kill() {
    let mut rig = Rig::new(128 << 20);
    let (volume, story) = with_a_past(&rig, Architecture::Redirect, &mut Random::new(4));
    volume.change(&to(Architecture::SplitStream)).expect("changed");
    let told = volume.info().expect("info").conversion.expect("under way");
    assert_eq!((told.from, told.to), (Architecture::Redirect, Architecture::SplitStream));
    assert_eq!(told.done_bytes, 0);
    assert!(told.total_bytes > 0);
    let mut done = Vec::new();
    drop(volume);
    let volume = rig.kill();
    while let Some(told) = volume.info().expect("info").conversion {
        assert!(told.done_bytes <= told.total_bytes);
        done.push(told.done_bytes);
        rig.step();
    }
    done.dedup();
    assert!(done.len() > 3, "progress was seen: {done:?}");
    story.check(&volume, "at the end");
}

#[test]
fn a_change_meanwhile_goes_elsewhere_or_back() {
    let all = Architecture::ALL;
    let mut random = Random::new(11);
    let mut rig = Rig::new(128 << 20);
    let (mut volume, mut story) = with_a_past(&rig, Architecture::Redirect, &mut random);
    for round in 0..60 {
        let target = all[random.below(all.len() as u64) as usize];
        volume.change(&to(target)).expect("changed");
        story.scribble(&volume, &mut random, 8);
        (0..random.below(6)).for_each(|_| _ = rig.step());
        if random.chance(200) {
            volume.flush().expect("flushed");
            drop(volume);
            volume = rig.kill();
        }
        if round % 6 == 5 {
            story.check(&volume, &format!("round {round}"));
            rig.pool().verify_invariants().expect("the invariants");
        }
    }
    rig.settle();
    assert_eq!(volume.info().expect("info").conversion, None);
}

#[test]
fn reverts_resizes_clones_and_deletes_go_on_meanwhile() {
    for (from, target) in pairs() {
        let what = format!("{} to {}", from.name(), target.name());
        let rig = Rig::new(160 << 20);
        let (volume, mut story) = with_a_past(&rig, from, &mut Random::new(2));
        volume.change(&to(target)).expect("changed");
        rig.step();
        let version = volume.versions().expect("versions")[0].clone();
        let clone = rig.pool().clone_volume("v", &Moment::Version(0), "c").expect("cloned");
        assert_eq!(clone.info().expect("info").architecture, target);
        assert_eq!(clone.info().expect("info").conversion, None);
        volume.revert(&Moment::Version(0), false).expect("reverted");
        story.present = story.moments[&version.stamp.seq.0].clone();
        story.check(&volume, &format!("{what}: reverted"));
        assert!(content(&clone) == story.present, "{what}: the clone");
        rig.step();
        volume.resize(SIZE_BYTES + BLOCK).expect("resized");
        story.present.resize((SIZE_BYTES + BLOCK) as usize, 0);
        assert!(content(&volume) == story.present, "{what}: resized");
        put(&clone, 3, 0x33, 2);
        rig.step();
        assert!(content(&volume) == story.present, "{what}: the clone has its own");
        rig.pool().verify_invariants().unwrap_or_else(|e| panic!("{what}: {e}"));
        rig.pool().delete_volume("v").expect("deleted");
        rig.settle();
        let mut expected = story.moments[&version.stamp.seq.0].clone();
        expected[(3 * BLOCK) as usize..(5 * BLOCK) as usize].fill(0x33);
        assert!(content(&clone) == expected, "{what}: the clone has what it needs");
        rig.pool().delete_volume("c").expect("deleted");
        rig.settle();
        assert_eq!(rig.pool().status().current_bytes, 0, "{what}");
        rig.pool().verify_invariants().unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

#[test]
fn writers_and_readers_do_not_notice() {
    let rig = Rig::new(256 << 20);
    let volume = rig.pool().volume("v").expect("there");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3_u64)
            .map(|writer| {
                let volume = &volume;
                scope.spawn(move || write_own_range(volume, writer))
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                rig.step();
            }
        });
        scope.spawn(|| {
            let mut random = Random::new(5);
            while !done.load(Ordering::SeqCst) {
                let target = Architecture::ALL[random.below(5) as usize];
                volume.change(&to(target)).expect("changed");
                (0..random.below(2000)).for_each(|_| std::thread::yield_now());
            }
        });
        let ranges: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::SeqCst);
        for (writer, mine) in (0..).zip(ranges) {
            let mine = mine.expect("the writer found nothing wrong");
            let mut seen = vec![0; mine.len()];
            volume.read(writer * 700_001, &mut seen).expect("a read");
            assert!(seen == mine, "range of writer {writer} at the end");
        }
    });
    rig.pool().verify_invariants().expect("the invariants");
    assert_eq!(volume.info().expect("info").counters.rotten_places, 0, "no place was stale");
}

/// Writes in a range that shares blocks with its neighbours', and reads it back.
fn write_own_range(volume: &Volume, writer: u64) -> Vec<u8> {
    let mut random = Random::new(writer);
    let start = writer * 700_001;
    let mut mine = vec![0; 700_001];
    for turn in 0..600 {
        let offset = random.below(700_000);
        let length = random.between(1, 20_000).min(700_001 - offset);
        let range = offset as usize..(offset + length) as usize;
        random.fill(&mut mine[range.clone()]);
        let op = WriteOp::Data { offset: start + offset, bytes: &mine[range] };
        volume.write_batch(&[op]).expect("a write");
        if turn % 8 == 0 {
            let mut seen = vec![0; mine.len()];
            volume.read(start, &mut seen).expect("a read");
            assert!(seen == mine, "writer {writer} turn {turn}: its range changed under it");
        }
    }
    mine
}

#[test]
fn a_write_that_finds_another_store_when_it_gets_its_seq_is_made_again() {
    let rig = hook::Rig::new(64 << 20, 1 << 20);
    let pool = rig.open();
    let volume = hook::make(&pool, Granularity::EveryWrite, WINDOW_NS);
    let first = hook::put(&volume, 5, 1);
    volume.change(&to(Architecture::SplitStream)).expect("changed");
    // The first write takes a slab: while it does, the store goes and another comes and is filled.
    let (is_first, inner) = (AtomicBool::new(true), (Arc::clone(&pool), Arc::clone(&volume)));
    rig.device.hook(move |operation, _| {
        if operation != Operation::Allocate || !is_first.swap(false, Ordering::SeqCst) {
            return;
        }
        let (pool, volume) = inner.clone();
        let other = std::thread::spawn(move || {
            volume.change(&to(Architecture::Logging)).expect("changed");
            volume.change(&to(Architecture::SplitStream)).expect("and back");
            while pool.step(Budget { bytes: 1 << 20 }).expect("a step") {}
            assert_eq!(volume.info().expect("info").unplaced_bytes, 0);
        });
        other.join().expect("the other thread");
    });
    hook::put(&volume, 5, 2);
    rig.device.unhook();
    pool.verify_invariants().expect("what is trusted is what the map says");
    assert_eq!(hook::get(&volume, 5), 2);
    assert_eq!(volume.info().expect("info").counters.rotten_places, 0);
    let view = volume.view(&Moment::Seq(first)).expect("the past");
    let mut bytes = [0; 4096];
    view.read(5 * BLOCK, &mut bytes).expect("read");
    assert_eq!(bytes, [1; 4096]);
    drop(view);
    // Nor was the slab lost that the write took for a store that had gone.
    let used = pool.status().used_bytes;
    let slabs = pool.status().current_bytes;
    drop(volume);
    pool.close().expect("closed");
    drop(pool);
    let pool = rig.open();
    assert_eq!((pool.status().used_bytes, pool.status().current_bytes), (used, slabs));
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let rig = Rig::new(64 << 20);
    let volume = rig.pool().volume("v").expect("there");
    volume.change(&to(Architecture::SplitDownstream)).expect("with its cache");
    rig.settle();
    let bare =
        |architecture| VolumeChange { architecture: Some(architecture), ..VolumeChange::default() };
    let without = CacheChange { bytes: Some(0), dirty_percent: None };
    let error = volume
        .change(&VolumeChange { cache: without, ..VolumeChange::default() })
        .expect_err("it needs its cache");
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert_eq!(volume.info().expect("info").architecture, Architecture::SplitDownstream);
    volume.change(&bare(Architecture::Redirect)).expect("which may keep it");
    rig.settle();
    assert_eq!(rig.audited("converted").len(), 2);
    volume.change(&bare(Architecture::Logging)).expect("this too");
    rig.settle();
    rig.settle();
    assert!(volume.info().expect("info").cache.is_some());
    volume.change(&to(Architecture::Logging)).expect("nothing but the cache");
    assert_eq!(rig.audited("convert").len(), 3);
    assert_eq!(rig.audited("converted").len(), 3);
}

#[test]
fn a_pool_without_room_says_so_or_waits() {
    let mut rig = Rig::new(16 << 20);
    let volume = rig.pool().volume("v").expect("there");
    // More than half of what there is: twice does not fit.
    let spec = VolumeSpec {
        granularity: Granularity::OnDemand,
        window_ns: 0,
        ..VolumeSpec::new("big", 8 << 20)
    };
    let big = rig.pool().create_volume(&spec).expect("made");
    (0..1500).for_each(|block| _ = put(&big, block, 6, 1));
    let error = big.change(&to(Architecture::SplitStream)).expect_err("no room");
    assert_eq!(error.kind, ErrorKind::Full);
    assert!(error.message.contains("available"), "{error}");
    assert_eq!(big.info().expect("info").architecture, Architecture::Logging);
    // Little more fits, so that what would be taken is left to others.
    (0..200).for_each(|block| _ = put(&volume, block, 5, 1));
    volume.change(&to(Architecture::SplitStream)).expect("a small one fits");
    (0..200).for_each(|_| _ = rig.step());
    let waits = volume.info().expect("info").conversion;
    assert!(waits.is_some(), "less than a quarter is free");
    rig.pool().delete_volume("big").expect("deleted");
    drop((big, volume));
    let volume = rig.restart();
    rig.settle();
    assert_eq!(volume.info().expect("info").conversion, None, "then it goes on");
    assert_eq!(content(&volume)[..(200 * BLOCK) as usize], vec![5; (200 * BLOCK) as usize]);
}

#[test]
fn a_base_is_left_as_far_as_there_is_room_and_nothing_is_done_in_vain() {
    for zones_left in [0, 1, 3] {
        let mut rig = Rig::new(64 << 20);
        let (volume, mut story) = with_a_past(&rig, Architecture::Redirect, &mut Random::new(8));
        // All of it at home, so that every slab is full.
        let captures = Some(Granularity::OnDemand);
        let change = VolumeChange { granularity: captures, ..VolumeChange::default() };
        volume.change(&change).expect("captures only");
        volume.versions().expect("versions").iter().for_each(|version| {
            volume.delete_version(version.number).expect("deleted");
        });
        (0..SIZE_BYTES / BLOCK).for_each(|block| _ = put(&volume, block, 3, 1));
        (story.moments, story.present) = (BTreeMap::new(), vec![3; SIZE_BYTES as usize]);
        drop(volume);
        let volume = rig.restart();
        for _ in 0..2 {
            let number = volume.create_version("").expect("a version").number;
            volume.delete_version(number).expect("deleted");
            rig.settle();
        }
        assert_eq!(volume.info().expect("info").base_bytes, SIZE_BYTES);
        let spec = VolumeSpec { window_ns: WINDOW_NS, ..VolumeSpec::new("big", 64 << 20) };
        let big = rig.pool().create_volume(&spec).expect("made");
        let left = || {
            let status = rig.pool().status();
            let zones = |bytes: u64| bytes / ZONE_BYTES;
            zones(status.available_bytes).saturating_sub(zones(status.map_bytes) + 2)
        };
        let mut block = 0;
        loop {
            rig.settle();
            if left() <= zones_left {
                break;
            }
            put(&big, block % (16 << 10), 4, 8);
            block += 8;
        }
        volume.change(&to(Architecture::Logging)).expect("changed");
        let writes = || rig.media.changes();
        (0..3000).any(|_| !rig.step() && !rig.step() && !rig.step());
        let before = writes();
        (0..50).for_each(|_| _ = rig.step());
        let told = volume.info().expect("info").conversion;
        assert!(told.is_none() || writes() - before < 20, "{zones_left}: it waits in peace");
        story.check(&volume, "as far as there is room");
        rig.pool().delete_volume("big").expect("deleted");
        rig.settle();
        assert_eq!(volume.info().expect("info").conversion, None, "{zones_left}: then it ends");
        assert_eq!(volume.info().expect("info").base_bytes, 0);
        story.check(&volume, "at the end");
    }
}

#[test]
fn what_cannot_be_read_at_home_stays_and_is_told() {
    let rig = Rig::new(128 << 20);
    let (volume, story) = with_a_past(&rig, Architecture::Redirect, &mut Random::new(6));
    rig.pool().verify_invariants().expect("the invariants");
    let base_bytes = volume.info().expect("info").base_bytes;
    rot_the_mark(&rig);
    volume.change(&to(Architecture::Logging)).expect("changed");
    for _ in 0..4000 {
        rig.step();
    }
    let info = volume.info().expect("info");
    assert_eq!(info.conversion, None, "it ends all the same");
    assert!(info.base_bytes < base_bytes);
    assert_eq!(info.base_bytes, BLOCK, "only what cannot be read stays");
    let told = rig.audited("converted").pop().expect("told");
    assert!(told.contains("cannot be read"), "{told}");
    // All else reads as before.
    let mut wrong = 0;
    for block in 0..SIZE_BYTES / BLOCK {
        let mut bytes = vec![0; BLOCK as usize];
        match volume.read(block * BLOCK, &mut bytes) {
            Ok(()) => assert!(bytes == story.present[(block * BLOCK) as usize..][..4096]),
            Err(e) => {
                assert_eq!(e.kind, ErrorKind::Corrupt);
                wrong += 1;
            }
        }
    }
    assert_eq!(wrong, 1, "blocks that cannot be read");
}

/// Rots the marked block wherever it lies.
fn rot_the_mark(rig: &Rig) {
    let device = rig.device();
    let mut zone = vec![0; ZONE_BYTES as usize];
    let mut places = 0;
    for number in 0..device.len_bytes() / ZONE_BYTES {
        device.read_at(number * ZONE_BYTES, &mut zone).expect("read");
        for at in (0..zone.len() - BLOCK as usize).step_by(64) {
            if zone[at..at + BLOCK as usize].iter().all(|&byte| byte == MARK) {
                rig.media.rot(number * ZONE_BYTES + at as u64 + 77, 3);
                places += 1;
            }
        }
    }
    assert!(places > 0, "it is somewhere");
}

#[test]
fn what_lies_beyond_the_end_is_in_place_should_the_volume_grow() {
    let mut rig = Rig::new(64 << 20);
    let volume = rig.pool().volume("v").expect("made");
    put(&volume, 0, 0x11, 128);
    // A block that is not whole is cut off by writing what is left of it, and zeros.
    volume.resize(100 * BLOCK + 512).expect("smaller");
    volume.resize(70 * BLOCK).expect("smaller still");
    volume.change(&to(Architecture::SplitStream)).expect("changed");
    rig.settle();
    drop(volume);
    let volume = rig.restart();
    volume.resize(128 * BLOCK).expect("larger");
    rig.pool().verify_invariants().expect("what is trusted is what the map says");
    assert!(content(&volume)[70 * BLOCK as usize..].iter().all(|&b| b == 0));
    assert_eq!(volume.info().expect("told").counters.rotten_places, 0);
}
