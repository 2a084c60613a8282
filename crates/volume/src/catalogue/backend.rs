//! Where the catalogue's bytes are: zones of the pool, listed in the superblock.
//!
//! Invariants
//! 1. Byte `n` of the catalogue lies in the `n / zone_bytes`-th zone of the superblock's list.
//! 2. A longer catalogue is announced by a durable superblock before anything is written there, and
//!    what is new reads as zeros, as the library below demands.
//! 3. The catalogue never gives a zone back: it is small, and grows again.
//! 4. The library's header is written with the number of the commit that it names (`first_page`).
//! 5. A page that reads otherwise than it was first read or last written is an error (`sums`).

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use block::{BlockDevice, Outcome};
use env::{Rank, RankedMutex};
use format::checksum::block_crc;
use format::superblock::{COPY_OFFSETS, Superblock, copies_of_generation};
use parking_lot::Mutex;
use units::BLOCK_BYTES;

use super::first_page::{self, HEADER_BYTES};
use super::sums::PageSums;

/// Memory that the library may use for its own cache.
pub const CACHE_BYTES: usize = 8 << 20;

/// Takes a zone for the catalogue.
pub type TakeZone = Box<dyn FnMut() -> io::Result<u32> + Send>;

struct State {
    superblock: Superblock,
    take_zone: TakeZone,
}

/// The catalogue's storage, shared between the pool and the library.
#[derive(Clone)]
pub struct CatalogueMedia {
    device: Arc<dyn BlockDevice>,
    state: Arc<RankedMutex<State>>,
    sums: Arc<Mutex<PageSums>>,
}

/// Damage found in pages of the catalogue.
#[derive(Debug, Default)]
pub struct PagesFound {
    /// Bytes that were read, of all copies.
    pub read_bytes: u64,
    /// Pages that a copy had wrong.
    pub wrong: u64,
    /// Of these: those that are what they are known to be now.
    pub healed: u64,
    /// Of these: those that readers would not get so, if nothing were known of them.
    pub misread: u64,
    /// Of these: those that all have wrong.
    pub lost: Vec<u64>,
    /// The page to go on with, if there is one.
    pub next: Option<u64>,
}

impl fmt::Debug for CatalogueMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogueMedia").finish_non_exhaustive()
    }
}

impl CatalogueMedia {
    /// The storage that `superblock` describes.
    #[must_use]
    pub fn new(
        device: Arc<dyn BlockDevice>,
        superblock: Superblock,
        take_zone: TakeZone,
    ) -> CatalogueMedia {
        let state =
            Arc::new(RankedMutex::new(Rank::CatalogueFile, State { superblock, take_zone }));
        CatalogueMedia { device, state, sums: Arc::default() }
    }

    /// Changes where zones come from.
    pub fn set_take_zone(&self, take_zone: TakeZone) {
        self.state.lock().take_zone = take_zone;
    }

