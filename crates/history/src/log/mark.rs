//! The mark of a flush: a batch without operations, which says up to where all was flushed.
//!
//! The batches that a flush covers cannot say so, since they were written before. Until another
//! batch followed, nothing durable would name them, and a header that rots would look like one that
//! never came. A mark is written when the sync is done, and not synced itself: a power cut may take
//! it, and then nothing is claimed; a kill takes nothing.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use format::batch::{BatchEncoder, BatchHeader};

use super::append::{Log, LogState, MARK_BYTES};
use crate::io_tally::IoKind;

impl Log {
    /// The device was flushed after all up to `stable` had ended. Says so behind it, if that is
    /// news. The flush is done, whatever comes of that; a write that fails ends all writes.
    pub(super) fn note_flushed(&self, stable: u64) {
        // The segment may be sealed and cleaned while the mark is on its way: its zone stays.
        let _epoch = self.store.enter();
        let Some((zone, header)) = self.take_flush(stable) else { return };
        let mut bytes = Vec::with_capacity(MARK_BYTES as usize);
        BatchEncoder::new(&mut bytes).finish(&header);
        assert_eq!(bytes.len(), MARK_BYTES as usize, "the size of a mark was foreseen");
        let at = self.store.zone_offset(zone) + u64::from(header.offset);
        if self.store.write(at, &[IoSlice::new(&bytes)]).is_ok() {
            self.io.count(IoKind::Other, u64::from(MARK_BYTES));
        }
    }

    fn take_flush(&self, stable: u64) -> Option<(u32, BatchHeader)> {
        let state = &mut *self.state.lock();
        assert!(stable <= state.stable, "only what has ended is flushed");
        let is_news = stable > state.durable;
        state.durable = state.durable.max(stable);
        state.flushes_total += 1;
        // A flush point in the history; recovered after a crash from the count of the mark, or of
        // the next batch.
        if let Some(last) = state.times.last_mut() {
            last.flushes_total = state.flushes_total;
        }
        if is_news { state.reserve_mark(self.store.zone_bytes) } else { None }
    }
}

impl LogState {
    /// The zone of a mark and its header; none where it does not fit.
    fn reserve_mark(&mut self, zone_bytes: u64) -> Option<(u32, BatchHeader)> {
        let segment = self.open.as_ref()?;
        // Batches leave room for one. It is for the flush that covers the last of them: one before
        // that, which came late, is named by that flush as well.
        let kept = if self.durable >= self.last_seq { 0 } else { MARK_BYTES };
        if u64::from(self.tail + MARK_BYTES + kept) > zone_bytes {
            return None;
        }
        let header = self.next_header(segment, 0);
        self.tail += MARK_BYTES;
        segment.end.store(self.tail, Ordering::Release);
        segment.settle();
        Some((segment.zone, header))
    }
}
