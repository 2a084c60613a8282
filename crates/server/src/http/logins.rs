//! Logins of the page: a code is made, lets a browser in once, and the browser leaves again.
//!
//! A login makes a token like any other, which is listed, recorded and revoked as one.

use std::time::Instant;

use api::{AccessToken, CreateCode, CreateToken, Login, LoginCode, ProblemKind, SpanInput, Time};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use env::{Clock, RealClock};
use units::Span;
use volume::TOKEN_PATTERNS_MAX;

use super::answer::{Answer, Refusal};
use super::ask::Body;
use super::context::Context;
use super::guard::{Peer, WRONG_CODE};
use super::tokens;
use crate::who::{Caller, codes, for_caller};

/// The beginning of the names of tokens that logins make.
const NAME: &str = "page-";
/// How long such a token is good.
const GOOD_FOR: Span = Span(12 * 60 * 60 * 1_000_000_000);

/// Makes a code, which lets somebody in once, within a minute.
#[utoipa::path(post, path = "/codes", tag = "tokens", request_body = CreateCode,
    responses((status = 200, body = LoginCode)))]
pub(super) async fn create_code(
    State(context): State<Context>,
    Body(body): Body<CreateCode>,
) -> Answer<Json<LoginCode>> {
    let good_for = body.expires.map_or(GOOD_FOR, |span| span.0);
    if good_for == Span(0) || body.volumes.len() > TOKEN_PATTERNS_MAX {
        let text =
            format!("a token is good for some time, with {TOKEN_PATTERNS_MAX} patterns at most");
        return Err(Refusal::new(ProblemKind::Invalid, text));
    }
    let create = move |context: &Context| {
        let code = context.codes.make(body, context.caller()?.clone(), Instant::now());
        let code = code.ok_or_else(|| {
            let text = "a thousand codes of the last minute wait, or the machine has no randomness";
            Refusal::new(ProblemKind::Busy, text)
        })?;
        let expires = Time(tokens::after(RealClock::new().wall(), codes::GOOD_FOR));
        Ok(LoginCode { code, expires })
    };
    context.json(create).await
}

/// Uses a code: the answer has the secret of the token that is made for it. No credentials are
/// asked for but the code.
#[utoipa::path(post, path = "/login", tag = "tokens", request_body = Login, security(()),
    responses((status = 200, body = AccessToken)))]
pub(super) async fn login(
    State(context): State<Context>,
    Extension(peer): Extension<Peer>,
    Body(body): Body<Login>,
) -> Answer<(Extension<Caller>, Json<AccessToken>)> {
    let code = context.codes.take(&body.code, Instant::now());
    let code = code.ok_or_else(|| Refusal::new(ProblemKind::Unauthorized, WRONG_CODE))?;
    let maker = code.maker.by_code(peer.told());
    let create = move |context: &Context| {
        let now = RealClock::new().wall().to_string();
        let digits: String = now.chars().filter(char::is_ascii_digit).collect();
        let wanted = CreateToken {
            name: format!("{NAME}{digits}"),
            role: code.token.role,
            volumes: code.token.volumes,
            expires: Some(code.token.expires.unwrap_or(SpanInput(GOOD_FOR))),
            chap: false,
        };
        tokens::make(context, wanted)
    };
    // First: it makes room where there are as many tokens as there may be.
    context.engine(forget_expired).await?;
    let token = for_caller(&maker, true, context.engine(create)).await?;
    // For the log.
    Ok((Extension(maker), Json(token)))
}

/// Deletes the tokens of earlier logins that have expired. The audit log names nobody for it.
fn forget_expired(context: &Context) -> Answer<()> {
    let now = RealClock::new().wall();
    let tokens = context.pool.tokens();
    for old in tokens.iter().filter(|token| is_of_login(&token.spec.name) && token.is_expired(now))
    {
        // Another login may have deleted it meanwhile.
        if let Err(error) = context.pool.revoke_token(&old.spec.name) {
            tracing::debug!(%error, "a token of a login that has expired is not gone");
        }
    }
    Ok(())
}

/// Whether a login made the token of this name, which has the time of the login.
fn is_of_login(name: &str) -> bool {
    let digits = name.strip_prefix(NAME).unwrap_or_default();
    digits.len() == "20261129120000000000000".len() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Revokes the token that is shown, if a login made it.
#[utoipa::path(delete, path = "/login", tag = "tokens", responses((status = 204)))]
pub(super) async fn logout(State(context): State<Context>) -> Answer<StatusCode> {
    let leave = |context: &Context| {
        let name = context.caller()?.token_name().filter(|name| is_of_login(name));
        let name = name.ok_or_else(|| {
            Refusal::new(ProblemKind::Forbidden, "no login made what is shown here")
                .with_hint("`hindsight token revoke` ends other tokens")
        })?;
        Ok(context.pool.revoke_token(name)?)
    };
    context.delete(leave).await
}
