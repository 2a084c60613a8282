//! Ranges of a device that writers share, and that one at a time takes whole.
//!
//! A layer with copies holds a range shared while it writes all copies of it, and alone while it
//! copies from one to another, so that what is copied is never older than what was written.

use env::{Rank, RankedReadGuard, RankedRwLock, RankedWriteGuard};

use super::order::{GATES, LayerLock};

/// Bytes that share a gate, as a power of two.
const SPAN_SHIFT: u32 = 20;

/// The gates of one device.
#[derive(Debug)]
pub(crate) struct Gates {
    gates: [RankedRwLock<()>; GATES],
}

/// A range held; let go when dropped.
#[derive(Debug)]
pub(crate) enum Held<'g> {
    One(#[allow(dead_code)] RankedReadGuard<'g, ()>),
    Many(#[allow(dead_code)] Vec<RankedReadGuard<'g, ()>>),
}

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
        let gates = gates_of(offset, length_bytes);
        match gates.as_slice() {
            [one] => Held::One(self.gates[*one].read()),
            many => Held::Many(many.iter().map(|&gate| self.gates[gate].read()).collect()),
        }
    }

    /// Shares the range of one gate, if nobody copies there now.
    pub(crate) fn try_share_one(&self, offset: u64) -> Option<Held<'_>> {
        let gate = (offset >> SPAN_SHIFT) as usize % GATES;
        self.gates[gate].try_read().map(Held::One)
    }

    /// Waits until nobody writes or copies in the range.
    pub(crate) fn take(&self, offset: u64, length_bytes: u64) -> Vec<RankedWriteGuard<'_, ()>> {
        let gates = gates_of(offset, length_bytes);
        gates.as_slice().iter().map(|&gate| self.gates[gate].write()).collect()
    }
}

/// The gates of a range in the order in which everybody takes them.
fn gates_of(offset: u64, length_bytes: u64) -> GateList {
    let first = offset >> SPAN_SHIFT;
    let last = offset.saturating_add(length_bytes.max(1) - 1) >> SPAN_SHIFT;
    let count = (last - first).saturating_add(1).min(GATES as u64);
    let mut list = GateList { gates: [0; GATES], count: count as usize };
    for (gate, span) in list.gates.iter_mut().zip(first..first + count) {
        *gate = (span % GATES as u64) as usize;
    }
    list.gates[..list.count].sort_unstable();
    list
}

struct GateList {
    gates: [usize; GATES],
    count: usize,
}

impl GateList {
    fn as_slice(&self) -> &[usize] {
        &self.gates[..self.count]
    }
}
