//! A unix socket that is woken when there is something to read, and only then.
//!
//! Tokio's own registers every socket for reading and writing. A unix socket reports "writable"
//! each time its peer takes something, so that many a reply woke its data thread once more for
//! nothing: 1.7 waits per 4 KiB write at queue depth 1 instead of 1. Here, writability is waited
//! for only while a send is stuck, on a second descriptor of the same socket.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// Sends in a row that must go through before the second descriptor is given back.
const SMOOTH_SENDS: u32 = 16;

/// A connected unix socket.
pub(crate) struct UnixSocket {
    reader: AsyncFd<UnixStream>,
    /// The same socket, registered for writing, while sends get stuck.
    writer: Option<AsyncFd<UnixStream>>,
    smooth_sends: u32,
}

/// Registers a socket with its data thread.
// The replacement is an unsafe function, on account of types whose descriptor changes; those of
// owned sockets do not.
#[expect(deprecated)]
pub(crate) fn registered<S>(socket: S, interest: Interest) -> io::Result<AsyncFd<S>>
where
    S: AsRawFd + Into<OwnedFd>,
{
    AsyncFd::with_interest(socket, interest)
}

impl UnixSocket {
    /// Takes a socket that does not block.
    pub(crate) fn new(socket: UnixStream) -> io::Result<UnixSocket> {
        let reader = registered(socket, Interest::READABLE)?;
        Ok(UnixSocket { reader, writer: None, smooth_sends: 0 })
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        send: impl Fn(&mut &UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        match send(&mut self.reader.get_ref()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            sent => {
                self.smooth_sends = self.smooth_sends.saturating_add(1);
                if self.smooth_sends > SMOOTH_SENDS {
                    self.writer = None;
                }
                return Poll::Ready(sent);
            }
        }
        self.smooth_sends = 0;
        if self.writer.is_none() {
            let same = self.reader.get_ref().try_clone()?;
            self.writer = Some(registered(same, Interest::WRITABLE)?);
        }
        let writer = self.writer.as_ref().expect("just made");
        loop {
            let mut guard = ready!(writer.poll_write_ready(cx))?;
            match guard.try_io(|writer| send(&mut writer.get_ref())) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(sent) => return Poll::Ready(sent),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsFd for UnixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.get_ref().as_fd()
    }
}

impl AsyncRead for UnixSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.reader.poll_read_ready(cx))?;
            let space = buffer.initialize_unfilled();
            let asked = space.len();
            match guard.try_io(|reader| reader.get_ref().read(space)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Ok(Ok(count)) => {
                    if 0 < count && count < asked {
                        // That was all of it: the next receive would only find nothing.
                        guard.clear_ready();
                    }
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for UnixSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, |socket| socket.write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, |socket| socket.write_vectored(pieces))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.reader.get_ref().shutdown(Shutdown::Write))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
