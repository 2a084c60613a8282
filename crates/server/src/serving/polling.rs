//! A data thread looks for the next request for a short while before it sleeps.
//!
//! A client that has one request under way at a time waits for two threads to wake: the server's
//! for its request, its own for the answer. Waking takes longer than a write does. So a data thread
//! that answered one request after the other, each soon after the one before, stays awake for the
//! next. Others gain nothing by that and lose: several requests under way are carried out together
//! once the thread wakes, of several clients one may want the processor, and a request that waits
//! for a device, such as a flush, is long beside waking.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::yield_now;

/// Longest time to look for a request.
const POLL_MAX: Duration = Duration::from_micros(100);
/// So many requests came alone, each within `POLL_MAX` of the one before but for late ones, before
/// the next is looked for.
const ALONE_MIN: u32 = 16;
/// So many of them behind one that came late.
const ALONE_AGAIN: u32 = 4;

/// Places for the data threads that poll at once: one for two processors, as a client may need the
/// other.
pub(crate) fn seats() -> Arc<Semaphore> {
    let processors = available_parallelism().map_or(1, NonZero::get);
    Arc::new(Semaphore::new(processors / 2))
}

/// A session of a data thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker(u64);

/// The polling of one data thread.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    recent: Mutex<Recent>,
    rested: Notify,
    /// Sessions that there were.
    sessions: AtomicU64,
}

/// The requests that came last.
#[derive(Debug, Default)]
struct Recent {
    /// When the last of them was answered, or became a job, and the session that it came by.
    answered: Option<(Instant, Asker)>,
    /// Requests in a row that came alone, and soon but for few.
    alone: u32,
    /// Time spent looking for them since somebody asked.
    polled: Duration,
}

impl Recent {
    /// The session `asker` rests at `now`, having taken up so many requests, while so many are
    /// jobs.
    fn rest(&mut self, now: Instant, asker: Asker, requests: u64, jobs: usize) {
        let (is_soon, is_same) = self
            .answered
            .map_or((false, true), |(at, before)| (now - at <= POLL_MAX, before == asker));
        self.alone = if requests > 1 || jobs > 0 || !is_same {
            0
        } else if is_soon {
            self.alone.saturating_add(1)
        } else {
            self.alone.min(ALONE_MIN - ALONE_AGAIN)
        };
        self.answered = Some((now, asker));
    }

    /// Whether to look for another at `now`.
    fn is_awaited(&self, now: Instant) -> bool {
        self.alone >= ALONE_MIN && self.answered.is_some_and(|(at, _)| now - at <= POLL_MAX)
    }
}

impl Polling {
    /// Names a session.
    pub(crate) fn join(&self) -> Asker {
        Asker(self.sessions.fetch_add(1, Ordering::Relaxed))
    }

    /// A session rests, having taken up so many requests since it did, while so many are jobs; the
    /// time that was spent looking for them.
    pub(crate) fn rest(&self, asker: Asker, requests: u64, jobs: usize) -> Duration {
        if requests == 0 {
            return Duration::ZERO;
        }
        let mut recent = self.recent.lock();
        recent.rest(Instant::now(), asker, requests, jobs);
        if recent.alone >= ALONE_MIN {
            self.rested.notify_one();
        }
        std::mem::take(&mut recent.polled)
    }

    /// Keeps the runtime from sleeping while a request is awaited. It looks for events and runs
    /// all other tasks between two looks of this one. A thread keeps its seat as long as requests
    /// come in time, whoever else would like one.
    pub(crate) async fn run(self: Arc<Polling>, seats: Arc<Semaphore>) {
        loop {
            self.rested.notified().await;
            let Ok(_seat) = seats.try_acquire() else { continue };
            let mut before = Instant::now();
            while self.is_awaited(&mut before) {
                yield_now().await;
            }
        }
    }

    /// Whether a request is awaited. The time since `before`, which becomes now, counts if none
    /// came.
    fn is_awaited(&self, before: &mut Instant) -> bool {
        let now = Instant::now();
        let mut recent = self.recent.lock();
        if recent.answered.is_some_and(|(at, _)| at < *before) {
            recent.polled += now - *before;
        }
        *before = now;
        recent.is_awaited(now)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;
    use tokio::task::yield_now;

    use super::{ALONE_AGAIN, ALONE_MIN, Asker, Duration, Instant, POLL_MAX, Polling, Recent};

    /// The state after `count` requests of `together` at a time, one turn each `gap`.
    fn after(count: u32, together: u64, gap: Duration) -> (Recent, Instant) {
        let mut recent = Recent::default();
        let mut now = Instant::now();
        for _ in 0..count {
            now += gap;
            recent.rest(now, Asker(0), together, 0);
        }
        (recent, now)
    }

    #[test]
    fn a_client_with_one_request_at_a_time_is_polled_for() {
        let (recent, now) = after(ALONE_MIN, 1, POLL_MAX);
        assert!(!recent.is_awaited(now), "the first has none before it");
        let (mut recent, now) = after(ALONE_MIN + 1, 1, POLL_MAX);
        assert!(recent.is_awaited(now + POLL_MAX));
        assert!(!recent.is_awaited(now + POLL_MAX + Duration::from_nanos(1)));
        recent.rest(now + POLL_MAX, Asker(0), 2, 0);
        assert!(!recent.is_awaited(now + POLL_MAX), "a client has two under way");
    }

    #[test]
    fn a_late_request_ends_the_polling_for_a_few() {
        let (mut recent, mut now) = after(1000, 1, POLL_MAX / 2);
        now += POLL_MAX * 2;
        recent.rest(now, Asker(0), 1, 0);
        for _ in 0..ALONE_AGAIN {
            assert!(!recent.is_awaited(now));
            now += POLL_MAX / 2;
            recent.rest(now, Asker(0), 1, 0);
        }
        assert!(recent.is_awaited(now));
    }

    #[test]
    fn a_client_whose_requests_wait_for_a_device_is_not_polled_for() {
        let (mut recent, now) = after(1000, 1, POLL_MAX / 2);
        recent.rest(now, Asker(0), 1, 1);
        assert!(!recent.is_awaited(now));
    }

    #[test]
    fn a_seat_is_had_while_requests_come_and_given_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let seats = Arc::new(Semaphore::new(1));
            let polling = Arc::new(Polling::default());
            tokio::spawn(Arc::clone(&polling).run(Arc::clone(&seats)));
            // On a machine with much else to do requests may come late.
            let mut was_had = false;
            for _ in 0..100_000 {
                polling.rest(Asker(0), 1, 0);
                yield_now().await;
                was_had |= seats.available_permits() == 0;
            }
            assert!(was_had);
            tokio::time::sleep(POLL_MAX * 20).await;
            assert_eq!(seats.available_permits(), 1);
        });
    }

    #[test]
    fn two_clients_are_not_polled_for() {
        let (mut recent, now) = after(1000, 1, POLL_MAX / 2);
        recent.rest(now, Asker(1), 1, 0);
        assert!(!recent.is_awaited(now));
    }

    #[test]
    fn clients_that_send_several_or_seldom_are_not_polled_for() {
        let (recent, now) = after(1000, 2, POLL_MAX / 2);
        assert!(!recent.is_awaited(now));
        let (recent, now) = after(1000, 1, POLL_MAX * 2);
        assert!(!recent.is_awaited(now));
    }
}
