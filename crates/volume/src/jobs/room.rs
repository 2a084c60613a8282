//! Making room for requests that find none, with the right to do background work.

use std::time::Duration;

use env::RankedGuard;

use crate::host::RoomWait;
use crate::jobs::dedup::free_unshared;
use crate::jobs::merges::COMPACTION;
use crate::jobs::scheduler::Scheduler;
use crate::jobs::standing::Standing;
use crate::pool::Engine;
use crate::{Error, ErrorKind, Result};

/// How often room is made for a request that gets no further by it, though nobody else took it.
const ROOM_TRIES: usize = 3;
/// How long a request waits at most for room while nobody takes any, in nanoseconds. It may have
/// waited long for its turn to make some, or beside a scrub, while others got on.
const ROOM_WAIT_NS: u64 = 60_000_000_000;

/// Bytes of a step of a merge that a request waits for.
const MERGE_BYTES: u64 = 4 << 20;

/// How often who waits for the right to do background work looks whether it still wants it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Engine {
    /// See `Host`.
    pub(crate) fn wait_for_room(
        &self,
        wait: &mut RoomWait,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let made = || self.core.segments_made();
        loop {
            let now_ns = self.core.machine.clock.monotonic_ns();
            let before = made();
            if before != wait.made || wait.since_ns.is_none() {
                *wait = RoomWait { since_ns: Some(now_ns), tries: 0, made: before };
            }
            let since_ns = wait.since_ns.unwrap_or(now_ns);
            wait.tries += 1;
            if self.core.is_closed()
                || !goes_on()
                || wait.tries > ROOM_TRIES
                || now_ns.saturating_sub(since_ns) > ROOM_WAIT_NS
            {
                return Ok(false);
            }
            match self.make_room(goes_on) {
                // Others have taken what was made, or may have written over what makes more.
                Err(e)
                    if e.kind == ErrorKind::Full
                        && (wait.tries < ROOM_TRIES || made() != before) => {}
                outcome => return outcome.map(|()| true),
            }
        }
    }

    /// See `Host`.
    pub(crate) fn make_room(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let Some(mut work) = self.lock_work(goes_on) else { return Err(given_up()) };
        let enough = || self.core.store.spares().len() > 1 || self.core.store.has_room();
        // The merge under way may make it, and is done in part. Its failures are told there.
        while self.merging().full.is_some() && goes_on() && !enough() {
            if work.round(Some(MERGE_BYTES), Some(COMPACTION)).is_err() {
                break;
            }
            self.core.store.collect_freed();
        }
        if enough() {
            return Ok(());
        }
        work.give_up();
        free_unshared(&self.core)?;
        let mut tries = 0;
        // Free zones, live entries and segments at best: a pass that frees something may let the
        // next one free more (what it dropped leaves segments sparse, and room to empty them into).
        // A zone that became somebody's segment meanwhile was freed as well.
        let mut best = (0, u64::MAX, usize::MAX);
        loop {
            self.core.store.collect_freed();
            if enough() {
                return Ok(());
            }
            let now = Standing::of(&self.core, &self.registry);
            // All of it was gone through for an earlier write, and nothing has changed since.
            if tries == 0 && work.refused == Some(now) {
                break;
            }
            let freed = u64::from(now.free_zones) + now.made;
            let segments = self.core.store.segments().len();
            let gets_on = freed > best.0 || now.entries < best.1 || segments < best.2;
            best = (best.0.max(freed), best.1.min(now.entries), best.2.min(segments));
            if tries > 1 && !gets_on {
                if !self.sacrifice()? {
                    work.refused = Some(Standing::of(&self.core, &self.registry));
                    break;
                }
                work.purge()?;
            }
            tries += 1;
            work.reclaim_all(goes_on)?;
            if !goes_on() {
                return Err(given_up());
            }
            // A delete that waits for its turn frees more than the next pass.
            RankedGuard::bump(&mut work);
            if self.core.is_closed() {
                return Err(given_up());
            }
            work.give_up();
        }
        Err(Error::full("the pool is full and no unpinned history is left to give up")
            .with_hint("delete versions, pinned marks, clones or volumes, or trim"))
    }

    /// The right to do background work; none when `goes_on` says no before it is had.
    pub(crate) fn lock_work(
        &self,
        goes_on: &dyn Fn() -> bool,
    ) -> Option<RankedGuard<'_, Scheduler>> {
        self.work.will_wait();
        loop {
            if !goes_on() {
                return None;
            }
            if let Some(work) = self.work.try_lock_for(LOOK_EVERY) {
                return Some(work).filter(|_| !self.core.is_closed());
            }
        }
    }
}

fn given_up() -> Error {
    Error::full("nobody waits for the room any more")
}
