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
use wire::nfs3::{self, Call};
use wire::rpc::decode::CallError;
use wire::rpc::record::{Found, Search, last_mark};
use wire::rpc::{self, Accepted, AuthStat, Credentials, Denied, Reply};

use crate::flight::{Flight, Ticket};
use crate::follower::Status;
use crate::primary::{PrimaryAddress, connect};
use crate::spool::Spool;
use crate::update::{Dirt, Record, changing, dirt_of_call, keys};

const RECEIVE_BYTES: usize = 256 << 10;

/// To whom a relay tells what passes.
pub(crate) trait Listener: Send + Sync {
    /// The order of calls.
    fn flight(&self) -> &Flight;
    /// What the follower has to do.
    fn spool(&self) -> &Spool;
    /// How the follower is.
    fn status(&self) -> Status;
}

/// How long the answers of a client that is gone are waited for: what the primary has received it
/// carries out.
const LINGER: Duration = Duration::from_secs(10);
/// How long a client may take no replies: calls of others may wait for that one's answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(30);
/// As `LINGER` when the relay stops.
const LINGER_AT_STOP: Duration = Duration::from_secs(2);

/// The calls that change something, which the primary has not answered.
#[derive(Default)]
struct Pending {
    calls: Mutex<HashMap<u32, (Ticket, Vec<u8>)>>,
    answered: Condvar,
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
    relay.client.set_write_timeout(Some(CLIENT_PATIENCE))?;
    let mut servers = Servers { relay: Arc::clone(&relay), nfs: None, mount: None };
    let relayed = relay.calls(&mut servers);
    relay.is_over.store(true, Ordering::Relaxed);
    let _ = relay.client.shutdown(Shutdown::Both);
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
            let (relay, from) = (Arc::clone(&self.relay), stream.try_clone()?);
            let replies = thread::Builder::new().name("nfs-replies".into()).spawn(move || {
                let ended = relay.replies(from);
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection to the primary ended");
                }
                // The client connects anew, and sends again what was not answered.
                let _ = relay.client.shutdown(Shutdown::Both);
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
            if let Some((xid, reply)) = refused(body)? {
                return self.answer(xid, &reply);
            }
            if let Some((xid, ticket)) = self.admit(body)? {
                let entry = (ticket, body.to_vec());
                if let Some((ticket, _)) = self.pending.calls.lock().insert(xid, entry) {
                    // The same call sent again before its answer: there will be two.
                    self.listener().flight().leave(ticket);
                }
            }
            let program = rpc::decode::call(body).ok().map(|call| call.program);
            servers.of(program)?.write_all(record)
        })
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

    /// Waits until a call may pass, if it changes something that is listened for.
    fn admit(&self, body: &[u8]) -> io::Result<Option<(u32, Ticket)>> {
        let Some(listener) = &self.listener else { return Ok(None) };
        let Some((asked, call)) = changing(body) else { return Ok(None) };
        if self.pending.calls.lock().contains_key(&asked.xid) {
            return Ok(None);
        }
        let goes_on = || !self.is_over.load(Ordering::Relaxed) && !listener.spool().is_stopped();
        let ticket = listener.flight().enter(keys(&call), &goes_on);
        let ticket = ticket.ok_or(io::Error::from(io::ErrorKind::ConnectionAborted))?;
        Ok(Some((asked.xid, ticket)))
    }

    /// Passes replies on until the primary sends no more.
    fn replies(&self, from: TcpStream) -> io::Result<()> {
        each_record(&from, |record, body| {
            if let Some(xid) = body.first_chunk().map(|xid| u32::from_be_bytes(*xid)) {
                let pending = self.pending.calls.lock().remove(&xid);
                if let Some((ticket, call)) = pending {
                    self.tell(ticket, call, body);
                    self.pending.answered.notify_all();
                }
            }
            let _alone = self.replies.lock();
            if let Err(error) = (&self.client).write_all(record) {
                // The follower wants the answers that a client does not take.
                tracing::debug!(%error, "a client takes no replies");
                self.is_over.store(true, Ordering::Relaxed);
                let _ = self.client.shutdown(Shutdown::Both);
            }
            Ok(())
        })
    }

    /// Tells the follower of a call that is answered.
    fn tell(&self, ticket: Ticket, call: Vec<u8>, reply: &[u8]) {
        let (client, reply, at) = (self.client_address, reply.to_vec(), Instant::now());
        let record = Record { client, call, reply, at };
        if record.update().is_some() {
            self.listener().spool().push(record);
        }
        self.listener().flight().leave(ticket);
    }

    /// Waits for the answers to what the primary has received.
    fn linger(&self) {
        let began = Instant::now();
        let mut calls = self.pending.calls.lock();
        while !calls.is_empty() {
            let is_stopped = self.listener().spool().is_stopped();
            let patience = if is_stopped { LINGER_AT_STOP } else { LINGER };
            if began.elapsed() >= patience {
                break;
            }
            self.pending.answered.wait_for(&mut calls, Duration::from_millis(50));
        }
    }

    /// Nobody knows whether the primary carried these out.
    fn forget_pending(&self) {
        for (_, (ticket, call)) in std::mem::take(&mut *self.pending.calls.lock()) {
            let listener = self.listener();
            let dirt = changing(&call).map(|(_, call): (_, Call<'_>)| dirt_of_call(&call));
            listener.spool().soil(dirt.unwrap_or_else(|| vec![Dirt::Everything]));
            listener.flight().leave(ticket);
        }
    }
}

/// The answer to a call that would change the primary without being seen here: of other programs
/// and versions, or in credentials that hide what is asked.
fn refused(body: &[u8]) -> io::Result<Option<(u32, Reply)>> {
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
        (mount::PROGRAM, _) => return Ok(None),
        _ => Reply::Accepted(Accepted::ProgUnavail),
    };
    Ok(Some((call.xid, reply)))
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
                let count = from.read(&mut bytes[end..])?;
                if count == 0 {
                    return Ok(());
                }
                end += count;
            }
        }
    }
}
