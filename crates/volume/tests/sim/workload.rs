//! The generator: draws the next action from the seed and the names and numbers that exist.
//!
//! Each run draws its own weights first, many of them zero (swarm testing: Groce et al., ISSTA
//! 2012), so that some runs do little but clone and delete, and others never flush.

use std::collections::BTreeMap;

use hindsight_volume::{
    Architecture, CacheChange, Compaction, Encoding, EncodingChange, Granularity, VolumeChange,
};
use sim::{Op, Random};
use units::{Moment, Seq, Span, WallTime};

use crate::action::Action;
use crate::model::Model;
use crate::oracle::Change;

const BLOCK: u64 = 4096;
const SECOND: u64 = 1_000_000_000;
/// The first second of the simulated world, so that times look like times.
pub const START_NS: u64 = 1_795_255_200 * SECOND;
/// Volumes at most; more are refused by the generator, not by the engine.
const VOLUMES_MAX: usize = 6;
/// Bytes of a simulated volume at most (a map page is 2 MiB, so some volumes have two).
const SIZE_BYTES_MAX: u64 = 5 << 19;
/// The longest op that takes exactly one seq with zones of 256 KiB.
const WHOLE_BYTES_MAX: u64 = 64 << 10;

const KINDS: usize = 26;
/// Kinds of actions with their usual weights, in the order of `Workload::draw`.
const WEIGHTS: [u64; KINDS] =
    [60, 25, 12, 12, 12, 3, 3, 2, 2, 4, 3, 2, 5, 3, 4, 3, 5, 2, 2, 25, 12, 1, 3, 4, 4, 3];

/// The generator of one run.
pub struct Workload {
    random: Random,
    /// Draws history limits, apart so that older seeds draw what they drew.
    limits: Random,
    /// Draws grace periods, likewise.
    graces: Random,
    /// Draws changes of architecture, where there are some.
    converts: Option<Random>,
    /// Draws volumes that begin as files, where there are some.
    imports: Option<Random>,
    /// Draws encodings, where history is encoded; what is written can be compressed then.
    encodes: Option<Random>,
    /// Draws which volumes are deduplicated, where some are; few contents are written then.
    equals: Option<Random>,
    /// Draws captures of several volumes, and schedules, where there are some.
    together: Option<Random>,
    /// Nearly all volumes retain what captures need, and nothing else.
    on_demand: bool,
    weights: [u64; KINDS],
    names: u64,
    /// Bytes of the media.
    pub media_bytes: u64,
    /// Bytes of memory for the pool.
    pub memory_bytes: u64,
    /// Whether faults are in this run's draw.
    pub faulty: bool,
}

impl Workload {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Workload {
        let mut random = Random::new(seed);
        let mut weights = WEIGHTS;
        for weight in &mut weights {
            *weight *= match random.below(6) {
                0 => 0,
                1 => 4,
                _ => 1,
            };
        }
        weights[0] = weights[0].max(20);
        weights[19] = weights[19].max(10);
        let media_bytes = random.between(64, 400) << 20;
        let memory_bytes = [0, 64 << 10, 1 << 20, 8 << 20][random.below(4) as usize];
        let faulty = random.chance(700);
        let limits = Random::new(seed ^ 0x11_3175);
        Workload {
            random,
            limits,
            graces: Random::new(seed ^ 0x6_7ace),
            converts: None,
            imports: None,
            encodes: None,
            equals: None,
            together: None,
            on_demand: false,
            weights,
            names: 0,
            media_bytes,
            memory_bytes,
            faulty,
        }
    }

    /// The same, in which the architectures of volumes change.
    pub fn converting(seed: u64) -> Workload {
        Workload { converts: Some(Random::new(seed ^ 0xc0_4e47)), ..Workload::new(seed) }
    }

    /// The same, in which many volumes begin as files.
    pub fn importing(seed: u64) -> Workload {
        Workload { imports: Some(Random::new(seed ^ 0x0133_9047)), ..Workload::converting(seed) }
    }

    /// The same, in which little is retained but for captures.
    pub fn copying(seed: u64) -> Workload {
        Workload { on_demand: true, ..Workload::importing(seed) }
    }

    /// A volume that begins as a file, now and then.
    fn import(&mut self, models: &BTreeMap<String, Model>) -> Option<Action> {
        let random = self.imports.as_mut()?;
        if models.len() >= VOLUMES_MAX || !(models.is_empty() || random.chance(40)) {
            return None;
        }
        let (seed, length) = (random.next_u64() >> 1, random.between(1, SIZE_BYTES_MAX));
        let name = self.name();
        Some(Action::Import(name, seed, length, self.granularity(), self.window()))
    }

