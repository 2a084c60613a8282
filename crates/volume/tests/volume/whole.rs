//! Whole writes: all of one is there or nothing of it, at every moment; and what is refused leaves
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use block::Operation;
use hindsight_volume::{
    Architecture, Budget, CacheChange, ErrorKind, Granularity, Lack, Volume, VolumeChange,
    VolumeSpec, Whole, WriteOp,
};
use units::{MapExtent, Moment, Seq};

use crate::hook::{Rig, SECOND_NS, get};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// The blocks that all whole writes of a story write: of several pages of the map.
const BLOCKS: [u64; 5] = [510, 511, 512, 1500, 3];
const UNCACHED: [Architecture; 4] = [
    Architecture::Logging,
    Architecture::SplitStream,
    Architecture::Redirect,
    Architecture::Checkpointing,
];

fn strict(architecture: Architecture) -> VolumeSpec {
    VolumeSpec { architecture, window_ns: 1 << 60, strict: true, ..VolumeSpec::new("v", 8 * MIB) }
}

/// One block of each, of one byte.
fn ops<'b>(blocks: &[u64], bytes: &'b [u8]) -> Vec<WriteOp<'b>> {
    blocks.iter().map(|block| WriteOp::Data { offset: block * BLOCK, bytes }).collect()
}

fn put(volume: &Volume, byte: u8) -> Seq {
    volume.write_whole(&ops(&BLOCKS, &[byte; BLOCK as usize])).expect("written")
}

/// The byte that all of a story's blocks hold at a moment, and what that came to.
fn at(volume: &Arc<Volume>, moment: &Moment) -> (u8, Seq, bool) {
    let view = volume.view(moment).expect("it can be opened");
    let resolved = view.resolved();
    assert_eq!(resolved, volume.resolve(moment).expect("resolved"));
    let mut found = BLOCKS.map(|block| {
        let mut bytes = [0xee; BLOCK as usize];
        view.read(block * BLOCK, &mut bytes).expect("read");
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    });
    found.sort_unstable();
    assert_eq!(found[0], found[4], "{moment}: part of a whole write is seen: {found:?}");
    (found[0], resolved.seq, resolved.exact)
}

/// Asks for every seq: each comes to the last of `ends` at or before it.
fn check_seqs(volume: &Arc<Volume>, ends: &[(Seq, u8)]) {
    let last = ends.last().expect("some").0.0;
    for seq in 0..=last {
        let found = at(volume, &Moment::Seq(Seq(seq)));
        let end = ends.iter().rev().find(|end| end.0.0 <= seq).expect("an end");
        assert_eq!(found, (end.1, end.0, end.0.0 == seq), "seq {seq}");
    }
}

#[test]
fn no_moment_lies_within_a_whole_write() {
    for architecture in UNCACHED {
        let rig = Rig::new(96 * MIB, 256 << 10);
        let mut pool = rig.open();
        let mut volume = pool.create_volume(&strict(architecture)).expect("made");
        let mut ends = vec![(Seq(0), 0)];
        for byte in 1..=12 {
            rig.clock.advance(SECOND_NS);
            ends.push((put(&volume, byte), byte));
            match byte {
                4 => volume.create_version("").map(drop).expect("captured"),
                7 => while pool.step(Budget { bytes: 8 * MIB }).expect("stepped") {},
                9 => {
                    pool.close().expect("closed");
                    drop(volume);
                    drop(pool);
                    pool = rig.open();
                    volume = pool.volume("v").expect("there");
                }
                _ => {}
            }
            check_seqs(&volume, &ends);
        }
        assert_eq!(ends[1].0, Seq(5), "each block has a seq");
        let within = Moment::Seq(Seq(ends[6].0.0 + 2));
        let mark = volume.create_mark("m", &within, true).expect("made");
        assert_eq!(mark.stamp.seq, ends[6].0);
        let clone = pool.clone_volume("v", &within, "c").expect("cloned");
        assert!(clone.info().expect("info").strict, "a clone is as strict as its origin");
        assert_eq!(at(&clone, &Moment::Latest).0, 6);
        let report = volume.revert(&within, false).expect("reverted");
        assert_eq!(report.to.seq, ends[6].0);
        let revert = (report.seq, 6);
        ends.push(revert);
        ends.push((put(&volume, 99), 99));
        check_seqs(&volume, &ends);
        pool = {
            drop((volume, clone));
            rig.kill(pool)
        };
        check_seqs(&pool.volume("v").expect("there"), &ends);
        pool.verify_invariants().expect("sound");
    }
}

