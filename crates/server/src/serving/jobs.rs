//! Jobs, which may have to wait for a device: run on threads that may block, answered when done.
//!
//! Invariants
//! 1. Every job that is started is followed by exactly one `Event::Done` that says so, also when it
//!    panics. A write that lacks room ends as a job and goes on as another, and counts all along.
//! 2. Jobs that change something leave some of their data thread's blocking threads to others, and
//!    those that wait for room are few: whatever stands still, there are threads for reads.
//! 3. A job that waits for its turn to wait for room has no thread meanwhile, and neither lock nor
//!    thread outlasts its session.
//! 4. A job that is given up begins nothing any more: neither a job that has no thread yet, nor the
//!    next step of a write that waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::asked::Asked;
use super::counters::{Counters, nanos};
use super::latency::Counts;
use super::polling::{Asker, Polling};
use super::room::PATIENT_MAX;
use super::shared::{Limits, Serving};
use super::writing::{Left, Writing};

/// Threads that may block, for each data thread: so many cold reads are in flight at once.
pub(crate) const BLOCKING_THREADS_MAX: usize = 64;
/// So many of them only read, should all others stand still.
const LOOKING_THREADS_MIN: usize = 8;

/// Resizes at once: whoever sends many of them keeps neither writes nor flushes from threads.
const RESIZING_MAX: usize = 1;

/// Events of which a session is told.
pub(crate) enum Event<R: Asked> {
    /// A job ended.
    Done(JobReport<R>),
    /// The session shall end: the server stops, or the volume is taken away.
    Leave,
    /// It had its time to end.
    Expire,
}

/// The kind of a job, as far as its thread is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It reads.
    Look,
    /// It writes or flushes, and may wait for others that do.
    Change,
    /// It waits for room.
    Patient,
    /// It changes the size, and may wait for whoever else does, and for room.
    Resize,
}

/// How a job ended.
pub(crate) struct JobReport<R: Asked> {
    /// Replies to send.
    pub(crate) replies: R::Replies,
    /// Requests among them that failed.
    pub(crate) errors: u64,
    /// The things that it leaves behind.
    pub(crate) left: Left<R>,
    /// The bytes that the job was counted as.
    cost_bytes: u64,
    /// Whether it had to wait for room, or for a thread.
    waits: bool,
    /// How long it took.
    pub(crate) time: Duration,
    /// The requests that it answers.
    counts: Counts,
    /// When it began, and as what it went on, the first of them.
    began: Option<Instant>,
    /// How long its requests took, waits for room included; `None` if it never began.
    latency: Option<Duration>,
    /// Whether it came to its end; otherwise it panicked.
    pub(crate) is_whole: bool,
}

/// The jobs that nobody wants any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GivenUp {
    Nothing,
    /// Writes for which there is no room yet.
    Waits,
    /// Everything that has not begun.
    All,
}

/// The blocking threads of a data thread, and its polling.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    changing: Arc<Semaphore>,
    resizing: Arc<Semaphore>,
    polling: Arc<Polling>,
}

impl Threads {
    pub(crate) fn new() -> Threads {
        let others = PATIENT_MAX + RESIZING_MAX + LOOKING_THREADS_MIN;
        Threads {
            changing: Arc::new(Semaphore::new(BLOCKING_THREADS_MAX - others)),
            resizing: Arc::new(Semaphore::new(RESIZING_MAX)),
            polling: Arc::default(),
        }
    }

    /// The polling of the data thread.
    pub(crate) fn polling(&self) -> &Arc<Polling> {
        &self.polling
    }
}

/// The jobs of a session.
pub(crate) struct Jobs<R: Asked> {
    events: UnboundedSender<Event<R>>,
    limits: Limits,
    counters: Arc<Counters>,
    threads: Threads,
    asker: Asker,
    patient: Arc<Semaphore>,
    given_up: watch::Sender<GivenUp>,
    in_flight: usize,
    /// Those of them that had to wait for room, or for a thread.
    waiting: usize,
    in_flight_bytes: u64,
}

impl<R: Asked> Jobs<R> {
    pub(crate) fn new(
        events: UnboundedSender<Event<R>>,
        serving: &Serving,
        threads: &Threads,
    ) -> Jobs<R> {
        Jobs {
            events,
            limits: serving.limits,
            counters: Arc::clone(&serving.counters),
            threads: threads.clone(),
            asker: threads.polling.join(),
            patient: Arc::clone(&serving.room.0),
            given_up: watch::Sender::new(GivenUp::Nothing),
            in_flight: 0,
            waiting: 0,
            in_flight_bytes: 0,
        }
    }

