//! The differences between two moments: found from the map, settled by content.
//!
//! Only pages that some entry after the moments' common past touches are looked at; of what a trim
//! over more than a page touches, only pages that ever held data. Blocks with different checksums
//! differ; blocks with the same checksum at different places are read and compared.

use std::collections::BTreeSet;
use std::sync::Arc;

use format::checksum::ZERO_BLOCK_CRC;
use format::map::Key;
use history::{BLOCKS_PER_PAGE, OUTSIDE_SEQ, Slot, Store, Timeline};
use units::{BLOCK_BYTES, Moment, Seq};

use crate::read::snapshot::Opening;
use crate::types::{DiffPage, Range, Wait};
use crate::volume::Volume;
use crate::volume::stream::Stream;
use crate::{Error, Result};

/// Entries that may be looked through to count what a revert changes; beyond, the bound is
/// reported.
const COUNTED_ENTRIES_MAX: u64 = 100_000;

/// Map entries that may be looked through to find what held data under a large trim; beyond, a
/// revert reports the volume's size as the bound.
const HOLDERS_MAX: u64 = 10 * COUNTED_ENTRIES_MAX;

/// How far apart two openings are.
pub(super) struct Apart {
    /// Map entries that tell of it.
    pub(super) entries: u64,
    /// One entry of a large trim changes any number of blocks.
    pub(super) has_nodes: bool,
    /// To look through all of it takes only a moment.
    pub(super) is_quick: bool,
}

impl Apart {
    pub(super) fn of(a: &Opening, b: &Opening) -> Apart {
        let parted = since_parting(a, b);
        let outside = only_one_is_outside(a, b).count() as u64 * BLOCKS_PER_PAGE as u64;
        let entries = parted.iter().map(|(line, after)| line.entries_after(*after)).sum::<u64>();
        let entries = entries + outside;
        let has_nodes = a.size_bytes != b.size_bytes
            || parted.iter().any(|(line, after)| line.has_nodes_after(*after));
        let all = |opening: &Opening| -> u64 {
            opening.timeline.line().map(|line| line.entries_after(Seq::ZERO)).sum()
        };
        let are_few = !has_nodes || all(a) + all(b) <= HOLDERS_MAX;
        Apart { entries, has_nodes, is_quick: entries <= COUNTED_ENTRIES_MAX && are_few }
    }
}

impl Stream {
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
        let Apart { entries, has_nodes, is_quick } = Apart::of(&a, &b);
        if is_quick {
            return Ok((self.changed_bytes(from, to)?, true));
        }
        let size_bytes = a.size_bytes.max(b.size_bytes);
        let written = if has_nodes { size_bytes } else { entries * BLOCK_BYTES };
        Ok((written.min(size_bytes), false))
    }

    /// Blocks that a moment has and the present has no more, and of these those of which it has
    /// other content; `None` if that takes more than a moment.
    pub(crate) fn kept_and_changed(
        &self,
        at: Seq,
        present: &Opening,
    ) -> Result<Option<(u64, u64)>> {
        let moment = self.open_at(at)?;
        if !Apart::of(&moment, present).is_quick {
            return Ok(None);
        }
        let (mut kept, mut changed) = (0, 0);
        each_suspect(&moment, present, 0..u64::MAX, |block, x, y| {
            // Not by place: what was moved meanwhile is the same version.
            if !x.is_hole() && (y.is_hole() || x.seq != y.seq) {
                kept += 1;
                let is_told = !is_untold((&moment, x), (present, y), block);
                changed += u64::from(!is_told || crc_of(x) != crc_of(y));
            }
            Ok(true)
        })?;
        Ok(Some((kept, changed)))
    }
}

impl Volume {
    /// The ranges whose content differs in `length_bytes` from `offset` on, at most `limit` of
    /// them. Nothing beyond is looked at.
    ///
    /// # Errors
    /// Those of resolving; `Corrupt` or `Io`.
    pub fn diff(
        self: &Arc<Self>,
        from: &Moment,
        to: &Moment,
        offset: u64,
        length_bytes: u64,
        limit: usize,
    ) -> Result<DiffPage> {
        let views = (self.view(from)?, self.view(to)?);
        let a = self.open_at(views.0.resolved().seq)?;
        let b = self.open_at(views.1.resolved().seq)?;
        ranges(&a, &b, offset, length_bytes, limit)
    }

    /// The same, from a moment of this volume to one of another: a clone, its origin, or another
    /// clone of that.
    ///
    /// # Errors
    /// Those of [`Volume::diff`]; `Invalid` for volumes that have no past in common.
    pub fn diff_with(
        self: &Arc<Self>,
        from: &Moment,
        (other, to): (&Arc<Volume>, &Moment),
        offset: u64,
        limit: usize,
    ) -> Result<DiffPage> {
        let views = (self.view(from)?, other.view(to)?);
        let a = self.open_at(views.0.resolved().seq)?;
        let b = other.open_at(views.1.resolved().seq)?;
        if a.timeline.root().id != b.timeline.root().id {
            let text = format!("{} and {} have no past in common", self.name, other.name);
            return Err(Error::invalid(text).with_hint(
                "a diff is of moments of one volume, of a clone and its origin, or of clones of \
                 one origin, and not of full clones; others can be compared byte by byte once \
                 they are exported",
            ));
        }
        ranges(&a, &b, offset, u64::MAX - offset, limit)
    }
}

