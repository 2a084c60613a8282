//! What was measured of a workload, and what follows from it.

use serde::Serialize;

use super::cost::{Architecture, DeviceIos, Shares};
use super::histogram::Histogram;
use super::places::Places;
use super::survival::{LastWrites, Survival};

/// Parts of the sample that are kept apart, so that their spread shows its error.
pub(super) const GROUPS: usize = 16;
/// Student's t for 95 %, two-sided, with 15 degrees of freedom: sixteen groups.
const STUDENT_95: f64 = 2.131;

/// What was counted besides distances.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) write_requests: u64,
    /// Extents written.
    pub(super) writes: u64,
    pub(super) written_bytes: u64,
    pub(super) read_requests: u64,
    pub(super) read_bytes: u64,
    /// Of them, those that began where the device's read before ended.
    pub(super) sequential_read_bytes: u64,
    /// Of writes, likewise.
    pub(super) sequential_write_bytes: u64,
    pub(super) last_ns: u64,
    pub(super) devices_written: u64,
}

/// A number, and how far off it may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Half of the interval that holds the truth with 95 %; 0 where nothing was sampled.
    pub error: f64,
}

/// What was measured of the times between writes.
pub(super) struct Distances {
    /// To the next write, by group.
    pub(super) pairs: Vec<Histogram>,
    /// From last writes to the end, by group.
    pub(super) lasts: Vec<Histogram>,
    /// Both by how far apart the writes of the extent were before.
    pub(super) places: Places,
    /// Where the engine's cache was not emptied between.
    pub(super) together: Together,
}

/// Distances within which nothing made the engine empty its cache: no flush, and no pause. A write
/// that is parted from the next one leaves the cache, however large that is.
#[derive(Clone, Debug, Default)]
pub(super) struct Together {
    /// To the next write.
    pub(super) pairs: Histogram,
    /// How many are parted from it.
    pub(super) parted: f64,
    /// From last writes to the end.
    pub(super) lasts: Histogram,
    /// How many last writes have left.
    pub(super) left: f64,
}

/// A measured workload.
#[derive(Clone)]
pub struct Profile {
    counts: Counts,
    extent_bytes: u64,
    span_bytes: u64,
    distinct: f64,
    is_sampled: bool,
    pairs: Vec<Histogram>,
    lasts: Vec<Histogram>,
    places: Places,
    together: Together,
    reading: LastWrites,
    whole: Survival,
    /// S where the cache is emptied by flushes.
    in_cache: Survival,
    groups: Vec<Survival>,
}

impl Profile {
    pub(super) fn new(
        counts: Counts,
        extent_bytes: u64,
        span_bytes: u64,
        distinct: f64,
        is_sampled: bool,
        distances: Distances,
    ) -> Profile {
        let Distances { pairs, lasts, places, together } = distances;
        let reading = LastWrites::default();
        let none = Histogram::default();
        let whole = Survival::new(&none, &none, reading, 0.0);
        let mut profile = Profile {
            counts,
            extent_bytes,
            span_bytes,
            distinct,
            is_sampled,
            pairs,
            lasts,
            places,
            together,
            reading,
            in_cache: whole.clone(),
            whole,
            groups: Vec::new(),
        };
        profile.read_last_writes_as(reading);
        profile
    }

    /// Decides what is made of the last write to each extent.
    pub fn read_last_writes_as(&mut self, reading: LastWrites) {
        let (mut pairs, mut lasts) = (Histogram::default(), Histogram::default());
        for group in 0..GROUPS {
            pairs.merge(&self.pairs[group]);
            lasts.merge(&self.lasts[group]);
        }
        self.reading = reading;
        self.whole = Survival::new(&pairs, &lasts, reading, 0.0);
        let Together { pairs, parted, lasts, left } = &self.together;
        let left = if reading == LastWrites::Ignored { 0.0 } else { *left };
        self.in_cache = Survival::new(pairs, lasts, reading, parted + left);
        self.groups.clear();
        if self.is_sampled {
            let of_group =
                |group| Survival::new(&self.pairs[group], &self.lasts[group], reading, 0.0);
            self.groups = (0..GROUPS).map(of_group).collect();
        }
    }

    /// A result of the whole, and its error from the spread over the groups.
    fn estimate(&self, result: impl Fn(&Survival) -> f64) -> Estimate {
        let value = result(&self.whole);
        if self.groups.is_empty() {
            return Estimate { value, error: 0.0 };
        }
        let of_groups: Vec<f64> = self.groups.iter().map(result).collect();
        let count = of_groups.len() as f64;
        let mean = of_groups.iter().sum::<f64>() / count;
        let squares: f64 = of_groups.iter().map(|one| (one - mean).powi(2)).sum();
        let error = STUDENT_95 * (squares / (count - 1.0) / count).sqrt();
        Estimate { value, error }
    }

    /// T(t): the share of writes that are overwritten within a time.
    #[must_use]
    pub fn overwritten_within(&self, time_ns: f64) -> Estimate {
        self.estimate(|survival| 1.0 - survival.share(time_ns))
    }

    /// R(g): the share of writes that are retained.
    #[must_use]
    pub fn retained(&self, window_ns: f64) -> Estimate {
        self.estimate(|survival| survival.retained(window_ns))
    }

