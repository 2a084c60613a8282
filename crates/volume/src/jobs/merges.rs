//! Compaction: the merges under way. One joins a few runs (minor), and beside it a full one
//! (major) goes on, so that look-ups in one volume are not slower for as long as another is
//! reclaimed.
//!
//! Invariants
//! 1. They are of different volumes. Two of one volume would replace the same runs, or one would
//!    free slabs to which the other brings blocks home.
//! 2. Volumes have their turns in a circle: one that wants to be merged again and again keeps no
//!    other from it.

use std::cmp::Reverse;
use std::sync::Arc;

use history::Store;

use crate::Result;
use crate::jobs::job::{Job, Left, Turn};
use crate::jobs::merge::MergeJob;
use crate::jobs::parts::{Merging, Parts};
use crate::jobs::purge::unneeded_ghost;
use crate::jobs::reclaim::next_reclaim;
use crate::volume::Volume;

/// The name of the job.
pub const COMPACTION: &str = "compaction";
/// Bytes of a map entry, for budgets.
const ENTRY_BYTES: u64 = 22;
/// A step is of so many entries at least.
const ENTRIES_MIN: u64 = 512;
/// Room is short with fewer free zones than this share of all, beyond the reserve: 1 in 8.
pub const FREE_SHARE: u32 = 8;

/// Whether room is so short that nothing waits which may make some.
pub fn is_room_short(store: &Store) -> bool {
    let (_, free, reserve) = store.zone_counts();
    store.is_device_full() || free <= reserve + store.zone_count() / FREE_SHARE
}

/// Merges under way.
#[derive(Default)]
pub struct Merges {
    join: Slot,
    full: Slot,
}

/// A merge under way, and the volume that had the last one.
#[derive(Default)]
struct Slot {
    merge: Option<MergeJob>,
    /// Its volume was deleted when it began.
    is_of_gone: bool,
    last: u64,
}

impl Slot {
    fn volume(&self) -> Option<u64> {
        self.merge.as_ref().map(|merge| merge.volume.id)
    }

    /// Puts volumes in the order of their turns: the one after the last first. Those with damage
    /// come last; passes under way come to their end before others begin.
    fn put_in_turn(&self, volumes: &mut [Arc<Volume>], is_under_way: impl Fn(&Volume) -> bool) {
        volumes.sort_by_cached_key(|volume| {
            let goes_on = Reverse(is_under_way(volume));
            (volume.reclamation().is_ailing(), goes_on, volume.id <= self.last, volume.id)
        });
    }

    fn begin(&mut self, merge: MergeJob) {
        self.last = merge.volume.id;
        self.is_of_gone = merge.volume.is_gone();
        self.merge = Some(merge);
    }

    /// Whether its volume was deleted since it began: it may bring blocks to where none are any
    /// more.
    fn is_stale(&self) -> bool {
        self.merge.as_ref().is_some_and(|merge| merge.volume.is_gone() != self.is_of_gone)
    }
}

impl Merges {
    fn merging(&self, is_busy: bool) -> Merging {
        Merging { join: self.join.volume(), full: self.full.volume(), is_busy }
    }

    fn all(&self) -> impl Iterator<Item = &MergeJob> {
        self.join.merge.iter().chain(&self.full.merge)
    }

    /// Begins the merges that are wanted. The full one is asked for first: a volume whose runs are
    /// joined again and again would never have one otherwise.
    fn begin(&mut self, parts: &Parts, turn: &mut Turn) -> Result<()> {
        // Two take more room than one.
        if self.all().next().is_some() && is_room_short(&parts.core.store) {
            return Ok(());
        }
        let mut volumes = parts.registry.all();
        if self.full.merge.is_none() {
            self.full.put_in_turn(&mut volumes, |volume| volume.reclamation().is_under_way());
            for volume in volumes.iter().filter(|volume| self.join.volume() != Some(volume.id)) {
                if let Some(merge) = turn.spare(volume, next_reclaim(parts, volume))? {
                    self.full.begin(merge);
                    break;
                }
            }
        }
        if self.join.merge.is_none() {
            self.join.put_in_turn(&mut volumes, |_| false);
            for volume in volumes.iter().filter(|volume| self.full.volume() != Some(volume.id)) {
                if let Some(merge) = turn.spare(volume, volume.wanted_join())? {
                    self.join.begin(merge);
                    break;
                }
            }
        }
        Ok(())
    }

    /// The share of the time that the full one may have.
    fn left_of_full(&self, now_ns: u64) -> Left {
        let Some(merge) = &self.full.merge else { return Left::NOTHING };
        let waits = merge.volume.reclamation().waits(now_ns).filter(|_| merge.can_wait());
        waits.map_or(Left::NOW, |(since_ns, allowed_ns)| Left::waiting(since_ns, allowed_ns))
    }
}

impl Job for Merges {
    fn name(&self) -> &'static str {
        COMPACTION
    }

    /// Does some of each merge; one that fails is dropped, and keeps the other from nothing.
    fn step(&mut self, parts: &Parts, turn: &mut Turn) -> Result<Left> {
        // Deleted volumes are removed between merges only: one may be of them.
        let is_stale = self.join.is_stale() || self.full.is_stale();
        if is_stale || parts.may_purge(turn.now_ns) && unneeded_ghost(parts).is_some() {
            self.give_up(parts);
            return Ok(Left::NOTHING);
        }
        self.begin(parts, turn)?;
        let left_of_full = self.left_of_full(turn.now_ns);
        let left = Left::NOW.when(self.join.merge.is_some()).and(left_of_full);
        let count = self.all().count() as u64;
        let share = (turn.bytes / ENTRY_BYTES / count.max(1)).max(ENTRIES_MIN);
        let mut failures = 0;
        for (slot, own) in [(&mut self.join, Left::NOW), (&mut self.full, left_of_full)] {
            let Some(merge) = &mut slot.merge else { continue };
            // One that can wait has little of a step that another one cannot wait for.
            let entries = if own == left { share } else { ENTRIES_MIN };
            match merge.step(usize::try_from(entries).unwrap_or(usize::MAX)) {
                Ok(false) => continue,
                Ok(true) => merge.volume.reclamation().set_ailing(false),
                Err(error) => {
                    merge.volume.reclamation().set_ailing(true);
                    merge.volume.compaction_queue().fail();
                    if parts.core.store.has_failed() {
                        return Err(error);
                    }
                    turn.failure.get_or_insert(error);
                    failures += 1;
                }
            }
            slot.merge = None;
        }
        if count == 0 {
            // A pass that found nothing to merge is over as well.
            for volume in parts.registry.all() {
                turn.spare(&volume, volume.end_conversion(true))?;
            }
        }
        *parts.merging.lock() = self.merging(count > 0);
        Ok(left.when(failures < count))
    }

    /// A pass is made again: of what it was for nothing is done before it is.
    fn give_up(&mut self, parts: &Parts) {
        self.all().for_each(|merge| merge.volume.compaction_queue().fail());
        if let Some(merge) = &self.full.merge {
            merge.volume.reclamation().want_again();
        }
        (self.join.merge, self.full.merge) = (None, None);
        *parts.merging.lock() = self.merging(true);
    }
}

#[cfg(test)]
mod tests;