impl Opening {
    /// Whether a moment's last block is this one and only in part its own.
    fn ends_in(&self, block: u64) -> bool {
        !self.size_bytes.is_multiple_of(BLOCK_BYTES) && self.size_bytes / BLOCK_BYTES == block
    }

    /// Looks up blocks; those beyond the end are holes, whatever a shrink has left there.
    pub(super) fn look_up_within(&self, first: u64, slots: &mut [Slot]) -> Result<()> {
        self.look_up(first, slots, Wait::Device)?;
        let end = self.size_bytes.div_ceil(BLOCK_BYTES).saturating_sub(first);
        let end = usize::try_from(end).map_or(slots.len(), |end| end.min(slots.len()));
        slots[end..].fill(Slot { known: true, ..Slot::default() });
        Ok(())
    }

    /// Bytes stored at this moment (holes excluded).
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn stored_bytes(&self) -> Result<u64> {
        let _epoch = self.store.enter();
        let mut keys = BTreeSet::new();
        for line in self.timeline.line() {
            line.touched(&self.store, Seq::ZERO, &mut keys)?;
        }
        // Only pages with single blocks can hold data; larger keys are trims.
        let mut bytes = 0;
        let mut slots = vec![Slot::default(); BLOCKS_PER_PAGE];
        for key in keys.range(..Key { level: 2, index: 0 }) {
            self.look_up_within(key.first_block().0, &mut slots)?;
            bytes += slots.iter().filter(|s| is_stored(s)).count() as u64 * BLOCK_BYTES;
        }
        Ok(bytes)
    }

    /// Ranges of pages (first, end), ascending and apart, outside of which two openings are the
    /// same; `None` when telling would take a look at more than so many map entries.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn pages_apart(
        &self,
        other: &Opening,
        entries_max: u64,
    ) -> Result<Option<Vec<(u64, u64)>>> {
        let _epoch = self.store.enter();
        let parted = since_parting(self, other);
        let entries: u64 = parted.iter().map(|(line, after)| line.entries_after(*after)).sum();
        if entries > entries_max {
            return Ok(None);
        }
        let keys = touched(&self.store, &parted)?;
        let page = |key: &Key| key.first_block().0 / BLOCKS_PER_PAGE as u64;
        let end = |key: &Key| page(key) + key.blocks().div_ceil(BLOCKS_PER_PAGE as u64);
        Ok(Some(joined(keys.iter().map(|key| (page(key), end(key))).collect())))
    }
}

