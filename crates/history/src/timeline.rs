//! A timeline's map: pending entries over runs over the parent's past.
//!
//! Invariants
//! 1. Entries move from active to frozen to a run and are at every instant in at least one of them.
//! 2. `frozen` is oldest first, `runs` newest first; runs are immutable.
//! 3. A look-up that finds nothing here goes to the parent, at the seq where this timeline branched
//!    off; without a parent, to the file outside if there is one.
//!
//! Deliberately unaware of page tables, retention and volumes.

use std::collections::BTreeSet;
use std::sync::Arc;

use env::{Rank, RankedMutex, RankedRwLock};
use format::map::{Entry, Key};
use units::{MapExtent, Seq};

use crate::Result;
use crate::newest::{Newest, Place};
use crate::outside::{OUTSIDE_SEQ, Outside};
use crate::pending::Pending;
use crate::slot::{BLOCKS_PER_PAGE, Slot};
use crate::store::Store;
use crate::stored_run::StoredRun;

/// Where a timeline branched off.
#[derive(Clone)]
pub struct Branch {
    /// The parent.
    pub timeline: Arc<Timeline>,
    /// The last seq of the parent that is seen from here.
    pub seq: Seq,
}

/// One line of a volume's tree of pasts.
pub struct Timeline {
    /// Its number, unique for ever in the pool.
    pub id: u64,
    /// The log its writes are in.
    pub log: u64,
    /// The unit in which its map keeps entries: its volume's.
    pub extent: MapExtent,
    /// Where it came from.
    pub parent: Option<Branch>,
    /// The file that has what is not here; only of a timeline without a parent.
    outside: RankedRwLock<Option<Arc<dyn Outside>>>,
    state: RankedRwLock<State>,
    /// Locked before `state`.
    newest: RankedMutex<Newest>,
}

struct State {
    active: Arc<RankedMutex<Pending>>,
    frozen: Vec<Arc<Pending>>,
    runs: Vec<Arc<StoredRun>>,
}

fn no_pending() -> Arc<RankedMutex<Pending>> {
    Arc::new(RankedMutex::new(Rank::Pending, Pending::default()))
}

impl Timeline {
    /// A timeline with these runs, newest first, whose writes are in a log.
    pub fn new(
        id: u64,
        (log, extent): (u64, MapExtent),
        parent: Option<Branch>,
        runs: Vec<Arc<StoredRun>>,
    ) -> Timeline {
        let (active, frozen) = (no_pending(), Vec::new());
        let state = RankedRwLock::new(Rank::Timeline, State { active, frozen, runs });
        let outside = RankedRwLock::new(Rank::Outside, None);
        let newest = RankedMutex::new(Rank::Newest, Newest::default());
        Timeline { id, log, extent, parent, outside, state, newest }
    }

    /// It and its ancestors, itself first.
    pub fn line(&self) -> impl Iterator<Item = &Timeline> {
        std::iter::successors(Some(self), |line| Some(&*line.parent.as_ref()?.timeline))
    }

    /// The timeline at the end of the line of parents.
    pub fn root(self: &Arc<Timeline>) -> Arc<Timeline> {
        let mut line = self;
        while let Some(branch) = &line.parent {
            line = &branch.timeline;
        }
        Arc::clone(line)
    }

    /// The file that has what is not here.
    pub fn outside(&self) -> Option<Arc<dyn Outside>> {
        self.outside.read().clone()
    }

    /// Hangs a file at this timeline, or lets it go. The caller that lets it go drops all pages
    /// afterwards.
    pub fn set_outside(&self, outside: Option<Arc<dyn Outside>>) {
        assert!(self.parent.is_none(), "a file is the state before all others");
        *self.outside.write() = outside;
    }

    /// Adds entries of one batch.
    pub fn insert(&self, entries: &[Entry]) {
        let state = self.state.read();
        let mut active = state.active.lock();
        for &entry in entries {
            active.push(entry);
        }
    }

    /// Number of entries not yet in runs, and of those that are trims over whole pages.
    pub fn pending_counts(&self) -> (usize, usize) {
        let state = self.state.read();
        let active = state.active.lock();
        let frozen: usize = state.frozen.iter().map(|p| p.len()).sum();
        (active.len() + frozen, active.nodes().len())
    }

    /// Blocks with data that the entries not yet in runs leave as the newest. Blocks that are added
    /// meanwhile may not be counted.
    pub fn pending_newest(&self) -> u64 {
        let mut newest = self.newest.lock();
        let mut left = self.pending_counts().0;
        let mut chunk = Vec::new();
        while left > 0 {
            let nodes = self.look_on(&mut newest, &mut chunk);
            if chunk.is_empty() && nodes.is_empty() {
                break;
            }
            newest.add(&chunk, &nodes);
            left = left.saturating_sub(chunk.len() + nodes.len());
        }
        newest.blocks()
    }

