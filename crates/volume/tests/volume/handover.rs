//! Threads that meet: commits, flushes and writes that must not undo one another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use block::Operation;
use hindsight_volume::{Budget, Granularity, Pool, WriteOp};
use sim::{Failure, Keep, Op};
use units::Moment;

use crate::hook::{Rig, SECOND_NS, get, make, put};

const ALL: Budget = Budget { bytes: 64 << 20 };

fn step_all(pool: &Pool) {
    while pool.step(ALL).expect("stepped") {}
}

#[test]
fn a_version_made_while_the_map_is_written_out_does_not_take_that_back() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    for block in 0..1000 {
        put(&volume, block, 1 + (block % 200) as u8);
    }
    volume.flush().expect("flushed");
    // The syncs of this thread are slow, so that the others wait for its commits.
    let slow = std::thread::current().id();
    rig.device.hook(move |operation, _| {
        if operation == Operation::Flush && std::thread::current().id() == slow {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                volume.create_version("").expect("captured");
            }
        });
        step_all(&pool);
        done.store(true, Ordering::SeqCst);
    });
    put(&volume, 0, 77);
    volume.flush().expect("flushed");
    drop(volume);
    let pool = rig.kill(pool);
    let volume = pool.volume("v").expect("there");
    assert_eq!(get(&volume, 0), 77);
    for block in 1..1000 {
        assert_eq!(get(&volume, block), 1 + (block % 200) as u8, "block {block}");
    }
}

#[test]
fn a_merge_does_not_hide_the_end_of_a_segment_that_is_not_in_the_map_yet() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, SECOND_NS);
    for turn in 0..60 {
        put(&volume, 0, turn);
    }
    // Many small batches, so that the map is written out with most of the segment still empty.
    for block in 100..360 {
        let op = WriteOp::Zero { offset: block * 4096, length_bytes: 4096 };
        volume.write_batch(&[op]).expect("written");
    }
    step_all(&pool);
    for block in 0..230 {
        put(&volume, block, 9);
    }
    rig.clock.advance(100 * SECOND_NS);
    step_all(&pool);
    drop(volume);
    let pool = rig.kill(pool);
    let volume = pool.volume("v").expect("there");
    for block in 0..230 {
        assert_eq!(get(&volume, block), 9, "block {block}");
    }
}

#[test]
fn a_flush_covers_what_it_was_asked_for_whatever_is_lost_of_earlier_seqs() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    put(&volume, 0, 1);
    volume.flush().expect("flushed");
    // The write of block 1 takes its seq and then hangs, while block 2 is written and flushed.
    let (hung, is_hung) = channel();
    let (go, may_go) = channel::<()>();
    let may_go = parking_lot::Mutex::new(Some((hung, may_go)));
    rig.device.hook(move |operation, _| {
        let taken = if operation == Operation::Write { may_go.lock().take() } else { None };
        if let Some((hung, may_go)) = taken {
            hung.send(()).expect("heard");
            may_go.recv().expect("told to go on");
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| put(&volume, 1, 1));
        is_hung.recv().expect("hung");
        put(&volume, 2, 2);
        let flush = scope.spawn(|| volume.flush().expect("flushed"));
        for _ in 0..50 {
            if !flush.is_finished() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        go.send(()).expect("it hangs");
    });
    let before = rig.media.unsynced().len();
    put(&volume, 3, 3);
    drop(volume);
    rig.media.halt_now();
    drop(pool);
    // Everything older than the last write that is not flushed is lost.
    rig.media.crash_with(&mut |i, _| if i < before { Keep::Nothing } else { Keep::All });
    let pool = rig.open();
    let volume = pool.volume("v").expect("there");
    assert_eq!(get(&volume, 2), 2, "it was written and flushed");
}

/// Fails unless `work` ends.
fn ends(what: &str, work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let thread = std::thread::spawn(move || {
        work();
        done.send(()).expect("somebody waits");
    });
    assert!(is_done.recv_timeout(Duration::from_secs(60)).is_ok(), "{what} never ends");
    thread.join().expect("ended");
}

#[test]
fn versions_and_marks_made_side_by_side_do_not_wait_for_each_other_for_ever() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    rig.device.hook(|operation, _| {
        if operation == Operation::Flush {
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    ends("making versions and marks", move || {
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let volume = &volume;
                scope.spawn(move || {
                    for turn in 0..60 {
                        put(volume, turn, 3);
                        let number = volume.create_version("").expect("captured").number;
                        volume.delete_version(number).expect("deleted");
                    }
                });
                scope.spawn(move || {
                    for turn in 0..60 {
                        let name = format!("m{thread}-{turn}");
                        volume.create_mark(&name, &Moment::Latest, true).expect("marked");
                        volume.delete_mark(&name).expect("deleted");
                    }
                });
            }
        });
    });
    drop(pool);
}

#[test]
fn versions_and_background_work_do_not_wait_for_each_other_for_ever() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    let idle = Arc::clone(&pool);
    ends("making versions beside background work", move || {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    idle.step(ALL).expect("stepped");
                }
            });
            for _ in 0..3000 {
                volume.create_version("").expect("captured");
            }
            done.store(true, Ordering::SeqCst);
        });
    });
}

