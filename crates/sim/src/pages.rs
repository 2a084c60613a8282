//! Sparse content: 4 KiB pages that are shared until written, so that copies of a whole media are
//! cheap.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 4096;

type Page = Arc<[u8; PAGE_BYTES]>;

/// Content by page; pages that are absent read as `background`.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    pages: BTreeMap<u64, Page>,
    background: u8,
}

/// The parts of `offset..offset + length` page by page: page number, offset in it, bytes.
pub(crate) fn parts(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let page_bytes = PAGE_BYTES as u64;
    let mut position = offset;
    let end = offset + length;
    std::iter::from_fn(move || {
        if position >= end {
            return None;
        }
        let within = position % page_bytes;
        let take = (page_bytes - within).min(end - position);
        let page = position / page_bytes;
        position += take;
        let to_size = |n: u64| usize::try_from(n).expect("at most a page");
        Some((page, to_size(within), to_size(take)))
    })
}

impl Pages {
    pub(crate) fn new(background: u8) -> Pages {
        Pages { pages: BTreeMap::new(), background }
    }

    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) {
        let mut done = 0;
        for (number, within, take) in parts(offset, buffer.len() as u64) {
            let target = &mut buffer[done..done + take];
            match self.pages.get(&number) {
                Some(page) => target.copy_from_slice(&page[within..within + take]),
                None => target.fill(self.background),
            }
            done += take;
        }
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        for (number, within, take) in parts(offset, bytes.len() as u64) {
            self.page_mut(number)[within..within + take].copy_from_slice(&bytes[done..done + take]);
            done += take;
        }
    }

    pub(crate) fn fill(&mut self, offset: u64, length: u64, byte: u8) {
        let whole: Page = Arc::new([byte; PAGE_BYTES]);
        for (number, within, take) in parts(offset, length) {
            if take == PAGE_BYTES {
                self.pages.insert(number, Arc::clone(&whole));
            } else {
                self.page_mut(number)[within..within + take].fill(byte);
            }
        }
    }

    /// Shares the page of `other`, so that both read the same there.
    pub(crate) fn share(&mut self, number: u64, other: &Pages) {
        match other.pages.get(&number) {
            Some(page) => self.pages.insert(number, Arc::clone(page)),
            None => self.pages.remove(&number),
        };
    }

    pub(crate) fn flip(&mut self, offset: u64, bit: u8) {
        for (number, within, _) in parts(offset, 1) {
            self.page_mut(number)[within] ^= 1 << (bit % 8);
        }
    }

    /// FNV-1a over all pages that differ from the background.
    pub(crate) fn digest(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |word: u64| hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
        for (number, page) in &self.pages {
            if page.iter().any(|&b| b != self.background) {
                add(*number);
                page.as_chunks::<8>().0.iter().for_each(|word| add(u64::from_le_bytes(*word)));
            }
        }
        hash
    }

    fn page_mut(&mut self, number: u64) -> &mut [u8; PAGE_BYTES] {
        let background = self.background;
        let page = self.pages.entry(number).or_insert_with(|| Arc::new([background; PAGE_BYTES]));
        Arc::make_mut(page)
    }
}
