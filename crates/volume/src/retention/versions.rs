//! Versions: capturing, listing, counting what changed, deleting.
//!
//! Invariants
//! 1. A capture closes the log's gate only to read where "now" is. The commit follows under `pins`:
//!    what expires or is merged meanwhile was worked out while that moment was the present, or
//!    waits for `pins`.
//! 2. A list reads records and nothing else: no map is walked, nothing is written.
//! 3. The cost of a call does not depend on how many versions there are.

pub mod counting;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use history::{By, Gate};
use units::{Seq, Span, WallTime};

use crate::catalogue::transaction::Transaction;
use crate::catalogue::{Commit, ScheduleRecord, ScheduledRecord, VersionRecord, tables};
use crate::names::check_label;
use crate::retention::Retention;
use crate::retention::open_files::{OpenFiles, Quiet};
use crate::retention::pins::Pins;
use crate::types::{Consistency, Dependants, Encoding, Stamp, Version, VersionPage};
use crate::{Error, ErrorKind, Result};

/// Versions that one commit removes, or counts that it stores.
const COMMITTED_MAX: usize = 4096;

impl VersionRecord {
    /// One that is captured of a volume which stands there.
    pub(crate) fn captured(
        (seq, time): (Seq, WallTime),
        wall: WallTime,
        label: &str,
        scheduled: Option<ScheduledRecord>,
        quiet: &Quiet,
    ) -> VersionRecord {
        VersionRecord {
            seq: seq.0,
            time_ns: wall.max(time).as_nanos(),
            label: label.to_owned(),
            bytes_changed: None,
            is_bound: false,
            consistency: quiet.consistency,
            scheduled,
            open_files: quiet.open_files.as_ref().map(|files| files.count),
        }
    }
}

impl Retention {
    /// Captures the present as a version: stalls writes, flushes, counts up, copies nothing (Clotho
    /// 3.2).
    ///
    /// # Errors
    /// `Invalid` label; `Refused` or `Io`.
    pub fn create_version(&self, label: &str) -> Result<Version> {
        self.create_version_as(label, &|| Consistency::CrashConsistent.into())
    }

    /// The same for those who know how quiet the volume is; they are asked at the instant.
    ///
    /// # Errors
    /// Those of [`Retention::create_version`].
    pub fn create_version_as(&self, label: &str, quiet: &dyn Fn() -> Quiet) -> Result<Version> {
        self.check_open()?;
        check_label(label)?;
        self.capture(label, None, quiet)
    }

    /// Captures the present; with a schedule, for it, and that is recorded in the same commit.
    pub(crate) fn capture(
        &self,
        label: &str,
        due: Option<&ScheduleRecord>,
        quiet: &dyn Fn() -> Quiet,
    ) -> Result<Version> {
        // Most of what is dirty goes out before writes are stalled; the commit flushes the rest.
        self.destage_all()?;
        self.core.store.flush()?;
        let still = self.stand_still()?;
        let wall = self.core.machine.clock.wall();
        let now =
            |gate: &mut Gate<'_>| Ok::<_, Error>((gate.last_seq(), gate.last_time(), quiet()));
        let (seq, time, quiet) = self.log().with_gate(now)?;
        let mut pins = still.let_writes_go();
        let scheduled =
            due.map(|schedule| ScheduledRecord { schedule: schedule.id, made_ns: wall.as_nanos() });
        let version = VersionRecord::captured((seq, time), wall, label, scheduled, &quiet);
        let number = {
            let mut tx = self.begin()?;
            self.check_served()?;
            // Under the books, where schedules change: one that is gone is not made again.
            if due.is_some_and(|due| !self.is_scheduled(due)) {
                let text = format!("the schedule of {} was changed meanwhile", self.name);
                return Err(Error::busy(text));
            }
            let stored = self.put_counts(&pins, &tx)?;
            let number = self.put_version(&mut tx, &version, &quiet)?;
            if let Some(schedule) = due {
                tx.put(tables::SCHEDULES, self.id, schedule)?;
            }
            let _books = tx.commit()?;
            self.counting.lock().stored(&stored);
            number
        };
        let made = scheduled.map(|s| (s.schedule, s.made_ns));
        pins.add_version(number, seq, made);
        self.counting.lock().want(number);
        let before = pins.version_before(number);
        drop(pins);
        let bytes = self.bound(before.map(|(_, v)| v.seq), seq)?;
        Ok(told(number, version, (bytes, false)))
    }

