//! Counters of all connections. Sessions count for themselves and add up once a turn, so that
//! threads seldom meet here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::latency::{Counts, Latencies};
use crate::prometheus::{tell, tell_each};

/// Counters since the server started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that are open.
    pub connections_open: AtomicU64,
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections closed at once because there were too many.
    pub connections_refused: AtomicU64,
    /// Connections that ended before a disk was chosen.
    pub handshakes_failed: AtomicU64,
    /// Clients that were disconnected, as others waited for buffers that they held.
    pub clients_stalled: AtomicU64,
    /// Requests received.
    pub requests: AtomicU64,
    /// Requests answered with an error.
    pub errors: AtomicU64,
    /// Times that requests were carried out together.
    pub turns: AtomicU64,
    /// Requests that went to a thread that may block.
    pub jobs: AtomicU64,
    /// Time spent in each of [`STAGES`], in nanoseconds; that of sessions from a sample.
    pub stages_ns: [AtomicU64; STAGES.len()],
    /// Time in which data threads stayed awake for a next request, in nanoseconds.
    pub polled_ns: AtomicU64,
    /// How long requests took, by kind.
    pub latencies: Latencies,
    /// Those of them that have not ended.
    pub jobs_in_flight: AtomicU64,
    /// Writes that wait until there is room for them, or the map is written out.
    pub writes_waiting: AtomicU64,
    /// Writes that did.
    pub writes_waited: AtomicU64,
}

/// The stages of requests: what data threads receive, carry out and send, and what jobs do beside.
pub const STAGES: [&str; 4] = ["receive", "execute", "send", "job"];
/// One of so many wake-ups of a session is timed.
const TIMED_EVERY: u64 = 16;

/// A stage of the data threads, by its place in [`STAGES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Receive,
    Execute,
    Send,
}

/// Times the stages of one wake-up, if it is one of the sample.
pub(crate) struct Laps(Option<Instant>);

/// The counts of one session since it last added up.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) turns: u64,
    pub(crate) jobs: u64,
    /// Requests that were carried out at once since the last execution ended.
    pub(crate) at_once: Counts,
    stages_ns: [u64; STAGES.len()],
    wakes: u64,
}

impl Tally {
    /// Begins a wake-up.
    pub(crate) fn laps(&mut self) -> Laps {
        self.wakes += 1;
        Laps((self.wakes % TIMED_EVERY == 1).then(Instant::now))
    }

    /// A stage ended that began with the last one's end; how long it took.
    pub(crate) fn lap(&mut self, laps: &mut Laps, stage: Stage) -> Option<Duration> {
        let began = laps.0.as_mut()?;
        let now = Instant::now();
        let took = now - *began;
        self.stages_ns[stage as usize] += nanos(took) * TIMED_EVERY;
        *began = now;
        Some(took)
    }

    /// The stage ended in which requests are carried out.
    pub(crate) fn executed(&mut self, laps: &mut Laps, counters: &Counters) {
        let counts = std::mem::take(&mut self.at_once);
        if let Some(took) = self.lap(laps, Stage::Execute) {
            counters.latencies.observe(&counts, took, TIMED_EVERY);
        }
    }

    /// A job took so long.
    pub(crate) fn job_took(&mut self, time: Duration) {
        self.stages_ns[STAGES.len() - 1] += nanos(time);
    }

    /// Adds up, and begins anew; the number of requests.
    pub(crate) fn add_to(&mut self, counters: &Counters) -> u64 {
        let add = |counter: &AtomicU64, count: u64| {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        };
        add(&counters.requests, self.requests);
        add(&counters.errors, self.errors);
        add(&counters.turns, self.turns);
        add(&counters.jobs, self.jobs);
        for (counter, count) in counters.stages_ns.iter().zip(self.stages_ns) {
            add(counter, count);
        }
        let wakes = self.wakes;
        std::mem::replace(self, Tally { wakes, ..Tally::default() }).requests
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The counters of a front end of that name for Prometheus.
#[derive(Debug)]
pub struct Collected(pub &'static str, pub Arc<Counters>);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let Collected(front_end, counters) = self;
        let rising = [
            ("connections", "Connections accepted", &counters.connections),
            ("connections_refused", "Connections beyond the limit", &counters.connections_refused),
            ("handshakes_failed", "Connections without an export", &counters.handshakes_failed),
            ("clients_stalled", "Clients that kept others waiting", &counters.clients_stalled),
            ("requests", "Requests received", &counters.requests),
            ("errors", "Requests answered with an error", &counters.errors),
            ("turns", "Times that requests were carried out together", &counters.turns),
            ("jobs", "Requests that could have had to wait for a device", &counters.jobs),
            ("writes_waited", "Writes that had to wait for room", &counters.writes_waited),
        ];
        for (name, help, counter) in rising {
            let name = format!("hindsight_{front_end}_{name}");
            let counter = ConstCounter::new(counter.load(Ordering::Relaxed));
            tell(&mut encoder, (&name, help), counter)?;
        }
        counters.latencies.encode(front_end, &mut encoder)?;
        let name = format!("hindsight_{front_end}_stage_seconds");
        let stages = STAGES.iter().zip(&counters.stages_ns).map(|(stage, spent)| {
            let spent = ConstCounter::new(spent.load(Ordering::Relaxed) as f64 / 1e9);
            ([("stage", *stage)], spent)
        });
        let help = "Time in the stages of requests, of all threads together";
        tell_each(&mut encoder, (&name, help), stages)?;
        let name = format!("hindsight_{front_end}_polling_seconds");
        let polled = ConstCounter::new(counters.polled_ns.load(Ordering::Relaxed) as f64 / 1e9);
        let help = "Time in which threads stayed awake for the next request of a client";
        tell(&mut encoder, (&name, help), polled)?;
        for (name, help, gauge) in [
            ("connections_open", "Connections that are open", &counters.connections_open),
            ("jobs_in_flight", "Jobs that have not ended", &counters.jobs_in_flight),
            ("writes_waiting", "Writes that wait for room", &counters.writes_waiting),
        ] {
            let name = format!("hindsight_{front_end}_{name}");
            tell(&mut encoder, (&name, help), ConstGauge::new(gauge.load(Ordering::Relaxed)))?;
        }
        Ok(())
    }
}
