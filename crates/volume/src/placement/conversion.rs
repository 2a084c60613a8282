//! Changing a volume's architecture while it is served.
//!
//! The rule changes at once, in one commit (`switch_in_gate`). The rest is background work:
//! leavings of the old rule and wants of the new one, found from the state of the volume: slabs of
//! a current store that the present has data for and that are not taken, places that are not
//! trusted, blocks at home in a base that nothing comes home to any more.
//!
//! Invariants
//! 1. A writer in place holds a pen of the store of now when the write gets its seq
//!    (`is_pen_right`): the store changes only while the log's gate is closed.
//! 2. A current store's slabs are recorded, added and taken away under the books: none is lost.
//! 3. A block leaves a base as in cleaning: the map names it in the log before its home is free.

pub mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::map::Key;
use history::{BLOCKS_PER_PAGE, Segment, Slot};
use units::{BLOCK_BYTES, Lba, Seq, Size};

use crate::catalogue::transaction::Transaction;
use crate::catalogue::{ConversionRecord, VolumeRecord, all_of, tables};
use crate::placement::Placement;
use crate::placement::conversion::progress::Conversion;
use crate::placement::current_store::CurrentStore;
use crate::read::snapshot::Opening;
use crate::retention::moments::Moments;
use crate::types::{Architecture, ConversionInfo, Wait};
use crate::{Error, Result};

/// Slabs that one pass takes out of a base at least, room allowing.
const PASS_SLABS_MIN: usize = 64;
/// Of larger bases a pass takes this share, so that a crash does not lose all of the work.
const PASS_SHARE: usize = 8;
/// Slabs of a current store that one step looks at.
const LOOKS_A_STEP: usize = 32;

/// The consequences of a change of architecture once it is committed.
pub struct Switched {
    current: Option<Arc<CurrentStore>>,
    /// No longer the volume's.
    retired: Option<Arc<CurrentStore>>,
    destages: bool,
    restarts: bool,
}

/// The work that remains after a change of architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remains {
    /// Nothing.
    Nothing,
    /// The work that was under way before, if any was.
    AsBefore,
    /// Work of its own.
    Work,
}

impl Placement {
    /// Homes that a merge could not empty.
    pub(crate) fn note_unmovable(&self, count: u64) {
        self.conversion.lock().unmovable += count;
    }

    /// Changes the architecture as part of a commit: the record, the catalogue's slabs, the audit
    /// log. The caller has the gate and the books.
    ///
    /// # Errors
    /// Those of the catalogue.
    pub(crate) fn switch_in_gate(
        &self,
        to: Architecture,
        tx: &mut Transaction<'_>,
    ) -> Result<Option<Switched>> {
        let from = tx.change(&self.record).architecture;
        if from == to {
            return Ok(None);
        }
        let before = self.present().current.clone();
        let (current, retired) = match (before, to.has_current_store()) {
            (Some(current), true) => (Some(current), None),
            (before, false) => (None, before),
            (None, true) => {
                let none = BTreeMap::new();
                let store = Arc::clone(&self.core.store);
                (Some(Arc::new(CurrentStore::new(store, &none, |_| false))), None)
            }
        };
        if retired.is_some() {
            tx.remove_all(tables::SLABS, all_of(self.id))?;
        }
        let detail = format!("from {} to {}", from.name(), to.name());
        tx.audit("convert", &self.name, detail.clone())?;
        let remains = self.remains(from, to);
        let record = tx.change(&self.record);
        record.architecture = to;
        match remains {
            Remains::AsBefore if record.conversion.is_some() => {}
            Remains::Work => {
                let since_ns = self.core.machine.clock.wall().as_nanos();
                record.conversion = Some(ConversionRecord { from, since_ns });
            }
            Remains::AsBefore | Remains::Nothing => {
                record.conversion = None;
                tx.audit("converted", &self.name, detail)?;
            }
        }
        let restarts = remains != Remains::AsBefore;
        Ok(Some(Switched { current, retired, destages: to.destages(), restarts }))
    }

    fn remains(&self, from: Architecture, to: Architecture) -> Remains {
        if from.has_current_store() && to.has_current_store() {
            return Remains::AsBefore;
        }
        if from.has_base() && to.has_base() && !to.destages() {
            return Remains::AsBefore;
        }
        let leaves = from.has_base() || self.base.slab_count() > 0;
        if to.has_current_store() || to.has_base() || leaves {
            return Remains::Work;
        }
        Remains::Nothing
    }

