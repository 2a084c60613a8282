//! The pages of a cache: versions that wait to be written, in the order of their writes, and blocks
//! that are the same in memory and on the device, in the order of their last use.
//!
//! Invariants
//! 1. A page waits, or is clean, or is vacant; its bytes are used again for another block.
//! 2. `newest` has each block's newest version. A clean page is always that of its block.
//! 3. Writes have rising numbers, so the order of what waits is that of (write, block).

use std::ops::Range;

use history::FastMap;
use units::WallTime;

/// The versions that may replace one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    pub generation: u64,
    /// None: nothing may.
    pub number: Option<u64>,
}

/// No page.
const NONE: u32 = u32::MAX;
/// The write of pages that do not wait.
const CLEAN: u64 = 0;
/// The block of pages that are vacant.
const NOWHERE: u64 = u64::MAX;
/// Bytes of so many pages are kept to be used again: those of one group of writes.
const SPARE_MAX: usize = 64;

/// Which page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageId(u32);

/// A version of a block.
#[derive(Debug)]
pub struct Page {
    pub block: u64,
    /// The write that it came with, while it waits.
    pub write: u64,
    pub time: WallTime,
    pub window: Window,
    pub crc: u32,
    /// None: a hole.
    bytes: Option<Box<[u8]>>,
    before: u32,
    after: u32,
}

impl Page {
    /// Its bytes; none for a hole.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }
}

/// A version that comes to wait.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    pub write: u64,
    pub time: WallTime,
    pub window: Window,
    /// None: a hole.
    pub bytes: Option<&'a [u8]>,
    pub crc: u32,
}

/// The ends of an order of pages.
#[derive(Debug)]
struct Order {
    first: u32,
    last: u32,
    len: usize,
}

impl Default for Order {
    fn default() -> Order {
        Order { first: NONE, last: NONE, len: 0 }
    }
}

/// Pages, and what they are for.
#[derive(Debug, Default)]
pub struct Pages {
    pages: Vec<Page>,
    vacant: Vec<u32>,
    spare: Vec<Box<[u8]>>,
    newest: FastMap<u64, u32>,
    waiting: Order,
    clean: Order,
}

impl Pages {
    /// How many versions wait.
    pub fn waiting_len(&self) -> usize {
        self.waiting.len
    }

    /// How many blocks are clean.
    pub fn clean_len(&self) -> usize {
        self.clean.len
    }

    fn page(&self, number: u32) -> &Page {
        &self.pages[number as usize]
    }

    fn page_mut(&mut self, number: u32) -> &mut Page {
        &mut self.pages[number as usize]
    }

    /// The waiting pages, in order.
    pub fn waiting(&self) -> impl Iterator<Item = (PageId, &Page)> {
        let there = |number: u32| (number != NONE).then_some(number);
        let numbers = std::iter::successors(there(self.waiting.first), move |&number| {
            there(self.page(number).after)
        });
        numbers.map(|number| (PageId(number), self.page(number)))
    }

    /// The first that waits.
    pub fn first_waiting(&self) -> Option<&Page> {
        self.pages.get(self.waiting.first as usize)
    }

    /// The last that waits.
    pub fn last_waiting(&self) -> Option<&Page> {
        self.pages.get(self.waiting.last as usize)
    }

    /// The write of a block's newest version, if it waits.
    pub fn newest_write(&self, block: u64) -> Option<u64> {
        let write = self.page(*self.newest.get(&block)?).write;
        (write != CLEAN).then_some(write)
    }

    /// A block's bytes, or that it is a hole; none when it is not here. A clean page is used by
    /// this.
    pub fn read(&mut self, block: u64) -> Option<Option<&[u8]>> {
        let number = *self.newest.get(&block)?;
        if self.page(number).write == CLEAN {
            self.unlink(number);
            self.append(number);
        }
        Some(self.page(number).bytes())
    }

    /// A version comes to wait, as the last. It takes the place of the newest before it where that
    /// is clean, or waits and may be replaced; says whether it replaced one that waited.
    pub fn wait(
        &mut self,
        block: u64,
        version: Version<'_>,
        may_replace: impl Fn(&Page) -> bool,
    ) -> bool {
        let before = self.newest.get(&block).copied().filter(|&number| {
            let page = self.page(number);
            page.write == CLEAN || may_replace(page)
        });
        let replaces = before.is_some_and(|number| self.page(number).write != CLEAN);
        let number = self.take_place(before, block, version.bytes);
        let page = self.page_mut(number);
        (page.write, page.crc) = (version.write, version.crc);
        (page.time, page.window) = (version.time, version.window);
        self.append(number);
        replaces
    }

