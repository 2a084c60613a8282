//! NBD sessions: volumes and their past as network block devices, over unix and TCP sockets.
//!
//! ```text
//! handshake  options, TLS, the choice of an export and of metadata contexts (`contexts`)
//!   session    the loop of one connection: receive, execute, send; `state` has it between turns
//!     execute    one turn: every whole request in the receive buffer
//!       check      what a request must be, else the error the specification names
//!       asked      requests, as `serving` sees those of all front ends
//!       answer     replies, also of jobs
//! ```
//! Everything else of a session, and the exports, are those of all front ends: `serving`.
//!
//! Invariants
//! 1. A data thread never waits for a device to read, flush or look up, nor for room or another's
//!    turn; aligned writes are handed to the operating system by it, as far as that needs neither.
//! 2. Memory is bounded: a connection stops reading while `Limits` are reached, while it waits
//!    for `buffers`, which all connections share, while a write waits for room in its receive
//!    buffer, or while the client does not take its replies.
//! 3. To any nonsense that a client sends the server answers with an error, or ends that connection
//!    alone.
//! 4. A reply to a flush (or with FUA) is made only after the engine's flush returned.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::serving::{FrontEnd, Given};

mod answer;
mod asked;
mod check;
mod context;
mod contexts;
mod execute;
mod handshake;
mod session;
mod state;

#[cfg(test)]
pub(crate) mod tests;

pub use context::{NbdContext, TokenNamed};

impl FrontEnd for NbdContext {
    fn serve(self: Arc<Self>, given: Given) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(serve(self, given))
    }
}

async fn serve(context: Arc<NbdContext>, given: Given) {
    let Given { connection, client, threads, mut stop } = given;
    let shaken = tokio::select! {
        shaken = handshake::negotiate(connection, &context, stop.clone(), client.clone()) => shaken,
        // Nothing is owed to a client that has no export yet.
        _ = stop.wait_for(|stop| *stop) => return,
    };
    match shaken {
        Ok(Some((connection, chosen))) => {
            let client = chosen.client.clone();
            tracing::info!(client, export = chosen.export.name(), "attached");
            session::serve(connection, chosen, context, threads, stop, client.clone()).await;
            tracing::info!(client, "detached");
        }
        Ok(None) => {}
        Err(error) => {
            context.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            tracing::info!(client, %error, "no session");
        }
    }
}
