//! Taps: recordings of the requests that clients make of the present of a volume.
//!
//! 1. While nobody records, a request costs one look at a number.
//! 2. A recording holds at most `REQUESTS_MAX` requests that nobody has fetched. More are counted,
//!    and the count stands where they would have been.
//! 3. Requests are noted when they are taken up, in one order with times that do not fall.
//! 4. Nothing is noted after the time that a recording was asked for, fetched or not.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use env::{Rank, RankedMutex, RankedRwLock};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use trace::Request;

use crate::attach::VolumeId;
use crate::prometheus::tell;

/// Requests that one recording holds for who fetches them: 2 MiB.
const REQUESTS_MAX: usize = 64 << 10;
/// Recordings at once.
const RECORDINGS_MAX: usize = 16;

/// All recordings of a server.
pub struct Taps {
    listening: AtomicUsize,
    by_volume: RankedRwLock<BTreeMap<VolumeId, Vec<Arc<Recording>>>>,
    recorded: AtomicU64,
    lost: AtomicU64,
}

/// The notes of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// A request.
    Request(Request),
    /// So many that had no room.
    Lost(u64),
}

struct Recording {
    began: Instant,
    length: Option<Duration>,
    notes: RankedMutex<VecDeque<Noted>>,
}

/// One recording; dropping it ends it.
pub(crate) struct Tap {
    taps: Arc<Taps>,
    volume: VolumeId,
    recording: Arc<Recording>,
    start_ns: u64,
}

impl Default for Taps {
    fn default() -> Taps {
        Taps {
            listening: AtomicUsize::default(),
            by_volume: RankedRwLock::new(Rank::Taps, BTreeMap::new()),
            recorded: AtomicU64::default(),
            lost: AtomicU64::default(),
        }
    }
}

impl Taps {
    /// Whether anything is recorded.
    #[inline]
    pub(crate) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed) > 0
    }

    /// Begins to record a volume, for so long or until the tap is dropped; `None` when as many
    /// recordings as may be are under way.
    pub(crate) fn listen(
        self: &Arc<Self>,
        volume: VolumeId,
        length: Option<Duration>,
    ) -> Option<Tap> {
        let mut by_volume = self.by_volume.write();
        if self.listening.load(Ordering::Relaxed) >= RECORDINGS_MAX {
            return None;
        }
        let (began, notes) = (Instant::now(), RankedMutex::default());
        let recording = Arc::new(Recording { began, length, notes });
        by_volume.entry(volume).or_default().push(Arc::clone(&recording));
        self.listening.fetch_add(1, Ordering::Relaxed);
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or(0);
        Some(Tap { taps: Arc::clone(self), volume, recording, start_ns })
    }

    /// Notes a request to the present of a volume.
    #[cold]
    pub(crate) fn note(&self, volume: VolumeId, request: &Request) {
        for recording in self.by_volume.read().get(&volume).into_iter().flatten() {
            let counter = match recording.note(request) {
                Some(true) => &self.recorded,
                Some(false) => &self.lost,
                None => continue,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Recordings under way; requests recorded and lost since the server began.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (self.listening.load(Ordering::Relaxed) as u64, of(&self.recorded), of(&self.lost))
    }
}

/// The metrics of recordings.
pub(crate) struct TapCollector(pub(crate) Arc<Taps>);

impl fmt::Debug for TapCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TapCollector")
    }
}

impl Collector for TapCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let (listening, recorded, lost) = self.0.counts();
        let told = ("hindsight_trace_recordings", "Recordings of volumes under way");
        tell(&mut encoder, told, ConstGauge::new(listening))?;
        for (name, help, value) in [
            ("hindsight_trace_requests", "Requests recorded", recorded),
            ("hindsight_trace_lost", "Requests that a recording had no room for", lost),
        ] {
            tell(&mut encoder, (name, help), ConstCounter::new(value))?;
        }
        Ok(())
    }
}

impl Recording {
    fn is_over(&self) -> bool {
        self.length.is_some_and(|length| self.began.elapsed() >= length)
    }

