//! Moving live blocks out of sparse segments: into new segments of the same log, in the order they
//! come.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use block::Purpose;
use format::batch::{BatchEncoder, BatchHeader, BatchKind, header_bytes};
use format::checksum::block_crc;
use format::location::Location;
use format::map::Entry;
use format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use history::{IoKind, IoTally, Segment, block_location};
use units::{BLOCK_BYTES, Seq, WallTime};

use crate::Result;
use crate::core::Core;

/// Gathers entries with their blocks and writes them as relocated batches.
pub struct Mover {
    core: Arc<Core>,
    io: Arc<IoTally>,
    log: u64,
    timeline: u64,
    done: Vec<Arc<Segment>>,
    open: Option<Arc<Segment>>,
    finished: bool,
}

impl Mover {
    /// A mover for one timeline of a log.
    #[must_use]
    pub fn new(core: Arc<Core>, log: u64, timeline: u64) -> Mover {
        let io = core.store.io(log);
        Mover { core, io, log, timeline, done: Vec::new(), open: None, finished: false }
    }

    /// Moves one entry; `None` when its block is damaged or cannot be read, and must stay.
    ///
    /// # Errors
    /// `Full`, `Refused`, `Io`.
    pub fn move_entry(&mut self, entry: &Entry) -> Result<Option<Entry>> {
        let mut payload = Vec::new();
        if !entry.location.is_hole() {
            payload.resize(BLOCK_BYTES as usize, 0);
            let from = self.core.store.device_offset(entry.location)?;
            // A sector that cannot be read must not keep all others from being reclaimed.
            let is_read = self.core.store.device.read_at(from, &mut payload).is_ok();
            self.io.count(IoKind::CopyRead, BLOCK_BYTES);
            if !is_read || block_crc(&payload) != entry.crc {
                self.core.store.checksum_errors.fetch_add(1, Ordering::Relaxed);
                return Ok(None);
            }
        }
        let need = header_bytes(BatchKind::Relocated, 1, usize::from(!payload.is_empty()))
            + u32::try_from(payload.len()).expect("one block");
        let segment = self.segment_with(need)?;
        let offset = segment.end.load(Ordering::Acquire);
        let header = BatchHeader {
            segment: segment.number,
            offset,
            kind: BatchKind::Relocated,
            nonce: segment.nonce,
            timeline: self.timeline,
            time: WallTime::from_nanos(0),
            base_seq: entry.seq,
            stable_seq: Seq::ZERO,
            durable_seq: Seq::ZERO,
            flush_count: 0,
        };
        let mut bytes = Vec::with_capacity(256);
        let mut encoder = BatchEncoder::new(&mut bytes);
        // The time of a moved write stays in the time index; its batch records none.
        let time = WallTime::from_nanos(0);
        let block = entry.key.first_block().0;
        if payload.is_empty() {
            let blocks = u32::try_from(entry.key.blocks())
                .expect("trims are logged in pieces below 2^32 blocks, so no key is of level 4");
            encoder.push_relocated_zero(block, blocks, entry.seq, time);
        } else {
            encoder.push_relocated(block, entry.seq, time, entry.crc);
        }
        let sizes = encoder.finish(&header);
        let at = self.core.store.zone_offset(segment.zone) + u64::from(offset);
        self.core.store.write(at, &[IoSlice::new(&bytes), IoSlice::new(&payload)])?;
        self.io.count(IoKind::CopyWrite, u64::from(sizes.total()));
        segment.end.store(offset + sizes.total(), Ordering::Release);
        segment.last_seq.fetch_max(entry.seq.0, Ordering::AcqRel);
        segment.live_entries.fetch_add(1, Ordering::AcqRel);
        let location = if payload.is_empty() {
            Location::hole_in(segment.number)
        } else {
            block_location(Location::new(segment.number, offset + sizes.header_bytes), 0)
        };
        Ok(Some(Entry { location, ..*entry }))
    }

    /// The open segment, or a new one when so many bytes do not fit it.
    fn segment_with(&mut self, need: u32) -> Result<Arc<Segment>> {
        let store = &self.core.store;
        let zone_bytes = u32::try_from(store.zone_bytes).expect("zones are at most 32 MiB");
        if let Some(open) = &self.open
            && open.end.load(Ordering::Acquire) + need <= zone_bytes
        {
            return Ok(Arc::clone(open));
        }
        let zone = store.allocate_zone(Purpose::Reclaim)?;
        let number = {
            let mut numbers = self.core.books.lock();
            numbers.segment += 1;
            numbers.segment
        };
        let nonce = self.core.machine.entropy.next_u64();
        let segment = Arc::new(Segment {
            number,
            zone,
            log: self.log,
            nonce,
            last_seq: AtomicU64::new(0),
            end: AtomicU32::new(SEGMENT_HEADER_BYTES as u32),
            live_entries: AtomicI64::new(0),
            committed_entries: AtomicI64::new(0),
            sealed: AtomicBool::new(true),
            retired: AtomicBool::new(false),
            slab: None,
        });
        self.done.extend(self.open.replace(Arc::clone(&segment)));
        let header = SegmentHeader {
            pool_id: store.pool_id,
            segment: number,
            zone,
            log: self.log,
            nonce,
            created: self.core.machine.clock.wall(),
            first_seq: Seq(1),
            voids: None,
        };
        store.write(store.zone_offset(zone), &[IoSlice::new(&header.encode())])?;
        self.io.count(IoKind::Other, SEGMENT_HEADER_BYTES as u64);
        Ok(segment)
    }

    /// Every segment written.
    ///
    /// # Errors
    /// None today; the commit that follows flushes.
    pub fn finish(&mut self) -> Result<Vec<Arc<Segment>>> {
        self.finished = true;
        self.done.extend(self.open.take());
        Ok(std::mem::take(&mut self.done))
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        if !self.finished {
            for segment in self.done.drain(..).chain(self.open.take()) {
                self.core.store.free_zone(segment.zone);
            }
        }
    }
}
