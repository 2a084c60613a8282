//! A write cache in which versions wait for their turn, as in the engine's: one whose window is
//! over still takes a page until all that was written before it has gone.

use std::collections::BTreeMap;

use super::cache::Spill;

/// No write.
const NONE: u64 = 0;

#[derive(Clone, Copy, Default)]
struct Newest {
    /// The write of the newest version, if that waits; `NONE` if none does.
    number: u64,
    /// The window of the last write, and one.
    window: u64,
}

/// Versions in the order of their last writes.
pub(super) struct InTurnCache {
    newest: Vec<Newest>,
    /// Extent and window by write.
    waiting: BTreeMap<u64, (u32, u64)>,
    number: u64,
    dirty_max: usize,
}

impl InTurnCache {
    pub(super) fn new(dirty_max: u64) -> InTurnCache {
        let dirty_max = usize::try_from(dirty_max).unwrap_or(usize::MAX);
        InTurnCache { newest: Vec::new(), waiting: BTreeMap::new(), number: NONE, dirty_max }
    }

    fn newest(&mut self, extent: u32) -> &mut Newest {
        let index = extent as usize;
        if index >= self.newest.len() {
            self.newest.resize(index + 1, Newest::default());
        }
        &mut self.newest[index]
    }

    /// Whether an extent is written for the first time in this window.
    pub(super) fn is_new_window(&mut self, extent: u32, window: u64) -> bool {
        self.newest(extent).window != window + 1
    }

    pub(super) fn write(&mut self, extent: u32, window: u64, mut destage: impl FnMut(Spill)) {
        self.number += 1;
        let number = self.number;
        let newest = self.newest(extent);
        let before = std::mem::replace(newest, Newest { number, window: window + 1 });
        if before.number != NONE && before.window == window + 1 {
            self.waiting.remove(&before.number);
        }
        self.waiting.insert(number, (extent, window));
        while self.waiting.len() > self.dirty_max {
            self.pop(window, &mut destage);
        }
    }

    /// All that is left; every window is over.
    pub(super) fn drain(&mut self, mut destage: impl FnMut(Spill)) {
        while !self.waiting.is_empty() {
            self.pop(u64::MAX, &mut destage);
        }
    }

    /// The one that was written first, in the window that is now.
    fn pop(&mut self, now: u64, destage: &mut impl FnMut(Spill)) {
        let (number, (extent, window)) = self.waiting.pop_first().expect("some wait");
        let newest = self.newest(extent);
        let is_superseded = newest.number != number;
        if !is_superseded {
            newest.number = NONE;
        }
        destage(Spill { extent, window, is_closed: window != now, is_superseded });
    }
}

#[cfg(test)]
mod tests {
    use super::{InTurnCache, Spill};

    fn spill(extent: u32, window: u64, is_closed: bool, is_superseded: bool) -> Spill {
        Spill { extent, window, is_closed, is_superseded }
    }

    #[test]
    fn versions_take_pages_until_their_turn_comes() {
        let mut cache = InTurnCache::new(2);
        let mut spills = Vec::new();
        for (extent, window) in [(0, 7), (1, 7), (0, 7), (0, 8), (2, 8)] {
            cache.write(extent, window, |spill| spills.push(spill));
        }
        // 0 was written again in its window and waits behind 1; its version of that window is kept
        // for the next one, and takes a page.
        assert_eq!(spills, [spill(1, 7, true, false), spill(0, 7, true, true)]);
        cache.drain(|spill| spills.push(spill));
        assert_eq!(spills[2..], [spill(0, 8, true, false), spill(2, 8, true, false)]);
    }
}
