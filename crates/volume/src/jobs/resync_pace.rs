//! How the bringing up of members makes way for clients.
//!
//! While nobody else wants the devices it goes on without a rest. Beside clients it has one
//! twentieth of the time, in turns of some milliseconds: what it takes of their throughput is to be
//! no more (DARC asks the same of a rebuild as of a scrub: not to be felt).

/// So long after the last request of a client the devices are its own, in nanoseconds.
const QUIET_NS: u64 = 250_000_000;
/// A turn takes about so long while nobody else is there: other work in the background waits.
const ALONE_NS: u64 = 100_000_000;
/// A turn beside clients takes about so long.
const TURN_NS: u64 = 5_000_000;
/// How often the time of a turn is waited before the next.
const REST: u64 = 19;

/// The work that is allowed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nobody else is there.
    Alone,
    /// Clients are.
    Beside,
    /// It is their time.
    Wait,
}

/// Decides that.
#[derive(Debug, Default)]
pub struct Beside {
    /// Requests when they were counted last, and when there were new ones.
    requests: u64,
    seen_ns: Option<u64>,
    next_ns: u64,
}

impl Beside {
    /// The work that is allowed when clients have made so many requests by now.
    pub fn turn(&mut self, now_ns: u64, requests: u64) -> Turn {
        if self.requests != requests {
            (self.requests, self.seen_ns) = (requests, Some(now_ns));
        }
        let is_beside = self.seen_ns.is_some_and(|seen| now_ns.saturating_sub(seen) < QUIET_NS);
        match is_beside {
            false => Turn::Alone,
            true if now_ns < self.next_ns => Turn::Wait,
            true => Turn::Beside,
        }
    }

    /// Whether a turn that began then is over; the rest after it begins.
    pub fn is_over(&mut self, turn: Turn, began_ns: u64, now_ns: u64) -> bool {
        let took_ns = now_ns.saturating_sub(began_ns);
        // Where the clock stands still, a step is a turn.
        let is_over = turn == Turn::Alone || took_ns == 0 || took_ns >= TURN_NS;
        if is_over {
            self.next_ns = now_ns.saturating_add(took_ns.saturating_mul(REST));
        }
        is_over
    }
}

/// Whether a turn that began then goes on while nobody else is there. Where the clock stands still,
/// a step is a turn.
pub fn is_within_alone(began_ns: u64, now_ns: u64) -> bool {
    (1..ALONE_NS).contains(&now_ns.saturating_sub(began_ns))
}

#[cfg(test)]
mod tests {
    use super::{Beside, QUIET_NS, REST, TURN_NS, Turn};

    #[test]
    fn beside_clients_it_has_one_twentieth_of_the_time_and_alone_all_of_it() {
        let mut pace = Beside::default();
        assert_eq!(pace.turn(0, 0), Turn::Alone);
        assert!(pace.is_over(Turn::Alone, 0, 7 * TURN_NS), "a step at a time");
        assert_eq!(pace.turn(7 * TURN_NS, 0), Turn::Alone, "without a rest");
        let begin = 100 * QUIET_NS;
        assert_eq!(pace.turn(begin, 5), Turn::Beside);
        assert!(!pace.is_over(Turn::Beside, begin, begin + TURN_NS - 1));
        assert!(pace.is_over(Turn::Beside, begin, begin + TURN_NS));
        let until = begin + TURN_NS + TURN_NS * REST;
        assert_eq!(pace.turn(until - 1, 6), Turn::Wait);
        assert_eq!(pace.turn(until, 7), Turn::Beside);
        assert_eq!(pace.turn(until + QUIET_NS - 1, 7), Turn::Beside);
        assert_eq!(pace.turn(until + QUIET_NS, 7), Turn::Alone, "they have gone");
        assert!(pace.is_over(Turn::Beside, until, until), "a clock that stands still");
    }
}
