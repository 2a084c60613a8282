//! What differs between two moments: found from the map, settled by content.
//!
//! Only pages that some entry after the moments' common past touches are looked at. Blocks with
//! different checksums differ; blocks with the same checksum at different places are read and
//! compared.

use std::collections::BTreeSet;
use std::sync::Arc;

use format::checksum::ZERO_BLOCK_CRC;
use format::map::Key;
use history::{BLOCKS_PER_PAGE, Slot, Timeline};
use units::{BLOCK_BYTES, Moment, Seq};

use crate::Result;
use crate::opening::{Opening, Patience};
use crate::types::{DiffPage, Range};
use crate::volume::Volume;

/// Entries that may be looked through to count what a revert changes; beyond, the bound is
/// reported.
const COUNTED_ENTRIES_MAX: u64 = 100_000;

/// Pages and larger ranges that may differ between two openings.
struct Suspects {
    keys: BTreeSet<Key>,
}

impl Volume {
    /// The ranges whose content differs, from `offset` on, at most `limit` of them.
    ///
    /// # Errors
    /// Those of resolving; `Corrupt` or `Io`.
    pub fn diff(
        self: &Arc<Self>,
        from: &Moment,
        to: &Moment,
        offset: u64,
        limit: usize,
    ) -> Result<DiffPage> {
        self.diff_within(from, to, offset, u64::MAX - offset, limit)
    }

    /// The same for `length_bytes` from `offset` on: what lies beyond is not looked at.
    ///
    /// # Errors
    /// Those of [`Volume::diff`].
    pub fn diff_within(
        self: &Arc<Self>,
        from: &Moment,
        to: &Moment,
        offset: u64,
        length_bytes: u64,
        limit: usize,
    ) -> Result<DiffPage> {
        let end = offset.saturating_add(length_bytes).div_ceil(BLOCK_BYTES);
        let from = self.view(from)?;
        let to = self.view(to)?;
        let a = self.open_at(from.resolved().seq)?;
        let b = self.open_at(to.resolved().seq)?;
        let mut page = DiffPage::default();
        compare(&a, &b, offset / BLOCK_BYTES..end, true, |block| {
            let start = block * BLOCK_BYTES;
            let end = (start + BLOCK_BYTES).min(a.size_bytes.max(b.size_bytes));
            let full = page.ranges.len() >= limit;
            match page.ranges.last_mut() {
                Some(open) if open.offset + open.length_bytes == start => {
                    open.length_bytes = end - open.offset;
                }
                _ if full => {
                    page.next_offset = Some(start);
                    return false;
                }
                _ => page.ranges.push(Range { offset: start, length_bytes: end - start }),
            }
            true
        })?;
        Ok(page)
    }

    /// Bytes (in whole blocks) that differ between two seqs, told by the map alone.
    pub(crate) fn changed_bytes(&self, from: Seq, to: Seq) -> Result<u64> {
        let (a, b) = (self.open_at(from)?, self.open_at(to)?);
        let mut bytes = 0;
        compare(&a, &b, 0..u64::MAX, false, |_| {
            bytes += BLOCK_BYTES;
            true
        })?;
        Ok(bytes)
    }

    /// The same if that takes only a moment; else how much was written in between.
    pub(crate) fn changed_bytes_bounded(&self, from: Seq, to: Seq) -> Result<(u64, bool)> {
        let (a, b) = (self.open_at(from)?, self.open_at(to)?);
        let entries: u64 =
            since_parting(&a, &b).iter().map(|(line, after)| line.entries_after(*after)).sum();
        if entries <= COUNTED_ENTRIES_MAX {
            return Ok((self.changed_bytes(from, to)?, true));
        }
        let size_bytes = a.size_bytes.max(b.size_bytes);
        Ok(((entries * BLOCK_BYTES).min(size_bytes), false))
    }
}

impl Opening {
    /// Bytes stored at this moment (holes excluded).
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn stored_bytes(&self) -> Result<u64> {
        let _epoch = self.store.enter();
        let mut keys = BTreeSet::new();
        let mut timeline = Some(Arc::clone(&self.timeline));
        while let Some(line) = timeline {
            line.touched(&self.store, Seq::ZERO, &mut keys)?;
            timeline = line.parent.as_ref().map(|p| Arc::clone(&p.timeline));
        }
        // Only pages with single blocks can hold data; larger keys are trims.
        let mut bytes = 0;
        let mut slots = vec![Slot::default(); BLOCKS_PER_PAGE];
        for key in keys.range(..Key { level: 2, index: 0 }) {
            self.look_up(key.first_block().0, &mut slots, Patience::Full)?;
            bytes += slots.iter().filter(|s| !s.is_hole()).count() as u64 * BLOCK_BYTES;
        }
        Ok(bytes)
    }
}

