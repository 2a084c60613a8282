//! Damage in what one volume has, and the volumes beside it.

use std::sync::{Arc, Barrier};

use block::{BlockDevice, Operation};
use hindsight_volume::{
    Budget, ErrorKind, Granularity, Pool, Volume, VolumeChange, VolumeSpec, WriteOp,
};
use sim::Op;
use units::{Moment, WallTime};

use crate::hook::{Rig, SECOND_NS, get, put};

const ALL: Budget = Budget { bytes: 64 << 20 };

pub fn volume(pool: &Pool, name: &str, granularity: Granularity) -> Arc<Volume> {
    let spec = VolumeSpec { granularity, window_ns: 1 << 60, ..VolumeSpec::new(name, 8 << 20) };
    pool.create_volume(&spec).expect("made")
}

/// Steps until there is no more to do, or what is left fails.
fn step_all(pool: &Pool) {
    while let Ok(true) = pool.step(ALL) {}
}

/// Damages every page of these that was written since the media's log began.
fn rot_pages(rig: &Rig, magic: &[u8]) -> usize {
    let written = rig.media.take_log();
    let written = written.iter().filter(|one| one.op == Op::Write);
    let mut count = 0;
    for at in written.flat_map(|one| (one.offset..one.offset + one.length_bytes).step_by(4096)) {
        let mut page = [0; 4096];
        rig.device.read_at(at, &mut page).expect("read");
        if page.starts_with(magic) {
            rig.media.rot(at + 100, 3);
            count += 1;
        }
    }
    count
}

/// A pool in which the times of volume `a`, of one-second intervals, are damaged.
fn with_damaged_times(rig: &Rig) -> (Arc<Pool>, Arc<Volume>) {
    let pool = rig.open();
    let damaged = volume(&pool, "a", Granularity::Interval(SECOND_NS));
    rig.media.start_log();
    for turn in 0..600 {
        put(&damaged, turn % 200, 1);
        rig.clock.advance(SECOND_NS / 10);
    }
    step_all(&pool);
    assert!(rot_pages(rig, b"HTIM") > 3, "there are times");
    (pool, damaged)
}

#[test]
fn damaged_times_of_one_volume_do_not_stop_the_flushes_and_merges_of_another() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let (pool, damaged) = with_damaged_times(&rig);
    let sound = volume(&pool, "v", Granularity::OnDemand);
    let pending = || pool.status().pending_entries;
    // Enough for some runs to be joined, and all of it to be written over.
    for turn in 0..30u64 {
        for block in 0..300 {
            put(&sound, block, turn as u8);
        }
        step_all(&pool);
        assert!(pending() < 256, "turn {turn}: {} entries wait", pending());
    }
    let used = pool.status().log_bytes;
    assert!(used < 30 << 20, "what no moment needs is reclaimed: {used} bytes are in use");
    assert_eq!(get(&sound, 7), 29);
    // It goes on itself as far as it can: what is new needs no old times to be written out.
    for block in 0..300 {
        put(&damaged, block, 9);
    }
    step_all(&pool);
    assert!(pending() < 256, "{} entries wait", pending());
    assert_eq!(get(&damaged, 7), 9);
    pool.verify_invariants().expect("sound");
}

#[test]
fn damaged_times_of_one_volume_do_not_keep_the_pool_from_opening() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let (pool, damaged) = with_damaged_times(&rig);
    let sound = volume(&pool, "v", Granularity::EveryWrite);
    put(&sound, 7, 3);
    drop((damaged, sound));
    // First and last pages of runs among them.
    let pool = rig.kill(pool);
    let (damaged, sound) = (pool.volume("a").expect("there"), pool.volume("v").expect("there"));
    assert_eq!((get(&damaged, 7), get(&sound, 7)), (1, 3));
    let long_ago = Moment::At(WallTime::from_nanos(rig.clock_now() - 30 * SECOND_NS));
    let error =
        damaged.view(&long_ago).map(drop).expect_err("nobody knows what there was at that time");
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    // What is new has its times in memory, then in runs after the damaged ones.
    for turn in 0..600u64 {
        put(&damaged, turn % 200, 2 + (turn / 300) as u8);
        rig.clock.advance(SECOND_NS / 10);
        if turn == 299 {
            step_all(&pool);
        }
    }
    let before = Moment::At(WallTime::from_nanos(rig.clock_now() - 35 * SECOND_NS));
    let byte_then = |volume: &Arc<Volume>| {
        let mut byte = [0];
        volume.view(&before).expect("opened").read(7 * 4096, &mut byte).expect("read");
        byte[0]
    };
    assert_eq!(byte_then(&damaged), 2);
    assert_eq!(damaged.view(&long_ago).map(drop).expect_err("still not").kind, ErrorKind::Corrupt);
    step_all(&pool);
    drop((damaged, sound));
    let pool = rig.kill(pool);
    let damaged = pool.volume("a").expect("there");
    assert_eq!(byte_then(&damaged), 2);
    assert_eq!(damaged.view(&long_ago).map(drop).expect_err("still not").kind, ErrorKind::Corrupt);
    assert_eq!(get(&damaged, 7), 3);
    drop(damaged);
    pool.delete_volume("a").expect("deleted");
    pool.verify_invariants().expect("sound");
}

