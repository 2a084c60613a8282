//! The requests for the versions of a volume, and how far they are (`compacted`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use env::{Rank, RankedMutex};
use units::{Seq, WallTime};

use crate::Result;
use crate::catalogue::{Commit, CompactionRecord, all_of, tables};
use crate::retention::pins::Pins;
use crate::types::{Compaction, CompactionInfo, CompactionState};

/// How long after a pass that could not do it all the next is tried, in nanoseconds.
const PATIENCE_NS: u64 = 60_000_000_000;

/// Seqs (after the first, up to the second) of a version, and what is to become of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// After this one.
    after: Seq,
    /// Up to this one.
    to: Seq,
    /// The version.
    number: u64,
    /// The request.
    pub wish: Compaction,
}

/// The requests, in the order of seqs.
#[derive(Clone, Debug, Default)]
pub struct Wishes(Vec<Asked>);

impl Wishes {
    /// The request that a write falls under.
    #[must_use]
    pub fn of(&self, seq: Seq) -> Option<&Asked> {
        let index = self.0.partition_point(|asked| asked.to < seq);
        self.0.get(index).filter(|asked| asked.after < seq)
    }

    /// Whether nothing was asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How many blocks of each version are packed, and how many are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<u64, (u64, u64)>);

impl Tally {
    /// Counts a block that belongs to a version.
    pub fn count(&mut self, asked: &Asked, is_packed: bool) {
        let (packed, raw) = self.0.entry(asked.number).or_default();
        *(if is_packed { packed } else { raw }) += 1;
    }

    fn add(&mut self, other: &Tally) {
        for (&number, &(packed, raw)) in &other.0 {
            let sum = self.0.entry(number).or_default();
            *sum = (sum.0 + packed, sum.1 + raw);
        }
    }
}

/// A pass over all timelines.
#[derive(Debug, Default)]
pub struct Pass {
    /// Versions that are done when it ends well.
    pub versions: BTreeSet<u64>,
    tally: Tally,
    /// Not all that was asked for could be done.
    pub has_failed: bool,
}

impl Pass {
    /// The record of a version that is done: how many of its blocks are packed, and how many raw.
    pub fn done(&self, number: u64, before: CompactionRecord) -> CompactionRecord {
        let (packed, raw) = self.tally.0.get(&number).copied().unwrap_or_default();
        CompactionRecord { done: true, packed, raw, ..before }
    }
}

/// The requests for the versions of a volume, and their progress.
#[derive(Debug)]
pub struct Compactions {
    state: RankedMutex<State>,
    /// Map entries that the pass under way went over, and how many there are.
    passed: AtomicU64,
    entries: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    asked: BTreeMap<u64, CompactionRecord>,
    pass: Option<Pass>,
    /// No pass is begun for its sake before this.
    retry_ns: u64,
}

impl Compactions {
    /// Those of the catalogue.
    #[must_use]
    pub fn of(records: Vec<(u64, CompactionRecord)>) -> Compactions {
        let state = State { asked: records.into_iter().collect(), ..State::default() };
        Compactions {
            state: RankedMutex::new(Rank::Compactions, state),
            passed: AtomicU64::new(0),
            entries: AtomicU64::new(0),
        }
    }

    /// Takes up a request.
    pub fn ask(&self, number: u64, record: CompactionRecord) {
        let mut state = self.state.lock();
        state.asked.insert(number, record);
        state.retry_ns = 0;
        if let Some(pass) = &mut state.pass {
            // It may have gone over the version's blocks already.
            pass.versions.remove(&number);
        }
    }

    /// The request for a version, as the catalogue has it.
    pub fn record(&self, number: u64) -> Option<CompactionRecord> {
        self.state.lock().asked.get(&number).copied()
    }

    /// Everything that was asked for, by number.
    pub fn infos(&self) -> Vec<(u64, CompactionInfo)> {
        let numbers: Vec<u64> = self.state.lock().asked.keys().copied().collect();
        let told = |number: u64| self.info(number).map(|info| (number, info));
        numbers.into_iter().filter_map(told).collect()
    }

    /// Versions that a pass is wanted for.
    pub fn wanted(&self) -> Vec<u64> {
        let state = self.state.lock();
        state.asked.iter().filter(|(_, r)| !r.done).map(|(&number, _)| number).collect()
    }

