//! The pages of a cache: versions that wait to be written, in the order of their writes, and blocks
//! that are the same in memory and on the device, in the order of their last use.
//!
//! Invariants
//! 1. `newest` says where each block's newest version is. A clean page is always that of its block.
//! 2. Writes have rising numbers, so what waits is in the order of (write, block).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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

/// Bytes of so many pages are kept to be used again: those of one group of writes.
const SPARE_MAX: usize = 64;

/// A version of a block that waits.
#[derive(Debug)]
pub struct Page {
    pub block: u64,
    /// The write that it came with.
    pub write: u64,
    pub time: WallTime,
    pub window: Window,
    pub crc: u32,
    /// None: a hole.
    bytes: Option<Box<[u8]>>,
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

/// Where the newest version of a block is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Among those that wait, with its write.
    Waiting(u64),
    /// Among the clean ones, with its last use.
    Clean(u64),
}

/// Pages, and what they are for.
#[derive(Debug, Default)]
pub struct Pages {
    newest: FastMap<u64, Place>,
    /// By write and block.
    waiting: BTreeMap<(u64, u64), Page>,
    /// By last use: block and bytes.
    clean: BTreeMap<u64, (u64, Box<[u8]>)>,
    last_use: u64,
    spare: Vec<Box<[u8]>>,
}

impl Pages {
    /// How many versions wait.
    pub fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// How many blocks are clean.
    pub fn clean_len(&self) -> usize {
        self.clean.len()
    }

    /// The waiting pages, in order.
    pub fn waiting(&self) -> impl Iterator<Item = &Page> {
        self.waiting.values()
    }

    /// The first that waits.
    pub fn first_waiting(&self) -> Option<&Page> {
        self.waiting.first_key_value().map(|(_, page)| page)
    }

    /// The last that waits.
    pub fn last_waiting(&self) -> Option<&Page> {
        self.waiting.last_key_value().map(|(_, page)| page)
    }

    /// The write of a block's newest version, if it waits.
    pub fn newest_write(&self, block: u64) -> Option<u64> {
        match self.newest.get(&block)? {
            Place::Waiting(write) => Some(*write),
            Place::Clean(_) => None,
        }
    }

    /// A block's bytes, or that it is a hole; none when it is not here. A clean page is used by
    /// this.
    pub fn read(&mut self, block: u64) -> Option<Option<&[u8]>> {
        match *self.newest.get(&block)? {
            Place::Waiting(write) => Some(self.waiting[&(write, block)].bytes()),
            Place::Clean(used) => {
                let (_, bytes) = self.clean.remove(&used).expect("it is clean");
                Some(Some(self.add_clean(block, bytes)))
            }
        }
    }

    /// A version comes to wait, as the last. It takes the place of the newest before it where that
    /// is clean, or waits and may be replaced; says whether it replaced one that waited.
    pub fn wait(
        &mut self,
        block: u64,
        version: Version<'_>,
        may_replace: impl Fn(&Page) -> bool,
    ) -> bool {
        let key = (version.write, block);
        let is_last = self.waiting.last_key_value().is_none_or(|(last, _)| *last < key);
        assert!(is_last, "what waits is in the order of its writes");
        let replaced = match self.newest.get(&block).copied() {
            Some(Place::Waiting(write)) => match self.waiting.entry((write, block)) {
                Entry::Occupied(page) if may_replace(page.get()) => Some(page.remove()),
                _ => None,
            },
            Some(Place::Clean(used)) => {
                let clean = self.clean.remove(&used);
                self.spare(clean.map(|(_, bytes)| bytes));
                None
            }
            None => None,
        };
        let replaces = replaced.is_some();
        self.spare(replaced.and_then(|page| page.bytes));
        let bytes = version.bytes.map(|bytes| self.copy_of(bytes));
        let Version { write, time, window, crc, .. } = version;
        self.waiting.insert(key, Page { block, write, time, window, crc, bytes });
        self.newest.insert(block, Place::Waiting(write));
        replaces
    }

