//! iSCSI sessions: volumes and their past as SCSI disks, over TCP.
//!
//! ```text
//! login      the stages before the full feature phase, limits before anything is believed
//!   chap       who proves what, and how
//!   refusals   how many come to nothing, and why
//!   sessions   who is logged in; a login over a session that is still there awaits its end
//!   targets    what names open; `opened_names` remembers what those of moments mean
//! session    the loop of one connection: receive, execute, send; most of its state is in `core`
//!   execute    one turn: every whole PDU in the receive buffer; groups writes
//!     check      unit, attention, reservation, range: the sense that the standards name
//!     transfer   data of writes that is still to come: unsolicited, and asked for by R2T
//!     commands   what each command does; `seldom` those that always are jobs
//!     control    everything but commands: NOP, text, task management, logout
//!   disks      the units of a session, by number, and what rings for it
//!   sender     responses and Data-In, with their numbers and digests, sent together
//! unit       one logical unit: the sessions on it, their attentions, its mode, who reserved it
//!   reservations   the persistent ones
//! answer     the one function from failures of the engine to statuses and sense
//! ```
//! All that other front ends have as well is in `serving`.
//!
//! Invariants
//! 1. A data thread never waits for a device, nor for room or another's turn.
//! 2. Memory is bounded: a window of commands, buffers that all connections share, and a connection
//!    that does not take its answers is not read from.
//! 3. To any nonsense that an initiator sends the target answers as the standards say, or ends that
//!    connection alone.
//! 4. An answer to a flush (or with FUA) is made only after the engine's flush returned.
//! 5. A session has ended only when its jobs have. A login that takes its place, and the answer to
//!    an abort, come after that: nothing of a command lands later than what its initiator did next.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::serving::{FrontEnd, Given};

mod answer;
mod asked;
mod bells;
mod chap;
mod check;
mod context;
mod core;
mod disks;
mod execute;
mod login;
mod opened_names;
mod promises;
mod received;
mod refusals;
mod reservations;
mod sender;
mod session;
mod sessions;
mod target_names;
mod targets;
mod task;
mod unit;

#[cfg(test)]
mod tests;

pub(crate) use context::SECTOR_BYTES;
pub use context::{ChapTokens, IscsiContext};
use login::LoginError;
pub use target_names::Targets;

impl FrontEnd for IscsiContext {
    fn serve(self: Arc<Self>, given: Given) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(serve(self, given))
    }
}

async fn serve(context: Arc<IscsiContext>, given: Given) {
    let Given { connection, client, threads, mut stop } = given;
    let logged_in = tokio::select! {
        logged_in = login::log_in(connection, &context, &client) => logged_in,
        // Nothing is owed to an initiator that is not logged in.
        _ = stop.wait_for(|stop| *stop) => return,
    };
    match logged_in {
        Ok(Some((connection, login))) => {
            let initiator = login.initiator.clone();
            let target = login.target.as_ref().map_or("discovery", |t| &t.name).to_owned();
            let who = login.caller.as_ref().map(|caller| &*caller.who);
            tracing::info!(client, initiator, target, who, "logged in");
            session::serve(connection, login, context, threads, stop, client.clone()).await;
            tracing::info!(client, initiator, target, "logged out");
        }
        Ok(None) => {}
        Err(error) => {
            context.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            if let LoginError::Refused { status, .. } = &error {
                context.refusals.count(*status);
            }
            tracing::info!(client, %error, "no session");
        }
    }
}
