//! Copy units: the first write to a unit after a capture takes along what the capture still shares
//! of it with the present (the snapshot blocks of Xiao et al., MSST 2006).
//!
//! A unit has 1 to 16 blocks, of volumes with a base that retain what captures need. The map says
//! what is shared: blocks whose seq is not above the newest capture's. So nothing is remembered,
//! and a restart changes nothing.
//!
//! Invariants
//! 1. Blocks that are taken along are written as they were read while they were locked: no moment
//!    shows other bytes for it.
//! 2. No write fails for what it would take along: where that reads wrong, lies beyond the end that
//!    is to come, or would take the last room, the write goes alone.
//! 3. A trim takes nothing along, and a hole stays one; nor is what was not copied yet from a file
//!    or an origin taken along: no write of whole blocks waits for these.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use history::Slot;
use units::{BLOCK_BYTES, MapExtent, Seq};

use crate::catalogue::VolumeRecord;
use crate::read::snapshot::Opening;
use crate::types::{Architecture, Granularity, VolumeChange, Wait, WriteOp};
use crate::write::Writer;
use crate::write::edge::{Edge, units_at_edges};
use crate::write::ops::{is_zero, lay_over, span};
use crate::write::pace::Pace;
use crate::{Error, Result};

const BLOCK: usize = BLOCK_BYTES as usize;

/// A volume's copies for its newest capture, and how much of them clients changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyInfo {
    /// The capture's seq.
    pub captured: Seq,
    /// Bytes of its blocks that are not the present's any more.
    pub kept_bytes: u64,
    /// Of these: bytes of blocks that the present has with other content, or not at all. The rest
    /// was taken along with them.
    pub changed_bytes: u64,
}

/// The unit that a volume of that kind may have.
///
/// # Errors
/// `Invalid`.
pub fn checked(
    unit: MapExtent,
    architecture: Architecture,
    granularity: Granularity,
) -> Result<MapExtent> {
    if unit.is_block() || architecture.has_base() && granularity == Granularity::OnDemand {
        return Ok(unit);
    }
    let text = format!(
        "a copy unit of {unit} is for redirect and checkpointing at on-demand, not for {} at {}",
        architecture.name(),
        crate::volume::change_words::words(granularity)
    );
    Err(Error::invalid(text)
        .with_hint("give 4KiB, which every volume may have, or one of these at on-demand"))
}

/// The unit that a volume has after a change.
///
/// # Errors
/// `Invalid`.
pub fn of(record: &VolumeRecord, change: &VolumeChange) -> Result<MapExtent> {
    checked(
        change.copy_unit.unwrap_or(record.copy_unit),
        change.architecture.unwrap_or(record.architecture),
        change.granularity.unwrap_or(record.granularity_at(Seq(u64::MAX))),
    )
}

impl Writer {
    /// Its copy unit is another from now on.
    pub(crate) fn set_copy_unit(&self, unit: MapExtent) {
        self.unit_blocks.store(unit.blocks() as u64, Ordering::Relaxed);
    }

    /// Blocks of the unit by which a write goes now: one where there is nothing to take along.
    pub(crate) fn unit_blocks_for(&self, op: &WriteOp<'_>) -> u64 {
        let unit_blocks = self.unit_blocks.load(Ordering::Relaxed);
        let is_alone = unit_blocks == 1
            || is_zero(op)
            || self.captured.load(Ordering::Acquire) == 0
            || !self.has_plenty_of_room();
        if is_alone { 1 } else { unit_blocks }
    }

    /// Whether a write of whole blocks may have to take others along.
    pub(crate) fn takes_along(&self, op: &WriteOp<'_>, pace: &Pace) -> bool {
        let unit_blocks = self.unit_blocks_for(op);
        if unit_blocks == 1 {
            return false;
        }
        let live = self.present();
        let (offset, length_bytes) = span(op);
        let blocks = offset / BLOCK_BYTES..(offset + length_bytes).div_ceil(BLOCK_BYTES);
        let wait = if pace.may_wait_for_turns() { Wait::Device } else { Wait::Never };
        let (head, tail) = units_at_edges(&blocks, unit_blocks, live.size_bytes);
        let takes = |unit: &Range<u64>| {
            let shared = self.shared(&live, unit, &blocks, self.cache().is_on(), wait);
            // Blocks that cannot be read are not taken along.
            shared.is_ok_and(|shared| shared != Some(0))
        };
        takes(&head) || tail != head && takes(&tail)
    }

