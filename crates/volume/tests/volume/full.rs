//! The pool full at every step of every operation: from the `k`-th time on that a story asks the
//! device for room there is none, for each `k`. Reads and deletes go on, writes say "full", what is
//! pinned stays, deletes free and writing goes on, and the pool opens again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::Operation;
use hindsight_volume::{
    Architecture, Budget, CacheChange, Encoding, EncodingChange, ErrorKind, Pool, Volume,
    VolumeChange, VolumeSpec, WriteOp,
};
use units::Moment;

use crate::hook::{Rig, SECOND_NS};

const ZONE_BYTES: u64 = 256 << 10;
/// Blocks of the volume that is kept, all of which its pinned version shows.
const KEPT: u64 = 100;

type Outcome = Result<(), ErrorKind>;

/// Of a volume in which every write is kept for ever.
pub fn spec(name: &str, architecture: Architecture, cache: CacheChange) -> VolumeSpec {
    VolumeSpec { architecture, window_ns: 1 << 60, cache, ..VolumeSpec::new(name, 8 << 20) }
}

fn try_put(volume: &Volume, block: u64, byte: u8) -> Outcome {
    let op = WriteOp::Data { offset: block * 4096, bytes: &[byte; 4096] };
    volume.write_batch(&[op]).map(|_| ()).map_err(|e| e.kind)
}

/// Writes until so many blocks were taken or there is no room.
fn fill(volume: &Volume, blocks: u64, byte: u8) -> Outcome {
    (0..blocks).try_for_each(|turn| try_put(volume, turn % 600, byte))
}

fn step(pool: &Pool) -> Outcome {
    for _ in 0..300 {
        if !pool.step(Budget { bytes: 8 << 20 }).map_err(|e| e.kind)? {
            break;
        }
    }
    Ok(())
}