    /// A change of architecture, now and then.
    fn convert(&mut self, models: &BTreeMap<String, Model>) -> Option<Action> {
        let random = self.converts.as_mut()?;
        if models.is_empty() || !random.chance(60) {
            return None;
        }
        let name = models.keys().nth(random.below(models.len() as u64) as usize)?.clone();
        let all = Architecture::ALL;
        Some(Action::Convert(name, all[random.below(all.len() as u64) as usize]))
    }

    /// The same, in which history is encoded.
    pub fn encoding(seed: u64) -> Workload {
        Workload { encodes: Some(Random::new(seed ^ 0xe4_c0de)), ..Workload::new(seed) }
    }

    /// A change of encoding, now and then: with it all that is old enough is looked at again.
    fn encode(&mut self, models: &BTreeMap<String, Model>) -> Option<Action> {
        let random = self.encodes.as_mut()?;
        if models.is_empty() || !random.chance(250) {
            return None;
        }
        if random.chance(600) {
            return Some(Action::Step(64 << 20));
        }
        let name = models.keys().nth(random.below(models.len() as u64) as usize)?.clone();
        let versions = &models[&name].versions;
        if !versions.is_empty() && random.chance(700) {
            let number = *versions.keys().nth(random.below(versions.len() as u64) as usize)?;
            let wish =
                [Compaction::Compacted, Compaction::Uncompacted][random.below(3) as usize % 2];
            return Some(Action::Compact(name, number, wish));
        }
        let encoding =
            [Encoding::Raw, Encoding::Delta, Encoding::Xor][random.below(7) as usize % 3];
        let after_ns = random.below(4) * SECOND;
        let after_ns = (encoding != Encoding::Raw).then_some(after_ns);
        let encoding = EncodingChange { encoding: Some(encoding), after_ns };
        Some(Action::Change(name, VolumeChange { encoding, ..VolumeChange::default() }))
    }

    /// The same, in which few contents are written, and stored once.
    pub fn deduplicating(seed: u64) -> Workload {
        Workload { equals: Some(Random::new(seed ^ 0x00de_d009)), ..Workload::encoding(seed) }
    }

    /// A change of deduplication, or time and steps for a search, now and then.
    fn share(&mut self, models: &BTreeMap<String, Model>) -> Option<Action> {
        let random = self.equals.as_mut()?;
        if models.is_empty() || !random.chance(200) {
            return None;
        }
        Some(match random.below(10) {
            0..=2 => Action::Wait(random.between(590, 610) * SECOND),
            3..=7 => {
                let bytes = [16 << 10, 1 << 20, 64 << 20][random.below(3) as usize];
                Action::Steps(random.between(1, 60) as u32, bytes)
            }
            _ => {
                let name = models.keys().nth(random.below(models.len() as u64) as usize)?.clone();
                let dedup = Some(random.chance(800));
                Action::Change(name, VolumeChange { dedup, ..VolumeChange::default() })
            }
        })
    }

    /// The same, in which volumes are captured together, and by schedules.
    pub fn together(seed: u64) -> Workload {
        Workload { together: Some(Random::new(seed ^ 0x706e_7468)), ..Workload::new(seed) }
    }

    /// Something about several volumes or a schedule, now and then.
    fn about_several(&mut self, models: &BTreeMap<String, Model>) -> Option<Action> {
        let random = self.together.as_mut()?;
        if models.is_empty() || !random.chance(200) {
            return None;
        }
        Some(match random.below(11) {
            10 => {
                let mut names: Vec<String> = models.keys().cloned().collect();
                names.retain(|_| random.chance(600));
                if names.is_empty() {
                    return None;
                }
                Action::ScheduleGroup(names, random.between(1, 60), random.between(1, 3) as u32)
            }
            0..=4 => {
                let mut names: Vec<String> = models.keys().cloned().collect();
                names.retain(|_| random.chance(700));
                if names.is_empty() {
                    return None;
                }
                Action::CaptureTogether(names)
            }
            5 | 6 => Action::DeleteCapture(random.below(1000)),
            7 => {
                let name = models.keys().nth(random.below(models.len() as u64) as usize)?.clone();
                Action::Schedule(name, random.between(1, 60), random.between(1, 3) as u32)
            }
            8 => Action::Step(1 << 20),
            // The background prunes when the clock has gone evenly for ten minutes.
            _ => Action::Wait(random.below(400) * SECOND),
        })
    }

