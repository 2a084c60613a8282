//! Deleting volumes, the trash, and having them back.

use std::sync::Arc;

use api::{DeleteQuery, DeletedVolume, DryRunQuery, ProblemKind, Time, Undelete, Would};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use units::{Role, Size, Span};
use volume::{Deletion, Volume};

use super::answer::{Answer, Refusal};
use super::ask::{Asked, Body, Named};
use super::context::Context;
use crate::attach::Part;

/// The answer to a delete: nothing, or the volume that would go.
pub(super) fn answer(told: DeletedVolume) -> Response {
    match told.dry_run {
        true => Json(told).into_response(),
        false => StatusCode::NO_CONTENT.into_response(),
    }
}

fn told(told: volume::DeletedVolume, dry_run: bool) -> DeletedVolume {
    let back = match told.until > told.deleted {
        true => format!("it could be had back until {}", told.until),
        false => "it could not be had back".to_owned(),
    };
    let text = format!(
        "{} would be deleted with {} live and {} history, {} versions and {} pinned marks; {back}",
        told.name,
        Size(told.live_bytes),
        Size(told.history_bytes),
        told.versions,
        told.pinned_marks
    );
    let would = dry_run.then(|| Would::new("delete", told.name.clone(), text));
    DeletedVolume {
        would: Vec::from_iter(would),
        id: told.id,
        name: told.name,
        size: told.size_bytes,
        deleted: Time(told.deleted),
        until: Time(told.until),
        live_bytes: told.live_bytes,
        history_bytes: told.history_bytes,
        versions: told.versions,
        pinned_marks: told.pinned_marks,
        dry_run,
    }
}

pub(super) fn deletion(query: &DeleteQuery) -> Answer<Deletion> {
    let grace = query.grace.as_deref().map(str::parse::<Span>).transpose()?;
    if query.now && grace.is_some() {
        let text = "a volume is deleted for good, now, or with a grace period";
        return Err(Refusal::new(ProblemKind::Invalid, text));
    }
    let grace_ns = if query.now { Some(0) } else { grace.map(|span| span.0) };
    Ok(Deletion { grace_ns, force: query.force, dry_run: query.dry_run })
}

/// Deletes a volume with its history: into the trash, or for good. Clones of it live on.
#[utoipa::path(delete, path = "/volumes/{volume}", tag = "volumes",
    params(DeleteQuery),
    responses(
        (status = 200, description = "A dry run: what would be deleted", body = DeletedVolume),
        (status = 204, description = "It is deleted"),
        (status = 409, description = "It has versions or pinned marks, or clients are attached"),
        (status = 422),
    ))]
pub(super) async fn delete(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<DeleteQuery>,
) -> Answer<Response> {
    let asked = deletion(&query)?;
    context
        .engine(move |context| {
            let volume = context.volume(&name)?;
            // An operator made it, and it holds nothing that stays.
            if !volume.is_scratch() {
                context.must_have(Role::Admin)?;
                context.must_be_near()?;
            }
            // It may have another name by the time that nobody has it any more.
            remove(context, &volume, asked)
        })
        .await
        .map(answer)
}

/// Deletes a volume, or says what would be deleted.
pub(super) fn remove(
    context: &Context,
    volume: &Arc<Volume>,
    asked: Deletion,
) -> Answer<DeletedVolume> {
    // Obstacles are told before anybody is disconnected.
    let would = Deletion { dry_run: true, ..asked };
    let seen = context.pool.remove(volume, would)?;
    // A dry run disconnects nobody.
    let force = asked.force && !asked.dry_run;
    let closed = context.close(volume, Part::Past, force);
    if asked.dry_run {
        if !asked.force {
            closed?;
        }
        return Ok(told(seen, true));
    }
    let _closed = closed?;
    let deleted = context.pool.remove(volume, asked)?;
    context.meters.forget(deleted.id);
    Ok(told(deleted, false))
}

/// Lists deleted volumes that can be had back, in the order in which they were deleted.
#[utoipa::path(get, path = "/trash", tag = "volumes",
    responses((status = 200, body = Vec<DeletedVolume>)))]
pub(super) async fn list(State(context): State<Context>) -> Answer<Json<Vec<DeletedVolume>>> {
    let list = |context: &Context| {
        let all = context.pool.trash()?;
        let seen = all.into_iter().filter(|one| context.sees(&one.name));
        Ok(seen.map(|one| told(one, false)).collect())
    };
    context.json(list).await
}

/// Brings a deleted volume back, with its history, versions, marks and schedule.
#[utoipa::path(post, path = "/trash/{id}/undelete", tag = "volumes", request_body = Undelete,
    responses(
        (status = 200, body = api::Volume),
        (status = 409, description = "Another volume has the name"),
    ))]
pub(super) async fn undelete(
    State(context): State<Context>,
    Named(id): Named<u64>,
    Body(body): Body<Undelete>,
) -> Answer<Json<api::Volume>> {
    context
        .json(move |context| {
            if let Some(name) = &body.name {
                context.check_new_name(name)?;
            }
            context.describe(&*context.pool.undelete_volume(id, body.name.as_deref())?)
        })
        .await
}

/// Deletes a volume in the trash for good.
#[utoipa::path(delete, path = "/trash/{id}", tag = "volumes",
    params(DryRunQuery),
    responses(
        (status = 200, description = "A dry run: what would be deleted", body = DeletedVolume),
        (status = 204, description = "It is deleted"),
    ))]
pub(super) async fn empty(
    State(context): State<Context>,
    Named(id): Named<u64>,
    Asked(query): Asked<DryRunQuery>,
) -> Answer<Response> {
    let dry_run = query.dry_run;
    context
        .engine(move |context| Ok(told(context.pool.empty_trash(id, dry_run)?, dry_run)))
        .await
        .map(answer)
}
