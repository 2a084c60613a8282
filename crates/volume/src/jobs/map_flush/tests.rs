//! A flush of the map beside a revert, and records in memory beside those in the catalogue.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{Scope, ScopedJoinHandle};

use block::{BlockDevice, MediaDevice};
use env::Clock;
use parking_lot::Mutex;
use sim::{SimClock, SimEntropy, SimMedia};
use units::{Moment, Seq, WallTime};

use crate::types::{Budget, VolumeSpec, WriteOp};
use crate::volume::Volume;
use crate::{Machine, Pool, PoolFormat, PoolOptions};

const SECOND_NS: u64 = 1_000_000_000;

type Act = Box<dyn FnOnce() + Send>;

/// A clock that does something once when it is asked while a volume stands still.
struct StillClock {
    below: SimClock,
    act: Mutex<Option<(Arc<Volume>, Act)>>,
}

impl Clock for StillClock {
    fn wall(&self) -> WallTime {
        let act = self.act.lock().take_if(|(volume, _)| volume.log().stands_still());
        if let Some((_, act)) = act {
            act();
        }
        self.below.wall()
    }

    fn monotonic_ns(&self) -> u64 {
        self.below.monotonic_ns()
    }
}

struct Rig {
    media: Arc<SimMedia>,
    clock: Arc<StillClock>,
}

impl Rig {
    fn new() -> Rig {
        let below = SimClock::new(WallTime::from_nanos(1_795_255_200 * SECOND_NS));
        let clock = Arc::new(StillClock { below, act: Mutex::new(None) });
        let rig = Rig { media: Arc::new(SimMedia::new(64 << 20, 1)), clock };
        let format = PoolFormat { zone_bytes: 1 << 20 };
        Pool::create(&rig.device(), &rig.machine(), &format).expect("made");
        rig
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(MediaDevice::new(Arc::clone(&self.media) as _))
    }

    fn machine(&self) -> Machine {
        Machine { clock: Arc::clone(&self.clock) as _, entropy: Arc::new(SimEntropy::new(1)) }
    }

    fn open(&self) -> Arc<Pool> {
        let options = PoolOptions { memory_bytes: 16 << 20 };
        Pool::open(self.device(), self.machine(), options).expect("opened")
    }
}

fn make(pool: &Pool, window_ns: u64) -> Arc<Volume> {
    let spec = VolumeSpec { window_ns, ..VolumeSpec::new("v", 8 << 20) };
    pool.create_volume(&spec).expect("made")
}

fn put(volume: &Volume, block: u64, byte: u8) -> Seq {
    let op = WriteOp::Data { offset: block * 4096, bytes: &[byte; 4096] };
    volume.write_batch(&[op]).expect("written")
}

fn get(volume: &Volume, block: u64) -> u8 {
    let mut bytes = [0; 4096];
    volume.read(block * 4096, &mut bytes).expect("read");
    bytes[0]
}

/// Whether the kernel says of a thread that it sleeps.
fn sleeps(task: &Path) -> bool {
    let stat = std::fs::read_to_string(task.join("stat")).expect("it runs");
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
}

/// Begins something that has to wait for a closed gate; it does when this returns.
pub(crate) fn waits<'s>(
    scope: &'s Scope<'s, '_>,
    f: impl FnOnce() + Send + 's,
) -> ScopedJoinHandle<'s, ()> {
    let (told, tells) = channel::<PathBuf>();
    let thread = scope.spawn(move || {
        let me = std::fs::read_link("/proc/thread-self").expect("threads have a directory");
        told.send(Path::new("/proc").join(me)).expect("somebody waits");
        f();
    });
    let task = tells.recv().expect("it began");
    while !sleeps(&task) {
        std::thread::yield_now();
    }
    thread
}

