//! Which background work can wait for clients, and for how long.
//!
//! 1. Work cannot wait that makes room that is short, keeps a limit, or speeds up writers or
//!    readers; nor can conversions and imports. Other passes over all history, searches for equal
//!    blocks and giving space back can.
//! 2. A pass that waits is bounded in time: it may take as long as it took to come due, so that
//!    what comes due meanwhile is no more than it was for.

use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::pool::Pool;
use crate::types::Leisure;
use crate::volume::Volume;

/// A pass may take at least this long, in nanoseconds, and at most so long.
const ALLOWED_MIN_NS: u64 = 60_000_000_000;
const ALLOWED_MAX_NS: u64 = 3_600_000_000_000;
/// With fewer free zones than this share of all, beyond the reserve, nothing waits: 1 in 8.
const FREE_SHARE: u32 = 8;
/// With fewer spare segments than this the log will soon want more.
const SPARES_MIN: usize = 3;

/// The last pass of full merges over a volume.
#[derive(Debug, Default)]
pub struct Pass {
    /// When it began, by the monotonic clock.
    begun_ns: Option<u64>,
    /// How long it may take.
    allowed_ns: u64,
    /// A limit is exceeded until it is done.
    is_pressed: bool,
    /// The same of the next one.
    is_next_pressed: bool,
}

impl Pass {
    /// Another begins.
    pub fn begin(&mut self, now_ns: u64) {
        let due_after = self.begun_ns.map_or(0, |begun| now_ns.saturating_sub(begun));
        self.allowed_ns = due_after.clamp(ALLOWED_MIN_NS, ALLOWED_MAX_NS);
        self.begun_ns = Some(now_ns);
        self.is_pressed = std::mem::take(&mut self.is_next_pressed);
    }

    /// How long no other has begun, at most since the clock's start.
    pub fn waited_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.begun_ns.unwrap_or(0))
    }

    /// The next one keeps a limit.
    pub fn press(&mut self) {
        self.is_next_pressed = true;
    }

    fn leisure(&self, now_ns: u64) -> Option<Leisure> {
        let since_ns = self.begun_ns.map_or(0, |begun| now_ns.saturating_sub(begun));
        (!self.is_pressed).then_some(Leisure { since_ns, allowed_ns: self.allowed_ns })
    }
}

impl Pool {
    /// How far background work has come that can wait for clients; `None` if what is to be done
    /// next cannot, or is not known.
    #[must_use]
    pub fn leisure(&self) -> Option<Leisure> {
        self.core.leisure()
    }

    /// Seqs of all volumes, which rise with each write.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.volumes().iter().map(|volume| volume.log.stable().0).sum()
    }
}

impl Core {
    fn leisure(&self) -> Option<Leisure> {
        let volumes = self.all_volumes();
        let is_pressed = !self.can_wait.load(Ordering::Relaxed)
            || self.is_room_short()
            || self.store.spares().len() < SPARES_MIN
            || volumes.iter().any(|volume| volume.is_map_full());
        if is_pressed {
            return None;
        }
        let job = self.work.try_lock()?;
        let now_ns = self.machine.clock.monotonic_ns();
        let pass = |volume: &Volume| volume.pass.lock().leisure(now_ns);
        job.as_ref().map_or(Some(Leisure::default()), |job| pass(job.volume()))
    }

    fn is_room_short(&self) -> bool {
        let (_, free, reserve) = self.store.zone_counts();
        self.store.is_device_full() || free <= reserve + self.store.zone_count() / FREE_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::{ALLOWED_MAX_NS, ALLOWED_MIN_NS, Leisure, Pass};

    #[test]
    fn a_pass_may_take_as_long_as_it_took_to_come_due() {
        let mut pass = Pass::default();
        assert_eq!(pass.leisure(7), Some(Leisure { since_ns: 0, allowed_ns: 0 }));
        let mut now_ns = 5;
        pass.begin(now_ns);
        let allowed_ns = ALLOWED_MIN_NS;
        assert_eq!(pass.leisure(8), Some(Leisure { since_ns: 3, allowed_ns }));
        for (due_after, allowed_ns) in [
            (ALLOWED_MIN_NS / 2, ALLOWED_MIN_NS),
            (ALLOWED_MIN_NS * 2, ALLOWED_MIN_NS * 2),
            (ALLOWED_MAX_NS * 2, ALLOWED_MAX_NS),
        ] {
            now_ns += due_after;
            pass.begin(now_ns);
            assert_eq!(pass.leisure(now_ns), Some(Leisure { since_ns: 0, allowed_ns }));
        }
        pass.press();
        assert!(pass.leisure(now_ns).is_some(), "the next one");
        pass.begin(now_ns);
        assert_eq!(pass.leisure(now_ns), None);
        pass.begin(now_ns);
        assert!(pass.leisure(now_ns).is_some(), "no longer");
    }
}
