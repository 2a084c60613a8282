//! Volumes with a base: settled blocks come home, and the log holds the rest.

use std::sync::Arc;

use block::{BlockDevice, MediaDevice};
use env::Media as _;
use hindsight_volume::{
    Architecture, Budget, CacheChange, Granularity, IoKind, Machine, Pool, PoolFormat, PoolOptions,
    Volume, VolumeChange, VolumeSpec, WriteOp,
};
use sim::{Random, SimClock, SimEntropy, SimMedia};
use units::{Moment, Seq, WallTime};

pub const BLOCK: u64 = 4096;
pub const SIZE_BYTES: u64 = 4 << 20;
const ZONE_BYTES: u64 = 256 << 10;
const START_NS: u64 = 1 << 60;
pub const WINDOW_NS: u64 = 1_000_000_000_000;

/// A pool on simulated media.
pub struct Rig {
    pub media: Arc<SimMedia>,
    pub clock: Arc<SimClock>,
    pool: Option<Arc<Pool>>,
}

impl Rig {
    pub fn new() -> Rig {
        let media = Arc::new(SimMedia::filled(64 << 20, 5, 0xdd));
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(START_NS)));
        let mut rig = Rig { media, clock, pool: None };
        let format = PoolFormat { zone_bytes: ZONE_BYTES };
        Pool::create(&rig.device(), &rig.machine(), &format).expect("a pool on empty media");
        rig.open();
        rig
    }

    /// The same media as they are now, as if the machine had stopped; not open.
    pub fn fork(&self) -> Rig {
        let media = Arc::new(self.media.fork());
        Rig { media, clock: Arc::clone(&self.clock), pool: None }
    }

    fn machine(&self) -> Machine {
        let entropy = Arc::new(SimEntropy::new(self.media.changes()));
        Machine { clock: Arc::<SimClock>::clone(&self.clock), entropy }
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(&self.media)))
    }

    pub fn try_open(&self) -> hindsight_volume::Result<Arc<Pool>> {
        let options = PoolOptions { memory_bytes: 256 << 10 };
        Pool::open(self.device(), self.machine(), options)
    }

    fn open(&mut self) {
        self.pool = Some(self.try_open().expect("opens"));
    }

    pub fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().expect("open")
    }

    pub fn make(
        &self,
        name: &str,
        architecture: Architecture,
        granularity: Granularity,
    ) -> Arc<Volume> {
        let spec = VolumeSpec {
            architecture,
            granularity,
            window_ns: WINDOW_NS,
            cache: CacheChange {
                bytes: architecture.needs_cache().then_some(64 << 10),
                dirty_percent: None,
            },
            ..VolumeSpec::new(name, SIZE_BYTES)
        };
        self.pool().create_volume(&spec).expect("made")
    }

    fn close(&mut self) {
        self.pool().close().expect("closed");
        self.pool = None;
    }

    pub fn restart(&mut self) -> Arc<Volume> {
        self.close();
        self.open();
        self.pool().volume("v").expect("there")
    }

    /// What was not flushed may be lost.
    pub fn power_cut(&mut self) -> Arc<Volume> {
        self.pool = None;
        self.media.crash(&mut Random::new(self.media.changes()));
        self.open();
        self.pool().volume("v").expect("there")
    }

    /// As if the process had been killed.
    pub fn kill(&mut self) -> Arc<Volume> {
        self.pool = None;
        self.open();
        self.pool().volume("v").expect("there")
    }

    /// Flips a bit of every copy of a block there is.
    pub fn rot(&self, block: &[u8]) {
        let mut bytes = vec![0; 64 << 20];
        self.media.read_at(0, &mut bytes).expect("read");
        for offset in (0..bytes.len() - block.len()).step_by(64) {
            if bytes[offset..].starts_with(block) {
                self.media.rot(offset as u64 + 9, 3);
            }
        }
    }

    pub fn rebuild(&mut self) -> u64 {
        self.close();
        let report = Pool::rebuild(self.device(), self.machine()).expect("rebuilt");
        self.open();
        report.damaged_bytes
    }

    pub fn settle(&self) {
        while self.pool().step(Budget { bytes: 1 << 20 }).expect("a step") {}
    }

    /// Everything so far leaves the window, and what follows from that is done.
    pub fn age(&self, volume: &Volume) {
        // What waits in memory is not reclaimed: so many writes that it goes out.
        for byte in [0xfe, 0xff] {
            self.clock.advance(2 * WINDOW_NS);
            for _ in 0..400 {
                put(volume, SIZE_BYTES / BLOCK - 1, byte, 1);
            }
            self.settle();
        }
    }
}

