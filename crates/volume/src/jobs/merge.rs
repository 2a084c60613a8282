//! Merging runs of a timeline, and reclaiming what no openable moment needs.
//!
//! A partial merge joins a few adjacent runs so that look-ups stay short. A full merge takes all
//! runs of a timeline: it drops what has expired and moves the live blocks of sparse segments
//! together, in address order, or to their homes (`migration`). Both go a little at a time
//! (`step`), and a crash before the commit leaves only free zones.
//!
//! Invariants
//! 1. An entry is dropped only if `Host::needed`, worked out at the beginning, says that no
//!    openable moment sees it. Moments that become pinned later were openable then.
//! 2. The commit that names the merged run also says which segments are free; memory follows the
//!    commit.
//! 3. A block is moved only after its checksum held; one that does not stays where it is, and its
//!    segment too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::location::Location;
use format::map::{Entry, Key};
use history::{NO_LOG, Openable, RunBuilder, Segment, StoredRun, Timeline, next_entries};
use units::Seq;

use crate::Result;
use crate::catalogue::transaction::Transaction;
use crate::catalogue::{Commit, tables};
use crate::core::Core;
use crate::jobs::dedup::moves::Moves;
use crate::jobs::map_flush::{commit_segment, record_of_run};
use crate::jobs::mover::{BEFORE_IMAGE, CLEANING, Errand, Mover};
use crate::jobs::packer::{Packed, Packer, Placed};
use crate::placement::Placement;
use crate::placement::base::home_bytes;
use crate::placement::migration::{Arrivals, Homecoming};
use crate::pool::run_figures::FigureCounter;
use crate::retention::filter::{Nodes, nodes_of, sift};
use crate::retention::needed::{Branch, Needed};
use crate::volume::Volume;

/// Runs a timeline may have before some are joined.
pub const RUNS_MAX: usize = 10;
/// Runs joined at a time.
const JOINED: usize = 6;
/// Entries of a step in which blocks may come home or leave it (each may be a block copied), or
/// branches are asked whether they see them.
const SLOW_ENTRIES_MAX: usize = 2048;
/// Before-images that are read and written together at most.
const TOGETHER_MAX: usize = 64;

/// A merge under way.
pub struct MergeJob {
    /// The volume whose timeline it is.
    pub(crate) volume: Arc<Volume>,
    timeline: Arc<Timeline>,
    inputs: Vec<Arc<StoredRun>>,
    /// Whether it takes all runs of the timeline.
    is_full: bool,
    /// Segments that it empties.
    sparse: BTreeSet<u64>,
    openable: Openable,
    /// All but what only those need that branched off, and these.
    own: Openable,
    branches: Vec<Branch>,
    nodes: Nodes,
    builder: Option<RunBuilder>,
    counter: FigureCounter,
    mover: Mover,
    packer: Option<Packer>,
    /// The findings of a search for equal blocks, and entries made because of them, by segment.
    moves: Option<Moves>,
    arrived: BTreeMap<u64, i64>,
    homecoming: Option<Homecoming>,
    /// Slabs of a base that the volume has no more are emptied.
    leaves_base: bool,
    /// Blocks at home that could not be read, and stay.
    unmovable: u64,
    /// Entries before this place are done.
    resume: Option<(Key, Seq)>,
    /// Entries dropped or moved away, by the segment they named.
    released: BTreeMap<u64, i64>,
}

impl Volume {
    /// A merge that some timeline of this volume wants because it has many runs.
    pub(crate) fn wanted_join(self: &Arc<Self>) -> Result<Option<MergeJob>> {
        for timeline in self.own_timelines() {
            let runs = timeline.runs();
            if runs.len() <= RUNS_MAX {
                continue;
            }
            let cost = |start: &usize| -> u64 {
                runs[*start..*start + JOINED].iter().map(|r| r.footer().entries).sum()
            };
            let start = (0..=runs.len() - JOINED).min_by_key(cost).expect("more runs than joined");
            let inputs = runs[start..start + JOINED].to_vec();
            return self.job(timeline, inputs).map(Some);
        }
        Ok(None)
    }

