//! What every command has: the server's address and how to answer.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Context;
use api::{Client, ClientTls, ServerAddress, Would};
use serde::Serialize;

use crate::failure::Failure;

/// Tokens of `token create` begin so.
const TOKEN_PREFIX: &str = "hs1_";

/// The server's address and how to answer.
#[derive(Debug)]
pub struct Session {
    server: String,
    token: Option<TokenSource>,
    tls: TlsSource,
    /// Whether to answer in JSON.
    pub json: bool,
    /// Whether what cannot be undone is done without asking.
    yes: bool,
}

/// Where the token of a server over TCP is had from.
pub enum TokenSource {
    /// It was given.
    Text(String),
    /// It is in a file.
    File(PathBuf),
}

/// The files by which a server under TLS is known, and this client.
#[derive(Clone, Debug, Default)]
pub struct TlsSource {
    /// Certificates of the authorities that are believed.
    pub ca: Option<PathBuf>,
    /// The client's certificate, and its key unless that has a file of its own.
    pub cert: Option<PathBuf>,
    /// The client's key.
    pub key: Option<PathBuf>,
}

impl TlsSource {
    fn files(&self) -> anyhow::Result<Option<ClientTls>> {
        let own = match (&self.cert, &self.key) {
            (Some(cert), key) => Some((cert.clone(), key.as_ref().unwrap_or(cert).clone())),
            (None, None) => None,
            (None, Some(_)) => {
                let failure = Failure::usage("--key is given, and no --cert that it belongs to");
                return Err(failure.into());
            }
        };
        // Without an authority the client says what is missing.
        Ok(self.ca.clone().map(|ca| ClientTls { ca, own }))
    }
}

impl std::fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenSource")
    }
}

impl Session {
    /// That of a program that asks a server.
    pub fn new(server: String, token: Option<TokenSource>, json: bool, yes: bool) -> Session {
        Session { server, token, tls: TlsSource::default(), json, yes }
    }

    /// The same with the files for TLS.
    #[must_use]
    pub fn with_tls(self, tls: TlsSource) -> Session {
        Session { tls, ..self }
    }

    /// That of a program that asks no server.
    pub fn without_server(json: bool) -> Session {
        Session::new(String::new(), None, json, true)
    }

    /// Tells a command that is run which server this is of.
    pub fn tell(&self, command: &mut std::process::Command) {
        command.env("HINDSIGHT_SERVER", &self.server);
        match &self.token {
            None => {}
            Some(TokenSource::Text(text)) => _ = command.env("HINDSIGHT_TOKEN", text),
            Some(TokenSource::File(path)) => _ = command.env("HINDSIGHT_TOKEN_FILE", path),
        }
        let TlsSource { ca, cert, key } = &self.tls;
        for (name, file) in [("HINDSIGHT_CA", ca), ("HINDSIGHT_CERT", cert), ("HINDSIGHT_KEY", key)]
        {
            if let Some(file) = file {
                command.env(name, file);
            }
        }
    }

    /// Whether [`Session::confirm`] asks.
    pub fn asks(&self) -> bool {
        !self.yes && io::stdin().is_terminal()
    }

    /// Asks on a terminal whether to do what cannot be undone. Scripts are not asked: their
    /// standard input is none.
    pub fn confirm(&self, what: &str) -> anyhow::Result<()> {
        if !self.asks() {
            return Ok(());
        }
        write!(io::stderr(), "{what}; this cannot be undone. Go on? [y/N] ")?;
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        match line.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => {
                Err(Failure::new("nothing was changed").with_hint("answer y, or give --yes").into())
            }
        }
    }

    /// A client of the server.
    pub fn client(&self) -> anyhow::Result<Client> {
        let address: ServerAddress = self.server.parse().map_err(Failure::usage)?;
        let address = match self.token(&address)? {
            Some(token) => address.with_token(token),
            None => address,
        };
        let is_tls = matches!(address, ServerAddress::Http { is_tls: true, .. });
        let is_proved = self.tls.ca.is_some() || self.tls.cert.is_some();
        if is_proved && !is_tls && !address.is_of_this_machine() {
            let text = format!("--ca or --cert is given, and {address} has no TLS");
            let hint = "give it as https://: a token would be sent to whoever answers";
            return Err(Failure::usage(text).with_hint(hint).into());
        }
        let client = Client::new(address)?;
        Ok(match if is_tls { self.tls.files()? } else { None } {
            Some(files) => client.with_tls(&files)?,
            None => client,
        })
    }

    /// The token that is to be shown. One that nobody would look at is an error: whoever gives it
    /// means to have its rights, and no others.
    fn token(&self, address: &ServerAddress) -> anyhow::Result<Option<String>> {
        let (text, what) = match &self.token {
            None => return Ok(None),
            Some(TokenSource::Text(text)) => (text.clone(), "the token that is given".to_owned()),
            Some(TokenSource::File(path)) => {
                let text = std::fs::read_to_string(path);
                let text = text.with_context(|| format!("cannot read {}", path.display()))?;
                (text, format!("the token in {}", path.display()))
            }
        };
        let text = text.trim();
        if text.is_empty() {
            return Err(Failure::usage(format!("{what} is empty")).into());
        }
        let is_unix = matches!(address, ServerAddress::Unix(..));
        if is_unix && !text.starts_with(TOKEN_PREFIX) {
            let text = format!("{what} is none of `token create`: a unix socket takes no other");
            let hint = "leave it out (--token, --token-file, HINDSIGHT_TOKEN, \
                        HINDSIGHT_TOKEN_FILE): the server knows there who asks";
            return Err(Failure::usage(text).with_hint(hint).into());
        }
        Ok(Some(text.to_owned()))
    }

    /// Where the server is, if that can be read.
    pub fn address(&self) -> Option<ServerAddress> {
        self.server.parse().ok()
    }

    /// Answers a dry run: what would be done as lines of talk, and `answer`, without that, in the
    /// one shape of dry runs.
    pub fn would<T: Serialize>(
        &self,
        would: &[Would],
        answer: &T,
        people: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        tell(would);
        self.answer(&DryRun { answer, dry_run: true, would }, |dry| people(dry.answer))
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

/// What a dry run answers in JSON: what the verb answers when it does it, as it would be, with
/// `dry_run` and what would be done.
#[derive(Serialize)]
struct DryRun<'a, T> {
    #[serde(flatten)]
    answer: &'a T,
    dry_run: bool,
    would: &'a [Would],
}

/// Says what a dry run would do.
pub fn tell(would: &[Would]) {
    would.iter().for_each(|one| say(&one.text));
    say("nothing was changed");
}

/// Says something on standard error; nobody listening is no failure.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
