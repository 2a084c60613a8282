//! The requests of clients, as far as background work makes way for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::pool::registry::Registry;
use crate::volume::Volume;

/// So long after the last request of a client the devices are the background's, in nanoseconds.
const QUIET_NS: u64 = 250_000_000;
/// Clients write as long as the last write was no longer ago than this, in nanoseconds.
const ACTIVE_NS: u64 = 100_000_000;

/// A count that rises, and when it was seen to rise last.
#[derive(Debug, Default)]
struct Rising {
    count: Option<u64>,
    risen_ns: Option<u64>,
}

impl Rising {
    fn look(&mut self, now_ns: u64, count: u64) {
        if self.count.replace(count).is_some_and(|before| before != count) {
            self.risen_ns = Some(now_ns);
        }
    }

    fn is_within(&self, now_ns: u64, span_ns: u64) -> bool {
        self.risen_ns.is_some_and(|risen_ns| now_ns.saturating_sub(risen_ns) < span_ns)
    }
}

/// The load beside the background.
#[derive(Debug, Default)]
pub struct Load {
    requests: Rising,
    writes: Rising,
}

impl Load {
    /// Takes note of what clients have asked for by now.
    pub fn look(&mut self, now_ns: u64, registry: &Registry) {
        let volumes = registry.served();
        self.requests.look(now_ns, requests(&volumes));
        self.writes.look(now_ns, volumes.iter().map(|volume| volume.log().stable().0).sum());
    }

    /// Whether they have asked for something lately.
    pub fn has_clients(&self, now_ns: u64) -> bool {
        self.requests.is_within(now_ns, QUIET_NS)
    }

    /// Whether they write.
    pub fn has_writers(&self, now_ns: u64) -> bool {
        self.writes.is_within(now_ns, ACTIVE_NS)
    }
}

/// Requests of the clients of volumes since the pool was opened: where it rises there are some.
pub fn requests(volumes: &[Arc<Volume>]) -> u64 {
    let tallies = volumes.iter().map(|volume| volume.tally());
    let counts = tallies.flat_map(|tally| [&tally.reads, &tally.writes, &tally.flushes]);
    counts.map(|count| count.load(Ordering::Relaxed)).sum()
}
