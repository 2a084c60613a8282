//! How failures are told: one `error:` line, a `hint:` line, and the exit code.

use std::io::Write;

use api::{ClientError, ExitCode};
use serde_json::json;
use units::Malformed;

/// A failure of the command itself, with its exit code.
#[derive(Debug)]
pub struct Failure {
    /// What to exit with.
    pub code: ExitCode,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure that is none of the special ones.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { code: ExitCode::Failed, message: message.into(), hint: None }
    }

    /// A wrong command line.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: ExitCode::Usage, ..Failure::new(message) }
    }

    /// The same with a hint.
    pub fn with_hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// An exit code, and a hint.
pub type Judgement = (ExitCode, Option<String>);

/// Prints an error, as JSON on one line where that was asked for, and answers what to exit with. A
/// reader that closed the pipe is no error.
pub fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    report_by(|_| None, error, json)
}

/// The same with `known`, which judges errors that only one program has.
pub fn report_by(
    known: impl Fn(&anyhow::Error) -> Option<Judgement>,
    error: &anyhow::Error,
    json: bool,
) -> ExitCode {
    if let Some(io) = error.downcast_ref::<std::io::Error>()
        && io.kind() == std::io::ErrorKind::BrokenPipe
    {
        return ExitCode::Done;
    }
    let (code, hint) = known(error).unwrap_or_else(|| judge(error));
    let message = told_once(error).replace('\n', " ");
    let mut stderr = std::io::stderr().lock();
    if json {
        let _ = writeln!(stderr, "{}", as_json(error, code, message, hint));
        return code;
    }
    // When standard error is closed too there is nobody left to tell.
    let _ = writeln!(stderr, "error: {message}");
    if let Some(hint) = hint {
        let _ = writeln!(stderr, "hint: {}", hint.replace('\n', " "));
    }
    code
}

/// The fields of `application/problem+json`, and the exit code. What the server refused is as it
/// said it; what failed here has the type that RFC 9457 has for that, and no status.
fn as_json(
    error: &anyhow::Error,
    code: ExitCode,
    detail: String,
    hint: Option<String>,
) -> serde_json::Value {
    let mut problem = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Problem(problem)) => json!(problem),
        _ => json!({"type": "about:blank", "title": title(code), "detail": detail}),
    };
    problem["exit_code"] = json!(code as u8);
    if let Some(hint) = hint {
        problem["hint"] = json!(hint);
    }
    problem
}

fn title(code: ExitCode) -> &'static str {
    match code {
        ExitCode::Usage => "The command line is wrong",
        ExitCode::Partly => "Not all of it could be done",
        ExitCode::NotFound => "No such thing",
        ExitCode::Busy => "In use",
        ExitCode::Refused => "The request was refused",
        ExitCode::OutsideWindow => "The moment lies outside what can be opened",
        ExitCode::Unreadable => "The file system cannot be read",
        ExitCode::Interrupted => "It was interrupted",
        ExitCode::Done | ExitCode::Failed => "The command failed",
    }
}

/// An error and its causes, but for causes that it has told already.
fn told_once(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

fn judge(error: &anyhow::Error) -> Judgement {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return (failure.code, failure.hint.clone());
    }
    if let Some(client) = error.downcast_ref::<ClientError>() {
        return (client.exit_code(), client.hint());
    }
    if let Some(error) = error.downcast_ref::<model::Error>() {
        let is_setting = error.kind == model::ErrorKind::Setting;
        let code = if is_setting { ExitCode::Usage } else { ExitCode::Failed };
        return (code, error.hint.clone());
    }
    if let Some(text) = error.downcast_ref::<Malformed>() {
        return (ExitCode::Usage, text.hint.clone());
    }
    (ExitCode::Failed, None)
}

/// What clap says of a command line: help, or what is wrong with it.
pub fn unread(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().any(|argument| argument == "--json");
    if !error.use_stderr() || !json {
        error.exit();
    }
    let text = error.render().to_string();
    let text = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
    let (said, hint) = text.split_once("\nhint: ").unwrap_or((text, ""));
    let mut wrong = Failure::usage(said);
    if !hint.is_empty() {
        wrong = wrong.with_hint(hint);
    }
    report(&wrong.into(), true)
}
