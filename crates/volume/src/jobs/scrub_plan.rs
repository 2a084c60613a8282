//! A scrub of everything in the background: when there is one, and how far it is.
//!
//! Segments are looked at in the order of their zones, then runs, then the catalogue, in steps by a
//! budget. Data written after a scrub began may be left to the next one.
//!
//! Invariants
//! 1. A step holds `work`: nothing comes home, is merged or freed meanwhile.
//! 2. The catalogue's record of a scrub under way is never ahead of it: after a restart some is
//!    looked at once more, and nothing is passed by.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::BlockDevice;
use history::{Loss, Scrub, ScrubReport, Suspects};

use crate::catalogue::{ScrubPhase, ScrubRecord, ScrubScheduleRecord, tables};
use crate::jobs::job::{Job, Left, Turn};
use crate::jobs::parts::Parts;
use crate::jobs::throttle::Throttle;
use crate::types::ScrubState;
use crate::{Error, ErrorKind, Result};

pub mod progress;

use progress::{Run, ScrubInfo, Scrubs};

/// Bytes of each copy that are read at a time while nobody else wants the devices.
const ALONE_BYTES: u64 = 8 << 20;
/// The same beside others: who comes waits no longer than it takes.
const BESIDE_BYTES: u64 = 1 << 20;
/// Bytes that are read between two notes of how far it is.
const NOTED_EVERY_BYTES: u64 = 1 << 30;
/// Pages of the catalogue at a time; nobody commits meanwhile.
const CATALOGUE_PAGES: u64 = 64;
/// Scrubs follow each other at least so far apart: an hour.
const EVERY_NS_MIN: u64 = 3_600_000_000_000;
/// How often runs are looked for that came while runs were looked at: each time there are fewer,
/// but where somebody always writes there is always one.
const ROUNDS_MAX: u32 = 8;

impl Scrubs {
    /// Begins a scrub of everything.
    ///
    /// # Errors
    /// `Busy` if one is under way; `Refused`, `Io`.
    pub fn start(&self) -> Result<ScrubInfo> {
        self.check_open()?;
        let mut run = self.run.lock();
        if self.is_scrubbing() {
            return Err(Error::busy("a scrub is running")
                .with_hint("wait for it, or stop it (hindsight pool scrub --stop)"));
        }
        self.begin_scrub(&mut run)?;
        Ok(self.info().expect("it began"))
    }

    /// Stops the scrub that is under way.
    ///
    /// # Errors
    /// `NotFound` if none is; `Refused`, `Io`.
    pub fn stop(&self) -> Result<ScrubInfo> {
        self.check_open()?;
        let mut run = self.run.lock();
        if !self.is_scrubbing() {
            return Err(Error::not_found("no scrub is running"));
        }
        self.resume_scrub(&mut run);
        self.end_scrub(&mut run, true)?;
        Ok(self.info().expect("there was one"))
    }

    /// The scrub that is under way, or the last one.
    #[must_use]
    pub fn info(&self) -> Option<ScrubInfo> {
        let told = self.told.lock();
        let record = told.last.as_ref()?;
        let state = match (record.ended_ns, record.stopped) {
            (None, _) => ScrubState::Running,
            (Some(_), true) => ScrubState::Stopped,
            (Some(_), false) => ScrubState::Done,
        };
        let percent = if state == ScrubState::Done { 100 } else { told.percent };
        // Each look at the metrics asks: what is still to be repaired is the scrub's own matter.
        let (losses, suspects) = (record.losses.clone(), Vec::new());
        Some(ScrubInfo { state, percent, record: ScrubRecord { losses, suspects, ..*record } })
    }

    /// How long after the beginning of a scrub the next one begins; `None` when nobody but a
    /// request begins one.
    #[must_use]
    pub fn every_ns(&self) -> Option<u64> {
        self.told.lock().schedule.map(|schedule| schedule.every_ns)
    }

