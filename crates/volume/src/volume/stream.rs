//! The stream of a volume's writes: the cache in which they wait, the log with its times, and the
//! present, from which reads come.
//!
//! Invariant: the present changes only while the log's gate is closed.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::{Rank, RankedRwLock};
use history::{Log, TimeIndex, Timeline};
use units::{Seq, Span, WallTime};

use crate::Result;
use crate::jobs::passes::{Pending, Reclamation};
use crate::placement::current_store::CurrentStore;
use crate::read::snapshot::Opening;
use crate::types::Stamp;
use crate::volume::identity::Identity;
use crate::write::cache::Cache;

/// Counters since the pool was opened.
#[derive(Debug, Default)]
pub struct Tally {
    /// Reads.
    pub reads: AtomicU64,
    /// Bytes read.
    pub read_bytes: AtomicU64,
    /// Writes.
    pub writes: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
    /// Flushes.
    pub flushes: AtomicU64,
    /// Reads that met a wrong checksum.
    pub checksum_errors: AtomicU64,
}

/// The data of a volume: what waits, what is logged, what is present, and what is to be reclaimed
/// of it; with the counts of requests.
pub struct Stream {
    identity: Identity,
    log: Log,
    times: TimeIndex,
    /// Blocks that wait to be written and blocks that were read, if it has a cache.
    cache: Cache,
    present: RankedRwLock<Arc<Opening>>,
    pending: Pending,
    /// The entries that the opening found in the log are not in runs yet. No mark tells of a flush
    /// of it: a mark stands in the segment that is written to, so a flush writes the map out.
    has_recovered: AtomicBool,
    reclamation: Reclamation,
    tally: Tally,
}

impl Deref for Stream {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.identity
    }
}

impl Stream {
    /// That of a recovered log, with a present; `has_recovered` when the map does not know all of
    /// the log.
    pub fn new(
        identity: Identity,
        (log, times): (Log, TimeIndex),
        present: Arc<Opening>,
        has_recovered: bool,
    ) -> Stream {
        let granularity = identity.granularity_now();
        Stream {
            identity,
            log,
            times,
            cache: Cache::new(granularity),
            present: RankedRwLock::new(Rank::Present, present),
            pending: Pending::default(),
            has_recovered: AtomicBool::new(has_recovered),
            reclamation: Reclamation::default(),
            tally: Tally::default(),
        }
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) fn times(&self) -> &TimeIndex {
        &self.times
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(crate) fn pending(&self) -> &Pending {
        &self.pending
    }

    pub(crate) fn reclamation(&self) -> &Reclamation {
        &self.reclamation
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whether the map does not know all that the opening found in the log.
    pub(crate) fn has_recovered(&self) -> bool {
        self.has_recovered.load(Ordering::Acquire)
    }

    /// The map knows it.
    pub(crate) fn note_recovered_flushed(&self) {
        self.has_recovered.store(false, Ordering::Release);
    }

    /// Bytes of the present.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.present().size_bytes
    }

    pub(crate) fn present(&self) -> Arc<Opening> {
        Arc::clone(&self.present.read())
    }

    /// The present is another from now on; the log's gate is closed.
    pub(crate) fn set_present(
        &self,
        timeline: Arc<Timeline>,
        size_bytes: u64,
        current: Option<Arc<CurrentStore>>,
    ) {
        assert!(self.log.stands_still(), "the present changes while the gate is closed");
        let volume = (self.id, self.name.clone());
        *self.present.write() =
            self.core.open(volume, timeline, Seq(u64::MAX), (size_bytes, current));
    }

    /// The time now, never before the latest write.
    #[must_use]
    pub fn now(&self) -> WallTime {
        let last = self.log.last_time().max(self.cache.last_time());
        self.core.machine.clock.wall().max(last)
    }

    /// The time in the history that was so long ago, and no later than now. A clock that was set
    /// back is no time that passed.
    #[must_use]
    pub fn time_ago(&self, span: Span) -> WallTime {
        // The one that gave the last time knows how long ago that was.
        let cached = self.cache.time_ago(&self.core.store, span.0);
        self.log.time_ago(span.0).max(cached).min(self.now())
    }

    /// By how much the time of the last write is ahead of the clock, in nanoseconds.
    #[must_use]
    pub fn time_ahead_ns(&self) -> u64 {
        // The clock is asked last: it goes on, and a write meanwhile is not ahead of it.
        let last = self.log.last_time().max(self.cache.last_time());
        last.as_nanos().saturating_sub(self.core.machine.clock.wall().as_nanos())
    }

    /// The seq of the last write in the log before which no other is under way.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.log.stable()
    }

    /// The present's stamp, also of what waits in the cache: it keeps its number.
    pub(crate) fn latest_told(&self) -> Result<Stamp> {
        match self.cache.latest() {
            Some(stamp) => Ok(stamp),
            None => self.latest(),
        }
    }

    /// The stamp of the last write that is in the log: the present's, where a volume stands still.
    pub(crate) fn latest(&self) -> Result<Stamp> {
        let seq = match self.log.settle() {
            Ok(seq) => seq,
            // After a failed write some never end: the present is what all before it left.
            Err(_) => self.log.stable(),
        };
        self.stamp(seq)
    }

    /// Device requests by kind since the pool was opened.
    pub fn device_io(&self) -> Vec<history::IoCount> {
        self.core.store.io(self.id).counts().to_vec()
    }
}
