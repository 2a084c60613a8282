//! The disk with what the log holds laid over it, block by block. The log has changes of parts of
//! blocks, so whole blocks are kept here, and not their places in the log.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::source::Source;

/// Blocks that the log may change, in bytes.
pub const OVERLAY_BYTES_MAX: u64 = 256 << 20;

/// A disk and blocks over it.
pub struct Overlay {
    pub disk: Rc<dyn Source>,
    pub block_bytes: u64,
    pub blocks: BTreeMap<u64, Vec<u8>>,
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
        if self.blocks.range(first..=last).count() as u64 != last - first + 1 {
            self.read_disk(offset, bytes)?;
        }
        for (number, block) in self.blocks.range(first..=last) {
            let start = number * self.block_bytes;
            let (from, to) = (start.max(offset), (start + self.block_bytes).min(end));
            let target = &mut bytes[(from - offset) as usize..(to - offset) as usize];
            target.copy_from_slice(&block[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    /// So many bytes at an offset.
    pub fn get(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Lays bytes over the disk.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        let mut at = offset;
        while !rest.is_empty() {
            let (number, within) = (at / self.block_bytes, (at % self.block_bytes) as usize);
            if !self.blocks.contains_key(&number) {
                if self.blocks.len() as u64 * self.block_bytes >= OVERLAY_BYTES_MAX {
                    let mib = OVERLAY_BYTES_MAX >> 20;
                    return Err(Error::limit(format!("the log changes more than {mib} MiB")));
                }
                let block = self.get(number * self.block_bytes, self.block_bytes as usize)?;
                self.blocks.insert(number, block);
            }
            let length = rest.len().min(self.block_bytes as usize - within);
            if let Some(block) = self.blocks.get_mut(&number) {
                block[within..within + length].copy_from_slice(&rest[..length]);
            }
            (rest, at) = (&rest[length..], at + length as u64);
        }
        Ok(())
    }
}
