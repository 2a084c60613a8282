//! Schedules: versions captured by the clock, and pruned by keep rules.
//!
//! Invariants
//! 1. The time up to which a schedule is done is part of the capture's commit: after a crash a
//!    capture is missing or done, never forgotten.
//! 2. All missed captures are made up for by one.
//! 3. Only versions that this schedule made are pruned, each with its reason in the audit log; in
//!    the background only while the clock goes evenly.
//!
//! It does not know commands or threads: whoever calls `Pool::step` runs schedules.

use std::sync::Arc;

use units::{Moment, Seq};

use crate::catalogue::{ScheduleRecord, VersionRecord, tables};
use crate::retention::Retention;
use crate::retention::explain::{Explained, MadeBy, candidate, doomed, explain_doomed};
use crate::retention::groups::Groups;
use crate::retention::keep_rules::KeepRules;
use crate::retention::open_files::Quiet;
use crate::retention::schedule::{Schedule, ScheduleInfo, ScheduleSpec};
use crate::types::{Consistency, Proof, Resolved};
use crate::{Error, Result, Volume};

/// Versions that one commit prunes; each has a line in the audit log.
pub(crate) const PRUNED_MAX: usize = 512;

impl Groups {
    /// Captures what is due and prunes what no rule keeps. A failure is told by the schedule, and
    /// tried again later: it must not keep other background work from being done.
    pub(crate) fn run_schedules(&self) {
        let Some(_right) = self.scheduling.try_lock() else { return };
        let may_prune = self.core.time_and_whether_steady().1;
        let volumes = self.registry.served();
        for volume in volumes {
            if volume.schedule.lock().is_some() {
                volume.run_schedule(may_prune);
            }
        }
        self.run_group_schedules(may_prune);
    }
}

impl Groups {
    /// The newest version of each schedule that has a check and no verdict of it yet, and the hook
    /// of the check. Those before it are not made up for: a check may take longer than the time
    /// between two captures.
    #[must_use]
    pub fn due_proofs(&self) -> Vec<(Arc<Volume>, Resolved, String)> {
        let served = self.registry.served();
        let mut newest = self.newest_to_prove();
        for volume in &served {
            let told = |s: &Schedule| Some((s.record.id, s.record.prove.clone()?));
            let of_own = volume.schedule.lock().as_ref().and_then(told);
            if let Some((schedule, hook)) = of_own {
                let number = volume.pins().lock().scheduled(schedule).next().map(|(n, _)| n);
                newest.extend(number.map(|number| (volume.id, number, hook)));
            }
        }
        let due = |(id, number, hook): (u64, u64, String)| {
            let volume = served.iter().find(|volume| volume.id == id)?;
            // One that is gone meanwhile is not looked at.
            let at = volume.resolve(&Moment::Version(number)).ok()?;
            let is_proved = |proof: &Proof| proof.seq == at.seq.0 && proof.hook == hook;
            (!volume.proofs().iter().any(is_proved)).then(|| (Arc::clone(volume), at, hook))
        };
        newest.into_iter().filter_map(due).collect()
    }
}

impl Retention {
    fn run_schedule(&self, may_prune: bool) {
        // A capture with a hook is its runner's: commands take their time.
        let is_plain = |record: &ScheduleRecord| self.hook_for(record.hook.as_deref()).is_none();
        if let Some(record) = self.due_capture().filter(is_plain) {
            self.capture_due(record, &|| Consistency::CrashConsistent.into());
        }
        let wants = |s: &Schedule| s.wants_pruning(&*self.core.machine.clock);
        if may_prune && self.schedule.lock().as_ref().is_some_and(wants) {
            self.note_pruned(self.prune());
        }
    }

    fn due_capture(&self) -> Option<ScheduleRecord> {
        self.schedule.lock().as_mut()?.due(&*self.core.machine.clock)
    }

