//! PDUs on their way to the initiator, each with the serial numbers of its time and its digests.
//!
//! Data of jobs waits in the buffers it was read to, and is put into PDUs as the initiator takes
//! what is before it.

use std::collections::VecDeque;

use wire::iscsi::encode::{self, Head, Tail};
use wire::iscsi::negotiation::Parameters;
use wire::iscsi::{
    AsyncMessage, Bhs, CommandResponse, DataIn, DataInStatus, Digests, LogoutResponse, NopIn,
    Numbers, ReadyToTransfer, Reject, Residual, Serial, Tag, TaskResponse, TextResponse,
};
use wire::scsi::{Lun, Status};

use super::context::WINDOW;
use crate::buffers::Chain;
use crate::serving::Output;

/// Data is put into PDUs while fewer bytes than this wait to be sent.
pub(super) const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// The way to the initiator.
pub(super) struct Sender {
    pub(super) output: Output,
    digests: Digests,
    segment_bytes: usize,
    burst_bytes: usize,
    stat_sn: Serial,
    /// The next command.
    pub(super) exp_cmd_sn: Serial,
    /// The last command that the initiator was told it may send.
    max_told: Serial,
    /// Commands in the window that are not answered.
    pub(super) open: u32,
    reads: VecDeque<Sending>,
}

/// Data that is being sent.
struct Sending {
    tag: Tag,
    /// The unit that it is of.
    unit: Option<u16>,
    data: Chain,
    residual: Residual,
    sent: usize,
    next: DataNumbers,
}

/// Where a task's Data-In stands.
#[derive(Clone, Copy, Default)]
struct DataNumbers {
    data_sn: u32,
    in_burst: usize,
}

impl Sender {
    pub(super) fn new(parameters: &Parameters, stat_sn: Serial, exp_cmd_sn: Serial) -> Sender {
        Sender {
            output: Output::new(),
            digests: parameters.digests,
            segment_bytes: parameters.send_segment_bytes as usize,
            burst_bytes: parameters.max_burst_bytes as usize,
            stat_sn,
            exp_cmd_sn,
            max_told: exp_cmd_sn.plus(WINDOW).minus(1),
            open: 0,
            reads: VecDeque::new(),
        }
    }

    /// Longest data segment that the initiator takes.
    pub(super) fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// The initiator takes longer or shorter segments from now on.
    pub(super) fn set_segment_bytes(&mut self, bytes: u32) {
        self.segment_bytes = bytes as usize;
    }

    /// The last command that may be sent: what the initiator was told holds.
    pub(super) fn max_cmd_sn(&self) -> Serial {
        self.max_told
    }

    fn tell_max(&mut self) -> Serial {
        let max = self.exp_cmd_sn.plus(WINDOW - self.open.min(WINDOW)).minus(1);
        if self.max_told.is_before(max) {
            self.max_told = max;
        }
        self.max_told
    }

