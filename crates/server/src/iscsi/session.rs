//! The loop of one connection after its login: receive, execute, send, until it is over.
//!
//! ```text
//! Serving -- the server or the volume wants it ---> Parting   (take_events; the initiator is told)
//! Serving, Parting -- logout, or no word in time --> Leaving   (control, watch_time)
//! any -- the socket fails or ends, nonsense, silence, another takes its place, or a unit is not
//!        left in time --> Dead (die)
//! ```
//! `Parting` serves on until the initiator logs out; `Leaving` waits for jobs and sends; `Dead`
//! only waits for jobs, so that nothing of a session is left when it ends: what has not begun is
//! given up.
//!
//! Writes of a turn that wait for another thread keep the receive buffer, as in the other front
//! ends. Those that wait for room do not: an initiator that is not heard ends its session.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep};
use units::Role;
use wire::iscsi::{AsyncEvent, AsyncMessage, Numbers, Tag};
use wire::scsi::{Code, Lun, Sense, SenseKey};

use super::asked::Write;
use super::bells::{Bell, Bells};
use super::context::IscsiContext;
use super::core::Core;
use super::disks::{Disk, Disks};
use super::execute;
use super::login::Login;
use super::reservations::Port;
use super::sender::Sender;
use super::sessions::{Opened, Party, Registered};
use super::targets::{Target, Used};
use super::task::Tasks;
use super::unit::Number;
use crate::Attachment;
use crate::buffers::Taker;
use crate::serving::{
    Connection, End, Event, GroupMemory, INPUT_BYTES, Input, JobReport, Jobs, Left, Stage, Stall,
    Tally, Threads, Watch, watch_for_leave,
};
use crate::who::Caller;

/// An initiator that says nothing for so long is asked whether it is there.
const SILENCE_ASKED: Duration = Duration::from_secs(30);
/// And one that does not answer for so long is gone.
const SILENCE_GONE: Duration = Duration::from_secs(15);
/// How long data of a command may take to come, or to go on.
const DATA_AWAITED: Duration = Duration::from_secs(30);
/// How often that is looked at, once something is awaited.
const DATA_LOOKED_AFTER: Duration = Duration::from_secs(5);
/// How long an initiator that has nothing under way may take to log out when it is asked to.
const PARTING: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    Parting,
    Leaving,
    Dead,
}

struct Session {
    core: Core,
    input: Input,
    group: GroupMemory<Write>,
    phase: Phase,
    connection: Connection,
    events: UnboundedReceiver<Event<Write>>,
    /// While something waits and nothing is received.
    watch: Option<Watch>,
    stall: Stall,
    /// Other sessions, volumes and the target ring here.
    bells: UnboundedReceiver<Bell>,
    /// The way for disks that are added.
    ringing: Bells,
    port: Port,
    /// Units that were taken away.
    taken: Vec<(Number, Opened)>,
    /// Tasks that wait for one of these; they end with it.
    watchers: JoinSet<()>,
    registered: Option<Registered>,
    expire: UnboundedSender<Event<Write>>,
    /// Another session takes the place of this one.
    replaced: Pin<Box<dyn Future<Output = ()> + Send>>,
    last_heard: Instant,
    /// The initiator was asked whether it is there.
    is_asked: bool,
    alarm: Pin<Box<Sleep>>,
    client: String,
    /// Somebody whom a token let in.
    caller: Option<Caller>,
    /// The initiator parted with the disk by itself.
    has_parted: bool,
}