pub fn requests(volume: &Volume, kind: IoKind) -> u64 {
    let info = volume.info().expect("info");
    info.device_io.iter().find(|count| count.kind == kind).expect("every kind is told").requests
}

pub fn base_blocks(volume: &Volume) -> u64 {
    volume.info().expect("info").base_bytes / BLOCK
}

pub fn put(volume: &Volume, block: u64, byte: u8, blocks: u64) -> Seq {
    let bytes = vec![byte; (blocks * BLOCK) as usize];
    volume.write_batch(&[WriteOp::Data { offset: block * BLOCK, bytes: &bytes }]).expect("written")
}

pub fn content(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xee; volume.size_bytes() as usize];
    volume.read(0, &mut bytes).expect("read");
    bytes
}

pub fn past(volume: &Arc<Volume>, seq: Seq) -> Vec<u8> {
    let view = volume.view(&Moment::Seq(seq)).expect("a view");
    let mut bytes = vec![0xee; view.size_bytes() as usize];
    view.read(0, &mut bytes).expect("read");
    bytes
}

/// Writes blocks here and there, and in `expected` too. The last one is left to `Rig::age`.
fn scribble(volume: &Volume, expected: &mut [u8], random: &mut Random, times: u64) {
    for _ in 0..times {
        let block = random.below(SIZE_BYTES / BLOCK - 1);
        let byte = random.below(255) as u8 + 1;
        put(volume, block, byte, 1);
        expected[(block * BLOCK) as usize..][..BLOCK as usize].fill(byte);
    }
}

fn empty() -> Vec<u8> {
    let mut bytes = vec![0; SIZE_BYTES as usize];
    bytes[(SIZE_BYTES - BLOCK) as usize..].fill(0xff);
    bytes
}

/// Reads all of it; says in how many requests to the base and to the log.
fn read_requests(volume: &Volume, expected: &[u8]) -> (u64, u64) {
    let both = || [IoKind::CurrentRead, IoKind::HistoryRead].map(|kind| requests(volume, kind));
    let before = both();
    assert!(content(volume) == expected, "the present");
    let after = both();
    (after[0] - before[0], after[1] - before[1])
}

#[test]
fn a_write_is_one_request_at_every_granularity() {
    for granularity in
        [Granularity::EveryWrite, Granularity::Interval(1_000_000_000), Granularity::OnDemand]
    {
        let rig = Rig::new();
        let volume = rig.make("v", Architecture::Redirect, granularity);
        let mut expected = empty();
        scribble(&volume, &mut expected, &mut Random::new(1), 300);
        put(&volume, SIZE_BYTES / BLOCK - 1, 0xff, 1);
        assert_eq!(requests(&volume, IoKind::HistoryWrite), 301, "{granularity:?}");
        assert_eq!(requests(&volume, IoKind::CurrentWrite), 0, "{granularity:?}");
        assert!(content(&volume) == expected, "{granularity:?}");
        rig.age(&volume);
        assert!(base_blocks(&volume) > 100, "{granularity:?}: {}", base_blocks(&volume));
        assert!(content(&volume) == expected, "{granularity:?}");
        rig.pool().verify_invariants().expect("sound");
    }
}