    /// Adds or replaces a clean block, of which nothing waits.
    pub fn put_clean(&mut self, block: u64, bytes: &[u8]) {
        let before = self.newest.get(&block).copied();
        let waits = before.is_some_and(|number| self.page(number).write != CLEAN);
        assert!(!waits, "nobody wrote it since it was missed");
        let number = self.take_place(before, block, Some(bytes));
        self.append(number);
    }

    /// The page for the newest version of a block, with its bytes, and in no order.
    fn take_place(&mut self, before: Option<u32>, block: u64, bytes: Option<&[u8]>) -> u32 {
        let number = match before {
            Some(number) => {
                self.unlink(number);
                number
            }
            None => {
                let number = self.vacant.pop().unwrap_or_else(|| self.add());
                self.newest.insert(block, number);
                number
            }
        };
        let room = self.pages[number as usize].bytes.take().or_else(|| {
            let is_data = bytes.is_some();
            is_data.then(|| self.spare.pop()).flatten()
        });
        let bytes = match (room, bytes) {
            (Some(mut room), Some(bytes)) => {
                room.copy_from_slice(bytes);
                Some(room)
            }
            (None, bytes) => bytes.map(Box::from),
            (Some(room), None) => {
                self.spare(room);
                None
            }
        };
        let page = self.page_mut(number);
        (page.block, page.bytes) = (block, bytes);
        number
    }

    fn add(&mut self) -> u32 {
        let number = u32::try_from(self.pages.len()).expect("a cache has fewer than 2^32 pages");
        assert!(number != NONE, "a cache has fewer than 2^32 pages");
        self.pages.push(Page {
            block: NOWHERE,
            write: CLEAN,
            time: WallTime::default(),
            window: Window::default(),
            crc: 0,
            bytes: None,
            before: NONE,
            after: NONE,
        });
        number
    }