/// One thing that is done; what it fails with for want of room is not its fault.
type Step = (&'static str, fn(&Rig, &Arc<Pool>) -> Outcome);

fn of(pool: &Pool, name: &str) -> Result<Arc<Volume>, ErrorKind> {
    pool.volume(name).map_err(|e| e.kind)
}

fn change(pool: &Pool, name: &str, change: &VolumeChange) -> Outcome {
    of(pool, name)?.change(change).map_err(|e| e.kind)
}

const STORY: &[Step] = &[
    ("create", |_, pool| {
        let cache = CacheChange { bytes: Some(1 << 20), dirty_percent: Some(50) };
        let w = spec("w", Architecture::SplitStream, CacheChange::default());
        pool.create_volume(&w).map_err(|e| e.kind)?;
        let c = spec("c", Architecture::Logging, cache);
        pool.create_volume(&c).map(|_| ()).map_err(|e| e.kind)
    }),
    ("write", |_, pool| fill(&*of(pool, "w")?, 900, 1)),
    ("write to a cache", |_, pool| {
        let c = of(pool, "c")?;
        fill(&c, 200, 2).and_then(|()| c.flush().map_err(|e| e.kind))
    }),
    ("version", |_, pool| of(pool, "w")?.create_version("").map(|_| ()).map_err(|e| e.kind)),
    ("mark", |_, pool| {
        let made = of(pool, "w")?.create_mark("m", &Moment::Latest, true);
        made.map(|_| ()).map_err(|e| e.kind)
    }),
    ("write over", |_, pool| fill(&*of(pool, "w")?, 900, 3)),
    ("background work", |_, pool| step(pool)),
    ("clone", |_, pool| {
        pool.clone_volume("w", &Moment::Version(0), "d").map(|_| ()).map_err(|e| e.kind)
    }),
    ("write to the clone", |_, pool| fill(&*of(pool, "d")?, 300, 4)),
    ("revert", |_, pool| {
        of(pool, "w")?.revert(&Moment::Version(0), false).map(|_| ()).map_err(|e| e.kind)
    }),
    ("write after it", |_, pool| fill(&*of(pool, "w")?, 300, 5)),
    ("resize", |_, pool| of(pool, "w")?.resize(4 << 20).map_err(|e| e.kind)),
    ("convert", |_, pool| {
        let to = Some(Architecture::Checkpointing);
        change(pool, "w", &VolumeChange { architecture: to, ..VolumeChange::default() })?;
        step(pool)
    }),
    ("encode", |rig, pool| {
        let encoding = EncodingChange { encoding: Some(Encoding::Xor), after_ns: Some(0) };
        change(pool, "w", &VolumeChange { encoding, ..VolumeChange::default() })?;
        rig.clock.advance(100 * SECOND_NS);
        step(pool)
    }),
    ("a smaller window", |rig, pool| {
        let smaller =
            VolumeChange { window_ns: Some(1), grace_ns: Some(0), ..VolumeChange::default() };
        change(pool, "w", &smaller)?;
        rig.clock.advance(100 * SECOND_NS);
        step(pool)
    }),
    ("delete a version", |_, pool| {
        of(pool, "w")?.delete_version(0).map_err(|e| e.kind)?;
        step(pool)
    }),
];

/// The volume whose version must never go.
fn keep(pool: &Pool) -> Arc<Volume> {
    let kept = spec("kept", Architecture::Logging, CacheChange::default());
    let kept = pool.create_volume(&kept).expect("made");
    (0..KEPT).for_each(|block| try_put(&kept, block, 7).expect("there is room"));
    kept.create_version("").expect("captured");
    (0..KEPT).for_each(|block| try_put(&kept, block, 8).expect("there is room"));
    kept
}

fn shows(pool: &Pool, what: &str) {
    let kept = pool.volume("kept").unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut bytes = vec![0; (KEPT * 4096) as usize];
    kept.read(0, &mut bytes).unwrap_or_else(|e| panic!("{what}: a read: {e}"));
    assert!(bytes.iter().all(|byte| *byte == 8), "{what}: the present is not what it was");
    let view = kept.view(&Moment::Version(0)).unwrap_or_else(|e| panic!("{what}: {e}"));
    view.read(0, &mut bytes).unwrap_or_else(|e| panic!("{what}: a read of the past: {e}"));
    assert!(bytes.iter().all(|byte| *byte == 7), "{what}: what is pinned is not what it was");
}

/// Tells the story; no room is had from the `full_at`-th request for some on. Says how many there
/// were, and whether they ran out.
fn tell(full_at: u64) -> (u64, bool) {
    let rig = Rig::new(96 << 20, ZONE_BYTES);
    let mut pool = rig.open_with(8 << 20);
    drop(keep(&pool));
    // Something that is there to be deleted, however early there is no room.
    let ballast = spec("b", Architecture::Logging, CacheChange::default());
    let ballast = pool.create_volume(&ballast).expect("made");
    (0..1500).for_each(|block| try_put(&ballast, block, 6).expect("there is room"));
    drop(ballast);
    let asked = Arc::new(AtomicU64::new(0));
    let (media, count) = (Arc::clone(&rig.media), Arc::clone(&asked));
    rig.device.hook(move |operation, _| {
        let is_room = operation == Operation::Allocate;
        if is_room && count.fetch_add(1, Ordering::SeqCst) == full_at {
            media.set_space_limit(Some(media.allocated_bytes()));
        }
    });
    for (name, act) in STORY {
        let what = format!("full at {full_at}, {name}");
        match act(&rig, &pool) {
            Ok(()) => {}
            // What was not made cannot be changed later.
            Err(ErrorKind::Full | ErrorKind::NotFound) => {
                assert!(asked.load(Ordering::SeqCst) > full_at, "{what}: there was room");
            }
            Err(other) => panic!("{what}: {other:?}"),
        }
        let state = pool.status().state;
        assert_eq!(state, "online", "{what}");
        shows(&pool, &what);
    }
    let is_full = asked.load(Ordering::SeqCst) > full_at;
    if let Err(e) = pool.close() {
        assert_eq!(e.kind, ErrorKind::Full, "full at {full_at}: closing: {e}");
    }
    drop(pool);
    pool = rig.open_with(8 << 20);
    shows(&pool, &format!("full at {full_at}, opened again"));
    recovers(&pool, full_at);
    let count = asked.load(Ordering::SeqCst);
    rig.device.unhook();
    (count, is_full)
}

/// Deletes work and free: writing goes on after them, though the device has no more than it had.
fn recovers(pool: &Pool, full_at: u64) {
    for name in ["b", "c", "d", "w"] {
        match pool.delete_volume(name) {
            Ok(()) => {}
            Err(e) => assert_eq!(e.kind, ErrorKind::NotFound, "full at {full_at}: {name}: {e}"),
        }
    }
    shows(pool, &format!("full at {full_at}, after the deletes"));
    let kept = pool.volume("kept").expect("there");
    for turn in 0..400 {
        let outcome = try_put(&kept, KEPT + turn % 50, 9);
        assert_eq!(outcome, Ok(()), "full at {full_at}: write {turn} after the deletes");
    }
    pool.verify_invariants().unwrap_or_else(|e| panic!("full at {full_at}: {e}"));
}

#[test]
fn a_pool_that_is_full_at_any_step_keeps_its_promises() {
    let (all, is_full) = tell(u64::MAX);
    assert!(!is_full && all > 20, "{all} requests for room");
    let mut struck = 0;
    for full_at in 0..all {
        struck += u64::from(tell(full_at).1);
    }
    println!("{all} requests for room, {struck} of them the last");
    assert!(struck > all / 2, "{struck} of {all}");
}
