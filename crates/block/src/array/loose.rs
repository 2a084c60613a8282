//! Regions in which parity need not agree, because nobody has anything there yet.
//!
//! A region that is used for the first time has what was on the devices before; a discard leaves
//! anything. Parity that follows from what changes would never come to agree there. So the layer is
//! told ([`Resync::Unused`]), and before the region's mark is taken off its parity is computed.
//! After a crash the region is open, and that is done when it is settled.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Array;
use super::regions::is_set;
use crate::{BlockDevice, Result, Resync};

/// Which regions are loose.
pub(super) struct Loose {
    regions: Vec<AtomicBool>,
    /// Whether the last tidying left some for the next.
    is_behind: AtomicBool,
}

impl Loose {
    pub fn new(count: usize) -> Loose {
        let regions = (0..count).map(|_| AtomicBool::new(false)).collect();
        Loose { regions, is_behind: AtomicBool::new(false) }
    }

    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::SeqCst)
    }
}

impl Array {
    fn bytes_of(&self, region: usize, region_bytes: u64) -> Range<u64> {
        let start = region as u64 * region_bytes;
        start..(start + region_bytes).min(self.len_bytes())
    }

    /// Notes that parity need not agree in regions.
    pub(super) fn note_loose(&self, regions: Range<usize>) {
        let Some(loose) = &self.parity else { return };
        regions.for_each(|region| loose.regions[region].store(true, Ordering::SeqCst));
    }

    /// Tells the layers of regions that are about to be used for the first time.
    pub(super) fn loosen(&self, offset: u64, length_bytes: u64) -> Result<()> {
        if self.parity.is_none() {
            return Ok(());
        }
        let range = self.shared.regions.of(offset, length_bytes);
        if range.clone().all(|region| self.shared.regions.is_ready(region)) {
            return Ok(());
        }
        let (unused, region_bytes) = {
            let book = self.shared.book.lock();
            let unused = range.filter(|&region| !is_set(&book.regions.used, region));
            (unused.collect::<Vec<_>>(), book.label.region_bytes)
        };
        for region in unused {
            self.note_loose(region..region + 1);
            let bytes = self.bytes_of(region, region_bytes);
            self.top.resync(bytes.start, bytes.end - bytes.start, Resync::Unused)?;
        }
        Ok(())
    }

    /// Computes the parity of regions where it is loose, of so many bytes; which ones agree now.
    /// Where something cannot be read they do not: the mark stays, and it is tried again.
    pub(super) fn tighten(&self, regions: Vec<usize>, bytes_max: u64) -> Vec<usize> {
        let Some(loose) = &self.parity else { return regions };
        let region_bytes = self.shared.book.lock().label.region_bytes;
        loose.is_behind.store(false, Ordering::SeqCst);
        let (mut tight, mut done) = (Vec::new(), 0);
        for region in regions {
            if !loose.regions[region].load(Ordering::SeqCst) {
                tight.push(region);
                continue;
            }
            if done >= bytes_max {
                loose.is_behind.store(true, Ordering::SeqCst);
                continue;
            }
            done += region_bytes;
            // Whoever discards meanwhile sets it again, and is seen to have been here.
            loose.regions[region].store(false, Ordering::SeqCst);
            let is_used = is_set(&self.shared.book.lock().regions.used, region);
            let bytes = self.bytes_of(region, region_bytes);
            if is_used {
                let length = bytes.end - bytes.start;
                if self.top.resync(bytes.start, length, Resync::All).is_err() {
                    loose.regions[region].store(true, Ordering::SeqCst);
                    continue;
                }
            }
            tight.push(region);
        }
        tight
    }
}