    /// The commit is done: the new rule holds. The caller still has the gate and the books.
    pub(crate) fn switched(&self, switched: &Switched, record: &VolumeRecord) {
        if switched.restarts {
            let is_importing = self.present().root.outside().is_some();
            *self.conversion.lock() = Conversion::of(record, is_importing);
        }
        self.log().set_journal(switched.destages);
        let before = self.present();
        let timeline = Arc::clone(&before.timeline);
        self.set_present(timeline, before.size_bytes, switched.current.clone());
    }

    /// Lets go of what the new architecture does not have. The caller holds neither gate nor books.
    pub(crate) fn end_switch(&self, switched: &Switched) {
        if let Some(retired) = &switched.retired {
            retired.retire();
        }
    }

    /// Another moment became the present, which may have data where the one before had none.
    pub(crate) fn convert_after_revert(&self) {
        let is_importing = self.present().root.outside().is_some();
        let is_under_way = self.record.lock().conversion.is_some() || is_importing;
        if is_under_way && self.present().current.is_some() {
            self.conversion.lock().fill_from = Some(0);
        }
    }

    /// Some pages are in the map now that were outside: slabs are taken for them, and places are
    /// not what is there.
    pub(crate) fn place_copied(&self, pages: &BTreeSet<u64>) {
        let (Some(current), Some(first)) = (&self.present().current, pages.first()) else { return };
        let slab = current.slab_of(first * BLOCKS_PER_PAGE as u64);
        self.conversion.lock().fill_again_from(slab);
        for page in pages {
            let block = page * BLOCKS_PER_PAGE as u64;
            current.displace(block..block + BLOCKS_PER_PAGE as u64);
        }
    }

    /// Whether slabs are still to be taken for what the present has.
    pub(crate) fn wants_slabs(&self) -> bool {
        let is_there = !self.is_gone() && self.present().current.is_some();
        is_there && self.conversion.lock().fill_from.is_some()
    }

    /// Whether what is at home in the base is to leave it.
    fn leaves_base(&self) -> bool {
        let record = self.record.lock();
        !record.architecture.has_base() && !record.deleted
    }

    /// Zones that may be filled with what leaves a base.
    fn zones_to_leave_to(&self) -> u64 {
        let store = &self.core.store;
        let (_, free, reserve) = store.zone_counts();
        // The map is written anew beside them.
        let map = store.map_zone_count() as u64 + 2;
        u64::from(free).saturating_sub(u64::from(reserve) + map)
    }

    /// Whether a reclamation should begin because of the architecture. The caller holds `work`, and
    /// nothing is being reclaimed.
    pub(crate) fn wants_conversion(&self) -> bool {
        let record = self.record.lock();
        let (architecture, is_under_way) = (record.architecture, record.conversion.is_some());
        if record.deleted {
            return false;
        }
        drop(record);
        if architecture.has_base() {
            return is_under_way && !self.conversion.lock().offered;
        }
        if self.base.slab_count() == 0 {
            return false;
        }
        let (left, zones) = (self.base.blocks_at_home(), self.zones_to_leave_to());
        let fits = !self.homes_to_leave().is_empty();
        self.conversion.lock().wants_to_leave(left, zones, fits)
    }

    /// A reclamation begins. The caller holds `work`.
    pub(crate) fn begin_pass(&self) -> Result<()> {
        let is_first = {
            let has_base = self.record.lock().architecture.has_base();
            let tried = (self.base.blocks_at_home(), self.zones_to_leave_to());
            self.conversion.lock().begin_pass(tried, has_base)
        };
        if is_first && self.record.lock().conversion.is_some() {
            // Blocks whose entries wait in memory are offered a home too.
            self.flush_map_if_room()?;
        }
        Ok(())
    }

    /// Slabs of a base that is being left which nothing is in any more.
    pub(crate) fn empty_homes(&self) -> Vec<Arc<Segment>> {
        let mut empty = if self.leaves_base() { self.base.segments() } else { Vec::new() };
        empty.retain(|s| {
            s.live_entries.load(Ordering::Acquire) == 0
                && s.committed_entries.load(Ordering::Acquire) == 0
        });
        empty
    }

