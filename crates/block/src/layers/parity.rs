//! Parity: what some of several devices lose the others compute (RAID-5, RAID-6), without a write
//! hole. `docs/design/2026-11-22-parity.md`; the arithmetic and the journal are in
//! `docs/format/parity.md`.
//!
//! Invariants
//! 1. A write or flush is answered when every side has what it is to have that is not out; a side
//!    that failed is put out, durably, before the answer.
//! 2. Only sides that are in are read.
//! 3. Rows are written in place with their parity, and nobody computes from them meanwhile: whoever
//!    writes a stripe in place holds its gate alone.
//! 4. A stripe of which only a part is written goes through the journal first, and so does one that
//!    is in the journal already.
//! 5. What waits is in the pending log before its write is answered: it is there though the process
//!    ends.
//!
//! Locks, in this order (`order`): ranges of writers, the journal, the right to write whole
//! stripes, a stripe's gate, the pending log; and the cache, under which nothing is waited for.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use env::{Rank, RankedMutex, RankedRwLock, RankedWriteGuard};

use self::cache::Cache;
use self::journal::Journal;
use self::layout::CELL;
pub use self::layout::Layout;
use self::pending::Pending;
use super::gates::{Gates, Held};
use super::mirror::is_its_fault;
use super::mirror::{Keeper, Side, Standing};
use super::order::LayerLock;
use crate::heal::{self, Ledger, Outcome, Right};
use crate::ranges::RangeLock;
use crate::together::ask_all;
use crate::{
    BlockDevice, DeviceError, DeviceErrorKind, InTurn, Operation, Result, Resync, Together,
};

mod agreement;
mod cache;
mod codes;
mod follow;
mod journal;
mod layout;
mod pending;
mod rows;
mod settle;
mod ways;

pub use codes::PARITIES_MAX;

/// A stripe's gate is that of so many bytes, as a power of two.
const GATE_SHIFT: u32 = 20;

/// Several devices of which some can be computed from the others.
pub struct ParityDevice {
    sides: Vec<Side>,
    keeper: Arc<dyn Keeper>,
    ledger: Arc<Ledger>,
    layout: Layout,
    id: u128,
    len_bytes: u64,
    cache: RankedMutex<Cache>,
    pending: RankedMutex<Pending>,
    journal: RankedMutex<Journal>,
    /// Whoever writes a whole stripe in place shares it; who takes what waits has it alone.
    directs: RankedRwLock<()>,
    gates: Gates,
    ranges: RangeLock,
    /// Stripes in which a write met rows that do not agree.
    noticed: RankedMutex<BTreeSet<u64>>,
    together: Arc<dyn Together>,
}

impl ParityDevice {
    /// The parity on these sides; what its journal holds is put in its places.
    ///
    /// # Errors
    /// Those of the devices; `Corrupt` if no side has a sound journal.
    pub fn open(
        sides: Vec<Side>,
        layout: Layout,
        id: u128,
        keeper: Arc<dyn Keeper>,
        ledger: Arc<Ledger>,
    ) -> Result<ParityDevice> {
        assert_eq!(sides.len(), layout.sides, "as many as are laid out");
        let shortest = sides.iter().map(|s| s.device.len_bytes()).min().expect("several sides");
        let device = ParityDevice {
            keeper,
            ledger,
            layout,
            id,
            len_bytes: layout.len_bytes(shortest),
            cache: RankedMutex::new(Rank::Leaf, Cache::new(layout)),
            pending: LayerLock::Pending.mutex(0, Pending::new(layout.slot_bytes)),
            journal: LayerLock::Journal.mutex(0, Journal::new(sides.len())),
            directs: LayerLock::Directs.rw_lock(0, ()),
            gates: Gates::at_depth(0),
            ranges: RangeLock::at_depth(0),
            noticed: RankedMutex::default(),
            together: Arc::new(InTurn),
            sides,
        };
        device.recover()?;
        Ok(device)
    }

    /// The same, whose sides are asked to flush in this way.
    #[must_use]
    pub fn asked(self, together: Arc<dyn Together>) -> ParityDevice {
        ParityDevice { together, ..self }
    }

