//! Calls about tokens.

use super::target::Target;
use super::{Client, Result};
use crate::{AccessToken, CreateCode, CreateToken, Login, LoginCode};

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

    /// Makes a code that lets somebody in once.
    pub fn create_code(&self, body: &CreateCode) -> Result<LoginCode> {
        self.post(&Target::new("/codes"), body)
    }

    /// Uses a code; the answer has the secret of the token that is made for it.
    pub fn login(&self, body: &Login) -> Result<AccessToken> {
        self.post(&Target::new("/login"), body)
    }

    /// Revokes the token that is shown, if a login made it.
    pub fn logout(&self) -> Result<()> {
        self.delete(&Target::new("/login"))
    }

    /// Revokes a token.
    pub fn revoke_token(&self, name: &str) -> Result<()> {
        self.delete(&token(name))
    }
}
