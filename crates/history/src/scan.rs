//! Reading a segment's batches back: for recovery and for rebuilding the map.
//!
//! A batch that was reserved but never written leaves a hole, and later batches may follow it; so
//! where no batch decodes, the scan goes on at the next aligned offset. Bytes that a client wrote
//! to look like a batch are not taken for one: they lack the segment's nonce.

use std::sync::Arc;

use format::FormatErrorKind;
use format::batch::{BATCH_ALIGNMENT, Batch, peek_header_bytes};
use format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};

use crate::Result;
use crate::io_tally::{IoKind, IoTally};
use crate::store::Store;

/// Bytes read at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// One zone's bytes, read window by window.
struct Window<'s> {
    store: &'s Store,
    io: Arc<IoTally>,
    base: u64,
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
            self.store.device.read_at(self.base + offset as u64, &mut self.bytes)?;
            self.io.count(IoKind::Other, self.bytes.len() as u64);
            self.start = offset;
        }
        Ok(&self.bytes[offset - self.start..end - self.start])
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
    store.device.read_at(store.zone_offset(zone), &mut bytes)?;
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
    let mut window = Window { store, io, base, start: 0, bytes: Vec::new() };
    let mut offset = SEGMENT_HEADER_BYTES;
    let mut end = ScanEnd { end: SEGMENT_HEADER_BYTES as u32, gap_bytes: 0 };
    while offset + format::batch::BATCH_HEADER_FIXED_BYTES <= zone_bytes {
        let fixed = window.get(offset, format::batch::BATCH_HEADER_FIXED_BYTES)?;
        let taken = match peek_header_bytes(fixed) {
            Ok(length) => {
                let bytes = window.get(offset, length as usize)?;
                match Batch::decode(bytes) {
                    Ok(batch) if belongs(&batch, header, offset, zone_bytes) => {
                        visit(&batch)?;
                        batch.total_bytes() as usize
                    }
                    _ => 0,
                }
            }
            Err(_) => 0,
        };
        if taken == 0 && offset == end.end as usize && heal_batch(store, header, offset) {
            window.bytes.clear();
            continue;
        }
        if taken == 0 {
            offset += BATCH_ALIGNMENT as usize;
            continue;
        }
        let offset_32 = u32::try_from(offset).expect("zones are at most 32 MiB");
        end.gap_bytes += u64::from(offset_32 - end.end);
        offset += taken;
        end.end = u32::try_from(offset).expect("zones are at most 32 MiB");
    }
    Ok(end)
}

/// Whether another copy has a batch where this one has none; it has it then too. What is no batch
/// on any copy is the end of what was written.
fn heal_batch(store: &Store, header: &SegmentHeader, offset: usize) -> bool {
    let zone_bytes = usize::try_from(store.zone_bytes).expect("zones are at most 32 MiB");
    let at = store.zone_offset(header.zone) + offset as u64;
    let right = |bytes: &[u8]| {
        Batch::decode(bytes).is_ok_and(|batch| belongs(&batch, header, offset, zone_bytes))
    };
    let copies = store.device.copies(at, format::batch::BATCH_HEADER_FIXED_BYTES as u64);
    (0..copies).filter(|_| copies > 1).any(|copy| {
        let mut bytes = vec![0; format::batch::BATCH_HEADER_FIXED_BYTES];
        let read = |bytes: &mut [u8]| store.device.read_copy(copy, at, bytes).is_ok();
        let length = if read(&mut bytes) { peek_header_bytes(&bytes).ok() } else { None };
        let Some(length) = length.filter(|&n| offset + n as usize <= zone_bytes) else {
            return false;
        };
        bytes.resize(length as usize, 0);
        read(&mut bytes) && right(&bytes) && store.heal(at, &mut bytes, &right)
    })
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
