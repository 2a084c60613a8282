//! Commands that are seldom and mostly jobs: zeros and patterns, comparisons, what is stored where.

use std::sync::Arc;

use volume::Extent;
use wire::iscsi::Tag;
use wire::scsi::command::{ByteCheck, Range};
use wire::scsi::lba_status::{self, LbaStatus, Provisioning};
use wire::scsi::reservations::{OutAction, OutList, ReservationType};
use wire::scsi::{Code, Lun, Sense, SenseKey, mode, unmap};

use super::super::SECTOR_BYTES;
use super::super::answer::{Ended, failure};
use super::super::asked::{Write, kind};
use super::super::core::Core;
use super::super::unit::Changed;
use super::commands::{mode_unit, thresholds};
use super::transfer::{Payload, offset};
use super::{Received, Step};
use crate::buffers::{Chain, Purpose};
use crate::serving::{Counts, Export, Kind, RequestKind, What};

/// Bytes that a job reads at a time, into memory of its own: there are few threads for jobs.
const STEP_BYTES: usize = 64 << 10;
/// Bytes of a pattern that are written at a time.
const PATTERN_BYTES: usize = 256 << 10;
/// Most descriptors in an answer to GET LBA STATUS.
const STATUSES_MAX: usize = 1024;

pub(super) fn bytes(blocks: u32) -> u64 {
    u64::from(blocks) * u64::from(SECTOR_BYTES)
}

impl Core {
    /// Zeros in a range.
    pub(super) fn zero(&mut self, received: &Received, range: &Range) -> Step {
        self.goes_on(received);
        let write = self.zeros_of(received, offset(range), bytes(range.blocks));
        self.start_write(write.lun, What::Zeros(write));
        Step::Done
    }

    fn zeros_of(&self, received: &Received, offset: u64, length_bytes: u64) -> Write {
        let (tag, lun) = (received.tag(), received.request.lun);
        let is_durable = !self.disk(lun).nexus.mode().write_cache;
        let kind = kind(&received.command);
        Write { tag, lun, kind, offset, length_bytes, is_durable }
    }

    /// One block, again and again.
    pub(super) fn write_same(
        &mut self,
        received: &Received,
        range: &Range,
        payload: &Payload<'_>,
    ) -> Step {
        let block = payload.list();
        if received.sends() != SECTOR_BYTES {
            return self.finish(received, Sense::illegal(Code::INVALID_CDB_FIELD).into());
        }
        if block::is_zero(&block) {
            return self.zero(received, range);
        }
        let length_bytes = bytes(range.blocks);
        let length = length_bytes.min(PATTERN_BYTES as u64) as usize;
        let mut pattern = match self.buffers(received, Purpose::Write, 0, length) {
            Ok(pattern) => pattern,
            Err(step) => return step,
        };
        for at in (0..length).step_by(block.len()) {
            pattern.copy_from(at, &block);
        }
        self.goes_on(received);
        let write = self.zeros_of(received, offset(range), length_bytes);
        self.start_write(write.lun, What::Repeated(write, pattern));
        Step::Done
    }

    /// Zeros in all ranges of a list, or in none.
    pub(super) fn unmap(&mut self, received: &Received, list: &[u8]) -> Step {
        let mut ranges = match unmap::descriptors(list) {
            Ok(ranges) => ranges,
            Err(sense) => return self.finish(received, sense.into()),
        };
        let blocks = self.disk(received.request.lun).blocks();
        for range in &ranges {
            if range.lba.checked_add(range.blocks.into()).is_none_or(|end| end > blocks) {
                return self.finish(received, Sense::lba_out_of_range(range.lba).into());
            }
        }
        ranges.retain(|range| range.blocks > 0);
        if ranges.is_empty() {
            return self.finish(received, Ended::Good);
        }
        // One after the other: a list is long, and threads are few.
        let zeros = |range: &unmap::Descriptor| {
            let at = range.lba * u64::from(SECTOR_BYTES);
            self.zeros_of(received, at, bytes(range.blocks))
        };
        let mut rest: Vec<Write> = ranges.iter().rev().map(zeros).collect();
        let first = rest.pop().expect("there is one");
        self.goes_on(received);
        self.tasks.all.get_mut(&received.tag()).expect("it goes on").rest = rest;
        self.start_write(first.lun, What::Zeros(first));
        Step::Done
    }

    /// Changes the unit's mode.
    pub(super) fn mode_select(
        &self,
        lun: Lun,
        is_ten: bool,
        list_bytes: u32,
        list: &[u8],
    ) -> Ended {
        let disk = self.disk(lun);
        if list.len() < list_bytes as usize {
            return Sense::illegal(Code::PARAMETER_LIST_LENGTH).into();
        }
        let thresholds = thresholds(&self.context.thin.room());
        let unit = mode_unit(disk, &thresholds);
        match mode::select(is_ten, list, &unit) {
            Ok(state) => {
                disk.nexus.set_mode(unit.state, state);
                Ended::Good
            }
            Err(sense) => sense.into(),
        }
    }

