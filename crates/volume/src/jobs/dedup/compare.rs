//! Comparing blocks of equal checksum byte by byte, and writing those that are equal once.
//!
//! Invariants
//! 1. Names of a shared batch have blocks that were read, verified and found equal.
//! 2. Content that lies in as few places as it could is left alone: a search that finds nothing new
//!    writes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::Purpose;
use format::batch::{BatchEncoder, BatchKind, header_bytes};
use format::location::Location;
use format::map::Entry;
use history::{IoKind, NO_LOG, Segment, block_location};
use units::{BLOCK_BYTES, Lba, Seq};

use super::moves::{Move, Moves};
use crate::Result;
use crate::core::Core;
use crate::jobs::mover::read_entry;
use crate::jobs::segment_writer::{FreshSegments, Holds, relocated};
use crate::types::Budget;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Names of one shared batch at most: 36 KiB of them.
const NAMES_MAX: usize = 1024;
/// Versions of equal checksum that are compared at a time, if they do not all lie in one place.
const GROUP_MAX: usize = 4 * NAMES_MAX;
/// Contents of one checksum that are told apart at a time; whoever makes more of them on purpose
/// has theirs left where they are.
const CLASSES_MAX: usize = 16;

/// A version whose block may be equal to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its checksum.
    pub crc: u32,
    /// Where it is.
    pub location: Location,
    /// Its timeline.
    pub timeline: u64,
    /// The volume whose log that is.
    pub log: u64,
    /// Its block.
    pub block: u64,
    /// Its seq.
    pub seq: Seq,
    /// It is shared already.
    pub is_shared: bool,
    /// It lies where little else is left, and is to be written anew.
    pub is_stale: bool,
}

impl Name {
    fn entry(&self) -> Entry {
        Entry::data(Lba(self.block), self.seq, self.location, self.crc)
    }
}

/// Names of one content.
struct Class {
    block: Box<[u8]>,
    names: Vec<Name>,
    /// Places where it lies.
    places: usize,
    is_stale: bool,
}

/// Parts of a group that are compared apart: what lies in one place is in one of them.
fn pieces(group: &[Name]) -> Vec<&[Name]> {
    let (mut pieces, mut start, mut end) = (Vec::new(), 0, 0);
    for place in group.chunk_by(|a, b| a.location == b.location) {
        if end > start && end - start + place.len() > GROUP_MAX {
            pieces.push(&group[start..end]);
            start = end;
        }
        end += place.len();
    }
    if end > start {
        pieces.push(&group[start..]);
    }
    pieces
}

/// The rest to compare, and the blocks written so far.
#[derive(Default)]
pub struct Comparer {
    /// By checksum, and by location where that is equal.
    names: Vec<Name>,
    /// Ranges of names of one checksum, in the order of their first blocks: what lies beside each
    /// other goes on doing so.
    groups: VecDeque<Range<usize>>,
    fresh: BTreeMap<u64, FreshSegments>,
    moves: BTreeMap<u64, Vec<Move>>,
    blocks: u64,
    named: u64,
    /// Something was written because little else was left where it was.
    pub has_stale: bool,
}

impl Comparer {
    /// For these.
    #[must_use]
    pub fn new(mut names: Vec<Name>) -> Comparer {
        names.sort_unstable_by_key(|n| (n.crc, n.location, n.timeline, n.block, n.seq));
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut start = 0;
        for group in names.chunk_by(|a, b| a.crc == b.crc) {
            for piece in pieces(group) {
                let range = start..start + piece.len();
                start = range.end;
                let is_alone = piece.iter().all(|name| name.location == piece[0].location);
                if !is_alone || piece[0].is_stale {
                    groups.push(range);
                }
            }
        }
        let first = |range: &Range<usize>| {
            names[range.clone()].iter().map(|name| (name.timeline, name.block)).min()
        };
        groups.sort_by_cached_key(first);
        Comparer { names, groups: groups.into(), ..Comparer::default() }
    }

    /// Compares for about so many bytes; true when all was compared.
    ///
    /// # Errors
    /// `Full`, `Refused`, `Io`.
    pub fn step(&mut self, core: &Arc<Core>, budget: Budget) -> Result<bool> {
        let mut blocks = (budget.bytes / BLOCK_BYTES).max(16);
        let _epoch = core.store.enter();
        while blocks > 0 {
            let Some(group) = self.groups.pop_front() else { return Ok(true) };
            blocks = blocks.saturating_sub(group.len() as u64);
            for class in self.classes(core, group) {
                let least = class.names.len().div_ceil(NAMES_MAX);
                if class.places > least || class.is_stale {
                    self.has_stale |= class.is_stale;
                    for names in class.names.chunks(NAMES_MAX) {
                        self.write(core, names, &class.block)?;
                    }
                }
            }
        }
        Ok(false)
    }

