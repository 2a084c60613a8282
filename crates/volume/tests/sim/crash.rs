//! Crash enumeration: all histories of up to three operations, a crash at every change of the
//! device, every subset of the unflushed changes up to a bound, and the same once more during
//! recovery.
//!
//! A crash in an earlier operation than the last is a crash of a shorter history, so each history
//! is only halted within its last operation. `HINDSIGHT_CRASH_FULL=1` runs all of it, which takes
//! most of a day, or as much as fits into `HINDSIGHT_SIM_SECONDS`, from the history with the number
//! `HINDSIGHT_SIM_SEED` on; otherwise a fixed sample.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hindsight_volume::{Architecture, Encoding, EncodingChange, Granularity, VolumeChange};
use sim::{Keep, Random, SimMedia, Unsynced};
use units::Moment;

use crate::action::Action;
use crate::number_from;
use crate::oracle::Change;
use crate::world::{World, at_seq};

/// Unflushed changes of which all subsets are tried; with more, those that miss or keep one.
const ALL_SUBSETS_MAX: usize = 4;
/// One history of this many is taken when not all are.
const SAMPLE: usize = 719;

/// What a history is made of.
fn alphabet() -> Vec<Action> {
    let name = || "v".to_owned();
    let write = |offset, length, byte| {
        Action::Write(name(), vec![Change::Write(offset, vec![byte; length])])
    };
    vec![
        write(0, 8192, 1),
        write(3000, 3000, 2),
        Action::Write(
            name(),
            vec![
                Change::Write(4096, vec![3; 4096]),
                Change::Zero(0, 4096),
                Change::Write(0, vec![4; 4096]),
            ],
        ),
        Action::Write(name(), vec![Change::Zero(4096, 16_384)]),
        Action::Flush(name()),
        Action::CreateVersion(name()),
        Action::Revert(name(), at_seq(1)),
        Action::Clone(name(), Moment::Latest, "c".to_owned()),
        Action::Delete("w".to_owned()),
        Action::Resize(name(), 20_480),
        Action::Step(1 << 20),
        Action::Restart,
        Action::Convert(name(), Architecture::SplitStream),
    ]
}

/// Every history of one to `longest` operations in which no name is made or deleted twice.
fn histories(longest: usize) -> Vec<Vec<Action>> {
    let alphabet = alphabet();
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut last: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..longest {
        let longer = |history: &Vec<usize>| {
            (0..alphabet.len())
                .filter(|next| !(7..=8).contains(next) || !history.contains(next))
                .map(|next| [history.as_slice(), &[next]].concat())
                .collect::<Vec<_>>()
        };
        last = last.iter().flat_map(longer).collect();
        all.extend(last.iter().cloned());
    }
    all.into_iter().map(|h| h.into_iter().map(|i| alphabet[i].clone()).collect()).collect()
}

/// A closed pool with two volumes, one with a flushed past of two writes.
fn start(architecture: Architecture, cached: Option<Granularity>) -> World {
    start_with_extents(architecture, cached, None)
}

/// The same, each volume with an extent drawn from that seed.
fn start_with_extents(
    architecture: Architecture,
    cached: Option<Granularity>,
    extents: Option<u64>,
) -> World {
    let mut world = World::new(1, 64 << 20, 1 << 20);
    world.architectures = vec![architecture];
    world.extents = extents.map(Random::new);
    world.all_cached = cached.is_some();
    start_from(world, cached.unwrap_or(Granularity::EveryWrite))
}

/// The same of a world whose volumes are what it says.
pub fn start_from(mut world: World, granularity: Granularity) -> World {
    world.begin(&["v", "w"], granularity);
    world.act(&Action::Restart);
    world.pool = None;
    world
}

