//! `hindsight tls`: a small authority of one's own, and what it signs.
//!
//! 1. No server is asked: rights are those of the token that has a client's name.
//! 2. A directory holds the authority and the server's pair under the names that `serve`, QEMU and
//!    libnbd take; `clients/NAME` of it has what client NAME gets, or its certificate alone where
//!    the rest was written elsewhere.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::{ExitCode, Time};
use clap::{Subcommand, value_parser};
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::output::Table;
use crate::session::{Session, say};
use authority::{Authority, CA_CERT, CA_KEY, DAYS_MAX, NAMES_MAX};
use certificate::Certificate;
use place::Placed;

mod authority;
mod certificate;
mod place;

const SERVER_CERT: &str = "server-cert.pem";
const SERVER_KEY: &str = "server-key.pem";
const CLIENT_CERT: &str = "client-cert.pem";
const CLIENT_KEY: &str = "client-key.pem";
const CLIENTS: &str = "clients";
/// Common names have at most so many characters (RFC 5280, appendix A.1).
const COMMON_NAME_MAX: usize = 64;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make an authority, and the certificate by which clients know the server.
    ///
    /// An authority that is in DIR is kept, and signs: a new certificate of the server is made when
    /// the old one and its key were moved away.
    Init {
        /// Directory to write into; made if it is missing.
        dir: PathBuf,
        /// Name or address by which clients reach the server; it may be given several times.
        #[arg(long = "name", value_name = "NAME", required = true, value_parser = server_name)]
        names: Vec<ServerName<'static>>,
        #[command(flatten)]
        validity: Validity,
    },
    /// Make the certificate of a client: ca-cert.pem, client-cert.pem and client-key.pem.
    Client {
        /// Name of the client, and of the token that says what it may.
        #[arg(value_parser = client_name)]
        name: String,
        /// Directory of `tls init`.
        dir: PathBuf,
        /// Directory to write the files into; made if it is missing [default: DIR/clients/NAME].
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        #[command(flatten)]
        validity: Validity,
    },
    /// List the certificates in a directory of `tls init`, and when they end.
    #[command(visible_alias = "ls")]
    List {
        /// Directory of `tls init`.
        dir: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub struct Validity {
    /// Days that the certificate is good, from a day ago on, since clocks may be late. It ends with
    /// the authority, which has ten years, at the latest.
    #[arg(long, default_value_t = 825)]
    #[arg(value_parser = value_parser!(u32).range(2..=i64::from(DAYS_MAX)))]
    days: u32,
}

/// A certificate in a directory.
#[derive(Debug, Serialize)]
struct Listed {
    file: String,
    kind: &'static str,
    names: Vec<String>,
    expires: Time,
    expired: bool,
}

pub fn run(session: &Session, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Init { dir, names, validity } => init(session, &dir, &names, validity.days)?,
        Verb::Client { name, dir, out, validity } => {
            client(session, &name, &dir, out.as_deref(), validity.days)?;
        }
        Verb::List { dir } => session.answer(&listed(&dir)?, |all| list(all))?,
    }
    Ok(ExitCode::Done)
}

/// Exactly what a client can look for in a certificate.
fn server_name(text: &str) -> Result<ServerName<'static>, &'static str> {
    let name = ServerName::try_from(text.to_owned()).ok().filter(|_| !text.ends_with('.'));
    name.ok_or(
        "no name of a host, such as storage.example, and no address, such as 10.0.0.5; ports and \
         wildcards are not part of it, and letters beyond ASCII are written as xn--",
    )
}

/// Exactly what a token can be called, and a certificate can have as its common name.
fn client_name(text: &str) -> Result<String, &'static str> {
    let may = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let fits = text.len() <= COMMON_NAME_MAX
        && text.bytes().all(may)
        && text.starts_with(|first: char| first.is_ascii_alphanumeric());
    fits.then(|| text.to_owned()).ok_or(
        "1 to 64 letters, digits, dots, dashes and underscores, beginning with a letter or digit",
    )
}

