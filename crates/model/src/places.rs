//! What the places of `hybrid` cost: how far apart the writes of a block were says how likely it is
//! written again before its window is over, and by that it is put in place at once or waits.
//!
//! Writes are told apart by the mean distance between the writes of their block so far, in steps of
//! half an octave, as the engine does. Of each class the survival S is measured as for all writes.
//! A version that leaves the cache after `s` with `v` from its write to the end of its window is
//! the last of it with the likelihood q = S(v) / S(s):
//!
//! - put in place at once, it costs 1 write;
//! - if it waits, 1 read and 1 write where it was the last, that is 2q.
//!
//! The less of the two is taken, since the engine learns q of its classes by counting. A version
//! whose window is over goes in place, unless the cache has a newer one. Windows begin at any time.

use super::cost::DeviceIos;
use super::survival::LastWrites;

/// Classes of mean distances: two for each doubling of 64 bits; 0 has those written once.
pub(super) const CLASSES: usize = 128;
/// Buckets of a class for each doubling, as bits.
const SUB_BITS: u32 = 4;
/// With `on-demand`, whose windows have no end, places wait for ten minutes at most.
const ON_DEMAND_NS: f64 = 600e9;

/// The class of a mean distance; 0 for a block that was written once.
#[inline]
pub(super) fn class_of(mean_ns: u64) -> u8 {
    let octave = u64::BITS - 1 - (mean_ns | 1).leading_zeros();
    // The upper half of an octave begins at its square root of two.
    let is_upper = (mean_ns as f64) >= 2_f64.powi(octave as i32) * std::f64::consts::SQRT_2;
    (2 * octave as u8 + u8::from(is_upper)).max(1)
}

/// The middle of a class.
#[inline]
fn mean_of(class: u8) -> u64 {
    2_f64.powf((f64::from(class) + 0.5) / 2.0) as u64
}

/// The class of a block of a class that was written again after so long.
#[inline]
pub(super) fn next_class(before: u8, distance_ns: u64) -> u8 {
    match before {
        0 => class_of(distance_ns),
        before => class_of(mean_of(before).midpoint(distance_ns)),
    }
}

#[inline]
fn bucket_of(span_ns: u64) -> usize {
    let octave = u64::BITS - 1 - (span_ns | 1).leading_zeros();
    let rest = (span_ns << (u64::BITS - 1 - octave)) << 1 >> (u64::BITS - SUB_BITS);
    (octave as usize) << SUB_BITS | rest as usize
}

/// Where a bucket begins.
fn bound(bucket: usize) -> f64 {
    let part = (bucket & ((1 << SUB_BITS) - 1)) as f64 / f64::from(1 << SUB_BITS);
    if bucket == 0 { 0.0 } else { 2_f64.powi((bucket >> SUB_BITS) as i32) * (1.0 + part) }
}

/// Weights of spans of one class, as many buckets as there is something in.
#[derive(Clone, Debug, Default)]
struct Weights(Vec<f64>);

impl Weights {
    #[inline]
    fn add(&mut self, span_ns: u64, weight: f64) {
        let bucket = bucket_of(span_ns);
        if bucket >= self.0.len() {
            self.0.resize(bucket + 1, 0.0);
        }
        self.0[bucket] += weight;
    }

    fn of(&self, bucket: usize) -> f64 {
        self.0.get(bucket).copied().unwrap_or(0.0)
    }

    fn total(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// What was measured of each class of writes.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Times to the next write.
    pairs: Vec<Weights>,
    /// Times that last writes have lived.
    lasts: Vec<Weights>,
}

impl Default for Places {
    fn default() -> Places {
        let none = || vec![Weights::default(); CLASSES];
        Places { pairs: none(), lasts: none() }
    }
}

/// S of a class at the bounds of its buckets, straight in between.
struct Curve {
    share: Vec<f64>,
}

impl Curve {
    fn new(pairs: &Weights, lasts: &Weights, reading: LastWrites) -> Curve {
        let kept = if reading == LastWrites::Ignored { 0.0 } else { lasts.total() };
        let mut at_risk = pairs.total() + kept;
        let (all, mut at) = (at_risk, 1.0);
        let mut share = vec![at];
        for bucket in 0..pairs.0.len().max(lasts.0.len()) {
            let (ended, left) = (pairs.of(bucket), lasts.of(bucket));
            if ended > 0.0 {
                at = match reading {
                    LastWrites::Ignored | LastWrites::Kept => (at - ended / all).max(0.0),
                    LastWrites::Censored => at * (1.0 - ended / (at_risk - left / 2.0)).max(0.0),
                };
            }
            share.push(at);
            at_risk -= ended + if reading == LastWrites::Censored { left } else { 0.0 };
            if reading != LastWrites::Censored {
                at_risk = all;
            }
        }
        Curve { share }
    }

    fn at(&self, time_ns: f64) -> f64 {
        let bucket = bucket_of(time_ns as u64);
        let last = self.share.len() - 1;
        let (from, to) = (self.share[bucket.min(last)], self.share[(bucket + 1).min(last)]);
        let (start, end) = (bound(bucket), bound(bucket + 1));
        from + (to - from) * ((time_ns - start) / (end - start)).clamp(0.0, 1.0)
    }

