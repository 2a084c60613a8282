//! Copying what lies outside into the pool, in the background, a little at a time.
//!
//! A copied block is no write: it enters the map of the timeline that the file hangs at with the
//! seq of the import, in runs below all others, and its bytes are in relocated batches, which
//! rebuilds and merges know. A job fills one segment; its commit names segment and run together.
//!
//! Invariants
//! 1. A block is copied if some moment that can be opened sees it in the file: then the first such
//!    moment does. Others are done without: none will see them again.
//! 2. The file is let go in one commit, after all pages were done since the pool was opened. A page
//!    was skipped if a write over it was not durable then; by that commit it is.
//! 3. Room is never made for copies, and the reserve is not for them.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::Purpose;
use format::batch::{BatchEncoder, BatchKind, header_bytes};
use format::checksum::block_crc;
use format::location::Location;
use format::map::{Entry, cover};
use history::{
    BLOCKS_PER_PAGE, IoKind, OUTSIDE_SEQ, RunBuilder, Segment, Slot, Store, StoredRun, Timeline,
    block_location,
};
use units::{BLOCK_BYTES, BlockCount, Lba, Seq};

use crate::catalogue::TimelineRecord;
use crate::core::Core;
use crate::jobs::map_flush::{commit_segment, record_of_run};
use crate::jobs::segment_writer::{Holds, begin_segment, relocated};
use crate::past::backing_file::Source;
use crate::volume::Volume;
use crate::{ErrorKind, Result};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Entries of one commit at most.
const ENTRIES_MAX: usize = 1 << 16;
/// How long copying rests after the file could not be read, in nanoseconds.
const AGAIN_NS: u64 = 10_000_000_000;
/// How long it rests for want of room.
const ROOM_AGAIN_NS: u64 = 1_000_000_000;

/// Blocks on their way into one segment.
pub struct CopyJob {
    store: Arc<Store>,
    log: u64,
    timeline: u64,
    /// The first moment of the timeline that can be opened.
    first: Option<Seq>,
    segment: Option<Arc<Segment>>,
    entries: Vec<Entry>,
    /// Pages that are done with the commit.
    pages: Vec<u64>,
}

/// The outcome of some blocks.
#[derive(Clone, Copy, Debug)]
enum Copied {
    /// They are zeros.
    Zeros(u64, u32),
    /// One with data.
    Data(u64),
}

/// How it went with a page.
enum Page {
    /// So many bytes were read and written.
    Copied(u64),
    /// Some blocks cannot be read now.
    Unreadable(history::Error),
}

impl Core {
    /// Copies about so many bytes from each file; true when there is more to do now. The caller
    /// holds `work`.
    ///
    /// # Errors
    /// `Refused` or `Io` after which the pool refuses writes.
    pub(crate) fn copy_outside(self: &Arc<Self>, budget_bytes: u64) -> Result<bool> {
        let sources: Vec<_> = self.sources.lock().values().cloned().collect();
        let mut more = false;
        for (timeline, source) in sources {
            let now_ns = self.machine.clock.monotonic_ns();
            match self.copy_from(&timeline, &source, budget_bytes, now_ns) {
                Ok(goes_on) => more |= goes_on,
                Err(e) if e.kind == ErrorKind::Full => {
                    let why = "the pool has no room for more of it".to_owned();
                    self.rest(&source, why, now_ns + ROOM_AGAIN_NS);
                }
                // Told with the volume; others are not kept from their background work.
                Err(e) if !self.store.has_failed() => {
                    self.rest(&source, e.to_string(), now_ns + AGAIN_NS);
                }
                Err(e) => {
                    self.rest(&source, e.to_string(), now_ns + AGAIN_NS);
                    return Err(e);
                }
            }
        }
        Ok(more)
    }

    /// Lets go of what is not committed; it will be copied again.
    fn rest(&self, source: &Source, why: String, until_ns: u64) {
        *source.job.lock() = None;
        source.rest(why, until_ns);
    }

    /// Lets go of the room that copies under way hold. The caller holds `work`.
    pub(crate) fn drop_copies(&self) {
        let sources: Vec<_> = self.sources.lock().values().cloned().collect();
        for (_, source) in sources {
            *source.job.lock() = None;
            source.begin_again();
        }
    }

    /// Commits what was copied so far. The caller holds `work`.
    pub(crate) fn commit_copies(&self) -> Result<()> {
        let sources: Vec<_> = self.sources.lock().values().cloned().collect();
        for (timeline, source) in sources {
            if let Some(mut job) = source.job.lock().take() {
                job.commit(self, &timeline, &source)?;
            }
        }
        Ok(())
    }

