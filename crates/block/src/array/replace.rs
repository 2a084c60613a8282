//! Another device in the place of a member.

use std::sync::atomic::Ordering;

use format::label::{AREA_BYTES, MemberStanding};

use super::book::Book;
use super::grow::check_free;
use super::opening::{noted, refused};
use super::spares::Spare;
use super::{Array, is_readable, number_of};
use crate::layers::Standing;
use crate::stack::Stack;
use crate::{ArrayError, Candidate, DeviceError};

impl Array {
    /// Puts a blank device in the place of a member, which is brought up to date on it. A member
    /// that still works is put out first, if the others are enough.
    ///
    /// # Errors
    /// `Refused` when there is no such member, the others are not enough, the device is too small or
    /// neither blank nor claimed by a growth of this array that never came about, or a layer under the mirror or parity keeps something of its own on it; the devices'.
    pub fn replace(&self, member: usize, with: Candidate, id: u128) -> Result<(), ArrayError> {
        let shared = &self.shared;
        shared.check_whole()?;
        let Some(there) = shared.members().into_iter().nth(member) else {
            return Err(refused(format!("there is no member {member}"), ""));
        };
        let label = shared.book.lock().label.clone();
        check_free(&with, &label)?;
        let device = with.device.expect("what is free is there");
        if !can_be_replaced(&shared.stack(), member) {
            let what =
                format!("{} is under a layer that cannot be made anew by itself", there.path());
            return Err(refused(
                what,
                "only what lies right under a mirror or parity, or under a stripe of one",
            ));
        }
        let wanted = there.data_bytes() + AREA_BYTES;
        if device.len_bytes() < wanted {
            let what = format!("{} has {} bytes", with.path, device.len_bytes());
            return Err(refused(what, &format!("at least {wanted} are needed")));
        }
        let stays = |m: usize| m != member && shared.standing_of(m) == Standing::In;
        if !is_readable(&shared.stack(), &stays) {
            let what = format!("what {} has the others do not", there.path());
            return Err(refused(what, "wait until all others are up to date"));
        }
        let meant = there.id();
        let _work = self.work.lock();
        let mut book = shared.book.lock();
        if book.label.members[member].id != meant {
            let what = format!("{} has taken the place just now", there.path());
            return Err(refused(what, "look at `pool status`"));
        }
        if book.label.members[member].standing != MemberStanding::Out {
            let failure = replaced(&there.path());
            shared.put_out_with(&mut book, &[member], &failure)?;
        }
        let spare = Spare { id, path: with.path, device: Some(device) };
        self.put_in_place(&mut book, member, &spare)
    }

    /// Puts a device in the place of a member that is out; it has nothing of what was ever written.
    pub(super) fn put_in_place(
        &self,
        book: &mut Book,
        member: usize,
        with: &Spare,
    ) -> Result<(), ArrayError> {
        let shared = &self.shared;
        let there = shared.member(member);
        let (before, was) = (there.place(), book.label.members[member].clone());
        there.replace(with.id, with.path.clone(), with.device.clone());
        let row = &mut book.label.members[member];
        (row.id, row.path, row.standing) = (with.id, noted(&with.path), MemberStanding::Stale);
        book.all_is_stale();
        let outcome = shared.write_regions(book).and_then(|()| shared.write_labels(book));
        if let Err(error) = outcome {
            book.label.members[member] = was;
            let (id, path, device) = before;
            there.replace(id, path, device);
            return Err(error.into());
        }
        if book.label.members[member].standing == MemberStanding::Out {
            return Err(refused(format!("{} failed at once", with.path), "it is out"));
        }
        shared.set_standing(member, Standing::Stale);
        let behind = book.begin_behind();
        shared.behind.store(behind, Ordering::Relaxed);
        shared.tell(member, "member-replaced", format!("in the place of {}", before.1));
        Ok(())
    }

    /// The number of the member at a path.
    #[must_use]
    pub fn member_at(&self, path: &str) -> Option<usize> {
        self.shared.members().iter().position(|member| member.path() == path)
    }
}

/// Whether what a member has can be had from the others, and written to another device as it is:
/// nothing but stripes is between it and a mirror or parity over it.
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
        Stack::Integrity { below, .. }
        | Stack::Crypt { below, .. }
        | Stack::Delay { below, .. } => can_be_replaced(below, member),
    }
}

fn is_plain(stack: &Stack) -> bool {
    match stack {
        Stack::Member(_) => true,
        Stack::Stripe { below, .. } | Stack::Concat { below } => below.iter().all(is_plain),
        _ => false,
    }
}

fn replaced(path: &str) -> DeviceError {
    DeviceError {
        kind: crate::DeviceErrorKind::Io,
        operation: crate::Operation::Write,
        offset: 0,
        length_bytes: 0,
        device: path.to_owned(),
        source: std::io::Error::other("it is replaced"),
    }
}
