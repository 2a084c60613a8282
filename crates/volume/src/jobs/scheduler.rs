//! The scheduler of background work: which job has its turn, with how many bytes, when the thread
//! that does it rests, and what becomes of failures.
//!
//! Invariants
//! 1. Each job has a turn in each round, in the order of `jobs`, and may do about its budget in it:
//!    none waits for another one to be done.
//! 2. A failure of one job, or of one volume in it, keeps no other from its turn. It is told
//!    (`Failures`) until it has not been met for some seconds.
//! 3. Work that can wait makes way for clients that write, but not for ever: see `Left::waiting`.

use std::sync::Arc;

use block::Purpose;
use env::RankedMutex;

use crate::core::SPARES_WANTED;
use crate::jobs::dedup::Deduplication;
use crate::jobs::flushes::{flush_maps, full_maps};
use crate::jobs::job::{EachVolume, Job, Left, Plain, Turn};
use crate::jobs::load::Load;
use crate::jobs::merges::{COMPACTION, Merges, is_room_short};
use crate::jobs::meter::Limits;
use crate::jobs::parts::{AFTER_FAILURE_NS, Parts};
use crate::jobs::purge::purge;
use crate::jobs::reclaim::reclaim_all;
use crate::jobs::resync::Resync;
use crate::jobs::room_ahead::RoomAhead;
use crate::jobs::scrub_plan::ScrubJob;
use crate::jobs::scrub_plan::progress::Scrubs;
use crate::jobs::standing::Standing;
use crate::jobs::throttle::Throttle;
use crate::past::backing_copy::Copies;
use crate::pool::faults::FaultNotes;
use crate::{Error, ErrorKind, Result};

/// Device bytes of a step: few, so that stopping never waits long.
const STEP_BYTES: u64 = 8 << 20;
/// The same of work that can wait: some thousand versions.
const WAITING_BYTES: u64 = 128 << 10;
/// The thread rests at most so long before it is seen whether it still can, in nanoseconds.
pub const NAP_NS: u64 = 50_000_000;
/// It makes way at most so long after one round: what expires does so in the next.
const REST_NS_MAX: u64 = 500_000_000;
/// With fewer spare segments than this the log will soon want more.
const SPARES_MIN: usize = 3;
/// Bytes of free zones that are given back to the device in a step.
const GIVEN_BYTES_MAX: u64 = 4 << 20;

/// The failure of a job.
pub struct Failure {
    /// The job.
    pub job: &'static str,
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The error, the first one since it failed.
    pub text: String,
    /// It failed last then.
    at_ns: u64,
}

/// The jobs that failed lately, and why.
pub type Failures = Arc<RankedMutex<Vec<Failure>>>;

/// The jobs, in the order of their turns.
fn jobs(scrubs: &Arc<Scrubs>, limits: &Limits) -> Vec<Box<dyn Job>> {
    let plain = |name, left, step| -> Box<dyn Job> { Box::new(Plain(name, left, step)) };
    let each = |name, left, step| -> Box<dyn Job> { Box::new(EachVolume(name, left, step)) };
    vec![
        plain("trash expiry", Left::NOTHING, |parts, _| parts.expire_trash().map(|()| false)),
        Box::new(FaultNotes::default()),
        plain("spare segments", Left::NOTHING, |parts, _| {
            parts.core.store.collect_freed();
            match parts.core.make_spares(SPARES_WANTED, Purpose::Data) {
                // Without a free zone there are none; writers will find out and make room.
                Err(e) if e.kind != ErrorKind::Full => Err(e),
                _ => Ok(false),
            }
        }),
        Box::new(Resync(Throttle::new(&limits.rebuild))),
        plain("map flush", Left::CAN_WAIT, flush_maps),
        each("expiry", Left::NOTHING, |volume, parts, _| {
            let merging = parts.merging();
            let is_settled = merging.full.is_none() && !merging.is_of(volume);
            volume.expire(is_settled).map(|()| false)
        }),
        Box::new(RoomAhead::default()),
        Box::new(Copies::default()),
        each("destage", Left::NOW, |volume, _, bytes| volume.destage_behind(bytes)),
        each("filling of places", Left::NOW, |volume, _, _| volume.fill_places()),
        each("settling of places", Left::NOW, |volume, _, bytes| volume.settle_places(bytes)),
        each("deferred places", Left::NOW, |volume, _, bytes| volume.place_deferred(bytes)),
        each("conversion", Left::NOTHING, |volume, parts, _| {
            volume.end_conversion(!parts.merging().is_of(volume)).map(|()| false)
        }),
        plain("giving back", Left::CAN_WAIT, |parts, turn| {
            Ok(parts.core.store.give_back(turn.bytes.min(GIVEN_BYTES_MAX)))
        }),
        Box::new(Merges::default()),
        plain("purge", Left::NOW, |parts, turn| Ok(parts.may_purge(turn.now_ns) && purge(parts)?)),
        // No map is walked beside merges: they may be for room.
        each("counts of versions", Left::CAN_WAIT, |volume, parts, _| {
            Ok(!parts.merging().is_busy && volume.is_served() && volume.count_a_version()?)
        }),
        Box::new(Deduplication),
        Box::new(ScrubJob(Arc::clone(scrubs), Throttle::new(&limits.scrub))),
    ]
}