#[test]
fn moments_of_all_granularities_are_ends_of_whole_writes() {
    for granularity in [Granularity::Interval(3 * SECOND_NS), Granularity::OnDemand] {
        for architecture in UNCACHED {
            let rig = Rig::new(96 * MIB, 256 << 10);
            let pool = rig.open();
            let spec = VolumeSpec { granularity, ..strict(architecture) };
            let volume = pool.create_volume(&spec).expect("made");
            let mut ends = vec![Seq(0)];
            for byte in 1..=20 {
                rig.clock.advance(SECOND_NS);
                ends.push(put(&volume, byte));
                if byte % 6 == 0 {
                    volume.create_version("").expect("captured");
                    while pool.step(Budget { bytes: 8 * MIB }).expect("stepped") {}
                }
            }
            for seq in 0..=ends[20].0 {
                let (byte, found, _) = match volume.resolve(&Moment::Seq(Seq(seq))) {
                    Ok(_) => at(&volume, &Moment::Seq(Seq(seq))),
                    // On demand nothing is kept from before the first version.
                    Err(e) if matches!(e.kind, ErrorKind::OutsideWindow { .. }) => continue,
                    Err(e) => panic!("{e}"),
                };
                assert_eq!(ends.get(usize::from(byte)), Some(&found), "seq {seq}");
            }
            for number in 0..3 {
                let version = at(&volume, &Moment::Version(number));
                assert_eq!(version, (6 * (number as u8 + 1), version.1, true));
            }
        }
    }
}

#[test]
fn history_is_given_up_by_whole_writes() {
    let rig = Rig::new(12 * MIB, 256 << 10);
    let pool = rig.open();
    let volume = pool.create_volume(&strict(Architecture::Logging)).expect("made");
    let mut ends = vec![Seq(0)];
    let mut moved = 0;
    for turn in 0..1200_u32 {
        rig.clock.advance(SECOND_NS);
        ends.push(put(&volume, (turn % 200) as u8));
        let oldest = volume.info().expect("info").oldest;
        moved += u64::from(oldest.seq > Seq(0));
        assert!(ends.binary_search(&oldest.seq).is_ok(), "{oldest:?} is the end of a whole write");
        let (_, seq, exact) = at(&volume, &Moment::Seq(oldest.seq));
        assert_eq!((seq, exact), (oldest.seq, true));
        pool.step(Budget { bytes: MIB }).expect("stepped");
    }
    assert!(moved > 100, "history was given up: {moved}");
}

