//! Volumes with a write-back cache: what reaches the device, what a kill takes, and what does not
//! change.

use std::sync::Arc;

use block::{BlockDevice, MediaDevice};
use env::Clock;
use hindsight_volume::{
    Architecture, Budget, CacheChange, CacheUse, Error, ErrorKind, Granularity, IoKind, Machine,
    Pool, PoolFormat, PoolOptions, Volume, VolumeChange, VolumeSpec, WriteOp,
};
use sim::{Failure, Op, Random, SimClock, SimEntropy, SimMedia};
use units::{Moment, Seq, WallTime};

const BLOCK: u64 = 4096;
const SIZE_BYTES: u64 = 8 << 20;
const SECOND: u64 = 1_000_000_000;
const START_NS: u64 = 1_795_255_200 * SECOND;
const GRANULARITIES: [Granularity; 3] =
    [Granularity::EveryWrite, Granularity::Interval(10 * SECOND), Granularity::OnDemand];
/// 100 blocks may be dirty.
const CACHE: CacheChange = CacheChange { bytes: Some(1 << 20), dirty_percent: Some(40) };
const NO_CACHE: CacheChange = CacheChange { bytes: Some(0), dirty_percent: None };

/// A pool on simulated media.
pub struct Rig {
    media: Arc<SimMedia>,
    pub clock: Arc<SimClock>,
    /// Of volumes that are made.
    pub extent: units::MapExtent,
    pub copy_unit: units::MapExtent,
    pool: Option<Arc<Pool>>,
}

impl Rig {
    pub fn new() -> Rig {
        let media = Arc::new(SimMedia::filled(256 << 20, 5, 0xdd));
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(START_NS)));
        let mut rig = Rig {
            media,
            clock,
            extent: units::MapExtent::BLOCK,
            copy_unit: units::MapExtent::BLOCK,
            pool: None,
        };
        let format = PoolFormat { zone_bytes: 1 << 20 };
        Pool::create(&rig.device(), &rig.machine(), &format).expect("a pool on empty media");
        rig.open(16 << 20);
        rig
    }

    fn machine(&self) -> Machine {
        let clock: Arc<dyn Clock> = Arc::<SimClock>::clone(&self.clock);
        Machine { clock, entropy: Arc::new(SimEntropy::new(7)) }
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(&self.media)))
    }

    pub fn open(&mut self, memory_bytes: u64) {
        let options = PoolOptions { memory_bytes };
        // Two at once would write over each other.
        self.pool = None;
        self.pool = Some(Pool::open(self.device(), self.machine(), options).expect("opens"));
    }

    pub fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().expect("open")
    }

    fn try_make(&self, name: &str, wish: Wish) -> Result<Arc<Volume>, Error> {
        self.pool().create_volume(&VolumeSpec {
            architecture: wish.0,
            granularity: wish.1,
            window_ns: 1 << 60,
            cache: wish.2,
            extent: self.extent,
            copy_unit: self.copy_unit,
            ..VolumeSpec::new(name, SIZE_BYTES)
        })
    }

    pub fn make(&self, name: &str, wish: Wish) -> Arc<Volume> {
        self.try_make(name, wish).expect("made")
    }

    /// The map is thrown away and built again.
    pub fn rebuild(&mut self) {
        self.pool().close().expect("closed");
        self.pool = None;
        Pool::rebuild(self.device(), self.machine()).expect("rebuilt");
        self.open(16 << 20);
    }

    /// The process ends without closing anything.
    pub fn kill(&mut self) -> Arc<Volume> {
        self.media.halt_now();
        self.pool = None;
        self.media.kill();
        self.open(16 << 20);
        self.pool().volume("v").expect("there")
    }
}

pub type Wish = (Architecture, Granularity, CacheChange);

fn requests(volume: &Volume, kind: IoKind) -> u64 {
    let info = volume.info().expect("info");
    info.device_io.iter().find(|count| count.kind == kind).expect("every kind is told").requests
}

fn used(volume: &Volume) -> CacheUse {
    volume.info().expect("info").cache.expect("it has one").used
}

fn put(volume: &Volume, block: u64, byte: u8) -> Seq {
    let bytes = vec![byte; BLOCK as usize];
    volume.write_batch(&[WriteOp::Data { offset: block * BLOCK, bytes: &bytes }]).expect("written")
}

fn byte_at(volume: &Volume, block: u64) -> u8 {
    let mut bytes = vec![0xee; BLOCK as usize];
    volume.read(block * BLOCK, &mut bytes).expect("read");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a whole block");
    bytes[0]
}

