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
pub mod moves;
pub mod progress;
mod search;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use history::run::EntrySource;
use history::{NO_LOG, Timeline};
use units::BLOCK_BYTES;

use crate::catalogue::Commit;
use crate::jobs::map_flush::commit_segment;
use crate::pool::Engine;
use crate::types::{Budget, DedupInfo};
use crate::volume::Volume;
use crate::volume::stream::Stream;
use crate::{ErrorKind, Result};

use compare::Progress;
use search::Search;

/// Findings of a search are entered only if they are at least this share of the entries: full
/// merges go over all of them. 1 in 256.
const WORTH_SHARE: u64 = 256;

impl Stream {
    /// The result of deduplication within this volume's own log.
    pub(crate) fn dedup_info(&self) -> DedupInfo {
        let space = self.core.store.space(self.id).count();
        DedupInfo {
            is_on: self.record.lock().dedup,
            shared_bytes: space.shared_bytes,
            named_bytes: space.shared_entries * BLOCK_BYTES,
        }
    }
}

impl Engine {
    /// Whether something found for one of a volume's timelines waits to be entered.
    pub(crate) fn has_moves(&self, volume: &Volume) -> bool {
        let dedup = self.dedup.lock();
        let timelines = self.core.timelines.read();
        let mut found = dedup.timelines();
        found.any(|id| timelines.get(&id).is_some_and(|(record, _)| record.log == volume.id))
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
    pub(crate) fn step_dedup(&self, budget: Budget) -> Result<bool> {
        let mut dedup = self.dedup.lock();
        if dedup.has_findings() {
            dedup.drop_all();
        }
        if dedup.sweeps() {
            drop(dedup);
            self.free_unshared()?;
            return Ok(true);
        }
        let Some(mut search) = dedup.take_search() else {
            drop(dedup);
            return self.begin_search();
        };
        drop(dedup);
        if !self.may_share() {
            return Ok(true);
        }
        let progress = match search.step(&self.core, budget) {
            // Another search may find blocks that cannot be read or written now.
            Err(e) if !self.core.store.has_failed() && e.kind != ErrorKind::Refused => {
                return Ok(true);
            }
            progress => progress?,
        };
        match progress {
            Progress::More => self.dedup.lock().put_search(search),
            Progress::Done => self.end_search(search)?,
        }
        Ok(true)
    }

    /// Whether there is room to write blocks anew before others go.
    fn may_share(&self) -> bool {
        let (_, free, reserve) = self.core.store.zone_counts();
        free > reserve + (self.core.store.zone_count() / 16).max(2)
    }

    /// Commits the segments of a search, and leaves the rest to merges.
    fn end_search(&self, search: Search) -> Result<()> {
        let found = search.finish();
        let family = self.dedup.lock().end_search(found.crcs);
        let is_worth = found.has_stale || found.names * WORTH_SHARE >= found.entries;
        if found.segments.is_empty() || !is_worth {
            found.segments.iter().for_each(|segment| self.core.store.free_zone(segment.zone));
            return Ok(());
        }
        let mut tx = self.core.begin()?;
        for segment in &found.segments {
            segment.held.store(true, Ordering::Release);
            commit_segment(&tx, segment, 0, segment.end.load(Ordering::Acquire), true)?;
        }
        let volumes = self.registry.all();
        let name = volumes.iter().find(|v| v.id == family).map_or("", |v| v.name());
        let detail = format!("{} blocks for {} versions", found.blocks, found.names);
        tx.audit("deduplicate", name, detail)?;
        drop(tx.commit()?);
        found.segments.iter().for_each(|segment| self.core.store.add_segment(Arc::clone(segment)));
        self.dedup.lock().found(found.segments, found.moves);
        Ok(())
    }

    /// Entries of timelines that are about to go, by segment of no log. Of a run that cannot be
    /// read none are told: what they name is kept rather than freed too early.
    pub(crate) fn names_elsewhere(&self, timelines: &[Arc<Timeline>]) -> BTreeMap<u64, i64> {
        let mut elsewhere: BTreeMap<u64, i64> = self
            .core
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
            let counted = run.with_source(&self.core.store, |source| -> history::Result<()> {
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
            let Some(segment) = self.core.store.segment(number) else { continue };
            let left = segment.committed_entries.load(Ordering::Acquire) - count;
            assert!(left >= 0, "segment {number} loses {count} entries, {left} left");
            commit_segment(commit, &segment, left, segment.end.load(Ordering::Acquire), true)?;
        }
        Ok(())
    }

    /// After that commit: those that nothing names go when they are next looked for.
    pub(crate) fn note_unnamed(&self, unnamed: &BTreeMap<u64, i64>) {
        for (&number, &count) in unnamed {
            let Some(segment) = self.core.store.segment(number) else { continue };
            segment.add_entries(-count);
            segment.committed_entries.fetch_sub(count, Ordering::AcqRel);
            self.dedup.lock().want_sweep();
        }
    }

    /// Frees segments of shared batches that no entry names.
    pub(crate) fn free_unshared(&self) -> Result<()> {
        self.core.free_empty(|s| s.shared && !s.held.load(Ordering::Acquire))
    }
}
