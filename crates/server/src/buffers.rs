//! Buffers for requests that wait for a device or for their client: of fixed sizes, allocated when
//! the server starts, taken and given back in constant time.
//!
//! Invariants
//! 1. All connections together hold at most what the server was told, a `KEPT`th more to read, and
//!    one buffer of `OWN_BYTES` more for each connection.
//! 2. A connection that finds none left waits in the order of coming, and is woken when some are
//!    given back. It keeps its place only while it still tries, so nobody waits for a connection
//!    that has stopped.
//! 3. However many buffers others hold, a connection that waits for none of its requests can make
//!    one of up to `OWN_BYTES`.
//! 4. A connection that holds a `SHARE`th of them gets no more.
//! 5. Writes may hold theirs for as long as they wait for room: a `KEPT`th is for reads alone.
//! 6. A client that keeps others waiting, and neither takes its answers nor sends its data, loses
//!    its connection (`serving::Stall`).
//! 7. A buffer holds arbitrary bytes when it is taken, of other clients too: who takes one fills it
//!    before anything of it is sent.

mod chain;
mod metrics;
mod pool;
mod taker;
#[cfg(test)]
mod tests;

pub(crate) use chain::Chain;
pub(crate) use metrics::BuffersCollector;
pub use pool::Buffers;
pub(crate) use pool::{BUFFERS_BYTES_DEFAULT, BUFFERS_BYTES_MIN, CLASS_BYTES, OWN_BYTES, Purpose};
pub(crate) use taker::{Share, Taker};
