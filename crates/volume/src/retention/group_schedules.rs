//! Schedules of consistency groups: captures by the clock, pruned by the same rules as versions.
//!
//! Invariants
//! 1. As of a volume's schedule: the time up to which it is done is part of the capture's commit,
//!    what was missed is one capture, and only what this schedule made is pruned.
//! 2. A capture is pruned as one: its versions on all volumes and its row, in one commit.
//! 3. `captures` has every capture that this schedule made and that has a row. One of which nothing
//!    is left takes no place in a rule.

use std::collections::BTreeMap;

use crate::catalogue::{GroupRecord, GroupVersionRecord, ScheduleRecord, tables};
use crate::retention::explain::{Explained, JudgedGroup, candidate, doomed, explain_doomed};
use crate::retention::group_schedule::{GroupSchedule, Held, Made};
use crate::retention::groups::Groups;
use crate::retention::hooks::PlannedHook;
use crate::retention::open_files::Quiet;
use crate::retention::schedule::{Schedule, ScheduleInfo, ScheduleSpec};
use crate::retention::schedules::PRUNED_MAX;
use crate::types::Consistency;
use crate::{Error, Result};

/// Rows of captures that are read at a time when a pool is opened.
const LOADED_MAX: usize = 4096;

fn no_schedule(name: &str) -> Error {
    Error::not_found(format!("group {name} has no schedule"))
        .with_hint("`hindsight group schedule set` makes one")
}

impl Groups {
    /// Takes up the schedule of a group, if it has one, with what it made.
    ///
    /// # Errors
    /// `Corrupt` when a record is unreadable.
    pub(crate) fn load_group_schedule(&self, group: u64) -> Result<()> {
        let Some(record) = self.core.catalogue.get(tables::GROUP_SCHEDULES, group)? else {
            return Ok(());
        };
        let id = record.id;
        let mut captures = BTreeMap::new();
        let mut next = Some(0);
        while let Some(first) = next {
            let (page, after) =
                self.core.catalogue.page_of(tables::GROUP_VERSIONS, group, first, LOADED_MAX)?;
            next = after;
            for (number, capture) in page {
                if let Some(made) = capture.scheduled.filter(|made| made.schedule == id) {
                    let made = Made { made_ns: made.made_ns, versions: capture.versions };
                    captures.insert(number, made);
                }
            }
        }
        let schedule = GroupSchedule { schedule: Schedule::of(record)?, captures };
        self.schedules.lock().insert(group, schedule);
        Ok(())
    }

    /// Whether the schedule of a group is still the one that this record was made of.
    pub(crate) fn is_group_scheduled(&self, group: u64, record: &ScheduleRecord) -> bool {
        self.schedules.lock().get(&group).is_some_and(|s| s.schedule.is(record))
    }

    /// Takes up a capture that was committed.
    pub(crate) fn note_capture(&self, group: u64, number: u64, capture: &GroupVersionRecord) {
        let mut schedules = self.schedules.lock();
        let (Some(schedule), Some(made)) = (schedules.get_mut(&group), capture.scheduled) else {
            return;
        };
        let made = Made { made_ns: made.made_ns, versions: capture.versions.clone() };
        schedule.captures.insert(number, made);
    }

    /// Forgets captures whose rows were removed.
    pub(crate) fn forget_captures(&self, group: u64, numbers: impl Iterator<Item = u64>) {
        if let Some(schedule) = self.schedules.lock().get_mut(&group) {
            numbers.for_each(|number| drop(schedule.captures.remove(&number)));
        }
    }

    fn group_with_id(&self, id: u64) -> Option<GroupRecord> {
        self.by_name.lock().values().find(|group| group.id == id).cloned()
    }

    /// Does something with the schedule of a group, if it has one.
    fn with_schedule<T>(&self, group: u64, work: impl FnOnce(&mut Schedule) -> T) -> Option<T> {
        self.schedules.lock().get_mut(&group).map(|s| work(&mut s.schedule))
    }

