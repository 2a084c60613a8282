//! Homecoming: a full merge moves settled blocks to their homes in the base (`base`).
//!
//! The merge hands over the entries of a slab's blocks together. The newest version of a block that
//! the present sees comes home if its home is free: named by no run of any timeline of the log, as
//! of the merge's beginning. So a home that this merge frees is used by a later one.
//!
//! Where the present is to be in place, a version at home that it does not show leaves for the log
//! (the before-image of a checkpoint), so that the one it shows comes home in the next merge.
//!
//! Invariants
//! 1. A block is brought home only after its checksum held; one that does not stays where it is.
//! 2. New slabs become known with the commit of the merge; without it their zones are free.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::Purpose;
use format::batch::BatchEncoder;
use format::checksum::block_crc;
use format::location::Location;
use format::map::{Entry, Key};
use history::{Content, IoKind, IoTally, Segment, Timeline};
use units::{BLOCK_BYTES, Lba, Seq};

use crate::Result;
use crate::jobs::mover::read_entry;
use crate::jobs::segment_writer::{Holds, begin_segment, relocated};
use crate::placement::base::home_header_bytes;
use crate::placement::destage::progress::Away;
use crate::types::Granularity;
use crate::volume::Volume;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks read and written at a time.
const BLOCKS_AT_ONCE: usize = 256;
/// Entries gathered at most before what is known of a slab decides.
const GATHERED_MAX: usize = 1 << 16;
/// A slab is taken when one in this many of its blocks comes home.
const DENSITY: u64 = 4;

/// Entries of blocks that have their homes in one slab.
#[derive(Debug, Default)]
pub struct Group {
    slab: u64,
    /// Those that stay in the map, in order.
    pub entries: Vec<Entry>,
    /// Which of them would come home.
    candidates: Vec<usize>,
    /// Blocks whose home some run names.
    taken: BTreeSet<u64>,
    /// Entries at home that the present does not look for there, by what this timeline tells.
    leaving: BTreeSet<usize>,
    /// Entries at home that it does.
    staying: Vec<usize>,
}

/// The fates of gathered blocks.
#[derive(Debug, Default)]
pub struct Places {
    /// The homes of those that came home, by their index.
    pub homes: BTreeMap<usize, Location>,
    /// Those that leave home for the log.
    pub leaving: BTreeSet<usize>,
}

/// Another timeline of the log, whose runs name homes too.
struct Other {
    timeline: Arc<Timeline>,
    /// Up to where the present sees it rather than the one that is merged; zero for not at all.
    covers: Seq,
}

/// The needs of a full merge that brings blocks home.
pub struct Homecoming {
    volume: Arc<Volume>,
    io: Arc<IoTally>,
    timeline: u64,
    /// Up to where the present sees the timeline.
    visible: Seq,
    /// Versions up to this seq come home; later ones only instead of moving elsewhere.
    settled: Seq,
    others: Vec<Other>,
    /// Before-images leave home, and slabs are taken for single blocks: the present is to be in
    /// place (`Architecture::Checkpointing`).
    destages: bool,
    /// Only slabs that are there are used: room is being made.
    urgent: bool,
    /// Blocks whose home was taken.
    waiting: u64,
    /// Blocks that did not come home and belong there.
    away: u64,
    group: Group,
    arrived: BTreeMap<u64, i64>,
    taken: Vec<Arc<Segment>>,
    finished: bool,
}

/// The blocks that came home.
#[derive(Default)]
pub struct Arrivals {
    /// Entries by slab that was there before.
    pub arrived: BTreeMap<u64, i64>,
    /// New slabs, with their counts.
    pub taken: Vec<Arc<Segment>>,
    /// Blocks whose home was taken.
    pub waiting: u64,
    /// How much of the timeline is not at home.
    pub away: Option<Away>,
}

