//! NFS version 3 and MOUNT: shares and their past as file systems, over TCP.
//! `docs/design/2026-11-28-nfs.md`.
//!
//! ```text
//! shares     the opened shares by the volume's number; moments of them; reverts
//! handles    40 bytes that say all: volume, moment, inode, generation, and a keyed checksum
//! exports    who is allowed, as whom, and to what; `mount` answers MOUNT with it
//! session    the loop of one connection: records in, replies out
//!   look       calls that change nothing, at once if all is in memory, else as jobs
//!   updates    calls that change something: those received together are one transaction
//!   replay     the duplicate request cache; `earlier` is what it was before a restart
//! answer     failures to statuses, attributes to `fattr3`
//! ```
//!
//! Invariants
//! 1. A data thread never waits for a device, for room or for another's turn.
//! 2. Memory is bounded: what is received and not carried out, calls in flight, replies that the
//!    client does not take, moments that are open, and the duplicate request cache.
//! 3. To nonsense the answer is what the RFCs say, or the end of that connection alone.
//! 4. A call that is to be durable is answered after the engine's flush returned.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::RankedMutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use volume::Pool;
use wire::nfs3::Procedure;

use crate::prometheus::tell_each;
use crate::serving::{FrontEnd, Given, Serving};

mod answer;
mod earlier;
mod exports;
mod handles;
mod look;
mod moments;
mod mount;
mod reads;
mod received;
mod replay;
mod session;
mod shares;
#[cfg(test)]
pub(crate) mod tests;
mod updates;

pub(crate) use moments::LIST_NAME;
pub use shares::Shares;
pub(crate) use shares::{Opened, answer_words};

use replay::Replays;

/// Mounts that are remembered for DUMP.
const MOUNTS_MAX: usize = 4096;

/// The state that all connections share.
pub struct NfsContext {
    serving: Serving,
    pool: Arc<Pool>,
    shares: Arc<Shares>,
    replays: Arc<Replays>,
    /// The mounts that clients told of: addresses and paths.
    mounts: RankedMutex<BTreeSet<(IpAddr, String)>>,
    calls: [AtomicU64; Procedure::ALL.len()],
    /// Bytes that sessions have received beyond what each may have.
    received_bytes: AtomicU64,
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

impl FrontEnd for NfsContext {
    fn serve(self: Arc<Self>, given: Given) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        // A unix socket has no address: it is this machine.
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let peer = given.client.parse().unwrap_or(local);
        Box::pin(session::serve(self, given, peer))
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
