//! The members of a pool on several devices: kept up to date while the pool does its other work,
//! and what happens to them written down.

use std::sync::Arc;

use block::{
    Added, Array, ArrayError, BlockDevice, Candidate, Identities, InTurn, Materials, MemberStatus,
    Opening, SpareStatus, Standing, Together,
};
use env::Files;

use crate::catalogue::Told;
use crate::pool::Engine;
use crate::pool::arrays::of_array;
use crate::pool::handle::Pool;
use crate::pool::layout::{reserve_of, zones_within};
use crate::pool::recovery::{Map, open_pool};
use crate::types::{SettlePhase, Settling};
use crate::{Error, Machine, PoolOptions, Result};

impl Pool {
    /// Opens a pool on members that can be put together; `told` as in [`Pool::open_array`].
    /// Where a member would be put out for that, all is tried in memory first: of a pool that
    /// cannot be opened without a member nothing is changed, so that it can be opened once the
    /// member is there again.
    ///
    /// # Errors
    /// `Invalid`, `Unusable`, `Corrupt`, `Io`.
    pub fn open_members(
        opening: Opening<'_>,
        machine: Machine,
        options: PoolOptions,
        files: Arc<dyn Files>,
        told: &mut dyn FnMut(&Settling),
    ) -> Result<Arc<Pool>> {
        if opening.puts_out() {
            let device = Arc::new(opening.tried().map_err(of_array)?);
            let (machine, files) = (machine.clone(), Arc::clone(&files));
            let how =
                (Map::Used, &InTurn as &dyn Together, &mut of_catalogue(told) as &mut Told<'_>);
            let tried = open_pool(device, machine, options, how, files);
            let absent = opening.absent().join(", ");
            let hint = format!("without {absent} the others are not enough: bring it back");
            drop(tried.map_err(|error| error.with_hint(hint))?);
        }
        Pool::open_array(opening.open().map_err(of_array)?, machine, options, files, told)
    }

    /// Opens a pool on a stack of layers over several members; see [`Pool::open_with`]. `told`
    /// hears how far it is: after a crash there is much to look at.
    ///
    /// # Errors
    /// `Unusable`, `Corrupt`, `Io`.
    pub fn open_array(
        array: Array,
        machine: Machine,
        options: PoolOptions,
        files: Arc<dyn Files>,
        told: &mut dyn FnMut(&Settling),
    ) -> Result<Arc<Pool>> {
        let began_ns = machine.clock.monotonic_ns();
        let array = Arc::new(array);
        let device = Arc::<Array>::clone(&array) as Arc<dyn BlockDevice>;
        let pool = {
            let how = (&**array.together(), &mut of_catalogue(told) as &mut Told<'_>);
            Pool::open_told(device, machine, options, files, how)?
        };
        pool.members.set(array);
        pool.scrubs.settle_members(began_ns, told)?;
        Ok(pool)
    }
}

impl Engine {
    /// The work of opening it, if it is on members.
    #[must_use]
    pub fn settled(&self) -> Option<Settling> {
        self.members.settled.get().copied()
    }

    /// The members, if the pool is on what has labels.
    #[must_use]
    pub fn members(&self) -> Vec<MemberStatus> {
        self.members.array().map_or_else(Vec::new, |array| array.members())
    }

    /// Bytes that members which came back have still to get.
    #[must_use]
    pub fn behind_bytes(&self) -> u64 {
        self.members.array().map_or(0, |array| array.behind_bytes())
    }

    /// Has a blank device, or a spare, take the place of the member at a path while the pool goes
    /// on; a member that is in stays until the other has everything.
    ///
    /// # Errors
    /// `NotFound`, `Refused` with what is missing, `Io`.
    pub fn replace_member(&self, path: &str, with: Candidate) -> Result<()> {
        self.check_open()?;
        let member = self.member_at(path)?;
        self.change_members(|array| array.replace(member, with, self.new_id()))
    }

    fn change_members(
        &self,
        change: impl FnOnce(&Array) -> std::result::Result<(), ArrayError>,
    ) -> Result<()> {
        self.check_open()?;
        change(self.members.array().ok_or_else(not_on_members)?).map_err(of_array)?;
        self.note_members_now();
        Ok(())
    }

    /// Looks whether a device can get everything that the pool has, beside what its only member or
    /// its mirror is made of.
    ///
    /// # Errors
    /// `Invalid` with what is wrong, `Refused`, `Io`.
    pub fn check_side(&self, with: &Candidate) -> Result<()> {
        self.changeable_array()?.check_side(with).map_err(of_array)
    }

    /// Has such a device get that from now on, while the pool goes on.
    ///
    /// # Errors
    /// Those of [`Pool::check_side`].
    pub fn attach_member(&self, with: Candidate) -> Result<()> {
        let array = self.changeable_array()?;
        let now = self.core.machine.clock.wall();
        let outcome = array.attach(with, Identities { random: &mut || self.new_id(), now });
        self.after_change(array, outcome)
    }

    /// The array, if it may get another side or more members.
    fn changeable_array(&self) -> Result<&Arc<Array>> {
        self.check_open()?;
        let array = self.members.array().ok_or_else(not_on_members)?;
        if self.core.store.has_failed() {
            return Err(history::Error::refused().into());
        }
        Ok(array)
    }

    /// A change of an array may have failed so that nobody knows the state of its members.
    fn after_change<T>(
        &self,
        array: &Array,
        outcome: std::result::Result<T, ArrayError>,
    ) -> Result<T> {
        if array.is_torn() {
            self.core.store.fail();
        }
        self.note_members_now();
        outcome.map_err(of_array)
    }

    /// The spares.
    #[must_use]
    pub fn spares(&self) -> Vec<SpareStatus> {
        self.members.array().map_or_else(Vec::new, |array| array.spares())
    }

    /// Adds a blank device that takes the place of a member that fails.
    ///
    /// # Errors
    /// `Invalid` with what is wrong, `Io`.
    pub fn add_spare(&self, with: Candidate) -> Result<()> {
        self.change_members(|array| array.add_spare(with, self.new_id()))
    }

    /// Takes a spare away.
    ///
    /// # Errors
    /// `Invalid` if there is none at the path, `Io`.
    pub fn remove_spare(&self, path: &str) -> Result<()> {
        self.change_members(|array| array.remove_spare(path))
    }

    /// Makes the pool larger while it is used: by a stack over blank devices, behind what there is,
    /// if one is given, and by what an earlier growth left unused. Returns its bytes before and
    /// after.
    ///
    /// # Errors
    /// `Invalid` with what is wrong: then it is as large as it was; `Refused`, `Io`.
    pub fn grow_online(
        &self,
        added: Option<Added<'_>>,
        materials: &Materials<'_>,
    ) -> Result<(u64, u64)> {
        let array = self.changeable_array()?;
        let what = added.as_ref().map(|added| added.stack.to_string());
        if let Some(added) = added {
            let now = self.core.machine.clock.wall();
            let identities = Identities { random: &mut || self.new_id(), now };
            self.after_change(array, array.add(added, identities, materials))?;
        }
        self.use_length(array.len_bytes(), what)
    }

    /// Makes a pool on one file or device larger while it is used: by what that has become, or by
    /// making the file long enough for so much. Returns its bytes before and after.
    ///
    /// # Errors
    /// `Invalid` when it is on several members, or no file that can be longer; `Refused`, `Io`.
    pub fn lengthen(&self, len_bytes: Option<u64>) -> Result<(u64, u64)> {
        self.check_open()?;
        let core = &self.core;
        if core.store.has_failed() {
            return Err(history::Error::refused().into());
        }
        let len_bytes = match self.members.array() {
            Some(array) => self.after_change(array, array.lengthen_member(len_bytes))?,
            None => core.store.device.lengthen(len_bytes)?,
        };
        self.use_length(len_bytes, None)
    }

    /// Whether a growth failed in such a way that the next opening decides whether it was done: the
    /// new members may be needed then, and the pool refuses writes until then.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.members.array().is_some_and(|array| array.is_torn())
    }

    fn new_id(&self) -> u128 {
        let entropy = &self.core.machine.entropy;
        u128::from(entropy.next_u64()) << 64 | u128::from(entropy.next_u64())
    }

    /// The number of the member at a path.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn member_at(&self, path: &str) -> Result<usize> {
        let found = self.members.array().and_then(|array| array.member_at(path));
        found.ok_or_else(|| {
            Error::not_found(format!("the pool has no member {path}"))
                .with_hint("`hindsight pool status` names them")
        })
    }

