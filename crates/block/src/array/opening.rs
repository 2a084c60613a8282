//! Making an array, and opening one: who is there, whose label counts, what is settled first.

use std::error::Error;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use format::label::{
    self, AREA_BYTES, Label, MEMBERS_MAX, Member, MemberStanding, PATH_BYTES_MAX, REGION_BYTES_MIN,
    REGIONS_MAX,
};
use parking_lot::{Mutex, RwLock};
use units::WallTime;

use super::book::Book;
use super::build::{Making, Materials, Unusable, build, top_bytes, unusable};
use super::grow::check_length;
use super::kept::of_layer;
use super::member::MemberDevice;
use super::regions::{Regions, set};
use super::spares::Spare;
use super::top::Top;
use super::{Array, Shared, code, is_readable, of_label};
use crate::heal::Ledger;
use crate::stack::Stack;
use crate::{BlockDevice, DeviceError, Resync};

/// Something that may be a member: where it is, and what is there.
#[derive(Clone)]
pub struct Candidate {
    /// Where.
    pub path: String,
    /// What can be read there; `None` if nothing can.
    pub device: Option<Arc<dyn BlockDevice>>,
}

/// Random numbers and the time for a new array.
pub struct Identities<'a> {
    /// A random number of 128 bits.
    pub random: &'a mut dyn FnMut() -> u128,
    /// Now.
    pub now: WallTime,
}

