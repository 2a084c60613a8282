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
    params(ListQuery),
    responses((status = 200, body = Vec<api::Mark>, headers(("Link" = String)))))]
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
    responses(
        (status = 201, body = api::Mark, headers(("Location" = String))),
        (status = 409, description = "The name is taken"),
        (status = 410, description = "The moment lies outside the window"),
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
    params(MarkQuery),
    responses((status = 204)))]
pub(super) async fn delete_named(
    State(context): State<Context>,
    Named(name): Named<String>,
    Asked(query): Asked<MarkQuery>,
) -> Answer<StatusCode> {
    remove(&context, name, query.name).await
}

/// Deletes a mark.
#[utoipa::path(delete, path = "/volumes/{volume}/marks/{mark}", tag = "marks",
    responses((status = 204)))]
pub(super) async fn delete(
    State(context): State<Context>,
    Named((name, mark)): Named<(String, String)>,
) -> Answer<StatusCode> {
    remove(&context, name, mark).await
}

async fn remove(context: &Context, volume: String, mark: String) -> Answer<StatusCode> {
    context.delete(move |context| Ok(context.volume(&volume)?.delete_mark(&mark)?)).await
}