    /// Takes marks off the regions of members that have been quiet since the last call: what is
    /// marked when the power fails is looked at by the next opening. To be called every some
    /// seconds.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn tidy_members(&self) -> Result<()> {
        self.tidy_members_by(|array| array.tidy())
    }

    /// The same early, for what was written and comes to rest: where there are
    /// [many marks](Pool::has_many_marks).
    ///
    /// # Errors
    /// Those of the devices.
    pub fn tidy_members_early(&self) -> Result<()> {
        self.tidy_members_by(|array| array.tidy_early())
    }

    /// Whether so much is marked that an opening would take long.
    #[must_use]
    pub fn has_many_marks(&self) -> bool {
        self.members.array().is_some_and(|array| array.has_many_marks())
    }

    fn tidy_members_by(&self, tidy: fn(&Array) -> block::Result<()>) -> Result<()> {
        match self.members.array() {
            Some(array) if !self.core.store.has_failed() => {
                // While the regions are open: who dies in between finds it at the next opening.
                self.scrubs.settle_noticed(array)?;
                Ok(tidy(array)?)
            }
            _ => Ok(()),
        }
    }
}

impl Engine {
    /// Has the pool use a device that is so long now. Returns its bytes before and after.
    fn use_length(&self, len_bytes: u64, by: Option<String>) -> Result<(u64, u64)> {
        // One at a time: whoever asks for zones sees the old number or the new one.
        let books = self.core.books.lock();
        let superblock = self.core.media.superblock();
        let before = superblock.device_bytes;
        let count = zones_within(len_bytes, superblock.zone_bytes);
        let after = u64::from(count) * superblock.zone_bytes;
        if after <= before {
            return Ok((before, before));
        }
        let grown = self.core.media.change(|superblock| superblock.device_bytes = after);
        grown.inspect_err(|_| self.core.store.fail())?;
        self.core.store.extend_zones(count, reserve_of(count, superblock.zone_bytes));
        drop(books);
        let by = by.map_or_else(String::new, |stack| format!(", by {stack}"));
        // It is larger, whether or not that can be written down.
        let _ = self.core.note("pool-grow", "", format!("from {before} to {after} bytes{by}"));
        self.note_members_now();
        Ok((before, after))
    }

    /// Whether a member is not in: one more failure may be one too many.
    pub(crate) fn is_degraded(&self) -> bool {
        let is_in = |member: &MemberStatus| member.standing == Standing::In;
        self.members.array().is_some_and(|array| !array.members().iter().all(is_in))
    }

    /// Writes down what happened to members, for somebody who goes on whether or not it can be
    /// written down by now: a change that was asked for is made.
    pub(crate) fn note_members_now(&self) {
        let _ = self.members.note(&self.core);
    }
}

/// Tells how often the catalogue was tried in vain, and how often it may be.
fn of_catalogue(told: &mut dyn FnMut(&Settling)) -> impl FnMut(u64, u64) {
    let mut state = Settling { phase: SettlePhase::Catalogue, ..Settling::default() };
    move |tried, most| {
        state.trials = (tried, most);
        told(&state);
    }
}

fn not_on_members() -> Error {
    Error::invalid("the pool is on one file or device without a label")
}
