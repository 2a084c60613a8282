//! Commands that bring no data: reads, and questions about the unit.

use wire::iscsi::Residual;
use wire::scsi::capacity::Capacity;
use wire::scsi::command::Transfer;
use wire::scsi::mode::{self, Threshold};
use wire::scsi::vpd::{self, BlockLimits, Traits};
use wire::scsi::{
    Code, Command, Sense, inquiry, log, ports, report_luns, supported_opcodes, unmap,
};

use super::super::SECTOR_BYTES;
use super::super::answer::{Ended, failure};
use super::super::asked::Write;
use super::super::check::{COMPARE_BLOCKS_MAX, TRANSFER_BLOCKS_MAX, WRITE_SAME_BLOCKS_MAX};
use super::super::core::Core;
use super::super::disks::Disk;
use super::transfer::offset;
use super::{Received, Step};
use crate::buffers::Purpose;
use crate::fill::WARNING_PERCENTS;
use crate::serving::{Counts, Group, Kind, RequestKind};

/// Longest read that is tried without a job, in bytes.
const INLINE_READ_BYTES_MAX: usize = 256 << 10;
/// Logical blocks of a block of the engine: as many at once are written without reading.
const GRANULARITY_BLOCKS: u16 = (units::BLOCK_BYTES as u32 / SECTOR_BYTES) as u16;

impl Core {
    /// Carries out a command that brings no data.
    pub(super) fn carry_out(&mut self, received: &Received, group: &mut Group<'_, Write>) -> Step {
        match received.command {
            Command::Read(transfer) => self.read(received, &transfer, group),
            Command::SynchronizeCache { .. } => self.synchronize(received),
            // A unit that is stopped has nothing left to be written.
            Command::StartStopUnit { start, load_or_eject, power_condition, .. } => {
                if load_or_eject {
                    return self.finish(received, Sense::cdb_field(4, Some(1)).into());
                }
                match (start, power_condition) {
                    (false, 0) => self.synchronize(received),
                    _ => self.finish(received, Ended::Good),
                }
            }
            Command::Verify { range, .. } => {
                self.goes_on(received);
                self.verify_medium(received.tag(), &range);
                Step::Done
            }
            Command::WriteSame { range, .. } => self.zero(received, &range),
            Command::GetLbaStatus { lba, allocation_bytes } => {
                self.lba_status(received, lba, allocation_bytes)
            }
            _ => {
                let ended = self.told(received);
                self.finish(received, ended)
            }
        }
    }

    fn read(
        &mut self,
        received: &Received,
        transfer: &Transfer,
        group: &mut Group<'_, Write>,
    ) -> Step {
        let wanted = u64::from(transfer.range.blocks) * u64::from(SECTOR_BYTES);
        let length = wanted.min(received.takes().into()) as usize;
        if length == 0 {
            return self.finish(received, Ended::Good);
        }
        let start = offset(&transfer.range);
        if group.overlaps(start, length as u64) && !self.write(group) {
            return Step::Wait;
        }
        let export = self.export(received.request.lun);
        if length <= INLINE_READ_BYTES_MAX {
            let residual = Residual::between(received.takes(), wanted);
            let read = |at: usize, space: &mut [u8]| export.try_read(start + at as u64, space);
            match self.sender.read_inline(received.tag(), length, residual, read) {
                Some(Ok(())) => return Step::Done,
                Some(Err(error)) => return self.finish(received, failure(&error, false)),
                None => {}
            }
        }
        let mut data = match self.buffers(received, Purpose::Read, start, length) {
            Ok(data) => data,
            Err(step) => return step,
        };
        self.goes_on(received);
        let tag = received.tag();
        self.start(Kind::Look, Counts::one(RequestKind::Read), move |out| {
            let mut at = start;
            for piece in data.pieces_mut() {
                if let Err(error) = export.read(at, piece) {
                    return out.add(tag, failure(&error, false));
                }
                at += piece.len() as u64;
            }
            out.add(tag, Ended::Data(data))
        });
        Step::Done
    }

    pub(super) fn synchronize(&mut self, received: &Received) -> Step {
        if self.disk(received.request.lun).export.present_of().is_none() {
            return self.finish(received, Ended::Good);
        }
        self.goes_on(received);
        self.flushes.push(received.tag());
        Step::Done
    }

    /// The end of a command that is carried out by telling something.
    fn told(&mut self, received: &Received) -> Ended {
        let mut out = Vec::new();
        let answered = match self.disks.at_mut(received.request.lun).filter(|it| it.is_there()) {
            _ if matches!(received.command, Command::ReportLuns { .. }) => {
                self.report_luns(&received.command, &mut out);
                Ok(true)
            }
            Some(disk) => {
                let room = self.context.thin.room();
                answer(disk, &received.command, &room, &mut out)
            }
            None => self.answer_absent(&received.command, &mut out),
        };
        match answered {
            Ok(true) => Ended::Short(out),
            Ok(false) => Ended::Good,
            Err(ended) => ended,
        }
    }

