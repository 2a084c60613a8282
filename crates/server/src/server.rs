//! A running server: the pool, its background thread, its listeners; started and stopped in order.
//!
//! Start: the pool that is there, sockets bound, else a new pool, background thread, NBD, HTTP.
//! Stop: not ready, NBD and HTTP clients get the answers they are owed and no new ones come,
//! background work ends, the pool is closed.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use volume::Pool;

use crate::buffers::BuffersCollector;
use crate::exposure::{
    AllTls, http_protection, iscsi_protection, nbd_protection, nfs_protection, refuse_exposed,
};
use crate::fill::{FillGauge, FillWatch};
use crate::hooked::Hooked;
use crate::hooks::{HookCollector, Hooks};
use crate::http::{Addresses, Context, HttpServer, Parts, Patience};
use crate::intercept::{self, InterceptCollector, Intercepts};
use crate::iscsi::{ChapTokens, IscsiContext, Targets};
use crate::listen::{self, Bound, SocketFile};
use crate::member_watch::MemberWatch;
use crate::meters::Meters;
use crate::metrics::Metrics;
use crate::nbd::NbdContext;
use crate::nfs::{CallCollector, NfsContext, Shares};
use crate::no_space::NoSpaceCollector;
use crate::pool_dir::MadeDirs;
use crate::proving::Proving;
use crate::relay_settings::Intercept;
use crate::reload::{ReloadCollector, Reloading, Reloads};
use crate::serving::{
    Collected, Counters, DataThreads, FrontEnd, Limits, Listeners, PoolExports, RoomQueue, Serving,
};
use crate::taps::{TapCollector, Taps};
use crate::tls::Tls;
use crate::token::Token;
use crate::watching::Watching;
use crate::who::codes::Codes;
use crate::who::token_named;
use crate::worker::Worker;
use crate::write_memory::{WriteBufferCollector, Writing};
use crate::{Attachments, Buffers, Config, NoSpace, StartError, background, pool_files, scratch};

/// Threads that serve NBD, at most: beyond, the engine's locks are what counts.
const DATA_THREADS_MAX: usize = 16;

/// Bytes of calls over NFS that wait, of one connection.
const NFS_IN_FLIGHT_BYTES: u64 = 16 << 20;

/// How long a login over iSCSI may take.
const ISCSI_LOGIN_MAX: Duration = Duration::from_secs(15);

/// A running server.
pub struct Server {
    pool: Arc<Pool>,
    reloading: Reloading,
    context: Context,
    background: Worker,
    _writing: Writing,
    hooked: Hooked,
    intercepts: Arc<Intercepts>,
    data: DataThreads,
    /// Removed when the server is gone.
    _nbd_socket: Option<SocketFile>,
    http: HttpServer,
    listeners: Vec<String>,
}

impl Server {
    /// Opens (or makes) the pool and serves it.
    ///
    /// # Errors
    /// When the pool cannot be used, or a listener cannot be set up; nothing is left running then.
    pub fn start(config: &Config) -> Result<Server, StartError> {
        // Refusals first: nothing is made before they have passed.
        refuse_exposed(config)?;
        let tls = AllTls::load(config)?;
        let made = MadeDirs::make(&config.pool_dir)?;
        let mut pool = pool_files::open(config)?;
        pool.iter().for_each(|pool| scratch::remove_all(pool));
        let started = Doors::open(config).and_then(|doors| {
            let pool = match &pool {
                Some(pool) => Arc::clone(pool),
                // Last: a start that fails leaves no new pool behind.
                None => Arc::clone(pool.insert(doors.create_pool(config)?)),
            };
            Server::serve(config, pool, tls, doors)
        });
        match started {
            Ok(server) => {
                made.keep();
                Ok(server)
            }
            Err(error) => {
                if let Some(pool) = pool {
                    close(&pool);
                    made.keep();
                }
                Err(error)
            }
        }
    }