    /// Names of equal checksum by what their blocks are. One that cannot be read is in none.
    fn classes(&self, core: &Core, group: Range<usize>) -> Vec<Class> {
        let mut classes: Vec<Class> = Vec::new();
        let mut block = vec![0; BLOCK].into_boxed_slice();
        for place in self.names[group].chunk_by(|a, b| a.location == b.location) {
            let io = core.store.io(place[0].log);
            if !read_entry(&core.store, &place[0].entry(), &mut block, (&io, IoKind::CopyRead)) {
                continue;
            }
            let is_stale = place[0].is_stale;
            match classes.iter().position(|class| class.block == block) {
                Some(index) => {
                    let class = &mut classes[index];
                    class.names.extend_from_slice(place);
                    class.places += 1;
                    class.is_stale |= is_stale;
                }
                None if classes.len() == CLASSES_MAX => {}
                None => {
                    let (block, names) = (block.clone(), place.to_vec());
                    classes.push(Class { block, names, places: 1, is_stale });
                }
            }
        }
        classes
    }

    /// Writes a block under its names.
    fn write(&mut self, core: &Arc<Core>, names: &[Name], block: &[u8]) -> Result<()> {
        let log = names[0].log;
        let log = if names.iter().all(|name| name.log == log) { log } else { NO_LOG };
        let new = || FreshSegments::new(Arc::clone(core), log, Holds::Shared, Purpose::Reclaim);
        let fresh = self.fresh.entry(log).or_insert_with(new);
        let need = header_bytes(BatchKind::Shared, names.len(), names.len()) + BLOCK as u32;
        let segment = fresh.with_room(need)?;
        let offset = segment.end.load(Ordering::Acquire);
        let mut bytes = Vec::with_capacity(need as usize);
        let mut encoder = BatchEncoder::new(&mut bytes);
        for name in names {
            encoder.push_shared(name.block, name.seq, name.timeline, name.crc);
        }
        let mut header = relocated(&segment, offset, 0, names[0].seq);
        header.kind = BatchKind::Shared;
        let sizes = encoder.finish(&header);
        // Entries are counted when they are entered.
        fresh.append(IoKind::CopyWrite, &segment, &[&bytes, block], &[])?;
        segment.packed.fetch_add(u32::try_from(names.len()).expect("few"), Ordering::AcqRel);
        let to = block_location(Location::new(segment.number, offset + sizes.header_bytes), 0);
        for name in names {
            let Name { block, seq, location: from, .. } = *name;
            self.moves.entry(name.timeline).or_default().push(Move { block, seq, from, to });
        }
        self.blocks += 1;
        self.named += names.len() as u64;
        Ok(())
    }

    /// The segments written, where their blocks are for whom, how many blocks for how many
    /// versions.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Arc<Segment>>, BTreeMap<u64, Moves>, u64, u64) {
        let segments = self.fresh.values_mut().flat_map(FreshSegments::finish).collect();
        let moves = self.moves.into_iter().map(|(timeline, moves)| (timeline, Moves::new(moves)));
        (segments, moves.collect(), self.blocks, self.named)
    }
}

#[cfg(test)]
mod tests {
    use format::location::Location;
    use units::Seq;

    use super::{Name, pieces};

    #[test]
    fn what_lies_in_one_place_is_compared_at_once() {
        let name = |place: u32, seq: u64| Name {
            crc: 1,
            location: Location::new(7, 640 + place * 64),
            timeline: 1,
            log: 1,
            block: seq,
            seq: Seq(seq),
            is_shared: true,
            is_stale: false,
        };
        let group = |places: &[u64]| -> Vec<Name> {
            let places = (0..).zip(places);
            places.flat_map(|(place, &count)| (0..count).map(move |i| name(place, i))).collect()
        };
        let lengths = |places: &[u64]| -> Vec<usize> {
            pieces(&group(places)).into_iter().map(<[Name]>::len).collect()
        };
        assert_eq!(lengths(&[1014, 1024, 1024, 1024, 1024]), [4086, 1024]);
        assert_eq!(lengths(&[1024, 1024, 1024, 1024, 1]), [4096, 1]);
        assert_eq!(lengths(&[9000, 5]), [9000, 5]);
        assert_eq!(lengths(&[5, 9000]), [5, 9000]);
        assert_eq!(lengths(&[3]), [3]);
    }
}