#[test]
fn what_has_settled_is_read_in_the_order_of_its_addresses() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Redirect, Granularity::EveryWrite);
    let mut expected = empty();
    scribble(&volume, &mut expected, &mut Random::new(2), 3000);
    let scattered = read_requests(&volume, &{
        let mut now = expected.clone();
        now[(SIZE_BYTES - BLOCK) as usize..].fill(0);
        now
    });
    assert!(scattered.0 == 0 && scattered.1 > 500, "{scattered:?}");
    rig.age(&volume);
    let (base, log) = read_requests(&volume, &expected);
    assert!(base < 60 && log < 10, "{base} and {log} requests, {} at home", base_blocks(&volume));
    let status = rig.pool().status();
    assert!(status.current_bytes >= SIZE_BYTES);
}

#[test]
fn the_base_goes_on_showing_a_capture_while_newer_writes_are_redirected() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Redirect, Granularity::OnDemand);
    let mut captured = empty();
    scribble(&volume, &mut captured, &mut Random::new(3), 2000);
    rig.age(&volume);
    let at_home = base_blocks(&volume);
    assert!(at_home > 800, "{at_home}");
    let version = volume.create_version("base").expect("a version");
    let mut now = captured.clone();
    scribble(&volume, &mut now, &mut Random::new(4), 500);
    let written = requests(&volume, IoKind::CurrentWrite);
    rig.age(&volume);
    let (home, log) = read_requests(&volume, &now);
    assert!(home > 0 && log > 100, "{home} and {log}: newer data is mapped over the base");
    assert!(past(&volume, version.stamp.seq) == captured);
    assert!(base_blocks(&volume) >= at_home, "the capture is where it was");
    let later = requests(&volume, IoKind::CurrentWrite);
    // Without the capture the newer data settles in the base.
    volume.delete_version(version.number).expect("deleted");
    rig.age(&volume);
    rig.age(&volume);
    let (_, log) = read_requests(&volume, &now);
    assert!(log < 20, "{log} requests to the log; {written}, {later} homes written before");
}

fn rebuild_homes(architecture: Architecture) {
    let mut rig = Rig::new();
    let volume = rig.make("v", architecture, Granularity::EveryWrite);
    let mut expected = empty();
    let mut random = Random::new(5);
    for _ in 0..4 {
        scribble(&volume, &mut expected, &mut random, 900);
        rig.age(&volume);
    }
    assert!(base_blocks(&volume) > 900);
    drop(volume);
    let volume = rig.restart();
    assert!(content(&volume) == expected);
    assert!(base_blocks(&volume) > 900, "{}", base_blocks(&volume));
    drop(volume);
    for _ in 0..2 {
        assert_eq!(rig.rebuild(), 0);
        let volume = rig.pool().volume("v").expect("there");
        assert!(content(&volume) == expected, "the map is the same");
        rig.pool().verify_invariants().expect("sound");
        assert!(base_blocks(&volume) > 900, "{}", base_blocks(&volume));
        scribble(&volume, &mut expected, &mut random, 100);
        rig.age(&volume);
        assert!(content(&volume) == expected);
    }
}

#[test]
fn restarts_and_rebuilds_find_what_is_at_home_alone() {
    rebuild_homes(Architecture::Redirect);
    rebuild_homes(Architecture::Checkpointing);
}