fn past_byte(volume: &Arc<Volume>, moment: &Moment, block: u64) -> u8 {
    let mut bytes = [0xee];
    let view = volume.view(moment).expect("a moment");
    view.read(block * BLOCK, &mut bytes).expect("read");
    bytes[0]
}

#[test]
fn what_is_written_again_within_a_window_reaches_the_device_once() {
    for architecture in Architecture::ALL {
        for granularity in GRANULARITIES {
            let rig = Rig::new();
            let volume = rig.make("v", (architecture, granularity, CACHE));
            (0..80).for_each(|turn| _ = put(&volume, turn % 20, turn as u8 + 1));
            let log = log_kind(architecture);
            assert_eq!(requests(&volume, log), 0, "all of it waits");
            assert_eq!(byte_at(&volume, 7), 68, "and is read");
            volume.flush().expect("flushed");
            let (told, what) = (used(&volume), format!("{architecture:?} {granularity:?}"));
            let all = if granularity == Granularity::EveryWrite { 80 } else { 20 };
            assert_eq!((told.destaged, told.absorbed), (all, 80 - all), "{what}");
            assert_eq!((told.dirty_bytes, told.misses), (0, 0), "{what}");
            assert_eq!(requests(&volume, log), 1, "one run: {what}");
            let placed = match architecture {
                Architecture::Logging | Architecture::Redirect => 0,
                Architecture::Checkpointing => 0,
                Architecture::SplitStream => 1,
                Architecture::SplitDownstream => all / 20,
                Architecture::Hybrid if granularity == Granularity::EveryWrite => 1,
                // Written again and again: their places wait.
                Architecture::Hybrid => 0,
            };
            assert_eq!(requests(&volume, IoKind::CurrentWrite), placed, "neighbours: {what}");
            assert_eq!(byte_at(&volume, 7), 68);
        }
    }
}

#[test]
fn with_every_write_each_has_its_seq_and_its_time() {
    for architecture in Architecture::ALL {
        let rig = Rig::new();
        let volume = rig.make("v", (architecture, Granularity::EveryWrite, CACHE));
        let mut made = Vec::new();
        for turn in 0..50_u64 {
            rig.clock.advance(SECOND);
            made.push((put(&volume, turn % 5, turn as u8 + 1), rig.clock.wall()));
        }
        for (turn, &(seq, time)) in made.iter().enumerate() {
            let turn = turn as u64;
            for moment in [Moment::Seq(seq), Moment::At(time)] {
                let found = volume.resolve(&moment).expect("retained");
                assert_eq!((found.seq, found.time), (seq, time), "{architecture:?} {turn}");
                assert_eq!(past_byte(&volume, &moment, turn % 5), turn as u8 + 1);
            }
        }
    }
}

#[test]
fn the_end_of_each_interval_is_exactly_what_was_there() {
    let rig = Rig::new();
    let volume = rig.make("v", (Architecture::Logging, GRANULARITIES[1], CACHE));
    rig.clock.set_wall(WallTime::from_nanos(START_NS));
    let mut ends = Vec::new();
    for window in 0..6_u64 {
        for turn in 0..10 {
            put(&volume, turn % 3, (window * 10 + turn) as u8 + 1);
            rig.clock.advance(SECOND / 2);
        }
        let present: Vec<u8> = (0..3).map(|block| byte_at(&volume, block)).collect();
        rig.clock.advance(5 * SECOND);
        ends.push((WallTime::from_nanos(rig.clock.wall().as_nanos() - 1), present));
    }
    rig.clock.advance(10 * SECOND);
    for (time, present) in ends {
        let moment = Moment::At(time);
        let found: Vec<u8> = (0..3).map(|block| past_byte(&volume, &moment, block)).collect();
        assert_eq!(found, present, "{time}");
    }
    assert_eq!(used(&volume).absorbed, 6 * 7, "three of ten writes of a window are the last");
}

#[test]
fn a_kill_takes_what_was_not_flushed_and_nothing_else() {
    for architecture in Architecture::ALL {
        for granularity in GRANULARITIES {
            let mut rig = Rig::new();
            let volume = rig.make("v", (architecture, granularity, CACHE));
            (0..30).for_each(|block| _ = put(&volume, block, 1));
            volume.flush().expect("flushed");
            (0..30).for_each(|block| _ = put(&volume, block, 2));
            drop(volume);
            let volume = rig.kill();
            let found: Vec<u8> = (0..30).map(|block| byte_at(&volume, block)).collect();
            assert_eq!(found, [1; 30], "{architecture:?} {granularity:?}: nothing came so far");
        }
    }
}

