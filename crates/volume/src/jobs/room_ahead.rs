//! Giving up history before a write finds no room: while the map is merged for it the writer goes
//! on with the room that is left.

use std::collections::VecDeque;

use crate::Result;
use crate::jobs::job::{Job, Left, Turn};
use crate::jobs::merges::FREE_SHARE;
use crate::jobs::parts::Parts;

/// There is to be room for as much as was written in this time, in nanoseconds: a pass over the map
/// of the history of a pool takes seconds.
const AHEAD_NS: u64 = 8_000_000_000;
/// How often it is noted how much was written.
const NOTED_NS: u64 = 500_000_000;
/// And at least for so many segments.
const AHEAD_MIN: u64 = 2;

/// The segments that writers took lately, and the last time that some history was given up.
#[derive(Default)]
pub struct RoomAhead {
    /// When there were so many since the pool was opened, by the monotonic clock; the oldest first.
    noted: VecDeque<(u64, u64)>,
    /// Zones that were free or had been taken when history was given up last.
    given_up_at: Option<u64>,
}

impl RoomAhead {
    /// Segments that writers took in the last seconds.
    fn taken(&mut self, now_ns: u64, made: u64) -> u64 {
        if self.noted.back().is_none_or(|&(at_ns, _)| now_ns.saturating_sub(at_ns) >= NOTED_NS) {
            self.noted.push_back((now_ns, made));
        }
        while self.noted.get(1).is_some_and(|&(at_ns, _)| now_ns - at_ns.min(now_ns) > AHEAD_NS) {
            self.noted.pop_front();
        }
        made - self.noted.front().map_or(made, |&(_, before)| before)
    }
}

impl Job for RoomAhead {
    fn name(&self) -> &'static str {
        "room ahead of writers"
    }

    fn step(&mut self, parts: &Parts, turn: &mut Turn) -> Result<Left> {
        let store = &parts.core.store;
        let made = parts.core.segments_made();
        let taken = self.taken(turn.now_ns, made);
        let (_, free, reserve) = store.zone_counts();
        let most = u64::from(store.zone_count() / FREE_SHARE).max(AHEAD_MIN);
        if u64::from(free) > u64::from(reserve) + taken.clamp(AHEAD_MIN, most) {
            self.given_up_at = None;
            return Ok(Left::NOTHING);
        }
        let is_reclaiming = parts.registry.all().iter().any(|volume| {
            let reclamation = volume.reclamation();
            reclamation.is_wanted() || reclamation.is_under_way()
        });
        let freed_or_made = u64::from(free) + made;
        // A pass freed nothing: the next write that finds no room sees to it.
        let is_vain = self.given_up_at.is_some_and(|before| freed_or_made <= before);
        if taken == 0 || is_vain || is_reclaiming || parts.merging().full.is_some() {
            return Ok(Left::NOTHING);
        }
        if !parts.sacrifice_ahead(taken.clamp(AHEAD_MIN, most) * store.zone_bytes)? {
            return Ok(Left::NOTHING);
        }
        self.given_up_at = Some(freed_or_made);
        Ok(Left::NOW)
    }
}
