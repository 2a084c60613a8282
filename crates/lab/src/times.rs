//! How long requests took: counts by time, of bounded size.

/// Times in buckets of a 64th of a power of two.
#[derive(Clone, Debug)]
pub struct Times {
    counts: Vec<u64>,
    max_ns: u64,
    sum_ns: u128,
    all: u64,
}

impl Default for Times {
    fn default() -> Times {
        Times::new()
    }
}

impl Times {
    const PER_OCTAVE_LOG: u32 = 6;

    /// None yet.
    #[must_use]
    pub fn new() -> Times {
        let buckets = (u64::BITS as usize) << Times::PER_OCTAVE_LOG;
        Times { counts: vec![0; buckets], max_ns: 0, sum_ns: 0, all: 0 }
    }

    fn bucket(nanos: u64) -> usize {
        let log = nanos.max(1).ilog2();
        if log <= Times::PER_OCTAVE_LOG {
            return nanos as usize;
        }
        let shift = log - Times::PER_OCTAVE_LOG;
        ((shift as usize) << Times::PER_OCTAVE_LOG) + (nanos >> shift) as usize
    }

    /// One more.
    pub fn add(&mut self, nanos: u64) {
        self.counts[Times::bucket(nanos)] += 1;
        self.max_ns = self.max_ns.max(nanos);
        self.sum_ns += u128::from(nanos);
        self.all += 1;
    }

    /// All of another.
    pub fn merge(&mut self, other: &Times) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
        self.all += other.all;
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.all
    }

    /// The mean, microseconds; 0 without any.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        if self.all == 0 { 0.0 } else { self.sum_ns as f64 / self.all as f64 / 1e3 }
    }

    /// The longest, microseconds.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1e3
    }

    /// The time that this share of the requests did not exceed, to 1.6 %; microseconds.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> f64 {
        let wanted = (self.all as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return (Times::end(bucket).min(self.max_ns)) as f64 / 1e3;
            }
        }
        0.0
    }

    /// The longest time of a bucket.
    fn end(bucket: usize) -> u64 {
        let shift = (bucket >> Times::PER_OCTAVE_LOG).saturating_sub(1);
        let within = bucket - (shift << Times::PER_OCTAVE_LOG);
        (((within as u64) + 1) << shift).wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::Times;

    #[test]
    fn quantiles_are_within_a_64th() {
        let mut times = Times::new();
        (1..=100_000_u64).for_each(|micros| times.add(micros * 1000));
        for (share, expected) in [(0.5, 50_000.0), (0.99, 99_000.0), (1.0, 100_000.0)] {
            let found = times.quantile_us(share);
            assert!((found / expected - 1.0).abs() < 1.0 / 64.0, "{share}: {found}");
        }
        assert!((times.mean_us() - 50_000.5).abs() < 1e-6, "{}", times.mean_us());
        let mut both = Times::new();
        both.merge(&times);
        both.merge(&times);
        assert_eq!((both.count(), both.quantile_us(0.5)), (200_000, times.quantile_us(0.5)));
        assert_eq!(Times::new().quantile_us(0.5), 0.0);
        for nanos in [0, 1, 63, 64, 127, 128, 1 << 20, u64::MAX] {
            let bucket = Times::bucket(nanos);
            assert!(bucket == 0 || Times::end(bucket - 1) < nanos, "{nanos}");
        }
    }
}
