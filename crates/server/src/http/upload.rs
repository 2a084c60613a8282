//! Bodies that are read as they come, by work that waits for them.

use std::io::{self, ErrorKind, Read};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Does work that reads the body. When it is done before that, the rest is thrown away for a
    /// while, so that the client comes to read the answer.
    pub(super) async fn read_by<T>(
        self,
        work: impl AsyncFnOnce(Reading) -> Answer<T>,
    ) -> Answer<T> {
        let (sender, parts) = channel(WAITING_PARTS);
        let is_broken = Arc::new(AtomicBool::new(false));
        let Upload { mut body, patience } = self;
        let reading = Reading { parts, rest: Bytes::new(), is_broken: Arc::clone(&is_broken) };
        let handing = hand_over(&mut body, patience, sender, &is_broken);
        let mut work = pin!(work(reading));
        let answer = tokio::select! {
            answer = &mut work => Some(answer),
            () = handing => None,
        };
        match answer {
            None => work.await,
            Some(answer) => {
                let rest = async move { while let Some(Ok(_)) = body.frame().await {} };
                tokio::spawn(timeout(patience, rest));
                answer
            }
        }
    }
}

/// Hands the parts of a body over as they come.
async fn hand_over(
    body: &mut AxumBody,
    patience: Duration,
    to: Sender<io::Result<Bytes>>,
    is_broken: &AtomicBool,
) {
    loop {
        let part = match timeout(patience, body.frame()).await {
            Ok(None) => return,
            // A frame that is no data is a trailer, which says nothing here.
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => Ok(data),
                Err(_) => continue,
            },
            Ok(Some(Err(error))) => {
                is_broken.store(true, Ordering::Relaxed);
                Err(io::Error::other(error))
            }
            Err(_) => {
                let text = format!("nothing came for {patience:?}");
                Err(io::Error::new(ErrorKind::TimedOut, text))
            }
        };
        let is_last = part.is_err();
        if to.send(part).await.is_err() || is_last {
            return;
        }
    }
}

/// A body, to be read where one may wait.
pub(super) struct Reading {
    parts: Receiver<io::Result<Bytes>>,
    rest: Bytes,
    is_broken: Arc<AtomicBool>,
}

impl Reading {
    /// Says whether the connection broke: the rest of the body is for nobody.
    pub(super) fn is_broken(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_broken)
    }
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
