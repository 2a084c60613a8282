//! The range lock of a layer: see [`env::HeldRange`].

use std::convert::Infallible;
use std::ops::Range;

use env::{Held, HeldRange, Ranges, RankedMutex};
use parking_lot::Condvar;

use crate::layers::order::LayerLock;

/// Ranges that are held.
#[derive(Debug, Default)]
pub(crate) struct RangeLock {
    /// How deep the layer lies that it is of, if that is one of a stack.
    depth: Option<usize>,
    held: RankedMutex<Ranges>,
    freed: Condvar,
}

/// A range with its layer's place in the order of locks.
type HeldHere<'l> = (HeldRange<'l, Ranges>, Option<Held>);

impl RangeLock {
    /// That of a layer of a stack.
    pub(crate) fn at_depth(depth: usize) -> RangeLock {
        RangeLock { depth: Some(depth), ..RangeLock::default() }
    }

    /// Waits until nothing of the range is held, and holds it alone.
    pub(crate) fn hold(&self, range: Range<u64>) -> HeldHere<'_> {
        self.wait_for(range, false)
    }

    /// Waits until nobody holds a part of the range alone, and holds it with others.
    pub(crate) fn share(&self, range: Range<u64>) -> HeldHere<'_> {
        self.wait_for(range, true)
    }

    /// The same if that needs no waiting.
    pub(crate) fn try_share(&self, range: Range<u64>) -> Option<HeldHere<'_>> {
        self.held_if(range, true, || Err(())).ok()
    }

    fn wait_for(&self, range: Range<u64>, shared: bool) -> HeldHere<'_> {
        if let Some(depth) = self.depth {
            LayerLock::Ranges.will_wait(depth);
        }
        let Ok(held) = self.held_if(range, shared, || Ok::<_, Infallible>(()));
        held
    }

    fn held_if<E>(
        &self,
        range: Range<u64>,
        shared: bool,
        waits: impl Fn() -> Result<(), E>,
    ) -> Result<HeldHere<'_>, E> {
        let (_, held) = HeldRange::wait((&self.held, &self.freed), range, shared, waits)?;
        Ok((held, self.depth.map(|depth| LayerLock::Ranges.held(depth))))
    }
}
