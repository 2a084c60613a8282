//! For machines that watch: metrics, health, readiness.

use std::sync::LazyLock;

use api::ProblemKind;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::answer::{Answer, Refusal};
use super::context::Context;
use crate::logs::has_panicked;
use crate::no_space::MAKE_ROOM;

/// The media type of what Prometheus reads.
const METRICS_MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Metrics as Prometheus reads them.
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(super) async fn metrics(State(context): State<Context>) -> Answer<Response> {
    let text = context.engine(|context| Ok(context.metrics.text())).await?;
    Ok(([(CONTENT_TYPE, METRICS_MEDIA_TYPE)], text).into_response())
}

/// The words of `/readyz` for a pool without room for writes.
static DEGRADED_FULL: LazyLock<String> =
    LazyLock::new(|| format!("degraded: writes fail for want of room: {MAKE_ROOM}\n"));
/// The same of one with less redundancy than it is to have.
const DEGRADED_MEMBERS: &str =
    "degraded: a member is out, or not up to date yet: see hindsight pool status\n";

/// Whether the pool takes writes.
#[utoipa::path(get, path = "/healthz", tag = "health",
    responses((status = 200, body = String, content_type = "text/plain"),
        (status = 503),))]
pub(super) async fn healthz(State(context): State<Context>) -> Answer<&'static str> {
    let state = context.engine(|context| Ok(context.pool.status().state)).await?;
    // One that is degraded serves.
    let (detail, hint) = match (has_panicked(), state) {
        (true, _) => {
            let hint = "the server's log has the panic; the server ends: start it again";
            ("a thread of the server panicked".to_owned(), hint)
        }
        (false, "refusing-writes") => {
            let hint = "see the server's log for the device that failed, then restart the server";
            (format!("the pool is {state}"), hint)
        }
        (false, _) => return Ok("ok\n"),
    };
    Err(Refusal::new(ProblemKind::RefusingWrites, detail).with_hint(hint))
}

/// Whether clients may come: the pool takes writes, the server is neither starting nor stopping.
///
/// The text begins with `degraded:` where something is to be done: reads are served, so it is 200.
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, body = String, content_type = "text/plain"),
        (status = 503),))]
pub(super) async fn readyz(State(context): State<Context>) -> Answer<&'static str> {
    if !context.is_ready() {
        return Err(Refusal::new(ProblemKind::Stopping, "the server is starting or stopping"));
    }
    let healthy = healthz(State(context.clone())).await?;
    if context.no_space.is_recent() {
        return Ok(DEGRADED_FULL.as_str());
    }
    let state = context.engine(|context| Ok(context.pool.status().state)).await?;
    Ok(if state == "degraded" { DEGRADED_MEMBERS } else { healthy })
}
