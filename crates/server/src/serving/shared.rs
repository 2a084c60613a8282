//! The state that the connections of a front end share, and their limits.

use std::sync::Arc;
use std::time::Duration;

use super::counters::Counters;
use super::export::Exports;
use super::room::RoomQueue;
use crate::meters::Meters;
use crate::taps::Taps;
use crate::{Attachments, Buffers};

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
