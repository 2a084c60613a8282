//! Segments that background work fills, one after another: they exist for others only once the
//! commit that names them is done, and their zones are free again if it never comes.
//!
//! The first may be one that is there and has room behind its end. Its new content counts only once
//! the commit is done (`FreshSegments::go_on`): until then it is written beside what is known of
//! the segment, and by whoever comes next over again.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use block::Purpose;
use format::batch::{BatchHeader, BatchKind};
use format::map::Entry;
use format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use history::{IoKind, IoTally, Segment};
use units::{Seq, WallTime};

use crate::Result;
use crate::core::Core;

/// The content that a new segment will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Batches, or packs.
    Versions,
    /// Shared batches.
    Shared,
    /// Homes: it is a slab of a base (its number, and its bytes).
    Slab(u64, u32),
}

/// Begins a segment in a zone. The zone is free again if that fails.
///
/// # Errors
/// `Refused` or `Io`.
pub fn begin_segment(core: &Core, log: u64, zone: u32, holds: Holds) -> Result<Arc<Segment>> {
    let number = {
        let mut numbers = core.books.lock();
        numbers.segment += 1;
        numbers.segment
    };
    let (slab, end) = match holds {
        Holds::Slab(slab, bytes) => (Some(slab), bytes),
        Holds::Versions | Holds::Shared => (None, SEGMENT_HEADER_BYTES as u32),
    };
    let of_log = (log, core.store.draw_nonce(number));
    let segment = Arc::new(Segment {
        end: AtomicU32::new(end),
        slab,
        shared: holds == Holds::Shared,
        ..Segment::new((number, zone), of_log)
    });
    let store = &core.store;
    let header = SegmentHeader {
        pool_id: store.pool_id,
        segment: number,
        zone,
        log,
        nonce: segment.nonce,
        created: core.machine.clock.wall(),
        first_seq: Seq(1),
    };
    let written = store.write(store.zone_offset(zone), &[IoSlice::new(&header.encode())]);
    written.inspect_err(|_| store.free_zone(zone))?;
    store.io(log).count(IoKind::Other, SEGMENT_HEADER_BYTES as u64);
    Ok(segment)
}

/// The header of a batch of earlier writes, which is put at an offset of a segment; `seq` is the
/// first's.
#[must_use]
pub fn relocated(segment: &Segment, offset: u32, timeline: u64, seq: Seq) -> BatchHeader {
    BatchHeader {
        segment: segment.number,
        offset,
        kind: BatchKind::Relocated,
        nonce: segment.nonce,
        timeline,
        // The time of a moved write stays in the time index; its batch records none.
        time: WallTime::from_nanos(0),
        base_seq: seq,
        stable_seq: Seq::ZERO,
        durable_seq: Seq::ZERO,
        flush_count: 0,
    }
}

/// Segments of one log, being filled.
pub struct FreshSegments {
    pub core: Arc<Core>,
    /// Where their volume's device requests are counted.
    pub io: Arc<IoTally>,
    log: u64,
    holds: Holds,
    purpose: Purpose,
    done: Vec<Arc<Segment>>,
    open: Option<Arc<Segment>>,
    /// The segment that is gone on with, held meanwhile, and the same as it will be.
    behind: Option<[Arc<Segment>; 2]>,
    finished: bool,
}

impl FreshSegments {
    /// None yet, of a log, which will hold this.
    #[must_use]
    pub fn new(core: Arc<Core>, log: u64, holds: Holds, purpose: Purpose) -> FreshSegments {
        let io = core.store.io(log);
        let (done, open, behind) = (Vec::new(), None, None);
        FreshSegments { core, io, log, holds, purpose, done, open, behind, finished: false }
    }

