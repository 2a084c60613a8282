//! Deduplication: blocks of equal content are stored once within a volume and its clones
//! (docs/design/2026-11-22-dedup.md). When a search is due, and how what it found is entered.
//!
//! Invariants
//! 1. Full merges enter the findings of a search, each of which looks whether the entry is still
//!    there and has still the location that was compared.
//! 2. Segments of shared batches are *held* from their commit until every merge that could enter
//!    something in them has ended: until then none is freed for want of entries.
//! 3. All of this is changed under `work`.

mod compare;
mod due;
mod search;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::location::Location;
use format::map::Entry;
use format::superblock::FEATURE_SHARED;
use history::run::EntrySource;
use history::{Content, NO_LOG, Segment, Timeline};
use units::{BLOCK_BYTES, Seq};

use crate::catalogue::Commit;
use crate::core::Core;
use crate::jobs::map_flush::commit_segment;
use crate::types::{Budget, DedupInfo};
use crate::volume::Volume;
use crate::{ErrorKind, Result};

use due::Searched;
use search::{Progress, Search};

/// Findings of a search are entered only if they are at least this share of the entries: full
/// merges go over all of them. 1 in 256.
const WORTH_SHARE: u64 = 256;

/// A version that has a new location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Its block.
    pub block: u64,
    /// Its seq.
    pub seq: Seq,
    /// Where it was when it was compared.
    pub from: Location,
    /// Where it is as well.
    pub to: Location,
}

/// The moves of one timeline, by block and seq.
#[derive(Debug, Default)]
pub struct Moves(Vec<Move>);

impl Moves {
    /// In any order.
    #[must_use]
    pub fn new(mut moves: Vec<Move>) -> Moves {
        moves.sort_unstable_by_key(|found| (found.block, found.seq));
        Moves(moves)
    }

    /// Where the version of an entry is as well, if it still is where it was.
    #[must_use]
    pub fn of(&self, entry: &Entry) -> Option<Location> {
        if entry.key.level > 0 {
            return None;
        }
        let place = (entry.key.index, entry.seq);
        let index = self.0.binary_search_by_key(&place, |found| (found.block, found.seq)).ok()?;
        Some(self.0[index]).filter(|found| found.from == entry.location).map(|found| found.to)
    }
}

/// Searches for equal blocks, of the whole pool.
#[derive(Default)]
pub struct Dedup {
    search: Option<Search>,
    /// The family that is searched.
    family: u64,
    /// Findings that are to be entered, by timeline.
    moves: BTreeMap<u64, Moves>,
    held: Vec<Arc<Segment>>,
    searched: BTreeMap<u64, Searched>,
    look_ns: u64,
    /// Segments that an earlier run left without entries were looked for.
    is_swept: bool,
}

impl Dedup {
    /// Gives up what is under way; segments go when they are next looked for.
    fn drop_all(&mut self) {
        self.search = None;
        self.moves.clear();
        for segment in self.held.drain(..) {
            segment.held.store(false, Ordering::Release);
            self.is_swept = false;
        }
    }
}

impl Volume {
    /// Before it is set: announces what the pool does not know yet.
    ///
    /// # Errors
    /// `Refused` or `Io`.
    pub(crate) fn prepare_dedup(&self, dedup: Option<bool>) -> Result<()> {
        match dedup {
            Some(true) => self.core.announce(FEATURE_SHARED),
            _ => Ok(()),
        }
    }

    /// The result of deduplication within this volume's own log.
    pub(crate) fn dedup_info(&self) -> DedupInfo {
        let space = self.core.store.space(self.id).count();
        DedupInfo {
            is_on: self.record.lock().dedup,
            shared_bytes: space.shared_bytes,
            named_bytes: space.shared_entries * BLOCK_BYTES,
        }
    }

    /// Whether something found for one of its timelines waits to be entered.
    pub(crate) fn has_moves(&self) -> bool {
        let dedup = self.core.dedup.lock();
        let timelines = self.core.timelines.read();
        let own = |id: &u64| timelines.get(id).is_some_and(|(record, _)| record.log == self.id);
        dedup.moves.keys().any(own)
    }
}

impl Core {
    /// The entries for a full merge of a timeline: nobody else will make them.
    pub(crate) fn take_moves(&self, timeline: u64) -> Option<Moves> {
        self.dedup.lock().moves.remove(&timeline)
    }

    /// Gives up what is under way: room is wanted, or the pool is let go. The caller holds `work`.
    pub(crate) fn drop_search(&self) {
        self.dedup.lock().drop_all();
    }

