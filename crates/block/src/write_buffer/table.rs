//! Which slot has which piece, and how it stands. What the media lack is in the shared words; this
//! is what a process knows of it, and can do without.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use env::{GRAIN_BYTES, MAP_WORDS, PIECE_BYTES};
use smallvec::{SmallVec, smallvec};

use super::words::{for_words, runs};
use crate::range_set::RangeSet;

/// Grains of a block of the media: what is written past a cache is cut at multiples of it.
const BLOCK_GRAINS: usize = 4096 / GRAIN_BYTES as usize;
const PIECE_GRAINS: usize = (PIECE_BYTES / GRAIN_BYTES) as usize;
/// What waits is written once nothing was added for so many ticks.
const IDLE_TICKS: u64 = 2;
/// What waits is written after so many ticks in any case.
const OLD_TICKS: u64 = 10;
/// Slots that are looked at for one that can be used again, at most.
const LOOKED_MAX: usize = 64;

/// The pieces of a range that is not empty.
fn pieces(offset: u64, length: u64) -> RangeInclusive<u64> {
    offset / PIECE_BYTES..=offset.saturating_add(length - 1) / PIECE_BYTES
}

#[derive(Debug)]
struct Slot {
    piece: Option<u64>,
    /// The grains that it has as they are, on the media or not.
    valid: Box<[u64; MAP_WORDS]>,
    /// Those who read or write its bytes.
    pins: u32,
    is_busy: bool,
    is_dirty: bool,
    /// It is in `listed`.
    is_listed: bool,
    /// Writes that replace what it has: how many are under way, and how many began.
    overwriting: u32,
    overwrites: u64,
    /// It was read since it was looked at for being used again.
    was_read: bool,
    /// The ticks at which it was last written, and became dirty.
    written: u64,
    dirty_since: u64,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    by_piece: BTreeMap<u64, usize>,
    free: Vec<usize>,
    /// Slots with a piece, in the order in which they are looked at for being used again.
    order: VecDeque<usize>,
    /// Slots to be written to the media.
    listed: VecDeque<usize>,
    ticks: u64,
    /// How many slots are dirty.
    dirty: usize,
    /// What of the media was allocated.
    allocated: RangeSet,
    pub(super) failed: Option<String>,
    /// Somebody found no slot: some are made ahead of need from now on.
    pub(super) is_wanted: bool,
    /// Nothing more is to wait.
    pub(super) is_closing: bool,
}

impl Table {
    pub(super) fn slot_of(&self, piece: u64) -> Option<usize> {
        self.by_piece.get(&piece).copied()
    }

    /// A slot for a piece that has none, with nothing in it; none if none can be used again now.
    pub(super) fn take(&mut self, piece: u64) -> Option<usize> {
        let slot = self.free.pop().or_else(|| self.used_again())?;
        let one = &mut self.slots[slot];
        assert!(one.pins == 0 && !one.is_busy && !one.is_dirty, "a slot that nobody needs");
        one.piece = Some(piece);
        one.valid.fill(0);
        one.was_read = false;
        self.by_piece.insert(piece, slot);
        self.order.push_back(slot);
        Some(slot)
    }

    /// Takes a slot from its piece.
    fn used_again(&mut self) -> Option<usize> {
        for _ in 0..self.order.len().min(LOOKED_MAX) {
            let slot = self.order.pop_front()?;
            let one = &mut self.slots[slot];
            let is_needed = one.pins > 0 || one.is_busy || one.is_dirty;
            if is_needed || std::mem::take(&mut one.was_read) {
                self.order.push_back(slot);
                continue;
            }
            if let Some(piece) = one.piece.take() {
                self.by_piece.remove(&piece);
            }
            return Some(slot);
        }
        None
    }

    /// Slots in which nothing waits have no piece any more.
    pub(super) fn forget_clean(&mut self) {
        let order = std::mem::take(&mut self.order);
        for slot in order {
            let one = &mut self.slots[slot];
            if one.pins > 0 || one.is_busy || one.is_dirty {
                self.order.push_back(slot);
                continue;
            }
            if let Some(piece) = one.piece.take() {
                self.by_piece.remove(&piece);
            }
            self.free.push(slot);
        }
    }

