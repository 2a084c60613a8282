//! Tokens: list, create, show, revoke. A secret leaves in one answer, and is nowhere else.

use api::{API_PREFIX, AccessToken, CreateToken, ProblemKind, RoleName, Time};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use env::{Clock, RealClock};
use units::{Span, WallTime};
use volume::{Secret, Token, TokenSpec};

use super::answer::{Answer, Refusal};
use super::ask::{Body, Named};
use super::context::Context;
use super::volumes::{Made, made};
use crate::who::bearer;

fn told(token: &Token, now: WallTime) -> AccessToken {
    let spec = &token.spec;
    AccessToken {
        name: spec.name.clone(),
        prefix: format!("{}{}", bearer::PREFIX, spec.id),
        role: RoleName(spec.role),
        volumes: spec.volumes.iter().map(ToString::to_string).collect(),
        created: Time(token.created),
        made_by: token.made_by.clone(),
        expires: spec.expires.map(Time),
        expired: token.is_expired(now),
        last_used: token.used().map(Time),
        secret: None,
        chap: spec.chap.is_some(),
        chap_secret: None,
    }
}

/// Lists tokens by name, without their secrets.
#[utoipa::path(get, path = "/tokens", tag = "tokens",
    responses((status = 200, body = Vec<AccessToken>)))]
pub(super) async fn list(State(context): State<Context>) -> Answer<Json<Vec<AccessToken>>> {
    let list = |context: &Context| {
        let now = RealClock::new().wall();
        Ok(context.pool.tokens().iter().map(|token| told(token, now)).collect())
    };
    context.json(list).await
}

/// Makes a token. Its secret is in this answer, and is told by nobody again.
#[utoipa::path(post, path = "/tokens", tag = "tokens", request_body = CreateToken,
    responses(
        (status = 201, body = AccessToken, headers(("Location" = String))),
        (status = 409, description = "The name is taken"),
    ))]
pub(super) async fn create(
    State(context): State<Context>,
    Body(body): Body<CreateToken>,
) -> Answer<Made<AccessToken>> {
    let create = move |context: &Context| {
        let token = make(context, body)?;
        Ok(made(format!("{API_PREFIX}/tokens/{}", token.name), token))
    };
    context.engine(create).await
}

/// Makes a token, and tells its secrets.
pub(super) fn make(context: &Context, body: CreateToken) -> Answer<AccessToken> {
    let no_randomness = || Refusal::new(ProblemKind::Internal, "the machine has no randomness");
    let made_token = bearer::make().ok_or_else(no_randomness)?;
    let chap_secret = match body.chap {
        true => Some(bearer::make_chap().ok_or_else(no_randomness)?),
        false => None,
    };
    let now = RealClock::new().wall();
    let spec = TokenSpec {
        name: body.name,
        id: made_token.id,
        secret_sha256: made_token.secret_sha256,
        role: body.role.0,
        volumes: body.volumes.into_iter().map(|pattern| pattern.0).collect(),
        expires: body.expires.map(|span| after(now, span.0)),
        chap: chap_secret.clone().map(Secret::new).transpose()?,
    };
    let token = context.pool.create_token(spec)?;
    Ok(AccessToken { secret: Some(made_token.text), chap_secret, ..told(&token, now) })
}

/// The time so long after another.
pub(super) fn after(time: WallTime, span: Span) -> WallTime {
    WallTime::from_nanos(time.as_nanos().saturating_add(span.0))
}

/// Shows a token, without its secret.
#[utoipa::path(get, path = "/tokens/{token}", tag = "tokens",
    responses((status = 200, body = AccessToken)))]
pub(super) async fn show(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<Json<AccessToken>> {
    let show =
        move |context: &Context| Ok(told(&*context.pool.token(&name)?, RealClock::new().wall()));
    context.json(show).await
}

/// Revokes a token: from the next request on it lets nobody in. Answers that are under way end.
#[utoipa::path(delete, path = "/tokens/{token}", tag = "tokens",
    responses((status = 204)))]
pub(super) async fn revoke(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<StatusCode> {
    context.delete(move |context| Ok(context.pool.revoke_token(&name)?)).await
}
