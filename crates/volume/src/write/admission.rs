//! Writes that go as far as they get without waiting for room, for those that serve others too:
//! what is left they write once they have waited, with no lock and no thread held meanwhile.
//!
//! Invariant: what a write has done is a prefix of its bytes, in the order of its ops. It is not
//! written again, so a write that is made in parts gets to its end.

use std::sync::atomic::Ordering;

use crate::host::RoomWait;
use crate::types::{Wait, WriteOp};
use crate::write::Writer;
use crate::write::ops::{span, without};
use crate::write::pace::{Lack, Pace, Written};
use crate::{Error, Result};

impl Writer {
    /// Writes ops but for their first `done` bytes, as [`Writer::write_batch`] does, as far as it
    /// gets without waiting for room or for the map; unless it `may_wait`, also without waiting for
    /// others' turns or for a commit. [`Writer::wait_for`] waits for the lack.
    ///
    /// # Errors
    /// Those of [`Writer::write_batch`]; `Full` only where the reserve is full as well.
    pub fn write_some(&self, ops: &[WriteOp<'_>], done: u64, may_wait: bool) -> Result<Written> {
        self.check_served()?;
        let all = self.check_ranges(ops)?;
        let pace = Pace::new(if may_wait { Wait::Device } else { Wait::Never });
        let written = match done {
            0 => self.write_ops(ops, &pace).map(drop),
            _ => self.write_rest(ops, done, &pace),
        };
        if let Err(error) = written {
            let (bytes, lacks) = pace.stopped().ok_or(error)?;
            return Ok(Written::Part { bytes: done + bytes, lacks });
        }
        // Once: should there be no room for the map either, the next write has to see to it.
        if done < all && self.is_ahead_of_map() {
            return Ok(Written::Part { bytes: all, lacks: Lack::Map });
        }
        self.count_written(ops, all);
        Ok(Written::All)
    }

    fn write_rest(&self, ops: &[WriteOp<'_>], mut skip: u64, pace: &Pace) -> Result<()> {
        for (index, op) in ops.iter().enumerate() {
            let length = span(op).1;
            if skip < length {
                self.write_ops(&[without(op, skip)], pace)?;
                return self.write_ops(&ops[index + 1..], pace).map(drop);
            }
            skip -= length;
        }
        Ok(())
    }

    /// Waits for what a write lacks, as long as `goes_on`, and does the work itself if nobody does.
    /// `wait` is new for each write, and again whenever it has got further.
    ///
    /// # Errors
    /// `Full` when there is no room to be had, or `goes_on` says no; `NotFound` and `Refused` when
    /// the volume or the pool is gone; those of making room.
    pub fn wait_for(
        &self,
        lack: Lack,
        wait: &mut RoomWait,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let goes_on = || goes_on() && self.check_open().is_ok();
        match lack {
            Lack::Turn => return Ok(()),
            Lack::Map => self.hold_back(&goes_on)?,
            Lack::Room => {
                let has_room = self.core.host().and_then(|host| host.wait_for_room(wait, &goes_on));
                self.check_open()?;
                if !has_room? {
                    return Err(Error::full("there is no room for the write")
                        .with_hint("delete versions, marks or volumes, or add space"));
                }
                self.cache().short.store(false, Ordering::Release);
            }
        }
        self.check_open()
    }
}
