//! Reading a segment's batches back: for recovery and for rebuilding the map.
//!
//! A batch that was reserved but never written leaves a hole, and later batches may follow it; so
//! where no batch decodes, the scan goes on at the next aligned offset. Bytes that a client wrote
//! to look like a batch are not taken for one: they lack the segment's nonce.

use std::sync::Arc;

use format::FormatErrorKind;
use format::batch::{
    BATCH_ALIGNMENT, BATCH_HEADER_FIXED_BYTES, Batch, BatchKind, MAGIC, peek_header_bytes,
};
use format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, is_nonce_of};

use crate::Result;
use crate::io_tally::{IoKind, IoTally};
use crate::store::Store;

/// Bytes read at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// The same of each way, where copies say different things: they do so by cells.
const WAY_WINDOW_BYTES: usize = 4 << 10;
/// Bytes that are read in ways for one segment, at most: what is lost shall not keep all waiting.
const WAYS_BYTES_MAX: usize = 256 << 20;
/// Ways that are tried, at most.
const WAYS_MAX: usize = 1024;

/// Stands for bytes of a copy that cannot be read: no header.
const UNREAD: u8 = 0xdb;

/// The bytes that are read of a zone.
#[derive(Clone, Copy)]
enum Of {
    /// Those that readers get.
    Readers,
    Copy(usize),
    Way(usize),
}

/// One zone's bytes, read window by window.
struct Window<'s> {
    store: &'s Store,
    io: Arc<IoTally>,
    base: u64,
    of: Of,
    start: usize,
    bytes: Vec<u8>,
    /// All that was read.
    read_bytes: usize,
}

