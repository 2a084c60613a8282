//! Volumes that are made smaller and larger: nothing goes that is not meant to, and nothing comes
//! back.

use std::ops::Range;
use std::sync::Arc;

use hindsight_volume::{Architecture, Granularity, Volume, VolumeChange, WriteOp};
use sim::{Failure, Op};
use units::{Moment, Seq};

use crate::base::{BLOCK, Rig, SIZE_BYTES, content, past, put};

/// In the middle of a block.
const SMALL: u64 = 3 * BLOCK + 512;
const BLOCKS: usize = 600;

/// Each block of the first ones is full of what it is told by.
fn numbered(rig: &Rig, architecture: Architecture) -> Arc<Volume> {
    numbered_at(rig, architecture, Granularity::EveryWrite)
}

fn numbered_at(rig: &Rig, architecture: Architecture, granularity: Granularity) -> Arc<Volume> {
    let volume = rig.make("v", architecture, granularity);
    let bytes: Vec<u8> = (0..BLOCKS).flat_map(|block| [number(block); BLOCK as usize]).collect();
    for part in 0..4 {
        let offset = part * bytes.len() / 4;
        let bytes = &bytes[offset..offset + bytes.len() / 4];
        let op = WriteOp::Data { offset: offset as u64, bytes };
        volume.write_batch(&[op]).expect("written");
    }
    volume.flush().expect("flushed");
    volume
}

fn number(block: usize) -> u8 {
    (block % 251) as u8 + 1
}

/// These bytes are as they were written, and all others are zeros.
fn check(found: &[u8], written: Range<u64>, what: &str) {
    for (at, bytes) in found.chunks(512).enumerate() {
        let at = at as u64 * 512;
        let expected = if written.contains(&at) { number((at / BLOCK) as usize) } else { 0 };
        assert!(bytes.iter().all(|b| *b == expected), "{what}: {} at {at}", bytes[0]);
    }
}

const ALL: Range<u64> = 0..BLOCKS as u64 * BLOCK;

#[test]
fn a_shrink_that_fails_takes_nothing() {
    for architecture in Architecture::ALL {
        let mut failed = 0;
        for (op, after) in (0..12).flat_map(|n| [(Op::Write, n), (Op::Sync, n)]) {
            let mut rig = Rig::new();
            let volume = numbered(&rig, architecture);
            let before = volume.info().expect("told").latest.seq;
            rig.media.fail(Failure { after, ..Failure::once(op) });
            let outcome = volume.resize(SMALL);
            rig.media.calm();
            let what = format!("{architecture:?}, {op:?} {after}");
            if outcome.is_err() {
                failed += 1;
                check(&content(&volume), ALL, &what);
            } else {
                check(&content(&volume)[..SMALL as usize], 0..SMALL, &what);
            }
            drop(volume);
            // The commit may be there or not.
            let volume = rig.kill();
            check(&past(&volume, before), ALL, &what);
            let found = content(&volume);
            match volume.size_bytes() {
                SIZE_BYTES => check(&found, ALL, &what),
                SMALL => check(&found[..SMALL as usize], 0..SMALL, &what),
                other => panic!("{what}: {other} bytes"),
            }
            rig.settle();
            rig.pool().verify_invariants().expect("all agree");
        }
        assert!(failed >= 2, "{architecture:?}: {failed} failed");
    }
}

#[test]
fn a_shrink_can_be_undone_where_not_every_write_is_retained() {
    let hour = Granularity::Interval(3_600_000_000_000);
    for architecture in Architecture::ALL {
        for granularity in [Granularity::OnDemand, hour] {
            let mut rig = Rig::new();
            let volume = numbered_at(&rig, architecture, granularity);
            let before = volume.info().expect("told").latest.seq;
            volume.resize(SMALL).expect("smaller");
            for byte in 1..9 {
                volume
                    .write_batch(&[WriteOp::Data { offset: 0, bytes: &[byte; 4096] }])
                    .expect("written");
            }
            volume.flush().expect("flushed");
            rig.settle();
            let what = format!("{architecture:?}, {granularity:?}");
            check(&past(&volume, before), ALL, &what);
            drop(volume);
            let volume = rig.kill();
            rig.settle();
            check(&past(&volume, before), ALL, &what);
            volume.revert(&Moment::Seq(before), false).expect("undone");
            check(&content(&volume), ALL, &what);
            rig.pool().verify_invariants().expect("all agree");
        }
    }
}

#[test]
fn the_moment_before_a_command_is_kept_once_and_also_right_after_every_write_is_retained() {
    let rig = Rig::new();
    let volume = numbered_at(&rig, Architecture::Logging, Granularity::OnDemand);
    let kept = volume.retain_present().expect("kept");
    assert_eq!(volume.retain_present().expect("kept"), kept, "it is");
    put(&volume, 0, 7, 1);
    assert!(volume.retain_present().expect("kept") > kept, "another moment");
    let page = volume.history(None, None, 1 << 40, 100).expect("told");
    let kinds: Vec<&str> = page.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["created", "kept", "kept"]);
    check(&past(&volume, kept), ALL, "before the first");

    let volume = rig.make("w", Architecture::Logging, Granularity::OnDemand);
    put(&volume, 0, 7, 1);
    let before = volume.last_seq();
    let granularity = Some(Granularity::EveryWrite);
    volume.change(&VolumeChange { granularity, ..VolumeChange::default() }).expect("changed");
    volume.resize(SMALL).expect("smaller");
    put(&volume, 0, 8, 1);
    rig.settle();
    assert_eq!(past(&volume, before).len() as u64, SIZE_BYTES);
    assert_eq!(past(&volume, before)[0], 7);
}

