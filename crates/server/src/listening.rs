//! Where protocols listen.

use std::path::PathBuf;

/// Where one protocol listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// The unix socket.
    pub unix: Option<PathBuf>,
    /// TCP addresses, `HOST:PORT`.
    pub tcp: Vec<String>,
    /// Mode and group of the unix socket.
    pub access: SocketAccess,
}

/// Mode and group of a unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// Its permissions.
    pub mode: u32,
    /// Its group, if not the one the server's files have.
    pub group: Option<u32>,
}

impl Default for SocketAccess {
    fn default() -> SocketAccess {
        SocketAccess { mode: 0o600, group: None }
    }
}
