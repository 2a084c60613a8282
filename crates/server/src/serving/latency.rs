//! How long requests take, by kind, for Prometheus.
//!
//! No clock is read for it and no lock taken. Jobs are timed anyway: each of their requests counts
//! with the time from the job's beginning to its end, waits for room included. Requests that a
//! session carries out at once are timed in one wake-up of some: each of its requests counts there
//! as so many, with the time of the whole stage.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::asked::RequestKind;

/// Kinds of requests, as they are told.
const KINDS: [&str; 6] = ["read", "write", "trim", "zero", "flush", "other"];

/// Upper bounds of the buckets, in microseconds; one more has what took longer.
const BOUNDS_US: [u64; 16] = [
    10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000,
    1_000_000, 10_000_000,
];

/// How many requests of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts([u32; KINDS.len()]);

impl Counts {
    /// One request.
    pub(crate) fn one(kind: RequestKind) -> Counts {
        Counts::of([kind])
    }

    /// All of these.
    pub(crate) fn of(kinds: impl IntoIterator<Item = RequestKind>) -> Counts {
        let mut counts = Counts::default();
        kinds.into_iter().for_each(|kind| counts.add(kind));
        counts
    }

    pub(crate) fn add(&mut self, kind: RequestKind) {
        self.0[kind as usize] += 1;
    }

    /// One that was counted goes on elsewhere.
    pub(crate) fn take_away(&mut self, kind: RequestKind) {
        let count = &mut self.0[kind as usize];
        *count = count.saturating_sub(1);
    }
}

/// The histograms of all kinds.
#[derive(Debug, Default)]
pub struct Latencies([Histogram; KINDS.len()]);

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

impl Latencies {
    /// Requests took so long; each counts as `weight`.
    pub(crate) fn observe(&self, counts: &Counts, took: Duration, weight: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| bound * 1000 < nanos);
        for (histogram, &count) in self.0.iter().zip(&counts.0).filter(|(_, count)| **count > 0) {
            let count = u64::from(count) * weight;
            histogram.buckets[bucket].fetch_add(count, Ordering::Relaxed);
            histogram.sum_ns.fetch_add(nanos.saturating_mul(count), Ordering::Relaxed);
        }
    }

    pub(crate) fn encode(
        &self,
        front_end: &str,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        let name = format!("hindsight_{front_end}_request_seconds");
        let help = "Time to carry requests out, by kind; of those done at once one of 16 is timed";
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Histogram)?;
        let bounds = BOUNDS_US.iter().map(|&bound| bound as f64 / 1e6).chain([f64::INFINITY]);
        for (histogram, kind) in self.0.iter().zip(KINDS) {
            let counts = histogram.buckets.iter().map(|count| count.load(Ordering::Relaxed));
            let buckets: Vec<(f64, u64)> = bounds.clone().zip(counts).collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            let sum = histogram.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
            let labels = [("kind", kind)];
            let mut encoder = family.encode_family(&labels)?;
            encoder.encode_histogram::<[(&str, &str); 1]>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::{BOUNDS_US, Counts, Latencies};

    #[test]
    fn a_request_is_counted_in_the_bucket_of_its_time_with_its_weight() {
        let latencies = Latencies::default();
        let reads = Counts([2, 0, 0, 0, 0, 0]);
        latencies.observe(&reads, Duration::from_micros(10), 16);
        latencies.observe(&reads, Duration::from_nanos(10_001), 1);
        latencies.observe(&reads, Duration::from_secs(11), 1);
        let counts = latencies.0[0].buckets.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert_eq!((counts[0], counts[1], counts[BOUNDS_US.len()]), (32, 2, 2));
        assert_eq!(counts.iter().sum::<u64>(), 36);
        assert!(latencies.0[1].buckets.iter().all(|count| count.load(Ordering::Relaxed) == 0));
    }
}
