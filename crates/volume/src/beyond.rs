//! The bytes beyond the end of a volume that was larger once.
//!
//! Invariants
//! 1. A volume is made smaller by a commit alone, so that one which fails took nothing.
//! 2. Nobody sees the bytes of a volume beyond its end: not the present, not a moment of that size.
//!    Zeros are written there before it is made larger.
//! 3. Until what a shrink left there is cut off, by zeros that let it become history, the record
//!    says so (`uncut`). That it stands there costs room, and nothing else.

use std::sync::Arc;

use units::BLOCK_BYTES;

use crate::Result;
use crate::catalogue::VolumeRecord;
use crate::opening::Opening;
use crate::pace::Pace;
use crate::types::WriteOp;
use crate::volume::Volume;
use crate::write::{Merged, Terms};

impl VolumeRecord {
    /// Whether there may be data beyond the end, which is at so many bytes. Of where a clone came
    /// from nothing is known.
    pub(crate) fn may_have_beyond(&self, size_bytes: u64) -> bool {
        self.cloned_from.is_some() || self.sizes.iter().any(|&(_, size)| size > size_bytes)
    }
}

impl Volume {
    /// Writes zeros from the end of the present to a place beyond it, into the log; false if
    /// another one has become the present. The caller holds `resizing`.
    ///
    /// # Errors
    /// `Full`; `Refused` or `Io` after a device failure.
    pub(crate) fn write_zeros_beyond(&self, live: &Arc<Opening>, end: u64) -> Result<bool> {
        let pace = Pace::patient();
        let from = live.size_bytes;
        let end = end.next_multiple_of(BLOCK_BYTES);
        let whole = from.next_multiple_of(BLOCK_BYTES);
        if from < whole {
            let op = WriteOp::Zero { offset: from, length_bytes: whole - from };
            if self.write_merged(&op, live, true, &pace)?.is_none() {
                return Ok(false);
            }
        }
        let op = WriteOp::Zero { offset: whole, length_bytes: end.saturating_sub(whole) };
        let write = || {
            let merged = Some(Merged { live, switches: self.cache.switches() });
            let (cuts, frees, behind, pace) = (true, true, false, &pace);
            self.write_either(&[op], Terms { end, merged, cuts, frees, behind, pace })
        };
        while whole < end && write()?.is_none() {
            if !Arc::ptr_eq(live, &self.present()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Cuts off what a shrink left beyond the end; when somebody resizes the volume, or it cannot
    /// be written, another time will do.
    ///
    /// # Errors
    /// `Full`; `Refused` or `Io` after a device failure.
    pub(crate) fn cut_off(&self) -> Result<()> {
        let Some(_resizing) = self.resizing.try_lock() else { return Ok(()) };
        let live = self.present();
        let uncut = self.record.lock().uncut;
        if uncut == 0 || !self.write_zeros_beyond(&live, uncut)? {
            return Ok(());
        }
        // Waiting writes may be lost, and then nobody would know of it.
        self.destage_all()?;
        // The commit makes durable what was written before it.
        let (numbers, commit) = self.begin()?;
        let mut record = self.record.lock().clone();
        if record.uncut == uncut {
            record.uncut = 0;
            commit.put_volume(&record)?;
            self.core.finish(&numbers, commit)?;
            self.record.set(record, &numbers);
        }
        Ok(())
    }
}
