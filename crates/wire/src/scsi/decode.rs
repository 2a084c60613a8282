//! CDBs to commands. Operations that are not served are refused with the sense that the standards
//! name; reserved bits are not looked at, as they allow.

use super::command::{ByteCheck, Command, ModeSense, OpcodeQuestion, PageControl, Range, Transfer};
use super::reservations::{InAction, OutAction, ReservationType};
use super::sense::{Code, Sense};
use crate::fields::{be16, be24, be32, be64};

/// A CDB as iSCSI sends it: shorter ones are padded with zeros.
pub type Cdb = [u8; 16];

/// The command of a CDB.
///
/// # Errors
/// ILLEGAL REQUEST, for operations that are not served and for fields that hold what is not.
pub fn command(cdb: &Cdb) -> Result<Command, Sense> {
    let command = match cdb[0] {
        0x08 | 0x28 | 0xa8 | 0x88 => transfer(cdb).map(Command::Read),
        0x0a | 0x2a | 0xaa | 0x8a => transfer(cdb).map(Command::Write),
        0x2e | 0xae | 0x8e => write_and_verify(cdb),
        0x2f | 0xaf | 0x8f => verify(cdb),
        0x34 | 0x90 => Ok(Command::Prefetch { range: range(cdb), immediate: cdb[1] & 2 != 0 }),
        0x35 | 0x91 => {
            Ok(Command::SynchronizeCache { range: range(cdb), immediate: cdb[1] & 2 != 0 })
        }
        0x41 | 0x93 => write_same(cdb),
        0x42 => unmap(cdb),
        0x89 => compare_and_write(cdb),
        0x8b => transfer(cdb).map(Command::OrWrite),
        0x9c => write_atomic(cdb),
        _ => other(cdb),
    }?;
    let control = control_byte(cdb[0]);
    if cdb[control] & NACA != 0 {
        return Err(field(control, Some(2)));
    }
    Ok(command)
}

/// Commands that name no blocks.
fn other(cdb: &Cdb) -> Result<Command, Sense> {
    match cdb[0] {
        0x00 => Ok(Command::TestUnitReady),
        0x03 => Ok(Command::RequestSense {
            descriptor: cdb[1] & 1 != 0,
            allocation_bytes: u32::from(cdb[4]),
        }),
        0x12 => inquiry(cdb),
        0x15 | 0x55 => mode_select(cdb),
        0x16 | 0x56 => whole_unit(cdb).map(|()| Command::Reserve),
        0x17 | 0x57 => whole_unit(cdb).map(|()| Command::Release),
        0x1a | 0x5a => Ok(Command::ModeSense(mode_sense(cdb))),
        0x1b => Ok(start_stop_unit(cdb)),
        0x1d => send_diagnostic(cdb),
        0x25 => Ok(Command::ReadCapacity10),
        0x4d => log_sense(cdb),
        0x5e => reserve_in(cdb),
        0x5f => reserve_out(cdb),
        0x9e => service_action_in(cdb),
        0xa0 => report_luns(cdb),
        0xa3 => maintenance_in(cdb),
        _ => Err(Sense::illegal(Code::INVALID_OPCODE)),
    }
}

/// Normal ACA, in the control byte: not served.
const NACA: u8 = 4;

/// Bytes of a CDB with this operation code, as far as its group says.
#[must_use]
pub const fn cdb_bytes(opcode: u8) -> usize {
    match opcode >> 5 {
        0 => 6,
        1 | 2 => 10,
        5 => 12,
        _ => 16,
    }
}

const fn control_byte(opcode: u8) -> usize {
    cdb_bytes(opcode) - 1
}

fn field(byte: usize, bit: Option<u8>) -> Sense {
    Sense::cdb_field(u16::try_from(byte).expect("a CDB has 16 bytes"), bit)
}

/// The range of a CDB in the usual places of its length.
fn range(cdb: &Cdb) -> Range {
    match cdb_bytes(cdb[0]) {
        6 => {
            let blocks = if cdb[4] == 0 { 256 } else { u32::from(cdb[4]) };
            Range { lba: u64::from(be24(cdb, 1) & 0x1f_ffff), blocks }
        }
        10 => Range { lba: be32(cdb, 2).into(), blocks: be16(cdb, 7).into() },
        12 => Range { lba: be32(cdb, 2).into(), blocks: be32(cdb, 6) },
        _ => Range { lba: be64(cdb, 2), blocks: be32(cdb, 10) },
    }
}

