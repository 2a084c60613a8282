//! A block of which no copy is right may have the same bytes in another version, or in a clone.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use format::checksum::block_crc;
use format::location::Location;
use format::map::Entry;
use units::BLOCK_BYTES;

use crate::Store;
use crate::io_tally::IoKind;
use crate::segment::{Content, NO_LOG};
use crate::store::SecondSource;

impl Store {
    /// Names who knows of other versions of a block. Once.
    pub fn set_second_source(&self, source: SecondSource) {
        assert!(self.second_source.set(source).is_ok(), "there is one pool over a store");
    }

    /// Looks for the bytes of a block, of which no copy is right, in its other versions; where it
    /// lies for ever, at `place`, they are written again. True if `block` has them afterwards.
    ///
    /// DARC offers to roll the volume back then (SYSTOR'10, 2.6); here other moments and clones are
    /// at hand. A version's bytes are right if the checksum is, as for every read.
    pub fn recover_elsewhere(
        &self,
        number: u64,
        wrong: Location,
        (crc, place, was_counted): (u32, Option<u64>, bool),
        block: &mut [u8],
    ) -> bool {
        let Some(source) = self.second_source.get() else { return false };
        if !self.find_elsewhere(source((number, crc)), (number, crc), wrong, block) {
            return false;
        }
        // Nobody is told of a failure to write: the bytes are right, and will be looked for again.
        if let Some(at) = place {
            let _ = self.device.write_durable(at, &[IoSlice::new(block)]);
        }
        // It was counted as lost before it was looked for.
        self.count_elsewhere(self.place_of(wrong, place), u64::from(was_counted));
        true
    }

    /// The same for a scrub, which asked the map for the other versions and keeps everything where
    /// it is meanwhile: true only if the block was written again, and every copy of it is right.
    pub fn repair_elsewhere(
        &self,
        versions: Vec<Entry>,
        like: (u64, u32),
        wrong: Location,
        at: u64,
    ) -> bool {
        let mut block = vec![0; BLOCK_BYTES as usize];
        self.checksum_errors.fetch_add(1, Ordering::Relaxed);
        if !self.find_elsewhere(versions, like, wrong, &mut block) {
            return false;
        }
        let right = |bytes: &[u8]| block_crc(bytes) == like.1;
        let is_written = self.device.write_durable(at, &[IoSlice::new(&block)]).is_ok()
            && self.agree(at, &mut block, &right);
        if is_written {
            self.count_elsewhere(at, 0);
        }
        is_written
    }

    /// Whether other versions have the bytes of one in a pack that cannot be read: a scrub cannot
    /// write it again, since those beside it are computed from it, but readers are given it.
    pub fn is_elsewhere(&self, versions: Vec<Entry>, like: (u64, u32), wrong: Location) -> bool {
        let mut block = vec![0; BLOCK_BYTES as usize];
        let is_found = self.find_elsewhere(versions, like, wrong, &mut block);
        if is_found {
            self.count_elsewhere(self.place_of(wrong, None), 1);
        }
        is_found
    }

    /// Where what is wrong is on the device, or where its place is for ever; 0 if it is nowhere.
    fn place_of(&self, wrong: Location, place: Option<u64>) -> u64 {
        place.unwrap_or_else(|| self.locate(wrong).map_or(0, |(at, _)| at))
    }

    /// Fills `block` from the first of some versions that has the bytes of a checksum.
    fn find_elsewhere(
        &self,
        versions: Vec<Entry>,
        (number, crc): (u64, u32),
        wrong: Location,
        block: &mut [u8],
    ) -> bool {
        versions
            .into_iter()
            .filter(|version| version.location != wrong)
            .any(|version| self.read_version(number, &version, block) && block_crc(block) == crc)
    }

    fn read_version(&self, number: u64, version: &Entry, block: &mut [u8]) -> bool {
        let Ok((at, content)) = self.locate(version.location) else { return false };
        let io = self.io(NO_LOG);
        if content == Content::Pack {
            let name = (number, version.seq);
            let how = (&*io, IoKind::HistoryRead);
            return self.read_packed(version.location, name, block, how).is_ok();
        }
        let right = |bytes: &[u8]| block_crc(bytes) == version.crc;
        let is_read = self.device.read_at(at, block).is_ok();
        (is_read && right(block)) || self.heal_if_known(at, block, &right)
    }
}