    /// s: how long a write waits in a cache with so many dirty pages, if writes come evenly;
    /// infinite when the cache holds them all.
    #[must_use]
    pub fn wait_ns(&self, dirty_pages: u64) -> f64 {
        self.whole.wait_ns(dirty_pages as f64, self.writes_per_ns())
    }

    /// The same for a cache that keeps a version of each page for each window of this length, as
    /// that of the engine: a history wants them all.
    #[must_use]
    pub fn wait_ns_in(&self, window_ns: f64, dirty_pages: u64) -> f64 {
        self.whole.wait_ns_in(window_ns, dirty_pages as f64, self.writes_per_ns())
    }

    /// r, c and d with windows of this length, and writes that wait so long in the cache.
    #[must_use]
    pub fn shares(&self, window_ns: f64, wait_ns: f64) -> Shares {
        let survival = &self.whole;
        let is_endless = window_ns.is_infinite();
        Shares {
            retained: if is_endless { 0.0 } else { survival.retained(window_ns) },
            evicted: survival.share(wait_ns),
            incurred: survival.incurred(window_ns, wait_ns),
        }
    }

    /// The same where flushes and pauses empty the cache.
    pub(super) fn shares_with_flushes(&self, window_ns: f64, wait_ns: f64) -> Shares {
        Shares {
            evicted: self.in_cache.share(wait_ns),
            incurred: self.in_cache.incurred(window_ns, wait_ns),
            ..self.shares(window_ns, wait_ns)
        }
    }

    /// How long writes wait where such a share of them is not overwritten meanwhile.
    pub(super) fn wait_with_share(&self, share: f64) -> f64 {
        let (mut low, mut high) = (1.0_f64, 1e18_f64);
        while high > low * (1.0 + 1e-6) {
            let middle = (low * high).sqrt();
            if self.whole.share(middle) > share { low = middle } else { high = middle }
        }
        low
    }

    /// What the places of `hybrid` cost, without the log.
    pub(super) fn places_ios(&self, window_ns: f64, wait_ns: f64) -> DeviceIos {
        self.places.ios(window_ns, wait_ns, self.reading)
    }

    /// What a write costs an architecture, likewise. That of `hybrid` comes from how far apart the
    /// writes of each block were.
    #[must_use]
    pub fn ios(&self, architecture: Architecture, window_ns: f64, wait_ns: f64) -> DeviceIos {
        let shares = self.shares(window_ns, wait_ns);
        if architecture != Architecture::Hybrid {
            return shares.ios(architecture);
        }
        if wait_ns.is_infinite() {
            // What never leaves the cache needs no place.
            return DeviceIos { reads: 0.0, writes: shares.incurred };
        }
        let places = self.places_ios(window_ns, wait_ns);
        DeviceIos { writes: places.writes + shares.incurred, ..places }
    }

    /// How far off r, c and d may be, likewise.
    #[must_use]
    pub fn shares_error(&self, window_ns: f64, wait_ns: f64) -> Shares {
        let is_endless = window_ns.is_infinite();
        Shares {
            retained: if is_endless { 0.0 } else { self.retained(window_ns).error },
            evicted: self.estimate(|survival| survival.share(wait_ns)).error,
            incurred: self.estimate(|survival| survival.incurred(window_ns, wait_ns)).error,
        }
    }

    /// How many different extents are written within a time.
    #[must_use]
    pub fn extents_within(&self, time_ns: f64) -> f64 {
        self.writes_per_ns() * self.whole.integral(time_ns)
    }

    /// Extents written in a nanosecond.
    fn writes_per_ns(&self) -> f64 {
        if self.counts.last_ns == 0 {
            return 0.0;
        }
        self.counts.writes as f64 / self.counts.last_ns as f64
    }

    /// Extents written a second.
    #[must_use]
    pub fn writes_per_second(&self) -> f64 {
        self.writes_per_ns() * 1e9
    }

    /// Extents written: a request of several counts several times.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.counts.writes
    }

    /// Extents of a write request, on average.
    pub(super) fn extents_per_write(&self) -> f64 {
        self.counts.writes as f64 / self.counts.write_requests.max(1) as f64
    }

    /// Devices that were written.
    pub(super) fn devices_written(&self) -> u64 {
        self.counts.devices_written
    }

    /// Requests of all kinds.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.counts.requests
    }

    /// From the first request to the last.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.counts.last_ns
    }

    /// Bytes of an extent.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }

    /// Bytes up to the last address used, of all devices together.
    #[must_use]
    pub fn span_bytes(&self) -> u64 {
        self.span_bytes
    }

    /// Different extents written.
    #[must_use]
    pub fn distinct(&self) -> f64 {
        self.distinct
    }

    /// Whether only a sample of the extents was looked at.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Bytes that were read, of reads and writes together.
    #[must_use]
    pub fn read_share(&self) -> f64 {
        share(self.counts.read_bytes, self.counts.read_bytes + self.counts.written_bytes)
    }

    /// Of the bytes read, those that followed the read before.
    #[must_use]
    pub fn sequential_read_share(&self) -> f64 {
        share(self.counts.sequential_read_bytes, self.counts.read_bytes)
    }

    /// Of the bytes written, those that followed the write before.
    #[must_use]
    pub fn sequential_write_share(&self) -> f64 {
        share(self.counts.sequential_write_bytes, self.counts.written_bytes)
    }

    /// What is made of the last write to each extent.
    #[must_use]
    pub fn last_writes(&self) -> LastWrites {
        self.reading
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