/// Refuses protection information, which stands in the upper three bits of byte 1.
fn unprotected(cdb: &Cdb) -> Result<(), Sense> {
    if cdb[1] & 0xe0 == 0 { Ok(()) } else { Err(field(1, Some(7))) }
}

fn transfer(cdb: &Cdb) -> Result<Transfer, Sense> {
    let range = range(cdb);
    if cdb_bytes(cdb[0]) == 6 {
        return Ok(Transfer { range, fua: false, dpo: false });
    }
    unprotected(cdb)?;
    Ok(Transfer { range, fua: cdb[1] & 8 != 0, dpo: cdb[1] & 0x10 != 0 })
}

fn byte_check(cdb: &Cdb) -> Result<ByteCheck, Sense> {
    match cdb[1] >> 1 & 3 {
        0 => Ok(ByteCheck::Medium),
        1 => Ok(ByteCheck::Blocks),
        3 => Ok(ByteCheck::OneBlock),
        _ => Err(field(1, Some(2))),
    }
}

fn write_and_verify(cdb: &Cdb) -> Result<Command, Sense> {
    unprotected(cdb)?;
    let check = byte_check(cdb)?;
    if check == ByteCheck::OneBlock {
        return Err(field(1, Some(2)));
    }
    Ok(Command::WriteAndVerify { range: range(cdb), dpo: cdb[1] & 0x10 != 0, check })
}

fn verify(cdb: &Cdb) -> Result<Command, Sense> {
    unprotected(cdb)?;
    let check = byte_check(cdb)?;
    Ok(Command::Verify { range: range(cdb), dpo: cdb[1] & 0x10 != 0, check })
}

fn write_same(cdb: &Cdb) -> Result<Command, Sense> {
    unprotected(cdb)?;
    if cdb[1] & 0x10 != 0 {
        return Err(field(1, Some(4)));
    }
    // PBDATA and LBDATA, which are obsolete, would put addresses into the data.
    if cdb[1] & 6 != 0 {
        return Err(field(1, Some(2)));
    }
    let no_data = cdb[0] == 0x93 && cdb[1] & 1 != 0;
    Ok(Command::WriteSame { range: range(cdb), unmap: cdb[1] & 8 != 0, no_data })
}

fn unmap(cdb: &Cdb) -> Result<Command, Sense> {
    if cdb[1] & 1 != 0 {
        return Err(field(1, Some(0)));
    }
    Ok(Command::Unmap { list_bytes: be16(cdb, 7).into() })
}

fn compare_and_write(cdb: &Cdb) -> Result<Command, Sense> {
    let blocks = u32::from(cdb[13]);
    let transfer = transfer(cdb)?;
    let range = Range { lba: transfer.range.lba, blocks };
    Ok(Command::CompareAndWrite(Transfer { range, ..transfer }))
}

fn write_atomic(cdb: &Cdb) -> Result<Command, Sense> {
    let transfer = transfer(cdb)?;
    let range = Range { lba: transfer.range.lba, blocks: be16(cdb, 12).into() };
    Ok(Command::WriteAtomic {
        transfer: Transfer { range, ..transfer },
        boundary_blocks: be16(cdb, 10),
    })
}

fn inquiry(cdb: &Cdb) -> Result<Command, Sense> {
    let is_page = cdb[1] & 1 != 0;
    if !is_page && cdb[2] != 0 {
        return Err(field(2, None));
    }
    // CMDDT, which is obsolete.
    if cdb[1] & 2 != 0 {
        return Err(field(1, Some(1)));
    }
    Ok(Command::Inquiry { page: is_page.then_some(cdb[2]), allocation_bytes: be16(cdb, 3).into() })
}

fn log_sense(cdb: &Cdb) -> Result<Command, Sense> {
    // SP: nothing can be saved. Which values are wanted says nothing of a list.
    if cdb[1] & 1 != 0 {
        return Err(field(1, Some(0)));
    }
    let page = (cdb[2] & 0x3f, cdb[3]);
    Ok(Command::LogSense { page, first: be16(cdb, 5), allocation_bytes: be16(cdb, 7).into() })
}

fn mode_sense(cdb: &Cdb) -> ModeSense {
    let is_ten = cdb[0] == 0x5a;
    let control = match cdb[2] >> 6 {
        0 => PageControl::Current,
        1 => PageControl::Changeable,
        2 => PageControl::Default,
        _ => PageControl::Saved,
    };
    ModeSense {
        is_ten,
        page: cdb[2] & 0x3f,
        subpage: cdb[3],
        control,
        no_descriptor: cdb[1] & 8 != 0,
        long_descriptor: is_ten && cdb[1] & 0x10 != 0,
        allocation_bytes: if is_ten { be16(cdb, 7).into() } else { cdb[4].into() },
    }
}

