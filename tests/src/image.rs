//! The expected contents of a volume at one moment: the checker's model.
//!
//! Pages are shared between images until one of them is written, so that hundreds of recorded
//! moments of a volume cost little more than what changed between them. A missing page is zeros.

use std::sync::Arc;

/// Bytes of a page; equal to the server's block, which matters only for what a diff may report.
pub const PAGE_BYTES: u64 = 4096;

type Page = [u8; PAGE_BYTES as usize];

/// Expected contents.
#[derive(Clone, Debug)]
pub struct Image {
    size: u64,
    pages: Vec<Option<Arc<Page>>>,
}

impl Image {
    /// `size` bytes of zeros.
    #[must_use]
    pub fn zeros(size: u64) -> Image {
        Image { size, pages: vec![None; index(size.div_ceil(PAGE_BYTES))] }
    }

    /// Bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Stores bytes.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.each_page(offset, bytes.len() as u64, |page, within, from| {
            let page = Arc::make_mut(page.get_or_insert_with(|| Arc::new([0; 4096])));
            let part = &bytes[from..from + within.len()];
            page[within].copy_from_slice(part);
        });
    }

    /// Makes a range zero.
    pub fn zero(&mut self, offset: u64, length: u64) {
        self.each_page(offset, length, |page, within, _| {
            if within.len() == PAGE_BYTES as usize {
                *page = None;
            } else if let Some(page) = page {
                Arc::make_mut(page)[within].fill(0);
            }
        });
    }

    fn each_page(
        &mut self,
        offset: u64,
        length: u64,
        mut change: impl FnMut(&mut Option<Arc<Page>>, std::ops::Range<usize>, usize),
    ) {
        assert!(offset + length <= self.size, "the checker wrote beyond its own image");
        let mut at = offset;
        while at < offset + length {
            let start = index(at % PAGE_BYTES);
            let end = index((offset + length).min((at / PAGE_BYTES + 1) * PAGE_BYTES) - at) + start;
            change(&mut self.pages[index(at / PAGE_BYTES)], start..end, index(at - offset));
            at += (end - start) as u64;
        }
    }

    /// The bytes of a range.
    #[must_use]
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        assert!(offset + length <= self.size, "the checker read beyond its own image");
        let mut bytes = vec![0; index(length)];
        let mut at = offset;
        while at < offset + length {
            let start = index(at % PAGE_BYTES);
            let end = index((offset + length).min((at / PAGE_BYTES + 1) * PAGE_BYTES) - at) + start;
            if let Some(page) = &self.pages[index(at / PAGE_BYTES)] {
                let to = index(at - offset);
                bytes[to..to + end - start].copy_from_slice(&page[start..end]);
            }
            at += (end - start) as u64;
        }
        bytes
    }

    /// The offset of the first byte of `bytes`, which stand at `offset`, that is not as expected.
    #[must_use]
    pub fn first_difference(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let expected = self.read(offset, bytes.len() as u64);
        if expected == bytes {
            return None;
        }
        let at = expected.iter().zip(bytes).position(|(a, b)| a != b)?;
        Some(offset + at as u64)
    }

    /// Changes the size; what is gained is zeros, what is lost is lost.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            let within = size % PAGE_BYTES;
            if within != 0 {
                let end = self.size.min(size - within + PAGE_BYTES);
                self.zero(size, end - size);
            }
        }
        self.size = size;
        self.pages.resize(index(size.div_ceil(PAGE_BYTES)), None);
    }

    /// Whether a page (by its number) has the same bytes in both; beyond an end there are zeros.
    #[must_use]
    pub fn page_equals(&self, other: &Image, number: u64) -> bool {
        const ZEROS: Page = [0; PAGE_BYTES as usize];
        let page = |image: &Image| image.pages.get(index(number)).cloned().flatten();
        match (page(self), page(other)) {
            (Some(a), Some(b)) => Arc::ptr_eq(&a, &b) || a == b,
            (Some(a), None) | (None, Some(a)) => *a == ZEROS,
            (None, None) => true,
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("images are small")
}

#[cfg(test)]
mod tests {
    use super::Image;

    #[test]
    fn an_image_is_what_was_written_and_a_copy_of_it_stays() {
        let mut image = Image::zeros(10_000);
        image.write(4090, &[7; 20]);
        let before = image.clone();
        image.zero(4095, 10);
        assert_eq!(before.read(4088, 24)[2..22], [7; 20]);
        assert_eq!(image.read(4090, 6), [7, 7, 7, 7, 7, 0]);
        assert_eq!(image.first_difference(4090, &[7; 6]), Some(4095));
        assert!(!image.page_equals(&before, 1) && image.page_equals(&before, 2));
    }

    #[test]
    fn what_a_resize_cut_off_does_not_come_back() {
        let mut image = Image::zeros(8192);
        image.write(0, &[1; 8192]);
        image.resize(5000);
        image.resize(8192);
        assert_eq!(image.read(4999, 2), [1, 0]);
        assert_eq!(image.read(8191, 1), [0]);
    }
}
