//! How background work that can wait makes way for clients that write.
//!
//! It writes to the pool's file as they do, and a file system lets one write at a time; and it
//! wants a processor. So while clients write it has a share of the time, an eighth at first, twice
//! that when it has taken as long as it may, and so on until it has all. It works for some tens of
//! milliseconds and rests for some hundred: the shorter its turns the more of them there are, and
//! it is when a turn begins that a client may find its processor taken. While nobody writes, or
//! when it cannot wait, it goes on without a rest.

use std::time::{Duration, Instant};

use volume::{Budget, Leisure};

/// Device bytes of one step: small, so that stopping never waits long.
const STEP_BYTES: u64 = 8 << 20;
/// The same of work that can wait: some thousand versions.
const LEISURE_BYTES: u64 = 128 << 10;
/// The share of the time that it has at first: 1 in 8.
const SHARE: u32 = 8;
/// Clients write as long as the last write was no longer ago than this.
const ACTIVE: Duration = Duration::from_millis(100);
/// It rests at most so long before it is seen whether it can still wait.
const NAP_MAX: Duration = Duration::from_millis(50);
/// It rests at most so long after one step: what expires does so in the next.
const REST_MAX: Duration = Duration::from_millis(500);

/// The next work, and the load beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// When.
    pub(crate) now: Instant,
    /// How far work has come that can wait, if it can.
    pub(crate) leisure: Option<Leisure>,
    /// A count that rises with each write.
    pub(crate) writes: u64,
}

/// Decides when it rests.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    last: Option<Seen>,
    wrote: Option<Instant>,
    rest: Duration,
}

impl Pace {
    /// How much the next step shall do.
    pub(crate) fn budget(&self) -> Budget {
        let bytes = match self.last {
            Some(Seen { leisure: Some(_), .. }) => LEISURE_BYTES,
            _ => STEP_BYTES,
        };
        Budget { bytes }
    }

    /// A step took so long, and this was seen after it.
    pub(crate) fn note_step(&mut self, took: Duration, seen: Seen) {
        self.look(seen);
        if let Some(leisure) = seen.leisure.filter(|_| self.wrote.is_some()) {
            self.rest = (took * (share_of(leisure) - 1)).min(REST_MAX);
        }
    }

    /// How long it rests now, before this is seen again; zero if it shall go on.
    pub(crate) fn nap(&mut self) -> Duration {
        let nap = self.rest.min(NAP_MAX);
        self.rest -= nap;
        nap
    }

    /// Takes note of the load in a rest.
    pub(crate) fn look(&mut self, seen: Seen) {
        let is_more = self.last.is_some_and(|last| last.writes != seen.writes);
        self.last = Some(seen);
        if is_more {
            self.wrote = Some(seen.now);
        }
        self.wrote = self.wrote.filter(|wrote| seen.now.duration_since(*wrote) < ACTIVE);
        if seen.leisure.is_none() || self.wrote.is_none() {
            self.rest = Duration::ZERO;
        }
    }
}

/// One in how many parts of the time it has.
fn share_of(leisure: Leisure) -> u32 {
    let doublings = leisure.since_ns.checked_div(leisure.allowed_ns).unwrap_or(0);
    SHARE.checked_shr(u32::try_from(doublings).unwrap_or(u32::MAX)).unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use volume::Leisure;

    use super::{LEISURE_BYTES, NAP_MAX, Pace, STEP_BYTES, Seen};

    const MS: Duration = Duration::from_millis(1);
    const TIME: Leisure = Leisure { since_ns: 0, allowed_ns: 1_000_000_000 };

    fn rests(pace: &mut Pace) -> Duration {
        std::iter::from_fn(|| Some(pace.nap()).filter(|nap| !nap.is_zero())).sum()
    }

    #[test]
    fn it_rests_seven_times_as_long_as_it_works_while_clients_write() {
        let mut pace = Pace::default();
        let begun = Instant::now();
        let at = |ms, writes| Seen { now: begun + ms * MS, leisure: Some(TIME), writes };
        assert_eq!(pace.budget().bytes, STEP_BYTES, "nothing is known");
        pace.note_step(10 * MS, at(0, 5));
        assert_eq!((rests(&mut pace), pace.budget().bytes), (Duration::ZERO, LEISURE_BYTES));
        pace.note_step(10 * MS, at(10, 6));
        assert_eq!(pace.nap(), NAP_MAX);
        pace.look(at(60, 7));
        assert_eq!(pace.nap(), 20 * MS);
        pace.look(at(80, 7));
        assert_eq!(pace.nap(), Duration::ZERO);
        // Nobody has written for a while: no rest, not even the one that was begun.
        pace.note_step(10 * MS, at(90, 7));
        assert_eq!(pace.nap(), NAP_MAX);
        pace.look(at(160, 7));
        assert_eq!((rests(&mut pace), pace.budget().bytes), (Duration::ZERO, LEISURE_BYTES));
    }

    #[test]
    fn the_longer_it_takes_the_less_it_rests_and_what_cannot_wait_does_not() {
        let begun = Instant::now();
        for (since_ns, parts) in [(0, 7), (999_999_999, 7), (1_000_000_000, 3), (3 << 30, 0)] {
            let mut pace = Pace::default();
            let leisure = Some(Leisure { since_ns, ..TIME });
            pace.look(Seen { now: begun, leisure, writes: 0 });
            pace.note_step(MS, Seen { now: begun, leisure, writes: 1 });
            assert_eq!(rests(&mut pace), parts * MS, "{since_ns}");
            pace.note_step(MS, Seen { now: begun, leisure, writes: 2 });
            pace.look(Seen { now: begun, leisure: None, writes: 3 });
            assert_eq!((rests(&mut pace), pace.budget().bytes), (Duration::ZERO, STEP_BYTES));
        }
    }
}
