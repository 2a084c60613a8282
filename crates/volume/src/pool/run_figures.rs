//! The figures of a run: what its entries are kept for, counted while it is written.
//!
//! Invariants
//! 1. Every block of a run is counted once: as one that nothing known then supersedes, or in the
//!    span in which it was superseded.
//! 2. There are at most `SPANS_MAX` spans, whatever the run holds.
//! 3. Figures say nothing that the map does not: without them a run counts as not superseded.

use std::collections::BTreeMap;
use std::sync::Arc;

use env::{Rank, RankedGuard, RankedMutex};
use format::map::Entry;
use history::StoredRun;
use serde::{Deserialize, Serialize};
use units::Seq;

/// Spans of one run at most.
pub const SPANS_MAX: usize = 256;

/// Blocks that a span or a run may be said to hold: each was a write with a seq of its own.
const BLOCKS_MAX: u64 = Seq::MAX.0;

/// Blocks that were superseded in a span of seqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpanFigures {
    /// After this seq ...
    pub after: u64,
    /// ... and up to this one.
    pub until: u64,
    /// How many.
    pub blocks: u64,
    /// Of these: those that a pin sees.
    pub pinned: u64,
    /// Of these: those that only the last pin before they were superseded sees.
    pub own: u64,
}

/// The uses of the entries of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Blocks that nothing in the run supersedes.
    pub newest: u64,
    /// Spans that are not empty, ascending.
    pub spans: Vec<SpanFigures>,
}

impl Figures {
    /// Whether they can be what a run holds: they come from a disk.
    pub fn are_sound(&self) -> bool {
        let span_is_sound = |s: &SpanFigures| {
            let ascends = s.own <= s.pinned && s.pinned <= s.blocks && s.blocks <= BLOCKS_MAX;
            s.after < s.until && ascends
        };
        let is_bounded = self.spans.len() <= SPANS_MAX && self.newest <= BLOCKS_MAX;
        is_bounded && self.spans.iter().all(span_is_sound)
    }

    /// Blocks that were superseded.
    pub fn superseded(&self) -> u64 {
        self.spans.iter().map(|span| span.blocks).sum()
    }
}

/// The figures of runs, by run, as far as known.
pub struct RunFigures(RankedMutex<BTreeMap<u64, Arc<Figures>>>);

impl Default for RunFigures {
    fn default() -> RunFigures {
        RunFigures(RankedMutex::new(Rank::Figures, BTreeMap::new()))
    }
}

impl RunFigures {
    /// Takes over the figures of runs that are there.
    pub fn load(&self, figures: Vec<(u64, Figures)>, is_there: impl Fn(u64) -> bool) {
        let mut there = figures;
        there.retain(|(run, figures)| is_there(*run) && figures.are_sound());
        let there = there.into_iter();
        self.0.lock().extend(there.map(|(run, figures)| (run, Arc::new(figures))));
    }

    /// After a commit: runs that are no more, and one that is new.
    pub fn note(&self, gone: &[Arc<StoredRun>], new: Option<(u64, Figures)>) {
        let mut figures = self.0.lock();
        gone.iter().for_each(|run| drop(figures.remove(&run.id)));
        figures.extend(new.map(|(run, new)| (run, Arc::new(new))));
    }

    /// Those that are known.
    pub fn known(&self) -> RankedGuard<'_, BTreeMap<u64, Arc<Figures>>> {
        self.0.lock()
    }
}

/// Counts the entries of a run that are kept.
#[derive(Debug, Default)]
pub struct FigureCounter {
    pins: Vec<Seq>,
    edges: Vec<Seq>,
    spans: Vec<[u64; 3]>,
    newest: u64,
}

impl FigureCounter {
    /// A counter whose spans end at pins and at `marks` (seqs of certain ages), both ascending; of
    /// pins beyond what spans there may be only some.
    #[must_use]
    pub fn new(pins: Vec<Seq>, marks: &[Seq]) -> FigureCounter {
        let places = SPANS_MAX - 1 - marks.len().min(SPANS_MAX / 2);
        let step = pins.len().div_ceil(places).max(1);
        let mut edges: Vec<Seq> = pins.iter().copied().step_by(step).collect();
        edges.extend_from_slice(&marks[..marks.len().min(SPANS_MAX / 2)]);
        edges.sort_unstable();
        edges.dedup();
        let spans = vec![[0; 3]; edges.len() + 1];
        FigureCounter { pins, edges, spans, newest: 0 }
    }

