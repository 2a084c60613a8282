//! Looking for equal blocks: which checksums occur more than once, and whose they are.
//!
//! Invariants
//! 1. Memory is bounded: two bit maps of at most `SLOTS_MAX` bits, and `FOUND_MAX` versions.
//! 2. Checksums only say what is worth comparing (`compare`); nothing is shared because of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::map::{Entry, Key};
use history::{Content, Segment, Store, Timeline, next_entries};
use units::Seq;

use super::compare::{Comparer, Name};
use super::moves::{Moves, is_stale};
use crate::Result;
use crate::core::Core;
use crate::types::Budget;

/// Bits of a map at most: 32 MiB.
const SLOTS_MAX: u64 = 1 << 28;
/// Bits for each entry.
const SLOTS_EACH: u64 = 8;
/// Versions gathered at most.
const FOUND_MAX: usize = 1 << 20;
/// Bytes of a map entry, for budgets.
const ENTRY_BYTES: u64 = 22;

/// A timeline that is searched.
pub struct Member {
    /// The volume whose log it is.
    pub log: u64,
    /// Versions that were written over after this seq are left to packing; `None` where nothing is
    /// packed.
    pub left: Option<Seq>,
    /// The timeline.
    pub timeline: Arc<Timeline>,
}

/// The outcome of a search.
pub struct Found {
    /// Segments of shared batches, not committed.
    pub segments: Vec<Arc<Segment>>,
    /// By timeline.
    pub moves: BTreeMap<u64, Moves>,
    /// Blocks stored once.
    pub blocks: u64,
    /// For so many versions.
    pub names: u64,
    /// Checksums that were looked at: from this one on, to that one.
    pub crcs: (u32, u32),
    /// Entries gone over.
    pub entries: u64,
    /// Some of it was written because little else was left where it was.
    pub has_stale: bool,
}

/// Which checksums were met, once and again; each has one slot of several.
struct Met {
    once: Vec<u64>,
    again: Vec<u64>,
    shift: u32,
}

impl Met {
    fn new(entries: u64) -> Met {
        let slots = (entries * SLOTS_EACH).next_power_of_two().clamp(1 << 16, SLOTS_MAX);
        let words = usize::try_from(slots / 64).expect("32 MiB");
        Met { once: vec![0; words], again: vec![0; words], shift: 32 - slots.ilog2() }
    }

    fn place(&self, crc: u32) -> (usize, u64) {
        let slot = crc >> self.shift;
        ((slot / 64) as usize, 1 << (slot % 64))
    }

    fn note(&mut self, crc: u32) {
        let (word, bit) = self.place(crc);
        self.again[word] |= self.once[word] & bit;
        self.once[word] |= bit;
    }

    fn is_again(&self, crc: u32) -> bool {
        let (word, bit) = self.place(crc);
        self.again[word] & bit != 0
    }
}

/// A search under way.
pub struct Search {
    members: Vec<Member>,
    /// All entries were counted: those are gathered whose checksums were met again.
    is_gathering: bool,
    met: Met,
    /// The member that is gone over, and from where on.
    member: usize,
    resume: (Key, Seq),
    /// The entry before, which is newer if it is of the same block.
    before: Option<(Key, Seq)>,
    /// Checksums from this one on, up to the next, are gathered.
    crcs: (u32, u32),
    names: Vec<Name>,
    /// Entries of all members.
    entries: u64,
    /// There is more of one checksum than is gathered: only what is not shared yet is taken.
    is_crowded: bool,
    comparer: Option<Comparer>,
}

const START: (Key, Seq) = (Key { level: 0, index: 0 }, Seq::MAX);

impl Search {
    /// Of these timelines, for checksums from one on.
    #[must_use]
    pub fn new(members: Vec<Member>, first_crc: u32) -> Search {
        let runs = members.iter().flat_map(|member| member.timeline.runs());
        let entries: u64 = runs.map(|run| run.footer().entries).sum();
        Search {
            members,
            is_gathering: false,
            met: Met::new(entries),
            member: 0,
            resume: START,
            before: None,
            crcs: (first_crc, u32::MAX),
            names: Vec::new(),
            entries,
            is_crowded: false,
            comparer: None,
        }
    }

    /// Goes on for about so many bytes; true when all was compared.
    ///
    /// # Errors
    /// `Corrupt`, `Full`, `Refused`, `Io`; it is then to be dropped.
    pub fn step(&mut self, core: &Arc<Core>, budget: Budget) -> Result<bool> {
        if let Some(comparer) = &mut self.comparer {
            return comparer.step(core, budget);
        }
        let _epoch = core.store.enter();
        let entries = usize::try_from((budget.bytes / ENTRY_BYTES).max(512)).unwrap_or(usize::MAX);
        let Some(member) = self.members.get(self.member) else {
            self.next_phase();
            return Ok(false);
        };
        let timeline = Arc::clone(&member.timeline);
        let batch = next_entries(&core.store, &timeline.runs(), self.resume, entries)?;
        for entry in &batch {
            self.take(&core.store, entry);
        }
        match batch.last() {
            Some(last) if batch.len() == entries => {
                self.resume = (last.key, Seq(last.seq.0.saturating_sub(1)));
            }
            _ => (self.member, self.resume, self.before) = (self.member + 1, START, None),
        }
        Ok(false)
    }

