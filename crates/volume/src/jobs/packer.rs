//! Encoding history: versions that were written over go from the log, or from packs, to new packs,
//! while a full merge passes by (docs/design/2026-11-21-encoding.md).
//!
//! Invariants
//! 1. Entries leave in the order in which they came: those behind one whose pack is not written yet
//!    wait.
//! 2. A version is packed only after its checksum held, and a pack is named only after it was
//!    decoded again and compared. A block that does not pay is left where it is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::Purpose;
use format::location::Location;
use format::map::Entry;
use format::pack::{
    PACK_BYTES_MAX, PACK_VERSIONS_MAX, Pack, PackEncoder, PackEncoding, PackPlace, PackVersion,
};
use history::{Content, IoKind, Segment};
use units::{BLOCK_BYTES, Seq};

use crate::Result;
use crate::core::Core;
use crate::jobs::compactions::{Tally, Wishes};
use crate::jobs::mover::read_entry;
use crate::jobs::segment_writer::{FreshSegments, Holds};
use crate::types::Compaction;

const BLOCK: usize = BLOCK_BYTES as usize;
/// A pack is kept if it has at most this share of the bytes of its versions, in percent.
const PAYS_PERCENT: usize = 75;
/// Versions of one block in a pack from which on it is left alone when newer ones are packed.
const GROWN: usize = 16;
/// Versions from which on a pack takes no other block: those of one block are better together, for
/// alike they cost little beside each other.
const RIPE: usize = 24;

/// Which versions are packed.
#[derive(Clone, Debug)]
pub struct PackRule {
    /// How.
    pub encoding: PackEncoding,
    /// Raw ones that were written over after the first seq (earlier ones were looked at before) up
    /// to the second; `None` is none, only what lies in packs that are to be emptied.
    pub span: Option<(Seq, Seq)>,
    /// The requests by hand; they go before the span.
    pub wishes: Wishes,
    /// The newest version of a block is in place, and never packed.
    pub newest_stays: bool,
}

/// The work done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Versions that are in packs now.
    pub versions: u64,
    /// Of these, those that were raw before.
    pub raw: u64,
    /// Bytes of those packs.
    pub bytes: u64,
    /// Versions that a pack would not have made much smaller.
    pub left: u64,
    /// Packs that did not decode to what went in.
    pub faults: u64,
}

/// An entry on its way to the new run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// As it is now.
    As(Entry),
    /// It moved from a segment.
    Moved {
        /// As it is now.
        entry: Entry,
        /// Where it was.
        from: u64,
    },
    /// It was to be packed, which does not pay.
    Left(Entry),
}

/// The fate of an entry that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It goes by as it is.
    Passes,
    /// Its version is in the pack.
    Packed,
    /// It was, and did not pay.
    Left,
}

/// Gathers versions and writes packs of them.
pub struct Packer {
    fresh: FreshSegments,
    timeline: u64,
    rule: PackRule,
    pack: Pack,
    encoder: PackEncoder,
    /// Entries that wait for the pack; its versions are among them, marked.
    queue: VecDeque<(Entry, Fate)>,
    /// Its work so far.
    pub packed: Packed,
    /// The outcome of the versions that were asked for.
    pub tally: Tally,
    /// There is no room for more: what comes now stays as it is.
    pub is_short: bool,
}

impl Packed {
    /// Adds what was done elsewhere.
    pub fn add(&mut self, other: Packed) {
        self.versions += other.versions;
        self.raw += other.raw;
        self.bytes += other.bytes;
        self.left += other.left;
        self.faults += other.faults;
    }
}

impl Packer {
    /// A packer for one timeline of a log.
    #[must_use]
    pub fn new(core: Arc<Core>, (log, timeline): (u64, u64), rule: PackRule) -> Packer {
        Packer {
            fresh: FreshSegments::new(core, log, Holds::Versions, Purpose::Reclaim),
            timeline,
            rule,
            pack: Pack::default(),
            encoder: PackEncoder::default(),
            queue: VecDeque::new(),
            packed: Packed::default(),
            tally: Tally::default(),
            is_short: false,
        }
    }

