//! The register of attached clients, by volume: sessions of every front end enter it, HTTP asks.
//!
//! Invariants
//! 1. Volumes are told apart by number: a rename changes nothing here.
//! 2. An entry lives exactly as long as the [`Attachment`] that made it.
//! 3. While a [`Closure`] of a volume lives, nobody attaches to the volume's present, and nobody
//!    was attached when it was given out. It is the only way to disconnect clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use env::{RankedGuard, RankedMutex};
use parking_lot::Condvar;
use tokio::sync::{Notify, watch};

/// The number of a volume, which stays when its name changes.
pub type VolumeId = u64;

/// The attached clients of all volumes.
#[derive(Debug, Default)]
pub struct Attachments {
    state: RankedMutex<State>,
    /// Told whenever a client has left.
    left: Condvar,
    /// Told whenever a closure has ended.
    opened: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Never used twice.
    next_number: u64,
    by_volume: BTreeMap<VolumeId, BTreeMap<u64, Entry>>,
    /// Closures by volume.
    closed: BTreeMap<VolumeId, usize>,
}

#[derive(Debug)]
struct Entry {
    client: String,
    is_past: bool,
    leave: watch::Sender<bool>,
}

/// The part of a volume that a client has open, or that is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The present, which can be written.
    Present,
    /// A moment of the past.
    Past,
}

/// One client's attachment to one volume; dropping it detaches.
#[derive(Debug)]
pub struct Attachment {
    register: Arc<Attachments>,
    volume: VolumeId,
    number: u64,
    leave: watch::Receiver<bool>,
}

/// Keeps clients away from the present of a volume until it is dropped.
#[derive(Debug)]
pub struct Closure {
    register: Arc<Attachments>,
    volume: VolumeId,
}

impl State {
    fn entries(&self, volume: VolumeId, with_past: bool) -> impl Iterator<Item = &Entry> {
        let entries = self.by_volume.get(&volume).into_iter().flat_map(BTreeMap::values);
        entries.filter(move |entry| with_past || !entry.is_past)
    }
}

impl Attachments {
    /// Enters a client (an address, for people) as attached to a volume; none while the part that
    /// it wants is closed.
    #[must_use]
    pub fn attach(
        self: &Arc<Self>,
        volume: VolumeId,
        part: Part,
        client: &str,
    ) -> Option<Attachment> {
        let (sender, receiver) = watch::channel(false);
        let is_past = part == Part::Past;
        let mut state = self.state.lock();
        if !is_past && state.closed.contains_key(&volume) {
            return None;
        }
        let number = state.next_number;
        state.next_number += 1;
        let entry = Entry { client: client.to_owned(), is_past, leave: sender };
        state.by_volume.entry(volume).or_default().insert(number, entry);
        Some(Attachment { register: Arc::clone(self), volume, number, leave: receiver })
    }

    /// Waits until the present of `volume` is not closed.
    pub async fn opened(&self, volume: VolumeId) {
        loop {
            let mut opened = std::pin::pin!(self.opened.notified());
            // Before the look, so that a closure that ends between the two is not missed.
            opened.as_mut().enable();
            if !self.state.lock().closed.contains_key(&volume) {
                return;
            }
            opened.await;
        }
    }

    /// How many clients are attached to the present of `volume`.
    #[must_use]
    pub fn count(&self, volume: VolumeId) -> usize {
        self.state.lock().entries(volume, false).count()
    }

    /// Keeps others than the one client of the present of `volume` away; none if it has others.
    pub fn keep_others_away(self: &Arc<Self>, volume: VolumeId) -> Option<Closure> {
        let mut state = self.state.lock();
        if state.entries(volume, false).count() > 1 {
            return None;
        }
        *state.closed.entry(volume).or_default() += 1;
        Some(Closure { register: Arc::clone(self), volume })
    }

    /// Closes the present of `volume`, and with `Part::Past` everything of it, once nobody is
    /// attached to that; with `force` all who are get asked to leave. A client that has just
    /// closed its connection may be on the register for another instant, so this waits for at most
    /// `patience`.
    ///
    /// # Errors
    /// The clients that are attached still; nothing is closed then.
    pub fn close(
        self: &Arc<Self>,
        volume: VolumeId,
        part: Part,
        force: bool,
        patience: Duration,
    ) -> Result<Closure, Vec<String>> {
        let with_past = part == Part::Past;
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        *state.closed.entry(volume).or_default() += 1;
        let closure = Closure { register: Arc::clone(self), volume };
        if force {
            state.entries(volume, with_past).for_each(|entry| {
                entry.leave.send_replace(true);
            });
        }
        while state.entries(volume, with_past).next().is_some() {
            // Others come and go meanwhile, and each that goes wakes this.
            if RankedGuard::wait_until(&mut state, &self.left, until) {
                let clients = state.entries(volume, with_past).map(|e| e.client.clone()).collect();
                drop(state);
                return Err(clients);
            }
        }
        drop(state);
        Ok(closure)
    }
}

