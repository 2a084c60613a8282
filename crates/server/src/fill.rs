//! How full the pool is, and saying so in time: history is given up first, then writes fail.
//!
//! A pool file is sparse, so what is left is the lesser of what its zones and its file system have.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use volume::{Pool, Volume};
use wire::scsi::log::{Room, SET_BYTES};

/// From how many percent on a warning is given, and given again.
pub(crate) const WARNING_PERCENTS: [u64; 3] = [75, 85, 95];
/// A level is left only so many percent below it: a pool that stays near one is warned of once.
const LEFT_BELOW: u64 = 3;
/// How often the watch looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How full a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) used_bytes: u64,
    pub(crate) available_bytes: u64,
    /// The level that was reached before; 0 is none.
    pub(crate) level_before: u64,
}

impl Fill {
    /// Of what data may take in all, how much is used.
    pub(crate) fn percent(self) -> u64 {
        let all = u128::from(self.used_bytes) + u128::from(self.available_bytes);
        let percent = (u128::from(self.used_bytes) * 100).checked_div(all).unwrap_or(100);
        u64::try_from(percent).expect("at most 100")
    }

    /// The highest warning level that was reached and not left; 0 is none.
    pub(crate) fn level(self) -> u64 {
        let percent = self.percent();
        let is_reached = |level: &u64| {
            let is_held = *level <= self.level_before && *level <= percent + LEFT_BELOW;
            *level <= percent || is_held
        };
        WARNING_PERCENTS.into_iter().filter(is_reached).max().unwrap_or(0)
    }

    /// The warning about it.
    pub(crate) fn warning(self) -> Option<String> {
        if self.level() == 0 {
            return None;
        }
        let left = self.available_bytes >> 20;
        Some(format!(
            "the pool is {} % full, {left} MiB are left: then the oldest history that nothing pins \
             is given up, and when there is none, writes fail",
            self.percent()
        ))
    }
}

/// How full the pool was when it was looked at last, for those who may not wait for a file system.
#[derive(Debug, Default)]
pub(crate) struct Thin {
    used_bytes: AtomicU64,
    available_bytes: AtomicU64,
    /// How often a warning level was reached.
    reached: AtomicU64,
}

impl Thin {
    /// The room in threshold sets: what is used is rounded up, what is left down.
    pub(crate) fn room(&self) -> Room {
        Room {
            available: self.available_bytes.load(Ordering::Relaxed) / SET_BYTES,
            used: self.used_bytes.load(Ordering::Relaxed).div_ceil(SET_BYTES),
        }
    }

    /// How often a warning level was reached.
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// The pool is that full, and has just reached a level or not.
    pub(crate) fn note(&self, fill: Fill, has_reached: bool) {
        self.used_bytes.store(fill.used_bytes, Ordering::Relaxed);
        self.available_bytes.store(fill.available_bytes, Ordering::Relaxed);
        self.reached.fetch_add(u64::from(has_reached), Ordering::AcqRel);
    }
}

/// Tells how full a pool is.
pub(crate) struct FillGauge {
    thin: Arc<Thin>,
    pool: Arc<Pool>,
    /// The pool's file, if it is one and not a disk.
    file: Option<PathBuf>,
}

impl FillGauge {
    /// For the pool that lies at `path`; how full it is, is told there.
    pub(crate) fn new(pool: Arc<Pool>, path: PathBuf, thin: Arc<Thin>) -> FillGauge {
        let is_file = std::fs::metadata(&path).is_ok_and(|m| m.is_file());
        let gauge = FillGauge { thin, pool, file: is_file.then_some(path) };
        gauge.thin.note(gauge.read(), false);
        gauge
    }

    /// Bytes that the volumes may come to hold, the history of none of them counted: their sizes,
    /// twice where the present is also in place. The address space of shares is no promise.
    pub(crate) fn promised_bytes(&self) -> u64 {
        let promised = |volume: &Arc<Volume>| {
            let copies = if volume.architecture().has_current_store() { 2 } else { 1 };
            volume.size_bytes().saturating_mul(copies)
        };
        let volumes = self.pool.volumes();
        let disks = volumes.iter().filter(|volume| volume.share().is_none());
        disks.map(promised).fold(0, u64::saturating_add)
    }

