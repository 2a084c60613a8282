//! Calls and replies.

use super::limits::GIDS_MAX;
use crate::xdr::{XdrError, numbered};

/// Number of a kind of credentials or verifier (section 8.2); any number can arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flavor(pub u32);

impl Flavor {
    /// `AUTH_NONE`: nobody.
    pub const NONE: Flavor = Flavor(0);
    /// `AUTH_SYS`: a user and groups, as the client says.
    pub const SYS: Flavor = Flavor(1);
    /// `AUTH_SHORT`: in place of credentials sent before.
    pub const SHORT: Flavor = Flavor(2);
    /// `RPCSEC_GSS`: RFC 2203.
    pub const RPCSEC_GSS: Flavor = Flavor(6);
    /// `AUTH_TLS`: asks whether TLS is spoken (RFC 9289).
    pub const TLS: Flavor = Flavor(7);
}

/// Groups of a user, beside the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gids {
    gids: [u32; GIDS_MAX],
    count: usize,
}

impl Gids {
    /// Adds a group; false, without adding it, when there are 16.
    pub fn push(&mut self, gid: u32) -> bool {
        let Some(place) = self.gids.get_mut(self.count) else { return false };
        *place = gid;
        self.count += 1;
        true
    }

    /// The groups.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.gids[..self.count]
    }
}

/// The body of `AUTH_SYS` (appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthSys<'a> {
    /// Any number of the client's.
    pub stamp: u32,
    /// The client's name for itself.
    pub machine_name: &'a [u8],
    /// The user.
    pub uid: u32,
    /// The user's first group.
    pub gid: u32,
    /// The user's other groups.
    pub gids: Gids,
}

/// On whose behalf a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials<'a> {
    /// Nobody's.
    None,
    /// A user's.
    Sys(AuthSys<'a>),
    /// In a way of which only the number was read.
    Other(Flavor),
}

/// A call (section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Returned with the reply; the same in a retransmission.
    pub xid: u32,
    /// Number of the program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Number of the procedure.
    pub procedure: u32,
    /// On whose behalf.
    pub credentials: Credentials<'a>,
    /// The arguments, not yet decoded.
    pub arguments: &'a [u8],
}

numbered! {
    /// `auth_stat`: why credentials or a verifier were refused (section 9). Those of Kerberos 4
    /// are left out.
    AuthStat {
        BadCred = 1, "AUTH_BADCRED", "the credentials are malformed";
        RejectedCred = 2, "AUTH_REJECTEDCRED", "the client must begin a new session";
        BadVerf = 3, "AUTH_BADVERF", "the verifier is malformed";
        RejectedVerf = 4, "AUTH_REJECTEDVERF", "the verifier expired or was replayed";
        TooWeak = 5, "AUTH_TOOWEAK", "refused for reasons of security";
        InvalidResp = 6, "AUTH_INVALIDRESP", "the verifier of the reply is wrong";
        Failed = 7, "AUTH_FAILED", "some unknown reason";
        CredProblem = 13, "RPCSEC_GSS_CREDPROBLEM", "no credentials for the user";
        CtxProblem = 14, "RPCSEC_GSS_CTXPROBLEM", "a problem with the context";
    }
}

/// The outcome of a call that was accepted (`accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// `SUCCESS`: the results follow.
    Success,
    /// `PROG_UNAVAIL`: no such program here.
    ProgUnavail,
    /// `PROG_MISMATCH`: the program is here in other versions.
    ProgMismatch {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// `PROC_UNAVAIL`: the program has no such procedure.
    ProcUnavail,
    /// `GARBAGE_ARGS`: the arguments cannot be decoded.
    GarbageArgs,
    /// `SYSTEM_ERR`: the server failed.
    SystemErr,
}

/// Why a call was not accepted (`reject_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// `RPC_MISMATCH`: the version of RPC is not 2.
    #[error("a version of RPC that is not 2")]
    RpcMismatch,
    /// `AUTH_ERROR`: not with these credentials.
    #[error("{}", .0.name())]
    AuthError(AuthStat),
}

/// A reply, up to the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `MSG_ACCEPTED`
    Accepted(Accepted),
    /// `MSG_DENIED`
    Denied(Denied),
}

/// Why a program cannot execute a call that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentsError {
    /// It has no such procedure.
    #[error("there is no procedure {0}")]
    Procedure(u32),
    /// The arguments cannot be decoded.
    #[error("the arguments are malformed: {0}")]
    Garbage(#[from] XdrError),
}

impl ArgumentsError {
    /// The answer to the call.
    #[must_use]
    pub const fn answer(&self) -> Accepted {
        match self {
            ArgumentsError::Procedure(_) => Accepted::ProcUnavail,
            ArgumentsError::Garbage(_) => Accepted::GarbageArgs,
        }
    }
}
