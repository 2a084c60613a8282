//! Reading a run: its footer when it is opened, its index when it is first used, leaves as needed.

use std::sync::{Arc, OnceLock};

use format::checksum::CrcStream;
use format::map::LeafPage;
use format::run::{IndexPage, RunFooter};
use format::{FormatError, FormatErrorKind, PAGE_BYTES, PageAddress};

use super::leaf_index::LeafIndex;
use super::source::{PageStore, RunSource};
use crate::Result;

/// An open run. All threads may share it.
#[derive(Debug)]
pub struct Run {
    footer: RunFooter,
    /// The address of page 0.
    address: PageAddress,
    index: OnceLock<LeafIndex>,
}

/// Reads a page and decodes it; one that is not sound is healed if it can be.
pub(crate) fn read_sound<T>(
    pages: &dyn PageStore,
    page: u32,
    mut decode: impl FnMut(Box<[u8; PAGE_BYTES]>) -> format::Result<T>,
) -> Result<T> {
    let mut bytes = Box::new([0; PAGE_BYTES]);
    pages.read_page(page, &mut bytes)?;
    let error = match decode(bytes) {
        Ok(decoded) => return Ok(decoded),
        Err(error) => error,
    };
    let mut bytes = Box::new([0; PAGE_BYTES]);
    let decode = std::cell::RefCell::new(decode);
    let right = |bytes: &[u8; PAGE_BYTES]| decode.borrow_mut()(Box::new(*bytes)).is_ok();
    if pages.heal_page(page, &mut bytes, &right) {
        return Ok(decode.borrow_mut()(bytes)?);
    }
    Err(error.into())
}

impl Run {
    /// Opens the run with that number and so many pages, by its footer.
    ///
    /// # Errors
    /// `Corrupt` if the last page is not its footer; the device's.
    pub fn open(pages: &dyn PageStore, pool_id: u128, run: u64, page_count: u32) -> Result<Run> {
        let address = PageAddress::new(pool_id, run, 0);
        let last = page_count
            .checked_sub(1)
            .ok_or_else(|| corrupt("run footer", 0, "at least 3 pages", format!("{page_count}")))?;
        let footer =
            read_sound(pages, last, |bytes| RunFooter::decode(&bytes, address.with_page(last)))?;
        Ok(Run { footer, address, index: OnceLock::new() })
    }

    /// Its footer: what it holds.
    pub fn footer(&self) -> &RunFooter {
        &self.footer
    }

    /// The index, read the first time.
    pub(super) fn index(&self, pages: &dyn PageStore) -> Result<&LeafIndex> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let index = self.load_index(pages)?;
        Ok(self.index.get_or_init(|| index))
    }

    /// A leaf, verified, from the cache if it is there. A leaf that was read is left there if
    /// `keep`.
    pub(super) fn leaf(
        &self,
        source: RunSource<'_>,
        index: &LeafIndex,
        leaf: u32,
        keep: bool,
    ) -> Result<Arc<LeafPage>> {
        if let Some(page) = source.cache.look_up(self.address.run, leaf) {
            return Ok(page);
        }
        let page = Arc::new(self.read_leaf(source.pages, index, leaf)?);
        if keep {
            source.cache.insert(self.address.run, leaf, Arc::clone(&page));
        }
        Ok(page)
    }

    fn load_index(&self, pages: &dyn PageStore) -> Result<LeafIndex> {
        let leaf_pages = self.footer.leaf_pages;
        let index_end = leaf_pages + self.footer.index_pages;
        // The footer's counts are sound and match the pages that the run is known to have.
        let mut index = LeafIndex::with_capacity(leaf_pages as usize);
        let mut crc = CrcStream::default();
        let mut last = Vec::new();
        for page in leaf_pages..index_end {
            let (bytes, entries) = read_sound(pages, page, |bytes| {
                let mut entries = last.clone();
                let address = self.address.with_page(page);
                IndexPage::decode(&bytes, address, &mut entries).map(|()| (bytes, entries))
            })?;
            entries[last.len()..].iter().for_each(|first| index.push(*first));
            last = entries.last().copied().into_iter().collect();
            crc.append(&bytes[..]);
        }
        let holds = index.len() == leaf_pages as usize
            && index.get(0).key == self.footer.key_first
            && crc.crc() == self.footer.index_crc;
        if !holds {
            let expected = format!("the index of {leaf_pages} leaves that the footer tells of");
            let found = format!("another, of {} leaves", index.len());
            return Err(corrupt("index page", leaf_pages, &expected, found).into());
        }
        Ok(index)
    }

    fn read_leaf(&self, pages: &dyn PageStore, index: &LeafIndex, leaf: u32) -> Result<LeafPage> {
        let address = self.address.with_page(leaf);
        let page = read_sound(pages, leaf, |bytes| LeafPage::decode(bytes, address))?;
        let number = leaf as usize;
        let (first, last) = (page.get(0), page.get(page.len() - 1));
        let begins = index.get(number).order() == first.order();
        let ends = if number + 1 < index.len() {
            last.order() < index.get(number + 1).order()
        } else {
            last.key == self.footer.key_last
        };
        if page.is_grouped() && self.footer.extent.is_block() {
            let found = "an extent leaf".to_owned();
            return Err(corrupt("leaf page", leaf, "a run without extents", found).into());
        }
        if !(begins && ends) {
            let found = format!("{} to {}", first.key, last.key);
            return Err(
                corrupt("leaf page", leaf, "the keys that the index tells of", found).into()
            );
        }
        Ok(page)
    }
}

fn corrupt(structure: &'static str, page: u32, expected: &str, found: String) -> FormatError {
    FormatError {
        kind: FormatErrorKind::Invalid,
        structure,
        address: u64::from(page),
        expected: expected.to_owned(),
        found,
    }
}
