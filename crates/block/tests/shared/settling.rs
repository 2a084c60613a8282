//! Settling what was in flight at a crash, for those who keep no checksums above an array.

use hindsight_block::{Array, BlockDevice, DeviceError, Resync};

/// An array is told that what was in flight was looked at.
#[allow(dead_code)] // Not every test program settles in both ways.
pub trait Settling {
    /// Without a look: parity is computed of what is there.
    fn settle_as_it_is(&self);
    /// Makes it agree without knowing which copy is right: the first counts.
    fn settle_by_the_first(&self) -> Result<(), DeviceError>;
}

impl Settling for Array {
    fn settle_as_it_is(&self) {
        let mut unread = Vec::new();
        for range in self.unsettled() {
            let found = self.disagreements(range.start, range.end - range.start);
            let computed = found
                .and_then(|found| found.iter().try_for_each(|apart| self.compute_again(apart)));
            if computed.is_err() {
                unread.push(range);
            }
        }
        self.end_settling(&unread);
    }

    fn settle_by_the_first(&self) -> Result<(), DeviceError> {
        for range in self.unsettled() {
            self.resync(range.start, range.end - range.start, Resync::All)?;
        }
        self.end_settling(&[]);
        Ok(())
    }
}