impl Drop for Closure {
    fn drop(&mut self) {
        let mut state = self.register.state.lock();
        if let Some(count) = state.closed.get_mut(&self.volume) {
            *count -= 1;
            if *count == 0 {
                state.closed.remove(&self.volume);
            }
        }
        drop(state);
        self.register.opened.notify_waiters();
    }
}

impl Attachment {
    /// Waits until this session is asked to end.
    pub async fn asked_to_leave(&mut self) {
        // The sender lives in the register as long as self does, so an error cannot come first.
        let _ = self.leave.wait_for(|leave| *leave).await;
    }

    /// Becomes true when this session is asked to end; without a sender once it has.
    pub(crate) fn leave_signal(&self) -> watch::Receiver<bool> {
        self.leave.clone()
    }

    /// Whether this session was asked to end.
    #[must_use]
    pub fn is_asked_to_leave(&self) -> bool {
        *self.leave.borrow()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let mut state = self.register.state.lock();
        if let Some(entries) = state.by_volume.get_mut(&self.volume) {
            entries.remove(&self.number);
            if entries.is_empty() {
                state.by_volume.remove(&self.volume);
            }
        }
        drop(state);
        self.register.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::{Attachments, Part};

    const SHORT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn an_attachment_counts_until_it_is_dropped() {
        let register = Arc::new(Attachments::default());
        let attach = |part, client| register.attach(1, part, client).expect("not closed");
        let first = attach(Part::Present, "unix");
        let second = attach(Part::Present, "127.0.0.1:9");
        let past = attach(Part::Past, "unix");
        assert_eq!(register.count(1), 2);
        let refused = register.close(1, Part::Present, false, SHORT).expect_err("two are here");
        assert_eq!(refused, ["unix", "127.0.0.1:9"]);
        drop(first);
        assert_eq!(register.count(1), 1);
        assert!(!second.is_asked_to_leave());
        let refused = register.close(1, Part::Present, true, SHORT).expect_err("it stays");
        assert_eq!(refused, ["127.0.0.1:9"]);
        assert!(second.is_asked_to_leave() && !past.is_asked_to_leave());
        let leaver = std::thread::spawn(move || drop(second));
        drop(register.close(1, Part::Present, false, LONG).expect("nobody is there"));
        leaver.join().expect("it only drops");
        register.close(1, Part::Past, true, SHORT).expect_err("the past is looked at");
        assert!(past.is_asked_to_leave());
    }

    #[test]
    fn nobody_attaches_while_a_volume_is_closed() {
        let register = Arc::new(Attachments::default());
        let closures = [0, 1].map(|_| register.close(1, Part::Present, false, SHORT));
        for closure in closures {
            assert!(register.attach(1, Part::Present, "unix").is_none());
            assert!(register.attach(1, Part::Past, "unix").is_some());
            drop(closure);
        }
        assert!(register.attach(1, Part::Present, "unix").is_some());
        drop(register.close(1, Part::Past, false, SHORT).expect("all have left"));
    }

    #[test]
    fn a_client_that_is_alone_keeps_others_away() {
        let register = Arc::new(Attachments::default());
        let attach = || register.attach(1, Part::Present, "unix");
        let _first = attach().expect("not closed");
        let second = attach().expect("not closed");
        assert!(register.keep_others_away(1).is_none(), "two are here");
        drop(second);
        let closure = register.keep_others_away(1).expect("one is here");
        assert!(attach().is_none());
        drop(closure);
        assert!(attach().is_some());
    }

    #[test]
    fn others_that_come_and_go_do_not_make_the_wait_longer() {
        let register = Arc::new(Attachments::default());
        let _stays = register.attach(1, Part::Present, "unix");
        let done = Arc::new(AtomicBool::new(false));
        let (others, end) = (Arc::clone(&register), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            for turn in 0..500 {
                if end.load(Ordering::SeqCst) {
                    return turn;
                }
                drop(others.attach(2, Part::Present, "unix"));
                std::thread::sleep(Duration::from_millis(10));
            }
            500
        });
        let refused = register.close(1, Part::Present, false, Duration::from_millis(50));
        assert!(refused.is_err());
        done.store(true, Ordering::SeqCst);
        assert!(thread.join().expect("it ends") < 500, "its patience was at an end long before");
    }
}