    /// A full merge of one timeline; `urgent` when it shall make room.
    pub(crate) fn full_merge(
        self: &Arc<Self>,
        timeline: Arc<Timeline>,
        sparse: BTreeSet<u64>,
        moves: Option<Moves>,
        urgent: bool,
    ) -> Result<Option<MergeJob>> {
        let inputs = timeline.runs();
        if inputs.is_empty() {
            return Ok(None);
        }
        let homecoming = self.homecoming(&timeline, urgent);
        let is_home = |segment: &u64| {
            self.core.store.segment(*segment).is_some_and(|segment| segment.slab.is_some())
        };
        let leaves_base = sparse.iter().any(is_home);
        let packer = self.packer(&timeline, urgent);
        let begin = self.segment_with_room();
        assert!(begin.as_ref().is_none_or(|begin| !sparse.contains(&begin.number)), "it stays");
        let mover = Mover::new(Arc::clone(&self.core), self.id, timeline.id, begin);
        let job = self.job(timeline, inputs)?;
        Ok(Some(MergeJob {
            is_full: true,
            sparse,
            homecoming,
            leaves_base,
            packer,
            moves,
            mover,
            ..job
        }))
    }

    fn job(
        self: &Arc<Self>,
        timeline: Arc<Timeline>,
        inputs: Vec<Arc<StoredRun>>,
    ) -> Result<MergeJob> {
        let Needed { openable, held, own, branches } =
            self.core.host()?.needed(timeline.id, Seq::ZERO)?;
        let counter = self.figure_counter(held);
        let nodes = nodes_of(&self.core.store, &timeline)?;
        let order = inputs.first().expect("a merge has inputs").order;
        let id = self.core.next_run();
        let builder = RunBuilder::new(&self.core.store, id, order, &timeline);
        let mover = Mover::new(Arc::clone(&self.core), self.id, timeline.id, None);
        Ok(MergeJob {
            volume: Arc::clone(self),
            timeline,
            inputs,
            is_full: false,
            sparse: BTreeSet::new(),
            openable,
            own,
            branches,
            nodes,
            builder: Some(builder),
            counter,
            mover,
            packer: None,
            moves: None,
            arrived: BTreeMap::new(),
            homecoming: None,
            leaves_base: false,
            unmovable: 0,
            resume: None,
            released: BTreeMap::new(),
        })
    }
}

impl Placement {
    /// Timelines whose writes are in this volume's log.
    pub(crate) fn own_timelines(&self) -> Vec<Arc<Timeline>> {
        let timelines = self.core.timelines.read();
        timelines.values().filter(|(r, _)| r.log == self.id).map(|(_, t)| Arc::clone(t)).collect()
    }
}

impl MergeJob {
    /// Whether it can wait for clients: look-ups are no slower without it, and nobody waits for
    /// blocks to come home.
    pub(crate) fn can_wait(&self) -> bool {
        self.is_full && self.homecoming.is_none() && !self.leaves_base
    }

    /// Handles about `entries_max` entries; true when the merge is complete and committed.
    ///
    /// # Errors
    /// `Full`, `Refused`, `Corrupt`, `Io`; the job is then to be dropped.
    pub fn step(&mut self, entries_max: usize) -> Result<bool> {
        let is_slow = self.homecoming.is_some() || self.leaves_base || !self.branches.is_empty();
        let entries_max = match is_slow {
            true => entries_max.min(SLOW_ENTRIES_MAX),
            false => entries_max,
        };
        self.step_over(entries_max)
    }

