//! The follower: a share that follows the primary.
//!
//! ```text
//! Comparing: the follower is made what the primary is, while calls pass; at the end, for a moment,
//!            none passes
//!     -- it is --> Following: what the primary did is done here, in its order
//! Following -- something cannot be done, or it is not known whether it was --> Comparing
//! ```

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use share::{Cause, CauseKind, Changer, Error, ErrorKind, Lack, Present, Share, Wait};
use units::WallTime;
use wire::nfs3::Verifier;

use crate::apply::{Applying, Fault};
use crate::compare::Comparing;
use crate::flight::Flight;
use crate::known::Known;
use crate::primary::{Primary, PrimaryAddress};
use crate::spool::{Next, Spool};
use crate::update::{Dirty, Outcome, Record, changing, dirty_of_call};

/// Records of one transaction at most.
const BATCH_RECORDS_MAX: usize = 64;
/// Comparisons while calls pass, before they are held.
const ROUNDS_MAX: usize = 8;
/// So few things are compared while calls are held.
const HELD_MAX: usize = 64;
/// Before the primary, or the share, is tried again: at first, and at most.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long calls are held at most.
const HOLD_MAX: Duration = Duration::from_secs(3);
/// Calls whose answer nobody saw, which are known when they are sent again.
const GIVEN_UP_MAX: usize = 4096;

/// What the follower stands on.
pub trait Ground: Send + Sync {
    /// What its share stands on.
    type Present: Present;

    /// The share, which is opened anew at need.
    ///
    /// # Errors
    /// Those of opening.
    fn with_share<T>(&self, work: impl FnOnce(&Share<Self::Present>) -> T) -> share::Result<T>;

    /// The time.
    fn now(&self) -> WallTime;

    /// Waits for what a transaction lacked.
    ///
    /// # Errors
    /// If it is not to be had.
    fn wait_for(&self, lack: Lack, goes_on: &dyn Fn() -> bool) -> share::Result<()>;
}

/// How the follower is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is being made what the primary is.
    Comparing,
    /// It does what the primary did.
    Following,
}

impl State {
    /// As it is told.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            State::Comparing => "comparing",
            State::Following => "following",
        }
    }
}

/// What a follower did.
#[derive(Clone, Debug)]
pub struct Status {
    /// How it is.
    pub state: State,
    /// Records that wait.
    pub waiting: usize,
    /// Their bytes.
    pub waiting_bytes: usize,
    /// Records that were carried out.
    pub followed: u64,
    /// Objects that were compared.
    pub compared: u64,
    /// How often it had to compare, the first time included.
    pub comparisons: u64,
    /// Objects that it cannot hold.
    pub left_out: u64,
    /// The trouble that it has now.
    pub trouble: Option<String>,
}

/// A follower of a primary.
#[derive(Debug)]
pub(crate) struct Follower<G> {
    pub(crate) ground: G,
    pub(crate) address: PrimaryAddress,
    pub(crate) spool: Spool,
    pub(crate) flight: Flight,
    trouble: Mutex<Option<String>>,
    followed: AtomicU64,
    compared: AtomicU64,
    comparisons: AtomicU64,
    left_out: AtomicU64,
    /// What waits for the primary ends.
    is_stopped: Arc<AtomicBool>,
    /// The last verifier of the primary's writes.
    verifier: Mutex<Option<Verifier>>,
    /// Calls whose answer nobody saw, the newest last: client, number, checksum.
    given_up: Mutex<VecDeque<(u128, u32, u64)>>,
}

impl<G: Ground> Follower<G> {
    pub(crate) fn new(ground: G, address: PrimaryAddress) -> Follower<G> {
        Follower {
            ground,
            address,
            spool: Spool::new(),
            flight: Flight::default(),
            trouble: Mutex::default(),
            followed: AtomicU64::new(0),
            compared: AtomicU64::new(0),
            comparisons: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            is_stopped: Arc::default(),
            verifier: Mutex::default(),
            given_up: Mutex::default(),
        }
    }

    /// A call was answered.
    pub(crate) fn answered(&self, record: Record) {
        let (verifier, is_again) = (record.verifier(), self.was_given_up(&record));
        match record.outcome() {
            Outcome::Refused => {}
            // The primary may have answered from memory what it did long ago.
            Outcome::Done(_) if is_again => self.spool.mark_dirty(record.dirty()),
            Outcome::Done(_) => self.spool.push(record),
            Outcome::Unknown => self.spool.mark_dirty(unknown(&record.call)),
        }
        if let Some(verifier) = verifier {
            let before = self.verifier.lock().replace(verifier);
            if before.is_some_and(|before| before != verifier) {
                tracing::info!(primary = %self.address, "it was started anew: all is compared");
                self.spool.mark_dirty([Dirty::Everything]);
            }
        }
    }

