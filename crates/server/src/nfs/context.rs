//! The state that all NFS connections share.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::RankedMutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use volume::Pool;
use wire::nfs3::Procedure;

use super::replay::Replays;
use super::shares::Shares;
use crate::prometheus::tell_each;
use crate::serving::Serving;

/// Mounts that are remembered for DUMP.
pub(super) const MOUNTS_MAX: usize = 4096;

/// The state that all connections share.
pub struct NfsContext {
    pub(super) serving: Serving,
    pub(super) pool: Arc<Pool>,
    pub(super) shares: Arc<Shares>,
    pub(super) replays: Arc<Replays>,
    /// The mounts that clients told of: addresses and paths.
    pub(super) mounts: RankedMutex<BTreeSet<(IpAddr, String)>>,
    pub(super) calls: [AtomicU64; Procedure::ALL.len()],
    /// Bytes that sessions have received beyond what each may have.
    pub(super) received_bytes: AtomicU64,
}

impl NfsContext {
    /// The shares of a pool.
    #[must_use]
    pub fn new(serving: Serving, pool: Arc<Pool>, shares: Arc<Shares>) -> NfsContext {
        NfsContext {
            serving,
            pool,
            shares,
            replays: Arc::default(),
            mounts: RankedMutex::default(),
            calls: std::array::from_fn(|_| AtomicU64::new(0)),
            received_bytes: AtomicU64::new(0),
        }
    }

    /// The shares.
    #[must_use]
    pub fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }
}

impl fmt::Debug for NfsContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NfsContext").finish_non_exhaustive()
    }
}

impl Deref for NfsContext {
    type Target = Serving;

    fn deref(&self) -> &Serving {
        &self.serving
    }
}

/// The calls of each procedure, for Prometheus.
#[derive(Debug)]
pub struct CallCollector(pub Arc<NfsContext>);

impl Collector for CallCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let help = "Calls received, by procedure";
        let calls = Procedure::ALL.iter().zip(&self.0.calls).map(|(procedure, count)| {
            let count = ConstCounter::new(count.load(Ordering::Relaxed));
            ([("procedure", procedure.name())], count)
        });
        tell_each(&mut encoder, ("hindsight_nfs_calls", help), calls)
    }
}
