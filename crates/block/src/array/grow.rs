//! Members that became longer, and more of them: the array grows by what is new at its end.
//!
//! Nothing is in use meanwhile. What is new is written first: the labels with which new members are
//! *claimed*, of generation 0, which no other label has and which never count; what layers keep on
//! what is new; the maps for the new length. Then the labels of those that are there: the first of
//! these makes the array longer, and opening it gives the others the same. Before that the array is
//! as it was, and growing it can be begun again, over what was claimed.

use std::sync::atomic::Ordering;

use format::label::{
    self, AREA_BYTES, DATA_BYTES_MAX, Label, MEMBERS_MAX, Member, MemberStanding, Regions,
};

use super::assemble::{devices_of, newest_maps, share};
use super::build::{Making, build, check_room, top_bytes};
use super::candidate::{ArrayError, Candidate, Identities, noted, refused};
use super::device::Array;
use super::found::{Found, Known, find, read_label};
use super::materials::Materials;
use super::regions::{is_set, set};
use super::shared::{Shared, members_of, number_of};
use crate::stack::Stack;
use crate::{BlockDevice, DeviceError};

/// Bytes that a device writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// What is added to an array: a stack, and the blank devices that its leaves name in this order.
#[derive(Clone)]
pub struct Added<'a> {
    /// The layers over the new members.
    pub stack: &'a Stack,
    /// The new members.
    pub candidates: Vec<Candidate>,
}

impl Array {
    /// Makes an array longer that nobody uses: by what its members have more than before, and by
    /// what is added behind it. Returns its length before and after; where there is nothing to grow
    /// by they are the same, and nothing was written. What was added already is not added again.
    ///
    /// # Errors
    /// `NotClosed`; `Refused` when a member is not there or not up to date, or what is added is not
    /// blank or protects less than what is there: then nothing was written; the devices'.
    pub fn grow(
        candidates: Vec<Candidate>,
        added: Option<Added<'_>>,
        identities: Identities<'_>,
        materials: &Materials<'_>,
    ) -> Result<(u64, u64), ArrayError> {
        let (candidates, added) = with_added(candidates, added)?;
        let Known { found, label, stack, .. } = find(candidates)?;
        check_all_in(&label, &found)?;
        let maps = newest_maps(&label, &found)?;
        if stack.has_copies() && (0..maps.count as usize).any(|region| is_set(&maps.open, region)) {
            return Err(ArrayError::NotClosed);
        }
        let before = top_bytes(&stack, &label.members);
        let old_count = members_of(&label).len();
        let mut grown = label.clone();
        lengthen(&mut grown, &stack, &found)?;
        let mut devices = devices_of(&grown, found)?;
        let mut new_stack = stack.clone();
        let mut part = None;
        if let Some(Added { stack: new, candidates }) = added {
            check_as_safe(&stack, new)?;
            for candidate in &candidates {
                check_free(candidate, &label)?;
            }
            let numbered = add_rows(&mut grown, new, &candidates, identities.random)?;
            let new = candidates.into_iter().map(|c| (c.path, c.device));
            devices.splice(old_count..old_count, new);
            new_stack = new_stack.followed_by(numbered.clone());
            part = Some(numbered);
        }
        grown.stack = checked(&new_stack)?;
        let after = top_bytes(&new_stack, &grown.members);
        if after <= before {
            return Ok((before, before));
        }
        let (mut maps, partly) = wider(&maps, &mut grown, (before, after))?;
        if new_stack.has_parity() {
            // Copies of what was never written need not agree.
            partly.into_iter().for_each(|region| set(&mut maps.open, region));
        }
        let is_longer = grown.members[..old_count] != label.members[..old_count];
        let shared = share(&grown, &new_stack, devices, maps);
        shared.is_making.store(true, Ordering::SeqCst);
        shared.claim(old_count)?;
        if is_longer {
            build(&shared, &shared.members(), &stack, materials, Making::There)?.flush()?;
        }
        if let Some(part) = part {
            build(&shared, &shared.members(), &part, materials, Making::New)?.flush()?;
        }
        let mut book = shared.book.lock();
        shared.write_regions(&mut book)?;
        shared.is_making.store(false, Ordering::SeqCst);
        // One that fails with this is out, like any other time, and the others have it.
        shared.write_labels(&mut book)?;
        Ok((before, after))
    }
}

