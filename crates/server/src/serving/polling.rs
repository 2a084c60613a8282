//! A data thread looks for the next request for a short while before it sleeps.
//!
//! A client that has one request under way at a time waits for two threads to wake: the server's
//! for its request, its own for the answer. Waking takes longer than a write does. So a data thread
//! that answered one request after the other, each soon after the one before, stays awake for the
//! next. Others gain nothing by that and lose: several requests under way are carried out together
//! once the thread wakes, and of several clients one may want the processor.

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
/// So many requests in a row came alone, each within `POLL_MAX`, before the next is looked for.
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
    /// When the last of them was answered, and the session that it came by.
    answered: Option<(Instant, Asker)>,
    /// Requests in a row that came alone, and soon but for few.
    alone: u32,
    /// Time spent looking for them since somebody asked.
    polled: Duration,
}

impl Recent {
    /// The session `asker` rests at `now`, having carried out so many requests.
    fn rest(&mut self, now: Instant, asker: Asker, requests: u64) {
        let (is_soon, is_same) = self
            .answered
            .map_or((false, true), |(at, before)| (now - at <= POLL_MAX, before == asker));
        self.alone = if requests > 1 || !is_same {
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

    /// A session rests, having carried out so many requests since it did; the time that was spent
    /// looking for them.
    pub(crate) fn rest(&self, asker: Asker, requests: u64) -> Duration {
        if requests == 0 {
            return Duration::ZERO;
        }
        let mut recent = self.recent.lock();
        recent.rest(Instant::now(), asker, requests);
        if recent.alone >= ALONE_MIN {
            self.rested.notify_one();
        }
        std::mem::take(&mut recent.polled)
    }

    /// Keeps the runtime from sleeping while a request is awaited. It looks for events and runs
    /// all other tasks between two looks of this one.
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
    use super::{ALONE_AGAIN, ALONE_MIN, Asker, Duration, Instant, POLL_MAX, Recent};

    /// The state after `count` requests of `together` at a time, one turn each `gap`.
    fn after(count: u32, together: u64, gap: Duration) -> (Recent, Instant) {
        let mut recent = Recent::default();
        let mut now = Instant::now();
        for _ in 0..count {
            now += gap;
            recent.rest(now, Asker(0), together);
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
        recent.rest(now + POLL_MAX, Asker(0), 2);
        assert!(!recent.is_awaited(now + POLL_MAX), "a client has two under way");
    }

    #[test]
    fn a_late_request_ends_the_polling_for_a_few() {
        let (mut recent, mut now) = after(1000, 1, POLL_MAX / 2);
        now += POLL_MAX * 2;
        recent.rest(now, Asker(0), 1);
        for _ in 0..ALONE_AGAIN {
            assert!(!recent.is_awaited(now));
            now += POLL_MAX / 2;
            recent.rest(now, Asker(0), 1);
        }
        assert!(recent.is_awaited(now));
    }

    #[test]
    fn two_clients_are_not_polled_for() {
        let (mut recent, now) = after(1000, 1, POLL_MAX / 2);
        recent.rest(now, Asker(1), 1);
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