    /// The same, so deep in a stack.
    #[must_use]
    pub(crate) fn at_depth(self, depth: usize) -> ParityDevice {
        ParityDevice {
            pending: LayerLock::Pending.mutex(depth, self.pending.into_inner()),
            journal: LayerLock::Journal.mutex(depth, self.journal.into_inner()),
            directs: LayerLock::Directs.rw_lock(depth, ()),
            gates: Gates::at_depth(depth),
            ranges: RangeLock::at_depth(depth),
            ..self
        }
    }

    /// Says that nothing was ever written here.
    pub fn forget_all(&self) {
        let stripes = self.len_bytes / self.layout.stripe_bytes();
        self.cache.lock().loose.insert(0..stripes);
    }

    fn standing(&self, side: usize) -> Standing {
        self.keeper.standing(&self.sides[side].members)
    }

    fn is_in(&self, side: usize) -> bool {
        self.standing(side) == Standing::In
    }

    fn gate_alone(&self, stripe: u64) -> Vec<RankedWriteGuard<'_, ()>> {
        self.gates.take(stripe << GATE_SHIFT, 1)
    }

    fn gate_shared(&self, stripe: u64) -> Held<'_> {
        self.gates.share(stripe << GATE_SHIFT, 1)
    }

    fn error(
        &self,
        operation: Operation,
        range: (u64, u64),
        kind: DeviceErrorKind,
        text: &str,
    ) -> DeviceError {
        journal::failure(operation, range, kind, text, self.describe())
    }

    fn check(&self, operation: Operation, offset: u64, length_bytes: u64) -> Result<()> {
        if offset.checked_add(length_bytes).is_some_and(|end| end <= self.len_bytes) {
            return Ok(());
        }
        let kind = DeviceErrorKind::OutOfRange;
        Err(self.error(operation, (offset, length_bytes), kind, "beyond the end"))
    }

    /// Asks every side that is not out, one after the other; those that fail are put out, if enough
    /// stay.
    fn ask_all(
        &self,
        operation: Operation,
        request: impl Fn(&Side) -> Result<()> + Sync,
    ) -> Result<()> {
        self.ask_all_by(&InTurn, operation, request)
    }

    /// Makes durable what every side has that is not out.
    fn flush_sides(&self) -> Result<()> {
        self.ask_all_by(&*self.together, Operation::Flush, |side| side.device.flush())
    }

    fn ask_all_by(
        &self,
        together: &dyn Together,
        operation: Operation,
        request: impl Fn(&Side) -> Result<()> + Sync,
    ) -> Result<()> {
        let ask = |number: usize| {
            let standing = self.standing(number);
            let is_asked = standing != Standing::Out;
            is_asked.then(|| (standing, request(&self.sides[number])))
        };
        let mut failures = Vec::new();
        let mut take = |number: usize, answer: Option<(Standing, Result<()>)>| {
            let Some((standing, outcome)) = answer else { return Ok(()) };
            match outcome {
                Err(error) if is_its_fault(operation, standing, &error) => {
                    failures.push((&self.sides[number], error));
                    Ok(())
                }
                other => other,
            }
        };
        if together.is_in_turn() {
            (0..self.sides.len()).try_for_each(|number| take(number, ask(number)))?;
        } else {
            let answers = ask_all(together, self.sides.len(), ask);
            let mut answers = answers.into_iter().enumerate();
            answers.try_for_each(|(number, answer)| take(number, answer))?;
        }
        failures.iter().try_for_each(|(side, error)| self.keeper.put_out(&side.members, error))
    }

    /// What every side has of the stripes that a range touches, or that it holds whole.
    fn on_stripes(
        &self,
        operation: Operation,
        stripes: std::ops::Range<u64>,
        request: impl Fn(&dyn BlockDevice, u64, u64) -> Result<()> + Sync,
    ) -> Result<()> {
        if stripes.is_empty() {
            return Ok(());
        }
        let at = self.layout.offset(stripes.start);
        let length = (stripes.end - stripes.start) * self.layout.chunk_bytes;
        self.ask_all(operation, |side| request(&*side.device, at, length))
    }
}

