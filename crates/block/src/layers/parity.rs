//! Parity: what some of several devices lose the others compute (RAID-5, RAID-6), without a write
//! hole. `docs/design/2026-11-22-parity.md`; the arithmetic and the journal are in
//! `docs/format/parity.md`.
//!
//! A parity is built of parts, a type each. Each holds the one below it and reads as it (`Deref`):
//! this device, its `intake` (the way of a write), its `rows` (what the sides have), and the sides.
//!
//! Invariant: a write or flush is answered when every side has what it is to have that is not out;
//! a side that failed is put out, durably, before the answer.
//!
//! Ranges of writers come before all locks of the intake.

use std::borrow::Cow;
use std::io::IoSlice;
use std::ops::{Deref, Range};
use std::sync::Arc;

use self::intake::Intake;
use self::layout::CELL;
pub use self::layout::Layout;
use self::rows::Rows;
use super::sides::{Setting, Side, Sides};
use crate::heal::{self, Outcome, Right};
use crate::ranges::RangeLock;
use crate::{BlockDevice, Operation, Result, Resync};

mod cache;
mod codes;
mod draining;
mod intake;
mod layout;
mod rows;

pub use codes::PARITIES_MAX;

/// Several devices of which some can be computed from the others.
pub struct ParityDevice {
    intake: Intake,
    layout: Layout,
    ranges: RangeLock,
}

impl Deref for ParityDevice {
    type Target = Intake;

    fn deref(&self) -> &Intake {
        &self.intake
    }
}

impl ParityDevice {
    /// Makes devices the sides of a parity in which nothing was written.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn format(below: &[Arc<dyn BlockDevice>], layout: Layout, id: u128) -> Result<()> {
        intake::format(below, layout, id)
    }

    /// The parity on these sides; what its journal holds is put in its places.
    ///
    /// # Errors
    /// Those of the devices; `Corrupt` if no side has a sound journal.
    pub fn open(
        sides: Vec<Side>,
        layout: Layout,
        id: u128,
        setting: Setting,
    ) -> Result<ParityDevice> {
        assert_eq!(sides.len(), layout.sides, "as many as are laid out");
        let depth = setting.depth;
        let rows = Rows::new(Sides::new("parity", sides, setting), layout, depth);
        let intake = Intake::new(rows, layout, id, depth);
        intake.recover()?;
        Ok(ParityDevice { intake, layout, ranges: RangeLock::at_depth(depth) })
    }

    /// Says that nothing was ever written here.
    pub fn forget_all(&self) {
        self.loosen(0, self.len_bytes());
    }

    /// Asks every side for what it has of some stripes.
    fn on_stripes(
        &self,
        operation: Operation,
        stripes: Range<u64>,
        request: impl Fn(&dyn BlockDevice, u64, u64) -> Result<()> + Sync,
    ) -> Result<()> {
        if stripes.is_empty() {
            return Ok(());
        }
        let at = self.layout.offset(stripes.start);
        let length = (stripes.end - stripes.start) * self.layout.chunk_bytes;
        self.sides().ask_all(operation, (at, length), |side| request(side, at, length))
    }

    /// Makes rows of a stripe agree, if they are to.
    fn resync_rows(&self, stripe: u64, within: &Range<u64>, which: Resync) -> Result<()> {
        let is_loose = self.cache().loose.contains(stripe..stripe + 1);
        let is_done = match which {
            Resync::Loose => !is_loose,
            Resync::Computed => is_loose || within.is_empty(),
            _ => false,
        };
        if is_done {
            return Ok(());
        }
        // Who is brought up to date gets what the others say, and of what is being placed what
        // the journal has: nothing there is older than that, so it may go on being written.
        let _journal = match which {
            Resync::Stale => None,
            _ => Some(self.release(stripe..stripe + 1)?),
        };
        let _alone = self.gate_alone(stripe);
        if which != Resync::Computed {
            let (at, length) =
                (self.layout.offset(stripe) + within.start, within.end - within.start);
            let below = |side: &dyn BlockDevice| side.resync(at, length, which);
            self.sides().ask_all(Operation::Write, (at, length), below)?;
        }
        self.settle(stripe, within, which)?;
        let is_whole = *within == (0..self.layout.chunk_bytes);
        if is_whole && matches!(which, Resync::Loose | Resync::All) {
            self.cache().loose.remove(stripe..stripe + 1);
        }
        Ok(())
    }
}

impl BlockDevice for ParityDevice {
    fn len_bytes(&self) -> u64 {
        self.intake.len_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        self.read(offset, buffer)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let mut parts = self.layout.parts(offset, buffer.len());
        Ok(parts.all(|part| self.try_read_part(&part, &mut buffer[part.range.clone()])))
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
            self.write(from, part)?;
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
        let _journal = self.release_all(stripes.clone())?;
        self.loosen(offset, length_bytes);
        let _alone = self.gates_alone(&stripes);
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
            (Some(part), None) => {
                let _journal = self.hold_journal();
                self.heal_part(&part, buffer, right)
            }
            _ => {
                let parts = self.layout.parts(offset, buffer.len());
                let at = |range: &Range<usize>| offset + range.start as u64;
                let pieces: Vec<heal::Piece<'_>> =
                    parts.map(|part| (self as _, at(&part.range), part.range)).collect();
                heal::heal_pieces(&pieces, buffer, right)
            }
        }
    }

    fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()> {
        self.check(Operation::Write, offset, length_bytes)?;
        if which == Resync::Unused {
            self.loosen(offset, length_bytes);
            return Ok(());
        }
        if which == Resync::Beside {
            // Nothing is beside the data but the journal, which is written anew all the time.
            return Ok(());
        }
        let range = offset..offset + length_bytes;
        self.layout.touched(offset, length_bytes).try_for_each(|(stripe, within)| {
            let rows = match which {
                Resync::Computed => self.layout.whole_rows(stripe, &range),
                Resync::Loose => 0..self.layout.chunk_bytes,
                _ => within,
            };
            self.resync_rows(stripe, &rows, which)
        })
    }

    fn disagreements(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
        self.check(Operation::Read, offset, length_bytes)?;
        self.look(offset, length_bytes)
    }

    fn noticed(&self) -> Vec<Range<u64>> {
        let size = self.layout.stripe_bytes();
        let noticed = self.take_noticed().into_iter();
        noticed.map(|stripe| stripe * size..(stripe + 1) * size).collect()
    }

    fn describe(&self) -> String {
        self.sides().describe()
    }
}
