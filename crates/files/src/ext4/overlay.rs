//! The disk with what the journal holds laid over it. Of a block in the journal its place is kept,
//! not its bytes.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::source::Source;

/// The first bytes of a block that would look like one of the journal's own, and are zeros there.
pub const ESCAPED: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// Where the journal has a block.
#[derive(Clone, Copy, Debug)]
pub struct InJournal {
    /// In bytes of the disk.
    pub at: u64,
    pub is_escaped: bool,
}

/// A disk and blocks over it.
pub struct Overlay {
    pub disk: Rc<dyn Source>,
    pub block_bytes: u64,
    pub blocks: BTreeMap<u64, InJournal>,
}

impl Overlay {
    pub fn read_disk(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.disk.read_at(offset, bytes).map_err(|error| Error::source(offset, error))
    }

    /// Reads bytes at an offset, as they are after recovery.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset.saturating_add(bytes.len() as u64);
        let (first, last) = (offset / self.block_bytes, (end - 1) / self.block_bytes);
        let over: Vec<_> = self.blocks.range(first..=last).map(|(n, over)| (*n, *over)).collect();
        let is_all_over = over.len() as u64 == last - first + 1;
        if !is_all_over {
            self.read_disk(offset, bytes)?;
        }
        for (number, over) in over {
            let start = number * self.block_bytes;
            let from = start.max(offset);
            let to = (start + self.block_bytes).min(end);
            let target = &mut bytes[(from - offset) as usize..(to - offset) as usize];
            self.read_disk(over.at + (from - start), target)?;
            if over.is_escaped {
                let within = (from - start) as usize;
                for (index, byte) in ESCAPED.iter().enumerate().skip(within) {
                    if let Some(target) = target.get_mut(index - within) {
                        *target = *byte;
                    }
                }
            }
        }
        Ok(())
    }

    /// A whole block.
    pub fn block(&self, number: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.block_bytes as usize];
        self.read(number * self.block_bytes, &mut bytes)?;
        Ok(bytes)
    }
}
