//! The sides of a layer that has everything more than once, and how they are asked.
//!
//! Invariants
//! 1. What every side is to have is done when every side has it that is not out; a side that failed
//!    it is put out, durably, before the answer.
//! 2. What is read counts only if its side was in all the time: another device may take its place
//!    before a read gets there.
//!
//! Deliberately unaware of what the sides have.

use std::io::IoSlice;
use std::sync::Arc;

pub use format::label::MemberStanding as Standing;

use crate::heal::Ledger;
use crate::together::ask_all;
use crate::{BlockDevice, DeviceError, DeviceErrorKind, InTurn, Operation, Result, Together};

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

/// A side of a layer.
#[derive(Clone)]
pub struct Side {
    /// What it is written to.
    pub device: Arc<dyn BlockDevice>,
    /// The members that it is made of.
    pub members: Vec<usize>,
}

/// How a layer with sides stands in its stack.
#[derive(Clone)]
pub struct Setting {
    /// Who knows how its sides stand.
    pub keeper: Arc<dyn Keeper>,
    /// What its healing takes.
    pub ledger: Arc<Ledger>,
    /// How its sides are asked to flush, and for what else takes its time.
    pub together: Arc<dyn Together>,
    /// How deep it lies.
    pub depth: usize,
}

/// All sides of a layer, by number, and who knows how they stand.
#[derive(Clone)]
pub(crate) struct Sides {
    /// The layer's name, for people.
    layer: &'static str,
    sides: Vec<Side>,
    setting: Setting,
}

/// Whether a request that failed on a side is no reason to fail it on all: the device failed it,
/// or has no room for what it was to have room for. One that is in and is asked to reserve room
/// may say that there is none: then the layer has none.
fn is_its_fault(operation: Operation, standing: Standing, error: &DeviceError) -> bool {
    match error.kind {
        DeviceErrorKind::Io => true,
        DeviceErrorKind::Full => operation != Operation::Allocate || standing == Standing::Stale,
        DeviceErrorKind::OutOfRange | DeviceErrorKind::Corrupt => false,
    }
}

/// What the sides made of a request.
#[derive(Default)]
struct Answers {
    /// Those that are in and did it.
    done: usize,
    /// Those that failed, by their own fault.
    failures: Vec<(usize, DeviceError)>,
}

