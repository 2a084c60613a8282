//! Commands to CDBs, as an initiator sends them.

use super::command::{ByteCheck, Command, ModeSense, OpcodeQuestion, PageControl, Range, Transfer};
use super::decode::{Cdb, cdb_bytes};
use super::reservations::{OutAction, ReservationType};
use crate::fields::put;

/// Length of a CDB, for commands that come in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// 6 bytes.
    Six,
    /// 10 bytes.
    Ten,
    /// 12 bytes.
    Twelve,
    /// 16 bytes.
    Sixteen,
}

/// The CDB of a command; `form` says nothing where there is one form only. `None` when the command
/// has no such form, or a field does not fit into it.
#[must_use]
pub fn command(command: &Command, form: Form) -> Option<Cdb> {
    match *command {
        Command::Read(it) => transfer([0x08, 0x28, 0xa8, 0x88], form, &it),
        Command::Write(it) => transfer([0x0a, 0x2a, 0xaa, 0x8a], form, &it),
        Command::OrWrite(it) => transfer([0, 0, 0, 0x8b], Form::Sixteen, &it),
        Command::WriteAndVerify { range, dpo, check } => {
            checked([0, 0x2e, 0xae, 0x8e], form, range, dpo, check)
        }
        Command::Verify { range, dpo, check } => {
            checked([0, 0x2f, 0xaf, 0x8f], form, range, dpo, check)
        }
        Command::Prefetch { range, immediate } => {
            flagged([0, 0x34, 0, 0x90], form, range, bit(immediate, 2))
        }
        Command::SynchronizeCache { range, immediate } => {
            flagged([0, 0x35, 0, 0x91], form, range, bit(immediate, 2))
        }
        Command::WriteSame { range, unmap, no_data } => {
            let has_form = !no_data || form == Form::Sixteen;
            let flags = bit(unmap, 8) | bit(no_data, 1);
            flagged([0, 0x41, 0, 0x93], form, range, flags).filter(|_| has_form)
        }
        Command::CompareAndWrite(it) => {
            let blocks = u8::try_from(it.range.blocks).ok()?;
            let mut cdb = blank(0x89, transfer_flags(&it));
            put(&mut cdb, 2, &it.range.lba.to_be_bytes());
            cdb[13] = blocks;
            Some(cdb)
        }
        Command::WriteAtomic { transfer, boundary_blocks } => {
            let blocks = u16::try_from(transfer.range.blocks).ok()?;
            let mut cdb = blank(0x9c, transfer_flags(&transfer));
            put(&mut cdb, 2, &transfer.range.lba.to_be_bytes());
            put(&mut cdb, 10, &boundary_blocks.to_be_bytes());
            put(&mut cdb, 12, &blocks.to_be_bytes());
            Some(cdb)
        }
        _ => without_blocks(command, form),
    }
}

const fn bit(set: bool, mask: u8) -> u8 {
    if set { mask } else { 0 }
}

fn blank(opcode: u8, flags: u8) -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb
}

fn transfer_flags(transfer: &Transfer) -> u8 {
    bit(transfer.dpo, 0x10) | bit(transfer.fua, 8)
}

fn transfer(opcodes: [u8; 4], form: Form, transfer: &Transfer) -> Option<Cdb> {
    flagged(opcodes, form, transfer.range, transfer_flags(transfer))
}

fn checked(opcodes: [u8; 4], form: Form, range: Range, dpo: bool, check: ByteCheck) -> Option<Cdb> {
    let check = match check {
        ByteCheck::Medium => 0,
        ByteCheck::Blocks => 2,
        ByteCheck::OneBlock => 6,
    };
    flagged(opcodes, form, range, bit(dpo, 0x10) | check)
}

/// A CDB with a range; an operation code of 0 says that there is no such form.
fn flagged(opcodes: [u8; 4], form: Form, range: Range, flags: u8) -> Option<Cdb> {
    let [six, ten, twelve, sixteen] = opcodes;
    let opcode = match form {
        Form::Six => six,
        Form::Ten => ten,
        Form::Twelve => twelve,
        Form::Sixteen => sixteen,
    };
    if opcode == 0 {
        return None;
    }
    let mut cdb = blank(opcode, flags);
    match form {
        Form::Six => {
            let lba = u32::try_from(range.lba).ok().filter(|lba| *lba < 1 << 21)?;
            // 256 is written as 0, and nothing cannot be said.
            let fits = (1..=256).contains(&range.blocks) && flags == 0;
            let [_, high, middle, low] = lba.to_be_bytes();
            let [.., blocks] = range.blocks.to_be_bytes();
            put(&mut cdb, 1, &[high, middle, low, blocks]);
            return fits.then_some(cdb);
        }
        Form::Ten => {
            put(&mut cdb, 2, &u32::try_from(range.lba).ok()?.to_be_bytes());
            put(&mut cdb, 7, &u16::try_from(range.blocks).ok()?.to_be_bytes());
        }
        Form::Twelve => {
            put(&mut cdb, 2, &u32::try_from(range.lba).ok()?.to_be_bytes());
            put(&mut cdb, 6, &range.blocks.to_be_bytes());
        }
        Form::Sixteen => {
            put(&mut cdb, 2, &range.lba.to_be_bytes());
            put(&mut cdb, 10, &range.blocks.to_be_bytes());
        }
    }
    Some(cdb)
}

/// A CDB with an allocation length or a length of a list in the usual place of its group.
fn sized(opcode: u8, second: u8, bytes: u32) -> Option<Cdb> {
    let mut cdb = blank(opcode, second);
    match cdb_bytes(opcode) {
        6 => cdb[4] = u8::try_from(bytes).ok()?,
        10 => put(&mut cdb, 7, &u16::try_from(bytes).ok()?.to_be_bytes()),
        12 => put(&mut cdb, 6, &bytes.to_be_bytes()),
        _ => put(&mut cdb, 10, &bytes.to_be_bytes()),
    }
    Some(cdb)
}