/// Why the thread rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// There is nothing to do.
    Idle,
    /// Clients write.
    MakesWay,
    /// All that is left has failed, or waits for a time. So many maps were full then, of which
    /// memory asks for a flush, and whether other work was pressed for.
    Failed { full_maps: usize, is_pressed: bool },
}

/// The background work of a pool. Its lock is the right to do some.
pub struct Scheduler {
    pub(super) parts: Arc<Parts>,
    jobs: Vec<Box<dyn Job>>,
    load: Load,
    /// The work that the last round left.
    left: Left,
    rest: (Rest, u64),
    failures: Failures,
    /// How things stood when no room could be made last.
    pub(super) refused: Option<Standing>,
}

impl Scheduler {
    /// That of a pool of these, which keeps these limits and tells failures.
    pub fn new(
        parts: &Arc<Parts>,
        scrubs: &Arc<Scrubs>,
        limits: &Limits,
        failures: &Failures,
    ) -> Scheduler {
        Scheduler {
            parts: Arc::clone(parts),
            jobs: jobs(scrubs, limits),
            load: Load::default(),
            left: Left::NOW,
            rest: (Rest::Idle, 0),
            failures: Arc::clone(failures),
            refused: None,
        }
    }

    fn now_ns(&self) -> u64 {
        self.parts.core.machine.clock.monotonic_ns()
    }

