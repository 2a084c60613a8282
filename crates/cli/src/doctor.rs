//! `hindsight doctor`: looks, and changes nothing.
//!
//! 1. Each finding says what is wrong, why it matters, and the command that helps.
//! 2. What the server knows is asked of it, not computed again.
//! 3. What cannot be looked at is said, and is no finding.
//!
//! Exit codes are those of monitoring plugins: 0 good, 1 a warning, 2 critical, 3 the server could
//! not be asked.

use std::path::{Path, PathBuf};

use api::{ExitCode, ServerAddress};
use server::CONFIG_FILE_DEFAULT;

use crate::failure::Failure;
use crate::session::Session;
use report::{Finding, Level, Report, SERVER};

mod machine;
mod report;
mod served;
mod settings;
#[cfg(test)]
mod tests;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the pool on this machine [default: that of the server].
    #[arg(long, value_name = "DIR")]
    pool: Option<PathBuf>,
    /// Configuration file [default: the server's, or /etc/hindsight/config.toml if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let mut report = Report::default();
    let client = match session.client() {
        // The command line is wrong.
        Err(error) if error.is::<Failure>() => return Err(error),
        client => client,
    };
    let asked = match &client {
        Ok(client) => served::ask(client).map_err(|error| error.to_string()),
        Err(error) => Err(format!("{error:#}")),
    };
    match asked {
        Ok(served) => served::look(&served, &mut report),
        Err(why) => report.not_looked(SERVER, why),
    }
    let socket = match session.address() {
        Some(ServerAddress::Unix(socket, _)) => Some(socket),
        Some(ServerAddress::Http { .. }) | None => None,
    };
    look_here(socket.as_deref(), args, &mut report);
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    session.answer(&report, text)?;
    Ok(report.exit_code())
}

/// Looks at this machine. Without a socket the server may be another machine's: then only what is
/// named is looked at.
fn look_here(socket: Option<&Path>, args: &Args, report: &mut Report) {
    let unknown = match socket {
        Some(_) => "the server's process is not to be seen",
        None => "the server is not asked by its socket, and may be another machine's",
    };
    let process = socket.and_then(machine::process);
    let told = |flag| process.as_ref().and_then(|process| process.told(flag));
    let mut pool = args.pool.clone().or_else(|| beside(socket?)).or_else(|| told("--pool"));
    let default = || {
        let file = PathBuf::from(CONFIG_FILE_DEFAULT);
        socket.and(file.exists().then_some(file))
    };
    let file = args.config.clone().or_else(|| told("--config")).or_else(default);
    let config = file.as_ref().and_then(|file| settings::look(file, &mut pool, report));
    match socket {
        Some(_) => machine::look_at_clock(report),
        None => report.not_looked("clock", unknown),
    }
    if socket.is_none() && file.is_none() {
        report.not_looked("configuration", unknown);
    }
    match &process {
        Some(process) => machine::look_at_process(process, config.as_ref(), report),
        None => ["program", "open-files", "memory"]
            .into_iter()
            .for_each(|check| report.not_looked(check, unknown)),
    }
    match &pool {
        Some(pool) => machine::look_at_folder(pool, report),
        None => report.not_looked("file-system", "the pool's directory is unknown: give --pool"),
    }
}

/// The pool in whose directory the socket lies.
fn beside(socket: &Path) -> Option<PathBuf> {
    let folder = socket.parent()?;
    let is_pool = |name: &str| folder.join(name).exists();
    (is_pool("pool.img") || is_pool("pool.stack")).then(|| Path::to_owned(folder))
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let level = match finding.level {
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Critical => "critical",
        };
        let Finding { check, what, why, command, .. } = finding;
        text += &format!("{level}: {what} [{check}]\n    {why}\n    {command}\n");
    }
    for one in &report.not_looked {
        text += &format!("not looked at: {}: {}\n", one.check, one.why);
    }
    if text.is_empty() {
        text += "nothing is wrong\n";
    }
    text
}
