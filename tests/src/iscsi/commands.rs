//! Requests as SCSI commands.

use anyhow::{Result, bail, ensure};

use crate::nbd::Request;

pub(super) const BLOCK_BYTES: u64 = 512;

/// A command: what it says, what goes with it, how many bytes it reads.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub cdb: [u8; 16],
    pub data: Vec<u8>,
    pub reads: u32,
}

impl Command {
    pub fn of(request: &Request) -> Result<Command> {
        let none = Vec::new();
        Ok(match request {
            Request::Read { offset, length } => {
                Command::on(0x88, 0, (*offset, u64::from(*length)), none, *length)?
            }
            Request::Write { offset, bytes, fua } => {
                let flags = if *fua { 8 } else { 0 };
                let range = (*offset, bytes.len() as u64);
                Command::on(0x8a, flags, range, bytes.clone(), 0)?
            }
            Request::Trim { fua: true, .. } => bail!("UNMAP cannot be forced"),
            Request::Trim { offset, length, fua: false } => unmap(*offset, u64::from(*length))?,
            Request::Zero { offset, length, no_hole, .. } => {
                // No data goes with it; zeros are meant.
                let flags = if *no_hole { 1 } else { 9 };
                Command::on(0x93, flags, (*offset, u64::from(*length)), none, 0)?
            }
            Request::Flush => Command::on(0x91, 0, (0, 0), none, 0)?,
            Request::Cache { .. } | Request::Status { .. } => bail!("not asked for over iSCSI"),
        })
    }

    /// A command of 16 bytes on a range.
    fn on(code: u8, flags: u8, range: (u64, u64), data: Vec<u8>, reads: u32) -> Result<Command> {
        let (first, count) = blocks(range)?;
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (code, flags);
        cdb[2..10].copy_from_slice(&first.to_be_bytes());
        cdb[10..14].copy_from_slice(&count.to_be_bytes());
        Ok(Command { cdb, data, reads })
    }

    /// PERSISTENT RESERVE OUT of a type that lets others read, kept over restarts (APTPL) where it
    /// registers.
    pub fn reserve_out(action: u8, key: u64, action_key: u64) -> Command {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, 1, 24);
        let mut data = [key.to_be_bytes(), action_key.to_be_bytes(), [0; 8]].concat();
        data[20] = 1;
        Command { cdb, data, reads: 0 }
    }

    pub fn test_unit_ready() -> Command {
        Command { cdb: [0; 16], data: Vec::new(), reads: 0 }
    }

    pub fn read_capacity() -> Command {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
        Command { cdb, data: Vec::new(), reads: 32 }
    }

    /// The unit's mode parameters, whose header says whether it can be written.
    pub fn mode_sense() -> Command {
        let mut cdb = [0; 16];
        (cdb[0], cdb[2], cdb[4]) = (0x1a, 0x3f, 192);
        Command { cdb, data: Vec::new(), reads: 192 }
    }
}

fn unmap(offset: u64, length: u64) -> Result<Command> {
    let (first, count) = blocks((offset, length))?;
    let mut data = vec![0, 22, 0, 16, 0, 0, 0, 0];
    data.extend(first.to_be_bytes());
    data.extend(count.to_be_bytes());
    data.extend([0; 4]);
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x42, 24);
    Ok(Command { cdb, data, reads: 0 })
}

fn blocks((offset, length): (u64, u64)) -> Result<(u64, u32)> {
    let is_whole = offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES);
    ensure!(is_whole, "{length} bytes at {offset} are no blocks");
    Ok((offset / BLOCK_BYTES, u32::try_from(length / BLOCK_BYTES)?))
}
