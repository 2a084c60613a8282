//! The register of sessions: at most one of an initiator's port at a target.
//!
//! A session is in the register until its last job has ended. A login of the same port asks it to
//! end, and waits for that.
//!
//! An initiator whose session ended otherwise than by its own logout logs in again by itself, and
//! goes on writing what it has in memory. So the register remembers for a while which disk it had
//! under a name, and as of which revert: it does not get another one in its place.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use env::RankedMutex;
use tokio::sync::watch;
use units::Seq;
use wire::iscsi::Isid;

use super::unit::{Number, UnitId};
use crate::who::Caller;

/// Sessions of a target at once.
const TARGET_SESSIONS_MAX: usize = 256;
/// Sessions of an initiator at a target at once.
const INITIATOR_SESSIONS_MAX: usize = 16;

/// How long an initiator that has lost its session is kept away from another disk of that name:
/// longer than Linux waits by default for a session to come back, so that its file system has had
/// errors by then, and does not go on writing over what was reverted.
const LOST: Duration = Duration::from_mins(3);
/// Initiators and targets of which lost disks are remembered, however many of each.
const LOST_MAX: usize = 16384;

/// The sessions of all targets.
#[derive(Debug, Default)]
pub(super) struct Sessions(RankedMutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The disks that initiators had open when they lost them: by the name of the target, and
    /// theirs.
    lost: HashMap<(String, Party), Lost>,
    last_handle: u16,
    live: HashMap<Key, Entry>,
}

/// The disks of one target that an initiator has lost, by number, and when each.
type Lost = BTreeMap<Number, (Opened, Instant)>;

/// A disk, and its last revert or shrink.
pub(super) type Opened = (UnitId, Option<Seq>);

/// An initiator by its name. The same name is another's if a token let it in: nobody takes the
/// place of another's session, nor says anything of what that one lost, by taking its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Party {
    pub(super) initiator: String,
    /// The token.
    pub(super) who: Option<Arc<str>>,
}

impl Party {
    pub(super) fn new(initiator: &str, caller: Option<&Caller>) -> Party {
        let who = caller.map(|caller| Arc::clone(&caller.who));
        Party { initiator: initiator.to_owned(), who }
    }
}

/// The identity of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) target: String,
    pub(super) party: Party,
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
            own += usize::from(other.party == key.party);
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

    /// Whether a unit is not the disk that this initiator lost under that name a while ago.
    pub(super) fn is_another(
        &self,
        target: &str,
        party: &Party,
        (number, opened): (Number, Opened),
    ) -> bool {
        let now = Instant::now();
        let key = (target.to_owned(), party.clone());
        let state = self.0.lock();
        let lost = state.lost.get(&key).and_then(|lost| lost.get(&number));
        lost.filter(|(_, since)| now - *since < LOST).is_some_and(|(before, _)| *before != opened)
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
            told.map(|(k, e)| (k.target.clone(), k.party.initiator.clone(), e.handle)).collect();
        told.sort();
        told
    }

    /// A handle for a session that is not entered.
    pub(super) fn handle(&self) -> u16 {
        self.0.lock().next_handle()
    }
}

impl State {
    /// Remembers disks for an initiator that did not part with them.
    fn lose(&mut self, key: &Key, units: &[(Number, Opened)]) {
        let now = Instant::now();
        let key = (key.target.clone(), key.party.clone());
        let last = |lost: &Lost| lost.values().map(|(_, since)| *since).max();
        if self.lost.len() >= LOST_MAX && !self.lost.contains_key(&key) {
            self.lost.retain(|_, lost| last(lost).is_some_and(|since| now - since < LOST));
        }
        if self.lost.len() >= LOST_MAX && !self.lost.contains_key(&key) {
            let oldest = self.lost.iter().min_by_key(|(_, lost)| last(lost));
            let oldest = oldest.map(|(key, _)| key.clone());
            tracing::warn!("too many lost sessions: the longest ago is forgotten");
            oldest.and_then(|key| self.lost.remove(&key));
        }
        let lost = self.lost.entry(key).or_default();
        lost.retain(|_, (_, since)| now - *since < LOST);
        lost.extend(units.iter().map(|&(number, opened)| (number, (opened, now))));
    }

    /// Never 0, which means a new session.
    fn next_handle(&mut self) -> u16 {
        self.last_handle = self.last_handle.checked_add(1).unwrap_or(1);
        self.last_handle
    }
}