/// The paths of those candidates that are no members or spares of the array that the others are
/// of: blank, claimed, or members once.
///
/// # Errors
/// As those of opening them.
pub fn strangers(candidates: Vec<Candidate>) -> Result<Vec<String>, ArrayError> {
    Ok(find(candidates)?.strangers.into_iter().map(|(path, _)| path).collect())
}

impl Shared {
    /// Labels the members from a number on so that they are known for what they are to become. A
    /// sector of each is first: what is torn after it can be told from anybody else's.
    pub(super) fn claim(&self, from: usize) -> Result<(), DeviceError> {
        let label = self.book.lock().label.clone();
        for (number, member) in self.members().into_iter().enumerate().skip(from) {
            let claim = Label {
                member_id: label.members[number].id,
                generation: label::CLAIM_GENERATION,
                ..label.clone()
            };
            let copies = label::copies_of_generation(claim.generation);
            member.write_area(label::COPY_OFFSETS[0], &claim.encode(0)[..SECTOR_BYTES])?;
            for copy in copies {
                member.write_area(label::COPY_OFFSETS[copy], &claim.encode(copy))?;
            }
        }
        Ok(())
    }
}

/// Takes what is added for what is there if the newest label names all of it.
fn with_added(
    candidates: Vec<Candidate>,
    added: Option<Added<'_>>,
) -> Result<(Vec<Candidate>, Option<Added<'_>>), ArrayError> {
    let Some(added) = added else { return Ok((candidates, None)) };
    let label = find(candidates.clone())?.label;
    let own = |candidate: &Candidate| {
        let device = candidate.device.as_ref()?;
        read_label(&**device).ok().filter(|own| own.array_id == label.array_id)
    };
    let labels: Vec<Option<Label>> = added.candidates.iter().map(own).collect();
    let newest = labels.iter().flatten().chain([&label]).max_by_key(|label| label.generation);
    let newest = newest.unwrap_or(&label);
    let is_named = |own: &Option<Label>| {
        own.as_ref().is_some_and(|own| newest.members.iter().any(|m| m.id == own.member_id))
    };
    if labels.iter().all(is_named) {
        return Ok((candidates.into_iter().chain(added.candidates).collect(), None));
    }
    match labels.iter().position(is_named) {
        None => Ok((candidates, Some(added))),
        Some(at) => {
            let what = format!("{} is a member already", added.candidates[at].path);
            Err(refused(what, "`pool inspect` shows the labels"))
        }
    }
}

/// Gives members what they have more than before, where that moves nobody else's.
fn lengthen(label: &mut Label, stack: &Stack, found: &[Found]) -> Result<(), ArrayError> {
    for one in found {
        let row = label.members.iter().position(|m| m.id == one.label.member_id);
        let row = row.expect("only what the label names is left");
        if !may_grow(stack, row) {
            continue;
        }
        let data_bytes = one.device.len_bytes().saturating_sub(AREA_BYTES);
        check_length(&one.path, data_bytes)?;
        let row = &mut label.members[row];
        row.data_bytes = row.data_bytes.max(data_bytes);
    }
    Ok(())
}

/// Fails where a member would have more than there may be.
pub(super) fn check_length(path: &str, data_bytes: u64) -> Result<(), ArrayError> {
    if data_bytes <= DATA_BYTES_MAX {
        return Ok(());
    }
    let what = format!("{path} has {data_bytes} bytes");
    Err(refused(what, &format!("at most {DATA_BYTES_MAX} are used of a member")))
}

