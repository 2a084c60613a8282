//! Map entries not yet in a run: in seq order, found by page.
//!
//! Invariants
//! 1. Entries of one `Pending` belong to one timeline.
//! 2. Once frozen it never changes; flushing writes it out sorted and drops it.
//!
//! Batches may arrive out of seq order (they are written concurrently), so look-ups compare seqs.

use format::map::{Entry, Key};
use units::Seq;

use crate::hash::FastMap;
use crate::slot::{BLOCKS_PER_PAGE, Slot};

/// The position of an entry plus one; 0 for none.
type Link = u32;

/// Gathered map entries of one timeline.
#[derive(Debug, Default)]
pub struct Pending {
    entries: Vec<Entry>,
    /// Of each entry, the one of its page before it, as [`Link`]s: a chain through each page.
    before: Vec<Link>,
    last_of_page: FastMap<u64, Link>,
    nodes: Vec<Entry>,
    last_seq: Seq,
}

impl Pending {
    /// Adds an entry.
    pub fn push(&mut self, entry: Entry) {
        self.last_seq = self.last_seq.max(entry.seq);
        if entry.key.level > 0 {
            self.nodes.push(entry);
            return;
        }
        self.entries.push(entry);
        let link = Link::try_from(self.entries.len()).expect("flushed long before 2^32 entries");
        let last = self.last_of_page.entry(entry.key.index / BLOCKS_PER_PAGE as u64).or_default();
        self.before.push(std::mem::replace(last, link));
    }

    /// The entries of a page from its last one backwards.
    fn chain(&self, last: Link) -> impl Iterator<Item = &Entry> {
        let mut link = last;
        std::iter::from_fn(move || {
            let position = link.checked_sub(1)? as usize;
            link = self.before[position];
            Some(&self.entries[position])
        })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len() + self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Highest seq of its entries.
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// Puts the newest entries at or before `at` into the slots of a page that are older.
    pub fn fill_page(&self, page: u64, at: Seq, slots: &mut [Slot; BLOCKS_PER_PAGE]) {
        for entry in &self.nodes {
            if entry.seq <= at && node_covers(entry.key, page) {
                for slot in slots.iter_mut() {
                    slot.raise(entry);
                }
            }
        }
        let last = self.last_of_page.get(&page).copied().unwrap_or_default();
        for entry in self.chain(last) {
            if entry.seq <= at {
                slots[(entry.key.index % BLOCKS_PER_PAGE as u64) as usize].raise(entry);
            }
        }
    }

    /// All entries in run order: key ascending, seq descending.
    pub fn sorted(&self) -> Vec<Entry> {
        let mut all = self.entries.clone();
        all.extend_from_slice(&self.nodes);
        all.sort_unstable_by_key(|e| (e.key, std::cmp::Reverse(e.seq)));
        all
    }

    /// The entries of blocks, in the order in which they came.
    pub fn block_entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries of trims over whole pages and more.
    pub fn nodes(&self) -> &[Entry] {
        &self.nodes
    }

    /// Pages with entries above `after`, and keys of nodes above it.
    pub fn touched(&self, after: Seq, mut visit: impl FnMut(Key)) {
        for (&page, &last) in &self.last_of_page {
            if self.chain(last).any(|entry| entry.seq > after) {
                visit(Key { level: 1, index: page });
            }
        }
        self.nodes.iter().filter(|n| n.seq > after).for_each(|n| visit(n.key));
    }
}

/// Whether a node of level 1 or more covers a page.
pub fn node_covers(node: Key, page: u64) -> bool {
    page >> (9 * u32::from(node.level - 1)) == node.index
}
