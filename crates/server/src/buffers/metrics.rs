//! The buffers for Prometheus.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::pool::Buffers;
use crate::prometheus::tell;

/// The metrics of a server's buffers.
pub(crate) struct BuffersCollector(pub(crate) Arc<Buffers>);

impl fmt::Debug for BuffersCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BuffersCollector").finish()
    }
}

impl Collector for BuffersCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let buffers = &self.0;
        for (name, help, value) in [
            ("bytes", "Bytes of all buffers for requests", buffers.total_bytes),
            ("held_bytes", "Bytes of the buffers that requests hold", buffers.held_bytes()),
        ] {
            let name = format!("hindsight_buffers_{name}");
            tell(&mut encoder, (&name, help), ConstGauge::new(value as u64))?;
        }
        for (name, help, count) in [
            ("taken", "Buffers taken for requests", buffers.taken.load(Ordering::Relaxed)),
            ("waits", "Times that a connection had to wait for buffers", buffers.waits()),
            (
                "own",
                "Requests in a connection's own buffer, as none was left",
                buffers.own.load(Ordering::Relaxed),
            ),
        ] {
            let name = format!("hindsight_buffers_{name}");
            tell(&mut encoder, (&name, help), ConstCounter::new(count))?;
        }
        Ok(())
    }
}
