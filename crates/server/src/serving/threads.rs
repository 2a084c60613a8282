//! Accepts connections for all front ends and deals them to data threads; starts and stops both.
//!
//! Each data thread runs a single-threaded runtime, so that a session never moves and needs no
//! lock; the first of them also accepts. Threads that may block belong to the runtime of their
//! data thread.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::Deref;
use std::os::unix::net::UnixListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::counters::Counters;
use super::jobs::{BLOCKING_THREADS_MAX, Threads};
use super::polling;
use super::shared::Serving;
use super::socket::Connection;
use crate::admission::{Admission, Admitted};

/// How long to wait after an accept that failed for want of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A protocol: what is done with a connection. It reads as the state that its connections share.
pub trait FrontEnd: Deref<Target = Serving> + Send + Sync + 'static {
    /// Serves a connection until it is over.
    fn serve(self: Arc<Self>, given: Given) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The things that a session begins with.
pub struct Given {
    pub(crate) connection: Connection,
    /// The client, for people.
    pub(crate) client: String,
    pub(crate) threads: Threads,
    /// Turns true when the server stops.
    pub(crate) stop: watch::Receiver<bool>,
}

/// A front end with its sockets, which are bound and not blocking.
pub struct Listeners {
    /// The front end.
    pub front_end: Arc<dyn FrontEnd>,
    /// Its unix sockets.
    pub unix: Vec<UnixListener>,
    /// Its TCP sockets.
    pub tcp: Vec<TcpListener>,
}

/// A socket on its way to its data thread.
enum Accepted {
    Unix(std::os::unix::net::UnixStream),
    Tcp(std::net::TcpStream, SocketAddr),
}

impl Accepted {
    fn peer(&self) -> Option<IpAddr> {
        match self {
            Accepted::Unix(_) => None,
            Accepted::Tcp(_, from) => Some(from.ip()),
        }
    }
}

/// The same with its front end, and its place among the connections of its listener.
type Dealt = (Accepted, Arc<dyn FrontEnd>, Counted);

/// A listening socket.
enum Listener {
    Unix(tokio::net::UnixListener),
    Tcp(tokio::net::TcpListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Unix(listener) => {
                let (socket, _) = listener.accept().await?;
                Ok(Accepted::Unix(socket.into_std()?))
            }
            Listener::Tcp(listener) => {
                let (socket, from) = listener.accept().await?;
                Ok(Accepted::Tcp(socket.into_std()?, from))
            }
        }
    }
}