    /// The superblock as last written.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        self.state.lock().superblock.clone()
    }

    /// Writes the superblock's next generation. The one that was read may have been written by an
    /// earlier process and lost by a failed sync: nothing may be built on it before it is durable.
    ///
    /// # Errors
    /// The device's.
    pub fn write_again(&self) -> block::Result<()> {
        let mut state = self.state.lock();
        state.superblock.generation += 1;
        write_superblock(&*self.device, &state.superblock)
    }

    /// Changes the superblock, durably and in both pairs of copies, so that none lacks the change.
    ///
    /// # Errors
    /// The device's.
    pub fn change(&self, change: impl FnOnce(&mut Superblock)) -> block::Result<()> {
        let mut state = self.state.lock();
        let mut superblock = state.superblock.clone();
        change(&mut superblock);
        let written = write_superblock_twice(&*self.device, &mut superblock);
        // A part of a failed one may be there: its generation is not given out again.
        state.superblock.generation = superblock.generation;
        written?;
        state.superblock = superblock;
        Ok(())
    }

    /// Calls `each` with device offset and sub-range for every zone that `offset..offset + length`
    /// touches.
    fn pieces(
        &self,
        offset: u64,
        length: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let state = self.state.lock();
        let zone_bytes = state.superblock.zone_bytes;
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > state.superblock.catalogue_bytes) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the catalogue"));
        }
        let mut done = 0;
        while done < length {
            let position = offset + done as u64;
            let index = usize::try_from(position / zone_bytes).expect("the list fits memory");
            let within = position % zone_bytes;
            let room = usize::try_from(zone_bytes - within).expect("zones are at most 32 MiB");
            let part = room.min(length - done);
            let zone = u64::from(state.superblock.catalogue_zones[index]);
            each(zone * zone_bytes + within, done..done + part)?;
            done += part;
        }
        Ok(())
    }

    /// Looks at all copies of every page; those that are not what it is known to be are healed.
    ///
    /// # Errors
    /// The device's; `InvalidData` where no copy is right.
    pub fn scrub(&self) -> io::Result<()> {
        match self.scrub_pages(0, u64::MAX).lost.first() {
            None => Ok(()),
            Some(page) => {
                let text = format!("page {page} of the catalogue is wrong on every copy");
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
        }
    }

    /// The same for some pages. The caller sees to it that nobody writes them meanwhile.
    pub fn scrub_pages(&self, first: u64, count: u64) -> PagesFound {
        let mut found = PagesFound::default();
        let pages = self.state.lock().superblock.catalogue_bytes / BLOCK_BYTES;
        let end = first.saturating_add(count).min(pages);
        let copies = self.copies() as u64;
        let (mut page, mut there) = (vec![0; BLOCK_BYTES as usize], vec![0; BLOCK_BYTES as usize]);
        for number in first..end {
            found.read_bytes += BLOCK_BYTES * copies;
            let at = number * BLOCK_BYTES;
            let Ok(was_wrong) = self.read_healed(at, &mut page) else {
                found.wrong += 1;
                found.lost.push(number);
                continue;
            };
            // A page that cannot be written over a wrong copy is there all the same.
            let (is_wrong, is_right) = match self.agree(at, &page) {
                Ok(None) => (was_wrong, true),
                Ok(Some(Outcome::Recovered | Outcome::Transient)) => (true, true),
                Ok(Some(Outcome::Agreed | Outcome::Unrecoverable)) | Err(_) => (true, false),
            };
            found.wrong += u64::from(is_wrong);
            found.healed += u64::from(is_wrong && is_right);
            let is_read = !is_wrong || self.read_unchecked(at, &mut there).is_ok() && there == page;
            found.misread += u64::from(!is_read);
        }
        found.next = (end < pages).then_some(end);
        found
    }

    /// Looks at the pages in some zones, by where these begin; says whether readers get them right
    /// now, without what is known of them. The caller sees to it that nobody writes them meanwhile.
    pub fn scrub_zones(&self, wants: &dyn Fn(u64) -> bool) -> bool {
        let superblock = self.superblock();
        let pages = superblock.zone_bytes / BLOCK_BYTES;
        let zones = (0..).zip(&superblock.catalogue_zones);
        let mut wanted = zones.filter(|(_, zone)| wants(u64::from(**zone) * superblock.zone_bytes));
        wanted.all(|(number, _)| {
            let found = self.scrub_pages(number * pages, pages);
            found.misread == 0 && found.lost.is_empty()
        })
    }

    /// How many places have a superblock that cannot be read, or is older than the two last
    /// generations.
    pub fn wrong_superblocks(&self) -> u64 {
        let state = self.state.lock();
        let mut bytes = vec![0; format::PAGE_BYTES];
        let mut wrong = 0;
        for (copy, &at) in COPY_OFFSETS.iter().enumerate() {
            for way in 0..self.device.copies(at, bytes.len() as u64) {
                let is_read = self.device.read_copy(way, at, &mut bytes).is_ok();
                let found = Superblock::decode(&bytes, copy);
                let is_right =
                    is_read && found.is_ok_and(|s| s.generation + 1 >= state.superblock.generation);
                wrong += u64::from(!is_right);
            }
        }
        wrong
    }

    /// Whether superblocks are right in the places that somebody wants, as they lie there: what
    /// others say of them may be computed of something else by now.
    pub fn has_superblocks(&self, wants: &dyn Fn(u64, u64) -> bool) -> bool {
        let generation = self.state.lock().superblock.generation;
        let mut bytes = vec![0; format::PAGE_BYTES];
        let mut wanted = (0..).zip(COPY_OFFSETS).filter(|&(_, at)| wants(at, BLOCK_BYTES));
        wanted.all(|(copy, at)| {
            let is_read = self.device.read_copy(0, at, &mut bytes).is_ok();
            let found = Superblock::decode(&bytes, copy);
            is_read && found.is_ok_and(|s| s.generation + 1 >= generation)
        })
    }

    /// In how many ways a page of the catalogue can be had.
    fn copies(&self) -> usize {
        let zone_bytes = self.state.lock().superblock.zone_bytes;
        let zones = self.state.lock().superblock.catalogue_zones.clone();
        let of = |zone: &u32| self.device.copies(u64::from(*zone) * zone_bytes, zone_bytes);
        zones.iter().map(of).max().unwrap_or(1)
    }

    /// In how many ways all of the catalogue can be read.
    pub fn ways(&self) -> usize {
        self.device.ways()
    }

    /// Reads the catalogue in one of these ways.
    ///
    /// # Errors
    /// The device's.
    pub fn read_way(&self, way: usize, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.pieces(offset, out.len(), |at, range| {
            self.device.read_way(way, at, &mut out[range]).map_err(io::Error::other)
        })
    }

    /// Writes the library's header where none of the copies has it as it should be.
    ///
    /// # Errors
    /// The device's.
    pub fn write_header(&self, first_page: &[u8]) -> io::Result<()> {
        redb::StorageBackend::write(self, 0, &first_page[..HEADER_BYTES])?;
        redb::StorageBackend::sync_data(self)
    }

    /// Makes all copies of a page this one, which it is known to be from then on. Where that cannot
    /// be (a member is missing), whoever reads it is given this one; false if he is not.
    ///
    /// # Errors
    /// The device's.
    pub fn settle(&self, number: u64, page: &[u8]) -> io::Result<bool> {
        let at = number * BLOCK_BYTES;
        let mut there = vec![0; page.len()];
        let is_there = match self.agree(at, page)? {
            None | Some(Outcome::Recovered | Outcome::Transient) => true,
            Some(Outcome::Agreed | Outcome::Unrecoverable) => {
                self.read_unchecked(at, &mut there).is_ok() && there == page
            }
        };
        if is_there {
            self.sums.lock().learn(at, page);
        }
        Ok(is_there)
    }

    /// Reads what is there, whatever is known of it.
    fn read_unchecked(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.pieces(offset, out.len(), |at, range| {
            self.device.read_at(at, &mut out[range]).map_err(io::Error::other)
        })
    }

    /// Forgets what a page is known to be: it is what it is read as next.
    pub fn forget(&self, number: u64) {
        self.sums.lock().forget(number * BLOCK_BYTES, BLOCK_BYTES as usize);
    }

    /// Makes all copies of a page what is known of it; says what came of it if one was not.
    fn agree(&self, offset: u64, page: &[u8]) -> io::Result<Option<Outcome>> {
        let mut other = page.to_vec();
        let mut outcome = None;
        self.pieces(offset, page.len(), |at, _| {
            for copy in 0..self.device.copies(at, BLOCK_BYTES) {
                let same = self.device.read_copy(copy, at, &mut other).is_ok() && other == page;
                if !same {
                    let right = |bytes: &[u8]| bytes == page;
                    let healed = self.device.heal(at, &mut other, &right);
                    outcome = Some(healed.map_err(io::Error::other)?);
                    break;
                }
            }
            Ok(())
        })?;
        Ok(outcome)
    }

    /// Reads what is known to be right, or of which nothing is known; says whether it was wrong and
    /// had to be healed.
    fn read_healed(&self, offset: u64, out: &mut [u8]) -> io::Result<bool> {
        let is_read = self.read_unchecked(offset, out);
        let wrong = match is_read.and_then(|()| self.sums.lock().check(offset, out)) {
            Ok(()) => return Ok(false),
            Err(wrong) => wrong,
        };
        let end = offset.saturating_add(out.len() as u64);
        let mut pages = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let is_known = pages.all(|page| self.sums.lock().known(page).is_some());
        let ends = [offset, out.len() as u64];
        if !is_known || ends.iter().any(|end| !end.is_multiple_of(BLOCK_BYTES)) {
            return Err(wrong);
        }
        if self.heal(offset, out)? { Ok(true) } else { Err(wrong) }
    }

    /// Heals what was read at `offset`, page by page, where it is not what it is known to be.
    fn heal(&self, offset: u64, out: &mut [u8]) -> io::Result<bool> {
        let first = offset.div_ceil(BLOCK_BYTES);
        let end = (offset + out.len() as u64) / BLOCK_BYTES;
        for page in first..end {
            let Some(crc) = self.sums.lock().known(page) else { continue };
            let right = |bytes: &[u8]| block_crc(bytes) == crc;
            let from = (page * BLOCK_BYTES - offset) as usize;
            let bytes = &mut out[from..from + BLOCK_BYTES as usize];
            if right(bytes) {
                continue;
            }
            let mut healed = false;
            self.pieces(page * BLOCK_BYTES, bytes.len(), |at, _| {
                let outcome = self.device.heal(at, bytes, &right).map_err(io::Error::other)?;
                healed = matches!(outcome, Outcome::Recovered | Outcome::Transient);
                Ok(())
            })?;
            if !healed {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Writes the next generation of the superblock and makes it durable.
///
/// # Errors
/// The device's.
pub fn write_superblock(device: &dyn BlockDevice, superblock: &Superblock) -> block::Result<()> {
    for copy in copies_of_generation(superblock.generation) {
        device.write_at(COPY_OFFSETS[copy], &[IoSlice::new(&superblock.encode(copy)[..])])?;
    }
    device.flush()
}

/// Writes the two next generations, so that all copies are of these.
///
/// # Errors
/// The device's.
pub fn write_superblock_twice(
    device: &dyn BlockDevice,
    superblock: &mut Superblock,
) -> block::Result<()> {
    for _ in 0..2 {
        superblock.generation += 1;
        write_superblock(device, superblock)?;
    }
    Ok(())
}

impl redb::StorageBackend for CatalogueMedia {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().superblock.catalogue_bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_healed(offset, out).map(drop)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let old;
        {
            let mut state = self.state.lock();
            old = state.superblock.catalogue_bytes;
            let zone_bytes = state.superblock.zone_bytes;
            while (state.superblock.catalogue_zones.len() as u64) * zone_bytes < len {
                let zone = (state.take_zone)()?;
                state.superblock.catalogue_zones.push(zone);
            }
            state.superblock.catalogue_bytes = len;
            state.superblock.generation += 1;
            write_superblock(&*self.device, &state.superblock).map_err(io::Error::other)?;
        }
        let zeros = vec![0; 64 << 10];
        let mut position = old;
        while position < len {
            let part = zeros.len().min(usize::try_from(len - position).unwrap_or(usize::MAX));
            redb::StorageBackend::write(self, position, &zeros[..part])?;
            position += part as u64;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.device.flush().map_err(io::Error::other)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let with_commit;
        let data = match (offset, data.len()) {
            (0, HEADER_BYTES) => {
                with_commit = first_page::sealed(data);
                &with_commit[..]
            }
            _ => data,
        };
        self.sums.lock().forget(offset, data.len());
        self.pieces(offset, data.len(), |at, range| {
            self.device.write_at(at, &[IoSlice::new(&data[range])]).map_err(io::Error::other)
        })?;
        self.sums.lock().learn(offset, data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::Arc;

    use block::{BlockDevice, DeviceError, DeviceErrorKind, Operation, Outcome, Result, Right};
    use format::superblock::Superblock;
    use redb::StorageBackend;
    use units::WallTime;

    use super::CatalogueMedia;

    /// Two copies, of which the second is wrong and stays so.
    struct Stubborn {
        memory: block::MemoryDevice,
        outcome: Option<Outcome>,
    }

    impl BlockDevice for Stubborn {
        fn len_bytes(&self) -> u64 {
            self.memory.len_bytes()
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.memory.read_at(offset, buffer)
        }
        fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
            self.memory.write_at(offset, slices)
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
        fn allocate(&self, _offset: u64, _length_bytes: u64) -> Result<()> {
            Ok(())
        }
        fn discard(&self, _offset: u64, _length_bytes: u64) -> Result<()> {
            Ok(())
        }
        fn copies(&self, _offset: u64, _length_bytes: u64) -> usize {
            2
        }
        fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.memory.read_at(offset, buffer)?;
            buffer[7] ^= u8::from(copy == 1);
            Ok(())
        }
        fn heal(&self, offset: u64, buffer: &mut [u8], _right: &Right<'_>) -> Result<Outcome> {
            self.outcome.ok_or_else(|| DeviceError {
                kind: DeviceErrorKind::Io,
                operation: Operation::Write,
                offset,
                length_bytes: buffer.len() as u64,
                device: self.describe(),
                source: std::io::Error::other("it cannot be written"),
            })
        }
        fn describe(&self) -> String {
            "stubborn".to_owned()
        }
    }

    /// A page that is not written over a wrong copy counts neither as healed nor as lost.
    #[test]
    fn what_could_not_be_healed_is_not_counted_as_healed() {
        for (outcome, healed) in [
            (Some(Outcome::Recovered), 2),
            (Some(Outcome::Transient), 2),
            (Some(Outcome::Agreed), 0),
            (Some(Outcome::Unrecoverable), 0),
            (None, 0),
        ] {
            let device = Stubborn { memory: block::MemoryDevice::new(2 << 20), outcome };
            let superblock = Superblock {
                format_version: format::FORMAT_VERSION,
                features_compatible: 0,
                features_read_only: 0,
                features_incompatible: 0,
                generation: 0,
                pool_id: 1,
                zone_bytes: 1 << 18,
                device_bytes: 2 << 20,
                created: WallTime::from_nanos(0),
                secret: 1,
                catalogue_bytes: 0,
                catalogue_zones: Vec::new(),
            };
            let media = CatalogueMedia::new(Arc::new(device), superblock, Box::new(|| Ok(3)));
            media.set_len(8192).expect("room");
            media.write(0, &[1; 8192]).expect("written");
            let found = media.scrub_pages(0, 100);
            let counted = (found.wrong, found.healed, found.lost);
            assert_eq!(counted, (2, healed, Vec::new()), "{outcome:?}");
            assert!(media.scrub_zones(&|_| true), "readers get it right: {outcome:?}");
            assert!(media.scrub().is_ok(), "it can be read");
        }
    }
}