    fn copy_from(
        &self,
        timeline: &Arc<Timeline>,
        source: &Source,
        budget_bytes: u64,
        now_ns: u64,
    ) -> Result<bool> {
        let owner = self.all_volumes().into_iter().find(|volume| volume.id == timeline.log);
        let Some(owner) = owner.filter(|_| !source.rests(now_ns)) else { return Ok(false) };
        if let Err(e) = source.revive() {
            self.rest(source, e.to_string(), now_ns + AGAIN_NS);
            return Ok(false);
        }
        if !owner.has_plenty_of_room() {
            let why = "the pool has too little room for more of it".to_owned();
            self.rest(source, why, now_ns + ROOM_AGAIN_NS);
            return Ok(false);
        }
        source.wake();
        let mut slot = source.job.lock();
        let mut job = match slot.take() {
            Some(job) => job,
            None => CopyJob::begin(self, timeline)?,
        };
        let mut spent = 0;
        while spent < budget_bytes.max(1) {
            let Some(page) = source.next_page(&job.pages) else {
                job.commit(self, timeline, source)?;
                drop(slot);
                return self.end_copying(timeline, source, &owner, now_ns);
            };
            match job.copy_page(self, timeline, source, page)? {
                Page::Copied(bytes) => spent += bytes.max(BLOCK_BYTES),
                Page::Unreadable(e) if e.kind == history::ErrorKind::Io => {
                    // Others can still be copied.
                    source.note_unreadable(&e);
                    spent += BLOCK_BYTES;
                }
                Page::Unreadable(e) => {
                    drop((slot, job));
                    self.rest(source, e.to_string(), now_ns + AGAIN_NS);
                    return Ok(false);
                }
            }
            if job.entries.len() >= ENTRIES_MAX {
                job.commit(self, timeline, source)?;
            }
        }
        *slot = Some(job);
        Ok(true)
    }

    /// All was looked at: the file is let go if nothing needs it any more.
    fn end_copying(
        &self,
        timeline: &Arc<Timeline>,
        source: &Source,
        owner: &Volume,
        now_ns: u64,
    ) -> Result<bool> {
        if !source.is_done() {
            match source.take_unreadable() {
                Some(why) => source.rest(why, now_ns + AGAIN_NS),
                None => source.begin_again(),
            }
            return Ok(false);
        }
        // Slabs are found by what has just been copied: not after it is forgotten what that was.
        if self.heirs(timeline).iter().any(|volume| volume.wants_slabs()) {
            return Ok(false);
        }
        let mut tx = self.begin()?;
        let known = self.timelines.read().get(&timeline.id).map(|(record, _)| record.clone());
        let Some(known) = known else { return Ok(false) };
        let record = TimelineRecord { source: None, parent: None, ..known };
        tx.put_timeline(&record)?;
        let bytes = source.record().length_bytes;
        let detail = format!("all {bytes} bytes of {}", source.record().file);
        let action = if source.record().moment { "cloned" } else { "imported" };
        tx.audit(action, &owner.name, detail)?;
        let books = tx.commit()?;
        self.timelines.write().insert(timeline.id, (record, Arc::clone(timeline)));
        timeline.set_outside(None);
        self.sources.lock().remove(&timeline.id);
        drop(books);
        self.forget_pages(|read| read.id == timeline.id);
        Ok(true)
    }

    /// Volumes whose present may show what hangs at a timeline.
    fn heirs(&self, timeline: &Timeline) -> Vec<Arc<Volume>> {
        let mut heirs = self.all_volumes();
        heirs.retain(|volume| volume.present().root.id == timeline.id);
        heirs
    }

    /// Blocks of these pages are in the map now.
    fn note_copied(&self, timeline: &Timeline, pages: &BTreeSet<u64>) {
        for opening in self.openings.lock().iter().filter_map(std::sync::Weak::upgrade) {
            if opening.root.id == timeline.id {
                opening.pages.drop_pages(|page| pages.contains(&page));
            }
        }
        for heir in self.heirs(timeline) {
            heir.last_count.forget();
            heir.place_copied(pages);
        }
    }
}

impl CopyJob {
    fn begin(core: &Core, timeline: &Timeline) -> Result<CopyJob> {
        // No moment before the import is one: an entry of that seq is seen from it on.
        let openable = core.needed(timeline.id, Seq::ZERO)?.openable;
        Ok(CopyJob {
            store: Arc::clone(&core.store),
            log: timeline.log,
            timeline: timeline.id,
            first: openable.within(OUTSIDE_SEQ, Seq(u64::MAX)).first(),
            segment: None,
            entries: Vec::new(),
            pages: Vec::new(),
        })
    }

