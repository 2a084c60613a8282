//! Commands that bring data: what came with them, what follows unasked, and what is asked for.

use volume::WriteOp;
use wire::iscsi::frame::Pdu;
use wire::iscsi::{DataOut, Numbers, ReadyToTransfer, Tag};
use wire::scsi::command::{Movement, Range};
use wire::scsi::reservations::OutList;
use wire::scsi::{Code, Command, Lun, Sense, SenseKey, Status};

use super::super::SECTOR_BYTES;
use super::super::answer::Ended;
use super::super::asked::{Write, kind};
use super::super::core::Core;
use super::super::task::{Arrived, Incoming, Promise};
use super::{Received, Step};
use crate::buffers::{Chain, Purpose};
use crate::serving::{Asked, Group, INLINE_PAYLOAD_BYTES_MAX, What, Writing};

/// Longest parameter list, in bytes; those of most commands cannot be longer.
const LIST_BYTES_MAX: usize = 64 << 10;

/// Data of a command, all of it.
pub(super) enum Payload<'b> {
    /// In the receive buffer.
    Here(&'b [u8]),
    /// In buffers of its own.
    Own(Chain),
}

impl Payload<'_> {
    /// The bytes of a parameter list.
    pub(super) fn list(&self) -> Vec<u8> {
        match self {
            Payload::Here(bytes) => bytes.to_vec(),
            Payload::Own(data) => data.pieces().flatten().copied().collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Payload::Here(bytes) => bytes.len(),
            Payload::Own(data) => data.len(),
        }
    }
}

/// The first byte of a range.
pub(super) fn offset(range: &Range) -> u64 {
    range.lba * u64::from(SECTOR_BYTES)
}