    /// The blocks of a unit, beside those of a write, that the newest capture shares with the
    /// present: a bit each. `None` when that would have to wait.
    fn shared(
        &self,
        live: &Opening,
        unit: &Range<u64>,
        written: &Range<u64>,
        is_cached: bool,
        wait: Wait,
    ) -> Result<Option<u32>> {
        let captured = Seq(self.captured.load(Ordering::Acquire));
        let is_filled = written.start <= unit.start && unit.end <= written.end;
        if is_filled || unit.end - unit.start == 1 {
            return Ok(Some(0));
        }
        // Before the map is asked: what waits was written after every capture, and what is destaged
        // meanwhile is in one or the other.
        let waiting = if is_cached { self.cache().waiting_bits(unit.clone()) } else { 0 };
        let mut slots = [Slot::default(); MapExtent::BLOCKS_MAX];
        let slots = &mut slots[..(unit.end - unit.start) as usize];
        let _epoch = self.core.store.enter();
        if !live.look_up(unit.start, slots, wait)? {
            return Ok(None);
        }
        let is_shared = |(block, slot): (u64, &Slot)| {
            let is_stored = !slot.is_hole() && !slot.is_outside();
            !written.contains(&block) && is_stored && slot.seq <= captured
        };
        let bits = unit.clone().zip(&*slots).map(is_shared).enumerate();
        Ok(Some(bits.fold(0, |bits, (index, is)| bits | u32::from(is) << index) & !waiting))
    }

    /// The blocks to write of a unit for a write that begins or ends in it: the client's bytes,
    /// merged with the present in blocks that they do not fill, and those taken along. `None` when
    /// that is the client's whole blocks. The unit is locked.
    pub(crate) fn merged_edge(
        &self,
        live: &Opening,
        unit: &Range<u64>,
        op: &WriteOp<'_>,
        is_cached: bool,
    ) -> Result<Option<Edge>> {
        let (offset, length_bytes) = span(op);
        let end = offset + length_bytes;
        let written = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let shared = self.shared(live, unit, &written, is_cached, Wait::Device)?;
        let shared = shared.expect("a patient look-up ends");
        let bit = |block: u64| 1_u32 << (block - unit.start);
        let own = unit.start.max(written.start)..unit.end.min(written.end);
        let is_part = |&block: &u64| {
            let start = block * BLOCK_BYTES;
            offset > start || end < start + BLOCK_BYTES
        };
        let needed = own.clone().filter(is_part).fold(shared, |bits, block| bits | bit(block));
        if needed == 0 {
            return Ok(None);
        }
        let chosen = own.fold(needed, |bits, block| bits | bit(block));
        assert!(unit.end - unit.start <= 32, "a bit is a block");
        let skip = u64::from(chosen.trailing_zeros());
        let (first, blocks) = (unit.start + skip, 32 - chosen.leading_zeros() as usize);
        let mut bytes = vec![0; (blocks - skip as usize) * BLOCK];
        let from = (unit.start + u64::from(needed.trailing_zeros())) * BLOCK_BYTES;
        let until = (unit.start + u64::from(32 - needed.leading_zeros())) * BLOCK_BYTES;
        let start = (from - first * BLOCK_BYTES) as usize;
        let there = &mut bytes[start..][..(until.min(live.size_bytes) - from) as usize];
        let ready = match is_cached {
            true => self.read_cached(from, there, Wait::Device)?,
            false => live.read(from, there, Wait::Device)?,
        };
        assert!(ready, "a patient read ends");
        lay_over(first * BLOCK_BYTES, &mut bytes, op);
        Ok(Some(Edge::new(first, bytes, chosen >> skip)))
    }

    /// The copies for the newest capture of a volume with a base; `None` without one, and where
    /// so much was written since that counting takes more than a moment.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn copies(&self) -> Result<Option<CopyInfo>> {
        let captured = Seq(self.captured.load(Ordering::Acquire));
        let is_on_demand = self.granularity_now() == Granularity::OnDemand;
        if captured == Seq::ZERO || !is_on_demand || !self.architecture().has_base() {
            return Ok(None);
        }
        let present: Arc<Opening> = self.present();
        let counted = self.kept_and_changed(captured, &present)?;
        Ok(counted.map(|(kept, changed)| CopyInfo {
            captured,
            kept_bytes: kept * BLOCK_BYTES,
            changed_bytes: changed * BLOCK_BYTES,
        }))
    }
}
