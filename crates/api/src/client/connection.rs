//! One HTTP/1.1 request and its answer over a unix or TCP socket, the latter also under TLS.
//!
//! A connection per request: the command line sends few. An answer is read whole and bounded.

use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Frame};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, LINK};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::{Receiver, channel};

use super::address::{ServerAddress, Token};
use super::error::ClientError;
use super::tls;

/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// A request before it is sent.
pub(super) struct Outgoing {
    pub method: Method,
    /// Path and query.
    pub target: String,
    pub content: Content,
}

/// The content of a request.
pub(super) enum Content {
    None,
    Json(Vec<u8>),
    /// An archive, read as it is sent.
    Archive(Box<dyn Read + Send>),
}

/// Bytes of an archive that are read at a time.
const PART_BYTES: usize = 128 << 10;

/// Parts that wait to be sent.
const WAITING_PARTS: usize = 4;

/// A body that is read as it is sent, by a thread: to wait for the next part keeps none back.
struct Parts(Receiver<io::Result<Bytes>>);

impl Parts {
    fn of(mut from: Box<dyn Read + Send>) -> Parts {
        let (sender, parts) = channel(WAITING_PARTS);
        std::thread::spawn(move || {
            loop {
                let mut part = vec![0; PART_BYTES];
                let read = from.read(&mut part);
                let part = match read {
                    Ok(0) => return,
                    Ok(length) => {
                        part.truncate(length);
                        Ok(Bytes::from(part))
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let is_last = part.is_err();
                // Nobody waits for more once there is an answer.
                if sender.blocking_send(part).is_err() || is_last {
                    return;
                }
            }
        });
        Parts(parts)
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(cx).map(|part| part.map(|part| part.map(Frame::data)))
    }
}

type Sent = UnsyncBoxBody<Bytes, io::Error>;

/// The name that a server is called by, and its token.
type Host<'a> = (&'a str, Option<&'a Token>);

/// An answer, read whole.
pub(super) struct Incoming {
    pub status: StatusCode,
    pub link: Option<String>,
    pub body: Bytes,
}

/// Where a server is, and how it is known there.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub address: &'a ServerAddress,
    pub tls: Option<&'a Arc<ClientConfig>>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Connects, sends, reads the answer.
pub(super) async fn exchange(
    place: Place<'_>,
    outgoing: Outgoing,
) -> Result<Incoming, ClientError> {
    let (stream, host) = connect(place).await?;
    send(stream, host, outgoing).await.map_err(|error| explained(place.address, error))
}

/// Connects, sends, and hands over an answer's bytes as they come; what is no success is read
/// whole.
pub(super) async fn receive(
    place: Place<'_>,
    outgoing: Outgoing,
    keep: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<Option<Incoming>, ClientError> {
    let (stream, host) = connect(place).await?;
    let received = hand_over(stream, host, outgoing, keep).await;
    received.map_err(|error| explained(place.address, error))
}

async fn connect(place: Place<'_>) -> Result<(Box<dyn Stream>, Host<'_>), ClientError> {
    let Place { address, tls } = place;
    let failed = |source| ClientError::Connect { address: address.clone(), source };
    match address {
        ServerAddress::Unix(path, token) => {
            let stream = in_time(UnixStream::connect(path)).await.map_err(failed)?;
            Ok((Box::new(stream), ("localhost", token.as_ref())))
        }
        ServerAddress::Http { authority, is_tls, token } => {
            let host = (authority.as_str(), token.as_ref());
            if !is_tls {
                let stream = in_time(TcpStream::connect(authority)).await.map_err(failed)?;
                return Ok((Box::new(stream), host));
            }
            let distrusted =
                |(why, source)| ClientError::Tls { address: address.clone(), why, source };
            let shaking = tls::Shaking::new(authority, tls).map_err(distrusted)?;
            let stream = in_time(TcpStream::connect(authority)).await.map_err(failed)?;
            let stream = in_time(shaking.shake(stream)).await;
            let stream = stream.map_err(|error| match tls::distrust(&error) {
                Some(why) => distrusted((why, error)),
                None => failed(error),
            })?;
            Ok((Box::new(stream), host))
        }
    }
}

/// An exchange's error, or why there is no TLS any more.
fn explained(address: &ServerAddress, error: ClientError) -> ClientError {
    match tls::distrust(&error) {
        None => error,
        Some(why) => {
            ClientError::Tls { address: address.clone(), why, source: io::Error::other(error) }
        }
    }
}

async fn hand_over(
    stream: Box<dyn Stream>,
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
    sender: &mut http1::SendRequest<Sent>,
    request: Request<Sent>,
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
    stream: Box<dyn Stream>,
    host: Host<'_>,
    outgoing: Outgoing,
) -> Result<Incoming, ClientError> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::Exchange)?;
    let driver = tokio::spawn(connection);
    let received = receive_whole(&mut sender, request(host, outgoing)?).await;
    driver.abort();
    let _ = driver.await;
    received
}

async fn receive_whole(
    sender: &mut http1::SendRequest<Sent>,
    request: Request<Sent>,
) -> Result<Incoming, ClientError> {
    let answer = sender.send_request(request).await.map_err(ClientError::Exchange)?;
    let status = answer.status();
    let link = answer.headers().get(LINK).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(ClientError::Body)?.to_bytes();
    Ok(Incoming { status, link, body })
}

fn request((host, token): Host<'_>, outgoing: Outgoing) -> Result<Request<Sent>, ClientError> {
    let mut builder = Request::builder()
        .method(outgoing.method)
        .uri(outgoing.target)
        .header(HOST, host)
        .header(ACCEPT, "application/json");
    if let Some(token) = token {
        builder = builder.header(AUTHORIZATION, format!("Bearer {}", token.0));
    }
    let (media_type, body) = match outgoing.content {
        Content::None => (None, whole(Vec::new())),
        Content::Json(json) => (Some("application/json"), whole(json)),
        Content::Archive(from) => (Some("application/x-tar"), Parts::of(from).boxed_unsync()),
    };
    if let Some(media_type) = media_type {
        builder = builder.header(CONTENT_TYPE, media_type);
    }
    builder.body(body).map_err(ClientError::Request)
}

fn whole(bytes: Vec<u8>) -> Sent {
    Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync()
}