    /// Up to where it looked at all raw versions; `None` if it did not: there was no room.
    #[must_use]
    pub fn done_to(&self) -> Option<Seq> {
        self.rule.span.filter(|_| !self.is_short).map(|(_, until)| until)
    }

    /// Whether the entry at `index` is to be packed; `entries` are those of its key (and perhaps
    /// of others) that the new run will have, in its order.
    #[must_use]
    pub fn wants(&self, entries: &[Entry], index: usize, is_emptied: bool) -> bool {
        let entry = &entries[index];
        if self.is_short || entry.key.level > 0 || entry.location.is_hole() {
            return false;
        }
        match self.content(entry) {
            None => false,
            // One is where its block belongs, the other costs a share of a block as it is, but to
            // whoever asked for a pack.
            Some(Content::Home | Content::Shared) => self.is_asked_for(entries, index),
            Some(Content::Pack) => {
                !self.is_unwanted(entries, index) && (is_emptied || self.joins(entries, index))
            }
            Some(Content::Logged) => self.takes(entries, index),
        }
    }

    fn content(&self, entry: &Entry) -> Option<Content> {
        self.fresh.core.store.locate(entry.location).ok().map(|(_, content)| content)
    }

    /// Whether a raw version is packed: somebody asked for it, or it was written over within the
    /// span.
    fn takes(&self, entries: &[Entry], index: usize) -> bool {
        let in_span = |newer: &Entry| {
            self.rule.span.is_some_and(|(after, until)| after < newer.seq && newer.seq <= until)
        };
        self.is_asked_for(entries, index)
            || self.wish(&entries[index]).is_none() && newer(entries, index).is_some_and(in_span)
    }

    fn wish(&self, entry: &Entry) -> Option<Compaction> {
        self.rule.wishes.of(entry.seq).map(|asked| asked.wish)
    }

    /// Whether a version is to be in a pack because its compaction was asked for, or that of a
    /// neighbour, against which it is stored: the one after it, or the one before it if that has
    /// none before itself. The newest version of a block is packed only for its own sake, and
    /// beside an older one.
    #[must_use]
    pub fn is_asked_for(&self, entries: &[Entry], index: usize) -> bool {
        let is_asked = |entry: &&Entry| self.wish(entry) == Some(Compaction::Compacted);
        // The version of the block before another, if it may be packed beside it.
        let older = |index: usize| {
            let older = entries.get(index + 1).filter(|older| older.key == entries[index].key);
            let fits = |older: &&Entry| self.wish(older) != Some(Compaction::Uncompacted);
            older.filter(fits).filter(|older| !older.location.is_hole())
        };
        match (self.wish(&entries[index]), newer(entries, index)) {
            (Some(Compaction::Uncompacted), _) | (None, None) => false,
            (Some(Compaction::Compacted), Some(_)) => true,
            (Some(Compaction::Compacted), None) => {
                !self.rule.newest_stays && older(index).is_some()
            }
            (None, Some(newer)) => {
                let is_only_neighbour = older(index + 1).is_none();
                is_asked(&newer) || is_only_neighbour && older(index).as_ref().is_some_and(is_asked)
            }
        }
    }

    /// Whether a version is not to be in a pack: that was asked for, or it is in one beside a
    /// neighbour that is to leave, and for no other reason.
    fn is_unwanted(&self, entries: &[Entry], index: usize) -> bool {
        let leaves = |entry: &Entry| self.wish(entry) == Some(Compaction::Uncompacted);
        let older = entries.get(index + 1).filter(|older| older.key == entries[index].key);
        leaves(&entries[index])
            || self.rule.span.is_none()
                && (older.is_some_and(leaves) || newer(entries, index).is_some_and(leaves))
                && !self.is_asked_for(entries, index)
    }

    /// Whether the version at `index` lies in a pack, is not to, and there is room to take it out.
    pub fn leaves(&mut self, entries: &[Entry], index: usize) -> bool {
        let is_packed = self.content(&entries[index]) == Some(Content::Pack);
        if !is_packed || !self.is_unwanted(entries, index) {
            return false;
        }
        self.is_short |= !self.has_room();
        !self.is_short
    }