    /// Captures what is due and prunes what no rule keeps; see [`Groups::run_schedules`].
    pub(crate) fn run_group_schedules(&self, may_prune: bool) {
        let clock = &*self.core.machine.clock;
        let groups: Vec<u64> = self.schedules.lock().keys().copied().collect();
        for group in groups {
            // A capture with a hook is its runner's: commands take their time.
            let is_plain = |record: &ScheduleRecord| {
                let group = self.group_with_id(group);
                group.is_some_and(|g| self.hooks_of(&g, record.hook.as_deref()).is_empty())
            };
            if let Some(record) = self.due_capture(group).filter(is_plain) {
                self.capture_due(group, record, &|_| Consistency::CrashConsistent.into());
            }
            let wants = self.with_schedule(group, |s| s.wants_pruning(clock));
            if may_prune && wants == Some(true) {
                let pruned = self.prune_group(group);
                self.with_schedule(group, |s| s.pruned(pruned, clock));
            }
        }
    }

    fn due_capture(&self, group: u64) -> Option<ScheduleRecord> {
        self.with_schedule(group, |s| s.due(&*self.core.machine.clock))?
    }

    fn capture_due(&self, group: u64, record: ScheduleRecord, quiet: &dyn Fn(&str) -> Quiet) {
        let Some(name) = self.group_with_id(group).map(|group| group.name) else { return };
        let captured = self.capture_group(&name, &record.label, Some(&record), quiet);
        self.with_schedule(group, |schedule| {
            if schedule.is(&record) {
                schedule.captured(record, captured.map(drop), &*self.core.machine.clock);
            }
        });
    }

    /// Prunes some of what no rule keeps; says how many captures, and whether there may be more.
    fn prune_group(&self, id: u64) -> Result<(u64, bool)> {
        let Some(group) = self.group_with_id(id) else { return Ok((0, false)) };
        let volumes = self.registry.by_ids(&group.members);
        // Judged and removed under one lock, as the versions of a volume are.
        let held = Held::of(&volumes);
        let most = (PRUNED_MAX / group.members.len().max(1)).max(1);
        let (captures, keep) = {
            let schedules = self.schedules.lock();
            let Some(schedule) = schedules.get(&id) else { return Ok((0, false)) };
            let keep = schedule.schedule.record.keep;
            let doomed = doomed(schedule.left(&held), &keep, most);
            let versions = |number: u64| (number, schedule.captures[&number].versions.clone());
            (doomed.into_iter().map(versions).collect::<Vec<_>>(), keep)
        };
        if captures.is_empty() {
            return Ok((0, false));
        }
        let why = format!(": none of {keep} keeps it");
        let Held { volumes, pins } = held;
        self.remove_captures(&group, (volumes, pins), &captures, ("version-prune", &why))?;
        Ok((captures.len() as u64, captures.len() == most))
    }

    /// The judgements of groups' schedules on the versions of a volume.
    pub(crate) fn judged_groups(&self, volume: u64) -> Vec<JudgedGroup> {
        let groups: Vec<GroupRecord> = self.by_name.lock().values().cloned().collect();
        let of_it = groups.into_iter().filter(|group| group.members.contains(&volume));
        of_it.filter_map(|group| self.judged_group(&group, volume)).collect()
    }

    fn judged_group(&self, group: &GroupRecord, volume: u64) -> Option<JudgedGroup> {
        let volumes = self.registry.by_ids(&group.members);
        let held = Held::of(&volumes);
        let schedules = self.schedules.lock();
        let schedule = schedules.get(&group.id)?;
        let mut captures = BTreeMap::new();
        for (&number, made) in &schedule.captures {
            let own = made.versions.iter().filter(|&&(id, _)| id == volume);
            captures.extend(own.map(|&(_, version)| (version, number)));
        }
        let judged = schedule.schedule.judged(schedule.left(&held).map(candidate), 0..=u64::MAX);
        Some(JudgedGroup::of(judged, group.name.clone(), captures))
    }

