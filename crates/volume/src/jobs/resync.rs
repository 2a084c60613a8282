//! Members that came back, or take another's place, are brought up to date.

use block::Array;

use crate::Result;
use crate::jobs::job::{Job, Left, Turn};
use crate::jobs::load::requests;
use crate::jobs::parts::Parts;
use crate::jobs::throttle::Throttle;
use crate::pool::arrays::of_array;

/// A turn takes about so long while nobody else is there: other work in the background waits.
const ALONE_NS: u64 = 100_000_000;
/// A turn beside clients takes about so long.
const TURN_NS: u64 = 5_000_000;

/// Brings members up to date, at this pace.
pub struct Resync(pub Throttle);

impl Job for Resync {
    fn name(&self) -> &'static str {
        "resync"
    }

    /// Puts spares in the places of members that are out, brings some of what members missed up to
    /// date, and writes down what happened to them. All of it is tried.
    fn step(&mut self, parts: &Parts, turn: &mut Turn) -> Result<Left> {
        let Some(array) = parts.members.array() else { return Ok(Left::NOTHING) };
        // A spare that takes a place is brought up to date like a member that comes back.
        let taken = array.use_spare().map_err(of_array);
        let is_taken = taken.unwrap_or_else(|error| {
            turn.failure.get_or_insert(error);
            false
        });
        let stepped = match self.0.waits(turn.now_ns, turn.has_clients) {
            Some(waits) if array.behind_bytes() > 0 => Ok(waits),
            Some(_) => Ok(Left::NOTHING),
            None => self.bring_up(parts, array, turn),
        };
        if let Err(error) = parts.members.note(&parts.core) {
            turn.failure.get_or_insert(error);
        }
        Ok(Left::NOW.when(is_taken).and(stepped?))
    }
}

impl Resync {
    fn bring_up(&mut self, parts: &Parts, array: &Array, turn: &Turn) -> Result<Left> {
        let Resync(throttle) = self;
        let now = || parts.core.machine.clock.monotonic_ns();
        let began_ns = now();
        // Where the clock stands still, a step is a turn.
        let is_within = |span_ns: u64| (1..span_ns).contains(&now().saturating_sub(began_ns));
        // The array asks with locks held that come after those of the pool: the volumes are those
        // of now.
        let volumes = parts.registry.served();
        let count = || requests(&volumes);
        let before = count();
        let is_alone = !turn.has_clients;
        let has_limit = throttle.limit.limit().is_some();
        // Clients that come are to wait for no more than what is being done.
        let goes_on = || is_alone && !has_limit && is_within(ALONE_NS) && count() == before;
        loop {
            let before = array.resynced_bytes();
            let stepped = array.step_while(&goes_on);
            throttle.limit.note(began_ns, array.resynced_bytes() - before);
            let now_ns = now();
            let is_limited = throttle.limit.wait_ns(now_ns) > 0;
            if is_alone || is_limited || !is_within(TURN_NS) || !matches!(stepped, Ok(true)) {
                throttle.note_turn(began_ns, now_ns);
                let waits = throttle.waits(now_ns, turn.has_clients);
                return match stepped? {
                    true => Ok(waits.unwrap_or(Left::NOW)),
                    false => Ok(Left::NOTHING),
                };
            }
        }
    }
}