/// Serves a connection until it is over.
pub(super) async fn serve(
    connection: Connection,
    login: Login,
    context: Arc<IscsiContext>,
    threads: Threads,
    stop: watch::Receiver<bool>,
    client: String,
) {
    let (sender, events) = mpsc::unbounded_channel();
    let Login { target, registered, .. } = login;
    let port = Port { initiator: login.initiator, isid: login.isid };
    let (ringing, bells) = mpsc::unbounded_channel();
    let mut watchers = JoinSet::new();
    let name = target.as_ref().map(|target| target.name.clone());
    let way = (&ringing, &mut watchers, login.caller.as_ref());
    let (disks, attachment, used) = opened(target, (&port, &client), &context, way);
    let (leave, expire) = (sender.clone(), sender.clone());
    watchers.spawn(watch_for_leave(attachment, stop, leave, context.limits.farewell));
    let core = Core {
        absent: name.as_ref().map(|name| context.targets.absent(name)),
        target: name,
        disks,
        turns: 0,
        reached: context.thin.reached(),
        sender: Sender::new(&login.parameters, login.stat_sn, login.exp_cmd_sn),
        parameters: login.parameters,
        negotiation: login.negotiation,
        tasks: Tasks::default(),
        jobs: Jobs::new(sender, &context, &threads),
        taker: Taker::new(&context.buffers),
        tally: Tally::default(),
        has_seen: false,
        flushes: SmallVec::new(),
        stopped: None,
        last_transfer: 0,
        text: Vec::new(),
        logout: None,
        address: connection.local_address().map(plain),
        asker: login.asker,
        listing: None,
        awaited: Vec::new(),
        context,
    };
    let mut session = Session {
        core,
        input: Input::new(),
        group: GroupMemory::default(),
        phase: Phase::Serving,
        connection,
        events,
        watch: None,
        stall: Stall::default(),
        bells,
        ringing,
        port,
        taken: Vec::new(),
        watchers,
        replaced: Box::pin(until_true(registered.as_ref().map(|it| it.give_up.clone()))),
        registered,
        expire,
        last_heard: Instant::now(),
        is_asked: false,
        alarm: Box::pin(sleep(SILENCE_ASKED)),
        client,
        caller: login.caller,
        has_parted: false,
    };
    poll_fn(|cx| session.poll(cx)).await;
    end(session, used).await;
}

/// Lets go of all that a session had, in the order in which others may find it gone.
async fn end(session: Session, used: Option<Used>) {
    let farewell = session.core.context.limits.farewell;
    let Session {
        core, connection, phase, has_parted, registered, mut watchers, bells, taken, ..
    } = session;
    match &registered {
        Some(registered) if has_parted => registered.part(),
        Some(registered) => {
            let there = core.disks.iter().map(|disk| (disk.number, disk.opened));
            let lost: Vec<_> = there.chain(taken).collect();
            registered.lose(&lost);
        }
        None => {}
    }
    drop((core, used));
    // Detach first: who sees the connection closed may then delete the volume.
    watchers.shutdown().await;
    drop(bells);
    drop(registered);
    // An initiator that is gone already need not be told.
    let _ = tokio::time::timeout(farewell, connection.part(phase != Phase::Dead, farewell)).await;
}

/// The disks of a target that was opened, with what lives as long as its session. The only disk of
/// an automatic target has the session's attachment; each of several has its own.
fn opened(
    target: Option<Target>,
    (port, client): (&Port, &str),
    context: &Arc<IscsiContext>,
    (ringing, watchers, caller): (&Bells, &mut JoinSet<()>, Option<&Caller>),
) -> (Disks, Option<Attachment>, Option<Used>) {
    let mut disks = Disks::new(caller.is_some_and(|caller| !caller.may(Role::Operator)));
    let mut attachment = None;
    let Some(Target { name, units, used, made, .. }) = target else {
        return (disks, attachment, None);
    };
    for unit in units {
        let mut disk = Disk::new(unit, port.clone(), ringing, context);
        match made {
            Some(_) => disk.watch(ringing, watchers),
            None => attachment = disk.attachment.take(),
        }
        disks.add(disk);
    }
    if let Some(made) = made {
        let client = format!("{client} {}", port.initiator);
        let who = (Party::new(&port.initiator, caller), client, caller.cloned());
        watchers.spawn(made.watch(Arc::clone(context), name, who, ringing.clone()));
    }
    (disks, attachment, used)
}