#[test]
fn what_a_kill_leaves_of_every_write_is_a_prefix() {
    let mut rig = Rig::new();
    let volume = rig.make("v", (Architecture::Logging, Granularity::EveryWrite, CACHE));
    // More than may be dirty: some of it is destaged as it goes.
    (0..250_u64).for_each(|turn| _ = put(&volume, turn % 50, turn as u8 + 1));
    drop(volume);
    let volume = rig.kill();
    let latest = volume.resolve(&Moment::Latest).expect("the present").seq.0;
    assert!((100..250).contains(&latest), "some of it: {latest}");
    for block in 0..50 {
        let last = (0..latest).rev().find(|turn| turn % 50 == block).expect("all were written");
        assert_eq!(byte_at(&volume, block), last as u8 + 1, "block {block} of a prefix");
    }
}

#[test]
fn versions_views_clones_and_reverts_see_what_waits() {
    for architecture in Architecture::ALL {
        let rig = Rig::new();
        let volume = rig.make("v", (architecture, Granularity::OnDemand, CACHE));
        put(&volume, 3, 1);
        let version = volume.create_version("one").expect("a version").number;
        put(&volume, 3, 2);
        let view = volume.view(&Moment::Latest).expect("the present");
        put(&volume, 3, 3);
        let clone = rig.pool().clone_volume("v", &Moment::Latest, "c").expect("cloned");
        put(&volume, 3, 4);
        volume.create_mark("m", &Moment::Latest, true).expect("marked");
        put(&volume, 3, 5);
        assert_eq!(past_byte(&volume, &Moment::Version(version), 3), 1);
        let mut bytes = [0];
        view.read(3 * BLOCK, &mut bytes).expect("read");
        assert_eq!((bytes[0], byte_at(&clone, 3)), (2, 3));
        assert_eq!(past_byte(&volume, &Moment::Mark("m".to_owned()), 3), 4);
        volume.revert(&Moment::Version(version), false).expect("reverted");
        assert_eq!(byte_at(&volume, 3), 1);
        put(&volume, 3, 6);
        assert_eq!(byte_at(&volume, 3), 6);
        volume.create_mark("n", &Moment::Latest, true).expect("marked");
        volume.resize(SIZE_BYTES / 2).expect("resized");
        volume.resize(SIZE_BYTES).expect("resized");
        assert_eq!(byte_at(&volume, 3), 6);
        rig.pool().verify_invariants().expect("sound");
    }
}

#[test]
fn partial_blocks_trims_and_extents_go_through_it() {
    for architecture in Architecture::ALL {
        let rig = Rig::new();
        let volume = rig.make("v", (architecture, Granularity::OnDemand, CACHE));
        let mut expected = vec![0; SIZE_BYTES as usize];
        let mut random = Random::new(3);
        for turn in 0..400 {
            let offset = random.below(SIZE_BYTES - 1);
            let length = random.between(1, 40_000).min(SIZE_BYTES - offset);
            let range = offset as usize..(offset + length) as usize;
            if turn % 4 == 0 {
                // Some wait, and some are too long for that.
                let length = if turn % 8 == 0 { SIZE_BYTES - offset } else { length };
                expected[offset as usize..(offset + length) as usize].fill(0);
                let op = WriteOp::Zero { offset, length_bytes: length };
                volume.write_batch(&[op]).expect("trimmed");
            } else {
                random.fill(&mut expected[range.clone()]);
                let op = WriteOp::Data { offset, bytes: &expected[range] };
                volume.write_batch(&[op]).expect("written");
            }
            let mut seen = vec![0xee; 50_000.min((SIZE_BYTES - offset) as usize)];
            volume.read(offset, &mut seen).expect("read");
            assert!(seen == expected[offset as usize..][..seen.len()], "{architecture:?} {turn}");
        }
        let waiting = volume.extents(0, SIZE_BYTES, usize::MAX).expect("extents");
        assert!(used(&volume).dirty_bytes > 0, "something waits");
        volume.flush().expect("flushed");
        assert_eq!(volume.extents(0, SIZE_BYTES, usize::MAX).expect("extents"), waiting);
        for extent in waiting.iter().filter(|extent| extent.hole) {
            let range = extent.offset as usize..(extent.offset + extent.length_bytes) as usize;
            assert!(expected[range].iter().all(|byte| *byte == 0), "holes are zeros");
        }
    }
}