    /// Begins behind the end of a segment of the log, which holds batches.
    #[must_use]
    pub fn going_on_in(mut self, segment: Option<Arc<Segment>>) -> FreshSegments {
        let Some(segment) = segment else { return self };
        segment.held.store(true, Ordering::Release);
        let grown = Arc::new(Segment {
            last_seq: AtomicU64::new(segment.last_seq().0),
            end: AtomicU32::new(segment.end.load(Ordering::Acquire)),
            ..Segment::new((segment.number, segment.zone), (segment.log, segment.nonce))
        });
        self.open = Some(Arc::clone(&grown));
        self.behind = Some([segment, grown]);
        self
    }

    /// The segment that was there knows what was put behind its end, but for who names it: says how
    /// many entries will. The commit comes next.
    #[must_use]
    pub fn go_on(&self) -> Option<(u64, i64)> {
        let [segment, grown] = self.behind.as_ref()?;
        segment.end.store(grown.end.load(Ordering::Acquire), Ordering::Release);
        segment.last_seq.store(grown.last_seq().0, Ordering::Release);
        let entries = grown.live_entries.load(Ordering::Acquire);
        (entries > 0).then_some((segment.number, entries))
    }

    /// Whether there is an open segment that so many bytes do not fit.
    #[must_use]
    pub fn is_too_full(&self, need: u32) -> bool {
        let zone_bytes = self.core.store.zone_bytes;
        let end = |open: &Arc<Segment>| open.end.load(Ordering::Acquire);
        self.open.as_ref().is_some_and(|open| u64::from(end(open) + need) > zone_bytes)
    }

    /// The open segment, or a new one when so many bytes do not fit it.
    ///
    /// # Errors
    /// `Full`, `Refused`, `Io`.
    pub fn with_room(&mut self, need: u32) -> Result<Arc<Segment>> {
        if let Some(open) = self.open.as_ref().filter(|_| !self.is_too_full(need)) {
            return Ok(Arc::clone(open));
        }
        let zone = self.core.store.allocate_zone(self.purpose)?;
        let segment = begin_segment(&self.core, self.log, zone, self.holds)?;
        self.done.extend(self.open.replace(Arc::clone(&segment)));
        Ok(segment)
    }

    /// Appends bytes that hold these entries to a segment which has room for them, counted as the
    /// kind that it is.
    ///
    /// # Errors
    /// `Refused` or `Io`.
    pub fn append(
        &self,
        kind: IoKind,
        segment: &Segment,
        parts: &[&[u8]],
        entries: &[Entry],
    ) -> Result<()> {
        let store = &self.core.store;
        let offset = segment.end.load(Ordering::Acquire);
        let bytes = u32::try_from(parts.iter().map(|part| part.len()).sum::<usize>())
            .expect("less than a zone");
        assert!(u64::from(offset) + u64::from(bytes) <= store.zone_bytes, "within the zone");
        let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        store.write(store.zone_offset(segment.zone) + u64::from(offset), &slices)?;
        self.io.count(kind, u64::from(bytes));
        segment.end.store(offset + bytes, Ordering::Release);
        let newest = entries.iter().map(|entry| entry.seq.0).max().unwrap_or(0);
        segment.last_seq.fetch_max(newest, Ordering::AcqRel);
        let count = i64::try_from(entries.len()).expect("few");
        segment.add_entries(count);
        Ok(())
    }

    /// Every new segment written; the commit that follows flushes, and names them.
    pub fn finish(&mut self) -> Vec<Arc<Segment>> {
        self.finished = true;
        self.take_new()
    }

    fn take_new(&mut self) -> Vec<Arc<Segment>> {
        self.done.extend(self.open.take());
        let mut new = std::mem::take(&mut self.done);
        new.retain(|s| self.behind.as_ref().is_none_or(|[_, grown]| !Arc::ptr_eq(s, grown)));
        new
    }
}

impl Drop for FreshSegments {
    fn drop(&mut self) {
        if !self.finished {
            for segment in self.take_new() {
                self.core.store.free_zone(segment.zone);
            }
        }
        if let Some([segment, _]) = &self.behind {
            segment.held.store(false, Ordering::Release);
        }
    }
}