    /// Changes that.
    ///
    /// # Errors
    /// `Invalid` below an hour; `Refused`, `Io`.
    pub fn set_every(&self, every_ns: Option<u64>) -> Result<()> {
        self.check_open()?;
        if every_ns.is_some_and(|every| every < EVERY_NS_MIN) {
            return Err(Error::invalid("scrubs follow each other at least an hour apart"));
        }
        let core = &self.core;
        let set_ns = core.machine.clock.wall().as_nanos();
        let schedule = every_ns.map(|every_ns| ScrubScheduleRecord { every_ns, set_ns });
        let mut tx = core.begin()?;
        let detail = match &schedule {
            Some(record) => {
                tx.put(tables::SCRUB_SCHEDULES, tables::SCHEDULE, record)?;
                format!("every {}", units::Span(record.every_ns))
            }
            None => {
                tx.remove(tables::SCRUB_SCHEDULES, tables::SCHEDULE)?;
                "only when asked for".to_owned()
            }
        };
        tx.audit("scrub-schedule", "", detail)?;
        let _books = tx.commit()?;
        self.told.lock().schedule = schedule;
        Ok(())
    }

    /// Reads about so many bytes for the scrub that is under way or due; says how many it were. The
    /// caller holds `work`.
    fn step(&self, bytes: u64) -> Result<u64> {
        let mut slot = self.run.lock();
        if self.is_scrubbing() {
            self.resume_scrub(&mut slot);
        } else if self.is_scrub_due() {
            self.begin_scrub(&mut slot)?;
        }
        let Some(run) = slot.as_mut() else { return Ok(0) };
        let before = run.record.read_bytes;
        let mut is_done = false;
        while !is_done && run.record.read_bytes - before < bytes.max(1) {
            is_done = self.scrub_some(run, bytes)?;
        }
        let read = run.record.read_bytes - before;
        if is_done {
            self.scrub_superblocks(run)?;
            self.end_scrub(&mut slot, false)?;
            return Ok(read);
        }
        if run.record.read_bytes - run.noted_bytes >= NOTED_EVERY_BYTES {
            self.note_scrub(&run.noted(), None)?;
            run.noted_bytes = run.record.read_bytes;
        }
        let mut told = self.told.lock();
        told.percent = run.percent();
        told.last = Some(run.record.clone());
        Ok(read)
    }
}

/// The turns of scrubs, at this pace.
pub struct ScrubJob(pub Arc<Scrubs>, pub Throttle);

impl Job for ScrubJob {
    fn name(&self) -> &'static str {
        "scrub"
    }

    fn bytes(&self) -> Option<u64> {
        Some(ALONE_BYTES)
    }

    /// Some of the scrub that is under way or due. Beside clients and other jobs it takes a small
    /// share.
    fn step(&mut self, parts: &Parts, turn: &mut Turn) -> Result<Left> {
        let ScrubJob(scrubs, throttle) = self;
        if !scrubs.is_scrubbing() && !scrubs.is_scrub_due() {
            return Ok(Left::NOTHING);
        }
        let clock = &parts.core.machine.clock;
        let is_beside = turn.has_clients || turn.is_busy;
        let began_ns = clock.monotonic_ns();
        if let Some(waits) = throttle.waits(began_ns, is_beside) {
            return Ok(waits);
        }
        let bytes = if is_beside { turn.bytes.min(BESIDE_BYTES) } else { turn.bytes };
        let read = scrubs.step(throttle.limit.step(bytes))?;
        throttle.limit.note(began_ns, read);
        let now_ns = clock.monotonic_ns();
        throttle.note_turn(began_ns, now_ns);
        Ok(throttle.waits(now_ns, is_beside).unwrap_or(Left::CAN_WAIT))
    }

    /// Writes down how far it is, for the next process.
    fn finish(&mut self, _: &Parts) -> Result<()> {
        match &*self.0.run.lock() {
            Some(run) => self.0.note_scrub(&run.noted(), None),
            None => Ok(()),
        }
    }
}

