//! The mirror: the same bytes on each of several devices (RAID-1; over or under a stripe, RAID-10).
//!
//! Invariants
//! 1. A write or flush is answered when every side has it that is not out; a side that failed it is
//!    put out, durably, before the answer.
//! 2. Only sides that are in are read. While what a crash left is not settled it is one side, the
//!    first, so that no reader sees two answers.
//! 3. One side is written from another only under the range's gate, so never with what is older
//!    than a write that was answered.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::gates::Gates;
use super::sides::{Setting, Side, Sides, Standing};
use crate::heal::{self, Copies, Outcome, Right};
use crate::slices::is_zero;
use crate::{BlockDevice, DeviceError, DeviceErrorKind, Operation, Result, Resync};

/// Bytes that are read alone where a read of more failed.
const BLOCK_BYTES: u64 = 4096;
/// Bytes copied at a time from one side to another.
const COPY_BYTES: usize = 256 << 10;
/// Reads that wait for nothing else go to one side for this many bytes, then to the next, as a
/// power of two.
const TURN_SHIFT: u32 = 20;

/// Several devices with the same content.
pub struct MirrorDevice {
    sides: Sides,
    reads_in_flight: Vec<AtomicUsize>,
    /// Those who use it with a side less, and with one more, share them.
    gates: Arc<Gates>,
    len_bytes: u64,
}

impl MirrorDevice {
    /// A mirror of sides, as long as the shortest.
    #[must_use]
    pub fn new(sides: Vec<Side>, setting: Setting) -> MirrorDevice {
        let reads_in_flight = sides.iter().map(|_| AtomicUsize::new(0)).collect();
        let gates = Arc::new(Gates::at_depth(setting.depth));
        let sides = Sides::new("mirror", sides, setting);
        let len_bytes = sides.len_bytes();
        MirrorDevice { sides, reads_in_flight, gates, len_bytes }
    }

    /// The same with another side, which is as long at least. A request under way
    /// here goes on: neither mirror writes data that the other would have to know of.
    pub(crate) fn with_side(&self, side: Side) -> MirrorDevice {
        assert!(side.device.len_bytes() >= self.len_bytes, "the mirror keeps its length");
        MirrorDevice {
            sides: self.sides.with(side),
            reads_in_flight: (0..=self.sides.count()).map(|_| AtomicUsize::new(0)).collect(),
            gates: Arc::clone(&self.gates),
            len_bytes: self.len_bytes,
        }
    }

    fn none_is_in(&self, range: (u64, u64)) -> DeviceError {
        self.sides.error(Operation::Read, range, "no side is in")
    }

    /// The side to read from: the first while something is unsettled, else the one with the fewest
    /// reads in flight, and among those the one whose turn it is.
    fn choose(&self, offset: u64) -> Option<usize> {
        if self.sides.are_unsettled() {
            return self.sides.all_in().next();
        }
        let count = self.sides.count();
        let turn = (offset >> TURN_SHIFT) as usize % count;
        let from_turn = (0..count).map(|n| (turn + n) % count);
        from_turn
            .filter(|&side| self.sides.is_in(side))
            .min_by_key(|&side| self.reads_in_flight[side].load(Ordering::Relaxed))
    }

    /// A read of a side, which keeps others away from it.
    fn counted<T>(&self, side: usize, read: impl FnOnce() -> T) -> T {
        self.reads_in_flight[side].fetch_add(1, Ordering::Relaxed);
        let outcome = read();
        self.reads_in_flight[side].fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    /// Reads from a side if it is in, and stays so.
    fn read_side(&self, side: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if self.counted(side, || self.sides.read(side, offset, buffer))? {
            return Ok(());
        }
        let range = (offset, buffer.len() as u64);
        Err(self.sides.error(Operation::Read, range, "its side was put out"))
    }

    /// Reads from a side other than the one that failed, and writes what it says over the other.
    fn read_elsewhere(
        &self,
        failed: usize,
        failure: DeviceError,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        self.sides.note_failed_read(failed, &failure);
        let _alone = self.gates.take(offset, buffer.len() as u64);
        let others: Vec<usize> = self.sides.all_in().filter(|&side| side != failed).collect();
        for side in others {
            if self.read_side(side, offset, buffer).is_err() {
                continue;
            }
            if self.sides.is_in(failed) {
                self.write_what_fails(failed, offset, buffer)?;
            }
            return Ok(());
        }
        Err(failure)
    }

    /// Writes what another side said over the blocks that a side still cannot give, and over no
    /// others: what is wrong of them on the other one, their owner knows alone.
    fn write_what_fails(&self, number: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut there = [0; BLOCK_BYTES as usize];
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let count = (BLOCK_BYTES - at % BLOCK_BYTES).min((bytes.len() - done) as u64) as usize;
            if self.sides.device(number).read_at(at, &mut there[..count]).is_err() {
                self.sides.write_over(number, at, &bytes[done..done + count])?;
            }
            done += count;
        }
        Ok(())
    }

