//! How much space a volume takes, and for what.

use std::sync::atomic::Ordering;

use units::{BLOCK_BYTES, Seq};

use crate::Result;
use crate::catalogue::VolumeRecord;
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

impl Volume {
    /// Counts. Live bytes are counted again when something was written since; a clone's live bytes
    /// include what it shares with its origin, its history only its own log.
    pub(crate) fn space(&self, record: &VolumeRecord) -> Result<Space> {
        let seq = self.log.stable();
        let mut counted = self.counted.lock();
        let live_bytes = match *counted {
            Some((at, bytes)) if at == seq => bytes,
            _ => {
                let bytes = self.present().stored_bytes()?;
                *counted = Some((seq, bytes));
                bytes
            }
        };
        drop(counted);
        let logged_bytes = self.logged_bytes();
        let shared = record.cloned_from.is_some();
        // What a clone shares lies in its origin's log: it cannot be taken from its own.
        let own_live = if shared { live_bytes.min(logged_bytes) } else { live_bytes };
        let history_bytes = logged_bytes.saturating_sub(own_live);
        let pinned_bytes = self.pinned_bytes(record, history_bytes)?;
        Ok(Space { live_bytes, history_bytes, pinned_bytes })
    }

    /// Bytes of blocks in this volume's log that the map points to.
    pub(crate) fn logged_bytes(&self) -> u64 {
        let segments = self.core.store.segments();
        let own = segments.iter().filter(|s| s.log == self.id);
        let entries: i64 = own.map(|s| s.live_entries.load(Ordering::Acquire)).sum();
        u64::try_from(entries).unwrap_or(0) * BLOCK_BYTES
    }

    /// What pins keep: the bytes by which pinned moments differ from one another and from the present,
    /// at most all history. An estimate from versions' own counts, never a scan.
    fn pinned_bytes(&self, _record: &VolumeRecord, history_bytes: u64) -> Result<u64> {
        let pins = self.pins.lock();
        let mut seqs: Vec<Seq> = pins.seqs().collect();
        drop(pins);
        seqs.sort_unstable();
        seqs.dedup();
        let mut bytes = 0u64;
        let latest = self.log.stable();
        for pair in seqs.windows(2).map(|w| (w[0], w[1])).chain(seqs.last().map(|&s| (s, latest))) {
            bytes = bytes.saturating_add(self.changed_bytes_bounded(pair.0, pair.1)?.0);
            if bytes >= history_bytes {
                return Ok(history_bytes);
            }
        }
        Ok(bytes)
    }
}