#[test]
fn a_revert_and_its_undo_need_nothing_of_the_base_to_move() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Redirect, Granularity::EveryWrite);
    let mut first = empty();
    let mut random = Random::new(6);
    scribble(&volume, &mut first, &mut random, 1500);
    rig.age(&volume);
    let one = volume.resolve(&Moment::Latest).expect("now").seq;
    let mut second = first.clone();
    scribble(&volume, &mut second, &mut random, 300);
    let two = volume.resolve(&Moment::Latest).expect("now").seq;
    let before = requests(&volume, IoKind::CurrentWrite);
    volume.revert(&Moment::Seq(one), false).expect("reverted");
    assert!(content(&volume) == first);
    let mut third = first.clone();
    scribble(&volume, &mut third, &mut random, 300);
    rig.settle();
    assert!(content(&volume) == third && past(&volume, two) == second);
    volume.revert(&Moment::Seq(two), false).expect("undone");
    assert!(content(&volume) == second);
    assert_eq!(requests(&volume, IoKind::CurrentWrite), before);
    rig.age(&volume);
    rig.age(&volume);
    assert!(content(&volume) == second, "after the other line is gone");
    rig.pool().verify_invariants().expect("sound");
}

fn clone_homes(architecture: Architecture) {
    for origin_first in [true, false] {
        let mut rig = Rig::new();
        let origin = rig.make("v", architecture, Granularity::EveryWrite);
        let mut expected = empty();
        let mut random = Random::new(7);
        scribble(&origin, &mut expected, &mut random, 1500);
        rig.age(&origin);
        let clone = rig.pool().clone_volume("v", &Moment::Latest, "c").expect("cloned");
        let mut other = expected.clone();
        let mut own = expected.clone();
        scribble(&clone, &mut other, &mut random, 600);
        scribble(&origin, &mut own, &mut random, 600);
        for _ in 0..3 {
            rig.age(&origin);
            rig.age(&clone);
        }
        assert!(content(&clone) == other && content(&origin) == own);
        let (gone, left, expected) = if origin_first {
            drop(origin);
            ("v", clone, other)
        } else {
            drop(clone);
            ("c", origin, own)
        };
        rig.pool().delete_volume(gone).expect("deleted");
        rig.age(&left);
        assert!(content(&left) == expected, "{gone} went first");
        rig.pool().verify_invariants().expect("sound");
        let name = left.name().to_owned();
        drop(left);
        assert_eq!(rig.rebuild(), 0);
        let left = rig.pool().volume(&name).expect("there");
        assert!(content(&left) == expected, "{gone} went first, and the map was built again");
        drop(left);
        rig.pool().delete_volume(&name).expect("deleted");
        rig.settle();
        let status = rig.pool().status();
        assert_eq!(status.current_bytes, 0, "all slabs are given back");
    }
}

#[test]
fn clones_read_homes_of_their_origin_whoever_goes_first() {
    clone_homes(Architecture::Redirect);
    clone_homes(Architecture::Checkpointing);
}

#[test]
fn a_view_reads_its_version_at_home_while_newer_ones_wait() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Redirect, Granularity::OnDemand);
    let mut first = empty();
    let mut random = Random::new(8);
    scribble(&volume, &mut first, &mut random, 1500);
    rig.age(&volume);
    let now = volume.resolve(&Moment::Latest).expect("now").seq;
    let view = volume.view(&Moment::Seq(now)).expect("a view");
    let mut second = first.clone();
    for _ in 0..3 {
        scribble(&volume, &mut second, &mut random, 1500);
        rig.age(&volume);
    }
    let mut seen = vec![0; SIZE_BYTES as usize];
    view.read(0, &mut seen).expect("read");
    assert!(seen == first && content(&volume) == second);
    drop(view);
    for _ in 0..3 {
        rig.age(&volume);
    }
    let (_, log) = read_requests(&volume, &second);
    assert!(log < 20, "the newer ones came home: {log}");
}

fn trim_homes(architecture: Architecture) {
    let rig = Rig::new();
    let volume = rig.make("v", architecture, Granularity::EveryWrite);
    let mut expected = empty();
    scribble(&volume, &mut expected, &mut Random::new(9), 3000);
    rig.age(&volume);
    let before = rig.pool().status().current_bytes;
    assert!(before >= SIZE_BYTES);
    let half = SIZE_BYTES / 2;
    let op = WriteOp::Zero { offset: 0, length_bytes: half };
    volume.write_batch(&[op]).expect("trimmed");
    volume.resize(SIZE_BYTES - 64 * BLOCK).expect("made smaller");
    volume.resize(SIZE_BYTES).expect("and larger");
    expected[..half as usize].fill(0);
    expected[(SIZE_BYTES - 64 * BLOCK) as usize..].fill(0);
    expected[(SIZE_BYTES - BLOCK) as usize..].fill(0xff);
    rig.age(&volume);
    assert!(content(&volume) == expected);
    let after = rig.pool().status().current_bytes;
    assert!(after <= before - half + ZONE_BYTES, "{before} before, {after} after");
}

