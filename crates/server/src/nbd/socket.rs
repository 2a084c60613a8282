//! The stream under a session: a unix or TCP socket, bare or under TLS.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::unix_socket::UnixSocket;

/// Bytes that the kernel may hold for a unix socket's peer; what it allows may be less.
const UNIX_SEND_BYTES: usize = 1 << 20;
/// How long a TCP peer may be silent before it is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Unanswered probes after which the peer counts as gone.
const KEEPALIVE_PROBES: u32 = 6;

/// A connected stream.
pub(super) enum Connection {
    Unix(UnixSocket),
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// A unix socket with a large send buffer: 32 replies of 4 KiB do not fit into the usual one.
    pub(super) fn from_unix(socket: UnixStream) -> io::Result<Connection> {
        // Only slower where it is refused.
        let _ = sockopt::set_socket_send_buffer_size(&socket, UNIX_SEND_BYTES);
        UnixSocket::new(socket).map(Connection::Unix)
    }

    /// A TCP socket that sends at once, and finds out when its peer is gone.
    pub(super) fn from_tcp(socket: TcpStream) -> io::Result<Connection> {
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
        Ok(Connection::Tcp(socket))
    }

    /// Whether TLS can still be started on it.
    pub(super) fn is_bare_tcp(&self) -> bool {
        matches!(self, Connection::Tcp(_))
    }

    /// Whether one receive can leave something behind that is already here.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Connection::Tls(_))
    }

    /// Whether a peer that only sends no more can be told from one that has closed.
    pub(super) fn tells_silent_from_gone(&self) -> bool {
        matches!(self, Connection::Unix(_))
    }

    /// Goes over to TLS as its server.
    pub(super) async fn start_tls(self, config: Arc<ServerConfig>) -> io::Result<Connection> {
        let Connection::Tcp(socket) = self else {
            return Err(io::Error::other("TLS begins on a bare TCP connection"));
        };
        let stream = TlsAcceptor::from(config).accept(socket).await?;
        Ok(Connection::Tls(Box::new(stream)))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Connection::Unix(socket) => socket.as_fd(),
            Connection::Tcp(socket) => socket.as_fd(),
            Connection::Tls(stream) => stream.get_ref().0.as_fd(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Connection::Unix(socket) => Pin::new(socket).poll_read(cx, buffer),
            Connection::Tcp(socket) => Pin::new(socket).poll_read(cx, buffer),
            Connection::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Connection::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
            Connection::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            Connection::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Connection::Unix(socket) => Pin::new(socket).poll_write_vectored(cx, pieces),
            Connection::Tcp(socket) => Pin::new(socket).poll_write_vectored(cx, pieces),
            Connection::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Connection::Unix(socket) => Pin::new(socket).poll_flush(cx),
            Connection::Tcp(socket) => Pin::new(socket).poll_flush(cx),
            Connection::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Connection::Unix(socket) => Pin::new(socket).poll_shutdown(cx),
            Connection::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            Connection::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
