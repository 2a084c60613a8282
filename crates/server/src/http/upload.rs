//! Bodies that are read as they come, by work that waits for them.

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use api::ProblemKind;
use axum::body::Body as AxumBody;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use super::answer::{Answer, Refusal};
use super::ask::Patience;
use crate::settings::HTTP_PATIENCE;

/// Parts of a body that wait to be read.
const WAITING_PARTS: usize = 8;
/// The type of an archive.
pub(super) const ARCHIVE_TYPE: &str = "application/x-tar";

/// A body that is an archive, as it comes.
pub(super) struct Upload {
    body: AxumBody,
    patience: Duration,
}

impl<S: Send + Sync> FromRequest<S> for Upload {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Upload, Refusal> {
        let media_type = request.headers().get(CONTENT_TYPE).map(|v| v.to_str().unwrap_or(""));
        let essence = media_type.and_then(|given| given.split(';').next()).unwrap_or_default();
        if !essence.trim().eq_ignore_ascii_case(ARCHIVE_TYPE) {
            let text = format!("the body is not {ARCHIVE_TYPE}");
            let hint = format!("send the header Content-Type: {ARCHIVE_TYPE}");
            return Err(Refusal::new(ProblemKind::MediaType, text).with_hint(hint));
        }
        let patience = request.extensions().get().map_or(HTTP_PATIENCE, |Patience(given)| *given);
        Ok(Upload { body: request.into_body(), patience })
    }
}

impl Upload {
    /// Does work that reads the body. The rest of one that is not read whole is thrown away for a
    /// while, so that the client comes to read the answer.
    pub(super) async fn read_by<T>(
        self,
        work: impl AsyncFnOnce(Reading) -> Answer<T>,
    ) -> Answer<T> {
        let (sender, parts) = channel(WAITING_PARTS);
        let Upload { body, patience } = self;
        let (answer, ()) = tokio::join!(
            work(Reading { parts, rest: Bytes::new() }),
            hand_over(body, patience, sender)
        );
        answer
    }
}

/// Hands the parts of a body over as they come.
async fn hand_over(mut body: AxumBody, patience: Duration, to: Sender<io::Result<Bytes>>) {
    loop {
        let part = match timeout(patience, body.frame()).await {
            Ok(None) => return,
            Ok(Some(Ok(frame))) => frame.into_data().map_err(|_| ErrorKind::InvalidData.into()),
            Ok(Some(Err(error))) => Err(io::Error::other(error)),
            Err(_) => {
                let text = format!("nothing came for {patience:?}");
                Err(io::Error::new(ErrorKind::TimedOut, text))
            }
        };
        let is_broken = part.is_err();
        if to.send(part).await.is_err() {
            break;
        }
        if is_broken {
            return;
        }
    }
    let _ = timeout(patience, async { while let Some(Ok(_)) = body.frame().await {} }).await;
}

/// A body, to be read where one may wait.
pub(super) struct Reading {
    parts: Receiver<io::Result<Bytes>>,
    rest: Bytes,
}

impl Read for Reading {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.parts.blocking_recv() {
                None => return Ok(0),
                Some(part) => self.rest = part?,
            }
        }
        let length = self.rest.len().min(bytes.len());
        bytes[..length].copy_from_slice(&self.rest.split_to(length));
        Ok(length)
    }
}
