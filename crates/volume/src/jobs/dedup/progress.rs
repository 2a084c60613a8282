//! How far deduplication is: the search under way, what was found, and what was searched before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use history::Segment;

use super::moves::Moves;
use super::search::{Member, Search};

/// A search is due when this share of the entries is new: 1 in 8 ...
const NEW_SHARE: u64 = 8;
/// ... and at least so many ...
const NEW_MIN: u64 = 1024;
/// ... or any after so long, in nanoseconds.
const PATIENCE_NS: u64 = 600_000_000_000;
/// How often that is looked at, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;
/// How many checksums there are.
const ALL_CRCS: u64 = 1 << 32;

/// How far the searches of a family got since the pool was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Searched {
    /// When the last one began, and what the logs had got by then: blocks in runs, and seqs.
    begun_ns: u64,
    blocks: u64,
    seqs: u64,
    /// Where among the checksums the next one begins.
    next_crc: u32,
    /// How many checksums were looked at since something new was written.
    covered: u64,
    /// Stale segments that were there when the last one began: it did with them what can be done.
    pub stale: usize,
}

impl Searched {
    /// A search has ended that looked at these checksums.
    pub fn note_done(&mut self, (first, last): (u32, u32)) {
        // After the last checksum comes the first.
        self.next_crc = last.wrapping_add(1);
        self.covered = self.covered.saturating_add(u64::from(last - first) + 1);
    }

    /// Whether a search is due when the logs have got so many blocks and seqs and the map has so
    /// many entries; `None` if only stale segments can tell.
    #[must_use]
    pub fn is_due(&self, now: u64, (blocks, seqs): (u64, u64), entries: u64) -> Option<bool> {
        if blocks.saturating_sub(self.blocks) >= (entries / NEW_SHARE).max(NEW_MIN) {
            return Some(true);
        }
        if now < self.begun_ns.saturating_add(PATIENCE_NS) {
            return Some(false);
        }
        let is_due = seqs > self.seqs || (self.covered < ALL_CRCS && seqs > 0);
        is_due.then_some(true)
    }
}

/// Searches for equal blocks, of the whole pool.
#[derive(Default)]
pub struct Dedup {
    /// The one under way, unless it is just being gone on with.
    pub search: Option<Search>,
    /// The family that is searched.
    family: u64,
    /// Findings that are to be entered, by timeline.
    pub moves: BTreeMap<u64, Moves>,
    held: Vec<Arc<Segment>>,
    searched: BTreeMap<u64, Searched>,
    look_ns: u64,
    /// Segments that an earlier run left without entries were looked for.
    pub is_swept: bool,
}

impl Dedup {
    /// Gives up what is under way; segments go when they are next looked for.
    pub fn drop_all(&mut self) {
        self.search = None;
        self.moves.clear();
        for segment in self.held.drain(..) {
            segment.held.store(false, Ordering::Release);
            self.is_swept = false;
        }
    }

    /// Whether something was found that was not entered.
    #[must_use]
    pub fn has_findings(&self) -> bool {
        !self.moves.is_empty() || !self.held.is_empty()
    }

    /// Whether they are, which the caller does now.
    pub fn sweeps(&mut self) -> bool {
        !std::mem::replace(&mut self.is_swept, true)
    }

    /// It looked at these checksums. Says of which family.
    pub fn end_search(&mut self, crcs: (u32, u32)) -> u64 {
        if let Some(searched) = self.searched.get_mut(&self.family) {
            searched.note_done(crcs);
        }
        self.family
    }

    /// The findings of the search, and the segments that hold them.
    pub fn found(&mut self, segments: Vec<Arc<Segment>>, moves: BTreeMap<u64, Moves>) {
        self.held = segments;
        self.moves = moves;
    }

    /// Whether it is time to look whether a search is due.
    pub fn look(&mut self, now: u64) -> bool {
        if now < self.look_ns && now.saturating_add(LOOK_NS) >= self.look_ns {
            return false;
        }
        self.look_ns = now.saturating_add(LOOK_NS);
        true
    }

    /// How far the searches of a family got.
    #[must_use]
    pub fn searched(&self, family: u64) -> Searched {
        self.searched.get(&family).copied().unwrap_or_default()
    }

    /// So many segments are stale, which is looked at again after as long.
    pub fn note_stale(&mut self, family: u64, now: u64, stale: usize) {
        if let Some(searched) = self.searched.get_mut(&family) {
            searched.begun_ns = now;
            searched.stale = searched.stale.min(stale);
        }
    }

    /// Begins the search of a family, whose logs have got so many blocks and seqs.
    pub fn begin(
        &mut self,
        family: u64,
        members: Vec<Member>,
        now: u64,
        (blocks, seqs): (u64, u64),
        stale: usize,
    ) {
        let searched = self.searched.entry(family).or_default();
        let covered = if seqs > searched.seqs { 0 } else { searched.covered };
        let next_crc = searched.next_crc;
        *searched = Searched { begun_ns: now, blocks, seqs, next_crc, covered, stale };
        self.family = family;
        self.search = Some(Search::new(members, next_crc));
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL_CRCS, Searched};

    #[test]
    fn a_circle_of_checksums_is_covered_wherever_it_begins() {
        let mut searched = Searched::default();
        for part in [(0, 99), (100, 0x7fff_ffff), (0x8000_0000, u32::MAX - 1)] {
            assert_eq!(searched.next_crc, part.0);
            searched.note_done(part);
            assert!(searched.covered < ALL_CRCS);
        }
        searched.note_done((u32::MAX, u32::MAX));
        assert_eq!((searched.next_crc, searched.covered), (0, ALL_CRCS));
    }
}
