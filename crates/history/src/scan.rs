//! Reading a segment's batches back: for recovery and for rebuilding the map.
//!
//! A batch that was reserved but never written leaves a hole, and later batches may follow it; so
//! where no batch decodes, the scan goes on at the next aligned offset. Bytes that a client wrote
//! to look like a batch are not taken for one: they lack the segment's nonce.

use std::sync::Arc;

use format::FormatErrorKind;
use format::batch::{BATCH_ALIGNMENT, Batch, MAGIC, peek_header_bytes};
use format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

use crate::Result;
use crate::io_tally::{IoKind, IoTally};
use crate::store::Store;

/// Bytes read at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// What stands for bytes of a copy that cannot be read: no header.
const UNREAD: u8 = 0xdb;

/// One zone's bytes, read window by window.
struct Window<'s> {
    store: &'s Store,
    io: Arc<IoTally>,
    base: u64,
    /// Which copy; `None` is what readers get.
    copy: Option<usize>,
    start: usize,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// `length` bytes at `offset` in the zone, or fewer at its end.
    fn get(&mut self, offset: usize, length: usize) -> Result<&[u8]> {
        let zone_bytes = usize::try_from(self.store.zone_bytes).expect("zones are at most 32 MiB");
        let end = (offset + length).min(zone_bytes);
        if offset < self.start || end > self.start + self.bytes.len() {
            let size = WINDOW_BYTES.max(length).min(zone_bytes - offset);
            self.bytes.resize(size, 0);
            let at = self.base + offset as u64;
            match self.copy {
                None => drop(self.store.device.read_unverified(at, &mut self.bytes, true)?),
                Some(copy) => {
                    if self.store.device.read_copy(copy, at, &mut self.bytes).is_err() {
                        self.bytes.fill(UNREAD);
                    }
                }
            }
            self.io.count(IoKind::Other, self.bytes.len() as u64);
            self.start = offset;
        }
        Ok(&self.bytes[offset - self.start..end - self.start])
    }

    /// The header of the segment's batch at an offset, if there is one.
    fn header(&mut self, segment: &SegmentHeader, offset: usize) -> Result<Option<&[u8]>> {
        let fixed = self.get(offset, format::batch::BATCH_HEADER_FIXED_BYTES)?;
        // A scan asks every 64 bytes, and hardly ever is there one: an error would put that into
        // words each time.
        if !fixed.starts_with(&MAGIC.to_le_bytes()) {
            return Ok(None);
        }
        let Ok(length) = peek_header_bytes(fixed) else { return Ok(None) };
        let zone_bytes = usize::try_from(self.store.zone_bytes).expect("zones are at most 32 MiB");
        let bytes = self.get(offset, length as usize)?;
        let is_its = |batch: &Batch<'_>| belongs(batch, segment, offset, zone_bytes);
        Ok(Batch::decode(bytes).is_ok_and(|batch| is_its(&batch)).then_some(bytes))
    }
}

/// What a scan came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScanEnd {
    /// Bytes up to the end of the last batch.
    pub end: u32,
    /// Bytes before that which belong to no batch.
    pub gap_bytes: u64,
}

/// Reads the header of a segment, or `None` when the zone holds no such segment.
///
/// # Errors
/// Those of the device.
pub fn read_header(store: &Store, zone: u32, number: u64) -> Result<Option<SegmentHeader>> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    store.device.read_unverified(store.zone_offset(zone), &mut bytes, true)?;
    let is_its = |bytes: &[u8]| {
        SegmentHeader::decode(bytes)
            .is_ok_and(|h| h.pool_id == store.pool_id && h.segment == number && h.zone == zone)
    };
    let at = store.zone_offset(zone);
    let mut better = bytes;
    if !is_its(&bytes) && store.heal_if_known(at, &mut better, &is_its) {
        bytes = better;
    }
    match SegmentHeader::decode(&bytes) {
        Ok(header) if header.pool_id == store.pool_id && header.segment == number => {
            Ok((header.zone == zone).then_some(header))
        }
        Ok(_) => Ok(None),
        Err(e) if e.kind == FormatErrorKind::Version => Err(e.into()),
        Err(_) => Ok(None),
    }
}

