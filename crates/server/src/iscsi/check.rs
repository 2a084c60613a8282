//! The conditions under which a command is carried out, else how it ends, as the standards name it.

use wire::scsi::command::Range;
use wire::scsi::{Code, Command, Lun, Sense, SenseKey, Status, decode};

use super::answer::Ended;
use super::context::SECTOR_BYTES;
use super::disks::Disks;

/// Most blocks that one command moves: 32 MiB.
pub(super) const TRANSFER_BLOCKS_MAX: u32 = (32 << 20) / SECTOR_BYTES;
/// Most blocks of a WRITE SAME: 256 MiB.
pub(super) const WRITE_SAME_BLOCKS_MAX: u32 = (256 << 20) / SECTOR_BYTES;

/// Most blocks of a COMPARE AND WRITE: wherever it begins, the engine makes one write of it.
pub(super) const COMPARE_BLOCKS_MAX: u8 = 120;

/// The command of a CDB, if it is to be carried out.
pub(super) fn check(
    disks: &mut Disks,
    lun: Lun,
    cdb: &[u8; 16],
    turn: u64,
) -> Result<Command, Ended> {
    let decoded = decode::command(cdb);
    let is_early = matches!(
        decoded,
        Ok(Command::Inquiry { .. } | Command::ReportLuns { .. } | Command::RequestSense { .. })
    );
    let Some(disk) = disks.at_mut(lun).filter(|disk| disk.is_there()) else {
        return match decoded {
            Ok(command) if is_early => Ok(command),
            _ => Err(Sense::illegal(Code::NO_SUCH_UNIT).into()),
        };
    };
    disk.look_at_size(turn);
    if !is_early && let Some(code) = disk.nexus.take_attention() {
        return Err(Sense::attention(code).into());
    }
    let command = decoded?;
    if disk.nexus.forbids(&command) {
        return Err(Ended::Status(Status::RESERVATION_CONFLICT));
    }
    let is_for_writers = command.writes() || disk.is_reader && changes_for_others(&command);
    if is_for_writers && disk.is_protected() {
        return Err(Sense::new(SenseKey::DATA_PROTECT, Code::WRITE_PROTECTED).into());
    }
    if let Some(range) = command.range() {
        within(&command, &range, disk.blocks())?;
    }
    Ok(command)
}

/// Whether a command changes a unit for all who use it, though not its data.
fn changes_for_others(command: &Command) -> bool {
    matches!(
        command,
        Command::Reserve | Command::PersistentReserveOut { .. } | Command::ModeSelect { .. }
    )
}

fn within(command: &Command, range: &Range, blocks: u64) -> Result<(), Sense> {
    let needs_block = matches!(command, Command::GetLbaStatus { .. });
    let end = range.lba.checked_add(u64::from(range.blocks.max(u32::from(needs_block))));
    if end.is_none_or(|end| end > blocks) {
        return Err(Sense::lba_out_of_range(range.lba));
    }
    let most = match command {
        Command::Prefetch { .. }
        | Command::SynchronizeCache { .. }
        | Command::GetLbaStatus { .. } => u32::MAX,
        Command::WriteSame { .. } => WRITE_SAME_BLOCKS_MAX,
        Command::CompareAndWrite(_) => COMPARE_BLOCKS_MAX.into(),
        _ => TRANSFER_BLOCKS_MAX,
    };
    if range.blocks > most || matches!(command, Command::WriteSame { .. }) && range.blocks == 0 {
        return Err(Sense::illegal(Code::INVALID_CDB_FIELD));
    }
    Ok(())
}