#[test]
fn a_clone_with_damaged_times_keeps_what_it_began_with_and_stops_nobody() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let origin = volume(&pool, "v", Granularity::OnDemand);
    put(&origin, 7, 5);
    let version = origin.create_version("").expect("captured").number;
    let clone = pool.clone_volume("v", &Moment::Version(version), "c").expect("cloned");
    let change = VolumeChange {
        granularity: Some(Granularity::Interval(SECOND_NS)),
        ..VolumeChange::default()
    };
    clone.change(&change).expect("changed");
    rig.media.start_log();
    for turn in 0..600 {
        put(&clone, 100 + turn % 200, 1);
        rig.clock.advance(SECOND_NS / 10);
    }
    step_all(&pool);
    assert!(rot_pages(&rig, b"HTIM") > 3, "there are times");
    origin.delete_version(version).expect("deleted");
    for turn in 0..10u64 {
        for block in 0..300 {
            put(&origin, block, 10 + turn as u8);
        }
        step_all(&pool);
        assert!(pool.status().pending_entries < 256, "turn {turn}");
    }
    assert_eq!((get(&clone, 7), get(&origin, 7)), (5, 19));
}

#[test]
fn who_waits_for_a_volume_whose_owner_panicked_is_refused_and_not_left_waiting() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = volume(&pool, "v", Granularity::EveryWrite);
    put(&volume, 0, 1);
    rig.device.hook(|operation, _| {
        let breaks = std::thread::current().name() == Some("breaks");
        assert!(!breaks || operation != Operation::Flush, "broken on purpose");
    });
    let breaks = std::thread::Builder::new().name("breaks".to_owned()).spawn({
        let volume = Arc::clone(&volume);
        // The commit is made, and the device flushed, while the volume stands still.
        move || volume.change(&VolumeChange { window_ns: Some(7), ..VolumeChange::default() })
    });
    let outcome = breaks.expect("a thread").join();
    assert!(!matches!(outcome, Ok(Ok(()))), "it cannot have been committed");
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::spawn({
        let volume = Arc::clone(&volume);
        move || {
            let op = WriteOp::Data { offset: 0, bytes: &[2; 4096] };
            let kind = volume.write_batch(&[op]).map_err(|e| e.kind);
            told.send(kind).expect("somebody listens");
        }
    });
    let kind = heard.recv_timeout(std::time::Duration::from_secs(60)).expect("it is answered");
    assert_eq!(kind.map(drop), Err(ErrorKind::Refused));
    assert_eq!(get(&volume, 0), 1, "reads go on");
}

#[test]
fn who_waits_to_commit_behind_a_panic_is_refused() {
    for _ in 0..20 {
        let rig = Rig::new(256 << 20, 1 << 20);
        let pool = rig.open();
        let volume = volume(&pool, "v", Granularity::EveryWrite);
        let (commits, waits) = (Arc::new(Barrier::new(2)), Arc::clone(&volume));
        rig.device.hook({
            let commits = Arc::clone(&commits);
            move |operation, _| {
                if std::thread::current().name() == Some("breaks") && operation == Operation::Flush
                {
                    commits.wait();
                    panic!("broken on purpose");
                }
            }
        });
        let breaks = std::thread::Builder::new().name("breaks".to_owned()).spawn({
            let pool = Arc::clone(&pool);
            move || pool.create_group("g", &["v".to_owned()]).map(drop)
        });
        let breaks = breaks.expect("a thread");
        commits.wait();
        let refused = waits.create_mark("m", &Moment::Latest, false).map(drop).expect_err("later");
        assert_eq!(refused.kind, ErrorKind::Refused, "{refused}");
        assert!(!matches!(breaks.join(), Ok(Ok(()))), "it cannot have been committed");
        assert_eq!(pool.status().state, "refusing-writes");
    }
}