/// An address as initiators keep it: one of IPv4 as such, and no scope.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Waits until it is true, or for ever.
async fn until_true(flag: Option<watch::Receiver<bool>>) {
    if let Some(mut flag) = flag
        && flag.wait_for(|is_so| *is_so).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

impl Session {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut laps = self.core.tally.laps();
        loop {
            let mut has_moved = self.take_events(cx);
            self.core.taker.begin(cx.waker());
            if matches!(self.phase, Phase::Serving | Phase::Parting) {
                has_moved |= self.turn();
            }
            self.core.taker.end();
            self.core.tally.executed(&mut laps, &self.core.context.counters);
            has_moved |= self.send(cx);
            self.core.tally.lap(&mut laps, Stage::Send);
            has_moved |= self.receive(cx);
            self.core.tally.lap(&mut laps, Stage::Receive);
            has_moved |= self.watch_for_end(cx);
            has_moved |= self.watch_time(cx);
            has_moved |= self.watch_for_stall(cx);
            if !has_moved {
                let requests = self.core.tally.add_to(&self.core.context.counters);
                self.core.jobs.rest(requests);
                return if self.is_over() { Poll::Ready(()) } else { Poll::Pending };
            }
        }
    }

    /// Called when nothing moved.
    fn is_over(&mut self) -> bool {
        match self.phase {
            Phase::Serving | Phase::Parting => false,
            Phase::Leaving => self.core.jobs.is_idle() && self.core.sender.is_empty(),
            Phase::Dead => self.core.jobs.is_idle(),
        }
    }

    fn take_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while let Poll::Ready(Some(event)) = self.events.poll_recv(cx) {
            has_moved = true;
            match event {
                Event::Done(report) => self.job_ended(report),
                Event::Leave if self.phase == Phase::Serving => self.ask_to_log_out(),
                Event::Leave => {}
                Event::Expire => self.die(),
            }
        }
        while let Poll::Ready(Some(bell)) = self.bells.poll_recv(cx) {
            has_moved = true;
            self.hear(bell);
        }
        let mut awaited = std::mem::take(&mut self.core.awaited);
        awaited.retain_mut(|(tag, others)| {
            let is_ready = others.as_mut().poll(cx).is_ready();
            if is_ready {
                has_moved = true;
                self.core.others_ended(*tag);
            }
            !is_ready
        });
        self.core.awaited.append(&mut awaited);
        if self.phase != Phase::Dead && self.replaced.as_mut().poll(cx).is_ready() {
            tracing::info!(client = self.client, "another session takes its place");
            self.die();
            return true;
        }
        has_moved
    }

    fn hear(&mut self, bell: Bell) {
        match bell {
            Bell::Abort(unit, number) => self.core.abort_all(unit, number),
            Bell::Leave(unit) => {
                self.take_away(&[unit]);
                let (ringing, farewell) = (self.ringing.clone(), self.core.context.limits.farewell);
                self.watchers.spawn(async move {
                    tokio::time::sleep(farewell).await;
                    let _ = ringing.send(Bell::Expire(unit));
                });
            }
            Bell::Expire(unit) => {
                // It goes as soon as nothing of it is under way. Only all of a session is given up.
                if self.core.disks.at(Lun::from_number(unit)).is_some() {
                    tracing::warn!(client = self.client, unit, "a unit is not left in time");
                    self.die();
                }
            }
            Bell::Units(gone, new) => {
                for unit in new {
                    let disk =
                        Disk::new(unit, self.port.clone(), &self.ringing, &self.core.context);
                    disk.watch(&self.ringing, &mut self.watchers);
                    self.core.disks.add(disk);
                }
                self.take_away(&gone);
            }
            Bell::Deleted => {
                let taken: Vec<u16> = self.core.disks.iter().map(|disk| disk.number).collect();
                self.take_away(&taken);
            }
        }
    }

    /// Takes units away, and tells the initiator that there are others. A session that has none any
    /// more is asked to end.
    fn take_away(&mut self, units: &[u16]) {
        let disks = self.core.disks.iter().filter(|disk| units.contains(&disk.number));
        let taken: Vec<_> = disks.map(|disk| (disk.number, disk.opened)).collect();
        if let Some(registered) = &self.registered {
            registered.lose(&taken);
        }
        self.taken.extend(taken);
        self.core.take_away(units);
        let has_none = self.core.disks.luns().is_empty();
        if has_none && self.phase == Phase::Serving {
            self.ask_to_log_out();
            let (expire, farewell) = (self.expire.clone(), self.core.context.limits.farewell);
            self.watchers.spawn(async move {
                tokio::time::sleep(farewell).await;
                let _ = expire.send(Event::Expire);
            });
        }
    }

    fn ask_to_log_out(&mut self) {
        self.phase = Phase::Parting;
        let seconds = u16::try_from(self.core.context.limits.farewell.as_secs()).unwrap_or(0);
        self.core.sender.tell(&AsyncMessage {
            lun: Lun(0),
            numbers: Numbers::default(),
            event: AsyncEvent::REQUEST_LOGOUT,
            vendor_code: 0,
            parameters: [0, 0, seconds],
        });
        self.alarm.as_mut().reset(Instant::now() + PARTING);
    }

    fn job_ended(&mut self, mut report: JobReport<Write>) {
        let core = &mut self.core;
        core.tally.job_took(report.time);
        match std::mem::replace(&mut report.left, Left::Nothing) {
            Left::Nothing => {}
            Left::Input(lent) => self.input.take_back(lent),
            Left::Write(writing) if self.phase != Phase::Dead && writing.is_to_be_taken_apart() => {
                core.jobs.ended(&report);
                core.take_apart(*writing, &mut self.input);
                return core.flush();
            }
            Left::Write(writing) if self.phase != Phase::Dead => {
                return core.jobs.go_on(&report, *writing);
            }
            Left::Write(_) => {}
        }
        core.jobs.answered(&report);
        if !report.is_whole {
            tracing::error!(client = self.client, "a command broke off: see the panic");
            self.die();
        } else if self.phase != Phase::Dead {
            for (tag, ended) in report.replies.into_ends() {
                core.ended(tag, ended);
            }
        }
    }

    /// Carries out what is received; whether anything was.
    fn turn(&mut self) -> bool {
        if self.caller.as_ref().is_some_and(Caller::is_revoked) {
            tracing::info!(client = self.client, "disconnected: its token was revoked");
            self.die();
            return true;
        }
        let turned = execute::execute(&mut self.core, &mut self.input, &mut self.group);
        if let Some(error) = turned.garbage {
            tracing::warn!(client = self.client, %error, "disconnected");
            self.die();
        }
        if self.core.log_out() {
            // One that was asked to will be back.
            self.has_parted = self.phase == Phase::Serving;
            self.phase = Phase::Leaving;
            return true;
        }
        turned.has_moved
    }

    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = self.core.sender.pump();
        while self.core.sender.output.pending_bytes() > 0 {
            let is_full = self.core.sender.is_full();
            match self.core.sender.output.poll_send(&mut self.connection, cx) {
                Poll::Pending => return has_moved,
                Poll::Ready(Ok(())) => {
                    has_moved = true;
                    // Nothing is received meanwhile, so this is the sign of life.
                    if is_full {
                        self.last_heard = Instant::now();
                        self.is_asked = false;
                    }
                }
                Poll::Ready(Err(error)) => {
                    self.lost(&error);
                    return true;
                }
            }
            self.core.sender.pump();
        }
        has_moved
    }

    /// Receives once, unless limits say to wait.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.may_receive() {
            return false;
        }
        match self.input.poll_receive(&mut self.connection, cx) {
            Poll::Pending => return false,
            Poll::Ready(Ok(0)) => self.lost(&io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Ok(_)) => {
                self.last_heard = Instant::now();
                self.is_asked = false;
            }
            Poll::Ready(Err(error)) => self.lost(&error),
        }
        true
    }

    fn may_receive(&self) -> bool {
        matches!(self.phase, Phase::Serving | Phase::Parting)
            && !self.input.is_lent()
            && !self.core.sender.is_full()
            && self.core.logout.is_none()
            && self.input.unread().len() < INPUT_BYTES
    }

    /// Watches for the end of the initiator while nothing is received; whether it has come.
    fn watch_for_end(&mut self, cx: &mut Context<'_>) -> bool {
        if self.phase == Phase::Dead || self.core.jobs.is_idle() || self.may_receive() {
            self.watch = None;
            return false;
        }
        if self.watch.is_none() {
            self.watch = Watch::new(&self.connection, End::Silent).ok();
        }
        match self.watch.as_ref().map(|watch| watch.poll_end(cx)) {
            None | Some(Poll::Pending) => false,
            // One that sends no more has dropped its session: what waits for it could come after
            // what it writes anew in another.
            Some(Poll::Ready(_)) => {
                self.lost(&io::ErrorKind::ConnectionReset.into());
                true
            }
        }
    }

    /// Asks an initiator that is silent whether it is there, and gives up one that does not answer.
    fn watch_time(&mut self, cx: &mut Context<'_>) -> bool {
        if self.phase == Phase::Dead || self.alarm.as_mut().poll(cx).is_pending() {
            return false;
        }
        let now = Instant::now();
        // Its memory is wanted by others, and answers to pings promise nothing.
        for tag in self.core.tasks.overdue(DATA_AWAITED) {
            tracing::warn!(client = self.client, "data of a command does not come");
            let sense = Sense::new(SenseKey::ABORTED_COMMAND, Code::NOT_ENOUGH_UNSOLICITED_DATA);
            self.core.ended(tag, sense.into());
        }
        if !self.may_receive() && !self.core.sender.is_full() {
            // It is us who do not listen.
            self.last_heard = now;
        }
        let patience = if self.is_asked { SILENCE_GONE } else { SILENCE_ASKED };
        let mut next = self.last_heard + patience;
        let looks_again = now + DATA_LOOKED_AFTER;
        if self.phase == Phase::Parting {
            let is_idle = self.core.tasks.all.is_empty() && self.core.sender.is_empty();
            if is_idle {
                self.phase = Phase::Leaving;
            }
            next = now + PARTING;
        } else if next <= now && self.is_asked {
            self.lost(&io::ErrorKind::TimedOut.into());
        } else if next <= now {
            self.is_asked = true;
            self.last_heard = now;
            let transfer_tag = self.core.next_transfer();
            self.core.sender.nop_in(Lun(0), Tag::NONE, transfer_tag, &[]);
            next = now + SILENCE_GONE;
        }
        // Others may have wanted its memory for long.
        let has_incoming = self.core.tasks.incoming > 0;
        self.alarm.as_mut().reset(if has_incoming { next.min(looks_again) } else { next });
        true
    }

    /// Gives up an initiator that keeps others waiting for the buffers of answers that it does not
    /// take.
    fn watch_for_stall(&mut self, cx: &mut Context<'_>) -> bool {
        let output = &self.core.sender.output;
        let moved_bytes = (output.pending_bytes() > 0).then(|| output.sent_bytes());
        let (context, who) = (&self.core.context, (&self.core.taker, &*self.client));
        if self.phase == Phase::Dead || !self.stall.gives_up(cx, context, moved_bytes, who) {
            return false;
        }
        self.die();
        true
    }

    fn lost(&mut self, error: &io::Error) {
        tracing::debug!(client = self.client, %error, "the connection is lost");
        self.die();
    }

    fn die(&mut self) {
        self.phase = Phase::Dead;
        self.watch = None;
        self.core.jobs.give_up();
        self.core.sender.clear();
    }
}