/// Which of the unflushed changes to keep, all the ways that are tried.
fn subsets(unsynced: &[Unsynced], full: bool) -> Vec<Vec<Keep>> {
    let count = unsynced.len();
    let torn = |change: &Unsynced, odd: bool| {
        Keep::Sectors((0..change.sectors).map(|s| (s % 2 == 1) == odd).collect())
    };
    let whole = |kept: &dyn Fn(usize) -> bool| -> Vec<Keep> {
        (0..count).map(|i| if kept(i) { Keep::All } else { Keep::Nothing }).collect()
    };
    if count <= ALL_SUBSETS_MAX {
        let mut all: Vec<Vec<Keep>> =
            (0..1_usize << count).map(|set| whole(&|i| set >> i & 1 == 1)).collect();
        for odd in [false, true] {
            all.push(unsynced.iter().map(|change| torn(change, odd)).collect());
        }
        return all;
    }
    let mut all = vec![whole(&|_| false), whole(&|_| true)];
    let step = if full { 1 } else { count.div_ceil(2) };
    for one in (count % step..count).step_by(step) {
        all.push(whole(&|i| i != one));
        all.push(whole(&|i| i == one));
        all.push(whole(&|i| i < one));
        let mut with_tear = whole(&|_| true);
        with_tear[one] = torn(&unsynced[one], one % 2 == 1);
        all.push(with_tear);
    }
    all
}

/// Opens a crashed world and compares all of it.
fn recovers(mut world: World, under_way: &Action, what: &str) {
    let opened = world.try_open();
    world.pool = Some(opened.unwrap_or_else(|e| panic!("{what}: {e} ({:?})", e.source)));
    world.settle(true, Some(under_way));
    world.check_all().unwrap_or_else(|e| panic!("{what}: {e}"));
}

/// Runs a history, halted after `changes` changes of its last operation; false when it was not
/// halted.
fn run_to(base: &World, history: &[Action], changes: u64) -> Option<World> {
    let mut world = base.reopened();
    let (last, before) = history.split_last().expect("histories are not empty");
    before.iter().for_each(|action| world.act(action));
    world.media.halt_after(changes);
    let outcome = world.attempt(last);
    if !world.media.is_halted() {
        outcome.unwrap_or_else(|e| panic!("{history:?}: {e}"));
        return None;
    }
    world.views.clear();
    world.pool = None;
    Some(world)
}

pub fn enumerate(base: &World, history: &[Action], full: bool) {
    let names: Vec<String> = history.iter().map(|a| format!("{a:.40?}")).collect();
    let last = history.last().expect("histories are not empty");
    for changes in 0.. {
        let Some(halted) = run_to(base, history, changes) else { return };
        let subsets = subsets(&halted.media.unsynced(), full);
        for (index, keep) in subsets.into_iter().enumerate() {
            let what = format!("{names:?} halted after {changes}, kept {keep:.200?}");
            let crashed = halted.forked();
            let mut kept = keep.into_iter();
            crashed.media.crash_with(&mut |_, _| kept.next().expect("one for each change"));
            if full || (index == 1 && changes % 5 == 0) {
                enumerate_recovery(&crashed, last, &what, full);
            }
            recovers(crashed, last, &what);
        }
    }
}

fn enumerate_recovery(crashed: &World, under_way: &Action, what: &str, full: bool) {
    for changes in (0..).step_by(if full { 1 } else { 3 }) {
        let world = crashed.forked();
        world.media.halt_after(changes);
        let opened = world.try_open();
        if !world.media.is_halted() {
            return;
        }
        drop(opened);
        assert_eq!(Arc::strong_count(&world.media), 1, "who is refused lets go of the device");
        let mut random = Random::new(changes);
        world.media.crash(&mut random);
        recovers(world, under_way, &format!("{what}, recovery halted after {changes}"));
    }
}

impl World {
    /// Makes volumes, of which the first has a flushed past of two writes.
    fn begin(&mut self, names: &[&str], granularity: Granularity) {
        for &name in names {
            self.act(&Action::Create(name.to_owned(), 65_536, granularity, 1 << 60));
        }
        let first = names[0];
        let writes = [(first, 8), (first, 9)].into_iter();
        for (name, byte) in writes.chain(names[1..].iter().map(|&name| (name, 7))) {
            let change = Change::Write(0, vec![byte; 20_000]);
            self.act(&Action::Write(name.to_owned(), vec![change]));
        }
        self.act(&Action::Flush(first.to_owned()));
    }

