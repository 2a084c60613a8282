//! Looking up the 512 blocks of a map page at a moment.

use format::map::{Entry, Key, LEVEL_MAX};
use units::{Lba, Seq};

use super::reader::Run;
use super::source::RunSource;
use crate::Result;
use crate::slot::{BLOCKS_PER_PAGE, Slot};

impl Run {
    /// Puts the newest entries with `seq <= at` for the blocks of a map page (`page` * 512 and on)
    /// into those slots whose seq is lower. Considers trims of ranges that cover the page.
    ///
    /// Costs at most four searches, and two for each block that the run has.
    ///
    /// # Errors
    /// `Corrupt`, or the device's; slots may then be filled in part.
    pub fn fill_page(
        &self,
        source: RunSource<'_>,
        page: u64,
        at: Seq,
        slots: &mut [Slot; BLOCKS_PER_PAGE],
    ) -> Result<()> {
        if at < self.footer().seq_first {
            return Ok(());
        }
        if let Some(trim) = self.newest_cover(source, page, at)? {
            slots.iter_mut().for_each(|slot| slot.raise(&trim));
        }
        self.fill_blocks(source, page, at, slots)
    }

    /// The newest trim with `seq <= at` of a range that covers the page.
    fn newest_cover(&self, source: RunSource<'_>, page: u64, at: Seq) -> Result<Option<Entry>> {
        let block = Lba(page * BLOCKS_PER_PAGE as u64);
        let mut newest: Option<Entry> = None;
        for level in 1..=LEVEL_MAX {
            let key = Key::covering(block, level);
            if !(self.footer().key_first..=self.footer().key_last).contains(&key) {
                continue;
            }
            let found = self.cursor_at(source, key, at)?.peek();
            let found = found.filter(|entry| entry.key == key);
            newest = newest.into_iter().chain(found).max_by_key(|entry| entry.seq);
        }
        Ok(newest)
    }

    fn fill_blocks(
        &self,
        source: RunSource<'_>,
        page: u64,
        at: Seq,
        slots: &mut [Slot; BLOCKS_PER_PAGE],
    ) -> Result<()> {
        let first = page * BLOCKS_PER_PAGE as u64;
        let end = Key::block(Lba(first + BLOCKS_PER_PAGE as u64));
        let begin = Key::block(Lba(first));
        if self.footer().key_last < begin || end <= self.footer().key_first {
            return Ok(());
        }
        let mut cursor = self.cursor_at(source, begin, at)?;
        while let Some(entry) = cursor.peek().filter(|entry| entry.key < end) {
            if entry.seq > at {
                // Newer versions of a block than were asked for: over them, to the one asked for.
                cursor.seek_forward(entry.key, at)?;
                continue;
            }
            let i = usize::try_from(entry.key.index - first).expect("a block of the page");
            slots[i].raise(&entry);
            cursor.seek_forward(Key::block(Lba(entry.key.index + 1)), at)?;
        }
        Ok(())
    }
}
