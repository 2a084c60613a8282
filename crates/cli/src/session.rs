//! What every command has: the server's address and how to answer.

use std::io::{self, Write};

use api::Client;
use serde::Serialize;

use crate::failure::Failure;

/// The server's address and how to answer.
#[derive(Debug)]
pub struct Session {
    server: String,
    /// Whether to answer in JSON.
    pub json: bool,
}

impl Session {
    pub fn new(server: String, json: bool) -> Session {
        Session { server, json }
    }

    /// A client of the server.
    pub fn client(&self) -> anyhow::Result<Client> {
        let address = self.server.parse().map_err(Failure::usage)?;
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
