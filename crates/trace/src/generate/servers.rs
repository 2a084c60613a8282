//! Stand-ins for two benchmarks of servers that DARC ran and that cannot be shipped: TPC-H on a
//! database and `JetStress`. What DARC's text says of them is kept; the rest is ours, and said
//! here.

use std::collections::VecDeque;

use super::random::{Arrivals, Random};
use super::step::{Step, check_capacity, check_rate};
use crate::error::Result;
use crate::{Request, RequestKind};

const SECTOR_BYTES: u64 = 512;

/// Requests like those of a mail store: pages of a database, and its log.
///
/// From DARC: the mix of operations (Table 2: 25 % insert, 10 % delete, 50 % replace, 15 % read),
/// log writes of 2.9 KB on average and mostly sequential (3.2), and how much log a page written
/// stands for (Table 3: 70.32 writes of 2.9 KB for 556.79 pages, 366 bytes each).
///
/// Ours: each operation reads one page of 8 KiB, all alike often; all but `read` write it back,
/// when 64 more pages are waiting to be. That gives 1.18 reads for a write; Table 3 has 1.22.
pub(super) struct Mail {
    arrivals: Arrivals,
    pages: u64,
    log_sectors: u64,
    next_log_sector: u64,
    /// Pages that were changed and not yet written.
    dirty: VecDeque<u64>,
    /// Bytes of log that were not yet written, and with how many they are.
    log_bytes: u64,
    log_write_bytes: u64,
    /// Requests of operations that were begun.
    waiting: VecDeque<(u32, RequestKind, u64, u64)>,
}

/// Bytes of a page: Exchange 2007's.
const PAGE_BYTES: u64 = 8 << 10;
/// Operations in a hundred that change nothing.
const READ_PERCENT: u64 = 15;
/// Pages that wait to be written.
const DIRTY_PAGES: usize = 64;
/// Bytes of log that a changed page leaves.
const LOG_RECORD_BYTES: u64 = 366;
/// Bytes of a write of the log: four in five are long, which makes 2.9 KB.
const LOG_WRITE_BYTES: u64 = 3072;
const LOG_WRITE_BYTES_SHORT: u64 = 2560;
const LOG_SHORT_PERCENT: u64 = 20;
/// Numbers of the devices.
const DATA: u32 = 0;
const LOG: u32 = 1;

impl Mail {
    pub(super) fn new(rate: f64, data_bytes: u64, log_bytes: u64) -> Result<Mail> {
        Ok(Mail {
            arrivals: Arrivals::new(check_rate(rate)?),
            pages: check_capacity(data_bytes, PAGE_BYTES, 1)?,
            log_sectors: check_capacity(log_bytes, SECTOR_BYTES, LOG_WRITE_BYTES / SECTOR_BYTES)?,
            next_log_sector: 0,
            dirty: VecDeque::new(),
            log_bytes: 0,
            log_write_bytes: LOG_WRITE_BYTES,
            waiting: VecDeque::new(),
        })
    }

    fn operation(&mut self, random: &mut Random) {
        let page = random.below(self.pages);
        self.waiting.push_back((DATA, RequestKind::Read, page * PAGE_BYTES, PAGE_BYTES));
        if random.percent(READ_PERCENT) {
            return;
        }
        self.dirty.push_back(page);
        if self.dirty.len() > DIRTY_PAGES
            && let Some(oldest) = self.dirty.pop_front()
        {
            self.waiting.push_back((DATA, RequestKind::Write, oldest * PAGE_BYTES, PAGE_BYTES));
        }
        self.log_bytes += LOG_RECORD_BYTES;
        if self.log_bytes >= self.log_write_bytes {
            let sectors = self.log_write_bytes / SECTOR_BYTES;
            if self.next_log_sector + sectors > self.log_sectors {
                self.next_log_sector = 0;
            }
            let offset = self.next_log_sector * SECTOR_BYTES;
            self.waiting.push_back((LOG, RequestKind::Write, offset, sectors * SECTOR_BYTES));
            self.next_log_sector += sectors;
            self.log_bytes -= self.log_write_bytes;
            let is_short = random.percent(LOG_SHORT_PERCENT);
            self.log_write_bytes = if is_short { LOG_WRITE_BYTES_SHORT } else { LOG_WRITE_BYTES };
        }
    }
}

impl Step for Mail {
    fn step(&mut self, random: &mut Random) -> Request {
        let time_ns = self.arrivals.next(random);
        loop {
            if let Some((device, kind, offset_bytes, length_bytes)) = self.waiting.pop_front() {
                // A database's log is written through; its pages are not.
                let is_fua = device == LOG;
                return Request { time_ns, device, kind, is_fua, offset_bytes, length_bytes };
            }
            self.operation(random);
        }
    }
}

/// Requests like those of queries over a database: passes over all of it, with look-ups between.
///
/// From DARC: only reads but for "a number of small write I/O requests" (3.2). Ours: all the rest.
/// A pass reads everything in 64 KiB, in order; after each 16 of these a page of 16 KiB at a random
/// place (an index), and one request in 200 is a write of 4 KiB at a random place.
pub(super) struct Queries {
    arrivals: Arrivals,
    chunks: u64,
    next_chunk: u64,
    count: u64,
}

const CHUNK_BYTES: u64 = 64 << 10;
const LOOK_UP_BYTES: u64 = 16 << 10;
const SMALL_WRITE_BYTES: u64 = 4 << 10;
const LOOK_UP_EVERY: u64 = 17;
const WRITE_EVERY: u64 = 200;

impl Queries {
    pub(super) fn new(rate: f64, capacity_bytes: u64) -> Result<Queries> {
        let chunks = check_capacity(capacity_bytes, CHUNK_BYTES, 1)?;
        let arrivals = Arrivals::new(check_rate(rate)?);
        Ok(Queries { arrivals, chunks, next_chunk: 0, count: 0 })
    }
}

impl Step for Queries {
    fn step(&mut self, random: &mut Random) -> Request {
        let time_ns = self.arrivals.next(random);
        self.count += 1;
        let mut anywhere = |length: u64| {
            let places = self.chunks * (CHUNK_BYTES / length);
            (random.below(places) * length, length)
        };
        let mut kind = RequestKind::Read;
        let (offset_bytes, length_bytes) = if self.count.is_multiple_of(WRITE_EVERY) {
            kind = RequestKind::Write;
            anywhere(SMALL_WRITE_BYTES)
        } else if self.count.is_multiple_of(LOOK_UP_EVERY) {
            anywhere(LOOK_UP_BYTES)
        } else {
            let chunk = self.next_chunk;
            self.next_chunk = (chunk + 1) % self.chunks;
            (chunk * CHUNK_BYTES, CHUNK_BYTES)
        };
        Request { time_ns, device: 0, kind, is_fua: false, offset_bytes, length_bytes }
    }
}
