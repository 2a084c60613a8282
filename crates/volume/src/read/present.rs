//! Reading the present: what waits in the cache or was kept there, then the present's map.

use std::ops::Range;
use std::sync::atomic::Ordering;

use units::BLOCK_BYTES;

use crate::types::{Extent, Wait};
use crate::volume::stream::Stream;
use crate::write::cache::Cache;
use crate::{ErrorKind, Result};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Runs of so many blocks are read past the cache: a scan would drive out what is read again.
const PASSING_BLOCKS: usize = 16;

impl Stream {
    /// Fills `buffer` from `offset` of the present.
    ///
    /// # Errors
    /// `OutOfBounds`, `Corrupt`, `Io`.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_with(offset, buffer, Wait::Device).map(|_| ())
    }

    /// Reads if nothing has to wait for a device; `Ok(false)` means "would wait".
    ///
    /// # Errors
    /// Those of [`Stream::read`].
    pub fn try_read(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.read_with(offset, buffer, Wait::Never)
    }

    fn read_with(&self, offset: u64, buffer: &mut [u8], wait: Wait) -> Result<bool> {
        self.check_there()?;
        let outcome = match self.cache().is_on() {
            true => self.read_cached(offset, buffer, wait),
            false => self.present().read(offset, buffer, wait),
        };
        match &outcome {
            Ok(true) => {
                self.tally().reads.fetch_add(1, Ordering::Relaxed);
                self.tally().read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            }
            Err(e) if e.kind == ErrorKind::Corrupt => {
                self.tally().checksum_errors.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        outcome
    }

    /// Data and holes of the present from `offset`, joined, at most `limit` of them.
    ///
    /// # Errors
    /// `OutOfBounds`, `Corrupt`, `Io`.
    pub fn extents(&self, offset: u64, length_bytes: u64, limit: usize) -> Result<Vec<Extent>> {
        if !self.cache().is_on() {
            return self.present().extents(offset, length_bytes, limit);
        }
        let first = offset / BLOCK_BYTES;
        let end = offset.saturating_add(length_bytes).div_ceil(BLOCK_BYTES);
        // Before the map is asked: what is destaged meanwhile is in one or the other.
        let waiting = self.cache().waiting_in(first, end);
        let present = self.present();
        let logged = present.extents(offset, length_bytes, limit)?;
        if waiting.is_empty() {
            return Ok(logged);
        }
        let mut all = Cache::overlay(&waiting, &logged, present.size_bytes);
        all.truncate(limit);
        Ok(all)
    }

    /// Reads through the cache; `Ok(false)` when that would have had to wait.
    pub(crate) fn read_cached(&self, offset: u64, buffer: &mut [u8], wait: Wait) -> Result<bool> {
        self.present().check_range(offset, buffer.len() as u64)?;
        if buffer.is_empty() {
            return Ok(true);
        }
        let first = offset / BLOCK_BYTES;
        let end = (offset + buffer.len() as u64).div_ceil(BLOCK_BYTES);
        let missing = self.cache().look_up(first, (end - first) as usize, |index, bytes| {
            lay(buffer, offset, (first + index as u64) * BLOCK_BYTES, bytes);
        });
        // Only now: what a revert made stale was forgotten after it had set the present.
        let present = self.present();
        let mut skip = 0;
        for &(block, count) in &missing.runs {
            let start = block * BLOCK_BYTES;
            let end = start + (count * BLOCK) as u64;
            if count >= PASSING_BLOCKS {
                let from = start.max(offset);
                let to = end.min(offset + buffer.len() as u64);
                let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
                if !present.read(from, part, wait)? {
                    return Ok(false);
                }
                self.cache().passed(&missing, skip, count);
            } else {
                let mut bytes = vec![0; count * BLOCK];
                let there = present.size_bytes.saturating_sub(start).min(end - start) as usize;
                if !present.read(start, &mut bytes[..there], wait)? {
                    return Ok(false);
                }
                lay(buffer, offset, start, &bytes);
                self.cache().keep(&missing, skip, block, &bytes);
            }
            skip += count;
        }
        Ok(true)
    }
}

/// Copies the part of `bytes`, which begin at byte `start` of the volume, that lies in `buffer`,
/// which begins at `offset`.
fn lay(buffer: &mut [u8], offset: u64, start: u64, bytes: &[u8]) {
    let from = start.max(offset);
    let to = (start + bytes.len() as u64).min(offset + buffer.len() as u64);
    let range = |base: u64| -> Range<usize> { (from - base) as usize..(to - base) as usize };
    buffer[range(offset)].copy_from_slice(&bytes[range(start)]);
}