    /// The next action.
    pub fn next(&mut self, models: &BTreeMap<String, Model>, now_ns: u64) -> Action {
        if let Some(action) = self.import(models) {
            return action;
        }
        if let Some(action) = self.convert(models).or_else(|| self.encode(models)) {
            return action;
        }
        if let Some(action) = self.share(models) {
            return action;
        }
        if let Some(action) = self.about_several(models) {
            return action;
        }
        let total: u64 = self.weights.iter().sum();
        loop {
            let mut left = self.random.below(total);
            let kind = self.weights.iter().position(|&w| {
                let hit = left < w;
                left = left.saturating_sub(w);
                hit
            });
            let kind = kind.expect("the draw lies below the total");
            if models.is_empty() {
                return self.create();
            }
            let index = self.random.below(models.len() as u64) as usize;
            let (name, model) = models.iter().nth(index).expect("an index below the length");
            if let Some(action) = self.draw(kind, name.clone(), model, models.len(), now_ns) {
                return action;
            }
        }
    }

    fn draw(
        &mut self,
        kind: usize,
        name: String,
        model: &Model,
        volumes: usize,
        now_ns: u64,
    ) -> Option<Action> {
        let size = model.present_bytes();
        Some(match kind {
            0 => Action::Write(name, vec![self.any_change(size)]),
            1 => Action::Write(name, self.whole_changes(size)?),
            2 => Action::Flush(name),
            3 => {
                let offset = self.random.below(size);
                Action::Read(name, offset, self.random.between(1, size - offset) as usize)
            }
            4 => Action::View(name, self.moment(model, now_ns), self.random.chance(300)),
            5 => Action::DropView,
            6 => Action::Diff(name, self.seq(model), self.seq(model)),
            7 => Action::Extents(name),
            8 if volumes < VOLUMES_MAX => self.create(),
            9 if volumes < VOLUMES_MAX => {
                let moment = self.moment(model, now_ns);
                Action::Clone(name, moment, self.name())
            }
            10 if self.graces.chance(500) => Action::Bin(name),
            10 if volumes > 1 => Action::Delete(name),
            12 => Action::CreateVersion(name),
            13 => {
                let index = self.random.below(model.versions.len().max(1) as u64) as usize;
                Action::DeleteVersion(name, *model.versions.keys().nth(index)?)
            }
            14 => {
                let (moment, pin) = (self.moment(model, now_ns), self.random.chance(600));
                Action::CreateMark(name, self.name(), moment, pin)
            }
            15 => {
                let index = self.random.below(model.marks.len().max(1) as u64) as usize;
                Action::DeleteMark(name, model.marks.keys().nth(index)?.clone())
            }
            16 => Action::Revert(name, self.moment(model, now_ns)),
            17 => Action::Resize(name, self.size()),
            18 => Action::Change(name, self.change()),
            19 => Action::Step([1, 64 << 10, 1 << 20, 64 << 20][self.random.below(4) as usize]),
            20 => Action::Wait(self.random.below(30 * SECOND)),
            21 => Action::JumpTo(START_NS + self.random.below(1000) * 3600 * SECOND),
            22 if self.random.chance(400) => Action::Rebuild,
            22 => Action::Restart,
            23 if self.faulty => Action::Kill,
            24 if self.faulty => match self.random.below(3) {
                0 => Action::PowerCut,
                1 => Action::HaltAfter(self.random.below(4)),
                _ => Action::HaltAfter(self.random.below(60)),
            },
            25 if self.faulty => {
                let op =
                    [Op::Read, Op::Write, Op::Sync, Op::Allocate][self.random.below(4) as usize];
                Action::Fault(op, self.random.below(30))
            }
            11 => self.squeeze(),
            _ => return None,
        })
    }

    fn squeeze(&mut self) -> Action {
        if self.random.chance(500) {
            return Action::SpaceLimit(None);
        }
        Action::SpaceLimit(Some(self.random.between(8, 48) << 20))
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("n{}", self.names)
    }

    fn size(&mut self) -> u64 {
        // Most sizes are no multiple of a block, as the contract allows.
        (self.random.between(BLOCK, SIZE_BYTES_MAX) / 512) * 512
    }

    fn granularity(&mut self) -> Granularity {
        match self.random.below(4) {
            0..3 if self.on_demand => Granularity::OnDemand,
            0 => Granularity::Interval([SECOND, 10 * SECOND][self.random.below(2) as usize]),
            1 => Granularity::OnDemand,
            _ => Granularity::EveryWrite,
        }
    }

    fn window(&mut self) -> u64 {
        // Time passes in leaps where blocks are shared: not all of the past leaves with each.
        let windows = match self.equals {
            Some(_) => [0, 1200, 86_400, 864_000],
            None => [0, 20, 300, 86_400],
        };
        windows[self.random.below(4) as usize] * SECOND
    }