    /// A slot more.
    pub(super) fn add(&mut self) {
        self.free.push(self.slots.len());
        self.slots.push(Slot {
            piece: None,
            valid: Box::new([0; MAP_WORDS]),
            pins: 0,
            is_busy: false,
            is_dirty: false,
            is_listed: false,
            overwriting: 0,
            overwrites: 0,
            was_read: false,
            written: 0,
            dirty_since: 0,
        });
    }

    pub(super) fn pin(&mut self, slot: usize) {
        self.slots[slot].pins += 1;
    }

    pub(super) fn unpin(&mut self, slot: usize) {
        let pins = &mut self.slots[slot].pins;
        *pins = pins.checked_sub(1).expect("pinned before");
    }

    pub(super) fn begin_overwrite(&mut self, slot: usize) {
        self.slots[slot].overwriting += 1;
        self.slots[slot].overwrites += 1;
    }

    pub(super) fn end_overwrite(&mut self, slot: usize) {
        self.slots[slot].overwriting -= 1;
    }

    /// How many writes have begun to replace what a slot has.
    pub(super) fn overwrites(&self, slot: usize) -> u64 {
        self.slots[slot].overwrites
    }

    /// Whether one is under way.
    pub(super) fn is_overwritten(&self, slot: usize) -> bool {
        self.slots[slot].overwriting > 0
    }

    pub(super) fn is_busy(&self, slot: usize) -> bool {
        self.slots[slot].is_busy
    }

    pub(super) fn set_busy(&mut self, slot: usize, is_busy: bool) {
        let one = &mut self.slots[slot];
        assert!(one.is_busy != is_busy, "one at a time");
        one.is_busy = is_busy;
    }

    /// Grains were put into a slot; whether somebody is to look.
    pub(super) fn filled(&mut self, slot: usize, (first, end): (usize, usize)) -> bool {
        let is_first = self.dirty == 0;
        let one = &mut self.slots[slot];
        for_words(first, end, |word, bits| one.valid[word] |= bits);
        self.set_dirty(slot);
        let is_full = end == PIECE_GRAINS;
        let one = &mut self.slots[slot];
        one.written = self.ticks;
        if is_full && !one.is_listed {
            one.is_listed = true;
            self.listed.push_back(slot);
        }
        is_full || is_first
    }

    pub(super) fn set_dirty(&mut self, slot: usize) {
        let one = &mut self.slots[slot];
        if !one.is_dirty {
            (one.is_dirty, one.dirty_since) = (true, self.ticks);
            self.dirty += 1;
        }
    }

    /// What waits in a slot is about to be written; whether any does.
    pub(super) fn take_dirty(&mut self, slot: usize) -> bool {
        let waits = std::mem::take(&mut self.slots[slot].is_dirty);
        self.dirty -= usize::from(waits);
        waits
    }

    /// A slot has not got these grains any more.
    pub(super) fn forget(&mut self, slot: usize, (first, end): (usize, usize)) {
        let valid = &mut self.slots[slot].valid;
        for_words(first, end, |word, bits| valid[word] &= !bits);
    }

    /// Grains that are to be written, with those beside them that make whole blocks of them.
    pub(super) fn whole_blocks(&self, slot: usize, (first, end): (usize, usize)) -> (usize, usize) {
        let from = first / BLOCK_GRAINS * BLOCK_GRAINS;
        let to = end.next_multiple_of(BLOCK_GRAINS);
        let first = if self.has(slot, (from, first)) { from } else { first };
        let end = if self.has(slot, (end, to)) { to } else { end };
        (first, end)
    }

    /// Whether a slot has any of these grains.
    pub(super) fn has_any(&self, slot: usize, (first, end): (usize, usize)) -> bool {
        let mut has = false;
        let valid = &self.slots[slot].valid;
        for_words(first, end, |word, bits| has |= valid[word] & bits != 0);
        has
    }