impl Scrubs {
    /// Goes on from a record, with the objects that there are.
    fn run_from(&self, mut record: ScrubRecord) -> Run {
        if record.phase == ScrubPhase::Runs && !record.suspects.is_empty() {
            // Which runs were asked is not written down. Rather a loss counts twice than not.
            (record.next, record.offset) = (0, 0);
        }
        let segments = self.core.store.segments();
        let mut segments: Vec<_> = segments.iter().map(|s| (s.zone.into(), s.number)).collect();
        segments.sort_unstable();
        let mut suspects = Suspects::default();
        for &(segment, from, to) in &record.suspects {
            suspects.add(segment, from..to);
        }
        let (noted_bytes, runs) = (record.read_bytes, self.map_runs());
        Run { record, segments, runs, listed: BTreeSet::new(), rounds: 0, suspects, noted_bytes }
    }

    /// Numbers and owners of runs of maps, and of times (of timeline 0), in the order of numbers.
    fn map_runs(&self) -> Vec<(u64, u64)> {
        let timelines: Vec<_> =
            self.core.timelines.read().values().map(|(_, t)| Arc::clone(t)).collect();
        let of_maps = timelines.iter().flat_map(|timeline| {
            timeline.runs().into_iter().map(|run| (run.id, timeline.id)).collect::<Vec<_>>()
        });
        let volumes = self.registry.all();
        let of_times = volumes.iter().flat_map(|volume| {
            volume.times().runs().into_iter().map(|run| (run.id, 0)).collect::<Vec<_>>()
        });
        let mut all: Vec<_> = of_maps.chain(of_times).collect();
        all.sort_unstable();
        all
    }

    fn is_scrubbing(&self) -> bool {
        self.told.lock().last.as_ref().is_some_and(|last| last.ended_ns.is_none())
    }

    fn is_scrub_due(&self) -> bool {
        let told = self.told.lock();
        let Some(schedule) = told.schedule else { return false };
        let last_ns = told.last.as_ref().map_or(0, |last| last.started_ns).max(schedule.set_ns);
        self.core.machine.clock.wall().as_nanos() >= last_ns.saturating_add(schedule.every_ns)
    }

    fn begin_scrub(&self, run: &mut Option<Run>) -> Result<()> {
        let started_ns = self.core.machine.clock.wall().as_nanos();
        let record = ScrubRecord { started_ns, ..ScrubRecord::default() };
        self.note_scrub(&record, None)?;
        *run = Some(self.run_from(record));
        Ok(())
    }

    /// Goes on with what an earlier process began.
    fn resume_scrub(&self, run: &mut Option<Run>) {
        let last = self.told.lock().last.clone();
        if let Some(record) = last.filter(|_| run.is_none()) {
            *run = Some(self.run_from(record));
        }
    }

    /// Writes down how far a scrub is, and what came of it.
    fn note_scrub(&self, record: &ScrubRecord, outcome: Option<String>) -> Result<()> {
        let mut tx = self.core.begin()?;
        tx.put(tables::SCRUBS, tables::LAST, record)?;
        if let Some(detail) = outcome {
            tx.audit("scrub", "", detail)?;
        }
        let _books = tx.commit()?;
        self.told.lock().last = Some(record.clone());
        Ok(())
    }

    fn end_scrub(&self, slot: &mut Option<Run>, stopped: bool) -> Result<()> {
        let Some(run) = slot else { return Ok(()) };
        let mut record = run.noted();
        record.suspects.clear();
        record.ended_ns = Some(self.core.machine.clock.wall().as_nanos());
        record.stopped = stopped;
        let told = outcome(&record);
        self.note_scrub(&record, Some(told))?;
        *slot = None;
        Ok(())
    }

