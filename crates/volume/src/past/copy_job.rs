//! Copying blocks of what lies outside into one segment, and the commit that names segment and run.
//!
//! Invariant: a block is copied if some moment that can be opened sees it in the file: then the
//! first such moment does. Others are done without: none will see them again.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::{Purpose, is_zero};
use format::batch::{BatchEncoder, BatchKind, header_bytes};
use format::checksum::block_crc;
use format::location::Location;
use format::map::{Entry, cover};
use history::{
    BLOCKS_PER_PAGE, IoKind, OUTSIDE_SEQ, RunBuilder, Segment, Slot, StoredRun, Timeline,
    block_location,
};
use units::{BLOCK_BYTES, BlockCount, Lba, Seq};

use crate::Result;
use crate::catalogue::tables;
use crate::core::Core;
use crate::jobs::map_flush::{commit_segment, record_of_run};
use crate::jobs::segment_writer::{FreshSegments, Holds, relocated};
use crate::past::backing_file::Source;
use crate::placement::in_place::ranges;
const BLOCK: usize = BLOCK_BYTES as usize;
/// Entries of one commit at most.
const ENTRIES_MAX: usize = 1 << 16;
/// Pages of one commit at most: a kill loses what was done with 128 GiB.
const PAGES_MAX: usize = 1 << 16;
/// Pages of nothing but zeros that are one record of a batch at most: 4 GiB.
const ZERO_PAGES_MAX: u64 = 1 << 11;
/// Zeros of a moment that cost as much as a byte that is copied: most are holes, which no device
/// reads.
const ZEROS_PER_BYTE: u64 = 64;

/// Blocks on their way into one segment.
pub struct CopyJob {
    log: u64,
    timeline: u64,
    /// The first moment of the timeline that can be opened.
    first: Option<Seq>,
    fresh: FreshSegments,
    entries: Vec<Entry>,
    /// Pages that are done with the commit.
    pages: BTreeSet<u64>,
    /// Pages of which some blocks are copied, and others cannot be read: not to be copied again
    /// before those are known.
    partial: BTreeSet<u64>,
    /// Pages after those, one after another, that are zeros and are in no batch yet.
    zeros: Range<u64>,
}

/// The timeline that blocks are copied to, and where from.
pub struct Way<'a> {
    /// The timeline.
    pub timeline: &'a Arc<Timeline>,
    /// The file or moment that hangs there.
    pub source: &'a Source,
    /// Hears which pages of blocks are in the map now.
    pub copied: &'a dyn Fn(&BTreeSet<u64>),
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
pub enum Page {
    /// So many bytes were read and written.
    Copied(u64),
    /// Some blocks cannot be read now.
    Unreadable(history::Error),
}

impl CopyJob {
    /// Nothing is copied yet.
    pub fn begin(core: &Arc<Core>, timeline: &Timeline) -> Result<CopyJob> {
        // No moment before the import is one: an entry of that seq is seen from it on.
        let openable = core.host()?.needed(timeline.id, Seq::ZERO)?.openable;
        Ok(CopyJob {
            log: timeline.log,
            timeline: timeline.id,
            first: openable.within(OUTSIDE_SEQ, Seq(u64::MAX)).first(),
            fresh: fresh_of(core, timeline.log),
            entries: Vec::new(),
            pages: BTreeSet::new(),
            partial: BTreeSet::new(),
            zeros: 0..0,
        })
    }

