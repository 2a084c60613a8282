//! Writing the present in place, and putting there what a revert, a crash or rot left elsewhere.
//!
//! A write in place comes after the log and the map have the write, so nothing that goes wrong
//! here loses anything: a block that is not trusted in place is answered by the log.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use block::Purpose;
use history::{BLOCKS_PER_PAGE, BlockOp, FastSet, IoKind, Slot};
use units::BLOCK_BYTES;

use crate::catalogue::tables;
use crate::placement::Placement;
use crate::placement::current_store::{CurrentStore, Pen};
use crate::read::snapshot::{Opening, joined};
use crate::types::Wait;
use crate::{Error, ErrorKind, Result};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Slabs taken at once at most: each commit costs a flush.
const SLABS_AT_ONCE: usize = 16;
/// Map entries that a revert looks through to tell what differs; beyond, all of it may.
const DIFFER_ENTRIES_MAX: u64 = 100_000;

/// How places are made the same as the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Putting {
    /// By comparing, and writing what differs.
    WhatDiffers,
    /// By writing: what is read there may be another process's.
    Anew,
    /// By writing: it was left for later.
    Deferred,
}

impl Putting {
    /// How its reads of the log and its writes in place are counted.
    fn kinds(self) -> (IoKind, IoKind) {
        match self {
            Putting::WhatDiffers | Putting::Anew => (IoKind::CopyRead, IoKind::CopyWrite),
            Putting::Deferred => (IoKind::DeferredRead, IoKind::DeferredWrite),
        }
    }
}

fn blocks_of(op: &BlockOp<'_>) -> Option<Range<u64>> {
    match *op {
        BlockOp::Data { block, crcs, .. } => Some(block..block + crcs.len() as u64),
        // A hole has no place: what is in it does not matter.
        BlockOp::Zero { .. } => None,
    }
}

/// The blocks that ops have data for.
pub fn data_blocks<'a>(ops: &'a [BlockOp<'_>]) -> impl Iterator<Item = u64> + 'a {
    ops.iter().filter_map(blocks_of).flatten()
}

/// Blocks (ascending) as ranges.
pub fn ranges(blocks: &[u64]) -> Vec<Range<u64>> {
    blocks.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[run.len() - 1] + 1).collect()
}

/// The blocks of ops that go in place, with the version of its block that each is, in the order in
/// which they are written there: [`Placement::write_run_in_place`].
fn in_order_of_places<'a>(
    ops: &[BlockOp<'a>],
    waits: Option<&FastSet<u64>>,
) -> Vec<(usize, u64, &'a [u8])> {
    let mut blocks: Vec<(usize, u64, &[u8])> = Vec::new();
    for op in ops {
        let BlockOp::Data { block, bytes, .. } = *op else { continue };
        blocks.extend(
            (block..).zip(bytes.chunks_exact(BLOCK)).map(|(block, bytes)| (0, block, bytes)),
        );
    }
    // Versions of one block stay in their order.
    blocks.sort_by_key(|&(_, block, _)| block);
    if let Some(waits) = waits {
        blocks.dedup_by(|next, kept| {
            let is_newer = next.1 == kept.1;
            if is_newer {
                kept.2 = next.2;
            }
            is_newer
        });
        blocks.retain(|(_, block, _)| !waits.contains(block));
        return blocks;
    }
    let mut most = 0;
    for i in 1..blocks.len() {
        if blocks[i].1 == blocks[i - 1].1 {
            blocks[i].0 = blocks[i - 1].0 + 1;
            most = most.max(blocks[i].0);
        }
    }
    if most > 0 {
        blocks.sort_by_key(|&(version, ..)| version);
    }
    blocks
}

