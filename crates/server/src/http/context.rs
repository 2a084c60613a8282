//! The state that every handler can reach, and the questions that several of them ask of it.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{ListQuery, ProblemKind};
use axum::Json;
use axum::http::StatusCode;
use units::Role;
use volume::{Pool, Volume};

use super::addresses::Addresses;
use super::answer::{Answer, Listed, Refusal};
use super::{convert, lacks, started};
use crate::NoSpace;
use crate::attach::{Attachments, Closure, Part};
use crate::fill::FillGauge;
use crate::hooks::Hooks;
use crate::intercept::Intercepts;
use crate::meters::Meters;
use crate::metrics::Metrics;
use crate::nfs::Shares;
use crate::proving::Proving;
use crate::taps::Taps;
use crate::watching::Watching;
use crate::who::codes::Codes;
use crate::who::{self, AccessConfig, Caller};

/// Entries in a page, unless fewer are asked for; and at most.
pub(super) const PAGE_ENTRIES: usize = 10_000;

/// The state that every handler can reach; where work of the engine is done, with the caller that
/// it is done for.
#[derive(Clone)]
pub(crate) struct Context(Arc<Inner>, Option<Caller>);

/// The parts of the server that handlers ask.
pub(crate) struct Parts {
    pub(crate) pool: Arc<Pool>,
    /// How full the pool is.
    pub(crate) fill: Arc<FillGauge>,
    pub(crate) attachments: Arc<Attachments>,
    /// The recorders of requests.
    pub(crate) taps: Arc<Taps>,
    /// The measurements of volumes.
    pub(crate) meters: Arc<Meters>,
    /// The commands around captures.
    pub(crate) hooks: Arc<Hooks>,
    /// The checks of moments.
    pub(crate) proving: Arc<Proving>,
    /// The watches over volumes.
    pub(crate) watching: Arc<Watching>,
    /// The writes that failed for want of room.
    pub(crate) no_space: Arc<NoSpace>,
    /// The shares that are open.
    pub(crate) shares: Arc<Shares>,
    /// The relays before NFS servers.
    pub(crate) intercepts: Arc<Intercepts>,
    /// Where clients connect.
    pub(crate) addresses: Addresses,
    pub(crate) metrics: Metrics,
    /// Where the pool's members are looked for.
    pub(crate) pool_dir: PathBuf,
    /// The rights that no token has.
    pub(crate) access: AccessConfig,
    /// The codes by which browsers are let in.
    pub(crate) codes: Codes,
}

struct Inner {
    parts: Parts,
    ready: AtomicBool,
}

impl Deref for Context {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0.parts
    }
}

impl Context {
    pub(crate) fn new(parts: Parts) -> Context {
        started::remember_start();
        Context(Arc::new(Inner { parts, ready: AtomicBool::new(false) }), None)
    }

    /// Refuses to change a share that follows another server.
    pub(super) fn refuse_follower(&self, volume: &Volume) -> Answer<()> {
        if !self.shares.is_follower(volume.id()) {
            return Ok(());
        }
        let text = format!("{} follows another server, and would no more", volume.name());
        let hint = "clone a moment of it (`hindsight clone`), or copy files back to that server \
                    from a mounted moment";
        Err(Refusal::new(ProblemKind::Busy, text).with_hint(hint))
    }

    /// Refuses a hook that the configuration does not name.
    pub(super) fn check_hook(&self, name: Option<&str>) -> Answer<()> {
        let is_unknown = |name: &&str| *name != volume::NO_HOOK && !self.hooks.has(name);
        let Some(name) = name.filter(is_unknown) else { return Ok(()) };
        let mut refusal = self.no_hook(name, |name| self.hooks.has(name));
        if self.hooks.names().iter().any(|known| known == name) {
            refusal.0.detail = format!("the hook {name} has neither `before` nor `after`");
        }
        Err(refusal)
    }

    /// The refusal of a name that no hook has; the hint tells those that would do.
    fn no_hook(&self, name: &str, would_do: impl Fn(&str) -> bool) -> Refusal {
        let mut names = self.hooks.names();
        names.retain(|name| would_do(name));
        let hint = match &names[..] {
            [] => "the server's configuration file names none: [hooks.NAME]".to_owned(),
            names => format!("there is {}", names.join(", ")),
        };
        Refusal::new(ProblemKind::NotFound, format!("there is no hook {name}")).with_hint(hint)
    }