    /// A world of its own with the same content, closed.
    fn forked(&self) -> World {
        let mut world = self.with_media(Arc::<SimMedia>::new(self.media.fork()));
        world.stack = self.stack.clone();
        world.buffered = self.buffered.as_ref().map(|buffered| buffered.forked(&world.media));
        world
    }

    /// The same, open.
    fn reopened(&self) -> World {
        let mut world = self.forked();
        world.pool = Some(world.try_open().expect("a pool that was closed"));
        world
    }
}

/// Where a machine stops.
#[derive(Clone, Copy, Debug)]
enum Halt {
    /// In a change of the media.
    Media,
    /// In a write to the memory of a write buffer.
    Memory,
}

/// Runs a history under a write buffer, with the work of the server's threads between its actions,
/// halted in the last one or in the work after it; none when it was not halted.
fn run_buffered(base: &World, history: &[Action], halt: Halt, after: u64) -> Option<World> {
    let mut world = base.forked();
    world.buffered().start_with(8 << 20);
    world.pool = Some(world.try_open().expect("a pool that was closed"));
    // Its log finds no slot, so that some are made, in which later logs begin.
    world.buffered().tick();
    world.begin(&["x"], Granularity::EveryWrite);
    world.buffered().grow();
    world.begin(&["v", "w"], Granularity::EveryWrite);
    let (last, before) = history.split_last().expect("histories are not empty");
    before.iter().for_each(|action| world.act(action));
    match halt {
        Halt::Media => world.media.halt_after(after),
        Halt::Memory => world.buffered().memories.halt_after(after),
    }
    let outcome = world.attempt(last);
    if !world.media.is_halted() {
        outcome.unwrap_or_else(|e| panic!("{history:?}: {e}"));
        world.buffered().write_all();
    }
    world.views.clear();
    world.media.is_halted().then(|| {
        world.pool = None;
        world
    })
}

/// Kills and power cuts at every change of the media and in every write to the memory; how many
/// bytes openings found in memories, and how many times.
pub fn enumerate_buffered(base: &World, history: &[Action]) -> (u64, u64) {
    let names: Vec<String> = history.iter().map(|a| format!("{a:.40?}")).collect();
    let last = history.last().expect("histories are not empty");
    let (mut bytes, mut times) = (0, 0);
    for halt in [Halt::Media, Halt::Memory] {
        for after in 0.. {
            let Some(halted) = run_buffered(base, history, halt, after) else { break };
            for power in [false, true] {
                let mut world = halted.forked();
                let mut random = Random::new(after);
                match power {
                    false => {
                        world.buffered().memories.kill();
                        world.media.kill();
                    }
                    true => {
                        world.buffered().memories.cut();
                        world.media.crash(&mut random);
                    }
                }
                let what = format!("{names:?} halted after {after} of {halt:?}, power {power}");
                let opened = world.try_open();
                world.pool = Some(opened.unwrap_or_else(|e| panic!("{what}: {e}")));
                world.settle(power, Some(last));
                world.check_all().unwrap_or_else(|e| panic!("{what}: {e}"));
                let found = world.buffered().found.load(Ordering::Relaxed);
                (bytes, times) = (bytes + found, times + u64::from(found > 0));
            }
        }
    }
    (bytes, times)
}

#[test]
fn the_same_under_a_write_buffer() {
    let (mut bytes, mut times) = (0, 0);
    for architecture in [Architecture::Logging, Architecture::SplitStream] {
        let mut base = World::on("a".parse().ok(), 1, 64 << 20, 1 << 20, true);
        base.architectures = vec![architecture];
        base.pool = None;
        for (index, history) in histories(3).iter().enumerate() {
            if index < alphabet().len() || index % SAMPLE == 0 {
                let found = enumerate_buffered(&base, history);
                (bytes, times) = (bytes + found.0, times + found.1);
            }
        }
    }
    println!("{times} openings found {bytes} bytes in memories");
    assert!(times > 100, "only {times} openings found anything in a memory: {bytes} bytes");
}

