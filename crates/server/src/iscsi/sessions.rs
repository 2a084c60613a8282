//! The register of sessions: at most one of an initiator's port at a target.
//!
//! A session is in the register until its last job has ended. A login of the same port asks it to
//! end, and waits for that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use env::RankedMutex;
use tokio::sync::watch;
use wire::iscsi::Isid;

/// Sessions of a target at once.
const TARGET_SESSIONS_MAX: usize = 256;
/// Sessions of an initiator at a target at once.
const INITIATOR_SESSIONS_MAX: usize = 16;

/// How long an initiator is kept away from a volume that was taken from it: longer than Linux waits
/// by default for a session to come back, so that its file system has had errors by then, and does
/// not go on writing over what was reverted.
const EVICTION: Duration = Duration::from_mins(3);

/// The sessions of all targets.
#[derive(Debug, Default)]
pub(super) struct Sessions(RankedMutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Initiators that are kept away, since when.
    evicted: HashMap<(String, String), Instant>,
    last_handle: u16,
    live: HashMap<Key, Entry>,
}

/// The identity of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) target: String,
    pub(super) initiator: String,
    pub(super) isid: Isid,
}

#[derive(Debug)]
struct Entry {
    handle: u16,
    give_up: watch::Sender<bool>,
    /// Closed when the session is gone.
    here: watch::Receiver<()>,
}

/// A session in the register, until it is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    sessions: Arc<Sessions>,
    key: Key,
    /// TSIH.
    pub(super) handle: u16,
    /// True when another takes its place.
    pub(super) give_up: watch::Receiver<bool>,
    _here: watch::Sender<()>,
}

/// There are too many.
#[derive(Debug)]
pub(super) struct TooMany;

impl Sessions {
    /// Enters a session once that which is in its place has ended; it is told to.
    pub(super) async fn enter(self: &Arc<Sessions>, key: Key) -> Result<Registered, TooMany> {
        loop {
            let mut gone = match self.try_enter(&key) {
                Ok(registered) => return registered,
                Err(gone) => gone,
            };
            // Nothing is ever sent: an error says that the other is gone.
            let _ = gone.changed().await;
        }
    }

    fn try_enter(
        self: &Arc<Sessions>,
        key: &Key,
    ) -> Result<Result<Registered, TooMany>, watch::Receiver<()>> {
        let mut state = self.0.lock();
        if let Some(old) = state.live.get(key) {
            old.give_up.send_replace(true);
            return Err(old.here.clone());
        }
        let of_target = state.live.keys().filter(|other| other.target == key.target);
        let (mut all, mut own) = (0, 0);
        for other in of_target {
            all += 1;
            own += usize::from(other.initiator == key.initiator);
        }
        if all >= TARGET_SESSIONS_MAX || own >= INITIATOR_SESSIONS_MAX {
            return Ok(Err(TooMany));
        }
        let handle = state.next_handle();
        let (give_up, receiver) = watch::channel(false);
        let (sender, here) = watch::channel(());
        state.live.insert(key.clone(), Entry { handle, give_up, here });
        Ok(Ok(Registered {
            sessions: Arc::clone(self),
            key: key.clone(),
            handle,
            give_up: receiver,
            _here: sender,
        }))
    }

    /// Whether there is a session of this port with this handle.
    pub(super) fn has(&self, key: &Key, handle: u16) -> bool {
        self.0.lock().live.get(key).is_some_and(|entry| entry.handle == handle)
    }

    /// An initiator had a target taken from it.
    pub(super) fn evict(&self, target: &str, initiator: &str) {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.evicted.retain(|_, since| now - *since < EVICTION);
        state.evicted.insert((target.to_owned(), initiator.to_owned()), now);
    }

    /// Whether an initiator is kept away from a target.
    pub(super) fn is_evicted(&self, target: &str, initiator: &str) -> bool {
        let key = (target.to_owned(), initiator.to_owned());
        self.0.lock().evicted.get(&key).is_some_and(|since| since.elapsed() < EVICTION)
    }

    /// The sessions on a target and on moments of it: its name, the initiator's, and a number.
    pub(super) fn of(&self, present: &str) -> Vec<(String, String, u16)> {
        let state = self.0.lock();
        let is_of = |key: &Key| {
            let rest = key.target.strip_prefix(present);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(":at:"))
        };
        let told = state.live.iter().filter(|(key, _)| is_of(key));
        let mut told: Vec<_> =
            told.map(|(k, e)| (k.target.clone(), k.initiator.clone(), e.handle)).collect();
        told.sort();
        told
    }

    /// A handle for a session that is not entered.
    pub(super) fn handle(&self) -> u16 {
        self.0.lock().next_handle()
    }
}

impl State {
    /// Never 0, which means a new session.
    fn next_handle(&mut self) -> u16 {
        self.last_handle = self.last_handle.checked_add(1).unwrap_or(1);
        self.last_handle
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.sessions.0.lock().live.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wire::iscsi::Isid;

    use super::{INITIATOR_SESSIONS_MAX, Key, Sessions};

    fn key(port: u8) -> Key {
        let (target, initiator) = ("iqn.a:t".to_owned(), "iqn.a:i".to_owned());
        Key { target, initiator, isid: Isid([0, 0, 0, 0, 0, port]) }
    }

    #[tokio::test]
    async fn a_login_over_a_session_tells_it_to_end_and_waits_for_that() {
        let sessions = Arc::new(Sessions::default());
        let old = sessions.enter(key(1)).await.expect("room");
        assert!(sessions.has(&key(1), old.handle) && !sessions.has(&key(2), old.handle));
        let other = Arc::clone(&sessions);
        let next = tokio::spawn(async move { other.enter(key(1)).await.expect("room").handle });
        let mut give_up = old.give_up.clone();
        give_up.wait_for(|give_up| *give_up).await.expect("told");
        assert!(!next.is_finished());
        let before = old.handle;
        drop(old);
        assert_ne!(next.await.expect("entered"), before);
    }

    #[test]
    fn an_initiator_that_lost_a_target_is_kept_away_from_that() {
        let sessions = Sessions::default();
        assert!(!sessions.is_evicted("t", "i"));
        sessions.evict("t", "i");
        assert!(sessions.is_evicted("t", "i"));
        assert!(!sessions.is_evicted("t", "other") && !sessions.is_evicted("other", "i"));
    }

    #[tokio::test]
    async fn an_initiator_has_so_many_sessions_at_a_target() {
        let sessions = Arc::new(Sessions::default());
        let mut all = Vec::new();
        for port in 0..INITIATOR_SESSIONS_MAX {
            all.push(sessions.enter(key(port as u8)).await.expect("room"));
        }
        sessions.enter(key(99)).await.expect_err("one too many");
        drop(all.pop());
        sessions.enter(key(99)).await.expect("room again");
    }
}