    /// Whether a job of `cost_bytes` can be started now. A first one always can.
    pub(crate) fn has_room(&self, cost_bytes: u64) -> bool {
        let total = || self.counters.jobs_in_flight.load(Ordering::Relaxed);
        self.in_flight == 0
            || (self.in_flight < self.limits.in_flight_requests_max
                && self.in_flight_bytes.saturating_add(cost_bytes)
                    <= self.limits.in_flight_bytes_max
                && total() < self.limits.in_flight_total_max)
    }

    /// Whether any job can be started now.
    pub(crate) fn is_full(&self) -> bool {
        !self.has_room(0)
    }

    /// The session rests, having taken up so many requests.
    pub(crate) fn rest(&self, requests: u64) {
        let polled = nanos(self.threads.polling.rest(self.asker, requests, self.in_flight));
        if polled > 0 {
            self.counters.polled_ns.fetch_add(polled, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Whether something waits for room or for a thread, perhaps for long.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Starts a job: it adds replies, and says how many of them are failures.
    pub(crate) fn start(
        &mut self,
        kind: Kind,
        cost_bytes: u64,
        counts: Counts,
        work: impl FnOnce(&mut R::Replies) -> u64 + Send + 'static,
    ) {
        let ticket = self.begin(cost_bytes, counts, None);
        self.run(kind, ticket, None, move |report| report.errors = work(&mut report.replies));
    }

    /// Starts a job that waits for room, if need be until `until` for its turn to wait: it is to
    /// see then that it is late.
    pub(crate) fn start_patiently(
        &mut self,
        cost_bytes: u64,
        counts: Counts,
        until: Instant,
        work: impl FnOnce(&mut R::Replies) -> u64 + Send + 'static,
    ) {
        let ticket = self.begin(cost_bytes, counts, None);
        let work = move |report: &mut JobReport<R>| report.errors = work(&mut report.replies);
        self.run(Kind::Patient, ticket, Some(until), work);
    }

    /// Starts a write. Another job waits for the lack that it ends with.
    pub(crate) fn write(&mut self, cost_bytes: u64, mut writing: Writing<R>) {
        let ticket = self.begin(cost_bytes, writing.counts(), None);
        if writing.has_to_wait() {
            return self.wait(ticket, writing);
        }
        let goes_on = self.goes_on();
        self.run(Kind::Change, ticket, None, move |report| {
            if !goes_on() {
                return;
            }
            report.left = match writing.go_on(&goes_on, &mut report.replies) {
                Some(errors) => {
                    report.errors = errors;
                    writing.left()
                }
                None => Left::Write(Box::new(writing)),
            };
        });
    }

    /// A write that lacks something waits for it; the job that it was has ended by `report`.
    pub(crate) fn go_on(&mut self, report: &JobReport<R>, writing: Writing<R>) {
        self.ended(report);
        let ticket = self.begin(report.cost_bytes, report.counts, report.began);
        self.wait(ticket, writing);
    }

    /// Tells a job whether anybody still wants it.
    pub(crate) fn goes_on(&self) -> impl Fn() -> bool + Send + 'static {
        let given_up = self.given_up.subscribe();
        move || !is_given_up(&given_up, GivenUp::All)
    }

    /// Nobody wants anything any more: what has not begun ends, and is not answered.
    pub(crate) fn give_up(&self) {
        self.given_up.send_replace(GivenUp::All);
    }

    /// Nothing waits for room any more: what finds none fails.
    pub(crate) fn give_up_waits(&self) {
        self.given_up.send_if_modified(|given_up| {
            let before = std::mem::replace(given_up, (*given_up).max(GivenUp::Waits));
            before != *given_up
        });
    }

    /// Accounts for a job that ended, and whose requests are answered.
    pub(crate) fn answered(&mut self, report: &JobReport<R>) {
        self.ended(report);
        if let Some(took) = report.latency {
            self.counters.latencies.observe(&report.counts, took, 1);
        }
    }

    /// Accounts for a job that ended.
    pub(crate) fn ended(&mut self, report: &JobReport<R>) {
        assert!(self.in_flight > 0, "a job ends once");
        self.in_flight -= 1;
        self.counters.jobs_in_flight.fetch_sub(1, Ordering::Relaxed);
        self.in_flight_bytes -= report.cost_bytes;
        self.waiting -= usize::from(report.waits);
    }

    fn begin(&mut self, cost_bytes: u64, counts: Counts, began: Option<Instant>) -> Ticket<R> {
        self.in_flight += 1;
        self.counters.jobs_in_flight.fetch_add(1, Ordering::Relaxed);
        self.in_flight_bytes += cost_bytes;
        Ticket {
            events: self.events.clone(),
            report: Some(JobReport {
                replies: R::Replies::default(),
                errors: 0,
                left: Left::Nothing,
                cost_bytes,
                waits: false,
                time: Duration::ZERO,
                counts,
                began,
                latency: None,
                is_whole: false,
            }),
        }
    }

    fn wait(&mut self, ticket: Ticket<R>, mut writing: Writing<R>) {
        let waits = Waits::new(&self.counters, writing.count());
        let given_up = self.given_up.subscribe();
        let until = writing.begin_to_wait();
        self.run(Kind::Patient, ticket, until, move |report| {
            let goes_on = || !is_given_up(&given_up, GivenUp::Waits);
            report.errors = writing.go_on_patiently(&goes_on, &mut report.replies);
            drop(waits);
            report.left = writing.left();
        });
    }

    fn run(
        &mut self,
        kind: Kind,
        mut ticket: Ticket<R>,
        until: Option<Instant>,
        work: impl FnOnce(&mut JobReport<R>) + Send + 'static,
    ) {
        // Boxed: of tasks of each type of work one would be compiled.
        let work: Work<R> = Box::new(work);
        let (threads, end) = match kind {
            Kind::Look => return run_on_thread(ticket, None, work),
            Kind::Change => (&self.threads.changing, GivenUp::All),
            Kind::Patient => (&self.patient, GivenUp::Waits),
            Kind::Resize => (&self.threads.resizing, GivenUp::All),
        };
        let threads = Arc::clone(threads);
        let right = Arc::clone(&threads).try_acquire_owned();
        if kind == Kind::Patient || right.is_err() {
            ticket.report_mut().waits = true;
            self.waiting += 1;
        }
        match right {
            Ok(right) => run_on_thread(ticket, Some(right), work),
            Err(_) => {
                let end = (self.given_up.subscribe(), end, until);
                tokio::spawn(run_in_turn(ticket, threads, end, work));
            }
        }
    }
}

type Work<R> = Box<dyn FnOnce(&mut JobReport<R>) + Send>;

/// Whether that much is given up.
fn is_given_up(given_up: &watch::Receiver<GivenUp>, much: GivenUp) -> bool {
    // A session that is gone wants nothing either.
    *given_up.borrow() >= much || given_up.has_changed().is_err()
}

/// Waits for the right to a thread, with none.
async fn run_in_turn<R: Asked>(
    mut ticket: Ticket<R>,
    threads: Arc<Semaphore>,
    (mut given_up, end, until): (watch::Receiver<GivenUp>, GivenUp, Option<Instant>),
    work: Work<R>,
) {
    tokio::select! {
        biased;
        much = given_up.wait_for(|given_up| *given_up >= end) => {
            // A session that is gone wants no answer either.
            match much.map_or(GivenUp::All, |much| *much) {
                GivenUp::All => ticket.report_mut().is_whole = true,
                // It says so itself, and needs no right to a thread for that.
                GivenUp::Nothing | GivenUp::Waits => run_on_thread(ticket, None, work),
            }
        }
        right = threads.acquire_owned() => {
            run_on_thread(ticket, Some(right.expect("it is never closed")), work);
        }
        // It says so itself.
        () = passed(until) => run_on_thread(ticket, None, work),
    }
}

/// Waits until a time has come; for ever if there is none.
async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

fn run_on_thread<R: Asked>(
    mut ticket: Ticket<R>,
    right: Option<OwnedSemaphorePermit>,
    work: Work<R>,
) {
    tokio::task::spawn_blocking(move || {
        let _right = right;
        let report = ticket.report_mut();
        let began = Instant::now();
        let first = *report.began.get_or_insert(began);
        work(report);
        let ended = Instant::now();
        report.time = ended - began;
        report.latency = Some(ended - first);
        report.is_whole = true;
    });
}

/// Counts writes that wait for room as long as it lives.
struct Waits {
    counters: Arc<Counters>,
    writes: u64,
}

impl Waits {
    fn new(counters: &Arc<Counters>, writes: u64) -> Waits {
        counters.writes_waiting.fetch_add(writes, Ordering::Relaxed);
        counters.writes_waited.fetch_add(writes, Ordering::Relaxed);
        Waits { counters: Arc::clone(counters), writes }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.counters.writes_waiting.fetch_sub(self.writes, Ordering::Relaxed);
    }
}

/// Tells the session when it is dropped.
struct Ticket<R: Asked> {
    events: UnboundedSender<Event<R>>,
    report: Option<JobReport<R>>,
}

impl<R: Asked> Ticket<R> {
    fn report_mut(&mut self) -> &mut JobReport<R> {
        self.report.as_mut().expect("taken only by drop")
    }
}

impl<R: Asked> Drop for Ticket<R> {
    fn drop(&mut self) {
        if let Some(report) = self.report.take() {
            // A session that is gone needs no report.
            let _ = self.events.send(Event::Done(report));
        }
    }
}