#[test]
fn what_cannot_be_whole_is_refused_and_leaves_nothing() {
    let rig = Rig::new(96 * MIB, 256 << 10);
    let pool = rig.open();
    let invalid = |spec: VolumeSpec| {
        let kind = pool.create_volume(&spec).map(|_| ()).map_err(|e| e.kind);
        assert_eq!(kind, Err(ErrorKind::Invalid), "{spec:?}");
    };
    let cache = CacheChange { bytes: Some(MIB), dirty_percent: None };
    invalid(VolumeSpec { cache, ..strict(Architecture::Logging) });
    invalid(strict(Architecture::SplitDownstream));
    invalid(strict(Architecture::Hybrid));
    let on_demand =
        VolumeSpec { granularity: Granularity::OnDemand, ..strict(Architecture::Redirect) };
    let copy_unit = MapExtent::ALL[4];
    invalid(VolumeSpec { copy_unit, ..on_demand.clone() });

    let plain = pool.create_volume(&VolumeSpec::new("plain", MIB)).expect("made");
    let kind = |outcome: hindsight_volume::Result<Seq>| outcome.map_err(|e| e.kind);
    let block = [7; BLOCK as usize];
    let one = [WriteOp::Data { offset: 0, bytes: &block }];
    assert_eq!(kind(plain.write_whole(&one)), Err(ErrorKind::Invalid));

    let volume = pool.create_volume(&on_demand).expect("made");
    let first = put(&volume, 1);
    let most = volume.whole_blocks_max() as u64;
    assert_eq!(most, 63, "as many as a segment of 256 KiB takes");
    let all: Vec<u64> = (0..most).map(|n| 2 * n).collect();
    let more: Vec<u64> = (0..=most).map(|n| 2 * n).collect();
    let beyond = [one[0], WriteOp::Zero { offset: 8 * MIB - BLOCK, length_bytes: 2 * BLOCK }];
    let part = [one[0], WriteOp::Data { offset: BLOCK, bytes: &block[..512] }];
    let skewed = [one[0], WriteOp::Zero { offset: 512, length_bytes: BLOCK }];
    let empty = [one[0], WriteOp::Zero { offset: 0, length_bytes: 0 }];
    let huge = [one[0], WriteOp::Zero { offset: u64::MAX - 4095, length_bytes: BLOCK }];
    assert_eq!(kind(volume.write_whole(&ops(&more, &block))), Err(ErrorKind::Invalid));
    assert_eq!(kind(volume.write_whole(&beyond)), Err(ErrorKind::OutOfBounds));
    assert_eq!(kind(volume.write_whole(&huge)), Err(ErrorKind::OutOfBounds));
    for ops in [&part[..], &skewed, &empty] {
        assert_eq!(kind(volume.write_whole(ops)), Err(ErrorKind::Invalid), "{ops:?}");
    }
    assert_eq!(volume.write_whole(&[]).expect("nothing to do"), first);
    for change in [
        VolumeChange { cache, ..VolumeChange::default() },
        VolumeChange { architecture: Some(Architecture::Hybrid), ..VolumeChange::default() },
        VolumeChange { copy_unit: Some(copy_unit), ..VolumeChange::default() },
    ] {
        assert_eq!(volume.change(&change).map_err(|e| e.kind), Err(ErrorKind::Invalid));
    }
    assert_eq!(at(&volume, &Moment::Latest), (1, first, true), "nothing was written");
    // As many as there may be go into one batch, however full the segment is.
    for turn in 0..10_u8 {
        let bytes = [100 + turn; BLOCK as usize];
        let last = volume.write_whole(&ops(&all, &bytes)).expect("written");
        let zeros = [WriteOp::Zero { offset: 0, length_bytes: 8 * MIB }, one[0]];
        let cleared = volume.write_whole(&zeros).expect("written");
        assert_eq!(cleared.0, last.0 + 2);
        assert_eq!((get(&volume, 0), get(&volume, 2), get(&volume, 1500)), (7, 0, 0));
    }
}

#[test]
fn a_strict_volume_stays_one_whatever_becomes_of_it() {
    let rig = Rig::new(96 * MIB, 256 << 10);
    let mut pool = rig.open();
    drop(pool.create_volume(&strict(Architecture::Logging)).expect("made"));
    let others = [Architecture::SplitStream, Architecture::Redirect, Architecture::Checkpointing];
    for (byte, to) in (1..).zip(others.into_iter().chain([Architecture::Logging])) {
        let volume = pool.volume("v").expect("there");
        volume
            .change(&VolumeChange { architecture: Some(to), ..VolumeChange::default() })
            .expect("converted");
        let last = put(&volume, byte);
        while pool.step(Budget { bytes: 8 * MIB }).expect("stepped") {}
        assert_eq!(at(&volume, &Moment::Latest), (byte, last, true));
        assert_eq!(at(&volume, &Moment::Seq(Seq(last.0 - 1))).0, byte - 1);
        drop(volume);
        pool = rig.kill(pool);
        let volume = pool.volume("v").expect("there");
        assert!(volume.info().expect("info").strict, "{to:?}");
        assert_eq!(at(&volume, &Moment::Latest), (byte, last, true));
    }
}