    /// Counts an entry as it is entered in the new run; `is_new` if it went to a pack just now.
    pub fn count(&mut self, entry: &Entry, is_new: bool) {
        let Some(asked) = self.rule.wishes.of(entry.seq) else { return };
        if entry.location.is_hole() {
            return;
        }
        self.tally.count(asked, is_new || self.content(entry) == Some(Content::Pack));
    }

    /// Whether a packed version lies in a pack that has few of its block, beside versions of the
    /// block that are being packed (or the next one will be) with room for all of them.
    fn joins(&self, entries: &[Entry], index: usize) -> bool {
        let entry = &entries[index];
        let same = |other: &&Entry| other.key == entry.key && other.location == entry.location;
        let before = entries[..index].iter().rev().take_while(same).count();
        let after = entries[index..].iter().take_while(same).count();
        let next = index + after;
        let is_raw = |entry: &Entry| self.content(entry) == Some(Content::Logged);
        let goes_on =
            entries.get(next).is_some_and(|other| other.key == entry.key && is_raw(other))
                && self.takes(entries, next);
        let is_beside = self.pack.versions().last().is_some_and(|v| v.block == entry.key.index);
        let room = match self.is_ripe(entry.key.index) {
            true => PACK_VERSIONS_MAX,
            false => PACK_VERSIONS_MAX - self.pack.versions().len(),
        };
        (is_beside || goes_on) && before + after < GROWN && after <= room
    }

    /// Whether the pack is to be written before a version of this block is gathered.
    #[must_use]
    pub fn is_ripe(&self, block: u64) -> bool {
        let versions = self.pack.versions();
        versions.len() >= RIPE && versions.last().is_some_and(|last| last.block != block)
    }

    /// Takes an entry whose version is to be packed; false if its block cannot be had, and it is
    /// to be passed as it is.
    pub fn gather(&mut self, entry: &Entry) -> bool {
        let mut block = [0; BLOCK];
        if !read_entry(
            &self.fresh.core.store,
            entry,
            &mut block,
            (&self.fresh.io, IoKind::CopyRead),
        ) {
            return false;
        }
        let version = PackVersion { block: entry.key.index, seq: entry.seq, crc: entry.crc };
        self.pack.push(version, &block);
        self.queue.push_back((*entry, Fate::Packed));
        true
    }

    /// Takes an entry that is not packed; gives it back if nothing waits before it.
    #[must_use]
    pub fn pass(&mut self, entry: Entry) -> Option<Entry> {
        if self.queue.is_empty() {
            return Some(entry);
        }
        self.queue.push_back((entry, Fate::Passes));
        None
    }

    /// Whether what waits is to be written.
    #[must_use]
    pub fn is_full(&self) -> bool {
        const WAITING_MAX: usize = 4096;
        self.pack.versions().len() == PACK_VERSIONS_MAX || self.queue.len() >= WAITING_MAX
    }

    /// Writes the pack and lets go of everything that waited, in order.
    ///
    /// # Errors
    /// `Full`, `Refused`, `Io`.
    pub fn settle(&mut self) -> Result<Vec<Placed>> {
        let location = self.write()?;
        self.pack = Pack::default();
        let place = |(entry, fate): (Entry, Fate)| match (fate, location) {
            (Fate::Passes, _) => Placed::As(entry),
            (Fate::Packed, Some(location)) => {
                Placed::Moved { entry: Entry { location, ..entry }, from: entry.location.segment() }
            }
            (Fate::Packed | Fate::Left, _) => Placed::Left(entry),
        };
        Ok(self.queue.drain(..).map(place).collect())
    }

