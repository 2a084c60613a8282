//! Merges of several volumes beside each other.

use std::sync::Arc;

use block::{BlockDevice, MediaDevice};
use history::Slot;
use sim::{SimClock, SimEntropy, SimMedia};
use units::WallTime;

use crate::jobs::flushes::full_maps;
use crate::jobs::merge::RUNS_MAX;
use crate::types::{Budget, Deletion, VolumeSpec, WriteOp};
use crate::volume::Volume;
use crate::{Machine, Pool, PoolFormat, PoolOptions};

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * SECOND_NS;
/// A step is as small as may be.
const SMALL: Budget = Budget { bytes: 1 };
/// Entries of a map that take a full merge many steps.
const MANY: u64 = 12_000;

struct Rig {
    clock: Arc<SimClock>,
    pool: Arc<Pool>,
}

impl Rig {
    fn new(memory_bytes: u64) -> Rig {
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(1_795_255_200 * SECOND_NS)));
        let machine =
            || Machine { clock: Arc::clone(&clock) as _, entropy: Arc::new(SimEntropy::new(1)) };
        let media = Arc::new(SimMedia::new(256 << 20, 1));
        let device: Arc<dyn BlockDevice> = Arc::new(MediaDevice::new(media));
        Pool::create(&device, &machine(), &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
        let pool = Pool::open(device, machine(), PoolOptions { memory_bytes }).expect("opened");
        Rig { clock, pool }
    }

    fn volume(&self, name: &str, window_ns: u64) -> Arc<Volume> {
        let spec = VolumeSpec { window_ns, ..VolumeSpec::new(name, 64 << 20) };
        self.pool.create_volume(&spec).expect("made")
    }

    fn is_full(&self, volume: &Volume) -> bool {
        full_maps(&self.pool).iter().any(|full| full.id == volume.id)
    }

    fn step(&self) {
        self.pool.step(SMALL).expect("stepped");
    }

    /// Steps until a full merge is under way.
    fn begin_full_merge(&self, volume: &Volume) {
        volume.reclamation().want();
        while !self.is_in_full_merge(volume) {
            self.step();
        }
    }

    fn is_in_full_merge(&self, volume: &Volume) -> bool {
        self.pool.work.lock().parts.merging().full == Some(volume.id)
    }
}

/// Writes blocks from the first on, some at a time.
fn fill(volume: &Volume, blocks: u64) {
    for first in (0..blocks).step_by(64) {
        let bytes = vec![7; 64 * 4096];
        let op = WriteOp::Data { offset: first * 4096, bytes: &bytes };
        volume.write_batch(&[op]).expect("written");
    }
}

/// Writes a block and the map, often: each time is a run more.
fn make_runs(pool: &Pool, volume: &Volume, count: u64) {
    for block in 0..count {
        let op = WriteOp::Data { offset: block * 4096, bytes: &[1; 4096] };
        volume.write_batch(&[op]).expect("written");
        let _work = pool.work.lock();
        volume.flush_map().expect("flushed");
    }
}

fn runs(volume: &Volume) -> usize {
    volume.present().timeline.runs().len()
}

#[test]
fn a_long_full_merge_keeps_no_other_volume_from_joining_its_runs() {
    let rig = Rig::new(16 << 20);
    let (long, other) = (rig.volume("long", DAY_NS), rig.volume("other", DAY_NS));
    fill(&long, MANY);
    rig.begin_full_merge(&long);
    make_runs(&rig.pool, &other, RUNS_MAX as u64 + 2);
    assert!(runs(&other) > RUNS_MAX);
    (0..3).for_each(|_| rig.step());
    assert!(rig.is_in_full_merge(&long), "it is long");
    assert!(runs(&other) <= RUNS_MAX, "{} runs", runs(&other));
}