    /// Looks at one object or a part of it; true when there is nothing left.
    fn scrub_some(&self, run: &mut Run, bytes: u64) -> Result<bool> {
        let record = &run.record;
        let items = match record.phase {
            ScrubPhase::Segments => &run.segments,
            ScrubPhase::Runs => &run.runs,
            ScrubPhase::Catalogue => return self.scrub_catalogue(run),
            ScrubPhase::Parity => return self.scrub_parity(run, bytes),
        };
        let item = items.get(items.partition_point(|item| item.0 < record.next));
        let Some(&(at, of)) = item else { return self.next_phase(run) };
        // Of another one nothing is done.
        let offset = if at == record.next { record.offset } else { 0 };
        let _epoch = self.core.store.enter();
        let mut scrub = Scrub::new(&self.core.store, &*self.core);
        scrub.suspects = Some(std::mem::take(&mut run.suspects));
        let after = match record.phase {
            ScrubPhase::Segments => self.scrub_segment(&mut scrub, of, offset, bytes),
            _ => self.scrub_run(&mut scrub, (at, of), offset, bytes),
        };
        run.suspects = scrub.suspects.take().unwrap_or_default();
        let losses: Vec<String> = scrub.losses.iter().map(|loss| self.name_of(loss)).collect();
        run.add(&scrub.report(), losses);
        let next = if after.is_some() { at } else { at + 1 };
        (run.record.next, run.record.offset) = (next, after.unwrap_or(0));
        Ok(false)
    }

    fn scrub_segment(
        &self,
        scrub: &mut Scrub<'_>,
        number: u64,
        offset: u32,
        bytes: u64,
    ) -> Option<u32> {
        let segment = self.core.store.segment(number)?;
        // Freed meanwhile: nothing needs it.
        if segment.retired.load(Ordering::Acquire) {
            return None;
        }
        scrub.segment(&segment, offset, bytes, self.stable_of(&segment))
    }

    fn scrub_run(
        &self,
        scrub: &mut Scrub<'_>,
        (number, owner): (u64, u64),
        offset: u32,
        bytes: u64,
    ) -> Option<u32> {
        let pages = u32::try_from(bytes / format::PAGE_BYTES as u64).unwrap_or(u32::MAX).max(1);
        let until = offset.saturating_add(pages);
        let all = |_: u64| true;
        let count = if let Some(timeline) = self.core.timeline(owner) {
            let run = timeline.runs().into_iter().find(|run| run.id == number)?;
            scrub.pages((owner, number), (&run.extents, offset..until), &all);
            run.extents.count
        } else {
            let times = self.registry.all().into_iter().map(|volume| volume.times().runs());
            let run = times.flatten().find(|run| run.id == number)?;
            scrub.pages((0, number), (&run.pages, offset..until), &all);
            run.pages.count
        };
        (until < count).then_some(until)
    }

    /// The catalogue changes by commits alone, so nobody commits meanwhile.
    fn scrub_catalogue(&self, run: &mut Run) -> Result<bool> {
        let books = self.core.books.lock();
        let found = self.core.media.scrub_pages(run.record.next, CATALOGUE_PAGES);
        drop(books);
        let losses = found.lost.iter().map(|page| format!("page {page} of the catalogue"));
        let report = ScrubReport {
            read_bytes: found.read_bytes,
            wrong: found.wrong,
            healed: found.healed,
            lost: found.lost.len() as u64,
            ..ScrubReport::default()
        };
        run.add(&report, losses.collect());
        // Should the end of the scrub fail, the last pages are not counted again.
        run.record.next = found.next.unwrap_or(u64::MAX);
        if found.next.is_some() { Ok(false) } else { self.next_phase(run) }
    }

    /// Computes parity anew in some bytes of a region; true when there is none.
    fn scrub_parity(&self, run: &mut Run, bytes: u64) -> Result<bool> {
        let array = self.members.array();
        let found = array.and_then(|array| Some((array, array.computed_region(run.record.next)?)));
        let Some((array, (region, range))) = found else { return self.next_phase(run) };
        let done = if region == run.record.next { u64::from(run.record.offset) } else { 0 };
        let start = (range.start + done).min(range.end);
        let is_huge = range.end - range.start > u64::from(u32::MAX);
        let end = if is_huge { range.end } else { start.saturating_add(bytes).min(range.end) };
        // Disagreements are looked at now: the rest of the scrub did long ago.
        let apart = array.disagreements(start, end - start).map_err(Error::from);
        let outcome = apart.and_then(|apart| self.compute_parity(array, apart, &mut |_| ()));
        if let Err(error) = &outcome {
            // The next ones can be looked at all the same.
            run.add(&ScrubReport { wrong: 1, ..ScrubReport::default() }, Vec::new());
            let detail = format!("the parity of bytes {start} to {end} cannot be seen to: {error}");
            self.core.note("scrub", "", detail)?;
        }
        run.record.read_bytes += end - start;
        let is_whole = end == range.end || outcome.is_err();
        let offset = u32::try_from(end - range.start).ok().filter(|_| !is_whole);
        run.record.next = if offset.is_some() { region } else { region + 1 };
        run.record.offset = offset.unwrap_or(0);
        Ok(false)
    }