fn enumerate_all(architecture: Architecture, cached: Option<Granularity>) {
    enumerate_from(&start(architecture, cached));
}

fn enumerate_from(base: &World) {
    let mut histories = histories(3);
    if std::env::var("HINDSIGHT_CRASH_FULL").is_ok_and(|v| v == "1") {
        enumerate_fully(base, &mut histories);
        return;
    }
    for (index, history) in histories.iter().enumerate() {
        if index < alphabet().len() || index % SAMPLE == 0 {
            enumerate(base, history, false);
        }
    }
}

fn enumerate_fully(base: &World, histories: &mut [Vec<Action>]) {
    let start = Instant::now();
    let limit = Duration::from_secs(number_from("HINDSIGHT_SIM_SECONDS").unwrap_or(u64::MAX));
    let first = number_from("HINDSIGHT_SIM_SEED").unwrap_or(0) as usize % histories.len();
    histories.rotate_left(first);
    let enough = |_: &&Vec<Action>| start.elapsed() < limit;
    let done = histories.iter().take_while(enough).map(|h| enumerate(base, h, true)).count();
    println!("{done} of {} histories in full, from number {first} on", histories.len());
}

#[test]
fn a_crash_at_any_change_of_any_short_history_keeps_the_promises() {
    enumerate_all(Architecture::Logging, None);
}

#[test]
fn the_same_with_the_present_in_place_as_well() {
    enumerate_all(Architecture::SplitStream, None);
}

#[test]
fn the_same_with_a_write_back_cache() {
    enumerate_all(Architecture::Logging, Some(Granularity::EveryWrite));
}

#[test]
fn the_same_with_log_and_present_written_behind_a_cache() {
    enumerate_all(Architecture::SplitDownstream, Some(Granularity::OnDemand));
}

#[test]
fn the_same_with_places_that_wait_for_the_end_of_their_window() {
    enumerate_all(Architecture::Hybrid, Some(Granularity::OnDemand));
}

#[test]
fn the_same_with_places_that_wait_for_the_newest_version() {
    enumerate_all(Architecture::SplitStream, Some(Granularity::EveryWrite));
}

#[test]
fn the_same_with_map_extents_of_several_sizes() {
    for seed in [1, 2] {
        enumerate_from(&start_with_extents(Architecture::Logging, None, Some(seed)));
    }
}

/// Two volumes with a base, most of one at home, and captures whose end frees homes.
fn start_with_homes(architecture: Architecture) -> World {
    let mut world = World::new(1, 64 << 20, 1 << 20);
    world.architectures = vec![architecture];
    // What is at home has a stride of its own.
    world.extents = (architecture == Architecture::Redirect).then(|| Random::new(3));
    let name = || "v".to_owned();
    world.act(&Action::Create(name(), 65_536, Granularity::OnDemand, 1 << 60));
    for byte in [1, 2, 3, 4] {
        let write = Change::Write(0, vec![byte; 40_000]);
        world.act(&Action::Write(name(), vec![write]));
        world.act(&Action::CreateVersion(name()));
        world.act(&Action::Restart);
        if byte == 1 {
            world.act(&Action::CreateVersion(name()));
            world.act(&Action::DeleteVersion(name(), 1));
            (0..4).for_each(|_| world.act(&Action::Step(1 << 20)));
        }
    }
    world.note_homes();
    assert_eq!(world.homes, 10, "what was written first came home");
    world.act(&Action::Restart);
    world.pool = None;
    world
}

