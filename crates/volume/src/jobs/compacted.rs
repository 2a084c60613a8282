//! Versions that are compacted or uncompacted by hand (Clotho 3.5), whatever the volume's policy.
//!
//! The blocks of a version are those written after the version before it, up to its own moment.
//! Compacted, it is packed now beside its neighbours (`packer`), though the present has it as well;
//! uncompacted, it is taken out of packs and stays raw, and so do neighbours that were packed for
//! its sake. Both are work of full merges, as all encoding is.
//!
//! Invariants
//! 1. A request stands in the catalogue until the version is deleted, and every full merge goes by
//!    it. It is *done* only after a pass over all timelines that began after it was asked for, in
//!    which no merge failed and none was short of room.
//! 2. No moment depends on any of it: versions are where the map says, raw or packed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use env::{Rank, RankedMutex};
use format::superblock::FEATURE_PACKS;
use units::{Seq, WallTime};

use crate::catalogue::{Commit, CompactionRecord};
use crate::retention::pins::Pins;
use crate::types::{Compaction, CompactionInfo, CompactionState};
use crate::volume::Volume;
use crate::{Error, ErrorKind, Result};

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
struct Pass {
    /// Versions that are done when it ends well.
    versions: BTreeSet<u64>,
    tally: Tally,
    has_failed: bool,
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
        known.copied().try_for_each(|number| commit.remove_compaction(volume, number))
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
            false => commit.remove_compactions(volume),
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

impl Volume {
    /// Asks for a version to be compacted or uncompacted; that is done in the background. A
    /// repeated request is done again: more may have been written over by now.
    ///
    /// # Errors
    /// `NotFound`; `Refused` or `Io`.
    pub fn compact_version(&self, number: u64, wish: Compaction) -> Result<CompactionInfo> {
        self.check_open()?;
        self.core.announce(FEATURE_PACKS)?;
        let pins = self.pins.lock();
        if pins.version(number).is_none() {
            let text = format!("{} has no version {number}", self.name);
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let asked_ns = self.core.machine.clock.wall().as_nanos();
        let record = CompactionRecord { wish, asked_ns, done: false, packed: 0, raw: 0 };
        let mut tx = self.begin()?;
        tx.put_compaction(self.id, number, &record)?;
        let action = match wish {
            Compaction::Compacted => "version-compact",
            Compaction::Uncompacted => "version-uncompact",
        };
        let detail = format!("version {number}");
        tx.audit(action, &self.name, detail)?;
        drop(tx.commit()?);
        let mut state = self.compactions.state.lock();
        state.asked.insert(number, record);
        state.retry_ns = 0;
        if let Some(pass) = &mut state.pass {
            // It may have gone over the version's blocks already.
            pass.versions.remove(&number);
        }
        drop(state);
        drop(pins);
        Ok(self.compactions.info(number).expect("asked for just now"))
    }

    /// The request for a version, and its progress; `None` without one.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn compaction(&self, number: u64) -> Result<Option<CompactionInfo>> {
        self.check_open()?;
        if self.pins.lock().version(number).is_none() {
            let text = format!("{} has no version {number}", self.name);
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        Ok(self.compactions.info(number))
    }

    /// Everything that was asked for, by number.
    #[must_use]
    pub fn compactions(&self) -> Vec<(u64, CompactionInfo)> {
        let numbers: Vec<u64> = self.compactions.state.lock().asked.keys().copied().collect();
        let told = |number: u64| self.compactions.info(number).map(|info| (number, info));
        numbers.into_iter().filter_map(told).collect()
    }

    /// The requests that writes fall under, by their versions.
    pub(crate) fn wishes(&self) -> Wishes {
        let pins = self.pins.lock();
        let state = self.compactions.state.lock();
        let span = |(&number, record): (&u64, &CompactionRecord)| {
            let (after, to) = seqs(&pins, number)?;
            Some(Asked { after, to, number, wish: record.wish })
        };
        let mut wishes: Vec<Asked> = state.asked.iter().filter_map(span).collect();
        wishes.retain(|asked| asked.after < asked.to);
        Wishes(wishes)
    }

    /// A pass over all timelines begins: what was asked for before is done when it ends. The caller
    /// holds `work`.
    pub(crate) fn begin_compactions(&self) -> Result<()> {
        let wanted: Vec<u64> = {
            let state = self.compactions.state.lock();
            state.asked.iter().filter(|(_, r)| !r.done).map(|(&number, _)| number).collect()
        };
        let flushed = || Seq(self.record.lock().flushed_seq);
        let last = |numbers: &[u64]| {
            let pins = self.pins.lock();
            numbers.iter().filter_map(|&n| pins.version(n).map(|v| (n, v.seq))).collect::<Vec<_>>()
        };
        let versions = last(&wanted);
        if versions.iter().any(|&(_, seq)| seq > flushed()) {
            // Entries in memory are not in the runs that are merged.
            match self.flush_map() {
                Err(e) if e.kind == ErrorKind::Full => {}
                flushed => flushed?,
            }
        }
        let done_to = flushed();
        let runs = self.own_timelines().into_iter().flat_map(|timeline| timeline.runs());
        let entries = runs.map(|run| run.summary.entries).sum();
        self.compactions.entries.store(entries, Ordering::Relaxed);
        self.compactions.passed.store(0, Ordering::Relaxed);
        let reached = versions.into_iter().filter(|&(_, seq)| seq <= done_to);
        let pass =
            Pass { versions: reached.map(|(number, _)| number).collect(), ..Pass::default() };
        // Before: "now" is the log's, and who has closed its gate asks for the state.
        let retry_ns = self.now().as_nanos().saturating_add(PATIENCE_NS);
        let mut state = self.compactions.state.lock();
        // Those that were asked for anew meanwhile are for the next pass.
        state.retry_ns = retry_ns;
        state.pass = Some(pass);
        Ok(())
    }

    /// The pass under way has gone over every timeline.
    ///
    /// # Errors
    /// `Refused` or `Io`; it is tried again then.
    pub(crate) fn end_compactions(&self) -> Result<()> {
        let Some(pass) = self.compactions.state.lock().pass.take() else { return Ok(()) };
        if pass.has_failed || pass.versions.is_empty() {
            return Ok(());
        }
        let pins = self.pins.lock();
        let mut tx = self.begin()?;
        let mut done = Vec::new();
        for &number in &pass.versions {
            let record = self.compactions.state.lock().asked.get(&number).copied();
            let Some(record) = record else { continue };
            let (packed, raw) = pass.tally.0.get(&number).copied().unwrap_or_default();
            let record = CompactionRecord { done: true, packed, raw, ..record };
            tx.put_compaction(self.id, number, &record)?;
            let (action, detail) = match record.wish {
                Compaction::Compacted if packed == 0 => {
                    ("not-compacted", "nothing packed".to_owned())
                }
                Compaction::Compacted => ("compacted", format!("{packed} blocks packed")),
                Compaction::Uncompacted => ("uncompacted", format!("{packed} blocks left packed")),
            };
            let detail = format!("version {number}: {detail}, {raw} raw");
            tx.audit(action, &self.name, detail)?;
            done.push((number, record));
        }
        drop(tx.commit()?);
        let mut state = self.compactions.state.lock();
        state.asked.extend(done);
        state.retry_ns = 0;
        drop(state);
        drop(pins);
        Ok(())
    }
}

/// The seqs of a version: after the first, up to the second.
fn seqs(pins: &Pins, number: u64) -> Option<(Seq, Seq)> {
    let to = pins.version(number)?.seq;
    let after = pins.version_before(number).map_or(Seq::ZERO, |(_, before)| before.seq);
    Some((after, to))
}