fn mode_select(cdb: &Cdb) -> Result<Command, Sense> {
    let is_ten = cdb[0] == 0x55;
    // SP: nothing can be saved.
    if cdb[1] & 1 != 0 {
        return Err(field(1, Some(0)));
    }
    let list_bytes = if is_ten { be16(cdb, 7).into() } else { cdb[4].into() };
    // PF: pages of the vendor's own format.
    if cdb[1] & 0x10 == 0 && list_bytes > 0 {
        return Err(field(1, Some(4)));
    }
    Ok(Command::ModeSelect { is_ten, list_bytes })
}

fn start_stop_unit(cdb: &Cdb) -> Command {
    Command::StartStopUnit {
        start: cdb[4] & 1 != 0,
        load_or_eject: cdb[4] & 2 != 0,
        power_condition: cdb[4] >> 4,
        immediate: cdb[1] & 1 != 0,
    }
}

fn send_diagnostic(cdb: &Cdb) -> Result<Command, Sense> {
    if cdb[1] & 0xe0 != 0 {
        return Err(field(1, Some(7)));
    }
    if be16(cdb, 3) != 0 {
        return Err(field(3, None));
    }
    Ok(Command::SendDiagnostic { self_test: cdb[1] & 4 != 0 })
}

/// Refuses reservations for a third party and of extents.
fn whole_unit(cdb: &Cdb) -> Result<(), Sense> {
    if cdb[1] & 0x10 != 0 {
        return Err(field(1, Some(4)));
    }
    if cdb[1] & 1 != 0 {
        return Err(field(1, Some(0)));
    }
    Ok(())
}

fn reserve_in(cdb: &Cdb) -> Result<Command, Sense> {
    let action = InAction::from_number(cdb[1] & 0x1f).ok_or(field(1, Some(4)))?;
    Ok(Command::PersistentReserveIn { action, allocation_bytes: be16(cdb, 7).into() })
}

fn reserve_out(cdb: &Cdb) -> Result<Command, Sense> {
    let action = OutAction::from_number(cdb[1] & 0x1f).ok_or(field(1, Some(4)))?;
    Ok(Command::PersistentReserveOut {
        action,
        // The scope is that of the whole unit, which is 0.
        kind: ReservationType::from_number(cdb[2]),
        list_bytes: be32(cdb, 5),
    })
}

fn service_action_in(cdb: &Cdb) -> Result<Command, Sense> {
    let allocation_bytes = be32(cdb, 10);
    match cdb[1] & 0x1f {
        0x10 => Ok(Command::ReadCapacity16 { allocation_bytes }),
        // REPORT TYPE: only that of all blocks.
        0x12 if cdb[14] != 0 => Err(field(14, None)),
        0x12 => Ok(Command::GetLbaStatus { lba: be64(cdb, 2), allocation_bytes }),
        _ => Err(field(1, Some(4))),
    }
}

fn report_luns(cdb: &Cdb) -> Result<Command, Sense> {
    let select = cdb[2];
    if select > 2 {
        return Err(field(2, None));
    }
    Ok(Command::ReportLuns { select, allocation_bytes: be32(cdb, 6) })
}

fn maintenance_in(cdb: &Cdb) -> Result<Command, Sense> {
    let allocation_bytes = be32(cdb, 6);
    match cdb[1] & 0x1f {
        0x0a => match cdb[1] >> 5 {
            0 => Ok(Command::ReportTargetPortGroups { extended: false, allocation_bytes }),
            1 => Ok(Command::ReportTargetPortGroups { extended: true, allocation_bytes }),
            _ => Err(field(1, Some(7))),
        },
        0x0c => {
            let question = match cdb[2] & 7 {
                0 => OpcodeQuestion::All,
                1 => OpcodeQuestion::Opcode(cdb[3]),
                2 => OpcodeQuestion::ServiceAction(cdb[3], be16(cdb, 4)),
                3 => OpcodeQuestion::Either(cdb[3], be16(cdb, 4)),
                _ => return Err(field(2, Some(2))),
            };
            let timeouts = cdb[2] & 0x80 != 0;
            Ok(Command::ReportSupportedOpcodes { question, timeouts, allocation_bytes })
        }
        0x0d => {
            Ok(Command::ReportSupportedFunctions { extended: cdb[2] & 0x80 != 0, allocation_bytes })
        }
        _ => Err(field(1, Some(4))),
    }
}
