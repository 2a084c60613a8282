//! How answers and refusals leave: JSON, pages with a Link to the next, problems.

use api::{PROBLEM_MEDIA_TYPE, Problem, ProblemKind, Stamp, Time};
use axum::Json;
use axum::http::header::{CONTENT_TYPE, LINK, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::problem_kind;

/// Why a request was not done.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Box<Problem>);

/// Result of a handler.
pub(crate) type Answer<T> = Result<T, Refusal>;

impl Refusal {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>) -> Refusal {
        Refusal(Box::new(Problem::new(kind, detail)))
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Refusal {
        Refusal(Box::new(self.0.with_hint(hint)))
    }

    /// A moment, size, span or name that cannot be read.
    pub(crate) fn malformed(message: impl Into<String>, hint: Option<String>) -> Refusal {
        let mut problem = Problem::new(ProblemKind::Malformed, message);
        problem.hint = hint;
        Refusal(Box::new(problem))
    }
}

impl From<units::Malformed> for Refusal {
    fn from(error: units::Malformed) -> Refusal {
        Refusal::malformed(error.message, error.hint)
    }
}

impl From<volume::Error> for Refusal {
    fn from(error: volume::Error) -> Refusal {
        let kind = problem_kind(&error.kind);
        let mut problem = Problem::new(kind, error.message.clone());
        problem.hint = error.hint.clone();
        if let volume::ErrorKind::OutsideWindow { oldest, latest } = error.kind {
            let stamp = |(seq, time): (units::Seq, _)| Stamp { seq: seq.0, time: Time(time) };
            problem.oldest = Some(stamp(oldest));
            problem.latest = Some(stamp(latest));
        }
        if kind.status() == 500 {
            let cause: &dyn std::error::Error = &error;
            tracing::error!(error = cause, "a request failed");
        }
        Refusal(Box::new(problem))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.0)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A list, or a part of one with a Link header that names the next part.
pub(crate) struct Listed<T> {
    pub(crate) entries: Vec<T>,
    /// Target of the next part.
    pub(crate) next: Option<String>,
}

impl<T: Serialize> IntoResponse for Listed<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.entries).into_response();
        let link = self.next.map(|next| format!("<{next}>; rel=\"next\""));
        if let Some(link) = link.and_then(|l| HeaderValue::from_str(&l).ok()) {
            response.headers_mut().insert(LINK, link);
        }
        response
    }
}
