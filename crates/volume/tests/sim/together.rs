//! Versions of several volumes at one instant, and versions by the clock.
//!
//! One thread does everything here, so "one instant" is: each version of a capture is the present
//! of its volume. After a crash a capture is there with all of its versions, or not at all.

use std::collections::{BTreeMap, BTreeSet};

use hindsight_volume::{ErrorKind, GroupVersion, KeepRules, Result, ScheduleSpec, Version};
use units::{Span, Timing};

use crate::action::Action;
use crate::world::World;

/// The label of versions of captures.
const TOGETHER: &str = "together";
const SECOND: u64 = 1_000_000_000;

/// A capture: its group, its number, and the volumes with the numbers of their versions.
#[derive(Clone, Debug)]
pub struct Capture {
    group: String,
    number: u64,
    versions: Vec<(String, u64)>,
    /// Whether a schedule made it; and after a crash, until all is settled, how many of its
    /// versions there were, 0 if the action under way may delete one.
    scheduled: Option<usize>,
}

/// What is known of captures and schedules.
#[derive(Clone, Debug, Default)]
pub struct Together {
    captures: Vec<Capture>,
    /// How many versions the schedule of a volume keeps.
    keeps: BTreeMap<String, u32>,
    /// Versions that schedules made.
    scheduled: BTreeSet<(String, u64)>,
    /// How many captures the schedule of a group keeps.
    group_keeps: BTreeMap<String, u32>,
    /// The capture that was being deleted in a crash, and how many of its versions there were.
    deleting: Option<(usize, usize)>,
    /// Versions that schedules made and pruned, for whoever asks whether there were some.
    pub made: u64,
    pub pruned: u64,
    /// The same of captures.
    pub group_made: u64,
    pub group_pruned: u64,
    /// Captures made, and deleted.
    pub captured: u64,
    pub deleted: u64,
}

/// The group of these volumes: none of their names is used twice.
fn group_of(names: &[String]) -> String {
    format!("g-{}", names.join("-"))
}

fn spec(seconds: u64, last: u32, label: &str) -> ScheduleSpec {
    ScheduleSpec {
        timing: Timing::Every(Span(seconds * SECOND)),
        keep: KeepRules { last, ..KeepRules::default() },
        label: label.to_owned(),
        hook: None,
        prove: None,
    }
}

/// A capture as it is told: its number; volumes and the numbers of their versions.
type Told = (u64, BTreeSet<(String, u64)>);

