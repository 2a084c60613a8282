//! Pools that are left alone for some seconds, with the memory that they have by default: homes are
//! filled, what left the window is room, and then nothing is written any more.

use std::sync::Arc;

use block::{BlockDevice, MediaDevice};
use hindsight_volume::{
    Architecture, Budget, CacheChange, Granularity, IoKind, Machine, Pool, PoolFormat, PoolOptions,
    Volume, VolumeSpec,
};
use sim::{Random, SimClock, SimEntropy, SimMedia};
use units::WallTime;

use crate::base::{BLOCK, base_blocks, content, past, put, requests};

pub const SECOND_NS: u64 = 1_000_000_000;
pub const DAY_NS: u64 = 86_400 * SECOND_NS;
pub const MIB: u64 = 1 << 20;
/// As a server has it: map flushes for the sake of memory are far away.
const MEMORY_BYTES: u64 = 384 * MIB;

pub struct Rig {
    media: Arc<SimMedia>,
    pub clock: Arc<SimClock>,
    pub pool: Arc<Pool>,
}

impl Rig {
    pub fn new() -> Rig {
        Rig::of(256 * MIB)
    }

    pub fn of(bytes: u64) -> Rig {
        let media = Arc::new(SimMedia::new(bytes, 5));
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(1 << 60)));
        let (device, machine) = Rig::parts(&media, &clock);
        Pool::create(&device, &machine, &PoolFormat { zone_bytes: MIB }).expect("made");
        Rig::opened(media, clock)
    }

    fn parts(media: &Arc<SimMedia>, clock: &Arc<SimClock>) -> (Arc<dyn BlockDevice>, Machine) {
        let clock = Arc::<SimClock>::clone(clock);
        let machine = Machine { clock, entropy: Arc::new(SimEntropy::new(media.changes())) };
        (Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(media))), machine)
    }

    fn opened(media: Arc<SimMedia>, clock: Arc<SimClock>) -> Rig {
        let (device, machine) = Rig::parts(&media, &clock);
        let options = PoolOptions { memory_bytes: MEMORY_BYTES };
        let pool = Pool::open(device, machine, options).expect("opened");
        Rig { media, clock, pool }
    }

    /// Closes the pool and opens it.
    pub fn restart(self) -> Rig {
        self.pool.close().expect("closed");
        let Rig { media, clock, pool } = self;
        drop(pool);
        Rig::opened(media, clock)
    }

    pub fn make(
        &self,
        architecture: Architecture,
        granularity: Granularity,
        window_ns: u64,
        size_bytes: u64,
    ) -> Arc<Volume> {
        let kind = (architecture, granularity);
        self.pool.create_volume(&spec(kind, window_ns, size_bytes)).expect("made")
    }

    /// So much time passes, with background work now and then.
    pub fn rest(&self, seconds: u64) {
        for _ in 0..4 * seconds {
            self.clock.advance(SECOND_NS / 4);
            while self.pool.step(Budget { bytes: 8 * MIB }).expect("stepped") {}
        }
    }
}

/// The settings of a rig's volume.
pub fn spec(
    (architecture, granularity): (Architecture, Granularity),
    window_ns: u64,
    size_bytes: u64,
) -> VolumeSpec {
    VolumeSpec {
        architecture,
        granularity,
        window_ns,
        cache: CacheChange {
            bytes: architecture.needs_cache().then_some(MIB),
            dirty_percent: None,
        },
        ..VolumeSpec::new(architecture.name(), size_bytes)
    }
}

pub fn fill(volume: &Volume, byte: u8) {
    for block in (0..volume.size_bytes() / BLOCK).step_by(64) {
        put(volume, block, byte, 64);
    }
}

fn count(volume: &Volume, kinds: [IoKind; 4]) -> [u64; 4] {
    kinds.map(|kind| requests(volume, kind))
}

fn unplaced(volume: &Volume) -> u64 {
    volume.info().expect("info").unplaced_bytes
}

