//! Samples of the space in use, and the growth that they tell.
//!
//! Invariants
//! 1. A sample is part of a commit that is made anyway: where nothing is committed nothing grows.
//! 2. There are at most about 300: ten minutes apart for a day, six hours apart for a month.

use std::collections::{BTreeMap, BTreeSet};

use env::{Rank, RankedMutex};

use crate::Result;
use crate::catalogue::{Commit, Sample, tables};
use crate::types::Growth;

const MINUTE_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MINUTE_NS;
const DAY_NS: u64 = 24 * HOUR_NS;
/// Time between samples at least.
const APART_NS: u64 = 10 * MINUTE_NS;
/// How old a measure of history may be when a sample takes it.
const MEASURE_NS: u64 = APART_NS / 2;
/// The same of those that are older than a day.
const OLD_APART_NS: u64 = 6 * HOUR_NS;
/// How long a sample is kept.
const KEPT_NS: u64 = 30 * DAY_NS;
/// Growth is measured over so long ...
const MEASURED_NS: u64 = 7 * DAY_NS;
/// ... and not over less than this.
const MEASURED_MIN_NS: u64 = HOUR_NS;

/// The history of volumes when it was measured last, between commits: a commit holds locks that
/// measuring takes.
#[derive(Debug, Default)]
struct Measured {
    /// When; 0 is never.
    at_ns: u64,
    /// Bytes by volume id.
    history: BTreeMap<u64, u64>,
}

/// Samples by the clock's time, in nanoseconds since 1970.
pub type Samples = BTreeMap<u64, Sample>;

/// The samples of a pool, as the catalogue has them, and what the next one takes.
pub struct SampleBook {
    samples: RankedMutex<Samples>,
    measured: RankedMutex<Measured>,
}

impl SampleBook {
    /// With the samples that there are.
    #[must_use]
    pub fn new(samples: Samples) -> SampleBook {
        SampleBook {
            samples: RankedMutex::new(Rank::Samples, samples),
            measured: RankedMutex::new(Rank::Measured, Measured::default()),
        }
    }

    /// Whether history is to be measured for the next sample.
    pub fn is_measure_due(&self, now_ns: u64) -> bool {
        let before = self.measured.lock().at_ns;
        before == 0 || now_ns.abs_diff(before) >= MEASURE_NS
    }

    /// Takes up a measure of the history of volumes, by their ids.
    pub fn note_history(&self, now_ns: u64, history: BTreeMap<u64, u64>) {
        *self.measured.lock() = Measured { at_ns: now_ns, history };
    }

    /// Adds a sample to a commit if one is due, of bytes of the pool and of volumes' logs; `None`
    /// of these is that the next commit will do.
    ///
    /// # Errors
    /// Those of the catalogue.
    pub fn add(
        &self,
        commit: &Commit,
        now_ns: u64,
        take: impl FnOnce() -> Option<(u64, Vec<(u64, u64)>)>,
    ) -> Result<()> {
        let mut samples = self.samples.lock();
        let is_due = |(&last, _): (&u64, _)| now_ns < last || now_ns - last >= APART_NS;
        if !samples.last_key_value().is_none_or(is_due) {
            return Ok(());
        }
        let Some((pool_bytes, volumes)) = take() else { return Ok(()) };
        let measured = self.measured.lock();
        let is_fresh = measured.at_ns > 0 && now_ns.abs_diff(measured.at_ns) < APART_NS;
        let history = measured.history.iter().filter(|_| is_fresh).map(|(&id, &of)| (id, of));
        let sample = Sample { pool_bytes, volumes, history: history.collect() };
        drop(measured);
        commit.put(tables::SAMPLES, now_ns, &sample)?;
        samples.insert(now_ns, sample);
        for time in outdated(&samples, now_ns) {
            commit.remove(tables::SAMPLES, time)?;
            samples.remove(&time);
        }
        Ok(())
    }

    /// Bytes a day since the first sample that counts; `None` before there is one that is old
    /// enough.
    pub fn growth(
        &self,
        now_ns: u64,
        now_bytes: u64,
        bytes: impl Fn(&Sample) -> Option<u64>,
    ) -> Option<Growth> {
        let samples = self.samples.lock();
        let mut known = samples.range(now_ns.saturating_sub(MEASURED_NS)..=now_ns);
        let (time, first) = known.find_map(|(time, sample)| Some((*time, bytes(sample)?)))?;
        let span_ns = now_ns - time;
        if span_ns < MEASURED_MIN_NS {
            return None;
        }
        let difference = i128::from(now_bytes) - i128::from(first);
        let a_day = difference * i128::from(DAY_NS) / i128::from(span_ns);
        let bytes_a_day = i64::try_from(a_day).unwrap_or(i64::MAX);
        Some(Growth { bytes_a_day, measured_ns: span_ns })
    }
}

/// Which samples are kept no longer.
fn outdated(samples: &Samples, now_ns: u64) -> Vec<u64> {
    let mut seen = BTreeSet::new();
    let is_outdated = |&time: &u64| {
        // The clock was set back: what lies ahead says nothing.
        time > now_ns
            || now_ns - time > KEPT_NS
            || now_ns - time > DAY_NS && !seen.insert(time / OLD_APART_NS)
    };
    samples.keys().copied().filter(is_outdated).collect()
}

impl Growth {
    /// When so many bytes are used up, in nanoseconds from now; `None` if never.
    #[must_use]
    pub fn lasts_ns(self, bytes: u64) -> Option<u64> {
        let a_day = u128::try_from(self.bytes_a_day).ok().filter(|&a_day| a_day > 0)?;
        let nanos = u128::from(bytes) * u128::from(DAY_NS) / a_day;
        u64::try_from(nanos).ok().filter(|&nanos| nanos < 100 * 365 * DAY_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::{DAY_NS, HOUR_NS, MINUTE_NS, Sample, SampleBook, Samples, outdated};

    fn sample(pool_bytes: u64) -> Sample {
        Sample { pool_bytes, ..Sample::default() }
    }

    #[test]
    fn samples_stay_few_however_long_it_goes_on() {
        let mut samples = Samples::new();
        for turn in 0..60 * 144 {
            let now = turn * 10 * MINUTE_NS + 1;
            samples.insert(now, sample(turn));
            outdated(&samples, now).iter().for_each(|time| drop(samples.remove(time)));
            assert!(samples.len() <= 145 + 121, "{}", samples.len());
        }
        assert!(samples.len() > 200);
        let back = 10 * DAY_NS;
        outdated(&samples, back).iter().for_each(|time| drop(samples.remove(time)));
        assert!(samples.is_empty(), "the clock was set back by more than is kept");
    }

    #[test]
    fn growth_is_told_for_a_day_and_never_from_next_to_nothing() {
        let bytes = |sample: &Sample| Some(sample.pool_bytes);
        let book = SampleBook::new(Samples::from([(0, sample(100)), (HOUR_NS, sample(50))]));
        assert_eq!(book.growth(HOUR_NS / 2, 1000, bytes), None);
        let told = book.growth(6 * HOUR_NS, 1100, bytes).expect("measured");
        assert_eq!((told.bytes_a_day, told.measured_ns), (4000, 6 * HOUR_NS));
        assert_eq!(told.lasts_ns(8000), Some(2 * DAY_NS));
        let less = book.growth(6 * HOUR_NS, 40, bytes).expect("measured");
        assert!(less.bytes_a_day < 0 && less.lasts_ns(1).is_none());
        let told = book.growth(20 * DAY_NS, 1, bytes);
        assert_eq!(told, None, "what is older than a week says nothing");
    }
}
