//! Jobs: versions that are compacted and uncompacted in the background, and the scrub of the pool.

use api::{Job, ListQuery};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{HeaderName, LOCATION};
use volume::Compaction;

use super::answer::{Answer, Listed, Refusal};
use super::ask::{Asked, Named};
use super::context::Context;
use super::convert;
use api::API_PREFIX;

/// The answer of a handler that began a job.
pub(super) type Begun = (StatusCode, [(HeaderName, String); 1], Json<Job>);

pub(super) fn begun(job: Job) -> Begun {
    let location = format!("{API_PREFIX}/jobs/{}", job.id);
    (StatusCode::ACCEPTED, [(LOCATION, location)], Json(job))
}

async fn begin(context: Context, (name, number): (String, u64), wish: Compaction) -> Answer<Begun> {
    context
        .engine(move |context| {
            let info = context.volume(&name)?.compact_version(number, wish)?;
            Ok(begun(convert::job(&name, number, &info)))
        })
        .await
}

/// Compacts a version in the background: each block is packed beside the version before it (or
/// after it), whatever the volume's encoding and age.
#[utoipa::path(post, path = "/volumes/{volume}/versions/{number}/compact", tag = "versions",
    responses((status = 202, body = Job, headers(("Location" = String)))))]
pub(super) async fn compact(
    State(context): State<Context>,
    Named(version): Named<(String, u64)>,
) -> Answer<Begun> {
    begin(context, version, Compaction::Compacted).await
}

/// Uncompacts a version in the background: what is encoded of it is stored raw, and stays so.
#[utoipa::path(post, path = "/volumes/{volume}/versions/{number}/uncompact", tag = "versions",
    responses((status = 202, body = Job, headers(("Location" = String)))))]
pub(super) async fn uncompact(
    State(context): State<Context>,
    Named(version): Named<(String, u64)>,
) -> Answer<Begun> {
    begin(context, version, Compaction::Uncompacted).await
}

/// Lists jobs: the scrub, then others by volume and version. Those that are done are listed as long
/// as their version is there, a scrub until the next one.
#[utoipa::path(get, path = "/jobs", tag = "jobs", params(ListQuery),
    responses((status = 200, body = Vec<Job>, headers(("Link" = String)))))]
pub(super) async fn list(
    State(context): State<Context>,
    Asked(query): Asked<ListQuery>,
) -> Answer<Listed<Job>> {
    let work = |context: &Context, from, limit| {
        let skip = usize::try_from(from).unwrap_or(usize::MAX);
        // One more, to know whether there is one.
        let mut entries = jobs(context, skip, limit + 1);
        let more = entries.len() > limit;
        entries.truncate(limit);
        Ok((entries, more.then(|| from + limit as u64)))
    };
    context.page(format!("{API_PREFIX}/jobs"), query, work).await
}

fn jobs(context: &Context, skip: usize, limit: usize) -> Vec<Job> {
    let volumes = context.volumes();
    let scrub = context.pool.scrubs().info().map(|info| convert::scrub_job(&info));
    let of = |volume: &std::sync::Arc<volume::Volume>| {
        let name = volume.name().to_owned();
        let told = volume.compactions().into_iter();
        told.map(move |(number, info)| convert::job(&name, number, &info))
    };
    scrub.into_iter().chain(volumes.iter().flat_map(of)).skip(skip).take(limit).collect()
}

/// Shows a job.
#[utoipa::path(get, path = "/jobs/{id}", tag = "jobs",
    params(("id" = String, Path,
        description = "The volume, a dot, the number of the version; or `scrub`")),
    responses((status = 200, body = Job)))]
pub(super) async fn show(
    State(context): State<Context>,
    Named(id): Named<String>,
) -> Answer<Json<Job>> {
    context
        .json(move |context| {
            if id == convert::SCRUB_JOB
                && let Some(info) = context.pool.scrubs().info()
            {
                return Ok(convert::scrub_job(&info));
            }
            let unknown = || {
                let text = format!("there is no job {id}");
                Refusal::new(api::ProblemKind::NotFound, text)
                    .with_hint("a job is named VOLUME.N: a volume and the number of a version")
            };
            let (name, number) = id.rsplit_once('.').ok_or_else(unknown)?;
            let number: u64 = number.parse().map_err(|_| unknown())?;
            let info = context.volume(name)?.compaction(number)?.ok_or_else(unknown)?;
            Ok(convert::job(name, number, &info))
        })
        .await
}
