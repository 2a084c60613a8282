//! One turn of a session: every whole request in the receive buffer is carried out or started.
//!
//! Writes of whole blocks gather in a group that goes to the engine at once, before a read of the
//! same bytes, a resize, or the end of the turn; flushes, and FUA, share one flush at the end of
//! the turn. Reads that the engine has at hand are made in the place from which they are sent.

use std::sync::Arc;

use smallvec::SmallVec;
use volume::{Lack, WriteOp, Written};
use wire::nbd::{Command, ReplyStyle, Request, decode, encode};

use super::answer::{fail, finish_read, read_and_answer};
use super::asked::{WriteRequest, as_in_traces, kind};
use super::check::{self, Facts, Refusal};
use super::contexts::MetaContext;
use super::state::{OUTPUT_BYTES_MAX, Receiving, Session};
use crate::Attachments;
use crate::buffers::{Purpose, Taker};
use crate::meters::VolumeMeter;
use crate::serving::{
    Asked, Counts, Export, Group, INLINE_PAYLOAD_BYTES_MAX, Jobs, Kind, Output, Replies, Tally,
    What, Writing,
};
use crate::taps::Taps;
use crate::who::{AccessConfig, Caller};

mod seldom;

/// Longest read that is tried without a job, in bytes.
const INLINE_READ_BYTES_MAX: u64 = 256 << 10;
/// Longest range that is zeroed without a job, in bytes.
const INLINE_ZERO_BYTES_MAX: u64 = 64 << 20;

/// Requests that wait for one flush without an allocation.
const FLUSHES_FEW: usize = 4;

/// The outcome of a turn.
pub(super) struct Turned {
    pub(super) has_moved: bool,
    pub(super) then: Then,
}

/// The next thing to do.
pub(super) enum Then {
    /// More bytes, or the end of a job, or the client that takes its replies.
    Wait,
    /// Other bytes than requests.
    Receive(Receiving),
    /// The end of the session.
    Leave,
    /// The end of the session, as what came is not NBD.
    Garbage(decode::Garbage),
}

enum Step {
    /// So many bytes are done with.
    Next(usize),
    /// Nothing can be done with these bytes now.
    Wait,
    /// So many bytes are done with, and no request follows.
    Then(usize, Then),
}

/// The parts of its session that a turn needs, other than the receive buffer.
struct Turn<'s> {
    /// The client.
    caller: &'s Caller,
    access: &'s AccessConfig,
    export: &'s Arc<dyn Export>,
    contexts: &'s Arc<[MetaContext]>,
    attachments: &'s Arc<Attachments>,
    taps: &'s Taps,
    meter: Option<&'s VolumeMeter>,
    /// Requests of this turn that the meter has still to see.
    seen: &'s mut Vec<trace::Request>,
    facts: Facts,
    style: ReplyStyle,
    output: &'s mut Output,
    jobs: &'s mut Jobs<WriteRequest>,
    taker: &'s mut Taker,
    tally: &'s mut Tally,
    /// Requests that wait for a flush.
    flushes: SmallVec<[Request; FLUSHES_FEW]>,
    /// The group could not be written without waiting: how much of it was, and what it lacks.
    /// Nothing more is carried out in this turn.
    stopped: Option<(u64, Lack)>,
}

