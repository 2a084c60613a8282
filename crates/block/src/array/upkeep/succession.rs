//! A member that works gets a successor: it is copied, beside those who use it, and then the labels
//! name the other in its place. See [`crate::array::successor`].

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::label::{Member, MemberStanding};

use super::{LANES, STEP_BYTES, STEPS_MAX, Upkeep};
use crate::Result;
use crate::array::book::Book;
use crate::array::candidate::{ArrayError, Spare, noted, refused, wipe};
use crate::array::member::{Counters, MemberDevice};
use crate::array::shared::Shared;
use crate::array::spares::label_spare;
use crate::array::successor::{Fault, Successor};
use crate::together::make_steps;

impl Upkeep {
    /// Begins to copy a member that is in to a device, or a spare, that takes its place then.
    pub(in crate::array) fn begin_copying(
        &self,
        member: usize,
        (with, is_spare): (Spare, bool),
    ) -> std::result::Result<(), ArrayError> {
        let shared = &self.shared;
        // Nobody gives the spare another place meanwhile.
        let _work = self.work.lock();
        let there = shared.member(member);
        let mut book = shared.book.lock();
        if book.label.members[member].standing != MemberStanding::In {
            return Err(refused(format!("{} is not in any more", there.path()), "try again"));
        }
        if with.data_bytes() < there.data_bytes() {
            return Err(refused(format!("{} became longer", there.path()), "give a longer one"));
        }
        if let Some(successor) = there.successor() {
            let other = &successor.spare.path;
            let what = format!("{} is being copied to {other}", there.path());
            return Err(refused(what, &format!("`pool spare remove {other}` ends that")));
        }
        let is_free = shared.spares.lock().iter().any(|spare| spare.id == with.id);
        if is_spare && (!is_free || shared.is_successor(with.id)) {
            return Err(refused(format!("{} takes another place", with.path), "give another"));
        }
        if !is_spare {
            shared.add_spare_row(&mut book, with.clone())?;
        }
        shared.tell(member, "replace-begun", format!("{} gets everything that it has", with.path));
        there.set_successor(Some(Arc::new(Successor::new(with))));
        Ok(())
    }

    /// Copies some of what successors have still to get; false when there is nothing to do.
    pub(in crate::array) fn copy_some(&self, goes_on: &(dyn Fn() -> bool + Sync)) -> Result<bool> {
        if self.shared.is_torn() || self.let_go()? {
            return Ok(!self.shared.is_torn());
        }
        let members = self.shared.members().into_iter().enumerate();
        let mut with = members.filter_map(|(n, m)| Some((n, m.successor()?, m)));
        let Some((number, successor, member)) = with.next() else { return Ok(false) };
        let (lanes, steps) = if goes_on() { (LANES, STEPS_MAX) } else { (1, 1) };
        let parts = successor.next(steps, STEP_BYTES, member.data_bytes());
        if parts.is_empty() {
            return self.turn(number, &member, &successor).map(|()| true);
        }
        let (_, _, device) = member.place();
        let device = device.expect("a member that works is there");
        let copy = |number: usize| {
            let copied = successor.copy(&*device, parts[number])?;
            self.resynced.fetch_add(copied, Ordering::Relaxed);
            let Counters { read_bytes, written_bytes, .. } = &member.counters;
            read_bytes.fetch_add(copied, Ordering::Relaxed);
            written_bytes.fetch_add(copied, Ordering::Relaxed);
            Ok(())
        };
        match make_steps(&*self.together, lanes, parts.len(), goes_on, copy) {
            Ok(made) => successor.came(&parts[..made]),
            Err(Fault::Successor(error)) => successor.end(error.to_string(), true),
            // A scrub may heal that, and until then it has what others may have lost.
            Err(Fault::Member(error)) => {
                successor.end(format!("{error}; scrub the pool, and try again"), false);
            }
        }
        Ok(true)
    }

