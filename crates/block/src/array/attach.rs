//! A copy more of everything, while it is used: the only member, or a mirror that is uppermost,
//! gets another side.
//!
//! The new device is claimed while the array is used. Then writers are kept out for as long as it
//! takes to write maps and labels: all that is used counts as missed by it. Earlier writes have
//! ended by then, and later ones go to it as well. It is stale, and brought up to date like a
//! replacement.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::label::{AREA_BYTES, MemberStanding};

use super::add::{Part, claimed};
use super::build::setting;
use super::candidate::{ArrayError, Candidate, Identities, refused};
use super::device::Array;
use super::grow::{add_rows, check_free, checked};
use super::regions::{clear, set};
use super::shared::members_of;
use crate::BlockDevice;
use crate::layers::{MirrorDevice, Side, Standing};
use crate::stack::Stack;

impl Array {
    /// Looks whether a device can become a side of the mirror that the array is, or of one that it
    /// becomes: of its only member and the device. Nothing is written.
    ///
    /// # Errors
    /// `Refused` when the array is anything else, a member is not up to date, or the device is too
    /// small or neither blank nor claimed by this array before; the devices'.
    pub fn check_side(&self, with: &Candidate) -> Result<(), ArrayError> {
        let shared = &self.shared;
        shared.check_whole()?;
        let label = shared.book.lock().label.clone();
        self.check_settled(&label)?;
        check_free(with, &label)?;
        if (*shared.stack()).clone().with_side(Stack::Member(with.path.clone())).is_none() {
            let what = "only a single file or disk, or a mirror of such, gets another side";
            let hint = "`pool grow --add` makes others larger, `pool spare add` gives them spares";
            return Err(refused(what, hint));
        }
        let length = with.device.as_ref().map_or(0, |device| device.len_bytes());
        let wanted = self.len_bytes() + AREA_BYTES;
        if length < wanted {
            let what = format!("{} has {length} bytes", with.path);
            return Err(refused(what, &format!("at least {wanted} are needed")));
        }
        Ok(())
    }

    /// Makes a blank device a side, stale until everything is on it.
    ///
    /// # Errors
    /// Those of [`Array::check_side`]: then nothing was written, or its label is that of nobody;
    /// the devices'. Where the device fails at once it is a side all the same, and out.
    pub fn attach(&self, with: Candidate, identities: Identities<'_>) -> Result<(), ArrayError> {
        let _growing = self.growing.lock();
        let shared = &self.shared;
        self.check_side(&with)?;
        let label = shared.book.lock().label.clone();
        let count = members_of(&label).len();
        let mut grown = label.clone();
        let new = Stack::Member(with.path.clone());
        let side = add_rows(&mut grown, &new, std::slice::from_ref(&with), identities.random)?;
        grown.members[count].standing = MemberStanding::Stale;
        let stack = (*shared.stack()).clone().with_side(side).expect("it was looked at");
        grown.stack = checked(&stack)?;
        let making = claimed(&grown, &stack, vec![with])?;
        let members = making.members().split_off(count);
        let (text, rows) = (grown.stack, vec![grown.members.swap_remove(count)]);
        let bytes = (self.len_bytes(), self.len_bytes());
        let outcome = self.begin_side(Part { stack, text, rows, members, bytes });
        shared.claim_again(&making, count);
        outcome
    }

    /// Makes a side that is claimed part of the array, while nobody writes.
    fn begin_side(&self, part: Part) -> Result<(), ArrayError> {
        let shared = &self.shared;
        let member = Arc::clone(&part.members[0]);
        let path = member.path();
        // No resync and no tidying is under way.
        let (_work, _tidying) = (self.hold_work(), self.hold_tidying());
        let _alone = self.hold_writers();
        let mut book = shared.book.lock();
        let number = members_of(&book.label).len();
        let label = self.label_with(&book, &part)?;
        let mut maps = book.regions.clone();
        if !self.has_copies() {
            // Nobody marked what was written: all may be in use, and nobody is in the midst of it.
            (0..maps.count as usize).for_each(|region| {
                set(&mut maps.used, region);
                clear(&mut maps.open, region);
            });
        }
        for (stale, used) in maps.stale.iter_mut().zip(&maps.used) {
            *stale |= used;
        }
        // It has nothing from the beginning.
        shared.set_standing(number, Standing::Stale);
        self.write_part(&mut book, (label, maps), &part)?;
        // Where it failed with that it is out by now.
        let standing = book.label.members[number].standing;
        shared.set_standing(number, standing);
        let side = Side { device: member, members: vec![number] };
        let mirror = self.mirror_with(side);
        *self.mirror.lock() = Some(Arc::clone(&mirror));
        if standing == Standing::Stale {
            let behind = book.begin_behind();
            shared.behind.store(behind, Ordering::Relaxed);
        }
        self.put_over(mirror, &shared.stack());
        shared.tell(number, "member-attached", "it is brought up to date".to_owned());
        match standing {
            Standing::Out => {
                Err(refused(format!("{path} failed at once"), "it is out: `pool replace` it"))
            }
            _ => Ok(()),
        }
    }

    /// The uppermost mirror to be, with another side.
    fn mirror_with(&self, side: Side) -> Arc<MirrorDevice> {
        match &*self.mirror.lock() {
            Some(mirror) => Arc::new(mirror.with_side(side)),
            None => {
                let first = Side { device: Arc::clone(self.top().now()), members: vec![0] };
                let setting = setting(&self.shared, self.together(), 0);
                Arc::new(MirrorDevice::new(vec![first, side], setting))
            }
        }
    }
}