    /// Whether there was room; `None` when its time is over.
    fn note(&self, request: &Request) -> Option<bool> {
        let mut notes = self.notes.lock();
        // Under the lock, so that the order is that of the times.
        let elapsed = self.began.elapsed();
        if self.length.is_some_and(|length| elapsed >= length) {
            return None;
        }
        if notes.len() >= REQUESTS_MAX {
            match notes.back_mut() {
                Some(Noted::Lost(count)) => *count += 1,
                _ => notes.push_back(Noted::Lost(1)),
            }
            return Some(false);
        }
        let time_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        notes.push_back(Noted::Request(Request { time_ns, ..*request }));
        Some(true)
    }
}

impl Tap {
    /// Nanoseconds since 1970 at which its time is 0.
    pub(crate) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// Whether its time is over: what is noted then is all that will be.
    pub(crate) fn is_over(&self) -> bool {
        self.recording.is_over()
    }

    /// The notes since this was called last.
    pub(crate) fn take(&self) -> VecDeque<Noted> {
        std::mem::take(&mut *self.recording.notes.lock())
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let mut by_volume = self.taps.by_volume.write();
        if let Some(list) = by_volume.get_mut(&self.volume) {
            list.retain(|one| !Arc::ptr_eq(one, &self.recording));
            if list.is_empty() {
                by_volume.remove(&self.volume);
            }
        }
        self.taps.listening.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use trace::{Request, RequestKind};

    use super::{Noted, RECORDINGS_MAX, REQUESTS_MAX, Taps};
    use crate::serving::{RequestKind as Kind, as_in_traces};

    fn asked(kind: Kind, offset: u64, length_bytes: u64) -> Option<Request> {
        as_in_traces(kind, offset, length_bytes, true)
    }

    fn request(kind: Kind, offset: u64, length_bytes: u64) -> Request {
        asked(kind, offset, length_bytes).expect("traces have it")
    }

    #[test]
    fn a_recording_has_the_requests_to_its_volume_in_order() {
        let taps = Arc::new(Taps::default());
        assert!(!taps.is_listening());
        taps.note(1, &request(Kind::Read, 0, 512));
        let tap = taps.listen(1, None).expect("a free place");
        assert!(taps.is_listening());
        taps.note(1, &request(Kind::Write, 4096, 512));
        taps.note(2, &request(Kind::Write, 0, 512));
        taps.note(1, &request(Kind::Flush, 7, 9));
        assert_eq!(asked(Kind::Other, 0, 512), None);
        assert_eq!(asked(Kind::Read, 0, 0), None);
        let notes = tap.take();
        let [Noted::Request(write), Noted::Request(flush)] = [notes[0], notes[1]] else {
            panic!("two requests: {notes:?}");
        };
        assert_eq!((notes.len(), write.kind, write.offset_bytes), (2, RequestKind::Write, 4096));
        assert!(write.is_fua && write.time_ns <= flush.time_ns && flush.is_valid());
        drop(tap);
        assert!(!taps.is_listening());
        assert_eq!(taps.counts(), (0, 2, 0));
    }

    #[test]
    fn what_has_no_room_is_counted_in_its_place() {
        let taps = Arc::new(Taps::default());
        let tap = taps.listen(1, None).expect("a free place");
        for number in 0..REQUESTS_MAX as u64 + 10 {
            taps.note(1, &request(Kind::Write, number * 512, 512));
        }
        let notes = tap.take();
        assert_eq!((notes.len(), notes.back()), (REQUESTS_MAX + 1, Some(&Noted::Lost(10))));
        taps.note(1, &request(Kind::Write, 0, 512));
        assert!(matches!(tap.take().pop_front(), Some(Noted::Request(_))));
        assert_eq!(taps.counts(), (1, REQUESTS_MAX as u64 + 1, 10));
    }

    #[test]
    fn nothing_is_noted_when_the_time_is_over() {
        let taps = Arc::new(Taps::default());
        let over = taps.listen(1, Some(Duration::ZERO)).expect("a free place");
        let open = taps.listen(1, Some(Duration::MAX)).expect("a free place");
        taps.note(1, &request(Kind::Write, 0, 512));
        assert!(over.is_over() && over.take().is_empty());
        assert!(!open.is_over() && open.take().len() == 1);
        assert_eq!(taps.counts(), (2, 1, 0));
    }

    #[test]
    fn recordings_are_few() {
        let taps = Arc::new(Taps::default());
        let all: Vec<_> =
            (0..RECORDINGS_MAX).map(|_| taps.listen(1, None).expect("room")).collect();
        assert!(taps.listen(1, None).is_none());
        drop(all);
        assert!(taps.listen(1, None).is_some());
    }
}