impl Registered {
    /// The initiator has logged out: it has nothing in mind of what it had here, nor of what it
    /// lost before, unless another session of its own is there.
    pub(super) fn part(&self) {
        let mut state = self.sessions.0.lock();
        let is_other = |key: &&Key| {
            **key != self.key && key.target == self.key.target && key.party == self.key.party
        };
        if !state.live.keys().any(|key| is_other(&key)) {
            state.lost.remove(&(self.key.target.clone(), self.key.party.clone()));
        }
    }

    /// The session loses units without a logout of the initiator's own: it will come back for them.
    pub(super) fn lose(&self, units: &[(Number, Opened)]) {
        if !units.is_empty() {
            self.sessions.0.lock().lose(&self.key, units);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.sessions.0.lock().live.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Instant;

    use units::Seq;
    use wire::iscsi::Isid;

    use super::{INITIATOR_SESSIONS_MAX, Key, LOST, LOST_MAX, Party, Sessions, State};

    fn party(initiator: &str) -> Party {
        Party::new(initiator, None)
    }

    fn key(port: u8) -> Key {
        let (target, isid) = ("iqn.a:t".to_owned(), Isid([0, 0, 0, 0, 0, port]));
        Key { target, party: party("iqn.a:i"), isid }
    }

    #[tokio::test]
    async fn a_token_with_the_name_of_an_initiator_is_another() {
        let sessions = Arc::new(Sessions::default());
        let by_token = Party { who: Some("token:ann".into()), ..party("iqn.a:i") };
        let session = sessions.enter(key(1)).await.expect("room");
        let other = Key { party: by_token.clone(), ..key(1) };
        let other = sessions.enter(other).await.expect("it waits for nobody");
        assert!(!*session.give_up.borrow(), "no other takes its place");
        session.lose(&[(0, ((1, None), Some(Seq(5))))]);
        drop(session);
        other.part();
        let reverted = (0, ((1, None), Some(Seq(6))));
        assert!(sessions.is_another("iqn.a:t", &party("iqn.a:i"), reverted), "it lost another");
        assert!(!sessions.is_another("iqn.a:t", &by_token, reverted));
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

    #[tokio::test]
    async fn an_initiator_that_lost_its_session_gets_no_other_disk_of_that_name() {
        let sessions = Arc::new(Sessions::default());
        let (disk, other) = ((1, None), (2, None));
        let is_another = |initiator, disk, at: u64| {
            sessions.is_another("iqn.a:t", &party(initiator), (0, (disk, Some(Seq(at)))))
        };
        let session = sessions.enter(key(1)).await.expect("room");
        assert!(!is_another("iqn.a:i", other, 5), "it is there still");
        session.lose(&[(0, (disk, Some(Seq(5))))]);
        drop(session);
        assert!(!is_another("iqn.a:i", disk, 5));
        assert!(is_another("iqn.a:i", disk, 6), "it was reverted");
        assert!(is_another("iqn.a:i", other, 5), "its name was given to another");
        assert!(!is_another("iqn.a:other", other, 6));
        assert!(
            !sessions.is_another("iqn.a:t", &party("iqn.a:i"), (1, (other, None))),
            "another unit"
        );
        assert!(!sessions.is_another("iqn.a:o", &party("iqn.a:i"), (0, (other, None))));
        let long_ago = Instant::now().checked_sub(LOST).expect("a machine that ran so long");
        let age = |state: &mut State| {
            let lost = state.lost.values_mut().flat_map(BTreeMap::values_mut);
            lost.for_each(|(_, since)| *since = long_ago);
        };
        age(&mut sessions.0.lock());
        assert!(!is_another("iqn.a:i", other, 6));
    }

    #[test]
    fn a_target_of_many_units_is_one_of_those_that_are_remembered() {
        let mut state = State::default();
        let units = [0, 1, 2].map(|number| (number, ((1, None), None)));
        let own = |number: usize| Key { party: party(&number.to_string()), ..key(1) };
        (0..=LOST_MAX).for_each(|number| state.lose(&own(number), &units));
        assert_eq!(state.lost.len(), LOST_MAX);
        let has = |number: usize| {
            let lost = state.lost.get(&(own(number).target, own(number).party));
            lost.map(BTreeMap::len)
        };
        assert_eq!([0, 1, LOST_MAX].map(has), [None, Some(3), Some(3)]);
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
