//! How much space a volume takes, and for what.

use std::sync::Arc;

use units::Seq;

use crate::Result;
use crate::catalogue::VolumeRecord;
use crate::opening::Opening;
use crate::volume::Volume;

/// Bytes of one volume by what they are kept for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The present.
    pub live_bytes: u64,
    /// Only the past.
    pub history_bytes: u64,
    /// Of the past: stays whatever leaves the window.
    pub pinned_bytes: u64,
}

/// Map entries that may be walked to count; beyond, the last count or an upper bound is told.
const COUNTED_ENTRIES_MAX: u64 = 200_000;

impl Volume {
    /// Tells what the volume's space is for. Live bytes are exact as long as the map is small
    /// (200,000 entries); beyond, they are as last counted, or an upper bound. A clone's live bytes
    /// include what it shares with its origin, its history only its own log.
    pub(crate) fn space(&self, record: &VolumeRecord) -> Result<Space> {
        let live_bytes = self.live_bytes()?;
        let history_bytes = self.history_of(live_bytes, record.cloned_from.is_some());
        let pinned_bytes = self.pinned_bytes(history_bytes)?;
        Ok(Space { live_bytes, history_bytes, pinned_bytes })
    }

    /// Bytes kept only for the past.
    pub(crate) fn history_bytes(&self) -> Result<u64> {
        let is_clone = self.record.lock().cloned_from.is_some();
        Ok(self.history_of(self.live_bytes()?, is_clone))
    }

    fn history_of(&self, live_bytes: u64, is_clone: bool) -> u64 {
        let logged_bytes = self.logged_bytes();
        // What a clone shares lies in its origin's log: it cannot be taken from its own.
        let own_live = if is_clone { live_bytes.min(logged_bytes) } else { live_bytes };
        logged_bytes.saturating_sub(own_live)
    }

    pub(crate) fn live_bytes(&self) -> Result<u64> {
        let seq = self.log.stable();
        let last = *self.counted.lock();
        if let Some((at, bytes)) = last
            && at == seq
        {
            return Ok(bytes);
        }
        let present = self.present();
        if entries_of(&present) > COUNTED_ENTRIES_MAX {
            let bound = self.logged_bytes().min(present.size_bytes);
            return Ok(last.map_or(bound, |(_, bytes)| bytes));
        }
        let bytes = present.stored_bytes()?;
        *self.counted.lock() = Some((seq, bytes));
        Ok(bytes)
    }

    /// Bytes of blocks in this volume's log that the map points to.
    pub(crate) fn logged_bytes(&self) -> u64 {
        self.core.store.space(self.id).count().live_bytes
    }

    /// Bytes of the runs of map entries of this volume's writes.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        let runs = self.own_timelines().into_iter().flat_map(|timeline| timeline.runs());
        runs.map(|run| u64::from(run.summary.pages) * format::PAGE_BYTES as u64).sum()
    }

    /// What pins keep: the bytes by which pinned moments differ from one another and from the
    /// present, at most all history, which is also what is told when counting would take long.
    fn pinned_bytes(&self, history_bytes: u64) -> Result<u64> {
        let count = self.pins.lock().seq_count() as u64;
        if entries_of(&self.present()).max(1).saturating_mul(count) > COUNTED_ENTRIES_MAX {
            return Ok(history_bytes);
        }
        let seqs: Vec<Seq> = self.pins.lock().seqs().collect();
        let latest = self.log.stable();
        let mut bytes = 0u64;
        for pair in seqs.windows(2).map(|w| (w[0], w[1])).chain(seqs.last().map(|&s| (s, latest))) {
            bytes = bytes.saturating_add(self.changed_bytes_bounded(pair.0, pair.1)?.0);
            if bytes >= history_bytes {
                return Ok(history_bytes);
            }
        }
        Ok(bytes)
    }
}

/// Map entries that an opening may have to look at.
fn entries_of(opening: &Opening) -> u64 {
    let mut entries = 0;
    let mut timeline = Some(Arc::clone(&opening.timeline));
    while let Some(line) = timeline {
        entries += line.entries_after(Seq::ZERO);
        timeline = line.parent.as_ref().map(|p| Arc::clone(&p.timeline));
    }
    entries
}