    /// The words to a client that asks for more than the pool can hold; it is no mistake.
    pub(crate) fn over_promised(&self) -> Option<String> {
        let (promised_bytes, fill) = (self.promised_bytes(), self.read());
        let holds_bytes = fill.used_bytes.saturating_add(fill.available_bytes);
        let mib = |bytes: u64| bytes >> 20;
        (promised_bytes > holds_bytes).then(|| {
            format!(
                "the volumes may come to hold {} MiB, the pool holds {} MiB with their history: \
                 when it is full, writes fail (see pool status)",
                mib(promised_bytes),
                mib(holds_bytes)
            )
        })
    }

    /// As it is now.
    pub(crate) fn read(&self) -> Fill {
        let (used_bytes, _, by_zones) = self.pool.room();
        // A file system that cannot be asked counts as one with room: zones count all the same.
        let below = self.file.as_ref().and_then(|file| rustix::fs::statvfs(file).ok());
        let by_file_system = below.map_or(u64::MAX, |s| s.f_bavail.saturating_mul(s.f_frsize));
        let level_before = self.pool.warning_level();
        Fill { used_bytes, available_bytes: by_zones.min(by_file_system), level_before }
    }
}

/// Writes to the log and to the audit log when a level is reached, and when it is left again; a
/// restart does not say again what was said.
pub(crate) struct FillWatch {
    gauge: Arc<FillGauge>,
    level: u64,
    looked: Option<Instant>,
}

impl FillWatch {
    /// A watch that has seen nothing yet.
    pub(crate) fn new(gauge: Arc<FillGauge>) -> FillWatch {
        let level = gauge.pool.warning_level();
        FillWatch { gauge, level, looked: None }
    }

    /// Looks, unless it has just looked.
    pub(crate) fn look(&mut self) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let fill = self.gauge.read();
        let (before, now) = (self.level, fill.level());
        self.level = now;
        self.gauge.thin.note(fill, now > before);
        if now != before {
            let over =
                || format!("the pool is {} % full: there is more room again", fill.percent());
            let text = fill.warning().filter(|_| now > before).unwrap_or_else(over);
            if let Err(error) = self.gauge.pool.note_warning(now, text) {
                tracing::warn!(%error, "a warning is not in the audit log");
            }
        }
        match fill.warning() {
            Some(warning) if now > before => {
                tracing::warn!(percent = fill.percent(), "{warning}");
            }
            _ if now < before => {
                tracing::info!(percent = fill.percent(), "the pool has more room again");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Fill;

    #[test]
    fn warnings_begin_at_three_quarters() {
        let fill =
            |used_bytes, available_bytes| Fill { used_bytes, available_bytes, level_before: 0 };
        for (used, available, percent, level) in [
            (0, 0, 100, 95),
            (0, 100, 0, 0),
            (74, 26, 74, 0),
            (75, 25, 75, 75),
            (84, 16, 84, 75),
            (85, 15, 85, 85),
            (949, 51, 94, 85),
            (95, 5, 95, 95),
            (100, 0, 100, 95),
            (u64::MAX, u64::MAX, 50, 0),
        ] {
            let fill = fill(used, available);
            assert_eq!((fill.percent(), fill.level()), (percent, level), "{fill:?}");
            assert_eq!(fill.warning().is_some(), level > 0, "{fill:?}");
        }
    }

    #[test]
    fn a_level_is_left_a_little_below_it() {
        let mut level = 0;
        let steps = [
            (74, 0),
            (75, 75),
            (74, 75),
            (85, 85),
            (84, 85),
            (82, 85),
            (81, 75),
            (72, 75),
            (71, 0),
        ];
        for (percent, expected) in steps {
            let fill =
                Fill { used_bytes: percent, available_bytes: 100 - percent, level_before: level };
            level = fill.level();
            assert_eq!(level, expected, "at {percent} %");
        }
    }
}