    /// The hook of a capture that is due, if it has one.
    #[must_use]
    pub fn due_hook(&self) -> Option<String> {
        self.hook_for(self.due_capture()?.hook.as_deref())
    }

    /// Makes the capture that is due, if one is still; a failure is told by the schedule, and the
    /// capture is due again later.
    pub fn capture_hooked(&self, quiet: &dyn Fn() -> Quiet) {
        if let Some(record) = self.due_capture() {
            self.capture_due(record, quiet);
        }
    }

    fn capture_due(&self, record: ScheduleRecord, quiet: &dyn Fn() -> Quiet) {
        let captured = self.capture(&record.label, Some(&record), quiet).map(drop);
        if let Some(schedule) = self.schedule.lock().as_mut().filter(|s| s.is(&record)) {
            schedule.captured(record, captured, &*self.core.machine.clock);
        }
    }

    fn note_pruned(&self, pruned: Result<(u64, bool)>) {
        if let Some(schedule) = self.schedule.lock().as_mut() {
            schedule.pruned(pruned, &*self.core.machine.clock);
        }
    }

    /// Sets the schedule, or changes it: then it goes on with the versions that it made.
    ///
    /// # Errors
    /// `Invalid`, `Refused`.
    pub fn set_schedule(&self, spec: &ScheduleSpec) -> Result<ScheduleInfo> {
        self.check_open()?;
        let wall = self.core.machine.clock.wall();
        spec.check(wall)?;
        {
            let mut tx = self.begin()?;
            let id = match self.schedule.lock().as_ref() {
                Some(schedule) => schedule.record.id,
                None => {
                    tx.numbers.schedule += 1;
                    tx.numbers.schedule
                }
            };
            let record = spec.record(id, wall);
            tx.put(tables::SCHEDULES, self.id, &record)?;
            tx.audit("schedule-set", &self.name, format!("{}, keep {}", spec.timing, spec.keep))?;
            let _books = tx.commit()?;
            *self.schedule.lock() = Some(Schedule::of(record)?);
        }
        self.schedule_info()?.ok_or_else(|| self.no_schedule())
    }

    /// The result that [`Retention::set_schedule`] would have, and the schedule's versions that no
    /// rule would keep then.
    ///
    /// # Errors
    /// Those of [`Retention::set_schedule`].
    pub fn plan_schedule(&self, spec: &ScheduleSpec) -> Result<(ScheduleInfo, Vec<Explained>)> {
        self.check_open()?;
        let wall = self.core.machine.clock.wall();
        spec.check(wall)?;
        let pins = self.pins().lock();
        // No schedule has the number 0.
        let id = self.schedule.lock().as_ref().map_or(0, |schedule| schedule.record.id);
        let planned = Schedule::of(spec.record(id, wall))?;
        let goes = explain_doomed(pins.scheduled(id), &spec.keep, wall);
        Ok((planned.info(pins.scheduled(id).next()), goes))
    }

    fn no_schedule(&self) -> Error {
        Error::not_found(format!("{} has no schedule", self.name))
            .with_hint("`hindsight version schedule set` makes one")
    }

    /// The schedule, if there is one.
    ///
    /// # Errors
    /// `NotFound` once the volume is deleted.
    pub fn schedule_info(&self) -> Result<Option<ScheduleInfo>> {
        self.check_open()?;
        let pins = self.pins().lock();
        let schedule = self.schedule.lock();
        Ok(schedule.as_ref().map(|s| s.info(pins.scheduled(s.record.id).next())))
    }

    /// Removes the schedule. Its versions stay until somebody deletes them.
    ///
    /// # Errors
    /// `NotFound`, `Refused`.
    pub fn remove_schedule(&self) -> Result<()> {
        self.check_open()?;
        let mut tx = self.begin()?;
        let Some(id) = self.schedule.lock().as_ref().map(|schedule| schedule.record.id) else {
            return Err(self.no_schedule());
        };
        tx.remove(tables::SCHEDULES, self.id)?;
        tx.audit("schedule-remove", &self.name, format!("schedule {id}; its versions stay"))?;
        let _books = tx.commit()?;
        *self.schedule.lock() = None;
        Ok(())
    }

