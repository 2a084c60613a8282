//! Connections of the HTTP API: accepted, bounded in number and time, drained at stop.
//!
//! With TLS a handshake comes first: it counts as a connection, and may take 10 s. A client that
//! speaks HTTP without it is told so, and a silent one is closed.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use api::{PROBLEM_MEDIA_TYPE, Problem, ProblemKind};
use env::{Rank, RankedMutex, RankedRwLock};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::ask::Patience;
use super::context::Context;
use super::guard::{Door, Guard, Peer, ShownCertificate};
use super::router::router;
use crate::StartError;
use crate::admission::{Admission, Admitted, is_loopback};
use crate::listen::{Bound, SocketFile};
use crate::serving::common_name;
use crate::tls::Tls;
use crate::token::Token;
use crate::who::guesses::Guesses;
use crate::who::{AccessConfig, Caller};

/// Connections of a listener at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 256;
/// How long requests may take to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait after an accept that failed (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The first byte of every client that speaks TLS: a record of the handshake.
const TLS_HANDSHAKE: u8 = 22;
/// How long a handshake may take.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes that are taken of a client that has been refused, so that it reads why.
const PARTING_BYTES_MAX: u64 = 64 << 20;
/// How long it may take to do so.
const PARTING_TIMEOUT: Duration = Duration::from_secs(1);

/// The running HTTP server.
pub(crate) struct HttpServer {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    tls: Arc<RankedRwLock<Tls>>,
    /// The unix sockets; removed when the server is dropped.
    _files: Vec<SocketFile>,
}

impl HttpServer {
    /// Serves every bound socket on a thread of its own; over TCP requests have to show `token`, or
    /// one of the pool's tokens.
    pub(crate) fn start(
        context: &Context,
        bound: Bound,
        (token, tls): (Option<&Token>, Tls),
        patience: Patience,
    ) -> Result<HttpServer, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("http")
            .build()
            .map_err(StartError::Thread)?;
        let (stop, stopped) = watch::channel(false);
        let guesses = Arc::new(Guesses::new());
        let is_tls = tls.is_some();
        let guard = |door| Guard {
            door,
            is_tls: is_tls && door != Door::Unix,
            token: token.cloned(),
            guesses: Arc::clone(&guesses),
            context: context.clone(),
        };
        let access = context.access;
        // Listeners belong to a runtime.
        let entered = runtime.enter();
        let (mut files, mut listeners) = (Vec::new(), Vec::new());
        let failed = |source| StartError::Listen { address: "HTTP".to_owned(), source };
        if let Some(unix) = bound.unix {
            files.push(unix.file);
            let listener = UnixListener::from_std(unix.listener).map_err(failed)?;
            listeners.push((Listener::Unix(listener), router(guard(Door::Unix))));
        }
        for listener in bound.tcp {
            let door = match listener.local_addr() {
                Ok(address) if is_loopback(address.ip()) => Door::Loopback,
                _ => Door::Open,
            };
            let listener = TcpListener::from_std(listener).map_err(failed)?;
            listeners.push((Listener::Tcp(listener), router(guard(door))));
        }
        drop(entered);
        let tls = Arc::new(RankedRwLock::new(Rank::Leaf, tls));
        let of_tcp = Arc::clone(&tls);
        let thread = std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || run(&runtime, listeners, (patience, access, of_tcp), stopped))
            .map_err(StartError::Thread)?;
        Ok(HttpServer { stop, thread, tls, _files: files })
    }

    /// The TLS of TCP, which a reload replaces, and does not begin or end.
    pub(crate) fn tls(&self) -> &Arc<RankedRwLock<Tls>> {
        &self.tls
    }

    /// Accepts no more, lets requests at hand finish, and ends.
    pub(crate) fn stop(self) {
        self.stop.send_replace(true);
        if self.thread.join().is_err() {
            tracing::error!("the HTTP thread panicked");
        }
    }
}

/// A bound socket.
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Watches the connections of all listeners until the drain takes it.
type Graceful = Arc<RankedMutex<Option<GracefulShutdown>>>;

/// One listener and its connections.
#[derive(Clone)]
struct Accepting {
    router: axum::Router,
    /// Each listener has its own: clients of one do not lock out those of another.
    permits: Arc<Semaphore>,
    admission: Arc<Admission>,
    graceful: Graceful,
    patience: Patience,
    access: AccessConfig,
    /// The TLS of TCP: for connections from now on.
    tls: Arc<RankedRwLock<Tls>>,
}

/// The place of a connection among those of its listener.
type Place = (OwnedSemaphorePermit, Admitted);

fn run(
    runtime: &Runtime,
    listeners: Vec<(Listener, axum::Router)>,
    (patience, access, tls): (Patience, AccessConfig, Arc<RankedRwLock<Tls>>),
    mut stopped: watch::Receiver<bool>,
) {
    runtime.block_on(async {
        let graceful: Graceful =
            Arc::new(RankedMutex::new(Rank::Leaf, Some(GracefulShutdown::new())));
        let mut all_permits = Vec::new();
        for (listener, router) in listeners {
            let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
            all_permits.push(Arc::clone(&permits));
            let admission = Admission::new(CONNECTIONS_MAX);
            let graceful = Arc::clone(&graceful);
            let tls = Arc::clone(&tls);
            let accepting =
                Accepting { router, permits, admission, graceful, patience, access, tls };
            tokio::spawn(accepting.accept_all(listener));
        }
        // The sender is dropped only after it has said stop.
        let _ = stopped.wait_for(|stop| *stop).await;
        all_permits.iter().for_each(|permits| permits.close());
        let graceful = graceful.lock().take();
        if let Some(graceful) = graceful {
            let drained = tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await;
            if drained.is_err() {
                tracing::info!("requests did not finish in time and were cut off");
            }
        }
    });
}

