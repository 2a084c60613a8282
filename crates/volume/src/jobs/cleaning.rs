//! Which segments a full merge empties, and where what it moves begins.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::segment::SEGMENT_HEADER_BYTES;
use history::{Content, NO_LOG, Segment, Store, Timeline};
use units::{BLOCK_BYTES, Seq};

use crate::Result;
use crate::placement::Placement;

/// Bytes of a block that is moved, with the header of its batch.
const UNSHARED_BYTES: u64 = 4288;

/// Segments with less than this share of live bytes are emptied; `urgent` when a write waits.
fn live_percent(urgent: bool, is_slab: bool) -> u64 {
    match (urgent, is_slab) {
        (false, false) | (true, true) => 50,
        (false, true) => 0,
        (true, false) => 90,
    }
}

impl Placement {
    /// Frees segments that no entry names any more: those whose last entries a map flush dropped
    /// (merges free what they empty themselves, and slabs: blocks may be coming home to them). The
    /// caller holds `work`.
    pub(crate) fn free_empty_segments(&self) -> Result<()> {
        let flushed = self.flushed_seq();
        self.core.free_empty(|s| s.log == self.id && s.last_seq() <= flushed)
    }

    /// All entries up to here are in runs.
    pub(crate) fn flushed_seq(&self) -> Seq {
        Seq(self.record.lock().flushed_seq)
    }

    /// Segments with few live bytes, the emptiest first, as many as a merge of a timeline has room
    /// to move the blocks of: in a pool that is nearly full a few at a time make more room for
    /// others, where all at once would find none. If it is urgent a zone that is not filled counts
    /// as empty there, and nothing is moved unless that takes fewer zones than it frees. Slabs are
    /// emptied only then: what settled stays there.
    pub(crate) fn sparse_segments(&self, timeline: &Timeline, urgent: bool) -> BTreeSet<u64> {
        let store = &self.core.store;
        let (flushed, has_common) = {
            let record = self.record.lock();
            (Seq(record.flushed_seq), record.common > 0)
        };
        // Taken out one by one, shared blocks are shared no more: only if that makes room.
        let pays_unshared = |s: &Segment| {
            let end = u64::from(s.end.load(Ordering::Acquire));
            urgent && moved_bytes(s) * 100 < end * live_percent(urgent, false)
        };
        let is_sparse = |s: &Segment| {
            let end = u64::from(s.end.load(Ordering::Acquire));
            let whole = if urgent { store.zone_bytes } else { end.max(store.zone_bytes / 4) };
            let is_own = s.log == self.id || (s.log == NO_LOG && has_common);
            (is_own && (s.content() != Content::Shared || pays_unshared(s)))
                && s.sealed.load(Ordering::Acquire)
                && !s.held.load(Ordering::Acquire)
                && s.last_seq() <= flushed
                && s.live_bytes() * 100 < whole * live_percent(urgent, s.slab.is_some())
        };
        let mut sparse = store.segments();
        // Moved blocks begin there.
        let begin = self.segment_with_room();
        let room = begin.as_ref().map_or(0, |begin| room_behind(store, begin));
        let zones = self.zones_to_move_to(timeline);
        // Batches end where the next would not fit.
        let zone_bytes = store.zone_bytes - SEGMENT_HEADER_BYTES as u64 - UNSHARED_BYTES;
        let fits = |s: &Segment| !urgent || moved_bytes(s) <= zones * zone_bytes;
        let is_begin = |s: &Segment| begin.as_ref().is_some_and(|b| b.number == s.number);
        sparse.retain(|s| is_sparse(s) && fits(s) && !is_begin(s));
        // Its own segments come first: other volumes may keep the common ones.
        sparse.sort_by_key(|s| (s.log == NO_LOG, s.live_bytes()));
        let (mut bytes, mut gained, mut count) = (0, 0, 0);
        for (index, segment) in sparse.iter().enumerate() {
            bytes += moved_bytes(segment);
            let filled = bytes.saturating_sub(room).div_ceil(zone_bytes);
            // By and by one may take more than is left: it is the only one, or is not begun.
            if filled > zones && index > 0 {
                break;
            }
            let gain = (index as u64 + 1).saturating_sub(filled);
            if gain > gained || !urgent {
                (gained, count) = (gain, index + 1);
            }
        }
        let mut sparse: BTreeSet<u64> = sparse[..count].iter().map(|s| s.number).collect();
        if !urgent {
            sparse.extend(self.homes_to_leave());
        }
        sparse
    }

    /// Where what is moved goes first: behind the end of the segment of batches with most room
    /// there. Merges would each leave one that is filled in part, and there is one for each
    /// timeline.
    pub(crate) fn segment_with_room(&self) -> Option<Arc<Segment>> {
        let store = &self.core.store;
        let flushed = Seq(self.record.lock().flushed_seq);
        let is_done = |s: &Segment| {
            s.sealed.load(Ordering::Acquire)
                && !s.held.load(Ordering::Acquire)
                && s.last_seq() <= flushed
        };
        let mut all = store.segments();
        all.retain(|s| s.log == self.id && s.content() == Content::Logged && is_done(s));
        all.into_iter().max_by_key(|s| room_behind(store, s)).filter(|s| room_behind(store, s) > 0)
    }

    /// Zones that a merge of a timeline may fill with what it moves. Its map is written anew beside
    /// them, and the catalogue may grow by as much as it has.
    fn zones_to_move_to(&self, timeline: &Timeline) -> u64 {
        let store = &self.core.store;
        let pages: u64 = timeline.runs().iter().map(|run| u64::from(run.extents.count)).sum();
        let map = (pages * format::PAGE_BYTES as u64).div_ceil(store.zone_bytes);
        let catalogue = self.core.media.superblock().catalogue_zones.len() as u64;
        u64::from(store.zone_counts().1).saturating_sub(map + catalogue).max(1)
    }
}

/// Bytes behind the end of a segment in which blocks that are moved fit.
fn room_behind(store: &Store, segment: &Segment) -> u64 {
    let end = u64::from(segment.end.load(Ordering::Acquire));
    store.zone_bytes.saturating_sub(end + UNSHARED_BYTES)
}

/// Bytes that emptying a segment writes, at most: each block has a batch of its own then. Of packs
/// it is a guess: those that lose half of their versions lose what these shared with the others.
fn moved_bytes(segment: &Segment) -> u64 {
    let end = u64::from(segment.end.load(Ordering::Acquire));
    let entries = segment.live_entries.load(Ordering::Acquire).max(0).unsigned_abs();
    match segment.content() {
        Content::Pack => end.min(2 * segment.live_bytes()),
        Content::Shared => entries * UNSHARED_BYTES,
        // Entries beyond the blocks that fit are holes.
        Content::Logged | Content::Home => {
            let blocks = entries.min(end / BLOCK_BYTES);
            blocks * UNSHARED_BYTES + (entries - blocks) * (UNSHARED_BYTES - BLOCK_BYTES)
        }
    }
}
