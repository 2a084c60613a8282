//! Proofs of moments: asked for, and what checks said.

use std::sync::Arc;

use api::{ProblemKind, Time, Verification, Verify};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use units::{Moment, Role, WallTime};

use super::answer::{Answer, Refusal};
use super::ask::{Body, Named};
use super::context::{Context, moment};
use crate::proving::Wanted;
use crate::scratch;

/// The word for one that has not ended.
const RUNNING: &str = "running";

fn under_way(wanted: &Wanted) -> Verification {
    Verification {
        seq: wanted.at.seq.0,
        time: Time(wanted.at.time),
        hook: wanted.hook.clone(),
        verdict: RUNNING.to_owned(),
        asked: Time(wanted.asked),
        took_ms: None,
        said: String::new(),
    }
}

fn kept(proof: volume::Proof) -> Verification {
    Verification {
        seq: proof.seq,
        time: Time(WallTime::from_nanos(proof.time_ns)),
        hook: proof.hook,
        verdict: proof.verdict.name().to_owned(),
        asked: Time(WallTime::from_nanos(proof.proved_ns)),
        took_ms: Some(proof.took_ns / 1_000_000),
        said: proof.said,
    }
}

/// Lists what checks said of moments of a volume, the last first; those that run or wait as well.
#[utoipa::path(get, path = "/volumes/{volume}/verifications", tag = "verifications",
    responses((status = 200, body = Vec<Verification>)))]
pub(super) async fn list(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<Json<Vec<Verification>>> {
    context
        .engine(move |context| {
            let volume = context.volume(&name)?;
            // One that ends between the two looks is in both, and told once.
            let running = context.proving.under_way(volume.id());
            let mut all: Vec<Verification> = volume.proofs().into_iter().map(kept).collect();
            for wanted in running.iter().map(under_way) {
                let is_same = |one: &Verification| {
                    (one.seq, one.asked, &one.hook) == (wanted.seq, wanted.asked, &wanted.hook)
                };
                if !all.iter().any(is_same) {
                    all.push(wanted);
                }
            }
            // A check may have said what it read.
            if !context.caller()?.may(Role::Reader) {
                all.iter_mut().for_each(|one| one.said.clear());
            }
            all.reverse();
            Ok(Json(all))
        })
        .await
}

/// Has a hook check a moment of a volume, on a scratch clone, when its turn comes.
#[utoipa::path(post, path = "/volumes/{volume}/verifications", tag = "verifications",
    request_body = Verify,
    responses(
        (status = 202, body = Verification),
        (status = 404, description = "There is no such volume or moment, or the configuration has \
            no such hook with `verify`"),
        (status = 409, description = "Too many wait"),
        (status = 410, description = "The moment lies outside the window"),
    ))]
pub(super) async fn create(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<Verify>,
) -> Answer<(StatusCode, Json<Verification>)> {
    let at = body.at.as_deref().map_or(Ok(Moment::Latest), moment)?;
    context
        .engine(move |context| {
            context.check_verify(Some(&body.hook))?;
            let volume = context.volume(&name)?;
            let at = volume.resolve(&at)?;
            let asked = WallTime::from_nanos(scratch::now_ns());
            let wanted = Wanted { volume: Arc::clone(&volume), at, hook: body.hook, asked };
            let told = under_way(&wanted);
            if !context.proving.ask(wanted) {
                let text = "too many checks wait for their turn";
                return Err(Refusal::new(ProblemKind::Busy, text).with_hint("ask again later"));
            }
            Ok((StatusCode::ACCEPTED, Json(told)))
        })
        .await
}