#[test]
fn blocks_that_were_read_or_written_are_read_from_memory() {
    let rig = Rig::new();
    let volume = rig.make("v", (Architecture::Logging, Granularity::EveryWrite, CACHE));
    (0..600_u64).for_each(|block| _ = put(&volume, block, block as u8 | 1));
    volume.flush().expect("flushed");
    let before = requests(&volume, IoKind::HistoryRead);
    // 256 blocks fit: the last ones are there, the first are not.
    (400..600_u64).for_each(|block| assert_eq!(byte_at(&volume, block), block as u8 | 1));
    assert_eq!(requests(&volume, IoKind::HistoryRead), before);
    for _ in 0..3 {
        (0..100_u64).for_each(|block| assert_eq!(byte_at(&volume, block), block as u8 | 1));
    }
    assert_eq!(requests(&volume, IoKind::HistoryRead), before + 100);
    assert_eq!((used(&volume).hits, used(&volume).misses), (400, 100));
    assert!(used(&volume).clean_bytes <= 1 << 20);
}

#[test]
fn the_background_destages_when_nobody_writes() {
    let rig = Rig::new();
    let volume = rig.make("v", (Architecture::SplitDownstream, Granularity::OnDemand, CACHE));
    (0..90).for_each(|block| _ = put(&volume, block, 1));
    while rig.pool().step(Budget { bytes: 1 << 20 }).expect("a step") {}
    assert_eq!(used(&volume).dirty_bytes, 90 * BLOCK, "there is room for more");
    (90..102).for_each(|block| _ = put(&volume, block, 1));
    while rig.pool().step(Budget { bytes: 1 << 20 }).expect("a step") {}
    assert!(used(&volume).dirty_bytes <= 96 * BLOCK, "a sixteenth is kept free");
    rig.clock.advance(6 * SECOND);
    while rig.pool().step(Budget { bytes: 1 << 20 }).expect("a step") {}
    assert_eq!(used(&volume).dirty_bytes, 0);
    // Also when the clock was set back meanwhile.
    put(&volume, 1, 2);
    rig.clock.set_wall(WallTime::from_nanos(START_NS - 3600 * SECOND));
    rig.clock.advance(6 * SECOND);
    while rig.pool().step(Budget { bytes: 1 << 20 }).expect("a step") {}
    assert_eq!(used(&volume).dirty_bytes, 0);
}

#[test]
fn a_failed_destage_is_told_by_the_flush_and_drops_nothing_from_memory() {
    let rig = Rig::new();
    let volume = rig.make("v", (Architecture::Logging, Granularity::EveryWrite, CACHE));
    (0..10).for_each(|block| _ = put(&volume, block, 9));
    rig.media.fail(Failure::once(Op::Write));
    assert!(volume.flush().is_err());
    rig.media.calm();
    assert!(volume.flush().is_err(), "and it stays so");
    let op = WriteOp::Data { offset: 0, bytes: &[1; 4096] };
    assert_eq!(volume.write_batch(&[op]).expect_err("refused").kind, ErrorKind::Refused);
    (0..10).for_each(|block| assert_eq!(byte_at(&volume, block), 9, "still in memory"));
    assert_eq!(volume.info().expect("info").state, "refusing-writes");
}

#[test]
fn it_is_switched_on_resized_and_switched_off_while_the_volume_is_used() {
    let mut rig = Rig::new();
    let volume = rig.make("v", (Architecture::Logging, Granularity::OnDemand, NO_CACHE));
    assert_eq!(volume.info().expect("info").cache, None);
    let set = |volume: &Volume, cache| {
        volume.change(&VolumeChange { cache, ..VolumeChange::default() }).expect("changed");
    };
    put(&volume, 1, 1);
    set(&volume, CACHE);
    put(&volume, 1, 2);
    assert_eq!(used(&volume).dirty_bytes, BLOCK);
    set(&volume, CacheChange { bytes: Some(2 << 20), dirty_percent: None });
    let cache = volume.info().expect("info").cache.expect("on");
    assert_eq!((cache.setting.bytes, cache.setting.dirty_percent), (2 << 20, 40));
    put(&volume, 1, 3);
    drop(volume);
    rig.pool().close().expect("closed");
    rig.open(16 << 20);
    let volume = rig.pool().volume("v").expect("there");
    assert_eq!(byte_at(&volume, 1), 3, "a close destages");
    assert_eq!(volume.info().expect("info").cache.expect("on").granted_bytes, 2 << 20);
    put(&volume, 1, 4);
    set(&volume, NO_CACHE);
    assert_eq!(volume.info().expect("info").cache, None);
    assert_eq!(byte_at(&volume, 1), 4);
    drop(volume);
    let volume = rig.kill();
    assert_eq!(byte_at(&volume, 1), 4, "without it a kill takes nothing");
}

