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
    /// Directory of the pool on this machine [default: that of the configuration file].
    #[arg(long, value_name = "DIR")]
    pool: Option<PathBuf>,
    /// Configuration file of the server [default: /etc/hindsight/config.toml if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let client = session.client()?;
    let mut report = Report::default();
    let served = match served::ask(&client) {
        Ok(served) => Some(served),
        Err(error) => {
            report.not_looked(SERVER, error.to_string());
            None
        }
    };
    if let Some(served) = &served {
        served::look(served, &mut report);
    }
    let file = args.config.clone().unwrap_or_else(|| PathBuf::from(CONFIG_FILE_DEFAULT));
    let config = if args.config.is_some() || file.exists() {
        settings::look(&file, args.pool.as_deref(), &mut report)
    } else {
        None
    };
    let process = match client.address() {
        ServerAddress::Unix(socket) if served.is_some() => machine::process(socket),
        ServerAddress::Unix(_) | ServerAddress::Http { .. } => None,
    };
    machine::look_at_clock(&mut report);
    if let Some(process) = process {
        machine::look_at_process(process, config.as_ref(), &mut report);
    }
    let pool = args.pool.clone().or(config.map(|config| config.pool_dir));
    let pool = pool.or_else(|| beside(client.address()));
    match &pool {
        Some(pool) => machine::look_at_folder(pool, &mut report),
        None => report.not_looked("file-system", "the pool's directory is unknown: give --pool"),
    }
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    session.answer(&report, text)?;
    Ok(report.exit_code())
}

/// The pool in whose directory the socket lies.
fn beside(address: &ServerAddress) -> Option<PathBuf> {
    let ServerAddress::Unix(socket) = address else { return None };
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