#[test]
fn part_of_a_block_written_beside_a_revert_keeps_nothing_of_before() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    let past = put(&volume, 5, 1);
    put(&volume, 5, 2);
    // The rest of the block is being read for the merge when the volume goes back.
    let reverted = Arc::new(AtomicBool::new(false));
    let (once, target) = (Arc::clone(&reverted), Arc::clone(&volume));
    rig.device.hook(move |operation, _| {
        if operation == Operation::Read && !once.swap(true, Ordering::SeqCst) {
            target.revert(&Moment::Seq(past), false).expect("reverted");
        }
    });
    let op = WriteOp::Data { offset: 5 * 4096 + 100, bytes: &[3; 100] };
    volume.write_batch(&[op]).expect("written");
    assert!(reverted.load(Ordering::SeqCst));
    rig.device.unhook();
    let mut expected = [1; 4096];
    expected[100..200].fill(3);
    let mut found = [0; 4096];
    volume.read(5 * 4096, &mut found).expect("read");
    assert_eq!((found[0], found[100], found[4095]), (1, 3, 1), "of the moment gone back to");
    assert!(found == expected, "the block is of the moment gone back to");
}

#[test]
fn what_is_cut_off_reads_as_zeros_whoever_writes_there_meanwhile() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    put(&volume, 0, 1);
    step_all(&pool);
    // Sizes within a block and at the end of one; writes beyond the new size while it is made so.
    for (turn, size_bytes) in [(1_u64 << 20) + 512, 1 << 20, 4096 + 1024].into_iter().enumerate() {
        let armed = Arc::new(AtomicBool::new(true));
        let (once, target) = (Arc::clone(&armed), Arc::clone(&volume));
        rig.device.hook(move |operation, _| {
            if operation == Operation::Flush && once.swap(false, Ordering::SeqCst) {
                let boundary = size_bytes / 4096 * 4096;
                let ranges = [(boundary, 4096), (2 << 20, 4096), (boundary + 900, 700)];
                let write = |(offset, length)| {
                    let op = WriteOp::Data { offset, bytes: &vec![7; length] };
                    let _ = target.write_batch(&[op]);
                };
                // Not by this thread, which holds what it flushes for.
                std::thread::scope(|scope| scope.spawn(|| ranges.map(write)).join())
                    .expect("no panic");
            }
        });
        volume.resize(size_bytes).expect("smaller");
        assert!(!armed.load(Ordering::SeqCst));
        rig.device.unhook();
        volume.resize(8 << 20).expect("larger");
        let mut found = vec![1; (8 << 20) - size_bytes as usize];
        volume.read(size_bytes, &mut found).expect("read");
        let first = found.iter().position(|b| *b != 0);
        assert_eq!(first, None, "turn {turn}: what was cut off reads as zeros");
    }
}

#[test]
fn two_who_make_a_volume_smaller_and_larger_leave_zeros() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    volume.resize(4 << 20).expect("smaller");
    let armed = Arc::new(AtomicBool::new(true));
    let (once, target) = (Arc::clone(&armed), Arc::clone(&volume));
    let (begun, other) = channel();
    rig.device.hook(move |operation, _| {
        if operation == Operation::Flush && once.swap(false, Ordering::SeqCst) {
            let volume = Arc::clone(&target);
            let (done, is_done) = channel();
            let thread = std::thread::spawn(move || {
                volume.resize(6 << 20).expect("larger");
                let op = WriteOp::Data { offset: 5 << 20, bytes: &[8; 4096] };
                let _ = volume.write_batch(&[op]);
                let _ = done.send(());
            });
            // It ends now, or it waits until this resize has ended.
            let _ = is_done.recv_timeout(Duration::from_millis(200));
            begun.send(thread).expect("somebody waits");
        }
    });
    volume.resize(2 << 20).expect("smaller");
    rig.device.unhook();
    // What it writes is cut off by what comes now, not written behind it.
    let other = other.try_recv().expect("the resize flushes");
    other.join().expect("the other one ends");
    volume.resize(2 << 20).expect("smaller");
    volume.resize(8 << 20).expect("larger");
    let mut found = vec![1; 6 << 20];
    volume.read(2 << 20, &mut found).expect("read");
    assert!(found.iter().all(|b| *b == 0), "what was cut off reads as zeros");
}

#[test]
fn a_server_that_is_only_restarted_after_a_failed_sync_trusts_nothing_that_it_lost() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    put(&volume, 0, 1);
    volume.flush().expect("flushed");
    for block in 1..60 {
        put(&volume, block, 9);
    }
    rig.media.fail(Failure::once(Op::Sync));
    volume.flush().expect_err("the sync fails");
    drop(volume);
    // Reads still return everything, also what was lost. The next syncs succeed.
    let pool = rig.kill(pool);
    let volume = pool.volume("v").expect("there");
    volume.flush().expect("flushed");
    let seen: Vec<u8> = (0..60).map(|block| get(&volume, block)).collect();
    drop(volume);
    rig.media.halt_now();
    drop(pool);
    rig.media.crash_with(&mut |_, _| Keep::Nothing);
    let pool = rig.open();
    let volume = pool.volume("v").expect("there");
    let found: Vec<u8> = (0..60).map(|block| get(&volume, block)).collect();
    assert_eq!(found, seen, "it was flushed");
}
