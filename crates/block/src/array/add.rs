//! New members for an array that is in use; and its only one becomes longer.
//!
//! Nothing is there of the new part while its members are claimed and its layers are made: that is
//! done beside everybody. Then writers are kept out for as long as it takes to write maps and
//! labels, in the order of [`super::grow`]; the part is behind what there is from then on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::label::{self, Label, MEMBERS_MAX, Member, Regions};

use super::assemble::share;
use super::book::Book;
use super::build::{Making, build, top_bytes};
use super::candidate::{ArrayError, Candidate, Identities, refused};
use super::device::Array;
use super::grow::{Added, add_rows, check_as_safe, check_free, check_length, checked, wider};
use super::materials::Materials;
use super::member::MemberDevice;
use super::regions::set;
use super::shared::{Shared, members_of};
use crate::layers::{Standing, StripeDevice};
use crate::stack::Stack;
use crate::{BlockDevice, Resync};

/// What is about to become part of an array.
pub(super) struct Part {
    /// The stack of the array with it, and as text.
    pub stack: Stack,
    pub text: String,
    pub rows: Vec<Member>,
    pub members: Vec<Arc<MemberDevice>>,
    /// Bytes of the array before and after.
    pub bytes: (u64, u64),
}

impl Array {
    /// Makes the array longer by a stack over new members, which must be blank, while it is used.
    /// Returns its length before and after.
    ///
    /// # Errors
    /// `Refused` when a member is not up to date, or what is added protects less than what is
    /// there: then nothing was written; the devices'.
    pub fn add(
        &self,
        added: Added<'_>,
        identities: Identities<'_>,
        materials: &Materials<'_>,
    ) -> Result<(u64, u64), ArrayError> {
        let _growing = self.growing.lock();
        let shared = &self.shared;
        let Added { stack: new, candidates } = added;
        let (label, maps) = {
            let book = shared.book.lock();
            (book.label.clone(), book.regions.clone())
        };
        shared.check_whole()?;
        self.check_settled(&label)?;
        let stack = shared.stack();
        check_as_safe(&stack, new)?;
        candidates.iter().try_for_each(|one| check_free(one, &label))?;
        let count = members_of(&label).len();
        let mut grown = label.clone();
        let numbered = add_rows(&mut grown, new, &candidates, identities.random)?;
        let stack = (*stack).clone().followed_by(numbered.clone());
        let text = checked(&stack)?;
        grown.stack.clone_from(&text);
        let bytes = (self.len_bytes(), top_bytes(&stack, &grown.members));
        wider(&maps, &mut grown, bytes)?;
        if grown.region_bytes != label.region_bytes && stack.has_parity() {
            let what = "the pool's regions would be too many, and parity is computed by them";
            return Err(refused(what, "stop the server, then give the command again"));
        }
        let making = claimed(&grown, &stack, candidates)?;
        let members = making.members();
        build(&making, &members, &numbered, materials, Making::New)?.flush()?;
        let device = build(shared, &members, &numbered, materials, Making::There)?;
        let top = Arc::new(StripeDevice::concat(vec![Arc::clone(self.top().now()), device]));
        assert_eq!(top.len_bytes(), bytes.1, "as long as was computed");
        let rows = members_of(&grown)[count..].to_vec();
        let members = members[count..].to_vec();
        let outcome = self.begin_part(Part { stack, text, rows, members, bytes }, top);
        shared.claim_again(&making, count);
        outcome.map(|()| bytes)
    }