    /// Four places have the superblock, on every copy; they are written again if one is wrong.
    fn scrub_superblocks(&self, run: &mut Run) -> Result<()> {
        let _books = self.core.books.lock();
        let wrong = self.core.media.wrong_superblocks();
        if wrong > 0 {
            self.core.media.change(|_| ()).inspect_err(|_| self.core.store.fail())?;
        }
        run.add(&ScrubReport { wrong, healed: wrong, ..ScrubReport::default() }, Vec::new());
        Ok(())
    }

    /// True when there is none.
    fn next_phase(&self, run: &mut Run) -> Result<bool> {
        let record = &mut run.record;
        let phase = match record.phase {
            ScrubPhase::Segments => {
                if !run.suspects.is_empty() {
                    self.write_maps_out()?;
                }
                run.runs = self.map_runs();
                ScrubPhase::Runs
            }
            ScrubPhase::Runs => {
                // The entries of a run may be in another one by now, whose number was drawn when
                // its merge began.
                run.listed.extend(run.runs.iter().map(|listed| listed.0));
                if !run.suspects.is_empty() && run.rounds < ROUNDS_MAX {
                    run.rounds += 1;
                    run.runs = self.map_runs();
                    run.runs.retain(|listed| !run.listed.contains(&listed.0));
                    if !run.runs.is_empty() {
                        (record.next, record.offset) = (0, 0);
                        return Ok(false);
                    }
                }
                run.suspects = Suspects::default();
                ScrubPhase::Catalogue
            }
            // Where something is lost, what is computed may be what gives it back one day.
            ScrubPhase::Catalogue if record.lost == 0 => ScrubPhase::Parity,
            ScrubPhase::Catalogue | ScrubPhase::Parity => return Ok(true),
        };
        (record.phase, record.next, record.offset) = (phase, 0, 0);
        Ok(false)
    }

    /// Has all of the map in runs, so that they know what is suspect.
    fn write_maps_out(&self) -> Result<()> {
        for volume in self.registry.all() {
            match volume.flush_map() {
                Err(e) if e.kind == ErrorKind::Full => {}
                Err(e) if matches!(e.kind, ErrorKind::Corrupt | ErrorKind::Io) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn name_of(&self, loss: &Loss) -> String {
        let version = match loss {
            Loss::Page { run, page } => return format!("page {page} of run {run}"),
            Loss::Block(version) => version,
        };
        let log = self.core.timeline(version.timeline).map(|timeline| timeline.log);
        let volume = self.registry.all().into_iter().find(|volume| Some(volume.id) == log);
        let name = volume.as_ref().map(|volume| volume.name()).filter(|name| !name.is_empty());
        let (block, seq) = (version.block.0, version.seq.0);
        format!("block {block} of {}, seq {seq}", name.unwrap_or("a deleted volume"))
    }
}

fn outcome(record: &ScrubRecord) -> String {
    let mut text = match record.stopped {
        true => "stopped: ".to_owned(),
        false => String::new(),
    };
    text += &format!(
        "{} bytes read, {} ranges were wrong, {} were written again from a copy that was right, {} \
         were repaired from another version, {} are lost",
        record.read_bytes, record.wrong, record.healed, record.repaired, record.lost
    );
    if record.elsewhere > 0 {
        text += &format!(", {} in packs are had from another version", record.elsewhere);
    }
    if !record.losses.is_empty() {
        text += &format!(": {}", record.losses.join("; "));
    }
    text
}
