//! Device requests of one log's volume, counted by what they were for.
//!
//! The count per write of a client is what the architectures are compared by (Laden, figure 5). A
//! request is one call of the device, vectored or not; its blocks show in the bytes. A read that
//! would have had to wait and was given up is none.

use std::sync::atomic::{AtomicU64, Ordering};

/// The purpose of a device request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Blocks of the present, in place.
    CurrentRead,
    /// The same, written.
    CurrentWrite,
    /// Blocks in the log.
    HistoryRead,
    /// A batch appended to the log.
    HistoryWrite,
    /// The same where the log only keeps what is on its way into place.
    JournalWrite,
    /// Before-images: what lies in place and is to be overwritten there is read once more.
    BeforeImageRead,
    /// The same, written to the log.
    BeforeImageWrite,
    /// Blocks in the log whose places were left for later, read to be put in place.
    DeferredRead,
    /// The same, written in place.
    DeferredWrite,
    /// Blocks read to be put elsewhere for any other reason.
    CopyRead,
    /// The same, written.
    CopyWrite,
    /// Pages of map and time runs.
    MapRead,
    /// The same, written.
    MapWrite,
    /// Headers of segments, flush marks, and what recovery reads.
    Other,
}

units::names!(
    IoKind: CurrentRead "current-read",
    CurrentWrite "current-write",
    HistoryRead "history-read",
    HistoryWrite "history-write",
    JournalWrite "journal-write",
    BeforeImageRead "before-image-read",
    BeforeImageWrite "before-image-write",
    DeferredRead "deferred-read",
    DeferredWrite "deferred-write",
    CopyRead "copy-read",
    CopyWrite "copy-write",
    MapRead "map-read",
    MapWrite "map-write",
    Other "other"
);

/// How many kinds there are.
const KINDS: usize = IoKind::ALL.len();

/// Requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoCount {
    /// Which kind.
    pub kind: IoKind,
    /// How many.
    pub requests: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Of these, the headers of batches that are appended to the log.
    pub header_bytes: u64,
}

#[derive(Debug, Default)]
struct Cell {
    requests: AtomicU64,
    bytes: AtomicU64,
    header_bytes: AtomicU64,
}

/// Counters since the pool was opened.
#[derive(Debug, Default)]
pub struct IoTally {
    cells: [Cell; KINDS],
}

impl IoTally {
    /// Counts one request.
    pub fn count(&self, kind: IoKind, bytes: u64) {
        let cell = &self.cells[kind as usize];
        cell.requests.fetch_add(1, Ordering::Relaxed);
        cell.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts one request that appends batches: bytes of headers, and of what is behind them.
    pub fn count_batches(&self, kind: IoKind, header_bytes: u64, payload_bytes: u64) {
        self.count(kind, header_bytes + payload_bytes);
        self.cells[kind as usize].header_bytes.fetch_add(header_bytes, Ordering::Relaxed);
    }

    /// The counts, in the order of [`IoKind::ALL`].
    pub fn counts(&self) -> [IoCount; KINDS] {
        IoKind::ALL.map(|kind| {
            let cell = &self.cells[kind as usize];
            IoCount {
                kind,
                requests: cell.requests.load(Ordering::Relaxed),
                bytes: cell.bytes.load(Ordering::Relaxed),
                header_bytes: cell.header_bytes.load(Ordering::Relaxed),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{IoKind, IoTally};

    #[test]
    fn every_kind_has_a_place_and_a_name_of_its_own() {
        let tally = IoTally::default();
        for (times, kind) in (1..).zip(IoKind::ALL) {
            (0..times).for_each(|_| tally.count(kind, 10));
        }
        let mut names = Vec::new();
        for (times, count) in (1..).zip(tally.counts()) {
            assert_eq!((count.requests, count.bytes), (times, times * 10), "{:?}", count.kind);
            names.push(count.kind.name());
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), IoKind::ALL.len());
    }
}
