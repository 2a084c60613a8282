//! Another size for a volume, and what is beyond the end of one that was larger once.
//!
//! Invariants
//! 1. A volume is made smaller by a commit alone, so that one which fails took nothing.
//! 2. Data beyond the end is seen by nobody: not in the present, nor in a moment of that size.
//!    Zeros are written there before the volume is made larger.
//! 3. Until what a shrink left there is cut off, by zeros that let it become history, the record
//!    says so (`uncut`). That it stands there costs room, and nothing else.

use std::sync::Arc;

use history::Gate;
use units::BLOCK_BYTES;

use crate::catalogue::{EventRecord, VolumeRecord};
use crate::read::snapshot::Opening;
use crate::types::{VolumeChange, WriteOp};
use crate::volume::Volume;
use crate::write::pace::Pace;
use crate::write::{Merged, Terms};
use crate::{Error, Result};

impl VolumeRecord {
    /// Whether there may be data beyond the end, which is at so many bytes. Of where a clone came
    /// from nothing is known.
    pub(crate) fn may_have_beyond(&self, size_bytes: u64) -> bool {
        self.cloned_from.is_some() || self.sizes.iter().any(|&(_, size)| size > size_bytes)
    }
}

impl Volume {
    /// Changes the size. Bytes that are cut off read as zeros should the volume grow again; views
    /// of earlier moments keep the size and content of then.
    ///
    /// # Errors
    /// `Invalid` size; `Full`, `Refused` or `Io`.
    pub fn resize(&self, size_bytes: u64) -> Result<()> {
        self.change(&VolumeChange { size_bytes: Some(size_bytes), ..VolumeChange::default() })
    }

    /// Changes the size, and settings in the same commit. The moment before a shrink is retained,
    /// whatever the granularity: it has the bytes that are cut off.
    pub(crate) fn resize_and(&self, size_bytes: u64, change: &VolumeChange) -> Result<()> {
        let before = self.present().size_bytes;
        if size_bytes < before && !change.never_smaller {
            self.retain_present()?;
        }
        self.resize_to(size_bytes, change)?;
        if size_bytes < before {
            // It has its size. The rest beyond is cut off at the next opening if not now.
            let _ = self.cut_off();
        }
        Ok(())
    }

    fn resize_to(&self, size_bytes: u64, change: &VolumeChange) -> Result<()> {
        let _right = self.sizing().right.lock();
        loop {
            let live = self.present();
            if change.never_smaller && size_bytes < live.size_bytes {
                let text = format!("volume \"{}\" was made larger meanwhile", self.name);
                return Err(Error::busy(text).with_hint("ask for the size again"));
            }
            match size_bytes == live.size_bytes {
                true if change.is_of_size_only() => return Ok(()),
                true => return self.change_settings(change),
                false => {}
            }
            // Before anything is cut off: what is refused leaves everything as it is.
            let mut record = self.record.lock().clone();
            self.settle_settings(&mut record, change, self.log().stable())?;
            let grows = size_bytes > live.size_bytes;
            let _cut = self.sizing().cut_at(size_bytes);
            if grows
                && record.may_have_beyond(live.size_bytes)
                && !self.write_zeros_beyond(&live, size_bytes)?
            {
                continue;
            }
            let hold = self.hold_writes()?;
            self.core.store.flush()?;
            // A revert may have come between, with another size and other content: then again.
            let to = (size_bytes, change);
            let resized = self.log().with_gate(|gate| self.resize_in_gate(gate, &live, to))?;
            if let Some(shares) = resized {
                drop(hold);
                if shares {
                    self.core.host().iter().for_each(|host| host.share_memory());
                }
                return Ok(());
            }
        }
    }

    /// `None` when another present has come; else whether memory is to be shared out anew.
    fn resize_in_gate(
        &self,
        gate: &mut Gate<'_>,
        live: &Arc<Opening>,
        (size_bytes, change): (u64, &VolumeChange),
    ) -> Result<Option<bool>> {
        if !Arc::ptr_eq(live, &self.present()) {
            return Ok(None);
        }
        let old = live.size_bytes;
        let (seq, time) = gate.peek_event();
        let mut tx = self.begin()?;
        let before = self.record.lock().clone();
        let record = tx.change(&self.record);
        record.assert_before(seq);
        let graced = self.settle_settings(record, change, seq)?;
        record.sizes.push((seq.0, size_bytes));
        record.uncut = record.uncut.max(old);
        if record.uncut <= size_bytes {
            record.uncut = 0;
        }
        record.events.push(EventRecord {
            seq: seq.0,
            time_ns: time.as_nanos(),
            kind: "resize".to_owned(),
            detail: format!("from {old} to {size_bytes} bytes"),
        });
        tx.audit("resize", &self.name, format!("from {old} to {size_bytes} bytes; seq {seq}"))?;
        if !change.is_of_size_only() {
            tx.audit("volume-set", &self.name, change.to_string())?;
        }
        if let Some((action, detail)) = graced {
            tx.audit(action, &self.name, detail)?;
        }
        let _books = tx.commit()?;
        gate.take_event(seq, time);
        let (timeline, current) = (Arc::clone(&live.timeline), live.current.clone());
        self.cache().forget_while(|| self.set_present(timeline, size_bytes, current));
        Ok(Some(self.settings_changed(&before)))
    }

    /// Writes zeros from the end of the present to a place beyond it, into the log; false if
    /// another one has become the present. The caller has the right to change the size.
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
            let merged = Some(Merged { live, switches: self.cache().switches() });
            let terms = Terms { merged, cuts: true, frees: true, ..Terms::new(end, &pace) };
            self.write_either(&[op], terms)
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
        let Some(_right) = self.sizing().right.try_lock() else { return Ok(()) };
        let live = self.present();
        let uncut = self.record.lock().uncut;
        if uncut == 0 || !self.write_zeros_beyond(&live, uncut)? {
            return Ok(());
        }
        // A waiting write in a cache may be lost, and then nobody would know of it.
        self.destage_all()?;
        // The commit makes durable what was written before it.
        let mut tx = self.begin()?;
        let record = tx.change(&self.record);
        if record.uncut != uncut {
            return Ok(());
        }
        record.uncut = 0;
        tx.commit().map(drop)
    }
}
