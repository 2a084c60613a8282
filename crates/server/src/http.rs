//! The HTTP API: its routes, who may come in, and how handlers reach the engine.
//!
//! Handlers run on one thread; what touches the engine runs on threads that may wait.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{API_PREFIX, ListQuery, OPENAPI_JSON, ProblemKind};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use volume::{Pool, Volume};

use crate::NoSpace;
use crate::attach::{Attachments, Closure, Part};
use crate::fill::FillGauge;
use crate::hooks::Hooks;
use crate::meters::Meters;
use crate::metrics::Metrics;
use crate::taps::Taps;
use crate::token::Token;

mod answer;
mod ask;
mod convert;
mod document;
mod groups;
mod guard;
mod health;
mod history;
mod import;
mod jobs;
mod marks;
mod model;
mod pool;
mod rename;
mod schedules;
mod serve;
mod together;
mod trace;
mod trash;
mod versions;
mod volumes;

use answer::{Answer, Listed, Refusal};
pub(crate) use ask::{PATIENCE, Patience};
pub(crate) use guard::{Caller, Door};
pub(crate) use serve::HttpServer;

/// The longest body, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Entries in a page, unless fewer are asked for; and at most.
const PAGE_ENTRIES: usize = 10_000;

/// Where NBD clients connect, for the URIs in answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct NbdAddresses {
    pub(crate) unix: Option<PathBuf>,
    pub(crate) tcp: Option<SocketAddr>,
    /// Whether the TCP listener demands TLS; the unix socket is its owner's alone and never does.
    pub(crate) tls: bool,
}

impl NbdAddresses {
    fn uri(&self, volume: &str) -> Option<String> {
        match &self.unix {
            Some(socket) => Some(convert::nbd_unix_uri(volume, socket)),
            None => self.tcp_uri(volume),
        }
    }

    fn tcp_uri(&self, volume: &str) -> Option<String> {
        let scheme = if self.tls { "nbds" } else { "nbd" };
        let mut address = self.tcp?;
        if address.ip().is_unspecified() {
            // Every address of this machine: clients elsewhere know a better name than we do.
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        Some(format!("{scheme}://{address}/{volume}"))
    }
}

/// The state that every handler can reach.
#[derive(Clone)]
pub(crate) struct Context(Arc<Inner>);

/// The watchers of clients' requests, and the commands around captures.
pub(crate) struct Watch {
    pub(crate) taps: Arc<Taps>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) no_space: Arc<NoSpace>,
    /// Where the pool's members are looked for.
    pub(crate) pool_dir: PathBuf,
}

struct Inner {
    pool: Arc<Pool>,
    fill: Arc<FillGauge>,
    attachments: Arc<Attachments>,
    watch: Watch,
    nbd: NbdAddresses,
    metrics: Metrics,
    ready: AtomicBool,
}

impl Context {
    pub(crate) fn new(
        pool: Arc<Pool>,
        fill: Arc<FillGauge>,
        attachments: Arc<Attachments>,
        watch: Watch,
        nbd: NbdAddresses,
        metrics: Metrics,
    ) -> Context {
        let ready = AtomicBool::new(false);
        Context(Arc::new(Inner { pool, fill, attachments, watch, nbd, metrics, ready }))
    }

    /// How full the pool is.
    pub(crate) fn fill(&self) -> &Arc<FillGauge> {
        &self.0.fill
    }

    /// The recorders of requests.
    fn taps(&self) -> &Arc<Taps> {
        &self.0.watch.taps
    }

    /// The measurements of volumes.
    fn meters(&self) -> &Meters {
        &self.0.watch.meters
    }

    /// The commands around captures.
    fn hooks(&self) -> &Hooks {
        &self.0.watch.hooks
    }

    fn pool_dir(&self) -> &Path {
        &self.0.watch.pool_dir
    }

    /// Refuses a hook that the configuration does not name.
    fn check_hook(&self, name: Option<&str>) -> Answer<()> {
        let is_unknown = |name: &&str| *name != volume::NO_HOOK && !self.hooks().has(name);
        let Some(name) = name.filter(is_unknown) else { return Ok(()) };
        let names = self.hooks().names();
        let hint = match &names[..] {
            [] => "the server's configuration file names none: [hooks.NAME]".to_owned(),
            names => format!("there is {}", names.join(", ")),
        };
        Err(Refusal::new(ProblemKind::NotFound, format!("there is no hook {name}")).with_hint(hint))
    }