    /// Copies a range from the first side that is in to others, by way of a buffer as long as it;
    /// the caller holds its gate.
    fn copy(&self, offset: u64, source: &mut [u8], which: Resync) -> Result<()> {
        let from = self.read_first(offset, source)?;
        for number in 0..self.sides.count() {
            let device = self.sides.device(number);
            let wanted = match self.sides.standing(number) {
                Standing::Out | Standing::Spare => false,
                Standing::Stale => true,
                Standing::In => which == Resync::All && number != from,
            };
            // Of one that is stale most is to be written: what is there is looked at only where a
            // hole may stay one.
            let is_zero = is_zero(source);
            let is_looked_at = which == Resync::All || is_zero;
            let is_hole = || is_zero && device.is_hole(offset, source.len() as u64);
            let is_there = || is_hole() || reads(device, offset, source);
            if !wanted || is_looked_at && is_there() {
                continue;
            }
            self.sides.write(number, offset, source)?;
        }
        Ok(())
    }

    /// Reads from the first side that is in and can; which one that is.
    fn read_first(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut failure = None;
        for side in self.sides.all_in() {
            match self.counted(side, || self.sides.read_or_hole(side, offset, buffer)) {
                Ok(true) => return Ok(side),
                Ok(false) => {}
                Err(error) => failure = Some(error),
            }
        }
        let range = (offset, buffer.len() as u64);
        Err(failure.unwrap_or_else(|| self.none_is_in(range)))
    }
}

/// Whether a device can be read and says just this.
fn reads(device: &dyn BlockDevice, offset: u64, expected: &[u8]) -> bool {
    let mut there = vec![0; expected.len()];
    device.read_at(offset, &mut there).is_ok() && there == expected
}

impl BlockDevice for MirrorDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let range = (offset, buffer.len() as u64);
        self.check(Operation::Read, range.0, range.1)?;
        let Some(side) = self.choose(offset) else {
            return Err(self.none_is_in(range));
        };
        match self.read_side(side, offset, buffer) {
            Err(failure) if failure.kind == DeviceErrorKind::Io => {
                self.read_elsewhere(side, failure, offset, buffer)
            }
            other => other,
        }
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let Some(side) = self.choose(offset) else { return Ok(false) };
        Ok(self.sides.try_read(side, offset, buffer))
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        self.check(Operation::Write, offset, length_bytes)?;
        let _shared = self.gates.share(offset, length_bytes);
        let range = (offset, length_bytes);
        self.sides.ask_all(Operation::Write, range, |side| side.write_at(offset, slices))
    }

    fn flush(&self) -> Result<()> {
        self.sides.flush()
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Allocate, offset, length_bytes)?;
        let range = (offset, length_bytes);
        let allocate = |side: &dyn BlockDevice| side.allocate(offset, length_bytes);
        self.sides.ask_all(Operation::Allocate, range, allocate)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Discard, offset, length_bytes)?;
        let _shared = self.gates.share(offset, length_bytes);
        let range = (offset, length_bytes);
        let discard = |side: &dyn BlockDevice| side.discard(offset, length_bytes);
        self.sides.ask_all(Operation::Discard, range, discard)
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        self.check(Operation::Write, offset, length_bytes)?;
        let _shared = self.gates.share(offset, length_bytes);
        let range = (offset, length_bytes);
        let write = |side: &dyn BlockDevice| side.write_durable(offset, slices);
        self.sides.ask_together(Operation::Write, range, write)
    }

    fn copies(&self, _offset: u64, _length_bytes: u64) -> usize {
        self.sides.all_in().count().max(1)
    }

    fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let range = (offset, buffer.len() as u64);
        self.check(Operation::Read, range.0, range.1)?;
        let last = self.sides.all_in().count().saturating_sub(1);
        match self.sides.all_in().nth(copy.min(last)) {
            Some(side) => self.read_side(side, offset, buffer),
            None => Err(self.none_is_in(range)),
        }
    }

    fn ways(&self) -> usize {
        self.sides.all_in().map(|side| self.sides.device(side).ways()).sum::<usize>().max(1)
    }

    fn read_way(&self, mut way: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let range = (offset, buffer.len() as u64);
        self.check(Operation::Read, range.0, range.1)?;
        for side in self.sides.all_in() {
            let device = self.sides.device(side);
            let stays_in = self.sides.stays_in(side);
            let ways = device.ways();
            if way < ways {
                device.read_way(way, offset, buffer)?;
                if stays_in() {
                    return Ok(());
                }
                break;
            }
            way -= ways;
        }
        let text = "the side of this way is not in";
        Err(self.sides.error(Operation::Read, range, text))
    }

    fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let _alone = self.gates.take(offset, buffer.len() as u64);
        let sides: Vec<usize> = self.sides.all_in().collect();
        let copies = Copies {
            count: sides.len(),
            read: &|copy, buffer| self.read_side(sides[copy], offset, buffer),
            write_back: &|copy, bytes| self.sides.write_over(sides[copy], offset, bytes),
        };
        heal::settle(&copies, buffer, right, self.sides.ledger())
    }

    fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()> {
        self.check(Operation::Write, offset, length_bytes)?;
        let mut done = 0;
        if !matches!(which, Resync::Stale | Resync::All) {
            let below = |side| self.sides.device(side).resync(offset, length_bytes, which);
            return (0..self.sides.count()).try_for_each(below);
        }
        let mut buffer = vec![0; COPY_BYTES.min(length_bytes as usize)];
        while done < length_bytes {
            let at = offset + done;
            let count = (length_bytes - done).min(COPY_BYTES as u64);
            let _alone = self.gates.take(at, count);
            for side in 0..self.sides.count() {
                if self.sides.standing(side) != Standing::Out {
                    self.sides.device(side).resync(at, count, which)?;
                }
            }
            self.copy(at, &mut buffer[..count as usize], which)?;
            done += count;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        self.sides.describe()
    }
}
