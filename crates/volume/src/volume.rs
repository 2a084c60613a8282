//! A volume, and what concerns all of it: its settings, its size, its past and its sums.

pub mod access;
pub mod change_words;
pub mod creation;
pub mod identity;
pub mod rename;
pub mod resize;
pub mod settings;
pub mod share;
pub mod sizing;
pub mod stream;

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use units::{BLOCK_BYTES, Seq, WallTime};

use crate::Result;
use crate::catalogue::WatchRecord;
use crate::retention::Retention;
use crate::types::{VolumeCounters, VolumeInfo};

/// An open volume. It is built of storeys, each of which knows those below it and nothing above:
/// `Identity`, `Stream`, `Placement`, `Writer`, `Moments`, `Retention`. Each reads as the one below
/// it (`Deref`), so a volume has the verbs of all of them.
pub struct Volume {
    retention: Retention,
}

impl Deref for Volume {
    type Target = Retention;

    fn deref(&self) -> &Retention {
        &self.retention
    }
}

impl Volume {
    /// With what is kept of it.
    pub fn new(retention: Retention) -> Volume {
        Volume { retention }
    }

    /// The volume as it stands.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from counting.
    pub fn info(&self) -> Result<VolumeInfo> {
        let latest = self.latest_told()?;
        let record = self.record.lock().clone();
        let now = self.now();
        let space = self.space()?;
        let conversion = self.conversion_info(&record)?;
        let (oldest, versions) = {
            let pins = self.pins().lock();
            (self.oldest(&record, latest, &pins)?, pins.version_count() as u64)
        };
        // The log may not have it yet.
        let oldest = if oldest.seq == latest.seq { latest } else { oldest };
        Ok(VolumeInfo {
            id: self.id,
            name: self.name().to_owned(),
            size_bytes: self.size_bytes(),
            architecture: record.architecture,
            granularity: record.granularity_at(Seq(u64::MAX)),
            extent: record.extent,
            copy_unit: record.copy_unit,
            strict: record.strict,
            window_ns: record.window_ns,
            history_limit_bytes: record.history_limit_bytes,
            held_ns: now.as_nanos().saturating_sub(record.horizon_ns),
            is_held: record.is_window_held(now),
            grace: record.grace_at(self.core.time()),
            state: if self.core.store.has_failed() { "refusing-writes" } else { "online" },
            live_bytes: space.live_bytes,
            live_exact: space.live_exact,
            history_bytes: space.history_bytes,
            pinned_bytes: space.pinned_bytes,
            hook: record.hook.clone(),
            share: record.share.clone(),
            oldest,
            latest,
            created: WallTime::from_nanos(record.created_ns),
            watch: record.watch.as_ref().map(|watch| watch.sensitivity),
            alarmed: record.watch.as_ref().and_then(WatchRecord::alarmed),
            proved_good: self.proved_good(),
            scratch_until: record.scratch_until_ns.map(WallTime::from_nanos),
            cloned_from: record.cloned_from.map(|(name, seq)| (name, Seq(seq))),
            counters: self.counters(),
            unplaced_bytes: self.unplaced_bytes(space.live_bytes),
            deferred_bytes: self.deferred_bytes(),
            time_ahead_ns: self.time_ahead_ns(),
            conversion,
            import: self.import_info(),
            cache: self.cache_info(),
            encoding: self.encoding_info(),
            dedup: self.dedup_info(),
            base_bytes: self.base().blocks_at_home() * BLOCK_BYTES,
            versions,
            device_io: self.device_io(),
        })
    }

    fn unplaced_bytes(&self, live_bytes: u64) -> u64 {
        let in_store = self.present().current.as_ref().map_or(0, |c| c.unsettled_blocks());
        let in_base = (self.unplaced_homes() * BLOCK_BYTES).min(live_bytes);
        in_store * BLOCK_BYTES + in_base
    }

    fn counters(&self) -> VolumeCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        VolumeCounters {
            reads: get(&self.tally().reads),
            read_bytes: get(&self.tally().read_bytes),
            writes: get(&self.tally().writes),
            written_bytes: get(&self.tally().written_bytes),
            flushes: get(&self.tally().flushes),
            checksum_errors: get(&self.tally().checksum_errors),
            rotten_places: self.present().current.as_ref().map_or(0, |c| c.rotten()),
        }
    }
}
