//! Faults found on the devices, in the audit log.

use format::map::Entry;

use crate::Result;
use crate::core::{Core, Timelines};
use crate::jobs::job::{Job, Left, Turn};
use crate::jobs::parts::Parts;

/// A device that rots all over gets one line in so long.
const NOTED_EVERY_NS: u64 = 5_000_000_000;
/// Versions of a block that are tried for the bytes of one that is lost.
const ALIKE_MAX: usize = 64;

/// Writes down what readers found wrong; when that was done last, by the monotonic clock.
#[derive(Default)]
pub struct FaultNotes(u64);

impl Job for FaultNotes {
    fn name(&self) -> &'static str {
        "fault notes"
    }

    fn step(&mut self, parts: &Parts, turn: &mut Turn) -> Result<Left> {
        if turn.now_ns.saturating_sub(self.0) < NOTED_EVERY_NS {
            return Ok(Left::NOTHING);
        }
        let found = parts.core.store.take_healed();
        if found.total() == 0 {
            return Ok(Left::NOTHING);
        }
        self.0 = turn.now_ns;
        let mut found_so = Vec::new();
        for (count, how) in [
            (found.recovered - found.elsewhere, "written again from another copy"),
            (found.elsewhere, "with the bytes of another version"),
            (found.transient, "right when read again"),
            (found.unrecoverable, "wrong on every copy: revert to, or read from, another moment"),
        ] {
            if count > 0 {
                found_so.push(format!("{count} {how}"));
            }
        }
        let what = found_so.join("; ");
        let detail = format!("found wrong, first at byte {}: {what}", found.first_at);
        parts.core.note("heal", "", detail).map(|()| Left::NOTHING)
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
