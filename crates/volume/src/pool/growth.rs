//! How fast the pool and each volume grow.

use std::sync::Arc;

use history::NO_LOG;
use units::BLOCK_BYTES;

use crate::Result;
use crate::catalogue::Sample;
use crate::pool::volumes::Volumes;
use crate::retention::moments::Moments;
use crate::types::{Growth, PoolSpace};
use crate::volume::Volume;

impl Volumes {
    /// Measures what volumes have of history, now and then: for the next sample.
    pub(crate) fn measure_history(&self) {
        let now_ns = self.core.machine.clock.wall().as_nanos();
        if !self.core.growth.is_measure_due(now_ns) {
            return;
        }
        let volumes = self.registry.served();
        // An unreadable volume says nothing of growth.
        let history = |volume: &Arc<Volume>| Some((volume.id, volume.history_bytes().ok()?));
        self.core.growth.note_history(now_ns, volumes.iter().filter_map(history).collect());
    }
}

impl Moments {
    /// How fast its log grows.
    #[must_use]
    pub fn growth(&self) -> Option<Growth> {
        let now_ns = self.core.machine.clock.wall().as_nanos();
        let of = |sample: &Sample| {
            sample.volumes.iter().find(|(id, _)| *id == self.id).map(|(_, bytes)| *bytes)
        };
        self.core.growth.growth(now_ns, self.logged_bytes(), of)
    }

    /// How fast its history grows.
    #[must_use]
    pub fn history_growth(&self) -> Option<Growth> {
        let now_ns = self.core.machine.clock.wall().as_nanos();
        let now_bytes = self.history_bytes().ok()?;
        let of = |sample: &Sample| {
            sample.history.iter().find(|(id, _)| *id == self.id).map(|(_, bytes)| *bytes)
        };
        self.core.growth.growth(now_ns, now_bytes, of)
    }

    /// How long the history limit lasts if it goes on like this, in nanoseconds; `None` without a
    /// limit, or if history does not grow.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn limit_lasts_ns(&self) -> Result<Option<u64>> {
        let Some(limit) = self.record.lock().history_limit_bytes else { return Ok(None) };
        let left = limit.saturating_sub(self.history_bytes()?);
        Ok(self.history_growth().and_then(|growth| growth.lasts_ns(left)))
    }
}

impl Volumes {
    /// The uses of the volumes' space, summed up, and the growth of the pool.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn space(&self) -> Result<PoolSpace> {
        let mut all = PoolSpace { live_exact: true, ..PoolSpace::default() };
        for volume in self.volumes() {
            let one = volume.space()?;
            all.live_bytes += one.live_bytes;
            all.live_exact &= one.live_exact;
            all.history_bytes += one.history_bytes;
            all.pinned_bytes += one.pinned_bytes;
        }
        for (volume, _) in self.in_trash() {
            let one = volume.space()?;
            all.trash_volumes += 1;
            all.trash_bytes += one.live_bytes + one.history_bytes;
        }
        all.stored_bytes = self.core.store.space_of_all().live_bytes;
        let common = self.core.store.space(NO_LOG).count();
        all.common_bytes = common.shared_bytes;
        all.common_named_bytes = common.shared_entries * BLOCK_BYTES;
        let (used_bytes, ..) = self.room();
        let now_ns = self.core.machine.clock.wall().as_nanos();
        let bytes = |sample: &Sample| Some(sample.pool_bytes);
        all.growth = self.core.growth.growth(now_ns, used_bytes, bytes);
        Ok(all)
    }
}