#[test]
fn what_is_written_after_a_revert_that_a_map_flush_waited_for_is_not_lost() {
    let rig = Rig::new();
    let pool = rig.open();
    let volume = make(&pool, 1 << 60);
    let past = put(&volume, 0, 1);
    put(&volume, 0, 2);
    let ((stands, stood), (go, goes)) = (channel(), channel());
    let act = move || {
        stands.send(()).expect("somebody waits");
        goes.recv().expect("it goes on");
    };
    *rig.clock.act.lock() = Some((Arc::clone(&volume), Box::new(act)));
    std::thread::scope(|scope| {
        let reverts = scope.spawn(|| volume.revert(&Moment::Seq(past), false).expect("reverted"));
        stood.recv().expect("the revert has closed the gate");
        // In this order they are let in: all but the last are before the flush at any rate.
        let writers: Vec<_> = (10..14)
            .map(|block| {
                let volume = &volume;
                waits(scope, move || _ = put(volume, block, 9))
            })
            .collect();
        let flush = waits(scope, || {
            let _work = pool.work.lock();
            volume.flush_map().expect("flushed");
        });
        go.send(()).expect("the revert waits");
        reverts.join().expect("no panic");
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        flush.join().expect("no panic");
    });
    volume.flush().expect("flushed");
    rig.media.halt_now();
    drop((volume, pool));
    rig.media.kill();
    let pool = rig.open();
    let volume = pool.volume("v").expect("there");
    let found: Vec<u8> = [0, 10, 11, 12, 13].map(|block| get(&volume, block)).to_vec();
    assert_eq!(found, [1, 9, 9, 9, 9]);
}

#[test]
fn records_in_memory_are_those_of_the_catalogue() {
    let rig = Rig::new();
    let pool = rig.open();
    let volume = make(&pool, SECOND_NS);
    let are_the_same = |when: &str| {
        let stored = pool.core.catalogue.load().expect("read").volumes;
        assert_eq!(stored, [volume.record.lock().clone()], "{when}");
    };
    (0..600).for_each(|block| _ = put(&volume, block % 300, 1));
    rig.clock.below.advance(100 * SECOND_NS);
    (0..600).for_each(|block| _ = put(&volume, block % 300, 2));
    rig.clock.below.advance(100 * SECOND_NS);
    // Pending entries are seen first, and go out after some seconds.
    for _ in 0..2 {
        while pool.step(Budget { bytes: 64 << 20 }).expect("stepped") {}
        rig.clock.below.advance(10 * SECOND_NS);
    }
    assert!(volume.record.lock().reclaimed_to > 0, "the window has moved on");
    are_the_same("after a reclamation");
    volume.resize(4 << 20).expect("resized");
    are_the_same("after what a shrink left was cut off");
}

#[test]
fn reverts_and_resizes_that_expired_leave_the_record_and_nothing_else() {
    let rig = Rig::new();
    let pool = rig.open();
    let volume = make(&pool, SECOND_NS);
    put(&volume, 0, 1);
    volume.create_version("").expect("captured");
    let clone = pool.clone_volume("v", &Moment::Version(0), "c").expect("made");
    let turn = |volume: &Volume, byte: u8| {
        let before = put(volume, 1, byte);
        put(volume, 1, 255);
        volume.revert(&Moment::Seq(before), false).expect("reverted");
        let larger = volume.size_bytes() == 8 << 20;
        volume.resize(if larger { 9 << 20 } else { 8 << 20 }).expect("resized");
    };
    let expire = || {
        rig.clock.below.advance(100 * SECOND_NS);
        for name in ["v", "c"] {
            let volume = pool.volume(name).expect("there");
            put(&volume, 2, 7);
            volume.flush_map().expect("flushed");
        }
        rig.clock.below.advance(100 * SECOND_NS);
        while pool.step(Budget { bytes: 64 << 20 }).expect("stepped") {}
    };
    let counts = |volume: &Volume| {
        let record = volume.record.lock();
        (record.line.len(), record.events.len())
    };
    (0..20).for_each(|byte| turn(&volume, byte));
    (0..20).for_each(|byte| turn(&clone, byte));
    expire();
    // A version from before them all is pinned: what is between is not needed, but stays.
    assert_eq!(counts(&volume), (21, 40));
    assert_eq!(counts(&clone), (1, 0));
    assert_eq!(volume.version(0).expect("there").dependants.clones, ["c"]);
    volume.delete_version(0).expect("deleted");
    volume.create_version("").expect("captured");
    turn(&volume, 30);
    expire();
    assert_eq!(counts(&volume), (2, 2));
    put(&volume, 3, 9);
    volume.flush().expect("flushed");
    rig.media.halt_now();
    drop((volume, clone, pool));
    rig.media.kill();
    let pool = rig.open();
    let volume = pool.volume("v").expect("there");
    assert_eq!([0, 1, 2, 3].map(|block| get(&volume, block)), [1, 30, 7, 9]);
    let view = volume.view(&Moment::Version(1)).expect("pinned");
    let mut bytes = [0; 4096];
    view.read(4096, &mut bytes).expect("read");
    assert_eq!(bytes[0], 19);
    assert_eq!(get(&pool.volume("c").expect("there"), 1), 19);
}

