//! Connections of the HTTP API: accepted, bounded in number and time, drained at stop.

use std::future::pending;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};

use super::{Context, Door, router};
use crate::StartError;
use crate::listen::{Bound, SocketFile, is_loopback};

/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests may take to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait after an accept that failed (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The running HTTP server.
pub(crate) struct HttpServer {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    /// The unix sockets; removed when the server is dropped.
    _files: Vec<SocketFile>,
}

impl HttpServer {
    /// Serves every bound socket on a thread of its own.
    pub(crate) fn start(context: &Context, bound: Bound) -> Result<HttpServer, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("http")
            .build()
            .map_err(StartError::Thread)?;
        let (stop, stopped) = watch::channel(false);
        let connections = Arc::new(Connections {
            context: context.clone(),
            permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            graceful: parking_lot::Mutex::new(Some(GracefulShutdown::new())),
        });
        let mut files = Vec::new();
        let unix = bound.unix.map(|unix| {
            files.push(unix.file);
            unix.listener
        });
        let thread = std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || run(&runtime, &connections, unix, bound.tcp, stopped))
            .map_err(StartError::Thread)?;
        Ok(HttpServer { stop, thread, _files: files })
    }

    /// Accepts no more, lets requests at hand finish, and ends.
    pub(crate) fn stop(self) {
        self.stop.send_replace(true);
        if self.thread.join().is_err() {
            tracing::error!("the HTTP thread panicked");
        }
    }
}

struct Connections {
    context: Context,
    permits: Arc<Semaphore>,
    /// Watches connections until the drain takes it.
    graceful: parking_lot::Mutex<Option<GracefulShutdown>>,
}

fn run(
    runtime: &Runtime,
    connections: &Arc<Connections>,
    unix: Option<std::os::unix::net::UnixListener>,
    tcp: Vec<TcpListener>,
    mut stopped: watch::Receiver<bool>,
) {
    runtime.block_on(async {
        if let Some(listener) = unix {
            tokio::spawn(accept_unix(Arc::clone(connections), listener));
        }
        for listener in tcp {
            tokio::spawn(accept_tcp(Arc::clone(connections), listener));
        }
        // The sender is dropped only after it has said stop.
        let _ = stopped.wait_for(|stop| *stop).await;
        connections.permits.close();
        let graceful = connections.graceful.lock().take();
        if let Some(graceful) = graceful {
            let drained = tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await;
            if drained.is_err() {
                tracing::info!("requests did not finish in time and were cut off");
            }
        }
    });
}

async fn accept_unix(connections: Arc<Connections>, listener: std::os::unix::net::UnixListener) {
    let listener = match tokio::net::UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot listen on the HTTP unix socket"),
    };
    let router = router(&connections.context, Door::Unix);
    while let Ok(permit) = Arc::clone(&connections.permits).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => connections.serve(stream, router.clone(), permit),
            Err(error) => pause(&error).await,
        }
    }
    // Dropping the listener here would refuse clients that the drain still has to answer.
    pending::<()>().await;
}

async fn accept_tcp(connections: Arc<Connections>, listener: TcpListener) {
    let door = match listener.local_addr() {
        Ok(address) if is_loopback(address.ip()) => Door::Loopback,
        _ => Door::Open,
    };
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot listen on the HTTP TCP socket"),
    };
    let router = router(&connections.context, door);
    while let Ok(permit) = Arc::clone(&connections.permits).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Best effort: without it answers only come a little later.
                let _ = stream.set_nodelay(true);
                connections.serve(stream, router.clone(), permit);
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn pause(error: &std::io::Error) {
    tracing::warn!(%error, "cannot accept an HTTP connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

impl Connections {
    fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        router: axum::Router,
        permit: tokio::sync::OwnedSemaphorePermit,
    ) {
        let service = TowerToHyperService::new(router);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
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
            drop(permit);
        });
    }
}
