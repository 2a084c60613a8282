//! A connection in transmission.

use std::collections::HashMap;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail, ensure};

use super::negotiate::{self, Agreed};
use super::replies::{InFlight, Register, Replies};
use super::{Completion, PATIENCE, Reply, Request, StatusRun};

const REQUEST: u32 = 0x2560_9513;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const CACHE: u16 = 5;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;
const FLAG_FUA: u16 = 1;
const FLAG_NO_HOLE: u16 = 2;
const FLAG_FAST_ZERO: u16 = 16;
/// Longest read in one request, bytes.
const READ_MAX: u64 = 8 << 20;

/// A connection to one export.
pub struct Nbd {
    stream: UnixStream,
    register: Register,
    completions: Receiver<Result<Completion>>,
    reader: Option<JoinHandle<()>>,
    agreed: Agreed,
    next_cookie: u64,
}

impl Nbd {
    /// Connects to an export at a unix socket; a [`super::Refused`] in the error says no.
    pub fn connect(socket: &Path, export: &str) -> Result<Nbd> {
        Nbd::connect_with_context(socket, export, "base:allocation")
    }

    /// The same with another context for block status.
    pub fn connect_with_context(socket: &Path, export: &str, context: &str) -> Result<Nbd> {
        let mut stream = UnixStream::connect(socket)
            .with_context(|| format!("connect to {}", socket.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let agreed = negotiate::go(&mut stream, export, context)
            .with_context(|| format!("open export {export}"))?;
        stream.set_read_timeout(None)?;
        let register: Register = Arc::new(Mutex::new(HashMap::new()));
        let replies = Replies::new(
            stream.try_clone()?,
            Arc::clone(&register),
            agreed.structured,
            agreed.context,
        );
        let (out, completions) = mpsc::channel();
        let reader = Some(thread::spawn(move || replies.run(&out)));
        Ok(Nbd { stream, register, completions, reader, agreed, next_cookie: 1 })
    }

    /// Bytes of the export.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.agreed.size
    }

    /// Whether the server says that the export cannot be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.agreed.flags & 2 != 0
    }

    /// Whether block status can be asked for.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.agreed.context.is_some()
    }

    /// Sends a request without waiting; the cookie comes back with its completion.
    pub fn send(&mut self, request: &Request) -> Result<u64> {
        let none: &[u8] = &[];
        let fua_of = |fua: bool| if fua { FLAG_FUA } else { 0 };
        let (kind, flags, offset, length, payload) = match request {
            Request::Read { offset, length } => (READ, 0, *offset, *length, none),
            Request::Write { offset, bytes, fua } => {
                (WRITE, fua_of(*fua), *offset, u32::try_from(bytes.len())?, bytes.as_slice())
            }
            Request::Trim { offset, length, fua } => (TRIM, fua_of(*fua), *offset, *length, none),
            Request::Zero { offset, length, no_hole, fast } => {
                let no_hole = if *no_hole { FLAG_NO_HOLE } else { 0 };
                let fast = if *fast { FLAG_FAST_ZERO } else { 0 };
                (WRITE_ZEROES, no_hole | fast, *offset, *length, none)
            }
            Request::Flush => (FLUSH, 0, 0, 0, none),
            Request::Cache { offset, length } => (CACHE, 0, *offset, *length, none),
            Request::Status { offset, length } => (BLOCK_STATUS, 0, *offset, *length, none),
        };
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let in_flight = InFlight {
            offset,
            read_length: if kind == READ { length as usize } else { 0 },
            is_status: kind == BLOCK_STATUS,
        };
        self.register.lock().expect("no holder panics").insert(cookie, in_flight);
        self.put(kind, flags, cookie, offset, length, payload)?;
        Ok(cookie)
    }

    fn put(
        &mut self,
        kind: u16,
        flags: u16,
        cookie: u64,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> Result<()> {
        let mut message = Vec::with_capacity(28 + payload.len());
        message.extend_from_slice(&REQUEST.to_be_bytes());
        message.extend_from_slice(&flags.to_be_bytes());
        message.extend_from_slice(&kind.to_be_bytes());
        message.extend_from_slice(&cookie.to_be_bytes());
        message.extend_from_slice(&offset.to_be_bytes());
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(payload);
        Ok(self.stream.write_all(&message)?)
    }

    /// The next completion, whichever request it belongs to.
    pub fn wait(&mut self) -> Result<Completion> {
        match self.completions.recv_timeout(PATIENCE) {
            Ok(completion) => completion,
            Err(mpsc::RecvTimeoutError::Timeout) => bail!("no reply within {PATIENCE:?}"),
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the connection ended"),
        }
    }

    /// A completion that has come already, if any; `Err` when the connection has ended.
    pub fn poll(&mut self) -> Result<Option<Completion>> {
        match self.completions.try_recv() {
            Ok(completion) => completion.map(Some),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => bail!("the connection ended"),
        }
    }

    /// Sends one request and waits for its reply; nothing else may be in flight.
    pub fn ask(&mut self, request: &Request) -> Result<Reply> {
        let cookie = self.send(request)?;
        let completion = self.wait()?;
        ensure!(completion.cookie == cookie, "a reply to another request");
        Ok(completion.reply)
    }

    /// Sends one request that must succeed.
    pub fn demand(&mut self, request: &Request) -> Result<()> {
        match self.ask(request)? {
            Reply::Error(errno) => bail!("errno {errno} for {}", describe(request)),
            _ => Ok(()),
        }
    }

    /// The bytes of a range of any length, in requests of up to 8 MiB.
    pub fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < length {
            let at = offset + bytes.len() as u64;
            let part = u32::try_from(READ_MAX.min(offset + length - at))?;
            match self.ask(&Request::Read { offset: at, length: part })? {
                Reply::Bytes(part) => bytes.extend(part),
                other => bail!("read of {part} bytes at {at}: {other:?}"),
            }
        }
        Ok(bytes)
    }

    /// Data and holes of the whole export.
    pub fn status(&mut self) -> Result<Vec<StatusRun>> {
        let mut runs: Vec<StatusRun> = Vec::new();
        let mut at = 0;
        while at < self.size() {
            let length = u32::try_from((self.size() - at).min(1 << 30))?;
            match self.ask(&Request::Status { offset: at, length })? {
                Reply::Status(part) => {
                    let sum: u64 = part.iter().map(|run| u64::from(run.length)).sum();
                    ensure!(sum > 0 && at + sum <= self.size(), "runs of {sum} bytes at {at}");
                    ensure!(part.iter().all(|run| run.length > 0), "an empty run");
                    at += sum;
                    runs.extend(part);
                }
                other => bail!("block status at {at}: {other:?}"),
            }
        }
        Ok(runs)
    }

    /// Ends the connection as the specification wants it.
    pub fn disconnect(mut self) -> Result<()> {
        let cookie = self.next_cookie;
        self.put(DISCONNECT, 0, cookie, 0, 0, &[])
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        // Already closed by the server: nothing to do.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// A request in a few words, without its bytes.
#[must_use]
pub fn describe(request: &Request) -> String {
    match request {
        Request::Write { offset, bytes, fua } => {
            format!("write {} at {offset}{}", bytes.len(), if *fua { " fua" } else { "" })
        }
        other => format!("{other:?}"),
    }
}
