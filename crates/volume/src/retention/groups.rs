//! Consistency groups: versions of several volumes at one instant.
//!
//! Invariants
//! 1. All members' gates are closed at the same time, in the order of their ids, before the first
//!    is opened again; what waits in caches is in the logs by then, and no write is taken up. So a
//!    write that was begun when another had been acknowledged is captured only with that one.
//! 2. One commit has the versions of all members: after a crash there are all of them, or none.
//! 3. One commit deletes a capture: its versions and its row. After a crash it is there, or gone.
//! 4. Groups in memory change under the pool's `books`, as the catalogue does.

use std::collections::BTreeMap;
use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;

use env::{Rank, RankedGuard, RankedMutex};
use history::Gate;
use units::{Seq, WallTime};

use crate::catalogue::transaction::Transaction;
use crate::catalogue::{
    Commit, GroupRecord, GroupVersionRecord, ScheduleRecord, ScheduledRecord, VersionRecord,
    all_of, tables,
};
use crate::host::RoomWait;
use crate::names::{check_label, check_name};
use crate::pool::volumes::Volumes;
use crate::retention::group_schedule::GroupSchedule;
use crate::retention::open_files::Quiet;
use crate::retention::pins::Pins;
use crate::retention::stand_still::Still;
use crate::types::Consistency;
use crate::volume::Volume;
use crate::{Error, ErrorKind, Result};

/// Volumes of a group.
const MEMBERS_MAX: usize = 256;
/// Rows of captures, of which nothing is left, that one capture removes.
const SWEPT_MAX: usize = 16;
/// Captures that are read at a time to be deleted.
const DELETED_MAX: usize = 1024;

/// The groups of a pool, over its volumes.
pub struct Groups {
    volumes: Volumes,
    /// By name; they change under the books.
    pub(super) by_name: RankedMutex<BTreeMap<String, GroupRecord>>,
    /// Schedules of groups with what they made, by the group's id; they change under the books.
    pub(super) schedules: RankedMutex<BTreeMap<u64, GroupSchedule>>,
    /// The right to run schedules, also those of volumes.
    pub(super) scheduling: RankedMutex<()>,
}

impl Deref for Groups {
    type Target = Volumes;

    fn deref(&self) -> &Volumes {
        &self.volumes
    }
}

/// A group as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its name.
    pub name: String,
    /// Its volumes.
    pub volumes: Vec<String>,
    /// How many of its volumes are in the trash.
    pub in_trash: usize,
    /// When it was made.
    pub created: WallTime,
    /// Captures made of it, also those of which nothing is left.
    pub captures: u64,
    /// The hook around captures that name none; without one those of its volumes are used.
    pub hook: Option<String>,
}

/// A capture of a group: a version of each member, all of one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupVersion {
    /// 0, 1, 2 ...; never used twice in a group.
    pub number: u64,
    /// The clock's time.
    pub time: WallTime,
    /// Free text.
    pub label: String,
    /// How quiet the volumes were.
    pub consistency: Consistency,
    /// Volumes with the numbers of their versions: those that are still there.
    pub versions: Vec<(String, u64)>,
    /// Whether a schedule of the group made it.
    pub is_scheduled: bool,
}

/// The error of a name that no group has.
#[must_use]
pub fn no_group(name: &str) -> Error {
    Error::not_found(format!("there is no group {name}"))
        .with_hint("`hindsight group list` names them")
}

/// The error of a group that is not any more as it was.
pub fn changed_meanwhile(group: &str) -> Error {
    Error::busy(format!("group {group} was changed meanwhile"))
}

impl Groups {
    /// None yet, over the volumes.
    pub fn new(volumes: Volumes) -> Groups {
        Groups {
            volumes,
            by_name: RankedMutex::new(Rank::Groups, BTreeMap::new()),
            schedules: RankedMutex::new(Rank::GroupSchedules, BTreeMap::new()),
            scheduling: RankedMutex::new(Rank::Schedules, ()),
        }
    }

    /// Takes up the groups of the catalogue, and the targets.
    ///
    /// # Errors
    /// `Corrupt` when a record is unreadable.
    pub(crate) fn load_groups(&self) -> Result<()> {
        let groups = self.core.catalogue.all(tables::GROUPS)?;
        groups.iter().try_for_each(|group| self.load_group_schedule(group.id))?;
        self.set_groups(groups);
        self.load_targets()?;
        self.load_tokens()
    }

