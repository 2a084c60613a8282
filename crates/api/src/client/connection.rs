//! One HTTP/1.1 request and its answer over a unix or TCP socket.
//!
//! A connection per request: the command line sends few. An answer is read whole and bounded.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, LINK};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::{ClientError, ServerAddress, Token};

/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// A request before it is sent.
pub(super) struct Outgoing {
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// JSON.
    pub body: Option<Vec<u8>>,
}

/// The name that a server is called by, and its token.
type Host<'a> = (&'a str, Option<&'a Token>);

/// An answer, read whole.
pub(super) struct Incoming {
    pub status: StatusCode,
    pub link: Option<String>,
    pub body: Bytes,
}

/// Connects, sends, reads the answer.
pub(super) async fn exchange(
    address: &ServerAddress,
    outgoing: Outgoing,
) -> Result<Incoming, ClientError> {
    let connect = |source| ClientError::Connect { address: address.clone(), source };
    match address {
        ServerAddress::Unix(path) => {
            let stream = in_time(UnixStream::connect(path)).await.map_err(connect)?;
            send(stream, ("localhost", None), outgoing).await
        }
        ServerAddress::Http { authority, token } => {
            let stream = in_time(TcpStream::connect(authority)).await.map_err(connect)?;
            send(stream, (authority, token.as_ref()), outgoing).await
        }
    }
}

/// Connects, sends, and hands over an answer's bytes as they come; what is no success is read
/// whole.
pub(super) async fn receive(
    address: &ServerAddress,
    outgoing: Outgoing,
    keep: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<Option<Incoming>, ClientError> {
    let connect = |source| ClientError::Connect { address: address.clone(), source };
    match address {
        ServerAddress::Unix(path) => {
            let stream = in_time(UnixStream::connect(path)).await.map_err(connect)?;
            hand_over(stream, ("localhost", None), outgoing, keep).await
        }
        ServerAddress::Http { authority, token } => {
            let stream = in_time(TcpStream::connect(authority)).await.map_err(connect)?;
            hand_over(stream, (authority, token.as_ref()), outgoing, keep).await
        }
    }
}

async fn hand_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: Host<'_>,
    outgoing: Outgoing,
    keep: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<Option<Incoming>, ClientError> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::Exchange)?;
    let driver = tokio::spawn(connection);
    let received = receive_body(&mut sender, request(host, outgoing)?, keep).await;
    // Gone before this returns, however it went: the server then sees that nobody listens.
    driver.abort();
    let _ = driver.await;
    received
}

async fn receive_body(
    sender: &mut http1::SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    keep: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<Option<Incoming>, ClientError> {
    let answer = sender.send_request(request).await.map_err(ClientError::Exchange)?;
    let status = answer.status();
    let mut body = answer.into_body();
    if status.is_success() {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(ClientError::Exchange)?;
            if let Some(bytes) = frame.data_ref() {
                keep(bytes).map_err(ClientError::Keep)?;
            }
        }
        return Ok(None);
    }
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(ClientError::Body)?.to_bytes();
    Ok(Some(Incoming { status, link: None, body }))
}

async fn in_time<T>(connecting: impl Future<Output = std::io::Result<T>>) -> std::io::Result<T> {
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(result) => result,
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut)),
    }
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: Host<'_>,
    outgoing: Outgoing,
) -> Result<Incoming, ClientError> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::Exchange)?;
    let driver = tokio::spawn(connection);
    let answer = sender.send_request(request(host, outgoing)?).await;
    let answer = answer.map_err(ClientError::Exchange)?;
    let status = answer.status();
    let link = answer.headers().get(LINK).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(ClientError::Body)?
        .to_bytes();
    drop(sender);
    driver.abort();
    Ok(Incoming { status, link, body })
}

fn request(
    (host, token): Host<'_>,
    outgoing: Outgoing,
) -> Result<Request<Full<Bytes>>, ClientError> {
    let mut builder = Request::builder()
        .method(outgoing.method)
        .uri(outgoing.target)
        .header(HOST, host)
        .header(ACCEPT, "application/json");
    if let Some(token) = token {
        builder = builder.header(AUTHORIZATION, format!("Bearer {}", token.0));
    }
    if outgoing.body.is_some() {
        builder = builder.header(CONTENT_TYPE, "application/json");
    }
    let body = Full::new(Bytes::from(outgoing.body.unwrap_or_default()));
    builder.body(body).map_err(ClientError::Request)
}
