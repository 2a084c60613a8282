//! Who is there: labels that are found, whose counts, which members are missing or came back.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::label::{self, AREA_BYTES, Label, Member, MemberStanding};

use super::candidate::{ArrayError, Candidate, noted, refused};
use super::shared::members_of;
use super::shared::number_of;
use crate::stack::Stack;
use crate::{BlockDevice, Layout};

/// A member that was found, with its newest sound label.
pub(super) struct Found {
    pub path: String,
    pub device: Arc<dyn BlockDevice>,
    pub label: Label,
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

/// The members and spares that the label of a device names, by the paths where they were last; none
/// where it has no label.
///
/// # Errors
/// `Refused` when the label's stack is none that can be built.
pub fn named_by(device: &dyn BlockDevice) -> Result<Option<Layout>, ArrayError> {
    let Ok(label) = read_label(device) else { return Ok(None) };
    let (stack, members) = (stack_of(&label, "its label")?, members_of(&label));
    let stack = stack.renamed(&mut |number| members[number_of(number)].path.clone());
    let spares = label.members[members.len()..].iter().map(|spare| spare.path.clone()).collect();
    Ok(Some(Layout { stack, spares }))
}

/// The stack of a label, which names each member once, by number.
fn stack_of(label: &Label, whose: &str) -> Result<Stack, ArrayError> {
    let stack: Stack = label.stack.parse().map_err(|e| refused(format!("{whose}: {e}"), ""))?;
    check_numbers(&stack, members_of(label).len())?;
    Ok(stack)
}

/// Whether another device is of the same array as these, is none of their members, and has a newer
/// label than all of them, the newest of which does not call it out: it may have newer data.
#[must_use]
pub fn is_superseded(there: &[&dyn BlockDevice], other: &dyn BlockDevice) -> bool {
    let labels: Vec<Label> = there.iter().filter_map(|one| read_label(*one).ok()).collect();
    let newest = labels.iter().max_by_key(|label| label.generation);
    let (Some(newest), Ok(other)) = (newest, read_label(other)) else { return false };
    let is_out = |m: &Member| m.id == other.member_id && m.standing == MemberStanding::Out;
    newest.array_id == other.array_id
        && newest.generation < other.generation
        && !labels.iter().any(|label| label.member_id == other.member_id)
        && !newest.members.iter().any(is_out)
}

/// Those that the newest label names, with that label.
pub(super) struct Known {
    pub found: Vec<Found>,
    pub label: Label,
    pub stack: Stack,
    /// The others: their paths, and why they are no members any more, or not yet.
    pub strangers: Vec<(String, String)>,
}

/// Looks for labels, all of them of one array, and tells members and spares from others. Fails if
/// some were used apart.
pub(super) fn find(candidates: Vec<Candidate>) -> Result<Known, ArrayError> {
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
                blank.push((
                    path,
                    format!("no label: {why}; to add it give `pool grow` or `pool attach` again"),
                ));
            }
            // A newer copy of it may have been behind that, which says who is out.
            Ok(_) if device.len_bytes() < AREA_BYTES => {
                let what = format!("{path} has {} bytes, less than its label", device.len_bytes());
                let hint = "bring back what was there, or take it away; nothing was changed";
                return Err(refused(what, hint));
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
    known(found, blank)
}

/// Fails unless a label's stack names each member once, by number.
fn check_numbers(stack: &Stack, count: usize) -> Result<(), ArrayError> {
    let mut numbers: Vec<Option<usize>> =
        stack.members().iter().map(|m| m.parse().ok().filter(|&n| n < count)).collect();
    numbers.sort_unstable();
    if numbers == (0..count).map(Some).collect::<Vec<_>>() {
        return Ok(());
    }
    Err(refused(format!("the label's stack {stack} does not name its {count} members"), ""))
}

/// Those of a label's members and spares, and the others beside those that are blank.
fn known(found: Vec<Found>, blank: Vec<(String, String)>) -> Result<Known, ArrayError> {
    let newest = found.iter().max_by_key(|f| f.label.generation).expect("one at least");
    let label = newest.label.clone();
    let stack = stack_of(&label, &format!("the label of {}", newest.path))?;
    if label.generation == label::CLAIM_GENERATION {
        let what = format!("{} was to be added to a pool, and is no member yet", newest.path);
        return Err(refused(what, "is pool.stack right?"));
    }
    let mut strangers = Vec::new();
    for one in &found {
        if is_known(one, newest)? {
            continue;
        }
        let why = match one.label.generation {
            label::CLAIM_GENERATION => {
                "it was to be added, which was not finished: give `pool grow --add` or \
                 `pool attach` again"
            }
            _ => "another is in its place",
        };
        strangers.push((one.path.clone(), why.to_owned()));
    }
    let is_known = |f: &Found| !strangers.iter().any(|(path, _)| *path == f.path);
    let found = found.into_iter().filter(is_known).collect();
    strangers.extend(blank);
    Ok(Known { found, label, stack, strangers })
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

/// Why a device is not what it was when it became a member, if it is not: somebody cut it.
pub(super) fn why_cut(row: &Member, device: &dyn BlockDevice) -> Option<String> {
    let (bytes, wanted) = (device.len_bytes(), row.data_bytes.saturating_add(AREA_BYTES));
    let is_cut = row.standing != MemberStanding::Spare && bytes < wanted;
    is_cut.then(|| format!("it has {bytes} bytes, but had {wanted} when it became a member"))
}

/// Takes out those that were cut: their members, and why they cannot be used.
pub(super) fn take_cut(label: &Label, found: &mut Vec<Found>) -> BTreeMap<usize, String> {
    let mut cut = BTreeMap::new();
    found.retain(|one| {
        let number = label.members.iter().position(|m| m.id == one.label.member_id);
        let why = number.and_then(|n| Some((n, why_cut(&label.members[n], &*one.device)?)));
        let is_whole = why.is_none();
        cut.extend(why);
        is_whole
    });
    cut
}

/// Which members are missing though the label does not call them out, and which came back.
pub(super) fn stand(label: &mut Label, found: &[Found]) -> (Vec<usize>, Vec<usize>) {
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

pub(super) fn too_few(
    label: &Label,
    missing: &[usize],
    cut: &BTreeMap<usize, String>,
) -> ArrayError {
    fn path(member: &Member) -> &str {
        if member.path.is_empty() { "a member" } else { &member.path }
    }
    let name = |(number, member): (usize, &Member)| {
        let how = match member.standing {
            _ if cut.contains_key(&number) => {
                return Some(format!("{}: {}", path(member), cut[&number]));
            }
            _ if missing.contains(&number) => "missing",
            MemberStanding::In | MemberStanding::Spare => return None,
            MemberStanding::Stale => "not up to date",
            MemberStanding::Out => "out",
        };
        Some(format!("{} is {how}", path(member)))
    };
    let names: Vec<String> = label.members.iter().enumerate().filter_map(name).collect();
    let what = format!("too few members of {}: {}", label.stack, names.join(", "));
    refused(what, "bring back what is missing; nothing was changed")
}