    /// Goes on with a search, or begins one. Called when there is nothing to merge, so what was
    /// found and not entered never will be. The caller holds `work`; true when there is more to do.
    ///
    /// # Errors
    /// `Refused` or `Io`.
    pub(crate) fn step_dedup(self: &Arc<Self>, budget: Budget) -> Result<bool> {
        let mut dedup = self.dedup.lock();
        if !dedup.moves.is_empty() || !dedup.held.is_empty() {
            dedup.drop_all();
        }
        if !dedup.is_swept {
            dedup.is_swept = true;
            drop(dedup);
            self.free_unshared()?;
            return Ok(true);
        }
        let Some(mut search) = dedup.search.take() else {
            drop(dedup);
            return self.begin_search();
        };
        drop(dedup);
        if !self.may_share() {
            return Ok(true);
        }
        let progress = match search.step(self, budget) {
            // Another search may find blocks that cannot be read or written now.
            Err(e) if !self.store.has_failed() && e.kind != ErrorKind::Refused => return Ok(true),
            progress => progress?,
        };
        match progress {
            Progress::More => self.dedup.lock().search = Some(search),
            Progress::Done => self.end_search(search)?,
        }
        Ok(true)
    }

    /// Whether there is room to write blocks anew before others go.
    fn may_share(&self) -> bool {
        let (_, free, reserve) = self.store.zone_counts();
        free > reserve + (self.store.zone_count() / 16).max(2)
    }

    /// Commits the segments of a search, and leaves the rest to merges.
    fn end_search(self: &Arc<Self>, search: Search) -> Result<()> {
        let found = search.finish();
        let mut dedup = self.dedup.lock();
        let family = dedup.family;
        if let Some(searched) = dedup.searched.get_mut(&family) {
            searched.note_done(found.crcs);
        }
        drop(dedup);
        let is_worth = found.has_stale || found.names * WORTH_SHARE >= found.entries;
        if found.segments.is_empty() || !is_worth {
            found.segments.iter().for_each(|segment| self.store.free_zone(segment.zone));
            return Ok(());
        }
        let mut tx = self.begin()?;
        for segment in &found.segments {
            segment.held.store(true, Ordering::Release);
            commit_segment(&tx, segment, 0, segment.end.load(Ordering::Acquire), true)?;
        }
        let volumes = self.all_volumes();
        let name = volumes.iter().find(|v| v.id == family).map_or("", |v| v.name());
        let detail = format!("{} blocks for {} versions", found.blocks, found.names);
        tx.audit("deduplicate", name, detail)?;
        drop(tx.commit()?);
        found.segments.iter().for_each(|segment| self.store.add_segment(Arc::clone(segment)));
        let mut dedup = self.dedup.lock();
        dedup.held = found.segments;
        dedup.moves = found.moves;
        Ok(())
    }

    /// Entries of timelines that are about to go, by segment of no log. Of a run that cannot be
    /// read none are told: what they name is kept rather than freed too early.
    pub(crate) fn names_elsewhere(&self, timelines: &[Arc<Timeline>]) -> BTreeMap<u64, i64> {
        let mut elsewhere: BTreeMap<u64, i64> = self
            .store
            .segments()
            .iter()
            .filter(|segment| segment.log == NO_LOG)
            .map(|segment| (segment.number, 0))
            .collect();
        if elsewhere.is_empty() {
            return elsewhere;
        }
        for run in timelines.iter().flat_map(|timeline| timeline.runs()) {
            let mut counts: BTreeMap<u64, i64> = BTreeMap::new();
            let counted = run.with_source(&self.store, |source| -> history::Result<()> {
                let mut cursor = run.run.scan(source)?;
                while let Some(entry) = cursor.peek() {
                    let segment = entry.location.segment();
                    if elsewhere.contains_key(&segment) {
                        *counts.entry(segment).or_default() += 1;
                    }
                    cursor.advance()?;
                }
                Ok(())
            });
            if counted.is_ok() {
                for (segment, count) in counts {
                    *elsewhere.entry(segment).or_default() += count;
                }
            }
        }
        elsewhere.retain(|_, count| *count > 0);
        elsewhere
    }

    /// Commits that segments are named by so many entries less.
    pub(crate) fn commit_unnamed(
        &self,
        commit: &Commit,
        unnamed: &BTreeMap<u64, i64>,
    ) -> Result<()> {
        for (&number, &count) in unnamed {
            let Some(segment) = self.store.segment(number) else { continue };
            let left = segment.committed_entries.load(Ordering::Acquire) - count;
            assert!(left >= 0, "segment {number} loses {count} entries, {left} left");
            commit_segment(commit, &segment, left, segment.end.load(Ordering::Acquire), true)?;
        }
        Ok(())
    }

    /// After that commit: those that nothing names go when they are next looked for.
    pub(crate) fn note_unnamed(&self, unnamed: &BTreeMap<u64, i64>) {
        for (&number, &count) in unnamed {
            let Some(segment) = self.store.segment(number) else { continue };
            segment.add_entries(-count);
            segment.committed_entries.fetch_sub(count, Ordering::AcqRel);
            self.dedup.lock().is_swept = false;
        }
    }

    /// Frees segments of shared batches that no entry names.
    pub(crate) fn free_unshared(&self) -> Result<()> {
        self.free_empty(|s| s.shared && !s.held.load(Ordering::Acquire))
    }
}

/// Whether half of what a segment of shared batches has is named no more.
fn is_stale(segment: &Segment) -> bool {
    let end = u64::from(segment.end.load(Ordering::Acquire));
    let is_settled = !segment.held.load(Ordering::Acquire);
    segment.content() == Content::Shared && is_settled && segment.live_bytes() * 2 < end
}
