//! `verify_invariants`: every structure against every other, and every trusted place against the
//! map. For tests, the simulator and scrub.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::checksum::block_crc;
use history::{Slot, SpaceCount};
use units::BLOCK_BYTES;

use crate::placement::current_store::CurrentStore;
use crate::pool::Engine;
use crate::types::Wait;
use crate::volume::Volume;
use crate::{Error, Result};

/// A trusted place that has something else than the map says.
pub(crate) struct WrongPlace<'c> {
    /// The store that it lies in.
    pub current: &'c CurrentStore,
    /// The block.
    pub block: u64,
    /// The checksum that it should have.
    pub crc: u32,
    /// Where it is on the device.
    pub offset: u64,
}

impl Engine {
    /// Checks that segments, runs and pending entries agree on what is live.
    ///
    /// # Errors
    /// `Corrupt` with what disagrees.
    pub fn verify_invariants(&self) -> Result<()> {
        let _work = self.work.lock();
        let _epoch = self.core.store.enter();
        let store = &self.core.store;
        let mut counted: BTreeMap<u64, i64> = BTreeMap::new();
        let timelines: Vec<_> =
            self.core.timelines.read().values().map(|(_, t)| Arc::clone(t)).collect();
        for timeline in &timelines {
            let runs = timeline.runs();
            if !runs.windows(2).all(|pair| pair[0].order > pair[1].order) {
                return Err(broken(format!("runs of timeline {} out of order", timeline.id)));
            }
            for run in runs {
                let mut blocks = 0;
                run.scan(store, |entry| -> Result<()> {
                    *counted.entry(entry.location.segment()).or_default() += 1;
                    blocks += u64::from(entry.key.level == 0 && !entry.location.is_hole());
                    Ok(())
                })?;
                let figures = self.core.figures.known().get(&run.id).cloned();
                let told = figures.map(|figures| figures.newest + figures.superseded());
                if let Some(told) = told.filter(|&told| told != blocks) {
                    let text = format!("run {} has {blocks} blocks, its figures {told}", run.id);
                    return Err(broken(text));
                }
            }
        }
        for segment in store.segments() {
            let found = counted.remove(&segment.number).unwrap_or(0);
            let expected = segment.committed_entries.load(Ordering::Acquire);
            if found != expected {
                return Err(broken(format!(
                    "segment {}: runs have {found} entries of it, its record says {expected}",
                    segment.number
                )));
            }
        }
        if let Some((segment, count)) = counted.into_iter().next() {
            let text = format!("{count} entries of segment {segment}, which is not there");
            return Err(broken(text));
        }
        for volume in self.registry.all() {
            volume.verify_space()?;
            volume.verify_figures()?;
            volume.cache().verify();
            volume.verify_places()?;
            volume.verify_homes()?;
        }
        Ok(())
    }
}

impl Volume {
    /// Checks the sum of the log's segments against the segments. Nothing is in flight meanwhile.
    fn verify_space(&self) -> Result<()> {
        self.log().with_gate(|_| {
            let segments = self.core.store.segments();
            let own = segments.iter().filter(|segment| segment.log == self.id);
            let expected: SpaceCount = own.map(|segment| segment.space()).sum();
            let found = self.core.store.space(self.id).count();
            if found == expected {
                return Ok(());
            }
            let name = &self.name;
            Err(broken(format!("the sums of {name} are {found:?}, its segments {expected:?}")))
        })
    }

    /// Checks what is told of the present against a count of everything: whatever the runs' figures
    /// take for it contains it, and is it where there is nothing else. (On timelines that were left
    /// what superseded an entry may be gone, so that counting again says less.)
    fn verify_figures(&self) -> Result<()> {
        let present = self.present().timeline.clone();
        if self.is_gone() || present.pending_counts().0 > 0 {
            return Ok(());
        }
        let by_runs = self.counted_by_runs(std::slice::from_ref(&present));
        let (exact, told) = (self.count_all()?.newest_of(present.id), by_runs.newest());
        let differs = if by_runs.is_whole { exact != told } else { told < exact };
        // Where somebody writes meanwhile nothing can be compared.
        if differs && present.pending_counts().0 == 0 {
            let name = &self.name;
            return Err(broken(format!("{name} has {exact} newest blocks, its figures {told}")));
        }
        Ok(())
    }

    /// Checks that whatever the map has in the base is at home there, one version of a block at
    /// most.
    fn verify_homes(&self) -> Result<()> {
        let base = &self.base();
        if base.slab_count() == 0 {
            return Ok(());
        }
        let store = &self.core.store;
        let mut homes = BTreeSet::new();
        for run in self.own_timelines().iter().flat_map(|timeline| timeline.runs()) {
            run.scan(store, |entry| {
                let (segment, key) = (entry.location.segment(), entry.key);
                if store.segment(segment).is_none_or(|s| s.slab.is_none()) {
                    return Ok(());
                }
                let home = base.home_of(key.index, segment);
                if entry.location == home && homes.insert(home) {
                    return Ok(());
                }
                let (name, place) = (&self.name, entry.location);
                Err(broken(format!("{key} of {name} is not alone at home: {place}")))
            })?;
        }
        Ok(())
    }

    /// Checks that what is trusted in place is what the map says.
    fn verify_places(&self) -> Result<()> {
        self.each_wrong_place(&|_, _| true, &mut |place| {
            let mut bytes = vec![0; BLOCK_BYTES as usize];
            let right = |bytes: &[u8]| block_crc(bytes) == place.crc;
            // A device may have lost it since; another copy then still has it.
            if self.core.store.heal_if_known(place.offset, &mut bytes, &right) {
                return Ok(());
            }
            let (block, name) = (place.block, &self.name);
            Err(broken(format!("block {block} of {name} is not what its place has")))
        })
    }

    /// Looks at the trusted places that are wanted, by where they are on the device. Calls `act`
    /// for each that has something else than the map says.
    pub(crate) fn each_wrong_place(
        &self,
        wants: &dyn Fn(u64, u64) -> bool,
        act: &mut dyn FnMut(&WrongPlace<'_>) -> Result<()>,
    ) -> Result<()> {
        let present = self.present();
        let Some(current) = &present.current else { return Ok(()) };
        let end = present.size_bytes.div_ceil(BLOCK_BYTES);
        for range in current.trusted(wants) {
            let blocks = range.start..range.end.min(end);
            let noted = current.note(range);
            let count = usize::try_from(blocks.end.saturating_sub(blocks.start)).expect("few");
            let mut slots = vec![Slot::default(); count];
            present.look_up(blocks.start, &mut slots, Wait::Device)?;
            let there = |slot: &Slot| !slot.is_hole() && !slot.is_outside();
            for (block, slot) in blocks.zip(&slots).filter(|(_, slot)| there(slot)) {
                let (Some(offset), _) = current.look_up(&noted, block, 1) else { continue };
                let mut bytes = vec![0; BLOCK_BYTES as usize];
                self.core.store.device.read_at(offset, &mut bytes)?;
                // A pen that was taken since is for something that is about to be in the map.
                if block_crc(&bytes) != slot.crc && current.is_unchanged(&noted, block) {
                    act(&WrongPlace { current, block, crc: slot.crc, offset })?;
                }
            }
        }
        Ok(())
    }
}

fn broken(text: String) -> Error {
    Error::corrupt(text)
}