    /// Copies pending entries that come next, and tells the trims over whole pages among them.
    fn look_on(&self, newest: &mut Newest, chunk: &mut Vec<Entry>) -> Vec<Entry> {
        chunk.clear();
        let place = &mut newest.place;
        let state = self.state.read();
        while let Some(part) = state.frozen.get(place.part) {
            let nodes = place.take_next(part, chunk);
            if !chunk.is_empty() || !nodes.is_empty() {
                return nodes;
            }
            // Parts are frozen in their order: what was active is the one after them.
            *place = Place { part: place.part + 1, ..Place::default() };
        }
        let active = state.active.lock();
        place.take_next(&active, chunk)
    }

    /// Whether there is nothing of its own in it: then a look-up may skip it.
    pub fn is_empty(&self) -> bool {
        let state = self.state.read();
        state.runs.is_empty() && state.frozen.is_empty() && state.active.lock().is_empty()
    }

    /// Freezes what is active; call with the log's gate closed so that no batch is split.
    pub fn freeze(&self) {
        let mut state = self.state.write();
        if state.active.lock().is_empty() {
            return;
        }
        let active = std::mem::replace(&mut state.active, no_pending());
        // Page loads copy the handle out; wait-free take is not possible while one is looking.
        let pending = match Arc::try_unwrap(active) {
            Ok(mutex) => mutex.into_inner(),
            Err(shared) => std::mem::take(&mut *shared.lock()),
        };
        state.frozen.push(Arc::new(pending));
    }

    /// The frozen entries, oldest first.
    pub fn frozen(&self) -> Vec<Arc<Pending>> {
        self.state.read().frozen.clone()
    }

    /// A copy of everything that is not in runs, in any order.
    pub fn pending_entries(&self) -> Vec<Entry> {
        let state = self.state.read();
        let mut all: Vec<Entry> = state.frozen.iter().flat_map(|part| part.sorted()).collect();
        all.extend(state.active.lock().sorted());
        all
    }

    /// Runs, newest first.
    pub fn runs(&self) -> Vec<Arc<StoredRun>> {
        self.state.read().runs.clone()
    }

    /// Replaces the oldest `flushed` frozen parts by a run that holds their entries (or by nothing,
    /// when none of them was needed).
    pub fn install_flushed(&self, flushed: usize, run: Option<Arc<StoredRun>>) {
        // The rest is counted anew: it came during one flush.
        let mut newest = self.newest.lock();
        let mut state = self.state.write();
        *newest = Newest::default();
        state.frozen.drain(..flushed);
        if let Some(run) = run {
            let first = state.runs.first();
            assert!(first.is_none_or(|first| first.order < run.order), "above all others");
            state.runs.insert(0, run);
        }
    }

    /// Replaces merged runs by their successor, in their place.
    pub fn install_merged(&self, merged: &[u64], successor: Option<Arc<StoredRun>>) {
        let mut state = self.state.write();
        let place = state
            .runs
            .iter()
            .position(|r| merged.contains(&r.id))
            .expect("merged runs stay until replaced");
        let there = state.runs[place..].iter().take_while(|r| merged.contains(&r.id)).count();
        assert_eq!(there, merged.len(), "merged runs are neighbours, each there once");
        state.runs.drain(place..place + there);
        if let Some(run) = successor {
            state.runs.insert(place, run);
        }
    }

    /// Adds a run of what was copied from outside, below all others.
    pub fn install_oldest(&self, run: Arc<StoredRun>) {
        let mut state = self.state.write();
        assert!(state.runs.last().is_none_or(|last| last.order > run.order), "below all others");
        state.runs.push(run);
    }

    /// Finds the 512 blocks of a page as of `at`, through all ancestors.
    ///
    /// # Errors
    /// `Corrupt` or the device's, from runs.
    pub fn load_page(
        &self,
        store: &Store,
        page: u64,
        at: Seq,
        slots: &mut [Slot; BLOCKS_PER_PAGE],
    ) -> Result<()> {
        let mut limit = at;
        let mut timeline = self;
        loop {
            // Before the map: what is copied meanwhile may be looked for in the file, but nothing
            // that the file no longer has to answer for may be taken for a hole.
            let outside = timeline.outside.read().as_ref().map(|outside| outside.blocks());
            timeline.fill_own(store, page, limit, slots)?;
            let Some(branch) = &timeline.parent else {
                fill_outside(outside.filter(|_| limit >= OUTSIDE_SEQ), page, slots);
                return Ok(());
            };
            if slots.iter().all(|s| s.known) {
                return Ok(());
            }
            limit = limit.min(branch.seq);
            timeline = &branch.timeline;
        }
    }

