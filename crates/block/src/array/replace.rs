//! Another device in the place of a member.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::label::{AREA_BYTES, Label, MemberStanding};

use super::book::Book;
use super::candidate::{ArrayError, Candidate, Spare, noted, refused};
use super::device::Array;
use super::found::read_label;
use super::grow::check_free;
use super::kept::base_of;
use super::renewed::Alone;
use super::shared::{Shared, is_readable, number_of};
use crate::layers::Standing;
use crate::stack::Stack;
use crate::{BlockDevice, DeviceError, DeviceErrorKind, Operation};

impl Array {
    /// Has a blank device, or a spare, take the place of a member. If that is in it stays until
    /// everything was copied, whatever lies over it. Else what it has not is brought up to date in
    /// its place. One that is out may take its own place, as if it were blank: what it is found on,
    /// if no device is given, at its path.
    ///
    /// # Errors
    /// `Refused` when there is no such member, the others are not enough, the device is too small
    /// or neither blank nor claimed by a growth of this array that never came about, or a layer
    /// under the mirror or parity is over it and others; the devices'.
    pub fn replace(&self, member: usize, with: Candidate, id: u128) -> Result<(), ArrayError> {
        let shared = &self.shared;
        shared.check_whole()?;
        let Some(there) = shared.members().into_iter().nth(member) else {
            return Err(refused(format!("there is no member {member}"), ""));
        };
        let meant = there.id();
        let is_own = with.path == there.path();
        let label = shared.book.lock().label.clone();
        let is_in = label.members[member].standing == MemberStanding::In;
        let is_it = |spare: &&Spare| spare.path == with.path && spare.device.is_some();
        let waiting = shared.spares.lock().iter().find(is_it).cloned();
        let is_spare = is_in && waiting.is_some();
        let spare = match waiting.filter(|_| is_in) {
            Some(spare) => spare,
            None if is_own => {
                let device = Some(self.check_own(member, &with)?);
                Spare { id, path: with.path, device }
            }
            None => {
                check_free(&with, &label)?;
                Spare { id, path: with.path, device: with.device }
            }
        };
        let (has, wanted) = (spare.data_bytes(), there.data_bytes());
        if has < wanted {
            let what = format!("{} has {} bytes", spare.path, has + AREA_BYTES);
            return Err(refused(what, &format!("at least {} are needed", wanted + AREA_BYTES)));
        }
        if is_in {
            return self.begin_copying(member, (spare, is_spare));
        }
        if !can_be_replaced(&shared.stack(), member) {
            let what =
                format!("{} is under a layer that cannot be made anew by itself", there.path());
            return Err(refused(
                what,
                "only what lies right under a mirror or parity, or a stripe of one, with or \
                 without layers of its own",
            ));
        }
        let stays = |m: usize| m != member && shared.standing_of(m) == Standing::In;
        if !is_readable(&shared.stack(), &stays) {
            let what = format!("what {} has the others do not", there.path());
            return Err(refused(what, "wait until all others are up to date"));
        }
        // Until it is in its place nobody else takes that.
        let _work = self.hold_work();
        if there.id() == meant {
            shared.make_ready(member, &spare, is_own)?;
        }
        let layer = shared.renewed(member);
        let alone = layer.as_ref().map(|layer| layer.alone());
        let mut book = shared.book.lock();
        if book.label.members[member].id != meant {
            let what = format!("{} has taken the place just now", there.path());
            return Err(refused(what, "look at `pool status`"));
        }
        if book.label.members[member].standing != MemberStanding::Out {
            let (kind, what) = (DeviceErrorKind::Io, Operation::Write);
            let failure = DeviceError::new(kind, what, (0, 0), there.path(), "it is replaced");
            shared.put_out_with(&mut book, &[member], &failure)?;
        }
        shared.put_in_place(&mut book, member, &spare, alone)
    }