impl Volume {
    /// The homecoming of a full merge of that timeline, if it has one.
    pub(crate) fn homecoming(
        self: &Arc<Self>,
        timeline: &Timeline,
        urgent: bool,
    ) -> Option<Homecoming> {
        let record = self.record.lock().clone();
        if self.is_gone() || !record.architecture.has_base() {
            return None;
        }
        let now = Seq(u64::MAX);
        // With captures only, all that is not overwritten has settled.
        let destages = record.architecture.destages();
        let settled = match record.granularity_at(now) {
            Granularity::OnDemand => now,
            _ if destages => now,
            _ => Seq(record.horizon_seq),
        };
        let (visible, nearer) = match self.seen_of(timeline.id) {
            Some(seen) => seen,
            // All that it has at home is in the way of others.
            None if destages => (Seq::ZERO, BTreeMap::new()),
            None => return None,
        };
        let mut others = self.own_timelines();
        others.retain(|other| other.id != timeline.id);
        let covers = |id| nearer.get(&id).copied().unwrap_or(Seq::ZERO);
        let other = |timeline: Arc<Timeline>| Other { covers: covers(timeline.id), timeline };
        Some(Homecoming {
            io: self.core.store.io(self.id),
            timeline: timeline.id,
            visible,
            settled,
            others: others.into_iter().map(other).collect(),
            destages,
            urgent,
            waiting: 0,
            away: 0,
            group: Group::default(),
            arrived: BTreeMap::new(),
            taken: Vec::new(),
            finished: false,
            volume: Arc::clone(self),
        })
    }

    /// Up to where the present sees a timeline, and those that it looks at before; `None` if it
    /// does not see it.
    fn seen_of(&self, timeline: u64) -> Option<(Seq, BTreeMap<u64, Seq>)> {
        let mut nearer = BTreeMap::new();
        let mut seen = Seq(u64::MAX);
        let mut line = Arc::clone(&self.present().timeline);
        while line.id != timeline {
            nearer.insert(line.id, seen);
            let branch = line.parent.clone()?;
            seen = seen.min(branch.seq);
            line = branch.timeline;
        }
        Some((seen, nearer))
    }
}

impl Homecoming {
    /// Whether the entries of a block can be gathered with those that are.
    #[must_use]
    pub fn takes(&self, block: u64) -> bool {
        let slab = self.volume.base.slab_of(block);
        self.group.entries.is_empty() && self.group.taken.is_empty()
            || self.group.slab == slab && self.group.entries.len() < GATHERED_MAX
    }

    /// Gathers the entries of a block: all inputs, and those that stay in the map (newest first).
    /// `is_sparse` says which segments are to be emptied, `is_trimmed` whether a trim of a larger
    /// range hides a version from who sees up to a seq, `is_asked_for` which is to be in a pack.
    pub fn gather(
        &mut self,
        inputs: &[Entry],
        kept: &[Entry],
        is_sparse: impl Fn(u64) -> bool,
        is_trimmed: impl Fn(&Entry, Seq) -> bool,
        is_asked_for: impl Fn(usize) -> bool,
    ) {
        let base = &self.volume.base;
        let block = inputs.first().expect("a key has entries").key.index;
        let slab = base.slab_of(block);
        self.group.slab = slab;
        let segment = base.segment(slab).map(|segment| segment.number);
        if inputs.iter().any(|e| Some(e.location.segment()) == segment) {
            self.group.taken.insert(block);
        }
        let first = self.group.entries.len();
        let is_home = |e: &Entry| Some(e.location.segment()) == segment;
        let newest = kept.iter().position(|e| e.seq <= self.visible);
        let newest = newest.filter(|&i| !is_trimmed(&kept[i], self.visible));
        if let Some(newest) = newest.filter(|&i| !kept[i].location.is_hole()) {
            let entry = &kept[newest];
            let comes = entry.seq <= self.settled || is_sparse(entry.location.segment());
            let comes = comes && (self.destages || !is_asked_for(newest));
            if is_home(entry) {
                self.group.staying.push(first + newest);
            } else if comes {
                self.group.candidates.push(first + newest);
            }
        }
        if self.destages {
            let leaves = |i: &usize| {
                let is_shown = kept[*i].seq <= self.visible && newest.is_none_or(|n| n == *i);
                is_home(&kept[*i]) && !is_shown
            };
            self.group.leaving.extend((0..kept.len()).filter(leaves).map(|i| first + i));
        }
        self.group.entries.extend_from_slice(kept);
    }

