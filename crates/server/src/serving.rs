//! All that front ends share: the disks that are served, and what of a session is no protocol.
//!
//! ```text
//! threads   accept, count, deal sockets to data threads (one single-threaded runtime each), which
//!           stay awake for a lone request (`polling`)
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
mod room;
mod shared;
mod socket;
mod stall;
mod subject;
mod threads;
mod unix_socket;
mod watch;
mod writing;

pub(crate) use asked::{Asked, RequestKind, as_in_traces};
pub use counters::{Collected, Counters, STAGES};
pub(crate) use counters::{Stage, Tally};
pub use engine::PoolExports;
pub use export::{Changes, Export, Exports, Listed, OpenError, Stretch};
pub(crate) use group::{Group, GroupMemory};
pub(crate) use input::{INLINE_PAYLOAD_BYTES_MAX, INPUT_BYTES, Input};
pub(crate) use jobs::{Event, JobReport, Jobs, Kind, Threads};
pub(crate) use latency::Counts;
pub(crate) use opening::{Attached, attach, off_thread, try_attach};
pub(crate) use output::Output;
pub(crate) use replies::Replies;
pub use room::RoomQueue;
pub use shared::{Limits, Serving};
#[cfg(test)]
pub(crate) use socket::AHEAD_BYTES_MAX;
pub(crate) use socket::Connection;
pub(crate) use stall::Stall;
pub(crate) use subject::common_name;
pub(crate) use threads::Given;
pub use threads::{DataThreads, FrontEnd, Listeners};
pub(crate) use watch::{End, Watch, watch_for_leave};
pub(crate) use writing::{Left, Rest, What, Writing};
