//! A device that is memory: sparse, gone with the process, as durable as nothing.
//!
//! Invariants: 1. memory is used for chunks that were written, not for the length; 2. a discarded
//! chunk is freed and reads as zeros.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};

use parking_lot::RwLock;

use crate::{BlockDevice, DeviceError, DeviceErrorKind, Operation, Result};

/// Bytes of a chunk: large enough to keep the index small, small enough to be sparse.
const CHUNK_BYTES: u64 = 64 << 10;

/// A device in memory.
pub struct MemoryDevice {
    chunks: RwLock<BTreeMap<u64, Box<[u8]>>>,
    len_bytes: u64,
}

impl MemoryDevice {
    /// An empty device of `len_bytes`, all zeros.
    #[must_use]
    pub fn new(len_bytes: u64) -> MemoryDevice {
        MemoryDevice { chunks: RwLock::default(), len_bytes }
    }

    fn check(&self, operation: Operation, offset: u64, length_bytes: u64) -> Result<()> {
        if offset.checked_add(length_bytes).is_some_and(|end| end <= self.len_bytes) {
            return Ok(());
        }
        let source = io::Error::new(io::ErrorKind::InvalidInput, "beyond the end of the memory");
        let (kind, device) = (DeviceErrorKind::OutOfRange, self.describe());
        Err(DeviceError { kind, operation, offset, length_bytes, device, source })
    }
}

/// The part of a range of `left` bytes at `position` within one chunk: chunk number, offset in it,
/// bytes.
fn part(position: u64, left: usize) -> (u64, usize, usize) {
    let within = position % CHUNK_BYTES;
    let room = usize::try_from(CHUNK_BYTES - within).expect("at most a chunk");
    (position / CHUNK_BYTES, usize::try_from(within).expect("within a chunk"), room.min(left))
}

fn empty_chunk() -> Box<[u8]> {
    vec![0; usize::try_from(CHUNK_BYTES).expect("a chunk fits in memory")].into_boxed_slice()
}

impl BlockDevice for MemoryDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let chunks = self.chunks.read();
        let mut done = 0;
        while done < buffer.len() {
            let (number, within, take) = part(offset + done as u64, buffer.len() - done);
            match chunks.get(&number) {
                Some(chunk) => {
                    buffer[done..done + take].copy_from_slice(&chunk[within..within + take]);
                }
                None => buffer[done..done + take].fill(0),
            }
            done += take;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        self.check(Operation::Write, offset, length_bytes)?;
        let mut chunks = self.chunks.write();
        let mut position = offset;
        for slice in slices {
            let mut done = 0;
            while done < slice.len() {
                let (number, within, take) = part(position, slice.len() - done);
                let chunk = chunks.entry(number).or_insert_with(empty_chunk);
                chunk[within..within + take].copy_from_slice(&slice[done..done + take]);
                done += take;
                position += take as u64;
            }
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
        let (first, end) = (offset.div_ceil(CHUNK_BYTES), (offset + length_bytes) / CHUNK_BYTES);
        let mut chunks = self.chunks.write();
        let whole: Vec<u64> = if first < end {
            chunks.range(first..end).map(|(&number, _)| number).collect()
        } else {
            Vec::new()
        };
        for number in whole {
            chunks.remove(&number);
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!("memory {} bytes", self.len_bytes)
    }
}