    fn spare(&mut self, bytes: Box<[u8]>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(bytes);
        }
    }

    /// A version that waited is in log and map: it is clean, if it is its block's newest and no
    /// hole. False when it is here no more.
    pub fn written(&mut self, id: PageId, block: u64, write: u64) -> bool {
        let PageId(number) = id;
        let is_it = |page: &Page| page.block == block && page.write == write;
        if !self.pages.get(number as usize).is_some_and(is_it) {
            return false;
        }
        self.unlink(number);
        self.page_mut(number).write = CLEAN;
        let is_newest = self.newest.get(&block) == Some(&number);
        if is_newest && self.page(number).bytes.is_some() {
            self.append(number);
        } else {
            if is_newest {
                self.newest.remove(&block);
            }
            self.vacate(number);
        }
        true
    }

    /// Forgets clean blocks of a range.
    pub fn remove_clean(&mut self, range: Range<u64>) {
        let mut number = self.clean.first;
        while number != NONE {
            let page = self.page(number);
            let (block, after) = (page.block, page.after);
            if range.contains(&block) {
                self.forget(number);
            }
            number = after;
        }
    }

    /// Forgets the least recently used clean blocks until there are at most so many.
    pub fn shrink_clean_to(&mut self, count: usize) {
        while self.clean.len > count {
            self.forget(self.clean.first);
        }
    }

    /// Forgets a clean page.
    fn forget(&mut self, number: u32) {
        self.unlink(number);
        let block = self.page(number).block;
        self.newest.remove(&block);
        self.vacate(number);
    }

    /// A page in no order is for nothing any more.
    fn vacate(&mut self, number: u32) {
        let page = self.page_mut(number);
        page.block = NOWHERE;
        if let Some(bytes) = page.bytes.take() {
            self.spare(bytes);
        }
        self.vacant.push(number);
    }

    fn order(&mut self, number: u32) -> &mut Order {
        if self.page(number).write == CLEAN { &mut self.clean } else { &mut self.waiting }
    }

    /// Puts a page at the end of the order it belongs to.
    fn append(&mut self, number: u32) {
        let write = self.page(number).write;
        let order = self.order(number);
        let before = std::mem::replace(&mut order.last, number);
        order.len += 1;
        match before {
            NONE => order.first = number,
            before => {
                let last = self.page_mut(before);
                assert!(last.write <= write, "what waits is in the order of its writes");
                last.after = number;
            }
        }
        let page = self.page_mut(number);
        (page.before, page.after) = (before, NONE);
    }

    /// Takes a page out of its order.
    fn unlink(&mut self, number: u32) {
        let Page { before, after, .. } = *self.page(number);
        let order = self.order(number);
        order.len -= 1;
        if before == NONE {
            order.first = after;
        }
        if after == NONE {
            order.last = before;
        }
        if before != NONE {
            self.page_mut(before).after = after;
        }
        if after != NONE {
            self.page_mut(after).before = before;
        }
    }

    /// Fails where its parts disagree.
    pub fn verify(&self) {
        let mut before = None;
        for (_, page) in self.waiting() {
            assert!(page.write != CLEAN, "what waits has a write");
            let newest = self.newest_write(page.block);
            assert!(newest >= Some(page.write), "the newest version is the newest, and waits");
            assert!(before < Some((page.write, page.block)), "it waits in the order of writes");
            before = Some((page.write, page.block));
        }
        let waiting = self.newest.keys().filter(|&&block| self.newest_write(block).is_some());
        assert_eq!(self.newest.len() - waiting.count(), self.clean.len, "clean pages are newest");
        assert_eq!(self.waiting().count(), self.waiting.len, "all that wait are counted");
        let used = self.waiting.len + self.clean.len;
        assert_eq!(used + self.vacant.len(), self.pages.len(), "no page is lost");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use units::WallTime;

    use super::{PageId, Pages, Version};
    use crate::write::cache::pages::Window;

    fn version(write: u64, bytes: Option<&[u8]>) -> Version<'_> {
        let time = WallTime::from_nanos(write);
        Version { write, time, window: Window::default(), bytes, crc: write as u32 }
    }

    fn clean(pages: &mut Pages, blocks: u64) -> Vec<u64> {
        let all: Vec<u64> = (0..blocks).filter(|&b| pages.newest.contains_key(&b)).collect();
        all.into_iter().filter(|&b| pages.newest_write(b).is_none()).collect()
    }

    #[test]
    fn a_hole_that_was_written_is_nowhere_and_data_is_clean() {
        let mut pages = Pages::default();
        pages.wait(1, version(1, Some(&[7; 8])), |_| false);
        pages.wait(2, version(2, None), |_| false);
        let ids: Vec<(PageId, u64, u64)> =
            pages.waiting().map(|(id, page)| (id, page.block, page.write)).collect();
        assert_eq!(pages.read(2), Some(None));
        ids.into_iter().for_each(|(id, block, write)| assert!(pages.written(id, block, write)));
        pages.verify();
        assert_eq!(pages.read(1), Some(Some(&[7; 8][..])));
        assert_eq!(pages.read(2), None);
        assert_eq!(clean(&mut pages, 4), [1]);
    }

    #[test]
    fn the_least_recently_used_is_forgotten_first() {
        let mut pages = Pages::default();
        (0..4).for_each(|block| pages.put_clean(block, &[block as u8; 8]));
        assert!(pages.read(0).is_some());
        pages.put_clean(1, &[9; 8]);
        pages.shrink_clean_to(2);
        pages.verify();
        assert_eq!(clean(&mut pages, 4), [0, 1]);
        assert_eq!(pages.read(1), Some(Some(&[9; 8][..])));
        pages.remove_clean(0..1);
        assert_eq!(clean(&mut pages, 4), [1]);
    }

    /// Against a plain list of what waits and a map of what each block is, by a fixed rule.
    #[test]
    fn it_is_a_list_of_versions_and_a_map_of_blocks() {
        let mut pages = Pages::default();
        let mut waiting: VecDeque<(u64, u64)> = VecDeque::new();
        let mut blocks: BTreeMap<u64, Option<u8>> = BTreeMap::new();
        let mut state = 3_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % below
        };
        for write in 1..5000 {
            let (block, byte) = (next(16), (next(5) > 0).then_some(next(256) as u8));
            let replaces = next(2) == 0;
            let data = byte.map(|byte| [byte; 8]);
            let last = waiting.iter().rposition(|&(_, b)| b == block);
            let replaced =
                pages.wait(block, version(write, data.as_ref().map(|d| &d[..])), |_| replaces);
            assert_eq!(replaced, replaces && last.is_some());
            if let Some(last) = last.filter(|_| replaces) {
                waiting.remove(last);
            }
            waiting.push_back((write, block));
            blocks.insert(block, byte);
            if next(3) == 0 {
                let count = next(waiting.len() as u64 + 1) as usize;
                let first: Vec<_> = pages.waiting().take(count).map(|(id, _)| id).collect();
                for (id, (write, block)) in first.into_iter().zip(waiting.drain(..count)) {
                    assert!(pages.written(id, block, write));
                    assert!(!pages.written(id, block, write), "only once");
                }
            }
            let found: Vec<_> = pages.waiting().map(|(_, page)| (page.write, page.block)).collect();
            assert_eq!(found, Vec::from(waiting.clone()));
            for (&block, &byte) in &blocks {
                let waits = waiting.iter().any(|&(_, b)| b == block);
                let wanted = byte.map(|byte| [byte; 8]);
                match pages.read(block) {
                    None => assert!(!waits && byte.is_none(), "only written holes are gone"),
                    Some(there) => assert_eq!(there, wanted.as_ref().map(|w| &w[..])),
                }
            }
            pages.verify();
        }
    }
}
