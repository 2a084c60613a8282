//! The merges under way: one that joins a few runs, and beside it a full one, so that look-ups in
//! one volume are not slower for as long as another is reclaimed.
//!
//! Invariant: they are of different volumes. Two of one volume would replace the same runs, or one
//! would free slabs to which the other brings blocks home.

use crate::Result;
use crate::jobs::merge::MergeJob;
use crate::types::Budget;
use crate::volume::Volume;

/// Bytes of a map entry, for budgets.
const ENTRY_BYTES: u64 = 22;
/// A step is of so many entries at least.
const ENTRIES_MIN: u64 = 512;

/// Merges under way.
#[derive(Default)]
pub struct Merges {
    join: Option<MergeJob>,
    full: Option<MergeJob>,
}

impl Merges {
    fn all(&self) -> impl Iterator<Item = &MergeJob> {
        self.join.iter().chain(&self.full)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Whether one is of this volume.
    pub fn is_of(&self, volume: &Volume) -> bool {
        self.all().any(|merge| merge.volume().id == volume.id)
    }

    /// Whether all can wait for clients.
    pub fn can_wait(&self) -> bool {
        self.all().all(MergeJob::can_wait)
    }

    /// The full one.
    pub fn full(&self) -> Option<&MergeJob> {
        self.full.as_ref()
    }

    /// Whether a full one of this volume may begin.
    pub fn takes_full(&self, volume: &Volume) -> bool {
        self.full.is_none() && !self.is_of(volume)
    }

    /// Whether runs of this volume may be joined.
    pub fn takes_join(&self, volume: &Volume) -> bool {
        self.join.is_none() && !self.is_of(volume)
    }

    /// Begins one.
    pub fn begin(&mut self, merge: MergeJob) {
        assert!(!self.is_of(merge.volume()), "one at a time of a volume");
        let slot = if merge.is_full() { &mut self.full } else { &mut self.join };
        assert!(slot.is_none(), "one at a time of a kind");
        *slot = Some(merge);
    }

    /// Drops them: what they were about to free is free at once.
    pub fn clear(&mut self) {
        *self = Merges::default();
    }

    /// Drops them for want of room; a pass over compacted versions is tried again.
    pub fn give_up(&mut self) {
        self.all().for_each(|merge| merge.volume().compaction_queue().fail());
        self.clear();
    }

    /// Does some of each; one that fails is dropped, and keeps the other from nothing. False when
    /// there are none.
    ///
    /// # Errors
    /// Those of the merges.
    pub fn step(&mut self, budget: Budget) -> Result<bool> {
        let (count, is_pressed) = (self.all().count() as u64, !self.can_wait());
        let share = (budget.bytes / ENTRY_BYTES / count.max(1)).max(ENTRIES_MIN);
        let mut failure = None;
        for slot in [&mut self.join, &mut self.full] {
            let Some(merge) = slot else { continue };
            // One that can wait has little of a step that another one cannot wait for.
            let entries = if is_pressed && merge.can_wait() { ENTRIES_MIN } else { share };
            match merge.step(usize::try_from(entries).unwrap_or(usize::MAX)) {
                Ok(false) => continue,
                Ok(true) => merge.volume().reclamation().set_ailing(false),
                Err(error) => {
                    merge.volume().reclamation().set_ailing(true);
                    merge.volume().compaction_queue().fail();
                    failure.get_or_insert(error);
                }
            }
            *slot = None;
        }
        failure.map_or(Ok(count > 0), Err)
    }
}

#[cfg(test)]
mod tests;