    fn copy_page(
        &mut self,
        core: &Core,
        timeline: &Arc<Timeline>,
        source: &Source,
        page: u64,
    ) -> Result<Page> {
        let mut slots = [Slot::default(); BLOCKS_PER_PAGE];
        if let Some(first) = self.first {
            let _epoch = core.store.enter();
            timeline.load_page(&core.store, page, first, &mut slots)?;
        }
        let blocks = source.blocks_of(page);
        let is_outside = |b: &u64| slots[(b - page * BLOCKS_PER_PAGE as u64) as usize].is_outside();
        let wanted: Vec<u64> = blocks.clone().filter(is_outside).collect();
        let mut bytes = vec![0; (blocks.end - blocks.start) as usize * BLOCK];
        let mut copied = Vec::with_capacity(wanted.len());
        let mut unreadable = None;
        for range in ranges(&wanted) {
            let part = within(&blocks, &range);
            let Err(e) = source.read_bytes(range.start * BLOCK_BYTES, &mut bytes[part], true)
            else {
                copied.extend(range);
                continue;
            };
            if e.kind != history::ErrorKind::Io {
                return Ok(Page::Unreadable(e));
            }
            for block in range {
                let part = within(&blocks, &(block..block + 1));
                match source.read_bytes(block * BLOCK_BYTES, &mut bytes[part], true) {
                    Ok(_) => copied.push(block),
                    Err(e) if e.kind == history::ErrorKind::Io => unreadable = Some(e),
                    Err(e) => return Ok(Page::Unreadable(e)),
                }
            }
        }
        let spent = 2 * copied.len() as u64 * BLOCK_BYTES;
        self.put(core, timeline, source, &blocks, &copied, &bytes)?;
        if let Some(e) = unreadable {
            return Ok(Page::Unreadable(e));
        }
        self.pages.push(page);
        Ok(Page::Copied(spent))
    }

    /// Writes blocks of a page, in batches that fit a segment.
    fn put(
        &mut self,
        core: &Core,
        timeline: &Arc<Timeline>,
        source: &Source,
        blocks: &Range<u64>,
        copied: &[u64],
        bytes: &[u8],
    ) -> Result<()> {
        let data = |block: u64| &bytes[within(blocks, &(block..block + 1))];
        let data_max = usize::try_from(self.store.zone_bytes / 4 / BLOCK_BYTES)
            .expect("zones are small")
            .clamp(1, BLOCKS_PER_PAGE);
        let mut rest = copied;
        while !rest.is_empty() {
            let mut ops: Vec<Copied> = Vec::new();
            let (mut count, mut data_blocks) = (0, 0);
            for &block in rest {
                let is_zero = data(block).iter().all(|&b| b == 0);
                match ops.last_mut() {
                    Some(Copied::Zeros(first, zeros))
                        if is_zero && *first + u64::from(*zeros) == block =>
                    {
                        *zeros += 1;
                    }
                    _ if is_zero => ops.push(Copied::Zeros(block, 1)),
                    _ if data_blocks == data_max => break,
                    _ => {
                        ops.push(Copied::Data(block));
                        data_blocks += 1;
                    }
                }
                count += 1;
            }
            rest = &rest[count..];
            let need = header_bytes(BatchKind::Relocated, ops.len(), data_blocks)
                + u32::try_from(data_blocks * BLOCK).expect("a page of data");
            let segment = self.segment_with(core, timeline, source, need)?;
            self.write(core, &segment, &ops, data)?;
        }
        Ok(())
    }

