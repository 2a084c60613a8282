//! Reading packs: they are kept for a while, for whoever reads their neighbours next.
//!
//! 1. A pack is immutable and segment numbers are never used again, so nothing kept here is ever
//!    out of date.
//! 2. Returned blocks were verified by the pack's own checksums; the caller verifies the block by
//!    that of its map entry, as with every block.

use std::sync::Arc;

use format::checksum::block_crc;
use format::location::Location;
use format::pack::{PACK_HEADER_BYTES, Pack, PackHeader, PackPlace, StoredPack};
use units::{BLOCK_BYTES, Seq};

use crate::io_tally::{IoKind, IoTally};
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// Bytes read before the length of a pack is known; most have fewer.
const FIRST_READ_BYTES: u64 = 24 << 10;

/// A place in a segment: its number, an offset, and its nonce.
type InSegment = (u64, u32, u64);

/// Whether a pack says that it is of a place.
pub(crate) fn is_at(place: &PackPlace, there: InSegment) -> bool {
    (place.segment, place.offset, place.nonce) == there
}

impl Store {
    /// The pack at a location of a segment of packs; `None` if that would have to wait and may not.
    /// Its reads are counted as `kind`.
    ///
    /// # Errors
    /// `Corrupt` if there is no sound pack; the device's.
    fn pack(
        &self,
        location: Location,
        waits: bool,
        (io, kind): (&IoTally, IoKind),
    ) -> Result<Option<Arc<StoredPack>>> {
        if let Some(pack) = self.pack_cache.get(location) {
            return Ok(Some(pack));
        }
        let Some((pack, bytes)) = self.read_pack_at(location, waits)? else { return Ok(None) };
        io.count(kind, bytes);
        let pack = Arc::new(pack);
        self.pack_cache.keep(location, &pack);
        Ok(Some(pack))
    }

    /// Reads and opens the pack at a location, as [`Store::read_pack`].
    fn read_pack_at(&self, location: Location, waits: bool) -> Result<Option<(StoredPack, u64)>> {
        let (number, offset) = (location.segment(), location.offset_bytes());
        let segment = self.segment(number).ok_or_else(|| Error::no_segment(number))?;
        let there = (number, offset, segment.nonce);
        self.read_pack(self.zone_offset(segment.zone) + u64::from(offset), there, waits)
    }

    /// Copies out the bytes of one version in the pack at a location, not yet verified by the map.
    ///
    /// # Errors
    /// Those of `pack`; `Corrupt` if the version is not in it.
    pub fn read_packed(
        &self,
        location: Location,
        (block, seq): (u64, Seq),
        out: &mut [u8],
        (io, kind): (&IoTally, IoKind),
    ) -> Result<()> {
        let pack = self.pack(location, true, (io, kind))?;
        let pack = pack.expect("a read that waits gives what it read");
        self.copy_version(&pack, location, (block, seq), out)
    }

    /// The same if the pack is in memory, decoded or as it is stored; false otherwise.
    ///
    /// # Errors
    /// Those of `pack`; `Corrupt` if the version is not in it.
    pub fn try_read_packed(
        &self,
        location: Location,
        (block, seq): (u64, Seq),
        out: &mut [u8],
        (io, kind): (&IoTally, IoKind),
    ) -> Result<bool> {
        let Some(pack) = self.pack(location, false, (io, kind))? else { return Ok(false) };
        self.copy_version(&pack, location, (block, seq), out).map(|()| true)
    }

