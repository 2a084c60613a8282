//! Crash enumeration of strict volumes: whole writes, flushes and what else makes batches, halted
//! at every change of the media and in every write to the memory of a write buffer.
//!
//! After each crash the volume is the model after a prefix of its batches: one that has everything
//! flushed, and after a mere kill everything acknowledged. No batch is there in part
//! (`Change::Whole`), and the same holds when recovery is halted.

use hindsight_volume::{Architecture, Granularity, Result, WriteOp};
use units::Moment;

use crate::action::Action;
use crate::crash::{enumerate, enumerate_buffered, start_from};
use crate::model::Model;
use crate::oracle::Change;
use crate::world::{World, at_seq, op_of};

impl Model {
    /// As many of some changes as one whole write may be; none if it is none.
    pub fn whole_of<'c>(&self, changes: &'c [Change]) -> Option<&'c [Change]> {
        let mut left = self.whole_blocks?;
        let mut fits = |change: &&Change| {
            let (offset, length, blocks) = match change {
                Change::Write(offset, bytes) => (*offset, bytes.len() as u64, bytes.len() / 4096),
                Change::Zero(offset, length) => (*offset, *length, 1),
                other => unreachable!("{other:?} is no write"),
            };
            let is_whole = length > 0 && offset % 4096 == 0 && length % 4096 == 0;
            let is_left = blocks <= left;
            left = left.saturating_sub(blocks);
            is_whole && is_left
        };
        let count = changes.iter().take_while(|change| fits(change)).count();
        (count > 0).then(|| &changes[..count])
    }
}

impl World {
    /// Writes changes, of which the model knows that they may be one batch.
    pub fn write_whole(&mut self, name: &str, changes: &[Change]) -> Result<()> {
        let ops: Vec<WriteOp<'_>> = changes.iter().map(op_of).collect();
        let volume = self.volume(name);
        let earliest_ns = volume.now().as_nanos();
        let last = volume.write_whole(&ops)?;
        let latest = volume.resolve(&Moment::Latest)?;
        assert_eq!(latest.seq, last, "the answer to a write is the latest seq");
        let model = self.model(name);
        let before = model.oracle.latest();
        assert!(last.0 >= before + changes.len() as u64, "each takes a seq, long ones several");
        let change = Change::Whole(changes.to_vec());
        model.push_between(last.0, (earliest_ns, latest.time.as_nanos()), change);
        self.wholes += 1;
        Ok(())
    }
}

/// Blocks of a batch that leaves no room in a segment of 256 KiB for another like it.
const LONG: u64 = 40;

fn name() -> String {
    "v".to_owned()
}

fn block(block: u64, byte: u8) -> Change {
    Change::Write(block * 4096, vec![byte; 4096])
}

/// What all histories are made of: whole writes of several operations, and flushes.
fn letters() -> Vec<Action> {
    let long = (0..LONG).map(|n| block(n % 16, 3)).collect();
    let zeros = Change::Zero(8192, 8192);
    vec![
        Action::Write(name(), vec![block(0, 1), Change::Write(12_288, vec![1; 8192])]),
        Action::Write(name(), vec![zeros, block(3, 2), block(3, 4), block(9, 2)]),
        Action::Write(name(), long),
        Action::Flush(name()),
    ]
}

/// Every history of that many of these.
fn histories(length: u32) -> impl Iterator<Item = Vec<Action>> {
    let letters = letters();
    let count = letters.len();
    let of = move |number: usize| {
        let place = |i| letters[number / count.pow(i) % count].clone();
        (0..length).map(place).collect()
    };
    (0..count.pow(length)).map(of)
}

/// What stands beside whole writes in a strict volume.
fn story() -> Vec<Action> {
    let [first, second, long, flush]: [Action; 4] = letters().try_into().expect("four");
    vec![
        first.clone(),
        Action::Write(name(), vec![Change::Write(3000, vec![5; 9000])]),
        second.clone(),
        Action::CreateVersion(name()),
        long.clone(),
        Action::Revert(name(), at_seq(4)),
        first.clone(),
        Action::Step(1 << 20),
        second.clone(),
        Action::Clone(name(), Moment::Latest, "c".to_owned()),
        Action::Restart,
        long,
        Action::Resize(name(), 40_960),
        flush,
        Action::Convert(name(), Architecture::SplitStream),
        first,
        Action::Step(1 << 20),
        second,
    ]
}

fn strict(mut world: World, architecture: Architecture) -> World {
    world.architectures = vec![architecture];
    world.strict = true;
    world
}

fn base(architecture: Architecture) -> World {
    let world = strict(World::new(1, 64 << 20, 1 << 20), architecture);
    start_from(world, Granularity::EveryWrite)
}

#[test]
fn a_crash_at_any_change_leaves_a_prefix_of_whole_batches() {
    for architecture in [Architecture::Logging, Architecture::SplitStream] {
        let base = base(architecture);
        for history in (1..=2).flat_map(histories).chain(histories(3).step_by(9)) {
            enumerate(&base, &history, false);
        }
    }
}

#[test]
fn a_crash_at_any_change_of_a_longer_story_leaves_a_prefix_of_whole_batches() {
    for architecture in [Architecture::Logging, Architecture::Redirect] {
        let (base, story) = (base(architecture), story());
        for length in 1..=story.len() {
            enumerate(&base, &story[..length], false);
        }
    }
}

#[test]
fn kills_and_power_cuts_under_a_write_buffer_leave_a_prefix_of_whole_batches() {
    let (mut bytes, mut times) = (0, 0);
    for architecture in [Architecture::Logging, Architecture::SplitStream] {
        let mut base = World::on("a".parse().ok(), 1, 64 << 20, 1 << 20, true);
        base.pool = None;
        let base = strict(base, architecture);
        for history in (1..=2).flat_map(histories).chain(histories(3).step_by(9)) {
            let found = enumerate_buffered(&base, &history);
            (bytes, times) = (bytes + found.0, times + found.1);
        }
    }
    println!("{times} openings found {bytes} bytes in memories");
    assert!(times > 100, "only {times} openings found anything in a memory: {bytes} bytes");
}
