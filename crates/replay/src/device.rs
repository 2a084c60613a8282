//! A device in memory that keeps no zeros, so that a trace of payload takes the room of its
//! headers.
//!
//! 1. Reads give what was written: what is not kept is zeros.
//! 2. Memory is by cells of 256 bytes that hold something else.

use std::collections::HashMap;
use std::io::{self, IoSlice};

use block::{BlockDevice, DeviceError, DeviceErrorKind, Operation, Result};
use parking_lot::RwLock;

const CELL_BYTES: usize = 256;

type Cell = Box<[u8; CELL_BYTES]>;

/// The device.
pub(crate) struct HollowDevice {
    cells: RwLock<HashMap<u64, Cell>>,
    len_bytes: u64,
}

impl HollowDevice {
    pub(crate) fn new(len_bytes: u64) -> HollowDevice {
        HollowDevice { cells: RwLock::default(), len_bytes }
    }

    fn check(&self, operation: Operation, offset: u64, length_bytes: u64) -> Result<()> {
        if offset.checked_add(length_bytes).is_some_and(|end| end <= self.len_bytes) {
            return Ok(());
        }
        let source = io::Error::new(io::ErrorKind::InvalidInput, "beyond the end");
        let (kind, device) = (DeviceErrorKind::OutOfRange, self.describe());
        Err(DeviceError { kind, operation, offset, length_bytes, device, source })
    }
}

/// The cell at a place, where in it, and how much of `left` bytes is in it.
fn part(position: u64, left: usize) -> (u64, usize, usize) {
    let within = (position % CELL_BYTES as u64) as usize;
    (position / CELL_BYTES as u64, within, left.min(CELL_BYTES - within))
}

fn write(cells: &mut HashMap<u64, Cell>, offset: u64, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        let (number, within, take) = part(offset + done as u64, bytes.len() - done);
        let piece = &bytes[done..done + take];
        done += take;
        if piece.iter().any(|byte| *byte != 0) {
            let cell = cells.entry(number).or_insert_with(|| Box::new([0; CELL_BYTES]));
            cell[within..within + take].copy_from_slice(piece);
        } else if take == CELL_BYTES {
            cells.remove(&number);
        } else if let Some(cell) = cells.get_mut(&number) {
            cell[within..within + take].fill(0);
        }
    }
}

impl BlockDevice for HollowDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let cells = self.cells.read();
        let mut done = 0;
        while done < buffer.len() {
            let (number, within, take) = part(offset + done as u64, buffer.len() - done);
            match cells.get(&number) {
                Some(cell) => {
                    buffer[done..done + take].copy_from_slice(&cell[within..within + take]);
                }
                None => buffer[done..done + take].fill(0),
            }
            done += take;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|slice| slice.len() as u64).sum();
        self.check(Operation::Write, offset, length_bytes)?;
        let mut cells = self.cells.write();
        let mut at = offset;
        for slice in slices {
            write(&mut cells, at, slice);
            at += slice.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Allocate, offset, length_bytes)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Discard, offset, length_bytes)?;
        let first = offset.div_ceil(CELL_BYTES as u64);
        let end = (offset + length_bytes) / CELL_BYTES as u64;
        let mut cells = self.cells.write();
        if end.saturating_sub(first) > cells.len() as u64 {
            cells.retain(|number, _| !(first..end).contains(number));
        } else {
            (first..end).for_each(|number| drop(cells.remove(&number)));
        }
        Ok(())
    }

    fn describe(&self) -> String {
        "memory without zeros".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use block::BlockDevice;

    use super::{CELL_BYTES, HollowDevice};

    #[test]
    fn reads_give_what_was_written_and_zeros_take_no_room() {
        let device = HollowDevice::new(1 << 20);
        let (ones, zeros) = ([1; 1000], [0; 4096]);
        device.write_at(100, &[IoSlice::new(&ones), IoSlice::new(&zeros)]).unwrap();
        let mut found = [9; 6000];
        device.read_at(0, &mut found).unwrap();
        assert!(found.iter().enumerate().all(|(i, b)| *b == u8::from((100..1100).contains(&i))));
        assert_eq!(device.cells.read().len(), 1100_usize.div_ceil(CELL_BYTES));
        device.write_at(200, &[IoSlice::new(&zeros)]).unwrap();
        device.read_at(0, &mut found).unwrap();
        assert_eq!(found.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 100);
        device.discard(0, 4096).unwrap();
        assert!(device.cells.read().is_empty());
        assert!(device.read_at((1 << 20) - 10, &mut found).is_err());
    }
}