/// Visits the batches of a segment in the order of their offsets.
///
/// # Errors
/// Those of the device, and of `visit`.
pub fn scan_segment(
    store: &Store,
    header: &SegmentHeader,
    mut visit: impl FnMut(&Batch<'_>) -> Result<()>,
) -> Result<ScanEnd> {
    let zone_bytes = usize::try_from(store.zone_bytes).expect("zones are at most 32 MiB");
    let base = store.zone_offset(header.zone);
    let io = store.io(header.log);
    let window =
        |copy| Window { store, io: Arc::clone(&io), base, copy, start: 0, bytes: Vec::new() };
    // What a power cut left may be on one copy only, behind what is on none: all are looked at
    // everywhere, so that recovery knows of every batch that could ever be found.
    let copies = match store.device.copies(base, store.zone_bytes) {
        1 => 0,
        copies => copies,
    };
    let mut copies: Vec<Window<'_>> = (0..copies).map(|copy| window(Some(copy))).collect();
    let mut window = window(None);
    // A home is written over: what a copy has may be sound and of before.
    let is_base = store.segment(header.segment).is_some_and(|segment| segment.slab.is_some());
    let mut offset = SEGMENT_HEADER_BYTES;
    let mut end = ScanEnd { end: SEGMENT_HEADER_BYTES as u32, gap_bytes: 0 };
    while offset + format::batch::BATCH_HEADER_FIXED_BYTES <= zone_bytes {
        let healed;
        let found = match window.header(header, offset)? {
            Some(bytes) if !is_base || copies.is_empty() => Some(bytes),
            read => {
                healed = newest(read.map(<[u8]>::to_vec), &mut copies, header, offset)?;
                healed.as_deref()
            }
        };
        let Some(bytes) = found else {
            offset += BATCH_ALIGNMENT as usize;
            continue;
        };
        let batch = Batch::decode(bytes)?;
        visit(&batch)?;
        let offset_32 = u32::try_from(offset).expect("zones are at most 32 MiB");
        end.gap_bytes += u64::from(offset_32 - end.end);
        offset += batch.total_bytes() as usize;
        end.end = u32::try_from(offset).expect("zones are at most 32 MiB");
    }
    Ok(end)
}

/// The newest header of a batch that readers get or some copy has; then all have it.
fn newest(
    read: Option<Vec<u8>>,
    copies: &mut [Window<'_>],
    segment: &SegmentHeader,
    offset: usize,
) -> Result<Option<Vec<u8>>> {
    let seq = |bytes: &[u8]| Batch::decode(bytes).map(|batch| batch.header.base_seq).ok();
    let mut newest: Option<Vec<u8>> = None;
    for copy in copies.iter_mut() {
        let found = copy.header(segment, offset)?;
        if let Some(found) = found.filter(|f| newest.as_deref().and_then(seq) < seq(f)) {
            newest = Some(found.to_vec());
        }
    }
    let (Some(copy), Some(good)) = (copies.first(), &newest) else { return Ok(read) };
    // Whatever comes of writing it: it was there, and is told.
    let mut bytes = good.clone();
    copy.store.agree(copy.base + offset as u64, &mut bytes, &|bytes| bytes == *good);
    Ok(newest)
}

pub(crate) fn belongs(
    batch: &Batch<'_>,
    header: &SegmentHeader,
    offset: usize,
    zone_bytes: usize,
) -> bool {
    batch.header.segment == header.segment
        && batch.header.nonce == header.nonce
        && batch.header.offset as usize == offset
        && offset + batch.total_bytes() as usize <= zone_bytes
}