    fn serve(
        config: &Config,
        pool: Arc<Pool>,
        tls: AllTls,
        doors: Doors,
    ) -> Result<Server, StartError> {
        let exports = PoolExports::new(Arc::clone(&pool));
        let no_space = Arc::clone(exports.no_space());
        let nbd_context = nbd_context(config, &pool, exports, tls.nbd);
        let listeners = doors.described(config)?;
        let Doors { nbd: nbd_bound, http: http_bound, iscsi, nfs, intercepts, token, .. } = doors;
        let hooks = Arc::new(Hooks::new(config.hooks.clone()));
        let reloads = Arc::new(Reloads::default());
        let iscsi_context = iscsi_context(config, &pool, &nbd_context);
        let nfs_context = nfs_context(&pool, &nbd_context);
        let intercepts = relays(&pool, nfs_context.shares(), &nfs, intercepts)?;
        let counted = (&hooks, &reloads, &no_space, &intercepts);
        let all = (&*nbd_context, &iscsi_context, &nfs_context);
        let bound = (&nbd_bound, &http_bound, &iscsi, &nfs);
        let context = http_context(config, &pool, all, bound, counted)?;
        pool.set_rates(config.rates);
        let writing = Writing::start(config.write_memory_bytes)?;
        let fill = FillWatch::new(Arc::clone(&context.fill));
        let members = MemberWatch::new(config.pool_dir.clone());
        let background = background::start(Arc::clone(&pool), fill, members)?;
        let others = [(iscsi_context as Arc<_>, iscsi.tcp), (nfs_context as Arc<_>, nfs.tcp)];
        let (served, nbd_socket) = front_ends((&nbd_context, nbd_bound), others);
        let data = DataThreads::start(data_threads(), served).map_err(StartError::Thread)?;
        let (asks, patience) = ((token.as_ref(), tls.http), Patience(config.http_patience));
        let http = match HttpServer::start(&context, http_bound, asks, patience) {
            Ok(http) => http,
            Err(error) => {
                data.stop();
                return Err(error);
            }
        };
        let looks = (&context.proving, &context.watching);
        let hooked = match Hooked::start(&pool, &hooks, &nbd_context.attachments, looks) {
            Ok(hooked) => hooked,
            Err(error) => {
                data.stop();
                http.stop();
                return Err(error);
            }
        };
        let (config, http_tls) = (config.clone(), Arc::clone(http.tls()));
        let reloading = Reloading { config, nbd: nbd_context, http_tls, hooks, reloads };
        context.set_ready(true);
        Ok(Server {
            pool,
            reloading,
            context,
            background,
            _writing: writing,
            hooked,
            intercepts,
            data,
            _nbd_socket: nbd_socket,
            http,
            listeners,
        })
    }

    /// One line per listener, such as `nbd unix:/pool/nbd.sock`, `nbd 127.0.0.1:10809` or
    /// `http http://127.0.0.1:9820/?token=0123456789abcdef`.
    #[must_use]
    pub fn listeners(&self) -> &[String] {
        &self.listeners
    }

    /// Goes on with what can be loaded again of `config` (see `reload`); all that is wrong is found
    /// before anything is changed. Answers the settings that differ and wait for the next start.
    ///
    /// # Errors
    /// When certificates cannot be used, or what is listened on would not be protected any more.
    pub fn reload(&mut self, config: &Config) -> Result<Vec<&'static str>, StartError> {
        self.reloading.reload(&self.pool, config)
    }

    /// Counts a reload that came to no configuration.
    pub(crate) fn reload_failed(&self) {
        self.reloading.reloads.end(false);
    }

    /// The pool it serves.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Stops in order; every acknowledged write is durable afterwards.
    ///
    /// # Errors
    /// When the pool could not be closed: what was flushed is safe, what was not may be lost.
    pub fn stop(self) -> Result<(), StartError> {
        self.context.set_ready(false);
        self.hooked.end_commands();
        self.intercepts.stop();
        self.data.stop();
        self.http.stop();
        self.hooked.stop();
        scratch::remove_all(&self.pool);
        drop(self.background);
        self.pool.close().map_err(StartError::Pool)
    }
}

/// The sockets of a server, bound, and the token.
struct Doors {
    nbd: Bound,
    http: Bound,
    iscsi: Bound,
    nfs: Bound,
    intercepts: Vec<(Intercept, TcpListener)>,
    token: Option<Token>,
    is_new_token: bool,
}

impl Doors {
    fn open(config: &Config) -> Result<Doors, StartError> {
        let nbd = listen::bind(&config.nbd, nbd_protection(config))?;
        let http = listen::bind(&config.http, http_protection(config))?;
        let iscsi = listen::bind(&config.iscsi, iscsi_protection(config))?;
        let nfs = listen::bind(&config.nfs, nfs_protection(config))?;
        let intercepts = intercept::bind(config)?;
        let (token, is_new_token) = match config.http.tcp.is_empty() {
            true => (None, false),
            false => {
                let (token, is_new) = Token::load_or_make(&config.pool_dir)?;
                (Some(token), is_new)
            }
        };
        Ok(Doors { nbd, http, iscsi, nfs, intercepts, token, is_new_token })
    }

