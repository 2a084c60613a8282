//! A relay before an NFS server, as UCDP has it (its forms O, A and I).
//! `docs/design/2026-11-28-interceptor.md`.
//!
//! ```text
//! relay    one client's connection: calls go on as they are, and replies back
//! flight   of two calls whose order matters the second one waits for the answer of the first
//! spool    what the primary did and the follower has not done
//! follower   a share that follows: it does what is in the spool (`apply`), or is compared
//!          (`compare`) by what the primary has (`primary`); `known` says what is what
//! update   a call that changed something, with its reply
//! ```
//!
//! Invariants
//! 1. Clients get the bytes that the primary sent, and the primary those that clients sent.
//! 2. The follower follows only from a moment on at which it was compared while no call passed, and
//!    no longer than it did all that the primary did since.
//! 3. What is not known (a connection broke before an answer) is compared, never guessed.
//!
//! *Absent*: clocks, volumes, settings; they are the [`Ground`]'s.

use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

mod apply;
mod compare;
mod flight;
mod follower;
mod known;
mod primary;
mod relay;
mod spool;
mod update;

pub use follower::{Ground, State, Status};
pub use primary::PrimaryAddress;

use flight::Flight;
use follower::Follower;
use relay::Listener;
use update::Record;

/// Connections of clients at once; more are closed as they arrive.
const CONNECTIONS_MAX: usize = 256;
/// How often the listener looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A relay that listens, and its follower.
pub struct Interceptor {
    shared: Arc<Shared>,
    follower: Option<Arc<dyn Listener>>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// What the threads of a relay share.
struct Shared {
    primary: PrimaryAddress,
    is_stopped: AtomicBool,
    clients: Mutex<Vec<(u64, TcpStream)>>,
    connections: AtomicU64,
    admits: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
}

impl<G: Ground> Listener for Follower<G> {
    fn flight(&self) -> &Flight {
        &self.flight
    }

    fn answered(&self, record: Record) {
        Follower::answered(self, record);
    }

    fn give_up(&self, client: u128, call: &[u8]) {
        Follower::give_up(self, client, call);
    }

    fn is_stopped(&self) -> bool {
        self.spool.is_stopped()
    }

    fn stop(&self) {
        Follower::stop(self);
    }

    fn status(&self) -> Status {
        Follower::status(self)
    }
}

impl fmt::Debug for Interceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interceptor").field("primary", &self.shared.primary).finish_non_exhaustive()
    }
}

impl Interceptor {
    /// Relays what comes to a listener, from those whom `admits` lets in; with a ground the share
    /// on it follows.
    ///
    /// # Errors
    /// When no thread can be had, or the listener cannot be used.
    pub fn start<G: Ground + 'static>(
        listener: TcpListener,
        primary: PrimaryAddress,
        ground: Option<G>,
        admits: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
    ) -> io::Result<Interceptor> {
        listener.set_nonblocking(true)?;
        let follower = ground.map(|ground| Arc::new(Follower::new(ground, primary.clone())));
        let shared = Arc::new(Shared {
            primary,
            is_stopped: AtomicBool::new(false),
            clients: Mutex::default(),
            connections: AtomicU64::new(0),
            admits: Box::new(admits),
        });
        let interceptor = Interceptor {
            shared: Arc::clone(&shared),
            follower: follower.clone().map(|follower| follower as Arc<dyn Listener>),
            threads: Mutex::default(),
        };
        if let Some(follower) = follower {
            let thread =
                thread::Builder::new().name("nfs-follower".into()).spawn(move || follower.run());
            interceptor.threads.lock().push(thread?);
        }
        let tells = interceptor.follower.clone();
        let accept = move || shared.accept(&listener, tells.as_ref());
        // The one above is stopped as it is dropped.
        let thread = thread::Builder::new().name("nfs-relay".into()).spawn(accept)?;
        interceptor.threads.lock().push(thread);
        Ok(interceptor)
    }

    /// The primary.
    #[must_use]
    pub fn primary(&self) -> &PrimaryAddress {
        &self.shared.primary
    }

    /// How its follower is, if it has one.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.follower.as_ref().map(|follower| follower.status())
    }

    /// Connections of clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.shared.clients.lock().len()
    }

    /// Ends all connections, and the follower where it is.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        if let Some(follower) = &self.follower {
            follower.stop();
        }
        for (_, client) in self.shared.clients.lock().iter() {
            // It may be gone already.
            let _ = client.shutdown(Shutdown::Both);
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A panic is in the log, and readiness has ended by it.
            let _ = thread.join();
        }
    }
}

impl Drop for Interceptor {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener, tells: Option<&Arc<dyn Listener>>) {
        let mut relays: Vec<thread::JoinHandle<()>> = Vec::new();
        while !self.is_stopped.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((client, from)) => relays.extend(self.relay(client, from, tells)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    thread::sleep(LOOK_EVERY);
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection could be accepted");
                    thread::sleep(LOOK_EVERY);
                }
            }
            relays.retain(|relay| !relay.is_finished());
        }
        for relay in relays {
            let _ = relay.join();
        }
    }

    /// Relays a connection on a thread of its own, if it is admitted.
    fn relay(
        self: &Arc<Self>,
        client: TcpStream,
        from: SocketAddr,
        tells: Option<&Arc<dyn Listener>>,
    ) -> Option<thread::JoinHandle<()>> {
        if !(self.admits)(from.ip()) {
            tracing::warn!(client = %from, "not allowed by the share");
            return None;
        }
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let (shared, tells) = (Arc::clone(self), tells.map(Arc::clone));
        {
            let mut clients = self.clients.lock();
            if clients.len() >= CONNECTIONS_MAX {
                tracing::warn!(client = %from, "too many connections");
                return None;
            }
            // Those that are there are ended by `stop`.
            if self.is_stopped.load(Ordering::Relaxed) {
                return None;
            }
            clients.push((number, client.try_clone().ok()?));
        }
        let relay = move || {
            client.set_nonblocking(false).ok();
            if let Err(error) = relay::relay(client, from, &shared.primary, tells) {
                tracing::info!(client = %from, %error, "disconnected");
            }
            shared.clients.lock().retain(|(other, _)| *other != number);
        };
        let spawned = thread::Builder::new().name("nfs-calls".into()).spawn(relay);
        if spawned.is_err() {
            self.clients.lock().retain(|(other, _)| *other != number);
        }
        spawned.ok()
    }
}
