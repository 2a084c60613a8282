//! Calls about tokens.

use super::target::Target;
use super::{Client, Result};
use crate::{AccessToken, CreateToken};

fn token(name: &str) -> Target {
    Target::new("/tokens").part(name)
}

impl Client {
    /// All tokens by name, without their secrets.
    ///
    /// # Errors
    /// As every call: no server there, or the server's problem.
    pub fn tokens(&self) -> Result<Vec<AccessToken>> {
        self.get(&Target::new("/tokens"))
    }

    /// One token, without its secret.
    pub fn token(&self, name: &str) -> Result<AccessToken> {
        self.get(&token(name))
    }

    /// Makes a token; the answer has its secret.
    pub fn create_token(&self, body: &CreateToken) -> Result<AccessToken> {
        self.post(&Target::new("/tokens"), body)
    }

    /// Revokes a token.
    pub fn revoke_token(&self, name: &str) -> Result<()> {
        self.delete(&token(name))
    }
}
