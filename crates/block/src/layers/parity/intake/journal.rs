//! The journal: what waits goes there first, and then to its places.
//!
//! Record n lies in slot n mod 2 of every side that is not out. Its flush makes the places of
//! record n-1 durable too, so the slot of n-1 may be written over by n+1.
//!
//! Invariants: 1. no cell of an incomplete stripe is written in place before a record with it, and
//! with the parity of its row, is durable on all sides that are not out; 2. a record that is being
//! placed is not written over; 3. a side that was out gets two records before a flush succeeds.

use std::io::IoSlice;
use std::sync::Arc;

use format::checksum::block_crc;
use format::parity::{CELL_BYTES, Entry, Record};

use crate::layers::parity::draining::{Draining, SLOTS, slot_of};
use crate::layers::parity::layout::Layout;
use crate::slices::is_zero;
use crate::{BlockDevice, Result};

/// Bytes of a pending area that are cleared at a time.
const CLEAR_BYTES: u64 = 256 << 10;

/// What is known of the journal's slots; whoever writes there holds it.
pub struct Journal {
    /// The number of the next record.
    pub sequence: u64,
    /// The epoch in the newest durable record: entries of those before it do not count any more.
    pub recorded: u64,
    /// The newest record if it is durable and has still to be placed.
    pub(super) durable: Option<Arc<Draining>>,
    /// For each side, how often it had been out when it got these records.
    pub(super) got: Vec<(u64, u64)>,
}

/// Sees to it that no entries are in a device's pending areas.
pub(super) fn clear_areas(device: &dyn BlockDevice, layout: &Layout) -> Result<()> {
    let zeros = vec![0; CLEAR_BYTES as usize];
    let mut there = zeros.clone();
    let mut at = layout.area(0);
    while at < layout.journal_bytes() {
        let count = CLEAR_BYTES.min(layout.journal_bytes() - at);
        let there = &mut there[..count as usize];
        let mut is_clear = || device.read_at(at, there).is_ok() && is_zero(there);
        if !device.is_hole(at, count) && !is_clear() {
            device.write_at(at, &[IoSlice::new(&zeros[..count as usize])])?;
        }
        at += count;
    }
    Ok(())
}

/// The entry of cells that follow it.
pub(super) fn entry_of(side: usize, offset: u64, cells: &[u8]) -> Entry {
    Entry {
        offset,
        cells_crc: block_crc(cells),
        cells: u16::try_from(cells.len() / CELL_BYTES).expect("at most 4096 in a chunk"),
        side: u16::try_from(side).expect("few sides"),
    }
}

pub(super) fn record_of(id: u128, sequence: u64, epoch: u64, entries: Vec<Entry>) -> Record {
    Record { id, sequence, epoch, entries, differences: Vec::new() }
}

/// Makes devices the sides of a parity in which nothing was written.
///
/// # Errors
/// Those of the devices.
pub fn format(below: &[Arc<dyn BlockDevice>], layout: Layout, id: u128) -> Result<()> {
    for device in below {
        device.allocate(0, layout.journal_bytes())?;
        clear_areas(&**device, &layout)?;
    }
    for sequence in 1..=SLOTS {
        let record = record_of(id, sequence, 0, Vec::new());
        let at = slot_of(sequence) * layout.slot_bytes;
        let bytes = record.encode(at);
        below.iter().try_for_each(|device| device.write_at(at, &[IoSlice::new(&bytes)]))?;
        below.iter().try_for_each(|device| device.flush())?;
    }
    Ok(())
}

impl Journal {
    pub fn new(sides: usize) -> Journal {
        Journal { sequence: 1, recorded: 0, durable: None, got: vec![(0, 0); sides] }
    }
}
