//! One client's connection: its calls go to the primary as they are, and the replies back. What
//! changed something is told to the follower.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use wire::mount;
use wire::nfs3;
use wire::rpc::decode::CallError;
use wire::rpc::record::{Found, Search, last_mark};
use wire::rpc::{self, Accepted, AuthStat, Credentials, Denied, Reply};

use crate::flight::{Flight, Ticket};
use crate::follower::Status;
use crate::primary::{PrimaryAddress, connect};
use crate::update::{Record, changing, keys};

const RECEIVE_BYTES: usize = 256 << 10;

/// To whom a relay tells what passes.
pub(crate) trait Listener: Send + Sync {
    /// The order of calls.
    fn flight(&self) -> &Flight;
    /// A call was answered.
    fn answered(&self, record: Record);
    /// Nobody will see the answer to a call of a client.
    fn give_up(&self, client: u128, call: &[u8]);
    /// How the follower is.
    fn status(&self) -> Status;
    /// Whether it is to end.
    fn is_stopped(&self) -> bool;
    /// Ends it.
    fn stop(&self);
}

/// How long the answers of a client that is gone are waited for: what the primary has received it
/// carries out.
const LINGER: Duration = Duration::from_secs(10);
/// How long the primary may take no calls.
const PRIMARY_PATIENCE: Duration = Duration::from_secs(60);
/// How long a client may take for a reply: calls of others may wait for that one's answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(30);
/// As `LINGER` when the relay stops.
const LINGER_AT_STOP: Duration = Duration::from_secs(2);

/// The calls that the primary has not answered, by their numbers; those that change something with
/// their ticket.
#[derive(Default)]
struct Pending {
    calls: Mutex<HashMap<u32, Underway>>,
    answered: Condvar,
}

struct Underway {
    ticket: Option<Ticket>,
    call: Vec<u8>,
}

struct Relay {
    client: TcpStream,
    client_address: u128,
    address: PrimaryAddress,
    listener: Option<Arc<dyn Listener>>,
    /// Replies of both programs go to one client.
    replies: Mutex<()>,
    pending: Pending,
    is_over: AtomicBool,
}

/// Relays until one side ends.
pub(crate) fn relay(
    client: TcpStream,
    from: SocketAddr,
    address: &PrimaryAddress,
    listener: Option<Arc<dyn Listener>>,
) -> io::Result<()> {
    let client_address = match from.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let relay = Arc::new(Relay {
        client,
        client_address,
        address: address.clone(),
        listener,
        replies: Mutex::default(),
        pending: Pending::default(),
        is_over: AtomicBool::new(false),
    });
    relay.client.set_nodelay(true)?;
    relay.client.set_write_timeout(Some(CLIENT_PATIENCE / 6))?;
    let mut servers = Servers { relay: Arc::clone(&relay), nfs: None, mount: None };
    let relayed = relay.calls(&mut servers);
    relay.end();
    relay.linger();
    servers.end();
    relay.forget_pending();
    relayed
}

/// A connection to one program of the primary, and the thread that brings its replies.
struct Server {
    stream: TcpStream,
    replies: thread::JoinHandle<()>,
}

struct Servers {
    relay: Arc<Relay>,
    nfs: Option<Server>,
    mount: Option<Server>,
}

impl Servers {
    /// The connection for a program.
    fn of(&mut self, program: Option<u32>) -> io::Result<&mut TcpStream> {
        let address = &self.relay.address;
        let is_mount = program == Some(mount::PROGRAM) && address.mount != address.nfs;
        let (server, address) = match is_mount {
            true => (&mut self.mount, &address.mount),
            false => (&mut self.nfs, &address.nfs),
        };
        if server.is_none() {
            let stream = connect(address)?;
            stream.set_write_timeout(Some(PRIMARY_PATIENCE))?;
            let (relay, from) = (Arc::clone(&self.relay), stream.try_clone()?);
            let replies = thread::Builder::new().name("nfs-replies".into()).spawn(move || {
                let ended = relay.replies(from);
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection to the primary ended");
                }
                // The client connects anew, and sends again what was not answered.
                relay.end();
            })?;
            *server = Some(Server { stream, replies });
        }
        Ok(&mut server.as_mut().expect("it was just made").stream)
    }

    fn end(&mut self) {
        for server in [self.nfs.take(), self.mount.take()].into_iter().flatten() {
            let _ = server.stream.shutdown(Shutdown::Both);
            // A panic there is in the log already, and ends no more than this connection.
            let _ = server.replies.join();
        }
    }
}

