//! A connection in transmission.

use std::collections::HashMap;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail, ensure};

use super::negotiate::{self, Agreed};
use super::replies::{InFlight, Register, Replies};
use super::{PATIENCE, Reply, Request, StatusRun};
use crate::client::{Client, Completions};

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

/// A connection to one export.
pub struct Nbd {
    stream: UnixStream,
    register: Register,
    completions: Completions,
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
        let completions = Completions(completions);
        Ok(Nbd { stream, register, completions, reader, agreed, next_cookie: 1 })
    }

    /// Whether block status can be asked for.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.agreed.context.is_some()
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

impl Client for Nbd {
    fn size(&self) -> u64 {
        self.agreed.size
    }

    fn is_read_only(&self) -> bool {
        self.agreed.flags & 2 != 0
    }

    fn unit(&self) -> u64 {
        1
    }

    fn completions(&self) -> &Completions {
        &self.completions
    }

    fn send(&mut self, request: &Request) -> Result<u64> {
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
