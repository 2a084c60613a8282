//! The pool and its audit log.

use std::num::NonZeroU64;

use api::{
    AttachMember, AuditQuery, ChangePool, GrowPool, Job, ListQuery, ProblemKind, ReplaceMember,
    SetScrub, Spare,
};
use axum::Json;
use axum::extract::State;
use units::Span;

use super::answer::{Answer, Listed, Refusal};
use super::ask::{Asked, Body, some_change};
use super::context::Context;
use super::convert;
use super::jobs::{Begun, begun};
use super::lacks::must_be_local;
use crate::who;
use crate::{StartError, member_changes, pool_files, write_memory};

const AUDIT_PATH: &str = "/api/v1/audit";

/// Shows the pool: its layers, its space, what was found damaged.
#[utoipa::path(get, path = "/pool", tag = "pool", responses((status = 200, body = api::Pool)))]
pub(super) async fn show(State(context): State<Context>) -> Answer<Json<api::Pool>> {
    context.json(shown).await
}

/// Changes how fast scrubs and rebuilds may be, until the server is started again.
#[utoipa::path(patch, path = "/pool", tag = "pool", request_body = ChangePool,
    responses((status = 200, body = api::Pool)))]
pub(super) async fn change(
    State(context): State<Context>,
    Body(body): Body<ChangePool>,
) -> Answer<Json<api::Pool>> {
    some_change(&body)?;
    let rate = |limit: api::SizeInput| match NonZeroU64::new(limit.0.bytes()) {
        Some(limit) => Ok(limit),
        None => {
            let text = "a limit of nothing would keep it from ever being done";
            Err(Refusal::new(ProblemKind::Invalid, text).with_hint("null is no limit"))
        }
    };
    let of = |asked: Option<Option<api::SizeInput>>| {
        asked.map(|limit| limit.map(rate).transpose()).transpose()
    };
    let change =
        volume::RateChange { scrub: of(body.scrub_rate)?, rebuild: of(body.rebuild_rate)? };
    context
        .json(move |context| {
            context.pool.change_rates(change)?;
            shown(context)
        })
        .await
}

/// Puts another file or disk in the place of one that the pool is made of; it gets what that had.
#[utoipa::path(post, path = "/pool/replace", tag = "pool", request_body = ReplaceMember,
    responses(
        (status = 200, body = api::Pool),
        (status = 403, description = "Not over the unix socket"),
        (status = 404),
    ))]
pub(super) async fn replace(
    State(context): State<Context>,
    Body(body): Body<ReplaceMember>,
) -> Answer<Json<api::Pool>> {
    let change = move |context: &Context| {
        member_changes::replace(&context.pool_dir, &context.pool, &body.member, &body.with)
    };
    change_members(context, change).await
}

/// Makes a blank file or disk another side of the pool: a mirror of its one file, or one side more
/// of its mirror, while it is used. The same request completes an attach that was begun.
#[utoipa::path(post, path = "/pool/attach", tag = "pool", request_body = AttachMember,
    responses(
        (status = 200, body = api::Pool),
        (status = 403, description = "Not over the unix socket"),
        (status = 404),
    ))]
pub(super) async fn attach(
    State(context): State<Context>,
    Body(body): Body<AttachMember>,
) -> Answer<Json<api::Pool>> {
    let change = move |context: &Context| {
        let member = body.member.as_deref();
        member_changes::attach(&context.pool_dir, &context.pool, member, &body.with)
    };
    change_members(context, change).await
}

/// Makes the pool larger by new files or disks, or its one file longer, while it is used. The same
/// request completes a growth that was begun and not completed.
#[utoipa::path(post, path = "/pool/grow", tag = "pool", request_body = GrowPool,
    responses(
        (status = 200, body = api::Pool),
        (status = 403, description = "Not over the unix socket"),
    ))]
pub(super) async fn grow(
    State(context): State<Context>,
    Body(body): Body<GrowPool>,
) -> Answer<Json<api::Pool>> {
    let change = move |context: &Context| {
        let size_bytes = body.size.map(|size| size.0.bytes());
        match &body.add {
            Some(add) => {
                member_changes::grow_online(&context.pool_dir, &context.pool, add, size_bytes)
            }
            None => pool_files::lengthen(&context.pool, size_bytes),
        }
    };
    change_members(context, change).await
}

/// Adds a file or disk that waits to take the place of one that fails.
#[utoipa::path(post, path = "/pool/spares", tag = "pool", request_body = Spare,
    responses(
        (status = 200, body = api::Pool),
        (status = 403, description = "Not over the unix socket"),
    ))]
pub(super) async fn add_spare(
    State(context): State<Context>,
    Body(body): Body<Spare>,
) -> Answer<Json<api::Pool>> {
    let change = move |context: &Context| {
        member_changes::add_spare(&context.pool_dir, &context.pool, &body.path)
    };
    change_members(context, change).await
}

