//! A client of a volume, over whichever protocol.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};

use anyhow::{Result, bail, ensure};

use crate::nbd::{Completion, PATIENCE, Reply, Request, describe};

/// Longest read in one request, bytes.
const READ_MAX: u64 = 1 << 20;

/// The completions of a connection, which a thread receives.
pub struct Completions(pub(crate) Receiver<Result<Completion>>);

/// A connection to one disk.
pub trait Client: Send {
    /// Bytes of the disk.
    fn size(&self) -> u64;

    /// Whether the server says that it cannot be written.
    fn is_read_only(&self) -> bool;

    /// Ranges of requests are multiples of so many bytes.
    fn unit(&self) -> u64;

    /// Sends a request without waiting for its end; the cookie comes back with its completion.
    fn send(&mut self, request: &Request) -> Result<u64>;

    /// What the server answers.
    fn completions(&self) -> &Completions;

    /// The next completion, whichever request it belongs to.
    fn wait(&mut self) -> Result<Completion> {
        match self.completions().0.recv_timeout(PATIENCE) {
            Ok(completion) => completion,
            Err(RecvTimeoutError::Timeout) => bail!("no reply within {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the connection ended"),
        }
    }

    /// A completion that has come already, if any; `Err` when the connection has ended.
    fn poll(&mut self) -> Result<Option<Completion>> {
        match self.completions().0.try_recv() {
            Ok(completion) => completion.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => bail!("the connection ended"),
        }
    }

    /// Sends one request and waits for its reply; nothing else may be in flight.
    fn ask(&mut self, request: &Request) -> Result<Reply> {
        let cookie = self.send(request)?;
        let completion = self.wait()?;
        ensure!(completion.cookie == cookie, "a reply to another request");
        Ok(completion.reply)
    }

    /// Sends one request that must succeed.
    fn demand(&mut self, request: &Request) -> Result<()> {
        match self.ask(request)? {
            Reply::Error(errno) => bail!("errno {errno} for {}", describe(request)),
            _ => Ok(()),
        }
    }

    /// The bytes of a range of any length.
    fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>> {
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
}