#[test]
fn the_largest_segment_takes_eight_thousand_operations() {
    let rig = Rig::new(2048 * MIB, 32 * MIB);
    let pool = rig.open_with(64 * MIB);
    let spec = VolumeSpec { size_bytes: 256 * MIB, ..strict(Architecture::SplitStream) };
    let volume = pool.create_volume(&spec).expect("made");
    assert_eq!(volume.whole_blocks_max(), 8000);
    let blocks: Vec<u64> = (0..8000).map(|n| 7 * n % 65_536).collect();
    for byte in [1, 2] {
        let last = volume.write_whole(&ops(&blocks, &[byte; BLOCK as usize])).expect("written");
        assert_eq!(last, Seq(8000 * u64::from(byte)));
        let within = volume.resolve(&Moment::Seq(Seq(last.0 - 1))).expect("resolved");
        assert_eq!((within.seq.0, within.exact), (last.0 - 8000, false));
    }
    assert!(blocks.iter().all(|&block| get(&volume, block) == 2));
    let trims: Vec<WriteOp<'_>> = blocks
        .iter()
        .map(|block| WriteOp::Zero { offset: block * BLOCK, length_bytes: BLOCK })
        .collect();
    volume.write_whole(&trims).expect("written");
    assert!(blocks.iter().all(|&block| get(&volume, block) == 0));
    pool.verify_invariants().expect("sound");
}

#[test]
fn without_room_nothing_of_a_whole_write_is_there() {
    let rig = Rig::new(24 * MIB, 256 << 10);
    let pool = rig.open();
    let spec = VolumeSpec { size_bytes: 64 * MIB, ..strict(Architecture::Logging) };
    let volume = pool.create_volume(&spec).expect("made");
    let bytes = [9; 60 * BLOCK as usize];
    let mut offset = 0;
    let lacks = loop {
        let op = [WriteOp::Data { offset, bytes: &bytes }];
        match volume.try_write_whole(&op, true).expect("no room is no error") {
            Whole::Written { is_ahead_of_map: false, .. } => {}
            Whole::Written { .. } => {
                volume.wait_for(Lack::Map, &mut Default::default(), &|| true).expect("written");
            }
            Whole::Lacks(lack) => break lack,
        }
        offset += bytes.len() as u64;
    };
    assert_eq!(lacks, Lack::Room);
    let before = volume.resolve(&Moment::Latest).expect("latest").seq;
    let op = [WriteOp::Data { offset, bytes: &bytes }];
    let error = volume.write_whole(&op).expect_err("there is no room");
    assert_eq!(error.kind, ErrorKind::Full);
    assert_eq!(volume.resolve(&Moment::Latest).expect("latest").seq, before);
    assert_eq!(get(&volume, offset / BLOCK), 0, "nothing of it is there");
    // One that only trims makes room: the reserve is there for it.
    let trim = [WriteOp::Zero { offset: 0, length_bytes: 64 * MIB }];
    volume.write_whole(&trim).expect("it frees");
    volume.write_whole(&op).expect("there is room again");
    assert_eq!((get(&volume, 0), get(&volume, offset / BLOCK)), (0, 9));
}

/// Tells others when it is dropped.
struct Go<'a>(&'a AtomicBool);