#[test]
fn flushes_of_little_leave_few_parts_of_the_time_index() {
    let rig = Rig::new();
    let pool = rig.open();
    let volume = make(&pool, u64::MAX);
    let mut written = Vec::new();
    for turn in 0..600_u64 {
        rig.clock.below.advance(5 * SECOND_NS);
        // Now and then much at once.
        for block in 0..if turn % 100 == 99 { 300 } else { 1 } {
            let seq = put(&volume, block, turn as u8);
            written.push(volume.stamp(seq).expect("just written"));
        }
        volume.flush_map().expect("flushed");
    }
    let check = |volume: &Volume| {
        let parts = volume.times().runs();
        let entries: u64 = parts.iter().map(|run| run.entries).sum();
        assert_eq!(entries as usize, written.len(), "each once");
        assert!(parts.len() <= 12, "{} parts of {entries} entries", parts.len());
        for stamp in &written {
            let found = volume.resolve(&Moment::At(stamp.time)).expect("in the window");
            assert_eq!((found.seq, found.time), (stamp.seq, stamp.time));
        }
    };
    check(&volume);
    pool.close().expect("closed");
    drop((volume, pool));
    check(&rig.open().volume("v").expect("there"));
}

#[test]
fn no_volume_is_missing_while_it_goes_into_the_trash_and_out_of_it() {
    let rig = Rig::new();
    let pool = rig.open();
    let volume = make(&pool, SECOND_NS);
    let registry = &pool.registry;
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| (0..200_000).all(|_| !registry.all().is_empty()));
        while !looks.is_finished() {
            registry.withdraw(&volume);
            registry.serve_again(&volume);
        }
        assert!(looks.join().expect("looked"), "one was missing for an instant");
    });
}

#[test]
fn of_a_volume_that_is_only_being_made_every_moment_is_open() {
    let rig = Rig::new();
    let pool = rig.open();
    let origin = make(&pool, SECOND_NS);
    let seq = put(&origin, 0, 1);
    let clone = pool.clone_volume("v", &Moment::Seq(seq), "c").expect("cloned");
    let needed = |volume: &Arc<Volume>| {
        let root = volume.own_timelines()[0].id;
        pool.needed(root, Seq::ZERO).expect("told")
    };
    let (before, own) = (needed(&origin).held, needed(&clone).openable);
    assert!(before.contains(&seq) && !own.contains(Seq::ZERO), "{before:?}");
    // As it is between the timeline and the volume.
    pool.registry.forget("c");
    assert_eq!(needed(&origin).held, before, "the moment that it began with");
    assert!(needed(&clone).openable.contains(Seq::ZERO), "its own");
}
