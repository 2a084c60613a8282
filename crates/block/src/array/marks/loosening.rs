//! Making regions loose, and parity agree in them again before their marks go.

use std::ops::Range;
use std::sync::atomic::Ordering;

use format::label::MemberStanding;

use super::Marks;
use crate::array::regions::is_set;
use crate::{Result, Resync};

impl Marks {
    /// Notes that parity need not agree in regions.
    pub fn note_loose(&self, regions: Range<usize>) {
        let Some(loose) = self.parity() else { return };
        regions.for_each(|region| loose.regions[region].store(true, Ordering::SeqCst));
    }

    /// Tells the layers of regions that are about to be used for the first time.
    pub fn loosen(&self, offset: u64, length_bytes: u64) -> Result<()> {
        if self.parity().is_none() {
            return Ok(());
        }
        let range = self.shared.regions.of(offset, length_bytes);
        if range.clone().all(|region| self.shared.regions.is_ready(region)) {
            return Ok(());
        }
        let (unused, region_bytes) = {
            let book = self.shared.book.lock();
            // Stripes that reach into a neighbour nobody uses either are as empty.
            let count = book.regions.count as usize;
            let around = range.start.saturating_sub(1)..(range.end + 1).min(count);
            let is_used = |region: &usize| is_set(&book.regions.used, *region);
            if range.clone().all(|region| is_used(&region)) {
                return Ok(());
            }
            (around.filter(|r| !is_used(r)).collect::<Vec<_>>(), book.label.region_bytes)
        };
        range.for_each(|region| self.note_loose(region..region + 1));
        for run in unused.chunk_by(|a, b| a + 1 == *b) {
            let start = self.bytes_of(run[0], region_bytes).start;
            let end = self.bytes_of(run[run.len() - 1], region_bytes).end;
            self.top.resync(start, end - start, Resync::Unused)?;
        }
        Ok(())
    }

    /// Whether parity agrees in a region. Where something cannot be read it does not.
    fn agrees(&self, region: usize) -> bool {
        let region_bytes = self.shared.book.lock().label.region_bytes;
        let bytes = self.bytes_of(region, region_bytes);
        let found = self.top.disagreements(bytes.start, bytes.end - bytes.start);
        found.is_ok_and(|found| found.is_empty())
    }

    /// Whether anything is computed from other things.
    #[must_use]
    pub fn has_parity(&self) -> bool {
        self.parity().is_some()
    }

    /// Whether what can be had in several ways is computed in all but one of them.
    #[must_use]
    pub fn has_parity_alone(&self) -> bool {
        self.has_parity() && !self.shared.stack().has_mirror()
    }

    /// The bytes of the first used region from a number on, with that number, if there is parity.
    #[must_use]
    pub fn computed_region(&self, from: u64) -> Option<(u64, Range<u64>)> {
        self.parity()?;
        let book = self.shared.book.lock();
        let count = book.regions.count as usize;
        let first = usize::try_from(from).unwrap_or(usize::MAX).min(count);
        let region = (first..count).find(|&region| is_set(&book.regions.used, region))?;
        Some((region as u64, self.bytes_of(region, book.label.region_bytes)))
    }

    /// Computes the parity of regions where it is loose, of so many bytes; which ones agree now.
    /// Where something cannot be read they do not: the mark stays, and it is tried again.
    pub fn tighten(&self, regions: Vec<usize>, bytes_max: u64) -> Vec<usize> {
        let Some(loose) = self.parity() else { return regions };
        let unsettled = self.unsettled.lock().clone();
        let is_whole = {
            let book = self.shared.book.lock();
            !book.has(MemberStanding::Out) && !book.has(MemberStanding::Stale)
        };
        // A range that could not be read or computed may be by now, likely with all members in.
        // Else they stay open for the next opening.
        let stays = |region: &usize| !is_whole || !self.agrees(*region);
        let still: Vec<usize> = unsettled.into_iter().filter(stays).collect();
        self.unsettled.lock().clone_from(&still);
        let regions: Vec<usize> = regions.into_iter().filter(|r| !still.contains(r)).collect();
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
            // Where nobody has anything yet it stays loose: somebody may be about to write there.
            if is_set(&self.shared.book.lock().regions.used, region) {
                // Whoever discards meanwhile sets it again, and is seen to have been here.
                loose.regions[region].store(false, Ordering::SeqCst);
                let bytes = self.bytes_of(region, region_bytes);
                let length = bytes.end - bytes.start;
                if self.top.resync(bytes.start, length, Resync::Loose).is_err() {
                    loose.regions[region].store(true, Ordering::SeqCst);
                    continue;
                }
            }
            tight.push(region);
        }
        tight
    }
}