#[test]
fn a_pool_opened_with_less_memory_shares_it_out() {
    let mut rig = Rig::new();
    let large = CacheChange { bytes: Some(4 << 20), dirty_percent: None };
    rig.make("v", (Architecture::Logging, Granularity::OnDemand, large));
    rig.make("w", (Architecture::SplitDownstream, Granularity::OnDemand, large));
    rig.pool().close().expect("closed");
    rig.open(2 << 20);
    for name in ["v", "w"] {
        let volume = rig.pool().volume(name).expect("there");
        let cache = volume.info().expect("info").cache.expect("on");
        assert_eq!((cache.setting.bytes, cache.granted_bytes), (4 << 20, 512 << 10));
        put(&volume, 1, 1);
        assert_eq!(byte_at(&volume, 1), 1);
    }
}

#[test]
fn impossible_caches_are_refused_with_what_is_possible() {
    let rig = Rig::new();
    let wish = |architecture, bytes, dirty_percent| {
        let cache = CacheChange { bytes, dirty_percent };
        let made = rig.try_make("v", (architecture, Granularity::OnDemand, cache));
        let refused = made.err().expect("refused");
        assert_eq!(refused.kind, ErrorKind::Invalid);
        format!("{refused}; {}", refused.hint.as_deref().unwrap_or_default())
    };
    let too_large = wish(Architecture::Logging, Some(9 << 20), None);
    assert!(too_large.contains("9MiB does not fit") && too_large.contains("at most 8MiB"));
    assert!(wish(Architecture::SplitDownstream, None, None).contains("64MiB does not fit"));
    assert!(wish(Architecture::SplitDownstream, Some(0), None).contains("needs a cache"));
    assert!(wish(Architecture::Logging, Some(1000), None).contains("too small"));
    assert!(wish(Architecture::Logging, Some(1 << 20), Some(0)).contains("0 percent"));
    assert!(wish(Architecture::Logging, Some(1 << 20), Some(101)).contains("101 percent"));
    assert!(wish(Architecture::Logging, None, Some(3)).contains("there is no cache"));
    let first = CacheChange { bytes: Some(6 << 20), dirty_percent: None };
    let volume = rig.make("v", (Architecture::Logging, Granularity::OnDemand, first));
    let larger = CacheChange { bytes: Some(8 << 20), dirty_percent: None };
    volume.change(&VolumeChange { cache: larger, ..VolumeChange::default() }).expect("its own");
}

#[test]
fn caches_that_want_more_than_there_is_get_shares() {
    let rig = Rig::new();
    let cache = CacheChange { bytes: Some(6 << 20), dirty_percent: Some(50) };
    let volume = rig.make("v", (Architecture::Logging, Granularity::OnDemand, cache));
    let granted = |volume: &Volume| volume.info().expect("info").cache.expect("on").granted_bytes;
    for block in 0..700 {
        put(&volume, block, 7);
    }
    assert_eq!(granted(&volume), 6 << 20);
    let clone = rig.pool().clone_volume("v", &Moment::Latest, "c").expect("a clone has a cache");
    assert_eq!((granted(&volume), granted(&clone)), (4 << 20, 4 << 20));
    for block in 0..1500 {
        put(&volume, block, 8);
        put(&clone, block, 9);
    }
    for (volume, byte) in [(&volume, 8), (&clone, 9)] {
        let used = volume.info().expect("info").cache.expect("on").used;
        assert!(used.dirty_bytes <= used.dirty_limit_bytes + (256 << 10), "{used:?}");
        (0..1500).for_each(|block| assert_eq!(byte_at(volume, block), byte, "block {block}"));
    }
    rig.pool().delete_volume("c").expect("deleted");
    assert_eq!(granted(&volume), 6 << 20);
}