    fn step_over(&mut self, entries_max: usize) -> Result<bool> {
        let place = self.resume.unwrap_or((Key { level: 0, index: 0 }, Seq::MAX));
        let store = &self.volume.core.store;
        let batch = next_entries(store, &self.inputs, place, entries_max)?;
        let ended = batch.len() < entries_max;
        // A key is handled whole: what follows the last key's first entry waits, unless this is the
        // end.
        let usable = match batch.last() {
            Some(last) if !ended => {
                let start = batch.partition_point(|e| e.key < last.key);
                if start == 0 { return self.step_over(entries_max * 2) } else { start }
            }
            _ => batch.len(),
        };
        let mut start = 0;
        while start < usable {
            let key = batch[start].key;
            let count = batch[start..usable].iter().take_while(|e| e.key == key).count();
            self.handle(&batch[start..start + count])?;
            start += count;
        }
        self.volume.compaction_queue().note_passed(usable as u64);
        if !ended {
            self.resume = Some((batch[usable].key, Seq::MAX));
            return Ok(false);
        }
        self.commit()?;
        Ok(true)
    }

    /// Keeps, moves or drops the entries of one key (newest first).
    fn handle(&mut self, entries: &[Entry]) -> Result<()> {
        let mut kept = Vec::with_capacity(entries.len());
        let MergeJob { volume, own, branches, released, counter, .. } = self;
        let is_seen = |e: &Entry, superseded| {
            let sees = |b: &Branch| b.sees(&volume.core.store, e.key, e.seq, superseded);
            branches.is_empty() || own.needs(e.seq, superseded) || branches.iter().any(sees)
        };
        sift(entries, &self.nodes, &self.openable, |entry, keep, superseded| {
            if keep && is_seen(entry, superseded) {
                counter.count(entry, superseded);
                kept.push(*entry);
            } else {
                *released.entry(entry.location.segment()).or_default() += 1;
            }
            Ok(())
        })?;
        let key = entries.first().expect("a key has entries").key;
        if self.homecoming.as_ref().is_some_and(|h| key.level > 0 || !h.takes(key.index)) {
            self.settle_gathered()?;
        }
        let MergeJob { homecoming, sparse, nodes, packer, .. } = self;
        match homecoming {
            Some(homecoming) if key.level == 0 => {
                let is_trimmed = |e: &Entry, seen: Seq| {
                    nodes.first_after(e.key, e.seq).is_some_and(|seq| seq <= seen)
                };
                let is_asked_for =
                    |newest: usize| packer.as_ref().is_some_and(|p| p.is_asked_for(&kept, newest));
                let is_emptied = |segment: u64| sparse.contains(&segment);
                homecoming.gather(entries, &kept, is_emptied, is_trimmed, is_asked_for);
                Ok(())
            }
            _ => (0..kept.len()).try_for_each(|index| self.place(&kept, index, false)),
        }
    }

    /// Enters one of the entries that are kept in the new run. Its block is packed if that is
    /// wanted of it, or moved if it leaves its home or its segment is to be emptied.
    fn place(&mut self, kept: &[Entry], index: usize, leaves: bool) -> Result<()> {
        let entry = kept[index];
        let is_emptied = self.sparse.contains(&entry.location.segment());
        if self.packer.as_ref().is_some_and(|p| p.wants(kept, index, is_emptied)) {
            if self.packer.as_ref().is_some_and(|p| p.is_ripe(entry.key.index)) {
                self.settle_pack()?;
            }
            if self.packer.as_mut().is_some_and(|p| p.gather(&entry)) {
                return self.settle_full_pack();
            }
        }
        if let Some(location) = self.shared_place(&entry) {
            *self.released.entry(entry.location.segment()).or_default() += 1;
            *self.arrived.entry(location.segment()).or_default() += 1;
            return self.enter(Entry { location, ..entry });
        }
        let is_unpacked = self.packer.as_mut().is_some_and(|packer| packer.leaves(kept, index));
        let errand = match (leaves, is_emptied || is_unpacked) {
            (true, _) => Some(BEFORE_IMAGE),
            (false, true) => Some(CLEANING),
            (false, false) => None,
        };
        let placed = self.move_if_it_goes(entry, errand)?;
        self.enter(placed)
    }

    /// Where an equal block is that is shared, if a search found one.
    fn shared_place(&self, entry: &Entry) -> Option<Location> {
        let location = self.moves.as_ref()?.of(entry)?;
        let segment = self.volume.core.store.segment(location.segment())?;
        (segment.held.load(Ordering::Acquire)).then_some(location)
    }

