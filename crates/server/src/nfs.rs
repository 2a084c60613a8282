//! NFS version 3 and MOUNT: shares and their past as file systems, over TCP.
//! `docs/design/2026-11-28-nfs.md`.
//!
//! ```text
//! shares     the opened shares by the volume's number; moments of them; reverts
//! handles    40 bytes that say all: volume, moment, inode, generation, and a keyed checksum
//! exports    who is allowed, as whom, and to what; `mount` answers MOUNT with it
//! session    the loop of one connection: records in, replies out
//!   look       calls that change nothing, at once if all is in memory, else as jobs; `located` is
//!              the object of a call, `file_system` what is answered alike of all
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

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use crate::serving::{FrontEnd, Given};

mod answer;
mod context;
mod earlier;
mod exports;
mod file_system;
mod handles;
mod located;
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

pub use context::{CallCollector, NfsContext};
pub(crate) use moments::LIST_NAME;
pub use shares::Shares;
pub(crate) use shares::{Opened, answer_words};

impl FrontEnd for NfsContext {
    fn serve(self: Arc<Self>, given: Given) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        // A unix socket has no address: it is this machine.
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let peer = given.client.parse().unwrap_or(local);
        Box::pin(session::serve(self, given, peer))
    }
}
