//! Moving live blocks out of sparse segments: behind the end of a segment of the same log that has
//! room there, and into new ones, in the order they come.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::Purpose;
use format::batch::{BatchEncoder, BatchKind, header_bytes};
use format::checksum::block_crc;
use format::location::Location;
use format::map::Entry;
use history::{Content, IoKind, IoTally, Segment, Store, block_location};
use units::BLOCK_BYTES;

use crate::Result;
use crate::core::Core;
use crate::jobs::segment_writer::{FreshSegments, Holds, relocated};
use crate::placement::base::{home_bytes, home_header_bytes};

/// Writes entries with their blocks as relocated batches.
pub struct Mover {
    fresh: FreshSegments,
    timeline: u64,
}

/// How the read and the write of a block that moves are counted.
pub type Errand = (IoKind, IoKind);
/// Its segment is emptied.
pub const CLEANING: Errand = (IoKind::CopyRead, IoKind::CopyWrite);
/// It leaves its home for the version that the present shows.
pub const BEFORE_IMAGE: Errand = (IoKind::BeforeImageRead, IoKind::BeforeImageWrite);

/// Reads the block of an entry wherever it is, or from another version that has the same bytes;
/// false when it cannot be had: such a block stays where it is.
pub fn read_entry(
    store: &Store,
    entry: &Entry,
    block: &mut [u8],
    (io, kind): (&IoTally, IoKind),
) -> bool {
    let Ok((at, content)) = store.locate(entry.location) else { return false };
    let right = |bytes: &[u8]| block_crc(bytes) == entry.crc;
    let was_counted = if content == Content::Pack {
        let version = (entry.key.index, entry.seq);
        match store.read_packed(entry.location, version, block, (io, kind)) {
            Ok(()) if right(block) => return true,
            Ok(()) => false,
            Err(error) => error.kind == history::ErrorKind::Corrupt,
        }
    } else {
        io.count(kind, BLOCK_BYTES);
        let is_read = store.device.read_at(at, block).is_ok();
        if (is_read && right(block)) || store.heal(at, block, &right) {
            return true;
        }
        // By the healing that failed.
        true
    };
    // Where it lies it is not written again: it is about to go.
    let how = (entry.crc, None, was_counted);
    store.recover_elsewhere(entry.key.index, entry.location, how, block)
}

impl Mover {
    /// A mover for one timeline of a log, which begins behind the end of a segment.
    #[must_use]
    pub fn new(core: Arc<Core>, log: u64, timeline: u64, begin: Option<Arc<Segment>>) -> Mover {
        Mover {
            fresh: FreshSegments::new(core, log, Holds::Versions, Purpose::Reclaim)
                .going_on_in(begin),
            timeline,
        }
    }

    /// Moves one entry; `None` when its block is damaged or cannot be read, and must stay.
    ///
    /// # Errors
    /// `Full`, `Refused`, `Io`.
    pub fn move_entry(&mut self, entry: &Entry, (read, write): Errand) -> Result<Option<Entry>> {
        let mut payload = Vec::new();
        if !entry.location.is_hole() {
            payload.resize(BLOCK_BYTES as usize, 0);
            // A sector that cannot be read must not keep all others from being reclaimed.
            let store = &self.fresh.core.store;
            if !read_entry(store, entry, &mut payload, (&self.fresh.io, read)) {
                return Ok(None);
            }
        }
        let need = header_bytes(BatchKind::Relocated, 1, usize::from(!payload.is_empty()))
            + u32::try_from(payload.len()).expect("one block");
        let segment = self.fresh.with_room(need)?;
        let offset = segment.end.load(Ordering::Acquire);
        let (header, header_bytes) = self.header(&segment, offset, entry);
        let parts: [&[u8]; 2] = [&header, &payload];
        self.fresh.append(write, &segment, &parts, std::slice::from_ref(entry))?;
        let location = if payload.is_empty() {
            Location::hole_in(segment.number)
        } else {
            block_location(Location::new(segment.number, offset + header_bytes), 0)
        };
        Ok(Some(Entry { location, ..*entry }))
    }

    /// Moves entries whose blocks have homes one after another, as many as fit the open segment, at
    /// least one: read and written together. `None` for one that cannot be had, and must stay.
    ///
    /// # Errors
    /// `Full`, `Refused`, `Io`.
    pub fn move_homes(&mut self, entries: &[Entry]) -> Result<Vec<Option<Entry>>> {
        let (read, write) = BEFORE_IMAGE;
        let segment = self.fresh.with_room(home_bytes())?;
        let store = &self.fresh.core.store;
        let mut end = segment.end.load(Ordering::Acquire);
        let zone_bytes = u32::try_from(store.zone_bytes).expect("zones are at most 32 MiB");
        let entries = &entries[..entries.len().min(((zone_bytes - end) / home_bytes()) as usize)];
        // Headers lie between the blocks, and behind the last one nothing is wanted.
        let mut bytes = vec![0; entries.len() * home_bytes() as usize];
        let wanted = bytes.len() - home_header_bytes() as usize;
        let (at, _) = store.locate(entries[0].location)?;
        // Blocks are counted, without headers, as everywhere.
        self.fresh.io.count(read, entries.len() as u64 * BLOCK_BYTES);
        let is_read = store.device.read_at(at, &mut bytes[..wanted]).is_ok();
        let (mut moved, mut headers, mut sound) = (Vec::new(), Vec::new(), Vec::new());
        for (entry, home) in entries.iter().zip(bytes.chunks_exact_mut(home_bytes() as usize)) {
            let block = &mut home[..BLOCK_BYTES as usize];
            let is_right = is_read && block_crc(block) == entry.crc;
            if !is_right && !read_entry(store, entry, block, (&self.fresh.io, read)) {
                moved.push(None);
                continue;
            }
            let (header, header_bytes) = self.header(&segment, end, entry);
            let payload = Location::new(segment.number, end + header_bytes);
            moved.push(Some(Entry { location: block_location(payload, 0), ..*entry }));
            end += header_bytes + BLOCK_BYTES as u32;
            headers.push(header);
            sound.push((*entry, &*block));
        }
        if !sound.is_empty() {
            let parts =
                headers.iter().zip(&sound).flat_map(|(header, (_, block))| [&header[..], block]);
            let entries: Vec<Entry> = sound.iter().map(|(entry, _)| *entry).collect();
            self.fresh.append(write, &segment, &parts.collect::<Vec<_>>(), &entries)?;
        }
        Ok(moved)
    }

    /// The header of a batch of one entry, and its length.
    fn header(&self, segment: &Segment, offset: u32, entry: &Entry) -> (Vec<u8>, u32) {
        let header = relocated(segment, offset, self.timeline, entry.seq);
        let mut bytes = Vec::with_capacity(256);
        let mut encoder = BatchEncoder::new(&mut bytes);
        let block = entry.key.first_block().0;
        if entry.location.is_hole() {
            let blocks = u32::try_from(entry.key.blocks())
                .expect("trims are logged in pieces below 2^32 blocks, so no key is of level 4");
            encoder.push_relocated_zero(block, blocks, entry.seq);
        } else {
            encoder.push_relocated(block, entry.seq, entry.crc);
        }
        let sizes = encoder.finish(&header);
        (bytes, sizes.header_bytes)
    }

    /// Every new segment written.
    pub fn finish(&mut self) -> Vec<Arc<Segment>> {
        self.fresh.finish()
    }

    /// The segment that was there before, as `FreshSegments::go_on`.
    #[must_use]
    pub fn go_on(&self) -> Option<(u64, i64)> {
        self.fresh.go_on()
    }
}
