//! Versions: list, create, show, delete one or a range.

use api::{CreateVersion, DeletedVersions, ListQuery, RangeQuery, Would};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::answer::{Answer, Listed};
use super::ask::{Asked, Body, Named};
use super::context::Context;
use super::volumes::{Made, location, made};

/// Lists versions by number.
#[utoipa::path(get, path = "/volumes/{volume}/versions", tag = "versions",
    params(ListQuery),
    responses((status = 200, body = Vec<api::Version>, headers(("Link" = String)))))]
pub(super) async fn list(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<ListQuery>,
) -> Answer<Listed<api::Version>> {
    let path = format!("{}/versions", location(&name));
    let work = move |context: &Context, from, limit| {
        let page = context.volume(&name)?.versions_page(from, limit)?;
        let versions = page.versions.into_iter().map(|v| context.version(&name, v));
        Ok((versions.collect(), page.next))
    };
    context.page(path, query, work).await
}

/// Captures the present as a version.
#[utoipa::path(post, path = "/volumes/{volume}/versions", tag = "versions",
    request_body = Option<CreateVersion>,
    responses((status = 201, body = api::Version, headers(("Location" = String)))))]
pub(super) async fn create(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<CreateVersion>,
) -> Answer<Made<api::Version>> {
    context
        .engine(move |context| {
            let label = body.label.unwrap_or_default();
            let volume = context.volume(&name)?;
            context.check_hook_of_call(body.hook.as_deref())?;
            let hook = volume.hook_for(body.hook.as_deref());
            let (version, failure) = match &hook {
                None => (volume.create_version(&label)?, None),
                Some(hook) => {
                    let around = context.hooks.around(hook, &name, |consistency| {
                        volume.create_version_as(&label, consistency)
                    });
                    let failure = around.failure();
                    (around.captured?, failure)
                }
            };
            let at = format!("{}/versions/{}", location(&name), version.number);
            let told = context.version(&name, version);
            Ok(made(at, api::Version { hook_failure: failure, ..told }))
        })
        .await
}

/// Lists the files that were open when a version was captured, as its hook told.
#[utoipa::path(get, path = "/volumes/{volume}/versions/{number}/open-files", tag = "versions",
    responses((status = 200, body = api::OpenFiles)))]
pub(super) async fn open_files(
    State(context): State<Context>,
    Named((name, number)): Named<(String, u64)>,
) -> Answer<Json<api::OpenFiles>> {
    context
        .json(move |context| {
            let files = context.volume(&name)?.open_files(number)?;
            let count = files.as_ref().map(|files| files.count);
            let paths = files.map_or(Vec::new(), |files| files.paths);
            Ok(api::OpenFiles { count, paths })
        })
        .await
}

/// Shows a version.
#[utoipa::path(get, path = "/volumes/{volume}/versions/{number}", tag = "versions",
    responses((status = 200, body = api::Version)))]
pub(super) async fn show(
    State(context): State<Context>,
    Named((name, number)): Named<(String, u64)>,
) -> Answer<Json<api::Version>> {
    context
        .json(move |context| Ok(context.version(&name, context.volume(&name)?.version(number)?)))
        .await
}

/// Deletes a version; its moment stays openable as long as the window holds it.
#[utoipa::path(delete, path = "/volumes/{volume}/versions/{number}", tag = "versions",
    responses((status = 204)))]
pub(super) async fn delete(
    State(context): State<Context>,
    Named((name, number)): Named<(String, u64)>,
) -> Answer<StatusCode> {
    context.delete(move |context| Ok(context.volume(&name)?.delete_version(number)?)).await
}

/// Deletes a range of versions, some thousands in a step: the present is none of them.
#[utoipa::path(delete, path = "/volumes/{volume}/versions", tag = "versions",
    params(RangeQuery),
    responses((status = 200, body = DeletedVersions)))]
pub(super) async fn delete_range(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<RangeQuery>,
) -> Answer<Json<DeletedVersions>> {
    let RangeQuery { from, to, dry_run } = query;
    context
        .json(move |context| {
            let count = context.volume(&name)?.delete_versions(from..=to, dry_run)?;
            let target = format!("{name}@v:{from}..{to}");
            let text = format!("{count} versions of {name}, {from} to {to}, would be deleted");
            let would = dry_run.then(|| Would::new("delete", target, text));
            Ok(DeletedVersions { count, dry_run, would: Vec::from_iter(would) })
        })
        .await
}