    /// Adds or replaces a clean block, of which nothing waits.
    pub fn put_clean(&mut self, block: u64, bytes: &[u8]) {
        match self.newest.get(&block) {
            Some(Place::Waiting(_)) => panic!("nobody wrote it since it was missed"),
            Some(Place::Clean(used)) => {
                let clean = self.clean.remove(used);
                self.spare(clean.map(|(_, bytes)| bytes));
            }
            None => {}
        }
        let bytes = self.copy_of(bytes);
        self.add_clean(block, bytes);
    }

    /// Adds a clean page, as the one that was used last.
    fn add_clean(&mut self, block: u64, bytes: Box<[u8]>) -> &[u8] {
        self.last_use += 1;
        self.newest.insert(block, Place::Clean(self.last_use));
        &self.clean.entry(self.last_use).or_insert((block, bytes)).1
    }

    fn copy_of(&mut self, bytes: &[u8]) -> Box<[u8]> {
        let Some(mut room) = self.spare.pop() else { return bytes.into() };
        room.copy_from_slice(bytes);
        room
    }

    fn spare(&mut self, bytes: Option<Box<[u8]>>) {
        self.spare.extend(bytes.filter(|_| self.spare.len() < SPARE_MAX));
    }

    /// A version that waited is in log and map: it is clean, if it is its block's newest and no
    /// hole. False when it is here no more.
    pub fn written(&mut self, block: u64, write: u64) -> bool {
        let Some(page) = self.waiting.remove(&(write, block)) else { return false };
        let is_newest = self.newest_write(block) == Some(write);
        match page.bytes {
            Some(bytes) if is_newest => drop(self.add_clean(block, bytes)),
            bytes => {
                if is_newest {
                    self.newest.remove(&block);
                }
                self.spare(bytes);
            }
        }
        true
    }

    /// Forgets clean blocks of a range.
    pub fn remove_clean(&mut self, range: Range<u64>) {
        self.clean.retain(|_, (block, _)| {
            let stays = !range.contains(block);
            if !stays {
                self.newest.remove(block);
            }
            stays
        });
    }

    /// Forgets the least recently used clean blocks until there are at most so many.
    pub fn shrink_clean_to(&mut self, count: usize) {
        while self.clean.len() > count {
            let (_, (block, bytes)) = self.clean.pop_first().expect("there is one");
            self.newest.remove(&block);
            self.spare(Some(bytes));
        }
    }

    /// Fails where its parts disagree.
    pub fn verify(&self) {
        for (&(write, block), page) in &self.waiting {
            assert_eq!((page.write, page.block), (write, block), "it waits at its place");
            assert!(self.newest_write(block) >= Some(write), "the newest is the newest, and waits");
        }
        for (&used, (block, _)) in &self.clean {
            let is_there = matches!(self.newest.get(block), Some(Place::Clean(at)) if *at == used);
            assert!(is_there, "clean pages are newest");
        }
        let is_there = |(&block, place): (&u64, &Place)| match place {
            Place::Waiting(write) => self.waiting.contains_key(&(*write, block)),
            Place::Clean(used) => self.clean.contains_key(used),
        };
        assert!(self.newest.iter().all(is_there), "each has its newest version");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use units::WallTime;

    use super::{Pages, Version};
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
        let all: Vec<(u64, u64)> = pages.waiting().map(|page| (page.block, page.write)).collect();
        assert_eq!(pages.read(2), Some(None));
        all.into_iter().for_each(|(block, write)| assert!(pages.written(block, write)));
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
                for (write, block) in waiting.drain(..count) {
                    assert!(pages.written(block, write));
                    assert!(!pages.written(block, write), "only once");
                }
            }
            let found: Vec<_> = pages.waiting().map(|page| (page.write, page.block)).collect();
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
