//! The maps of regions in memory: what is ready to be written, what is being written.
//!
//! A writer says which regions it is in (`enter`) before it looks whether they are *ready*: marked
//! on the members as open and used, and as stale if a member is not in. Who takes that mark back
//! takes it back here first and then looks for writers. So of both one sees the other.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use format::label::REGIONS_MAX;

/// What writers need to know of regions; nothing here waits.
pub(super) struct Regions {
    /// Changes only while nobody is in any.
    region_bytes: AtomicU64,
    ready: Vec<AtomicU64>,
    /// Writers in each.
    busy: Vec<AtomicU32>,
    /// Whether one was there since somebody last looked.
    touched: Vec<AtomicBool>,
    /// Bytes written in each since it was marked.
    written: Vec<AtomicU64>,
    /// In which round the mark came off early; [`COMES_BACK`] where it had to be set again soon.
    early: Vec<AtomicU8>,
    /// Counts the times at which marks come off all that was quiet: 1 to 254, and around.
    round: AtomicU8,
}

/// The marks of a region came off early, and it was written again: they stay until it is quiet.
const COMES_BACK: u8 = u8::MAX;

/// A writer in some regions; it leaves when dropped.
pub(super) struct Inside<'r> {
    regions: &'r Regions,
    range: Range<usize>,
}

impl Regions {
    /// As many as there may come to be.
    pub fn new(region_bytes: u64) -> Regions {
        Regions {
            region_bytes: AtomicU64::new(region_bytes),
            ready: (0..REGIONS_MAX.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            busy: (0..REGIONS_MAX).map(|_| AtomicU32::new(0)).collect(),
            touched: (0..REGIONS_MAX).map(|_| AtomicBool::new(false)).collect(),
            written: (0..REGIONS_MAX).map(|_| AtomicU64::new(0)).collect(),
            early: (0..REGIONS_MAX).map(|_| AtomicU8::new(0)).collect(),
            round: AtomicU8::new(1),
        }
    }

    /// Regions have another length from now on, and none is ready. Asserts that nobody is in one.
    pub fn begin_again(&self, region_bytes: u64) {
        let busy = self.busy.iter().any(|busy| busy.load(Ordering::SeqCst) > 0);
        assert!(!busy, "whoever grows an array keeps writers out");
        self.region_bytes.store(region_bytes, Ordering::SeqCst);
        self.ready.iter().for_each(|ready| ready.store(0, Ordering::SeqCst));
        self.touched.iter().for_each(|touched| touched.store(false, Ordering::SeqCst));
        self.written.iter().for_each(|written| written.store(0, Ordering::SeqCst));
        self.early.iter().for_each(|round| round.store(0, Ordering::SeqCst));
    }

    pub fn region_bytes(&self) -> u64 {
        self.region_bytes.load(Ordering::Relaxed)
    }

    /// The regions that a range of bytes touches; none if it is empty.
    pub fn of(&self, offset: u64, length_bytes: u64) -> Range<usize> {
        let region_bytes = self.region_bytes();
        let first = (offset / region_bytes) as usize;
        match length_bytes {
            0 => first..first,
            _ => first..((offset + length_bytes - 1) / region_bytes) as usize + 1,
        }
    }

    /// The regions that lie wholly in a range of bytes.
    pub fn within(&self, offset: u64, length_bytes: u64) -> Range<usize> {
        let region_bytes = self.region_bytes();
        let first = offset.div_ceil(region_bytes) as usize;
        first..(((offset + length_bytes) / region_bytes) as usize).max(first)
    }

    /// Goes into regions.
    pub fn enter(&self, range: Range<usize>) -> Inside<'_> {
        for region in range.clone() {
            self.busy[region].fetch_add(1, Ordering::SeqCst);
            self.touched[region].store(true, Ordering::SeqCst);
        }
        Inside { regions: self, range }
    }

    pub fn is_ready(&self, region: usize) -> bool {
        self.ready[region / 64].load(Ordering::SeqCst) >> (region % 64) & 1 == 1
    }

