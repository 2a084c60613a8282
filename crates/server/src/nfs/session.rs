//! The loop of one connection: receive, carry out, send, until it is over.
//!
//! ```text
//! Serving -- the client sends no more, or the server stops --> Draining
//! any -- the socket fails, or nonsense ----------------------> Dead
//! ```
//! `Draining` carries out what was received, waits for its jobs and sends; `Dead` only waits for
//! jobs: what has not begun is given up.
//!
//! All that a wake-up brings is looked at in order. A call that changes nothing is answered at once
//! if all is in memory, else by a job; those that change something are collected, and carried out
//! behind them. RFC 1813 has no order between calls that are under way together.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use share::{Lack, Wait};
use tokio::io::AsyncWrite;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{MissedTickBehavior, interval};
use volume::{Error, RoomWait};
use wire::nfs3::{self, Call, Nfsstat3, Procedure};
use wire::rpc::decode::CallError;
use wire::rpc::record::{Found, Search};
use wire::rpc::{self, Accepted, AuthStat, Credentials, Denied, Flavor, Reply};
use wire::{mount, nfs3 as nfs};

use super::answer::{reply, results};
use super::context::NfsContext;
use super::exports::Peer;
use super::handles::Handle;
use super::look::look;
use super::mount::mount as answer_mount;
use super::received::Received;
use super::replay::{Key, Late, Seen};
use super::shares::IDLE_MAX;
use super::updates::{Batch, Came, Update, subject};
use crate::serving::{
    Asked, Connection, Counts, Event, Given, JobReport, Jobs, Kind, Output, Replies, RequestKind,
    Tally,
};

/// Nothing more is carried out while so many bytes of replies wait to be sent.
const OUTPUT_BYTES_MAX: usize = 2 << 20;
/// Calls that are looked at before what they are to change is carried out.
const TURN_CALLS_MAX: usize = 256;
/// Shares that they change.
const TURN_BATCHES_MAX: usize = 8;
/// How long a call waits for room before its client is told to try again.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a session looks for memory that it had not, and for moments that nobody uses.
const TICK: Duration = Duration::from_secs(1);

/// Writes of NFS are batches of a share, none of the engine's front ends.
#[derive(Clone, Copy)]
enum NoWrite {}

impl Asked for NoWrite {
    type Replies = Replies;

