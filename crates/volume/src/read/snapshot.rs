//! A moment of a volume, opened: the present, or a view's past. Reading happens here.
//!
//! Invariants
//! 1. Every byte returned from storage was checked against the CRC32C that came with its pointer,
//!    wherever it was read.
//! 2. A reader holds an epoch from before it looks at the map until it has the bytes.
//! 3. A block of a backing file (`past/backing_file`) has no checksum: it is read from the file if
//!    that is as it was.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::checksum::block_crc;
use history::{
    BLOCKS_PER_PAGE, Content, IoKind, IoTally, Outside, PageTable, Slot, Store, Timeline,
};
use units::{BLOCK_BYTES, Seq};

use crate::names::VolumeName;
use crate::placement::base::home_bytes;
use crate::placement::current_store::{CurrentStore, Noted};
use crate::types::{Extent, Wait};
use crate::{Error, ErrorKind, Result};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Pages that one call for extents looks at: 32 GiB of addresses, some milliseconds.
const EXTENT_PAGES_MAX: usize = 16_384;

/// Blocks in packs that are read without waiting, at most: decoding takes some tens of microseconds
/// for each, which is less than to hand the request over, but many are left to those who may wait.
const PACKED_AT_ONCE: usize = 16;

/// The hint about a block that cannot be had.
const WHERE_IT_WAS_GOOD: &str = "revert to, or read from, a moment when the block was good";

/// Bytes of parts of blocks that a thread keeps memory for.
const PARTS_BYTES_KEPT: usize = 256 << 10;

thread_local! {
    /// Memory for where the blocks of a request are, used again from request to request.
    static SLOTS: Cell<Vec<Slot>> = const { Cell::new(Vec::new()) };
    /// Memory for blocks that are wanted in part.
    static PARTS: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A moment that can be read.
pub struct Opening {
    /// The store, which all volumes share.
    pub store: Arc<Store>,
    /// The volume's name, for messages.
    pub volume: Arc<VolumeName>,
    /// The timeline it is on.
    pub timeline: Arc<Timeline>,
    /// The one at the end of its line: at which a file hangs, if it is still being imported.
    pub root: Arc<Timeline>,
    /// The seq as of which it is read; `u64::MAX` for the present.
    pub at: Seq,
    /// Bytes of the volume at that moment.
    pub size_bytes: u64,
    /// Where its blocks are.
    pub pages: PageTable,
    /// Where its volume's device requests are counted.
    pub io: Arc<IoTally>,
    /// Where its blocks are in place; only the present of some architectures has that.
    pub current: Option<Arc<CurrentStore>>,
}

/// Where blocks of the present may be in place, as of before the map was looked up.
struct Places<'c> {
    current: &'c CurrentStore,
    noted: Noted,
}

/// How a read is made.
#[derive(Clone, Copy)]
struct How<'a> {
    wait: Wait,
    places: Option<&'a Places<'a>>,
    outside: Option<&'a dyn Outside>,
}

