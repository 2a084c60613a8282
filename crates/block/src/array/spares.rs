//! Hot spares: blank devices that wait to take the place of a member that fails.
//!
//! A spare has a label and a row in everybody's table, after those of the members; the stack does
//! not name it. Nothing is written to it until it takes a place.

use std::io::IoSlice;

use format::label::{self, AREA_BYTES, Label, MEMBERS_MAX, MemberStanding};

use super::book::Book;
use super::candidate::{ArrayError, Candidate, Spare, refused, wipe};
use super::device::Array;
use super::grow::{check_free, check_length};
use super::replace::can_be_replaced;
use super::shared::Shared;

/// A spare, as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpareStatus {
    /// Where it was found.
    pub path: String,
    /// Its identity.
    pub id: u128,
    /// Whether there is a device.
    pub is_there: bool,
    /// Bytes that a member has on it.
    pub data_bytes: u64,
    /// Whether it gets what a member has, to take its place.
    pub is_copied_to: bool,
}

impl Array {
    /// The spares.
    #[must_use]
    pub fn spares(&self) -> Vec<SpareStatus> {
        let status = |spare: &Spare| SpareStatus {
            path: spare.path.clone(),
            id: spare.id,
            is_there: spare.device.is_some(),
            data_bytes: spare.data_bytes(),
            is_copied_to: self.shared.is_successor(spare.id),
        };
        self.shared.spares.lock().iter().map(status).collect()
    }

    /// Adds a blank device that waits to take the place of a member that fails.
    ///
    /// # Errors
    /// `Refused` when it could take nobody's place, is neither blank nor claimed by a growth of
    /// this array that never came about, or there are too many; the devices'.
    pub fn add_spare(&self, candidate: Candidate, id: u128) -> Result<(), ArrayError> {
        let shared = &self.shared;
        shared.check_whole()?;
        let label = shared.book.lock().label.clone();
        check_free(&candidate, &label)?;
        let Candidate { path, device } = candidate;
        let spare = Spare { id, path, device };
        let smallest = shared.members().iter().map(|m| m.data_bytes()).min().unwrap_or(0);
        if spare.data_bytes() < smallest {
            let what = format!("{} is smaller than every member", spare.path);
            return Err(refused(what, &format!("at least {} bytes", smallest + AREA_BYTES)));
        }
        check_length(&spare.path, spare.data_bytes())?;
        if !(0..shared.members().len()).any(|m| can_be_replaced(&shared.stack(), m)) {
            let what = "no member of this stack can be replaced by itself";
            return Err(refused(what, "spares are for members right under a mirror or a stripe"));
        }
        shared.add_spare_row(&mut shared.book.lock(), spare)
    }

    /// Takes a spare away, which is blank then if it can be written.
    ///
    /// # Errors
    /// `Refused` when there is none at the path; the devices'.
    pub fn remove_spare(&self, path: &str) -> Result<(), ArrayError> {
        let shared = &self.shared;
        shared.check_whole()?;
        let mut book = shared.book.lock();
        let Some(spare) = shared.spares.lock().iter().find(|s| s.path == path).cloned() else {
            return Err(refused(format!("{path} is no spare"), "`pool status` names them"));
        };
        for member in shared.members() {
            let successor = member.successor().filter(|s| s.spare.id == spare.id);
            if let Some(successor) = successor {
                // Whoever copies to it now does not have labels name it.
                successor.end("it was taken away".to_owned(), false);
                member.set_successor(None);
                let why = format!("not by {path}: it was taken away");
                shared.note("replace-failed", &member.path(), why);
            }
        }
        shared.forget_row(&mut book, &spare)?;
        let wiped = spare.device.as_ref().map_or(Ok(()), |device| wipe(&**device));
        // It is a spare no more, whatever is on it.
        let detail = wiped.err().map_or_else(String::new, |error| format!("not wiped: {error}"));
        shared.note("spare-removed", path, detail);
        Ok(())
    }

    /// Puts a spare in the place of a member that is out, the smallest that is large enough; false
    /// if there is nothing to do.
    ///
    /// # Errors
    /// Those of the devices: the member stays out, and the spare a spare.
    pub fn use_spare(&self) -> Result<bool, ArrayError> {
        let shared = &self.shared;
        if self.is_torn() {
            return Ok(false);
        }
        let _work = self.hold_work();
        self.let_go()?;
        for (member, device) in shared.members().iter().enumerate() {
            let is_out = |book: &Book| book.label.members[member].standing == MemberStanding::Out;
            if !is_out(&shared.book.lock()) || !can_be_replaced(&shared.stack(), member) {
                continue;
            }
            let wanted = device.data_bytes();
            let Some(spare) = shared.smallest_spare(wanted) else { continue };
            // Where that fails it is out as soon as it is in its place, and the next one is taken.
            let _ = shared.make_ready(member, &spare, false);
            let layer = shared.renewed(member);
            let alone = layer.as_ref().map(|layer| layer.alone());
            let mut book = shared.book.lock();
            let is_there = book.label.members.iter().any(|row| row.id == spare.id);
            if !is_out(&book) || !is_there {
                continue;
            }
            let row = book.take_row(spare.id);
            let outcome = shared.put_in_place(&mut book, member, &spare, alone);
            if book.label.members[member].id == spare.id {
                shared.spares.lock().retain(|s| s.id != spare.id);
            } else {
                book.label.members.push(row);
            }
            return outcome.map(|()| true);
        }
        Ok(false)
    }
}

/// Writes the label of a new spare, under the generation that will name it.
pub(super) fn label_spare(book: &Book, spare: &Spare) -> crate::Result<()> {
    let generation = book.label.generation + 1;
    let label = Label { member_id: spare.id, generation, ..book.label.clone() };
    let device = spare.device.as_ref().expect("a new spare is there");
    label::copies_of_generation(generation).into_iter().try_for_each(|copy| {
        device.write_durable(label::COPY_OFFSETS[copy], &[IoSlice::new(&label.encode(copy))])
    })
}

impl Shared {
    /// Gives a new spare its label, and a row in everybody's.
    pub(super) fn add_spare_row(&self, book: &mut Book, spare: Spare) -> Result<(), ArrayError> {
        if book.label.members.len() == MEMBERS_MAX {
            return Err(refused(format!("there are {MEMBERS_MAX} members and spares"), ""));
        }
        book.label.members.push(spare.row());
        let outcome = label_spare(book, &spare).and_then(|()| self.write_labels(book));
        if let Err(error) = outcome {
            book.label.members.pop();
            return Err(error.into());
        }
        self.note("spare-added", &spare.path, String::new());
        self.spares.lock().push(spare);
        Ok(())
    }

    /// Takes a spare's row out of everybody's labels.
    pub(super) fn forget_row(&self, book: &mut Book, spare: &Spare) -> crate::Result<()> {
        let row = book.take_row(spare.id);
        if let Err(error) = self.write_labels(book) {
            book.label.members.push(row);
            return Err(error);
        }
        self.spares.lock().retain(|other| other.id != spare.id);
        Ok(())
    }

    fn smallest_spare(&self, data_bytes: u64) -> Option<Spare> {
        let spares = self.spares.lock();
        let is_free = |s: &&Spare| s.data_bytes() >= data_bytes && !self.is_successor(s.id);
        let fitting = spares.iter().filter(is_free);
        fitting.min_by_key(|s| s.data_bytes()).cloned()
    }
}
