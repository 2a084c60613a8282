//! The mirror: the same bytes on each of several devices (RAID-1; over or under a stripe, RAID-10).
//!
//! Invariants
//! 1. A write or flush is answered when every side has it that is not out; a side that failed it is
//!    put out, durably, before the answer.
//! 2. Only sides that are in are read. While what a crash left is not settled it is one side, the
//!    first, so that no reader sees two answers.
//! 3. One side is written from another only under the range's gate, so never with what is older
//!    than a write that was answered.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::gates::Gates;
use crate::heal::{self, Copies, Ledger, Outcome, Right};
use crate::together::ask_all;
use crate::zeros::is_zero;
use crate::{
    BlockDevice, DeviceError, DeviceErrorKind, InTurn, Operation, Result, Resync, Together,
};

/// Bytes that are read alone where a read of more failed.
const BLOCK_BYTES: u64 = 4096;
/// Bytes copied at a time from one side to another.
const COPY_BYTES: usize = 256 << 10;
/// Reads that wait for nothing else go to one side for this many bytes, then to the next, as a
/// power of two.
const TURN_SHIFT: u32 = 20;

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has everything.
    In,
    /// It gets what is written, and is brought up to date meanwhile; it is not read.
    Stale,
    /// It is not there, or failed.
    Out,
}

/// Who knows how members stand and can put one out.
pub trait Keeper: Send + Sync {
    /// How the worst of these members stands.
    fn standing(&self, members: &[usize]) -> Standing;
    /// Puts out the members that a request failed on, durably.
    ///
    /// # Errors
    /// When too little would be left, or that could not be written: the request fails with it.
    fn put_out(&self, members: &[usize], failure: &DeviceError) -> Result<()>;
    /// Notes a read that failed and that another member answered.
    fn note_failed_read(&self, members: &[usize], failure: &DeviceError);
    /// How often any of these members was put out since the array was opened: counted when they
    /// are out, and before another device is in their place. What is there after that may be
    /// another device, or one that missed something.
    fn absences(&self, members: &[usize]) -> u64;
    /// Whether there is what a crash left that is not settled.
    fn is_unsettled(&self) -> bool;
}

/// A side of a mirror.
#[derive(Clone)]
pub struct Side {
    /// What it is written to.
    pub device: Arc<dyn BlockDevice>,
    /// The members that it is made of.
    pub members: Vec<usize>,
}

/// Several devices with the same content.
pub struct MirrorDevice {
    sides: Vec<Side>,
    reads_in_flight: Vec<AtomicUsize>,
    keeper: Arc<dyn Keeper>,
    ledger: Arc<Ledger>,
    /// Those who use it with a side less, and with one more, share them.
    gates: Arc<Gates>,
    len_bytes: u64,
    together: Arc<dyn Together>,
}

impl MirrorDevice {
    /// A mirror of sides, as long as the shortest.
    #[must_use]
    pub fn new(sides: Vec<Side>, keeper: Arc<dyn Keeper>, ledger: Arc<Ledger>) -> MirrorDevice {
        let len_bytes = sides.iter().map(|s| s.device.len_bytes()).min().expect("several sides");
        let reads_in_flight = sides.iter().map(|_| AtomicUsize::new(0)).collect();
        let (gates, together) = (Arc::new(Gates::at_depth(0)), Arc::new(InTurn));
        MirrorDevice { sides, reads_in_flight, keeper, ledger, gates, len_bytes, together }
    }

    /// The same, whose sides are asked in this way for what each takes its time for.
    #[must_use]
    pub fn asked(self, together: Arc<dyn Together>) -> MirrorDevice {
        MirrorDevice { together, ..self }
    }

    /// The same, so deep in a stack.
    #[must_use]
    pub(crate) fn at_depth(self, depth: usize) -> MirrorDevice {
        MirrorDevice { gates: Arc::new(Gates::at_depth(depth)), ..self }
    }

    /// The same with another side, which is as long at least. A request under way
    /// here goes on: neither mirror writes data that the other would have to know of.
    pub(crate) fn with_side(&self, side: Side) -> MirrorDevice {
        assert!(side.device.len_bytes() >= self.len_bytes, "the mirror keeps its length");
        let sides: Vec<Side> = self.sides.iter().cloned().chain([side]).collect();
        MirrorDevice {
            reads_in_flight: sides.iter().map(|_| AtomicUsize::new(0)).collect(),
            sides,
            keeper: Arc::clone(&self.keeper),
            ledger: Arc::clone(&self.ledger),
            gates: Arc::clone(&self.gates),
            len_bytes: self.len_bytes,
            together: Arc::clone(&self.together),
        }
    }