    fn write<'b>(
        &mut self,
        core: &Core,
        segment: &Segment,
        ops: &[Copied],
        data: impl Fn(u64) -> &'b [u8],
    ) -> Result<()> {
        let offset = segment.end.load(Ordering::Acquire);
        let header = relocated(segment, offset, self.timeline, OUTSIDE_SEQ);
        let time = header.time;
        let mut header_of = Vec::new();
        let mut encoder = BatchEncoder::new(&mut header_of);
        let mut blocks: Vec<(u64, u32)> = Vec::new();
        let before = self.entries.len();
        for op in ops {
            match *op {
                Copied::Zeros(block, count) => {
                    encoder.push_relocated_zero(block, count, OUTSIDE_SEQ, time);
                    let location = Location::hole_in(segment.number);
                    let keys = cover(Lba(block), BlockCount(u64::from(count)));
                    let hole = |key| Entry { key, seq: OUTSIDE_SEQ, location, crc: 0 };
                    self.entries.extend(keys.map(hole));
                }
                Copied::Data(block) => {
                    let crc = block_crc(data(block));
                    encoder.push_relocated(block, OUTSIDE_SEQ, time, crc);
                    blocks.push((block, crc));
                }
            }
        }
        let sizes = encoder.finish(&header);
        let mut slices = vec![IoSlice::new(&header_of)];
        slices.extend(blocks.iter().map(|&(block, _)| IoSlice::new(data(block))));
        let at = self.store.zone_offset(segment.zone) + u64::from(offset);
        self.store.write(at, &slices)?;
        core.store.io(self.log).count(IoKind::CopyWrite, u64::from(sizes.total()));
        for (index, &(block, crc)) in blocks.iter().enumerate() {
            let first = Location::new(segment.number, offset + sizes.header_bytes);
            let location = block_location(first, index);
            self.entries.push(Entry::data(Lba(block), OUTSIDE_SEQ, location, crc));
        }
        segment.end.store(offset + sizes.total(), Ordering::Release);
        let count = i64::try_from(self.entries.len() - before).expect("a batch is small");
        segment.add_entries(count);
        Ok(())
    }

    /// The open segment; a new one when so many bytes do not fit it, after a commit of what there
    /// is.
    fn segment_with(
        &mut self,
        core: &Core,
        timeline: &Arc<Timeline>,
        source: &Source,
        need: u32,
    ) -> Result<Arc<Segment>> {
        let zone_bytes = u32::try_from(self.store.zone_bytes).expect("zones are at most 32 MiB");
        if let Some(open) = &self.segment {
            if open.end.load(Ordering::Acquire) + need <= zone_bytes {
                return Ok(Arc::clone(open));
            }
            self.commit(core, timeline, source)?;
        }
        let zone = self.store.allocate_zone(Purpose::Data)?;
        let segment = begin_segment(core, self.log, zone, Holds::Versions)?;
        segment.last_seq.store(OUTSIDE_SEQ.0, Ordering::Release);
        self.segment = Some(Arc::clone(&segment));
        Ok(segment)
    }

    /// Makes what was copied known: segment and run in one commit.
    fn commit(&mut self, core: &Core, timeline: &Arc<Timeline>, source: &Source) -> Result<()> {
        if self.entries.is_empty() {
            source.note_done(self.pages.drain(..));
            return Ok(());
        }
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by_key(Entry::order);
        let run = self.write_run(core, timeline, source, &entries)?;
        let segment = self.segment.take().expect("entries name a segment");
        if let Err(e) = self.commit_run(core, &segment, &run) {
            core.store.retire_extents(&run.extents);
            self.segment = Some(segment);
            return Err(e);
        }
        let live = segment.live_entries.load(Ordering::Acquire);
        segment.committed_entries.store(live, Ordering::Release);
        self.store.add_segment(segment);
        timeline.install_oldest(Arc::new(run));
        let page_of = |e: &Entry| e.key.first_block().0 / BLOCKS_PER_PAGE as u64;
        core.note_copied(timeline, &entries.iter().map(page_of).collect());
        source.note_done(self.pages.drain(..));
        Ok(())
    }

    fn write_run(
        &self,
        core: &Core,
        timeline: &Timeline,
        source: &Source,
        entries: &[Entry],
    ) -> Result<StoredRun> {
        let below = timeline.runs().last().map_or(u64::MAX, |oldest| oldest.order);
        let order = below.min(source.record().orders_below) - 1;
        let mut builder = RunBuilder::new(&core.store, core.next_run(), order, timeline);
        entries.iter().try_for_each(|entry| builder.push(*entry))?;
        Ok(builder.finish(&core.store)?.expect("a run of some entries"))
    }

    fn commit_run(&self, core: &Core, segment: &Segment, run: &StoredRun) -> Result<()> {
        let tx = core.begin()?;
        tx.put_map_run(&record_of_run(run, self.timeline))?;
        let live = segment.live_entries.load(Ordering::Acquire);
        commit_segment(&tx, segment, live, segment.end.load(Ordering::Acquire), true)?;
        tx.commit().map(drop)
    }
}

impl Drop for CopyJob {
    fn drop(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.store.free_zone(segment.zone);
        }
    }
}

/// Blocks (ascending) as ranges.
fn ranges(blocks: &[u64]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for &block in blocks {
        match ranges.last_mut() {
            Some(open) if open.end == block => open.end += 1,
            _ => ranges.push(block..block + 1),
        }
    }
    ranges
}

/// Where the bytes of some blocks are in those of all.
fn within(all: &Range<u64>, blocks: &Range<u64>) -> Range<usize> {
    let at = |block: u64| (block - all.start) as usize * BLOCK;
    at(blocks.start)..at(blocks.end)
}
