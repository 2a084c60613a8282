//! `hindsight token`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::{AccessToken, CreateToken, ExitCode, Pattern, RoleName, SpanInput};
use clap::Subcommand;
use serde_json::json;
use std::str::FromStr;
use terminal::arguments::span;

use units::{Malformed, NamePattern, Role, Span};

use crate::failure::Failure;
use crate::output::Table;
use crate::session::{Session, say};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a token: whoever shows it over TCP may what its role says, with the volumes that it
    /// sees. It is told once.
    Create {
        /// Name of the token; audit records carry it.
        name: String,
        /// viewer: no data; reader: reads it; keeper: makes versions and marks, undoes none;
        /// operator: both, and writes; admin: all.
        #[arg(long, value_name = "ROLE", value_parser = role)]
        role: Role,
        /// Volumes that it sees, such as 'pg*'; it may be given several times [default: all].
        #[arg(long = "volume", value_name = "PATTERN", value_parser = pattern)]
        volumes: Vec<NamePattern>,
        /// How long it is good, such as 90d [default: for ever].
        #[arg(long, value_name = "SPAN", value_parser = span)]
        expires: Option<Span>,
        /// Write it to a new file that only its owner may read, instead of standard output.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Make it a secret for CHAP too, in a new file that only its owner may read: an initiator
        /// logs in over iSCSI with the token's name and that.
        #[arg(long, value_name = "FILE")]
        chap: Option<PathBuf>,
    },
    /// List tokens.
    #[command(visible_alias = "ls")]
    List,
    /// Show a token, without its secret.
    Show {
        /// Name of the token.
        name: String,
    },
    /// Revoke a token: nobody is let in by it any more.
    Revoke {
        /// Name of the token.
        name: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
}

pub fn role(text: &str) -> Result<Role, String> {
    read(text)
}

pub fn pattern(text: &str) -> Result<NamePattern, String> {
    read(text)
}

fn read<T: FromStr<Err = Malformed>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|e: Malformed| format!("{e}: {}", e.hint.as_deref().unwrap_or_default()))
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Create { name, role, volumes, expires, output, chap } => {
            let asked = CreateToken {
                name,
                role: RoleName(role),
                volumes: volumes.into_iter().map(Pattern).collect(),
                expires: expires.map(SpanInput),
                chap: chap.is_some(),
            };
            create(session, &asked, (output.as_deref(), chap.as_deref()))?;
        }
        Verb::List => session.answer(&session.client()?.tokens()?, |all| list(all))?,
        Verb::Show { name } => session.answer(&session.client()?.token(&name)?, show)?,
        Verb::Revoke { name, dry_run } => {
            let client = session.client()?;
            let token = client.token(&name)?;
            let answer = json!({"token": name, "revoked": !dry_run});
            if dry_run {
                let text = format!("token {name} ({}) would be revoked", token.prefix);
                let would = api::Would::new("revoke", name, text);
                session.would(&[would], &answer, |_| String::new())?;
            } else {
                client.revoke_token(&name)?;
                say(&format!("token {name}: revoked"));
                session.answer(&answer, |_| String::new())?;
            }
        }
    }
    Ok(ExitCode::Done)
}

fn create(
    session: &Session,
    asked: &CreateToken,
    (output, chap): (Option<&Path>, Option<&Path>),
) -> anyhow::Result<()> {
    let client = session.client()?;
    // Files that cannot be are found before there is a token that nobody has.
    let output = output.map(SecretFile::new).transpose()?;
    let chap = chap.map(SecretFile::new).transpose()?;
    let mut made = client.create_token(asked)?;
    if let Err(error) = keep(&mut made, (output, chap)) {
        // Nobody has it, and so nobody is to be let in by it.
        client.revoke_token(&made.name)?;
        return Err(error);
    }
    if made.secret.is_some() {
        say(&format!("token {}: keep it, it is not told again", made.name));
    }
    let secret = made.secret.clone().unwrap_or_default();
    session.answer(&made, |_| secret)
}

/// Writes secrets to the files that are for them, and takes them out of what is told.
fn keep(
    made: &mut AccessToken,
    (output, chap): (Option<SecretFile<'_>>, Option<SecretFile<'_>>),
) -> anyhow::Result<()> {
    made.secret.as_ref().context("the server told no secret")?;
    let mut kept = Vec::new();
    for (file, secret) in [(output, &mut made.secret), (chap, &mut made.chap_secret)] {
        let Some(mut file) = file else { continue };
        file.write(&secret.take().context("the server told no secret")?)?;
        kept.push(file);
    }
    for file in &mut kept {
        file.is_kept = true;
        say(&format!("token {}: in {}", made.name, file.path.display()));
    }
    Ok(())
}

/// A new file for a secret; gone again unless it is kept.
struct SecretFile<'p> {
    path: &'p Path,
    file: std::fs::File,
    is_kept: bool,
}

impl SecretFile<'_> {
    fn new(path: &Path) -> anyhow::Result<SecretFile<'_>> {
        Ok(SecretFile { path, file: new_file(path)?, is_kept: false })
    }

    fn write(&mut self, secret: &str) -> anyhow::Result<()> {
        let written = writeln!(self.file, "{secret}").and_then(|()| self.file.sync_all());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for SecretFile<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            // The error that was the cause is the one to tell.
            let _ = std::fs::remove_file(self.path);
        }
    }
}

fn new_file(path: &Path) -> anyhow::Result<std::fs::File> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|error| {
        let failure = Failure::new(format!("cannot make {}: {error}", path.display()));
        failure.with_hint("give the path of a file that is not there yet").into()
    })
}

fn seen(token: &AccessToken) -> String {
    if token.volumes.is_empty() { "all".to_owned() } else { token.volumes.join(" ") }
}

fn until(token: &AccessToken) -> String {
    match token.expires {
        Some(time) if token.expired => format!("{time} (expired)"),
        Some(time) => time.to_string(),
        None => "-".to_owned(),
    }
}

/// A day as `2026-11-28`.
fn day(token: &AccessToken) -> String {
    let text = token.last_used.map(|time| time.to_string());
    text.as_deref().and_then(|text| text.get(..10)).unwrap_or("-").to_owned()
}

fn list(tokens: &[AccessToken]) -> String {
    Table::of(tokens)
        .left("NAME", |token| token.name.clone())
        .left("TOKEN", |token| format!("{}...", token.prefix))
        .left("ROLE", |token| token.role.to_string())
        .left("VOLUMES", |token| seen(token))
        .left("EXPIRES", |token| until(token))
        .left("LAST USED", |token| day(token))
        .text()
}

fn show(token: &AccessToken) -> String {
    let made_by = token.made_by.clone().unwrap_or_else(|| "-".to_owned());
    crate::output::pairs(&[
        ("name", token.name.clone()),
        ("token", format!("{}...", token.prefix)),
        ("role", token.role.to_string()),
        ("volumes", seen(token)),
        ("created", token.created.to_string()),
        ("made by", made_by),
        ("expires", until(token)),
        ("last used", day(token)),
        ("iscsi", if token.chap { "logs in by CHAP" } else { "-" }.to_owned()),
    ])
}
