//! The order of calls that change something: of two whose outcome depends on which is first, the
//! second one waits until the first one is answered. So the order of replies is that of what the
//! primary did.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::update::Key;

/// How often a call that waits looks whether its client is still there.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The calls that the primary has and has not answered.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    under_way: Vec<(u64, Vec<Key>)>,
    /// Those that wait, in the order in which they came.
    waiting: Vec<(u64, Vec<Key>)>,
    /// None may pass.
    is_held: bool,
}

/// A call that passed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl State {
    /// Whether one that waits may pass: nothing under way is in its way, and nobody before it.
    fn may_pass(&self, number: u64) -> bool {
        let place = self.waiting.iter().position(|(other, _)| *other == number);
        let place = place.expect("who asks waits");
        let keys = &self.waiting[place].1;
        let conflicts = |(_, others): &(u64, Vec<Key>)| {
            keys.iter().any(|key| others.iter().any(|other| key.conflicts(other)))
        };
        let is_free = !self.under_way.iter().chain(&self.waiting[..place]).any(conflicts);
        is_free && !self.is_held
    }

    fn take(&mut self, number: u64) -> Vec<Key> {
        let place = self.waiting.iter().position(|(other, _)| *other == number);
        self.waiting.remove(place.expect("who asks waits")).1
    }
}

impl Flight {
    /// Waits until a call may pass; none once `goes_on` says no.
    pub(crate) fn enter(&self, keys: Vec<Key>, goes_on: &dyn Fn() -> bool) -> Option<Ticket> {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.waiting.push((number, keys));
        while !state.may_pass(number) {
            self.changed.wait_for(&mut state, LOOK_EVERY);
            if !goes_on() {
                state.take(number);
                drop(state);
                self.changed.notify_all();
                return None;
            }
        }
        let keys = state.take(number);
        state.under_way.push((number, keys));
        Some(Ticket(number))
    }

    /// A call is answered, or will not be.
    pub(crate) fn leave(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        let index = state.under_way.iter().position(|(number, _)| *number == ticket.0);
        state.under_way.swap_remove(index.expect("who leaves is under way"));
        drop(state);
        self.changed.notify_all();
    }

    /// Lets no call pass, and waits until all that did are answered; false once `goes_on` says no.
    pub(crate) fn hold(&self, goes_on: &dyn Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        assert!(!state.is_held, "one alone holds calls");
        state.is_held = true;
        while !state.under_way.is_empty() {
            self.changed.wait_for(&mut state, LOOK_EVERY / 10);
            if !goes_on() {
                return false;
            }
        }
        true
    }

    /// Lets calls pass again.
    pub(crate) fn release(&self) {
        self.state.lock().is_held = false;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use wire::nfs3::FileHandle;

    use super::Flight;
    use crate::update::Key;

    fn file(number: u8) -> FileHandle {
        FileHandle::new(&[number; 8]).expect("short")
    }

    #[test]
    fn calls_whose_order_matters_wait_for_each_other_and_others_do_not() {
        let name = |dir, name: &str| vec![Key::Name(file(dir), name.as_bytes().to_vec())];
        let bytes = |f, range| vec![Key::Bytes(file(f), range)];
        let flight = Flight::default();
        let once = || {
            let asked = Cell::new(false);
            move || !asked.replace(true)
        };
        let first = flight.enter(name(1, "a"), &|| true).expect("nothing is under way");
        for other in [name(1, "b"), name(2, "a"), bytes(1, 0..u64::MAX)] {
            let ticket = flight.enter(other, &|| false).expect("it is another thing");
            flight.leave(ticket);
        }
        let rename = [name(3, "x"), name(1, "a")].concat();
        assert_eq!(flight.enter(rename, &once()), None);
        let write = flight.enter(bytes(9, 0..4096), &|| true).expect("no bytes are under way");
        assert_eq!(flight.enter(bytes(9, 4095..5000), &once()), None);
        assert_eq!(flight.enter(bytes(9, 0..u64::MAX), &once()), None);
        let next = flight.enter(bytes(9, 4096..8192), &|| true).expect("other bytes");
        // A CREATE that may cut whatever is written.
        assert_eq!(flight.enter([name(7, "c"), vec![Key::AnyBytes]].concat(), &once()), None);
        [first, write, next].into_iter().for_each(|ticket| flight.leave(ticket));
        let cuts =
            flight.enter([name(7, "c"), vec![Key::AnyBytes]].concat(), &|| true).expect("free");
        assert_eq!(flight.enter(bytes(9, 0..1), &once()), None);
        flight.leave(cuts);
        let ticket = flight.enter(name(1, "a"), &|| false).expect("all have left");
        flight.leave(ticket);
    }

    #[test]
    fn held_calls_pass_once_they_are_released() {
        let flight = Arc::new(Flight::default());
        let first = flight.enter(vec![Key::Name(file(1), vec![1])], &|| true).expect("free");
        assert!(!flight.hold(&|| false), "one is under way");
        flight.release();
        flight.leave(first);
        assert!(flight.hold(&|| true));
        let waits = Arc::clone(&flight);
        let entered = thread::spawn(move || {
            waits.enter(vec![Key::Name(file(2), vec![1])], &|| true).expect("released")
        });
        thread::sleep(Duration::from_millis(50));
        assert!(!entered.is_finished());
        flight.release();
        flight.leave(entered.join().expect("no panic"));
    }
}