    /// Counts an entry; `superseded` is the seq that does so, if there is one.
    pub fn count(&mut self, entry: &Entry, superseded: Option<Seq>) {
        if entry.key.level > 0 || entry.location.is_hole() {
            return;
        }
        let Some(until) = superseded else {
            self.newest += 1;
            return;
        };
        let span = &mut self.spans[self.edges.partition_point(|edge| *edge < until)];
        span[0] += 1;
        let before = self.pins.partition_point(|pin| *pin < until);
        let sees = |index: Option<usize>| index.is_some_and(|i| self.pins[i] >= entry.seq);
        if sees(before.checked_sub(1)) {
            span[1] += 1;
            span[2] += u64::from(!sees(before.checked_sub(2)));
        }
    }

    /// The count.
    #[must_use]
    pub fn finish(&self) -> Figures {
        let edge = |index: usize| self.edges.get(index).map_or(u64::MAX, |edge| edge.0);
        let spans = self.spans.iter().enumerate().filter(|(_, span)| span[0] > 0);
        let spans = spans.map(|(index, &[blocks, pinned, own])| SpanFigures {
            after: index.checked_sub(1).map_or(0, edge),
            until: edge(index),
            blocks,
            pinned,
            own,
        });
        Figures { newest: self.newest, spans: spans.collect() }
    }
}

#[cfg(test)]
mod tests {
    use format::location::Location;
    use format::map::Entry;
    use units::{Lba, Seq};

    use super::{FigureCounter, Figures, SPANS_MAX, SpanFigures};

    #[test]
    fn figures_that_no_run_can_have_are_told_from_sound_ones() {
        let span = SpanFigures { after: 1, until: 2, blocks: 3, pinned: 2, own: 1 };
        let of = |span: SpanFigures| Figures { newest: 1, spans: vec![span] };
        assert!(of(span).are_sound());
        assert!(!of(SpanFigures { until: 1, ..span }).are_sound());
        assert!(!of(SpanFigures { after: u64::MAX, until: 0, ..span }).are_sound());
        assert!(!of(SpanFigures { blocks: u64::MAX, ..span }).are_sound());
        assert!(!of(SpanFigures { pinned: 4, ..span }).are_sound());
        assert!(!of(SpanFigures { own: 3, ..span }).are_sound());
        assert!(!Figures { newest: u64::MAX, spans: Vec::new() }.are_sound());
        assert!(!Figures { newest: 1, spans: vec![span; SPANS_MAX + 1] }.are_sound());
    }

    fn seqs(list: &[u64]) -> Vec<Seq> {
        list.iter().map(|&seq| Seq(seq)).collect()
    }

    fn block(seq: u64) -> Entry {
        Entry::data(Lba(1), Seq(seq), Location::new(1, 4096), 7)
    }

    #[test]
    fn a_block_is_in_the_figure_of_the_last_pin_that_sees_it() {
        let mut counter = FigureCounter::new(seqs(&[10, 20]), &seqs(&[30]));
        counter.count(&block(5), Some(Seq(8)));
        counter.count(&block(8), Some(Seq(15)));
        counter.count(&block(15), Some(Seq(25)));
        counter.count(&block(9), Some(Seq(26)));
        counter.count(&block(26), Some(Seq(40)));
        counter.count(&block(40), None);
        counter.count(&Entry::hole(block(1).key, Seq(3)), Some(Seq(9)));
        let figures = counter.finish();
        assert_eq!((figures.newest, figures.superseded()), (1, 5));
        let span =
            |after, until, blocks, pinned, own| SpanFigures { after, until, blocks, pinned, own };
        let expected = [
            span(0, 10, 1, 0, 0),
            span(10, 20, 1, 1, 1),
            span(20, 30, 2, 2, 1),
            span(30, u64::MAX, 1, 0, 0),
        ];
        assert_eq!(figures.spans, expected);
    }

    #[test]
    fn there_are_never_more_spans_than_that() {
        let pins: Vec<Seq> = (0..100_000).map(|i| Seq(i * 3)).collect();
        let marks: Vec<Seq> = (0..20).map(|i| Seq(i * 1000 + 1)).collect();
        let mut counter = FigureCounter::new(pins, &marks);
        for seq in 1..300_000 {
            counter.count(&block(seq), Some(Seq(seq + 1)));
        }
        let figures = counter.finish();
        assert!(figures.spans.len() <= SPANS_MAX, "{}", figures.spans.len());
        assert_eq!(figures.superseded(), 299_999);
        // Each third is seen by a pin, and by that alone.
        let pinned: u64 = figures.spans.iter().map(|span| span.pinned).sum();
        let own: u64 = figures.spans.iter().map(|span| span.own).sum();
        assert_eq!((pinned, own), (99_999, 99_999));
    }
}
