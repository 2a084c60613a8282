//! Writing a run: leaves as entries come, then the index, then the footer.
//!
//! 1. Entries come in strictly ascending order (keys ascending, seqs of a key descending).
//! 2. Nothing names the run before `finish` has returned and the device was flushed.

use format::PageAddress;
use format::checksum::CrcStream;
use format::map::{Entry, LeafBuilder};
use format::run::{INDEX_ENTRIES_MAX, IndexEntry, IndexPage, RunFooter};
use units::{MapExtent, Seq};

use super::leaf_index::LeafIndex;
use super::source::PageSink;
use crate::Result;

/// Writes one run to a sink of pages.
pub struct RunWriter<S: PageSink> {
    sink: S,
    /// The address of the next page.
    address: PageAddress,
    timeline: u64,
    extent: MapExtent,
    /// The leaf that is being filled.
    leaf: LeafBuilder,
    index: LeafIndex,
    first: Option<Entry>,
    last: Option<Entry>,
    entries: u64,
    seq_first: Seq,
    seq_last: Seq,
}

impl<S: PageSink> RunWriter<S> {
    /// Begins the run with that number, of that timeline, for a map with extents of that size.
    pub fn new(sink: S, pool_id: u128, run: u64, timeline: u64, extent: MapExtent) -> RunWriter<S> {
        RunWriter {
            sink,
            address: PageAddress::new(pool_id, run, 0),
            timeline,
            extent,
            leaf: LeafBuilder::new(extent),
            index: LeafIndex::default(),
            first: None,
            last: None,
            entries: 0,
            seq_first: Seq::MAX,
            seq_last: Seq::ZERO,
        }
    }

    /// Adds the next entry. Asserts that it comes after the one before.
    ///
    /// # Errors
    /// The sink's; the run is then to be given up.
    pub fn push(&mut self, entry: Entry) -> Result<()> {
        let ascends = self.last.is_none_or(|last| last.order() < entry.order());
        assert!(ascends, "{entry:?} after {:?}", self.last);
        if !self.leaf.push(entry) {
            self.append_leaf()?;
            assert!(self.leaf.push(entry), "an empty leaf takes an entry");
        }
        self.first.get_or_insert(entry);
        self.last = Some(entry);
        self.entries += 1;
        self.seq_first = self.seq_first.min(entry.seq);
        self.seq_last = self.seq_last.max(entry.seq);
        Ok(())
    }

    /// Completes the run, and returns the sink and the run's footer: `None` if there was no
    /// entry, and then no page either. The caller flushes.
    ///
    /// # Errors
    /// The sink's; the run is then to be given up.
    pub fn finish(mut self) -> Result<(S, Option<RunFooter>)> {
        let (Some(first), Some(last)) = (self.first, self.last) else {
            return Ok((self.sink, None));
        };
        self.append_leaf()?;
        let leaf_pages = self.address.page;
        let index_crc = self.append_index()?;
        let footer = RunFooter {
            timeline: self.timeline,
            leaf_pages,
            index_pages: self.address.page - leaf_pages,
            entries: self.entries,
            key_first: first.key,
            key_last: last.key,
            seq_first: self.seq_first,
            seq_last: self.seq_last,
            index_crc,
            extent: self.extent,
        };
        self.sink.append_page(&footer.encode(self.address))?;
        Ok((self.sink, Some(footer)))
    }

    fn append_leaf(&mut self) -> Result<()> {
        let first = self.leaf.first().expect("a leaf is appended for its entries");
        self.index.push(IndexEntry { key: first.key, seq: first.seq });
        self.sink.append_page(&self.leaf.finish(self.address))?;
        self.address.page += 1;
        Ok(())
    }

    fn append_index(&mut self) -> Result<u32> {
        let mut crc = CrcStream::default();
        for start in (0..self.index.len()).step_by(INDEX_ENTRIES_MAX) {
            let end = self.index.len().min(start + INDEX_ENTRIES_MAX);
            let entries: Vec<IndexEntry> = (start..end).map(|leaf| self.index.get(leaf)).collect();
            let page = IndexPage::encode(self.address, &entries);
            crc.append(&page[..]);
            self.sink.append_page(&page)?;
            self.address.page += 1;
        }
        Ok(crc.crc())
    }
}
