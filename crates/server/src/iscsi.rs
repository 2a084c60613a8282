//! iSCSI sessions: volumes and their past as SCSI disks, over TCP.
//!
//! ```text
//! login      the stages before the full feature phase, limits before anything is believed
//!   chap       who proves what, and how
//!   refusals   how many come to nothing, and why
//!   sessions   who is logged in; a login over a session that is still there awaits its end
//!   targets    names, and what they open; `opened_names` remembers what those of moments mean
//! session    the loop of one connection: receive, execute, send
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

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use volume::{Pool, Reservations, Token, Volume};

use crate::admission::is_loopback;
use crate::fill::Thin;
use crate::serving::{FrontEnd, Given, Serving};
use crate::who::note_use;

mod answer;
mod asked;
mod chap;
mod check;
mod disks;
mod execute;
mod login;
mod opened_names;
mod refusals;
mod reservations;
mod sender;
mod session;
mod sessions;
mod targets;
mod task;
mod unit;

#[cfg(test)]
mod tests;

use login::LoginError;
pub(crate) use refusals::RefusalCollector;
pub use targets::Targets;

/// Bytes of a logical block.
pub(crate) const SECTOR_BYTES: u32 = 512;
/// Commands of a session that are under way at once.
pub(crate) const WINDOW: u32 = 128;

/// The state that all connections share.
pub struct IscsiContext {
    /// The state that other front ends have as well.
    pub serving: Serving,
    /// The names of targets.
    pub targets: Arc<Targets>,
    sessions: Arc<sessions::Sessions>,
    units: Arc<unit::Units>,
    promises: task::Promises,
    /// How full the pool is.
    thin: Arc<Thin>,
    refusals: Arc<refusals::Refusals>,
    /// The tokens that initiators log in by.
    pub tokens: ChapTokens,
    /// The addresses that discovery tells; none is the one at which the initiator found us.
    pub announced: Vec<String>,
    /// Initiators from beyond this machine are served without a proof as well.
    is_insecure: bool,
    /// Which addresses of ours only this machine reaches.
    is_safe: fn(IpAddr) -> bool,
}

type Any = dyn Fn() -> bool + Send + Sync;
type Named = dyn Fn(&str) -> Option<Arc<Token>> + Send + Sync;
type Used = dyn Fn(&Arc<Token>) + Send + Sync;

/// The tokens that initiators log in by, each with its name and its secret for CHAP.
pub struct ChapTokens {
    /// Whether there are any.
    pub any: Box<Any>,
    /// The one of a name, also if it has no secret for CHAP, or has expired.
    pub named: Box<Named>,
    /// One was used.
    pub used: Box<Used>,
}

impl ChapTokens {
    /// Those of a pool.
    #[must_use]
    pub fn of(pool: &Arc<Pool>) -> ChapTokens {
        let (all, found, used) = (Arc::clone(pool), Arc::clone(pool), Arc::clone(pool));
        let has_chap = |token: &Arc<Token>| token.spec.chap.is_some();
        ChapTokens {
            any: Box::new(move || all.tokens().iter().any(has_chap)),
            named: Box::new(move |name| found.token(name).ok()),
            used: Box::new(move |token| note_use(&used, token)),
        }
    }
}

impl Default for ChapTokens {
    fn default() -> ChapTokens {
        ChapTokens { any: Box::new(|| false), named: Box::new(|_| None), used: Box::new(|_| {}) }
    }
}

impl IscsiContext {
    /// Of a front end whose targets are these.
    #[must_use]
    pub fn new(serving: Serving, targets: Targets, is_insecure: bool) -> IscsiContext {
        IscsiContext {
            serving,
            targets: Arc::new(targets),
            sessions: Arc::default(),
            units: Arc::default(),
            promises: task::Promises::default(),
            thin: Arc::default(),
            refusals: Arc::default(),
            tokens: ChapTokens::default(),
            announced: Vec::new(),
            is_insecure,
            is_safe: is_loopback,
        }
    }
}

impl IscsiContext {
    /// Whether others than this machine reach us at an address of ours, and are to prove something.
    fn is_exposed(&self, own: Option<SocketAddr>) -> bool {
        !self.is_insecure && own.is_none_or(|own| !(self.is_safe)(own.ip()))
    }

    /// How full the pool is: whoever watches it says so here.
    pub(crate) fn thin(&self) -> &Arc<Thin> {
        &self.thin
    }

    /// Tells Prometheus how many logins were refused, and why.
    pub(crate) fn refusal_collector(&self) -> RefusalCollector {
        RefusalCollector(Arc::clone(&self.refusals))
    }

    /// The persistent reservations of a volume, and whether they are kept over restarts.
    pub(crate) fn reservations_of(&self, volume: &Volume) -> (Reservations, bool) {
        let unit = self.units.reservations((volume.id(), None));
        // None was on it since the start.
        unit.unwrap_or_else(|| (volume.reservations(), true))
    }

    /// The sessions on a target and on moments of it: its name, the initiator's, and a number.
    pub(crate) fn sessions_of(&self, present: &str) -> Vec<(String, String, u16)> {
        self.sessions.of(present)
    }
}

impl fmt::Debug for IscsiContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IscsiContext").field("targets", &self.targets).finish_non_exhaustive()
    }
}

impl Deref for IscsiContext {
    type Target = Serving;

    fn deref(&self) -> &Serving {
        &self.serving
    }
}

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