    /// Whether it is time for a commit.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.pages.len() >= PAGES_MAX
    }

    /// Whether a page is copied, as far as it can be, and waits for the commit.
    pub fn has(&self, page: u64) -> bool {
        let is_of = |pages: &BTreeSet<u64>| pages.contains(&page);
        is_of(&self.pages) || is_of(&self.partial) || self.zeros.contains(&page)
    }

    /// Copies the blocks of a page that some moment sees in the file.
    ///
    /// # Errors
    /// `Full`, `Refused`, `Io` of the pool; `Corrupt`.
    pub fn copy_page(&mut self, way: &Way<'_>, page: u64) -> Result<Page> {
        let Way { timeline, source, .. } = *way;
        let store = &self.fresh.core.store;
        let mut slots = [Slot::default(); BLOCKS_PER_PAGE];
        if let Some(first) = self.first {
            let _epoch = store.enter();
            timeline.load_page(store, page, first, &mut slots)?;
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
        let read = copied.len() as u64 * BLOCK_BYTES;
        if copied.len() as u64 == blocks.end - blocks.start && is_zero(&bytes) {
            self.add_zeros(way, page)?;
            let is_moment = source.record().moment;
            return Ok(Page::Copied(if is_moment { read / ZEROS_PER_BYTE } else { read }));
        }
        self.put(way, &blocks, &copied, &bytes)?;
        if let Some(e) = unreadable {
            self.partial.insert(page);
            return Ok(Page::Unreadable(e));
        }
        self.pages.insert(page);
        Ok(Page::Copied(2 * read))
    }

    /// A page is zeros: told with those before it, if it comes right after them.
    fn add_zeros(&mut self, way: &Way<'_>, page: u64) -> Result<()> {
        let pages = self.zeros.end - self.zeros.start;
        if self.zeros.end != page || pages == 0 || pages == ZERO_PAGES_MAX {
            self.put_zeros(way)?;
            self.zeros = page..page;
        }
        self.zeros.end += 1;
        Ok(())
    }

    /// Writes the record of the pages that are zeros.
    fn put_zeros(&mut self, way: &Way<'_>) -> Result<()> {
        let pages = std::mem::take(&mut self.zeros);
        let Some(last) = pages.clone().last() else { return Ok(()) };
        let (first, end) =
            (way.source.blocks_of(pages.start).start, way.source.blocks_of(last).end);
        let count = u32::try_from(end - first).expect("4 GiB are fewer blocks");
        let segment = self.segment_with(way, header_bytes(BatchKind::Relocated, 1, 0))?;
        let no_data = |_| unreachable!("zeros have no data");
        self.write(&segment, &[Copied::Zeros(first, count)], no_data)?;
        self.pages.extend(pages);
        Ok(())
    }

    /// Writes blocks of a page, in batches that fit a segment.
    fn put(
        &mut self,
        way: &Way<'_>,
        blocks: &Range<u64>,
        copied: &[u64],
        bytes: &[u8],
    ) -> Result<()> {
        let data = |block: u64| &bytes[within(blocks, &(block..block + 1))];
        let data_max = usize::try_from(self.fresh.core.store.zone_bytes / 4 / BLOCK_BYTES)
            .expect("zones are small")
            .clamp(1, BLOCKS_PER_PAGE);
        let mut rest = copied;
        while !rest.is_empty() {
            let mut ops: Vec<Copied> = Vec::new();
            let (mut count, mut data_blocks) = (0, 0);
            for &block in rest {
                let is_zero = is_zero(data(block));
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
            let segment = self.segment_with(way, need)?;
            self.write(&segment, &ops, data)?;
        }
        Ok(())
    }

    fn write<'b>(
        &mut self,
        segment: &Segment,
        ops: &[Copied],
        data: impl Fn(u64) -> &'b [u8],
    ) -> Result<()> {
        let offset = segment.end.load(Ordering::Acquire);
        let header = relocated(segment, offset, self.timeline, OUTSIDE_SEQ);
        let mut header_of = Vec::new();
        let mut encoder = BatchEncoder::new(&mut header_of);
        let mut blocks: Vec<(u64, u32)> = Vec::new();
        let before = self.entries.len();
        for op in ops {
            match *op {
                Copied::Zeros(block, count) => {
                    encoder.push_relocated_zero(block, count, OUTSIDE_SEQ);
                    let location = Location::hole_in(segment.number);
                    let keys = cover(Lba(block), BlockCount(u64::from(count)));
                    let hole = |key| Entry { key, seq: OUTSIDE_SEQ, location, crc: 0 };
                    self.entries.extend(keys.map(hole));
                }
                Copied::Data(block) => {
                    let crc = block_crc(data(block));
                    encoder.push_relocated(block, OUTSIDE_SEQ, crc);
                    blocks.push((block, crc));
                }
            }
        }
        let sizes = encoder.finish(&header);
        let first = Location::new(segment.number, offset + sizes.header_bytes);
        let data_entries = blocks.iter().enumerate().map(|(index, &(block, crc))| {
            Entry::data(Lba(block), OUTSIDE_SEQ, block_location(first, index), crc)
        });
        self.entries.extend(data_entries);
        let mut parts = vec![&header_of[..]];
        parts.extend(blocks.iter().map(|&(block, _)| data(block)));
        self.fresh.append(IoKind::CopyWrite, segment, &parts, &self.entries[before..])
    }

    /// The open segment; a new one when so many bytes do not fit it, after a commit of what there
    /// is.
    fn segment_with(&mut self, way: &Way<'_>, need: u32) -> Result<Arc<Segment>> {
        if self.fresh.is_too_full(need) {
            self.commit(way)?;
        }
        self.fresh.with_room(need)
    }

    /// Makes what was copied known: segment and run in one commit.
    ///
    /// # Errors
    /// `Full`, `Refused`, `Io`.
    pub fn commit(&mut self, way: &Way<'_>) -> Result<()> {
        self.put_zeros(way)?;
        self.partial.clear();
        let Way { timeline, source, copied } = *way;
        if self.entries.is_empty() {
            source.note_done(std::mem::take(&mut self.pages));
            return Ok(());
        }
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by_key(Entry::order);
        let core = Arc::clone(&self.fresh.core);
        let run = self.write_run(&core, timeline, source, &entries)?;
        let mut fresh = std::mem::replace(&mut self.fresh, fresh_of(&core, self.log));
        let segments = fresh.finish();
        if let Err(e) = self.commit_run(&core, &segments, &run) {
            core.store.retire_extents(&run.extents);
            segments.iter().for_each(|segment| core.store.free_zone(segment.zone));
            return Err(e);
        }
        for segment in segments {
            let live = segment.live_entries.load(Ordering::Acquire);
            segment.committed_entries.store(live, Ordering::Release);
            core.store.add_segment(segment);
        }
        timeline.install_oldest(Arc::new(run));
        let page_of = |e: &Entry| e.key.first_block().0 / BLOCKS_PER_PAGE as u64;
        // An entry of zeros may be of several pages, which are all done; and of a page that is not
        // done some blocks may be there.
        let done = std::mem::take(&mut self.pages);
        copied(&entries.iter().map(page_of).chain(done.iter().copied()).collect());
        source.note_done(done);
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

    fn commit_run(&self, core: &Core, segments: &[Arc<Segment>], run: &StoredRun) -> Result<()> {
        let tx = core.begin()?;
        tx.put(tables::MAP_RUNS, run.id, &record_of_run(run, self.timeline))?;
        for segment in segments {
            let live = segment.live_entries.load(Ordering::Acquire);
            commit_segment(&tx, segment, live, segment.end.load(Ordering::Acquire), true)?;
        }
        tx.commit().map(drop)
    }
}

fn fresh_of(core: &Arc<Core>, log: u64) -> FreshSegments {
    FreshSegments::new(Arc::clone(core), log, Holds::Versions, Purpose::Data)
}

/// Where the bytes of some blocks are in those of all.
fn within(all: &Range<u64>, blocks: &Range<u64>) -> Range<usize> {
    let at = |block: u64| (block - all.start) as usize * BLOCK;
    at(blocks.start)..at(blocks.end)
}