    /// A line for each listener.
    fn described(&self, config: &Config) -> Result<Vec<String>, StartError> {
        let tls = if config.nbd_tls.is_some() { " (TLS)" } else { "" };
        let token = self.token.as_ref().map_or("", Token::text);
        let nbd = describe("nbd", &self.nbd, |address| format!("{address}{tls}"))?;
        let iscsi = describe("iscsi", &self.iscsi, |address| address.to_string())?;
        let nfs = describe("nfs", &self.nfs, |address| address.to_string())?;
        let mut intercepts = Vec::new();
        for (intercept, listener) in &self.intercepts {
            let address = listen::local_address(listener)?;
            intercepts.push(format!("intercept {address} ({intercept})"));
        }
        let scheme = if config.http_tls.is_some() { "https" } else { "http" };
        let url = |address| format!("{scheme}://{address}/?token={token}");
        Ok([nbd, iscsi, nfs, intercepts, describe("http", &self.http, url)?].concat())
    }

    fn create_pool(&self, config: &Config) -> Result<Arc<Pool>, StartError> {
        pool_files::create(config).inspect_err(|_| {
            if self.is_new_token {
                Token::remove(&config.pool_dir);
            }
        })
    }
}

/// Where NBD and those that are served over TCP alone are served, and the file of NBD's socket.
fn front_ends(
    (nbd, bound): (&Arc<NbdContext>, Bound),
    others: [(Arc<dyn FrontEnd>, Vec<TcpListener>); 2],
) -> (Vec<Listeners>, Option<SocketFile>) {
    let (unix, file) = bound.unix.map(|unix| (unix.listener, unix.file)).unzip();
    let (front_end, unix) = (Arc::clone(nbd), unix.into_iter().collect());
    let mut all = vec![Listeners { front_end, unix, tcp: bound.tcp }];
    let over_tcp = |(front_end, tcp)| Listeners { front_end, unix: Vec::new(), tcp };
    all.extend(others.map(over_tcp));
    (all, file)
}

/// Threads that serve NBD: one per processor.
fn data_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(DATA_THREADS_MAX)
}

/// The TLS of NBD over TCP, if it has any.
fn nbd_context(
    config: &Config,
    pool: &Arc<Pool>,
    exports: PoolExports,
    tls: Tls,
) -> Arc<NbdContext> {
    let connections_max = config.nbd_connections_max;
    let serving = Serving {
        exports: Arc::new(exports),
        attachments: Arc::new(Attachments::default()),
        limits: Limits { connections_max, ..Limits::default() },
        counters: Arc::new(Counters::default()),
        meters: Arc::new(Meters::default()),
        buffers: Arc::new(Buffers::new(config.buffers_bytes, config.is_buffer_pool)),
        taps: Arc::new(Taps::default()),
        room: RoomQueue::default(),
    };
    let tls = env::RankedRwLock::new(env::Rank::Leaf, tls);
    let pool = Arc::clone(pool);
    let token_named = Box::new(move |name: &str| token_named(&pool, name));
    Arc::new(NbdContext { serving, tls, access: config.access, token_named })
}

/// The same memory, recorders and register as those of NBD.
fn iscsi_context(config: &Config, pool: &Arc<Pool>, nbd: &NbdContext) -> Arc<IscsiContext> {
    let limits = Limits { handshake_whole: ISCSI_LOGIN_MAX, ..Limits::default() };
    let serving = Serving { limits, counters: Arc::default(), ..nbd.serving.clone() };
    let pool_id = u64::from_str_radix(&pool.status().id, 16).expect("a pool's number is hex");
    let targets = Targets::new(pool_id, config.iscsi_base.clone());
    match pool.opened_names() {
        Ok((names, noted)) => {
            targets.opened.load(names);
            if let Err(error) = noted {
                tracing::warn!(%error, "names whose moments are gone are refused for longer");
            }
        }
        Err(error) => tracing::warn!(%error, "names of moments mean what they mean now"),
    }
    let mut context = IscsiContext::new(serving, targets, config.insecure);
    context.tokens = ChapTokens::of(pool);
    context.announced = config.iscsi_announced.clone();
    Arc::new(context)
}

/// The relays before NFS servers; those that are dropped stop.
fn relays(
    pool: &Pool,
    shares: &Arc<Shares>,
    nfs: &Bound,
    bound: Vec<(Intercept, TcpListener)>,
) -> Result<Arc<Intercepts>, StartError> {
    let own = nfs.tcp.first().map(listen::local_address).transpose()?;
    Intercepts::start(pool, shares, bound, own).map(Arc::new)
}