    /// Tells the units that there are; there is no well known one.
    fn report_luns(&self, command: &Command, out: &mut Vec<u8>) {
        let is_well_known = matches!(command, Command::ReportLuns { select: 1, .. });
        report_luns::put(&if is_well_known { Vec::new() } else { self.disks.luns() }, out);
        self.disks.iter().for_each(|disk| disk.nexus.forget(Code::LUNS_CHANGED));
    }

    /// The answer of a number without a unit.
    fn answer_absent(&self, command: &Command, out: &mut Vec<u8>) -> Result<bool, Ended> {
        match (command, &self.absent) {
            (Command::RequestSense { descriptor, .. }, _) => {
                Sense::illegal(Code::NO_SUCH_UNIT).encode(*descriptor, out);
            }
            (Command::Inquiry { page: None, .. }, Some(absent)) => {
                inquiry::put_standard(absent, false, out);
            }
            _ => return Err(Sense::illegal(Code::NO_SUCH_UNIT).into()),
        }
        Ok(true)
    }
}

/// Adds the answer to a command; false if there is none but that it is done.
fn answer(
    disk: &mut Disk,
    command: &Command,
    room: &log::Room,
    out: &mut Vec<u8>,
) -> Result<bool, Ended> {
    match *command {
        Command::TestUnitReady | Command::SendDiagnostic { .. } | Command::Prefetch { .. } => {
            return Ok(false);
        }
        Command::RequestSense { descriptor, .. } => {
            let sense = disk.nexus.take_attention().map_or(Sense::NONE, Sense::attention);
            sense.encode(descriptor, out);
        }
        Command::Inquiry { page: None, .. } => inquiry::put_standard(&disk.identity, true, out),
        Command::Inquiry { page: Some(page), .. } => {
            vpd::put_page(page, &disk.identity, &traits(disk), out)?;
        }
        Command::ReadCapacity10 => out.extend_from_slice(&capacity(disk).short()),
        Command::ReadCapacity16 { .. } => out.extend_from_slice(&capacity(disk).long()),
        Command::ModeSense(sense) => {
            let thresholds = thresholds(room);
            mode::put_sense(&sense, &mode_unit(disk, &thresholds), out)?;
        }
        Command::LogSense { page, first, .. } => log::put(page, first, room, out)?,
        Command::Reserve if disk.nexus.reserve() => return Ok(false),
        Command::Reserve => return Err(Ended::Status(wire::scsi::Status::RESERVATION_CONFLICT)),
        Command::Release => {
            disk.nexus.release();
            return Ok(false);
        }
        Command::PersistentReserveIn { action, .. } => disk.nexus.ask_reservations(action, out),
        Command::ReportTargetPortGroups { extended, .. } => {
            ports::put_groups(disk.identity.port_group, disk.identity.port, extended, out);
        }
        Command::ReportSupportedOpcodes { question, timeouts, .. } => {
            supported_opcodes::put(question, timeouts, out)?;
        }
        Command::ReportSupportedFunctions { extended, .. } => ports::put_functions(extended, out),
        _ => return Err(Sense::illegal(Code::INVALID_OPCODE).into()),
    }
    Ok(true)
}

fn capacity(disk: &Disk) -> Capacity {
    Capacity {
        blocks: disk.blocks(),
        block_bytes: SECTOR_BYTES,
        physical_exponent: GRANULARITY_BLOCKS.ilog2() as u8,
        is_thin: true,
    }
}

fn traits(disk: &Disk) -> Traits {
    let limits = BlockLimits {
        refuses_write_same_of_none: true,
        compare_and_write_max: COMPARE_BLOCKS_MAX,
        transfer_granularity: GRANULARITY_BLOCKS,
        transfer_max: TRANSFER_BLOCKS_MAX,
        transfer_optimal: (256 << 10) / SECTOR_BYTES,
        // No limit.
        unmap_blocks_max: u32::MAX,
        unmap_descriptors_max: unmap::DESCRIPTORS_MAX as u32,
        unmap_granularity: u32::from(GRANULARITY_BLOCKS),
        unmap_alignment: Some(0),
        write_same_max: WRITE_SAME_BLOCKS_MAX.into(),
        ..BlockLimits::default()
    };
    Traits {
        limits,
        has_volatile_cache: disk.nexus.mode().write_cache,
        is_thin: true,
        threshold_exponent: log::SET_EXPONENT,
    }
}

/// The thresholds of the pool's warnings.
pub(super) fn thresholds(room: &log::Room) -> [Threshold; WARNING_PERCENTS.len()] {
    WARNING_PERCENTS.map(|percent| Threshold { sets: room.percent(percent) })
}

/// The unit, as mode pages tell it.
pub(super) fn mode_unit<'t>(disk: &Disk, thresholds: &'t [Threshold]) -> mode::Unit<'t> {
    mode::Unit {
        blocks: disk.blocks(),
        block_bytes: SECTOR_BYTES,
        is_protected: disk.is_protected(),
        obeys_fua: true,
        state: disk.nexus.mode(),
        thresholds,
    }
}