/// A crash at every change of a story in which homes are freed, taken again, and left.
fn enumerate_homecoming(architecture: Architecture) {
    let base = start_with_homes(architecture);
    let name = || "v".to_owned();
    let write = |offset, length, byte| {
        Action::Write(name(), vec![Change::Write(offset, vec![byte; length])])
    };
    // Steps one by one: each is halted at every change.
    let story = [
        Action::DeleteVersion(name(), 0),
        Action::Step(1 << 20),
        Action::DeleteVersion(name(), 2),
        Action::Step(1 << 20),
        write(4096, 9000, 5),
        Action::Revert(name(), at_seq(1)),
        write(0, 5000, 6),
        Action::Restart,
        Action::DeleteVersion(name(), 3),
        Action::Step(1 << 20),
        Action::Step(1 << 20),
        Action::Clone(name(), Moment::Latest, "c".to_owned()),
        Action::DeleteVersion(name(), 4),
        Action::Step(1 << 20),
        Action::Step(1 << 20),
        Action::Bin(name()),
        Action::Delete(name()),
    ];
    for length in 1..=story.len() {
        enumerate(&base, &story[..length], false);
    }
}

#[test]
fn a_crash_at_any_change_keeps_the_promises_while_blocks_come_home() {
    enumerate_homecoming(Architecture::Redirect);
}

#[test]
fn a_crash_at_any_change_keeps_the_promises_while_before_images_leave() {
    enumerate_homecoming(Architecture::Checkpointing);
}

/// A crash at every change of a story in which versions go to packs, and from packs to others.
#[test]
fn a_crash_at_any_change_keeps_the_promises_while_history_is_packed() {
    let name = || "v".to_owned();
    let write = |byte, length| Action::Write(name(), vec![Change::Write(0, vec![byte; length])]);
    let encode = |encoding| {
        let after_ns = (encoding != Encoding::Raw).then_some(0);
        let encoding = EncodingChange { encoding: Some(encoding), after_ns };
        Action::Change(name(), VolumeChange { encoding, ..VolumeChange::default() })
    };
    for architecture in [Architecture::Logging, Architecture::Redirect] {
        let mut base = start(architecture, None).reopened();
        for byte in 10..14 {
            base.act(&write(byte, 30_000));
        }
        base.act(&Action::Restart);
        base.pool = None;
        let story = [
            encode(Encoding::Xor),
            Action::Step(1 << 20),
            Action::Step(1 << 20),
            write(14, 9000),
            Action::Restart,
            encode(Encoding::Delta),
            Action::Step(1 << 20),
            Action::Step(1 << 20),
            Action::Revert(name(), at_seq(3)),
            write(15, 5000),
            Action::Restart,
            encode(Encoding::Xor),
            Action::Step(1 << 20),
            Action::Step(1 << 20),
        ];
        let mut whole = base.reopened();
        story.iter().for_each(|action| whole.act(action));
        whole.note_packs();
        assert!(whole.packed > 10, "{} versions are packed in the end", whole.packed);
        for length in 1..=story.len() {
            enumerate(&base, &story[..length], false);
        }
    }
}

/// A crash at every change of a story in which the architecture changes again and again.
fn enumerate_conversions(base: &World, through: &[Architecture]) {
    let name = || "v".to_owned();
    let mut story = Vec::new();
    for (byte, &architecture) in (10..).zip(through) {
        let write = Change::Write(3000 * u64::from(byte - 9), vec![byte; 9000]);
        story.extend([
            Action::Convert(name(), architecture),
            Action::Step(1 << 20),
            Action::Write(name(), vec![write]),
            Action::Step(1 << 20),
            Action::Flush(name()),
            Action::Step(1 << 20),
        ]);
    }
    story.push(Action::Restart);
    story.push(Action::Step(1 << 20));
    for length in 1..=story.len() {
        enumerate(base, &story[..length], false);
    }
}

