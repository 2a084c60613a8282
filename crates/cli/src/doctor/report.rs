//! What the doctor found, and what it could not look at.

use api::ExitCode;
use serde::Serialize;

/// What is not looked at when the server cannot be asked.
pub const SERVER: &str = "server";

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Worth knowing; the exit code does not count it.
    Note,
    Warning,
    Critical,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The stable name of what was looked at.
    pub check: &'static str,
    pub level: Level,
    pub what: String,
    pub why: String,
    /// What helps.
    pub command: String,
}

/// What was not looked at, and why.
#[derive(Debug, Serialize)]
pub struct NotLooked {
    pub check: &'static str,
    pub why: String,
}

#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub not_looked: Vec<NotLooked>,
}

impl Report {
    pub fn find(
        &mut self,
        (check, level): (&'static str, Level),
        what: impl Into<String>,
        why: impl Into<String>,
        command: impl Into<String>,
    ) {
        let (what, why, command) = (what.into(), why.into(), command.into());
        self.findings.push(Finding { check, level, what, why, command });
    }

    pub fn not_looked(&mut self, check: &'static str, why: impl Into<String>) {
        self.not_looked.push(NotLooked { check, why: why.into() });
    }

    /// The exit code of monitoring plugins, by number.
    pub fn exit_code(&self) -> ExitCode {
        let worst = self.findings.iter().map(|finding| finding.level).max();
        let is_unasked = self.not_looked.iter().any(|one| one.check == SERVER);
        match worst {
            Some(Level::Critical) => ExitCode::Usage,
            _ if is_unasked => ExitCode::Partly,
            Some(Level::Warning) => ExitCode::Failed,
            Some(Level::Note) | None => ExitCode::Done,
        }
    }
}
