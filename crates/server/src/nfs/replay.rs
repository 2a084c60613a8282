//! The duplicate request cache: a call that is sent again gets the answer of the first time, and is
//! not carried out again.
//!
//! Invariants
//! 1. A call has its entry before it is carried out; a retransmission meanwhile waits for the same
//!    answer, also on another connection, and gets one whatever becomes of the first.
//! 2. A call whose answer was "later", or that came to no answer, has no entry: it is to be carried
//!    out when it is sent again.
//! 3. An answer holds for [`AGE_MAX`], as clients begin anew with their numbers. There are
//!    [`ENTRIES_MAX`] entries beside those under way; the oldest goes first. WRITEs have as many of
//!    their own, so that they push nothing else out.
//!
//! WRITEs too: what a connection that broke had received may be carried out after the client was
//! answered on another one, and has written there again, or cut the file.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use env::RankedMutex;
use tokio::sync::mpsc::UnboundedSender;
use wire::nfs3::{Nfsstat3, Procedure, Results};

use super::answer::results;

/// How long an answer is given again.
const AGE_MAX: Duration = Duration::from_secs(120);
/// Answers of all clients together.
const ENTRIES_MAX: usize = 32 << 10;
/// The number of WRITE.
const WRITE: u32 = Procedure::Write.number();
/// Connections that wait for one answer.
const WAITING_MAX: usize = 4;

/// A call, as it is known again: the client's port may be another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) client: IpAddr,
    pub(crate) xid: u32,
    pub(crate) procedure: u32,
    pub(crate) arguments_crc: u32,
    pub(crate) uid: u32,
}

/// The way to a connection, for answers that others made.
pub(crate) type Late = UnboundedSender<Arc<[u8]>>;

enum Entry {
    /// It is being carried out; these wait for the answer too.
    UnderWay(Vec<Late>),
    Answered(Arc<[u8]>, Instant),
}

/// The cache.
#[derive(Default)]
pub(crate) struct Replays(RankedMutex<Kept>);

#[derive(Default)]
struct Kept {
    entries: BTreeMap<Key, Entry>,
    /// Those that are answered, the oldest first: WRITEs, and others.
    answered: [VecDeque<(Instant, Key)>; 2],
}

/// The state of a call.
pub(crate) enum Seen {
    /// It is not known: it has an entry from now on.
    New(Entered),
    /// It is under way; the answer will come.
    UnderWay,
    /// The answer.
    Answered(Arc<[u8]>),
}

/// The entry of a call that is under way. If it is dropped the client is to try again.
pub(crate) struct Entered {
    replays: Arc<Replays>,
    key: Key,
    is_answered: bool,
}

impl Replays {
    /// Looks for a call, and enters it if it is new.
    pub(crate) fn enter(self: &Arc<Self>, key: Key, late: &Late) -> Seen {
        let mut kept = self.0.lock();
        match kept.entries.get_mut(&key) {
            Some(Entry::Answered(answer, when)) if when.elapsed() < AGE_MAX => {
                return Seen::Answered(Arc::clone(answer));
            }
            Some(Entry::UnderWay(waiting)) => {
                if waiting.len() < WAITING_MAX {
                    waiting.push(late.clone());
                }
                return Seen::UnderWay;
            }
            None | Some(Entry::Answered(..)) => {}
        }
        kept.entries.insert(key, Entry::UnderWay(Vec::new()));
        Seen::New(Entered { replays: Arc::clone(self), key, is_answered: false })
    }
}

impl Entered {
    /// The call came to an answer that holds.
    pub(crate) fn answer(mut self, answer: &[u8]) {
        self.is_answered = true;
        let (answer, now): (Arc<[u8]>, _) = (answer.into(), Instant::now());
        let mut kept = self.replays.0.lock();
        let entry = Entry::Answered(Arc::clone(&answer), now);
        tell(kept.entries.insert(self.key, entry), &answer);
        let Kept { entries, answered } = &mut *kept;
        let answered = &mut answered[usize::from(self.key.procedure != WRITE)];
        answered.push_back((now, self.key));
        while let Some((when, key)) = answered.front().copied()
            && (answered.len() > ENTRIES_MAX || now.duration_since(when) >= AGE_MAX)
        {
            answered.pop_front();
            // It may have been carried out once more since.
            if matches!(entries.get(&key), Some(Entry::Answered(_, own)) if *own == when) {
                entries.remove(&key);
            }
        }
    }