/// Why members cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// They are not what they should be.
    #[error("{what}")]
    Refused {
        /// What is wrong.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// Something was in flight when they were used last.
    #[error("the pool was not stopped cleanly")]
    NotClosed,
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

pub(super) fn refused(what: impl Into<String>, hint: &str) -> ArrayError {
    ArrayError::Refused { what: what.into(), hint: hint.to_owned() }
}

/// A member that was found, with its newest sound label.
pub(super) struct Found {
    pub path: String,
    pub device: Arc<dyn BlockDevice>,
    pub label: Label,
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
        let mut members = Vec::new();
        for candidate in &candidates {
            let Some(device) = &candidate.device else {
                return Err(refused(format!("{} is not there", candidate.path), ""));
            };
            let data_bytes = device.len_bytes().saturating_sub(AREA_BYTES);
            if data_bytes < REGION_BYTES_MIN {
                let what = format!("{} is too small for a member", candidate.path);
                return Err(refused(what, "at least 2 MiB, and room for the pool"));
            }
            check_length(&candidate.path, data_bytes)?;
            members.push(Member {
                id: random(),
                data_bytes,
                out_generation: 0,
                standing: MemberStanding::In,
                path: noted(&candidate.path),
            });
        }
        let mut number = 0;
        let stack = stack.renamed(&mut |_| {
            number += 1;
            (number - 1).to_string()
        });
        assert_eq!(number, members.len(), "a device for each member");
        let bytes = top_bytes(&stack, &members);
        let label = Label {
            array_id: random(),
            member_id: members[0].id,
            generation: 0,
            created: now,
            region_bytes: region_bytes(bytes),
            stack: stack.to_string(),
            members,
        };
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
    /// found is put out, and so is one whose layers cannot be opened; one that is older than the
    /// others is brought up to date while it is used; what a crash left is [`Array::unsettled`].
    ///
    /// # Errors
    /// `Refused` when there are no labels, those of several arrays, too few members, or members
    /// that were used apart; the devices'.
    pub fn open(
        candidates: Vec<Candidate>,
        materials: &Materials<'_>,
    ) -> Result<Array, ArrayError> {
        let found = find(candidates)?;
        let blank = found.blank.clone();
        let Known { found, label: as_found, stack, former } = found.known()?;
        // Spares have the label that they became one with.
        let is_member =
            |f: &&Found| members_of(&as_found).iter().any(|m| m.id == f.label.member_id);
        let mut of_members = found.iter().filter(is_member);
        let is_behind = of_members.any(|f| f.label.generation < as_found.generation);
        let mut label = as_found.clone();
        let (missing, mut back) = stand(&mut label, &found);
        let is_in = |m: usize| label.members[m].standing == MemberStanding::In;
        if !is_readable(&stack, &|m| is_in(m) && !missing.contains(&m)) {
            return Err(too_few(&label, &missing));
        }
        let maps = newest_maps(&label, &found)?;
        let devices = devices_of(&label, found)?;
        let shared = share(&label, &stack, devices, maps);
        for (path, why) in former.into_iter().chain(blank) {
            shared.note("member-ignored", &path, why);
        }
        for &member in &missing {
            shared.set_standing(member, super::Standing::Out);
        }
        let failed = unusable(&shared, &stack, materials)?;
        let is_failed = |m: &usize| failed.iter().any(|one| one.members.contains(m));
        back.retain(|m| !is_failed(m));
        if !is_readable(&stack, &|m| is_in(m) && !missing.contains(&m) && !is_failed(&m)) {
            let first = failed.into_iter().next().expect("it is readable with them");
            return Err(of_layer(first.error));
        }
        // Before anything is written that they miss: a parity puts what waits in its places.
        shared.begin((!is_behind).then_some(&as_found), &missing, &back, &failed)?;
        let top = build(&shared, &shared.members(), &stack, materials, Making::There)?;
        assert_eq!(top.len_bytes(), top_bytes(&stack, &label.members), "as long as was computed");
        let has_copies = AtomicBool::new(stack.has_copies());
        let (top, loose) = (Top::new(top), super::Loose::new());
        let has_parity = AtomicBool::new(stack.has_parity());
        let gate = RwLock::new(());
        let unsettled = Mutex::default();
        let is_closed = AtomicBool::new(false);
        let (work, growing, tidying) = (Mutex::new(()), Mutex::new(()), Mutex::new(()));
        let array = Array {
            shared,
            top,
            has_copies,
            loose,
            has_parity,
            gate,
            is_closed,
            unsettled,
            work,
            together: Arc::clone(&materials.together),
            growing,
            tidying,
            resynced: AtomicU64::new(0),
        };
        let open = array.shared.book.lock().open_regions();
        let is_open = !open.is_empty();
        array.shared.is_unsettled.store(is_open && array.has_copies(), Ordering::SeqCst);
        *array.unsettled.lock() = open;
        Ok(array)
    }

    /// What was in flight when the array was used last: copies may differ there. One side is read
    /// until [`Array::end_settling`].
    #[must_use]
    pub fn unsettled(&self) -> Vec<Range<u64>> {
        if !self.shared.is_unsettled.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let region_bytes = self.shared.book.lock().label.region_bytes;
        let range = |&region: &usize| {
            let start = region as u64 * region_bytes;
            start..(start + region_bytes).min(self.len_bytes())
        };
        self.unsettled.lock().iter().map(range).collect()
    }

    /// Says that what was in flight was looked at: wherever copies differ still, whoever reads
    /// knows which is right, or nobody does. What could not be read stays to be settled.
    ///
    /// # Errors
    /// Those of the device.
    pub fn end_settling(&self, unread: &[Range<u64>]) -> Result<(), DeviceError> {
        let _tidying = self.tidying.lock();
        let region_bytes = self.shared.book.lock().label.region_bytes;
        let stays = |region: &usize| {
            let start = *region as u64 * region_bytes;
            unread.iter().any(|range| range.contains(&start))
        };
        let unsettled = std::mem::take(&mut *self.unsettled.lock());
        let (stay, regions) = unsettled.into_iter().partition::<Vec<_>, _>(stays);
        *self.unsettled.lock() = stay;
        self.flush_places()?;
        self.shared.is_unsettled.store(false, Ordering::SeqCst);
        self.close_regions(&regions)
    }

    /// The same without a look: parity is computed of what is there. For what is not in use, or has
    /// no checksums.
    ///
    /// # Errors
    /// Those of the device.
    pub fn settle_as_it_is(&self) -> Result<(), DeviceError> {
        let mut unread = Vec::new();
        for range in self.unsettled() {
            let length = range.end - range.start;
            let found = self.disagreements(range.start, length);
            let computed = found
                .and_then(|found| found.iter().try_for_each(|apart| self.compute_again(apart)));
            if computed.is_err() {
                unread.push(range);
            }
        }
        self.end_settling(&unread)
    }

    /// Makes what was in flight agree, without knowing which copy is right: the first counts. For
    /// what has no checksums above.
    ///
    /// # Errors
    /// Those of the device.
    pub fn settle_by_the_first(&self) -> Result<(), DeviceError> {
        for range in self.unsettled() {
            self.top.resync(range.start, range.end - range.start, Resync::All)?;
        }
        self.end_settling(&[])
    }
}

impl Shared {
    /// Writes down who is missing, who came back and whose layers cannot be opened. All labels are
    /// written if they are not all as they were found.
    fn begin(
        &self,
        as_found: Option<&Label>,
        missing: &[usize],
        back: &[usize],
        failed: &[Unusable],
    ) -> Result<(), ArrayError> {
        let mut book = self.book.lock();
        book.stand(back, MemberStanding::Stale);
        let failing = failed.iter().flat_map(|one| &one.members);
        // One that is out already stays so.
        let fresh = missing.iter().chain(failing).copied();
        let fresh: Vec<usize> =
            fresh.filter(|&m| book.label.members[m].standing != MemberStanding::Out).collect();
        book.put_out(&fresh);
        if Some(&book.label) != as_found {
            self.write_regions(&mut book)?;
            self.write_labels(&mut book)?;
        }
        for (number, member) in members_of(&book.label).iter().enumerate() {
            self.set_standing(number, of_label(member.standing));
        }
        let behind = book.begin_behind();
        self.behind.store(behind, Ordering::Relaxed);
        drop(book);
        for &member in missing {
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

/// A path as a label notes it.
pub(super) fn noted(path: &str) -> String {
    if path.len() <= PATH_BYTES_MAX { path.to_owned() } else { String::new() }
}

fn region_bytes(top_bytes: u64) -> u64 {
    top_bytes.div_ceil(REGIONS_MAX as u64).next_power_of_two().max(REGION_BYTES_MIN)
}

/// The newest sound copy of a label on a device, or what is there instead.
pub(super) fn read_label(device: &dyn BlockDevice) -> Result<Label, String> {
    let mut best: Option<Label> = None;
    let mut wrong = String::new();
    for (copy, offset) in label::COPY_OFFSETS.into_iter().enumerate() {
        let mut bytes = vec![0; label::layout::BYTES];
        let read = device.read_at(offset, &mut bytes).map_err(|e| e.to_string());
        match read.and_then(|()| Label::decode(&bytes, copy).map_err(|e| e.to_string())) {
            Ok(label) if best.as_ref().is_none_or(|b| b.generation < label.generation) => {
                best = Some(label);
            }
            Ok(_) => {}
            Err(error) => wrong = error,
        }
    }
    best.ok_or(wrong)
}

/// Whether a device begins with the label of a pool's member.
#[must_use]
pub fn has_label(device: &dyn BlockDevice) -> bool {
    read_label(device).is_ok()
}

/// The candidates: those that have a label, all of them of one array, and where there is none.
pub(super) struct FoundAll {
    found: Vec<Found>,
    /// The paths of devices on which none can be read, and why.
    pub blank: Vec<(String, String)>,
}

/// Those that the newest label names, with that label.
pub(super) struct Known {
    pub found: Vec<Found>,
    pub label: Label,
    pub stack: Stack,
    /// The others, which are no members any more, or not yet: their paths, and why.
    pub former: Vec<(String, String)>,
}

/// Looks for labels.
pub(super) fn find(candidates: Vec<Candidate>) -> Result<FoundAll, ArrayError> {
    let mut found: Vec<Found> = Vec::new();
    let (mut without, mut blank) = (Vec::new(), Vec::new());
    for Candidate { path, device } in candidates {
        let Some(device) = device else {
            without.push(format!("{path}: not there"));
            continue;
        };
        match read_label(&*device) {
            Err(why) => {
                without.push(format!("{path}: {why}"));
                blank.push((path, format!("no label: {why}; to add it give `pool grow` again")));
            }
            Ok(label) => {
                if let Some(other) = found.iter().find(|f| f.label.member_id == label.member_id) {
                    let what = format!("{path} is a copy of {}: the same member", other.path);
                    return Err(refused(what, "name one of them"));
                }
                found.push(Found { path, device, label });
            }
        }
    }
    let Some(first) = found.first() else {
        let what = format!("no member of a pool was found: {}", without.join("; "));
        return Err(refused(what, "is pool.stack right?"));
    };
    let other = found.iter().find(|f| f.label.array_id != first.label.array_id);
    if let Some(other) = other {
        let what = format!("{} and {} belong to different pools", first.path, other.path);
        return Err(refused(what, "is pool.stack right?"));
    }
    Ok(FoundAll { found, blank })
}

/// A label's stack names each member once, by number.
fn check_numbers(stack: &Stack, count: usize) -> Result<(), ArrayError> {
    let mut numbers: Vec<Option<usize>> =
        stack.members().iter().map(|m| m.parse().ok().filter(|&n| n < count)).collect();
    numbers.sort_unstable();
    if numbers == (0..count).map(Some).collect::<Vec<_>>() {
        return Ok(());
    }
    Err(refused(format!("the label's stack {stack} does not name its {count} members"), ""))
}

impl FoundAll {
    /// Tells members and spares from others. Fails if some were used apart.
    pub fn known(self) -> Result<Known, ArrayError> {
        let newest = self.found.iter().max_by_key(|f| f.label.generation).expect("one at least");
        let label = newest.label.clone();
        let stack: Stack = label
            .stack
            .parse()
            .map_err(|e| refused(format!("the label of {}: {e}", newest.path), ""))?;
        check_numbers(&stack, members_of(&label).len())?;
        if label.generation == label::CLAIM_GENERATION {
            let what = format!("{} was to be added to a pool, and is no member yet", newest.path);
            return Err(refused(what, "is pool.stack right?"));
        }
        let mut former = Vec::new();
        for one in &self.found {
            if is_known(one, newest)? {
                continue;
            }
            let why = match one.label.generation {
                label::CLAIM_GENERATION => {
                    "it was to be added, which was not finished: give `pool grow --add` again"
                }
                _ => "another is in its place",
            };
            former.push((one.path.clone(), why.to_owned()));
        }
        let is_former = |f: &Found| former.iter().any(|(path, _)| *path == f.path);
        let found = self.found.into_iter().filter(|f| !is_former(f)).collect();
        Ok(Known { found, label, stack, former })
    }
}

/// The rows of a label that are no spares'.
pub(super) fn members_of(label: &Label) -> &[Member] {
    let count = label.members.partition_point(|m| m.standing != MemberStanding::Spare);
    &label.members[..count]
}

/// Whether the newest label names a member or spare; one that it does not name was replaced, or
/// taken away. Fails if a member was used without those of the newest label, as they were without
/// it.
fn is_known(one: &Found, newest: &Found) -> Result<bool, ArrayError> {
    let table = &newest.label.members;
    let is_own = |m: &&Member| m.id == one.label.member_id;
    let as_seen = table.iter().find(is_own);
    let outlived = as_seen.is_some_and(|seen| {
        seen.standing == MemberStanding::Out && one.label.generation >= seen.out_generation
    });
    let called_out = |theirs: &Member| {
        theirs.standing == MemberStanding::Out
            && table.iter().any(|m| m.id == theirs.id && m.out_generation < theirs.out_generation)
    };
    if outlived || one.label.members.iter().any(called_out) {
        let mut paths = [&one.path, &newest.path];
        paths.sort_unstable();
        let what = format!("{} and {} were used apart from each other", paths[0], paths[1]);
        return Err(refused(
            what,
            "both have what the other has not: take one out of pool.stack, look, and decide",
        ));
    }
    Ok(as_seen.is_some())
}

/// Which members are missing though the label does not call them out, and which came back.
fn stand(label: &mut Label, found: &[Found]) -> (Vec<usize>, Vec<usize>) {
    let (mut missing, mut back) = (Vec::new(), Vec::new());
    for (number, member) in label.members.iter_mut().enumerate() {
        match found.iter().find(|f| f.label.member_id == member.id) {
            None if member.standing == MemberStanding::Spare => {}
            Some(found) => {
                member.path = noted(&found.path);
                if member.standing == MemberStanding::Out {
                    back.push(number);
                }
            }
            None if member.standing != MemberStanding::Out => missing.push(number),
            None => {}
        }
    }
    (missing, back)
}

fn too_few(label: &Label, missing: &[usize]) -> ArrayError {
    let name = |(number, member): (usize, &Member)| {
        let how = match member.standing {
            _ if missing.contains(&number) => "missing",
            MemberStanding::In | MemberStanding::Spare => return None,
            MemberStanding::Stale => "not up to date",
            MemberStanding::Out => "out",
        };
        let path = if member.path.is_empty() { "a member" } else { &member.path };
        Some(format!("{path} is {how}"))
    };
    let names: Vec<String> = label.members.iter().enumerate().filter_map(name).collect();
    let what = format!("too few members of {}: {}", label.stack, names.join(", "));
    refused(what, "bring back what is missing; nothing was changed")
}

/// The newest sound maps of the members that are in. Where there are none all is open.
pub(super) fn newest_maps(label: &Label, found: &[Found]) -> Result<label::Regions, ArrayError> {
    let stack: Stack = label.stack.parse().map_err(|e| refused(format!("{e}"), ""))?;
    let count = top_bytes(&stack, &label.members).div_ceil(label.region_bytes);
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    if count as usize > REGIONS_MAX {
        return Err(refused("the label's regions are too small for its stack", ""));
    }
    let mut best: Option<label::Regions> = None;
    for one in found {
        let is_in = |m: &&Member| m.id == one.label.member_id && m.standing == MemberStanding::In;
        if !label.members.iter().any(|m| is_in(&m)) {
            continue;
        }
        for (copy, offset) in label::REGIONS_OFFSETS.into_iter().enumerate() {
            let mut bytes = vec![0; label::layout::REGIONS_BYTES];
            if one.device.read_at(offset, &mut bytes).is_err() {
                continue;
            }
            let Ok(maps) = label::Regions::decode(&bytes, copy) else { continue };
            let fits = maps.array_id == label.array_id && maps.count == count;
            if fits && best.as_ref().is_none_or(|b| b.sequence < maps.sequence) {
                best = Some(maps);
            }
        }
    }
    Ok(best.unwrap_or_else(|| {
        let mut maps = label::Regions::new(label.array_id, count);
        for region in 0..count as usize {
            set(&mut maps.open, region);
            set(&mut maps.stale, region);
            set(&mut maps.used, region);
        }
        maps
    }))
}

pub(super) type Devices = Vec<(String, Option<Arc<dyn BlockDevice>>)>;

/// The devices in the order of the label's members.
pub(super) fn devices_of(label: &Label, found: Vec<Found>) -> Result<Devices, ArrayError> {
    let mut devices: Devices =
        label.members.iter().map(|member| (member.path.clone(), None)).collect();
    for one in found {
        let number = label.members.iter().position(|m| m.id == one.label.member_id);
        let Some(number) = number else { continue };
        let row = &label.members[number];
        let wanted = row.data_bytes.saturating_add(AREA_BYTES);
        if row.standing != MemberStanding::Spare && one.device.len_bytes() < wanted {
            let what = format!(
                "{} has {} bytes, but {wanted} when it became a member",
                one.path,
                one.device.len_bytes()
            );
            return Err(refused(what, "bring back what was there; nothing was changed"));
        }
        devices[number] = (one.path, Some(one.device));
    }
    Ok(devices)
}

pub(super) fn share(
    label: &Label,
    stack: &Stack,
    devices: Devices,
    maps: label::Regions,
) -> Arc<Shared> {
    let rows = members_of(label);
    let mut devices = devices.into_iter();
    let members = rows.iter().zip(devices.by_ref()).map(|(member, (path, device))| {
        Arc::new(MemberDevice::new(member.id, member.data_bytes, path, device))
    });
    let members = members.collect();
    let spares = label.members[rows.len()..].iter().zip(devices);
    let spares = spares.map(|(row, (path, device))| Spare { id: row.id, path, device });
    // Those that may come are in from the beginning.
    let standings = (0..MEMBERS_MAX).map(|number| {
        let standing = rows.get(number).map_or(super::Standing::In, |m| of_label(m.standing));
        AtomicU8::new(code(standing))
    });
    Arc::new(Shared {
        stack: RwLock::new(Arc::new(stack.clone())),
        members: RwLock::new(members),
        spares: Mutex::new(spares.collect()),
        renewed: Mutex::default(),
        standings: standings.collect(),
        absences: (0..MEMBERS_MAX).map(|_| AtomicU64::new(0)).collect(),
        regions: Regions::new(label.region_bytes),
        book: Mutex::new(Book::new(label.clone(), maps, stack.keeps_over_copies())),
        torn: OnceLock::new(),
        is_making: AtomicBool::new(false),
        is_unsettled: AtomicBool::new(false),
        ledger: Arc::new(Ledger::default()),
        events: Mutex::default(),
        behind: AtomicU64::new(0),
    })
}
