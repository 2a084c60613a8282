//! The stream under a session: a unix or TCP socket, bare or under TLS.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::subject::{common_name, subject};
use super::unix_socket::UnixSocket;

/// Bytes that the kernel may hold for a unix socket's peer; what it allows may be less.
const UNIX_SEND_BYTES: usize = 1 << 20;
/// How long a TCP peer may be silent before it is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Unanswered probes after which the peer counts as gone.
const KEEPALIVE_PROBES: u32 = 6;

/// Most bytes that are received ahead of what is carried out.
pub(crate) const AHEAD_BYTES_MAX: usize = 64 << 10;
const AHEAD_PART_BYTES: usize = 4 << 10;
/// Most bytes that are taken of a client after the last answer: two of the longest requests.
const PARTING_BYTES_MAX: usize = 64 << 20;
const PARTING_STEP_BYTES: usize = 16 << 10;
/// After this part of the farewell without a byte there is nothing under way any more.
const SILENCE: u32 = 5;

/// A connected stream.
pub(crate) struct Connection {
    stream: Stream,
    /// Received already, for whoever receives next.
    ahead: Vec<u8>,
}

enum Stream {
    Unix(UnixSocket),
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl From<Stream> for Connection {
    fn from(stream: Stream) -> Connection {
        Connection { stream, ahead: Vec::new() }
    }
}

impl Connection {
    /// A unix socket with a large send buffer: 32 replies of 4 KiB do not fit into the usual one.
    pub(crate) fn from_unix(socket: UnixStream) -> io::Result<Connection> {
        // Only slower where it is refused.
        let _ = sockopt::set_socket_send_buffer_size(&socket, UNIX_SEND_BYTES);
        Ok(Stream::Unix(UnixSocket::new(socket)?).into())
    }

    /// A TCP socket that sends at once, and finds out when its peer is gone.
    pub(crate) fn from_tcp(socket: TcpStream) -> io::Result<Connection> {
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
        Ok(Stream::Tcp(socket).into())
    }

    /// The address at which a TCP client found us.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match &self.stream {
            Stream::Unix(_) => None,
            Stream::Tcp(socket) => socket.local_addr().ok(),
            Stream::Tls(stream) => stream.get_ref().0.local_addr().ok(),
        }
    }

    /// Whether TLS can still be started on it.
    pub(crate) fn is_bare_tcp(&self) -> bool {
        matches!(self.stream, Stream::Tcp(_))
    }

    /// Whether one receive can leave something behind that is already here.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// Whether a peer that only sends no more can be told from one that has closed.
    pub(crate) fn tells_silent_from_gone(&self) -> bool {
        matches!(self.stream, Stream::Unix(_))
    }

    /// Receives up to the end of the stream, or as much as is kept for who receives next; ready
    /// when that is done.
    pub(crate) fn poll_look_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut part = [0; AHEAD_PART_BYTES];
        while self.ahead.len() < AHEAD_BYTES_MAX {
            let length = part.len().min(AHEAD_BYTES_MAX - self.ahead.len());
            let mut space = ReadBuf::new(&mut part[..length]);
            match ready!(self.stream.poll_receive(cx, &mut space)) {
                Ok(()) if !space.filled().is_empty() => {
                    self.ahead.extend_from_slice(space.filled());
                }
                // Also without the end that TLS has of its own: what came is what was sent.
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Err(error));
                }
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The bytes received ahead.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// The subject of the certificate that the client showed, if it had to show one.
    pub(crate) fn client_subject(&self) -> Option<String> {
        let Stream::Tls(stream) = &self.stream else { return None };
        subject(stream.get_ref().1.peer_certificates()?.first()?)
    }

    /// The common name there.
    pub(crate) fn client_name(&self) -> Option<String> {
        let Stream::Tls(stream) = &self.stream else { return None };
        common_name(stream.get_ref().1.peer_certificates()?.first()?)
    }

    /// Whether the client showed a certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        let Stream::Tls(stream) = &self.stream else { return false };
        stream.get_ref().1.peer_certificates().is_some_and(|shown| !shown.is_empty())
    }

    /// The user at the other end of a unix socket, where it is one and that is known.
    pub(crate) fn peer_user(&self) -> Option<Option<u32>> {
        let Stream::Unix(_) = &self.stream else { return None };
        let peer = sockopt::socket_peercred(self.as_fd());
        Some(peer.ok().map(|peer| peer.uid.as_raw()))
    }

    /// Goes over to TLS as its server.
    pub(crate) async fn start_tls(self, config: Arc<ServerConfig>) -> io::Result<Connection> {
        let Stream::Tcp(socket) = self.stream else {
            return Err(io::Error::other("TLS begins on a bare TCP connection"));
        };
        let stream = TlsAcceptor::from(config).accept(socket).await?;
        Ok(Stream::Tls(Box::new(stream)).into())
    }
}

impl Connection {
    /// Tells the client that no more comes, and takes what one that `is_there` still sends: a
    /// connection that is closed on bytes that nobody read is reset, and answers on their way may
    /// be lost with it.
    pub(crate) async fn part(mut self, is_there: bool, farewell: Duration) -> io::Result<()> {
        self.shutdown().await?;
        let mut bytes = vec![0; PARTING_STEP_BYTES];
        let mut taken = 0;
        while is_there && taken < PARTING_BYTES_MAX {
            let received = tokio::time::timeout(farewell / SILENCE, self.read(&mut bytes));
            match received.await {
                Ok(Ok(count @ 1..)) => taken += count,
                Ok(Ok(0) | Err(_)) | Err(_) => break,
            }
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Unix(socket) => socket.as_fd(),
            Stream::Tcp(socket) => socket.as_fd(),
            Stream::Tls(stream) => stream.get_ref().0.as_fd(),
        }
    }
}

impl Stream {
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Stream::Unix(socket) => Pin::new(socket).poll_read(cx, buffer),
            Stream::Tcp(socket) => Pin::new(socket).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return self.stream.poll_receive(cx, buffer);
        }
        let count = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead[..count]);
        self.ahead.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
            Stream::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Unix(socket) => Pin::new(socket).poll_write_vectored(cx, pieces),
            Stream::Tcp(socket) => Pin::new(socket).poll_write_vectored(cx, pieces),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Unix(socket) => Pin::new(socket).poll_flush(cx),
            Stream::Tcp(socket) => Pin::new(socket).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Unix(socket) => Pin::new(socket).poll_shutdown(cx),
            Stream::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