    /// The entry as it is after its block has moved, if it goes and can be moved.
    fn move_if_it_goes(&mut self, entry: Entry, errand: Option<Errand>) -> Result<Entry> {
        let segment = entry.location.segment();
        let moved = match errand {
            Some(errand) => self.mover.move_entry(&entry, errand)?,
            None => None,
        };
        if moved.is_some() {
            *self.released.entry(segment).or_default() += 1;
        } else if errand.is_some() && self.leaves_base {
            let segment = self.volume.core.store.segment(segment);
            self.unmovable += u64::from(segment.is_some_and(|segment| segment.slab.is_some()));
        }
        Ok(moved.unwrap_or(entry))
    }

    /// Enters an entry in the new run, behind those that wait for a pack.
    fn enter(&mut self, entry: Entry) -> Result<()> {
        let passed = match &mut self.packer {
            Some(packer) => packer.pass(entry),
            None => Some(entry),
        };
        match passed {
            Some(entry) => self.push(entry, false),
            None => self.settle_full_pack(),
        }
    }

    /// Enters an entry in the new run; `is_new` if it went to a pack just now.
    fn push(&mut self, entry: Entry, is_new: bool) -> Result<()> {
        if let Some(packer) = &mut self.packer {
            packer.count(&entry, is_new);
        }
        let builder = self.builder.as_mut().expect("a merge builds until it commits");
        Ok(builder.push(entry)?)
    }

    fn settle_full_pack(&mut self) -> Result<()> {
        match &self.packer {
            Some(packer) if packer.is_full() => self.settle_pack(),
            _ => Ok(()),
        }
    }

    /// Writes the pack that is being gathered, and enters everything that waited for it.
    fn settle_pack(&mut self) -> Result<()> {
        let Some(packer) = &mut self.packer else { return Ok(()) };
        for placed in packer.settle()? {
            let (entry, is_new) = match placed {
                Placed::As(entry) => (entry, false),
                Placed::Moved { entry, from } => {
                    *self.released.entry(from).or_default() += 1;
                    (entry, true)
                }
                Placed::Left(entry) => {
                    let is_emptied = self.sparse.contains(&entry.location.segment());
                    let errand = is_emptied.then_some(CLEANING);
                    (self.move_if_it_goes(entry, errand)?, false)
                }
            };
            self.push(entry, is_new)?;
        }
        Ok(())
    }

    /// Brings home what was gathered, and enters all of it in the new run.
    fn settle_gathered(&mut self) -> Result<()> {
        let MergeJob { homecoming, sparse, .. } = self;
        let Some(homecoming) = homecoming else { return Ok(()) };
        let (group, places) = homecoming.bring_home(|s| sparse.contains(&s))?;
        let left = self.leave_together(&group.entries, &places.leaving)?;
        for (index, entry) in group.entries.iter().enumerate() {
            if let Some(&moved) = left.get(&index) {
                *self.released.entry(entry.location.segment()).or_default() += 1;
                self.enter(moved)?;
                continue;
            }
            let Some(&location) = places.homes.get(&index) else {
                self.place(&group.entries, index, places.leaving.contains(&index))?;
                continue;
            };
            *self.released.entry(entry.location.segment()).or_default() += 1;
            self.enter(Entry { location, ..*entry })?;
        }
        Ok(())
    }

    /// Moves before-images whose homes follow one another together, where none may go to a pack or
    /// be an equal block instead. Blocks that could not be moved are missing.
    fn leave_together(
        &mut self,
        entries: &[Entry],
        leaving: &BTreeSet<usize>,
    ) -> Result<BTreeMap<usize, Entry>> {
        let mut left = BTreeMap::new();
        if self.packer.is_some() || self.moves.is_some() {
            return Ok(left);
        }
        let leaving: Vec<usize> = leaving.iter().copied().collect();
        let follows = |a: &usize, b: &usize| {
            let (a, b) = (entries[*a].location, entries[*b].location);
            a.segment() == b.segment() && a.offset_bytes() + home_bytes() == b.offset_bytes()
        };
        for run in leaving.chunk_by(follows) {
            let mut rest = run;
            while !rest.is_empty() {
                let some = &rest[..rest.len().min(TOGETHER_MAX)];
                let homes: Vec<Entry> = some.iter().map(|&index| entries[index]).collect();
                let moved = self.mover.move_homes(&homes)?;
                rest = &rest[moved.len()..];
                left.extend(some.iter().zip(moved).filter_map(|(&i, moved)| Some((i, moved?))));
            }
        }
        Ok(left)
    }