    /// Gives each job, or the one of this name, a turn of so many bytes, or of as many as it does
    /// by itself.
    ///
    /// # Errors
    /// The first failure, when nothing else is left to be done.
    pub fn round(&mut self, bytes: Option<u64>, only: Option<&str>) -> Result<Left> {
        if is_over(&self.parts) {
            return Ok(Left::NOTHING);
        }
        let is_one = |only| self.jobs.iter().any(|job| job.name() == only);
        assert!(only.is_none_or(is_one), "there is a job {only:?}");
        let now_ns = self.now_ns();
        self.load.look(now_ns, &self.parts.registry);
        let is_pressed = self.left == Left::NOW || (self.left.is_more() && self.is_pressed());
        let bytes_of_most = if is_pressed { STEP_BYTES } else { WAITING_BYTES };
        let has_clients = self.load.has_clients(now_ns);
        let mut turn = Turn { now_ns, has_clients, ..Turn::default() };
        let mut left = Left::NOTHING;
        let mut failed: Vec<(&'static str, Error)> = Vec::new();
        for job in &mut self.jobs {
            let name = job.name();
            if only.is_some_and(|only| only != name) {
                continue;
            }
            turn.is_busy = left.is_more();
            turn.bytes = bytes.or(job.bytes()).unwrap_or(bytes_of_most);
            let outcome = job.step(&self.parts, &mut turn);
            failed.extend(turn.failure.take().map(|error| (name, error)));
            match outcome {
                Ok(some) => left = left.and(some),
                Err(error) => failed.push((name, error)),
            }
            if is_over(&self.parts) {
                break;
            }
        }
        self.left = left;
        self.tell(&failed, now_ns);
        let first = failed.into_iter().next().filter(|_| !left.is_more());
        first.map_or(Ok(left), |(_, error)| Err(error))
    }

    /// Notes failures. One is told until it has not been met for a while: what fails in some rounds
    /// only, as a merge at its end, is no news in each.
    fn tell(&self, failed: &[(&'static str, Error)], now_ns: u64) {
        let mut told = self.failures.lock();
        for (job, error) in failed {
            match told.iter_mut().find(|failure| failure.job == *job) {
                Some(failure) => failure.at_ns = now_ns,
                None => {
                    let (kind, text) = (error.kind.clone(), error.to_string());
                    told.push(Failure { job, kind, text, at_ns: now_ns });
                }
            }
        }
        told.retain(|failure| now_ns - failure.at_ns <= AFTER_FAILURE_NS);
    }

    /// Does some work unless it rests, and says for how many nanoseconds it rests now.
    pub fn turn(&mut self) -> u64 {
        let now_ns = self.now_ns();
        self.load.look(now_ns, &self.parts.registry);
        let nap_ns = self.nap_ns(now_ns);
        if nap_ns > 0 {
            return nap_ns;
        }
        let outcome = self.round(None, None);
        let end_ns = self.now_ns();
        self.load.look(end_ns, &self.parts.registry);
        self.rest = match outcome {
            Ok(left) => rest_after(left, now_ns, end_ns),
            Err(_) => self.rest_after_failure(end_ns),
        };
        self.nap_ns(end_ns)
    }

    /// Others may wait for a time that comes sooner: a resync beside clients does.
    fn rest_after_failure(&self, end_ns: u64) -> (Rest, u64) {
        let again_ns = end_ns + AFTER_FAILURE_NS;
        let until_ns = match self.left {
            Left::Until(until_ns) => until_ns.min(again_ns),
            Left::More(_) => again_ns,
        };
        let (full_maps, is_pressed) = (full_maps(&self.parts).len(), self.is_pressed());
        (Rest::Failed { full_maps, is_pressed }, until_ns)
    }

    /// How long it rests before that is looked at again; 0 if it shall go on.
    fn nap_ns(&self, now_ns: u64) -> u64 {
        let (rest, until_ns) = self.rest;
        let goes_on = until_ns > now_ns
            && match rest {
                Rest::Idle => true,
                Rest::MakesWay => self.load.has_writers(now_ns) && !self.is_pressed(),
                Rest::Failed { full_maps: full, is_pressed } => {
                    full_maps(&self.parts).len() <= full && (is_pressed || !self.is_pressed())
                }
            };
        if goes_on { (until_ns - now_ns).min(NAP_NS) } else { 0 }
    }

    /// Whether nothing waits for clients: they would soon wait for it.
    fn is_pressed(&self) -> bool {
        is_room_short(&self.parts.core.store)
            || self.parts.core.store.spares().len() < SPARES_MIN
            || !full_maps(&self.parts).is_empty()
    }

    /// Lets go of all that is under way: it holds room.
    pub fn give_up(&mut self) {
        self.jobs.iter_mut().for_each(|job| job.give_up(&self.parts));
    }

    /// Keeps what is under way as far as it is done: the pool is about to be closed.
    ///
    /// # Errors
    /// Those of commits; want of room is none.
    pub fn finish(&mut self) -> Result<()> {
        let finished = self.jobs.iter_mut().map(|job| match job.finish(&self.parts) {
            Err(e) if e.kind == ErrorKind::Full => Ok(()),
            outcome => outcome,
        });
        finished.fold(Ok(()), Result::and)
    }

    /// Removes deleted volumes that nobody needs, at once: merges under way may be of them.
    ///
    /// # Errors
    /// `Refused` or `Io`.
    pub fn purge(&mut self) -> Result<()> {
        let merges = self.jobs.iter_mut().filter(|job| job.name() == COMPACTION);
        merges.for_each(|merges| merges.give_up(&self.parts));
        purge(&self.parts).map(drop)
    }

    /// Drops and moves together all that can be, once, as long as `goes_on`.
    ///
    /// # Errors
    /// Those of the merges.
    pub fn reclaim_all(&mut self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        reclaim_all(&self.parts, goes_on)?;
        self.purge()
    }
}

fn is_over(parts: &Parts) -> bool {
    parts.core.is_closed() || parts.core.store.has_failed()
}

/// Why the thread rests after a round that did not fail, and until when.
fn rest_after(left: Left, began_ns: u64, end_ns: u64) -> (Rest, u64) {
    match left {
        Left::More(parts) => {
            let took_ns = end_ns.saturating_sub(began_ns);
            let rest_ns = took_ns.saturating_mul(u64::from(parts - 1)).min(REST_NS_MAX);
            (Rest::MakesWay, end_ns + rest_ns)
        }
        Left::Until(until_ns) => (Rest::Idle, until_ns.min(end_ns + NAP_NS)),
    }
}

#[cfg(test)]
mod tests;
