//! One turn of a session: every whole PDU in the receive buffer is carried out or started.
//!
//! Writes of whole blocks whose data came with their commands gather in a group that goes to the
//! engine at once, before a read of the same bytes or the end of the turn; flushes, and FUA, share
//! one flush at the end of the turn.

use std::sync::Arc;

use smallvec::SmallVec;
use volume::Written;
use wire::iscsi::frame::{Frame, Pdu, PduError};
use wire::iscsi::limits::DATA_SEGMENT_BYTES_MAX;
use wire::iscsi::{
    CommandRequest, Reject, RejectReason, Request, Residual, Serial, Tag, TaskAttribute, decode,
    encode,
};
use wire::scsi::command::Movement;
use wire::scsi::{Code, Command, Lun, Sense, SenseKey, Status};

use super::answer::{Ended, failure};
use super::asked::{Answers, Write, kind};
use super::check::check;
use super::context::SECTOR_BYTES;
use super::core::Core;
use super::disks::Disk;
use super::received::Received;
use super::task::Task;
use crate::buffers::Purpose;
use crate::serving::{
    Counts, Export, Group, GroupMemory, Input, Kind, Rest, What, Writing, as_in_traces,
};

mod commands;
mod control;
mod seldom;
mod transfer;
mod update;

/// Immediate commands that are under way at once.
const IMMEDIATE_MAX: usize = 8;

/// The outcome of a turn.
pub(super) struct Turned {
    pub(super) has_moved: bool,
    /// The end of the connection, as what came cannot be told apart.
    pub(super) garbage: Option<PduError>,
}

/// Whether a PDU is done with; if not, nothing can be done with it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Done,
    Wait,
}

/// Carries out what is in the receive buffer.
pub(super) fn execute(
    core: &mut Core,
    input: &mut Input,
    memory: &mut GroupMemory<Write>,
) -> Turned {
    let unread = input.unread();
    if unread.is_empty() || core.logout.is_some() {
        return Turned { has_moved: false, garbage: None };
    }
    core.turns += 1;
    core.look_at_thresholds();
    let mut group = Group::within(std::mem::take(memory));
    let mut at = 0;
    let mut garbage = None;
    while !core.sender.is_full() && core.stopped.is_none() && core.logout.is_none() {
        match core.pdu(&unread[at..], &mut group) {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(error) => {
                garbage = Some(error);
                break;
            }
        }
    }
    core.write(&mut group);
    core.show_seen();
    core.tally.turns += u64::from(at > 0);
    if let Some((done, lacks)) = core.stopped.take() {
        let writes = group.places(input);
        let export = core.export(lun_of(&group));
        *memory = group.into_memory();
        input.consume(at);
        let writing = Writing::new(&export, What::Turn(input.lend(), writes)).after(done, lacks);
        if writing.is_to_be_taken_apart() {
            core.take_apart(writing, input);
        } else {
            core.tally.jobs += 1;
            core.jobs.write(0, writing);
        }
    } else {
        *memory = group.into_memory();
        input.consume(at);
    }
    core.flush();
    Turned { has_moved: at > 0 || garbage.is_some(), garbage }
}

/// The unit that a group of writes is of.
fn lun_of(group: &Group<'_, Write>) -> Lun {
    group.requests().first().expect("a group of some writes").lun
}

