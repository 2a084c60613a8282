//! What `blktrace` writes: records of 48 bytes and what hangs on them, in the byte order of the
//! machine that wrote them.
//!
//! One file a processor; several are merged like any inputs. Requests that the kernel merged are
//! queued one by one, so `Queue` events are what programs asked for.

use std::io::Read;

use super::base::{BlockEvent, Decoder, Input, Shared, Spot, cannot_read, flush};
use crate::error::Result;
use crate::{Request, RequestKind};

const RECORD_BYTES: usize = 48;
/// The magic of version 7; the lowest byte is the version.
const MAGIC: u32 = 0x6561_7407;
const SECTOR_BYTES: u64 = 512;

/// Bits of the upper half of `action`: what the request is.
const IS_WRITE: u32 = 1 << 1;
const IS_FLUSH: u32 = 1 << 2;
const IS_NOTICE: u32 = 1 << 10;
const IS_DISCARD: u32 = 1 << 13;
const IS_FUA: u32 = 1 << 15;
/// The lower half: what happened to it. Higher bits of it are flags.
const EVENT_BITS: u32 = 0xff;
const MINOR_BITS: u32 = 20;

/// Whether these bytes begin with a record.
pub(super) fn is_record(bytes: &[u8]) -> bool {
    bytes.first_chunk::<4>().is_some_and(|magic| byte_order(*magic).is_some())
}

/// How the writer orders bytes: whether the highest comes first.
fn byte_order(magic: [u8; 4]) -> Option<bool> {
    match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
        (MAGIC, _) => Some(false),
        (_, MAGIC) => Some(true),
        _ => None,
    }
}

pub(super) struct Blktrace {
    input: Input,
    event: BlockEvent,
    byte: u64,
    /// The write whose flush was just given out.
    pending: Option<Request>,
    is_at_end: bool,
}

impl Blktrace {
    pub(super) fn new(input: Input, event: BlockEvent) -> Blktrace {
        Blktrace { input, event, byte: 0, pending: None, is_at_end: false }
    }

    /// Fills `bytes` as far as the input goes.
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.bytes.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(cannot_read(&self.input.name, e)),
            }
        }
        self.byte += filled as u64;
        Ok(filled)
    }

    /// Ends the input at something that is no record: what follows cannot be found.
    fn stop(&mut self, shared: &mut Shared, byte: u64, reason: &str, bytes: &[u8]) -> Result<()> {
        self.is_at_end = true;
        shared.malformed(&self.input.name, Spot { line: 0, byte }, reason, bytes)
    }

    /// The next record that is of the event asked for.
    fn record(&mut self, shared: &mut Shared) -> Result<Option<Record>> {
        while !self.is_at_end {
            let at = self.byte;
            let mut bytes = [0; RECORD_BYTES];
            let filled = self.read(&mut bytes)?;
            if filled == 0 {
                self.is_at_end = true;
                break;
            }
            if filled < RECORD_BYTES {
                self.stop(shared, at, "a record that was cut off", &bytes[..filled])?;
                break;
            }
            let Some(record) = Record::decode(&bytes) else {
                self.stop(shared, at, "no record: reading ends here", &bytes)?;
                break;
            };
            let mut tail = vec![0; usize::from(record.tail_bytes)];
            if self.read(&mut tail)? < tail.len() {
                self.stop(shared, at, "a record that was cut off", &bytes)?;
            }
            if record.is_of(self.event) {
                return Ok(Some(record));
            }
            shared.report.skipped += 1;
        }
        Ok(None)
    }
}

impl Decoder for Blktrace {
    fn next(&mut self, shared: &mut Shared) -> Result<Option<Request>> {
        if let Some(request) = self.pending.take() {
            return Ok(Some(request));
        }
        while let Some(record) = self.record(shared)? {
            let (major, minor) = (record.device >> MINOR_BITS, record.device << 12 >> 12);
            let name = format!("{major}:{minor}");
            let device = shared.devices.number(name.as_bytes())?;
            let request = record.request(device);
            if record.what & IS_FLUSH != 0 {
                self.pending = request.filter(Request::is_valid);
                return Ok(Some(flush(record.time_ns, device)));
            }
            match request {
                Some(request) if request.is_valid() => return Ok(Some(request)),
                Some(_) => {
                    let spot = Spot { line: 0, byte: self.byte };
                    shared.malformed(&self.input.name, spot, "a range beyond 2^63 bytes", &[])?;
                }
                None => shared.report.skipped += 1,
            }
        }
        Ok(None)
    }
}

struct Record {
    time_ns: u64,
    sector: u64,
    bytes: u32,
    /// The upper half of the action.
    what: u32,
    event: u32,
    device: u32,
    tail_bytes: u16,
}

impl Record {
    fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
        let is_big = byte_order([bytes[0], bytes[1], bytes[2], bytes[3]])?;
        let number = |offset: usize, size: usize| {
            let field = &bytes[offset..offset + size];
            let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
            if is_big { field.iter().fold(0, join) } else { field.iter().rev().fold(0, join) }
        };
        let action = number(28, 4) as u32;
        Some(Record {
            time_ns: number(8, 8),
            sector: number(16, 8),
            bytes: number(24, 4) as u32,
            what: action >> 16,
            event: action & EVENT_BITS,
            device: number(36, 4) as u32,
            tail_bytes: number(46, 2) as u16,
        })
    }

    fn is_of(&self, event: BlockEvent) -> bool {
        let number = match event {
            BlockEvent::Queue => 1,
            BlockEvent::Issue => 7,
            BlockEvent::Complete => 8,
        };
        self.what & IS_NOTICE == 0 && self.event == number
    }

    /// What it asks for besides a flush.
    fn request(&self, device: u32) -> Option<Request> {
        if self.bytes == 0 {
            return None;
        }
        let kind = if self.what & IS_DISCARD != 0 {
            RequestKind::Trim
        } else if self.what & IS_WRITE != 0 {
            RequestKind::Write
        } else {
            RequestKind::Read
        };
        Some(Request {
            time_ns: self.time_ns,
            device,
            kind,
            is_fua: self.what & IS_FUA != 0,
            // An offset that does not fit makes a range that is not valid.
            offset_bytes: self.sector.saturating_mul(SECTOR_BYTES),
            length_bytes: u64::from(self.bytes),
        })
    }
}
