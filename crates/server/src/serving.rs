//! All that front ends share: the disks that are served, and what of a session is no protocol.
//!
//! ```text
//! threads   accept, count, deal sockets to data threads (one single-threaded runtime each)
//! socket    the stream under a session; `input` receives from it, `output` sends to it, `watch`
//!           sees its end, `stall` that it moves nothing
//! group     writes of one turn that go to the engine together
//! jobs      what may wait for a device, on threads that may block
//!   writing   a write, as far as it gets, and on once there is room
//! export    the disks, as traits; `engine` implements them over a pool
//! ```
//! A front end says what its requests are (`Asked`) and what is done with a connection
//! (`FrontEnd`).
//!
//! *Absent*: any protocol.

use std::sync::Arc;
use std::time::Duration;

use crate::meters::Meters;
use crate::taps::Taps;
use crate::{Attachments, Buffers};

mod asked;
mod counters;
mod engine;
mod export;
mod group;
mod input;
mod jobs;
mod latency;
mod opening;
mod output;
mod polling;
mod replies;
mod socket;
mod stall;
mod subject;
mod threads;
mod unix_socket;
mod watch;
mod writing;

pub(crate) use asked::{Asked, RequestKind};
pub use counters::{Collected, Counters, STAGES};
pub(crate) use counters::{Stage, Tally};
pub use engine::PoolExports;
pub use export::{Changes, Export, Exports, Listed, OpenError, Stretch};
pub(crate) use group::{Group, GroupMemory};
pub(crate) use input::{INLINE_PAYLOAD_BYTES_MAX, INPUT_BYTES, Input};
pub use jobs::RoomQueue;
pub(crate) use jobs::{Event, JobReport, Jobs, Kind, Threads};
pub(crate) use latency::Counts;
pub(crate) use opening::{Attached, attach, off_thread, try_attach};
pub(crate) use output::Output;
pub(crate) use replies::Replies;
#[cfg(test)]
pub(crate) use socket::AHEAD_BYTES_MAX;
pub(crate) use socket::Connection;
pub(crate) use stall::Stall;
pub(crate) use subject::common_name;
pub(crate) use threads::Given;
pub use threads::{DataThreads, FrontEnd, Listeners};
pub(crate) use watch::{End, Watch, watch_for_leave};
pub(crate) use writing::{Left, Rest, What, Writing};

/// The state that all connections of a front end share, most of it with those of the others.
#[derive(Clone)]
pub struct Serving {
    /// The disks that are served.
    pub exports: Arc<dyn Exports>,
    /// The clients and the volumes that they are attached to.
    pub attachments: Arc<Attachments>,
    /// The limits.
    pub limits: Limits,
    /// The counters of this front end.
    pub counters: Arc<Counters>,
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
pub struct Limits {
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
    /// How long a client may take no answers, or send no data, while others wait for the buffers
    /// that it holds.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 1024,
            in_flight_bytes_max: 64 << 20,
            in_flight_requests_max: 128,
            in_flight_total_max: 4096,
            handshake_step: Duration::from_secs(10),
            handshake_whole: Duration::from_secs(120),
            farewell: Duration::from_secs(5),
            stall: Duration::from_secs(30),
        }
    }
}
