//! Sees the end of a client from whom nothing is received for a while, and tells a session when the
//! server wants it to end.
//!
//! On a second descriptor of its socket: what is known of the first, that it has something to
//! receive, must stay known. Bytes that come meanwhile wake nobody twice, and are not touched.
//!
//! A peer that has closed a unix socket, or reset a TCP connection, is *gone*. One that sends no
//! more may still take replies. On a unix socket that is told apart, so it is no reason to do
//! anything; over TCP it is not, so who watches says whether it matters.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedSender;

use super::asked::Asked;
use super::jobs::Event;
use super::socket::Connection;
use super::unix_socket::registered;
use crate::Attachment;

/// The event that is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It takes nothing any more.
    Gone,
    /// It sends nothing any more, or is gone.
    Silent,
}

/// A socket that is watched.
pub(crate) struct Watch {
    socket: AsyncFd<OwnedFd>,
    end: End,
}

impl Watch {
    /// Watches for an end of the client, if it has not come already.
    pub(crate) fn new(connection: &Connection, end: End) -> io::Result<Watch> {
        let interest = match end {
            // Errors and hang-ups are told whatever one asks for, and urgent bytes there are none.
            End::Gone => Interest::PRIORITY,
            End::Silent => Interest::READABLE,
        };
        let socket = connection.as_fd().try_clone_to_owned()?;
        Ok(Watch { socket: registered(socket, interest)?, end })
    }

    /// The event that it watches for.
    pub(crate) fn end(&self) -> End {
        self.end
    }

    /// Ready when that end has come.
    pub(crate) fn poll_end(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            if guard.ready().is_read_closed() {
                return Poll::Ready(Ok(()));
            }
            // Bytes have come: nothing more is told before the next ones do.
            guard.clear_ready();
        }
    }
}

/// Tells the session when it shall end, and holds its attachment as long as it lives.
pub(crate) async fn watch_for_leave<R: Asked>(
    mut attachment: Option<Attachment>,
    mut stop: tokio::sync::watch::Receiver<bool>,
    events: UnboundedSender<Event<R>>,
    farewell: Duration,
) {
    tokio::select! {
        // A sender that is gone means the same: the server stops.
        _ = stop.wait_for(|stop| *stop) => {}
        () = asked_to_leave(attachment.as_mut()) => {}
    }
    let _ = events.send(Event::Leave);
    tokio::time::sleep(farewell).await;
    let _ = events.send(Event::Expire);
    std::future::pending::<()>().await;
}

/// Waits until an attachment is asked to leave; for ever without one.
async fn asked_to_leave(attachment: Option<&mut Attachment>) {
    match attachment {
        Some(attachment) => attachment.asked_to_leave().await,
        None => std::future::pending().await,
    }
}