    /// Sets the schedule of a group, or changes it: then it goes on with what it made.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `Refused`.
    pub fn set_group_schedule(&self, name: &str, spec: &ScheduleSpec) -> Result<ScheduleInfo> {
        let wall = self.core.machine.clock.wall();
        spec.check(wall)?;
        {
            let mut tx = self.core.begin()?;
            let group = self.group_record(name)?.id;
            let id =
                self.with_schedule(group, |schedule| schedule.record.id).unwrap_or_else(|| {
                    tx.numbers.schedule += 1;
                    tx.numbers.schedule
                });
            let record = spec.record(id, wall);
            tx.put(tables::GROUP_SCHEDULES, group, &record)?;
            let detail = format!("group {name}: {}, keep {}", spec.timing, spec.keep);
            tx.audit("schedule-set", "", detail)?;
            let _books = tx.commit()?;
            let schedule = Schedule::of(record)?;
            let mut schedules = self.schedules.lock();
            match schedules.get_mut(&group) {
                Some(before) => before.schedule = schedule,
                None => {
                    let captures = BTreeMap::new();
                    schedules.insert(group, GroupSchedule { schedule, captures });
                }
            }
        }
        self.group_schedule(name)?.ok_or_else(|| no_schedule(name))
    }

    /// The result that [`Groups::set_group_schedule`] would have, and the schedule's captures that
    /// no rule would keep then.
    ///
    /// # Errors
    /// Those of [`Groups::set_group_schedule`].
    pub fn plan_group_schedule(
        &self,
        name: &str,
        spec: &ScheduleSpec,
    ) -> Result<(ScheduleInfo, Vec<Explained>)> {
        let wall = self.core.machine.clock.wall();
        spec.check(wall)?;
        let group = self.group_record(name)?;
        let volumes = self.registry.by_ids(&group.members);
        let held = Held::of(&volumes);
        let schedules = self.schedules.lock();
        let before = schedules.get(&group.id);
        let left: Vec<(u64, u64)> = before.map_or(Vec::new(), |s| s.left(&held).collect());
        let id = before.map_or(0, |s| s.schedule.record.id);
        let planned = Schedule::of(spec.record(id, wall))?;
        let goes = explain_doomed(left.iter().copied(), &spec.keep, wall);
        Ok((planned.info(left.first().copied()), goes))
    }

    /// The schedule of a group, if it has one; its newest version is a capture.
    ///
    /// # Errors
    /// `NotFound` without such a group.
    pub fn group_schedule(&self, name: &str) -> Result<Option<ScheduleInfo>> {
        let group = self.group_record(name)?;
        let volumes = self.registry.by_ids(&group.members);
        let held = Held::of(&volumes);
        let schedules = self.schedules.lock();
        Ok(schedules.get(&group.id).map(|s| s.schedule.info(s.left(&held).next())))
    }

    /// All schedules of groups, by the group's name.
    #[must_use]
    pub fn group_schedules(&self) -> Vec<(String, ScheduleInfo)> {
        let groups = self.groups().into_iter().map(|group| group.name);
        // A group that is deleted meanwhile has none.
        groups
            .filter_map(|name| Some((self.group_schedule(&name).ok()??, name)))
            .map(|(info, name)| (name, info))
            .collect()
    }

    /// Removes the schedule of a group. Its captures stay until somebody deletes them.
    ///
    /// # Errors
    /// `NotFound`, `Refused`.
    pub fn remove_group_schedule(&self, name: &str) -> Result<()> {
        let mut tx = self.core.begin()?;
        let group = self.group_record(name)?.id;
        let id = self.with_schedule(group, |s| s.record.id).ok_or_else(|| no_schedule(name))?;
        tx.remove(tables::GROUP_SCHEDULES, group)?;
        tx.audit("schedule-remove", "", format!("group {name}: schedule {id}; its versions stay"))?;
        let _books = tx.commit()?;
        self.schedules.lock().remove(&group);
        Ok(())
    }