    /// Brings home what can come of what was gathered. Gives all of it back, with what becomes of
    /// some by their index.
    ///
    /// # Errors
    /// `Refused`, `Corrupt` (of the map) or `Io`.
    pub fn bring_home(&mut self, is_sparse: impl Fn(u64) -> bool) -> Result<(Group, Places)> {
        let mut group = std::mem::take(&mut self.group);
        let mut places = Places::default();
        let there = self.volume.base.segment(group.slab);
        let is_emptied = there.as_ref().is_some_and(|s| is_sparse(s.number));
        let is_asked = self.destages && !self.others.is_empty() && !group.staying.is_empty();
        // A slab that is being emptied takes no block in, and loses all it has.
        if is_emptied || group.candidates.is_empty() && group.leaving.is_empty() && !is_asked {
            self.away += group.candidates.len() as u64;
            return Ok((group, places));
        }
        self.heed_others(&mut group, there.as_ref().map(|s| s.number))?;
        // All that could come, until it has.
        self.away += group.candidates.len() as u64;
        if !self.urgent && self.volume.has_plenty_of_room() {
            places.leaving = std::mem::take(&mut group.leaving);
        }
        let is_free = |i: &usize| !group.taken.contains(&group.entries[*i].key.index);
        let coming: Vec<usize> = group.candidates.iter().copied().filter(is_free).collect();
        self.waiting += (group.candidates.len() - coming.len()) as u64;
        if there.is_some() && !self.volume.base.is_quiet(group.slab) {
            self.waiting += coming.len() as u64;
            return Ok((group, places));
        }
        let segment = match &there {
            _ if coming.is_empty() => return Ok((group, places)),
            Some(segment) => Arc::clone(segment),
            None => match self.take_slab(&group)? {
                Some(segment) => segment,
                None => {
                    if !self.is_dense(&group) {
                        // They belong in the log.
                        self.away -= group.candidates.len() as u64;
                    }
                    return Ok((group, places));
                }
            },
        };
        for part in coming.chunks(BLOCKS_AT_ONCE) {
            let entries: Vec<Entry> = part.iter().map(|&i| group.entries[i]).collect();
            for index in self.move_in(&segment, &entries)? {
                let home = self.volume.base.home_of(entries[index].key.index, segment.number);
                places.homes.insert(part[index], home);
            }
        }
        self.away -= places.homes.len() as u64;
        let count = i64::try_from(places.homes.len()).expect("a slab is small");
        if there.is_some() {
            *self.arrived.entry(segment.number).or_default() += count;
        } else {
            segment.add_entries(count);
        }
        Ok((group, places))
    }

    /// Takes account of other timelines: homes that their runs name are taken, and what they have
    /// is seen by the present instead.
    fn heed_others(&self, group: &mut Group, segment: Option<u64>) -> Result<()> {
        let store = &self.volume.core.store;
        let blocks = self.volume.base.blocks_of(group.slab);
        let mut covered = BTreeSet::new();
        for other in &self.others {
            for run in other.timeline.runs() {
                run.with_source(store, |source| -> history::Result<()> {
                    let first = Key::block(Lba(blocks.start));
                    let mut cursor = run.run.cursor_at(source, first, Seq::MAX)?;
                    while let Some(entry) = cursor.peek() {
                        if entry.key.level > 0 || entry.key.index >= blocks.end {
                            break;
                        }
                        if Some(entry.location.segment()) == segment {
                            group.taken.insert(entry.key.index);
                        }
                        if entry.seq <= other.covers {
                            covered.insert(entry.key.index);
                        }
                        cursor.advance()?;
                    }
                    Ok(())
                })?;
            }
        }
        let Group { candidates, entries, leaving, staying, .. } = group;
        let is_covered = |i: &usize| covered.contains(&entries[*i].key.index);
        candidates.retain(|i| !is_covered(i));
        if self.destages {
            leaving.extend(staying.iter().filter(|i| is_covered(i)));
        }
        Ok(())
    }

    /// Whether so much would come home to a slab that it is taken.
    fn is_dense(&self, group: &Group) -> bool {
        let blocks = self.volume.base.blocks_of(group.slab);
        let end = self.volume.size_bytes().div_ceil(BLOCK_BYTES).min(blocks.end);
        let there = end.saturating_sub(blocks.start);
        self.destages || group.candidates.len() as u64 * DENSITY >= there
    }