impl Core {
    /// Begins a command: carries it out, or waits for its data.
    pub(super) fn begin<'b>(
        &mut self,
        received: &Received,
        data: &'b [u8],
        group: &mut Group<'b, Write>,
    ) -> Step {
        if !self.write_others(received.request.lun, group) {
            return Step::Wait;
        }
        let Movement::Out(wanted) = received.command.movement(SECTOR_BYTES) else {
            return self.carry_out(received, group);
        };
        let kept = wanted.min(received.sends().into()) as usize;
        let at = received.command.range().map_or(0, |range| offset(&range));
        if received.command.range().is_some() {
            // A part of a block is not written, and what was not is not acknowledged.
            if !kept.is_multiple_of(SECTOR_BYTES as usize) {
                return self
                    .finish(received, Sense::illegal(Code::INVALID_INFORMATION_UNIT).into());
            }
        } else if kept > LIST_BYTES_MAX {
            return self.finish(received, Sense::illegal(Code::PARAMETER_LIST_LENGTH).into());
        }
        let goes_on = received.request.writes && !received.request.is_final;
        if data.len() >= kept && !goes_on {
            return self.carry_out_with(received, Payload::Here(&data[..kept]), group);
        }
        let Some(promise) = Promise::new(&self.context, &self.tasks, (at, kept)) else {
            return self.finish(received, Ended::Status(Status::TASK_SET_FULL));
        };
        let own = match self.buffers(received, Purpose::Write, at, kept) {
            Ok(own) => own,
            Err(step) => return step,
        };
        let first_burst = self.parameters.first_burst_bytes.min(received.sends()) as usize;
        let mut task = received.task();
        task.incoming = Some(Incoming::new(own, data, goes_on, first_burst, promise));
        self.add(task);
        self.ask_for_data(received.tag());
        Step::Done
    }

    /// Buffers for a command. While data for others is behind it in the stream it does not wait for
    /// them: those hold buffers until that has come. Nor while others wait for room, perhaps for
    /// long.
    pub(super) fn buffers(
        &mut self,
        received: &Received,
        purpose: Purpose,
        at: u64,
        length: usize,
    ) -> Result<Chain, Step> {
        if let Some(own) = self.taker.take(purpose, at, length) {
            return Ok(own);
        }
        let may_wait = self.tasks.incoming == 0 && !self.jobs.has_waiting();
        if may_wait && !self.tasks.all.contains_key(&received.tag()) {
            return Err(Step::Wait);
        }
        Err(self.finish(received, Ended::Status(Status::TASK_SET_FULL)))
    }

    /// Asks for as much data of a task as may be asked for at once.
    fn ask_for_data(&mut self, tag: Tag) {
        let burst_bytes = self.parameters.max_burst_bytes as usize;
        let bursts_max = usize::from(self.parameters.outstanding_r2t);
        loop {
            let transfer_tag = self.next_transfer();
            let Some(task) = self.tasks.all.get_mut(&tag) else { return };
            let Some(incoming) = &mut task.incoming else { return };
            let Some(wanted) = incoming.want(burst_bytes, bursts_max, transfer_tag) else { return };
            let r2t_sn = task.r2ts;
            task.r2ts += 1;
            self.sender.ask_for(&ReadyToTransfer {
                lun: task.received.request.lun,
                task_tag: tag,
                transfer_tag: wanted.transfer_tag,
                numbers: Numbers::default(),
                r2t_sn,
                offset: u32::try_from(wanted.offset).expect("an initiator sends less than 4 GiB"),
                wanted_bytes: u32::try_from(wanted.length).expect("within a burst"),
            });
        }
    }

    /// Takes data of a command.
    pub(super) fn data_out<'b>(
        &mut self,
        data: &DataOut,
        pdu: &Pdu<'b>,
        group: &mut Group<'b, Write>,
    ) -> Step {
        let tag = data.task_tag;
        // Data of a command that has failed or was aborted is still on its way.
        let awaiting = self.tasks.all.get(&tag).filter(|task| task.incoming.is_some());
        let Some(lun) = awaiting.map(|task| task.received.request.lun) else { return Step::Done };
        // Before anything of it is taken: what has to wait is received anew.
        if pdu.is_intact && data.is_final && !self.write_others(lun, group) {
            return Step::Wait;
        }
        let Some(task) = self.tasks.all.get_mut(&tag) else { return Step::Done };
        let Some(incoming) = &mut task.incoming else { return Step::Done };
        let arrived = match pdu.is_intact {
            true => incoming.take(data, pdu.data),
            false => Arrived::Wrong(Sense::new(SenseKey::ABORTED_COMMAND, Code::CRC_ERROR)),
        };
        match arrived {
            Arrived::Part => {}
            Arrived::Wrong(sense) => self.ended(tag, sense.into()),
            Arrived::Burst if incoming.is_whole() => {
                let received = task.received;
                let own = self.tasks.take_data(tag).expect("it is all here");
                // It has a task already.
                let step = self.carry_out_with(&received, Payload::Own(own), group);
                assert_eq!(step, Step::Done, "nothing waits for what it has");
            }
            Arrived::Burst => self.ask_for_data(tag),
        }
        Step::Done
    }

    /// Carries out a command that brought data.
    fn carry_out_with<'b>(
        &mut self,
        received: &Received,
        payload: Payload<'b>,
        group: &mut Group<'b, Write>,
    ) -> Step {
        let lun = received.request.lun;
        match received.command {
            Command::Write(transfer) => {
                let write = self.write_of(received, &transfer.range, payload.len(), transfer.fua);
                self.take_write(received, write, payload, group)
            }
            Command::WriteAndVerify { range, .. } => {
                // It is on the medium when it is answered.
                let write = self.write_of(received, &range, payload.len(), true);
                self.take_write(received, write, payload, group)
            }
            Command::Verify { range, check, .. } => self.compare(received, range, check, payload),
            Command::WriteSame { range, .. } => self.write_same(received, &range, &payload),
            Command::CompareAndWrite(transfer) => {
                self.compare_and_write(received, &transfer, payload)
            }
            Command::OrWrite(transfer) => self.or_write(received, &transfer, payload),
            Command::Unmap { .. } => self.unmap(received, &payload.list()),
            Command::ModeSelect { is_ten, list_bytes } => {
                let had_cache = self.disk(lun).nexus.mode().write_cache;
                match self.mode_select(lun, is_ten, list_bytes, &payload.list()) {
                    // Nobody flushes any more: what was written before is flushed now.
                    Ended::Good if had_cache && !self.disk(lun).nexus.mode().write_cache => {
                        self.synchronize(received)
                    }
                    ended => self.finish(received, ended),
                }
            }
            Command::PersistentReserveOut { action, kind, list_bytes } => {
                let list = OutList::decode(list_bytes, &payload.list());
                self.change_reservations(received, (action, kind), list)
            }
            _ => self.finish(received, Sense::illegal(Code::INVALID_OPCODE).into()),
        }
    }

    /// The data of a command in buffers of its own.
    pub(super) fn own(&mut self, received: &Received, payload: Payload<'_>) -> Result<Chain, Step> {
        let bytes = match payload {
            Payload::Own(own) => return Ok(own),
            Payload::Here(bytes) => bytes,
        };
        let at = received.command.range().map_or(0, |range| offset(&range));
        let mut own = self.buffers(received, Purpose::Write, at, bytes.len())?;
        own.copy_from(0, bytes);
        Ok(own)
    }

    /// Ends a command at once, whether or not it has waited for data.
    pub(super) fn finish(&mut self, received: &Received, ended: Ended) -> Step {
        match self.tasks.all.contains_key(&received.tag()) {
            true => self.ended(received.tag(), ended),
            false => self.respond(received, 0, ended),
        }
        Step::Done
    }

    /// A command goes on as a job: it has a task from now on.
    pub(super) fn goes_on(&mut self, received: &Received) {
        if !self.tasks.all.contains_key(&received.tag()) {
            self.add(received.task());
        }
    }

    fn write_of(&self, received: &Received, range: &Range, length: usize, fua: bool) -> Write {
        let lun = received.request.lun;
        Write {
            tag: received.tag(),
            lun,
            kind: kind(&received.command),
            offset: offset(range),
            length_bytes: length as u64,
            is_durable: fua || !self.disk(lun).nexus.mode().write_cache,
        }
    }

    fn take_write<'b>(
        &mut self,
        received: &Received,
        write: Write,
        payload: Payload<'b>,
        group: &mut Group<'b, Write>,
    ) -> Step {
        let length = payload.len();
        if length == 0 {
            return self.finish(received, Ended::Good);
        }
        let own = match payload {
            Payload::Here(bytes)
                if write.is_whole_blocks() && length <= INLINE_PAYLOAD_BYTES_MAX =>
            {
                self.goes_on(received);
                group.add(write, WriteOp::Data { offset: write.offset, bytes });
                return Step::Done;
            }
            payload => match self.own(received, payload) {
                Ok(own) => own,
                Err(step) => return step,
            },
        };
        self.goes_on(received);
        self.start_write(write.lun, What::Payload(write, own));
        Step::Done
    }

    pub(super) fn start_write(&mut self, lun: Lun, what: What<Write>) {
        self.tally.jobs += 1;
        let writing = Writing::new(&self.export(lun), what);
        self.jobs.write(0, writing);
    }
}
