//! A connection as a hard mount has it: when it breaks it is made again, and what was not answered
//! is sent again with the same xid, for as long as it takes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::replies::reply;
use super::{Call, Reply, status};

/// How long a server may be away, or a call may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long after "later" a call is sent again.
const LATER: Duration = Duration::from_millis(3);

/// Where a server is, which may be elsewhere after a restart.
#[derive(Clone, Debug, Default)]
pub struct Address(Arc<Mutex<Option<SocketAddr>>>);

impl Address {
    /// Says where it is now.
    pub fn set(&self, to: SocketAddr) {
        *self.0.lock().expect("nobody panics with it") = Some(to);
    }

    fn get(&self) -> Option<SocketAddr> {
        *self.0.lock().expect("nobody panics with it")
    }
}

/// How a call is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Once.
    Plain,
    /// Twice at once, as one that was retransmitted too early.
    Twice,
    /// On a connection that breaks, and then on another one.
    Cut,
}

/// A client of one user.
#[derive(Debug)]
pub struct Nfs {
    address: Address,
    stream: Option<TcpStream>,
    xid: u32,
    uid: u32,
    gid: u32,
    /// How often calls were sent again.
    pub sent_again: u64,
}

impl Nfs {
    /// A client, whose calls have numbers above `xid`.
    #[must_use]
    pub fn new(address: &Address, xid: u32, uid: u32, gid: u32) -> Nfs {
        Nfs { address: address.clone(), stream: None, xid, uid, gid, sent_again: 0 }
    }

    /// The reply to a call.
    pub fn call(&mut self, call: &Call) -> Result<Reply> {
        self.send(call, Manner::Plain)
    }

    /// The reply to a call that must succeed.
    pub fn demand(&mut self, call: &Call) -> Result<Reply> {
        let reply = self.call(call)?;
        ensure!(reply.status == status::OK, "status {} of {call:02x?}", reply.status);
        Ok(reply)
    }

    /// The reply to a call that is sent in some manner.
    pub fn send(&mut self, call: &Call, manner: Manner) -> Result<Reply> {
        let mut replies = self.send_all(std::slice::from_ref(call), manner)?;
        replies.pop().context("a reply to each call")
    }

    /// The replies to calls that are under way together.
    pub fn send_all(&mut self, calls: &[Call], manner: Manner) -> Result<Vec<Reply>> {
        let began = Instant::now();
        let first = self.xid + 1;
        self.xid += u32::try_from(calls.len())?;
        let records =
            calls.iter().zip(first..).map(|(call, xid)| call.record(xid, self.uid, self.gid));
        let records: Vec<Vec<u8>> = records.collect();
        let mut replies: Vec<Option<Reply>> = vec![None; calls.len()];
        if manner == Manner::Cut {
            let _ = self.write(&records.concat());
            self.stream = None;
        }
        let mut is_twice = manner == Manner::Twice;
        while replies.iter().any(Option::is_none) {
            ensure!(began.elapsed() < PATIENCE, "no reply within {PATIENCE:?}: {calls:02x?}");
            let waiting: Vec<&[u8]> = records
                .iter()
                .zip(&replies)
                .filter(|(_, reply)| reply.is_none())
                .map(|(record, _)| &record[..])
                .collect();
            let again = if is_twice { waiting.len() } else { 0 };
            let bytes = waiting.concat().repeat(1 + usize::from(is_twice));
            is_twice = false;
            let got =
                self.write(&bytes).and_then(|()| self.receive(calls, first, &mut replies, again));
            match got {
                Ok(true) => thread::sleep(LATER),
                Ok(false) => {}
                Err(Fault::Lost) => {
                    self.stream = None;
                    self.sent_again += 1;
                }
                Err(Fault::Wrong(error)) => return Err(error),
            }
        }
        Ok(replies.into_iter().flatten().collect())
    }

    /// Receives a reply to each call that has none, and so many more; whether one said "later".
    fn receive(
        &mut self,
        calls: &[Call],
        first: u32,
        replies: &mut [Option<Reply>],
        again: usize,
    ) -> Result<bool, Fault> {
        let mut is_later = false;
        let missing = replies.iter().filter(|reply| reply.is_none()).count();
        for _ in 0..missing + again {
            let body = self.read()?;
            let xid = u32::from_be_bytes(body[..4].try_into().map_err(anyhow::Error::from)?);
            let at = xid.wrapping_sub(first) as usize;
            let call = calls.get(at).with_context(|| format!("a reply to {xid}"))?;
            let found = reply(call, &body[4..]).with_context(|| format!("{call:02x?}"))?;
            if found.status == status::JUKEBOX {
                is_later = true;
                continue;
            }
            if let Some(earlier) = &replies[at]
                && (earlier.status != found.status || earlier.handle != found.handle)
            {
                let wrong = anyhow::anyhow!("{call:02x?} sent twice: {earlier:?} and {found:?}");
                return Err(Fault::Wrong(wrong));
            }
            replies[at] = Some(found);
        }
        Ok(is_later)
    }

    fn stream(&mut self) -> Result<&mut TcpStream, Fault> {
        let began = Instant::now();
        while self.stream.is_none() {
            if began.elapsed() > PATIENCE {
                return Err(Fault::Wrong(anyhow::anyhow!("no server within {PATIENCE:?}")));
            }
            let connected = self.address.get().map(TcpStream::connect);
            match connected {
                Some(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(PATIENCE))?;
                    self.stream = Some(stream);
                }
                _ => thread::sleep(LATER),
            }
        }
        self.stream.as_mut().ok_or(Fault::Lost)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        Ok(self.stream()?.write_all(bytes)?)
    }

    /// A record.
    fn read(&mut self) -> Result<Vec<u8>, Fault> {
        let stream = self.stream()?;
        let mut body = Vec::new();
        loop {
            let mut mark = [0; 4];
            stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let (from, length) = (body.len(), (mark & !(1 << 31)) as usize);
            if length > 2 << 20 {
                return Err(Fault::Wrong(anyhow::anyhow!("a fragment of {length} bytes")));
            }
            body.resize(from + length, 0);
            stream.read_exact(&mut body[from..])?;
            if mark >> 31 == 1 && body.len() >= 4 {
                return Ok(body);
            }
        }
    }
}

/// Why there is no reply.
enum Fault {
    /// The connection broke.
    Lost,
    /// The reply is none.
    Wrong(anyhow::Error),
}

impl From<std::io::Error> for Fault {
    fn from(_: std::io::Error) -> Fault {
        Fault::Lost
    }
}

impl From<anyhow::Error> for Fault {
    fn from(error: anyhow::Error) -> Fault {
        Fault::Wrong(error)
    }
}
