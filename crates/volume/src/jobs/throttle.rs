//! Which background work can wait for clients, and for how long.
//!
//! 1. Work cannot wait that makes room that is short, keeps a limit, or speeds up writers or
//!    readers; nor can conversions and imports. Other passes over all history, searches for equal
//!    blocks and giving space back can.
//! 2. A pass that waits is bounded in time: it may take as long as it took to come due, so that
//!    what comes due meanwhile is no more than it was for.

use std::sync::atomic::Ordering;

use crate::pool::Engine;
use crate::types::Leisure;
use crate::volume::Volume;

/// With fewer free zones than this share of all, beyond the reserve, nothing waits: 1 in 8.
const FREE_SHARE: u32 = 8;
/// With fewer spare segments than this the log will soon want more.
const SPARES_MIN: usize = 3;

impl Engine {
    /// Seqs of all volumes, which rise with each write.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.volumes().iter().map(|volume| volume.log().stable().0).sum()
    }

    /// How far background work has come that can wait for clients; `None` if what is to be done
    /// next cannot, or is not known.
    #[must_use]
    pub fn leisure(&self) -> Option<Leisure> {
        let volumes = self.registry.all();
        let is_pressed = !self.can_wait.load(Ordering::Relaxed)
            || self.is_room_short()
            || self.core.store.spares().len() < SPARES_MIN
            || volumes.iter().any(|volume| volume.is_map_full());
        if is_pressed {
            return None;
        }
        let merges = self.work.try_lock()?;
        let now_ns = self.core.machine.clock.monotonic_ns();
        let of = |volume: &Volume| volume.reclamation().leisure(now_ns);
        merges.full().map_or(Some(Leisure::default()), |merge| of(merge.volume()))
    }

    pub(crate) fn is_room_short(&self) -> bool {
        let (_, free, reserve) = self.core.store.zone_counts();
        self.core.store.is_device_full()
            || free <= reserve + self.core.store.zone_count() / FREE_SHARE
    }
}
