//! Callers: who asks, and what they may. A caller is made at a door, where it came in, and nowhere
//! else; what it may do is asked of it everywhere.
//!
//! 1. A unix socket knows who comes. A token that is shown there makes its caller that
//!    token's, and no more.
//! 2. A caller without patterns sees all volumes. One with patterns sees those that they match, by
//!    the name that a volume has now; all else is not there for it.
//!
//! It does not know what a route or an export needs.

use std::future::Future;
use std::sync::Arc;

use env::{Clock, RealClock};
use units::{NamePattern, Role};
use volume::{Pool, Token};

pub(crate) mod bearer;
pub(crate) mod codes;
pub(crate) mod guesses;

/// Names of users by number.
const USER_FILE: &str = "/etc/passwd";

/// A caller.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// As audit records and logs name it.
    pub(crate) who: Arc<str>,
    /// The address it came from, over TCP.
    pub(crate) from: Option<Arc<str>>,
    pub(crate) role: Role,
    /// It came by a unix socket, and is who that says.
    pub(crate) is_local: bool,
    /// Its token, if it has one.
    token: Option<Arc<Token>>,
}

tokio::task_local! {
    /// The caller of a task, and whether the task changes something.
    static CALLER: (Caller, bool);
}

/// The caller for whom this task works, and whether it changes something.
pub(crate) fn caller() -> Option<(Caller, bool)> {
    CALLER.try_with(Clone::clone).ok()
}

/// Runs work for a caller.
pub(crate) async fn for_caller<T>(
    caller: &Caller,
    changes: bool,
    work: impl Future<Output = T>,
) -> T {
    CALLER.scope((caller.clone(), changes), work).await
}

/// The token that certificates of this name are, if it is good.
pub(crate) fn token_named(pool: &Pool, name: &str) -> Option<Arc<Token>> {
    let now = RealClock::new().wall();
    pool.token(name).ok().filter(|token| !token.is_expired(now))
}

/// Has the day written down on which a token was used.
pub(crate) fn note_use(pool: &Arc<Pool>, token: &Arc<Token>) {
    if token.note_use(RealClock::new().wall()) {
        let (pool, used) = (Arc::clone(pool), Arc::clone(token));
        // Once a day, and nobody waits for it.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = pool.record_token_use(&used) {
                tracing::debug!(%error, "the use of a token was not written down");
            }
        });
    }
}

/// How rights are given that no token has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessConfig {
    /// The role of those whom the mode of a unix socket lets in, but root and the server's user.
    pub group_role: Role,
    /// Whether what destroys history is taken from elsewhere than a unix socket.
    pub remote_deletes: bool,
    /// The certificates that are let in.
    pub certificates: Certificates,
}

/// The certificates that are let in over NBD and HTTP, of those that its authority has signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// All: they may all.
    Any,
    /// Those whose common name is a token's: they may what that may.
    Named,
}

impl Default for AccessConfig {
    fn default() -> AccessConfig {
        AccessConfig {
            group_role: Role::Admin,
            remote_deletes: true,
            certificates: Certificates::Any,
        }
    }
}

impl Caller {
    /// The peer of a unix socket, as far as its user is known.
    pub(crate) fn of_socket(uid: Option<u32>, access: &AccessConfig) -> Caller {
        let own = rustix::process::geteuid().as_raw();
        let role = match uid {
            Some(uid) if uid == 0 || uid == own => Role::Admin,
            _ => access.group_role,
        };
        let who = match uid.map(|uid| (uid, user_name(uid))) {
            Some((uid, Some(name))) => format!("unix:{uid} {name}"),
            Some((uid, None)) => format!("unix:{uid}"),
            None => "unix".to_owned(),
        };
        Caller { is_local: true, ..Caller::seeing_all(who, role, None) }
    }

    fn seeing_all(who: impl Into<Arc<str>>, role: Role, from: Option<&Arc<str>>) -> Caller {
        Caller { who: who.into(), from: from.cloned(), role, is_local: false, token: None }
    }

    /// Somebody who showed the pool's own token.
    pub(crate) fn of_pool_token(from: Option<&Arc<str>>) -> Caller {
        Caller::seeing_all("pool-token", Role::Admin, from)
    }

