//! The share of writes that are not yet overwritten after a time, and its integral: all that the
//! model needs of a workload.
//!
//! With T the distribution of temporal distances, S = 1 - T; R(g) = (1/g) x integral of S up to g.

use super::histogram::Histogram;

/// What is made of the last write to each extent, which has no distance to a next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastWrites {
    /// Left out, as in the paper.
    Ignored,
    /// Taken as never overwritten: what a measurement of the same trace comes to.
    Kept,
    /// Known to live until the trace ends, and not beyond (Kaplan-Meier): what a longer trace of
    /// the same kind would come to.
    #[default]
    Censored,
}

/// One piece of the curve, straight in between.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from: f64,
    to: f64,
    /// S at both ends.
    share_from: f64,
    share_to: f64,
    /// The integral up to `from`.
    integral_from: f64,
}

/// S, piece by piece.
#[derive(Clone, Debug)]
pub(super) struct Survival {
    /// Where writes are overwritten; between the pieces, and after the last one, S is level.
    pieces: Vec<Piece>,
}

impl Survival {
    /// From distances to the next write, and from the time between last writes and the end. So many
    /// more are never overwritten.
    pub(super) fn new(
        pairs: &Histogram,
        lasts: &Histogram,
        reading: LastWrites,
        more: f64,
    ) -> Survival {
        let total = |histogram: &Histogram| -> f64 {
            histogram.buckets().map(|(_, _, bucket)| bucket.weight).sum()
        };
        let mut at_risk = match reading {
            LastWrites::Ignored => total(pairs) + more,
            LastWrites::Kept | LastWrites::Censored => total(pairs) + total(lasts) + more,
        };
        let all = at_risk;
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut share, mut at, mut integral) = (1.0, 0.0, 0.0);
        for ((from, to, ended), (_, _, left)) in pairs.buckets().zip(lasts.buckets()) {
            let leaving = if reading == LastWrites::Censored { left.weight } else { 0.0 };
            if ended.weight > 0.0 {
                integral += (from - at) * share;
                let fall = match reading {
                    LastWrites::Ignored | LastWrites::Kept => ended.weight / all,
                    // Those that leave in this bucket are at risk for half of it.
                    LastWrites::Censored => {
                        share * (ended.weight / (at_risk - leaving / 2.0)).min(1.0)
                    }
                };
                let share_to = (share - fall).max(0.0);
                let piece =
                    Piece { from, to, share_from: share, share_to, integral_from: integral };
                pieces.push(piece);
                // Exact: each write counts up to its own distance.
                let mean = (ended.sum / ended.weight).clamp(from, to);
                integral += (to - from) * share - (share - share_to) * (to - mean);
                (share, at) = (share_to, to);
            }
            at_risk -= ended.weight + leaving;
        }
        Survival { pieces }
    }

    /// The last piece that begins at or before a time, and S after it.
    fn piece(&self, time_ns: f64) -> Option<&Piece> {
        let after = self.pieces.partition_point(|piece| piece.from <= time_ns);
        after.checked_sub(1).map(|index| &self.pieces[index])
    }

    /// S: the share of writes that are not overwritten within this time.
    pub(super) fn share(&self, time_ns: f64) -> f64 {
        let Some(piece) = self.piece(time_ns) else { return 1.0 };
        if time_ns >= piece.to {
            return piece.share_to;
        }
        let part = (time_ns - piece.from) / (piece.to - piece.from);
        piece.share_from + (piece.share_to - piece.share_from) * part
    }

    /// The integral of S from 0 to a time, in nanoseconds.
    pub(super) fn integral(&self, time_ns: f64) -> f64 {
        let Some(piece) = self.piece(time_ns) else { return time_ns };
        let end = time_ns.min(piece.to);
        let middle = (piece.share_from + self.share(end)) / 2.0;
        let inside = piece.integral_from + (end - piece.from) * middle;
        inside + (time_ns - end) * piece.share_to
    }

    /// R: the share of writes that are the last in their window of this length.
    pub(super) fn retained(&self, window_ns: f64) -> f64 {
        if window_ns <= 0.0 { 1.0 } else { self.integral(window_ns) / window_ns }
    }

    /// D: the share of writes that are retained, or leave the cache before they are overwritten,
    /// with windows of this length and a cache that writes wait in for `wait_ns`.
    pub(super) fn incurred(&self, window_ns: f64, wait_ns: f64) -> f64 {
        let evicted = self.share(wait_ns);
        // First: where neither ends, nothing of a window is retained either.
        if window_ns.is_infinite() {
            return evicted;
        }
        if wait_ns >= window_ns {
            return self.retained(window_ns);
        }
        (self.integral(wait_ns) + (window_ns - wait_ns) * evicted) / window_ns
    }

    /// The same where the cache keeps a version for each window of this length: only those of one
    /// window take each other's place. With windows of no length each write waits for itself.
    pub(super) fn wait_ns_in(&self, window_ns: f64, pages: f64, writes_per_ns: f64) -> f64 {
        if window_ns.is_infinite() {
            return self.wait_ns(pages, writes_per_ns);
        }
        if pages <= 0.0 {
            return 0.0;
        }
        let (mut low, mut high) = (1.0_f64, 1e18_f64);
        while high > low * (1.0 + 1e-6) {
            let middle = (low * high).sqrt();
            if writes_per_ns * self.incurred_up_to(window_ns, middle) < pages {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    /// The integral of D over the wait, in steps that grow with it.
    fn incurred_up_to(&self, window_ns: f64, wait_ns: f64) -> f64 {
        const STEP: f64 = 0.9;
        let (mut sum, mut to) = (0.0, wait_ns);
        let mut at_end = self.incurred(window_ns, to);
        while to > wait_ns * 1e-6 {
            let from = to * STEP;
            let at_start = self.incurred(window_ns, from);
            sum += (to - from) * (at_start + at_end) / 2.0;
            (to, at_end) = (from, at_start);
        }
        sum + to * at_end
    }

    /// How long a write waits in a cache of so many pages, when so many writes come a second: as
    /// long as it takes until as many pages were written that were not written again.
    pub(super) fn wait_ns(&self, pages: f64, writes_per_ns: f64) -> f64 {
        let filled = |wait_ns: f64| writes_per_ns * self.integral(wait_ns);
        if pages <= 0.0 {
            return 0.0;
        }
        let (mut low, mut high) = (0.0, 1e18);
        if filled(high) <= pages {
            return f64::INFINITY;
        }
        while high - low > 1.0_f64.max(low * 1e-9) {
            let middle = (low + high) / 2.0;
            if filled(middle) < pages {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }
}
