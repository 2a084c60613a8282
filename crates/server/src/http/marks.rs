//! Marks: list, create, delete.

use api::{CreateMark, ListQuery, MarkQuery};
use axum::extract::State;
use axum::http::StatusCode;
use units::Moment;

use super::answer::{Answer, Listed};
use super::ask::{Asked, Body, Named};
use super::context::{Context, moment};
use super::convert;
use super::volumes::{Made, location, made};

/// Lists marks by name.
#[utoipa::path(get, path = "/volumes/{volume}/marks", tag = "marks",
    params(("volume" = String, Path, description = "Name of the volume"), ListQuery),
    responses(
        (status = 200, body = Vec<api::Mark>, headers(("Link" = String))),
        (status = 404, body = api::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<ListQuery>,
) -> Answer<Listed<api::Mark>> {
    let path = format!("{}/marks", location(&name));
    let work = move |context: &Context, from, limit| {
        let mut marks = context.volume(&name)?.marks()?;
        marks.sort_by(|a, b| a.name.cmp(&b.name));
        let skip = usize::try_from(from).unwrap_or(usize::MAX);
        let more = marks.len().saturating_sub(skip) > limit;
        let entries = marks.into_iter().skip(skip).take(limit).map(convert::mark).collect();
        Ok((entries, more.then(|| from + limit as u64)))
    };
    context.page(path, query, work).await
}

/// Names a moment.
#[utoipa::path(post, path = "/volumes/{volume}/marks", tag = "marks", request_body = CreateMark,
    params(("volume" = String, Path, description = "Name of the volume")),
    responses(
        (status = 201, body = api::Mark, headers(("Location" = String))),
        (status = 400, body = api::Problem, content_type = "application/problem+json"),
        (status = 404, body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "The name is taken", body = api::Problem,
            content_type = "application/problem+json"),
        (status = 410, description = "The moment lies outside the window", body = api::Problem,
            content_type = "application/problem+json"),
    ))]
pub(super) async fn create(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(body): Body<CreateMark>,
) -> Answer<Made<api::Mark>> {
    let at = body.at.as_deref().map_or(Ok(Moment::Latest), moment)?;
    context
        .engine(move |context| {
            let mark = context.volume(&name)?.create_mark(&body.name, &at, body.pin)?;
            let location = format!("{}/marks/{}", location(&name), mark.name);
            Ok(made(location, convert::mark(mark)))
        })
        .await
}

/// Deletes the mark that the query names.
#[utoipa::path(delete, path = "/volumes/{volume}/marks", tag = "marks",
    params(("volume" = String, Path, description = "Name of the volume"), MarkQuery),
    responses(
        (status = 204),
        (status = 404, body = api::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn delete_named(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<MarkQuery>,
) -> Answer<StatusCode> {
    remove(&context, name, query.name).await
}

/// Deletes a mark.
#[utoipa::path(delete, path = "/volumes/{volume}/marks/{mark}", tag = "marks",
    params(
        ("volume" = String, Path, description = "Name of the volume"),
        ("mark" = String, Path, description = "Name of the mark"),
    ),
    responses(
        (status = 204),
        (status = 404, body = api::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn delete(
    State(context): State<Context>,
    Named((name, mark)): Named<(String, String)>,
) -> Answer<StatusCode> {
    remove(&context, name, mark).await
}

async fn remove(context: &Context, volume: String, mark: String) -> Answer<StatusCode> {
    context.delete(move |context| Ok(context.volume(&volume)?.delete_mark(&mark)?)).await
}