impl Drop for Go<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A batch that is on its way keeps the others waiting: were one acknowledged before it, a kill
/// would take both.
#[test]
fn one_batch_of_a_strict_volume_is_on_its_way_at_a_time() {
    let rig = Rig::new(96 * MIB, 256 << 10);
    let pool = rig.open();
    let volume = pool.create_volume(&strict(Architecture::Logging)).expect("made");
    put(&volume, 1);
    let (is_held, may_go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (held, go) = (Arc::clone(&is_held), Arc::clone(&may_go));
    rig.device.hook(move |operation, _| {
        let is_first = operation == Operation::Write && !held.swap(true, Ordering::SeqCst);
        while is_first && !go.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    });
    thread::scope(|scope| {
        // Also if something fails below.
        let go = Go(&may_go);
        let first = scope.spawn(|| put(&volume, 2));
        while !is_held.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let bytes = [3; BLOCK as usize];
        let whole = volume.try_write_whole(&ops(&[7], &bytes), false).expect("no error");
        assert_eq!(whole, Whole::Lacks(Lack::Turn));
        let op = WriteOp::Data { offset: 9 * BLOCK, bytes: &bytes };
        let some = volume.write_some(&[op], 0, false).expect("no error");
        assert!(matches!(some, hindsight_volume::Written::Part { bytes: 0, lacks: Lack::Turn }));
        drop(go);
        let first = first.join().expect("written");
        let second = volume.write_whole(&ops(&[7], &bytes)).expect("written");
        assert_eq!(second.0, first.0 + 1);
    });
    rig.device.unhook();
    drop(volume);
    let pool = rig.kill(pool);
    let volume = pool.volume("v").expect("there");
    assert_eq!((get(&volume, 3), get(&volume, 7)), (2, 3));
}

/// Many write at once and are killed at any change of the media: nobody misses what he was told.
#[test]
fn a_kill_takes_nothing_that_anybody_was_told_of() {
    const WRITERS: u64 = 4;
    for halt in 0..60 {
        let rig = Rig::new(32 * MIB, 256 << 10);
        let pool = rig.open();
        let volume = pool.create_volume(&strict(Architecture::Logging)).expect("made");
        rig.media.halt_after(halt);
        let told: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let blocks = |writer: u64| [4 * writer, 4 * writer + 600, 4 * writer + 2];
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (volume, told) = (&volume, &told[writer as usize]);
                scope.spawn(move || {
                    for turn in 1..100_u8 {
                        let bytes = [turn; BLOCK as usize];
                        if volume.write_whole(&ops(&blocks(writer), &bytes)).is_err() {
                            return;
                        }
                        told.store(turn.into(), Ordering::SeqCst);
                    }
                });
            }
        });
        drop(volume);
        let pool = rig.kill(pool);
        let volume = pool.volume("v").expect("there");
        for writer in 0..WRITERS {
            let told = told[writer as usize].load(Ordering::SeqCst);
            let [first, second, third] = blocks(writer).map(|block| u64::from(get(&volume, block)));
            assert_eq!((first, first), (second, third), "halted after {halt}");
            assert!(first == told || first == told + 1, "{first} is there, {told} was told");
        }
    }
}

#[test]
fn what_a_recovery_cut_off_never_comes_back() {
    let rig = Rig::new(64 * MIB, 256 << 10);
    let pool = rig.open();
    let volume = pool.create_volume(&strict(Architecture::Logging)).expect("made");
    put(&volume, 1);
    volume.flush().expect("flushed");
    put(&volume, 2);
    let third = put(&volume, 3);
    rig.media.halt_now();
    drop((volume, pool));
    // The second of three batches is lost, and the third is there.
    let changes = rig.media.unsynced().len();
    assert!(changes >= 2, "{changes} changes");
    let mut left = changes;
    rig.media.crash_with(&mut |_, _| {
        left -= 1;
        if left == 1 { sim::Keep::Nothing } else { sim::Keep::All }
    });
    let mut pool = rig.open();
    let volume = pool.volume("v").expect("there");
    // The last seq that came to nothing has a time, as somebody may have been told of it.
    let mut ends = vec![(Seq(0), 0), (Seq(5), 1), (third, 1)];
    check_seqs(&volume, &ends);
    ends.push((put(&volume, 9), 9));
    assert_eq!(ends[3].0, Seq(20), "no seq is given twice");
    drop(volume);
    for _ in 0..3 {
        pool = rig.kill(pool);
        check_seqs(&pool.volume("v").expect("there"), &ends);
    }
}
