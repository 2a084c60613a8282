//! One run: a pool on simulated media beside the models of its volumes.
//!
//! `perform` does one action on the pool and, when it succeeded, on the models. What may have
//! happened when it failed is settled in `reboot`, after the pool was opened again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use block::stack::Stack;
use block::{BlockDevice, MediaDevice};
use hindsight_volume::{
    Architecture, CacheChange, CloneSpec, Deletion, Error, ErrorKind, Granularity, Machine, Pool,
    PoolFormat, PoolOptions, Resolved, Result, Stamp, View, Volume, VolumeChange, VolumeInfo,
    VolumeSpec, WriteOp,
};
use sim::{Failure, Op, Random, SimClock, SimEntropy, SimFiles, SimMedia};
use units::{MapExtent, Moment, Seq, WallTime};

use crate::action::Action;
use crate::buffered::Buffered;
use crate::cached::draw_cache;
use crate::model::Model;
use crate::oracle::Change;
use crate::reboot::Reboot;
use crate::together::Together;
use crate::workload::START_NS;

/// Bytes of a zone: the smallest, so that segments and runs are many.
const ZONE_BYTES: u64 = 256 << 10;
/// The same under write buffers: each begins where a piece does.
const BUFFERED_ZONE_BYTES: u64 = 1 << 20;

/// A view that is held open, with what it must show for ever.
pub struct Held {
    /// The view.
    pub view: Arc<View>,
    /// Its volume.
    pub volume: String,
    /// What it showed when it was opened, which was compared with the oracle then.
    pub content: Vec<u8>,
}

/// What was armed and has not struck yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// A halt of the machine.
    Halt,
    /// An I/O error.
    Fault(Op),
}

/// The world of one run.
pub struct World {
    /// The disk; the first member, if there are several.
    pub media: Arc<SimMedia>,
    /// The stack that the pool is on, and its other members.
    pub stack: Option<Stack>,
    pub others: Vec<Arc<SimMedia>>,
    /// The write buffers over the members, where there are some.
    pub buffered: Option<Buffered>,
    /// How often the first member was made to lie, and how often that was healed.
    pub lies: u64,
    /// Members that were attached.
    pub attached: u64,
    pub healed: u64,
    /// Files that volumes are imported from.
    pub files: Arc<SimFiles>,
    /// Time.
    pub clock: Arc<SimClock>,
    /// Draws for crashes and checks, apart from the workload's.
    pub random: Random,
    /// The pool, while it is open.
    pub pool: Option<Arc<Pool>>,
    /// What each volume must be.
    pub models: BTreeMap<String, Model>,
    /// Views held open, oldest first.
    pub views: VecDeque<Held>,
    /// What was armed.
    pub trouble: Trouble,
    /// What a moment came to in the action under way, should it fail half way.
    pub intent: Option<Resolved>,
    /// What volumes are made with, drawn anew for each.
    pub architectures: Vec<Architecture>,
    /// Draws the caches of volumes, where they may have some.
    pub caches: Option<Random>,
    /// Draws the map extents of volumes and clones, where they may have larger ones.
    pub extents: Option<Random>,
    /// Draws the copy units of volumes that may have some, where they do.
    pub units: Option<Random>,
    /// Volumes are deduplicated from the beginning.
    pub dedups: bool,
    /// Volumes are strict.
    pub strict: bool,
    /// Whole writes.
    pub wholes: u64,
    /// Every volume has a small cache, all of which may be dirty.
    pub all_cached: bool,
    /// The space of the media is limited.
    pub limited: bool,
    /// Blocks that first writes took along, each time it was looked.
    pub taken_along: u64,
    /// Blocks that were at home in bases, each time it was looked.
    pub homes: u64,
    /// Versions that were in packs when it was looked.
    pub packed: u64,
    /// Names of shared blocks when it was looked, and of these: those of several volumes.
    pub shared: u64,
    pub common: u64,
    /// Captures of several volumes, and schedules.
    pub together: Together,
    /// The last audit record that was looked at.
    audited: u64,
    /// Prints each action before it is done.
    pub verbose: bool,
    /// What was done, for people and for the digest.
    pub trace: Vec<String>,
    pub machine: Machine,
    pub memory_bytes: u64,
}

impl World {
    /// An empty pool on fresh media.
    pub fn new(seed: u64, media_bytes: u64, memory_bytes: u64) -> World {
        World::on(None, seed, media_bytes, memory_bytes, false)
    }