    /// The record of a group.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn group_record(&self, name: &str) -> Result<GroupRecord> {
        self.by_name.lock().get(name).cloned().ok_or_else(|| no_group(name))
    }

    /// Its volumes that are served, in the order of their ids, which is that of locks.
    ///
    /// # Errors
    /// `Invalid` without any.
    pub(crate) fn served_members(&self, group: &GroupRecord) -> Result<Vec<Arc<Volume>>> {
        let volumes = self.registry.by_ids(&group.members);
        if volumes.is_empty() {
            return Err(Error::invalid(format!("group {} has no volumes any more", group.name)));
        }
        Ok(volumes)
    }

    /// Puts a new group into a commit.
    ///
    /// # Errors
    /// `Exists`; those of the catalogue.
    pub(crate) fn prepare_group(
        &self,
        name: &str,
        members: Vec<u64>,
        told: &str,
        tx: &mut Transaction<'_>,
    ) -> Result<GroupRecord> {
        if self.by_name.lock().contains_key(name) {
            return Err(Error::exists(format!("there is a group {name} already")));
        }
        tx.numbers.group += 1;
        let record = GroupRecord {
            id: tx.numbers.group,
            name: name.to_owned(),
            members,
            created_ns: self.core.machine.clock.wall().as_nanos(),
            next_version: 0,
            hook: None,
        };
        tx.put(tables::GROUPS, record.id, &record)?;
        tx.audit("group-create", "", format!("group {name}: {told}"))?;
        Ok(record)
    }

    pub(crate) fn group_info(&self, record: &GroupRecord) -> GroupInfo {
        let members = record.members.iter().filter_map(|&id| self.registry.by_id(id));
        let mut volumes: Vec<String> = members.map(|volume| volume.name().to_owned()).collect();
        volumes.sort();
        GroupInfo {
            name: record.name.clone(),
            in_trash: record.members.len() - volumes.len(),
            volumes,
            created: WallTime::from_nanos(record.created_ns),
            captures: record.next_version,
            hook: record.hook.clone(),
        }
    }

    /// Groups without a volume that is being deleted, as part of that commit; to be told to
    /// [`Groups::set_groups`] when it has succeeded.
    ///
    /// # Errors
    /// Those of the catalogue.
    pub(crate) fn groups_without(&self, volume: u64, commit: &Commit) -> Result<Vec<GroupRecord>> {
        let groups = self.by_name.lock();
        let mut changed = Vec::new();
        for record in groups.values().filter(|record| record.members.contains(&volume)) {
            let mut record = record.clone();
            record.members.retain(|&member| member != volume);
            commit.put(tables::GROUPS, record.id, &record)?;
            changed.push(record);
        }
        Ok(changed)
    }

    /// Takes up groups that were committed.
    pub(crate) fn set_groups(&self, records: Vec<GroupRecord>) {
        let mut groups = self.by_name.lock();
        for record in records {
            groups.insert(record.name.clone(), record);
        }
    }

    /// Makes all volumes stand still, in the order that is given: that of their ids.
    pub(crate) fn stand_together<'v>(&self, volumes: &'v [Arc<Volume>]) -> Result<Vec<Still<'v>>> {
        let mut wait = RoomWait::default();
        loop {
            // Most of it while writes go on.
            volumes.iter().try_for_each(|volume| volume.destage_all())?;
            self.core.store.flush()?;
            let stills: Result<Vec<Still<'v>>> =
                volumes.iter().map(|volume| volume.try_stand_still()).collect();
            match stills {
                // Making room takes the right to do background work, which comes before pins: so
                // only now, when those that stood still have been let go.
                Err(e) if e.kind == ErrorKind::Full => {
                    if volumes.is_empty()
                        || !self.core.host()?.wait_for_room(&mut wait, &|| true)?
                    {
                        return Err(e);
                    }
                }
                other => return other,
            }
        }
    }
}

/// The state at the instant of a capture, and its caller.
struct Taken<'t> {
    label: &'t str,
    /// How quiet each volume was.
    quiets: &'t [Quiet],
    due: Option<&'t ScheduleRecord>,
    /// Where each volume stood.
    places: &'t [(Seq, WallTime)],
}

impl Taken<'_> {
    fn record(&self, volumes: &[Arc<Volume>], wall: WallTime) -> GroupVersionRecord {
        let made_ns = wall.as_nanos();
        let next = |volume: &Arc<Volume>| (volume.id, volume.record.lock().next_version);
        GroupVersionRecord {
            time_ns: made_ns,
            label: self.label.to_owned(),
            consistency: Consistency::of_all(self.quiets.iter().map(|quiet| quiet.consistency)),
            versions: volumes.iter().map(next).collect(),
            scheduled: self.due.map(|due| ScheduledRecord { schedule: due.id, made_ns }),
        }
    }
}

