//! The loop of one connection after its handshake: receive, execute, send, until it is over.
//!
//! ```text
//! Serving  -- the client sends no more, or Leave --> Draining   (receive, take_events)
//! Serving, Draining -- DISC, or garbage -----------> Leaving    (turn)
//! Serving, Draining -- all is sent, no DISC, while something waits --> Leaving (watch_for_end)
//! any -- the socket fails, or Expire --------------> Dead       (die)
//! ```
//! `Draining` carries out what was received; `Leaving` only waits for jobs and sends; `Dead` only
//! waits for jobs, so that nothing of a session is left when it ends; what waits for room is given
//! up.
//!
//! A write that finds no room keeps the receive buffer: nothing is received or carried out behind
//! it before it is answered, which is the back-pressure, but for one payload with buffers of its
//! own that was begun before. Other connections go on. Meanwhile the socket is watched for its end:
//! what waits for a client that is gone could come after what it wrote anew elsewhere. Only once
//! nothing more can come is what lies behind received, and looked through for DISC.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio::sync::mpsc::{self};
use tokio::sync::watch;
use units::Role;

use super::asked::WriteRequest;
use super::check;
use super::context::NbdContext;
use super::execute::{self, Then};
use super::handshake::Chosen;
use super::state::{OUTPUT_BYTES_MAX, Phase, Receiving, Session};
use crate::buffers::{Chain, Taker};
use crate::serving::{
    Connection, End, Event, GroupMemory, INPUT_BYTES, Input, JobReport, Jobs, Left, Output, Stage,
    Stall, Tally, Threads, Watch, What, Writing, watch_for_leave,
};

/// Serves a connection until it is over.
pub(super) async fn serve(
    connection: Connection,
    chosen: Chosen,
    context: Arc<NbdContext>,
    threads: Threads,
    stop: watch::Receiver<bool>,
    client: String,
) {
    let (sender, events) = mpsc::unbounded_channel();
    let farewell = context.limits.farewell;
    let watcher =
        tokio::spawn(watch_for_leave(Some(chosen.attachment), stop, sender.clone(), farewell));
    let meter = chosen
        .export
        .present_of()
        .and_then(|volume| context.meters.of(volume, chosen.export.name()));
    let mut session = Session {
        export: chosen.export,
        style: chosen.style,
        contexts: chosen.contexts.into(),
        input: Input::new(),
        output: Output::new(),
        jobs: Jobs::new(sender, &context, &threads),
        taker: Taker::new(&context.buffers),
        group: GroupMemory::default(),
        tally: Tally::default(),
        meter,
        seen: Vec::new(),
        receiving: Receiving::Requests,
        phase: Phase::Serving,
        is_silent: false,
        watch: None,
        is_unwatched: false,
        is_unflushed: false,
        stall: Stall::default(),
        payload_bytes: 0,
        connection,
        events,
        client,
        caller: chosen.caller,
        context,
    };
    poll_fn(|cx| session.poll(cx)).await;
    // Detach first: who sees the connection closed may then delete the volume.
    watcher.abort();
    let _ = watcher.await;
    let (connection, phase) = session.into_connection();
    // A client that is gone already need not be told.
    let _ = tokio::time::timeout(farewell, connection.part(phase != Phase::Dead, farewell)).await;
}

impl Session {
    /// Whether it is the past, or the client may not write.
    pub(super) fn is_read_only(&self) -> bool {
        self.export.present_of().is_none() || !self.caller.may(Role::Operator)
    }

    /// The connection once the session is over.
    fn into_connection(self) -> (Connection, Phase) {
        (self.connection, self.phase)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut laps = self.tally.laps();
        loop {
            let mut has_moved = self.take_events(cx);
            self.taker.begin(cx.waker());
            if matches!(self.phase, Phase::Serving | Phase::Draining) {
                has_moved |= self.turn();
            }
            self.taker.end();
            self.tally.executed(&mut laps, &self.context.counters);
            has_moved |= self.send(cx);
            self.tally.lap(&mut laps, Stage::Send);
            if self.phase == Phase::Serving {
                has_moved |= self.receive(cx);
                self.tally.lap(&mut laps, Stage::Receive);
            }
            has_moved |= self.watch_for_end(cx);
            has_moved |= self.watch_for_stall(cx);
            if !has_moved {
                self.jobs.rest(self.tally.add_to(&self.context.counters));
                return if self.is_over() { Poll::Ready(()) } else { Poll::Pending };
            }
        }
    }

    /// Called when nothing moved: what is received in `Draining` is then carried out or cut short.
    fn is_over(&self) -> bool {
        let is_sent = self.output.pending_bytes() == 0 && !self.is_unflushed;
        match self.phase {
            Phase::Serving => false,
            Phase::Draining | Phase::Leaving => {
                self.jobs.is_idle() && is_sent && !self.taker.is_waiting()
            }
            Phase::Dead => self.jobs.is_idle(),
        }
    }

