//! A checksum of each 4 KiB beside the data, verified at every read: what DARC calls EDC, to set a
//! stack with it beside one without. **Of the laboratory alone**: a pool has its checksums in the
//! map and has no such layer.
//!
//! The table is in memory. A flush writes its pages to a range of their own behind the data, over
//! all members. They are never read: a rig is made anew for each run, so there is no opening, and
//! no crash after which data and table would have to agree. Where all copies agree against a
//! checksum, the checksum is taken for wrong, as in the paper's Fig. 4; no pool does that.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block::{BlockDevice, DeviceError, DeviceErrorKind, Operation, Outcome, Result};
use format::checksum::block_crc;
use parking_lot::RwLock;

const BLOCK: u64 = 4096;
/// Blocks under one lock: a chunk of the paper's stripes.
const GROUP_BLOCKS: usize = 16;
const GROUP: u64 = GROUP_BLOCKS as u64 * BLOCK;
/// Groups whose checksums, of four bytes each, fill a page of the table.
const PAGE_GROUPS: usize = BLOCK as usize / (GROUP_BLOCKS * 4);

/// Checksums of the blocks of a group; none of those that were never written.
type Group = [Option<u32>; GROUP_BLOCKS];

/// A device with a table of checksums.
pub struct CheckedDevice {
    below: Arc<dyn BlockDevice>,
    groups: Vec<RwLock<Group>>,
    /// Pages of the table that are not written as they are.
    changed: Vec<AtomicBool>,
    recovered: AtomicU64,
}

/// The number of a block in its group.
fn within(at: u64) -> usize {
    (at % GROUP / BLOCK) as usize
}

/// The whole blocks that a range touches.
fn whole(part: &Range<u64>) -> Range<u64> {
    part.start / BLOCK * BLOCK..part.end.next_multiple_of(BLOCK)
}

fn is_right(known: Option<u32>, block: &[u8]) -> bool {
    known.is_none_or(|known| known == block_crc(block))
}

impl CheckedDevice {
    /// The device over another one, on which nothing was written.
    #[must_use]
    pub fn new(below: Arc<dyn BlockDevice>) -> CheckedDevice {
        // Each page of the table takes its own room beside that of its blocks.
        let pages = below.len_bytes() / (PAGE_GROUPS as u64 * GROUP + BLOCK);
        let groups = (0..pages * PAGE_GROUPS as u64).map(|_| RwLock::default()).collect();
        let changed = (0..pages).map(|_| AtomicBool::new(false)).collect();
        CheckedDevice { below, groups, changed, recovered: AtomicU64::new(0) }
    }

    /// How many checksums were taken for wrong, as all copies agreed against them.
    #[must_use]
    pub fn checksums_recovered(&self) -> u64 {
        self.recovered.load(Ordering::Relaxed)
    }

    fn error(&self, kind: DeviceErrorKind, operation: Operation, range: Range<u64>) -> DeviceError {
        let (offset, length_bytes) = (range.start, range.end - range.start);
        let source = io::Error::from(io::ErrorKind::InvalidData);
        DeviceError { kind, operation, offset, length_bytes, device: self.describe(), source }
    }

    /// The parts of a range that lie in one group each.
    fn parts(
        &self,
        operation: Operation,
        offset: u64,
        length: usize,
    ) -> Result<impl Iterator<Item = Range<u64>> + use<>> {
        let end = offset.saturating_add(length as u64);
        if end > self.len_bytes() {
            return Err(self.error(DeviceErrorKind::OutOfRange, operation, offset..end));
        }
        let groups = offset / GROUP..end.div_ceil(GROUP);
        Ok(groups.map(move |n| offset.max(n * GROUP)..end.min((n + 1) * GROUP)))
    }

    fn group(&self, at: u64) -> &RwLock<Group> {
        &self.groups[(at / GROUP) as usize]
    }

    /// Reads whole blocks of one group.
    fn read_blocks(&self, start: u64, blocks: &mut [u8]) -> Result<()> {
        {
            let group = self.group(start).read();
            self.below.read_at(start, blocks)?;
            let mut pairs = group[within(start)..].iter().zip(blocks.chunks_exact(4096));
            if pairs.all(|(known, block)| is_right(*known, block)) {
                return Ok(());
            }
        }
        self.recover(&mut self.group(start).write(), start, blocks)
    }

    /// Reads whole blocks with their group alone; what is wrong is recovered (Fig. 4).
    fn recover(&self, group: &mut Group, start: u64, blocks: &mut [u8]) -> Result<()> {
        self.below.read_at(start, blocks)?;
        for (at, block) in (start..).step_by(4096).zip(blocks.chunks_exact_mut(4096)) {
            let known = &mut group[within(at)];
            if is_right(*known, block) {
                continue;
            }
            let said = RefCell::new(Vec::new());
            let right = |bytes: &[u8]| {
                said.replace(bytes.to_vec());
                is_right(*known, bytes)
            };
            match self.below.heal(at, block, &right)? {
                Outcome::Recovered | Outcome::Transient => {}
                Outcome::Agreed => {
                    block.copy_from_slice(&said.take());
                    *known = Some(block_crc(block));
                    self.note(at);
                    self.recovered.fetch_add(1, Ordering::Relaxed);
                }
                Outcome::Unrecoverable => {
                    let range = at..at + BLOCK;
                    return Err(self.error(DeviceErrorKind::Corrupt, Operation::Read, range));
                }
            }
        }
        Ok(())
    }