    /// Prunes now the captures of a group that no rule keeps: numbers of what went, or would go.
    ///
    /// # Errors
    /// `NotFound` without a schedule; `Refused`.
    pub fn apply_group_retention(&self, name: &str, dry_run: bool) -> Result<Vec<u64>> {
        let group = self.group_record(name)?;
        let doomed = {
            let volumes = self.registry.by_ids(&group.members);
            let held = Held::of(&volumes);
            let schedules = self.schedules.lock();
            let schedule = schedules.get(&group.id).ok_or_else(|| no_schedule(name))?;
            doomed(schedule.left(&held), &schedule.schedule.record.keep, usize::MAX)
        };
        let mut left = if dry_run { 0 } else { doomed.len() as u64 };
        while left > 0 {
            let (count, _) = self.prune_group(group.id)?;
            self.with_schedule(group.id, |s| s.pruned_by_hand(count));
            left = if count == 0 { 0 } else { left.saturating_sub(count) };
        }
        Ok(doomed)
    }

    /// Why captures of a group stay or go, from a number on, at most `limit` of them; the last is
    /// where the next page begins. Those of which nothing is left are not told.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`.
    pub fn explain_group_retention(
        &self,
        name: &str,
        first: u64,
        limit: usize,
    ) -> Result<(Vec<Explained>, Option<u64>)> {
        let group = self.group_record(name)?;
        let (page, next) =
            self.core.catalogue.page_of(tables::GROUP_VERSIONS, group.id, first, limit)?;
        let last = page.last().map_or(0, |(number, _)| *number);
        let volumes = self.registry.by_ids(&group.members);
        let held = Held::of(&volumes);
        let schedules = self.schedules.lock();
        let schedule = schedules.get(&group.id);
        let left = |s: &GroupSchedule| s.left(&held).map(candidate).collect::<Vec<_>>();
        let judged = schedule.map(|s| s.schedule.judged(left(s).into_iter(), first..=last));
        let wall = self.core.machine.clock.wall();
        let explain = |(number, record): (u64, GroupVersionRecord)| {
            let made = Made { made_ns: record.time_ns, versions: record.versions };
            let time = (number, record.time_ns);
            let made_by = record.scheduled.map(|made| made.schedule);
            let explained = Explained::of(time, made_by, judged.as_ref(), wall);
            held.has_some_of(&made).then_some(explained)
        };
        Ok((page.into_iter().filter_map(explain).collect(), next))
    }

    /// Groups with a capture that is due, and the hooks around it, where there are some.
    #[must_use]
    pub fn due_group_hooks(&self) -> Vec<(String, Vec<PlannedHook>)> {
        let groups: Vec<GroupRecord> = self.by_name.lock().values().cloned().collect();
        let due = |group: GroupRecord| {
            let due = self.due_capture(group.id)?;
            let hooks = self.hooks_of(&group, due.hook.as_deref());
            (!hooks.is_empty()).then_some((group.name, hooks))
        };
        groups.into_iter().filter_map(due).collect()
    }

    /// The versions of the newest capture of each group whose schedule has a check: volume, number
    /// and the hook of the check.
    pub(crate) fn newest_to_prove(&self) -> Vec<(u64, u64, String)> {
        let schedules = self.schedules.lock();
        let newest = |of: &GroupSchedule| {
            let (hook, made) =
                (of.schedule.record.prove.as_ref()?, of.captures.last_key_value()?.1);
            let versions = made.versions.iter();
            Some(versions.map(|&(id, number)| (id, number, hook.clone())).collect::<Vec<_>>())
        };
        schedules.values().filter_map(newest).flatten().collect()
    }

    /// Makes the capture of a group that is due, if one is still; a failure is told by the
    /// schedule, and the capture is due again later.
    pub fn capture_group_hooked(&self, name: &str, quiet: &dyn Fn(&str) -> Quiet) {
        let Ok(group) = self.group_record(name) else { return };
        if let Some(record) = self.due_capture(group.id) {
            self.capture_due(group.id, record, quiet);
        }
    }
}
