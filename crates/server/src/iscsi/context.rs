//! The state that all iSCSI connections share.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;

use volume::{Pool, Reservations, Token, Volume};

use super::promises::Promises;
use super::refusals::{RefusalCollector, Refusals};
use super::sessions::Sessions;
use super::target_names::Targets;
use super::unit::Units;
use crate::admission::is_loopback;
use crate::fill::Thin;
use crate::serving::Serving;
use crate::who::note_use;

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
    pub(super) sessions: Arc<Sessions>,
    pub(super) units: Arc<Units>,
    pub(super) promises: Promises,
    /// How full the pool is.
    pub(super) thin: Arc<Thin>,
    pub(super) refusals: Arc<Refusals>,
    /// The tokens that initiators log in by.
    pub tokens: ChapTokens,
    /// The addresses that discovery tells; none is the one at which the initiator found us.
    pub announced: Vec<String>,
    /// Initiators from beyond this machine are served without a proof as well.
    pub(super) is_insecure: bool,
    /// Which addresses of ours only this machine reaches.
    pub(super) is_safe: fn(IpAddr) -> bool,
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
            promises: Promises::default(),
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
    pub(super) fn is_exposed(&self, own: Option<SocketAddr>) -> bool {
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