/// Calls `differs` for each differing one of `blocks`, ascending, until it says false.
fn compare(
    a: &Opening,
    b: &Opening,
    blocks: std::ops::Range<u64>,
    by_content: bool,
    mut differs: impl FnMut(u64) -> bool,
) -> Result<()> {
    let _epoch = a.store.enter();
    let suspects = Suspects::between(a, b)?;
    let first = blocks.start;
    let end = a.size_bytes.max(b.size_bytes).div_ceil(BLOCK_BYTES).min(blocks.end);
    let mut slots_a = vec![Slot::default(); BLOCKS_PER_PAGE];
    let mut slots_b = vec![Slot::default(); BLOCKS_PER_PAGE];
    for page in suspects.pages(first / BLOCKS_PER_PAGE as u64, end) {
        let start = page * BLOCKS_PER_PAGE as u64;
        a.look_up(start, &mut slots_a, Patience::Full)?;
        b.look_up(start, &mut slots_b, Patience::Full)?;
        for (i, (x, y)) in slots_a.iter().zip(&slots_b).enumerate() {
            let block = start + i as u64;
            if block < first || block >= end || same_place(x, y) {
                continue;
            }
            let same =
                if crc_of(x) != crc_of(y) { false } else { by_content && same_bytes(a, b, block)? };
            if !same && !differs(block) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn same_place(x: &Slot, y: &Slot) -> bool {
    if x.is_hole() || y.is_hole() { x.is_hole() && y.is_hole() } else { x.location == y.location }
}

fn crc_of(slot: &Slot) -> u32 {
    if slot.is_hole() { ZERO_BLOCK_CRC } else { slot.crc }
}

fn same_bytes(a: &Opening, b: &Opening, block: u64) -> Result<bool> {
    let read = |opening: &Opening| -> Result<Vec<u8>> {
        let start = block * BLOCK_BYTES;
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        let there = opening.size_bytes.saturating_sub(start).min(BLOCK_BYTES) as usize;
        opening.read(start.min(opening.size_bytes), &mut bytes[..there], Patience::Full)?;
        Ok(bytes)
    };
    Ok(read(a)? == read(b)?)
}

impl Suspects {
    fn between(a: &Opening, b: &Opening) -> Result<Suspects> {
        let mut keys = BTreeSet::new();
        for (timeline, after) in since_parting(a, b) {
            timeline.touched(&a.store, after, &mut keys)?;
        }
        Ok(Suspects { keys })
    }

    /// Pages from `first` on that end before block `end`, ascending, each once.
    fn pages(&self, first: u64, end: u64) -> impl Iterator<Item = u64> {
        let last = end.div_ceil(BLOCKS_PER_PAGE as u64);
        let mut ranges: Vec<(u64, u64)> = self
            .keys
            .iter()
            .map(|key| {
                let page = key.first_block().0 / BLOCKS_PER_PAGE as u64;
                (page.max(first), (page + key.blocks().div_ceil(BLOCKS_PER_PAGE as u64)).min(last))
            })
            .filter(|(from, to)| from < to)
            .collect();
        ranges.sort_unstable();
        let mut next = 0;
        ranges.into_iter().flat_map(move |(from, to)| {
            let from = from.max(next);
            next = next.max(to);
            from..to
        })
    }
}

/// The timelines in which two openings may differ, each with the seq after which they may: that of
/// their common past. After an undo it lies far before both moments.
fn since_parting(a: &Opening, b: &Opening) -> Vec<(Arc<Timeline>, Seq)> {
    let (line_a, line_b) = (ancestry(a), ancestry(b));
    let mut parted = Vec::new();
    for (timeline, limit) in &line_a {
        let common = line_b.iter().find(|(t, _)| t.id == timeline.id);
        let after = common.map_or(Seq::ZERO, |(_, theirs)| (*limit).min(*theirs));
        parted.push((Arc::clone(timeline), after));
        if common.is_some() {
            break;
        }
    }
    let only_b =
        line_b.iter().take_while(|(t, _)| !line_a.iter().any(|(known, _)| known.id == t.id));
    parted.extend(only_b.map(|(timeline, _)| (Arc::clone(timeline), Seq::ZERO)));
    parted
}

/// The timelines an opening sees, nearest first, each with the last seq seen of it.
fn ancestry(opening: &Opening) -> Vec<(Arc<Timeline>, Seq)> {
    let mut line = vec![(Arc::clone(&opening.timeline), opening.at)];
    while let Some(branch) = line.last().and_then(|(timeline, _)| timeline.parent.clone()) {
        let limit = line.last().map_or(branch.seq, |(_, at)| branch.seq.min(*at));
        line.push((branch.timeline, limit));
    }
    line
}