/// The same memory and queue for room as those of NBD.
fn nfs_context(pool: &Arc<Pool>, nbd: &NbdContext) -> Arc<NfsContext> {
    let limits = Limits { in_flight_bytes_max: NFS_IN_FLIGHT_BYTES, ..Limits::default() };
    let serving = Serving { limits, counters: Arc::default(), ..nbd.serving.clone() };
    let shares = Arc::new(Shares::new(Arc::clone(pool)));
    Arc::new(NfsContext::new(serving, Arc::clone(pool), shares))
}

fn http_context(
    config: &Config,
    pool: &Arc<Pool>,
    (nbd, iscsi, nfs): (&NbdContext, &Arc<IscsiContext>, &Arc<NfsContext>),
    bound: (&Bound, &Bound, &Bound, &Bound),
    (hooks, reloads, no_space, intercepts): (
        &Arc<Hooks>,
        &Arc<Reloads>,
        &Arc<NoSpace>,
        &Arc<Intercepts>,
    ),
) -> Result<Context, StartError> {
    let addresses = addresses(config, bound, iscsi)?;
    let attachments = &nbd.attachments;
    let counted: Vec<Box<dyn Collector>> = vec![
        Box::new(Collected("nbd", Arc::clone(&nbd.counters))),
        Box::new(Collected("iscsi", Arc::clone(&iscsi.counters))),
        Box::new(iscsi.refusal_collector()),
        Box::new(Collected("nfs", Arc::clone(&nfs.counters))),
        Box::new(CallCollector(Arc::clone(nfs))),
        Box::new(TapCollector(Arc::clone(&nbd.taps))),
        Box::new(BuffersCollector(Arc::clone(&nbd.buffers))),
        Box::new(HookCollector(Arc::clone(hooks))),
        Box::new(ReloadCollector(Arc::clone(reloads))),
        Box::new(NoSpaceCollector(Arc::clone(no_space))),
        Box::new(WriteBufferCollector),
        Box::new(InterceptCollector(Arc::clone(intercepts))),
    ];
    let thin = Arc::clone(iscsi.thin());
    let fill = Arc::new(FillGauge::new(Arc::clone(pool), pool_files::path_of(config), thin));
    let metrics =
        Metrics::new(Arc::clone(pool), Arc::clone(&fill), Arc::clone(attachments), counted);
    Ok(Context::new(Parts {
        pool: Arc::clone(pool),
        fill,
        attachments: Arc::clone(attachments),
        taps: Arc::clone(&nbd.taps),
        meters: Arc::clone(&nbd.meters),
        hooks: Arc::clone(hooks),
        proving: Proving::new(hooks, (config.nbd.unix.clone(), config.http.unix.clone())),
        watching: Arc::new(Watching::new(hooks)),
        no_space: Arc::clone(no_space),
        shares: Arc::clone(nfs.shares()),
        intercepts: Arc::clone(intercepts),
        addresses,
        metrics,
        pool_dir: config.pool_dir.clone(),
        access: config.access,
        codes: Codes::new(),
    }))
}

fn close(pool: &Pool) {
    if let Err(error) = pool.close() {
        tracing::error!(%error, "the pool could not be closed");
    }
}

/// A line for each listener; `tcp` says how clients name an address.
fn describe(
    protocol: &str,
    bound: &Bound,
    tcp: impl Fn(SocketAddr) -> String,
) -> Result<Vec<String>, StartError> {
    let mut lines = Vec::new();
    if let Some(unix) = &bound.unix {
        lines.push(format!("{protocol} unix:{}", unix.file.path.display()));
    }
    for listener in &bound.tcp {
        lines.push(format!("{protocol} {}", tcp(listen::local_address(listener)?)));
    }
    Ok(lines)
}

fn addresses(
    config: &Config,
    (nbd, http, iscsi, nfs): (&Bound, &Bound, &Bound, &Bound),
    context: &Arc<IscsiContext>,
) -> Result<Addresses, StartError> {
    let address = |bound: &Bound| bound.tcp.first().map(listen::local_address).transpose();
    Ok(Addresses {
        unix: nbd.unix.as_ref().map(|unix| unix.file.path.clone()),
        tcp: address(nbd)?,
        tls: config.nbd_tls.is_some(),
        http: address(http)?,
        http_cert: config.http_tls.as_ref().map(|files| files.cert.clone()),
        iscsi: address(iscsi)?.map(|address| (address, Arc::clone(context))),
        nfs: nfs.tcp.iter().map(listen::local_address).collect::<Result<_, _>>()?,
    })
}
