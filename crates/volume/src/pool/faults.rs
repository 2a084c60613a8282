//! Faults found on the devices, in the audit log.

use std::sync::atomic::Ordering;

use format::map::Entry;

use crate::Result;
use crate::core::{Core, Timelines};
use crate::pool::Engine;

/// A device that rots all over gets one line in so long.
const NOTED_EVERY_NS: u64 = 5_000_000_000;
/// Versions of a block that are tried for the bytes of one that is lost.
const ALIKE_MAX: usize = 64;

impl Engine {
    /// Writes down what readers found wrong since the last call.
    ///
    /// # Errors
    /// Those of the commit.
    pub(crate) fn note_healed(&self) -> Result<()> {
        let now_ns = self.core.machine.clock.monotonic_ns();
        let since_ns = now_ns.saturating_sub(self.healed_noted_ns.load(Ordering::Relaxed));
        if since_ns < NOTED_EVERY_NS {
            return Ok(());
        }
        let found = self.core.store.take_healed();
        if found.total() == 0 {
            return Ok(());
        }
        self.healed_noted_ns.store(now_ns, Ordering::Relaxed);
        let mut parts = Vec::new();
        for (count, how) in [
            (found.recovered - found.elsewhere, "written again from another copy"),
            (found.elsewhere, "with the bytes of another version"),
            (found.transient, "right when read again"),
            (found.unrecoverable, "wrong on every copy: revert to, or read from, another moment"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {how}"));
            }
        }
        let what = parts.join("; ");
        self.core.note("heal", "", format!("found wrong, first at byte {}: {what}", found.first_at))
    }
}

impl Core {
    /// Versions of a block that have a checksum, on every timeline: those of clones and of other
    /// moments. A change of the timelines that is under way is not waited for.
    pub fn alike_now(&self, like: (u64, u32)) -> Vec<Entry> {
        let timelines = self.timelines.try_read();
        timelines.map_or_else(Vec::new, |timelines| self.alike_on(&timelines, like))
    }

    /// The same on these timelines.
    pub fn alike_on(&self, timelines: &Timelines, like: (u64, u32)) -> Vec<Entry> {
        let mut found = Vec::new();
        for (_, timeline) in timelines.values() {
            timeline.alike(&self.store, like, ALIKE_MAX, &mut found);
        }
        found
    }
}