    /// Puts a version into a commit, with the files that were open; says its number.
    pub(crate) fn put_version(
        &self,
        tx: &mut Transaction<'_>,
        version: &VersionRecord,
        quiet: &Quiet,
    ) -> Result<u64> {
        let record = tx.change(&self.record);
        let number = record.next_version;
        record.next_version += 1;
        tx.put(tables::VERSIONS, (self.id, number), version)?;
        if let Some(files) = &quiet.open_files {
            tx.put(tables::OPEN_FILES, (self.id, number), files)?;
        }
        Ok(number)
    }

    /// All versions, by number.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn versions(&self) -> Result<Vec<Version>> {
        self.versions_page(0, usize::MAX - 1).map(|page| page.versions)
    }

    /// The newest versions, at most `limit`, by number.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn newest_versions(&self, limit: usize) -> Result<Vec<Version>> {
        let first = self.pins().lock().first_of_newest(limit);
        first.map_or(Ok(Vec::new()), |first| {
            self.versions_page(first, limit).map(|page| page.versions)
        })
    }

    /// At most `limit` versions from a number on.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn versions_page(&self, first: u64, limit: usize) -> Result<VersionPage> {
        self.check_open()?;
        // One more: the next begins where this one's span ends.
        let records = self.core.catalogue.rows_of(tables::VERSIONS, self.id, first, limit + 1)?;
        let clones = self.clones();
        let mut times = records.iter().skip(1).map(|(_, next)| next.time_ns).collect::<Vec<_>>();
        let next = (records.len() > limit).then(|| records[limit].0);
        times.resize(records.len(), 0);
        let mut versions = Vec::with_capacity(records.len().min(limit));
        for ((number, record), next_ns) in records.into_iter().zip(times).take(limit) {
            let until = (next_ns > 0).then(|| WallTime::from_nanos(next_ns));
            versions.push(self.version_of(number, record, until, &clones)?);
        }
        Ok(VersionPage { versions, next })
    }

    /// One version.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn version(&self, number: u64) -> Result<Version> {
        let page = self.versions_page(number, 1)?;
        let found = page.versions.into_iter().find(|version| version.number == number);
        found.ok_or_else(|| self.no_version(number))
    }

    /// The files that were open when a version was captured; `None` if nobody looked.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`.
    pub fn open_files(&self, number: u64) -> Result<Option<OpenFiles>> {
        let version = self.version(number)?;
        match version.open_files {
            Some(_) => self.core.catalogue.get(tables::OPEN_FILES, (self.id, number)),
            None => Ok(None),
        }
    }

    fn version_of(
        &self,
        number: u64,
        record: VersionRecord,
        until: Option<WallTime>,
        clones: &BTreeMap<(u64, Seq), Vec<String>>,
    ) -> Result<Version> {
        let seq = Seq(record.seq);
        let (before, views) = {
            let pins = self.pins().lock();
            (pins.version_before(number), pins.views_at(seq))
        };
        let waiting = self.counting.lock().of(number);
        let counted = match record.bytes_changed {
            Some(bytes) => (bytes, !record.is_bound),
            None => match waiting {
                Some(counted) => counted,
                None => (self.bound(before.map(|(_, v)| v.seq), seq)?, false),
            },
        };
        let (timeline, setting) = {
            let record = self.record.lock();
            (record.timeline_at(seq), record.encoding)
        };
        let clones = clones.get(&(timeline, seq)).cloned().unwrap_or_default();
        // Blocks that a version alone needs were written over before the next one was captured.
        let now = self.core.machine.clock.wall();
        let is_old = |after_ns: u64| until.is_some_and(|u| u.saturating_add(Span(after_ns)) < now);
        let encoding = setting.filter(|s| is_old(s.after_ns)).map_or(Encoding::Raw, |s| s.encoding);
        let compaction = self.compactions.info(number);
        let dependants = Dependants { clones, views };
        let told = told(number, record, counted);
        Ok(Version { until, encoding, compaction, dependants, ..told })
    }

    /// Volumes that began at moments of this one, by timeline and seq.
    fn clones(&self) -> BTreeMap<(u64, Seq), Vec<String>> {
        let volumes = self.core.served();
        let mut clones: BTreeMap<(u64, Seq), Vec<String>> = BTreeMap::new();
        for volume in volumes.iter().filter(|volume| volume.id != self.id) {
            // The line may begin at a revert of its own: what was before has expired.
            let timelines = self.core.timelines.read();
            let record = |id: u64| timelines.get(&id).map(|(record, _)| record);
            let mut branch =
                volume.first_timeline.and_then(record).and_then(|record| record.parent);
            while let Some((timeline, seq)) = branch {
                match record(timeline) {
                    Some(own) if own.log == volume.id => branch = own.parent,
                    _ => {
                        clones
                            .entry((timeline, Seq(seq)))
                            .or_default()
                            .push(volume.name.to_string());
                        break;
                    }
                }
            }
        }
        clones
    }

    /// How many bytes may differ between a version and the one before, without a look at the map:
    /// what was written in between.
    fn bound(&self, before: Option<Seq>, seq: Seq) -> Result<u64> {
        let (from, size_bytes, is_one_line) = {
            let record = self.record.lock();
            let from = before.unwrap_or(Seq(record.created_seq));
            let is_one_line = record.timeline_at(from) == record.timeline_at(seq)
                && record.size_at(from) == record.size_at(seq);
            (from, record.size_at(from).max(record.size_at(seq)), is_one_line)
        };
        if !is_one_line {
            return Ok(size_bytes);
        }
        let total = |seq: Seq| -> Result<Option<u64>> {
            Ok(self.time_entry(By::Seq(seq))?.map(|entry| entry.bytes_total))
        };
        let written = match (total(from)?, total(seq)?) {
            (Some(from), Some(to)) => to.saturating_sub(from),
            (None, Some(to)) if before.is_none() => to,
            // Nothing was written since the volume was made; or the times have left the index.
            (None, None) if before.is_none() => 0,
            _ => size_bytes,
        };
        Ok(written.min(size_bytes))
    }

    /// Counts one version that is not counted, within bounds; false when there is none.
    ///
    /// # Errors
    /// `Corrupt` or `Io`; `Refused` where counts cannot be stored.
    pub(crate) fn count_a_version(&self) -> Result<bool> {
        let Some(number) = self.counting.lock().first_wanted() else { return Ok(false) };
        let places = |pins: &Pins| {
            pins.version(number).map(|v| (pins.version_before(number).map(|(_, b)| b.seq), v.seq))
        };
        let found = places(&self.pins().lock());
        let Some((before, seq)) = found else {
            self.counting.lock().forget(number);
            return Ok(true);
        };
        let (bytes, exact) = match self.changed_bytes_bounded(before.unwrap_or(Seq::ZERO), seq) {
            // A damaged map is told by those who read; the list keeps the bound.
            Err(e) if matches!(e.kind, ErrorKind::Corrupt | ErrorKind::Io) => {
                self.counting.lock().forget(number);
                return Ok(true);
            }
            counted => counted?,
        };
        let bytes = if exact { bytes } else { bytes.min(self.bound(before, seq)?) };
        let pins = self.pins().lock();
        let mut counting = self.counting.lock();
        // A version that was deleted meanwhile asked for another count, or for none.
        if places(&pins) == found {
            counting.add(number, (bytes, exact));
        }
        let is_much = counting.are_many();
        drop(counting);
        if is_much {
            self.store_counts(&pins)?;
        }
        Ok(true)
    }

    /// Stores counts that wait for a commit.
    pub(crate) fn store_counts(&self, pins: &Pins) -> Result<()> {
        if self.counting.lock().waiting(1).is_empty() {
            return Ok(());
        }
        let tx = self.begin()?;
        let stored = self.put_counts(pins, &tx)?;
        let _books = tx.commit()?;
        self.counting.lock().stored(&stored);
        Ok(())
    }

    fn put_counts(&self, pins: &Pins, commit: &Commit) -> Result<Vec<u64>> {
        let counted = self.counting.lock().waiting(COMMITTED_MAX);
        let mut stored = Vec::with_capacity(counted.len());
        for (number, (bytes, exact)) in counted {
            // A version that was deleted is not made again.
            if pins.version(number).is_some()
                && let Some(record) =
                    self.core.catalogue.get(tables::VERSIONS, (self.id, number))?
            {
                let record =
                    VersionRecord { bytes_changed: Some(bytes), is_bound: !exact, ..record };
                commit.put(tables::VERSIONS, (self.id, number), &record)?;
            }
            stored.push(number);
        }
        Ok(stored)
    }

    /// Deletes a version; its moment stays openable while the window or another pin holds it.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn delete_version(&self, number: u64) -> Result<()> {
        self.delete_versions(number..=number, false).map(drop)
    }

    /// Deletes the versions with these numbers, some thousands in a step; says how many there were.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Refused`. Versions deleted before a failure stay deleted.
    pub fn delete_versions(&self, range: RangeInclusive<u64>, dry_run: bool) -> Result<u64> {
        self.check_open()?;
        let (first, last) = (*range.start(), *range.end());
        let mut count = 0;
        let mut next = first;
        loop {
            let mut pins = self.pins().lock();
            let in_range = pins.versions_from(next).take_while(|&(number, _)| number <= last);
            let chunk: Vec<(u64, Seq)> =
                in_range.take(COMMITTED_MAX).map(|(number, v)| (number, v.seq)).collect();
            let Some(&(end, _)) = chunk.last() else { break };
            if !dry_run {
                let detail = described(&chunk);
                self.remove_versions(&mut pins, &chunk, "version-delete", &[detail])?;
            }
            count += chunk.len() as u64;
            next = end + 1;
        }
        match count {
            0 if first == last => Err(self.no_version(first)),
            0 => {
                let text = format!("{} has no version from {first} to {last}", self.name);
                Err(Error::not_found(text))
            }
            _ => Ok(count),
        }
    }

    /// Removes versions in one commit, with records for the audit log.
    pub(crate) fn remove_versions(
        &self,
        pins: &mut Pins,
        gone: &[(u64, Seq)],
        action: &str,
        details: &[String],
    ) -> Result<()> {
        let mut tx = self.begin()?;
        let heirs = self.remove_in(&tx, pins, gone)?;
        for detail in details {
            tx.audit(action, &self.name, detail.clone())?;
        }
        let _books = tx.commit()?;
        self.removed(pins, gone, heirs);
        Ok(())
    }

    /// Removes versions as part of a commit; says which others differ from another one then.
    pub(crate) fn remove_in(
        &self,
        commit: &Commit,
        pins: &Pins,
        gone: &[(u64, Seq)],
    ) -> Result<Vec<u64>> {
        let numbers_gone: BTreeSet<u64> = gone.iter().map(|&(number, _)| number).collect();
        // The version after a gap differs from another one now.
        let after = |&number: &u64| pins.versions_from(number + 1).next();
        let heirs: Vec<u64> = numbers_gone
            .iter()
            .filter_map(after)
            .map(|(number, _)| number)
            .filter(|number| !numbers_gone.contains(number))
            .collect();
        for &(number, _) in gone {
            commit.remove(tables::VERSIONS, (self.id, number))?;
        }
        for chunk in gone.chunk_by(|a, b| a.0 + 1 == b.0) {
            if let (Some((first, _)), Some((last, _))) = (chunk.first(), chunk.last()) {
                commit.remove_all(tables::OPEN_FILES, (self.id, *first)..=(self.id, *last))?;
            }
        }
        for &heir in &heirs {
            if let Some(record) = self.core.catalogue.get(tables::VERSIONS, (self.id, heir))? {
                let record = VersionRecord { bytes_changed: None, is_bound: false, ..record };
                commit.put(tables::VERSIONS, (self.id, heir), &record)?;
            }
        }
        self.compactions.remove(self.id, &numbers_gone, commit)?;
        Ok(heirs)
    }

    /// The same in memory, after the commit.
    pub(crate) fn removed(&self, pins: &mut Pins, gone: &[(u64, Seq)], heirs: Vec<u64>) {
        self.compactions.forget(&gone.iter().map(|&(number, _)| number).collect());
        let mut counting = self.counting.lock();
        for &(number, _) in gone {
            pins.remove_version(number);
            counting.forget(number);
        }
        heirs.into_iter().for_each(|heir| counting.want(heir));
        drop(counting);
        self.reclamation().want();
    }
}

/// The deleted versions, for the audit log.
fn described(chunk: &[(u64, Seq)]) -> String {
    match chunk {
        [(number, seq)] => format!("version {number} (seq {seq})"),
        [(first, first_seq), .., (last, last_seq)] => {
            let count = chunk.len();
            format!("versions {first} to {last} ({count} of them, seqs {first_seq} to {last_seq})")
        }
        [] => String::new(),
    }
}

/// A version by its record alone, as it is when it is the newest.
fn told(number: u64, record: VersionRecord, (bytes_changed, bytes_exact): (u64, bool)) -> Version {
    Version {
        number,
        stamp: Stamp::of(record.seq, record.time_ns),
        label: record.label,
        bytes_changed,
        bytes_exact,
        until: None,
        open_files: record.open_files,
        is_scheduled: record.scheduled.is_some(),
        consistency: record.consistency,
        encoding: Encoding::Raw,
        compaction: None,
        dependants: Dependants::default(),
    }
}
