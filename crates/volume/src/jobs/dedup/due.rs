//! When a search is due, and of which timelines.

use std::collections::BTreeMap;
use std::sync::Arc;

use history::{NO_LOG, Timeline};
use units::BLOCK_BYTES;

use super::is_stale;
use super::search::{Member, Search};
use crate::core::Core;
use crate::volume::Volume;
use crate::{ErrorKind, Result};

/// A search is due when this share of the entries is new: 1 in 8 ...
const NEW_SHARE: u64 = 8;
/// ... and at least so many ...
const NEW_MIN: u64 = 1024;
/// ... or any after so long, in nanoseconds.
const PATIENCE_NS: u64 = 600_000_000_000;
/// How often that is looked at, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;
/// How many checksums there are.
const ALL_CRCS: u64 = 1 << 32;

/// How far the searches of a family got since the pool was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Searched {
    /// When the last one began, and what the logs had got by then: blocks in runs, and seqs.
    begun_ns: u64,
    blocks: u64,
    seqs: u64,
    /// Where among the checksums the next one begins.
    next_crc: u32,
    /// How many checksums were looked at since something new was written.
    covered: u64,
    /// Stale segments that were there when the last one began: it did with them what can be done.
    stale: usize,
}

impl Searched {
    /// A search has ended that looked at these checksums.
    pub fn note_done(&mut self, (first, last): (u32, u32)) {
        // After the last checksum comes the first.
        self.next_crc = last.wrapping_add(1);
        self.covered = self.covered.saturating_add(u64::from(last - first) + 1);
    }
}

impl Core {
    /// The logs that others were cloned from.
    fn origins(&self) -> BTreeMap<u64, u64> {
        let timelines = self.timelines.read();
        let log_of = |timeline: u64| timelines.get(&timeline).map(|(record, _)| record.log);
        let origins = timelines.values().filter_map(|(record, _)| {
            // A full clone shares nothing in the end.
            let parent = record.parent.filter(|_| record.source.is_none());
            let origin = log_of(parent?.0)?;
            (origin != record.log).then_some((record.log, origin))
        });
        origins.collect()
    }

    /// Volumes whose blocks are to be stored once, by family: the log that all come from.
    fn families(&self) -> BTreeMap<u64, Vec<Arc<Volume>>> {
        let mut volumes = self.all_volumes();
        volumes.retain(|v| v.record.lock().dedup && !v.reclamation.is_ailing());
        let mut families: BTreeMap<u64, Vec<Arc<Volume>>> = BTreeMap::new();
        if volumes.is_empty() {
            return families;
        }
        let origins = self.origins();
        for volume in volumes {
            let mut root = volume.id;
            while let Some(&origin) = origins.get(&root) {
                assert!(origin < root, "a clone is younger than its origin");
                root = origin;
            }
            families.entry(root).or_default().push(volume);
        }
        families
    }

    /// Begins the search of a family, if one is due.
    pub(super) fn begin_search(self: &Arc<Self>) -> Result<bool> {
        let now = self.machine.clock.wall().as_nanos();
        {
            let mut dedup = self.dedup.lock();
            if now < dedup.look_ns && now.saturating_add(LOOK_NS) >= dedup.look_ns {
                return Ok(false);
            }
            dedup.look_ns = now.saturating_add(LOOK_NS);
        }
        if !self.may_share() {
            return Ok(false);
        }
        for (family, volumes) in self.families() {
            if self.is_due(family, &volumes, now) {
                return self.begin_search_of(family, &volumes, now).map(|()| true);
            }
        }
        Ok(false)
    }

    fn is_due(&self, family: u64, volumes: &[Arc<Volume>], now: u64) -> bool {
        let before = self.dedup.lock().searched.get(&family).copied().unwrap_or_default();
        let (blocks, seqs) = written(volumes);
        let spaces = volumes.iter().map(|volume| self.store.space(volume.id).count());
        let all: u64 = spaces.map(|space| space.entries).sum();
        if blocks.saturating_sub(before.blocks) >= (all / NEW_SHARE).max(NEW_MIN) {
            return true;
        }
        if now < before.begun_ns.saturating_add(PATIENCE_NS) {
            return false;
        }
        if seqs > before.seqs || (before.covered < ALL_CRCS && seqs > 0) {
            return true;
        }
        let stale = self.stale(volumes);
        if let Some(searched) = self.dedup.lock().searched.get_mut(&family) {
            // It is looked again after as long.
            searched.begun_ns = now;
            searched.stale = searched.stale.min(stale);
        }
        stale > before.stale
    }

    fn begin_search_of(&self, family: u64, volumes: &[Arc<Volume>], now: u64) -> Result<()> {
        for volume in volumes {
            match volume.flush_map() {
                // A later search finds the entries that wait in memory.
                Err(e) if e.kind == ErrorKind::Refused || self.store.has_failed() => {
                    return Err(e);
                }
                _ => {}
            }
        }
        let members = volumes.iter().flat_map(members).collect();
        let stale = self.stale(volumes);
        let (blocks, seqs) = written(volumes);
        let mut dedup = self.dedup.lock();
        let searched = dedup.searched.entry(family).or_default();
        let covered = if seqs > searched.seqs { 0 } else { searched.covered };
        let next_crc = searched.next_crc;
        *searched = Searched { begun_ns: now, blocks, seqs, next_crc, covered, stale };
        dedup.family = family;
        dedup.search = Some(Search::new(members, next_crc));
        Ok(())
    }

    /// Stale segments that these volumes have, or share with others.
    fn stale(&self, volumes: &[Arc<Volume>]) -> usize {
        let has_common = volumes.iter().any(|volume| volume.record.lock().common > 0);
        let is_theirs = |log: u64| match log {
            NO_LOG => has_common,
            log => volumes.iter().any(|volume| volume.id == log),
        };
        self.store.segments().iter().filter(|s| is_theirs(s.log) && is_stale(s)).count()
    }
}

fn members(volume: &Arc<Volume>) -> Vec<Member> {
    let timelines = volume.own_timelines().into_iter();
    let member = |timeline: Arc<Timeline>| {
        let left = volume.left_by_packing(timeline.id);
        Member { log: volume.id, left, timeline }
    };
    timelines.map(member).collect()
}

/// The size of the logs of volumes so far: blocks that are in runs, and seqs.
fn written(volumes: &[Arc<Volume>]) -> (u64, u64) {
    let bytes = |volume: &Arc<Volume>| volume.record.lock().flushed_bytes_total;
    let blocks = volumes.iter().map(bytes).sum::<u64>() / BLOCK_BYTES;
    (blocks, volumes.iter().map(|volume| volume.log.stable().0).sum())
}

#[cfg(test)]
mod tests {
    use super::{ALL_CRCS, Searched};

    #[test]
    fn a_circle_of_checksums_is_covered_wherever_it_begins() {
        let mut searched = Searched::default();
        for part in [(0, 99), (100, 0x7fff_ffff), (0x8000_0000, u32::MAX - 1)] {
            assert_eq!(searched.next_crc, part.0);
            searched.note_done(part);
            assert!(searched.covered < ALL_CRCS);
        }
        searched.note_done((u32::MAX, u32::MAX));
        assert_eq!((searched.next_crc, searched.covered), (0, ALL_CRCS));
    }
}
