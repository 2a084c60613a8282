//! Counts of a volume's map, and until when they hold.

use std::sync::Arc;

use env::{Rank, RankedMutex};
use units::Seq;

use crate::pool::run_figures::{Figures, SpanFigures};

/// A full merge is due where a limit is not known to hold and as much of all versions is in doubt:
/// 1 in 8.
const DOUBT_SHARE: u64 = 8;

/// Bytes of one volume by what they are kept for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The present.
    pub live_bytes: u64,
    /// Whether that is so; else it is an upper bound.
    pub live_exact: bool,
    /// Only the past.
    pub history_bytes: u64,
    /// Of the past: stays whatever leaves the window.
    pub pinned_bytes: u64,
}

/// The figures of a volume's timelines, in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    pub timelines: Vec<(u64, Figures)>,
    /// Of blocks that nothing is known to supersede: those that others of the same timeline may,
    /// which are in its largest part. Zones that trims took are not among them.
    pub doubtful: u64,
    /// Each entry was looked at beside all others of its timeline.
    pub is_whole: bool,
}

impl Counted {
    /// Blocks that nothing is known to supersede.
    pub fn newest(&self) -> u64 {
        self.timelines.iter().map(|(_, figures)| figures.newest).sum()
    }

    /// The same of one timeline.
    pub fn newest_of(&self, timeline: u64) -> u64 {
        let own = self.timelines.iter().filter(|(id, _)| *id == timeline);
        own.map(|(_, figures)| figures.newest).sum()
    }

    /// All of one timeline.
    pub fn blocks_of(&self, timeline: u64) -> u64 {
        let own = self.timelines.iter().filter(|(id, _)| *id == timeline);
        own.map(|(_, figures)| figures.newest + figures.superseded()).sum()
    }

    /// The spans of all timelines.
    pub fn spans(&self) -> impl Iterator<Item = (u64, &SpanFigures)> {
        self.timelines.iter().flat_map(|(id, figures)| figures.spans.iter().map(|s| (*id, s)))
    }

    /// Of its blocks so many may be history that is not told, if `untold` is all that may be.
    /// Nothing worth a merge if it is less than an eighth of them.
    pub fn doubt(&self, untold: u64) -> u64 {
        let doubt = self.doubtful.min(untold);
        if doubt >= (self.newest() + self.superseded()) / DOUBT_SHARE { doubt } else { 0 }
    }

    /// Blocks that something supersedes.
    pub fn superseded(&self) -> u64 {
        self.spans().map(|(_, span)| span.blocks).sum()
    }
}

/// Until when a walk of a small map holds: the stable seq, the horizon, what is held, entries.
pub type Walk = (Seq, Seq, usize, u64);

/// The last counts of a volume.
pub struct LastCount {
    /// Live bytes, and the seq then.
    pub live: RankedMutex<Option<(Seq, u64)>>,
    pub walked: RankedMutex<Option<(Walk, Arc<Counted>)>>,
}

impl Default for LastCount {
    fn default() -> LastCount {
        let live = RankedMutex::new(Rank::Noted, None);
        LastCount { live, walked: RankedMutex::new(Rank::Noted, None) }
    }
}

impl LastCount {
    /// Blocks came into the map without a write.
    pub fn forget(&self) {
        *self.live.lock() = None;
        *self.walked.lock() = None;
    }
}
