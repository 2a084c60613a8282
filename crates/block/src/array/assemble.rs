//! The state of an array as its members' labels have it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, OnceLock};

use env::{Rank, RankedMutex, RankedRwLock};
use format::label::{self, Label, MEMBERS_MAX, Member, MemberStanding, REGIONS_MAX};

use super::book::Book;
use super::build::top_bytes;
use super::candidate::{ArrayError, Spare, refused};
use super::found::{Found, why_cut};
use super::member::MemberDevice;
use super::regions::{Regions, set};
use super::shared::{Shared, members_of};
use crate::BlockDevice;
use crate::heal::Ledger;
use crate::stack::Stack;

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
        if let Some(why) = why_cut(&label.members[number], &*one.device) {
            let hint = "bring back what was there; nothing was changed";
            return Err(refused(format!("{}: {why}", one.path), hint));
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
        let standing = rows.get(number).map_or(MemberStanding::In, |m| m.standing);
        AtomicU8::new(standing as u8)
    });
    let book = Book::new(label.clone(), maps, stack.keeps_over_copies());
    Arc::new(Shared {
        stack: RankedRwLock::new(Rank::Leaf, Arc::new(stack.clone())),
        members: RankedRwLock::new(Rank::Leaf, members),
        spares: RankedMutex::new(Rank::ArraySpares, spares.collect()),
        renewed: RankedMutex::default(),
        standings: standings.collect(),
        absences: (0..MEMBERS_MAX).map(|_| AtomicU64::new(0)).collect(),
        regions: Regions::new(label.region_bytes),
        book: RankedMutex::new(Rank::ArrayBook, book),
        torn: OnceLock::new(),
        is_making: AtomicBool::new(false),
        is_unsettled: AtomicBool::new(false),
        ledger: Arc::new(Ledger::default()),
        events: RankedMutex::default(),
        behind: AtomicU64::new(0),
    })
}
