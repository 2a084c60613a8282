//! How much of a present does not lie where it belongs, told while it goes there: after a revert,
//! a second one, writes meanwhile, and another opening.

use std::sync::Arc;

use hindsight_volume::{Architecture, Budget, Granularity, Volume};
use units::{Moment, Seq};

use crate::base::{BLOCK, Rig, SIZE_BYTES, content, past, put};

const BLOCKS: u64 = SIZE_BYTES / BLOCK;

/// What a volume held, and the seq of then.
type Held = (Vec<u8>, Seq);

fn unplaced(volume: &Volume) -> u64 {
    volume.info().expect("info").unplaced_bytes / BLOCK
}

/// Writes every block, so that all map entries but the last go out and the window is full of it.
fn fill(rig: &Rig, volume: &Volume, byte: u8) -> Held {
    for block in 0..BLOCKS {
        put(volume, block, byte, 1);
    }
    rig.settle();
    let seq = volume.resolve(&Moment::Latest).expect("now").seq;
    (vec![byte; SIZE_BYTES as usize], seq)
}

/// Steps until nothing is left; what is told never rises meanwhile, but within a step of work.
fn come_home(rig: &Rig, volume: &Volume, what: &str) {
    let mut told = vec![unplaced(volume)];
    while rig.pool().step(Budget { bytes: 64 << 10 }).expect("a step") {
        told.push(unplaced(volume));
    }
    told.dedup();
    assert!(told.is_sorted_by(|a, b| a >= b), "{what}: {told:?}");
    assert!(told.len() > 1 && told.last().expect("one") < &80, "{what}: {told:?}");
}

fn checkpointed() -> (Rig, Arc<Volume>, [Held; 2]) {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Checkpointing, Granularity::EveryWrite);
    let one = fill(&rig, &volume, 1);
    let two = fill(&rig, &volume, 2);
    (rig, volume, [one, two])
}

#[test]
fn what_a_revert_left_to_be_done_is_told_until_it_is_done() {
    let (rig, volume, [one, two]) = checkpointed();
    volume.revert(&Moment::Seq(one.1), false).expect("reverted");
    assert!(unplaced(&volume) >= BLOCKS - 80, "{}", unplaced(&volume));
    assert!(content(&volume) == one.0, "the history answers");
    // Nobody writes: what differs comes home all the same.
    come_home(&rig, &volume, "after a revert");
    assert!(content(&volume) == one.0 && past(&volume, two.1) == two.0);
    rig.pool().verify_invariants().expect("sound");
}

#[test]
fn a_second_revert_and_writes_meanwhile_are_told_too() {
    let (rig, volume, [one, two]) = checkpointed();
    volume.revert(&Moment::Seq(one.1), false).expect("reverted");
    for _ in 0..20 {
        rig.pool().step(Budget { bytes: 16 << 10 }).expect("a step");
    }
    let mut now = two.0.clone();
    volume.revert(&Moment::Seq(two.1), false).expect("reverted again");
    assert!(unplaced(&volume) >= BLOCKS - 80, "{}", unplaced(&volume));
    for block in (0..BLOCKS).step_by(3) {
        put(&volume, block, 9, 1);
        now[(block * BLOCK) as usize..][..BLOCK as usize].fill(9);
        rig.pool().step(Budget { bytes: 16 << 10 }).expect("a step");
    }
    while rig.pool().step(Budget { bytes: 64 << 10 }).expect("a step") {}
    // A few entries are not worth a destage, and some wait in memory.
    assert!(unplaced(&volume) < BLOCKS / 3, "{}", unplaced(&volume));
    assert!(content(&volume) == now);
    assert!(past(&volume, one.1) == one.0 && past(&volume, two.1) == two.0);
    rig.pool().verify_invariants().expect("sound");
}

#[test]
fn after_another_opening_a_revert_goes_on() {
    for (is_half_way, is_killed) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut rig, volume, [one, two]) = checkpointed();
        volume.revert(&Moment::Seq(one.1), false).expect("reverted");
        let steps = if is_half_way { 20 } else { 0 };
        for _ in 0..steps {
            rig.pool().step(Budget { bytes: 16 << 10 }).expect("a step");
        }
        drop(volume);
        let volume = if is_killed { rig.kill() } else { rig.restart() };
        assert!(unplaced(&volume) >= BLOCKS / 2, "{}", unplaced(&volume));
        come_home(&rig, &volume, "after an opening");
        assert!(content(&volume) == one.0 && past(&volume, two.1) == two.0);
        rig.pool().verify_invariants().expect("sound");
    }
}

/// A base as of the window's beginning holds what the past needs: blocks of the present whose homes
/// are taken stay in the log, and are told, until the past lets go.
#[test]
fn what_waits_for_a_home_that_the_past_holds_is_told() {
    let mut rig = Rig::new();
    let volume = rig.make("v", Architecture::Redirect, Granularity::OnDemand);
    fill(&rig, &volume, 1);
    rig.age(&volume);
    let (one, first) = (content(&volume), volume.create_version("one").expect("a version"));
    assert!(volume.info().expect("info").base_bytes / BLOCK >= BLOCKS - 80);
    fill(&rig, &volume, 2);
    let (two, second) = (content(&volume), volume.create_version("two").expect("a version"));
    volume.revert(&Moment::Seq(first.stamp.seq), false).expect("reverted");
    // Its blocks are at home: that has to be found out, and nothing moves.
    come_home(&rig, &volume, "back to what is at home");
    assert!(content(&volume) == one);
    volume.revert(&Moment::Seq(second.stamp.seq), false).expect("reverted");
    rig.settle();
    assert!(unplaced(&volume) >= BLOCKS - 80, "{}: homes are taken", unplaced(&volume));
    drop(volume);
    let volume = rig.restart();
    assert!(unplaced(&volume) >= BLOCKS - 80, "{}", unplaced(&volume));
    rig.settle();
    assert!(unplaced(&volume) >= BLOCKS - 80, "{}: they still are", unplaced(&volume));
    assert!(content(&volume) == two);
    volume.delete_version(first.number).expect("deleted");
    rig.age(&volume);
    rig.age(&volume);
    assert!(unplaced(&volume) < 80, "{}", unplaced(&volume));
    assert!(content(&volume)[..SIZE_BYTES as usize / 2] == two[..SIZE_BYTES as usize / 2]);
    rig.pool().verify_invariants().expect("sound");
}
