//! A histogram of spans of time: 128 buckets an octave, each with a weight and a sum.
//!
//! 1. A bucket's bounds differ by less than 0.8 %; spans below 128 ns have buckets of their own.

const SUB_BITS: u32 = 7;
const SUB_BUCKETS: usize = 1 << SUB_BITS;
/// Buckets of all spans that 64 bits hold.
const BUCKETS: usize = (u64::BITS - SUB_BITS) as usize * SUB_BUCKETS + SUB_BUCKETS;

/// What is in a bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    pub(super) weight: f64,
    pub(super) sum: f64,
}

/// Weights of spans.
#[derive(Clone, Debug)]
pub(super) struct Histogram(Vec<Bucket>);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(vec![Bucket::default(); BUCKETS])
    }
}

impl Histogram {
    #[inline]
    pub(super) fn add(&mut self, span_ns: u64, weight: f64) {
        let bucket = &mut self.0[index(span_ns)];
        bucket.weight += weight;
        bucket.sum += weight * span_ns as f64;
    }

    pub(super) fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.weight += theirs.weight;
            mine.sum += theirs.sum;
        }
    }

    /// All buckets with their bounds: from, and up to and without.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (f64, f64, Bucket)> + '_ {
        self.0.iter().enumerate().map(|(index, bucket)| (bound(index), bound(index + 1), *bucket))
    }
}

#[inline]
fn index(span_ns: u64) -> usize {
    let octave = u64::BITS - 1 - (span_ns | 1).leading_zeros();
    let shift = octave.saturating_sub(SUB_BITS);
    shift as usize * SUB_BUCKETS + (span_ns >> shift) as usize
}

/// The least span of a bucket; of the one after the last, where spans end.
fn bound(index: usize) -> f64 {
    let shift = (index / SUB_BUCKETS).saturating_sub(1);
    (index - shift * SUB_BUCKETS) as f64 * 2_f64.powi(shift as i32)
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, bound, index};
    use proptest::prelude::{prop_assert, proptest};

    #[test]
    fn the_ends_of_the_range_have_buckets() {
        assert_eq!((index(0), index(127), index(128)), (0, 127, 128));
        assert_eq!(index(u64::MAX), BUCKETS - 1);
    }

    proptest! {
        #[test]
        fn a_span_is_between_the_bounds_of_its_bucket(bits in 0..64_u32, low: u64) {
            let span = low >> bits;
            let index = index(span);
            prop_assert!(bound(index) <= span as f64);
            prop_assert!(span as f64 <= bound(index + 1));
            prop_assert!(bound(index + 1) - bound(index) <= (bound(index) / 128.0).max(1.0));
        }
    }
}