impl World {
    /// Captures volumes at one instant.
    pub fn capture_together(&mut self, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| self.number(name))?;
        let group = group_of(names);
        match self.pool().create_group(&group, names) {
            Err(e) if e.kind == ErrorKind::Exists => {}
            made => drop(made?),
        }
        let capture = self.pool().create_group_version(&group, TOGETHER)?;
        assert_eq!(capture.versions.len(), names.len(), "{capture:?}");
        for (name, number) in &capture.versions {
            let version = self.volume(name).version(*number)?;
            let model = self.model(name);
            assert_eq!(version.stamp.seq.0, model.oracle.latest(), "a version is the present");
            let known = model.versions.insert(*number, version.stamp.seq.0);
            assert_eq!(known, None, "version numbers are never used twice");
            (model.flushed, model.logged) = (version.stamp.seq.0, version.stamp.seq.0);
        }
        self.take_capture(group, capture);
        self.check_captures()
    }

    fn take_capture(&mut self, group: String, capture: GroupVersion) {
        let GroupVersion { number, versions, is_scheduled, .. } = capture;
        let scheduled = is_scheduled.then_some(0);
        self.together.captures.push(Capture { group, number, versions, scheduled });
        self.together.captured += 1;
    }

    /// What is left of a capture.
    fn left_of(&self, capture: &Capture) -> BTreeSet<(String, u64)> {
        let is_left = |(name, number): &&(String, u64)| {
            self.models.get(name).is_some_and(|model| model.versions.contains_key(number))
        };
        capture.versions.iter().filter(is_left).cloned().collect()
    }

    /// The capture that a draw means: one of which something is left.
    fn picked(&self, pick: u64) -> Option<usize> {
        let captures = self.together.captures.iter().enumerate();
        let left: Vec<usize> =
            captures.filter(|(_, c)| !self.left_of(c).is_empty()).map(|(index, _)| index).collect();
        left.get(usize::try_from(pick).ok()? % left.len().max(1)).copied()
    }

    /// Deletes a capture.
    pub fn delete_capture(&mut self, pick: u64) -> Result<()> {
        let Some(index) = self.picked(pick) else { return Ok(()) };
        let Capture { group, number, .. } = self.together.captures[index].clone();
        let count = self.pool().delete_group_versions(&group, number..=number, false)?;
        assert_eq!(count, 1);
        self.forget_capture(index);
        self.check_captures()
    }

    fn forget_capture(&mut self, index: usize) {
        let capture = self.together.captures.remove(index);
        self.together.deleted += 1;
        for (name, number) in capture.versions {
            if let Some(model) = self.models.get_mut(&name) {
                model.versions.remove(&number);
            }
        }
    }

    /// Compares the captures that the pool tells of with those that are known.
    fn check_captures(&self) -> Result<()> {
        let mut known: BTreeMap<&str, Vec<Told>> = BTreeMap::new();
        for capture in &self.together.captures {
            let left = self.left_of(capture);
            let of = known.entry(&capture.group).or_default();
            of.extend((!left.is_empty()).then_some((capture.number, left)));
        }
        for (group, known) in known {
            let (found, _) = self.pool().group_versions(group, 0, 1 << 20)?;
            let found: Vec<Told> =
                found.into_iter().map(|c| (c.number, c.versions.into_iter().collect())).collect();
            assert_eq!(found, known, "captures of {group}");
        }
        let all = self.together.captures.iter().flat_map(|c| &c.versions);
        let all: BTreeSet<&(String, u64)> = all.collect();
        for name in self.models.keys() {
            for version in self.volume(name).versions()? {
                let is_one = version.label == TOGETHER;
                assert_eq!(is_one, all.contains(&(name.clone(), version.number)), "{version:?}");
            }
        }
        Ok(())
    }

    /// The versions of `name` that may have gone with the action under way.
    pub fn going(&self, name: &str) -> Vec<u64> {
        let capture = self.together.deleting.map(|(index, _)| &self.together.captures[index]);
        let versions = capture.iter().flat_map(|capture| &capture.versions);
        versions.filter(|(volume, _)| volume == name).map(|&(_, number)| number).collect()
    }

    /// After a crash, when the versions of all volumes are known again: a capture that was under
    /// way was made or deleted as a whole.
    pub fn settle_captures(&mut self, under_way: Option<&Action>) {
        if let Some(Action::CaptureTogether(names)) = under_way {
            let group = group_of(names);
            let captures = &self.together.captures;
            let is_known = |c: &GroupVersion| {
                captures.iter().any(|k| (&k.group, k.number) == (&group, c.number))
            };
            let found = match self.pool().group_versions(&group, 0, 1 << 20) {
                Err(e) if e.kind == ErrorKind::NotFound => Vec::new(),
                found => found.unwrap_or_else(|e| panic!("captures of {group}: {e}")).0,
            };
            let new: Vec<GroupVersion> = found.into_iter().filter(|c| !is_known(c)).collect();
            assert!(new.len() <= 1, "one capture was under way");
            for capture in new {
                let count = capture.versions.len();
                assert_eq!(count, names.len(), "all of it or nothing: {capture:?}");
                assert!(!capture.is_scheduled, "no schedule runs beside it: {capture:?}");
                self.take_capture(group.clone(), capture);
            }
        }
        if let Some((index, before)) = self.together.deleting.take() {
            let capture = &self.together.captures[index];
            let left = self.left_of(capture).len();
            assert!(left == 0 || left == before, "all of it or nothing: {capture:?}");
            if left == 0 {
                self.forget_capture(index);
            }
        }
        self.settle_scheduled_captures();
        self.check_captures().unwrap_or_else(|e| panic!("captures after recovery: {e}"));
    }

    /// Captures by schedules, and those that they pruned, are there as a whole or not at all. What
    /// there is of each volume was learned before.
    fn settle_scheduled_captures(&mut self) {
        let groups: Vec<String> = self.together.group_keeps.keys().cloned().collect();
        for group in groups {
            let there = self.group_schedule_of(&group);
            for capture in self.learn_captures(&group, there) {
                let members = self.pool().group(&group).expect("its schedule is there").volumes;
                assert_eq!(capture.versions.len(), members.len(), "all or nothing: {capture:?}");
                self.take_capture(group.clone(), capture);
                self.together.group_made += 1;
            }
        }
        let captures = self.together.captures.iter();
        let left: Vec<usize> = captures.map(|capture| self.left_of(capture).len()).collect();
        for (capture, left) in self.together.captures.iter_mut().zip(left) {
            let before = capture.scheduled.map_or(0, |before| before);
            let whole = before == 0 || left == 0 || left == before;
            assert!(whole, "all of it or nothing: {capture:?}");
            capture.scheduled = capture.scheduled.map(|_| 0);
        }
    }

    /// How many captures the schedule of a group keeps, as the pool tells it.
    fn group_schedule_of(&mut self, group: &str) -> u32 {
        let info = self.pool().group_schedule(group).expect("the group is there");
        let last = info.expect("and its schedule").spec.keep.last;
        // One that was being set is the old one or the new one.
        self.together.group_keeps.insert(group.to_owned(), last);
        last
    }

    /// New captures by the schedule of a group, of which at most one can have been made; those that
    /// it pruned are forgotten.
    fn learn_captures(&mut self, group: &str, keep: u32) -> Vec<GroupVersion> {
        let (found, _) = self.pool().group_versions(group, 0, 1 << 20).expect("captures");
        let found: Vec<GroupVersion> = found.into_iter().filter(|c| c.is_scheduled).collect();
        let is_of = |c: &Capture| c.group == group && c.scheduled.is_some();
        let known: Vec<u64> =
            self.together.captures.iter().filter(|c| is_of(c)).map(|c| c.number).collect();
        for number in known {
            if found.iter().any(|capture| capture.number == number) {
                continue;
            }
            let captures = &mut self.together.captures;
            let index = captures.iter().position(|c| is_of(c) && c.number == number);
            let capture = captures.remove(index.expect("it is known"));
            // One whose versions were all deleted is not pruned, but is not listed either.
            if !self.left_of(&capture).is_empty() || capture.scheduled > Some(0) {
                let newer = found.iter().filter(|c| c.number > number).count();
                assert!(newer >= keep as usize, "{capture:?} is one of the last {keep}");
                self.together.group_pruned += 1;
            }
            for (name, number) in capture.versions {
                if let Some(model) = self.models.get_mut(&name) {
                    model.versions.remove(&number);
                }
            }
        }
        let is_known = |c: &GroupVersion| {
            self.together.captures.iter().any(|k| (&k.group[..], k.number) == (group, c.number))
        };
        let new: Vec<GroupVersion> = found.into_iter().filter(|c| !is_known(c)).collect();
        assert!(new.len() <= 1, "{group}: what was missed is one capture: {new:?}");
        new
    }

    /// After background work: what the schedules of groups captured and pruned.
    fn learn_group_schedules(&mut self) {
        let keeps = self.together.group_keeps.clone();
        for (group, keep) in keeps {
            for capture in self.learn_captures(&group, keep) {
                for (name, number) in &capture.versions {
                    let seq = self.volume(name).version(*number).expect("listed").stamp.seq.0;
                    self.learn_captured(name, *number, seq);
                }
                self.take_capture(group.clone(), capture);
                self.together.group_made += 1;
            }
        }
    }

    fn learn_captured(&mut self, name: &str, number: u64, seq: u64) {
        let model = self.model(name);
        assert_eq!(model.oracle.view_at(seq), model.present, "{name}: it is the present");
        let known = model.versions.insert(number, seq);
        assert_eq!(known, None, "version numbers are never used twice");
        model.flushed = model.flushed.max(seq);
    }

    /// After a crash: which versions of a volume schedules of groups made or pruned.
    fn settle_captured(&mut self, name: &str, versions: &[Version]) {
        let known = self.models[name].versions.clone();
        for version in versions {
            let is_one = version.is_scheduled && version.label == TOGETHER;
            if is_one && !known.contains_key(&version.number) {
                self.learn_captured(name, version.number, version.stamp.seq.0);
            }
        }
        let captures = self.together.captures.iter().filter(|c| c.scheduled.is_some());
        let own = captures.flat_map(|c| &c.versions).filter(|(of, _)| of == name);
        let there = |number: u64| versions.iter().any(|version| version.number == number);
        let gone: Vec<u64> =
            own.map(|&(_, number)| number).filter(|&number| !there(number)).collect();
        let model = self.model(name);
        model.versions.retain(|number, _| !gone.contains(number));
    }

    /// Sets the schedule of a group: every so many seconds, and so many captures stay.
    pub fn schedule_group(&mut self, names: &[String], seconds: u64, last: u32) -> Result<()> {
        let group = group_of(names);
        match self.pool().create_group(&group, names) {
            Err(e) if e.kind == ErrorKind::Exists => {}
            made => drop(made?),
        }
        let spec = spec(seconds, last, TOGETHER);
        self.pool().set_group_schedule(&group, &spec)?;
        self.together.group_keeps.insert(group, last);
        Ok(())
    }

    /// Before anything is settled: which capture the action under way deletes.
    pub fn note_deleting(&mut self, under_way: Option<&Action>) {
        let Some(Action::DeleteCapture(pick)) = under_way else { return };
        let left = |index: usize| self.left_of(&self.together.captures[index]).len();
        self.together.deleting = self.picked(*pick).map(|index| (index, left(index)));
    }

    /// Before anything is settled: how much there was of what schedules captured, and a schedule
    /// of a group that may have been set.
    pub fn note_scheduled(&mut self, under_way: Option<&Action>) {
        let captures = self.together.captures.iter();
        let left: Vec<usize> = captures.map(|capture| self.left_of(capture).len()).collect();
        for (capture, left) in self.together.captures.iter_mut().zip(left) {
            let is_going = |(of, n): &(String, u64)| {
                matches!(under_way,
                Some(Action::DeleteVersion(name, number)) if (name, number) == (of, n))
            };
            let left = if capture.versions.iter().any(is_going) { 0 } else { left };
            capture.scheduled = capture.scheduled.map(|_| left);
        }
        if let Some(Action::ScheduleGroup(names, ..)) = under_way {
            let group = group_of(names);
            if let Ok(Some(info)) = self.pool().group_schedule(&group) {
                self.together.group_keeps.insert(group, info.spec.keep.last);
            }
        }
    }

    /// Sets the schedule of a volume: every so many seconds, and so many stay.
    pub fn schedule(&mut self, name: &str, seconds: u64, last: u32) -> Result<()> {
        self.volume(name).set_schedule(&spec(seconds, last, ""))?;
        self.together.keeps.insert(name.to_owned(), last);
        Ok(())
    }

    /// The volume was deleted.
    pub fn forget_schedule_of(&mut self, name: &str) {
        self.together.keeps.remove(name);
    }

    /// Background work, in which versions may be captured and pruned.
    pub fn step(&mut self, bytes: u64) -> Result<()> {
        let names: Vec<String> = self.together.keeps.keys().cloned().collect();
        let there = names.iter().filter(|name| self.models.contains_key(*name));
        let there: Vec<String> = there.cloned().collect();
        let mut asked: BTreeSet<String> = there.iter().cloned().collect();
        for group in self.together.group_keeps.keys() {
            asked.extend(self.pool().group(group)?.volumes);
        }
        asked.iter().try_for_each(|name| self.number(name))?;
        self.pool().step(hindsight_volume::Budget { bytes })?;
        self.tidy_members()?;
        self.learn_group_schedules();
        for name in &there {
            let versions = self.volume(name).versions()?;
            self.learn_scheduled(name, &versions);
        }
        Ok(())
    }

    /// After a crash: what the schedule of a volume is, and what it did.
    pub fn settle_schedule(&mut self, name: &str, versions: &[Version]) {
        self.settle_captured(name, versions);
        let info = self.volume(name).schedule_info().expect("schedules are in memory");
        let Some(info) = info else {
            assert!(!self.together.keeps.contains_key(name), "the schedule of {name} is gone");
            return;
        };
        // One that was being set is the old one or the new one.
        self.together.keeps.insert(name.to_owned(), info.spec.keep.last);
        self.learn_scheduled(name, versions);
    }

    fn learn_scheduled(&mut self, name: &str, versions: &[Version]) {
        let keep = self.together.keeps[name] as usize;
        let model = self.models.get_mut(name).expect("a model of each volume");
        let numbers: BTreeSet<u64> = versions.iter().map(|version| version.number).collect();
        let new =
            versions.iter().filter(|v| v.is_scheduled && !model.versions.contains_key(&v.number));
        let new: Vec<&Version> = new.collect();
        assert!(new.len() <= 1, "{name}: what was missed is one capture: {new:?}");
        for version in new {
            let seq = version.stamp.seq.0;
            assert_eq!(model.oracle.view_at(seq), model.present, "{name}: it is the present");
            model.versions.insert(version.number, seq);
            model.flushed = model.flushed.max(seq);
            self.together.scheduled.insert((name.to_owned(), version.number));
            self.together.made += 1;
        }
        let gone: Vec<u64> =
            model.versions.keys().copied().filter(|number| !numbers.contains(number)).collect();
        for number in gone {
            let own = (name.to_owned(), number);
            if !self.together.scheduled.contains(&own) {
                // Whether it may be gone is for others to say.
                continue;
            }
            let newer = (own.0.clone(), number + 1)..=(own.0.clone(), u64::MAX);
            let newer = self.together.scheduled.range(newer).filter(|v| numbers.contains(&v.1));
            assert!(newer.count() >= keep, "{name}: version {number} is one of the last {keep}");
            model.versions.remove(&number);
            self.together.pruned += 1;
        }
    }
}