    /// Reads and writes for the places of versions, summed over the time from write to window end.
    fn places(&self, wait_ns: f64, window_ns: f64) -> DeviceIos {
        let at_wait = self.at(wait_ns);
        let mut ios = DeviceIos { reads: 0.0, writes: at_wait * wait_ns.min(window_ns) };
        let mut from = wait_ns;
        let mut at_from = at_wait;
        let mut bucket = bucket_of(wait_ns as u64);
        while from < window_ns {
            bucket += 1;
            let to = if bucket < self.share.len() { bound(bucket) } else { window_ns };
            let to = to.clamp(from, window_ns);
            let at_to = self.at(to);
            let last = (at_from + at_to) / 2.0 * (to - from);
            if at_from + at_to < at_wait {
                ios.reads += last;
                ios.writes += last;
            } else {
                ios.writes += at_wait * (to - from);
            }
            (from, at_from) = (to, at_to);
        }
        ios
    }
}

impl Places {
    /// A write of this class was followed by another after so long.
    #[inline]
    pub(super) fn add(&mut self, class: u8, span_ns: u64, weight: f64) {
        self.pairs[usize::from(class)].add(span_ns, weight);
    }

    /// A write of this class was the last, so long before the end.
    pub(super) fn add_last(&mut self, class: u8, span_ns: u64, weight: f64) {
        self.lasts[usize::from(class)].add(span_ns, weight);
    }

    /// Reads and writes for the places, for one write.
    pub(super) fn ios(&self, window_ns: f64, wait_ns: f64, reading: LastWrites) -> DeviceIos {
        let window_ns = if window_ns.is_infinite() { ON_DEMAND_NS } else { window_ns };
        let (mut ios, mut all) = (DeviceIos::default(), 0.0);
        for (pairs, lasts) in self.pairs.iter().zip(&self.lasts) {
            let weight = pairs.total() + lasts.total();
            if weight == 0.0 {
                continue;
            }
            let curve = Curve::new(pairs, lasts, reading);
            let one = if window_ns > 0.0 {
                let one = curve.places(wait_ns, window_ns);
                DeviceIos { reads: one.reads / window_ns, writes: one.writes / window_ns }
            } else {
                DeviceIos { reads: 0.0, writes: curve.at(wait_ns) }
            };
            all += weight;
            ios.reads += weight * one.reads;
            ios.writes += weight * one.writes;
        }
        let all = if all == 0.0 { 1.0 } else { all };
        DeviceIos { reads: ios.reads / all, writes: ios.writes / all }
    }
}

#[cfg(test)]
mod tests {
    use super::{Places, SUB_BITS, bound, bucket_of, class_of, mean_of, next_class};
    use crate::{DeviceIos, LastWrites};

    #[test]
    fn a_span_is_in_its_bucket_and_a_mean_in_its_class() {
        for span in [1, 2, 3, 7, 1000, 123_456_789, u64::MAX - (1 << 50)] {
            let bucket = bucket_of(span);
            assert!(bound(bucket) <= span as f64 && span as f64 <= bound(bucket + 1), "{span}");
        }
        assert_eq!(bucket_of(u64::MAX), (64 << SUB_BITS) - 1);
        for class in 20..120 {
            assert_eq!(class_of(mean_of(class)), class);
        }
        assert_eq!(next_class(0, 1 << 30), 60);
        assert_eq!(next_class(60, 1 << 30), 60);
    }

    /// Blocks that are written after one second or, one time in four, after three; and one that is
    /// written after a hundred. Windows of ten seconds.
    #[test]
    fn what_is_written_often_waits_and_what_is_written_seldom_does_not() {
        const SECOND: f64 = 1e9;
        let mut places = Places::default();
        let often = class_of(SECOND as u64);
        places.add(often, SECOND as u64, 75.0);
        places.add(often, 3 * SECOND as u64, 25.0);
        places.add(class_of(100 * SECOND as u64), 100 * SECOND as u64, 1.0);
        let close = |found: DeviceIos, reads: f64, writes: f64| {
            let off = (found.reads - reads).abs().max((found.writes - writes).abs());
            assert!(off < 0.005, "{found:?}, expected {reads} and {writes}");
        };
        // A tenth comes in the last second, and goes in place at once. A fifth comes in the two
        // before, and waits: one in four of them is the last of its window, and is read as well.
        let ios = places.ios(10.0 * SECOND, 0.0, LastWrites::Ignored);
        close(ios, 5.0 / 101.0, (10.0 + 5.0 + 1.0) / 101.0);
        close(places.ios(0.0, 0.0, LastWrites::Ignored), 0.0, 1.0);
        // A cache in which they wait for four seconds lets none go that comes again.
        close(places.ios(10.0 * SECOND, 4.0 * SECOND, LastWrites::Ignored), 0.0, 1.0 / 101.0);
    }
}