impl Answers {
    fn take(
        &mut self,
        operation: Operation,
        side: usize,
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

impl Sides {
    pub fn new(layer: &'static str, sides: Vec<Side>, setting: Setting) -> Sides {
        Sides { layer, sides, setting }
    }

    /// The same with another one behind them.
    pub fn with(&self, side: Side) -> Sides {
        let mut sides = self.clone();
        sides.sides.push(side);
        sides
    }

    pub fn count(&self) -> usize {
        self.sides.len()
    }

    /// Bytes of the shortest.
    pub fn len_bytes(&self) -> u64 {
        self.sides.iter().map(|side| side.device.len_bytes()).min().expect("several sides")
    }

    /// The layer, for people.
    pub fn describe(&self) -> String {
        let sides: Vec<String> = self.sides.iter().map(|s| s.device.describe()).collect();
        format!("{}({})", self.layer, sides.join(", "))
    }

    /// The error of a request that they cannot do.
    pub fn error(&self, operation: Operation, range: (u64, u64), text: &str) -> DeviceError {
        DeviceError::new(DeviceErrorKind::Io, operation, range, self.describe(), text)
    }

    pub fn device(&self, side: usize) -> &dyn BlockDevice {
        &*self.sides[side].device
    }

    /// Reads from a side if that needs no waiting; false if it would, fails, or was not in all the
    /// time: then it is read by those who may wait.
    pub fn try_read(&self, side: usize, at: u64, buffer: &mut [u8]) -> bool {
        let stays_in = self.stays_in(side);
        let mut is_read = || self.device(side).try_read_at(at, buffer).unwrap_or(false);
        stays_in() && is_read() && stays_in()
    }

    pub fn ledger(&self) -> &Ledger {
        &self.setting.ledger
    }

    pub fn together(&self) -> &dyn Together {
        &*self.setting.together
    }

    pub fn standing(&self, side: usize) -> Standing {
        self.setting.keeper.standing(&self.sides[side].members)
    }

    pub fn is_in(&self, side: usize) -> bool {
        self.standing(side) == Standing::In
    }

    /// Those that are in.
    pub fn all_in(&self) -> impl Iterator<Item = usize> {
        (0..self.count()).filter(|&side| self.is_in(side))
    }

    /// Whether there is what a crash left that is not settled.
    pub fn are_unsettled(&self) -> bool {
        self.setting.keeper.is_unsettled()
    }

    /// How often a side was put out.
    pub fn absences(&self, side: usize) -> u64 {
        self.setting.keeper.absences(&self.sides[side].members)
    }

    /// Says later whether a side was in all the time since now.
    pub fn stays_in(&self, side: usize) -> impl Fn() -> bool {
        // Counted before it is asked how the side stands, as it is counted after that changes.
        let before = self.absences(side);
        let is_in = self.is_in(side);
        move || is_in && self.absences(side) == before
    }

    /// Puts a side out that a request failed on.
    ///
    /// # Errors
    /// As [`Keeper::put_out`].
    pub fn put_out(&self, side: usize, failure: &DeviceError) -> Result<()> {
        self.setting.keeper.put_out(&self.sides[side].members, failure)
    }

    /// Notes a read that failed and that other sides answered.
    pub fn note_failed_read(&self, side: usize, failure: &DeviceError) {
        self.setting.keeper.note_failed_read(&self.sides[side].members, failure);
    }

    /// Reads from a side; false if it was not in all the time.
    pub fn read(&self, side: usize, at: u64, buffer: &mut [u8]) -> Result<bool> {
        let stays_in = self.stays_in(side);
        Ok(stays_in() && self.device(side).read_at(at, buffer).map(|()| stays_in())?)
    }

    /// The same, where there may be holes: nothing is to be read of these.
    pub fn read_or_hole(&self, side: usize, at: u64, buffer: &mut [u8]) -> Result<bool> {
        let stays_in = self.stays_in(side);
        if self.device(side).is_hole(at, buffer.len() as u64) && stays_in() {
            buffer.fill(0);
            return Ok(true);
        }
        self.read(side, at, buffer)
    }

    /// Writes to a side unless it is out; one that fails it is put out.
    pub fn write(&self, side: usize, at: u64, bytes: &[u8]) -> Result<()> {
        let request = |device: &dyn BlockDevice| device.write_at(at, &[IoSlice::new(bytes)]);
        self.ask_to_write(side, request)
    }

    /// Has a side that is not out write something; one that fails it is put out.
    pub fn ask_to_write(
        &self,
        side: usize,
        request: impl FnOnce(&dyn BlockDevice) -> Result<()>,
    ) -> Result<()> {
        let standing = self.standing(side);
        if standing == Standing::Out {
            return Ok(());
        }
        match request(self.device(side)) {
            Err(error) if is_its_fault(Operation::Write, standing, &error) => {
                self.put_out(side, &error)
            }
            other => other,
        }
    }

    /// Writes right bytes over what a side has, durably; one that cannot be written is put out.
    pub fn write_over(&self, side: usize, at: u64, bytes: &[u8]) -> Result<()> {
        match self.device(side).write_durable(at, &[IoSlice::new(bytes)]) {
            Err(error) => self.put_out(side, &error),
            Ok(()) => Ok(()),
        }
    }

    /// Asks every side that is not out, one after the other; those that fail are put out if one
    /// that is in did not.
    pub fn ask_all(
        &self,
        operation: Operation,
        range: (u64, u64),
        request: impl Fn(&dyn BlockDevice) -> Result<()> + Sync,
    ) -> Result<()> {
        self.ask_all_by(&InTurn, operation, range, request)
    }

    /// The same in the way that they are asked for what takes its time.
    pub fn ask_together(
        &self,
        operation: Operation,
        range: (u64, u64),
        request: impl Fn(&dyn BlockDevice) -> Result<()> + Sync,
    ) -> Result<()> {
        self.ask_all_by(&*self.setting.together, operation, range, request)
    }

    /// Makes durable what every side has that is not out.
    pub fn flush(&self) -> Result<()> {
        self.ask_together(Operation::Flush, (0, self.len_bytes()), |side| side.flush())
    }

    fn ask_all_by(
        &self,
        together: &dyn Together,
        operation: Operation,
        range: (u64, u64),
        request: impl Fn(&dyn BlockDevice) -> Result<()> + Sync,
    ) -> Result<()> {
        let ask = |side: usize| {
            let standing = self.standing(side);
            let is_asked = standing != Standing::Out;
            is_asked.then(|| (standing, request(self.device(side))))
        };
        let mut answers = Answers::default();
        if together.is_in_turn() {
            let mut sides = 0..self.count();
            sides.try_for_each(|side| answers.take(operation, side, ask(side)))?;
        } else {
            let mut all = ask_all(together, self.count(), ask).into_iter().enumerate();
            all.try_for_each(|(side, answer)| answers.take(operation, side, answer))?;
        }
        let Answers { done, failures } = answers;
        if done == 0 {
            let none = || self.error(operation, range, "no side is in");
            return Err(failures.into_iter().next().map_or_else(none, |(_, error)| error));
        }
        failures.iter().try_for_each(|(side, error)| self.put_out(*side, error))
    }
}
