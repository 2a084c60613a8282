//! The checksums that the catalogue's pages are known to have.
//!
//! The library below checks its pages when a pool is opened and trusts them from then on: a page
//! that rots later would be a wrong answer or a panic in its depths. So each page's CRC32C is kept
//! in memory, from when it was first read or last written, and a read that brings anything else is
//! an error.
//!
//! Cost: 8 bytes of memory for each 4 KiB page of the catalogue.

use std::io;

use format::checksum::block_crc;
use units::BLOCK_BYTES;

/// CRC32C by page; `None` for a page of which nothing is known.
#[derive(Default)]
pub struct PageSums {
    sums: Vec<Option<u32>>,
}

impl PageSums {
    /// Checks what was read at `offset` of the catalogue; remembers pages seen for the first time.
    /// Pages of which only a part was read are passed over.
    ///
    /// # Errors
    /// `InvalidData` where a page holds something else than before.
    pub fn check(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for (page, content) in whole_pages(offset, bytes) {
            let found = block_crc(content);
            let known = self.of(page).get_or_insert(found);
            if *known != found {
                let text = format!("page {page} of the catalogue has rotted since it was written");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
        Ok(())
    }

    /// The checksum that a page is known to have. A damaged page may name any number: it is only
    /// looked up.
    pub fn known(&self, page: u64) -> Option<u32> {
        let index = usize::try_from(page).ok()?;
        self.sums.get(index).copied().flatten()
    }

    /// Forgets every page that `offset..offset + length` touches: it is about to be written.
    pub fn forget(&mut self, offset: u64, length: usize) {
        let end = offset.saturating_add(length as u64).div_ceil(BLOCK_BYTES);
        let end = usize::try_from(end).map_or(self.sums.len(), |end| end.min(self.sums.len()));
        let first = usize::try_from(offset / BLOCK_BYTES).map_or(end, |first| first.min(end));
        self.sums[first..end].fill(None);
    }

    /// Remembers what was written.
    pub fn learn(&mut self, offset: u64, bytes: &[u8]) {
        for (page, content) in whole_pages(offset, bytes) {
            *self.of(page) = Some(block_crc(content));
        }
    }

    fn of(&mut self, page: u64) -> &mut Option<u32> {
        let index = usize::try_from(page).expect("the catalogue fits memory many times");
        if self.sums.len() <= index {
            self.sums.resize(index + 1, None);
        }
        &mut self.sums[index]
    }
}

/// The whole pages in `bytes`, which begin at `offset`, with their numbers.
fn whole_pages(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let page_bytes = BLOCK_BYTES as usize;
    let first = offset.div_ceil(BLOCK_BYTES);
    let skipped = usize::try_from(first * BLOCK_BYTES - offset).expect("less than a page");
    let whole = bytes.get(skipped..).unwrap_or_default().chunks_exact(page_bytes);
    (first..).zip(whole)
}

#[cfg(test)]
mod tests {
    use super::PageSums;

    #[test]
    fn a_page_that_changed_by_itself_is_an_error() {
        let mut sums = PageSums::default();
        let mut bytes = vec![7; 3 * 4096];
        sums.learn(4096, &bytes);
        assert!(sums.check(4096, &bytes).is_ok());
        bytes[5000] ^= 1;
        assert!(sums.check(4096, &bytes).is_err());
        assert!(sums.check(4096, &bytes[..4096]).is_ok(), "that page is as it was");
        sums.forget(4096 + 5000, 1);
        assert!(sums.check(4096, &bytes).is_ok(), "somebody was about to write it");
        bytes[5000] ^= 1;
        assert!(sums.check(4096, &bytes).is_err(), "and so it was learnt anew");
    }

    #[test]
    fn a_page_that_cannot_be_is_unknown_and_takes_no_memory() {
        let mut sums = PageSums::default();
        sums.learn(0, &[1; 4096]);
        for page in [1, 1 << 36, u64::MAX / 4096, u64::MAX] {
            assert_eq!(sums.known(page), None);
            sums.forget(page.saturating_mul(4096), 8192);
        }
        assert!(sums.known(0).is_some());
        assert_eq!(sums.sums.len(), 1);
    }

    #[test]
    fn parts_of_pages_are_passed_over() {
        let mut sums = PageSums::default();
        sums.learn(0, &[1; 8192]);
        assert!(sums.check(0, &[2; 320]).is_ok());
        assert!(sums.check(100, &[2; 4000]).is_ok());
        assert!(sums.check(4000, &[2; 4000]).is_ok());
        assert!(sums.check(4000, &[2; 4200]).is_err());
    }
}
