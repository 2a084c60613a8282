//! Walking the entries of a run in order.

use std::sync::Arc;

use format::map::{Entry, Key, LeafPage};
use units::Seq;

use super::leaf_index::LeafIndex;
use super::reader::Run;
use super::source::RunSource;
use crate::Result;

/// How many entries to step over before searching the leaf: the next wanted entry is often near.
const STEPS_BEFORE_SEARCH: usize = 4;

/// A place in a run.
pub struct RunCursor<'a> {
    run: &'a Run,
    source: RunSource<'a>,
    index: &'a LeafIndex,
    keep_leaves: bool,
    /// The leaf that it stands in; `None` at the end.
    leaf: Option<Arc<LeafPage>>,
    leaf_number: u32,
    position: usize,
}

impl Run {
    /// A cursor at the run's first entry, for reading all of it: leaves do not displace others from
    /// the cache.
    ///
    /// # Errors
    /// `Corrupt`, or the device's.
    pub fn scan<'a>(&'a self, source: RunSource<'a>) -> Result<RunCursor<'a>> {
        let mut cursor = self.unplaced(source, false)?;
        cursor.enter(0, 0)?;
        Ok(cursor)
    }

    /// A cursor at the first entry at or after (`key`, `seq`), for look-ups; reads no other leaf.
    ///
    /// # Errors
    /// `Corrupt`, or the device's.
    pub fn cursor_at<'a>(
        &'a self,
        source: RunSource<'a>,
        key: Key,
        seq: Seq,
    ) -> Result<RunCursor<'a>> {
        let mut cursor = self.unplaced(source, true)?;
        cursor.seek(key, seq)?;
        Ok(cursor)
    }

    fn unplaced<'a>(&'a self, source: RunSource<'a>, keep_leaves: bool) -> Result<RunCursor<'a>> {
        let index = self.index(source.pages)?;
        let (leaf, leaf_number, position) = (None, 0, 0);
        Ok(RunCursor { run: self, source, index, keep_leaves, leaf, leaf_number, position })
    }
}

impl RunCursor<'_> {
    /// Goes to the first entry at or after (`key`, `seq`): of this key with this or a lower seq, or
    /// of a later key. Forwards or backwards.
    ///
    /// # Errors
    /// `Corrupt`, or the device's; the cursor is then at the end.
    pub fn seek(&mut self, key: Key, seq: Seq) -> Result<()> {
        let leaf = self.index.leaf_of(0, key, seq);
        self.seek_in(leaf, key, seq)
    }

    /// As `seek`, for a place that is not before the cursor's: cheap if it is near.
    ///
    /// # Errors
    /// `Corrupt`, or the device's; the cursor is then at the end.
    pub fn seek_forward(&mut self, key: Key, seq: Seq) -> Result<()> {
        let Some(leaf) = &self.leaf else { return Ok(()) };
        let place = (key, std::cmp::Reverse(seq));
        let near = leaf.len().min(self.position + STEPS_BEFORE_SEARCH);
        while self.position < near {
            if leaf.get(self.position).order() >= place {
                return Ok(());
            }
            self.position += 1;
        }
        self.position = leaf.seek_from(self.position, key, seq);
        if self.position < leaf.len() {
            return Ok(());
        }
        let number = self.index.leaf_of(self.leaf_number as usize, key, seq);
        if number == self.leaf_number as usize {
            // The place is between this leaf's last entry and the next leaf's first.
            return self.enter(number + 1, 0);
        }
        self.seek_in(number, key, seq)
    }

    fn seek_in(&mut self, number: usize, key: Key, seq: Seq) -> Result<()> {
        self.enter(number, 0)?;
        let Some(leaf) = &self.leaf else { return Ok(()) };
        self.position = leaf.seek(key, seq);
        if self.position == leaf.len() {
            self.enter(number + 1, 0)?;
        }
        Ok(())
    }

    /// Goes to a leaf, or to the end if there is none with this number.
    fn enter(&mut self, number: usize, position: usize) -> Result<()> {
        self.position = position;
        if number == self.index.len() {
            self.leaf = None;
            return Ok(());
        }
        let number = u32::try_from(number).expect("the footer counts leaves in 32 bits");
        if self.leaf.is_some() && self.leaf_number == number {
            return Ok(());
        }
        self.leaf = None;
        self.leaf_number = number;
        self.leaf = Some(self.run.leaf(self.source, self.index, number, self.keep_leaves)?);
        Ok(())
    }

    /// The entry that it stands at; `None` at the end.
    #[inline]
    pub fn peek(&self) -> Option<Entry> {
        self.leaf.as_ref().map(|leaf| leaf.get(self.position))
    }

    /// Goes to the next entry.
    ///
    /// # Errors
    /// `Corrupt`, or the device's; the cursor is then at the end.
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        let Some(leaf) = &self.leaf else { return Ok(()) };
        if self.position + 1 < leaf.len() {
            self.position += 1;
            return Ok(());
        }
        self.enter(self.leaf_number as usize + 1, 0)
    }
}