/// Fails unless a device is blank, or was claimed by an array that did not come to be longer.
pub(super) fn check_free(candidate: &Candidate, label: &Label) -> Result<(), ArrayError> {
    let path = &candidate.path;
    let Some(device) = &candidate.device else {
        return Err(refused(format!("{path} is not there"), ""));
    };
    let length = device.len_bytes().min(AREA_BYTES) as usize;
    let mut head = vec![0; length];
    device.read_at(0, &mut head)?;
    if head.iter().all(|&byte| byte == 0) || is_claimed(&head, &**device, label) {
        return Ok(());
    }
    let what = format!("{path} is not blank: its first MiB holds something");
    Err(refused(what, "wipe it first if nobody needs what is there"))
}

fn is_claimed(head: &[u8], device: &dyn BlockDevice, label: &Label) -> bool {
    let is_own = label::array_of(head) == Some(label.array_id);
    let is_named = |own: &Label| label.members.iter().any(|m| m.id == own.member_id);
    // Without a sound label it was torn while it was written.
    let is_claim = |own: Label| own.generation == label::CLAIM_GENERATION && !is_named(&own);
    is_own && read_label(device).map_or(true, is_claim)
}

/// The text of a stack that can be read again.
pub(super) fn checked(stack: &Stack) -> Result<String, ArrayError> {
    let text = stack.to_string();
    match text.parse::<Stack>() {
        Ok(_) => Ok(text),
        Err(_) => Err(refused(format!("{text} is too much of a stack"), "")),
    }
}

/// Whether a member may become longer without moving what others have: those of all but the last
/// part of a concatenation may not.
fn may_grow(stack: &Stack, member: usize) -> bool {
    let has = |stack: &Stack| stack.members().into_iter().any(|m| number_of(m) == member);
    let parts = match stack {
        Stack::Concat { below } => &below[below.len() - 1..],
        other => other.below(),
    };
    match stack {
        Stack::Member(number) => number_of(number) == member,
        _ => parts.iter().any(|part| has(part) && may_grow(part, member)),
    }
}

fn check_all_in(label: &Label, found: &[Found]) -> Result<(), ArrayError> {
    let is_there = |m: &Member| found.iter().any(|f| f.label.member_id == m.id);
    let lacking =
        members_of(label).iter().find(|m| m.standing != MemberStanding::In || !is_there(m));
    match lacking {
        None => Ok(()),
        Some(member) => {
            let what = format!("{} is not there or not up to date", member.path);
            Err(refused(what, "bring it back, or replace it, before the pool grows"))
        }
    }
}

/// Fails where what is added would be the weakest part.
pub(super) fn check_as_safe(there: &Stack, added: &Stack) -> Result<(), ArrayError> {
    if there.is_redundant() && !added.is_redundant() {
        let what = format!("the pool survives the loss of a member, but {added} does not");
        return Err(refused(what, "add a mirror or a parity"));
    }
    if there.is_encrypted() && !added.is_encrypted() {
        let what = "the pool is encrypted, and what is added is not";
        return Err(refused(what, "as in crypt[key=file:/path](mirror(c, d))"));
    }
    Ok(())
}

/// Gives new members rows before the spares'; returns the stack with their numbers.
pub(super) fn add_rows(
    label: &mut Label,
    stack: &Stack,
    candidates: &[Candidate],
    random: &mut dyn FnMut() -> u128,
) -> Result<Stack, ArrayError> {
    let first = members_of(label).len();
    if label.members.len() + candidates.len() > MEMBERS_MAX {
        return Err(refused(format!("at most {MEMBERS_MAX} members and spares"), ""));
    }
    for (i, candidate) in candidates.iter().enumerate() {
        let Some(device) = &candidate.device else {
            return Err(refused(format!("{} is not there", candidate.path), ""));
        };
        let data_bytes = device.len_bytes().saturating_sub(AREA_BYTES);
        if data_bytes < label::REGION_BYTES_MIN {
            let what = format!("{} is too small for a member", candidate.path);
            return Err(refused(what, "at least 2 MiB, and room for the pool"));
        }
        check_length(&candidate.path, data_bytes)?;
        let row = Member {
            id: random(),
            data_bytes,
            out_generation: 0,
            standing: MemberStanding::In,
            path: noted(&candidate.path),
        };
        label.members.insert(first + i, row);
    }
    let mut number = first;
    let numbered = stack.renamed(&mut |_| {
        number += 1;
        (number - 1).to_string()
    });
    assert_eq!(number, first + candidates.len(), "a device for each member");
    check_room(&numbered, &label.members)?;
    Ok(numbered)
}