    fn standing(&self, side: usize) -> Standing {
        self.keeper.standing(&self.sides[side].members)
    }

    fn sides_in(&self) -> impl Iterator<Item = usize> {
        (0..self.sides.len()).filter(|&side| self.standing(side) == Standing::In)
    }

    fn error(
        &self,
        operation: Operation,
        (offset, length_bytes): (u64, u64),
        kind: DeviceErrorKind,
        text: &str,
    ) -> DeviceError {
        let source = match kind {
            DeviceErrorKind::OutOfRange => io::Error::new(io::ErrorKind::InvalidInput, text),
            _ => io::Error::other(text.to_owned()),
        };
        let device = self.describe();
        DeviceError { kind, operation, offset, length_bytes, device, source }
    }

    fn check(&self, operation: Operation, offset: u64, length_bytes: u64) -> Result<()> {
        if offset.checked_add(length_bytes).is_some_and(|end| end <= self.len_bytes) {
            return Ok(());
        }
        let kind = DeviceErrorKind::OutOfRange;
        Err(self.error(operation, (offset, length_bytes), kind, "beyond the end"))
    }

    /// Asks every side that is not out; those that fail are put out if one that is in did not.
    fn ask_all(
        &self,
        operation: Operation,
        range: (u64, u64),
        together: &dyn Together,
        request: impl Fn(&dyn BlockDevice) -> Result<()> + Sync,
    ) -> Result<()> {
        let ask = |number: usize| {
            let standing = self.standing(number);
            let is_asked = standing != Standing::Out;
            is_asked.then(|| (standing, request(&*self.sides[number].device)))
        };
        let mut answers = Answers::default();
        if together.is_in_turn() {
            for (number, side) in self.sides.iter().enumerate() {
                answers.take(operation, side, ask(number))?;
            }
        } else {
            let all = ask_all(together, self.sides.len(), ask);
            for (side, answer) in self.sides.iter().zip(all) {
                answers.take(operation, side, answer)?;
            }
        }
        let Answers { done, failures } = answers;
        if done == 0 {
            let none = || self.error(operation, range, DeviceErrorKind::Io, "no side is in");
            return Err(failures.into_iter().next().map_or_else(none, |(_, error)| error));
        }
        failures.iter().try_for_each(|(side, error)| self.keeper.put_out(&side.members, error))
    }

    /// The side to read from: the first while something is unsettled, else the one with the fewest
    /// reads in flight, and among those the one whose turn it is.
    fn choose(&self, offset: u64) -> Option<usize> {
        if self.keeper.is_unsettled() {
            return self.sides_in().next();
        }
        let count = self.sides.len();
        let turn = (offset >> TURN_SHIFT) as usize % count;
        let from_turn = (0..count).map(|n| (turn + n) % count);
        from_turn
            .filter(|&side| self.standing(side) == Standing::In)
            .min_by_key(|&side| self.reads_in_flight[side].load(Ordering::Relaxed))
    }

    fn read_side(&self, side: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let range = (offset, buffer.len() as u64);
        self.ask_side(side, range, |device| device.read_at(offset, buffer))
    }

    /// Reads from a side if it is in, and stays so: another device may take its place before the
    /// read gets there.
    fn ask_side(
        &self,
        side: usize,
        range: (u64, u64),
        read: impl FnOnce(&dyn BlockDevice) -> Result<()>,
    ) -> Result<()> {
        let stays_in = self.stays_in(side);
        self.reads_in_flight[side].fetch_add(1, Ordering::Relaxed);
        let outcome = read(&*self.sides[side].device);
        self.reads_in_flight[side].fetch_sub(1, Ordering::Relaxed);
        if outcome.is_err() || stays_in() {
            return outcome;
        }
        Err(self.error(Operation::Read, range, DeviceErrorKind::Io, "its side was put out"))
    }

    /// Says later whether a side was in all the time since now.
    fn stays_in(&self, side: usize) -> impl Fn() -> bool {
        // Counted before it is asked how the side stands, as it is counted after that changes.
        let absences = move || self.keeper.absences(&self.sides[side].members);
        let before = absences();
        let is_in = self.standing(side) == Standing::In;
        move || is_in && absences() == before
    }