fn init(
    session: &Session,
    dir: &Path,
    names: &[ServerName<'static>],
    days: u32,
) -> anyhow::Result<()> {
    if names.len() > NAMES_MAX {
        return Err(Failure::usage(format!("a certificate has at most {NAMES_MAX} names")).into());
    }
    let mut placed = Placed::default();
    placed.directory(dir)?;
    let is_kept = dir.join(CA_CERT).exists();
    let authority = if is_kept { Authority::read(dir)? } else { Authority::make()? };
    let ca_key = authority.key_pem();
    let (cert, key) = authority.issue("hindsight server", names, days)?;
    let files =
        [(CA_KEY, &ca_key), (CA_CERT, &authority.pem), (SERVER_KEY, &key), (SERVER_CERT, &cert)];
    placed.files(dir, if is_kept { &files[2..] } else { &files })?;
    let certificates = own(dir)?;
    placed.keep();
    say(&format!("{CA_KEY} signs for whoever has it: keep it where no server runs"));
    let at = |name: &str| absolute(&dir.join(name));
    let (cert, key, ca) = (at(SERVER_CERT)?, at(SERVER_KEY)?, at(CA_CERT)?);
    let answer = json!({
        "tls_cert": cert, "tls_key": key, "tls_client_ca": ca, "certificates": certificates,
    });
    session.answer(&answer, |answer| {
        let line = |name: &str| format!("{name} = {}\n", answer[name]);
        let lines = ["tls_cert", "tls_key", "tls_client_ca"].map(line).concat();
        format!("# in the configuration, under [nbd], [http] or both\n{lines}")
    })
}

fn client(
    session: &Session,
    name: &str,
    dir: &Path,
    out: Option<&Path>,
    days: u32,
) -> anyhow::Result<()> {
    let authority = Authority::read(dir)?;
    let (cert, key) = authority.issue(name, &[], days)?;
    let files = [(CLIENT_KEY, &key), (CA_CERT, &authority.pem), (CLIENT_CERT, &cert)];
    let own = dir.join(CLIENTS).join(name);
    let mut placed = Placed::default();
    placed.directory(&dir.join(CLIENTS))?;
    // It stands for the name: of two commands at a time one makes it.
    placed.new_directory(&own)?;
    if let Some(out) = out {
        placed.directory(out)?;
        placed.files(out, &files)?;
    }
    placed.files(&own, if out.is_some() { &files[2..] } else { &files })?;
    let folder = absolute(out.unwrap_or(&own))?;
    let made = read(dir, own.join(CLIENT_CERT), "client")?;
    placed.keep();
    say(&format!(
        "client {name}: until {}; where [access] has certificates = \"named\" it may what its \
         token may: hindsight token create {name} --role ROLE",
        made.expires
    ));
    let answer = json!({"name": name, "directory": folder, "expires": made.expires});
    session.answer(&answer, |_| folder.clone())
}

fn absolute(path: &Path) -> io::Result<String> {
    Ok(std::path::absolute(path)?.display().to_string())
}

/// The certificates of the authority and of its server, if it has one.
fn own(dir: &Path) -> anyhow::Result<Vec<Listed>> {
    let mut found = vec![read(dir, authority::certificate(dir)?, "authority")?];
    let server = dir.join(SERVER_CERT);
    if server.exists() {
        found.push(read(dir, server, "server")?);
    }
    Ok(found)
}

/// All certificates in a directory. One of a client that cannot be read hides no other.
fn listed(dir: &Path) -> anyhow::Result<Vec<Listed>> {
    let mut found = own(dir)?;
    let clients = dir.join(CLIENTS);
    if clients.exists() {
        let entries =
            std::fs::read_dir(&clients).and_then(|all| all.collect::<io::Result<Vec<_>>>());
        let entries = entries.with_context(|| format!("cannot read {}", clients.display()))?;
        let files = entries.iter().map(|entry| entry.path().join(CLIENT_CERT));
        let mut files: Vec<PathBuf> = files.filter(|file| file.exists()).collect();
        files.sort();
        for file in files {
            match read(dir, file, "client") {
                Ok(one) => found.push(one),
                Err(error) => say(&format!("warning: {error:#}")),
            }
        }
    }
    Ok(found)
}

fn read(dir: &Path, file: PathBuf, kind: &'static str) -> anyhow::Result<Listed> {
    let Certificate { common_name, names, expires, .. } = Certificate::read(&file)?;
    let names = if names.is_empty() { common_name.into_iter().collect() } else { names };
    let file = file.strip_prefix(dir).unwrap_or(&file).display().to_string();
    let expired = expires <= authority::now()?;
    Ok(Listed { file, kind, names, expires: Time(expires), expired })
}

fn list(all: &[Listed]) -> String {
    Table::of(all)
        .left("FILE", |one| one.file.clone())
        .left("KIND", |one| one.kind.to_owned())
        .left("NAMES", |one| one.names.join(" "))
        .left("EXPIRES", |one| {
            format!("{}{}", one.expires, if one.expired { " (expired)" } else { "" })
        })
        .text()
}
