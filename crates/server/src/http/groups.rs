//! Consistency groups: list, create, show, delete, and their captures.

use api::{
    API_PREFIX, ChangeGroup, CreateGroup, CreateVersion, DeletedVersions, ListQuery, RangeQuery,
    Would,
};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use volume::Consistency;

use super::answer::{Answer, Listed};
use super::ask::{Asked, Body, Named, some_change};
use super::context::Context;
use super::convert;
use super::rights::sees_group;
use super::volumes::{Made, made};

pub(super) fn location(name: &str) -> String {
    format!("{API_PREFIX}/groups/{name}")
}

/// Lists groups by name.
#[utoipa::path(get, path = "/groups", tag = "groups",
    responses((status = 200, body = Vec<api::Group>)))]
pub(super) async fn list(State(context): State<Context>) -> Answer<Json<Vec<api::Group>>> {
    context
        .json(|context| {
            let caller = context.caller()?;
            let groups = context.pool.groups().into_iter();
            let groups = groups.filter(|group| sees_group(caller, group));
            Ok(groups.map(|group| context.describe_group(group)).collect())
        })
        .await
}

/// Makes a group of volumes.
#[utoipa::path(post, path = "/groups", tag = "groups", request_body = CreateGroup,
    responses(
        (status = 201, body = api::Group, headers(("Location" = String))),
        (status = 404),
        (status = 409, description = "The name is taken"),
    ))]
pub(super) async fn create(
    State(context): State<Context>,
    Body(body): Body<CreateGroup>,
) -> Answer<Made<api::Group>> {
    context
        .engine(move |context| {
            let group = context.pool.create_group(&body.name, &body.volumes)?;
            Ok(made(location(&group.name), context.describe_group(group)))
        })
        .await
}

/// Shows a group.
#[utoipa::path(get, path = "/groups/{group}", tag = "groups",
    responses((status = 200, body = api::Group)))]
pub(super) async fn show(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<Json<api::Group>> {
    context.json(move |context| Ok(context.describe_group(context.pool.group(&name)?))).await
}

/// Changes the settings of a group.
#[utoipa::path(patch, path = "/groups/{group}", tag = "groups", request_body = ChangeGroup,
    responses((status = 200, body = api::Group)))]
pub(super) async fn change(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<ChangeGroup>,
) -> Answer<Json<api::Group>> {
    some_change(&body)?;
    context
        .json(move |context| {
            let pool = &context.pool;
            pool.group(&name)?;
            if let Some(hook) = &body.hook {
                context.check_hook(hook.as_deref())?;
                pool.set_group_hook(&name, hook.as_deref())?;
            }
            Ok(context.describe_group(pool.group(&name)?))
        })
        .await
}

/// Deletes a group; its volumes and their versions stay.
#[utoipa::path(delete, path = "/groups/{group}", tag = "groups",
    responses((status = 204)))]
pub(super) async fn delete(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Answer<StatusCode> {
    context.delete(move |context| Ok(context.pool.delete_group(&name)?)).await
}

/// Lists captures of a group by number, but for those of which nothing is left.
#[utoipa::path(get, path = "/groups/{group}/versions", tag = "groups",
    params(ListQuery),
    responses((status = 200, body = Vec<api::GroupVersion>, headers(("Link" = String)))))]
pub(super) async fn versions(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<ListQuery>,
) -> Answer<Listed<api::GroupVersion>> {
    let path = format!("{}/versions", location(&name));
    let work = move |context: &Context, from, limit| {
        let (versions, next) = context.pool.group_versions(&name, from, limit)?;
        Ok((versions.into_iter().map(convert::group_version).collect(), next))
    };
    context.page(path, query, work).await
}

/// Deletes a range of the captures of a group, each with all of its versions.
#[utoipa::path(delete, path = "/groups/{group}/versions", tag = "groups",
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
            let count = context.pool.delete_group_versions(&name, from..=to, dry_run)?;
            let target = format!("group {name}, captures {from}..{to}");
            let text =
                format!("{count} captures of group {name}, {from} to {to}, would be deleted");
            let would = dry_run.then(|| Would::new("delete", target, text));
            Ok(DeletedVersions { count, dry_run, would: Vec::from_iter(would) })
        })
        .await
}

/// Captures all volumes of a group at one instant.
#[utoipa::path(post, path = "/groups/{group}/versions", tag = "groups",
    request_body = Option<CreateVersion>,
    responses((status = 201, body = api::GroupVersion, headers(("Location" = String)))))]
pub(super) async fn capture(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<CreateVersion>,
) -> Answer<Made<api::GroupVersion>> {
    context
        .engine(move |context| {
            let label = body.label.unwrap_or_default();
            let pool = &context.pool;
            pool.group(&name)?;
            context.check_hook_of_call(body.hook.as_deref())?;
            let hooks = pool.group_hooks(&name, body.hook.as_deref())?;
            let plain = |_: &str| Consistency::CrashConsistent.into();
            let around = context.hooks.around_all(&hooks, &plain, |consistency| {
                pool.create_group_version_as(&name, &label, consistency)
            });
            let hook_failure = around.failure();
            let version = around.captured?;
            let at = format!("{}/versions?next={}&limit=1", location(&name), version.number);
            Ok(made(at, api::GroupVersion { hook_failure, ..convert::group_version(version) }))
        })
        .await
}