    /// The requests that writes fall under, by their versions.
    pub fn wishes(&self, pins: &Pins) -> Wishes {
        let state = self.state.lock();
        let span = |(&number, record): (&u64, &CompactionRecord)| {
            let (after, to) = seqs(pins, number)?;
            Some(Asked { after, to, number, wish: record.wish })
        };
        let mut wishes: Vec<Asked> = state.asked.iter().filter_map(span).collect();
        wishes.retain(|asked| asked.after < asked.to);
        Wishes(wishes)
    }

    /// A pass begins over so many entries, at the end of which these versions are done.
    pub fn begin(&self, versions: BTreeSet<u64>, entries: u64, now_ns: u64) {
        self.entries.store(entries, Ordering::Relaxed);
        self.passed.store(0, Ordering::Relaxed);
        let mut state = self.state.lock();
        // Those that were asked for anew meanwhile are for the next pass.
        state.retry_ns = now_ns.saturating_add(PATIENCE_NS);
        state.pass = Some(Pass { versions, ..Pass::default() });
    }

    /// The pass under way is over.
    pub fn end(&self) -> Option<Pass> {
        self.state.lock().pass.take()
    }

    /// Versions are done.
    pub fn done(&self, records: Vec<(u64, CompactionRecord)>) {
        let mut state = self.state.lock();
        state.asked.extend(records);
        state.retry_ns = 0;
    }

    /// Whether something waits for a pass.
    pub fn are_due(&self, now_ns: u64) -> bool {
        let state = self.state.lock();
        now_ns >= state.retry_ns && state.asked.values().any(|record| !record.done)
    }

    /// The pass under way cannot do all that was asked for.
    pub fn fail(&self) {
        if let Some(pass) = &mut self.state.lock().pass {
            pass.has_failed = true;
        }
    }

    /// Takes note of what a merge that is committed found.
    pub fn note(&self, tally: &Tally, is_short: bool) {
        if let Some(pass) = &mut self.state.lock().pass {
            pass.tally.add(tally);
            pass.has_failed |= is_short;
        }
    }

    /// So many entries more were gone over.
    pub fn note_passed(&self, entries: u64) {
        self.passed.fetch_add(entries, Ordering::Relaxed);
    }

    /// Forgets versions that are being deleted, and says so in their commit. The caller holds
    /// `pins`, and calls `forget` once that is durable.
    pub fn remove(&self, volume: u64, gone: &BTreeSet<u64>, commit: &Commit) -> Result<()> {
        let state = self.state.lock();
        let known = state.asked.keys().filter(|number| gone.contains(number));
        known.copied().try_for_each(|number| commit.remove(tables::COMPACTIONS, (volume, number)))
    }

    /// The same, in memory.
    pub fn forget(&self, gone: &BTreeSet<u64>) {
        self.state.lock().asked.retain(|number, _| !gone.contains(number));
    }

    /// All of them, in memory.
    pub fn clear(&self) {
        *self.state.lock() = State::default();
    }

    /// Of a volume that is deleted: none is left.
    pub fn remove_all(&self, volume: u64, commit: &Commit) -> Result<()> {
        match self.state.lock().asked.is_empty() {
            true => Ok(()),
            false => commit.remove_all(tables::COMPACTIONS, all_of(volume)),
        }
    }

    /// The request for a version.
    pub fn info(&self, number: u64) -> Option<CompactionInfo> {
        let state = self.state.lock();
        let record = state.asked.get(&number)?;
        let is_running = state.pass.as_ref().is_some_and(|pass| pass.versions.contains(&number));
        let progress = match (record.done, self.entries.load(Ordering::Relaxed)) {
            (true, _) => CompactionState::Done,
            (false, entries) if is_running => {
                let passed = self.passed.load(Ordering::Relaxed).min(entries);
                CompactionState::Running { passed, entries }
            }
            (false, _) => CompactionState::Waiting,
        };
        Some(CompactionInfo {
            wish: record.wish,
            state: progress,
            asked: WallTime::from_nanos(record.asked_ns),
            packed: record.packed,
            raw: record.raw,
        })
    }
}

/// The seqs of a version: after the first, up to the second.
fn seqs(pins: &Pins, number: u64) -> Option<(Seq, Seq)> {
    let to = pins.version(number)?.seq;
    let after = pins.version_before(number).map_or(Seq::ZERO, |(_, before)| before.seq);
    Some((after, to))
}