    /// Notes that a block's checksum changed: the next flush writes it.
    fn note(&self, at: u64) {
        let page = (at / GROUP) as usize / PAGE_GROUPS;
        self.changed[page].store(true, Ordering::Release);
    }

    fn write_part(&self, part: &Range<u64>, bytes: &[u8]) -> Result<()> {
        let whole = whole(part);
        let mut group = self.group(part.start).write();
        let mut joined = Vec::new();
        let blocks = if whole == *part {
            bytes
        } else {
            joined.resize((whole.end - whole.start) as usize, 0);
            self.recover(&mut group, whole.start, &mut joined)?;
            let from = (part.start - whole.start) as usize;
            joined[from..from + bytes.len()].copy_from_slice(bytes);
            &joined
        };
        self.below.write_at(whole.start, &[IoSlice::new(blocks)])?;
        for (known, block) in group[within(whole.start)..].iter_mut().zip(blocks.chunks_exact(4096))
        {
            *known = Some(block_crc(block));
        }
        self.note(part.start);
        Ok(())
    }
}

impl BlockDevice for CheckedDevice {
    fn len_bytes(&self) -> u64 {
        self.groups.len() as u64 * GROUP
    }

    fn read_at(&self, offset: u64, mut buffer: &mut [u8]) -> Result<()> {
        for part in self.parts(Operation::Read, offset, buffer.len())? {
            let (bytes, rest) = buffer.split_at_mut((part.end - part.start) as usize);
            buffer = rest;
            let whole = whole(&part);
            if whole == part {
                self.read_blocks(part.start, bytes)?;
                continue;
            }
            let mut joined = vec![0; (whole.end - whole.start) as usize];
            self.read_blocks(whole.start, &mut joined)?;
            bytes.copy_from_slice(&joined[(part.start - whole.start) as usize..][..bytes.len()]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let joined = match slices {
            [one] => Cow::Borrowed(&**one),
            many => Cow::Owned(many.iter().flat_map(|slice| slice.iter().copied()).collect()),
        };
        for part in self.parts(Operation::Write, offset, joined.len())? {
            let bytes = (part.start - offset) as usize..(part.end - offset) as usize;
            self.write_part(&part, &joined[bytes])?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        for (number, changed) in self.changed.iter().enumerate() {
            if !changed.swap(false, Ordering::AcqRel) {
                continue;
            }
            let groups = &self.groups[number * PAGE_GROUPS..(number + 1) * PAGE_GROUPS];
            let known = groups.iter().flat_map(|group| *group.read());
            let page: Vec<u8> = known.flat_map(|k| k.unwrap_or_default().to_le_bytes()).collect();
            let at = self.len_bytes() + number as u64 * BLOCK;
            self.below.write_at(at, &[IoSlice::new(&page)])?;
        }
        self.below.flush()
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.below.allocate(offset, length_bytes)
    }

    /// Keeps what is there: the paper's device knows no discards.
    fn discard(&self, _offset: u64, _length_bytes: u64) -> Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        format!("checked({})", self.below.describe())
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::Arc;

    use block::{BlockDevice, DeviceErrorKind, MemoryDevice};

    use super::{BLOCK, CheckedDevice, GROUP};

    #[test]
    fn what_was_written_is_read_and_what_is_wrong_is_an_error() {
        let below = Arc::new(MemoryDevice::new(9 << 20));
        let device = CheckedDevice::new(Arc::<MemoryDevice>::clone(&below) as _);
        let len = device.len_bytes();
        assert!(len >= 8 << 20 && len + len / 1024 <= 9 << 20, "{len}");
        let mut model = vec![0; len as usize];
        for n in 0..300_u64 {
            let at = n * 7_919 * 13 % (len - 100_000);
            let bytes = vec![(n % 255) as u8 + 1; (n * 331 % 100_000) as usize];
            device.write_at(at, &[IoSlice::new(&bytes)]).expect("written");
            model[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        }
        let mut found = vec![0; model.len()];
        device.read_at(0, &mut found).expect("read");
        assert!(found == model);
        device.read_at(GROUP - 700, &mut found[..1500]).expect("read");
        assert!(found[..1500] == model[GROUP as usize - 700..][..1500]);
        device.flush().expect("flushed");
        let mut table = vec![0; 4096];
        below.read_at(len, &mut table).expect("read");
        let first = format::checksum::block_crc(&model[..4096]);
        assert_eq!(table[..4], first.to_le_bytes(), "the table is there");
        below.write_at(5 * BLOCK + 9, &[IoSlice::new(b"other")]).expect("written");
        let error = device.read_at(5 * BLOCK, &mut found[..100]).expect_err("one copy, and wrong");
        assert_eq!((error.kind, error.offset), (DeviceErrorKind::Corrupt, 5 * BLOCK));
        device.read_at(6 * BLOCK, &mut found[..100]).expect("its neighbour is right");
        let error = device.read_at(len - 1, &mut [0; 2]).expect_err("beyond");
        assert_eq!(error.kind, DeviceErrorKind::OutOfRange);
    }
}
