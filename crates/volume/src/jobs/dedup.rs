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

use std::sync::Arc;
use std::sync::atomic::Ordering;

use units::BLOCK_BYTES;

use crate::core::Core;
use crate::jobs::job::{Job, Left, Turn};
use crate::jobs::map_flush::commit_segment;
use crate::jobs::parts::Parts;
use crate::types::{Budget, DedupInfo};
use crate::volume::stream::Stream;
use crate::{ErrorKind, Result};

use due::{begin_search, may_share};
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

/// Searches for equal blocks; their state is known to merges, too.
pub struct Deduplication;

impl Job for Deduplication {
    fn name(&self) -> &'static str {
        "deduplication"
    }

    /// Goes on with a search, or begins one. When there is nothing to merge: what was found and not
    /// entered never will be then.
    fn step(&mut self, parts: &Parts, turn: &mut Turn) -> Result<Left> {
        if parts.merging().is_busy {
            return Ok(Left::NOTHING);
        }
        let mut dedup = parts.dedup.lock();
        if dedup.has_findings() {
            dedup.drop_all();
        }
        if dedup.sweeps() {
            drop(dedup);
            return free_unshared(&parts.core).map(|()| Left::CAN_WAIT);
        }
        let Some(mut search) = dedup.search.take() else {
            drop(dedup);
            return begin_search(parts).map(|begun| Left::CAN_WAIT.when(begun));
        };
        drop(dedup);
        if !may_share(parts) {
            return Ok(Left::CAN_WAIT);
        }
        match search.step(&parts.core, Budget { bytes: turn.bytes }) {
            Ok(false) => parts.dedup.lock().search = Some(search),
            Ok(true) => end_search(parts, search)?,
            Err(e) if parts.core.store.has_failed() || e.kind == ErrorKind::Refused => {
                return Err(e);
            }
            // Another search may find blocks that cannot be read or written now.
            Err(_) => {}
        }
        Ok(Left::CAN_WAIT)
    }

    fn give_up(&mut self, parts: &Parts) {
        parts.dedup.lock().drop_all();
    }
}

/// Commits the segments of a search, and leaves the rest to merges.
fn end_search(parts: &Parts, search: Search) -> Result<()> {
    let found = search.finish();
    let family = parts.dedup.lock().end_search(found.crcs);
    let is_worth = found.has_stale || found.names * WORTH_SHARE >= found.entries;
    if found.segments.is_empty() || !is_worth {
        found.segments.iter().for_each(|segment| parts.core.store.free_zone(segment.zone));
        return Ok(());
    }
    let mut tx = parts.core.begin()?;
    for segment in &found.segments {
        segment.held.store(true, Ordering::Release);
        commit_segment(&tx, segment, 0, segment.end.load(Ordering::Acquire), true)?;
    }
    let volumes = parts.registry.all();
    let name = volumes.iter().find(|v| v.id == family).map_or("", |v| v.name());
    tx.audit("deduplicate", name, format!("{} blocks for {} versions", found.blocks, found.names))?;
    drop(tx.commit()?);
    found.segments.iter().for_each(|segment| parts.core.store.add_segment(Arc::clone(segment)));
    parts.dedup.lock().found(found.segments, found.moves);
    Ok(())
}

/// Frees segments of shared batches that no entry names.
pub fn free_unshared(core: &Core) -> Result<()> {
    core.free_empty(|s| s.shared && !s.held.load(Ordering::Acquire))
}