impl Accepting {
    async fn accept_all(self, listener: Listener) {
        while let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await {
            let accepted = match &listener {
                Listener::Unix(listener) => {
                    let accepted = listener.accept().await;
                    accepted.map(|(stream, _)| self.serve_unix(stream, permit))
                }
                Listener::Tcp(listener) => {
                    let accepted = listener.accept().await;
                    accepted.map(|(stream, peer)| self.serve_tcp(stream, peer, permit))
                }
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "cannot accept an HTTP connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        // Dropping the listener here would refuse clients that the drain still has to answer.
        pending().await
    }

    fn admit(&self, peer: Option<SocketAddr>, permit: OwnedSemaphorePermit) -> Option<Place> {
        let admitted = self.admission.admit(peer.map(|peer| peer.ip()));
        if admitted.is_none() {
            tracing::warn!(?peer, "a connection was closed: its peer has too many");
        }
        Some((permit, admitted?))
    }

    fn serve_unix(&self, stream: UnixStream, permit: OwnedSemaphorePermit) {
        let uid = stream.peer_cred().ok().map(|peer| peer.uid());
        let caller = Caller::of_socket(uid, &self.access);
        if let Some(place) = self.admit(None, permit) {
            self.serve(stream, Peer::Unix(caller), place);
        }
    }

    fn serve_tcp(&self, stream: TcpStream, address: SocketAddr, permit: OwnedSemaphorePermit) {
        // Best effort: without it answers only come a little later.
        let _ = stream.set_nodelay(true);
        let Some(place) = self.admit(Some(address), permit) else { return };
        let text: Arc<str> = address.to_string().into();
        let tls = self.tls.read().clone();
        let Some(tls) = tls else {
            return self.serve(stream, Peer::Tcp(address, text, None), place);
        };
        let accepting = self.clone();
        tokio::spawn(async move {
            let patience = accepting.patience.0.min(HANDSHAKE_PATIENCE);
            let acceptor = Arc::clone(&tls).into();
            match tokio::time::timeout(patience, shake(stream, acceptor)).await {
                Ok(Ok(Some(stream))) => {
                    let shown = stream.get_ref().1.peer_certificates();
                    let shown = shown.and_then(|all| all.first());
                    let name = |one| common_name(one).map(Arc::from);
                    let shown = shown.map(|one| ShownCertificate { name: name(one), by: tls });
                    accepting.serve(stream, Peer::Tcp(address, text, shown), place);
                }
                Ok(Ok(None)) => {}
                // Every caller who reaches the address could fill a log with these.
                Ok(Err(error)) => tracing::debug!(from = &*text, %error, "no handshake of TLS"),
                Err(_) => tracing::debug!(from = &*text, "a handshake of TLS did not end in time"),
            }
        });
    }

    fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
        place: Place,
    ) {
        let (patience, tls) = (self.patience, Arc::clone(&self.tls));
        let service = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (now, is_same) = peer.as_of(&tls.read());
            request.extensions_mut().insert(now);
            request.extensions_mut().insert(patience);
            let answer = service.call(request);
            async move {
                let mut answer = answer.await?;
                if !is_same {
                    // The client shakes hands again.
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.patience.0)
            .max_buf_size(64 << 10)
            .serve_connection(TokioIo::new(stream), service);
        let Some(watched) = self.graceful.lock().as_ref().map(|g| g.watch(connection)) else {
            return;
        };
        tokio::spawn(async move {
            // Clients that leave in the middle, or send what is not HTTP, are their own affair.
            if let Err(error) = watched.await {
                tracing::debug!(%error, "an HTTP connection ended early");
            }
            drop(place);
        });
    }
}

/// Goes over to TLS; none for a client that left without a word, or spoke without.
async fn shake(
    mut stream: TcpStream,
    tls: TlsAcceptor,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    if first[0] == TLS_HANDSHAKE {
        let shaken = tls.accept(stream).into_fallible().await;
        return match shaken {
            Ok(stream) => Ok(Some(stream)),
            Err((error, stream)) => {
                part(stream).await;
                Err(error)
            }
        };
    }
    let text = "TLS is spoken at this address, and this is plain HTTP";
    let problem = Problem::new(ProblemKind::Malformed, text).with_hint("give it as https://");
    let body = serde_json::to_string(&problem).map_err(io::Error::other)?;
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: {PROBLEM_MEDIA_TYPE}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    part(stream).await;
    Ok(None)
}

/// Leaves a client that has been told why: a connection that is closed on bytes that nobody read is
/// reset, and what was told may be lost.
async fn part(mut stream: TcpStream) {
    let mut sink = tokio::io::sink();
    let parting = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(PARTING_BYTES_MAX), &mut sink).await
    };
    // It may have left before.
    let _ = tokio::time::timeout(PARTING_TIMEOUT, parting).await;
}