    /// Slabs of a base that is being left which the next full merge empties, as many as there is
    /// room for.
    pub(crate) fn homes_to_leave(&self) -> Vec<u64> {
        if !self.leaves_base() {
            return Vec::new();
        }
        let mut slabs = self.base.segments();
        slabs.sort_by_key(|slab| slab.live_bytes());
        let most = PASS_SLABS_MIN.max(slabs.len() / PASS_SHARE);
        let mut room = self.zones_to_leave_to() * self.core.store.zone_bytes / 10 * 9;
        let fits = |slab: &&Arc<Segment>| {
            let left = room.checked_sub(slab.live_bytes());
            room = left.unwrap_or(0);
            left.is_some()
        };
        slabs.iter().take(most).take_while(fits).map(|slab| slab.number).collect()
    }

    /// Takes slabs for what the present has and the current store does not; true when there is more
    /// to do now. The caller holds `work`.
    ///
    /// # Errors
    /// `Refused`, `Corrupt` (of the map) or `Io`.
    pub(crate) fn fill_places(&self) -> Result<bool> {
        let present = self.present();
        let Some(current) = &present.current else { return Ok(false) };
        if self.is_gone() {
            return Ok(false);
        }
        if self.conversion.lock().wants_flush() {
            if !self.flush_map_if_room()? {
                return Ok(false);
            }
            self.conversion.lock().flushed = true;
        }
        for _ in 0..LOOKS_A_STEP {
            let Some(from) = self.conversion.lock().fill_from else { return Ok(false) };
            let next = match self.next_slab(&present, current, from)? {
                None => None,
                Some((slab, false)) => Some(slab + 1),
                Some((slab, true)) if current.has_slab(slab) => Some(slab + 1),
                Some((slab, true)) => {
                    self.grow(current, slab, 1)?;
                    // Without a zone it is tried again.
                    if !current.has_slab(slab) {
                        return Ok(false);
                    }
                    Some(slab + 1)
                }
            };
            self.conversion.lock().filled(from, next);
        }
        Ok(true)
    }

    /// Whether more than an eighth of the pool is free above the reserve: then zones are taken for
    /// what could do without.
    pub(crate) fn has_plenty_of_room(&self) -> bool {
        let store = &self.core.store;
        let (_, free, reserve) = store.zone_counts();
        free > reserve + store.zone_count() / 8
    }

    /// The first slab from `from` on of which the map has entries, and whether the present has data
    /// there.
    fn next_slab(
        &self,
        present: &Opening,
        current: &CurrentStore,
        from: u64,
    ) -> Result<Option<(u64, bool)>> {
        let _epoch = self.core.store.enter();
        let end = present.size_bytes.div_ceil(BLOCK_BYTES);
        let first = first_entry(present, current.blocks_of(from).start)?;
        let Some(block) = first.filter(|&block| block < end) else { return Ok(None) };
        let slab = current.slab_of(block);
        let blocks = block..current.blocks_of(slab).end.min(end);
        Ok(Some((slab, has_data(present, blocks)?)))
    }

    /// Ends a conversion that has nothing left to do. The caller holds `work`; `is_idle` says that
    /// nothing is being merged.
    ///
    /// # Errors
    /// `Refused` or `Io`.
    pub(crate) fn end_conversion(&self, is_idle: bool) -> Result<()> {
        let record = self.record.lock().clone();
        let Some(under_way) = record.conversion else { return Ok(()) };
        if record.deleted || !is_idle || self.reclamation().is_under_way() {
            return Ok(());
        }
        let present = self.present();
        let (rest, is_filled, offered) = {
            let conversion = self.conversion.lock();
            (conversion.rest, conversion.fill_from.is_none(), conversion.offered)
        };
        let is_placed = present.current.as_ref().is_none_or(|c| c.unsettled_blocks() == 0);
        let left = self.base.blocks_at_home();
        let is_at_home = match record.architecture.has_base() {
            true => offered,
            false => self.base.slab_count() == 0 || rest == Some(left),
        };
        if !(is_filled && is_placed && is_at_home) {
            return Ok(());
        }
        let mut tx = self.begin()?;
        let record = tx.change(&self.record);
        // Another change may have come between.
        let is_same = record.architecture.has_current_store() == present.current.is_some();
        if record.conversion != Some(under_way) || !is_same {
            return Ok(());
        }
        record.conversion = None;
        let mut detail =
            format!("from {} to {}", under_way.from.name(), record.architecture.name());
        if !record.architecture.has_base() && left > 0 {
            let bytes = left * BLOCK_BYTES;
            detail = format!("{detail}; {bytes} bytes in the base cannot be read, and stay there");
        }
        tx.audit("converted", &self.name, detail)?;
        tx.commit().map(drop)
    }
}

