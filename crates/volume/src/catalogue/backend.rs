//! Where the catalogue's bytes are: zones of the pool, listed in the superblock.
//!
//! Invariants
//! 1. Byte `n` of the catalogue lies in the `n / zone_bytes`-th zone of the superblock's list.
//! 2. A longer catalogue is announced by a durable superblock before anything is written there, and
//!    what is new reads as zeros, as the library below demands.
//! 3. The catalogue never gives a zone back: it is small, and grows again.
//! 4. A page that reads otherwise than it was first read or last written is an error (`sums`).

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use block::{BlockDevice, Outcome};
use format::checksum::block_crc;
use format::superblock::{COPY_OFFSETS, Superblock, copies_of_generation};
use parking_lot::Mutex;
use units::BLOCK_BYTES;

use super::sums::PageSums;

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
    state: Arc<Mutex<State>>,
    sums: Arc<Mutex<PageSums>>,
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
        let state = Arc::new(Mutex::new(State { superblock, take_zone }));
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

    /// Writes the superblock's next generation. What was read may be what an earlier process wrote
    /// and a failed sync lost: nothing may be built on it before it is durable.
    ///
    /// # Errors
    /// The device's.
    pub fn write_again(&self) -> block::Result<()> {
        let mut state = self.state.lock();
        state.superblock.generation += 1;
        write_superblock(&*self.device, &state.superblock)
    }

    /// Adds an incompatible feature to the superblock, durably and in both pairs of copies, so that
    /// a program that does not know it finds no copy without it.
    ///
    /// # Errors
    /// The device's.
    pub fn add_feature(&self, feature: u64) -> block::Result<()> {
        let mut state = self.state.lock();
        if state.superblock.features_incompatible & feature != 0 {
            return Ok(());
        }
        let mut superblock = state.superblock.clone();
        superblock.features_incompatible |= feature;
        for _ in 0..2 {
            superblock.generation += 1;
            write_superblock(&*self.device, &superblock)?;
        }
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
        if offset + length as u64 > state.superblock.catalogue_bytes {
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
        let mut page = vec![0; BLOCK_BYTES as usize];
        let pages = self.state.lock().superblock.catalogue_bytes / BLOCK_BYTES;
        for number in 0..pages {
            redb::StorageBackend::read(self, number * BLOCK_BYTES, &mut page)?;
            self.agree(number * BLOCK_BYTES, &page)?;
        }
        Ok(())
    }

    /// In how many ways the catalogue can be had.
    pub fn copies(&self) -> usize {
        let zone_bytes = self.state.lock().superblock.zone_bytes;
        let zones = self.state.lock().superblock.catalogue_zones.clone();
        let of = |zone: &u32| self.device.copies(u64::from(*zone) * zone_bytes, zone_bytes);
        zones.iter().map(of).max().unwrap_or(1)
    }

    /// Reads the catalogue in one of these ways.
    ///
    /// # Errors
    /// The device's.
    pub fn read_copy(&self, copy: usize, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.pieces(offset, out.len(), |at, range| {
            self.device.read_copy(copy, at, &mut out[range]).map_err(io::Error::other)
        })
    }

    /// Makes all copies of the catalogue what one of them is.
    ///
    /// # Errors
    /// The device's.
    pub fn spread(&self, copy: usize) -> io::Result<()> {
        let mut page = vec![0; BLOCK_BYTES as usize];
        let pages = self.state.lock().superblock.catalogue_bytes / BLOCK_BYTES;
        for number in 0..pages {
            self.read_copy(copy, number * BLOCK_BYTES, &mut page)?;
            self.agree(number * BLOCK_BYTES, &page)?;
        }
        Ok(())
    }

    /// Makes all copies of a page what is known of it.
    fn agree(&self, offset: u64, page: &[u8]) -> io::Result<()> {
        let mut other = page.to_vec();
        self.pieces(offset, page.len(), |at, _| {
            for copy in 0..self.device.copies(at, BLOCK_BYTES) {
                let same = self.device.read_copy(copy, at, &mut other).is_ok() && other == page;
                if !same {
                    let right = |bytes: &[u8]| bytes == page;
                    return self
                        .device
                        .heal(at, &mut other, &right)
                        .map(drop)
                        .map_err(io::Error::other);
                }
            }
            Ok(())
        })
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

impl redb::StorageBackend for CatalogueMedia {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().superblock.catalogue_bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.pieces(offset, out.len(), |at, range| {
            self.device.read_at(at, &mut out[range]).map_err(io::Error::other)
        })?;
        let wrong = match self.sums.lock().check(offset, out) {
            Ok(()) => return Ok(()),
            Err(wrong) => wrong,
        };
        if self.heal(offset, out)? { Ok(()) } else { Err(wrong) }
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
        self.sums.lock().forget(offset, data.len());
        self.pieces(offset, data.len(), |at, range| {
            self.device.write_at(at, &[IoSlice::new(&data[range])]).map_err(io::Error::other)
        })?;
        self.sums.lock().learn(offset, data);
        Ok(())
    }
}
