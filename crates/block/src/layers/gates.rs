//! Ranges of a device that writers share, and that one at a time takes whole.
//!
//! A layer with copies holds a range shared while it writes all copies of it, and alone while it
//! copies from one to another, so that what is copied is never older than what was written.

use env::{Rank, RankedReadGuard, RankedRwLock, RankedWriteGuard};
use smallvec::SmallVec;

use super::order::{GATES, LayerLock};

/// Bytes that share a gate, as a power of two.
const SPAN_SHIFT: u32 = 20;

/// The gates of one device.
#[derive(Debug)]
pub(crate) struct Gates {
    gates: [RankedRwLock<()>; GATES],
}

/// A range held; let go when dropped.
pub(crate) type Held<'g> = SmallVec<[RankedReadGuard<'g, ()>; 2]>;

impl Gates {
    /// Those of a layer.
    pub(crate) fn at_depth(depth: usize) -> Gates {
        let gate = |number| LayerLock::Gate(number).rw_lock(depth, ());
        Gates { gates: std::array::from_fn(gate) }
    }

    /// Those of what is copied to a successor, under all layers.
    pub(crate) fn of_copying() -> Gates {
        let gate = |number| RankedRwLock::numbered(Rank::Copying, number as u64, ());
        Gates { gates: std::array::from_fn(gate) }
    }

    /// Waits until nobody copies in the range.
    pub(crate) fn share(&self, offset: u64, length_bytes: u64) -> Held<'_> {
        gates_of(offset, length_bytes).map(|gate| self.gates[gate].read()).collect()
    }

    /// Shares the range of one gate, if nobody copies there now.
    pub(crate) fn try_share_one(&self, offset: u64) -> Option<RankedReadGuard<'_, ()>> {
        self.gates[(offset >> SPAN_SHIFT) as usize % GATES].try_read()
    }

    /// Waits until nobody writes or copies in the range.
    pub(crate) fn take(&self, offset: u64, length_bytes: u64) -> Vec<RankedWriteGuard<'_, ()>> {
        gates_of(offset, length_bytes).map(|gate| self.gates[gate].write()).collect()
    }
}

/// The gates of a range in the order in which everybody takes them.
fn gates_of(offset: u64, length_bytes: u64) -> impl Iterator<Item = usize> {
    let first = offset >> SPAN_SHIFT;
    let last = offset.saturating_add(length_bytes.max(1) - 1) >> SPAN_SHIFT;
    let count = (last - first).saturating_add(1).min(GATES as u64) as usize;
    let begin = (first % GATES as u64) as usize;
    // Behind the last gate they go on with the first.
    let around = (begin + count).saturating_sub(GATES);
    (0..around).chain(begin..(begin + count).min(GATES))
}
