//! The pool and its audit log.

use api::{API_PREFIX, ListQuery};
use axum::Json;
use axum::extract::State;

use super::answer::{Answer, Listed};
use super::ask::Asked;
use super::{Context, PAGE_ENTRIES, convert, page_entries};

/// Shows the pool: its layers, its space, what was found damaged.
#[utoipa::path(get, path = "/pool", tag = "pool", responses((status = 200, body = api::Pool)))]
pub(super) async fn show(State(context): State<Context>) -> Answer<Json<api::Pool>> {
    context
        .engine(|context| {
            let pool = context.pool();
            let (status, fill) = (pool.status(), context.fill().read());
            let (space, next) = (pool.space()?, pool.next_sacrifice()?);
            let mut shown = convert::pool(status, fill, pool.volumes().len(), space, next);
            shown.members = pool.members().into_iter().map(convert::member).collect();
            shown.behind_bytes = pool.behind_bytes();
            Ok(shown)
        })
        .await
        .map(Json)
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
