//! What may have to wait for a device: run on threads that may block, answered when done.
//!
//! Invariant: every job that is started is followed by exactly one `Event::Done`, also when it
//! panics.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use super::counters::NbdCounters;
use super::replies::Replies;
use super::{NbdContext, NbdLimits};

/// What a session is told.
#[expect(clippy::large_enum_variant, reason = "a box for each job's end would be an allocation")]
pub(super) enum Event {
    /// A job ended.
    Done(JobReport),
    /// The session shall end: the server stops, or the volume is taken away.
    Leave,
    /// It had its time to end.
    Expire,
}

/// How a job ended.
pub(super) struct JobReport {
    /// Replies to send.
    pub(super) replies: Replies,
    /// Requests among them that failed.
    pub(super) errors: u64,
    /// What the job was counted as.
    cost_bytes: u64,
    /// How long it took.
    pub(super) time: Duration,
    /// Whether it came to its end; otherwise it panicked.
    pub(super) is_whole: bool,
}

/// The jobs of a session.
pub(super) struct Jobs {
    events: UnboundedSender<Event>,
    limits: NbdLimits,
    counters: Arc<NbdCounters>,
    in_flight: usize,
    in_flight_bytes: u64,
}

impl Jobs {
    pub(super) fn new(events: UnboundedSender<Event>, context: &NbdContext) -> Jobs {
        Jobs {
            events,
            limits: context.limits,
            counters: Arc::clone(&context.counters),
            in_flight: 0,
            in_flight_bytes: 0,
        }
    }

    /// Whether a job of `cost_bytes` can be started now. A first one always can.
    pub(super) fn has_room(&self, cost_bytes: u64) -> bool {
        let total = || self.counters.jobs_in_flight.load(Ordering::Relaxed);
        self.in_flight == 0
            || (self.in_flight < self.limits.in_flight_requests_max
                && self.in_flight_bytes.saturating_add(cost_bytes)
                    <= self.limits.in_flight_bytes_max
                && total() < self.limits.in_flight_total_max)
    }

    /// Whether any job can be started now.
    pub(super) fn is_full(&self) -> bool {
        !self.has_room(0)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Starts a job: it adds replies, and says how many of them are failures.
    pub(super) fn start(
        &mut self,
        cost_bytes: u64,
        work: impl FnOnce(&mut Replies) -> u64 + Send + 'static,
    ) {
        self.in_flight += 1;
        self.counters.jobs_in_flight.fetch_add(1, Ordering::Relaxed);
        self.in_flight_bytes += cost_bytes;
        let mut ticket = Ticket {
            events: self.events.clone(),
            report: Some(JobReport {
                replies: Replies::default(),
                errors: 0,
                cost_bytes,
                time: Duration::ZERO,
                is_whole: false,
            }),
        };
        tokio::task::spawn_blocking(move || {
            let report = ticket.report.as_mut().expect("taken only by drop");
            let began = Instant::now();
            report.errors = work(&mut report.replies);
            report.time = began.elapsed();
            report.is_whole = true;
        });
    }

    /// Accounts for a job that ended.
    pub(super) fn ended(&mut self, report: &JobReport) {
        assert!(self.in_flight > 0, "a job ends once");
        self.in_flight -= 1;
        self.counters.jobs_in_flight.fetch_sub(1, Ordering::Relaxed);
        self.in_flight_bytes -= report.cost_bytes;
    }
}

/// Tells the session when it is dropped.
struct Ticket {
    events: UnboundedSender<Event>,
    report: Option<JobReport>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(report) = self.report.take() {
            // A session that is gone needs no report.
            let _ = self.events.send(Event::Done(report));
        }
    }
}
