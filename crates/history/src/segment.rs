//! Segments: what they are, what they hold, and how much of it something needs.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use format::segment::SEGMENT_HEADER_BYTES;
use units::{BLOCK_BYTES, Seq};

use crate::space_tally::{Account, SpaceCount};

/// One segment of a log, open or sealed.
#[derive(Debug)]
pub struct Segment {
    /// Its number, unique for ever in the pool.
    pub number: u64,
    /// The zone it fills.
    pub zone: u32,
    /// The log it belongs to.
    pub log: u64,
    /// Its secret, repeated in each of its batches.
    pub nonce: u64,
    /// Highest seq in it.
    pub last_seq: AtomicU64,
    /// Bytes used from the zone's start.
    pub end: AtomicU32,
    /// Map entries that name this segment: blocks in it, and holes that its batches made.
    pub live_entries: AtomicI64,
    /// The same as of the last commit of the catalogue.
    pub committed_entries: AtomicI64,
    /// No more batches will be appended.
    pub sealed: AtomicBool,
    /// Nothing needs it any more; it is here only for readers that began before.
    pub retired: AtomicBool,
    /// The slab of a base that it is: blocks have places of their own in it and are written over.
    pub slab: Option<u64>,
    /// Versions that were packed into it, or names that its shared blocks were given; 0 for other
    /// segments of batches.
    pub packed: AtomicU32,
    /// Its batches are shared: entries of several versions, timelines and logs may name one block.
    pub shared: bool,
    /// Names of its blocks are still being entered: it stays, though nothing names them yet.
    pub held: AtomicBool,
    /// Its counts in its log's tally.
    pub account: Account,
}

/// The content of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A block in the log.
    Logged,
    /// A block at home in a base.
    Home,
    /// A pack, in which the block is one of several.
    Pack,
    /// A block in the log that is there for several versions.
    Shared,
}

/// The log of segments whose blocks several logs have.
pub const NO_LOG: u64 = 0;

impl Segment {
    /// A sealed one with nothing in it but its header.
    pub fn new((number, zone): (u64, u32), (log, nonce): (u64, u64)) -> Segment {
        Segment {
            number,
            zone,
            log,
            nonce,
            last_seq: AtomicU64::new(0),
            end: AtomicU32::new(SEGMENT_HEADER_BYTES as u32),
            live_entries: AtomicI64::new(0),
            committed_entries: AtomicI64::new(0),
            sealed: AtomicBool::new(true),
            retired: AtomicBool::new(false),
            slab: None,
            packed: AtomicU32::new(0),
            shared: false,
            held: AtomicBool::new(false),
            account: Account::default(),
        }
    }

    /// The content of the locations in it.
    pub fn content(&self) -> Content {
        match self.packed.load(Ordering::Acquire) {
            _ if self.shared => Content::Shared,
            0 if self.slab.is_some() => Content::Home,
            0 => Content::Logged,
            _ => Content::Pack,
        }
    }

    /// Bytes that the map's entries hold in it, at most. Holes hold none, but are entries too; of
    /// packed versions, and of names of shared blocks, each holds its share of the segment.
    pub fn live_bytes(&self) -> u64 {
        let entries = self.live_entries.load(Ordering::Acquire).max(0) as u64;
        let end = u64::from(self.end.load(Ordering::Acquire));
        match u64::from(self.packed.load(Ordering::Acquire)) {
            0 => (entries * BLOCK_BYTES).min(end),
            packed => end * entries.min(packed) / packed,
        }
    }

    /// Its content, as it stands.
    pub fn space(&self) -> SpaceCount {
        let live_bytes = self.live_bytes();
        let entries = self.live_entries.load(Ordering::Acquire).max(0).unsigned_abs();
        let is_pack = self.content() == Content::Pack;
        let is_done = self.sealed.load(Ordering::Acquire) && self.slab.is_none();
        let end = u64::from(self.end.load(Ordering::Acquire));
        SpaceCount {
            live_bytes,
            entries,
            packed_bytes: if is_pack { live_bytes } else { 0 },
            packed_entries: if is_pack { entries } else { 0 },
            shadow_bytes: if is_pack { end.saturating_sub(live_bytes) } else { 0 },
            shared_bytes: if self.shared { live_bytes } else { 0 },
            shared_entries: if self.shared { entries } else { 0 },
            dead_bytes: if is_done { end.saturating_sub(live_bytes) } else { 0 },
        }
    }

    /// Counts itself anew in its log's tally: something of it has changed.
    pub fn settle(&self) {
        self.account.settle(|| self.space());
    }

    /// So many more of the map's entries name it, or fewer.
    pub fn add_entries(&self, count: i64) {
        self.live_entries.fetch_add(count, Ordering::AcqRel);
        self.settle();
    }

    /// Highest seq in it.
    pub fn last_seq(&self) -> Seq {
        Seq(self.last_seq.load(Ordering::Acquire))
    }
}