    /// A client of NBD over TCP that nothing is known of: whoever is let in there may all.
    pub(crate) fn of_nbd(from: &Arc<str>) -> Caller {
        Caller::seeing_all("nbd", Role::Admin, Some(from))
    }

    /// Somebody with a certificate of this common name; none if it is to be a token's, and is not.
    pub(crate) fn of_certificate(
        name: Option<&str>,
        named: impl FnOnce(&str) -> Option<Arc<Token>>,
        access: &AccessConfig,
        from: &Arc<str>,
    ) -> Option<Caller> {
        let who = format!("cert:{}", name.unwrap_or_default());
        match access.certificates {
            Certificates::Any => Some(Caller::seeing_all(who, Role::Admin, Some(from))),
            Certificates::Named => {
                let token = named(name?)?;
                Some(Caller::named(who, &token, Some(from)))
            }
        }
    }

    /// Somebody who showed a token.
    pub(crate) fn of_token(token: &Arc<Token>, from: Option<&Arc<str>>) -> Caller {
        Caller::named(format!("token:{}", token.spec.name), token, from)
    }

    fn named(who: String, token: &Arc<Token>, from: Option<&Arc<str>>) -> Caller {
        Caller {
            who: who.into(),
            from: from.cloned(),
            role: token.spec.role,
            // Over TCP there is an address.
            is_local: from.is_none(),
            token: Some(Arc::clone(token)),
        }
    }

    /// The caller who uses a code that this one made.
    pub(crate) fn by_code(self, from: Arc<str>) -> Caller {
        Caller { who: format!("code:{}", self.who).into(), from: Some(from), ..self }
    }

    /// Whether it comes from where what can take history away is taken from.
    pub(crate) fn may_take(&self, access: &AccessConfig) -> bool {
        self.is_local || access.remote_deletes
    }

    /// The name of its token, if it has one.
    pub(crate) fn token_name(&self) -> Option<&str> {
        self.token.as_ref().map(|token| &*token.spec.name)
    }

    /// Whether its token was revoked since.
    pub(crate) fn is_revoked(&self) -> bool {
        self.token.as_ref().is_some_and(|token| token.is_revoked())
    }

    /// Whether it may do what needs a role.
    pub(crate) fn may(&self, role: Role) -> bool {
        self.role.includes(role)
    }

    /// Patterns of the volumes that it sees; none are all.
    fn volumes(&self) -> &[NamePattern] {
        self.token.as_ref().map_or(&[], |token| &token.spec.volumes)
    }

    /// Whether it sees all volumes, and so all that belongs to none.
    pub(crate) fn sees_all(&self) -> bool {
        self.volumes().is_empty()
    }

    /// Whether it sees a volume of this name.
    pub(crate) fn sees(&self, volume: &str) -> bool {
        self.sees_all() || self.volumes().iter().any(|pattern| pattern.matches(volume))
    }

    /// The patterns of the volumes that it sees.
    pub(crate) fn patterns(&self) -> Vec<String> {
        self.volumes().iter().map(ToString::to_string).collect()
    }
}

/// The name of a user of this machine: for people, numbers are what counts.
fn user_name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string(USER_FILE).ok()?;
    let name = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    };
    users.lines().find_map(name)
}

#[cfg(test)]
mod tests {
    use units::Role;

    use super::{AccessConfig, Caller};

    #[test]
    fn the_unix_socket_gives_a_role_to_those_who_are_neither_root_nor_its_owner() {
        let access = AccessConfig { group_role: Role::Viewer, ..AccessConfig::default() };
        let own = rustix::process::geteuid().as_raw();
        for (uid, role) in [
            (Some(0), Role::Admin),
            (Some(own), Role::Admin),
            (Some(4_000_000_000), Role::Viewer),
            (Some(65_534), Role::Viewer),
            (None, Role::Viewer),
        ] {
            let caller = Caller::of_socket(uid, &access);
            assert_eq!(caller.role, role, "{uid:?}");
            assert!(caller.is_local && caller.sees_all());
        }
        assert_eq!(&*Caller::of_socket(Some(0), &access).who, "unix:0 root");
        assert_eq!(&*Caller::of_socket(Some(4_000_000_000), &access).who, "unix:4000000000");
    }
}