    /// Whether regions are ready, and stay so for as long as a flush takes at least.
    pub fn are_ready(&self, range: Range<usize>) -> bool {
        // Before it is looked, as a writer does.
        let touch = |region: usize| self.touched[region].store(true, Ordering::SeqCst);
        range.clone().for_each(touch);
        range.into_iter().all(|region| self.is_ready(region))
    }

    /// Counts what is written to a range, of each region in it.
    pub fn count_written(&self, offset: u64, length_bytes: u64) {
        let (region_bytes, end) = (self.region_bytes(), offset + length_bytes);
        for region in self.of(offset, length_bytes) {
            let start = region as u64 * region_bytes;
            let bytes = end.min(start + region_bytes) - offset.max(start);
            self.written[region].fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub fn set_ready(&self, region: usize) {
        let round = self.round.load(Ordering::SeqCst);
        // Only whoever has the book comes here.
        let early = match self.early[region].load(Ordering::SeqCst) {
            COMES_BACK => COMES_BACK,
            early if early == round || early == round_before(round) => COMES_BACK,
            _ => 0,
        };
        self.early[region].store(early, Ordering::SeqCst);
        self.ready[region / 64].fetch_or(1 << (region % 64), Ordering::SeqCst);
    }

    /// The mark of a region came off: early, or because it was quiet for long.
    pub fn note_closed(&self, region: usize, early: bool) {
        let round = if early { self.round.load(Ordering::SeqCst) } else { 0 };
        self.early[region].store(round, Ordering::SeqCst);
        self.written[region].store(0, Ordering::Relaxed);
    }

    /// Marks come off all that was quiet.
    pub fn next_round(&self) {
        let round = self.round.load(Ordering::SeqCst);
        self.round.store(round % (COMES_BACK - 1) + 1, Ordering::SeqCst);
    }

    pub fn clear_ready(&self, region: usize) {
        self.ready[region / 64].fetch_and(!(1 << (region % 64)), Ordering::SeqCst);
    }

    /// Whether somebody is in a region, or was since this was asked last.
    pub fn was_touched(&self, region: usize) -> bool {
        self.touched[region].swap(false, Ordering::SeqCst) || self.is_busy(region)
    }

    /// Whether the mark of a region may come off early, if nobody comes from now on: half of it was
    /// written, as a log does that goes on elsewhere then, and it has not come back.
    pub fn may_close_early(&self, region: usize) -> bool {
        let is_full = self.written[region].load(Ordering::Relaxed) >= self.region_bytes() / 2;
        if !is_full || self.early[region].load(Ordering::SeqCst) == COMES_BACK {
            return false;
        }
        self.touched[region].store(false, Ordering::SeqCst);
        !self.is_busy(region)
    }

    /// Whether somebody is in a region, or was since [`Regions::was_touched`].
    pub fn is_touched(&self, region: usize) -> bool {
        self.touched[region].load(Ordering::SeqCst) || self.is_busy(region)
    }

    /// Whether nobody is in a region but who asks.
    pub fn is_alone(&self, region: usize) -> bool {
        self.busy[region].load(Ordering::SeqCst) == 1
    }

    fn is_busy(&self, region: usize) -> bool {
        self.busy[region].load(Ordering::SeqCst) > 0
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        for region in self.range.clone() {
            self.regions.busy[region].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn round_before(round: u8) -> u8 {
    if round > 1 { round - 1 } else { COMES_BACK - 1 }
}

/// Bits of a map on the members.
pub(super) fn is_set(map: &[u8], region: usize) -> bool {
    map[region / 8] >> (region % 8) & 1 == 1
}

pub(super) fn set(map: &mut [u8], region: usize) {
    map[region / 8] |= 1 << (region % 8);
}

pub(super) fn clear(map: &mut [u8], region: usize) {
    map[region / 8] &= !(1 << (region % 8));
}

/// How many bits are set.
pub(super) fn count(map: &[u8]) -> u32 {
    map.iter().map(|byte| byte.count_ones()).sum()
}
