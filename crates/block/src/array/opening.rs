//! Making an array, and opening one: who is there, whose label counts, what is settled first.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::{Rank, RankedMutex};
use format::label::{self, Label, MemberStanding, REGION_BYTES_MIN, REGIONS_MAX};

use super::assemble::{devices_of, newest_maps, share};
use super::build::{Making, Unusable, build, plain_mirror, top_bytes, unusable};
use super::candidate::{ArrayError, Candidate, Identities, refused};
use super::device::Array;
use super::found::{Found, Known, find, stand, take_cut, too_few};
use super::grow::add_rows;
use super::kept::of_layer;
use super::marks::Marks;
use super::materials::Materials;
use super::shared::{Shared, is_readable, members_of};
use super::upkeep::Upkeep;
use crate::BlockDevice;
use crate::layers::{MirrorDevice, Standing, TrialDevice};
use crate::stack::Stack;

/// Members that can be put together.
pub struct Opening<'m> {
    all: Vec<Candidate>,
    materials: &'m Materials<'m>,
    label: Label,
    /// The label that they have, if all have the same.
    as_found: Option<Label>,
    stack: Stack,
    shared: Arc<Shared>,
    absent: Absent,
}

/// Members that are not as the label has them.
struct Absent {
    /// Those that are not there, though the label does not call them out.
    missing: Vec<usize>,
    /// Of those that are not there the ones that were cut, and how.
    cut: BTreeMap<usize, String>,
    back: Vec<usize>,
    failed: Vec<Unusable>,
}

impl Absent {
    /// Those that are put out though the label has them in, or on their way.
    fn fresh(&self, label: &Label) -> Vec<usize> {
        let failing = self.failed.iter().flat_map(|one| &one.members);
        let all = self.missing.iter().chain(failing).copied();
        all.filter(|&m| label.members[m].standing != MemberStanding::Out).collect()
    }
}

fn trial(below: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    Arc::new(TrialDevice::new(below))
}

impl Opening<'_> {
    /// Whether it puts a member out that was in when these were used last.
    #[must_use]
    pub fn puts_out(&self) -> bool {
        !self.absent.fresh(&self.label).is_empty()
    }

    /// Where members are that it puts out.
    #[must_use]
    pub fn absent(&self) -> Vec<&str> {
        let fresh = self.absent.fresh(&self.label);
        fresh.into_iter().map(|member| self.label.members[member].path.as_str()).collect()
    }

    /// Where members are that have not the length that they had any more, and how that is.
    pub fn cut(&self) -> impl Iterator<Item = (&str, &str)> {
        let path = |member: &usize| self.label.members[*member].path.as_str();
        self.absent.cut.iter().map(move |(member, why)| (path(member), why.as_str()))
    }

    /// The same array over what keeps all that is written to it in memory: for a trial of what else
    /// is needed, before a member is put out for good.
    ///
    /// # Errors
    /// As [`Array::open`].
    pub fn tried(&self) -> Result<Array, ArrayError> {
        let held = |one: &Candidate| Candidate {
            path: one.path.clone(),
            device: one.device.clone().map(trial),
        };
        Array::open(self.all.iter().map(held).collect(), self.materials)
    }

    /// Writes down who is out, and puts the others together.
    ///
    /// # Errors
    /// As [`Array::open`].
    pub fn open(self) -> Result<Array, ArrayError> {
        let Opening { all: _, materials, label, as_found, stack, shared, absent } = self;
        // Before anything is written that they miss: a parity puts what waits in its places.
        shared.begin(as_found.as_ref(), &absent)?;
        let mirror = plain_mirror(&shared, &stack, &materials.together);
        let top = match &mirror {
            Some(mirror) => Arc::<MirrorDevice>::clone(mirror) as Arc<dyn BlockDevice>,
            None => build(&shared, &shared.members(), &stack, materials, Making::There)?,
        };
        assert_eq!(top.len_bytes(), top_bytes(&stack, &label.members), "as long as was computed");
        let marks = Marks::new(Arc::clone(&shared), top, &stack);
        let together = Arc::clone(&materials.together);
        Ok(Array {
            upkeep: Upkeep::new(marks, Arc::clone(&shared), together),
            shared,
            mirror: RankedMutex::new(Rank::Leaf, mirror),
            is_closed: AtomicBool::new(false),
            growing: RankedMutex::new(Rank::ArrayGrowing, ()),
        })
    }
}

impl Array {
    /// Labels devices as the members of a stack, whose leaves name them in this order.
    ///
    /// # Errors
    /// When one is too small or cannot be written.
    pub fn create(
        stack: &Stack,
        candidates: Vec<Candidate>,
        identities: Identities<'_>,
        materials: &Materials<'_>,
    ) -> Result<(), ArrayError> {
        let Identities { random, now } = identities;
        let mut label = Label {
            array_id: 0,
            member_id: 0,
            generation: 0,
            created: now,
            region_bytes: 0,
            stack: String::new(),
            members: Vec::new(),
        };
        let stack = add_rows(&mut label, stack, &candidates, random)?;
        let bytes = top_bytes(&stack, &label.members);
        label.array_id = random();
        label.member_id = label.members[0].id;
        label.region_bytes = region_bytes(bytes);
        label.stack = stack.to_string();
        let count = u32::try_from(bytes.div_ceil(label.region_bytes)).expect("few regions");
        let maps = label::Regions::new(label.array_id, count);
        let devices = candidates.into_iter().map(|c| (c.path, c.device)).collect();
        let shared = share(&label, &stack, devices, maps);
        {
            let mut book = shared.book.lock();
            // Both copies of the maps and both pairs of the label's are there from the beginning.
            for _ in 0..2 {
                shared.write_regions(&mut book)?;
                shared.write_labels(&mut book)?;
            }
        }
        let top = build(&shared, &shared.members(), &stack, materials, Making::New)?;
        top.flush()?;
        assert_eq!(top.len_bytes(), bytes, "as long as was computed");
        let book = shared.book.lock();
        match book.has(MemberStanding::Out) {
            true => Err(refused("a member failed while it was labelled", "")),
            false => Ok(()),
        }
    }