/// The data threads, serving.
pub struct DataThreads {
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl DataThreads {
    /// Starts `threads` data threads (at least one) that serve these sockets.
    ///
    /// # Errors
    /// When a thread or its runtime cannot be made.
    pub fn start(threads: usize, listeners: Vec<Listeners>) -> io::Result<DataThreads> {
        let (stop, stopped) = watch::channel(false);
        let mut server = DataThreads { threads: Vec::new(), stop };
        let mut lanes = Vec::new();
        let mut waiting = Vec::new();
        for _ in 0..threads.max(1) {
            let (lane, sockets) = mpsc::unbounded_channel();
            lanes.push(lane);
            waiting.push((runtime()?, sockets));
        }
        let mut listeners = Some((listeners, lanes));
        let seats = polling::seats();
        for (index, (runtime, sockets)) in waiting.into_iter().enumerate() {
            let stopped = stopped.clone();
            let listeners = listeners.take();
            let seats = Arc::clone(&seats);
            let body = move || {
                if let Some((listeners, lanes)) = listeners {
                    accept_all(&runtime, &stopped, listeners, &Arc::new(lanes));
                }
                runtime.block_on(serve_lane(sockets, stopped, seats));
            };
            let thread = std::thread::Builder::new().name(format!("data-{index}")).spawn(body)?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    /// Ends all sessions: requests at hand are carried out and answered, then connections close.
    pub fn stop(mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a data thread broke off: see the panic");
            }
        }
    }
}

impl Drop for DataThreads {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        // Not as the data threads are called: their allocations are counted by that name.
        .thread_name("waiting-data")
        .build()
}

/// Starts a task for each listening socket; they share the `lanes` and end with the server.
fn accept_all(
    runtime: &Runtime,
    stopped: &watch::Receiver<bool>,
    all: Vec<Listeners>,
    lanes: &Arc<Vec<UnboundedSender<Dealt>>>,
) {
    let _inside = runtime.enter();
    for Listeners { front_end, unix, tcp } in all {
        let unix = unix.into_iter();
        let unix = unix.map(|l| tokio::net::UnixListener::from_std(l).map(Listener::Unix));
        let tcp = tcp.into_iter().map(|l| tokio::net::TcpListener::from_std(l).map(Listener::Tcp));
        for listener in unix.chain(tcp) {
            match listener {
                Ok(listener) => {
                    let (front_end, lanes) = (Arc::clone(&front_end), Arc::clone(lanes));
                    runtime.spawn(accept(listener, front_end, lanes, stopped.clone()));
                }
                Err(error) => tracing::error!(%error, "a listener cannot be used"),
            }
        }
    }
}

async fn accept(
    listener: Listener,
    front_end: Arc<dyn FrontEnd>,
    lanes: Arc<Vec<UnboundedSender<Dealt>>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut next_lane = 0;
    let Serving { limits, counters, .. } = &**front_end;
    let admission = Admission::new(limits.connections_max);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        let socket = match accepted {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        counters.connections.fetch_add(1, Ordering::Relaxed);
        let Some(admitted) = admission.admit(socket.peer()) else {
            counters.connections_refused.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(peer = ?socket.peer(), "a connection was closed: there are too many");
            continue;
        };
        // A lane that is gone stops the server's other lanes too; the socket closes.
        let dealt = (socket, Arc::clone(&front_end), Counted::new(counters, admitted));
        let _ = lanes[next_lane % lanes.len()].send(dealt);
        next_lane += 1;
    }
}

/// Serves what is dealt to one data thread until the server stops and the last session ended.
async fn serve_lane(
    mut sockets: UnboundedReceiver<Dealt>,
    mut stopped: watch::Receiver<bool>,
    seats: Arc<Semaphore>,
) {
    let mut sessions = JoinSet::new();
    let threads = Threads::new();
    tokio::spawn(Arc::clone(threads.polling()).run(seats));
    let given = stopped.clone();
    loop {
        tokio::select! {
            Some(dealt) = sockets.recv() => {
                sessions.spawn(serve(dealt, threads.clone(), given.clone()));
            }
            Some(ended) = sessions.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a session broke off");
                }
            }
            _ = stopped.wait_for(|stop| *stop) => break,
        }
    }
    sockets.close();
    while sockets.recv().await.is_some() {}
    while sessions.join_next().await.is_some() {}
}

/// Counts an open connection as long as it lives.
struct Counted {
    counters: Arc<Counters>,
    _admitted: Admitted,
}

impl Counted {
    fn new(counters: &Arc<Counters>, admitted: Admitted) -> Counted {
        counters.connections_open.fetch_add(1, Ordering::Relaxed);
        Counted { counters: Arc::clone(counters), _admitted: admitted }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counters.connections_open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(
    (socket, front_end, _counted): Dealt,
    threads: Threads,
    stop: watch::Receiver<bool>,
) {
    match connection(socket) {
        Ok((connection, client)) => {
            front_end.serve(Given { connection, client, threads, stop }).await;
        }
        Err(error) => tracing::debug!(%error, "a connection was lost at once"),
    }
}

fn connection(socket: Accepted) -> io::Result<(Connection, String)> {
    match socket {
        Accepted::Unix(socket) => {
            let client = match sockopt::socket_peercred(&socket) {
                Ok(peer) => format!("uid {}", peer.uid.as_raw()),
                Err(_) => "unix".to_owned(),
            };
            Ok((Connection::from_unix(socket)?, client))
        }
        Accepted::Tcp(socket, client) => {
            Ok((Connection::from_tcp(TcpStream::from_std(socket)?)?, client.to_string()))
        }
    }
}