    /// The same on a stack of members with so many bytes each, with or without write buffers.
    pub fn on(
        stack: Option<Stack>,
        seed: u64,
        media_bytes: u64,
        memory_bytes: u64,
        is_buffered: bool,
    ) -> World {
        let mut random = Random::new(seed ^ 0x5eed);
        let background = [0, 0xdd][random.below(2) as usize];
        let media = Arc::new(SimMedia::filled(media_bytes, random.next_u64(), background));
        let others = crate::members::others(stack.as_ref(), &media, seed);
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(START_NS)));
        let entropy = Arc::new(SimEntropy::new(random.next_u64()));
        let machine = Machine { clock: Arc::<SimClock>::clone(&clock), entropy };
        let mut world = World {
            media,
            stack,
            others,
            buffered: None,
            lies: 0,
            attached: 0,
            healed: 0,
            files: Arc::default(),
            clock,
            random,
            pool: None,
            models: BTreeMap::new(),
            views: VecDeque::new(),
            trouble: Trouble::None,
            intent: None,
            architectures: vec![Architecture::Logging],
            caches: None,
            extents: None,
            units: None,
            dedups: false,
            strict: false,
            wholes: 0,
            all_cached: false,
            limited: false,
            taken_along: 0,
            homes: 0,
            packed: 0,
            shared: 0,
            common: 0,
            together: Together::default(),
            audited: 0,
            verbose: false,
            trace: Vec::new(),
            machine,
            memory_bytes,
        };
        world.buffered = is_buffered.then(|| Buffered::new(&world.media, seed));
        let zone_bytes = if is_buffered { BUFFERED_ZONE_BYTES } else { ZONE_BYTES };
        let format = PoolFormat { zone_bytes };
        world.label_members();
        let device = world.device().expect("nothing fails yet");
        Pool::create(&device, &world.machine, &format).expect("a pool on empty media");
        drop(device);
        world.pool = Some(world.try_open().expect("the new pool"));
        world
    }

    /// The same world on other media, closed.
    pub fn with_media(&self, media: Arc<SimMedia>) -> World {
        let clock = Arc::new(SimClock::new(self.machine.clock.wall()));
        let entropy = Arc::new(SimEntropy::new(2));
        let machine = Machine { clock: Arc::<SimClock>::clone(&clock), entropy };
        World {
            media,
            stack: None,
            others: Vec::new(),
            buffered: None,
            lies: 0,
            attached: 0,
            healed: 0,
            files: Arc::clone(&self.files),
            clock,
            random: self.random.clone(),
            pool: None,
            models: self.models.clone(),
            views: VecDeque::new(),
            trouble: Trouble::None,
            intent: self.intent,
            architectures: self.architectures.clone(),
            caches: self.caches.clone(),
            extents: self.extents.clone(),
            units: self.units.clone(),
            dedups: self.dedups,
            strict: self.strict,
            wholes: 0,
            all_cached: self.all_cached,
            limited: false,
            taken_along: 0,
            homes: 0,
            packed: 0,
            shared: 0,
            common: 0,
            together: self.together.clone(),
            audited: self.audited,
            verbose: false,
            trace: Vec::new(),
            machine,
            memory_bytes: self.memory_bytes,
        }
    }

    /// The architecture of the next volume. Where there is no choice nothing is drawn, so that old
    /// seeds still do what they did.
    fn architecture(&mut self) -> Architecture {
        match self.architectures[..] {
            [only] => only,
            ref several => several[self.random.below(several.len() as u64) as usize],
        }
    }

    fn cache_for(&mut self, architecture: Architecture) -> CacheChange {
        if self.all_cached {
            return CacheChange { bytes: Some(64 << 10), dirty_percent: Some(100) };
        }
        match &mut self.caches {
            Some(random) => draw_cache(random, !architecture.needs_cache()),
            None => CacheChange::default(),
        }
    }

    /// The map extent of a new volume; `None` is what there is without asking.
    fn extent(&mut self) -> Option<MapExtent> {
        let random = self.extents.as_mut()?;
        Some(MapExtent::ALL[random.below(MapExtent::ALL.len() as u64) as usize])
    }

    /// The copy unit of a volume that is that kind now.
    pub fn copy_unit(&mut self, architecture: Architecture, granularity: Granularity) -> MapExtent {
        let may = architecture.has_base() && granularity == Granularity::OnDemand;
        match &mut self.units {
            Some(random) if may => MapExtent::ALL[1 + random.below(4) as usize],
            _ => MapExtent::BLOCK,
        }
    }

    fn device(&self) -> Result<Arc<dyn BlockDevice>> {
        if self.stack.is_some() {
            return self.array().map(|array| Arc::new(array) as _);
        }
        Ok(Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(&self.media))))
    }

    /// Opens the pool as it is on the media.
    pub fn try_open(&self) -> Result<Arc<Pool>> {
        if self.stack.is_some() {
            return self.pool_on_members();
        }
        let options = PoolOptions { memory_bytes: self.memory_bytes };
        let files = Arc::clone(&self.files) as _;
        Pool::open_with(self.device()?, self.machine.clone(), options, files)
    }

    fn rebuild(&self) -> Result<()> {
        Pool::rebuild(self.device()?, self.machine.clone()).map(|_| ())
    }

    /// The open pool.
    pub fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().expect("open between actions")
    }

    /// An open volume that the models know.
    pub fn volume(&self, name: &str) -> Arc<Volume> {
        self.pool().volume(name).unwrap_or_else(|e| panic!("volume {name}: {e}"))
    }

    /// The model of a volume.
    pub fn model(&mut self, name: &str) -> &mut Model {
        self.models.get_mut(name).expect("actions name volumes that exist")
    }

    /// Nanoseconds since 1970 on the wall.
    pub fn now_ns(&self) -> u64 {
        self.machine.clock.wall().as_nanos()
    }

    /// Counts what is to be seen of several things.
    pub fn note(&mut self) {
        self.note_homes();
        self.note_taken_along();
        self.note_packs();
        self.note_shared();
    }

    /// Counts what is at home in bases.
    pub fn note_homes(&mut self) {
        let volumes = self.pool().volumes().into_iter();
        let homes: u64 = volumes.map(|v| v.info().map_or(0, |info| info.base_bytes / 4096)).sum();
        self.homes += homes;
    }

    /// Counts what is kept for captures without having been changed.
    fn note_taken_along(&mut self) {
        let copies = |v: Arc<Volume>| v.copies().ok().flatten();
        let copies = self.pool().volumes().into_iter().filter_map(copies);
        let taken: u64 = copies.map(|c| (c.kept_bytes - c.changed_bytes) / 4096).sum();
        self.taken_along += taken;
    }

    /// Counts versions whose blocks are shared now.
    pub fn note_shared(&mut self) {
        let volumes = self.pool().volumes().into_iter();
        let named = |info: VolumeInfo| info.dedup.named_bytes / 4096;
        self.shared += volumes.map(|v| v.info().map_or(0, named)).sum::<u64>();
        self.common += self.pool().space().map_or(0, |space| space.common_named_bytes / 4096);
    }

    /// Counts what is in packs now.
    pub fn note_packs(&mut self) {
        let volumes = self.pool().volumes().into_iter();
        let packed = |info: VolumeInfo| info.encoding.unpacked_bytes / 4096;
        self.packed += volumes.map(|v| v.info().map_or(0, packed)).sum::<u64>();
    }

    /// Does one action, and whatever follows from its failure.
    pub fn act(&mut self, action: &Action) {
        self.clock.advance(self.random.between(1_000, 5_000_000));
        self.trace.push(shorten(action));
        if self.verbose {
            println!("  {} (op {})", shorten(action), self.media.changes());
        }
        self.intent = None;
        self.lie();
        self.work_on_buffers();
        let outcome = self.perform(action);
        if self.verbose {
            let failed = self.media.take_log().into_iter().filter(|record| !record.ok);
            failed.take(3).for_each(|record| println!("    {record:?}"));
            self.media.start_log();
        }
        match outcome {
            Ok(()) => {
                // A fault that waits for a read may strike here.
                if let Err(e) = self.note_given_up() {
                    assert!(self.trouble != Trouble::None, "the audit log: {e}");
                    self.broken(&Action::CheckAll, &e);
                }
            }
            Err(e) if e.kind == ErrorKind::Full => self.full(action, &e),
            Err(e) if self.trouble != Trouble::None => self.broken(action, &e),
            Err(e) => panic!("{action:.200?}: {:?} {e} ({:?})", e.kind, e.hint),
        }
        let names: Vec<String> = self.models.keys().cloned().collect();
        for name in names {
            let now_ns = self.volume(&name).now().as_nanos();
            self.model(&name).note_now(now_ns);
        }
    }

    /// Takes note of history that was given up for want of space. The audit log says so, or it must
    /// still be there.
    pub fn note_given_up(&mut self) -> Result<()> {
        for record in self.pool().audit(self.audited, usize::MAX)? {
            self.audited = record.number;
            let for_space = matches!(record.action.as_str(), "sacrifice" | "history-limit");
            if let Some(model) = self.models.get_mut(&record.volume).filter(|_| for_space) {
                model.squeezed = true;
            }
        }
        Ok(())
    }

    /// Does one action whose failure is the caller's.
    pub fn attempt(&mut self, action: &Action) -> Result<()> {
        self.intent = None;
        self.perform(action)
    }

    fn perform(&mut self, action: &Action) -> Result<()> {
        if let Some(name) = action.asks_about() {
            self.number(name)?;
        }
        match action {
            Action::Write(name, changes) => self.write(name, changes)?,
            Action::Flush(name) => {
                self.volume(name).flush()?;
                self.number(name)?;
                let model = self.model(name);
                model.flushed = model.oracle.latest();
            }
            Action::Read(name, offset, length) => self.check_range(name, *offset, *length)?,
            Action::View(name, moment, hold) => self.check_moment(name, moment, *hold)?,
            Action::DropView => drop(self.views.pop_front()),
            Action::Diff(name, from, to) => self.check_diff(name, *from, *to)?,
            Action::Extents(name) => self.check_extents(name)?,
            Action::Step(bytes) => self.step(*bytes)?,
            Action::Steps(count, bytes) => (0..*count).try_for_each(|_| self.step(*bytes))?,
            Action::Wait(nanos) => self.clock.advance(*nanos),
            Action::JumpTo(nanos) => self.clock.set_wall(WallTime::from_nanos(*nanos)),
            Action::CheckAll => self.check_all()?,
            Action::Restart => {
                self.views.clear();
                self.pool().close()?;
                self.models.values_mut().for_each(|model| model.logged = u64::MAX);
                self.pool = None;
                self.reboot(Reboot::Kill, None);
            }
            Action::Rebuild => {
                self.views.clear();
                self.pool().close()?;
                self.models.values_mut().for_each(|model| model.logged = u64::MAX);
                self.pool = None;
                self.rebuild()?;
                self.reboot(Reboot::Kill, None);
            }
            Action::Kill => self.reboot(Reboot::Kill, None),
            Action::PowerCut => self.reboot(Reboot::Power, None),
            Action::HaltAfter(changes) => {
                self.end_trouble();
                self.media.halt_after(*changes);
                self.trouble = Trouble::Halt;
            }
            Action::Fault(op, after) => {
                self.end_trouble();
                if self.may_fail() {
                    self.media.fail(Failure { after: *after, ..Failure::once(*op) });
                    self.trouble = self.trouble_of(*op);
                }
            }
            Action::SpaceLimit(limit) => {
                self.media.set_space_limit(*limit);
                self.limited = limit.is_some();
            }
            Action::CaptureTogether(names) => self.capture_together(names)?,
            Action::DeleteCapture(pick) => self.delete_capture(*pick)?,
            Action::Schedule(name, seconds, last) => self.schedule(name, *seconds, *last)?,
            Action::ScheduleGroup(names, seconds, last) => {
                self.schedule_group(names, *seconds, *last)?;
            }
            Action::Resize(name, size) => self.resize(name, *size)?,
            event => self.perform_event(event)?,
        }
        if let Some(model) = action.asks_about().and_then(|name| self.models.get_mut(name)) {
            model.logged = model.oracle.latest();
        }
        Ok(())
    }

    fn perform_event(&mut self, action: &Action) -> Result<()> {
        match action {
            Action::Create(name, size_bytes, granularity, window_ns) => {
                let spec = self.spec(name, *size_bytes, *granularity, *window_ns);
                self.pool().create_volume(&spec)?;
                self.adopt(name, vec![0; *size_bytes as usize], *granularity, *window_ns);
            }
            Action::Import(name, seed, length, granularity, window_ns) => {
                self.import(name, (*seed, *length), *granularity, *window_ns)?;
            }
            Action::Clone(source, moment, name) => self.clone_volume(source, moment, name)?,
            Action::Delete(name) => {
                self.pool().delete_volume(name)?;
                self.models.remove(name);
                self.forget_schedule_of(name);
                self.forget_views_of(name);
            }
            Action::Bin(name) => {
                let asked = Deletion { force: true, ..Deletion::default() };
                let id = self.pool().remove_volume(name, asked)?.id;
                assert!(self.pool().volume(name).is_err(), "nobody finds {name}");
                self.clock.advance(30_000_000_000);
                self.take_out(name, id)?;
            }
            Action::CreateVersion(name) => {
                let version = self.volume(name).create_version("a label")?;
                let model = self.model(name);
                assert_eq!(version.stamp.seq.0, model.oracle.latest(), "a version is the present");
                let known = model.versions.insert(version.number, version.stamp.seq.0);
                assert_eq!(known, None, "version numbers are never used twice");
                model.flushed = version.stamp.seq.0;
            }
            Action::DeleteVersion(name, number) => {
                self.volume(name).delete_version(*number)?;
                self.model(name).versions.remove(number);
            }
            Action::Compact(name, number, wish) => {
                self.volume(name).compact_version(*number, *wish)?;
            }
            Action::CreateMark(name, mark, moment, pin) => {
                let Some(resolved) = self.resolve(name, moment)? else { return Ok(()) };
                let made = self.volume(name).create_mark(mark, moment, *pin)?;
                assert_eq!(made.stamp.seq, resolved.seq);
                let model = self.model(name);
                model.marks.insert(mark.clone(), (resolved.seq.0, *pin));
                if *pin {
                    model.flushed = model.flushed.max(resolved.seq.0);
                }
            }
            Action::DeleteMark(name, mark) => {
                self.volume(name).delete_mark(mark)?;
                self.model(name).marks.remove(mark);
            }
            Action::Revert(name, moment) => self.revert(name, moment)?,
            Action::Change(name, change) => self.change(name, change.clone())?,
            Action::Convert(name, architecture) => self.convert(name, *architecture)?,
            other => unreachable!("{other:?} is no event"),
        }
        Ok(())
    }

    fn change(&mut self, name: &str, mut change: VolumeChange) -> Result<()> {
        let volume = self.volume(name);
        if self.caches.as_mut().is_some_and(|random| random.chance(300)) {
            change.cache = self.cache_for(volume.info()?.architecture);
        }
        // A grace period is the clock's, which may be behind the log.
        let first_ns = self.now_ns();
        if self.units.is_some() {
            let info = volume.info()?;
            let granularity = change.granularity.unwrap_or(info.granularity);
            change.copy_unit = Some(self.copy_unit(info.architecture, granularity));
        }
        volume.change(&change)?;
        let last_ns = volume.now().as_nanos();
        let info = volume.info()?;
        let model = self.model(name);
        model.cached = info.cache.is_some();
        let until_ns = info.grace.map(|grace| grace.until_ns);
        model.set_window(&change, (first_ns, last_ns), until_ns);
        if let Some(granularity) = change.granularity {
            model.granularities.push((model.oracle.latest() + 1, granularity));
        }
        Ok(())
    }

    fn write(&mut self, name: &str, changes: &[Change]) -> Result<()> {
        if self.units.is_some() && changes.len() > 1 {
            // How many seqs one takes depends on what it takes along.
            return changes.iter().try_for_each(|one| self.write(name, std::slice::from_ref(one)));
        }
        if let Some(whole) = self.models[name].whole_of(changes) {
            return self.write_whole(name, whole);
        }
        let ops: Vec<WriteOp<'_>> = changes.iter().map(op_of).collect();
        let volume = self.volume(name);
        let before = self.models[name].oracle.latest();
        let earliest_ns = volume.now().as_nanos();
        let last = volume.write_batch(&ops)?.0;
        let is_cached = self.models[name].cached;
        let stamp = if is_cached {
            // Asking would destage it.
            Stamp { seq: Seq(last), time: volume.now() }
        } else {
            let latest = volume.resolve(&Moment::Latest)?;
            Stamp { seq: latest.seq, time: latest.time }
        };
        let model = self.model(name);
        if model.absorbs() {
            let time_ns = stamp.time.as_nanos();
            changes.iter().for_each(|change| model.push_loose(time_ns, change.clone()));
            return Ok(());
        }
        assert_eq!(stamp.seq.0, last, "the answer to a write is the latest seq");
        let [change] = changes else {
            assert_eq!(last, before + changes.len() as u64, "whole blocks take one seq each");
            for (seq, change) in (before + 1..).zip(changes) {
                model.push_between(seq, (earliest_ns, stamp.time.as_nanos()), change.clone());
            }
            return Ok(());
        };
        model.push_between(last, (earliest_ns, stamp.time.as_nanos()), change.clone());
        Ok(())
    }

    fn clone_volume(&mut self, source: &str, moment: &Moment, name: &str) -> Result<()> {
        let Some(resolved) = self.resolve(source, moment)? else { return Ok(()) };
        let seq = resolved.seq.0;
        let Some(content) = self.models[source].exact_at(seq) else { return Ok(()) };
        let spec = CloneSpec { extent: self.extent(), ..CloneSpec::default() };
        let clone = self.pool().clone_as(source, moment, name, spec)?;
        let latest = clone.resolve(&Moment::Latest)?;
        assert!(latest.seq.0 >= seq, "a clone goes on from the moment it was made at");
        let info = clone.info()?;
        assert!(spec.extent.is_none_or(|told| told == info.extent), "a clone has what it was told");
        let mut model = Model::new(latest.seq.0, content, info.granularity, info.window_ns);
        model.note_now(clone.now().as_nanos());
        model.cached = info.cache.is_some();
        assert_eq!(info.strict, self.strict, "a clone is as strict as its origin");
        model.whole_blocks = self.strict.then(|| clone.whole_blocks_max());
        self.models.insert(name.to_owned(), model);
        Ok(())
    }

    /// What a new volume shall be.
    pub fn spec(
        &mut self,
        name: &str,
        size_bytes: u64,
        granularity: Granularity,
        window_ns: u64,
    ) -> VolumeSpec {
        let architecture = self.architecture();
        VolumeSpec {
            architecture,
            granularity,
            window_ns,
            cache: self.cache_for(architecture),
            extent: self.extent().unwrap_or_default(),
            copy_unit: self.copy_unit(architecture, granularity),
            dedup: self.dedups,
            strict: self.strict,
            ..VolumeSpec::new(name, size_bytes)
        }
    }

    /// Takes a new volume into the models.
    pub fn adopt(
        &mut self,
        name: &str,
        content: Vec<u8>,
        granularity: Granularity,
        window_ns: u64,
    ) {
        let latest = self.volume(name).resolve(&Moment::Latest).expect("a new volume's present");
        let info = self.volume(name).info().expect("a new volume");
        let mut model = Model::new(latest.seq.0, content, granularity, window_ns);
        model.cached = info.cache.is_some();
        model.whole_blocks = info.strict.then(|| self.volume(name).whole_blocks_max());
        self.models.insert(name.to_owned(), model);
    }

    fn revert(&mut self, name: &str, moment: &Moment) -> Result<()> {
        let Some(resolved) = self.resolve(name, moment)? else { return Ok(()) };
        let volume = self.volume(name);
        let latest = self.models[name].oracle.latest();
        if self.models[name].exact_at(resolved.seq.0).is_none() {
            return Ok(());
        }
        let rehearsed = volume.revert(moment, true)?;
        assert_eq!((rehearsed.from.seq.0, rehearsed.to.seq), (latest, resolved.seq));
        let report = volume.revert(moment, false)?;
        assert_eq!(report.to.seq, resolved.seq);
        if report.seq.0 == latest {
            assert_eq!(report.to.seq.0, latest, "only a revert to the present does nothing");
            return Ok(());
        }
        assert_eq!((report.from.seq.0, report.seq.0), (latest, latest + 1));
        let stamp = volume.resolve(&Moment::Latest)?;
        assert_eq!(stamp.seq, report.seq);
        let model = self.model(name);
        model.push(stamp.seq.0, stamp.time.as_nanos(), Change::Revert(resolved.seq.0));
        model.flushed = stamp.seq.0;
        Ok(())
    }

    fn resize(&mut self, name: &str, size: u64) -> Result<()> {
        let volume = self.volume(name);
        let old = self.models[name].present_bytes();
        let before = volume.resolve(&Moment::Latest)?;
        volume.resize(size)?;
        if size == old {
            return Ok(());
        }
        let stamp = volume.resolve(&Moment::Latest)?;
        let model = self.model(name);
        let (seq, time_ns) = (stamp.seq.0, stamp.time.as_nanos());
        if size > old {
            // Zeros may have gone there before.
            model.push(seq, time_ns, Change::Resize(size));
        } else {
            let times_ns = (before.time.as_nanos(), time_ns);
            model.push_between(before.seq.0 + 1, times_ns, Change::Resize(size));
            // What is beyond is cut off afterwards.
            if seq > before.seq.0 + 1 {
                model.push(seq, time_ns, Change::Nothing);
            }
        }
        model.flushed = seq;
        assert_eq!(volume.size_bytes(), size);
        Ok(())
    }

    /// What a moment comes to, with every rule about what it may come to; `None` outside the
    /// window.
    pub fn resolve(&mut self, name: &str, moment: &Moment) -> Result<Option<Resolved>> {
        let outcome = self.volume(name).resolve(moment);
        let resolved = match outcome {
            Ok(resolved) => Some(resolved),
            Err(Error { kind: ErrorKind::OutsideWindow { .. }, .. }) => None,
            Err(e) => return Err(e),
        };
        if self.caches.is_some() {
            // What waited had to be destaged for that, and history may have made room.
            self.note_given_up()?;
        }
        self.models[name].check_resolved(moment, resolved);
        self.intent = resolved;
        Ok(resolved)
    }

    /// Lets go of the views of a deleted volume, which must have noticed.
    /// Takes a volume out of the trash: it is what it was.
    pub fn take_out(&mut self, name: &str, id: u64) -> Result<()> {
        let volume = self.pool().undelete_volume(id, None)?;
        let grace = volume.info()?.grace.expect("what stood still is kept for a while");
        self.model(name).grace = Some((grace.until_ns, grace.window_ns));
        Ok(())
    }

    fn forget_views_of(&mut self, name: &str) {
        let (gone, kept) =
            std::mem::take(&mut self.views).into_iter().partition(|h| h.volume == name);
        self.views = kept;
        let gone: VecDeque<Held> = gone;
        for held in gone {
            let error = held.view.read(0, &mut [0]).expect_err("its volume was deleted");
            assert_eq!(error.kind, ErrorKind::NotFound);
        }
    }

    /// The pool is full: what was there stays, and the past may have been shortened.
    fn full(&mut self, action: &Action, error: &Error) {
        let frees = matches!(
            action,
            Action::Delete(..)
                | Action::DeleteVersion(..)
                | Action::DeleteMark(..)
                | Action::DeleteCapture(..)
        );
        assert!(!frees, "deletes work when full: {action:?}: {error}");
        let reads = matches!(
            action,
            Action::Read(..) | Action::View(..) | Action::Diff(..) | Action::Extents(..)
        );
        // But what waits in a cache needs some before it can be seen as a moment.
        let waits = self.models.values().any(|model| model.cached);
        assert!(!reads || waits, "reads need no space: {action:?}: {error}");
        self.trace.push(format!("full: {error}"));
        // What is armed shall not strike what is looked at now.
        self.calm();
        self.trouble = Trouble::None;
        let goes_on =
            self.pool.as_ref().is_some_and(|pool| pool.status().state != "refusing-writes");
        if !goes_on {
            return self.reboot(Reboot::Kill, Some(action));
        }
        self.settle(false, Some(action));
    }
}

/// A change as the engine takes it.
pub fn op_of(change: &Change) -> WriteOp<'_> {
    match change {
        Change::Write(offset, bytes) => WriteOp::Data { offset: *offset, bytes },
        Change::Zero(offset, length) => WriteOp::Zero { offset: *offset, length_bytes: *length },
        other => unreachable!("{other:?} is no write"),
    }
}

/// An action without its bytes.
fn shorten(action: &Action) -> String {
    let Action::Write(name, changes) = action else { return format!("{action:?}") };
    let ops: Vec<String> = changes
        .iter()
        .map(|change| match change {
            Change::Write(offset, bytes) => format!("data {offset}+{}", bytes.len()),
            other => format!("{other:?}"),
        })
        .collect();
    format!("Write({name:?}, {})", ops.join(", "))
}

/// A seq as a moment.
pub fn at_seq(seq: u64) -> Moment {
    Moment::Seq(Seq(seq))
}