#[test]
fn slabs_of_what_was_trimmed_are_given_back() {
    trim_homes(Architecture::Redirect);
    trim_homes(Architecture::Checkpointing);
}

fn bytes(volume: &Volume, kind: IoKind) -> u64 {
    let info = volume.info().expect("info");
    info.device_io.iter().find(|count| count.kind == kind).expect("every kind is told").bytes
}

/// Writes every block by itself.
fn fill(volume: &Volume, byte: u8) -> Vec<u8> {
    for block in 0..SIZE_BYTES / BLOCK {
        put(volume, block, byte, 1);
    }
    vec![byte; SIZE_BYTES as usize]
}

#[test]
fn a_checkpoint_is_a_read_and_two_writes_for_a_retained_block_and_a_write_for_another() {
    let blocks = SIZE_BYTES / BLOCK;
    let home = BLOCK + 192;
    for (granularity, retained) in [(Granularity::EveryWrite, 1), (Granularity::OnDemand, 0)] {
        let mut rig = Rig::new();
        let volume = rig.make("v", Architecture::Checkpointing, granularity);
        let first = fill(&volume, 1);
        drop(volume);
        let volume = rig.restart();
        rig.settle();
        assert_eq!(base_blocks(&volume), blocks, "the present is in place");
        assert_eq!(read_requests(&volume, &first).1, 0);
        drop(volume);
        let volume = rig.restart();
        rig.settle();
        assert_eq!(bytes(&volume, IoKind::CurrentWrite), 0, "nothing is to be done");
        let then = volume.resolve(&Moment::Latest).expect("now").seq;
        let second = fill(&volume, 2);
        let kinds =
            [IoKind::JournalWrite, IoKind::HistoryWrite].map(|kind| requests(&volume, kind));
        assert_eq!(kinds, [blocks, 0]);
        rig.settle();
        assert_eq!(bytes(&volume, IoKind::BeforeImageRead), retained * blocks * BLOCK);
        assert_eq!(bytes(&volume, IoKind::BeforeImageWrite), retained * blocks * home);
        // Besides the journal, which is read once more.
        assert_eq!(bytes(&volume, IoKind::CopyRead), blocks * BLOCK);
        assert_eq!(bytes(&volume, IoKind::CopyWrite), 0);
        assert_eq!(bytes(&volume, IoKind::CurrentWrite), blocks * home);
        assert_eq!(base_blocks(&volume), blocks);
        assert_eq!(read_requests(&volume, &second).1, 0, "the present is in place again");
        if retained == 1 {
            assert!(past(&volume, then) == first, "and the past in the log");
        }
        rig.pool().verify_invariants().expect("sound");
    }
}

#[test]
fn a_copy_on_write_snapshot_copies_at_the_first_write_after_a_capture_only() {
    let mut rig = Rig::new();
    let volume = rig.make("v", Architecture::Checkpointing, Granularity::OnDemand);
    let captured = fill(&volume, 1);
    drop(volume);
    let volume = rig.restart();
    rig.settle();
    let version = volume.create_version("base").expect("a version");
    for byte in [2, 3, 4] {
        let now = fill(&volume, byte);
        rig.settle();
        let copied = bytes(&volume, IoKind::BeforeImageWrite) * BLOCK / (BLOCK + 192);
        assert_eq!((copied, bytes(&volume, IoKind::BeforeImageRead)), (SIZE_BYTES, SIZE_BYTES));
        assert_eq!(read_requests(&volume, &now).1, 0);
        assert!(past(&volume, version.stamp.seq) == captured);
    }
}