#[test]
fn what_a_shrink_leaves_beyond_the_end_is_no_difference() {
    let rig = Rig::new();
    let volume = numbered(&rig, Architecture::Logging);
    let before = volume.info().expect("told").latest.seq;
    volume.resize(SMALL).expect("smaller");
    volume.write_batch(&[WriteOp::Data { offset: 0, bytes: &[9; 512] }]).expect("written");
    rig.settle();
    let after = volume.info().expect("told").latest.seq;
    let mut small = 0;
    for seq in before.0..after.0 {
        let [from, to] = [Seq(seq), Seq(seq + 1)];
        let [old, new] = [past(&volume, from), past(&volume, to)];
        if old.len() != new.len() {
            continue;
        }
        small += 1;
        let page =
            volume.diff(&Moment::Seq(from), &Moment::Seq(to), 0, u64::MAX, 9).expect("compared");
        assert_eq!(page.ranges.is_empty(), old == new, "{seq}: {:?}", page.ranges);
    }
    assert!(small >= 2, "zeros and a write");
}

#[test]
fn whenever_the_power_fails_what_was_cut_off_stays_so_and_the_past_has_it() {
    for architecture in Architecture::ALL {
        let (mut shrunk, mut grown) = (0, 0);
        for changes in 0_u64.. {
            let mut rig = Rig::new();
            let volume = numbered(&rig, architecture);
            let before = volume.info().expect("told").latest.seq;
            rig.media.halt_after(changes);
            let _ = volume.resize(SMALL).and_then(|()| volume.resize(SIZE_BYTES));
            let is_over = !rig.media.is_halted();
            drop(volume);
            let volume = rig.power_cut();
            let what = format!("{architecture:?}, after {changes} changes");
            let found = content(&volume);
            let is_cut = found[SMALL as usize..].iter().all(|b| *b == 0);
            match volume.size_bytes() {
                SMALL => {
                    shrunk += 1;
                    rig.settle();
                    volume.resize(SIZE_BYTES).expect("larger");
                    check(&content(&volume), 0..SMALL, &what);
                }
                _ if is_cut => {
                    grown += 1;
                    check(&found, 0..SMALL, &what);
                }
                _ => check(&found, ALL, &what),
            }
            check(&past(&volume, before), ALL, &what);
            rig.settle();
            drop(volume);
            if changes % 5 == 2 {
                // A batch that was cut short is a gap in the log, and no more.
                assert!(rig.rebuild() <= 2 * BLOCK, "{what}");
                let volume = rig.pool().volume("v").expect("there");
                check(&past(&volume, before), ALL, &what);
            }
            rig.pool().verify_invariants().expect("all agree");
            if is_over {
                break;
            }
        }
        assert!(shrunk > 0 && grown > 0, "{architecture:?}: {shrunk} shrunk, {grown} grown");
    }
}

#[test]
fn no_moment_shows_what_was_beyond_its_end_even_if_it_becomes_the_present() {
    for architecture in Architecture::ALL {
        let rig = Rig::new();
        let volume = numbered(&rig, architecture);
        let before = volume.info().expect("told").latest.seq;
        volume.resize(SMALL).expect("smaller");
        let now = volume.info().expect("told").latest.seq;
        let mut small = 0;
        for seq in before.0..=now.0 {
            let what = format!("{architecture:?}, seq {seq} of {before} to {now}");
            let moment = Moment::Seq(Seq(seq));
            let size = volume.view(&moment).expect("a view").size_bytes();
            let written = if size == SMALL { 0..SMALL } else { ALL };
            small += usize::from(size == SMALL);
            let clone = rig.pool().clone_volume("v", &moment, "c").expect("cloned");
            if size == SMALL {
                clone.resize(SIZE_BYTES).expect("larger");
            }
            check(&content(&clone), written.clone(), &what);
            let differs =
                volume.diff(&Moment::Seq(before), &moment, 0, u64::MAX, 100).expect("told");
            let differs: u64 = differs.ranges.iter().map(|range| range.length_bytes).sum();
            let expected = if size == SMALL { ALL.end - SMALL / BLOCK * BLOCK } else { 0 };
            assert_eq!(differs, expected, "{what}");
            drop(clone);
            rig.pool().delete_volume("c").expect("deleted");
            volume.revert(&moment, false).expect("reverted");
            if size == SMALL {
                volume.resize(SIZE_BYTES).expect("larger");
            }
            check(&content(&volume), written, &what);
            volume.revert(&Moment::Seq(now), false).expect("back");
            assert_eq!(volume.size_bytes(), SMALL, "{what}");
        }
        assert!(small >= 2, "the moment of the shrink, and when all was cut off");
        // What was cut off becomes history.
        let space = volume.space_told().expect("told");
        assert!(space.live_bytes <= 4 * BLOCK, "{space:?}");
        rig.settle();
        rig.pool().verify_invariants().expect("all agree");
    }
}