    fn has(&self, slot: usize, (first, end): (usize, usize)) -> bool {
        let mut has = true;
        let valid = &self.slots[slot].valid;
        for_words(first, end, |word, bits| has &= valid[word] & bits == bits);
        has
    }

    /// The parts of a part of a piece that a slot has, in bytes of the piece.
    pub(super) fn valid_runs(
        &mut self,
        slot: usize,
        within: usize,
        length: usize,
    ) -> SmallVec<[(usize, usize); 2]> {
        let grain = GRAIN_BYTES as usize;
        let (first, end) = (within / grain, (within + length).div_ceil(grain));
        self.slots[slot].was_read = true;
        if self.has(slot, (first, end)) {
            return smallvec![(within, within + length)];
        }
        let all = runs(&self.slots[slot].valid[..]).into_iter();
        let cut = all
            .map(|(first, end)| ((first * grain).max(within), (end * grain).min(within + length)));
        cut.filter(|(first, end)| first < end).collect()
    }

    /// Whether any slot has a piece of a range.
    pub(super) fn has_within(&self, offset: u64, length: u64) -> bool {
        length > 0 && self.by_piece.range(pieces(offset, length)).next().is_some()
    }

    /// The slots with pieces of a range.
    pub(super) fn slots_within(&self, offset: u64, length: u64) -> Vec<(usize, u64)> {
        if length == 0 {
            return Vec::new();
        }
        let all = self.by_piece.range(pieces(offset, length));
        all.map(|(&piece, &slot)| (slot, piece)).collect()
    }

    /// The slots of which something waits or is on its way, in the order of their pieces.
    pub(super) fn waiting(&self) -> Vec<(usize, u64)> {
        let all = self.slots.iter().enumerate();
        let waits = all.filter(|(_, slot)| slot.is_dirty || slot.is_busy);
        let mut waiting: Vec<_> =
            waits.filter_map(|(slot, one)| Some((slot, one.piece?))).collect();
        waiting.sort_by_key(|&(_, piece)| piece);
        waiting
    }

    /// The next slot that is to be written to the media.
    pub(super) fn next_listed(&mut self) -> Option<(usize, u64)> {
        if self.failed.is_some() {
            return None;
        }
        while let Some(slot) = self.listed.pop_front() {
            let one = &mut self.slots[slot];
            one.is_listed = false;
            if let Some(piece) = one.piece.filter(|_| one.is_dirty && !one.is_busy) {
                return Some((slot, piece));
            }
        }
        None
    }

    /// Time goes on: lists what has waited long. Whether anything waits still.
    pub(super) fn tick(&mut self) -> bool {
        self.ticks += 1;
        if self.dirty == 0 {
            return false;
        }
        for (number, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.is_dirty) {
            let is_due = self.is_closing
                || self.ticks >= slot.written + IDLE_TICKS
                || self.ticks >= slot.dirty_since + OLD_TICKS;
            if is_due && !slot.is_listed {
                slot.is_listed = true;
                self.listed.push_back(number);
            }
        }
        true
    }

    /// Whether fewer slots than so many are free, and some are needed.
    pub(super) fn wants_slots(&self, free: usize) -> bool {
        self.is_wanted && !self.is_closing && self.free.len() < free
    }

    /// Whether nothing waits, and nothing will: a write that has a slot pinned may still.
    pub(super) fn is_over(&self) -> bool {
        self.is_closing && self.dirty == 0 && self.slots.iter().all(|slot| slot.pins == 0)
    }

    pub(super) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn dirty_count(&self) -> usize {
        self.dirty
    }

    /// A range of the media has its space.
    pub(super) fn allocated(&mut self, offset: u64, length: u64) {
        self.allocated.insert(offset..offset + length);
    }

    /// A range has its space no more.
    pub(super) fn discarded(&mut self, offset: u64, length: u64) {
        self.allocated.remove(offset..offset.saturating_add(length));
    }

    pub(super) fn is_allocated(&self, offset: u64, length: u64) -> bool {
        !self.is_closing && self.allocated.contains(offset..offset + length)
    }
}
