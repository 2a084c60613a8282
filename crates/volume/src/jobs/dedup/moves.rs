//! Versions that have a new location, and segments that are worth writing anew.

use std::sync::atomic::Ordering;

use format::location::Location;
use format::map::Entry;
use history::{Content, Segment};
use units::Seq;

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

/// Whether half of what a segment of shared batches has is named no more.
pub fn is_stale(segment: &Segment) -> bool {
    let end = u64::from(segment.end.load(Ordering::Acquire));
    let is_settled = !segment.held.load(Ordering::Acquire);
    segment.content() == Content::Shared && is_settled && segment.live_bytes() * 2 < end
}