#[test]
fn what_a_revert_left_behind_makes_way_for_blocks_that_were_new_then() {
    let mut rig = Rig::new();
    let volume = rig.make("v", Architecture::Checkpointing, Granularity::EveryWrite);
    let nothing = content(&volume);
    let one = put(&volume, SIZE_BYTES / BLOCK - 1, 0, 1);
    let first = fill(&volume, 1);
    let two = volume.resolve(&Moment::Latest).expect("now").seq;
    drop(volume);
    let volume = rig.restart();
    rig.settle();
    assert_eq!(base_blocks(&volume), SIZE_BYTES / BLOCK);
    volume.revert(&Moment::Seq(one), false).expect("reverted");
    assert!(content(&volume) == nothing);
    let mut second = Vec::new();
    let mut volume = volume;
    for byte in [2, 3, 4] {
        second = fill(&volume, byte);
        drop(volume);
        volume = rig.restart();
        rig.settle();
    }
    assert!(past(&volume, two) == first);
    let (_, log) = read_requests(&volume, &second);
    assert!(log < 20, "{log} requests to the log");
    rig.pool().verify_invariants().expect("sound");
}

#[test]
fn after_a_revert_the_present_comes_home_again() {
    let mut rig = Rig::new();
    let volume = rig.make("v", Architecture::Checkpointing, Granularity::EveryWrite);
    let first = fill(&volume, 1);
    drop(volume);
    let volume = rig.restart();
    rig.settle();
    let one = volume.resolve(&Moment::Latest).expect("now").seq;
    let second = fill(&volume, 2);
    rig.settle();
    let two = volume.resolve(&Moment::Latest).expect("now").seq;
    let written = bytes(&volume, IoKind::CurrentWrite);
    volume.revert(&Moment::Seq(one), false).expect("reverted");
    assert_eq!(bytes(&volume, IoKind::CurrentWrite), written, "a revert writes nothing");
    assert!(content(&volume) == first);
    let mut third = first.clone();
    scribble(&volume, &mut third, &mut Random::new(3), 900);
    rig.settle();
    assert!(content(&volume) == third && past(&volume, two) == second);
    drop(volume);
    let mut volume = rig.restart();
    // What the revert left behind makes way, then the present comes: a destage of two merges, and
    // one more for what the second frees.
    for _ in 0..3 {
        scribble(&volume, &mut third, &mut Random::new(3), 900);
        rig.settle();
        drop(volume);
        volume = rig.restart();
    }
    rig.settle();
    let (_, log) = read_requests(&volume, &third);
    assert!(log < 20, "{log} requests to the log");
    assert!(past(&volume, two) == second && past(&volume, one) == first);
    rig.pool().verify_invariants().expect("sound");
}

fn fill_up(architecture: Architecture) {
    let rig = Rig::new();
    let volume = rig.make("v", architecture, Granularity::EveryWrite);
    let mut expected = empty();
    let mut random = Random::new(10);
    scribble(&volume, &mut expected, &mut random, 1500);
    rig.age(&volume);
    assert!(base_blocks(&volume) > 500);
    // Nothing leaves the window any more, but the pool is small.
    let change = VolumeChange { window_ns: Some(1 << 60), ..VolumeChange::default() };
    volume.change(&change).expect("changed");
    for _ in 0..40 {
        scribble(&volume, &mut expected, &mut random, 1000);
        rig.pool().step(Budget { bytes: 1 << 16 }).expect("a step");
    }
    assert!(content(&volume) == expected);
    rig.pool().verify_invariants().expect("sound");
}

#[test]
fn a_base_makes_room_when_the_pool_is_full() {
    fill_up(Architecture::Redirect);
    fill_up(Architecture::Checkpointing);
}