/// Carries out what is in the receive buffer.
pub(super) fn execute(session: &mut Session) -> Turned {
    let unread = session.input.unread();
    if unread.is_empty() {
        return Turned { has_moved: false, then: Then::Wait };
    }
    if session.caller.is_revoked() {
        return Turned { has_moved: false, then: Then::Leave };
    }
    let mut turn = Turn {
        caller: &session.caller,
        access: &session.context.access,
        facts: Facts {
            size_bytes: session.export.size_bytes(),
            is_read_only: session.is_read_only(),
            style: session.style,
            has_contexts: !session.contexts.is_empty(),
        },
        export: &session.export,
        contexts: &session.contexts,
        attachments: &session.context.attachments,
        taps: &session.context.taps,
        meter: session.meter.as_deref(),
        seen: &mut session.seen,
        style: session.style,
        output: &mut session.output,
        jobs: &mut session.jobs,
        taker: &mut session.taker,
        tally: &mut session.tally,
        flushes: SmallVec::new(),
        stopped: None,
    };
    let mut group = Group::within(std::mem::take(&mut session.group));
    let mut at = 0;
    let then = loop {
        if turn.output.pending_bytes() >= OUTPUT_BYTES_MAX {
            break Then::Wait;
        }
        match turn.step(&unread[at..], &mut group) {
            Step::Next(count) => at += count,
            Step::Wait => break Then::Wait,
            Step::Then(count, then) => {
                at += count;
                break then;
            }
        }
    };
    turn.write(&mut group);
    turn.flush();
    if let Some(meter) = turn.meter.filter(|_| !turn.seen.is_empty()) {
        meter.add(turn.seen);
    }
    if turn.stopped.is_some() {
        group.requests().iter().for_each(|asked| turn.tally.at_once.take_away(asked.kind()));
    }
    let has_moved = at > 0 || !matches!(then, Then::Wait);
    turn.tally.turns += u64::from(has_moved);
    let stopped = turn.stopped.map(|stopped| (stopped, group.places(&session.input)));
    if session.context.buffers.is_pool() {
        session.group = group.into_memory();
    }
    session.input.consume(at);
    let turned = fill(session, then, has_moved);
    if let Some(((done, lacks), requests)) = stopped {
        let what = What::Turn(session.input.lend(), requests);
        let writing = Writing::new(&session.export, what).after(done, lacks);
        session.tally.jobs += 1;
        session.jobs.write(0, writing);
    }
    turned
}

/// Moves what is here already of a payload into its own buffer.
fn fill(session: &mut Session, mut then: Then, has_moved: bool) -> Turned {
    if let Then::Receive(Receiving::Payload { payload, filled, .. }) = &mut then {
        let mut unread = session.input.unread();
        for piece in payload.pieces_mut() {
            let part = unread.len().min(piece.len());
            piece[..part].copy_from_slice(&unread[..part]);
            *filled += part;
            unread = &unread[part..];
        }
        session.input.consume(*filled);
    }
    Turned { has_moved, then }
}