    fn commit(&mut self) -> Result<()> {
        self.settle_gathered()?;
        self.settle_pack()?;
        let core = Arc::clone(&self.volume.core);
        let builder = self.builder.take().expect("a merge commits once");
        let run = builder.finish(&core.store)?;
        let mut moved = self.mover.finish();
        self.arrived.extend(self.mover.go_on());
        if let Some(packer) = &mut self.packer {
            moved.extend(packer.finish());
        }
        let homecoming = self.homecoming.as_mut();
        let Arrivals { arrived, taken, waiting, away } =
            homecoming.map(Homecoming::finish).unwrap_or_default();
        moved.extend(taken);
        self.arrived.extend(arrived);
        let changes = self.changes();
        let figures = self.counter.finish();
        let mut tx = core.begin()?;
        self.audit_packs(&mut tx)?;
        for input in &self.inputs {
            tx.remove_map_run(input.id)?;
        }
        if let Some(run) = &run {
            tx.put(tables::MAP_RUNS, run.id, &record_of_run(run, self.timeline.id))?;
            tx.put(tables::FIGURES, run.id, &figures)?;
        }
        self.commit_moved(&tx, &moved)?;
        let dead = self.commit_changes(&tx, &changes)?;
        self.commit_common(&mut tx, &changes);
        drop(tx.commit()?);
        core.figures.note(&self.inputs, run.as_ref().map(|run| (run.id, figures)));
        if self.is_full {
            let run = run.as_ref().map(|run| run.id);
            self.volume.note_destaged(&self.timeline, run, waiting, away);
            self.volume.note_unmovable(self.unmovable);
        }
        self.install(&core, run, moved, &changes, &dead);
        let is_sparse = || !self.volume.sparse_segments(&self.timeline, false).is_empty();
        if self.moves.is_some() && is_sparse() {
            self.volume.reclamation().want();
        }
        if let Some(packer) = &self.packer {
            self.volume.note_packed(&self.timeline, packer);
        }
        Ok(())
    }

    /// Commits segments that were filled.
    fn commit_moved(&self, commit: &Commit, moved: &[Arc<Segment>]) -> Result<()> {
        for segment in moved {
            let live = segment.live_entries.load(Ordering::Acquire);
            let end = segment.end.load(Ordering::Acquire);
            commit_segment(commit, segment, live, end, true)?;
            if let Some(slab) = segment.slab {
                commit.put(tables::BASES, (self.volume.id, slab), &segment.number)?;
            }
        }
        Ok(())
    }

    /// Commits by how much the entries of segments change; says which are empty now, and gone.
    fn commit_changes(
        &self,
        commit: &Commit,
        changes: &BTreeMap<u64, i64>,
    ) -> Result<Vec<Arc<Segment>>> {
        let store = &self.volume.core.store;
        let flushed = Seq(self.volume.record.lock().flushed_seq);
        let mut dead: Vec<Arc<Segment>> = Vec::new();
        for (&number, &change) in changes {
            let Some(segment) = store.segment(number) else { continue };
            let left = segment.committed_entries.load(Ordering::Acquire) + change;
            assert!(left >= 0, "segment {number} changes by {change} entries, {left} left");
            let live = segment.live_entries.load(Ordering::Acquire) + change;
            let sealed = segment.sealed.load(Ordering::Acquire);
            let held = segment.held.load(Ordering::Acquire);
            if live == 0 && left == 0 && sealed && !held && segment.last_seq() <= flushed {
                commit.remove(tables::SEGMENTS, number)?;
                commit.remove(tables::SPARES, number)?;
                if let Some(slab) = segment.slab {
                    commit.remove(tables::BASES, (self.volume.id, slab))?;
                }
                dead.push(segment);
            } else {
                let end = segment.end.load(Ordering::Acquire);
                // Writes that are not in the map yet are recovered from segments that are not
                // sealed.
                let sealed = sealed && segment.last_seq() <= flushed;
                commit_segment(commit, &segment, left, end, sealed)?;
            }
        }
        Ok(dead)
    }