#[test]
fn a_crash_at_any_change_keeps_the_promises_while_a_base_is_left() {
    use Architecture::{Checkpointing, Logging, Redirect, SplitStream};
    let base = start_with_homes(Redirect);
    enumerate_conversions(&base, &[SplitStream, Checkpointing, Logging]);
    let base = start_with_homes(Checkpointing);
    enumerate_conversions(&base, &[Logging, Redirect]);
}

#[test]
fn a_crash_at_any_change_keeps_the_promises_while_places_come_and_go() {
    use Architecture::{Checkpointing, Hybrid, Logging, Redirect, SplitDownstream, SplitStream};
    let base = start(Logging, None);
    enumerate_conversions(&base, &[SplitDownstream, SplitStream, Redirect]);
    enumerate_conversions(&base, &[Hybrid, Checkpointing, Hybrid]);
    let base = start(SplitStream, None);
    enumerate_conversions(&base, &[Checkpointing, SplitDownstream, Logging]);
}

/// A crash at every change of a story in which a file is copied, and let go.
fn enumerate_import(architecture: Architecture) {
    let mut base = World::new(1, 64 << 20, 1 << 20);
    base.architectures = vec![architecture];
    base.all_cached = architecture.needs_cache();
    let name = || "v".to_owned();
    let write = |offset, length, byte| {
        Action::Write(name(), vec![Change::Write(offset, vec![byte; length])])
    };
    base.act(&Action::Restart);
    base.pool = None;
    let story = [
        Action::Import(name(), 5, 3 << 18, Granularity::EveryWrite, 1 << 60),
        write(3000, 9000, 5),
        Action::Step(1),
        Action::Step(1),
        Action::Revert(name(), at_seq(1)),
        Action::Clone(name(), Moment::Latest, "c".to_owned()),
        Action::Step(1),
        Action::Restart,
        Action::Step(1 << 20),
        Action::Step(1 << 20),
        Action::Bin(name()),
        write(0, 5000, 6),
        Action::Step(1 << 20),
        Action::Delete(name()),
        Action::Step(1 << 20),
    ];
    for length in 1..=story.len() {
        enumerate(&base, &story[..length], false);
    }
}

#[test]
fn a_crash_at_any_change_keeps_the_promises_while_a_file_is_copied() {
    enumerate_import(Architecture::Logging);
}

#[test]
fn a_crash_at_any_change_keeps_the_promises_while_a_file_is_copied_in_place() {
    enumerate_import(Architecture::SplitStream);
}

/// A crash at every change of a story in which blocks are shared, within a volume and with a clone,
/// which outlives it.
#[test]
fn a_crash_at_any_change_keeps_the_promises_while_blocks_are_shared() {
    let name = || "v".to_owned();
    let write = |name: &str, offset, byte| {
        Action::Write(name.to_owned(), vec![Change::Write(offset, vec![byte; 12 << 10])])
    };
    let mut base = start(Architecture::Logging, None).reopened();
    for byte in [10, 11, 10, 12] {
        base.act(&write("v", 0, byte));
    }
    base.act(&Action::Restart);
    base.pool = None;
    let wait = || Action::Wait(601_000_000_000);
    let story = [
        Action::Change(name(), VolumeChange { dedup: Some(true), ..VolumeChange::default() }),
        Action::Clone(name(), Moment::Latest, "c".to_owned()),
        wait(),
        Action::Steps(12, 1 << 20),
        write("v", 0, 13),
        write("c", 4096, 13),
        Action::Restart,
        wait(),
        Action::Steps(20, 1 << 20),
        Action::Delete(name()),
        Action::Steps(4, 1 << 20),
        Action::Delete("c".to_owned()),
        Action::Steps(4, 1 << 20),
    ];
    let mut whole = base.reopened();
    for (index, action) in story.iter().enumerate() {
        whole.act(action);
        if index == 8 {
            whole.note_shared();
            assert!(whole.shared >= 5, "{} versions are shared in the end", whole.shared);
            assert!(whole.common >= 4, "{} of two volumes", whole.common);
        }
    }
    for length in 1..=story.len() {
        enumerate(&base, &story[..length], false);
    }
}
