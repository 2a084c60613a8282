//! Problems, as `application/problem+json` (RFC 9457), and the exit codes of commands.
//!
//! The `type` is `urn:hindsight:problem:` and a word that never changes; [`ProblemKind`] has them.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Stamp;

/// The media type of a problem.
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

const TYPE_PREFIX: &str = "urn:hindsight:problem:";

/// Declares the kinds with their stable word, HTTP status, title and exit code.
macro_rules! problem_kinds {
    ($($(#[$doc:meta])* $name:ident $word:literal $status:literal $exit:expr, $title:literal;)*)
    => {
        /// Every kind of problem the server reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ProblemKind { $($(#[$doc])* $name,)* }

        impl ProblemKind {
            /// All of them.
            pub const ALL: &[ProblemKind] = &[$(ProblemKind::$name,)*];

            /// The stable word at the end of the `type`.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(ProblemKind::$name => $word,)* }
            }

            /// The HTTP status it is sent with.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(ProblemKind::$name => $status,)* }
            }

            /// One line that is the same for every problem of the kind.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(ProblemKind::$name => $title,)* }
            }

            /// The exit code of a command that met it.
            #[must_use]
            pub fn exit_code(self) -> ExitCode {
                match self { $(ProblemKind::$name => $exit,)* }
            }
        }
    };
}

problem_kinds! {
    /// The request could not be read: bad JSON, an unknown field, a moment that is none.
    Malformed "malformed" 400 ExitCode::Usage, "The request could not be understood";
    /// Nobody is known to call: over TCP a token is needed.
    Unauthorized "unauthorized" 401 ExitCode::Refused, "A token is needed";
    /// The caller may not, or the request came from another web site, or names another host.
    Forbidden "forbidden" 403 ExitCode::Refused, "The request was refused";
    /// No such volume, version or mark.
    NotFound "not-found" 404 ExitCode::NotFound, "No such thing";
    /// No such path in this API.
    NoRoute "no-route" 404 ExitCode::Failed, "No such path";
    /// The path does not take this method.
    Method "method-not-allowed" 405 ExitCode::Failed, "The path does not take this method";
    /// The body did not come in time.
    TooSlow "too-slow" 408 ExitCode::Failed, "The request took too long to come";
    /// The name is taken.
    Exists "exists" 409 ExitCode::Failed, "The name is taken";
    /// In use: later, or with force.
    Busy "busy" 409 ExitCode::Busy, "In use";
    /// Clients asked for too little to go by.
    NotMeasured "not-measured" 409 ExitCode::Failed, "Too little was measured";
    /// The moment cannot be opened (any more, or yet).
    OutsideWindow "outside-window" 410 ExitCode::OutsideWindow,
        "The moment lies outside what can be opened";
    /// The body is too long.
    TooLarge "too-large" 413 ExitCode::Failed, "The request is too long";
    /// The body is not JSON.
    MediaType "media-type" 415 ExitCode::Failed, "The body must be application/json";
    /// A value that can never be right.
    Invalid "invalid" 422 ExitCode::Usage, "A value that can never be right";
    /// Too many wrong tokens within a minute.
    TooMany "too-many" 429 ExitCode::Busy, "Too many wrong tokens";
    /// A mistake of ours, or a device that failed.
    Internal "internal" 500 ExitCode::Failed, "The server failed";
    /// Stored bytes do not match their checksum.
    Corrupt "corrupt" 500 ExitCode::Failed, "Stored data is damaged";
    /// Writes are refused until the pool is opened again.
    RefusingWrites "refusing-writes" 503 ExitCode::Failed, "The pool refuses writes";
    /// The server is stopping.
    Stopping "stopping" 503 ExitCode::Busy, "The server is stopping";
    /// No space left; deletes still work.
    Full "full" 507 ExitCode::Failed, "No space left";
}

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// The command line was wrong.
    Usage = 2,
    /// Partly done.
    Partly = 3,
    /// No such volume, version or mark.
    NotFound = 10,
    /// Busy or locked.
    Busy = 11,
    /// Refused by authentication.
    Refused = 12,
    /// Outside the window.
    OutsideWindow = 13,
    /// The file system on a volume cannot be read.
    Unreadable = 14,
    /// Interrupted.
    Interrupted = 130,
}

/// A problem as it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:hindsight:problem:` and a stable word.
    #[serde(rename = "type")]
    #[schema(example = "urn:hindsight:problem:not-found")]
    pub kind: String,
    /// The same for every problem of the type.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// This case, in words for people.
    pub detail: String,
    /// The way out, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// With `outside-window`: the oldest moment that can be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Stamp>,
    /// With `outside-window`: the present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Stamp>,
}

impl Problem {
    /// A problem without a hint.
    #[must_use]
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("{TYPE_PREFIX}{}", kind.word()),
            title: kind.title().to_owned(),
            status: kind.status(),
            detail: detail.into(),
            hint: None,
            oldest: None,
            latest: None,
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }

    /// Which kind it is; `None` for one that a later server added.
    #[must_use]
    pub fn problem_kind(&self) -> Option<ProblemKind> {
        let word = self.kind.strip_prefix(TYPE_PREFIX)?;
        ProblemKind::ALL.iter().copied().find(|kind| kind.word() == word)
    }

    /// The exit code of a command that met it.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self.problem_kind() {
            Some(kind) => kind.exit_code(),
            None if self.status == 401 || self.status == 403 => ExitCode::Refused,
            None => ExitCode::Failed,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::{ExitCode, Problem, ProblemKind};

    #[test]
    fn every_kind_is_found_again_by_its_type() {
        for &kind in ProblemKind::ALL {
            let problem = Problem::new(kind, "x");
            assert_eq!(problem.problem_kind(), Some(kind));
            assert_eq!(problem.status, kind.status());
        }
    }

    #[test]
    fn the_document_lists_every_kind_with_its_status_and_exit_code() {
        let document = include_str!("../../../docs/http.md");
        for &kind in ProblemKind::ALL {
            let (word, status, exit) = (kind.word(), kind.status(), kind.exit_code() as u8);
            let row = format!("| `{word}` | {status} | {exit} |");
            assert!(document.contains(&row), "docs/http.md lacks: {row}");
        }
    }

    #[test]
    fn a_problem_of_a_later_server_still_gives_an_exit_code() {
        let mut problem = Problem::new(ProblemKind::Forbidden, "x");
        problem.kind = "urn:hindsight:problem:brand-new".to_owned();
        assert_eq!(problem.exit_code(), ExitCode::Refused);
        problem.status = 418;
        assert_eq!(problem.exit_code(), ExitCode::Failed);
    }

    #[test]
    fn the_json_leaves_out_what_is_not_there() {
        let json = serde_json::to_value(Problem::new(ProblemKind::Full, "no space")).expect("json");
        let keys: Vec<&String> = json.as_object().expect("object").keys().collect();
        assert_eq!(keys, ["detail", "status", "title", "type"]);
    }
}