    /// Whether nothing is left to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.output.pending_bytes() == 0 && self.reads.is_empty()
    }

    /// Whether so much waits to be sent that nothing more is to be carried out.
    pub(super) fn is_full(&self) -> bool {
        self.output.pending_bytes() >= OUTPUT_BYTES_MAX
    }

    /// Forgets everything: the initiator is gone.
    pub(super) fn clear(&mut self) {
        self.output.clear();
        self.reads.clear();
    }

    fn numbers(&mut self, advance: bool) -> Numbers {
        let (stat_sn, exp_cmd_sn) = (self.stat_sn, self.exp_cmd_sn);
        if advance {
            self.stat_sn = stat_sn.next();
        }
        Numbers { stat_sn, exp_cmd_sn, max_cmd_sn: self.tell_max() }
    }

    fn push(&mut self, bhs: &Bhs, data: &[u8]) {
        self.output.push(Head::new(bhs, data.len(), self.digests).as_bytes());
        self.output.push(data);
        self.output.push(Tail::new(&[data], self.digests).as_bytes());
    }

    /// SCSI Response, with a segment of sense data or none.
    pub(super) fn respond(
        &mut self,
        task_tag: Tag,
        status: Status,
        residual: Residual,
        exp_data_sn: u32,
        sense: &[u8],
    ) {
        let numbers = self.numbers(true);
        let response = CommandResponse::COMPLETED;
        let pdu = CommandResponse { response, status, task_tag, numbers, exp_data_sn, residual };
        self.push(&encode::command_response(&pdu), sense);
    }

    /// NOP-In: an answer to a NOP-Out, with its data, or a question.
    pub(super) fn nop_in(&mut self, lun: Lun, task_tag: Tag, transfer_tag: Tag, data: &[u8]) {
        let numbers = self.numbers(task_tag != Tag::NONE);
        self.push(&encode::nop_in(&NopIn { lun, task_tag, transfer_tag, numbers }), data);
    }

    pub(super) fn task_response(&mut self, pdu: &TaskResponse) {
        let numbers = self.numbers(true);
        self.push(&encode::task_response(&TaskResponse { numbers, ..*pdu }), &[]);
    }

    pub(super) fn text_response(&mut self, pdu: &TextResponse, text: &[u8]) {
        let numbers = self.numbers(true);
        self.push(&encode::text_response(&TextResponse { numbers, ..*pdu }), text);
    }

    pub(super) fn logout_response(&mut self, pdu: &LogoutResponse) {
        let numbers = self.numbers(true);
        self.push(&encode::logout_response(&LogoutResponse { numbers, ..*pdu }), &[]);
    }

    pub(super) fn reject(&mut self, pdu: &Reject, refused: &Bhs) {
        let numbers = self.numbers(true);
        self.push(&encode::reject(&Reject { numbers, ..*pdu }), refused);
    }

    pub(super) fn tell(&mut self, pdu: &AsyncMessage) {
        let numbers = self.numbers(true);
        self.push(&encode::async_message(&AsyncMessage { numbers, ..*pdu }), &[]);
    }

    pub(super) fn ask_for(&mut self, pdu: &ReadyToTransfer) {
        let numbers = self.numbers(false);
        self.push(&encode::ready_to_transfer(&ReadyToTransfer { numbers, ..*pdu }), &[]);
    }

    /// Reads into place and sends it; `None` when `read`, which is given an offset and the place,
    /// cannot do so at once.
    pub(super) fn read_inline<E>(
        &mut self,
        task_tag: Tag,
        length: usize,
        residual: Residual,
        mut read: impl FnMut(usize, &mut [u8]) -> Result<bool, E>,
    ) -> Option<Result<(), E>> {
        if length > self.segment_bytes.min(self.burst_bytes) {
            return None;
        }
        let before = self.stat_sn;
        let bhs = self.data_in(task_tag, (0, length), true, residual, &mut DataNumbers::default());
        let head = Head::new(&bhs, length, self.digests);
        let start = head.as_bytes().len();
        let space = self.output.space(start + length);
        match read(0, &mut space[start..]) {
            Ok(true) => {
                space[..start].copy_from_slice(head.as_bytes());
                let tail = Tail::new(&[&space[start..]], self.digests);
                self.output.commit(start + length);
                self.output.push(tail.as_bytes());
                Some(Ok(()))
            }
            not_read => {
                self.stat_sn = before;
                not_read.err().map(Err)
            }
        }
    }

    /// Sends data of a task, and its status with the last of it.
    pub(super) fn send(&mut self, (tag, lun): (Tag, Lun), data: Chain, residual: Residual) {
        let (unit, next) = (lun.number(), DataNumbers::default());
        self.reads.push_back(Sending { tag, unit, data, residual, sent: 0, next });
    }

    /// Sends a short answer.
    pub(super) fn send_short(&mut self, tag: Tag, data: &[u8], residual: Residual) {
        let mut next = DataNumbers::default();
        let mut sent = 0;
        while sent < data.len() {
            let length = self.segment(&next, data.len() - sent);
            let is_last = sent + length == data.len();
            let bhs = self.data_in(tag, (sent, length), is_last, residual, &mut next);
            self.push(&bhs, &data[sent..sent + length]);
            sent += length;
        }
    }

    /// Stops sending data of a task; whether any was left.
    pub(super) fn stop_sending(&mut self, tag: Tag) -> bool {
        let before = self.reads.len();
        self.reads.retain(|sending| sending.tag != tag);
        self.reads.len() < before
    }

    /// Whether data of a task waits to be sent.
    pub(super) fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    /// Stops sending data of all tasks of a unit, or of all units.
    pub(super) fn stop_sending_of(&mut self, unit: Option<u16>) {
        self.reads.retain(|sending| unit.is_some() && sending.unit != unit);
    }

    /// Puts data that waits into PDUs, as much as is to be sent next.
    pub(super) fn pump(&mut self) -> bool {
        let mut has_moved = false;
        while !self.is_full()
            && let Some(mut first) = self.reads.pop_front()
        {
            has_moved = true;
            let length = self.segment(&first.next, first.data.len() - first.sent);
            let is_last = first.sent + length == first.data.len();
            let part = (first.sent, length);
            let bhs = self.data_in(first.tag, part, is_last, first.residual, &mut first.next);
            self.output.push(Head::new(&bhs, length, self.digests).as_bytes());
            let space = self.output.space(length);
            first.data.copy_to(first.sent, space);
            let tail = Tail::new(&[space], self.digests);
            self.output.commit(length);
            self.output.push(tail.as_bytes());
            first.sent += length;
            if !is_last {
                self.reads.push_front(first);
            }
        }
        has_moved
    }

    fn segment(&self, next: &DataNumbers, left: usize) -> usize {
        left.min(self.segment_bytes).min(self.burst_bytes - next.in_burst)
    }

    fn data_in(
        &mut self,
        task_tag: Tag,
        (offset, length): (usize, usize),
        is_last: bool,
        residual: Residual,
        next: &mut DataNumbers,
    ) -> Bhs {
        let data_sn = next.data_sn;
        next.data_sn += 1;
        next.in_burst += length;
        let is_final = is_last || next.in_burst == self.burst_bytes;
        if is_final {
            next.in_burst = 0;
        }
        let numbers = match is_last {
            true => self.numbers(true),
            false => Numbers { stat_sn: Serial(0), ..self.numbers(false) },
        };
        encode::data_in(&DataIn {
            is_final,
            acknowledge: false,
            status: is_last.then_some(DataInStatus { status: Status::GOOD, residual }),
            lun: Lun(0),
            task_tag,
            transfer_tag: Tag::NONE,
            numbers,
            data_sn,
            offset: u32::try_from(offset).expect("an initiator takes less than 4 GiB"),
        })
    }
}