    /// Reads from a side other than the one that failed, and writes what it says over the other.
    fn read_elsewhere(
        &self,
        failed: usize,
        failure: DeviceError,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        self.keeper.note_failed_read(&self.sides[failed].members, &failure);
        let _alone = self.gates.take(offset, buffer.len() as u64);
        let others: Vec<usize> = self.sides_in().filter(|&side| side != failed).collect();
        for side in others {
            if self.read_side(side, offset, buffer).is_err() {
                continue;
            }
            if self.standing(failed) == Standing::In {
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
            if self.sides[number].device.read_at(at, &mut there[..count]).is_err() {
                self.write_over(number, at, &bytes[done..done + count])?;
            }
            done += count;
        }
        Ok(())
    }

    /// Writes right bytes over what a side has; one that cannot be written is put out. The caller
    /// holds the gate of the range.
    fn write_over(&self, number: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let side = &self.sides[number];
        match side.device.write_durable(offset, &[IoSlice::new(bytes)]) {
            Err(error) => self.keeper.put_out(&side.members, &error),
            Ok(()) => Ok(()),
        }
    }

    /// Copies a range from the first side that is in to others, by way of a buffer as long as it;
    /// the caller holds its gate.
    fn copy(&self, offset: u64, source: &mut [u8], which: Resync) -> Result<()> {
        let from = self.read_first(offset, source)?;
        for (number, side) in self.sides.iter().enumerate() {
            let wanted = match self.standing(number) {
                Standing::Out => false,
                Standing::Stale => true,
                Standing::In => which == Resync::All && number != from,
            };
            // Of one that is stale most is to be written: what is there is looked at only where a
            // hole may stay one.
            let is_zero = is_zero(source);
            let is_looked_at = which == Resync::All || is_zero;
            let is_hole = || is_zero && side.device.is_hole(offset, source.len() as u64);
            let is_there = || is_hole() || reads(&*side.device, offset, source);
            if !wanted || is_looked_at && is_there() {
                continue;
            }
            match side.device.write_at(offset, &[IoSlice::new(source)]) {
                Err(error) if is_its_fault(Operation::Write, Standing::Stale, &error) => {
                    self.keeper.put_out(&side.members, &error)?;
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Reads from the first side that is in and can; which one that is.
    fn read_first(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut failure = None;
        for side in self.sides_in() {
            let stays_in = self.stays_in(side);
            if self.sides[side].device.is_hole(offset, buffer.len() as u64) && stays_in() {
                buffer.fill(0);
                return Ok(side);
            }
            match self.read_side(side, offset, buffer) {
                Ok(()) => return Ok(side),
                Err(error) => failure = Some(error),
            }
        }
        let range = (offset, buffer.len() as u64);
        let none = || self.error(Operation::Read, range, DeviceErrorKind::Io, "no side is in");
        Err(failure.unwrap_or_else(none))
    }
}

/// Whether a device can be read and says just this.
fn reads(device: &dyn BlockDevice, offset: u64, expected: &[u8]) -> bool {
    let mut there = vec![0; expected.len()];
    device.read_at(offset, &mut there).is_ok() && there == expected
}

/// What the sides made of a request.
#[derive(Default)]
struct Answers<'m> {
    /// Those that are in and did it.
    done: usize,
    /// Those that failed, by their own fault.
    failures: Vec<(&'m Side, DeviceError)>,
}

impl<'m> Answers<'m> {
    fn take(
        &mut self,
        operation: Operation,
        side: &'m Side,
        answer: Option<(Standing, Result<()>)>,
    ) -> Result<()> {
        match answer {
            None => {}
            Some((standing, Ok(()))) => self.done += usize::from(standing == Standing::In),
            Some((standing, Err(error))) if is_its_fault(operation, standing, &error) => {
                self.failures.push((side, error));
            }
            Some((_, Err(error))) => return Err(error),
        }
        Ok(())
    }
}

/// Whether a request that failed on a side is no reason to fail it on all: the device failed it, or
/// has no room for what it was to have room for. One that is in and is asked to reserve room may say
/// that there is none: then the mirror has none.
pub(super) fn is_its_fault(operation: Operation, standing: Standing, error: &DeviceError) -> bool {
    match error.kind {
        DeviceErrorKind::Io => true,
        DeviceErrorKind::Full => operation != Operation::Allocate || standing == Standing::Stale,
        DeviceErrorKind::OutOfRange | DeviceErrorKind::Corrupt => false,
    }
}

/// The sides of a mirror that are in, for healing.
struct SidesIn<'m> {
    mirror: &'m MirrorDevice,
    sides: Vec<usize>,
    offset: u64,
}

impl Copies for SidesIn<'_> {
    fn count(&self) -> usize {
        self.sides.len()
    }

    fn read(&self, copy: usize, buffer: &mut [u8]) -> Result<()> {
        self.mirror.read_side(self.sides[copy], self.offset, buffer)
    }

    fn write_back(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        self.mirror.write_over(self.sides[copy], self.offset, bytes)
    }
}

impl BlockDevice for MirrorDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let range = (offset, buffer.len() as u64);
        self.check(Operation::Read, range.0, range.1)?;
        let Some(side) = self.choose(offset) else {
            return Err(self.error(Operation::Read, range, DeviceErrorKind::Io, "no side is in"));
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
        let stays_in = self.stays_in(side);
        // One that fails is read again by those who may wait, and healed there.
        let is_read = self.sides[side].device.try_read_at(offset, buffer).unwrap_or(false);
        Ok(is_read && stays_in())
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        self.check(Operation::Write, offset, length_bytes)?;
        let _shared = self.gates.share(offset, length_bytes);
        let range = (offset, length_bytes);
        self.ask_all(Operation::Write, range, &InTurn, |side| side.write_at(offset, slices))
    }

    fn flush(&self) -> Result<()> {
        self.ask_all(Operation::Flush, (0, self.len_bytes), &*self.together, |side| side.flush())
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Allocate, offset, length_bytes)?;
        let range = (offset, length_bytes);
        let allocate = |side: &dyn BlockDevice| side.allocate(offset, length_bytes);
        self.ask_all(Operation::Allocate, range, &InTurn, allocate)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Discard, offset, length_bytes)?;
        let _shared = self.gates.share(offset, length_bytes);
        let range = (offset, length_bytes);
        let discard = |side: &dyn BlockDevice| side.discard(offset, length_bytes);
        self.ask_all(Operation::Discard, range, &InTurn, discard)
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = slices.iter().map(|s| s.len() as u64).sum();
        self.check(Operation::Write, offset, length_bytes)?;
        let _shared = self.gates.share(offset, length_bytes);
        let range = (offset, length_bytes);
        let write = |side: &dyn BlockDevice| side.write_durable(offset, slices);
        self.ask_all(Operation::Write, range, &*self.together, write)
    }

