//! How requests are read: JSON bodies, queries, paths. A fault becomes a problem, not a panic.

use std::time::Duration;

use api::ProblemKind;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::answer::Refusal;
use crate::settings::HTTP_PATIENCE;

/// How long a body may take to come, on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience(pub(crate) Duration);

/// A JSON body; one that is not there is an empty object.
pub(crate) struct Body<T>(pub(crate) T);

/// A query.
pub(crate) struct Asked<T>(pub(crate) T);

/// The parameters of a path.
pub(crate) struct Named<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        match serde_json::from_slice(&json_body(request).await?) {
            Ok(body) => Ok(Body(body)),
            Err(error) => Err(Refusal::malformed(format!("the body: {error}"), None)),
        }
    }
}

/// The bytes of a JSON body.
async fn json_body(request: Request) -> Result<Bytes, Refusal> {
    let media_type = request.headers().get(CONTENT_TYPE).map(|v| v.to_str().unwrap_or(""));
    let refused = || {
        // Only a script that this server let in can send this type; a form of another site
        // cannot.
        Refusal::new(ProblemKind::MediaType, "the body is not application/json")
            .with_hint("send the header Content-Type: application/json")
    };
    let is_untyped = media_type.is_none();
    if !media_type.is_none_or(is_json) {
        return Err(refused());
    }
    let patience = request.extensions().get().map_or(HTTP_PATIENCE, |Patience(patience)| *patience);
    let reading = tokio::time::timeout(patience, Bytes::from_request(request, &()));
    let Ok(read) = reading.await else {
        let text = format!("the body did not come within {patience:?}");
        return Err(Refusal::new(ProblemKind::TooSlow, text));
    };
    let bytes = read.map_err(too_large)?;
    if bytes.is_empty() {
        // Nothing was said: as if no field were given.
        return Ok(Bytes::from_static(b"{}"));
    }
    if is_untyped {
        return Err(refused());
    }
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        // The decoder would take the values of an array for the fields in their order.
        return Err(Refusal::malformed("the body: an array, expected an object", None));
    }
    Ok(bytes)
}

/// Refuses a change that names no setting: a body that was forgotten is no success.
pub(crate) fn some_change<T: Default + PartialEq>(change: &T) -> Result<(), Refusal> {
    if *change == T::default() {
        return Err(Refusal::malformed("the body names no setting: nothing was changed", None));
    }
    Ok(())
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn too_large(rejection: BytesRejection) -> Refusal {
    let kind = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ProblemKind::TooLarge,
        _ => ProblemKind::Malformed,
    };
    Refusal::new(kind, rejection.body_text())
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Asked(query)),
            Err(rejection) => Err(Refusal::malformed(rejection.body_text(), None)),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(names)) => Ok(Named(names)),
            Err(rejection) => Err(Refusal::malformed(rejection.body_text(), None)),
        }
    }
}