    /// Refuses a hook that has no check.
    pub(super) fn check_verify(&self, name: Option<&str>) -> Answer<()> {
        let Some(name) = name else { return Ok(()) };
        if self.hooks.verify_of(name).is_some() {
            return Ok(());
        }
        if !self.hooks.names().iter().any(|known| known == name) {
            return Err(self.no_hook(name, |name| self.hooks.verify_of(name).is_some()));
        }
        let text = format!("the hook {name} has no `verify`");
        let hint = "in the server's configuration: verify = [\"/path/of/a/check\"]";
        Err(Refusal::new(ProblemKind::NotFound, text).with_hint(hint))
    }

    /// Refuses a hook that a call names in the place of the one that is set: it is a command.
    pub(super) fn check_hook_of_call(&self, name: Option<&str>) -> Answer<()> {
        if name.is_some() {
            self.must_have(Role::Operator)?;
        }
        self.check_hook(name)
    }

    /// Says whether `/readyz` answers 200.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.0.ready.store(ready, Ordering::Release);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Acquire)
    }

    /// Runs work of the engine where it may wait.
    pub(super) async fn engine<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Context) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let called = who::caller();
        let context = Context(Arc::clone(&self.0), called.as_ref().map(|(it, _)| it.clone()));
        let slot = Arc::new(Mutex::new(None));
        let answer = Arc::clone(&slot);
        let work: Box<dyn FnOnce() + Send> = Box::new(move || {
            let done = match called {
                Some((caller, true)) => {
                    let from = caller.from.as_deref();
                    volume::on_behalf_of(&caller.who, from, || work(&context))
                }
                _ => work(&context),
            };
            let done = done.map_err(|refusal| context.without_origin(refusal));
            *answer.lock().expect("nobody panics with it") = Some(done);
        });
        where_it_may_wait(work).await;
        let answer = slot.lock().expect("nobody panics with it").take();
        answer.unwrap_or_else(|| Err(panicked()))
    }

    /// The same, answered as JSON.
    pub(super) async fn json<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Context) -> Answer<T> + Send + 'static,
    ) -> Answer<Json<T>> {
        self.engine(work).await.map(Json)
    }

    /// The same of work that deletes something.
    pub(super) async fn delete(
        &self,
        work: impl FnOnce(&Context) -> Answer<()> + Send + 'static,
    ) -> Answer<StatusCode> {
        self.engine(work).await.map(|()| StatusCode::NO_CONTENT)
    }

    /// Answers a page of the list at `path`. Asked from where on and for how many entries, `work`
    /// says them and where the next page begins.
    pub(super) async fn page<T: Send + 'static>(
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

    /// The volume of a name, if the caller sees it.
    pub(super) fn volume(&self, name: &str) -> Answer<Arc<Volume>> {
        if !self.sees(name) {
            return Err(volume::no_volume(name).into());
        }
        Ok(self.pool.volume(name)?)
    }

    /// A refusal without the hint that names the origin of a clone, for who may not see it.
    fn without_origin(&self, mut refusal: Refusal) -> Refusal {
        let is_outside = refusal.0.problem_kind() == Some(ProblemKind::OutsideWindow);
        if is_outside && self.1.is_some() && !self.sees_everything() {
            refusal.0.hint = None;
        }
        refusal
    }

    /// A version as the caller sees it.
    pub(super) fn version(&self, volume: &str, version: volume::Version) -> api::Version {
        let mut version = convert::version(volume, version);
        version.clones.retain(|clone| self.sees(clone));
        version
    }

    /// The same for whoever this task works for.
    pub(super) fn called(&self) -> Context {
        Context(Arc::clone(&self.0), who::caller().map(|(caller, _)| caller))
    }

    /// For whom the work is done; there is none but within it.
    pub(super) fn caller(&self) -> Answer<&Caller> {
        self.1.as_ref().ok_or_else(|| Refusal::new(ProblemKind::Unauthorized, "nobody calls"))
    }

    /// Whether the caller sees a volume of this name.
    pub(super) fn sees(&self, name: &str) -> bool {
        self.1.as_ref().is_some_and(|caller| caller.sees(name))
    }

    /// Whether the caller sees all volumes.
    pub(super) fn sees_everything(&self) -> bool {
        self.1.as_ref().is_some_and(Caller::sees_all)
    }

    /// All volumes by name that the caller sees.
    pub(super) fn volumes(&self) -> Vec<Arc<Volume>> {
        let mut volumes = self.pool.volumes();
        volumes.retain(|volume| self.sees(volume.name()));
        volumes
    }

    /// Refuses a name for what is to be made that the caller would not see.
    pub(super) fn check_new_name(&self, name: &str) -> Answer<()> {
        lacks::must_see(self.caller()?, name)
    }

    /// Refuses a caller that has not this role.
    pub(super) fn must_have(&self, role: Role) -> Answer<()> {
        lacks::must_have(self.caller()?, role)
    }

    /// Refuses to take history away for somebody elsewhere, where that is set.
    pub(super) fn must_be_near(&self) -> Answer<()> {
        lacks::must_be_near(&self.access, self.caller()?)
    }

    /// How many clients have the present of a volume open.
    pub(super) fn attached(&self, volume: &Volume) -> usize {
        self.attachments.count(volume.id())
    }

    pub(super) fn describe(&self, volume: &Volume) -> Answer<api::Volume> {
        let info = volume.info()?;
        let clients = self.attached(volume);
        let unfinished_import = volume.has_mark(api::UNFINISHED_IMPORT);
        let mut volume = convert::volume(info, clients, &self.addresses);
        volume.unfinished_import = unfinished_import;
        volume.hook_known = self.is_known(volume.hook.as_deref());
        volume.cloned_from = volume.cloned_from.filter(|origin| self.sees(&origin.volume));
        // A clone that is copied names its origin, an import a file of the server's machine.
        if let Some(import) = volume.import.as_mut().filter(|_| !self.sees_everything()) {
            import.file.clear();
            import.trouble = import.trouble.take().map(|_| "copying rests".to_owned());
        }
        Ok(volume)
    }

    pub(super) fn describe_group(&self, info: volume::GroupInfo) -> api::Group {
        let mut group = convert::group(info);
        group.hook_known = self.is_known(group.hook.as_deref());
        group
    }

    /// Whether the configuration has a hook that is set; none is known.
    pub(super) fn is_known(&self, hook: Option<&str>) -> bool {
        hook.is_none_or(|name| self.hooks.has(name))
    }

    /// Keeps clients away from a part of the volume until the answer is dropped. Refuses when some
    /// are attached, unless forced: then they are disconnected. May wait: not for async code.
    pub(super) fn close(&self, volume: &Volume, part: Part, force: bool) -> Answer<Closure> {
        let patience = if force { FORCE_PATIENCE } else { DETACH_PATIENCE };
        self.attachments.close(volume.id(), part, force, patience).map_err(|clients| {
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

/// Runs work on a thread of its own kind. It is boxed, or a task of each type of work would be
/// compiled.
async fn where_it_may_wait(work: Box<dyn FnOnce() + Send>) {
    if let Err(error) = tokio::task::spawn_blocking(work).await {
        tracing::error!(%error, "a request panicked");
    }
}

fn panicked() -> Refusal {
    Refusal::new(ProblemKind::Internal, "the server made a mistake; see its log")
}

/// How long a client that has just disconnected may take to be gone.
const DETACH_PATIENCE: Duration = Duration::from_secs(1);
/// How long clients that are disconnected may take: longer than their sessions may draw out the
/// farewell.
const FORCE_PATIENCE: Duration = Duration::from_secs(20);

fn clients_count(count: usize) -> String {
    if count == 1 { "1 client is".to_owned() } else { format!("{count} clients are") }
}

/// The entries of a page that `limit` asks for.
pub(super) fn page_entries(limit: Option<usize>, max: usize) -> Answer<usize> {
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
pub(super) fn moment(text: &str) -> Answer<units::Moment> {
    Ok(text.parse()?)
}