/// Takes a spare away; its file stays.
#[utoipa::path(delete, path = "/pool/spares", tag = "pool", params(Spare),
    responses(
        (status = 200, body = api::Pool),
        (status = 403, description = "Not over the unix socket"),
        (status = 422),
    ))]
pub(super) async fn remove_spare(
    State(context): State<Context>,
    Asked(query): Asked<Spare>,
) -> Answer<Json<api::Pool>> {
    let change = move |context: &Context| {
        member_changes::remove_spare(&context.pool_dir, &context.pool, &query.path)
    };
    change_members(context, change).await
}

/// Changes what the pool lies on, for somebody on the server's machine, and shows it.
async fn change_members(
    context: Context,
    change: impl FnOnce(&Context) -> Result<(), StartError> + Send + 'static,
) -> Answer<Json<api::Pool>> {
    let hint = "name the server as unix:DIR/api.sock";
    must_be_local(who::caller().as_ref().map(|(caller, _)| caller), "or disk of", hint)?;
    context
        .json(move |context| {
            change(context).map_err(|error| match error {
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
}

fn shown(context: &Context) -> Answer<api::Pool> {
    let pool = &context.pool;
    let (status, fill) = (pool.status(), context.fill.read());
    let (space, next) = (pool.space()?, pool.next_sacrifice()?);
    let mut shown = convert::pool(status, fill, pool.volumes().len(), space, next);
    if !context.sees_everything() {
        // Names of others' volumes stand in these.
        let is_seen = |one: &api::Sacrifice| context.sees(&one.volume);
        shown.next_sacrifice = shown.next_sacrifice.filter(is_seen);
        shown.volumes = context.volumes().len() as u64;
    }
    shown.promised_bytes = context.fill.promised_bytes();
    shown.members = pool.members().into_iter().map(convert::member).collect();
    shown.members.extend(pool.spares().into_iter().map(convert::spare));
    shown.behind_bytes = pool.behind_bytes();
    shown.scrub = pool.scrubs().info().map(convert::scrub);
    if let Some(scrub) = shown.scrub.as_mut().filter(|_| !context.sees_everything()) {
        scrub.losses.clear();
    }
    shown.scrub_every = pool.scrubs().every_ns().map(Span).map(api::SpanInput);
    let rates = pool.rates();
    shown.scrub_rate_bytes = rates.scrub.map(NonZeroU64::get);
    shown.rebuild_rate_bytes = rates.rebuild.map(NonZeroU64::get);
    Ok(shown)
}

/// Lists the audit log, oldest first or newest first: what was made, deleted, reverted, expired,
/// healed.
#[utoipa::path(get, path = "/audit", tag = "pool", params(AuditQuery),
    responses((status = 200, body = Vec<api::AuditRecord>, headers(("Link" = String)))))]
pub(super) async fn audit(
    State(context): State<Context>,
    Asked(AuditQuery { limit, next, newest }): Asked<AuditQuery>,
) -> Answer<Listed<api::AuditRecord>> {
    let work = move |context: &Context, from, limit| {
        let records = match newest {
            true => context.pool.audit_newest(next, limit)?,
            false => context.pool.audit(from, limit)?,
        };
        let next = records.last().map(|record| record.number).filter(|_| records.len() == limit);
        Ok((records.into_iter().map(convert::audit).collect(), next))
    };
    let mut page = context.page(AUDIT_PATH.to_owned(), ListQuery { limit, next }, work).await?;
    if newest {
        page.next = page.next.map(|next| format!("{next}&newest=true"));
    }
    Ok(page)
}

/// Begins a scrub in the background: every copy of everything that is stored is looked at, and what
/// is wrong is written again from a copy that is right.
#[utoipa::path(post, path = "/pool/scrub", tag = "pool",
    responses(
        (status = 202, body = Job, headers(("Location" = String))),
        (status = 409, description = "One is running"),
    ))]
pub(super) async fn scrub(State(context): State<Context>) -> Answer<Begun> {
    let scrub = |context: &Context| {
        write_memory::forget_clean();
        Ok(begun(convert::scrub_job(&context.pool.scrubs().start()?)))
    };
    context.engine(scrub).await
}

/// Stops the scrub that runs.
#[utoipa::path(delete, path = "/pool/scrub", tag = "pool",
    responses(
        (status = 200, body = api::Scrub),
        (status = 404, description = "None is running"),
    ))]
pub(super) async fn stop_scrub(State(context): State<Context>) -> Answer<Json<api::Scrub>> {
    let stop = |context: &Context| Ok(convert::scrub(context.pool.scrubs().stop()?));
    context.json(stop).await
}

/// Changes how often the pool is scrubbed.
#[utoipa::path(put, path = "/pool/scrub", tag = "pool", request_body = SetScrub,
    responses((status = 200, body = SetScrub)))]
pub(super) async fn set_scrub(
    State(context): State<Context>,
    Body(body): Body<SetScrub>,
) -> Answer<Json<SetScrub>> {
    context
        .json(move |context| {
            context.pool.scrubs().set_every(body.every.map(|every| every.0.0))?;
            Ok(body)
        })
        .await
}
