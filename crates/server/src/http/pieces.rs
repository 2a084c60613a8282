//! Answers that are sent piece by piece, each made when the client has taken the one before. A
//! client that goes away, or takes nothing, keeps no thread.

use std::io;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::task::{JoinHandle, spawn_blocking};

/// Something that is sent in pieces.
pub(super) trait Pieces: Send + Unpin + 'static {
    /// The next piece; none at the end. It may wait.
    fn next(&mut self) -> ::share::Result<Option<Vec<u8>>>;

    /// How many bytes are left, if that is known.
    fn left(&self) -> Option<u64>;
}

type Made<P> = (P, ::share::Result<Option<Vec<u8>>>);

/// A body of pieces.
pub(super) enum Sending<P> {
    /// The next was not asked for.
    Idle(P),
    /// The next is being made.
    Making(JoinHandle<Made<P>>),
    /// All were sent, or one could not be made.
    Done,
}

impl<P: Pieces> Body for Sending<P> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let mut making = match std::mem::replace(&mut *self, Sending::Done) {
            Sending::Done => return Poll::Ready(None),
            Sending::Idle(pieces) if pieces.left() == Some(0) => return Poll::Ready(None),
            Sending::Idle(mut pieces) => spawn_blocking(move || {
                let made = pieces.next();
                (pieces, made)
            }),
            Sending::Making(making) => making,
        };
        let Poll::Ready(made) = Pin::new(&mut making).poll(cx) else {
            *self = Sending::Making(making);
            return Poll::Pending;
        };
        let (pieces, made) = made.map_err(io::Error::other)?;
        let made = made.map_err(|error| {
            tracing::error!(
                error = crate::nfs::answer_words(&error),
                "an answer is not sent whole"
            );
            io::Error::other(error)
        })?;
        Poll::Ready(made.map(|bytes| {
            *self = Sending::Idle(pieces);
            Ok(Frame::data(bytes.into()))
        }))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Sending::Idle(pieces) => pieces.left() == Some(0),
            Sending::Making(_) => false,
            Sending::Done => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Sending::Idle(pieces) => {
                pieces.left().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Sending::Making(_) => SizeHint::default(),
            Sending::Done => SizeHint::with_exact(0),
        }
    }
}
