//! How work that reads or writes whole devices (scrubs, rebuilds) makes way for clients, and keeps
//! to its limit in bytes a second (`meter`).
//!
//! While nobody else wants the devices it goes on without a rest. Beside clients it has one
//! twentieth of the time: what it takes of their throughput is to be no more (DARC asks the same of
//! a rebuild as of a scrub: not to be felt).

use std::sync::Arc;

use crate::jobs::job::Left;
use crate::jobs::meter::Meter;

/// How often the time of a turn beside clients is waited before the next.
const REST: u64 = 19;

/// Says when such work goes on.
pub struct Throttle {
    /// Its limit.
    pub limit: Arc<Meter>,
    /// Beside clients, not before this.
    next_ns: u64,
}

impl Throttle {
    /// One that keeps this limit.
    pub fn new(limit: &Arc<Meter>) -> Throttle {
        Throttle { limit: Arc::clone(limit), next_ns: 0 }
    }

    /// The time that it waits for, if it has to.
    pub fn waits(&self, now_ns: u64, is_beside: bool) -> Option<Left> {
        let next_ns = if is_beside { self.next_ns } else { 0 };
        let until_ns = next_ns.max(now_ns + self.limit.wait_ns(now_ns));
        (until_ns > now_ns).then_some(Left::Until(until_ns))
    }

    /// A turn is over that began then; the rest after it begins.
    pub fn note_turn(&mut self, began_ns: u64, now_ns: u64) {
        let took_ns = now_ns.saturating_sub(began_ns);
        self.next_ns = now_ns.saturating_add(took_ns.saturating_mul(REST));
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::Arc;

    use super::{REST, Throttle};
    use crate::jobs::job::Left;
    use crate::jobs::meter::Meter;

    const MS: u64 = 1_000_000;

    #[test]
    fn beside_clients_it_has_one_twentieth_of_the_time_and_alone_all_that_its_limit_lets_it() {
        let limit = Arc::new(Meter::default());
        let mut throttle = Throttle::new(&limit);
        assert_eq!(throttle.waits(0, true), None);
        throttle.note_turn(10 * MS, 15 * MS);
        let until = 15 * MS + 5 * MS * REST;
        assert_eq!(throttle.waits(15 * MS, true), Some(Left::Until(until)));
        assert_eq!(throttle.waits(15 * MS, false), None, "nobody else is there");
        assert_eq!(throttle.waits(until, true), None);
        throttle.note_turn(until, until);
        assert_eq!(throttle.waits(until, true), None, "a clock that stands still");
        limit.set(NonZeroU64::new(1000));
        limit.note(until, 3000);
        let paid = until + limit.wait_ns(until);
        assert_eq!(throttle.waits(until, false), Some(Left::Until(paid)), "it is paid for");
    }
}