    fn kind(&self) -> RequestKind {
        match *self {}
    }
    fn offset(&self) -> u64 {
        match *self {}
    }
    fn length_bytes(&self) -> u64 {
        match *self {}
    }
    fn is_durable(&self) -> bool {
        match *self {}
    }
    fn answer(&self, _: Result<(), &Error>, _: &mut Replies) -> u64 {
        match *self {}
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    Draining,
    Dead,
}

/// A batch that came to a lack.
struct Waiting {
    batch: Batch,
    lack: Lack,
    wait: RoomWait,
    since: Instant,
}

struct Session {
    context: Arc<NfsContext>,
    peer: Peer,
    client: String,
    connection: Connection,
    received: Received,
    search: Search,
    output: Output,
    jobs: Jobs<NoWrite>,
    events: UnboundedReceiver<Event<NoWrite>>,
    waiting: (UnboundedSender<Waiting>, UnboundedReceiver<Waiting>),
    late: (Late, UnboundedReceiver<Arc<[u8]>>),
    tally: Tally,
    phase: Phase,
}

/// Serves a connection until it is over.
pub(super) async fn serve(context: Arc<NfsContext>, given: Given, peer: std::net::SocketAddr) {
    let Given { connection, client, threads, mut stop } = given;
    let (sender, events) = mpsc::unbounded_channel();
    let farewell = context.limits.farewell;
    let mut session = Session {
        jobs: Jobs::new(sender, &context, &threads),
        peer: Peer::new(peer),
        client,
        connection,
        received: Received::new(&context),
        search: Search::default(),
        output: Output::new(),
        events,
        waiting: mpsc::unbounded_channel(),
        late: mpsc::unbounded_channel(),
        tally: Tally::default(),
        phase: Phase::Serving,
        context,
    };
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut until: Option<tokio::time::Instant> = None;
    loop {
        let is_stopping = until.is_some();
        tokio::select! {
            () = poll_fn(|cx| session.poll(cx)) => break,
            _ = stop.wait_for(|stop| *stop), if !is_stopping => {
                until = Some(tokio::time::Instant::now() + farewell);
                session.drain();
            }
            _ = ticks.tick() => {
                if session.context.shares.is_purge_due() {
                    let shares = Arc::clone(&session.context.shares);
                    drop(tokio::task::spawn_blocking(move || shares.purge()));
                }
                if until.is_some_and(|until| until <= tokio::time::Instant::now()) {
                    session.die();
                }
            }
        }
    }
    let Session { context, connection, phase, .. } = session;
    // A client that is gone already need not be told.
    let _ = tokio::time::timeout(farewell, connection.part(phase != Phase::Dead, farewell)).await;
    // Nobody may come after it: what it used is closed then all the same.
    let shares = Arc::clone(&context.shares);
    tokio::spawn(async move {
        tokio::time::sleep(IDLE_MAX + TICK).await;
        let _ = tokio::task::spawn_blocking(move || shares.purge()).await;
    });
}

impl Session {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut has_moved = self.take_events(cx);
            if self.phase != Phase::Dead {
                has_moved |= self.turn();
            }
            has_moved |= self.send(cx);
            if self.phase == Phase::Serving {
                has_moved |= self.receive(cx);
            }
            if !has_moved {
                self.jobs.rest(self.tally.add_to(&self.context.counters));
                return if self.is_over() { Poll::Ready(()) } else { Poll::Pending };
            }
        }
    }

    /// Called when nothing moved.
    fn is_over(&self) -> bool {
        match self.phase {
            Phase::Serving => false,
            Phase::Draining => self.jobs.is_idle() && self.output.pending_bytes() == 0,
            Phase::Dead => self.jobs.is_idle(),
        }
    }

    fn drain(&mut self) {
        if self.phase == Phase::Serving {
            self.phase = Phase::Draining;
        }
    }

    fn die(&mut self) {
        self.phase = Phase::Dead;
        self.jobs.give_up();
        self.output.clear();
    }

    fn take_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while let Poll::Ready(Some(event)) = self.events.poll_recv(cx) {
            has_moved = true;
            match event {
                Event::Done(report) => self.job_ended(report),
                Event::Leave => self.drain(),
                Event::Expire => self.die(),
            }
        }
        while let Poll::Ready(Some(answer)) = self.late.1.poll_recv(cx) {
            has_moved = true;
            if self.phase != Phase::Dead {
                self.output.push(&answer);
            }
        }
        has_moved
    }

    fn job_ended(&mut self, report: JobReport<NoWrite>) {
        self.tally.errors += report.errors;
        self.tally.job_took(report.time);
        self.jobs.answered(&report);
        if !report.is_whole {
            tracing::error!(client = self.client, "a call broke off: see the panic");
            return self.die();
        }
        if self.phase != Phase::Dead {
            self.output.push_whole(report.replies);
        }
        // It was sent before the job's end was.
        while let Ok(waiting) = self.waiting.1.try_recv() {
            if self.phase != Phase::Dead {
                self.wait(waiting);
            }
        }
    }

    /// Carries out what is received; whether anything was.
    fn turn(&mut self) -> bool {
        let input = Arc::clone(self.received.bytes());
        let mut batches: Vec<Batch> = Vec::new();
        let mut has_moved = false;
        for _ in 0..TURN_CALLS_MAX {
            let is_owed = self.output.pending_bytes() >= OUTPUT_BYTES_MAX;
            if self.jobs.is_full() || is_owed || batches.len() >= TURN_BATCHES_MAX {
                break;
            }
            let unread = self.received.unread();
            let record = match self.search.find(&input[unread.clone()]) {
                Ok(Found::Beginning(least)) => {
                    self.received.wants(least);
                    break;
                }
                Ok(Found::Whole(record)) => record,
                Err(error) => {
                    tracing::warn!(client = self.client, %error, "disconnected");
                    self.die();
                    return true;
                }
            };
            has_moved = true;
            self.tally.requests += 1;
            // One fragment is used where it is; of several one is made.
            let (bytes, body) = match record.body() {
                std::borrow::Cow::Borrowed(body) => {
                    // Fragments without data may come before it.
                    let begin = body.as_ptr().addr() - input.as_ptr().addr();
                    (Arc::clone(&input), begin..begin + body.len())
                }
                std::borrow::Cow::Owned(body) => {
                    let length = body.len();
                    (Arc::new(body), 0..length)
                }
            };
            self.received.consume(record.stream_bytes());
            if !self.call(bytes, body, &mut batches) {
                tracing::warn!(client = self.client, "disconnected: a record that is no call");
                self.die();
                return true;
            }
        }
        self.tally.turns += u64::from(has_moved);
        batches.into_iter().for_each(|batch| self.change(batch));
        has_moved
    }

    /// Carries out a record, or puts it into a batch; false if it is no call.
    fn call(&mut self, bytes: Arc<Vec<u8>>, body: Range<usize>, batches: &mut Vec<Batch>) -> bool {
        let asked = match rpc::decode::call(&bytes[body.clone()]) {
            Ok(asked) => asked,
            Err(CallError::NoCall) => return false,
            Err(CallError::Denied { xid, denied }) => {
                self.refuse(xid, &Reply::Denied(denied));
                return true;
            }
        };
        if let Credentials::Other(flavor) = asked.credentials {
            let stat = match flavor {
                Flavor::RPCSEC_GSS => AuthStat::TooWeak,
                _ => AuthStat::RejectedCred,
            };
            self.refuse(asked.xid, &Reply::Denied(Denied::AuthError(stat)));
            return true;
        }
        let mismatch = Accepted::ProgMismatch { low: nfs::VERSION, high: nfs::VERSION };
        match (asked.program, asked.version) {
            (nfs::PROGRAM, nfs::VERSION) => self.nfs(&asked, &bytes, &body, batches),
            (mount::PROGRAM, mount::VERSION) => self.mount(&asked, &bytes, &body),
            (nfs::PROGRAM | mount::PROGRAM, _) => {
                self.refuse(asked.xid, &Reply::Accepted(mismatch));
            }
            _ => self.refuse(asked.xid, &Reply::Accepted(Accepted::ProgUnavail)),
        }
        true
    }

    fn refuse(&mut self, xid: u32, how: &Reply) {
        self.tally.errors += 1;
        self.output.push(&reply(xid, how, |_| {}));
    }

    fn mount(&mut self, asked: &rpc::Call<'_>, bytes: &Arc<Vec<u8>>, body: &Range<usize>) {
        if let Err(error) = mount::decode::call(asked.procedure, asked.arguments) {
            return self.refuse(asked.xid, &Reply::Accepted(error.answer()));
        }
        let (context, peer) = (Arc::clone(&self.context), self.peer);
        let (bytes, body) = (Arc::clone(bytes), body.clone());
        self.start_job(Kind::Look, body.len(), RequestKind::Other, move |out| {
            let asked = rpc::decode::call(&bytes[body]).expect("it was decoded before");
            let call = mount::decode::call(asked.procedure, asked.arguments);
            let call = call.expect("it was decoded before");
            *out = answer_mount(&context, peer, &asked, &call);
            0
        });
    }

    fn nfs(
        &mut self,
        asked: &rpc::Call<'_>,
        bytes: &Arc<Vec<u8>>,
        body: &Range<usize>,
        batches: &mut Vec<Batch>,
    ) {
        let call = match nfs3::decode::call(asked.procedure, asked.arguments) {
            Ok(call) => call,
            Err(error) => return self.refuse(asked.xid, &Reply::Accepted(error.answer())),
        };
        let number = usize::try_from(asked.procedure).expect("it is a procedure");
        self.context.calls[number].fetch_add(1, Ordering::Relaxed);
        if call == Call::Null {
            return self.output.push(&results(asked.xid, &nfs3::Results::Null));
        }
        if let Some((procedure, handle)) = subject(&call) {
            let Some((handle, _)) = Handle::read(&handle) else {
                let failed = nfs3::Results::failed(procedure, Nfsstat3::BadHandle);
                self.tally.errors += 1;
                return self.output.push(&results(asked.xid, &failed));
            };
            let arguments_crc = format::checksum::block_crc(asked.arguments);
            let key = self.key(asked, procedure, arguments_crc);
            let entered = match self.context.replays.enter(key, &self.late.0) {
                Seen::New(new) => new,
                Seen::UnderWay => return,
                Seen::Answered(answer) => return self.output.push(&answer),
            };
            let (bytes, body) = (Arc::clone(bytes), body.clone());
            let update = Update { bytes, body, entered, arguments_crc };
            return add(batches, self.peer, handle.volume, update);
        }
        if let Some(answer) = look(&self.context, self.peer, asked, &call, Wait::MayNot) {
            return self.output.push(&answer);
        }
        let (context, peer) = (Arc::clone(&self.context), self.peer);
        let (bytes, body) = (Arc::clone(bytes), body.clone());
        let (kind, cost, request) = match call {
            Call::Commit { .. } => (Kind::Change, body.len(), RequestKind::Flush),
            Call::Read { count, .. } => {
                let count = (count as usize).min(nfs::limits::TRANSFER_BYTES_MAX);
                (Kind::Look, body.len() + count, RequestKind::Read)
            }
            _ => (Kind::Look, body.len() + (64 << 10), RequestKind::Other),
        };
        self.start_job(kind, cost, request, move |out| {
            let asked = rpc::decode::call(&bytes[body]).expect("it was decoded before");
            let call = nfs3::decode::call(asked.procedure, asked.arguments);
            let call = call.expect("it was decoded before");
            *out = look(&context, peer, &asked, &call, Wait::May).expect("it waits");
            0
        });
    }

    /// A call in the duplicate request cache.
    fn key(&self, asked: &rpc::Call<'_>, procedure: Procedure, arguments_crc: u32) -> Key {
        let uid = match asked.credentials {
            Credentials::Sys(sys) => sys.uid,
            Credentials::None | Credentials::Other(_) => u32::MAX,
        };
        let (client, xid, procedure) = (self.peer.ip, asked.xid, procedure.number());
        Key { client, xid, procedure, arguments_crc, uid }
    }

    /// Carries out a batch: at once if nothing has to wait, else as a job.
    fn change(&mut self, mut batch: Batch) {
        let mut answers = Vec::new();
        let (came, errors) = batch.go_on(&self.context, Wait::MayNot, &|| true, &mut answers);
        self.tally.errors += errors;
        self.output.push(&answers);
        match came {
            Came::Through => {}
            Came::ToAWait => self.start_batch(batch),
            Came::ToALack(lack) => {
                self.wait(Waiting { batch, lack, wait: RoomWait::default(), since: Instant::now() })
            }
        }
    }

    fn start_batch(&mut self, mut batch: Batch) {
        let (context, sender) = (Arc::clone(&self.context), self.waiting.0.clone());
        let goes_on = self.jobs.goes_on();
        let (cost, counts) = cost_of(&batch);
        self.tally.jobs += batch.updates.len() as u64;
        self.jobs.start(Kind::Change, cost, counts, move |out| {
            let (came, errors) = batch.go_on(&context, Wait::May, &goes_on, &mut out.words);
            if let Came::ToALack(lack) = came {
                let (wait, since) = (RoomWait::default(), Instant::now());
                // A session that is gone wants no answer.
                let _ = sender.send(Waiting { batch, lack, wait, since });
            }
            errors
        });
    }

    /// Waits for what a batch lacks, and goes on with it.
    fn wait(&mut self, mut waiting: Waiting) {
        let (context, sender) = (Arc::clone(&self.context), self.waiting.0.clone());
        let goes_on = self.jobs.goes_on();
        let (cost, counts) = cost_of(&waiting.batch);
        let until = waiting.since + PATIENCE;
        self.jobs.start_patiently(cost, counts, until, move |out| {
            let Waiting { batch, lack, wait, .. } = &mut waiting;
            let is_due = || Instant::now() >= until;
            let opened = context.shares.opened(batch.volume);
            let outcome = match &opened {
                Some(opened) => {
                    let goes_on = || goes_on() && !is_due();
                    opened.share().present().wait_for(*lack, wait, &goes_on)
                }
                // It is opened anew.
                None => Err(share::Error::from(share::ErrorKind::Unusable)),
            };
            if let Err(error) = outcome {
                let is_full = error.kind == share::ErrorKind::Full;
                // Room is being made still: the client tries again.
                let status = match is_full && is_due() {
                    true => Nfsstat3::Jukebox,
                    false => super::answer::status(&error),
                };
                return batch.fail(status, &mut out.words);
            }
            let (came, errors) = batch.go_on(&context, Wait::May, &goes_on, &mut out.words);
            if let Came::ToALack(new) = came {
                *lack = new;
                let _ = sender.send(waiting);
            }
            errors
        });
    }

    fn start_job(
        &mut self,
        kind: Kind,
        cost: usize,
        request: RequestKind,
        work: impl FnOnce(&mut Vec<u8>) -> u64 + Send + 'static,
    ) {
        self.tally.jobs += 1;
        self.jobs.start(kind, cost as u64, Counts::one(request), |out| work(&mut out.words));
    }

    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while self.output.pending_bytes() > 0 {
            match self.output.poll_send(&mut self.connection, cx) {
                Poll::Pending => return has_moved,
                Poll::Ready(Ok(())) => has_moved = true,
                Poll::Ready(Err(error)) => {
                    self.lost(&error);
                    return true;
                }
            }
        }
        if let Poll::Ready(Err(error)) = Pin::new(&mut self.connection).poll_flush(cx) {
            self.lost(&error);
            return true;
        }
        has_moved
    }

    fn lost(&mut self, error: &std::io::Error) {
        tracing::debug!(client = self.client, %error, "lost");
        self.die();
    }

    /// Receives once, unless limits say to wait.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        if self.jobs.is_full() || self.output.pending_bytes() >= OUTPUT_BYTES_MAX {
            return false;
        }
        match self.received.poll_receive(&mut self.connection, cx) {
            Poll::Pending => false,
            Poll::Ready(Ok(count)) => {
                if count == 0 {
                    self.drain();
                }
                true
            }
            Poll::Ready(Err(error)) => {
                self.lost(&error);
                true
            }
        }
    }
}

/// Adds a call to the batch of its share.
fn add(batches: &mut Vec<Batch>, peer: Peer, volume: u64, update: Update) {
    match batches.iter_mut().find(|batch| batch.volume == volume) {
        Some(batch) => batch.updates.push_back(update),
        None => batches.push(Batch { peer, volume, updates: [update].into() }),
    }
}

/// Bytes that a batch keeps in memory, and its calls.
fn cost_of(batch: &Batch) -> (u64, Counts) {
    let bytes: usize = batch.updates.iter().map(|update| update.body.len()).sum();
    (bytes as u64, Counts::of(batch.updates.iter().map(|_| RequestKind::Write)))
}
