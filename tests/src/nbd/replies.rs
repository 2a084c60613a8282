//! Reading replies: a thread for each connection, so that a server that answers before it reads
//! on can never be deadlocked by a client that writes before it reads.

use std::collections::HashMap;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail, ensure};

use super::negotiate::big_endian;
use super::{Completion, Reply, StatusRun};

const SIMPLE: u64 = 0x6744_6698;
const STRUCTURED: u64 = 0x668e_33ef;
const DONE_FLAG: u64 = 1;
const NONE: u64 = 0;
const OFFSET_DATA: u64 = 1;
const OFFSET_HOLE: u64 = 2;
const BLOCK_STATUS: u64 = 5;
const ERROR: u64 = 0x8001;
const ERROR_OFFSET: u64 = 0x8002;
/// Longest chunk we accept: the longest read and its offset.
const CHUNK_MAX: u64 = (32 << 20) + 8;

/// What is known of a request in flight.
pub(super) struct InFlight {
    pub offset: u64,
    /// Bytes that the reply to a read brings; 0 for other requests.
    pub read_length: usize,
    pub is_status: bool,
}

/// Requests in flight by cookie.
pub(super) type Register = Arc<Mutex<HashMap<u64, InFlight>>>;

/// A read or status of which chunks have come.
struct Partial {
    bytes: Vec<u8>,
    covered: usize,
    runs: Option<Vec<StatusRun>>,
    errno: Option<u32>,
}

pub(super) struct Replies {
    pub stream: UnixStream,
    pub register: Register,
    pub structured: bool,
    pub context: Option<u32>,
    partial: HashMap<u64, Partial>,
}

impl Replies {
    pub fn new(
        stream: UnixStream,
        register: Register,
        structured: bool,
        context: Option<u32>,
    ) -> Replies {
        Replies { stream, register, structured, context, partial: HashMap::new() }
    }

    /// Passes replies on until the connection ends; the last thing sent says how it ended.
    pub fn run(mut self, out: &Sender<Result<Completion>>) {
        loop {
            match self.next() {
                Ok(None) => {}
                Ok(Some(completion)) => {
                    if out.send(Ok(completion)).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    // Nobody may be waiting any more; then nobody needs to know.
                    let _ = out.send(Err(error));
                    return;
                }
            }
        }
    }

    fn next(&mut self) -> Result<Option<Completion>> {
        let magic = big_endian(&self.take(4)?);
        match magic {
            SIMPLE => self.simple().map(Some),
            STRUCTURED if self.structured => self.chunk(),
            other => bail!("bad magic of a reply: {other:#x}"),
        }
    }

    fn simple(&mut self) -> Result<Completion> {
        let head = self.take(12)?;
        let errno = u32::try_from(big_endian(&head[..4]))?;
        let cookie = big_endian(&head[4..12]);
        let request = self.forget(cookie)?;
        ensure!(!self.partial.contains_key(&cookie), "a simple reply after chunks");
        if errno != 0 {
            return Ok(Completion { cookie, reply: Reply::Error(errno) });
        }
        ensure!(!request.is_status, "a simple reply to a block status");
        if request.read_length == 0 {
            return Ok(Completion { cookie, reply: Reply::Done });
        }
        ensure!(!self.structured, "a simple reply to a read on a structured connection");
        let bytes = self.take(request.read_length)?;
        Ok(Completion { cookie, reply: Reply::Bytes(bytes) })
    }

    fn chunk(&mut self) -> Result<Option<Completion>> {
        let head = self.take(16)?;
        let (flags, kind) = (big_endian(&head[..2]), big_endian(&head[2..4]));
        let cookie = big_endian(&head[4..12]);
        let length = big_endian(&head[12..16]);
        ensure!(length <= CHUNK_MAX, "a chunk of {length} bytes");
        let payload = self.take(usize::try_from(length)?)?;
        let (offset, read_length) = {
            let register = self.register.lock().expect("no holder panics");
            let request = register.get(&cookie).context("a chunk for no request in flight")?;
            (request.offset, request.read_length)
        };
        let partial = self.partial.entry(cookie).or_insert_with(|| Partial {
            bytes: vec![0; read_length],
            covered: 0,
            runs: None,
            errno: None,
        });
        partial.add(kind, &payload, offset, self.context)?;
        if flags & DONE_FLAG == 0 {
            return Ok(None);
        }
        let request = self.forget(cookie)?;
        let partial = self.partial.remove(&cookie).context("just added")?;
        let reply = partial.into_reply(&request)?;
        Ok(Some(Completion { cookie, reply }))
    }

    fn forget(&mut self, cookie: u64) -> Result<InFlight> {
        let mut register = self.register.lock().expect("no holder panics");
        register.remove(&cookie).with_context(|| format!("a reply to no request: {cookie:#x}"))
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).context("the connection ended")?;
        Ok(bytes)
    }
}

impl Partial {
    fn add(&mut self, kind: u64, payload: &[u8], base: u64, context: Option<u32>) -> Result<()> {
        match kind {
            NONE => ensure!(payload.is_empty(), "a NONE chunk with a payload"),
            OFFSET_DATA => {
                ensure!(payload.len() > 8, "an empty data chunk");
                let bytes = &payload[8..];
                self.place(big_endian(&payload[..8]), base, bytes.len())?.copy_from_slice(bytes);
            }
            OFFSET_HOLE => {
                ensure!(payload.len() == 12, "a hole chunk of {} bytes", payload.len());
                let length = usize::try_from(big_endian(&payload[8..12]))?;
                self.place(big_endian(&payload[..8]), base, length)?.fill(0);
            }
            BLOCK_STATUS => {
                ensure!(payload.len() >= 12 && payload.len() % 8 == 4, "a cut block status");
                ensure!(context == Some(u32::try_from(big_endian(&payload[..4]))?), "context id");
                ensure!(self.runs.is_none(), "two block statuses of one context");
                self.runs = Some(payload[4..].chunks(8).map(run).collect());
            }
            ERROR | ERROR_OFFSET => {
                ensure!(payload.len() >= 6, "a short error chunk");
                self.errno = Some(u32::try_from(big_endian(&payload[..4]))?);
            }
            other => bail!("a chunk of unknown type {other}"),
        }
        Ok(())
    }

    fn place(&mut self, offset: u64, base: u64, length: usize) -> Result<&mut [u8]> {
        let start = offset.checked_sub(base).context("a chunk before the range")?;
        let start = usize::try_from(start)?;
        self.covered += length;
        self.bytes.get_mut(start..start + length).context("a chunk beyond the range")
    }

    fn into_reply(self, request: &InFlight) -> Result<Reply> {
        if let Some(errno) = self.errno {
            return Ok(Reply::Error(errno));
        }
        if request.is_status {
            return Ok(Reply::Status(self.runs.context("a block status without runs")?));
        }
        ensure!(self.covered == request.read_length, "chunks that do not add up to the read");
        Ok(if request.read_length > 0 { Reply::Bytes(self.bytes) } else { Reply::Done })
    }
}

fn run(bytes: &[u8]) -> StatusRun {
    let number = |b: &[u8]| u32::try_from(big_endian(b)).expect("four bytes");
    StatusRun { length: number(&bytes[..4]), flags: number(&bytes[4..8]) }
}