    /// Prunes now what no rule keeps: numbers of what went, or would go.
    ///
    /// # Errors
    /// `NotFound` without a schedule; `Refused`.
    pub fn apply_retention(&self, dry_run: bool) -> Result<Vec<u64>> {
        self.check_open()?;
        let (id, keep) = self.rules()?;
        let doomed = doomed(self.pins().lock().scheduled(id), &keep, usize::MAX);
        let mut left = if dry_run { 0 } else { doomed.len() as u64 };
        while left > 0 {
            let (count, _) = self.prune()?;
            if let Some(schedule) = self.schedule.lock().as_mut() {
                schedule.pruned_by_hand(count);
            }
            left = if count == 0 { 0 } else { left.saturating_sub(count) };
        }
        Ok(doomed)
    }

    /// Whether the schedule is still the one that this record was made of.
    pub(crate) fn is_scheduled(&self, record: &ScheduleRecord) -> bool {
        self.schedule.lock().as_ref().is_some_and(|schedule| schedule.is(record))
    }

    fn rules(&self) -> Result<(u64, KeepRules)> {
        let schedule = self.schedule.lock();
        schedule.as_ref().map(|s| (s.record.id, s.record.keep)).ok_or_else(|| self.no_schedule())
    }

    /// Prunes some of what no rule keeps; says how many, and whether there may be more.
    fn prune(&self) -> Result<(u64, bool)> {
        // Judged and removed under one lock: nobody deletes meanwhile what stands in for others.
        let mut pins = self.pins().lock();
        let (id, keep) = self.rules()?;
        let doomed = doomed(pins.scheduled(id), &keep, PRUNED_MAX);
        if doomed.is_empty() {
            return Ok((0, false));
        }
        let seq = |number: u64| pins.version(number).expect("its schedule names it").seq;
        let gone: Vec<(u64, Seq)> = doomed.iter().map(|&number| (number, seq(number))).collect();
        let details: Vec<String> = gone
            .iter()
            .map(|(number, seq)| format!("version {number} (seq {seq}): none of {keep} keeps it"))
            .collect();
        self.remove_versions(&mut pins, &gone, "version-prune", &details)?;
        Ok((gone.len() as u64, gone.len() == PRUNED_MAX))
    }

    /// Why versions stay or go, from a number on, at most `limit` of them; the last is where the
    /// next page begins.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn explain_retention(
        &self,
        first: u64,
        limit: usize,
    ) -> Result<(Vec<Explained>, Option<u64>)> {
        self.check_open()?;
        let (page, next) = self.core.catalogue.page_of(tables::VERSIONS, self.id, first, limit)?;
        let last = page.last().map_or(0, |(number, _)| *number);
        let judged = {
            let pins = self.pins().lock();
            let schedule = self.schedule.lock();
            let made = |s: &Schedule| pins.scheduled(s.record.id).map(candidate);
            schedule.as_ref().map(|s| s.judged(made(s), first..=last))
        };
        let groups = self.core.host()?.judged_groups(self.id);
        let wall = self.core.machine.clock.wall();
        let explain = |(number, record): (u64, VersionRecord)| {
            let time = record.scheduled.map_or(record.time_ns, |s| s.made_ns);
            let made = record.scheduled.map(|made| made.schedule);
            let mut explained = Explained::of((number, time), made, judged.as_ref(), wall);
            if let Some(group) = groups.iter().find(|g| Some(g.judged.schedule) == made) {
                explained.made_by = MadeBy::GroupSchedule;
                group.explain(number, wall, &mut explained);
            }
            explained
        };
        Ok((page.into_iter().map(explain).collect(), next))
    }
}