    /// Reads and opens the pack at a place on the device, which is this one of its segment, and
    /// says how many bytes were read; `None` if that would have to wait and may not.
    fn read_pack(
        &self,
        at: u64,
        there: InSegment,
        waits: bool,
    ) -> Result<Option<(StoredPack, u64)>> {
        let room = self.zone_bytes - u64::from(there.1);
        let read = |at: u64, bytes: &mut [u8]| match waits {
            true => self.device.read_at(at, bytes).map(|()| true),
            false => self.device.try_read_at(at, bytes),
        };
        let mut bytes = vec![0; FIRST_READ_BYTES.min(room) as usize];
        let is_read = match read(at, &mut bytes) {
            // Something behind it may be what cannot be read.
            Err(_) if waits => {
                bytes.truncate(PACK_HEADER_BYTES);
                read(at, &mut bytes)?
            }
            read => read?,
        };
        if !is_read {
            return Ok(None);
        }
        // A sound one that belongs elsewhere was written here by mistake, on this copy.
        let header_of = |bytes: &[u8]| -> Result<PackHeader> {
            let header = PackHeader::decode(bytes)?;
            if is_at(&header.place, there) && header.total_bytes() as u64 <= room {
                return Ok(header);
            }
            let text = format!("the pack at {at} of the device is another: {:?}", header.place);
            Err(Error::new(ErrorKind::Corrupt, text))
        };
        let header = match header_of(&bytes) {
            Ok(header) => header,
            // Better bytes have to be waited for.
            Err(_) if !waits => return Ok(None),
            Err(error) => {
                let right = |bytes: &[u8]| header_of(bytes).is_ok();
                if !self.heal(at, &mut bytes[..PACK_HEADER_BYTES], &right) {
                    return Err(error);
                }
                header_of(&bytes)?
            }
        };
        let total = header.total_bytes();
        if total > bytes.len() {
            let first = bytes.len();
            bytes.resize(total, 0);
            if !read(at + first as u64, &mut bytes[first..])? {
                return Ok(None);
            }
        }
        let open = |bytes| self.pack_cache.decode(|decoder| decoder.open(&header, bytes));
        let count = bytes.len() as u64;
        let pack = match open(bytes) {
            Ok(pack) => pack,
            Err(_) if !waits => return Ok(None),
            Err(error) => {
                let right = |bytes: &[u8]| open(bytes.to_vec()).is_ok();
                let mut bytes = vec![0; total];
                if !self.heal(at, &mut bytes, &right) {
                    return Err(error.into());
                }
                open(bytes)?
            }
        };
        Ok(Some((pack, count)))
    }

    /// Whether bytes are the pack of a place, whole.
    pub fn is_pack(&self, bytes: &[u8], place: &PackPlace) -> bool {
        let Ok(header) = PackHeader::decode(bytes) else { return false };
        header.place == *place
            && header.total_bytes() == bytes.len()
            && self.pack_cache.decode(|decoder| decoder.decode(&header, bytes)).is_ok()
    }

    /// Whether the version that the map names in a pack is there, on the device.
    pub fn has_packed(&self, location: Location, version: (u64, Seq), crc: u32) -> bool {
        let Ok(Some((pack, _))) = self.read_pack_at(location, true) else { return false };
        let mut block = [0; BLOCK_BYTES as usize];
        let read = self.pack_cache.decode(|decoder| pack.read(version, decoder, &mut block));
        read == Ok(true) && block_crc(&block) == crc
    }

    /// Visits the packs of a segment in the order of their offsets; what cannot be read is passed
    /// by. Says how many bytes belong to no pack, up to the end of the last.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn scan_packs(
        &self,
        (number, zone, nonce): (u64, u32, u64),
        mut visit: impl FnMut(&PackPlace, &Pack) -> Result<()>,
    ) -> Result<u64> {
        let mut offset = format::segment::SEGMENT_HEADER_BYTES as u64;
        let (mut end, mut gap_bytes) = (offset, 0);
        while offset + (PACK_HEADER_BYTES as u64) <= self.zone_bytes {
            let at = self.zone_offset(zone) + offset;
            let mut bytes = [0; PACK_HEADER_BYTES];
            let there = (number, u32::try_from(offset).expect("zones are at most 32 MiB"), nonce);
            let is_header =
                |bytes: &[u8]| PackHeader::decode(bytes).is_ok_and(|h| is_at(&h.place, there));
            let is_read = self.device.read_at(at, &mut bytes).is_ok() && is_header(&bytes);
            // Behind the last pack another copy may know of one.
            let is_read =
                is_read || (offset == end && self.heal_if_known(at, &mut bytes, &is_header));
            let header = is_read.then(|| PackHeader::decode(&bytes)).and_then(|h| h.ok());
            let Some(header) = header.filter(|header| is_at(&header.place, there)) else {
                offset += u64::from(format::pack::PACK_ALIGNMENT);
                continue;
            };
            let unpack = |(pack, _): (StoredPack, u64)| -> Result<Pack> {
                Ok(self.pack_cache.decode(|decoder| pack.unpack(decoder))?)
            };
            match self.read_pack(at, there, true).and_then(|read| read.map(unpack).transpose()) {
                Ok(None) => {}
                Ok(Some(pack)) => {
                    visit(&header.place, &pack)?;
                    gap_bytes += offset - end;
                    end = offset + header.total_bytes() as u64;
                }
                Err(e) if e.kind == ErrorKind::Corrupt => {}
                Err(e) => return Err(e),
            }
            offset += header.total_bytes() as u64;
        }
        Ok(gap_bytes)
    }

    fn copy_version(
        &self,
        pack: &StoredPack,
        location: Location,
        (block, seq): (u64, Seq),
        out: &mut [u8],
    ) -> Result<()> {
        if self.pack_cache.decode(|decoder| pack.read((block, seq), decoder, out))? {
            return Ok(());
        }
        let text = format!("the pack at {location} has no version {seq} of block {block}");
        Err(Error::new(ErrorKind::Corrupt, text))
    }
}
