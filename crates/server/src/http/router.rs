//! The routes, the document that describes them, and what is done around every request.

use api::{API_PREFIX, OPENAPI_JSON, ProblemKind};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Refusal;
use super::context::Context;
use super::guard::Guard;
use super::{
    about, archives, document, file_diff, files, groups, guard, health, history, import, jobs,
    logins, made_targets, marks, model, operations, page, pool, rename, repairs, restores,
    schedules, shares, targets, timeline, together, tokens, trace, trash, verifications, versions,
    volumes, watch,
};
use crate::who::Caller;

/// The longest body, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The same of those who are nobody.
const LOGIN_BYTES_MAX: usize = 1 << 10;

/// The document's words about the whole.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Hindsight",
        description = "Volumes that can be rewound to any moment. Sizes in bytes, times in \
                       RFC 3339 UTC with nanoseconds, seqs as integers. A moment is `latest`, an \
                       RFC 3339 instant, `-5min`, `seq:12345`, `v:3` or `mark:NAME`. Errors are \
                       `application/problem+json`; lists that do not fit in one answer name the \
                       next part in a Link header.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(api::Problem))
)]
struct Document;

/// The server, and its tokens.
fn caller_routes() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(about::show))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::show, tokens::revoke))
        .routes(routes!(logins::create_code))
        .merge(login_routes())
}

/// Anybody may send a login, so that little of it is read.
fn login_routes() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(logins::login, logins::logout))
        .layer(DefaultBodyLimit::max(LOGIN_BYTES_MAX))
}

fn pool_routes() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(pool::show, pool::change))
        .routes(routes!(pool::replace))
        .routes(routes!(pool::attach))
        .routes(routes!(pool::grow))
        .routes(routes!(pool::add_spare, pool::remove_spare))
        .routes(routes!(pool::scrub, pool::stop_scrub, pool::set_scrub))
        .routes(routes!(pool::audit))
}

fn api_routes() -> OpenApiRouter<Context> {
    let v1 = OpenApiRouter::new()
        .routes(routes!(volumes::list, volumes::create))
        .routes(routes!(volumes::show, volumes::change, trash::delete))
        .routes(routes!(rename::rename))
        .routes(routes!(shares::list, shares::create))
        .routes(routes!(shares::show, shares::change, shares::delete))
        .routes(routes!(shares::allow, shares::deny))
        .routes(routes!(files::tree))
        .routes(routes!(files::file))
        .routes(routes!(archives::send, archives::receive))
        .routes(routes!(file_diff::diff))
        .routes(routes!(restores::create))
        .routes(routes!(operations::list))
        .routes(routes!(operations::versions_of))
        .routes(routes!(repairs::create))
        .routes(routes!(targets::list))
        .routes(routes!(targets::change))
        .routes(routes!(made_targets::list, made_targets::create))
        .routes(routes!(made_targets::change, made_targets::delete))
        .routes(routes!(trash::list))
        .routes(routes!(trash::empty))
        .routes(routes!(trash::undelete))
        .routes(routes!(volumes::space))
        .routes(routes!(import::create))
        .routes(routes!(history::resolve))
        .routes(routes!(history::history))
        .routes(routes!(timeline::timeline))
        .routes(routes!(timeline::heat))
        .routes(routes!(history::revert))
        .routes(routes!(history::clone))
        .routes(routes!(history::diff))
        .routes(routes!(trace::record))
        .routes(routes!(model::show))
        .routes(routes!(model::advise))
        .routes(routes!(versions::list, versions::create, versions::delete_range))
        .routes(routes!(versions::show, versions::delete))
        .routes(routes!(versions::open_files))
        .routes(routes!(jobs::compact))
        .routes(routes!(jobs::uncompact))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::show))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::show, schedules::set, schedules::remove))
        .routes(routes!(schedules::explain, schedules::apply))
        .routes(routes!(schedules::show_group, schedules::set_group, schedules::remove_group))
        .routes(routes!(schedules::explain_group, schedules::apply_group))
        .routes(routes!(groups::list, groups::create))
        .routes(routes!(groups::show, groups::change, groups::delete))
        .routes(routes!(groups::versions, groups::capture, groups::delete_range))
        .routes(routes!(together::resolve))
        .routes(routes!(together::revert))
        .routes(routes!(together::clone))
        .routes(routes!(marks::list, marks::create, marks::delete_named))
        .routes(routes!(marks::delete))
        .routes(routes!(verifications::list, verifications::create))
        .routes(routes!(watch::show, watch::set, watch::remove))
        .merge(pool_routes())
        .merge(caller_routes());
    OpenApiRouter::with_openapi(Document::openapi())
        .nest(API_PREFIX, v1)
        .routes(routes!(health::metrics))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
}

pub(super) fn api_document() -> serde_json::Value {
    let document = api_routes().into_openapi();
    document::complete(serde_json::to_value(document).expect("a document of plain values"))
}

/// The OpenAPI document as generated from the handlers; `api::OPENAPI_JSON` is the checked-in copy.
#[must_use]
pub fn openapi_json() -> String {
    let mut json = Vec::new();
    // A line a value, and the least indentation: it is long.
    let form = serde_json::ser::PrettyFormatter::with_indent(b" ");
    api_document()
        .serialize(&mut serde_json::Serializer::with_formatter(&mut json, form))
        .expect("a document of plain values serialises");
    json.push(b'\n');
    String::from_utf8(json).expect("JSON is UTF-8")
}

/// The whole service for requests that come in by the door of `guard`.
pub(crate) fn router(guard: Guard) -> Router {
    let context = guard.context.clone();
    let (router, _) = api_routes().split_for_parts();
    router
        .route(&format!("{API_PREFIX}/openapi.json"), get(openapi))
        .merge(page::routes())
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(guard, guard::check))
        .layer(from_fn_with_state(context.clone(), observe))
        .with_state(context)
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI_JSON).into_response()
}

async fn no_route(request: Request) -> Refusal {
    Refusal::new(ProblemKind::NoRoute, format!("there is no {}", request.uri().path()))
        .with_hint(format!("{API_PREFIX}/openapi.json lists what there is"))
}

async fn wrong_method(request: Request) -> Refusal {
    let detail = format!("{} does not take {}", request.uri().path(), request.method());
    Refusal::new(ProblemKind::Method, detail)
}

/// Counts and times requests, and logs them: those that change something at INFO, others at DEBUG.
async fn observe(State(context): State<Context>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let began = tokio::time::Instant::now();
    let response = next.run(request).await;
    let caller = response.extensions().get::<Caller>();
    let from = caller.and_then(|caller| caller.from.as_deref());
    let caller = caller.map_or("", |caller| &*caller.who);
    let status = response.status().as_u16();
    let took = began.elapsed();
    context.metrics.http_request(&method, status, took);
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if method.is_safe() {
        tracing::debug!(%method, path, status, us, caller, from, "request");
    } else {
        tracing::info!(%method, path, status, us, caller, from, "request");
    }
    response
}