impl Opening {
    /// An opening of the volume with that id and name, with no page loaded.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        (id, volume): (u64, Arc<VolumeName>),
        timeline: Arc<Timeline>,
        at: Seq,
        (size_bytes, current): (u64, Option<Arc<CurrentStore>>),
    ) -> Opening {
        let is_present = at == Seq(u64::MAX);
        let budget = if is_present { &store.page_budget } else { &store.view_budget };
        let pages = PageTable::new(Arc::clone(budget), timeline.extent);
        let io = store.io(id);
        let root = timeline.root();
        Opening { store, volume, timeline, root, at, size_bytes, pages, io, current }
    }

    /// Fails unless the range lies within the volume.
    ///
    /// # Errors
    /// `OutOfBounds`.
    pub fn check_range(&self, offset: u64, length_bytes: u64) -> Result<()> {
        match offset.checked_add(length_bytes) {
            Some(end) if end <= self.size_bytes => Ok(()),
            _ => Err(Error::new(
                ErrorKind::OutOfBounds,
                format!(
                    "{length_bytes} bytes at {offset} reach beyond the end of {} ({} bytes)",
                    self.volume, self.size_bytes
                ),
            )),
        }
    }

    /// Copies out where `slots.len()` blocks from `first` are.
    ///
    /// # Errors
    /// `Corrupt` or the device's.
    pub fn look_up(&self, first: u64, slots: &mut [Slot], wait: Wait) -> Result<bool> {
        let mut done = 0;
        while done < slots.len() {
            let block = first + done as u64;
            let page = block / BLOCKS_PER_PAGE as u64;
            let within = (block % BLOCKS_PER_PAGE as u64) as usize;
            let part = (BLOCKS_PER_PAGE - within).min(slots.len() - done);
            let out = &mut slots[done..done + part];
            if wait == Wait::Never {
                if !self.pages.try_slots(page, within, out) {
                    return Ok(false);
                }
            } else {
                self.pages.slots(page, within, out, |loaded| {
                    self.store.page_loads.fetch_add(1, Ordering::Relaxed);
                    self.timeline.load_page(&self.store, page, self.at, loaded)
                })?;
            }
            done += part;
        }
        Ok(true)
    }

    /// Fills `buffer` from `offset`; `Ok(false)` when that would have had to wait.
    ///
    /// # Errors
    /// `OutOfBounds`, `Corrupt`, or the device's.
    pub fn read(&self, offset: u64, buffer: &mut [u8], wait: Wait) -> Result<bool> {
        self.check_range(offset, buffer.len() as u64)?;
        if buffer.is_empty() {
            return Ok(true);
        }
        let _epoch = self.store.enter();
        let first = offset / BLOCK_BYTES;
        let end = (offset + buffer.len() as u64).div_ceil(BLOCK_BYTES);
        let count = usize::try_from(end - first).expect("a buffer fits memory");
        let mut few = [Slot::default(); 16];
        if count <= few.len() {
            return self.read_range(first, &mut few[..count], offset, buffer, wait);
        }
        let mut many = SLOTS.take();
        many.clear();
        many.resize(count, Slot::default());
        let ready = self.read_range(first, &mut many, offset, buffer, wait);
        SLOTS.set(many);
        ready
    }

    /// Fills `buffer` from blocks of which the first is `first`; `slots` has room for them.
    fn read_range(
        &self,
        first: u64,
        slots: &mut [Slot],
        offset: u64,
        buffer: &mut [u8],
        wait: Wait,
    ) -> Result<bool> {
        // Before the map is looked up: see `current_store`, invariant 3.
        let places = self
            .current
            .as_ref()
            .map(|c| Places { current: c, noted: c.note(first..first + slots.len() as u64) });
        if !self.look_up(first, slots, wait)? {
            return Ok(false);
        }
        if wait == Wait::Never && self.has_many_packed(slots) {
            return Ok(false);
        }
        let outside = self.outside_of(first, slots, wait)?;
        let Some(outside) = outside else { return Ok(false) };
        let how = How { wait, places: places.as_ref(), outside: outside.as_deref() };
        self.read_slots(first, slots, offset, buffer, how)
    }

    /// Whether so many of the blocks are in packs that to decode them keeps others waiting.
    fn has_many_packed(&self, slots: &[Slot]) -> bool {
        let is_packed = |slot: &&Slot| {
            !slot.is_hole()
                && !slot.is_outside()
                && self.store.locate(slot.location).is_ok_and(|(_, c)| c == Content::Pack)
        };
        slots.len() > PACKED_AT_ONCE && slots.iter().filter(is_packed).count() > PACKED_AT_ONCE
    }

    /// The file that blocks are in which are outside, if some are. Where it has been let go since
    /// they were looked up, they are looked up again: then all are known. `None` when that would
    /// have to wait.
    fn outside_of(
        &self,
        first: u64,
        slots: &mut [Slot],
        wait: Wait,
    ) -> Result<Option<Option<Arc<dyn Outside>>>> {
        if !slots.iter().any(Slot::is_outside) {
            return Ok(Some(None));
        }
        if let Some(outside) = self.root.outside() {
            return Ok(Some(Some(outside)));
        }
        let end = first + slots.len() as u64;
        let per_page = BLOCKS_PER_PAGE as u64;
        self.pages.drop_pages(|page| page * per_page < end && first < (page + 1) * per_page);
        Ok(self.look_up(first, slots, wait)?.then_some(None))
    }

    fn read_slots(
        &self,
        first: u64,
        slots: &[Slot],
        offset: u64,
        buffer: &mut [u8],
        how: How<'_>,
    ) -> Result<bool> {
        let mut index = 0;
        while index < slots.len() {
            let block_start = (first + index as u64) * BLOCK_BYTES;
            let run = self.run_of(&slots[index..]);
            let run_end = block_start + run as u64 * BLOCK_BYTES;
            let from = block_start.max(offset);
            let to = run_end.min(offset + buffer.len() as u64);
            let range = (from - offset) as usize..(to - offset) as usize;
            let whole = from == block_start && to == run_end;
            let out = &mut buffer[range];
            let slots = &slots[index..index + run];
            let ready = if slots[0].is_hole() {
                out.fill(0);
                true
            } else if whole {
                self.read_blocks(block_start / BLOCK_BYTES, slots, out, how)?
            } else {
                let mut blocks = PARTS.take();
                blocks.clear();
                blocks.resize(run * BLOCK, 0);
                let first_block = block_start / BLOCK_BYTES;
                let ready = self.read_blocks(first_block, slots, &mut blocks, how)?;
                let skip = (from - block_start) as usize;
                out.copy_from_slice(&blocks[skip..skip + out.len()]);
                if blocks.capacity() <= PARTS_BYTES_KEPT {
                    PARTS.set(blocks);
                }
                ready
            };
            if !ready {
                return Ok(false);
            }
            index += run;
        }
        Ok(true)
    }

    /// How many slots from the first are read together.
    fn run_of(&self, slots: &[Slot]) -> usize {
        if self.current.is_none() || slots[0].is_hole() || slots[0].is_outside() {
            return joined(slots).max(at_home(slots));
        }
        slots.iter().take_while(|slot| !slot.is_hole() && !slot.is_outside()).count()
    }

    /// Reads blocks none of which is a hole: from outside if they are there; else from their places
    /// if they have any, else from the log.
    fn read_blocks(
        &self,
        first_block: u64,
        slots: &[Slot],
        out: &mut [u8],
        how: How<'_>,
    ) -> Result<bool> {
        let wait = how.wait;
        if let Some(outside) = how.outside.filter(|_| slots[0].is_outside()) {
            return Ok(outside.read(first_block, out, wait != Wait::Never)?);
        }
        let Some(places) = how.places else {
            return self.read_logged(first_block, slots, out, None, wait);
        };
        let mut index = 0;
        while index < slots.len() {
            let block = first_block + index as u64;
            let (home, mut count) =
                places.current.look_up(&places.noted, block, slots.len() - index);
            if home.is_none() {
                count = joined(&slots[index..index + count]);
            }
            let part = &slots[index..index + count];
            let bytes = &mut out[index * BLOCK..(index + count) * BLOCK];
            let ready = match home {
                Some(offset) => self.read_in_place(places, offset, (block, part), bytes, wait)?,
                None => self.read_logged(block, part, bytes, None, wait)?,
            };
            if !ready {
                return Ok(false);
            }
            index += count;
        }
        Ok(true)
    }

    /// Reads blocks from places that were trusted when `places` was noted; from the log those that
    /// were written meanwhile or have rotted.
    fn read_in_place(
        &self,
        places: &Places<'_>,
        offset: u64,
        (first_block, slots): (u64, &[Slot]),
        out: &mut [u8],
        wait: Wait,
    ) -> Result<bool> {
        let outcome = self.ask_device(offset, out, wait);
        if let Ok(false) = outcome {
            return Ok(false);
        }
        // The log has a block that its place does not give; it is the one to fail.
        let readable = outcome.is_ok();
        if readable {
            self.io.count(IoKind::CurrentRead, out.len() as u64);
        }
        let still_right = places.current.is_unchanged(&places.noted, first_block);
        for (i, block) in out.chunks_exact_mut(BLOCK).enumerate() {
            if readable && still_right && block_crc(block) == slots[i].crc {
                continue;
            }
            if still_right {
                places.current.distrust(first_block + i as u64);
            }
            if !self.read_logged(first_block + i as u64, &slots[i..=i], block, None, wait)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads blocks that lie one after another in one segment, or in homes one after another, or in
    /// packs, and checks each against the map. One that cannot be read or is wrong is healed where
    /// it lies if it can be, else had from another version with the same bytes. Reads count as
    /// `kind`, or as reads of where they lie. False if something had to be waited for.
    ///
    /// # Errors
    /// `Corrupt`, or the device's.
    pub fn read_logged(
        &self,
        first: u64,
        slots: &[Slot],
        out: &mut [u8],
        kind: Option<IoKind>,
        wait: Wait,
    ) -> Result<bool> {
        let (at, content) = self.store.locate(slots[0].location)?;
        let is_home = content == Content::Home;
        let of_place = if is_home { IoKind::CurrentRead } else { IoKind::HistoryRead };
        let kind = kind.unwrap_or(of_place);
        let are_homes = slots.len() > 1 && at_home(slots) == slots.len();
        let stride = if are_homes { u64::from(home_bytes()) } else { BLOCK_BYTES };
        // Versions in packs that follow one another as blocks would are in packs all the same.
        let is_pack = content == Content::Pack;
        let is_read = !is_pack
            && match self.read_strided(kind, (at, stride), out, wait) {
                Ok(false) => return Ok(false),
                outcome => outcome.is_ok(),
            };
        let parts = slots.iter().zip(out.chunks_exact_mut(BLOCK));
        for (i, (slot, block)) in (0..).zip(parts) {
            let (number, place) = (first + i, (!is_pack).then_some(at + i * stride));
            let read = match place {
                _ if is_read => Ok(true),
                // A reader that waits is told of the error, or has the block elsewhere.
                Some(_) if wait == Wait::Never => Ok(false),
                Some(at) => self.read_device(kind, at, block, wait),
                None => self.read_packed((number, slot), block, kind, wait),
            };
            let found = block_crc(block);
            if matches!(read, Ok(true)) && found == slot.crc {
                continue;
            }
            if wait == Wait::Never {
                return Ok(false);
            }
            let right = |bytes: &[u8]| block_crc(bytes) == slot.crc;
            if place.is_some_and(|at| self.store.heal(at, block, &right)) {
                continue;
            }
            // By the healing that failed, or by the reading of the pack.
            let was_counted = match &read {
                Err(error) if is_pack => error.kind == ErrorKind::Corrupt,
                _ => !is_pack,
            };
            if is_pack && read.is_ok() {
                self.store.checksum_errors.fetch_add(1, Ordering::Relaxed);
            }
            if self.recover_elsewhere(number, slot, (place, was_counted), block) {
                continue;
            }
            let error = read.err().unwrap_or_else(|| {
                Error::corrupt(format!(
                    "block {number} of {} (seq {}, {}): checksum {:#010x} expected, {found:#010x} \
                     found",
                    self.volume, slot.seq, slot.location, slot.crc
                ))
            });
            return Err(error.with_hint(WHERE_IT_WAS_GOOD));
        }
        Ok(true)
    }

    /// Reads a version out of its pack; false if that had to be waited for.
    fn read_packed(
        &self,
        (block, slot): (u64, &Slot),
        out: &mut [u8],
        kind: IoKind,
        wait: Wait,
    ) -> Result<bool> {
        let (at, version, tally) = (slot.location, (block, slot.seq), (&*self.io, kind));
        match wait {
            Wait::Never => Ok(self.store.try_read_packed(at, version, out, tally)?),
            _ => Ok(self.store.read_packed(at, version, out, tally).map(|()| true)?),
        }
    }

    /// Reads blocks that lie so far apart in one go.
    fn read_strided(
        &self,
        kind: IoKind,
        (at, stride): (u64, u64),
        out: &mut [u8],
        wait: Wait,
    ) -> Result<bool> {
        if stride == BLOCK_BYTES {
            return self.read_device(kind, at, out, wait);
        }
        // Bytes between them are read with them.
        let mut all = vec![0; (out.len() / BLOCK - 1) * stride as usize + BLOCK];
        if !self.read_device(kind, at, &mut all, wait)? {
            return Ok(false);
        }
        for (block, bytes) in out.chunks_exact_mut(BLOCK).zip(all.chunks(stride as usize)) {
            block.copy_from_slice(&bytes[..BLOCK]);
        }
        Ok(true)
    }

    fn ask_device(&self, at: u64, out: &mut [u8], wait: Wait) -> block::Result<bool> {
        match wait {
            Wait::Never => self.store.device.try_read_at(at, out),
            Wait::Device | Wait::Room => self.store.device.read_at(at, out).map(|()| true),
        }
    }

    fn read_device(&self, kind: IoKind, at: u64, out: &mut [u8], wait: Wait) -> Result<bool> {
        if !self.ask_device(at, out, wait)? {
            return Ok(false);
        }
        self.io.count(kind, out.len() as u64);
        Ok(true)
    }

    /// Fills a block of which no copy is right from another version with the same bytes. In the
    /// log it is written again; a home may be about to have another version, and in a pack others
    /// are computed from it. `was_counted` says whether it was counted as lost already.
    fn recover_elsewhere(
        &self,
        number: u64,
        slot: &Slot,
        (at, was_counted): (Option<u64>, bool),
        block: &mut [u8],
    ) -> bool {
        let content = self.store.locate(slot.location).map(|(_, content)| content);
        let is_for_ever = matches!(content, Ok(Content::Logged | Content::Shared));
        let place = at.filter(|_| is_for_ever);
        self.store.recover_elsewhere(number, slot.location, (slot.crc, place, was_counted), block)
    }

    /// Data and holes in a range, joined, at most `limit` of them. A long range is answered in
    /// part: what is not told is to be asked for again.
    ///
    /// # Errors
    /// `OutOfBounds`, `Corrupt`, or the device's.
    pub fn extents(&self, offset: u64, length_bytes: u64, limit: usize) -> Result<Vec<Extent>> {
        self.check_range(offset, length_bytes)?;
        let _epoch = self.store.enter();
        let mut extents: Vec<Extent> = Vec::new();
        let end = offset + length_bytes;
        let mut position = offset;
        let mut slots = vec![Slot::default(); BLOCKS_PER_PAGE];
        for _ in 0..EXTENT_PAGES_MAX {
            if position >= end || extents.len() > limit {
                break;
            }
            let block = position / BLOCK_BYTES;
            let page_end = (block / BLOCKS_PER_PAGE as u64 + 1) * BLOCKS_PER_PAGE as u64;
            let last = page_end.min(end.div_ceil(BLOCK_BYTES));
            let count = (last - block) as usize;
            self.look_up(block, &mut slots[..count], Wait::Device)?;
            for slot in &slots[..count] {
                let block_end = ((position / BLOCK_BYTES + 1) * BLOCK_BYTES).min(end);
                push_extent(&mut extents, position, block_end - position, slot.is_hole());
                position = block_end;
            }
        }
        extents.truncate(limit);
        Ok(extents)
    }
}

fn push_extent(extents: &mut Vec<Extent>, offset: u64, length_bytes: u64, hole: bool) {
    match extents.last_mut() {
        Some(open) if open.hole == hole => open.length_bytes += length_bytes,
        _ => extents.push(Extent { offset, length_bytes, hole }),
    }
}

/// How many slots from the first lie as homes in a base do, or as single blocks that were moved:
/// one after another with the header of a batch between them. One, if it is alone.
fn at_home(slots: &[Slot]) -> usize {
    let first = slots[0].location;
    let follows = |i: usize, slot: &Slot| {
        !slot.is_hole()
            && slot.location.segment() == first.segment()
            && u64::from(slot.location.offset_bytes())
                == u64::from(first.offset_bytes()) + i as u64 * u64::from(home_bytes())
    };
    if slots[0].is_hole() {
        return 1;
    }
    slots.iter().enumerate().skip(1).take_while(|&(i, s)| follows(i, s)).count() + 1
}

/// How many slots from the first are one hole, or lie one after another in one segment.
pub fn joined(slots: &[Slot]) -> usize {
    let first = slots[0];
    let follows = |i: usize, slot: &Slot| {
        if first.is_hole() || first.is_outside() {
            return slot.is_hole() == first.is_hole() && slot.is_outside() == first.is_outside();
        }
        !slot.is_hole()
            && slot.location.segment() == first.location.segment()
            && u64::from(slot.location.offset_bytes())
                == u64::from(first.location.offset_bytes()) + i as u64 * BLOCK_BYTES
    };
    slots.iter().enumerate().skip(1).take_while(|&(i, s)| follows(i, s)).count() + 1
}
