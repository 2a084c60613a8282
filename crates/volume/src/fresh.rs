//! Segments that background work fills, one after another: they exist for others only once the
//! commit that names them is done, and their zones are free again if it never comes.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use block::Purpose;
use format::map::Entry;
use format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use history::{IoKind, IoTally, Segment};
use units::Seq;

use crate::Result;
use crate::core::Core;

/// Segments of one log, being filled.
pub struct FreshSegments {
    core: Arc<Core>,
    io: Arc<IoTally>,
    log: u64,
    done: Vec<Arc<Segment>>,
    open: Option<Arc<Segment>>,
    finished: bool,
}

impl FreshSegments {
    /// None yet.
    #[must_use]
    pub fn new(core: Arc<Core>, log: u64) -> FreshSegments {
        let io = core.store.io(log);
        FreshSegments { core, io, log, done: Vec::new(), open: None, finished: false }
    }

    /// What they belong to.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Where their volume's device requests are counted.
    #[must_use]
    pub fn io(&self) -> &IoTally {
        &self.io
    }

    /// The open segment, or a new one when so many bytes do not fit it.
    ///
    /// # Errors
    /// `Full`, `Refused`, `Io`.
    pub fn with_room(&mut self, need: u32) -> Result<Arc<Segment>> {
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
        let segment = Arc::new(Segment {
            number,
            zone,
            log: self.log,
            nonce: self.core.machine.entropy.next_u64(),
            last_seq: AtomicU64::new(0),
            end: AtomicU32::new(SEGMENT_HEADER_BYTES as u32),
            live_entries: AtomicI64::new(0),
            committed_entries: AtomicI64::new(0),
            sealed: AtomicBool::new(true),
            retired: AtomicBool::new(false),
            slab: None,
            packed: AtomicU32::new(0),
        });
        self.done.extend(self.open.replace(Arc::clone(&segment)));
        let header = SegmentHeader {
            pool_id: store.pool_id,
            segment: number,
            zone,
            log: self.log,
            nonce: segment.nonce,
            created: self.core.machine.clock.wall(),
            first_seq: Seq(1),
            voids: None,
        };
        store.write(store.zone_offset(zone), &[IoSlice::new(&header.encode())])?;
        self.io.count(IoKind::Other, SEGMENT_HEADER_BYTES as u64);
        Ok(segment)
    }

    /// Appends bytes that hold these entries to a segment which has room for them.
    ///
    /// # Errors
    /// `Refused` or `Io`.
    pub fn append(&self, segment: &Segment, parts: &[&[u8]], entries: &[Entry]) -> Result<()> {
        let store = &self.core.store;
        let offset = segment.end.load(Ordering::Acquire);
        let bytes = u32::try_from(parts.iter().map(|part| part.len()).sum::<usize>())
            .expect("less than a zone");
        assert!(u64::from(offset) + u64::from(bytes) <= store.zone_bytes, "within the zone");
        let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        store.write(store.zone_offset(segment.zone) + u64::from(offset), &slices)?;
        self.io.count(IoKind::CopyWrite, u64::from(bytes));
        segment.end.store(offset + bytes, Ordering::Release);
        let newest = entries.iter().map(|entry| entry.seq.0).max().unwrap_or(0);
        segment.last_seq.fetch_max(newest, Ordering::AcqRel);
        let count = i64::try_from(entries.len()).expect("few");
        segment.live_entries.fetch_add(count, Ordering::AcqRel);
        Ok(())
    }

    /// Every segment written; the commit that follows flushes, and names them.
    pub fn finish(&mut self) -> Vec<Arc<Segment>> {
        self.finished = true;
        self.done.extend(self.open.take());
        std::mem::take(&mut self.done)
    }
}

impl Drop for FreshSegments {
    fn drop(&mut self) {
        if !self.finished {
            for segment in self.done.drain(..).chain(self.open.take()) {
                self.core.store.free_zone(segment.zone);
            }
        }
    }
}
