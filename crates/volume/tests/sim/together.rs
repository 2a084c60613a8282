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
}

/// What is known of captures and schedules.
#[derive(Clone, Debug, Default)]
pub struct Together {
    captures: Vec<Capture>,
    /// How many versions the schedule of a volume keeps.
    keeps: BTreeMap<String, u32>,
    /// Versions that schedules made.
    scheduled: BTreeSet<(String, u64)>,
    /// The capture that was being deleted in a crash, and how many of its versions there were.
    deleting: Option<(usize, usize)>,
    /// Versions that schedules made and pruned, for whoever asks whether there were some.
    pub made: u64,
    pub pruned: u64,
    /// Captures made, and deleted.
    pub captured: u64,
    pub deleted: u64,
}

/// The group of these volumes: none of their names is used twice.
fn group_of(names: &[String]) -> String {
    format!("g-{}", names.join("-"))
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
        let GroupVersion { number, versions, .. } = capture;
        self.together.captures.push(Capture { group, number, versions });
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
                assert_eq!(
                    capture.versions.len(),
                    names.len(),
                    "all of it or nothing: {capture:?}"
                );
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
        self.check_captures().unwrap_or_else(|e| panic!("captures after recovery: {e}"));
    }

    /// Before anything is settled: which capture the action under way deletes.
    pub fn note_deleting(&mut self, under_way: Option<&Action>) {
        let Some(Action::DeleteCapture(pick)) = under_way else { return };
        let left = |index: usize| self.left_of(&self.together.captures[index]).len();
        self.together.deleting = self.picked(*pick).map(|index| (index, left(index)));
    }

    /// Sets the schedule of a volume: every so many seconds, and so many stay.
    pub fn schedule(&mut self, name: &str, seconds: u64, last: u32) -> Result<()> {
        let spec = ScheduleSpec {
            timing: Timing::Every(Span(seconds * SECOND)),
            keep: KeepRules { last, ..KeepRules::default() },
            label: String::new(),
            hook: None,
        };
        self.volume(name).set_schedule(&spec)?;
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
        there.iter().try_for_each(|name| self.number(name))?;
        self.pool().step(hindsight_volume::Budget { bytes })?;
        for name in &there {
            let versions = self.volume(name).versions()?;
            self.learn_scheduled(name, &versions);
        }
        Ok(())
    }

    /// After a crash: what the schedule of a volume is, and what it did.
    pub fn settle_schedule(&mut self, name: &str, versions: &[Version]) {
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