#[cfg(test)]
mod tests {
    use wire::iscsi::negotiation::Parameters;
    use wire::iscsi::{Residual, Serial, Tag};
    use wire::scsi::Status;

    use super::{Sender, WINDOW};

    #[test]
    fn a_window_that_was_told_is_kept_to() {
        let first = Serial(u32::MAX - 3);
        let mut sender = Sender::new(&Parameters::default(), Serial(1), first);
        assert_eq!(sender.max_cmd_sn(), first.plus(WINDOW - 1));
        sender.exp_cmd_sn = first.plus(10);
        sender.respond(Tag(1), Status::GOOD, Residual::None, 0, &[]);
        let told = first.plus(10 + WINDOW - 1);
        assert_eq!(sender.max_cmd_sn(), told);
        // Commands that wait close the window only as far as new ones come.
        for open in [1, WINDOW, 2 * WINDOW] {
            sender.open = open;
            sender.respond(Tag(1), Status::GOOD, Residual::None, 0, &[]);
            assert_eq!(sender.max_cmd_sn(), told);
        }
        sender.exp_cmd_sn = told.next();
        sender.respond(Tag(1), Status::GOOD, Residual::None, 0, &[]);
        assert_eq!(sender.max_cmd_sn(), told);
        sender.open = WINDOW - 1;
        sender.respond(Tag(1), Status::GOOD, Residual::None, 0, &[]);
        assert_eq!(sender.max_cmd_sn(), told.next());
    }
}