    /// Whether a growth failed in such a way that the next opening decides whether it was done. The
    /// new members may be needed then; until then nothing can be marked, nor anybody put out.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.shared.is_torn()
    }

    /// Makes a part that is ready part of the array, while nobody writes.
    fn begin_part(&self, part: Part, top: Arc<dyn BlockDevice>) -> Result<(), ArrayError> {
        let shared = &self.shared;
        // Whoever brings a member up to date, or tidies, is through with it.
        let (_work, _tidying) = (self.hold_work(), self.hold_tidying());
        let _alone = self.hold_writers();
        let mut book = shared.book.lock();
        let mut label = self.label_with(&book, &part)?;
        let (mut maps, partly) = wider(&book.regions, &mut label, part.bytes)?;
        let has_parity = part.stack.has_parity();
        if has_parity {
            partly.iter().for_each(|&region| set(&mut maps.open, region));
        }
        let region_bytes = label.region_bytes;
        self.write_part(&mut book, (label, maps), &part)?;
        if region_bytes != self.shared.regions.region_bytes() {
            shared.regions.begin_again(region_bytes);
        }
        self.put_over(top, &part.stack);
        drop(book);
        shared.note("pool-grown", &part.text_of_members(), "they are in use".to_owned());
        for region in partly.into_iter().filter(|_| has_parity) {
            // Of what is new in it parity is computed when somebody writes there, or tidies.
            self.note_loose(region..region + 1);
            let end = self.bytes_of(region, region_bytes).end;
            self.top().resync(part.bytes.0, end - part.bytes.0, Resync::Unused)?;
        }
        Ok(())
    }

    /// The label with a part, if nothing stands against that now.
    pub(super) fn label_with(&self, book: &Book, part: &Part) -> Result<Label, ArrayError> {
        self.check_settled(&book.label)?;
        let mut label = book.label.clone();
        if label.members.len() + part.rows.len() > MEMBERS_MAX {
            return Err(refused(format!("at most {MEMBERS_MAX} members and spares"), ""));
        }
        let count = members_of(&label).len();
        label.members.splice(count..count, part.rows.iter().cloned());
        label.stack.clone_from(&part.text);
        Ok(label)
    }

    /// Writes maps and labels with a part. Where that fails some may count by now: those without it
    /// are written after them. Where that fails too nobody knows, and no label is written any more:
    /// the next opening finds the one or the other, as after a crash, and needs the new members.
    pub(super) fn write_part(
        &self,
        book: &mut Book,
        (label, maps): (Label, Regions),
        part: &Part,
    ) -> Result<(), ArrayError> {
        let shared = &self.shared;
        let count = shared.members.read().len();
        let keeps_beside = part.stack.keeps_over_copies();
        let former = book.change((label, maps, keeps_beside));
        let stack = std::mem::replace(&mut *shared.stack.write(), Arc::new(part.stack.clone()));
        shared.members.write().extend(part.members.iter().cloned());
        // The members that were there come first: the first of their labels makes it so.
        let outcome = shared.write_regions(book).and_then(|()| shared.write_labels(book));
        let Err(error) = outcome else { return Ok(()) };
        *shared.stack.write() = stack;
        shared.members.write().truncate(count);
        let out: Vec<usize> =
            (0..count).filter(|&m| shared.standing_of(m) == Standing::Out).collect();
        book.undo(former, &out);
        for number in count..count + part.members.len() {
            shared.set_standing(number, Standing::In);
        }
        if let Err(error) = shared.write_regions(book).and_then(|()| shared.write_labels(book)) {
            assert!(shared.torn.set(error).is_ok(), "nothing is written after it");
        }
        Err(error.into())
    }

    /// Makes an array of one member longer while it is used: by what that has become, or by making
    /// it so long as to have these bytes. Returns its length.
    ///
    /// # Errors
    /// `Refused` when there are several members, or the one is being replaced; the device's.
    pub fn lengthen_member(&self, len_bytes: Option<u64>) -> Result<u64, ArrayError> {
        let _growing = self.growing.lock();
        let shared = &self.shared;
        shared.check_whole()?;
        let stack = shared.stack();
        if !matches!(*stack, Stack::Member(_)) {
            let what = "members that became longer are used when no server runs on the pool";
            return Err(refused(what, "stop it and give `--pool`, or add members with `--add`"));
        }
        // Nobody begins to replace it meanwhile.
        let _work = self.hold_work();
        let member = shared.member(0);
        if let Some(successor) = member.successor() {
            let what = format!("{} is being copied to {}", member.path(), successor.spare.path);
            return Err(refused(what, "wait until that is done"));
        }
        let (before, bytes) = (member.data_bytes(), member.lengthen_device(len_bytes)?);
        check_length(&member.path(), bytes)?;
        if bytes <= before {
            return Ok(before);
        }
        let _alone = self.hold_writers();
        let mut book = shared.book.lock();
        let mut label = book.label.clone();
        label.members[0].data_bytes = bytes;
        let (maps, _) = wider(&book.regions, &mut label, (before, bytes))?;
        let region_bytes = label.region_bytes;
        let (stack, text) = ((*stack).clone(), label.stack.clone());
        let part =
            Part { stack, text, rows: Vec::new(), members: Vec::new(), bytes: (before, bytes) };
        self.write_part(&mut book, (label, maps), &part)?;
        if region_bytes != shared.regions.region_bytes() {
            shared.regions.begin_again(region_bytes);
        }
        member.set_data_bytes(bytes);
        Ok(self.len_bytes())
    }
}

/// New members behind those that a label had before, with their claims. What fails of them is
/// nobody else's failure.
pub(super) fn claimed(
    grown: &Label,
    stack: &Stack,
    new: Vec<Candidate>,
) -> Result<Arc<Shared>, ArrayError> {
    let count = members_of(grown).len() - new.len();
    let there = std::iter::repeat_n((String::new(), None), count);
    let devices = there.chain(new.into_iter().map(|one| (one.path, one.device))).collect();
    let making = share(grown, stack, devices, Regions::new(grown.array_id, 1));
    making.is_making.store(true, Ordering::SeqCst);
    making.claim(count)?;
    Ok(making)
}

impl Shared {
    /// Claims new members once more that did not become part of the array, of which there are so
    /// many: their labels may say that they did, and they would not be blank. One that fails has to
    /// be wiped by people.
    pub(super) fn claim_again(&self, making: &Shared, count: usize) {
        if self.is_torn() || self.members.read().len() > count {
            return;
        }
        let zeros = vec![0; label::layout::BYTES];
        let others = label::copies_of_generation(label::CLAIM_GENERATION + 1);
        let forget = |member: &MemberDevice| {
            others.iter().try_for_each(|&copy| member.write_area(label::COPY_OFFSETS[copy], &zeros))
        };
        let forgotten = making.members()[count..].iter().try_for_each(|member| forget(member));
        drop(forgotten.and_then(|()| making.claim(count)));
    }

    /// Whether nobody knows which labels count.
    pub(super) fn is_torn(&self) -> bool {
        self.torn.get().is_some()
    }

    /// Fails at once where a growth failed so that nobody knows which labels count: nothing can be
    /// written to any.
    pub(super) fn check_whole(&self) -> Result<(), ArrayError> {
        match self.torn.get() {
            None => Ok(()),
            Some(error) => {
                let what =
                    format!("the pool grew, and what its members have is not known: {error}");
                Err(refused(what, "start the server again; that finds out"))
            }
        }
    }
}

impl Part {
    pub(super) fn text_of_members(&self) -> String {
        let paths: Vec<String> = self.members.iter().map(|member| member.path()).collect();
        paths.join(", ")
    }
}