impl BlockDevice for ParityDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        for part in self.layout.parts(offset, buffer.len()) {
            self.read_part(&part, &mut buffer[part.range.clone()])?;
        }
        Ok(())
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let mut parts = self.layout.parts(offset, buffer.len());
        Ok(parts.all(|part| {
            let read = |side: &dyn BlockDevice, at, to: &mut [u8]| side.try_read_at(at, to);
            self.read_plainly(&part, &mut buffer[part.range.clone()], read)
        }))
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let length: usize = slices.iter().map(|s| s.len()).sum();
        self.check(Operation::Write, offset, length as u64)?;
        if length == 0 {
            return Ok(());
        }
        let bytes: Cow<'_, [u8]> = match slices {
            [one] => Cow::Borrowed(one),
            several => Cow::Owned(several.iter().map(|s| &s[..]).collect::<Vec<_>>().concat()),
        };
        let end = offset + length as u64;
        let _held = self.ranges.hold(offset / CELL..end.div_ceil(CELL));
        let size = self.layout.stripe_bytes();
        for stripe in offset / size..end.div_ceil(size) {
            let (from, to) = (offset.max(stripe * size), end.min((stripe + 1) * size));
            let part = &bytes[(from - offset) as usize..(to - offset) as usize];
            let is_whole = part.len() as u64 == size;
            if !is_whole || !self.write_stripe(stripe, Some(part))? {
                self.write_cells(from, part)?;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.flush_all()
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Allocate, offset, length_bytes)?;
        let size = self.layout.stripe_bytes();
        let last = if length_bytes == 0 { 0 } else { (offset + length_bytes).div_ceil(size) };
        let stripes = offset / size..last;
        self.on_stripes(Operation::Allocate, stripes, |side, at, length| side.allocate(at, length))
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.check(Operation::Discard, offset, length_bytes)?;
        let size = self.layout.stripe_bytes();
        let stripes = offset.div_ceil(size)..(offset + length_bytes) / size;
        if stripes.is_empty() {
            return Ok(());
        }
        let mut journal = self.journal.lock();
        self.release_pending(&mut journal, stripes.clone())?;
        self.release(&mut journal, stripes.clone())?;
        self.cache.lock().loose.insert(stripes.clone());
        let count = stripes.end - stripes.start;
        let _alone = self.gates.take(stripes.start << GATE_SHIFT, count << GATE_SHIFT);
        self.on_stripes(Operation::Discard, stripes, |side, at, length| side.discard(at, length))
    }

    fn copies(&self, offset: u64, length_bytes: u64) -> usize {
        if self.check(Operation::Read, offset, length_bytes).is_err() || length_bytes == 0 {
            return 1;
        }
        // After as many stripes as sides each has had every role.
        let enough = (self.layout.sides + 1) as u64 * self.layout.stripe_bytes();
        let parts = self.layout.parts(offset, length_bytes.min(enough) as usize);
        parts.map(|part| self.copies_of(&part)).max().unwrap_or(1).max(1)
    }

    fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        for part in self.layout.parts(offset, buffer.len()) {
            self.read_part_copy(&part, copy, &mut buffer[part.range.clone()])?;
        }
        Ok(())
    }

    fn ways(&self) -> usize {
        self.count_ways()
    }

    fn read_way(&self, way: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        for part in self.layout.parts(offset, buffer.len()) {
            self.read_part_way(&part, way, &mut buffer[part.range.clone()])?;
        }
        Ok(())
    }

    fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let mut parts = self.layout.parts(offset, buffer.len());
        match (parts.next(), parts.next()) {
            (Some(part), None) => self.heal_part(&part, buffer, right),
            _ => {
                let parts = self.layout.parts(offset, buffer.len());
                let at = |range: &std::ops::Range<usize>| offset + range.start as u64;
                let pieces: Vec<heal::Piece<'_>> =
                    parts.map(|part| (self as _, at(&part.range), part.range)).collect();
                heal::heal_pieces(&pieces, buffer, right)
            }
        }
    }

    fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()> {
        self.check(Operation::Write, offset, length_bytes)?;
        self.resync_range(offset, length_bytes, which)
    }

    fn disagreements(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
        self.check(Operation::Read, offset, length_bytes)?;
        self.look(offset, length_bytes)
    }

    fn noticed(&self) -> Vec<Range<u64>> {
        let size = self.layout.stripe_bytes();
        let noticed = std::mem::take(&mut *self.noticed.lock());
        noticed.into_iter().map(|stripe| stripe * size..(stripe + 1) * size).collect()
    }

    fn describe(&self) -> String {
        let sides: Vec<String> = self.sides.iter().map(|s| s.device.describe()).collect();
        format!("parity({})", sides.join(", "))
    }
}
