//! Random numbers and arrivals.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1};

/// A generator of known algorithm, so that a seed means the same for ever.
pub(super) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A number below `end`. Its bias is `end` of 2^64, which no trace is long enough to show.
    #[inline]
    pub(super) fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "a range that is not empty");
        let product = u128::from(self.0.next_u64()) * u128::from(end);
        (product >> 64) as u64
    }

    /// Whether an event of so many percent happens.
    #[inline]
    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// The index of the first of rising bounds (of `u64::MAX`) that a random number is below.
    #[inline]
    pub(super) fn pick(&mut self, bounds: &[u64]) -> usize {
        let number = self.0.next_u64();
        let last = bounds.len() - 1;
        bounds[..last].iter().position(|bound| number < *bound).unwrap_or(last)
    }

    pub(super) fn sample<D: Distribution<f64>>(&mut self, distribution: &D) -> f64 {
        distribution.sample(&mut self.0)
    }
}

/// Rising bounds for [`Random::pick`] from weights.
pub(super) fn bounds(weights: &[f64]) -> Vec<u64> {
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let scale = |weight: &f64| {
        sum += weight;
        (sum / total * u64::MAX as f64) as u64
    };
    weights.iter().map(scale).collect()
}

/// Poisson arrivals: independent streams together are one stream of the summed rate, so a workload
/// of any number of them needs no queue.
pub(super) struct Arrivals {
    mean_ns: f64,
    now_ns: u64,
    /// What rounding to nanoseconds left over.
    rest_ns: f64,
}

impl Arrivals {
    pub(super) fn new(rate_per_second: f64) -> Arrivals {
        assert!(rate_per_second > 0.0, "checked when it was set");
        Arrivals { mean_ns: 1e9 / rate_per_second, now_ns: 0, rest_ns: 0.0 }
    }

    #[inline]
    pub(super) fn next(&mut self, random: &mut Random) -> u64 {
        let step = self.rest_ns + random.sample(&Exp1) * self.mean_ns;
        let whole = step as u64;
        self.rest_ns = step - whole as f64;
        self.now_ns = self.now_ns.saturating_add(whole);
        self.now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrivals, Random, bounds};

    #[test]
    fn arrivals_have_their_rate() {
        let (mut random, mut arrivals) = (Random::new(1), Arrivals::new(1e6));
        let last = (0..100_000).map(|_| arrivals.next(&mut random)).last().unwrap();
        let mean = last as f64 / 100_000.0;
        assert!((mean - 1000.0).abs() < 15.0, "{mean} ns");
    }

    #[test]
    fn picks_have_their_weights() {
        let mut random = Random::new(2);
        let bounds = bounds(&[0.1, 0.6, 0.3]);
        let mut counts = [0.0_f64; 3];
        for _ in 0..100_000 {
            counts[random.pick(&bounds)] += 1e-5;
        }
        for (count, weight) in counts.iter().zip([0.1, 0.6, 0.3]) {
            assert!((count - weight).abs() < 0.01, "{counts:?}");
        }
    }
}
