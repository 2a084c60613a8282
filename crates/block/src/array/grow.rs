//! Members that became longer, and more of them: the array grows by what is new at its end.
//!
//! Nothing is in use meanwhile. What is new is written first, then the maps for the new length, the
//! labels of new members, and those of the others: whichever of the labels is found, the stack that
//! it names is there, and maps that fit it.

use format::label::{self, AREA_BYTES, Label, MEMBERS_MAX, Member, MemberStanding, Regions};

use super::build::{Making, build, top_bytes};
use super::opening::{Found, devices_of, find, known_of, members_of, newest_maps, noted, refused};
use super::regions::{is_set, set};
use super::{Array, Identities, Materials, number_of, share};
use crate::stack::Stack;
use crate::{ArrayError, BlockDevice, Candidate};

/// What is added to an array: a stack, and the blank devices that its leaves name in this order.
pub struct Added<'a> {
    /// The layers over the new members.
    pub stack: &'a Stack,
    /// The new members.
    pub candidates: Vec<Candidate>,
}

impl Array {
    /// Makes an array longer that nobody uses: by what its members have more than before, and by
    /// what is added behind it. Returns its length before and after; where there is nothing to grow
    /// by they are the same, and nothing was written.
    ///
    /// # Errors
    /// `Refused` when a member is not there or not up to date, the array was not closed, or
    /// what is added protects less than what is there: then nothing was written; the devices'.
    pub fn grow(
        candidates: Vec<Candidate>,
        added: Option<Added<'_>>,
        identities: Identities<'_>,
        materials: &Materials<'_>,
    ) -> Result<(u64, u64), ArrayError> {
        let (found, label, stack, _) = known_of(find(candidates)?)?;
        check_all_in(&label, &found)?;
        let maps = newest_maps(&label, &found)?;
        if (0..maps.count as usize).any(|region| is_set(&maps.open, region)) {
            let what = "the pool was not stopped cleanly";
            return Err(refused(what, "start the server once and stop it, then try again"));
        }
        let before = top_bytes(&stack, &label.members);
        let (mut grown, mut new_stack) = (label.clone(), stack);
        for one in &found {
            let row = grown.members.iter().position(|m| m.id == one.label.member_id);
            let row = row.expect("only what the label names is left");
            if !may_grow(&new_stack, row) {
                continue;
            }
            let row = &mut grown.members[row];
            row.data_bytes = row.data_bytes.max(one.device.len_bytes().saturating_sub(AREA_BYTES));
        }
        let mut devices = devices_of(&grown, found)?;
        let old_count = members_of(&grown).len();
        let mut part = None;
        if let Some(Added { stack, candidates }) = added {
            check_as_safe(&new_stack, stack)?;
            let numbered = add_rows(&mut grown, stack, &candidates, identities)?;
            let new = candidates.into_iter().map(|c| (c.path, c.device));
            devices.splice(old_count..old_count, new);
            new_stack = new_stack.followed_by(numbered.clone());
            part = Some(numbered);
        }
        grown.stack = new_stack.to_string();
        if grown.stack.parse::<Stack>().is_err() {
            return Err(refused(format!("{} is too much of a stack", grown.stack), ""));
        }
        let after = top_bytes(&new_stack, &grown.members);
        if let Some(part) = part.as_ref().filter(|p| top_bytes(p, &grown.members) == 0) {
            return Err(refused(format!("{part} has no room for anything"), "larger members"));
        }
        if after <= before {
            return Ok((before, before));
        }
        let mut maps = wider(&maps, &mut grown, (before, after))?;
        if !new_stack.has_parity() {
            // Copies of what was never written need not agree.
            maps.open.fill(0);
        }
        let shared = share(&grown, &new_stack, devices, maps);
        if let Some(part) = part {
            build(&shared, &part, materials, Making::New)?.flush()?;
        }
        let mut book = shared.book.lock();
        shared.write_regions(&mut book)?;
        let generation = book.label.generation + 1;
        for number in old_count..shared.members.len() {
            let member_id = book.label.members[number].id;
            let label = Label { member_id, generation, ..book.label.clone() };
            for copy in label::copies_of_generation(generation) {
                shared.members[number]
                    .write_area(label::COPY_OFFSETS[copy], &label.encode(copy))?;
            }
        }
        // One that fails with this is out, like any other time, and the others have it.
        shared.write_labels(&mut book)?;
        Ok((before, after))
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
fn check_as_safe(there: &Stack, added: &Stack) -> Result<(), ArrayError> {
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
fn add_rows(
    label: &mut Label,
    stack: &Stack,
    candidates: &[Candidate],
    identities: Identities<'_>,
) -> Result<Stack, ArrayError> {
    let first = members_of(label).len();
    if label.members.len() + candidates.len() > MEMBERS_MAX {
        return Err(refused(format!("at most {MEMBERS_MAX} members and spares"), ""));
    }
    for (i, candidate) in candidates.iter().enumerate() {
        let length = candidate.device.as_ref().map_or(0, |device| device.len_bytes());
        let data_bytes = length.saturating_sub(AREA_BYTES);
        if data_bytes < label::REGION_BYTES_MIN {
            let what = format!("{} is too small for a member, or not there", candidate.path);
            return Err(refused(what, "at least 2 MiB"));
        }
        let row = Member {
            id: (identities.random)(),
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
    Ok(numbered)
}

/// The maps for a greater length. Where there would be too many regions, several become one. Open
/// are those that are used and have something that never was: parity was not computed of it.
fn wider(
    maps: &Regions,
    label: &mut Label,
    (before, bytes): (u64, u64),
) -> Result<Regions, ArrayError> {
    let mut fold = 1;
    while bytes.div_ceil(label.region_bytes) > label::REGIONS_MAX as u64 {
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
        if is_set(&maps.used, region) {
            set(&mut wider.used, region / fold);
        }
        if is_set(&maps.stale, region) {
            set(&mut wider.stale, region / fold);
        }
    }
    let last = (before / (label.region_bytes / fold as u64)) as usize;
    let was_whole = |old: usize| old < last && is_set(&maps.used, old);
    for region in 0..count as usize {
        let is_whole = (region * fold..(region + 1) * fold).all(was_whole);
        if is_set(&wider.used, region) && !is_whole {
            set(&mut wider.open, region);
        }
    }
    Ok(wider)
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
        let same = wider(&maps, &mut label, bytes).expect("as they are");
        assert_eq!((same.count, same.sequence, label.region_bytes), (32_000, 77, 1 << 20));
        assert_eq!(same.used, maps.used);
        assert!(same.open.iter().all(|&byte| byte == 0), "all that is used was used as a whole");
        let cut =
            wider(&maps, &mut label, ((30_000 << 20) - 7, 32_000 << 20)).expect("as they are");
        assert!(is_set(&cut.open, 29_999), "its end is new");
        let wide = wider(&maps, &mut label, (30_000 << 20, 100_000 << 20)).expect("four in one");
        assert!([0, 1, 7499].into_iter().all(|region| is_set(&wide.open, region)));
        assert_eq!((wide.count, label.region_bytes), (25_000, 4 << 20));
        let used: Vec<usize> = (0..25_000).filter(|&r| is_set(&wide.used, r)).collect();
        assert_eq!(used, [0, 1, 7499]);
    }
}