    /// Changes persistent reservations: as a job where that is to be kept over restarts.
    pub(super) fn change_reservations(
        &mut self,
        received: &Received,
        (action, kind): (OutAction, Option<ReservationType>),
        list: Result<OutList, Sense>,
    ) -> Step {
        let (tag, lun) = (received.tag(), received.request.lun);
        let nexus = &self.disk(lun).nexus;
        let changed = list
            .map_err(Ended::from)
            .and_then(|list| nexus.change_reservations(action, kind, &list));
        let Changed { preempted, keeping } = match changed {
            Ok(changed) => changed,
            Err(ended) => return self.finish(received, ended),
        };
        self.goes_on(received);
        if action == OutAction::PreemptAndAbort {
            self.tasks.all.get_mut(&tag).expect("it goes on").preempted = preempted;
        }
        let Some(keeping) = keeping else {
            self.ended(tag, Ended::Good);
            return Step::Done;
        };
        let export = self.export(lun);
        self.start(Kind::Change, Counts::one(RequestKind::Other), move |out| {
            let ended = match export.keep_reservations(&keeping.kept(), &keeping.by()) {
                Ok(()) => {
                    keeping.done();
                    Ended::Good
                }
                Err(error) => failure(&error, false),
            };
            out.add(tag, ended)
        });
        Step::Done
    }

    /// Reads a range, to see that it can be read: a job of a task that is there.
    pub(super) fn verify_medium(&mut self, tag: Tag, range: &Range) {
        let (start, length) = (offset(range), bytes(range.blocks));
        let Some(task) = self.tasks.all.get(&tag) else { return };
        let export = self.export(task.received.request.lun);
        self.start(Kind::Look, Counts::one(RequestKind::Other), move |out| {
            let mut read = vec![0; STEP_BYTES];
            let mut at = 0;
            while at < length {
                let part = (length - at).min(STEP_BYTES as u64);
                if let Err(error) = export.read(start + at, &mut read[..part as usize]) {
                    return out.add(tag, failure(&error, false));
                }
                at += part;
            }
            out.add(tag, Ended::Good)
        });
    }

    /// Compares a range with what the initiator sent, or each of its blocks with one.
    pub(super) fn compare(
        &mut self,
        received: &Received,
        range: Range,
        check: ByteCheck,
        payload: Payload<'_>,
    ) -> Step {
        let expected = match self.own(received, payload) {
            Ok(own) => own,
            Err(step) => return step,
        };
        let is_block = check == ByteCheck::OneBlock;
        let length = match is_block {
            true if expected.len() > 0 => bytes(range.blocks),
            // As much as was sent.
            _ => expected.len() as u64,
        };
        self.goes_on(received);
        let export = self.export(received.request.lun);
        let (tag, start) = (received.tag(), offset(&range));
        self.start(Kind::Look, Counts::one(RequestKind::Other), move |out| {
            out.add(tag, compared(&*export, start, length, &expected, is_block))
        });
        Step::Done
    }

    /// Tells which blocks are stored, and which only read as zeros.
    pub(super) fn lba_status(&mut self, received: &Received, lba: u64, allocated: u32) -> Step {
        self.goes_on(received);
        let disk = self.disk(received.request.lun);
        let (blocks, export, tag) = (disk.blocks(), Arc::clone(&disk.export), received.tag());
        let limit = lba_status::descriptors_within(allocated).min(STATUSES_MAX);
        self.start(Kind::Look, Counts::one(RequestKind::Other), move |out| {
            let start = lba * u64::from(SECTOR_BYTES);
            let length = (blocks - lba) * u64::from(SECTOR_BYTES);
            let ended = match export.extents(start, length, limit) {
                Ok(extents) => {
                    let mut told = Vec::new();
                    lba_status::put(&statuses(&extents, lba, blocks), &mut told);
                    Ended::Short(told)
                }
                Err(error) => failure(&error, false),
            };
            out.add(tag, ended)
        });
        Step::Done
    }
}

/// Extents as statuses of whole blocks, from `lba` on, neighbours that are alike as one.
fn statuses(extents: &[Extent], lba: u64, blocks: u64) -> Vec<LbaStatus> {
    let sector = u64::from(SECTOR_BYTES);
    let mut told: Vec<LbaStatus> = Vec::new();
    let mut at = lba;
    for extent in extents {
        let end = ((extent.offset + extent.length_bytes) / sector).min(blocks);
        let provisioning =
            if extent.hole { Provisioning::Deallocated } else { Provisioning::Mapped };
        while at < end {
            let count = u32::try_from(end - at).unwrap_or(u32::MAX);
            match told.last_mut() {
                Some(last)
                    if last.provisioning == provisioning
                        && last.blocks.checked_add(count).is_some() =>
                {
                    last.blocks += count;
                }
                _ => told.push(LbaStatus { lba: at, blocks: count, provisioning }),
            }
            at += u64::from(count);
        }
    }
    told
}

fn compared(
    export: &dyn Export,
    start: u64,
    length: u64,
    expected: &Chain,
    is_block: bool,
) -> Ended {
    let (mut read, mut wanted) = (vec![0; STEP_BYTES], vec![0; STEP_BYTES]);
    let mut at = 0;
    while at < length {
        let part = (length - at).min(STEP_BYTES as u64) as usize;
        let (read, wanted) = (&mut read[..part], &mut wanted[..part]);
        if let Err(error) = export.read(start + at, read) {
            return failure(&error, false);
        }
        match is_block {
            true => wanted.chunks_mut(expected.len()).for_each(|block| expected.copy_to(0, block)),
            false => expected.copy_to(at as usize, wanted),
        }
        if let Some(place) = read.iter().zip(&*wanted).position(|(one, other)| one != other) {
            let sense = Sense::new(SenseKey::MISCOMPARE, Code::MISCOMPARE);
            return sense.with_information(at + place as u64).into();
        }
        at += part as u64;
    }
    Ended::Good
}
