//! When blocks were written, between two moments, from the map alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use units::{BLOCK_BYTES, Moment, Seq};

use crate::types::{Range, Stamp, WritesPage};
use crate::volume::Volume;
use crate::{Error, ErrorKind, Result};

/// Blocks that a volume can have.
const BLOCKS_MAX: u64 = 1 << 40;

impl Volume {
    /// The writes and trims after `from` up to `to` of blocks in one of `ranges`, ascending, but
    /// for those up to `after`: at most `limit`. Of a strict volume each is told by the end of its
    /// batch. Writes that the granularity has thinned out are not told, others may be though their
    /// moments cannot be opened; reverts and resizes write nothing.
    ///
    /// It looks at all that the map has of the ranges, for each page anew.
    ///
    /// # Errors
    /// Those of resolving; `Invalid` for a limit of 0; `Corrupt` or `Io`.
    pub fn writes_between(
        self: &Arc<Self>,
        from: &Moment,
        to: &Moment,
        ranges: &[Range],
        after: Seq,
        limit: usize,
    ) -> Result<WritesPage> {
        if limit == 0 {
            return Err(Error::new(ErrorKind::Invalid, "a page has a write at least"));
        }
        // They keep both moments.
        let views = (self.view(from)?, self.view(to)?);
        let (after, until) = (after.max(views.0.resolved().seq), views.1.resolved().seq);
        let line = self.record.lock().line.clone();
        let _epoch = self.core.store.enter();
        let mut found = BTreeSet::new();
        let mut is_cut = false;
        for (index, &(begin, timeline)) in line.iter().enumerate() {
            let end = line.get(index + 1).map_or(u64::MAX, |next| next.0 - 1);
            let within = (after.max(Seq(begin.saturating_sub(1))), until.min(Seq(end)));
            if within.0 >= within.1 {
                continue;
            }
            let timeline = self.core.timeline(timeline).ok_or_else(|| {
                let text = format!("timeline {timeline} of {} is not there", self.name());
                Error::new(ErrorKind::Corrupt, text)
            })?;
            for blocks in ranges.iter().map(blocks_of).filter(|blocks| !blocks.is_empty()) {
                timeline.seqs_of(&self.core.store, &blocks, within, &mut |seq| {
                    found.insert(seq);
                    if found.len() > limit {
                        found.pop_last();
                        is_cut = true;
                    }
                })?;
            }
        }
        let mut writes: Vec<Stamp> = Vec::new();
        for seq in found {
            let stamp = self.stamp(self.batch_of(seq)?)?;
            if writes.last().is_none_or(|last| last.seq < stamp.seq) {
                writes.push(stamp);
            }
        }
        let last = writes.last().map(|last| last.seq);
        Ok(WritesPage { next: last.filter(|&last| is_cut && last < until), writes })
    }
}

fn blocks_of(range: &Range) -> std::ops::Range<u64> {
    let end = range.offset.saturating_add(range.length_bytes).div_ceil(BLOCK_BYTES);
    let first = range.offset / BLOCK_BYTES;
    first..if range.length_bytes == 0 { first } else { end.min(BLOCKS_MAX) }
}
