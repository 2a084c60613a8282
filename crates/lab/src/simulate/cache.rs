//! Write caches: the least recently written page goes first, and only so many may be dirty.
//!
//! 1. A page that is written again in its window is overwritten in the cache, and waits anew.
//! 2. A version whose window is over cannot be overwritten any more: it is destaged at once, before
//!    anything that might still be. So versions take no room from pages, and a version is always
//!    destaged before newer ones of its extent.

use std::collections::VecDeque;

/// A version on its way out of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spill {
    pub(super) extent: u32,
    pub(super) window: u64,
    /// Whether it is known to be the last of its window.
    pub(super) is_closed: bool,
    /// Whether the cache has a newer version.
    pub(super) is_superseded: bool,
}

const CLEAN: u64 = 0;

#[derive(Clone, Copy, Default)]
struct Page {
    /// The write that made it dirty; `CLEAN` if it is not.
    number: u64,
    /// The window of the last write to it, and one: 0 is none.
    window: u64,
}

/// Pages and the order they were written in. Numbers that are no longer their page's are stale.
#[derive(Default)]
struct Queue {
    pages: Vec<Page>,
    order: VecDeque<(u32, u64)>,
    dirty: u64,
    number: u64,
}

impl Queue {
    fn page(&mut self, extent: u32) -> &mut Page {
        let index = extent as usize;
        if index >= self.pages.len() {
            self.pages.resize(index + 1, Page::default());
        }
        &mut self.pages[index]
    }

    /// Puts a page at the end of the order; whether it was dirty before.
    #[inline]
    fn push(&mut self, extent: u32, window: u64) -> bool {
        self.number += 1;
        let number = self.number;
        let page = self.page(extent);
        let was_dirty = page.number != CLEAN;
        *page = Page { number, window };
        self.dirty += u64::from(!was_dirty);
        self.order.push_back((extent, number));
        self.tidy();
        was_dirty
    }

    /// The page that was not written for the longest time, and the number of that write.
    #[inline]
    fn pop(&mut self) -> Option<(u32, u64)> {
        while let Some((extent, number)) = self.order.pop_front() {
            let page = &mut self.pages[extent as usize];
            if page.number == number {
                page.number = CLEAN;
                self.dirty -= 1;
                return Some((extent, number));
            }
        }
        None
    }

    /// Drops stale places when there are many: the order stays within a multiple of what is dirty.
    fn tidy(&mut self) {
        const SLACK: u64 = 4096;
        if self.order.len() as u64 > 4 * self.dirty + SLACK {
            let pages = &self.pages;
            self.order.retain(|(extent, number)| pages[*extent as usize].number == *number);
        }
    }
}

/// A cache that keeps what windows demand.
pub(super) struct VersionedCache {
    queue: Queue,
    dirty_max: u64,
}

impl VersionedCache {
    pub(super) fn new(dirty_max: u64) -> VersionedCache {
        VersionedCache { queue: Queue::default(), dirty_max }
    }

    /// Whether an extent is written for the first time in this window.
    #[inline]
    pub(super) fn is_new_window(&mut self, extent: u32, window: u64) -> bool {
        self.queue.page(extent).window != window + 1
    }

    #[inline]
    pub(super) fn write(&mut self, extent: u32, window: u64, mut destage: impl FnMut(Spill)) {
        let page = *self.queue.page(extent);
        if page.number != CLEAN && page.window != window + 1 {
            let window = page.window - 1;
            destage(Spill { extent, window, is_closed: true, is_superseded: true });
        }
        self.queue.push(extent, window + 1);
        while self.queue.dirty > self.dirty_max
            && let Some((extent, _)) = self.queue.pop()
        {
            let at = self.queue.pages[extent as usize].window - 1;
            // Its window may be over without a newer write having told so.
            let is_closed = at != window;
            destage(Spill { extent, window: at, is_closed, is_superseded: false });
        }
    }

    /// All that is left; every window is over.
    pub(super) fn drain(&mut self, mut destage: impl FnMut(Spill)) {
        while let Some((extent, _)) = self.queue.pop() {
            let window = self.queue.pages[extent as usize].window - 1;
            destage(Spill { extent, window, is_closed: true, is_superseded: false });
        }
    }
}

/// A cache for a store that only has a present.
pub(super) struct PlainCache {
    queue: Queue,
    dirty_max: u64,
    evicted: u64,
    /// Writes before this one are known to be overwritten or destaged.
    known: u64,
}

impl PlainCache {
    pub(super) fn new(dirty_max: u64) -> PlainCache {
        PlainCache { queue: Queue::default(), dirty_max, evicted: 0, known: 0 }
    }

    #[inline]
    pub(super) fn write(&mut self, extent: u32) {
        self.queue.push(extent, 0);
        while self.queue.dirty > self.dirty_max
            && let Some((_, number)) = self.queue.pop()
        {
            self.evicted += 1;
            self.known = number;
        }
    }

    /// Of writes up to the last one destaged; with a cache that never filled, none were.
    pub(super) fn evicted_share(&self) -> f64 {
        if self.known == 0 { 0.0 } else { self.evicted as f64 / self.known as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::{PlainCache, Spill, VersionedCache};

    fn spills(dirty_max: u64, writes: &[(u32, u64)]) -> Vec<Spill> {
        let mut cache = VersionedCache::new(dirty_max);
        let mut spills = Vec::new();
        for (extent, window) in writes {
            cache.write(*extent, *window, |spill| spills.push(spill));
        }
        cache.drain(|spill| spills.push(spill));
        // Told apart by hand below, if at all.
        spills.iter_mut().for_each(|spill| spill.is_superseded = false);
        spills
    }

    fn spill(extent: u32, window: u64, is_closed: bool) -> Spill {
        Spill { extent, window, is_closed, is_superseded: false }
    }

    #[test]
    fn the_least_recently_written_goes_first() {
        // 0 is written again and so waits behind 1.
        let found = spills(2, &[(0, 7), (1, 7), (0, 7), (2, 7)]);
        assert_eq!(found, [spill(1, 7, false), spill(0, 7, true), spill(2, 7, true)]);
    }

    #[test]
    fn a_version_of_an_earlier_window_is_kept_and_one_of_the_same_is_not() {
        let found = spills(10, &[(5, 0), (5, 0), (5, 1), (5, 3)]);
        assert_eq!(found, [spill(5, 0, true), spill(5, 1, true), spill(5, 3, true)]);
    }

    #[test]
    fn without_a_cache_every_write_goes_out() {
        let found = spills(0, &[(1, 0), (1, 0), (1, 1)]);
        assert_eq!(found, [spill(1, 0, false), spill(1, 0, false), spill(1, 1, false)]);
    }

    #[test]
    fn shares_are_of_writes_whose_fate_is_known() {
        let mut cache = PlainCache::new(2);
        for extent in [0, 0, 1, 2, 1, 3] {
            cache.write(extent);
        }
        // Destaged: the second write of 0, and 2; known are four of six.
        assert_eq!(cache.evicted_share(), 0.5);
    }

    #[test]
    fn the_order_does_not_grow_with_the_trace() {
        let mut cache = PlainCache::new(100);
        for number in 0..100_000 {
            cache.write(number % 3);
        }
        assert!(cache.queue.order.len() < 10_000);
    }
}