    /// Lets go of successors that are not to take a place any more; those that failed are no spares
    /// either. Says whether there were any.
    pub(in crate::array) fn let_go(&self) -> Result<bool> {
        let shared = &self.shared;
        let mut had_some = false;
        for (number, member) in shared.members().into_iter().enumerate() {
            let Some(successor) = member.successor() else { continue };
            let Some((why, has_failed)) = successor.over() else { continue };
            let path = &successor.spare.path;
            if *has_failed {
                shared.forget_row(&mut shared.book.lock(), &successor.spare)?;
            }
            // Nothing that is under way comes to it after this.
            member.set_successor(None);
            had_some = true;
            shared.tell(number, "replace-failed", format!("not by {path}: {why}"));
        }
        Ok(had_some)
    }

    /// Has the labels name a successor that has everything.
    fn turn(&self, number: usize, member: &MemberDevice, successor: &Successor) -> Result<()> {
        let shared = &self.shared;
        if let Err(error) = successor.device().flush() {
            successor.end(error.to_string(), true);
            return Ok(());
        }
        let _turning = successor.turning.write();
        let mut book = shared.book.lock();
        if book.label.members[number].standing != MemberStanding::In
            || !member.begin_turning(successor)
        {
            // It began again, or is over.
            return Ok(());
        }
        let spare = &successor.spare;
        let (outcome, undo) = shared.name(&mut book, number, spare);
        if let Err(error) = outcome {
            // Until that is written its label may count: both get everything.
            successor.set_named(false);
            if let Err(error) = shared.name_again(&mut book, number, undo) {
                assert!(shared.torn.set(error.again()).is_ok(), "nothing is written after it");
                return Err(error);
            }
            successor.end(error.to_string(), true);
            return Ok(());
        }
        let (path, device) = member.turn();
        shared.spares.lock().retain(|other| other.id != spare.id);
        let how = format!("in the place of {path}, whose bytes it has");
        shared.tell(number, "member-replaced", how);
        drop(book);
        // It is nobody, and misses what is written from now on.
        let device = device.expect("a member that works is there");
        if let Err(error) = wipe(&*device) {
            shared.note("member-ignored", &path, format!("not wiped: {error}"));
        }
        Ok(())
    }
}

impl Shared {
    /// Writes labels that name a spare in the place of a member; returns the rows of both before.
    fn name(&self, book: &mut Book, number: usize, spare: &Spare) -> (Result<()>, [Member; 2]) {
        let of_spare = book.take_row(spare.id);
        let of_member = book.label.members[number].clone();
        let row = &mut book.label.members[number];
        (row.id, row.path) = (spare.id, noted(&spare.path));
        // What is on it is written first: should it fail the others do not know of it yet.
        let (address, maps) = book.regions.encode();
        let device = spare.device.as_ref().expect("one that is to take a place is there");
        let written = device
            .write_durable(address, &[IoSlice::new(&maps)])
            .and_then(|()| label_spare(book, spare))
            .and_then(|()| self.write_labels(book));
        (written, [of_member, of_spare])
    }

    /// Writes labels that name the member again, later than all that was tried.
    fn name_again(&self, book: &mut Book, number: usize, rows: [Member; 2]) -> Result<()> {
        let [of_member, of_spare] = rows;
        let row = &mut book.label.members[number];
        (row.id, row.path) = (of_member.id, of_member.path);
        book.label.members.push(of_spare);
        book.label.generation += 1;
        self.write_labels(book)
    }

    /// Whether a spare is to take the place of a member that works.
    pub(in crate::array) fn is_successor(&self, id: u128) -> bool {
        let successors = self.members().into_iter().filter_map(|member| member.successor());
        successors.into_iter().any(|successor| successor.spare.id == id)
    }

    /// Bytes that successors have still to get.
    pub(in crate::array) fn left_to_copy(&self) -> u64 {
        let left = |m: Arc<MemberDevice>| Some(m.successor()?.left(m.data_bytes()));
        self.members().into_iter().filter_map(left).sum()
    }
}