/// The maps for a greater length, and the regions that are used and have something that never was:
/// parity was not computed of it. Where there would be too many regions, several become one.
pub(super) fn wider(
    maps: &Regions,
    label: &mut Label,
    (before, bytes): (u64, u64),
) -> Result<(Regions, Vec<usize>), ArrayError> {
    let mut fold = 1;
    // Maps of regions of another length are told by how many there are.
    let fits = |count: u64, fold| {
        count <= label::REGIONS_MAX as u64 && (fold == 1 || count != u64::from(maps.count))
    };
    while !fits(bytes.div_ceil(label.region_bytes), fold) {
        label.region_bytes = label
            .region_bytes
            .checked_mul(2)
            .ok_or_else(|| refused("the members are too long together", ""))?;
        fold *= 2;
    }
    let count = u32::try_from(bytes.div_ceil(label.region_bytes)).expect("few regions");
    let mut wider = Regions::new(maps.array_id, count);
    wider.sequence = maps.sequence;
    for region in 0..maps.count as usize {
        for (old, new) in [
            (&maps.open, &mut wider.open),
            (&maps.stale, &mut wider.stale),
            (&maps.used, &mut wider.used),
        ] {
            if is_set(old, region) {
                set(new, region / fold);
            }
        }
    }
    let last = (before / (label.region_bytes / fold as u64)) as usize;
    let was_whole = |old: usize| old < last && is_set(&maps.used, old);
    let is_part = |region: &usize| {
        let is_whole = (region * fold..(region + 1) * fold).all(was_whole);
        is_set(&wider.used, *region) && !is_whole
    };
    let partly = (0..count as usize).filter(is_part).collect();
    Ok((wider, partly))
}

#[cfg(test)]
mod tests {
    use format::label::{Label, Regions};
    use units::WallTime;

    use super::wider;
    use crate::array::regions::{is_set, set};

    #[test]
    fn regions_that_become_one_are_used_if_one_of_them_was() {
        let mut label = Label {
            array_id: 1,
            member_id: 1,
            generation: 1,
            created: WallTime::from_nanos(1),
            region_bytes: 1 << 20,
            stack: "0".to_owned(),
            members: Vec::new(),
        };
        let mut maps = Regions::new(1, 30_000);
        maps.sequence = 77;
        [0, 5, 29_999].into_iter().for_each(|region| set(&mut maps.used, region));
        let bytes = (30_000 << 20, 32_000 << 20);
        let (same, partly) = wider(&maps, &mut label, bytes).expect("as they are");
        assert_eq!((same.count, same.sequence, label.region_bytes), (32_000, 77, 1 << 20));
        assert_eq!(same.used, maps.used);
        assert!(partly.is_empty(), "all that is used was used as a whole");
        let cut = ((30_000 << 20) - 7, 32_000 << 20);
        let (_, partly) = wider(&maps, &mut label, cut).expect("as they are");
        assert_eq!(partly, [29_999], "its end is new");
        set(&mut maps.open, 5);
        let (wide, partly) =
            wider(&maps, &mut label, (30_000 << 20, 100_000 << 20)).expect("four in one");
        assert_eq!(partly, [0, 1, 7499]);
        assert!(is_set(&wide.open, 1) && !is_set(&wide.open, 0), "what was open is");
        assert_eq!((wide.count, label.region_bytes), (25_000, 4 << 20));
        let used: Vec<usize> = (0..25_000).filter(|&r| is_set(&wide.used, r)).collect();
        assert_eq!(used, [0, 1, 7499]);
        label.region_bytes = 1 << 20;
        let twice = (30_000 << 20, 60_000 << 20);
        let (wide, _) = wider(&maps, &mut label, twice).expect("four in one");
        assert_eq!((wide.count, label.region_bytes), (15_000, 4 << 20), "two would be as many");
    }
}