impl Core {
    /// Takes up the PDU at the start of `bytes`; how many bytes are done with.
    fn pdu<'b>(
        &mut self,
        bytes: &'b [u8],
        group: &mut Group<'b, Write>,
    ) -> Result<usize, PduError> {
        let digests = self.parameters.digests;
        let Some(frame) = Frame::measure(bytes, digests, DATA_SEGMENT_BYTES_MAX)? else {
            return Ok(0);
        };
        let Some(pdu) = frame.pdu(bytes) else { return Ok(0) };
        let before = self.sender.exp_cmd_sn;
        let request = match decode::request(pdu.bhs) {
            Ok(request) => request,
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "a PDU is refused");
                self.reject(error.reason(), &pdu);
                return Ok(frame.total_bytes());
            }
        };
        if let Some((number, false)) = request.command_number() {
            // One connection has them in order: any other was sent before, or beyond the window.
            if number != before || !number.is_within(before, self.sender.max_cmd_sn()) {
                return Ok(frame.total_bytes());
            }
            self.sender.exp_cmd_sn = before.next();
        }
        match self.take_up(&request, &pdu, group) {
            Step::Done => Ok(frame.total_bytes()),
            Step::Wait => {
                self.sender.exp_cmd_sn = before;
                Ok(0)
            }
        }
    }

    fn take_up<'b>(
        &mut self,
        request: &Request,
        pdu: &Pdu<'b>,
        group: &mut Group<'b, Write>,
    ) -> Step {
        if !pdu.is_intact {
            self.reject(RejectReason::DATA_DIGEST, pdu);
            if !matches!(request, Request::DataOut(_)) {
                return Step::Done;
            }
        }
        match request {
            Request::Command(request) if self.target.is_some() => self.command(request, pdu, group),
            Request::DataOut(data) if self.target.is_some() => self.data_out(data, pdu, group),
            Request::Task(task) if self.target.is_some() => self.manage(task, group),
            Request::Login(_)
            | Request::Snack(_)
            | Request::Command(_)
            | Request::DataOut(_)
            | Request::Task(_) => {
                self.reject(RejectReason::PROTOCOL_ERROR, pdu);
                Step::Done
            }
            Request::NopOut(nop) => {
                self.nop_out(nop, pdu.data);
                Step::Done
            }
            Request::Text(text) => {
                self.text(text, pdu);
                Step::Done
            }
            Request::Logout(logout) => {
                self.logout = Some(*logout);
                Step::Done
            }
        }
    }

    /// Rejects a PDU. If it is a command its number was not received: the initiator fills the gap
    /// (RFC 7143 section 7.3).
    pub(super) fn reject(&mut self, reason: RejectReason, pdu: &Pdu<'_>) {
        let number = decode::request(pdu.bhs).ok().and_then(|request| request.command_number());
        if let Some((number, false)) = number {
            self.sender.exp_cmd_sn = number;
        }
        let reject = Reject { reason, numbers: Default::default(), data_sn: 0 };
        self.sender.reject(&reject, pdu.bhs);
    }

    fn command<'b>(
        &mut self,
        request: &CommandRequest,
        pdu: &Pdu<'b>,
        group: &mut Group<'b, Write>,
    ) -> Step {
        let tag = request.task_tag;
        if self.tasks.has(tag) || tag == Tag::NONE {
            self.reject(RejectReason::TASK_IN_PROGRESS, pdu);
            return Step::Done;
        }
        let (step, command) = match self.admit(request, pdu) {
            Ok(command) => {
                let received = Received { request: *request, command };
                (self.begin(&received, pdu.data, group), Some(command))
            }
            Err(ended) => {
                let received = Received { request: *request, command: Command::TestUnitReady };
                self.respond(&received, 0, ended);
                (Step::Done, None)
            }
        };
        if step == Step::Wait {
            return step;
        }
        self.tally.requests += 1;
        if let Some(command) = command {
            // One that goes on is counted when it ends.
            if !self.tasks.all.contains_key(&tag) {
                self.tally.at_once.add(kind(&command));
            }
            self.note(request.lun, &command);
        }
        Step::Done
    }

    /// Shows a command to who records and measures the present.
    fn note(&mut self, lun: Lun, command: &Command) {
        let is_recorded = self.context.taps.is_listening();
        let Some(disk) = self.disks.at_mut(lun) else { return };
        if !is_recorded && disk.meter.is_none() {
            return;
        }
        let Some(volume) = disk.export.present_of() else { return };
        let sector = u64::from(SECTOR_BYTES);
        let range = command.range().map_or((0, 0), |range| {
            (range.lba.saturating_mul(sector), u64::from(range.blocks) * sector)
        });
        let is_fua = matches!(command, Command::Write(transfer) if transfer.fua);
        if let Some(seen) = as_in_traces(kind(command), range.0, range.1, is_fua) {
            if is_recorded {
                self.context.taps.note(volume, &seen);
            }
            if disk.meter.is_some() {
                disk.seen.push(seen);
                self.has_seen = true;
            }
        }
    }

    /// Tells the initiator, once on each unit that needs room, when the pool reached a threshold.
    fn look_at_thresholds(&mut self) {
        let reached = self.context.thin.reached();
        if std::mem::replace(&mut self.reached, reached) != reached {
            let thin = self.disks.iter().filter(|disk| disk.export.present_of().is_some());
            thin.for_each(|disk| disk.nexus.attend(Code::THRESHOLD_REACHED));
        }
    }

    /// Shows who measures what was done in a turn.
    fn show_seen(&mut self) {
        if !std::mem::take(&mut self.has_seen) {
            return;
        }
        for disk in self.disks.iter_mut().filter(|disk| !disk.seen.is_empty()) {
            if let Some(meter) = &disk.meter {
                meter.add(&mut disk.seen);
            }
        }
    }

    /// The command, if it is to be carried out.
    fn admit(&mut self, request: &CommandRequest, pdu: &Pdu<'_>) -> Result<Command, Ended> {
        const UNASKED: Sense =
            Sense::new(SenseKey::ABORTED_COMMAND, Code::UNEXPECTED_UNSOLICITED_DATA);
        let immediate = self.tasks.all.values().filter(|task| task.received.request.immediate);
        if request.immediate && immediate.count() >= IMMEDIATE_MAX {
            return Err(Ended::Status(Status::TASK_SET_FULL));
        }
        // Initiators hardly use it, and come again.
        let is_ordered = request.attribute == TaskAttribute::Ordered;
        if self.tasks.ordered > 0 || is_ordered && !self.tasks.all.is_empty() {
            return Err(Ended::Status(Status::BUSY));
        }
        if self.jobs.is_full() {
            return Err(Ended::Status(Status::TASK_SET_FULL));
        }
        if !pdu.ahs.is_empty() {
            // Longer commands and those that read and write: none is served.
            return Err(Sense::illegal(Code::INVALID_OPCODE).into());
        }
        let command = check(&mut self.disks, request.lun, &request.cdb, self.turns)?;
        let Core { parameters, .. } = self;
        let announced = if request.writes { request.expected_bytes } else { 0 };
        let longest = parameters.first_burst_bytes.min(announced) as usize;
        let is_unasked = !pdu.data.is_empty() && !parameters.immediate_data
            || pdu.data.len() > longest
            || request.writes && !request.is_final && parameters.initial_r2t;
        if is_unasked { Err(UNASKED.into()) } else { Ok(command) }
    }

    /// Hands the group to the engine and ends its commands; false when it has to wait, as it is.
    pub(super) fn write(&mut self, group: &mut Group<'_, Write>) -> bool {
        if group.is_empty() || self.stopped.is_some() {
            return self.stopped.is_none();
        }
        let export = &self.disk(lun_of(group)).export;
        let written = match export.write_some(group.ops(), 0, false) {
            Ok(Written::Part { bytes, lacks }) => {
                self.stopped = Some((bytes, lacks));
                return false;
            }
            Ok(Written::All) => Ok(()),
            Err(error) => Err(error),
        };
        for write in group.requests() {
            match &written {
                Ok(()) if write.is_durable => self.flushes.push(write.tag),
                Ok(()) => {
                    self.tally.at_once.add(write.kind);
                    self.ended(write.tag, Ended::Good);
                }
                Err(error) => self.ended(write.tag, failure(error, true)),
            }
        }
        group.clear();
        true
    }

    /// Writes of a turn lack room, perhaps for long: each goes on by itself, in memory of its own,
    /// so that the initiator is heard meanwhile.
    pub(super) fn take_apart(&mut self, writing: Writing<Write>, input: &mut Input) {
        let taker = &mut self.taker;
        let (lent, parts) = writing.take_apart(|write, bytes| {
            let mut own = taker.take(Purpose::Write, write.offset, bytes.len())?;
            own.copy_from(0, bytes);
            Some(own)
        });
        input.take_back(lent);
        for (write, rest) in parts {
            match rest {
                Rest::Nothing if write.is_durable => self.flushes.push(write.tag),
                Rest::Nothing => {
                    self.tally.at_once.add(write.kind);
                    self.ended(write.tag, Ended::Good);
                }
                Rest::Own(writing) => {
                    self.tally.jobs += 1;
                    self.jobs.write(0, writing);
                }
                Rest::Dropped => self.ended(write.tag, Ended::Status(Status::BUSY)),
            }
        }
    }

    /// Starts the flushes that commands wait for, one of each unit.
    pub(super) fn flush(&mut self) {
        while let Some(&first) = self.flushes.first() {
            let lun_of = |tag: &Tag| self.tasks.all.get(tag).map(|task| task.received.request.lun);
            let lun = lun_of(&first);
            let mut all = std::mem::take(&mut self.flushes);
            let (own, others) = all.drain(..).partition(|tag| lun_of(tag) == lun);
            self.flushes = others;
            // A task that is no more has nobody who waits.
            if let Some(lun) = lun {
                self.flush_unit(lun, own);
            }
        }
    }

    fn flush_unit(&mut self, lun: Lun, waiting: SmallVec<[Tag; 4]>) {
        let goes_on = self.jobs.goes_on();
        let kind_of = |tag| self.tasks.all.get(tag).map(|task| kind(&task.received.command));
        let counts = Counts::of(waiting.iter().filter_map(kind_of));
        let export = self.export(lun);
        self.start(Kind::Change, counts, move |out| {
            let flushed = export.flush(&goes_on);
            let end = |tag| match &flushed {
                Ok(()) => (tag, Ended::Good),
                Err(error) => (tag, failure(error, false)),
            };
            waiting.iter().map(|&tag| end(tag)).map(|(tag, ended)| out.add(tag, ended)).sum()
        });
    }

    /// The disk of a command that goes on.
    pub(super) fn disk(&self, lun: Lun) -> &Disk {
        self.disks.at(lun).expect("a command that goes on has a disk")
    }

    pub(super) fn export(&self, lun: Lun) -> Arc<dyn Export> {
        Arc::clone(&self.disk(lun).export)
    }

    /// Hands the group to the engine if it is of another unit than what comes; false when it has to
    /// wait.
    pub(super) fn write_others(&mut self, lun: Lun, group: &mut Group<'_, Write>) -> bool {
        let is_of_another = |first: &Write| first.lun.number() != lun.number();
        !group.requests().first().is_some_and(is_of_another) || self.write(group)
    }

    /// Units are taken away: what waits for data ends, what is under way is let end, and nothing
    /// begins. All others are told.
    pub(super) fn take_away(&mut self, units: &[u16]) {
        for &unit in units {
            let Some(disk) = self.disks.at_mut(Lun::from_number(unit)) else { continue };
            disk.is_taken = true;
            disk.nexus.release();
            let waits = |tag: &Tag| self.tasks.all.get(tag).is_some_and(|t| t.incoming.is_some());
            let ends: Vec<Tag> = self.tasks.of(Some(unit)).into_iter().filter(waits).collect();
            for tag in ends {
                self.ended(tag, Sense::illegal(Code::NO_SUCH_UNIT).into());
            }
            self.let_go_idle(unit);
        }
        for disk in self.disks.iter().filter(|disk| disk.is_there()) {
            disk.nexus.attend(Code::LUNS_CHANGED);
        }
    }

    /// Lets go of a unit that was taken away, with the moment that it may be, once nothing of it is
    /// under way and no function waits there.
    fn let_go_idle(&mut self, unit: u16) {
        let is_taken = self.disks.at(Lun::from_number(unit)).is_some_and(|disk| disk.is_taken);
        if is_taken && self.tasks.of(Some(unit)).is_empty() && !self.tasks.is_awaited_at(unit) {
            self.show_seen();
            self.disks.remove(unit);
        }
    }

    pub(super) fn start(
        &mut self,
        kind: Kind,
        counts: Counts,
        work: impl FnOnce(&mut Answers) -> u64 + Send + 'static,
    ) {
        self.tally.jobs += 1;
        self.jobs.start(kind, 0, counts, work);
    }

    /// A command waits for jobs or data: it is in the window until it is answered.
    pub(super) fn add(&mut self, task: Task) {
        self.sender.open += u32::from(!task.received.request.immediate);
        self.tasks.add(task.received.tag(), task);
    }

    /// A job of a command ended, or all of it.
    pub(super) fn ended(&mut self, tag: Tag, mut ended: Ended) {
        let Some(task) = self.tasks.all.get_mut(&tag) else { return };
        let unit = self.disks.at(task.received.request.lun);
        let taken = unit.filter(|disk| disk.is_taken).map(|disk| disk.number);
        if !task.is_aborted && !ended.is_failure() {
            let next = task.rest.pop();
            if next.is_some() && taken.is_some() {
                ended = Sense::illegal(Code::NO_SUCH_UNIT).into();
            } else if let Some(next) = next {
                return self.start_write(next.lun, What::Zeros(next));
            } else if let Command::WriteAndVerify { range, .. } = task.received.command
                && !std::mem::replace(&mut task.is_verified, true)
            {
                return self.verify_medium(tag, &range);
            }
            let preempted = std::mem::take(&mut task.preempted);
            if let Some(disk) = unit.filter(|_| !preempted.is_empty()) {
                // Nothing of theirs lands after the answer.
                let others = disk.nexus.await_others(|port| preempted.contains(port));
                return self.awaited.push((tag, others));
            }
        }
        let Some(task) = self.tasks.remove(tag) else { return };
        self.sender.open -= u32::from(!task.received.request.immediate);
        if task.is_aborted {
            self.settle(|function| {
                function.waits_for.remove(&tag);
            });
        } else {
            self.respond(&task.received, task.r2ts, ended);
        }
        if let Some(unit) = taken {
            self.let_go_idle(unit);
        }
    }

    /// Answers a command.
    pub(super) fn respond(&mut self, received: &Received, r2ts: u32, ended: Ended) {
        let tag = received.tag();
        let nothing = received.takes().max(received.sends());
        match ended {
            Ended::Good => {
                self.sender.respond(tag, Status::GOOD, received.residual(), r2ts, &[]);
            }
            Ended::Data(data) => {
                self.sender.send((tag, received.request.lun), data, received.residual());
            }
            Ended::Short(mut answer) => {
                if let Movement::InAtMost(most) = received.command.movement(SECTOR_BYTES) {
                    answer.truncate(most as usize);
                }
                let residual = Residual::between(received.takes(), answer.len() as u64);
                answer.truncate(received.takes() as usize);
                match answer.is_empty() {
                    true => self.sender.respond(tag, Status::GOOD, residual, r2ts, &[]),
                    false => self.sender.send_short(tag, &answer, residual),
                }
            }
            Ended::Status(status) => {
                self.tally.errors += 1;
                self.sender.respond(tag, status, Residual::between(nothing, 0), r2ts, &[]);
            }
            Ended::Failed(sense) => {
                self.tally.errors += 1;
                let disk = self.disks.at(received.request.lun);
                let mut segment = Vec::with_capacity(32);
                let in_descriptors = disk.is_some_and(|disk| disk.nexus.mode().descriptor_sense);
                encode::sense_segment(&sense, in_descriptors, &mut segment);
                // Of a command whose data does not fit it, the difference is what is wrong.
                let residual = match sense.code {
                    Code::INVALID_INFORMATION_UNIT => received.residual(),
                    _ => Residual::between(nothing, 0),
                };
                self.sender.respond(tag, Status::CHECK_CONDITION, residual, r2ts, &segment);
            }
        }
    }

    /// A number for the next transfer.
    pub(super) fn next_transfer(&mut self) -> Tag {
        self.last_transfer = Serial(self.last_transfer).next().0;
        if Tag(self.last_transfer) == Tag::NONE {
            self.last_transfer = 0;
        }
        Tag(self.last_transfer)
    }
}