/// The same with byte 2, where many commands say which data they mean.
fn selecting(opcode: u8, second: u8, third: u8, bytes: u32) -> Option<Cdb> {
    let mut cdb = sized(opcode, second, bytes)?;
    cdb[2] = third;
    Some(cdb)
}

fn without_blocks(command: &Command, form: Form) -> Option<Cdb> {
    let is_ten = form == Form::Ten;
    match *command {
        Command::RequestSense { descriptor, allocation_bytes } => {
            sized(0x03, bit(descriptor, 1), allocation_bytes)
        }
        Command::Inquiry { page, allocation_bytes } => inquiry(page, allocation_bytes),
        Command::ReadCapacity10 => Some(blank(0x25, 0)),
        Command::ReadCapacity16 { allocation_bytes } => sized(0x9e, 0x10, allocation_bytes),
        Command::Unmap { list_bytes } => sized(0x42, 0, list_bytes),
        Command::GetLbaStatus { lba, allocation_bytes } => {
            let mut cdb = sized(0x9e, 0x12, allocation_bytes)?;
            put(&mut cdb, 2, &lba.to_be_bytes());
            Some(cdb)
        }
        Command::ModeSense(it) => mode_sense(&it),
        Command::ModeSelect { is_ten, list_bytes } => {
            sized(if is_ten { 0x55 } else { 0x15 }, 0x10, list_bytes)
        }
        Command::StartStopUnit { start, load_or_eject, power_condition, immediate } => {
            let mut cdb = blank(0x1b, bit(immediate, 1));
            cdb[4] = power_condition << 4 | bit(load_or_eject, 2) | bit(start, 1);
            Some(cdb)
        }
        Command::Reserve => Some(blank(if is_ten { 0x56 } else { 0x16 }, 0)),
        Command::Release => Some(blank(if is_ten { 0x57 } else { 0x17 }, 0)),
        Command::PersistentReserveIn { action, allocation_bytes } => {
            sized(0x5e, action.number(), allocation_bytes)
        }
        Command::PersistentReserveOut { action, kind, list_bytes } => {
            Some(reserve_out(action, kind, list_bytes))
        }
        Command::ReportLuns { select, allocation_bytes } => {
            selecting(0xa0, 0, select, allocation_bytes)
        }
        Command::LogSense { page: (page, subpage), first, allocation_bytes } => {
            let allocation = u16::try_from(allocation_bytes).ok()?;
            let mut cdb = blank(0x4d, 0);
            // The values of now.
            (cdb[2], cdb[3]) = (0x40 | page & 0x3f, subpage);
            put(&mut cdb, 5, &first.to_be_bytes());
            put(&mut cdb, 7, &allocation.to_be_bytes());
            Some(cdb)
        }
        Command::ReportTargetPortGroups { extended, allocation_bytes } => {
            sized(0xa3, 0x0a | bit(extended, 0x20), allocation_bytes)
        }
        Command::ReportSupportedOpcodes { question, timeouts, allocation_bytes } => {
            supported_opcodes(question, timeouts, allocation_bytes)
        }
        Command::ReportSupportedFunctions { extended, allocation_bytes } => {
            selecting(0xa3, 0x0d, bit(extended, 0x80), allocation_bytes)
        }
        Command::SendDiagnostic { self_test } => Some(blank(0x1d, bit(self_test, 4))),
        // TEST UNIT READY is all zeros; commands with blocks were encoded before.
        _ => Some([0; 16]),
    }
}

/// The allocation length of INQUIRY has two bytes, though its CDB has six.
fn inquiry(page: Option<u8>, allocation_bytes: u32) -> Option<Cdb> {
    let mut cdb = blank(0x12, bit(page.is_some(), 1));
    cdb[2] = page.unwrap_or(0);
    put(&mut cdb, 3, &u16::try_from(allocation_bytes).ok()?.to_be_bytes());
    Some(cdb)
}

fn mode_sense(it: &ModeSense) -> Option<Cdb> {
    let control = match it.control {
        PageControl::Current => 0,
        PageControl::Changeable => 1,
        PageControl::Default => 2,
        PageControl::Saved => 3,
    };
    let second = bit(it.no_descriptor, 8) | bit(it.long_descriptor, 0x10);
    let opcode = if it.is_ten { 0x5a } else { 0x1a };
    let third = control << 6 | it.page & 0x3f;
    let mut cdb = selecting(opcode, second, third, it.allocation_bytes)?;
    cdb[3] = it.subpage;
    Some(cdb)
}

/// The length of its list has four bytes, though its CDB has ten.
fn reserve_out(action: OutAction, kind: Option<ReservationType>, list_bytes: u32) -> Cdb {
    let mut cdb = blank(0x5f, action.number());
    cdb[2] = kind.map_or(0, ReservationType::number);
    put(&mut cdb, 5, &list_bytes.to_be_bytes());
    cdb
}

fn supported_opcodes(question: OpcodeQuestion, timeouts: bool, bytes: u32) -> Option<Cdb> {
    let (options, opcode, action) = match question {
        OpcodeQuestion::All => (0, 0, 0),
        OpcodeQuestion::Opcode(opcode) => (1, opcode, 0),
        OpcodeQuestion::ServiceAction(opcode, action) => (2, opcode, action),
        OpcodeQuestion::Either(opcode, action) => (3, opcode, action),
    };
    let mut cdb = selecting(0xa3, 0x0c, bit(timeouts, 0x80) | options, bytes)?;
    cdb[3] = opcode;
    put(&mut cdb, 4, &action.to_be_bytes());
    Some(cdb)
}