    fn fill_own(
        &self,
        store: &Store,
        page: u64,
        at: Seq,
        slots: &mut [Slot; BLOCKS_PER_PAGE],
    ) -> Result<()> {
        let (frozen, runs) = {
            let state = self.state.read();
            state.active.lock().fill_page(page, at, slots);
            (state.frozen.clone(), state.runs.clone())
        };
        for pending in frozen.iter().rev() {
            pending.fill_page(page, at, slots);
        }
        for run in &runs {
            // Runs are seq-ordered: what a newer one knows, an older one cannot better.
            if slots.iter().all(|s| s.known) {
                break;
            }
            run.fill_page(store, page, at, slots)?;
        }
        Ok(())
    }

    /// Adds the versions of a block on this timeline that have this checksum, the newest first and
    /// at most `limit` in all. Of runs that cannot be read there are none.
    pub fn alike(&self, store: &Store, like: (u64, u32), limit: usize, out: &mut Vec<Entry>) {
        let key = Key { level: 0, index: like.0 };
        let is_alike = |e: &&Entry| e.key == key && e.crc == like.1 && !e.location.is_hole();
        let runs = {
            let state = self.state.read();
            // Not copied: this is asked for each of many blocks when a device loses many.
            let mut take = |part: &Pending| {
                let left = limit.saturating_sub(out.len());
                out.extend(part.block_entries().iter().rev().filter(is_alike).take(left));
            };
            take(&state.active.lock());
            state.frozen.iter().rev().for_each(|part| take(part));
            state.runs.clone()
        };
        for run in runs {
            if out.len() >= limit {
                return;
            }
            let _ = run.alike(store, like, limit, out);
        }
    }

    /// How many entries parts of this timeline have that may lie above `after`: an upper bound,
    /// cheap.
    pub fn entries_after(&self, after: Seq) -> u64 {
        let state = self.state.read();
        let runs = state.runs.iter().filter(|r| r.footer().seq_last > after);
        let frozen = state.frozen.iter().filter(|p| p.last_seq() > after);
        let active = state.active.lock();
        let active = if active.last_seq() > after { active.len() } else { 0 };
        runs.map(|r| r.footer().entries).sum::<u64>()
            + (frozen.map(|p| p.len()).sum::<usize>() + active) as u64
    }

    /// Whether parts of this timeline that may lie above `after` hold trims over whole pages: such
    /// an entry changes more than a block.
    pub fn has_nodes_after(&self, after: Seq) -> bool {
        let state = self.state.read();
        let active = state.active.lock();
        state.runs.iter().any(|r| r.footer().seq_last > after && r.footer().key_last.level > 0)
            || state.frozen.iter().any(|p| p.last_seq() > after && !p.nodes().is_empty())
            || (active.last_seq() > after && !active.nodes().is_empty())
    }

    /// Keys (pages, and nodes above them) that have entries of this timeline in `after < seq <=
    /// until`, or more: a superset, for diffs.
    ///
    /// # Errors
    /// `Corrupt` or the device's, from runs.
    pub fn touched(&self, store: &Store, after: Seq, out: &mut BTreeSet<Key>) -> Result<()> {
        let (frozen, runs) = {
            let state = self.state.read();
            state.active.lock().touched(after, |key| {
                out.insert(key);
            });
            (state.frozen.clone(), state.runs.clone())
        };
        for pending in frozen {
            pending.touched(after, |key| {
                out.insert(key);
            });
        }
        for run in runs {
            if run.footer().seq_last > after {
                run.touched(store, after, out)?;
            }
        }
        Ok(())
    }
}

/// Blocks without an entry are in the file, as far as it reaches.
fn fill_outside(blocks: Option<u64>, page: u64, slots: &mut [Slot; BLOCKS_PER_PAGE]) {
    let Some(blocks) = blocks else { return };
    let there = blocks.saturating_sub(page.saturating_mul(BLOCKS_PER_PAGE as u64));
    let there = usize::try_from(there).map_or(BLOCKS_PER_PAGE, |n| n.min(BLOCKS_PER_PAGE));
    slots[..there].iter_mut().filter(|s| !s.known).for_each(|slot| *slot = Slot::OUTSIDE);
}