#[test]
fn a_volume_whose_map_is_full_at_each_step_starves_no_other() {
    let rig = Rig::new(1 << 20);
    let (greedy, other) = (rig.volume("greedy", DAY_NS), rig.volume("other", DAY_NS));
    make_runs(&rig.pool, &other, RUNS_MAX as u64 + 2);
    for _ in 0..8 {
        while !rig.is_full(&greedy) {
            fill(&greedy, 64);
        }
        rig.step();
    }
    assert!(runs(&other) <= RUNS_MAX, "{} runs", runs(&other));
}

#[test]
fn a_volume_that_wants_to_be_merged_again_and_again_starves_no_other() {
    let rig = Rig::new(16 << 20);
    let (greedy, other) = (rig.volume("a", DAY_NS), rig.volume("b", DAY_NS));
    make_runs(&rig.pool, &other, RUNS_MAX as u64 + 2);
    for _ in 0..6 {
        make_runs(&rig.pool, &greedy, RUNS_MAX as u64 + 2);
        rig.step();
    }
    assert!(runs(&other) <= RUNS_MAX, "{} runs", runs(&other));
    other.reclamation().want();
    for _ in 0..6 {
        greedy.reclamation().want();
        rig.step();
    }
    assert!(!other.reclamation().is_wanted(), "its pass has begun");
}

#[test]
fn a_full_merge_that_is_given_up_is_made_again() {
    let rig = Rig::new(16 << 20);
    let (long, other) = (rig.volume("long", DAY_NS), rig.volume("other", DAY_NS));
    fill(&long, MANY);
    rig.begin_full_merge(&long);
    assert!(!long.reclamation().is_wanted(), "it has begun");
    fill(&other, 64);
    let dropped = Deletion { grace_ns: Some(0), force: true, ..Deletion::default() };
    rig.pool.remove_volume("other", dropped).expect("deleted");
    assert!(!rig.is_in_full_merge(&long), "a merge may be of what is deleted");
    let began = (0..4).any(|_| {
        rig.step();
        rig.is_in_full_merge(&long)
    });
    assert!(began, "it is made again");
}

#[test]
fn a_purge_that_failed_lets_merges_go_on_until_it_is_tried_again() {
    let rig = Rig::new(16 << 20);
    let (long, ghost) = (rig.volume("long", DAY_NS), rig.volume("ghost", DAY_NS));
    fill(&long, MANY);
    rig.begin_full_merge(&long);
    // As after a purge that failed: deleted for good, and still there.
    rig.pool.registry.withdraw(&ghost);
    ghost.set_gone();
    rig.pool.work.lock().parts.note_failed_purge();
    rig.step();
    assert!(rig.is_in_full_merge(&long), "nobody waits for what fails");
    rig.clock.advance(6 * SECOND_NS);
    rig.step();
    assert!(!rig.is_in_full_merge(&long) && ghost.is_buried(), "it is tried again");
}

#[test]
fn a_merge_that_frees_segments_drops_no_map_pages_of_other_volumes() {
    let rig = Rig::new(16 << 20);
    let (merged, other) = (rig.volume("merged", SECOND_NS), rig.volume("other", DAY_NS));
    let is_held = |volume: &Volume| {
        let mut slots = [Slot::default(); 1];
        volume.present().pages.try_slots(0, 0, &mut slots)
    };
    for volume in [&merged, &other] {
        fill(volume, 1024);
        fill(volume, 1024);
        let _work = rig.pool.work.lock();
        volume.flush_map().expect("flushed");
    }
    rig.clock.advance(3600 * SECOND_NS);
    let mut block = [0; 4096];
    // Versions that left the window free segments of one volume.
    let used = || rig.pool.core.store.segments().iter().filter(|s| s.log == merged.id).count();
    let before = used();
    merged.read(0, &mut block).expect("read");
    other.read(0, &mut block).expect("read");
    assert!(is_held(&merged) && is_held(&other));
    rig.begin_full_merge(&merged);
    while rig.is_in_full_merge(&merged) {
        rig.step();
    }
    assert!(used() < before, "{} of {before}", used());
    assert!(!is_held(&merged), "its blocks may lie elsewhere");
    assert!(is_held(&other), "its blocks lie where they lay");
}