    fn next_phase(&mut self) {
        (self.member, self.resume, self.before) = (0, START, None);
        if !self.is_gathering {
            self.is_gathering = true;
        } else {
            self.met = Met::new(0);
            self.comparer = Some(Comparer::new(std::mem::take(&mut self.names)));
        }
    }

    fn take(&mut self, store: &Store, entry: &Entry) {
        let before = self.before.replace((entry.key, entry.seq));
        let newer = before.filter(|(key, _)| *key == entry.key).map(|(_, seq)| seq);
        let member = &self.members[self.member];
        let is_for_packs = newer.is_some_and(|seq| member.left.is_some_and(|left| seq > left));
        if entry.key.level > 0 || entry.location.is_hole() || is_for_packs {
            return;
        }
        let Some(segment) = store.segment(entry.location.segment()) else { return };
        if !matches!(segment.content(), Content::Logged | Content::Shared) {
            return;
        }
        if !self.is_gathering {
            return self.met.note(entry.crc);
        }
        let is_stale = is_stale(&segment);
        if !(self.met.is_again(entry.crc) || is_stale) {
            return;
        }
        let name = Name {
            crc: entry.crc,
            location: entry.location,
            timeline: member.timeline.id,
            log: member.log,
            block: entry.key.index,
            seq: entry.seq,
            is_shared: segment.content() == Content::Shared,
            is_stale,
        };
        self.gather(name, FOUND_MAX);
    }

    /// Adds a name if it is one of those that are gathered; of more than `most`, some are left to
    /// another search.
    fn gather(&mut self, name: Name, most: usize) {
        while self.names.len() >= most && self.is_gathered(&name) && !self.is_crowded {
            let (first, last) = self.crcs;
            if first < last {
                self.crcs.1 = first + (last - first) / 2;
            } else {
                self.is_crowded = true;
            }
            let names = std::mem::take(&mut self.names);
            self.names = names.into_iter().filter(|name| self.is_gathered(name)).collect();
        }
        if self.names.len() < most && self.is_gathered(&name) {
            self.names.push(name);
        }
    }

    fn is_gathered(&self, name: &Name) -> bool {
        let (first, last) = self.crcs;
        let is_within = first <= name.crc && name.crc <= last;
        name.is_stale || (is_within && !(self.is_crowded && name.is_shared))
    }

    /// The outcome.
    pub fn finish(self) -> Found {
        let has_stale = self.comparer.as_ref().is_some_and(|comparer| comparer.has_stale);
        let (segments, moves, blocks, names) =
            self.comparer.map(Comparer::finish).unwrap_or_default();
        let Search { crcs, entries, .. } = self;
        Found { segments, moves, blocks, names, crcs, entries, has_stale }
    }
}

#[cfg(test)]
mod tests {
    use format::location::Location;
    use units::Seq;

    use super::{Met, Name, Search};

    fn name(crc: u32, seq: u64, is_shared: bool) -> Name {
        let location = Location::new(7, 640);
        let (timeline, log, block, seq) = (1, 1, seq, Seq(seq));
        Name { crc, location, timeline, log, block, seq, is_shared, is_stale: false }
    }

    #[test]
    fn what_is_gathered_stays_bounded_and_each_search_gets_further() {
        // Few of many checksums: the upper ones are left, and the next search begins there.
        let (mut first, mut met) = (0, Vec::new());
        for _ in 0..40 {
            let mut search = Search::new(Vec::new(), first);
            (0..1000).for_each(|i| search.gather(name(i * 4_000_000, 1, false), 100));
            assert!(!search.names.is_empty() && search.names.len() <= 100);
            met.extend(search.names.iter().map(|name| name.crc));
            first = search.finish().crcs.1.wrapping_add(1);
            if first == 0 {
                break;
            }
        }
        assert_eq!((first, met.len()), (0, 1000), "all are met, once each");
        // Many of one: what is shared already gives way to what is not.
        let mut search = Search::new(Vec::new(), 9);
        (0..500).for_each(|i| search.gather(name(9, i, i < 300), 100));
        assert_eq!(search.names.len(), 100);
        assert!(search.names.iter().all(|name| !name.is_shared));
    }

    #[test]
    fn what_occurs_again_is_told_from_what_does_not() {
        let mut met = Met::new(1000);
        let crc = |i: u32| i.wrapping_mul(0x9e37_79b9);
        (0..1000).for_each(|i| met.note(crc(i)));
        (0..100).for_each(|i| met.note(crc(i)));
        assert!((0..100).all(|i| met.is_again(crc(i))));
        let mistaken = (100..1000).filter(|&i| met.is_again(crc(i))).count();
        assert!(mistaken < 300, "{mistaken} of 900");
    }
}
