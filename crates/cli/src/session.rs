//! What every command has: the server's address and how to answer.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use api::{Client, ServerAddress};
use serde::Serialize;

use crate::failure::Failure;

/// The server's address and how to answer.
#[derive(Debug)]
pub struct Session {
    server: String,
    token: Option<TokenSource>,
    /// Whether to answer in JSON.
    pub json: bool,
}

/// Where the token of a server over TCP is had from.
pub enum TokenSource {
    Text(String),
    File(PathBuf),
}

impl std::fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenSource")
    }
}

impl Session {
    pub fn new(server: String, token: Option<TokenSource>, json: bool) -> Session {
        Session { server, token, json }
    }

    /// A client of the server.
    pub fn client(&self) -> anyhow::Result<Client> {
        let address: ServerAddress = self.server.parse().map_err(Failure::usage)?;
        let token = match &self.token {
            // A unix socket asks for none.
            _ if matches!(address, ServerAddress::Unix(_)) => None,
            None => None,
            Some(TokenSource::Text(text)) => Some(text.clone()),
            Some(TokenSource::File(path)) => {
                let text = std::fs::read_to_string(path);
                let text = text.with_context(|| format!("cannot read {}", path.display()))?;
                Some(text.trim().to_owned())
            }
        };
        let address = match token {
            Some(token) => address.with_token(token),
            None => address,
        };
        Ok(Client::new(address)?)
    }

    /// Prints `answer` as JSON, or what `people` makes of it.
    pub fn answer<T: Serialize>(
        &self,
        answer: &T,
        people: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        let mut text =
            if self.json { serde_json::to_string_pretty(answer)? } else { people(answer) };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()?;
        Ok(())
    }
}

/// Says something on standard error; nobody listening is no failure.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