    /// Commits how many entries of the volume name blocks that several volumes share, if that
    /// changes.
    fn commit_common(&self, tx: &mut Transaction<'_>, changes: &BTreeMap<u64, i64>) {
        let store = &self.volume.core.store;
        let is_common = |number: &u64| store.segment(*number).is_some_and(|s| s.log == NO_LOG);
        let changed: i64 = changes.iter().filter(|(n, _)| is_common(n)).map(|(_, c)| c).sum();
        if changed != 0 {
            let common = &mut tx.change(&self.volume.record).common;
            *common = common.checked_add_signed(changed).expect("what is released was entered");
        }
    }

    /// Says in the audit log what was encoded.
    fn audit_packs(&self, tx: &mut Transaction<'_>) -> Result<()> {
        let packed = self.packer.as_ref().map(|packer| packer.packed).unwrap_or_default();
        if packed.versions == 0 {
            return Ok(());
        }
        let Packed { versions, bytes, .. } = packed;
        tx.audit("encode", &self.volume.name, format!("{versions} versions in {bytes} bytes"))
    }

    /// By how much the entries of each segment change. Slabs that nothing is in are among them, so
    /// that they go.
    fn changes(&self) -> BTreeMap<u64, i64> {
        let mut changes: BTreeMap<u64, i64> =
            self.released.iter().map(|(&segment, &count)| (segment, -count)).collect();
        for (&segment, &count) in &self.arrived {
            *changes.entry(segment).or_default() += count;
        }
        for slab in self.volume.base().segments() {
            if slab.committed_entries.load(Ordering::Acquire) == 0 {
                changes.entry(slab.number).or_default();
            }
        }
        changes
    }

    fn install(
        &mut self,
        core: &Core,
        run: Option<StoredRun>,
        moved: Vec<Arc<Segment>>,
        changes: &BTreeMap<u64, i64>,
        dead: &[Arc<Segment>],
    ) {
        for segment in &moved {
            let live = segment.live_entries.load(Ordering::Acquire);
            segment.committed_entries.store(live, Ordering::Release);
            core.store.add_segment(Arc::clone(segment));
        }
        for (&number, &change) in changes {
            if let Some(segment) = core.store.segment(number) {
                segment.add_entries(change);
                segment.committed_entries.fetch_add(change, Ordering::AcqRel);
            }
        }
        let base = &self.volume.base();
        dead.iter().filter_map(|segment| segment.slab).for_each(|slab| base.remove(slab));
        moved.iter().filter(|s| s.slab.is_some()).for_each(|s| base.add(Arc::clone(s)));
        let ids: Vec<u64> = self.inputs.iter().map(|r| r.id).collect();
        self.timeline.install_merged(&ids, run.map(Arc::new));
        let has_homes = base.slab_count() > 0 && !changes.is_empty();
        if !moved.is_empty() || !dead.is_empty() || has_homes || !self.arrived.is_empty() {
            // Entries that an earlier merge dropped may still be in pages, and name what goes now.
            let goes = |log: u64| dead.iter().any(|dead| dead.log == log || dead.log == NO_LOG);
            core.forget_pages(|read| read.id == self.timeline.id || goes(read.log));
        }
        if has_homes {
            // Homes that the map no longer names may still be read by those who looked before.
            let readers = core.store.earlier_readers();
            for segment in self.released.keys().filter_map(|&number| core.store.segment(number)) {
                segment.slab.into_iter().for_each(|slab| base.disturb(slab, &readers));
            }
        }
        core.store.retire_segments(dead);
        for input in &self.inputs {
            core.store.retire_extents(&input.extents);
        }
    }
}
