//! What may have to wait for a device: run on threads that may block, answered when done.
//!
//! Invariant: every job that is started is followed by exactly one `Event::Done`, also when it
//! panics.

use tokio::sync::mpsc::UnboundedSender;

use super::NbdLimits;

/// What a session is told.
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
    pub(super) replies: Vec<u8>,
    /// Requests among them that failed.
    pub(super) errors: u64,
    /// What the job was counted as.
    cost_bytes: u64,
    /// Whether it came to its end; otherwise it panicked.
    pub(super) is_whole: bool,
}

/// The jobs of a session.
pub(super) struct Jobs {
    events: UnboundedSender<Event>,
    requests_max: usize,
    bytes_max: u64,
    in_flight: usize,
    in_flight_bytes: u64,
}

impl Jobs {
    pub(super) fn new(events: UnboundedSender<Event>, limits: &NbdLimits) -> Jobs {
        Jobs {
            events,
            requests_max: limits.in_flight_requests_max,
            bytes_max: limits.in_flight_bytes_max,
            in_flight: 0,
            in_flight_bytes: 0,
        }
    }

    /// Whether a job of `cost_bytes` can be started now. A first one always can.
    pub(super) fn has_room(&self, cost_bytes: u64) -> bool {
        self.in_flight == 0
            || (self.in_flight < self.requests_max
                && self.in_flight_bytes.saturating_add(cost_bytes) <= self.bytes_max)
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
        work: impl FnOnce(&mut Vec<u8>) -> u64 + Send + 'static,
    ) {
        self.in_flight += 1;
        self.in_flight_bytes += cost_bytes;
        let mut ticket = Ticket {
            events: self.events.clone(),
            report: Some(JobReport { replies: Vec::new(), errors: 0, cost_bytes, is_whole: false }),
        };
        tokio::task::spawn_blocking(move || {
            let report = ticket.report.as_mut().expect("taken only by drop");
            report.errors = work(&mut report.replies);
            report.is_whole = true;
        });
    }

    /// Accounts for a job that ended.
    pub(super) fn ended(&mut self, report: &JobReport) {
        assert!(self.in_flight > 0, "a job ends once");
        self.in_flight -= 1;
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
