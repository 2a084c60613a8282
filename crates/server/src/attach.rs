//! Who is attached to which volume: the register that NBD sessions enter and HTTP asks.
//!
//! Invariant: an entry lives exactly as long as the [`Attachment`] that made it. Deleting or
//! reverting a volume with entries is refused unless forced; force asks the sessions to leave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

/// The attached clients of all volumes.
#[derive(Debug, Default)]
pub struct Attachments {
    state: Mutex<State>,
    /// Told whenever a client has left.
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Never used twice.
    next_number: u64,
    by_volume: BTreeMap<String, BTreeMap<u64, Entry>>,
}

#[derive(Debug)]
struct Entry {
    client: String,
    leave: watch::Sender<bool>,
}

/// One client's attachment to the present of one volume; dropping it detaches.
#[derive(Debug)]
pub struct Attachment {
    register: Arc<Attachments>,
    volume: String,
    number: u64,
    leave: watch::Receiver<bool>,
}

impl Attachments {
    /// Enters a client (an address, for people) as attached to the present of `volume`.
    #[must_use]
    pub fn attach(self: &Arc<Self>, volume: &str, client: &str) -> Attachment {
        let (sender, receiver) = watch::channel(false);
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        let entry = Entry { client: client.to_owned(), leave: sender };
        state.by_volume.entry(volume.to_owned()).or_default().insert(number, entry);
        Attachment {
            register: Arc::clone(self),
            volume: volume.to_owned(),
            number,
            leave: receiver,
        }
    }

    /// The clients attached to the present of `volume`.
    #[must_use]
    pub fn clients(&self, volume: &str) -> Vec<String> {
        let state = self.state.lock();
        let entries = state.by_volume.get(volume).into_iter().flat_map(|m| m.values());
        entries.map(|e| e.client.clone()).collect()
    }

    /// How many clients are attached to the present of `volume`.
    #[must_use]
    pub fn count(&self, volume: &str) -> usize {
        self.state.lock().by_volume.get(volume).map_or(0, BTreeMap::len)
    }

    /// Waits until nobody is attached to `volume`, at most for `patience`. Who has just closed a
    /// connection may be on the register for another instant: the session has yet to see it.
    pub fn wait_for_none(&self, volume: &str, patience: Duration) {
        // Others come and go meanwhile, and each that goes wakes who waits.
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        while state.by_volume.contains_key(volume) {
            if self.left.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    /// Asks every session attached to `volume` to end; does not wait for it.
    pub fn ask_to_leave(&self, volume: &str) {
        let state = self.state.lock();
        for entry in state.by_volume.get(volume).into_iter().flat_map(|m| m.values()) {
            entry.leave.send_replace(true);
        }
    }
}

impl Attachment {
    /// Waits until this session is asked to end.
    pub async fn asked_to_leave(&mut self) {
        // The sender lives in the register as long as self does, so an error cannot come first.
        let _ = self.leave.wait_for(|leave| *leave).await;
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

    use super::Attachments;

    #[test]
    fn an_attachment_counts_until_it_is_dropped() {
        let register = Arc::new(Attachments::default());
        let first = register.attach("pg", "unix");
        let second = register.attach("pg", "127.0.0.1:9");
        assert_eq!(register.count("pg"), 2);
        assert_eq!(register.clients("pg"), ["unix", "127.0.0.1:9"]);
        drop(first);
        assert_eq!(register.count("pg"), 1);
        register.ask_to_leave("pg");
        assert!(second.is_asked_to_leave());
        register.wait_for_none("pg", Duration::from_millis(1));
        assert_eq!(register.count("pg"), 1, "its patience is at an end");
        let leaver = std::thread::spawn(move || drop(second));
        register.wait_for_none("pg", Duration::from_secs(60));
        assert_eq!(register.count("pg"), 0);
        leaver.join().expect("it only drops");
    }

    #[test]
    fn others_that_come_and_go_do_not_make_the_wait_longer() {
        let register = Arc::new(Attachments::default());
        let _stays = register.attach("pg", "unix");
        let done = Arc::new(AtomicBool::new(false));
        let (others, end) = (Arc::clone(&register), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            for turn in 0..500 {
                if end.load(Ordering::SeqCst) {
                    return turn;
                }
                drop(others.attach("other", "unix"));
                std::thread::sleep(Duration::from_millis(10));
            }
            500
        });
        register.wait_for_none("pg", Duration::from_millis(50));
        done.store(true, Ordering::SeqCst);
        assert!(thread.join().expect("it ends") < 500, "its patience was at an end long before");
    }
}