impl Window<'_> {
    /// `length` bytes at `offset` in the zone, or fewer at its end.
    fn get(&mut self, offset: usize, length: usize) -> Result<&[u8]> {
        let zone_bytes = usize::try_from(self.store.zone_bytes).expect("zones are at most 32 MiB");
        let end = (offset + length).min(zone_bytes);
        if offset < self.start || end > self.start + self.bytes.len() {
            let whole = match self.of {
                Of::Readers | Of::Copy(_) => WINDOW_BYTES,
                // To the end of a cell.
                Of::Way(_) => WAY_WINDOW_BYTES - offset % WAY_WINDOW_BYTES,
            };
            let size = whole.max(length).min(zone_bytes - offset);
            self.bytes.resize(size, 0);
            let (device, at) = (&self.store.device, self.base + offset as u64);
            let read = match self.of {
                Of::Readers => device.read_at(at, &mut self.bytes),
                Of::Copy(copy) => device.read_copy(copy, at, &mut self.bytes),
                Of::Way(way) => device.read_way(way, at, &mut self.bytes),
            };
            match (read, self.of) {
                (Err(error), Of::Readers) => return Err(error.into()),
                (Err(_), Of::Copy(_) | Of::Way(_)) => self.bytes.fill(UNREAD),
                (Ok(()), _) => {}
            }
            self.io.count(IoKind::Other, self.bytes.len() as u64);
            self.start = offset;
            self.read_bytes += size;
        }
        Ok(&self.bytes[offset - self.start..end - self.start])
    }

    /// The header of the segment's batch at an offset, if there is one.
    fn header(&mut self, segment: &SegmentHeader, offset: usize) -> Result<Option<&[u8]>> {
        let fixed = self.get(offset, BATCH_HEADER_FIXED_BYTES)?;
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

/// The outcome of a scan.
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

/// The header of a segment whose own is damaged, as far as its first batch tells: all but the log,
/// which is 0 here (the second value is a timeline of it). `None` when no batch is there that
/// proves to be of the segment. `nonce` is the segment's, where that is known.
///
/// # Errors
/// Those of the device.
pub fn header_from_batch(
    store: &Store,
    (zone, number): (u32, u64),
    nonce: Option<u64>,
) -> Result<Option<(SegmentHeader, u64)>> {
    let at = store.zone_offset(zone) + SEGMENT_HEADER_BYTES as u64;
    let mut bytes = vec![0; BATCH_HEADER_FIXED_BYTES];
    store.device.read_at(at, &mut bytes)?;
    let Ok(length) = peek_header_bytes(&bytes) else { return Ok(None) };
    bytes.resize((length as usize).min(store.zone_bytes as usize - SEGMENT_HEADER_BYTES), 0);
    store.device.read_at(at, &mut bytes)?;
    let Ok(batch) = Batch::decode(&bytes) else { return Ok(None) };
    let first = batch.header;
    // A client may have written what looks like a batch, when the zone was something else.
    let is_its = first.segment == number
        && first.offset as usize == SEGMENT_HEADER_BYTES
        && first.kind == BatchKind::Writes
        && nonce
            .map_or_else(|| is_nonce_of(store.secret, number, first.nonce), |n| n == first.nonce);
    let header = SegmentHeader {
        pool_id: store.pool_id,
        segment: number,
        zone,
        log: 0,
        nonce: first.nonce,
        created: first.time,
        first_seq: first.base_seq,
    };
    Ok(is_its.then_some((header, first.timeline)))
}

/// Visits the batches of a segment that begin before an offset, in the order of their offsets.
///
/// # Errors
/// Those of the device, and of `visit`.
pub fn scan_segment(
    store: &Store,
    header: &SegmentHeader,
    until: u32,
    mut visit: impl FnMut(&Batch<'_>) -> Result<()>,
) -> Result<ScanEnd> {
    let zone_bytes = usize::try_from(store.zone_bytes).expect("zones are at most 32 MiB");
    let base = store.zone_offset(header.zone);
    let io = store.io(header.log);
    let window = |of| {
        let (io, bytes) = (Arc::clone(&io), Vec::new());
        Window { store, io, base, of, start: 0, bytes, read_bytes: 0 }
    };
    // Leavings of a power cut may be on one copy only, behind a gap on all: all are looked at
    // everywhere, so that recovery knows of every batch that could ever be found.
    let copies = match store.device.copies(base, store.zone_bytes) {
        1 => 0,
        copies => copies,
    };
    let mut copies: Vec<Window<'_>> = (0..copies).map(|copy| window(Of::Copy(copy))).collect();
    // With a side missing and another wrong none of them may be right, where a way is.
    let ways = if copies.len() < 2 { 0 } else { store.device.ways().min(WAYS_MAX) };
    let mut ways: Vec<Window<'_>> = (0..ways).map(|way| window(Of::Way(way))).collect();
    let mut window = window(Of::Readers);
    // A home is written over: what a copy has may be sound and of before.
    let is_base = store.segment(header.segment).is_some_and(|segment| segment.slab.is_some());
    let mut offset = SEGMENT_HEADER_BYTES;
    let mut end = ScanEnd { end: SEGMENT_HEADER_BYTES as u32, gap_bytes: 0 };
    while offset + BATCH_HEADER_FIXED_BYTES <= zone_bytes.min(until as usize) {
        let healed;
        let found = match window.header(header, offset)? {
            Some(bytes) if !is_base || copies.is_empty() => Some(bytes),
            read => {
                let read = read.map(<[u8]>::to_vec);
                healed = newest(read, &mut copies, &mut ways, (header, offset))?;
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

/// The newest header of a batch that readers get or some copy has, or some way where copies say
/// different things; then all have it.
fn newest(
    read: Option<Vec<u8>>,
    copies: &mut [Window<'_>],
    ways: &mut [Window<'_>],
    at: (&SegmentHeader, usize),
) -> Result<Option<Vec<u8>>> {
    let mut newest = newest_of(copies, at)?;
    if newest.is_none() && read.is_none() && is_disputed(copies, at.1)? {
        let read_bytes: usize = ways.iter().map(|way| way.read_bytes).sum();
        if read_bytes < WAYS_BYTES_MAX {
            newest = newest_of(ways, at)?;
        }
    }
    let (Some(copy), Some(good)) = (copies.first(), &newest) else { return Ok(read) };
    // The outcome of writing it does not matter: it was there, and is told.
    let mut bytes = good.clone();
    copy.store.agree(copy.base + at.1 as u64, &mut bytes, &|bytes| bytes == *good);
    Ok(newest)
}

fn newest_of(
    windows: &mut [Window<'_>],
    (segment, offset): (&SegmentHeader, usize),
) -> Result<Option<Vec<u8>>> {
    let seq = |bytes: &[u8]| Batch::decode(bytes).map(|batch| batch.header.base_seq).ok();
    let mut newest: Option<Vec<u8>> = None;
    for window in windows {
        let found = window.header(segment, offset)?;
        if let Some(found) = found.filter(|f| newest.as_deref().and_then(seq) < seq(f)) {
            newest = Some(found.to_vec());
        }
    }
    Ok(newest)
}

/// Whether copies say different things where a header may begin, or one says that one does.
fn is_disputed(copies: &mut [Window<'_>], offset: usize) -> Result<bool> {
    let mut first: Option<[u8; BATCH_HEADER_FIXED_BYTES]> = None;
    for copy in copies {
        let fixed = copy.get(offset, BATCH_HEADER_FIXED_BYTES)?;
        let fixed: [u8; BATCH_HEADER_FIXED_BYTES] =
            fixed.try_into().expect("the scan ends where none fits");
        if fixed.starts_with(&MAGIC.to_le_bytes()) || *first.get_or_insert(fixed) != fixed {
            return Ok(true);
        }
    }
    Ok(false)
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