impl Turn<'_> {
    fn step<'b>(&mut self, bytes: &'b [u8], group: &mut Group<'b, WriteRequest>) -> Step {
        let headers = self.style.headers();
        let request = match decode::request(bytes, headers) {
            Ok(Some(request)) => request,
            Ok(None) => return Step::Wait,
            Err(garbage) => return Step::Then(0, Then::Garbage(garbage)),
        };
        let header = decode::request_header_bytes(headers);
        let step = match check::check(&request, &self.facts) {
            Ok(()) => self.take_up(request, header, bytes, group),
            Err(refusal) => self.refuse(&request, header, refusal),
        };
        self.tally.requests += u64::from(!matches!(step, Step::Wait));
        step
    }

    /// Carries a request out, and shows it to who records and measures the present.
    fn take_up<'b>(
        &mut self,
        request: Request,
        header: usize,
        bytes: &'b [u8],
        group: &mut Group<'b, WriteRequest>,
    ) -> Step {
        let jobs = self.tally.jobs;
        let step = self.carry_out(request, header, bytes, group);
        if matches!(step, Step::Next(_)) && self.tally.jobs == jobs {
            self.tally.at_once.add(kind(&request));
        }
        let is_recorded = self.taps.is_listening();
        if (is_recorded || self.meter.is_some())
            && !matches!(step, Step::Wait)
            && let Some(volume) = self.export.present_of()
            && let Some(seen) = as_in_traces(&request)
        {
            if is_recorded {
                self.taps.note(volume, &seen);
            }
            if self.meter.is_some() {
                self.seen.push(seen);
            }
        }
        step
    }

    fn carry_out<'b>(
        &mut self,
        request: Request,
        header: usize,
        bytes: &'b [u8],
        group: &mut Group<'b, WriteRequest>,
    ) -> Step {
        let payload = request.payload_bytes(self.style.headers());
        match request.command {
            Command::Read => self.read(&request, header, group),
            Command::Write => self.take_write(request, header, payload, bytes, group),
            Command::Trim | Command::WriteZeroes => self.take_zero(request, header, group),
            Command::Flush => self.take_flush(request, header),
            Command::Cache => self.cache(&request, header),
            Command::BlockStatus => self.status(request, header, payload, bytes, group),
            Command::Resize => self.resize(request, header, group),
            Command::Disconnect => Step::Then(header, Then::Leave),
            Command::Unknown(_) => unreachable!("refused by the check"),
        }
    }

    fn refuse(&mut self, request: &Request, header: usize, (errno, message): Refusal) -> Step {
        let headers = self.style.headers();
        if check::is_flood(request, headers) {
            tracing::warn!(
                bytes = request.length_bytes,
                "disconnected: a payload too long to skip"
            );
            return Step::Then(header, Then::Leave);
        }
        self.tally.errors += 1;
        let mut reply = Vec::new();
        encode::error(self.style, request, errno, message, &mut reply);
        let payload = request.payload_bytes(headers);
        if payload > 0 {
            let skip = Receiving::Skip { left_bytes: payload, reply };
            return Step::Then(header, Then::Receive(skip));
        }
        self.output.push(&reply);
        Step::Next(header)
    }

    fn read(
        &mut self,
        request: &Request,
        header: usize,
        group: &mut Group<'_, WriteRequest>,
    ) -> Step {
        let length = request.length_bytes;
        if length == 0 {
            self.output.push(encode::read_nothing(self.style, request).as_bytes());
            return Step::Next(header);
        }
        if group.overlaps(request.offset, length) && !self.write(group) {
            return Step::Wait;
        }
        if length <= INLINE_READ_BYTES_MAX && self.read_inline(request) {
            return Step::Next(header);
        }
        if !self.jobs.has_room(length) {
            return Step::Wait;
        }
        let Some(data) = self.taker.take(Purpose::Read, request.offset, length as usize) else {
            return Step::Wait;
        };
        let (export, style, request) = (Arc::clone(self.export), self.style, *request);
        let answer = move |out: &mut _| read_and_answer(&*export, style, &request, data, out);
        self.start(Kind::Look, length, Counts::one(kind(&request)), answer);
        Step::Next(header)
    }

    /// Reads straight into the output; false when that would have to wait.
    fn read_inline(&mut self, request: &Request) -> bool {
        let prefix = encode::read_data_bytes(self.style);
        let space = self.output.space(prefix + request.length_bytes as usize);
        match self.export.try_read(request.offset, &mut space[prefix..]) {
            Ok(true) => {
                let count = finish_read(self.style, request, space);
                self.output.commit(count);
                true
            }
            Ok(false) => false,
            Err(error) => {
                self.failed(request, &error);
                true
            }
        }
    }

    fn take_write<'b>(
        &mut self,
        request: Request,
        header: usize,
        payload: u64,
        bytes: &'b [u8],
        group: &mut Group<'b, WriteRequest>,
    ) -> Step {
        let length = usize::try_from(payload).expect("checked to be at most 32 MiB");
        if length == 0 {
            return self.done(&request, header);
        }
        if length > INLINE_PAYLOAD_BYTES_MAX {
            if !self.jobs.has_room(payload) {
                return Step::Wait;
            }
            let Some(payload) = self.taker.take(Purpose::Write, request.offset, length) else {
                return Step::Wait;
            };
            let receiving = Receiving::Payload { request, payload, filled: 0 };
            return Step::Then(header, Then::Receive(receiving));
        }
        let Some(payload) = bytes.get(header..header + length) else { return Step::Wait };
        let asked = WriteRequest { style: self.style, request };
        if asked.is_whole_blocks() {
            if group.is_full() && !self.write(group) {
                return Step::Wait;
            }
            group.add(asked, WriteOp::Data { offset: request.offset, bytes: payload });
        } else {
            if !self.jobs.has_room(length as u64) {
                return Step::Wait;
            }
            let Some(mut own) = self.taker.take(Purpose::Write, request.offset, length) else {
                return Step::Wait;
            };
            own.unfilled(0).copy_from_slice(payload);
            self.start_write(own.len() as u64, What::Payload(asked, own));
        }
        Step::Next(header + length)
    }

    fn take_zero(
        &mut self,
        request: Request,
        header: usize,
        group: &mut Group<'_, WriteRequest>,
    ) -> Step {
        let length_bytes = request.length_bytes;
        if length_bytes == 0 {
            return self.done(&request, header);
        }
        let asked = WriteRequest { style: self.style, request };
        if asked.is_whole_blocks() && length_bytes <= INLINE_ZERO_BYTES_MAX {
            if group.is_full() && !self.write(group) {
                return Step::Wait;
            }
            group.add(asked, asked.zeros());
            return Step::Next(header);
        }
        if self.jobs.is_full() {
            return Step::Wait;
        }
        self.start_write(0, What::Zeros(asked));
        Step::Next(header)
    }

    fn take_flush(&mut self, request: Request, header: usize) -> Step {
        if self.facts.is_read_only {
            return self.done(&request, header);
        }
        if self.jobs.is_full() {
            return Step::Wait;
        }
        self.flushes.push(request);
        Step::Next(header)
    }

    /// Hands the group to the engine and answers it; false when it has to wait, as it is.
    fn write(&mut self, group: &mut Group<'_, WriteRequest>) -> bool {
        if group.is_empty() || self.stopped.is_some() {
            return self.stopped.is_none();
        }
        let written = match self.export.write_some(group.ops(), 0, false) {
            Ok(Written::Part { bytes, lacks }) => {
                self.stopped = Some((bytes, lacks));
                return false;
            }
            Ok(Written::All) => Ok(()),
            Err(error) => Err(error),
        };
        for asked in group.requests() {
            let request = &asked.request;
            match &written {
                Ok(()) if asked.is_durable() => self.flushes.push(*request),
                Ok(()) => self.output.push(encode::done(self.style, request).as_bytes()),
                Err(error) => self.failed(request, error),
            }
        }
        group.clear();
        true
    }

    /// Starts the flush that this turn's requests wait for.
    fn flush(&mut self) {
        if self.flushes.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut self.flushes);
        waiting.iter().for_each(|request| self.tally.at_once.take_away(kind(request)));
        let (export, style) = (Arc::clone(self.export), self.style);
        let goes_on = self.jobs.goes_on();
        self.start(Kind::Change, 0, Counts::of(waiting.iter().map(kind)), move |out| match export
            .flush(&goes_on)
        {
            Ok(()) => {
                for request in &waiting {
                    out.done.extend_from_slice(encode::done(style, request).as_bytes());
                }
                0
            }
            Err(error) => waiting.iter().map(|r| fail(style, r, &error, &mut out.words)).sum(),
        });
    }

    fn done(&mut self, request: &Request, header: usize) -> Step {
        self.output.push(encode::done(self.style, request).as_bytes());
        Step::Next(header)
    }

    fn failed(&mut self, request: &Request, error: &volume::Error) {
        let mut reply = Vec::new();
        self.tally.errors += fail(self.style, request, error, &mut reply);
        self.output.push(&reply);
    }

    fn start(
        &mut self,
        kind: Kind,
        cost: u64,
        counts: Counts,
        work: impl FnOnce(&mut Replies) -> u64 + Send + 'static,
    ) {
        self.tally.jobs += 1;
        self.jobs.start(kind, cost, counts, work);
    }

    fn start_write(&mut self, cost: u64, what: What<WriteRequest>) {
        self.tally.jobs += 1;
        self.jobs.write(cost, Writing::new(self.export, what));
    }
}