#[test]
fn split_stream_writes_in_place_only_what_nothing_newer_waits_behind() {
    let rig = Rig::new();
    let cache = CacheChange { bytes: Some(1 << 20), dirty_percent: Some(50) };
    let written = |architecture| {
        let name = format!("{architecture:?}");
        let volume = rig.make(&name, (architecture, Granularity::EveryWrite, cache));
        for turn in 0..100 {
            put(&volume, turn % 10, turn as u8);
        }
        volume.flush().expect("flush");
        (0..10).for_each(|block| assert_eq!(byte_at(&volume, block), 90 + block as u8));
        let io = volume.info().expect("info").device_io;
        io.iter().find(|count| count.kind == IoKind::CurrentWrite).expect("counted").bytes / 4096
    };
    assert_eq!(written(Architecture::SplitDownstream), 100);
    assert_eq!(written(Architecture::SplitStream), 10);
}

fn log_kind(architecture: Architecture) -> IoKind {
    match architecture {
        Architecture::Checkpointing => IoKind::JournalWrite,
        _ => IoKind::HistoryWrite,
    }
}

/// The cache of the paper, write by write: how many of these writes are destaged, and how many of
/// them with none of their block behind them.
fn destaged_by_the_book(writes: &[(u64, u64)], granularity: Granularity) -> (u64, u64) {
    const DIRTY: usize = 102;
    const PORTION: usize = DIRTY / 16;
    let mut waiting: Vec<(u64, u64)> = Vec::new();
    let (mut destaged, mut newest) = (0, 0);
    for (turn, &(block, time_ns)) in (0_u64..).zip(writes) {
        let window = match granularity {
            Granularity::EveryWrite => turn,
            Granularity::Interval(nanos) => time_ns / nanos,
            Granularity::OnDemand => 0,
        };
        if waiting.len() == DIRTY {
            newest += newest_of(&waiting, PORTION);
            waiting.drain(..PORTION);
            destaged += PORTION as u64;
        }
        waiting.retain(|&there| there != (block, window));
        waiting.push((block, window));
    }
    let count = waiting.len();
    (destaged + count as u64, newest + newest_of(&waiting, count))
}

/// How many of the first have none of their block behind them.
fn newest_of(waiting: &[(u64, u64)], first: usize) -> u64 {
    let is_newest = |&at: &usize| waiting[at + 1..].iter().all(|other| other.0 != waiting[at].0);
    (0..first).filter(is_newest).count() as u64
}

#[test]
fn as_many_blocks_reach_the_device_as_a_cache_by_the_book_lets_through() {
    // Half of the writes go to 64 hot blocks, the rest to 2048; one every 20 ms.
    let mut random = Random::new(12);
    let block = |random: &mut Random| {
        if random.chance(500) { random.below(64) } else { random.below(SIZE_BYTES / BLOCK) }
    };
    let writes: Vec<(u64, u64)> =
        (1..=6000_u64).map(|turn| (block(&mut random), START_NS + turn * SECOND / 50)).collect();
    for architecture in Architecture::ALL {
        for granularity in GRANULARITIES {
            for cache in [CACHE, NO_CACHE] {
                if architecture.needs_cache() && cache == NO_CACHE {
                    continue;
                }
                let rig = Rig::new();
                let volume = rig.make("v", (architecture, granularity, cache));
                for &(block, time_ns) in &writes {
                    rig.clock.set_wall(WallTime::from_nanos(time_ns));
                    put(&volume, block, 1);
                }
                volume.flush().expect("flushed");
                let (expected, newest) = match cache == CACHE {
                    true => destaged_by_the_book(&writes, granularity),
                    false => (writes.len() as u64, writes.len() as u64),
                };
                let what = format!("{architecture:?} {granularity:?} {cache:?}");
                let info = volume.info().expect("info");
                if let Some(cache) = info.cache {
                    let all = (cache.used.destaged, cache.used.destaged + cache.used.absorbed);
                    assert_eq!(all, (expected, writes.len() as u64), "{what}");
                }
                let count = |kind| info.device_io.iter().find(|c| c.kind == kind).expect("told");
                let (log, place) = (count(log_kind(architecture)), count(IoKind::CurrentWrite));
                let placed = match architecture {
                    Architecture::SplitStream => newest,
                    Architecture::SplitDownstream => expected,
                    Architecture::Hybrid if granularity == Granularity::EveryWrite => newest,
                    // As it chooses.
                    Architecture::Hybrid => (place.bytes / BLOCK).min(newest),
                    _ => 0,
                };
                assert_eq!(place.bytes / BLOCK, placed, "{what}");
                println!(
                    "{what}: {expected} blocks; log {} requests {} bytes; in place {} requests {} \
                     bytes",
                    log.requests, log.bytes, place.requests, place.bytes
                );
                assert!(log.bytes / BLOCK >= expected && log.bytes < expected * 4300, "{what}");
            }
        }
    }
}