    fn create(&mut self) -> Action {
        let (name, size) = (self.name(), self.size());
        Action::Create(name, size, self.granularity(), self.window())
    }

    fn change(&mut self) -> VolumeChange {
        VolumeChange {
            hook: None,
            copy_unit: None,
            granularity: self.random.chance(500).then(|| self.granularity()),
            window_ns: self.random.chance(500).then(|| self.window()),
            history_limit_bytes: match self.limits.below(4) {
                0 => Some(Some(self.limits.below(8) << 20)),
                1 => Some(None),
                _ => None,
            },
            grace_ns: match self.graces.below(4) {
                0 => None,
                1 => Some(0),
                _ => Some(self.graces.below(60) * SECOND),
            },
            cache: CacheChange::default(),
            architecture: None,
            encoding: EncodingChange::default(),
            dedup: None,
            size_bytes: None,
            never_smaller: false,
        }
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.random.fill(&mut bytes);
        if self.encodes.is_some() {
            let (first, rest) = bytes.split_at_mut(length.min(40) as usize);
            rest.chunks_mut(first.len())
                .for_each(|part| part.copy_from_slice(&first[..part.len()]));
        }
        if let Some(random) = &mut self.equals {
            for block in bytes.chunks_mut(BLOCK as usize) {
                let content = random.below(12);
                if content < 8 {
                    Random::new(content).fill(block);
                }
            }
        }
        if self.random.chance(30) {
            bytes.fill(0);
        }
        bytes
    }

    /// One write or zero of any alignment and length.
    fn any_change(&mut self, size: u64) -> Change {
        let offset = self.random.below(size);
        let longest = match self.random.below(20) {
            0 => size,
            1..=5 => 70_000,
            6..=12 => 9_000,
            _ => 600,
        };
        let length = self.random.between(1, longest).min(size - offset);
        if self.random.chance(150) {
            return Change::Zero(offset, length);
        }
        Change::Write(offset, self.bytes(length))
    }

    /// Up to eight ops of whole blocks, each of which takes one seq.
    fn whole_changes(&mut self, size: u64) -> Option<Vec<Change>> {
        let blocks = size / BLOCK;
        let hot = self.random.below(blocks);
        let count = self.random.between(1, 8);
        let change = |random: &mut Random| {
            // Half of them near each other, so that the same block is written again and again.
            let first = if random.chance(500) {
                (hot + random.below(4)) % blocks
            } else {
                random.below(blocks)
            };
            let longest = if random.chance(200) { WHOLE_BYTES_MAX / BLOCK } else { 2 };
            let length = random.between(1, longest).min(blocks - first) * BLOCK;
            (first * BLOCK, length, random.chance(200))
        };
        let drawn: Vec<_> = (0..count).map(|_| change(&mut self.random)).collect();
        let fill = |this: &mut Workload, (offset, length, zero)| {
            if zero {
                Change::Zero(offset, length)
            } else {
                Change::Write(offset, this.bytes(length))
            }
        };
        Some(drawn.into_iter().map(|d| fill(self, d)).collect())
    }

    /// A seq that was given, more often a late one.
    fn seq(&mut self, model: &Model) -> u64 {
        let (first, last) = (model.oracle.base.0, model.oracle.latest());
        let back = if self.random.chance(600) { 20.min(last - first) } else { last - first };
        last - self.random.below(back + 1)
    }

    fn moment(&mut self, model: &Model, now_ns: u64) -> Moment {
        let index = |random: &mut Random, len: usize| random.below(len.max(1) as u64) as usize;
        match self.random.below(10) {
            0 => Moment::Latest,
            1 => Moment::At(WallTime::from_nanos(now_ns - self.random.below(60 * SECOND))),
            2 => Moment::Ago(Span(self.random.below(60 * SECOND))),
            3 | 4 => {
                let at = index(&mut self.random, model.versions.len());
                match model.versions.keys().nth(at) {
                    Some(&number) => Moment::Version(number),
                    None => Moment::Latest,
                }
            }
            5 => {
                let at = index(&mut self.random, model.marks.len());
                match model.marks.keys().nth(at) {
                    Some(name) => Moment::Mark(name.clone()),
                    None => Moment::Latest,
                }
            }
            6 => {
                let at = index(&mut self.random, model.oracle.entries.len());
                match model.oracle.entries.get(at) {
                    Some(entry) => Moment::At(WallTime::from_nanos(entry.time_ns)),
                    None => Moment::Latest,
                }
            }
            _ => Moment::Seq(Seq(self.seq(model))),
        }
    }
}
