//! What happened on all connections. Sessions count for themselves and add up once a turn, so that
//! threads seldom meet here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Counters since the server started.
#[derive(Debug, Default)]
pub struct NbdCounters {
    /// Connections that are open.
    pub connections_open: AtomicU64,
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections closed at once because there were too many.
    pub connections_refused: AtomicU64,
    /// Connections that ended before an export was chosen.
    pub handshakes_failed: AtomicU64,
    /// Requests received.
    pub requests: AtomicU64,
    /// Requests answered with an error.
    pub errors: AtomicU64,
    /// Times that requests were carried out together.
    pub turns: AtomicU64,
    /// Requests that went to a thread that may block.
    pub jobs: AtomicU64,
    /// Those of them that have not ended.
    pub jobs_in_flight: AtomicU64,
}

/// What one session counted since it last added up.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) turns: u64,
    pub(super) jobs: u64,
}

impl Tally {
    /// Adds up, and begins anew.
    pub(super) fn add_to(&mut self, counters: &NbdCounters) {
        let add = |counter: &AtomicU64, count: u64| {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        };
        add(&counters.requests, self.requests);
        add(&counters.errors, self.errors);
        add(&counters.turns, self.turns);
        add(&counters.jobs, self.jobs);
        *self = Tally::default();
    }
}

/// The counters for Prometheus.
#[derive(Debug)]
pub struct NbdCollector(pub Arc<NbdCounters>);

impl Collector for NbdCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let counters = &self.0;
        let rising = [
            ("connections", "Connections accepted", &counters.connections),
            ("connections_refused", "Connections beyond the limit", &counters.connections_refused),
            ("handshakes_failed", "Connections without an export", &counters.handshakes_failed),
            ("requests", "Requests received", &counters.requests),
            ("errors", "Requests answered with an error", &counters.errors),
            ("turns", "Times that requests were carried out together", &counters.turns),
            ("jobs", "Requests that could have had to wait for a device", &counters.jobs),
        ];
        for (name, help, counter) in rising {
            let name = format!("hindsight_nbd_{name}");
            let counter = ConstCounter::new(counter.load(Ordering::Relaxed));
            counter.encode(encoder.encode_descriptor(
                &name,
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        for (name, help, gauge) in [
            ("connections_open", "Connections that are open", &counters.connections_open),
            ("jobs_in_flight", "Jobs that have not ended", &counters.jobs_in_flight),
        ] {
            let name = format!("hindsight_nbd_{name}");
            let gauge = ConstGauge::new(gauge.load(Ordering::Relaxed));
            gauge.encode(encoder.encode_descriptor(&name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
