//! Another device that is to take the place of a member that works: it gets all that the member
//! has, and what is written meanwhile, and until it has everything the member counts as before.
//!
//! Its bytes are the member's, whatever layers keep there. In the labels it is a spare; that it is
//! to take a place is known in memory only, so after a crash it is a spare like any other.
//!
//! Invariants
//! 1. Of a range that was copied both have the same bytes, as far as requests to it were answered.
//! 2. While labels are written that name it, both are asked, and one that fails is the member's
//!    failure: whichever of them the labels name after a crash has everything.

use std::io::IoSlice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use env::{Rank, RankedMutex, RankedRwLock};
use format::label::AREA_BYTES;

use super::candidate::Spare;
use crate::layers::Gates;
use crate::slices::is_zero;
use crate::{BlockDevice, DeviceError, Result};

/// Bytes for which those who write wait at most.
const COPY_BYTES: usize = 256 << 10;

/// A device that gets what a member has.
pub(super) struct Successor {
    pub spare: Spare,
    pub gates: Gates,
    progress: RankedMutex<Progress>,
    /// Why it is not to take the place any more, and whether it failed.
    over: OnceLock<(String, bool)>,
    /// Whether labels are being written that name it; whoever has that done holds the lock.
    is_turning: AtomicBool,
    pub turning: RankedRwLock<()>,
    /// Whether what is written to the member's area is written to its own.
    is_named: AtomicBool,
}

/// What became of a request to both.
pub(super) enum Answer {
    Done(Result<()>),
    /// The successor failed while labels were written that name it.
    Unsure(DeviceError),
}

/// How far the copying is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    copied: u64,
    /// How often it began.
    round: u64,
}

/// A part of what is to be copied, of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub start: u64,
    pub length_bytes: u64,
    round: u64,
}

/// Which of the two could not be copied from, or to.
pub(super) enum Fault {
    Member(DeviceError),
    Successor(DeviceError),
}

/// Bytes copied that are no holes.
type Copied = std::result::Result<u64, Fault>;

impl Successor {
    pub fn new(spare: Spare) -> Successor {
        let (gates, progress) = (Gates::of_copying(), RankedMutex::default());
        let (over, turning) = (OnceLock::new(), RankedRwLock::new(Rank::Turning, ()));
        let [is_turning, is_named] = [false; 2].map(AtomicBool::new);
        Successor { spare, gates, progress, over, is_turning, turning, is_named }
    }

    pub fn device(&self) -> &dyn BlockDevice {
        &**self.spare.device.as_ref().expect("one that is to take a place is there")
    }

    /// Says that it takes no place; whoever said so first is right.
    pub fn end(&self, why: String, has_failed: bool) {
        let _ = self.over.set((why, has_failed));
    }

    pub fn over(&self) -> Option<&(String, bool)> {
        self.over.get()
    }

    /// Labels are about to name it.
    pub fn begin_turning(&self) {
        self.is_turning.store(true, Ordering::SeqCst);
        self.set_named(true);
    }

    pub fn is_turning(&self) -> bool {
        self.is_turning.load(Ordering::SeqCst)
    }

    pub fn set_named(&self, is_named: bool) {
        self.is_named.store(is_named, Ordering::SeqCst);
    }

    pub fn is_named(&self) -> bool {
        self.is_named.load(Ordering::SeqCst)
    }

    /// Does what the member was asked, if that did it.
    pub fn follow(
        &self,
        of_member: Result<()>,
        request: impl FnOnce(&dyn BlockDevice) -> Result<()>,
    ) -> Answer {
        if self.over.get().is_some() {
            return Answer::Done(of_member);
        }
        if of_member.is_err() {
            self.begin_again();
            return Answer::Done(of_member);
        }
        match request(self.device()) {
            Err(error) if self.is_turning() => return Answer::Unsure(error),
            Err(error) => self.end(error.to_string(), true),
            Ok(()) => {}
        }
        Answer::Done(Ok(()))
    }

    /// What a request comes to on which it failed while labels were written that name it: when they
    /// are written it has the place or not. The caller is through with the member.
    pub fn judge(&self, failure: DeviceError) -> Result<()> {
        let _written = self.turning.read();
        if self.over.get().is_some() { Ok(()) } else { Err(failure) }
    }

    /// Nobody knows what the member has somewhere: all is copied once more.
    pub fn begin_again(&self) {
        let mut progress = self.progress.lock();
        *progress = Progress { copied: 0, round: progress.round + 1 };
    }

    /// Bytes that are still to be copied of so many.
    pub fn left(&self, data_bytes: u64) -> u64 {
        data_bytes - self.progress.lock().copied
    }

    /// The next parts of so many bytes that are to be copied.
    pub fn next(&self, parts_max: usize, bytes_max: u64, data_bytes: u64) -> Vec<Part> {
        let Progress { copied, round } = *self.progress.lock();
        let starts = (copied..data_bytes).step_by(bytes_max as usize).take(parts_max);
        let part = |start| {
            let length_bytes = bytes_max.min(data_bytes - start);
            Part { start, length_bytes, round }
        };
        starts.map(part).collect()
    }

    /// Notes that parts that were the next are copied, unless all began again meanwhile.
    pub fn came(&self, parts: &[Part]) {
        let mut progress = self.progress.lock();
        if let Some(last) = parts.last().filter(|last| last.round == progress.round) {
            progress.copied = last.start + last.length_bytes;
        }
    }

    /// Copies a part of what a member has on its device.
    pub fn copy(&self, from: &dyn BlockDevice, part: Part) -> Copied {
        let (mut at, end) = (AREA_BYTES + part.start, AREA_BYTES + part.start + part.length_bytes);
        let mut copied = 0;
        while at < end {
            let count = (end - at).min(COPY_BYTES as u64);
            let _alone = self.gates.take(at, count);
            copied += self.copy_held(from, at, count)?;
            at += count;
        }
        Ok(copied)
    }

    /// Copies a range of the device that nobody else writes to meanwhile.
    pub fn copy_held(&self, from: &dyn BlockDevice, start: u64, length_bytes: u64) -> Copied {
        let mut buffer = vec![0; COPY_BYTES.min(length_bytes as usize)];
        let (mut there, mut copied) = (Vec::new(), 0);
        let to = self.device();
        for at in (start..start + length_bytes).step_by(COPY_BYTES) {
            let count = (start + length_bytes - at).min(COPY_BYTES as u64);
            let bytes = &mut buffer[..count as usize];
            if from.is_hole(at, count) {
                bytes.fill(0);
            } else {
                from.read_at(at, bytes).map_err(Fault::Member)?;
                copied += count;
            }
            // A hole may stay one.
            let is_there = is_zero(bytes) && {
                there.resize(bytes.len(), 0);
                to.is_hole(at, count) || to.read_at(at, &mut there).is_ok() && is_zero(&there)
            };
            if !is_there {
                to.write_at(at, &[IoSlice::new(bytes)]).map_err(Fault::Successor)?;
            }
        }
        Ok(copied)
    }
}