    /// What a member that is out is found on, which is to take its own place.
    fn check_own(
        &self,
        member: usize,
        with: &Candidate,
    ) -> Result<Arc<dyn BlockDevice>, ArrayError> {
        let shared = &self.shared;
        let path = &with.path;
        let label = shared.book.lock().label.clone();
        let row = &label.members[member];
        if row.standing != MemberStanding::Out {
            return Err(refused(format!("{path} is in use"), "give another file or disk"));
        }
        let (_, _, there) = shared.member(member).place();
        let Some(device) = with.device.clone().or(there) else {
            return Err(refused(format!("{path} is not there"), ""));
        };
        let is_its = |own: Label| own.array_id == label.array_id && own.member_id == row.id;
        if !read_label(&*device).is_ok_and(is_its) {
            let device = Some(Arc::clone(&device));
            check_free(&Candidate { path: path.clone(), device }, &label)?;
        }
        Ok(device)
    }

    /// The number of the member at a path.
    #[must_use]
    pub fn member_at(&self, path: &str) -> Option<usize> {
        self.shared.members().iter().position(|member| member.path() == path)
    }
}

impl Shared {
    /// Puts a device in the place of a member that is out; it has nothing of what was ever written.
    pub(super) fn put_in_place(
        &self,
        book: &mut Book,
        member: usize,
        with: &Spare,
        mut layer: Option<Alone<'_>>,
    ) -> Result<(), ArrayError> {
        let there = self.member(member);
        let (before, was) = (there.place(), book.label.members[member].clone());
        let taken = layer.as_mut().map(Alone::take);
        there.replace(with.id, with.path.clone(), with.device.clone());
        let row = &mut book.label.members[member];
        (row.id, row.path, row.standing) = (with.id, noted(&with.path), MemberStanding::Stale);
        book.all_is_stale();
        let outcome = self.write_regions(book).and_then(|()| self.write_labels(book));
        if let Err(error) = outcome {
            book.label.members[member] = was;
            let (id, path, device) = before;
            there.replace(id, path, device);
            if let Some((mut layer, taken)) = layer.zip(taken) {
                layer.put(taken);
            }
            return Err(error.into());
        }
        if book.label.members[member].standing == MemberStanding::Out {
            return Err(refused(format!("{} failed at once", with.path), "it is out"));
        }
        if let Some(Err(error)) = layer.map(|mut layer| layer.open()) {
            self.put_out_with(book, &[member], &error)?;
            return Err(refused(format!("{} failed at once", with.path), "it is out"));
        }
        self.set_standing(member, Standing::Stale);
        let behind = book.begin_behind();
        self.behind.store(behind, Ordering::Relaxed);
        self.tell(member, "member-replaced", format!("in the place of {}", before.1));
        Ok(())
    }
}

/// Whether what a member has can be had from the others, and written to another device as it is:
/// nothing but stripes is between it and a mirror or parity over it, and layers of its own, which
/// are made anew.
pub(super) fn can_be_replaced(stack: &Stack, member: usize) -> bool {
    let has = |stack: &Stack| stack.members().into_iter().any(|m| number_of(m) == member);
    match stack {
        Stack::Member(_) => false,
        Stack::Mirror { below } | Stack::Parity { below, .. } => {
            below.iter().any(|side| has(side) && (is_plain(side) || can_be_replaced(side, member)))
        }
        Stack::Stripe { below, .. } | Stack::Concat { below } => {
            below.iter().any(|s| has(s) && can_be_replaced(s, member))
        }
        Stack::Crypt { below, .. } => can_be_replaced(below, member),
    }
}

fn is_plain(stack: &Stack) -> bool {
    match stack {
        Stack::Member(_) => true,
        Stack::Stripe { below, .. } | Stack::Concat { below } => below.iter().all(is_plain),
        Stack::Crypt { .. } => {
            matches!(base_of(stack), Stack::Member(_))
        }
        Stack::Mirror { .. } | Stack::Parity { .. } => false,
    }
}
