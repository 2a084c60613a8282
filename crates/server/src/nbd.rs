//! NBD sessions: volumes and their past as network block devices, over unix and TCP sockets.
//!
//! ```text
//! listener  accepts, counts, deals sockets to data threads (one single-threaded runtime each)
//!   handshake  options, TLS, the choice of an export and of metadata contexts (`contexts`)
//!     session    the loop of one connection: receive, execute, send
//!       execute    one turn: every whole request in the receive buffer (`input`)
//!         check      what a request must be, else the error the specification names
//!         group      writes that go to the engine together
//!         jobs       what may wait for a device, on threads that may block
//!           writing    a write, as far as it gets, and on once there is room
//!       output     replies, sent together, those of jobs (`replies`) from the buffers of `buffers`
//! export    what is served, as traits; `engine` implements them over a pool
//! ```
//!
//! Invariants
//! 1. A data thread never waits for a device to read, flush or look up, nor for room or another's
//!    turn; aligned writes are handed to the operating system by it, as far as that needs neither.
//! 2. Memory is bounded: a connection stops reading while `NbdLimits` are reached, while it waits
//!    for `buffers`, which all connections share, while a write waits for room in its receive
//!    buffer, or while the client does not take its replies.
//! 3. To any nonsense that a client sends the server answers with an error, or ends that connection
//!    alone.
//! 4. A reply to a flush (or with FUA) is made only after the engine's flush returned.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::ServerConfig;

use crate::meters::Meters;
use crate::taps::Taps;
use crate::{Attachments, Buffers};

mod answer;
mod check;
mod contexts;
mod counters;
mod engine;
mod execute;
mod export;
mod group;
mod handshake;
mod input;
mod jobs;
mod latency;
mod listener;
mod output;
mod replies;
mod session;
mod socket;
mod subject;
mod tls;
mod unix_socket;
mod watch;
mod writing;

#[cfg(test)]
mod tests;

pub use counters::{NbdCollector, NbdCounters};
pub use engine::PoolExports;
pub use export::{Changes, Export, Exports, Listed, OpenError};
pub use jobs::RoomQueue;
pub use listener::NbdServer;
pub(crate) use tls::untimely;
pub use tls::{TlsError, load_tls};

/// The state that all connections share.
pub struct NbdContext {
    /// The exports that are served.
    pub exports: Arc<dyn Exports>,
    /// The clients and the volumes that they are attached to.
    pub attachments: Arc<Attachments>,
    /// TLS for TCP connections, which then must use it; unix sockets are their owner's alone.
    /// A reload replaces it, and does not begin or end it: connections keep what they began with.
    pub tls: RwLock<Option<Arc<ServerConfig>>>,
    /// The limits.
    pub limits: NbdLimits,
    /// The counters.
    pub counters: Arc<NbdCounters>,
    /// The measurements of volumes.
    pub meters: Arc<Meters>,
    /// Memory for requests that wait.
    pub buffers: Arc<Buffers>,
    /// The recorders of requests.
    pub taps: Arc<Taps>,
    /// Writes that wait for room.
    pub room: RoomQueue,
}

/// Limits of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdLimits {
    /// Connections of a listener at once; more are closed as they arrive.
    pub connections_max: usize,
    /// Bytes of requests that wait for a device, of one connection. A single request may exceed it.
    pub in_flight_bytes_max: u64,
    /// Requests that wait for a device, of one connection.
    pub in_flight_requests_max: usize,
    /// The same of all connections together; each may have one whatever the others do.
    pub in_flight_total_max: u64,
    /// How long one step of the handshake may take.
    pub handshake_step: Duration,
    /// How long the handshake may take.
    pub handshake_whole: Duration,
    /// How long a stopping server waits for clients to take the replies they are owed.
    pub farewell: Duration,
}

impl Default for NbdLimits {
    fn default() -> NbdLimits {
        NbdLimits {
            connections_max: 1024,
            in_flight_bytes_max: 64 << 20,
            in_flight_requests_max: 128,
            in_flight_total_max: 4096,
            handshake_step: Duration::from_secs(10),
            handshake_whole: Duration::from_secs(120),
            farewell: Duration::from_secs(5),
        }
    }
}
