//! Snapshots at demand as Xiao et al. have them: copy-on-write and redirect-on-write with blocks of
//! a fixed size, request by request.
//!
//! 1. Requests are cut at the ends of blocks. A part of a block that is not whole is merged with
//!    what the block holds.
//! 2. Neighbouring blocks in one place are one device I/O: a request reads a run of the source in
//!    one go. Copies and redirected blocks go to the snapshot's store one by one, as they come.

use std::collections::HashSet;

use serde::Serialize;

use model::{Error, Result};
use model::{MixedState, mix};
use trace::{Request, RequestKind};

/// What a snapshot costs at a first write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotMethod {
    /// The old block is copied to the snapshot's store, then overwritten: `checkpointing`.
    CopyOnWrite,
    /// The new block goes to the snapshot's store, and the old one stays: `redirect`.
    RedirectOnWrite,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SnapshotIos {
    /// Write requests.
    pub write_requests: u64,
    /// Read requests.
    pub read_requests: u64,
    /// Device reads for writes.
    pub reads_for_writes: u64,
    /// Device writes for writes.
    pub writes_for_writes: u64,
    /// Device reads for reads.
    pub reads_for_reads: u64,
    /// Bytes that clients wrote.
    pub written_bytes: u64,
    /// Bytes that the snapshot's store holds.
    pub stored_bytes: u64,
    /// Blocks that were written for the first time after the capture.
    pub first_writes: u64,
}

impl SnapshotIos {
    /// Device I/Os for one write request.
    #[must_use]
    pub fn per_write(&self) -> f64 {
        let ios = self.reads_for_writes + self.writes_for_writes;
        ios as f64 / (self.write_requests as f64).max(1.0)
    }

    /// Device I/Os for one read request.
    #[must_use]
    pub fn per_read(&self) -> f64 {
        self.reads_for_reads as f64 / (self.read_requests as f64).max(1.0)
    }

    /// Device I/Os for one request.
    #[must_use]
    pub fn per_request(&self) -> f64 {
        let ios = self.reads_for_writes + self.writes_for_writes + self.reads_for_reads;
        ios as f64 / ((self.write_requests + self.read_requests) as f64).max(1.0)
    }
}

/// A source with one snapshot that was captured before the first request.
pub struct Snapshots {
    method: SnapshotMethod,
    block_bytes: u64,
    moved: HashSet<u64, MixedState>,
    ios: SnapshotIos,
}

impl Snapshots {
    /// A capture with blocks of this size.
    ///
    /// # Errors
    /// `Setting` for a size that is none of 512 B to 1 MiB and a power of two.
    pub fn new(method: SnapshotMethod, block_bytes: u64) -> Result<Snapshots> {
        if !block_bytes.is_power_of_two() || !(512..=1 << 20).contains(&block_bytes) {
            return Err(Error::setting(format!("snapshot blocks of {block_bytes} bytes"))
                .with_hint("give a power of two, 512 to 1MiB"));
        }
        let moved = HashSet::with_hasher(MixedState::default());
        Ok(Snapshots { method, block_bytes, moved, ios: SnapshotIos::default() })
    }

    /// One request.
    pub fn add(&mut self, request: &Request) {
        let blocks =
            request.offset_bytes / self.block_bytes..request.end_bytes().div_ceil(self.block_bytes);
        match request.kind {
            RequestKind::Read => {
                self.ios.read_requests += 1;
                self.read(request, blocks);
            }
            RequestKind::Write => {
                self.ios.write_requests += 1;
                self.ios.written_bytes += request.length_bytes;
                for block in blocks {
                    self.write(request, block);
                }
                // One write of the source for the whole request, once its blocks are copied.
                self.ios.writes_for_writes += u64::from(self.method == SnapshotMethod::CopyOnWrite);
            }
            _ => {}
        }
    }

    fn key(request: &Request, block: u64) -> u64 {
        mix(u64::from(request.device) << 48 | block)
    }

    fn write(&mut self, request: &Request, block: u64) {
        let from = block * self.block_bytes;
        let is_whole =
            request.offset_bytes <= from && request.end_bytes() >= from + self.block_bytes;
        let is_first = self.moved.insert(Self::key(request, block));
        self.ios.first_writes += u64::from(is_first);
        self.ios.stored_bytes += if is_first { self.block_bytes } else { 0 };
        match self.method {
            SnapshotMethod::CopyOnWrite if is_first => {
                self.ios.reads_for_writes += 1;
                self.ios.writes_for_writes += 1;
            }
            SnapshotMethod::CopyOnWrite => {}
            SnapshotMethod::RedirectOnWrite => {
                // The rest of the block comes from the source, once; later parts go over it.
                self.ios.reads_for_writes += u64::from(is_first && !is_whole);
                self.ios.writes_for_writes += 1;
            }
        }
    }

    /// Runs of blocks of the source, and single blocks of the snapshot's store.
    fn read(&mut self, request: &Request, blocks: std::ops::Range<u64>) {
        if self.method == SnapshotMethod::CopyOnWrite {
            self.ios.reads_for_reads += 1;
            return;
        }
        let mut was_source = false;
        for block in blocks {
            let is_source = !self.moved.contains(&Self::key(request, block));
            self.ios.reads_for_reads += u64::from(!(is_source && was_source));
            was_source = is_source;
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn ios(&self) -> SnapshotIos {
        self.ios
    }
}

#[cfg(test)]
mod tests {
    use super::{SnapshotMethod, Snapshots};
    use trace::{Request, RequestKind};

    fn request(kind: RequestKind, offset_bytes: u64, length_bytes: u64) -> Request {
        Request { time_ns: 0, device: 0, kind, is_fua: false, offset_bytes, length_bytes }
    }

    #[test]
    fn a_first_write_costs_one_read_and_two_writes_or_one_redirected() {
        let write = request(RequestKind::Write, 4096, 4096);
        let mut copy = Snapshots::new(SnapshotMethod::CopyOnWrite, 4096).unwrap();
        copy.add(&write);
        assert_eq!((copy.ios().reads_for_writes, copy.ios().writes_for_writes), (1, 2));
        copy.add(&write);
        assert_eq!((copy.ios().reads_for_writes, copy.ios().writes_for_writes), (1, 3));
        let mut redirect = Snapshots::new(SnapshotMethod::RedirectOnWrite, 4096).unwrap();
        redirect.add(&write);
        assert_eq!((redirect.ios().reads_for_writes, redirect.ios().writes_for_writes), (0, 1));
    }

    #[test]
    fn requests_are_cut_at_blocks_and_parts_are_merged() {
        // Blocks of 4 KiB, from 3 KiB on, 8 KiB long: 3 to 4, 4 to 8, 8 to 11.
        let write = request(RequestKind::Write, 3 << 10, 8 << 10);
        let mut redirect = Snapshots::new(SnapshotMethod::RedirectOnWrite, 4096).unwrap();
        redirect.add(&write);
        let ios = redirect.ios();
        assert_eq!((ios.reads_for_writes, ios.writes_for_writes, ios.first_writes), (2, 3, 3));
        assert_eq!(ios.stored_bytes, 12 << 10);
        // A read over the source, the three blocks and the source again.
        redirect.add(&request(RequestKind::Read, 0, 64 << 10));
        assert_eq!(redirect.ios().reads_for_reads, 4);
        redirect.add(&request(RequestKind::Read, 16 << 10, 64 << 10));
        assert_eq!(redirect.ios().reads_for_reads, 5);
    }
}