impl Relay {
    /// Passes calls on until the client sends no more.
    fn calls(&self, servers: &mut Servers) -> io::Result<()> {
        each_record(&self.client, |record, body| {
            if let Some((xid, reply)) = refused(body, &self.address.export)? {
                return self.answer(xid, &reply);
            }
            let program = rpc::decode::call(body).ok().map(|call| call.program);
            if self.listener.is_some() && !self.admit(body)? {
                return Ok(());
            }
            servers.of(program)?.write_all(record)
        })
    }

    /// Waits until a call may pass; false if it is under way already, and its answer will come.
    fn admit(&self, body: &[u8]) -> io::Result<bool> {
        let xid = body.first_chunk().map_or(0, |xid| u32::from_be_bytes(*xid));
        if let Some(there) = self.pending.calls.lock().get(&xid) {
            return match there.call == body {
                true => Ok(false),
                false => Err(io::Error::new(io::ErrorKind::InvalidData, "a number used twice")),
            };
        }
        let mut ticket = None;
        if let Some((_, call)) = changing(body) {
            let goes_on = || !self.is_over.load(Ordering::Relaxed) && !self.listener().is_stopped();
            let passed = self.listener().flight().enter(keys(&call), &goes_on);
            ticket = Some(passed.ok_or(io::Error::from(io::ErrorKind::ConnectionAborted))?);
        }
        let call = body.to_vec();
        self.pending.calls.lock().insert(xid, Underway { ticket, call });
        Ok(true)
    }

    /// Answers a call in the place of the primary.
    fn answer(&self, xid: u32, reply: &Reply) -> io::Result<()> {
        let mut bytes = vec![0; rpc::limits::MARK_BYTES];
        rpc::encode::reply(xid, reply, &mut bytes);
        let mark = last_mark(bytes.len() - rpc::limits::MARK_BYTES);
        bytes[..mark.len()].copy_from_slice(&mark);
        let _alone = self.replies.lock();
        (&self.client).write_all(&bytes)
    }

    fn listener(&self) -> &dyn Listener {
        &**self.listener.as_ref().expect("only calls that somebody listens for are admitted")
    }

    /// Passes replies on until the primary sends no more.
    fn replies(&self, from: TcpStream) -> io::Result<()> {
        each_record(&from, |record, body| {
            if let Some(xid) = body.first_chunk().map(|xid| u32::from_be_bytes(*xid)) {
                let pending = self.pending.calls.lock().remove(&xid);
                if let Some(Underway { ticket: Some(ticket), call }) = pending {
                    let (client, reply) = (self.client_address, body.to_vec());
                    self.listener().answered(Record { client, call, reply });
                    self.listener().flight().leave(ticket);
                }
                self.pending.answered.notify_all();
            }
            let _alone = self.replies.lock();
            let is_over = self.is_over.load(Ordering::Relaxed);
            if let Err(error) = if is_over { Ok(()) } else { self.send(record) } {
                // The follower wants the answers that a client does not take.
                tracing::debug!(%error, "a client takes no replies");
                self.end();
            }
            Ok(())
        })
    }

    /// Sends all of it within [`CLIENT_PATIENCE`].
    fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        let until = Instant::now() + CLIENT_PATIENCE;
        while !bytes.is_empty() {
            match (&self.client).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// The client's connection ends; so does every wait of its calls.
    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It may be gone already.
        let _ = self.client.shutdown(Shutdown::Both);
    }

