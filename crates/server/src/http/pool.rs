//! The pool and its audit log.

use api::{API_PREFIX, ListQuery, ProblemKind, ReplaceMember};
use axum::extract::State;
use axum::{Extension, Json};

use super::answer::{Answer, Listed, Refusal};
use super::ask::{Asked, Body};
use super::{Context, Door, PAGE_ENTRIES, convert, page_entries};
use crate::{StartError, stack_files};

/// Shows the pool: its layers, its space, what was found damaged.
#[utoipa::path(get, path = "/pool", tag = "pool", responses((status = 200, body = api::Pool)))]
pub(super) async fn show(State(context): State<Context>) -> Answer<Json<api::Pool>> {
    context.engine(shown).await.map(Json)
}

/// Puts another file or disk in the place of one that the pool is made of; it gets what that had.
#[utoipa::path(post, path = "/pool/replace", tag = "pool", request_body = ReplaceMember,
    responses(
        (status = 200, body = api::Pool),
        (status = 403, description = "Not over the unix socket", body = api::Problem,
            content_type = "application/problem+json"),
        (status = 404, body = api::Problem, content_type = "application/problem+json"),
        (status = 422, body = api::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn replace(
    State(context): State<Context>,
    Extension(door): Extension<Door>,
    Body(body): Body<ReplaceMember>,
) -> Answer<Json<api::Pool>> {
    if door != Door::Unix {
        let text = "a file or disk of the server's machine is only named over its unix socket";
        return Err(Refusal::new(ProblemKind::Forbidden, text)
            .with_hint("name the server as unix:DIR/api.sock"));
    }
    context
        .engine(move |context| {
            let (dir, pool) = (context.pool_dir(), context.pool());
            let replaced = stack_files::replace(dir, pool, &body.member, &body.with);
            replaced.map_err(|error| match error {
                StartError::Pool(error) => Refusal::from(error),
                other => {
                    let refusal = Refusal::new(ProblemKind::Invalid, other.to_string());
                    match other.hint() {
                        Some(hint) => refusal.with_hint(hint),
                        None => refusal,
                    }
                }
            })?;
            shown(context)
        })
        .await
        .map(Json)
}

fn shown(context: &Context) -> Answer<api::Pool> {
    let pool = context.pool();
    let (status, fill) = (pool.status(), context.fill().read());
    let (space, next) = (pool.space()?, pool.next_sacrifice()?);
    let mut shown = convert::pool(status, fill, pool.volumes().len(), space, next);
    shown.members = pool.members().into_iter().map(convert::member).collect();
    shown.behind_bytes = pool.behind_bytes();
    Ok(shown)
}

/// Lists the audit log, oldest first: what was made, deleted, reverted, expired, healed.
#[utoipa::path(get, path = "/audit", tag = "pool", params(ListQuery),
    responses((status = 200, body = Vec<api::AuditRecord>, headers(("Link" = String)))))]
pub(super) async fn audit(
    State(context): State<Context>,
    Asked(query): Asked<ListQuery>,
) -> Answer<Listed<api::AuditRecord>> {
    let limit = page_entries(query.limit, PAGE_ENTRIES)?;
    let after = query.next.unwrap_or(0);
    context
        .engine(move |context| {
            let records = context.pool().audit(after, limit)?;
            let last = records.last().map(|r| r.number).filter(|_| records.len() == limit);
            let next = last.map(|last| format!("{API_PREFIX}/audit?limit={limit}&next={last}"));
            Ok(Listed { entries: records.into_iter().map(convert::audit).collect(), next })
        })
        .await
}