    /// Nobody knows whether the primary carried a call out.
    pub(crate) fn give_up(&self, client: u128, call: &[u8]) {
        self.spool.mark_dirty(unknown(call));
        let mut given_up = self.given_up.lock();
        if given_up.len() >= GIVEN_UP_MAX {
            given_up.pop_front();
        }
        given_up.push_back(name_of(client, call));
    }

    fn was_given_up(&self, record: &Record) -> bool {
        let given_up = self.given_up.lock();
        !given_up.is_empty() && given_up.contains(&name_of(record.client, &record.call))
    }

    pub(crate) fn status(&self) -> Status {
        let trouble = self.trouble.lock().clone();
        let (is_queue, waiting, waiting_bytes) = self.spool.waiting();
        Status {
            state: if is_queue { State::Following } else { State::Comparing },
            waiting,
            waiting_bytes,
            followed: self.followed.load(Ordering::Relaxed),
            compared: self.compared.load(Ordering::Relaxed),
            comparisons: self.comparisons.load(Ordering::Relaxed),
            left_out: self.left_out.load(Ordering::Relaxed),
            trouble,
        }
    }

    /// Follows the primary until it is stopped.
    pub(crate) fn run(&self) {
        let mut known = Known::default();
        let (mut primary, mut pause) = (None, PAUSE);
        while !self.spool.is_stopped() {
            let Err(fault) = self.go_on(&mut primary, &mut known) else {
                pause = PAUSE;
                continue;
            };
            // Nothing is known of what was under way.
            primary = None;
            self.spool.mark_dirty([Dirty::Everything]);
            let trouble = words(&fault);
            let before = self.trouble.lock().replace(trouble.clone());
            if before.as_ref() != Some(&trouble) {
                tracing::warn!(primary = %self.address, trouble, "the share waits");
            }
            self.spool.pause(pause);
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Ends it, also where it waits for the primary.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.spool.stop();
    }

    fn go_on(&self, primary: &mut Option<Primary>, known: &mut Known) -> Result<(), Fault> {
        let primary = match primary {
            Some(primary) => primary,
            None => primary.insert(Primary::mount(&self.address, &self.is_stopped)?),
        };
        match self.spool.next(BATCH_RECORDS_MAX, PAUSE) {
            Next::Stop | Next::Nothing => Ok(()),
            Next::Compare => self.compare(primary, known),
            Next::Do(records) => self.follow(primary, known, &records),
        }
    }

    /// Makes the share as the primary is. Changes that pass meanwhile are compared again, until
    /// little is left; that is done while no call passes, if it is done soon.
    fn compare(&self, primary: &mut Primary, known: &mut Known) -> Result<(), Fault> {
        self.comparisons.fetch_add(1, Ordering::Relaxed);
        let goes_on = || !self.spool.is_stopped();
        for _ in 0..ROUNDS_MAX {
            let dirty = self.spool.take_dirty();
            let is_little = dirty.len() <= HELD_MAX && !dirty.contains(&Dirty::Everything);
            match self.compare_dirty(primary, known, &dirty, &goes_on) {
                // It was overtaken by what passed meanwhile.
                Err(Fault::Share(error)) if is_overtaken(error.kind) => {
                    self.spool.mark_dirty(dirty)
                }
                compared => compared?,
            }
            if is_little {
                break;
            }
        }
        let until = Instant::now() + HOLD_MAX;
        let goes_on = || !self.spool.is_stopped() && Instant::now() < until;
        let compared = match self.flight.hold(&goes_on) {
            true => self.compare_held(primary, known, &goes_on),
            false => Ok(()),
        };
        self.flight.release();
        compared
    }

    /// Compares what is left, while no call is under way. If that takes too long it is left.
    fn compare_held(
        &self,
        primary: &mut Primary,
        known: &mut Known,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        while !self.spool.begin_queue() {
            let dirty = self.spool.take_dirty();
            match self.compare_dirty(primary, known, &dirty, goes_on) {
                // Whatever it was doing, the time was over.
                Err(_) if !goes_on() => {
                    self.spool.mark_dirty(dirty);
                    return Ok(());
                }
                compared => compared?,
            }
        }
        *self.trouble.lock() = None;
        self.left_out.store(known.left_out() as u64, Ordering::Relaxed);
        tracing::info!(primary = %self.address, "the share follows");
        Ok(())
    }

    fn compare_dirty(
        &self,
        primary: &mut Primary,
        known: &mut Known,
        dirty: &HashSet<Dirty>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        let compared = self.ground.with_share(|share| {
            let number = share.statistics().operations;
            let mut comparing = Comparing {
                changer: Changer {
                    share,
                    cause: Cause { kind: CauseKind::Import, number },
                    now: &|| self.ground.now(),
                    wait_for: &|lack| self.ground.wait_for(lack, goes_on),
                    done: Cell::default(),
                },
                primary,
                known,
                goes_on,
                compared: &|| {
                    self.compared.fetch_add(1, Ordering::Relaxed);
                },
            };
            comparing.dirty(dirty)
        });
        compared?
    }

    /// Does what the primary did; what cannot be done is compared, and all after it.
    fn follow(
        &self,
        primary: &mut Primary,
        known: &mut Known,
        records: &[Record],
    ) -> Result<(), Fault> {
        let done =
            self.ground.with_share(|share| self.follow_on(share, primary, known, records))?;
        let (count, followed) = done;
        self.followed.fetch_add(count as u64, Ordering::Relaxed);
        let rest = &records[count..];
        match followed {
            Err(Fault::Differs) => {
                tracing::info!(primary = %self.address, "the follower differs, and is compared");
                self.spool.mark_dirty(rest.iter().flat_map(Record::dirty));
                Ok(())
            }
            followed => followed,
        }
    }

    /// Carries out records in as few transactions as it takes; how many.
    fn follow_on(
        &self,
        share: &Share<G::Present>,
        primary: &mut Primary,
        known: &mut Known,
        records: &[Record],
    ) -> (usize, Result<(), Fault>) {
        let (mut done, mut written) = (0, 0);
        while done < records.len() {
            match self.transact(share, primary, known, (&records[done..], written)) {
                Ok(Transacted { count, written: now, differs }) => {
                    (done, written) = (done + count, now);
                    if differs {
                        return (done, Err(Fault::Differs));
                    }
                }
                Err(Fault::Share(Error { kind: ErrorKind::Lacks(lack), .. })) => {
                    let goes_on = || !self.spool.is_stopped();
                    if let Err(error) = self.ground.wait_for(lack, &goes_on) {
                        return (done, Err(error.into()));
                    }
                }
                Err(fault) => return (done, Err(fault)),
            }
        }
        (done, Ok(()))
    }

    /// One transaction of the first of these, of the first of which some bytes are written.
    fn transact(
        &self,
        share: &Share<G::Present>,
        primary: &mut Primary,
        known: &mut Known,
        (records, written): (&[Record], usize),
    ) -> Result<Transacted, Fault> {
        let mut change = share.begin(Wait::May)?;
        let mut count = 0;
        let mut differs = false;
        let mut applying = Applying {
            change: &mut change,
            known,
            primary,
            now: self.ground.now(),
            write_bytes_max: share.write_bytes_max(),
            written,
        };
        for record in records {
            match applying.apply(record) {
                Ok(()) => count += 1,
                Err(Fault::Share(error)) if error.kind == ErrorKind::TransactionFull => break,
                Err(Fault::Differs) => {
                    differs = true;
                    break;
                }
                Err(fault) => return Err(fault),
            }
        }
        let now = applying.written;
        if !differs && count == 0 && now == written {
            // Not even the first has room in an empty one.
            differs = true;
        }
        change.commit()?;
        Ok(Transacted { count, written: now, differs })
    }
}

/// What a transaction did.
struct Transacted {
    /// Records.
    count: usize,
    /// Bytes of the record after them.
    written: usize,
    /// The follower is not as it would have to be.
    differs: bool,
}

fn is_overtaken(kind: ErrorKind) -> bool {
    use ErrorKind as K;
    matches!(
        kind,
        K::NotFound | K::Exists | K::Stale | K::NotEmpty | K::IsDirectory | K::NotDirectory
    )
}

/// What a call may have done.
fn unknown(call: &[u8]) -> Vec<Dirty> {
    changing(call).map_or_else(|| vec![Dirty::Everything], |(_, call)| dirty_of_call(&call))
}

/// A call as it can be known again.
fn name_of(client: u128, call: &[u8]) -> (u128, u32, u64) {
    let xid = call.first_chunk().map_or(0, |xid| u32::from_be_bytes(*xid));
    let mut hasher = DefaultHasher::new();
    call.hash(&mut hasher);
    (client, xid, hasher.finish())
}

fn words(fault: &Fault) -> String {
    match fault {
        Fault::Share(Error { source: Some(source), kind }) => format!("{kind}: {source}"),
        Fault::Primary(trouble) => format!("the primary: {trouble}"),
        other => other.to_string(),
    }
}