    /// A new slab, if it pays and there is plenty of room.
    fn take_slab(&mut self, group: &Group) -> Result<Option<Arc<Segment>>> {
        let store = &self.volume.core.store;
        if let Some(taken) = self.taken.iter().find(|s| s.slab == Some(group.slab)) {
            return Ok(Some(Arc::clone(taken)));
        }
        let base = &self.volume.base;
        if self.urgent || !self.is_dense(group) || !self.volume.has_plenty_of_room() {
            return Ok(None);
        }
        let zone = match store.allocate_zone(Purpose::Data) {
            Ok(zone) => zone,
            Err(e) if e.kind == history::ErrorKind::Full => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let holds = Holds::Slab(group.slab, base.slab_bytes());
        let segment = begin_segment(&self.volume.core, self.volume.id, zone, holds)?;
        self.taken.push(Arc::clone(&segment));
        Ok(Some(segment))
    }

    /// Copies blocks (ascending) to their homes; says which of them are there now.
    fn move_in(&self, segment: &Segment, entries: &[Entry]) -> Result<Vec<usize>> {
        let mut bytes = vec![0; entries.len() * BLOCK];
        let mut whole = Vec::with_capacity(entries.len());
        let mut start = 0;
        while start < entries.len() {
            let count = follow(&entries[start..], |a, b| {
                a.location.segment() == b.location.segment()
                    && a.location.offset_bytes() + BLOCK as u32 == b.location.offset_bytes()
            });
            let part = start..start + count;
            self.read_blocks(
                &entries[part.clone()],
                &mut bytes[start * BLOCK..(start + count) * BLOCK],
                |index| whole.push(part.start + index),
            )?;
            start += count;
        }
        let mut rest = &whole[..];
        while let Some(&first) = rest.first() {
            let count = follow(rest, |&a, &b| entries[a].key.index + 1 == entries[b].key.index);
            self.write_homes(segment, entries, &rest[..count], &bytes)?;
            let newest = rest[..count].iter().map(|&i| entries[i].seq.0).max();
            segment.last_seq.fetch_max(newest.unwrap_or(entries[first].seq.0), Ordering::AcqRel);
            rest = &rest[count..];
        }
        Ok(whole)
    }

    /// Reads blocks that follow one another in a segment; tells `sound` which hold what they
    /// should.
    fn read_blocks(
        &self,
        entries: &[Entry],
        bytes: &mut [u8],
        mut sound: impl FnMut(usize),
    ) -> Result<()> {
        let store = &self.volume.core.store;
        let (at, content) = store.locate(entries[0].location)?;
        let together = content != Content::Pack && {
            self.io.count(IoKind::CopyRead, bytes.len() as u64);
            store.device.read_at(at, bytes).is_ok()
        };
        for (i, (entry, block)) in entries.iter().zip(bytes.chunks_exact_mut(BLOCK)).enumerate() {
            // A sector that cannot be read keeps only its own block where it is.
            let is_right = together && block_crc(block) == entry.crc;
            if is_right || read_entry(store, entry, block, (&self.io, IoKind::CopyRead)) {
                sound(i);
            }
        }
        Ok(())
    }

    /// Writes blocks with neighbouring homes in one request.
    fn write_homes(
        &self,
        segment: &Segment,
        entries: &[Entry],
        chosen: &[usize],
        bytes: &[u8],
    ) -> Result<()> {
        let store = &self.volume.core.store;
        let base = &self.volume.base;
        let mut headers = Vec::with_capacity(chosen.len() * home_header_bytes() as usize);
        for &index in chosen {
            let entry = &entries[index];
            let offset = base.offset_of(entry.key.index);
            let header = relocated(segment, offset, self.timeline, entry.seq);
            let mut encoder = BatchEncoder::new(&mut headers);
            encoder.push_relocated(entry.key.index, entry.seq, entry.crc);
            encoder.finish(&header);
        }
        let mut slices = Vec::with_capacity(2 * chosen.len());
        for (header, &index) in headers.chunks_exact(home_header_bytes() as usize).zip(chosen) {
            slices.push(IoSlice::new(header));
            slices.push(IoSlice::new(&bytes[index * BLOCK..(index + 1) * BLOCK]));
        }
        let first = base.offset_of(entries[chosen[0]].key.index);
        store.write(store.zone_offset(segment.zone) + u64::from(first), &slices)?;
        let written: usize = slices.iter().map(|slice| slice.len()).sum();
        self.io.count(IoKind::CurrentWrite, written as u64);
        Ok(())
    }

    /// Everything that came home; the commit that follows makes it durable and names it.
    pub fn finish(&mut self) -> Arrivals {
        self.finished = true;
        let mut taken = std::mem::take(&mut self.taken);
        taken.retain(|segment| {
            let used = segment.live_entries.load(Ordering::Acquire) > 0;
            if !used {
                self.volume.core.store.free_zone(segment.zone);
            }
            used
        });
        let away = Some(Away { visible: self.visible, blocks: self.away });
        let arrived = std::mem::take(&mut self.arrived);
        Arrivals { arrived, taken, waiting: self.waiting, away }
    }
}

impl Drop for Homecoming {
    fn drop(&mut self) {
        if !self.finished {
            for segment in self.taken.drain(..) {
                self.volume.core.store.free_zone(segment.zone);
            }
        }
    }
}

/// How many items from the first on follow one another.
fn follow<T>(items: &[T], follows: impl Fn(&T, &T) -> bool) -> usize {
    items.windows(2).take_while(|pair| follows(&pair[0], &pair[1])).count() + 1
}