/// Closes the gates of all volumes, one within the other, and reads where each stands.
fn instant_of(
    volumes: &[Arc<Volume>],
    places: &mut Vec<(Seq, WallTime)>,
    quiet: &dyn Fn() -> Vec<Quiet>,
) -> Result<Vec<Quiet>> {
    let Some((first, rest)) = volumes.split_first() else { return Ok(quiet()) };
    first.log().with_gate(|gate: &mut Gate<'_>| {
        places.push((gate.last_seq(), gate.last_time()));
        instant_of(rest, places, quiet)
    })
}

impl Groups {
    /// Makes a group of volumes.
    ///
    /// # Errors
    /// `Invalid` name or members, `Exists`, `NotFound`, `Refused`.
    pub fn create_group(&self, name: &str, volumes: &[String]) -> Result<GroupInfo> {
        check_name("group", name)?;
        if volumes.is_empty() || volumes.len() > MEMBERS_MAX {
            return Err(Error::invalid(format!("a group has 1 to {MEMBERS_MAX} volumes")));
        }
        let core = &self.core;
        let mut tx = core.begin()?;
        let mut members = Vec::new();
        for volume in volumes {
            // Under the books: nothing is deleted meanwhile.
            members.push(self.volume(volume)?.id);
        }
        members.sort_unstable();
        members.dedup();
        let told = volumes.join(", ");
        let record = self.prepare_group(name, members, &told, &mut tx)?;
        let books = tx.commit()?;
        self.set_groups(vec![record.clone()]);
        drop(books);
        Ok(self.group_info(&record))
    }