    /// Writes the pack; `None` if there is none, or it does not pay.
    fn write(&mut self) -> Result<Option<Location>> {
        let count = self.pack.versions().len();
        if count == 0 {
            return Ok(None);
        }
        let most = u32::try_from(PACK_BYTES_MAX).expect("less than a zone");
        let segment = self.fresh.with_room(most.min(self.zone_room()))?;
        let offset = segment.end.load(Ordering::Acquire);
        let place = PackPlace {
            segment: segment.number,
            offset,
            nonce: segment.nonce,
            timeline: self.timeline,
        };
        let Some(bytes) = self.encoded(place) else { return Ok(None) };
        let count = self.pack.versions().len();
        let is_packed = |(_, fate): &&(Entry, Fate)| *fate == Fate::Packed;
        let gathered: Vec<Entry> =
            self.queue.iter().filter(is_packed).map(|(entry, _)| *entry).collect();
        self.fresh.append(IoKind::CopyWrite, &segment, &[&bytes], &gathered)?;
        let takes_raw = self.rule.span.is_some() || !self.rule.wishes.is_empty();
        self.is_short |= takes_raw && !self.has_room();
        segment.packed.fetch_add(u32::try_from(count).expect("few"), Ordering::AcqRel);
        self.packed.versions += count as u64;
        let is_raw = |entry: &&Entry| self.content(entry) == Some(Content::Logged);
        self.packed.raw += gathered.iter().filter(is_raw).count() as u64;
        self.packed.bytes += bytes.len() as u64;
        Ok(Some(Location::new(segment.number, offset)))
    }

    /// The pack in bytes, if that pays. Where somebody asked for it, the blocks that do not pay by
    /// themselves are left out.
    fn encoded(&mut self, place: PackPlace) -> Option<Vec<u8>> {
        if self.rule.wishes.is_empty()
            && let Some(bytes) = self.encoded_if_it_pays(place)
        {
            return Some(bytes);
        }
        let whole = std::mem::take(&mut self.pack);
        let of_blocks = |blocks: &[u64]| {
            let mut pack = Pack::default();
            let of_them = whole.iter().filter(|(version, _)| blocks.contains(&version.block));
            of_them.for_each(|(version, bytes)| pack.push(version, bytes));
            pack
        };
        let mut paying = Vec::new();
        if !self.rule.wishes.is_empty() {
            for versions in whole.versions().chunk_by(|a, b| a.block == b.block) {
                self.pack = of_blocks(&[versions[0].block]);
                if self.encoded_if_it_pays(place).is_some() {
                    paying.push(versions[0].block);
                }
            }
        }
        self.pack = of_blocks(&paying);
        self.packed.left += (whole.versions().len() - self.pack.versions().len()) as u64;
        for (entry, fate) in self.queue.iter_mut().filter(|(_, fate)| *fate == Fate::Packed) {
            if !paying.contains(&entry.key.index) {
                *fate = Fate::Left;
            }
        }
        self.encoded_if_it_pays(place)
    }

    fn encoded_if_it_pays(&mut self, place: PackPlace) -> Option<Vec<u8>> {
        let count = self.pack.versions().len();
        if count == 0 {
            return None;
        }
        let Some(bytes) = self.encoder.encode(&self.pack, place, self.rule.encoding) else {
            self.packed.faults += 1;
            return None;
        };
        (bytes.len() * 100 <= count * BLOCK * PAYS_PERCENT).then_some(bytes)
    }

    fn has_room(&self) -> bool {
        let (_, free, reserve) = self.fresh.core.store.zone_counts();
        free > reserve + 2
    }

    /// Bytes of a zone behind its header.
    fn zone_room(&self) -> u32 {
        let zone = self.fresh.core.store.zone_bytes - format::segment::SEGMENT_HEADER_BYTES as u64;
        u32::try_from(zone).expect("zones are at most 32 MiB")
    }

    /// Every segment written. Asserts that nothing waits.
    pub fn finish(&mut self) -> Vec<Arc<Segment>> {
        assert!(self.queue.is_empty(), "what waits is settled before the end");
        let mut segments = self.fresh.finish();
        segments.retain(|segment| {
            let used = segment.packed.load(Ordering::Acquire) > 0;
            if !used {
                self.fresh.core.store.free_zone(segment.zone);
            }
            used
        });
        segments
    }
}

/// The version of a block that is next newer.
fn newer(entries: &[Entry], index: usize) -> Option<&Entry> {
    let newer = &entries[index.checked_sub(1)?];
    (newer.key == entries[index].key).then_some(newer)
}