/// The ranges that differ between two openings within `length_bytes` from `offset` on.
fn ranges(
    a: &Opening,
    b: &Opening,
    offset: u64,
    length_bytes: u64,
    limit: usize,
) -> Result<DiffPage> {
    let end = offset.saturating_add(length_bytes).div_ceil(BLOCK_BYTES);
    let mut page = DiffPage::default();
    compare(a, b, offset / BLOCK_BYTES..end, true, |block| {
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

/// Calls `differs` for each differing one of `blocks`, ascending, until it says false. Not by
/// content, those with one checksum are taken to be the same.
pub(super) fn compare(
    a: &Opening,
    b: &Opening,
    blocks: std::ops::Range<u64>,
    by_content: bool,
    mut differs: impl FnMut(u64) -> bool,
) -> Result<()> {
    // A block in which one of them ends need not have been written again for that.
    let least = a.size_bytes.min(b.size_bytes);
    let is_cut = a.size_bytes != b.size_bytes && !least.is_multiple_of(BLOCK_BYTES);
    let cut = is_cut.then_some(least / BLOCK_BYTES);
    each_suspect(a, b, blocks, |block, x, y| {
        if same_place(x, y) && cut != Some(block) {
            return Ok(true);
        }
        let is_untold = is_untold((a, x), (b, y), block);
        let may_be_same = is_untold || crc_of(x) == crc_of(y);
        let same = may_be_same && if by_content { same_bytes(a, b, block)? } else { !is_untold };
        Ok(same || differs(block))
    })
}

/// Whether checksums do not say how a block differs: what is outside has none, and one of a block
/// in which the moment ends may be of more than the moment has.
fn is_untold((a, x): (&Opening, &Slot), (b, y): (&Opening, &Slot), block: u64) -> bool {
    x.is_outside() || y.is_outside() || a.ends_in(block) || b.ends_in(block)
}

/// Calls `visit` for each of `blocks` that may differ, ascending, with what both have there, until
/// it says false.
fn each_suspect(
    a: &Opening,
    b: &Opening,
    blocks: std::ops::Range<u64>,
    mut visit: impl FnMut(u64, &Slot, &Slot) -> Result<bool>,
) -> Result<()> {
    let _epoch = a.store.enter();
    let first = blocks.start;
    let end = a.size_bytes.max(b.size_bytes).div_ceil(BLOCK_BYTES).min(blocks.end);
    let pages = suspects(a, b, first..end)?;
    let mut slots_a = vec![Slot::default(); BLOCKS_PER_PAGE];
    let mut slots_b = vec![Slot::default(); BLOCKS_PER_PAGE];
    for page in pages {
        let start = page * BLOCKS_PER_PAGE as u64;
        a.look_up_within(start, &mut slots_a)?;
        b.look_up_within(start, &mut slots_b)?;
        for (block, (x, y)) in (start..).zip(slots_a.iter().zip(&slots_b)) {
            if (first..end).contains(&block) && !visit(block, x, y)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

pub(super) fn same_place(x: &Slot, y: &Slot) -> bool {
    // A home in a base may have held another version before. Blocks of the file may have been
    // copied between the look-ups. Of clones each has its own seqs, but those of what began as a
    // file are all above the file's.
    let is_original = x.is_outside() || y.is_outside();
    let same = || (is_original || x.location == y.location) && x.seq == y.seq;
    if x.is_hole() || y.is_hole() { x.is_hole() && y.is_hole() } else { same() }
}

pub(super) fn is_stored(slot: &Slot) -> bool {
    !slot.is_hole() && !slot.is_outside()
}

pub(super) fn crc_of(slot: &Slot) -> u32 {
    if slot.is_hole() { ZERO_BLOCK_CRC } else { slot.crc }
}

fn same_bytes(a: &Opening, b: &Opening, block: u64) -> Result<bool> {
    let read = |opening: &Opening| -> Result<Vec<u8>> {
        let start = block * BLOCK_BYTES;
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        let there = opening.size_bytes.saturating_sub(start).min(BLOCK_BYTES) as usize;
        opening.read(start.min(opening.size_bytes), &mut bytes[..there], Wait::Device)?;
        Ok(bytes)
    };
    Ok(read(a)? == read(b)?)
}

/// Pages that may differ between two openings, of those that overlap a range of blocks.
pub(super) fn suspects(
    a: &Opening,
    b: &Opening,
    blocks: std::ops::Range<u64>,
) -> Result<BTreeSet<u64>> {
    let per_page = BLOCKS_PER_PAGE as u64;
    let range = blocks.start / per_page..blocks.end.div_ceil(per_page);
    let mut pages = BTreeSet::new();
    let mut wide = Vec::new();
    for key in touched(&a.store, &since_parting(a, b))? {
        if key.level == 1 {
            pages.extend(range.contains(&key.index).then_some(key.index));
        } else {
            let first = key.first_block().0 / per_page;
            wide.push((first, first + key.blocks() / per_page));
        }
    }
    // Blocks of one beyond the end of the other need not have been touched.
    let ends = [a, b].map(|opening| opening.size_bytes / BLOCK_BYTES / per_page);
    if a.size_bytes != b.size_bytes {
        wide.push((ends[0].min(ends[1]), ends[0].max(ends[1]) + 1));
    }
    pages.extend(only_one_is_outside(a, b).filter(|page| range.contains(page)));
    wide.retain(|&(first, end)| first < range.end && range.start < end);
    let wide = joined(wide);
    if !wide.is_empty() {
        let mut lines = ancestry(a);
        lines.extend(ancestry(b));
        let whole: Vec<_> = lines.into_iter().map(|(line, _)| (line, Seq::ZERO)).collect();
        for key in touched(&a.store, &whole)?.range(..Key { level: 2, index: 0 }) {
            let before = wide.partition_point(|&(first, _)| first <= key.index);
            let is_under = before > 0 && key.index < wide[before - 1].1;
            if is_under && range.contains(&key.index) {
                pages.insert(key.index);
            }
        }
    }
    Ok(pages)
}

/// Ranges in order, those that meet made one.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (first, end) in ranges {
        match joined.last_mut() {
            Some(last) if first <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((first, end)),
        }
    }
    joined
}

/// Pages, and nodes above them, that have entries in these timelines after these seqs.
pub(super) fn touched(store: &Store, lines: &[(Arc<Timeline>, Seq)]) -> Result<BTreeSet<Key>> {
    let mut keys = BTreeSet::new();
    for (timeline, after) in lines {
        timeline.touched(store, *after, &mut keys)?;
    }
    Ok(keys)
}

/// The timelines in which two openings may differ, each with the seq after which they may: that of
/// their common past. After an undo it lies far before both moments.
pub(super) fn since_parting(a: &Opening, b: &Opening) -> Vec<(Arc<Timeline>, Seq)> {
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

/// Pages of a file that one of two openings shows and the other, being before the import, does not.
fn only_one_is_outside(a: &Opening, b: &Opening) -> impl Iterator<Item = u64> + use<> {
    let blocks = |opening: &Opening| {
        let (root, at) = ancestry(opening).pop().expect("a timeline at least");
        root.outside().filter(|_| at >= OUTSIDE_SEQ).map_or(0, |outside| outside.blocks())
    };
    let (a, b) = (blocks(a), blocks(b));
    let pages = if a == b { 0 } else { a.max(b).div_ceil(BLOCKS_PER_PAGE as u64) };
    0..pages
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