    /// All groups by name.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupInfo> {
        let records: Vec<GroupRecord> = self.by_name.lock().values().cloned().collect();
        records.iter().map(|record| self.group_info(record)).collect()
    }

    /// One group.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn group(&self, name: &str) -> Result<GroupInfo> {
        self.group_record(name).map(|record| self.group_info(&record))
    }

    /// The volumes of a group that are served, in the order of their ids.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn group_volumes(&self, name: &str) -> Result<Vec<Arc<Volume>>> {
        Ok(self.registry.by_ids(&self.group_record(name)?.members))
    }

    /// Deletes a group; its volumes and their versions stay.
    ///
    /// # Errors
    /// `NotFound`, `Refused`.
    pub fn delete_group(&self, name: &str) -> Result<()> {
        let core = &self.core;
        let mut tx = core.begin()?;
        let record = self.group_record(name)?;
        tx.remove(tables::GROUPS, record.id)?;
        tx.remove_all(tables::GROUP_VERSIONS, all_of(record.id))?;
        let scheduled = self.schedules.lock().contains_key(&record.id);
        if scheduled {
            tx.remove(tables::GROUP_SCHEDULES, record.id)?;
        }
        tx.audit("group-delete", "", format!("group {name}; volumes and versions stay"))?;
        let _books = tx.commit()?;
        self.by_name.lock().remove(name);
        self.schedules.lock().remove(&record.id);
        Ok(())
    }

    /// Captures all members at one instant.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` label or a group without volumes; `Full`, `Refused`, `Io`.
    pub fn create_group_version(&self, name: &str, label: &str) -> Result<GroupVersion> {
        self.create_group_version_as(name, label, &|_| Consistency::CrashConsistent.into())
    }

    /// The same for those who know how quiet the volumes are; they are asked at the instant, of
    /// each volume by its name.
    ///
    /// # Errors
    /// Those of [`Groups::create_group_version`].
    pub fn create_group_version_as(
        &self,
        name: &str,
        label: &str,
        quiet: &dyn Fn(&str) -> Quiet,
    ) -> Result<GroupVersion> {
        check_label(label)?;
        self.capture_group(name, label, None, quiet)
    }

    /// At most `limit` captures of a group from a number on, and where to go on.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`.
    pub fn group_versions(
        &self,
        name: &str,
        first: u64,
        limit: usize,
    ) -> Result<(Vec<GroupVersion>, Option<u64>)> {
        let id = self.group_record(name)?.id;
        let (records, next) =
            self.core.catalogue.page_of(tables::GROUP_VERSIONS, id, first, limit)?;
        let told = |(number, record): (u64, GroupVersionRecord)| GroupVersion {
            number,
            time: WallTime::from_nanos(record.time_ns),
            label: record.label.clone(),
            consistency: record.consistency,
            versions: self.left_of(&record),
            is_scheduled: record.scheduled.is_some(),
        };
        let all = records.into_iter().map(told);
        Ok((all.filter(|version| !version.versions.is_empty()).collect(), next))
    }

    /// Deletes the captures with these numbers, each with all of its versions that are left; says
    /// how many there were.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Refused`. Versions deleted before a failure stay deleted.
    pub fn delete_group_versions(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
        dry_run: bool,
    ) -> Result<u64> {
        let (first, last) = (*range.start(), *range.end());
        let mut count = 0;
        let mut next = Some(first);
        while let Some(from) = next {
            let (page, after) = self.group_versions(name, from, DELETED_MAX)?;
            for capture in page.iter().filter(|capture| capture.number <= last) {
                if !dry_run {
                    self.delete_capture(name, capture.number)?;
                }
                count += 1;
            }
            next = after.filter(|&after| after <= last);
        }
        if count > 0 {
            return Ok(count);
        }
        let which = match first == last {
            true => format!("capture {first}"),
            false => format!("capture from {first} to {last}"),
        };
        Err(Error::not_found(format!("group {name} has no {which}")))
    }

    /// Deletes a capture with its versions.
    fn delete_capture(&self, name: &str, number: u64) -> Result<()> {
        let group = self.group_record(name)?;
        let found = self.core.catalogue.get(tables::GROUP_VERSIONS, (group.id, number))?;
        let Some(capture) = found else { return Ok(()) };
        let mut ids: Vec<u64> = capture.versions.iter().map(|&(id, _)| id).collect();
        ids.sort_unstable();
        let volumes = self.registry.by_ids(&ids);
        let pins = volumes.iter().map(|volume| volume.pins().lock()).collect();
        let captures = vec![(number, capture.versions)];
        self.remove_captures(&group, (&volumes, pins), &captures, ("version-delete", ""))
    }

    /// Removes captures in one commit, each with its versions that are left. The pins are those of
    /// all volumes of these captures; `told` is what the audit log says: what is done, and why.
    ///
    /// # Errors
    /// `NotFound` when the group was deleted meanwhile; `Refused`.
    pub(crate) fn remove_captures(
        &self,
        group: &GroupRecord,
        (volumes, mut pins): (&[Arc<Volume>], Vec<RankedGuard<'_, Pins>>),
        captures: &[(u64, Vec<(u64, u64)>)],
        (action, why): (&str, &str),
    ) -> Result<()> {
        let mut tx = self.core.begin()?;
        let name = &group.name;
        // The group may have been deleted meanwhile, and another made.
        if self.group_record(name)?.id != group.id {
            return Err(no_group(name));
        }
        let mut removed = Vec::new();
        for (volume, pins) in volumes.iter().zip(&pins) {
            let versions = captures.iter().flat_map(|(_, versions)| versions);
            let own = versions.filter(|&&(id, _)| id == volume.id).map(|&(_, number)| number);
            let own = own.filter(|_| !volume.is_gone());
            let gone: Vec<(u64, Seq)> =
                own.filter_map(|number| Some((number, pins.version(number)?.seq))).collect();
            let heirs = volume.remove_in(&tx, pins, &gone)?;
            for (version, seq) in &gone {
                let detail = format!("version {version} (seq {seq}): capture of group {name}{why}");
                tx.audit(action, &volume.name, detail)?;
            }
            removed.push((gone, heirs));
        }
        for (number, _) in captures {
            tx.remove(tables::GROUP_VERSIONS, (group.id, *number))?;
        }
        let _books = tx.commit()?;
        self.forget_captures(group.id, captures.iter().map(|(number, _)| *number));
        for ((volume, pins), (gone, heirs)) in volumes.iter().zip(&mut pins).zip(removed) {
            volume.removed(pins, &gone, heirs);
        }
        Ok(())
    }

    /// Whether all versions of a capture are gone, those of volumes in the trash as well.
    fn is_nothing_left_of(&self, record: &GroupVersionRecord) -> bool {
        let mut kept = self.registry.all();
        kept.retain(|volume| !volume.is_gone());
        let is_there = |&(id, number): &(u64, u64)| {
            let volume = kept.iter().find(|volume| volume.id == id);
            volume.is_some_and(|volume| volume.pins().lock().version(number).is_some())
        };
        !record.versions.iter().any(is_there)
    }

    /// The versions of a capture that are still there.
    fn left_of(&self, record: &GroupVersionRecord) -> Vec<(String, u64)> {
        let is_there = |&(id, number): &(u64, u64)| {
            let volume = self.registry.by_id(id)?;
            let found = volume.pins().lock().version(number).is_some();
            found.then(|| (volume.name().to_owned(), number))
        };
        record.versions.iter().filter_map(is_there).collect()
    }

    /// Captures all members of a group at one instant; with a schedule, for it, and that is
    /// recorded in the same commit.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` of a group without volumes; `Full`, `Refused`, `Io`.
    pub(crate) fn capture_group(
        &self,
        name: &str,
        label: &str,
        due: Option<&ScheduleRecord>,
        quiet: &dyn Fn(&str) -> Quiet,
    ) -> Result<GroupVersion> {
        loop {
            let group = self.group_record(name)?;
            let volumes = self.served_members(&group)?;
            let captured =
                self.capture_members((name, &group.members), &volumes, label, due, quiet);
            // A volume that is deleted meanwhile is none of it.
            if captured.is_ok() || volumes.iter().all(|volume| volume.is_served()) {
                return captured;
            }
        }
    }

    fn capture_members(
        &self,
        group: (&str, &[u64]),
        volumes: &[Arc<Volume>],
        label: &str,
        due: Option<&ScheduleRecord>,
        quiet: &dyn Fn(&str) -> Quiet,
    ) -> Result<GroupVersion> {
        let stills = self.stand_together(volumes)?;
        let mut places = Vec::with_capacity(volumes.len());
        let asked = || volumes.iter().map(|volume| quiet(&volume.name)).collect();
        let quiets = instant_of(volumes, &mut places, &asked)?;
        let pins: Vec<RankedGuard<'_, Pins>> =
            stills.into_iter().map(Still::let_writes_go).collect();
        let taken = Taken { label, quiets: &quiets, due, places: &places };
        self.commit_group_version(group, volumes, pins, &taken)
    }

    fn commit_group_version(
        &self,
        (name, members): (&str, &[u64]),
        volumes: &[Arc<Volume>],
        mut pins: Vec<RankedGuard<'_, Pins>>,
        taken: &Taken<'_>,
    ) -> Result<GroupVersion> {
        let wall = self.core.machine.clock.wall();
        let mut tx = self.core.begin()?;
        let mut group = self.group_record(name)?;
        volumes.iter().try_for_each(|volume| volume.check_served())?;
        let is_changed = taken.due.is_some_and(|due| !self.is_group_scheduled(group.id, due));
        if group.members != members || is_changed {
            return Err(changed_meanwhile(name));
        }
        let number = group.next_version;
        group.next_version += 1;
        let capture = taken.record(volumes, wall);
        let mut made_versions = Vec::new();
        for ((volume, &place), quiet) in volumes.iter().zip(taken.places).zip(taken.quiets) {
            let (label, made) = (&capture.label, capture.scheduled);
            let version = VersionRecord::captured(place, wall, label, made, quiet);
            made_versions.push(volume.put_version(&mut tx, &version, quiet)?);
        }
        tx.put(tables::GROUP_VERSIONS, (group.id, number), &capture)?;
        tx.put(tables::GROUPS, group.id, &group)?;
        if let Some(due) = taken.due {
            tx.put(tables::GROUP_SCHEDULES, group.id, due)?;
        }
        let books = tx.commit()?;
        let made = capture.scheduled.map(|s| (s.schedule, s.made_ns));
        let members = volumes.iter().zip(made_versions).zip(&mut pins).zip(taken.places);
        for (((volume, number), pins), &(seq, _)) in members {
            pins.add_version(number, seq, made);
            volume.counting.lock().want(number);
        }
        let id = group.id;
        self.note_capture(id, number, &capture);
        self.set_groups(vec![group]);
        drop(books);
        drop(pins);
        self.sweep_group(id, number)?;
        let named =
            |(volume, (_, number)): (&Arc<Volume>, (u64, u64))| (volume.name().to_owned(), number);
        let versions = volumes.iter().zip(capture.versions).map(named).collect();
        let GroupVersionRecord { label, consistency, scheduled, .. } = capture;
        let is_scheduled = scheduled.is_some();
        Ok(GroupVersion { number, time: wall, label, consistency, versions, is_scheduled })
    }

    /// Removes the oldest rows of captures of which nothing is left.
    fn sweep_group(&self, id: u64, before: u64) -> Result<()> {
        let mut rows = self.core.catalogue.rows_of(tables::GROUP_VERSIONS, id, 0, SWEPT_MAX)?;
        rows.retain(|(number, record)| *number < before && self.is_nothing_left_of(record));
        if rows.is_empty() {
            return Ok(());
        }
        let tx = self.core.begin()?;
        for (number, _) in &rows {
            tx.remove(tables::GROUP_VERSIONS, (id, *number))?;
        }
        let _books = tx.commit()?;
        self.forget_captures(id, rows.iter().map(|(number, _)| *number));
        Ok(())
    }
}
