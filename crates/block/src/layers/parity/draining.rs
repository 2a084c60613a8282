//! A record of the journal with its cells, as it lies in its slot.

use format::parity::{Entry, Record};

use super::layout::Layout;

/// Records that say all there is to say: a slot each.
pub const SLOTS: u64 = 2;

/// The slot of a record.
pub fn slot_of(sequence: u64) -> u64 {
    sequence % SLOTS
}

/// A record with its cells, as it lies in its slot.
pub struct Draining {
    pub record: Record,
    pub bytes: Vec<u8>,
    pub header_bytes: usize,
}

impl Draining {
    pub fn new(record: Record, cells: &[u8], layout: &Layout) -> Draining {
        let mut bytes = record.encode(slot_of(record.sequence) * layout.slot_bytes);
        let header_bytes = bytes.len();
        bytes.extend_from_slice(cells);
        assert!(bytes.len() as u64 <= layout.slot_bytes, "what waits fits a slot");
        Draining { record, bytes, header_bytes }
    }

    /// Every entry with its cells.
    pub fn cells(&self) -> impl Iterator<Item = (&Entry, &[u8])> {
        self.all_cells().take(self.record.entries.len())
    }

    pub fn all_cells(&self) -> impl Iterator<Item = (&Entry, &[u8])> {
        let mut at = self.header_bytes;
        self.record.all().map(move |entry| {
            let cells = &self.bytes[at..at + entry.bytes()];
            at += entry.bytes();
            (entry, cells)
        })
    }

    /// Lays what it has of a range of a side over what was read there.
    pub fn lay_over(&self, side: usize, offset: u64, buffer: &mut [u8]) {
        let end = offset + buffer.len() as u64;
        for (entry, cells) in self.cells() {
            let (from, to) = (entry.offset, entry.offset + cells.len() as u64);
            if usize::from(entry.side) != side || to <= offset || end <= from {
                continue;
            }
            let both = from.max(offset)..to.min(end);
            buffer[(both.start - offset) as usize..(both.end - offset) as usize]
                .copy_from_slice(&cells[(both.start - from) as usize..(both.end - from) as usize]);
        }
    }
}