    /// Opens the members of an array wherever they are found among the candidates. One that is not
    /// found is put out, and so is one that was cut or whose layers cannot be opened; one that is
    /// older than the others is brought up to date while it is used; what a crash left is
    /// [`Array::unsettled`].
    ///
    /// # Errors
    /// `Refused` when there are no labels, those of several arrays, too few members, or members
    /// that were used apart; the devices'.
    pub fn open(
        candidates: Vec<Candidate>,
        materials: &Materials<'_>,
    ) -> Result<Array, ArrayError> {
        Array::prepare(candidates, materials)?.open()
    }

    /// Looks whether members can be opened, and writes nothing. Whoever has them locked keeps them
    /// so until it is opened.
    ///
    /// # Errors
    /// As [`Array::open`].
    pub fn prepare<'m>(
        candidates: Vec<Candidate>,
        materials: &'m Materials<'m>,
    ) -> Result<Opening<'m>, ArrayError> {
        let all = candidates.clone();
        let Known { mut found, label: as_found, stack, strangers } = find(candidates)?;
        // Spares have the label that they became one with.
        let is_member =
            |f: &&Found| members_of(&as_found).iter().any(|m| m.id == f.label.member_id);
        let mut of_members = found.iter().filter(is_member);
        let is_behind = of_members.any(|f| f.label.generation < as_found.generation);
        let mut label = as_found.clone();
        let cut = take_cut(&label, &mut found);
        let (missing, mut back) = stand(&mut label, &found);
        let is_in = |m: usize| label.members[m].standing == MemberStanding::In;
        if !is_readable(&stack, &|m| is_in(m) && !missing.contains(&m)) {
            return Err(too_few(&label, &missing, &cut));
        }
        let maps = newest_maps(&label, &found)?;
        let devices = devices_of(&label, found)?;
        // Whatever layers write while they are looked at is not to put a member out yet.
        let tried = devices.iter().map(|(path, device)| (path.clone(), device.clone().map(trial)));
        let looking = share(&label, &stack, tried.collect(), maps.clone());
        let shared = share(&label, &stack, devices, maps);
        for (path, why) in strangers {
            shared.note("member-ignored", &path, why);
        }
        for &member in &missing {
            looking.set_standing(member, Standing::Out);
        }
        let failed = unusable(&looking, &stack, materials)?;
        let is_failed = |m: &usize| failed.iter().any(|one| one.members.contains(m));
        back.retain(|m| !is_failed(m));
        if !is_readable(&stack, &|m| is_in(m) && !missing.contains(&m) && !is_failed(&m)) {
            let first = failed.into_iter().next().expect("it is readable with them");
            return Err(of_layer(first.error));
        }
        let as_found = (!is_behind).then_some(as_found);
        let absent = Absent { missing, cut, back, failed };
        Ok(Opening { all, materials, label, as_found, stack, shared, absent })
    }
}

impl Shared {
    /// Writes down who is missing, who came back and whose layers cannot be opened. All labels are
    /// written if they are not all as they were found.
    fn begin(&self, as_found: Option<&Label>, absent: &Absent) -> Result<(), ArrayError> {
        let Absent { missing, cut, back, failed } = absent;
        let mut book = self.book.lock();
        book.stand(back, MemberStanding::Stale);
        let fresh = absent.fresh(&book.label);
        // Even if nobody is: members that are stale may have lost what was in flight. They get it,
        // though its region is closed before that.
        book.put_out(&fresh);
        if !cut.is_empty() {
            // What was cut off is not what they had, should they be as long as before again.
            book.all_is_stale();
        }
        if Some(&book.label) != as_found || !cut.is_empty() {
            self.write_regions(&mut book)?;
            self.write_labels(&mut book)?;
        }
        for (number, member) in members_of(&book.label).iter().enumerate() {
            self.set_standing(number, member.standing);
        }
        // Maps of a label that was never written may say that somebody misses what nobody does.
        if book.has(MemberStanding::Stale) {
            let behind = book.begin_behind();
            self.behind.store(behind, Ordering::Relaxed);
        }
        drop(book);
        for (&member, why) in cut {
            self.tell(member, "member-out", why.clone());
        }
        for &member in missing.iter().filter(|member| !cut.contains_key(member)) {
            self.tell(member, "member-out", "it was not there when the pool was opened".into());
        }
        for &member in back {
            self.tell(member, "member-back", "it is brought up to date".into());
        }
        for (member, error) in failed.iter().flat_map(|o| o.members.iter().map(|m| (*m, &o.error)))
        {
            self.member(member).counters.errors.fetch_add(1, Ordering::Relaxed);
            let why = error.source().map_or_else(String::new, |source| format!(": {source}"));
            self.tell(member, "member-out", format!("it cannot be opened: {error}{why}"));
        }
        Ok(())
    }
}

fn region_bytes(top_bytes: u64) -> u64 {
    top_bytes.div_ceil(REGIONS_MAX as u64).next_power_of_two().max(REGION_BYTES_MIN)
}