    fn take_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while let Poll::Ready(Some(event)) = self.events.poll_recv(cx) {
            has_moved = true;
            match event {
                Event::Done(report) => self.job_ended(report),
                Event::Leave if self.phase == Phase::Serving => self.phase = Phase::Draining,
                Event::Leave => {}
                Event::Expire => self.die(),
            }
        }
        has_moved
    }

    fn job_ended(&mut self, mut report: JobReport<WriteRequest>) {
        self.tally.errors += report.errors;
        self.tally.job_took(report.time);
        match std::mem::replace(&mut report.left, Left::Nothing) {
            Left::Nothing => {}
            Left::Input(lent) => self.input.take_back(lent),
            Left::Write(writing) if self.phase != Phase::Dead => {
                return self.jobs.go_on(&report, *writing);
            }
            Left::Write(_) => {}
        }
        self.jobs.answered(&report);
        if !report.is_whole {
            tracing::error!(client = self.client, "a request broke off: see the panic");
            self.die();
        } else if self.phase != Phase::Dead {
            self.output.push_whole(report.replies);
        }
    }

    /// Carries out what is received; whether anything was.
    fn turn(&mut self) -> bool {
        let mut has_moved = false;
        loop {
            match &mut self.receiving {
                Receiving::Requests => {
                    let done = execute::execute(self);
                    has_moved |= done.has_moved;
                    match done.then {
                        Then::Wait => return has_moved,
                        Then::Receive(receiving) => self.receiving = receiving,
                        Then::Leave => {
                            self.phase = Phase::Leaving;
                            return true;
                        }
                        Then::Garbage(garbage) => {
                            tracing::warn!(client = self.client, %garbage, "disconnected");
                            self.phase = Phase::Leaving;
                            return true;
                        }
                    }
                }
                Receiving::Skip { left_bytes, reply } => {
                    let here = self.input.unread().len();
                    let part = usize::try_from(*left_bytes).map_or(here, |left| left.min(here));
                    self.input.consume(part);
                    *left_bytes -= part as u64;
                    has_moved |= part > 0;
                    if *left_bytes > 0 {
                        return has_moved;
                    }
                    self.output.push(reply);
                    self.receiving = Receiving::Requests;
                }
                Receiving::Payload { payload, filled, .. } => {
                    if *filled < payload.len() {
                        return has_moved;
                    }
                    let receiving = std::mem::replace(&mut self.receiving, Receiving::Requests);
                    let Receiving::Payload { request, payload, .. } = receiving else {
                        unreachable!("just seen");
                    };
                    let cost = payload.len() as u64;
                    let what = What::Payload(WriteRequest { style: self.style, request }, payload);
                    self.jobs.write(cost, Writing::new(&self.export, what));
                    self.tally.jobs += 1;
                    has_moved = true;
                }
            }
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while self.output.pending_bytes() > 0 {
            match self.output.poll_send(&mut self.connection, cx) {
                Poll::Pending => return has_moved,
                Poll::Ready(Ok(())) => {
                    has_moved = true;
                    self.is_unflushed = self.connection.is_tls();
                }
                Poll::Ready(Err(error)) => {
                    self.lost(&error);
                    return true;
                }
            }
        }
        if self.is_unflushed {
            match Pin::new(&mut self.connection).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.is_unflushed = false,
                Poll::Ready(Err(error)) => {
                    self.lost(&error);
                    return true;
                }
            }
        }
        has_moved
    }

    /// Receives once (a bare socket gives all it has), unless limits say to wait.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while self.may_receive() {
            let received = match &mut self.receiving {
                Receiving::Payload { payload, filled, .. } => {
                    let before = *filled;
                    let received = poll_fill(&mut self.connection, cx, payload, filled);
                    self.payload_bytes += (*filled - before) as u64;
                    received
                }
                Receiving::Requests | Receiving::Skip { .. } => {
                    self.input.poll_receive(&mut self.connection, cx)
                }
            };
            match received {
                Poll::Pending => return has_moved,
                Poll::Ready(Ok(0)) => {
                    self.phase = Phase::Draining;
                    let _ = self.fall_silent();
                    return true;
                }
                Poll::Ready(Ok(_)) => has_moved = true,
                Poll::Ready(Err(error)) => {
                    self.lost(&error);
                    return true;
                }
            }
            if !self.connection.is_tls() {
                return has_moved;
            }
        }
        has_moved
    }

    fn may_receive(&self) -> bool {
        let is_owed = self.output.pending_bytes() >= OUTPUT_BYTES_MAX;
        match &self.receiving {
            Receiving::Payload { payload, filled, .. } => *filled < payload.len(),
            // The write that waits for room is in the buffer.
            _ if self.input.is_lent() => false,
            Receiving::Skip { .. } => self.input.unread().len() < INPUT_BYTES,
            Receiving::Requests => {
                !is_owed && !self.jobs.is_full() && self.input.unread().len() < INPUT_BYTES
            }
        }
    }

    /// Watches for the end of the client while something waits and nothing is received; whether it
    /// has come.
    fn watch_for_end(&mut self, cx: &mut Context<'_>) -> bool {
        let receives = self.phase == Phase::Serving && self.may_receive();
        if !self.jobs.has_waiting() || receives || self.phase == Phase::Dead {
            self.watch = None;
            return false;
        }
        // After DISC a client may well send no more, and wait for its answers.
        let may_be_silent = self.is_silent
            || self.phase == Phase::Leaving
            || self.connection.tells_silent_from_gone();
        let end = if may_be_silent { End::Gone } else { End::Silent };
        if self.watch.as_ref().is_none_or(|watch| watch.end() != end) {
            let watch = Watch::new(&self.connection, end);
            // Once: it is tried again and again.
            if let Err(error) = &watch
                && !std::mem::replace(&mut self.is_unwatched, true)
            {
                tracing::warn!(client = self.client, %error, "its end will not be seen");
            }
            self.watch = watch.ok();
        }
        match self.watch.as_ref().map(|watch| watch.poll_end(cx)) {
            None | Some(Poll::Pending) => return false,
            Some(Poll::Ready(Err(error))) => self.lost(&error),
            Some(Poll::Ready(Ok(()))) if end == End::Gone => {
                self.lost(&io::ErrorKind::ConnectionReset.into());
            }
            Some(Poll::Ready(Ok(()))) => match self.connection.poll_look_ahead(cx) {
                Poll::Pending => return false,
                Poll::Ready(Err(error)) => self.lost(&error),
                Poll::Ready(Ok(())) if self.fall_silent() => {}
                Poll::Ready(Ok(())) => self.phase = Phase::Leaving,
            },
        }
        self.watch = None;
        true
    }

    /// Gives up a client that keeps others waiting for the buffers of answers that it does not
    /// take, or of data that it does not send.
    fn watch_for_stall(&mut self, cx: &mut Context<'_>) -> bool {
        let lacks_data = matches!(&self.receiving,
            Receiving::Payload { payload, filled, .. } if *filled < payload.len());
        let is_awaited = self.output.pending_bytes() > 0 || lacks_data;
        let moved_bytes = is_awaited.then(|| self.output.sent_bytes() + self.payload_bytes);
        let who = (&self.taker, &*self.client);
        if self.phase == Phase::Dead || !self.stall.gives_up(cx, &self.context, moved_bytes, who) {
            return false;
        }
        self.die();
        true
    }

    /// The client sends no more; whether it is known to be still there, or to have sent DISC, so
    /// that all it sent is carried out. Otherwise nothing waits for it: that is how a connection
    /// is dropped, and nobody could tell what is made when.
    fn fall_silent(&mut self) -> bool {
        self.is_silent = true;
        let is_served = self.connection.tells_silent_from_gone() || self.has_goodbye();
        if !is_served {
            self.jobs.give_up_waits();
        }
        is_served
    }

    /// Whether DISC is in what is received and not carried out.
    fn has_goodbye(&self) -> bool {
        let payload = match &self.receiving {
            Receiving::Requests => 0,
            Receiving::Skip { left_bytes, .. } => *left_bytes,
            Receiving::Payload { payload, filled, .. } => (payload.len() - filled) as u64,
        };
        let received = [self.input.behind(), self.connection.ahead()].concat();
        check::has_goodbye(&received, payload, self.style.headers())
    }

    fn lost(&mut self, error: &io::Error) {
        tracing::debug!(client = self.client, %error, "the connection is lost");
        self.die();
    }

    fn die(&mut self) {
        self.phase = Phase::Dead;
        self.jobs.give_up();
        self.is_unflushed = false;
        self.output.clear();
    }
}

/// Receives once into what is left of `payload`; the number of bytes.
fn poll_fill(
    connection: &mut Connection,
    cx: &mut Context<'_>,
    payload: &mut Chain,
    filled: &mut usize,
) -> Poll<io::Result<usize>> {
    let mut space = tokio::io::ReadBuf::new(payload.unfilled(*filled));
    std::task::ready!(tokio::io::AsyncRead::poll_read(Pin::new(connection), cx, &mut space))?;
    let count = space.filled().len();
    *filled += count;
    Poll::Ready(Ok(count))
}
