//! Clients that are told that there is no room: counted, and told to the operator, who can do
//! something about it, once a minute; `/readyz` says so as long as it lasts.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use env::RankedMutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;

use crate::prometheus::tell;

/// The operator's remedy.
pub(crate) const MAKE_ROOM: &str =
    "delete a version, a mark, a clone or a volume, or make the pool larger (pool grow)";
/// The log says it so often; `/readyz` for so long after the last one.
const MINUTE: Duration = Duration::from_secs(60);

/// Failures for want of room.
#[derive(Debug, Default)]
pub struct NoSpace(RankedMutex<State>);

#[derive(Debug, Default)]
struct State {
    count: u64,
    last: Option<Instant>,
    /// When the log said so, and how many there were by then.
    logged: Option<(Instant, u64)>,
}

impl NoSpace {
    /// A request to `volume` failed for want of room.
    pub(crate) fn note(&self, volume: &str) {
        if let Some(requests) = self.0.lock().note(Instant::now()) {
            let text = "no room: writes fail with ENOSPC; to do:";
            tracing::error!(volume, requests, "{text} {MAKE_ROOM}");
        }
    }

    /// Whether one failed within the last minute.
    pub(crate) fn is_recent(&self) -> bool {
        self.0.lock().last.is_some_and(|last| last.elapsed() < MINUTE)
    }

    /// How many failed.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().count
    }
}

impl State {
    /// Counts one; says how many have failed since the log said so, if it is to say so again.
    fn note(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        self.last = Some(now);
        let (at, by_then) = self.logged.unzip();
        if at.is_some_and(|at| now.duration_since(at) < MINUTE) {
            return None;
        }
        self.logged = Some((now, self.count));
        Some(self.count - by_then.unwrap_or(0))
    }
}

/// Tells Prometheus how many failed.
#[derive(Debug)]
pub(crate) struct NoSpaceCollector(pub(crate) Arc<NoSpace>);

impl Collector for NoSpaceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Times that the pool had no room for what clients wrote: they were told ENOSPC";
        tell(&mut encoder, ("hindsight_nbd_no_space", help), ConstCounter::new(self.0.count()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::State;

    #[test]
    fn it_is_said_at_once_and_then_once_a_minute() {
        let (mut state, began) = (State::default(), Instant::now());
        let mut said = Vec::new();
        for second in 0..200 {
            let requests = state.note(began + Duration::from_secs(second));
            said.extend(requests.map(|requests| (second, requests)));
        }
        assert_eq!(said, [(0, 1), (60, 60), (120, 60), (180, 60)]);
        assert_eq!(state.count, 200);
    }
}