    fn copies(&self, _offset: u64, _length_bytes: u64) -> usize {
        self.sides_in().count().max(1)
    }

    fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let range = (offset, buffer.len() as u64);
        self.check(Operation::Read, range.0, range.1)?;
        let last = self.sides_in().count().saturating_sub(1);
        match self.sides_in().nth(copy.min(last)) {
            Some(side) => self.read_side(side, offset, buffer),
            None => Err(self.error(Operation::Read, range, DeviceErrorKind::Io, "no side is in")),
        }
    }

    fn ways(&self) -> usize {
        self.sides_in().map(|side| self.sides[side].device.ways()).sum::<usize>().max(1)
    }

    fn read_way(&self, mut way: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let range = (offset, buffer.len() as u64);
        self.check(Operation::Read, range.0, range.1)?;
        for side in self.sides_in() {
            let device = &self.sides[side].device;
            let stays_in = self.stays_in(side);
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
        Err(self.error(Operation::Read, range, DeviceErrorKind::Io, text))
    }

    fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let _alone = self.gates.take(offset, buffer.len() as u64);
        let copies = SidesIn { mirror: self, sides: self.sides_in().collect(), offset };
        heal::settle(&copies, buffer, right, &self.ledger)
    }

    fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()> {
        self.check(Operation::Write, offset, length_bytes)?;
        let mut done = 0;
        if !matches!(which, Resync::Stale | Resync::All) {
            let below = |side: &Side| side.device.resync(offset, length_bytes, which);
            return self.sides.iter().try_for_each(below);
        }
        let mut buffer = vec![0; COPY_BYTES.min(length_bytes as usize)];
        while done < length_bytes {
            let at = offset + done;
            let count = (length_bytes - done).min(COPY_BYTES as u64);
            let _alone = self.gates.take(at, count);
            for (number, side) in self.sides.iter().enumerate() {
                if self.standing(number) != Standing::Out {
                    side.device.resync(at, count, which)?;
                }
            }
            self.copy(at, &mut buffer[..count as usize], which)?;
            done += count;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let sides: Vec<String> = self.sides.iter().map(|s| s.device.describe()).collect();
        format!("mirror({})", sides.join(", "))
    }
}
