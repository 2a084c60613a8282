//! Filling leaf pages: as many entries as go in, in the form that takes more of them.
//!
//! 1. A page is an extent leaf as long as all its entries fit one; it is a plain leaf if only that
//!    took the last of them. So a map with larger extents has never more leaves than one without.

use units::MapExtent;

use super::entry::Entry;
use super::grouped::Grouping;
use super::leaf::{LEAF_ENTRIES_MAX, LeafPage};
use crate::page::{PAGE_BYTES, PageAddress};

/// The entries of one leaf page, as they come.
#[derive(Debug)]
pub struct LeafBuilder {
    extent: MapExtent,
    /// The first entries: as many as go into a plain leaf.
    entries: Vec<Entry>,
    /// Entries in all.
    count: usize,
    /// The entries grouped; `is_grouped` says whether they all went in.
    grouping: Grouping,
    is_grouped: bool,
}

impl LeafBuilder {
    /// Without entries yet, for a map with extents of that size.
    pub fn new(extent: MapExtent) -> LeafBuilder {
        LeafBuilder {
            extent,
            entries: Vec::with_capacity(LEAF_ENTRIES_MAX),
            count: 0,
            grouping: Grouping::default(),
            is_grouped: !extent.is_block(),
        }
    }

    /// Takes the next entry, which comes after the one before; false if the page is full.
    pub fn push(&mut self, entry: Entry) -> bool {
        let is_grouped = self.is_grouped && self.grouping.push(&entry, self.extent.blocks());
        if !is_grouped && self.count >= LEAF_ENTRIES_MAX {
            return false;
        }
        self.is_grouped = is_grouped;
        if self.count < LEAF_ENTRIES_MAX {
            self.entries.push(entry);
        }
        self.count += 1;
        true
    }

    /// The first entry.
    pub fn first(&self) -> Option<&Entry> {
        self.entries.first()
    }

    /// The page of the entries; begins the next. Asserts that there are some, sound and in order.
    #[must_use]
    pub fn finish(&mut self, address: PageAddress) -> Box<[u8; PAGE_BYTES]> {
        let page = match self.is_grouped {
            true => self.grouping.encode(address),
            false => LeafPage::encode(address, &self.entries),
        };
        self.entries.clear();
        self.grouping.clear();
        (self.count, self.is_grouped) = (0, !self.extent.is_block());
        page
    }
}