/// Xiao's copy on write and redirect on write: what the first write after a capture costs, and what
/// the next does, when it has been let settle.
#[test]
fn a_volume_that_rests_settles_within_seconds() {
    let blocks = 16 * MIB / BLOCK;
    for architecture in [Architecture::Checkpointing, Architecture::Redirect] {
        let rig = Rig::new();
        let volume = rig.make(architecture, Granularity::OnDemand, 30 * DAY_NS, 16 * MIB);
        fill(&volume, 1);
        let mut random = Random::new(3);
        for _ in 0..1000 {
            put(&volume, random.below(blocks), 2, 1);
        }
        rig.rest(20);
        assert_eq!(base_blocks(&volume), blocks, "{architecture:?}");
        assert_eq!(unplaced(&volume), 0, "{architecture:?}");
        let (home, log) =
            (requests(&volume, IoKind::CurrentRead), requests(&volume, IoKind::HistoryRead));
        let captured = content(&volume);
        let home = requests(&volume, IoKind::CurrentRead) - home;
        assert!((1..=64).contains(&home), "{architecture:?}: {home} requests in order");
        assert_eq!(requests(&volume, IoKind::HistoryRead), log, "{architecture:?}");

        let version = volume.create_version("v").expect("captured");
        let kinds = [
            IoKind::JournalWrite,
            IoKind::HistoryWrite,
            IoKind::BeforeImageRead,
            IoKind::BeforeImageWrite,
        ];
        let homes = || requests(&volume, IoKind::CurrentWrite);
        for (round, first) in [(3, true), (4, false)] {
            let (before, homes_before) = (count(&volume, kinds), homes());
            // Neighbours come home together: so that requests can be counted none has one.
            for block in (0..blocks).step_by(8) {
                put(&volume, block, round, 1);
            }
            rig.rest(20);
            let after = count(&volume, kinds);
            let cost: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
            let written = blocks / 8;
            let came_home = homes() - homes_before;
            let copied = if first { written } else { 0 };
            match architecture {
                Architecture::Checkpointing => {
                    assert_eq!(cost, [written, 0, copied, copied], "{round}");
                    assert_eq!(came_home, written, "{round}");
                }
                _ => {
                    assert_eq!(cost, [0, written, 0, 0], "{round}");
                    assert_eq!(came_home, 0, "{round}: the capture holds the homes");
                }
            }
        }
        assert!(past(&volume, version.stamp.seq) == captured, "{architecture:?}");
        rig.pool.verify_invariants().expect("sound");
    }
}

/// A virtual machine that does little writes now and then, and is never quite at rest.
#[test]
fn a_volume_with_a_few_writes_a_second_settles_too() {
    let rig = Rig::new();
    let volume = rig.make(Architecture::Checkpointing, Granularity::OnDemand, DAY_NS, 16 * MIB);
    fill(&volume, 1);
    for n in 0..40 {
        put(&volume, n * 7, 2, 1);
        rig.rest(1);
        if n >= 12 {
            assert!(unplaced(&volume) <= 14 * BLOCK, "{n}: {}", unplaced(&volume));
        }
    }
}

#[test]
fn what_left_the_window_is_room_within_seconds() {
    let rig = Rig::new();
    let interval = Granularity::Interval(SECOND_NS);
    let volume = rig.make(Architecture::Logging, interval, 10 * SECOND_NS, 8 * MIB);
    fill(&volume, 1);
    let mut random = Random::new(9);
    let history = || volume.info().expect("info").history_bytes;
    for second in 0..40 {
        // 3 MiB in a second.
        for _ in 0..768 {
            put(&volume, random.below(8 * MIB / BLOCK), 2, 1);
        }
        rig.rest(1);
        // The window, what has left it and is not yet worth a merge, and what is pending.
        assert!(history() <= 55 * MIB, "{second} s: {}", history());
    }
    assert!(history() > 20 * MIB, "{}: the window is full", history());
    rig.rest(20);
    assert!(history() <= MIB / 4, "{}: nothing is in the window", history());
    let status = rig.pool.status();
    // Of segments that are more than half full, and the one that is open.
    assert!(status.reclaimable_bytes <= 9 * MIB, "{}", status.reclaimable_bytes);
    rig.pool.verify_invariants().expect("sound");
}

#[test]
fn what_versions_that_were_deleted_at_once_held_is_room_within_seconds() {
    let rig = Rig::new();
    let volume = rig.make(Architecture::Logging, Granularity::OnDemand, DAY_NS, 8 * MIB);
    fill(&volume, 1);
    rig.rest(10);
    let version = volume.create_version("v").expect("captured");
    fill(&volume, 2);
    volume.delete_version(version.number).expect("deleted");
    rig.rest(10);
    let history = volume.info().expect("info").history_bytes;
    assert!(history <= MIB / 4, "{history}");
    assert!(rig.pool.status().reclaimable_bytes <= 2 * MIB);
}

#[test]
fn an_idle_pool_becomes_silent() {
    for architecture in Architecture::ALL {
        for granularity in
            [Granularity::EveryWrite, Granularity::Interval(SECOND_NS), Granularity::OnDemand]
        {
            let rig = Rig::new();
            let volume = rig.make(architecture, granularity, 10 * SECOND_NS, 4 * MIB);
            let mut random = Random::new(4);
            fill(&volume, 1);
            for n in 0..300 {
                put(&volume, random.below(4 * MIB / BLOCK), 2, 1);
                if n == 150 {
                    rig.rest(3);
                    volume.create_version("v").expect("captured");
                }
            }
            // Windows of `hybrid` on demand are ten minutes.
            rig.rest(700);
            let changes = rig.media.changes();
            rig.rest(1500);
            let more = rig.media.changes() - changes;
            assert_eq!(more, 0, "{architecture:?}, {granularity:?}");
        }
    }
}
