//! A session between two turns.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use wire::nbd::{ReplyStyle, Request};

use super::asked::WriteRequest;
use super::context::NbdContext;
use super::contexts::MetaContext;
use crate::buffers::{Chain, Taker};
use crate::meters::VolumeMeter;
use crate::serving::{
    Connection, Event, Export, GroupMemory, Input, Jobs, Output, Stall, Tally, Watch,
};
use crate::who::Caller;

/// Stop executing requests while this many bytes of replies wait to be sent.
pub(super) const OUTPUT_BYTES_MAX: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    Draining,
    Leaving,
    Dead,
}

/// The kind of the next bytes from the client.
pub(super) enum Receiving {
    /// Requests with payloads that fit the receive buffer.
    Requests,
    /// The rest of a payload that nobody wants; then its reply is sent.
    Skip { left_bytes: u64, reply: Vec<u8> },
    /// A payload with a buffer of its own.
    Payload { request: Request, payload: Chain, filled: usize },
}

/// One connection that has an export open.
pub(super) struct Session {
    pub(super) export: Arc<dyn Export>,
    pub(super) style: ReplyStyle,
    pub(super) contexts: Arc<[MetaContext]>,
    pub(super) context: Arc<NbdContext>,
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) jobs: Jobs<WriteRequest>,
    pub(super) taker: Taker,
    pub(super) group: GroupMemory<WriteRequest>,
    pub(super) tally: Tally,
    pub(super) meter: Option<Arc<VolumeMeter>>,
    pub(super) seen: Vec<trace::Request>,
    pub(super) receiving: Receiving,
    pub(super) phase: Phase,
    /// The client sends no more.
    pub(super) is_silent: bool,
    /// While something waits and nothing is received.
    pub(super) watch: Option<Watch>,
    /// It could not be watched, and that was said.
    pub(super) is_unwatched: bool,
    /// Bytes may be left in the TLS layer.
    pub(super) is_unflushed: bool,
    pub(super) stall: Stall,
    /// Bytes of payloads that were received into buffers of their own.
    pub(super) payload_bytes: u64,
    pub(super) connection: Connection,
    pub(super) events: UnboundedReceiver<Event<WriteRequest>>,
    pub(super) client: String,
    pub(super) caller: Caller,
}