    /// The call came to an answer that does not hold: the next time it is carried out.
    pub(crate) fn pass(mut self, answer: &[u8]) {
        self.end(answer);
    }

    fn end(&mut self, answer: &[u8]) {
        self.is_answered = true;
        tell(self.replays.0.lock().entries.remove(&self.key), &answer.into());
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if !self.is_answered {
            let procedure = Procedure::from_number(self.key.procedure).expect("it is one");
            let later = Results::failed(procedure, Nfsstat3::Jukebox);
            self.end(&results(self.key.xid, &later));
        }
    }
}

/// Gives an answer to those who waited for it.
fn tell(entry: Option<Entry>, answer: &Arc<[u8]>) {
    let Some(Entry::UnderWay(waiting)) = entry else { return };
    for late in waiting {
        // A connection that is gone wants no answer.
        let _ = late.send(Arc::clone(answer));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use tokio::sync::mpsc;
    use wire::nfs3::Nfsstat3;

    use super::{ENTRIES_MAX, Entered, Key, Late, Replays, Seen};

    fn key(xid: u32) -> Key {
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Key { client, xid, procedure: 12, arguments_crc: 7, uid: 0 }
    }

    fn new(replays: &Arc<Replays>, key: Key, late: &Late) -> Entered {
        match replays.enter(key, late) {
            Seen::New(entered) => entered,
            Seen::UnderWay | Seen::Answered(_) => panic!("{key:?} is known"),
        }
    }

    #[test]
    fn a_call_is_new_once_and_others_get_its_answer() {
        let replays = Arc::new(Replays::default());
        let (late, mut answers) = mpsc::unbounded_channel();
        let first = new(&replays, key(1), &late);
        assert!(matches!(replays.enter(key(1), &late), Seen::UnderWay));
        let other = new(&replays, Key { uid: 1, ..key(1) }, &late);
        first.answer(b"answer");
        assert_eq!(*answers.try_recv().expect("it was waited for"), *b"answer");
        answers.try_recv().expect_err("once");
        let Seen::Answered(answer) = replays.enter(key(1), &late) else { panic!("answered") };
        assert_eq!(*answer, *b"answer");
        assert!(matches!(replays.enter(Key { uid: 1, ..key(1) }, &late), Seen::UnderWay));
        other.pass(b"later");
        assert_eq!(*answers.try_recv().expect("it was waited for"), *b"later");
        drop(new(&replays, Key { uid: 1, ..key(1) }, &late));
    }

    #[test]
    fn who_waits_for_a_call_that_comes_to_nothing_is_to_try_again() {
        let replays = Arc::new(Replays::default());
        let (late, mut answers) = mpsc::unbounded_channel();
        let first = new(&replays, key(9), &late);
        assert!(matches!(replays.enter(key(9), &late), Seen::UnderWay));
        drop(first);
        let answer = answers.try_recv().expect("it was waited for");
        assert_eq!(answer[4..8], 9_u32.to_be_bytes());
        assert_eq!(answer[28..32], Nfsstat3::Jukebox.number().to_be_bytes());
        drop(new(&replays, key(9), &late));
    }

    #[test]
    fn the_oldest_answer_goes_first_and_what_is_under_way_stays() {
        let replays = Arc::new(Replays::default());
        let (late, _answers) = mpsc::unbounded_channel();
        let first = new(&replays, key(0), &late);
        let count = u32::try_from(ENTRIES_MAX).expect("few");
        for xid in 1..=count + 1 {
            new(&replays, key(xid), &late).answer(b"");
        }
        assert!(matches!(replays.enter(key(0), &late), Seen::UnderWay));
        assert!(matches!(replays.enter(key(2), &late), Seen::Answered(_)));
        let write = |xid| Key { procedure: super::WRITE, ..key(xid) };
        for xid in 1..=count {
            new(&replays, write(xid), &late).answer(b"");
        }
        assert!(matches!(replays.enter(key(2), &late), Seen::Answered(_)), "WRITEs have their own");
        assert!(matches!(replays.enter(write(1), &late), Seen::Answered(_)));
        drop((new(&replays, key(1), &late), first));
    }
}