    /// Says whether `/readyz` answers 200.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.0.ready.store(ready, Ordering::Release);
    }

    fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Acquire)
    }

    /// Runs work of the engine where it may wait.
    async fn engine<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Context) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let (context, caller) = (self.clone(), guard::caller());
        let work = move || match caller {
            Some(caller) => volume::on_behalf_of(&caller.0, || work(&context)),
            None => work(&context),
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!(%error, "a request panicked");
                Err(Refusal::new(ProblemKind::Internal, "the server made a mistake; see its log"))
            }
        }
    }

    /// The same of work that deletes something.
    async fn delete(
        &self,
        work: impl FnOnce(&Context) -> Answer<()> + Send + 'static,
    ) -> Answer<StatusCode> {
        self.engine(work).await.map(|()| StatusCode::NO_CONTENT)
    }

    /// Answers a page of the list at `path`. Asked from where on and for how many entries, `work`
    /// says them and where the next page begins.
    async fn page<T: Send + 'static>(
        &self,
        path: String,
        query: ListQuery,
        work: impl FnOnce(&Context, u64, usize) -> Answer<(Vec<T>, Option<u64>)> + Send + 'static,
    ) -> Answer<Listed<T>> {
        let limit = page_entries(query.limit, PAGE_ENTRIES)?;
        let from = query.next.unwrap_or(0);
        self.engine(move |context| {
            let (entries, next) = work(context, from, limit)?;
            let next = next.map(|next| format!("{path}?limit={limit}&next={next}"));
            Ok(Listed { entries, next })
        })
        .await
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.0.pool
    }

    fn volume(&self, name: &str) -> Answer<Arc<Volume>> {
        Ok(self.0.pool.volume(name)?)
    }

    /// How many clients have the present of a volume open.
    fn attached(&self, volume: &Volume) -> usize {
        self.0.attachments.count(volume.id())
    }

    fn describe(&self, volume: &Volume) -> Answer<api::Volume> {
        let info = volume.info()?;
        let clients = self.attached(volume);
        let unfinished_import = volume.has_mark(api::UNFINISHED_IMPORT);
        let mut volume = convert::volume(info, clients, &self.0.nbd);
        volume.unfinished_import = unfinished_import;
        volume.hook_known = self.is_known(volume.hook.as_deref());
        Ok(volume)
    }

    fn describe_group(&self, info: volume::GroupInfo) -> api::Group {
        let mut group = convert::group(info);
        group.hook_known = self.is_known(group.hook.as_deref());
        group
    }

    /// Whether the configuration has a hook that is set; none is known.
    fn is_known(&self, hook: Option<&str>) -> bool {
        hook.is_none_or(|name| self.hooks().has(name))
    }

    /// Keeps clients away from a part of the volume until the answer is dropped. Refuses when some
    /// are attached, unless forced: then they are disconnected. May wait: not for async code.
    fn close(&self, volume: &Volume, part: Part, force: bool) -> Answer<Closure> {
        let patience = if force { FORCE_PATIENCE } else { DETACH_PATIENCE };
        self.0.attachments.close(volume.id(), part, force, patience).map_err(|clients| {
            let name = volume.name();
            let (count, first) = (clients_count(clients.len()), clients.join(", "));
            let refusal =
                Refusal::new(ProblemKind::Busy, format!("{count} attached to {name}: {first}"));
            match force {
                false => refusal.with_hint("disconnect them, or force it (--force, ?force=true)"),
                true => refusal.with_hint("they did not leave when they were asked to; try again"),
            }
        })
    }
}

/// How long a client that has just disconnected may take to be gone.
const DETACH_PATIENCE: Duration = Duration::from_secs(1);
/// How long clients that are disconnected may take: longer than their sessions may draw out the
/// farewell.
const FORCE_PATIENCE: Duration = Duration::from_secs(20);

fn clients_count(count: usize) -> String {
    if count == 1 { "1 client is".to_owned() } else { format!("{count} clients are") }
}

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

fn api_routes() -> OpenApiRouter<Context> {
    let v1 = OpenApiRouter::new()
        .routes(routes!(volumes::list, volumes::create))
        .routes(routes!(volumes::show, volumes::change, trash::delete))
        .routes(routes!(rename::rename))
        .routes(routes!(trash::list))
        .routes(routes!(trash::empty))
        .routes(routes!(trash::undelete))
        .routes(routes!(volumes::space))
        .routes(routes!(import::create))
        .routes(routes!(history::resolve))
        .routes(routes!(history::history))
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
        .routes(routes!(pool::show, pool::change))
        .routes(routes!(pool::replace))
        .routes(routes!(pool::attach))
        .routes(routes!(pool::grow))
        .routes(routes!(pool::add_spare, pool::remove_spare))
        .routes(routes!(pool::scrub, pool::stop_scrub, pool::set_scrub))
        .routes(routes!(pool::audit));
    OpenApiRouter::with_openapi(Document::openapi())
        .nest(API_PREFIX, v1)
        .routes(routes!(health::metrics))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
}

fn api_document() -> serde_json::Value {
    let document = api_routes().into_openapi();
    document::complete(serde_json::to_value(document).expect("a document of plain values"))
}

/// The OpenAPI document as generated from the handlers; `api::OPENAPI_JSON` is the checked-in copy.
#[must_use]
pub fn openapi_json() -> String {
    let document = api_document();
    let mut json =
        serde_json::to_string_pretty(&document).expect("a document of plain values serialises");
    json.push('\n');
    json
}

/// The whole service for requests that come in by `door`, where they have to show `token`.
pub(crate) fn router(context: &Context, door: Door, token: Option<Token>) -> Router {
    let (router, _) = api_routes().split_for_parts();
    router
        .route(&format!("{API_PREFIX}/openapi.json"), get(openapi))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(token, guard::check))
        .layer(Extension(door))
        .layer(from_fn_with_state(context.clone(), observe))
        .with_state(context.clone())
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
    let caller = request.extensions().get::<Caller>().cloned();
    let caller = caller.as_ref().map_or("", |caller| &*caller.0);
    let began = tokio::time::Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let took = began.elapsed();
    context.0.metrics.http_request(&method, status, took);
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if method.is_safe() {
        tracing::debug!(%method, path, status, us, caller, "request");
    } else {
        tracing::info!(%method, path, status, us, caller, "request");
    }
    response
}

/// The entries of a page that `limit` asks for.
fn page_entries(limit: Option<usize>, max: usize) -> Answer<usize> {
    match limit {
        None => Ok(max),
        Some(limit) if (1..=max).contains(&limit) => Ok(limit),
        Some(limit) => Err(Refusal::malformed(
            format!("limit {limit} is out of range"),
            Some(format!("give 1 to {max}")),
        )),
    }
}

/// Reads a moment of a request.
fn moment(text: &str) -> Answer<units::Moment> {
    text.parse().map_err(|e: units::MomentError| Refusal::malformed(e.message, e.hint))
}
