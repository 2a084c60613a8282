//! The state that all NBD connections share.

use std::ops::Deref;
use std::sync::Arc;

use env::RankedRwLock;
use rustls::ServerConfig;
use volume::Token;

use crate::AccessConfig;
use crate::serving::Serving;

/// The state that all connections share.
pub struct NbdContext {
    /// The state that other front ends have as well.
    pub serving: Serving,
    /// TLS for TCP connections, which then must use it; unix sockets are their owner's alone.
    /// A reload replaces it, and does not begin or end it: connections keep what they began with.
    pub tls: RankedRwLock<Option<Arc<ServerConfig>>>,
    /// The rights that no token has.
    pub access: AccessConfig,
    /// The token of a name, for certificates.
    pub token_named: TokenNamed,
}

/// Finds the token of a name, if there is one and it is good.
pub type TokenNamed = Box<dyn Fn(&str) -> Option<Arc<Token>> + Send + Sync>;

impl Deref for NbdContext {
    type Target = Serving;

    fn deref(&self) -> &Serving {
        &self.serving
    }
}