    /// Waits for the answers to what the primary has received.
    fn linger(&self) {
        let began = Instant::now();
        let mut calls = self.pending.calls.lock();
        while calls.values().any(|call| call.ticket.is_some()) {
            let is_stopped = self.listener().is_stopped();
            let patience = if is_stopped { LINGER_AT_STOP } else { LINGER };
            if began.elapsed() >= patience {
                break;
            }
            self.pending.answered.wait_for(&mut calls, Duration::from_millis(50));
        }
    }

    /// Nobody knows whether the primary carried these out.
    fn forget_pending(&self) {
        for (_, underway) in std::mem::take(&mut *self.pending.calls.lock()) {
            if let Some(ticket) = underway.ticket {
                self.listener().give_up(self.client_address, &underway.call);
                self.listener().flight().leave(ticket);
            }
        }
    }
}

/// The answer to a call that would change the primary without being seen here: of other programs
/// and versions, or in credentials that hide what is asked.
fn refused(body: &[u8], export: &str) -> io::Result<Option<(u32, Reply)>> {
    let call = match rpc::decode::call(body) {
        Ok(call) => call,
        Err(CallError::Denied { xid, denied }) => return Ok(Some((xid, Reply::Denied(denied)))),
        Err(error @ CallError::NoCall) => {
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
    };
    let mismatch = Accepted::ProgMismatch { low: nfs3::VERSION, high: nfs3::VERSION };
    let reply = match (call.program, call.version) {
        (nfs3::PROGRAM, nfs3::VERSION) => match call.credentials {
            Credentials::Other(_) => Reply::Denied(Denied::AuthError(AuthStat::TooWeak)),
            _ => match nfs3::decode::call(call.procedure, call.arguments) {
                Ok(_) => return Ok(None),
                Err(error) => Reply::Accepted(error.answer()),
            },
        },
        (nfs3::PROGRAM, _) => Reply::Accepted(mismatch),
        (mount::PROGRAM, 3) => match mount::decode::call(call.procedure, call.arguments) {
            Ok(mount::Call::Mnt(path)) if !is_within(path.of_any_length(), export) => {
                Reply::Accepted(Accepted::SystemErr)
            }
            Ok(_) => return Ok(None),
            Err(error) => Reply::Accepted(error.answer()),
        },
        (mount::PROGRAM, _) => Reply::Accepted(mismatch),
        _ => Reply::Accepted(Accepted::ProgUnavail),
    };
    Ok(Some((call.xid, reply)))
}

/// Whether a path is the export, or below it.
fn is_within(path: &[u8], export: &str) -> bool {
    let parts = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|byte| *byte == b'/').filter(|p| !p.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let (path, export) = (parts(path), parts(export.as_bytes()));
    path.starts_with(&export) && !path.iter().any(|part| part == b"..")
}

/// Calls `each` with the bytes and the body of each record of a stream, until its end.
fn each_record(
    mut from: &TcpStream,
    mut each: impl FnMut(&[u8], &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let (mut bytes, mut begin, mut end) = (vec![0; RECEIVE_BYTES], 0, 0);
    let mut search = Search::default();
    loop {
        let too_long = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        match search.find(&bytes[begin..end]).map_err(too_long)? {
            Found::Whole(record) => {
                let count = record.stream_bytes();
                each(&bytes[begin..begin + count], &record.body())?;
                begin += count;
            }
            Found::Beginning(least) => {
                bytes.copy_within(begin..end, 0);
                (begin, end) = (0, end - begin);
                if bytes.len() < least.max(end + 1) {
                    bytes.resize(least.max(2 * bytes.len()), 0);
                }
                match from.read(&mut bytes[end..]) {
                    Ok(0) => return Ok(()),
                    Ok(count) => end += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}