impl Moments {
    /// Fails unless the architecture can be changed to this one, and makes ready for it. The caller
    /// holds no lock.
    ///
    /// # Errors
    /// `Full` where what is live does not fit a second time; `Refused` or `Io`.
    pub(crate) fn prepare_switch(&self, to: Architecture) -> Result<()> {
        let from = self.record.lock().architecture;
        if from == to {
            return Ok(());
        }
        if to.has_current_store() && !from.has_current_store() {
            self.check_room_in_place(to)?;
        }
        Ok(())
    }

    fn check_room_in_place(&self, to: Architecture) -> Result<()> {
        let live_bytes = self.live_bytes()?;
        let (_, free, reserve) = self.core.store.zone_counts();
        let available = u64::from(free.saturating_sub(reserve)) * self.core.store.zone_bytes;
        if live_bytes <= available {
            return Ok(());
        }
        let text = format!(
            "{} keeps the present in place beside the log: {} more, {} are available",
            to.name(),
            Size(live_bytes),
            Size(available)
        );
        let hint =
            "delete versions, marks or volumes, add space, or take redirect or checkpointing";
        Err(Error::full(text).with_hint(hint))
    }

    /// How far a conversion is.
    ///
    /// # Errors
    /// `Corrupt` or `Io` from counting.
    pub(crate) fn conversion_info(&self, record: &VolumeRecord) -> Result<Option<ConversionInfo>> {
        let Some(under_way) = record.conversion else { return Ok(None) };
        let live_blocks = self.live_bytes()? / BLOCK_BYTES;
        let at_home = self.base.blocks_at_home();
        let present = self.present();
        let mut conversion = self.conversion.lock();
        let mut left = 0;
        if let Some(current) = &present.current {
            let end = present.size_bytes.div_ceil(BLOCK_BYTES);
            let unseen = |slab| end.saturating_sub(current.blocks_of(slab).start).min(live_blocks);
            left += conversion.fill_from.map_or(0, unseen) + current.unsettled_blocks();
        }
        left += match record.architecture.has_base() {
            true => live_blocks.saturating_sub(at_home),
            false => at_home,
        };
        let total = conversion.total_blocks(left);
        Ok(Some(ConversionInfo {
            from: under_way.from,
            to: record.architecture,
            done_bytes: (total - left) * BLOCK_BYTES,
            total_bytes: total * BLOCK_BYTES,
        }))
    }
}

/// The first block from `block` on of which the map of an opening has an entry in a run.
fn first_entry(opening: &Opening, block: u64) -> Result<Option<u64>> {
    let mut first: Option<u64> = None;
    for run in opening.timeline.line().flat_map(|timeline| timeline.runs()) {
        let found = run.with_source(&opening.store, |source| -> history::Result<_> {
            let cursor = run.run.cursor_at(source, Key::block(Lba(block)), Seq::MAX)?;
            Ok(cursor.peek().filter(|entry| entry.key.level == 0).map(|e| e.key.index))
        })?;
        first = first.into_iter().chain(found).min();
    }
    Ok(first)
}

/// Whether some of these blocks are no holes.
fn has_data(opening: &Opening, blocks: std::ops::Range<u64>) -> Result<bool> {
    let mut slots = vec![Slot::default(); BLOCKS_PER_PAGE];
    let mut block = blocks.start;
    while block < blocks.end {
        let count = (blocks.end - block).min(BLOCKS_PER_PAGE as u64);
        let slots = &mut slots[..count as usize];
        opening.look_up(block, slots, Wait::Device)?;
        if slots.iter().any(|slot| !slot.is_hole() && !slot.is_outside()) {
            return Ok(true);
        }
        block += count;
    }
    Ok(false)
}