impl Placement {
    /// Takes the pen for ops that are about to get their seqs, if this volume writes in place.
    /// `Busy` when a slab is to be made ready first, for which it may not wait.
    pub(crate) fn take_pen(&self, ops: &[BlockOp<'_>], may_wait: bool) -> Result<Option<Pen>> {
        self.take_pen_for(|| ops.iter().filter_map(blocks_of), may_wait)
    }

    /// The same for blocks in any order, some perhaps more than once: as one, so that they are no
    /// strangers to each other.
    pub(crate) fn take_pen_for_blocks(
        &self,
        mut blocks: Vec<u64>,
        may_wait: bool,
    ) -> Result<Option<Pen>> {
        if self.present().current.is_none() {
            return Ok(None);
        }
        blocks.sort_unstable();
        blocks.dedup();
        let ranges = ranges(&blocks);
        self.take_pen_for(|| ranges.iter().cloned(), may_wait)
    }

    fn take_pen_for<I: Iterator<Item = Range<u64>>>(
        &self,
        ranges: impl Fn() -> I,
        may_wait: bool,
    ) -> Result<Option<Pen>> {
        let Some(current) = &self.present().current else { return Ok(None) };
        for blocks in ranges() {
            for slab in current.slab_of(blocks.start)..=current.slab_of(blocks.end - 1) {
                let is_ready = match may_wait {
                    true => current.has_slab(slab),
                    // It gets none.
                    false if !current.has_slab(slab) => self.zones_for_places() == 0,
                    false => current.is_ready(slab, &blocks),
                };
                if is_ready {
                    continue;
                }
                if !may_wait {
                    return Err(Error::busy("a slab is to be made ready first"));
                }
                self.grow(current, slab, SLABS_AT_ONCE)?;
            }
        }
        let pen = current.take_pen(ranges());
        let closed = || Error::refused("the pool is closed");
        pen.map(Some).ok_or_else(closed)
    }

    /// Whether a pen (or none) is still what a write needs: the volume may have got another current
    /// store since, or lost it. Asked while nothing can change that.
    pub(crate) fn is_pen_right(&self, pen: Option<&Pen>) -> bool {
        let present = self.present();
        match pen {
            Some(pen) => pen.is_of(present.current.as_ref()),
            None => present.current.is_none(),
        }
    }

    /// Writes ops of a run that are in the log and in the map in place: by address, so that
    /// neighbours are one request, and older versions of a block before newer ones; where it is
    /// told which blocks wait, only the newest of the others.
    pub(crate) fn write_run_in_place(
        &self,
        pen: &Pen,
        ops: &[BlockOp<'_>],
        waits: Option<&FastSet<u64>>,
    ) -> Result<()> {
        let blocks = in_order_of_places(ops, waits);
        let io = Arc::clone(&self.present().io);
        let mut rest = &blocks[..];
        while let Some(&(version, first, _)) = rest.first() {
            let follows =
                |(i, b): &(usize, &(usize, u64, &[u8]))| b.0 == version && b.1 == first + *i as u64;
            let count = rest.iter().enumerate().take_while(follows).count();
            for (block, count, offset) in pen.places(first..first + count as u64) {
                let from = (block - first) as usize;
                let slices: Vec<_> =
                    rest[from..from + count].iter().map(|b| IoSlice::new(b.2)).collect();
                self.core.store.write(offset, &slices)?;
                io.count(IoKind::CurrentWrite, (count * BLOCK) as u64);
            }
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Writes ops that are in the log and in the map in place.
    pub(crate) fn write_in_place(&self, pen: &Pen, ops: &[BlockOp<'_>]) -> Result<()> {
        let io = Arc::clone(&self.present().io);
        for op in ops {
            let (BlockOp::Data { block, bytes, .. }, Some(blocks)) = (op, blocks_of(op)) else {
                continue;
            };
            for (first, count, offset) in pen.places(blocks) {
                let from = (first - block) as usize * BLOCK;
                let part = &bytes[from..from + count * BLOCK];
                self.core.store.write(offset, &[IoSlice::new(part)])?;
                io.count(IoKind::CurrentWrite, part.len() as u64);
            }
        }
        Ok(())
    }

    /// Zones that places may take. A quarter of the pool is left to the log, which does without
    /// places as places do not without it: a block of each slab, written at random, would take all
    /// of it. So is what work that can wait leaves alone.
    pub(crate) fn zones_for_places(&self) -> u32 {
        let store = &self.core.store;
        let ((_, free, reserve), total) = (store.zone_counts(), store.zone_count());
        free.saturating_sub((total / 4).max(reserve + total / 8))
    }

    /// Takes a slab, and some that follow it as there are more of them already. Without room there
    /// is none: the log has what would be in it.
    pub(crate) fn grow(
        &self,
        current: &Arc<CurrentStore>,
        slab: u64,
        slabs_max: usize,
    ) -> Result<()> {
        let _growing = current.growing.lock();
        let store = &self.core.store;
        let last = current.slab_of(self.size_bytes().div_ceil(BLOCK_BYTES).saturating_sub(1));
        let free = self.zones_for_places();
        let most = if free > store.zone_count() / 4 { slabs_max } else { 1 };
        let wanted = current.slab_count().clamp(1, most).min(free as usize);
        let mut slabs = Vec::new();
        for slab in (slab..=last.max(slab)).take(wanted).take_while(|&s| !current.has_slab(s)) {
            match store.allocate_zone(Purpose::Data) {
                Ok(zone) => slabs.push((slab, zone)),
                Err(e) if e.kind == history::ErrorKind::Full => break,
                Err(e) => {
                    slabs.iter().for_each(|&(_, zone)| store.free_zone(zone));
                    return Err(e.into());
                }
            }
        }
        if slabs.is_empty() {
            return Ok(());
        }
        let recorded = self.record_slabs(current, &slabs);
        if !matches!(recorded, Ok(true)) {
            slabs.iter().for_each(|&(_, zone)| store.free_zone(zone));
        }
        recorded.map(|_| ())
    }

    /// Enters slabs in the catalogue and the store; false when it is the volume's no more.
    fn record_slabs(&self, current: &Arc<CurrentStore>, slabs: &[(u64, u32)]) -> Result<bool> {
        let tx = self.begin()?;
        if !self.present().current.as_ref().is_some_and(|now| Arc::ptr_eq(now, current)) {
            return Ok(false);
        }
        for &(slab, zone) in slabs {
            tx.put(tables::SLABS, (self.id, slab), &zone)?;
        }
        let _books = tx.commit()?;
        // Under the books: whoever takes the store away does that next, and finds them in it.
        slabs.iter().for_each(|&(slab, zone)| current.add_slab(slab, zone, false));
        Ok(true)
    }

    /// Another moment becomes the present; the gate is closed, and nothing was dropped from either.
    pub(crate) fn distrust_after_revert(&self, before: &Opening) {
        let Some(current) = &self.present().current else { return };
        let page = BLOCKS_PER_PAGE as u64;
        let differ = before.pages_apart(&self.present(), DIFFER_ENTRIES_MAX).ok().flatten();
        let blocks = |(first, end): (u64, u64)| first * page..end.saturating_mul(page);
        let differ = differ.map(|pages| pages.into_iter().map(blocks).collect::<Vec<_>>());
        current.distrust_after_revert(differ.as_deref());
    }

    /// Puts some of what is not in place there; true when there may be more. The caller holds
    /// `work`.
    ///
    /// # Errors
    /// `Refused`, `Corrupt` or `Io`.
    pub(crate) fn settle_places(&self, budget_bytes: u64) -> Result<bool> {
        let Some(current) = &self.present().current else { return Ok(false) };
        if self.is_gone() {
            return Ok(false);
        }
        let mut spent = 0;
        let mut any = false;
        while spent < budget_bytes.max(1) {
            let Some(blocks) = current.next_unsettled() else { break };
            spent += self.settle_group(current, blocks)?;
            any = true;
        }
        Ok(any)
    }

    fn settle_group(&self, current: &Arc<CurrentStore>, blocks: Range<u64>) -> Result<u64> {
        let (untrusted, alien) = current.look_after(&blocks);
        let putting = if alien { Putting::Anew } else { Putting::WhatDiffers };
        if untrusted.is_empty() {
            return Ok(BLOCK_BYTES);
        }
        let _epoch = self.core.store.enter();
        let mut spent = BLOCK_BYTES;
        let mut block = blocks.start;
        // Also what lies beyond the end: the volume may grow, when all of the group is trusted.
        let outside = self.outside_among(blocks.clone())?;
        while block < blocks.end {
            let index = (block - blocks.start) as usize;
            let is_outside = outside[index];
            let together = |i: &usize| untrusted[*i] && outside[*i] == is_outside;
            let count = (index..outside.len()).take_while(together).count();
            let part = block..block + count as u64;
            if count > 0 && is_outside {
                // It has no place before it is copied.
                if let Some(pen) = current.take_pen(std::iter::once(part)) {
                    pen.give_up();
                }
            } else if count > 0 {
                spent += self.put_in_place(current, part, putting)?;
            }
            block += count.max(1) as u64;
        }
        current.made_own(&blocks);
        Ok(spent)
    }

    /// Which of some blocks are outside.
    fn outside_among(&self, blocks: Range<u64>) -> Result<Vec<bool>> {
        let count = (blocks.end - blocks.start) as usize;
        let present = self.present();
        if present.root.outside().is_none() {
            return Ok(vec![false; count]);
        }
        let mut slots = vec![Slot::default(); count];
        present.look_up(blocks.start, &mut slots, Wait::Device)?;
        Ok(slots.iter().map(Slot::is_outside).collect())
    }

    /// Makes the places of some blocks the same as the log; says how many bytes that took.
    pub(crate) fn put_in_place(
        &self,
        current: &Arc<CurrentStore>,
        blocks: Range<u64>,
        putting: Putting,
    ) -> Result<u64> {
        let Some(pen) = current.take_pen(std::iter::once(blocks.clone())) else { return Ok(0) };
        match self.copy_to_places(&pen, blocks.clone(), putting) {
            Ok(spent) => {
                pen.let_go();
                Ok(spent)
            }
            Err(e) if matches!(e.kind, ErrorKind::Corrupt | ErrorKind::Io) => {
                // A block that the log cannot give stays as it is: reading it is an error, as it
                // should be.
                pen.give_up();
                let mut spent = BLOCK_BYTES;
                if blocks.end - blocks.start > 1 {
                    for block in blocks {
                        spent += self.put_in_place(current, block..block + 1, putting)?;
                    }
                }
                Ok(spent)
            }
            Err(e) => Err(e),
        }
    }

    /// With the pen in hand, so that whoever writes now spoils it.
    fn copy_to_places(&self, pen: &Pen, blocks: Range<u64>, putting: Putting) -> Result<u64> {
        let present = self.present();
        let mut slots = vec![Slot::default(); (blocks.end - blocks.start) as usize];
        present.look_up(blocks.start, &mut slots, Wait::Device)?;
        let mut spent = 0;
        let mut index = 0;
        while index < slots.len() {
            let count = joined(&slots[index..]);
            let part = &slots[index..index + count];
            if part[0].is_outside() {
                // Since it was asked: after a revert.
                return Err(Error::new(ErrorKind::Io, "a block that is outside has no place"));
            }
            if !part[0].is_hole() {
                let mut bytes = vec![0; count * BLOCK];
                let first = blocks.start + index as u64;
                let kind = Some(putting.kinds().0);
                present.read_logged(first, part, &mut bytes, kind, Wait::Device)?;
                self.write_what_differs(pen, &present, (first, &bytes), putting)?;
                spent += 2 * bytes.len() as u64;
            }
            index += count;
        }
        Ok(spent)
    }

    /// Compares bytes with what is in place and writes the blocks that are not the same.
    fn write_what_differs(
        &self,
        pen: &Pen,
        present: &Opening,
        (first, bytes): (u64, &[u8]),
        putting: Putting,
    ) -> Result<()> {
        let blocks = first..first + (bytes.len() / BLOCK) as u64;
        for (block, count, offset) in pen.places(blocks) {
            let from = (block - first) as usize * BLOCK;
            let wanted = &bytes[from..from + count * BLOCK];
            let mut there = vec![0; wanted.len()];
            let compares = putting == Putting::WhatDiffers;
            let readable = compares && present.store.device.read_at(offset, &mut there).is_ok();
            if readable {
                present.io.count(IoKind::CopyRead, there.len() as u64);
            }
            let same = |i: usize| {
                let block = i * BLOCK..(i + 1) * BLOCK;
                readable && there[block.clone()] == wanted[block]
            };
            let mut index = 0;
            while index < count {
                let differ = (index..count).take_while(|&i| !same(i)).count();
                if differ > 0 {
                    let part = &wanted[index * BLOCK..(index + differ) * BLOCK];
                    let at = offset + index as u64 * BLOCK_BYTES;
                    self.core.store.write(at, &[IoSlice::new(part)])?;
                    present.io.count(putting.kinds().1, part.len() as u64);
                }
                index += differ.max(1);
            }
        }
        Ok(())
    }

    /// Records the ranges of slabs that are all in place, for the next opening. Everything was
    /// flushed, and no one writes in place any more.
    ///
    /// # Errors
    /// `Refused` or `Io`.
    pub(crate) fn record_places(&self, placed: Vec<(u64, u64)>) -> Result<()> {
        if placed.is_empty() || self.is_gone() {
            return Ok(());
        }
        let mut tx = self.core.begin()?;
        tx.change(&self.record).placed = placed;
        tx.commit().map(drop)
    }
}
