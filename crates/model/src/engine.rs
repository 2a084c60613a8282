//! What this engine asks of its device for one extent written, beside what the paper's formulas
//! say: with flushes, headers, journal and map.
//!
//! It is worked out from the same distances between writes, by the engine's rules, in steps of a
//! second: a flush empties the cache, the map is written out by age or by entries and its runs are
//! joined, and `checkpointing` destages. Writes come evenly. Everything is counted in extents: the
//! bytes of a request by those of an extent. Nothing is fitted; `lab replay` is the count that this
//! is held against.
//!
//! Left out: what leaves the window, full pools, versions, reads of clients.

use serde::Serialize;
use units::{BLOCK_BYTES, Granularity};

use super::cost::{Architecture, DeviceIos};
use super::dirty_pages;
use super::profile::Profile;

/// Bytes of a page of the map, and of a block.
const PAGE_BYTES: f64 = 4096.0;
/// Entries of a leaf and of a page of times, and leaves that a page of the index names
/// (docs/format).
const LEAF_ENTRIES: u64 = 184;
const TIME_ENTRIES: u64 = 127;
const INDEX_ENTRIES: u64 = 338;
/// Parts of the index of times are joined up to so many entries (`volume/jobs/map_flush`).
const TIMES_JOINED_MAX: u64 = 64 * TIME_ENTRIES;
/// The header of a batch: so much, and so much for each block, in units of so much.
const HEADER_BYTES: u64 = 96 + 16;
const CHECKSUM_BYTES: u64 = 4;
const HEADER_UNIT: u64 = 64;
/// The header of a block that was moved.
const MOVED_HEADER_BYTES: f64 = 192.0;
/// Bytes of a zone.
const ZONE_BYTES: f64 = (32 << 20) as f64;
/// Map entries that wait in memory, by its size (`volume/core`), and for how long
/// (`volume/jobs/reclaim`).
const PENDING_SHARE: u64 = 8 * 96;
const PENDING_MIN: u64 = 256;
const PENDING_MAX: u64 = 1 << 17;
const SETTLE_NS: f64 = 5e9;
/// When runs of a map are joined (`volume/jobs/merge`).
const RUNS_MAX: usize = 10;
const JOINED: usize = 6;
/// When a volume destages (`volume/placement/destage`).
const DESTAGE_NEW_SHARE: f64 = 8.0;
const DESTAGE_ENTRY_WAIT_NS: f64 = 100_000.0;
/// Segments with less than this share alive are emptied (`volume/jobs/reclaim`).
const SPARSE_SHARE: f64 = 0.5;
/// How much of the cache may be dirty before the background writes (`volume/write/write_back`).
const KEPT_SHARE: f64 = 15.0 / 16.0;
/// Background work looks what there is to do this often.
const LOOK_NS: f64 = 1e9;
/// Looks that are stepped through at most: four hours' worth, unless memory is short.
const STEPS_MAX: usize = 4 * 3600;

/// What the engine has.
#[derive(Clone, Copy, Debug)]
pub struct EngineSettings {
    /// Pages of the volume's cache that may be dirty; 0 without one.
    pub dirty_pages: u64,
    /// Memory of the server.
    pub memory_bytes: u64,
}

impl EngineSettings {
    /// A server's that has so much memory, with a volume's cache of a size. All caches together
    /// have half of the memory.
    #[must_use]
    pub fn of(memory_bytes: u64, cache_bytes: u64, dirty_share: f64) -> EngineSettings {
        let granted = cache_bytes.min(cache_bytes_max(memory_bytes));
        let dirty_pages = dirty_pages(granted, dirty_share, BLOCK_BYTES);
        EngineSettings { dirty_pages, memory_bytes }
    }
}

/// The largest cache that a server with so much memory gives a volume.
#[must_use]
pub fn cache_bytes_max(memory_bytes: u64) -> u64 {
    memory_bytes / 2
}

/// Device I/Os for one extent written, in extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EngineIos {
    /// Of user data and the headers of its batches.
    #[serde(flatten)]
    pub data: DeviceIos,
    /// Of the map and the index of times.
    pub map: DeviceIos,
}

impl EngineIos {
    /// All of it.
    #[must_use]
    pub fn total(self) -> f64 {
        self.data.total() + self.map.total()
    }
}

/// What the map costs, whatever data does.
#[derive(Clone, Copy, Debug, Default)]
struct Stepped {
    map: DeviceIos,
    /// Extents that came home, of all written.
    homes: f64,
    /// Before-images.
    copied: f64,
    /// Extents moved out of segments that are to be emptied.
    moved: f64,
}

/// A granularity as the length of a window: none is 0, no end is infinite.
pub(super) fn window_ns(granularity: Granularity) -> f64 {
    match granularity {
        Granularity::EveryWrite => 0.0,
        Granularity::Interval(span) => span.as_nanos() as f64,
        Granularity::OnDemand => f64::INFINITY,
    }
}

impl Profile {
    /// What the engine asks of its device for an architecture; `None` for `redirect` on demand,
    /// which depends on where in the volume blocks lie.
    #[must_use]
    pub fn engine_ios(
        &self,
        architecture: Architecture,
        granularity: Granularity,
        settings: EngineSettings,
    ) -> Option<EngineIos> {
        if architecture == Architecture::Redirect && granularity == Granularity::OnDemand {
            return None;
        }
        let window_ns = window_ns(granularity);
        let pages = (settings.dirty_pages as f64 * KEPT_SHARE) as u64;
        let pages = pages.max(settings.dirty_pages.min(1));
        let wait_ns = if pages == 0 { 0.0 } else { self.wait_ns_in(window_ns, pages) };
        let shares = self.shares_with_flushes(window_ns, wait_ns);
        let (logged, evicted) = (shares.incurred, shares.evicted);
        let log = logged * (1.0 + self.header_share());
        let destages = architecture == Architecture::Checkpointing;
        // Where flushes put out more, they let none wait so long.
        let is_flushed = evicted > self.shares(window_ns, wait_ns).evicted * 1.01;
        let flushed_ns = if is_flushed { self.wait_with_share(evicted) } else { f64::INFINITY };
        let delay_ns = wait_ns.min(flushed_ns);
        let stepper = Stepper::new(self, granularity, settings.memory_bytes, logged, delay_ns);
        let stepped = stepper.run(destages);
        let moving = 1.0 + MOVED_HEADER_BYTES / PAGE_BYTES;
        let data = match architecture {
            Architecture::Logging | Architecture::Redirect => DeviceIos { reads: 0.0, writes: log },
            Architecture::SplitStream => DeviceIos { reads: 0.0, writes: log + evicted },
            Architecture::SplitDownstream => DeviceIos { reads: 0.0, writes: log + logged },
            Architecture::Checkpointing => {
                let reads = stepped.homes + stepped.copied + stepped.moved;
                DeviceIos { reads, writes: log + moving * reads }
            }
            Architecture::Hybrid => {
                // As long in the cache as lets as many go as flushes do.
                let wait_ns = self.wait_with_share(evicted);
                let places = self.places_ios(window_ns, wait_ns);
                DeviceIos { reads: places.reads, writes: log + places.writes }
            }
        };
        Some(EngineIos { data, map: stepped.map })
    }

    /// What the headers of batches add to an extent.
    fn header_share(&self) -> f64 {
        let blocks = self.extents_per_write();
        let header = HEADER_BYTES + (CHECKSUM_BYTES as f64 * blocks) as u64;
        header.next_multiple_of(HEADER_UNIT) as f64 / (blocks * PAGE_BYTES)
    }
}

/// Stretches of writes, cut where windows end. Places are extents written so far.
struct Windows<'p> {
    profile: &'p Profile,
    /// Extents written in a window: 0 where each is retained, infinite where none is.
    writes: f64,
    ns_per_write: f64,
    /// Extents in the log of each written.
    logged: f64,
    /// Writes further apart than so many do not overwrite each other in the cache.
    lag: f64,
}

impl Windows<'_> {
    /// Versions that are the newest of their extents at the end of so many writes, of those that
    /// come to the log.
    fn newest(&self, writes: f64) -> f64 {
        let writes = writes.max(0.0);
        let within = |writes: f64| self.profile.extents_within(writes * self.ns_per_write);
        if writes <= self.lag {
            return (writes * self.logged).min(within(writes));
        }
        // What is overwritten in the cache never comes.
        within(writes) - (within(self.lag) - self.lag * self.logged).max(0.0)
    }

    /// Where the window begins that holds a place, or ends at it.
    fn begins(&self, place: f64) -> f64 {
        if self.writes.is_infinite() {
            return 0.0;
        }
        ((place / self.writes).ceil() - 1.0).max(0.0) * self.writes
    }

    /// Map entries of a stretch: the newest versions, and those that are the last of their window.
    fn entries(&self, from: f64, to: f64) -> f64 {
        if self.writes == 0.0 {
            return to - from;
        }
        let begins = self.begins(to);
        if begins <= from {
            return self.newest(to - from);
        }
        let first_ends = self.begins(from) + self.writes;
        let whole = ((begins - first_ends) / self.writes).round();
        let whole = whole * self.newest(self.writes);
        self.newest(first_ends - from) + whole + self.newest(to - begins)
    }

    /// Of the versions that are the newest at the end of a stretch, those that are the last of
    /// their window, too.
    fn retained_at_home(&self, from: f64, to: f64) -> f64 {
        if self.writes == 0.0 {
            return self.newest(to - from);
        }
        if self.writes.is_infinite() {
            return 0.0;
        }
        let begins = self.begins(to).max(from);
        let ends = self.begins(to) + self.writes;
        // Those of windows that are over, and those of the one that is not.
        let over = self.newest(to - from) - self.newest(to - begins);
        over + self.newest(ends - begins) - self.newest(ends - to)
    }
}

/// A run of the map: of a stretch of writes, with so many entries.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: f64,
    to: f64,
    entries: f64,
}

impl Run {
    /// Pages that a merge reads of it: leaves and their index.
    fn pages_read(self) -> f64 {
        let leaves = (self.entries.round() as u64).div_ceil(LEAF_ENTRIES);
        (leaves + leaves.div_ceil(INDEX_ENTRIES)) as f64
    }
}

/// The engine's background work on one volume, second by second.
struct Stepper<'p> {
    windows: Windows<'p>,
    /// How many writes behind the log is: those that wait in the cache.
    behind: f64,
    /// Batches in the log for an extent written.
    batches: f64,
    /// Whether the end of each window is looked up in the index of times.
    has_windows: bool,
    /// Entries of all volumes after which maps are written out.
    pending_max: f64,
    /// Entries of each volume together after which what is new is destaged.
    destaged_min: f64,
    runs: Vec<Run>,
    /// Entries of each part of the index of times.
    times: Vec<u64>,
    read: f64,
    written: f64,
    /// Extents whose entries are in runs.
    flushed: f64,
}

impl<'p> Stepper<'p> {
    fn new(
        profile: &'p Profile,
        granularity: Granularity,
        memory: u64,
        logged: f64,
        delay_ns: f64,
    ) -> Self {
        let devices = profile.devices_written().max(1) as f64;
        let ns_per_write = profile.duration_ns() as f64 / profile.writes().max(1) as f64;
        let window_ns = window_ns(granularity);
        let has_windows = window_ns > 0.0 && window_ns.is_finite();
        let pending = (memory / PENDING_SHARE).clamp(PENDING_MIN, PENDING_MAX);
        let lag = profile.wait_with_share(logged) / ns_per_write;
        let writes = window_ns / ns_per_write;
        Stepper {
            windows: Windows { profile, writes, ns_per_write, logged, lag },
            behind: delay_ns / ns_per_write,
            batches: logged / profile.extents_per_write(),
            has_windows,
            // Of several volumes those with the most are written out, until half is left.
            pending_max: pending as f64 / if devices > 1.0 { 2.0 } else { 1.0 },
            destaged_min: pending as f64 * devices,
            runs: Vec::new(),
            times: Vec::new(),
            read: 0.0,
            written: 0.0,
            flushed: 0.0,
        }
    }

    fn run(mut self, destages: bool) -> Stepped {
        let Windows { profile, ns_per_write, .. } = self.windows;
        let all = profile.writes() as f64;
        // A look is as late as the memory for entries lets it be.
        let look_ns = LOOK_NS.min(self.pending_max * ns_per_write);
        let (mut destager, mut since_ns) = (Destager::default(), None);
        let mut at_ns = 0.0;
        for _ in 0..STEPS_MAX {
            at_ns += look_ns;
            if at_ns / ns_per_write > all {
                break;
            }
            let place = (at_ns / ns_per_write - self.behind).max(0.0);
            // Less than one may wait where writes are rare.
            if place - self.flushed >= 1.0 {
                let since = *since_ns.get_or_insert(at_ns);
                let is_full = self.windows.entries(self.flushed, place) >= self.pending_max;
                if is_full || at_ns - since >= SETTLE_NS {
                    self.flush(place);
                    since_ns = None;
                }
            }
            if destages && destager.wants(&self, at_ns) {
                self.flush(place);
                since_ns = None;
                destager.destage(&mut self, place, at_ns);
            }
        }
        let done = (at_ns / ns_per_write).min(all).max(1.0);
        Stepped {
            map: DeviceIos { reads: self.read / done, writes: self.written / done },
            homes: destager.homes / done,
            copied: destager.copied / done,
            moved: destager.moved / done,
        }
    }

    /// Writes a run, and reads its end.
    fn write_run(&mut self, from: f64, to: f64) -> Run {
        let run = Run { from, to, entries: self.windows.entries(from, to) };
        self.written += run.pages_read() + 1.0;
        self.read += 1.0;
        run
    }

    fn flush(&mut self, place: f64) {
        if place - self.flushed < 1.0 {
            return;
        }
        let run = self.write_run(self.flushed, place);
        self.runs.push(run);
        self.flush_times(((place - self.flushed) * self.batches).ceil() as u64);
        self.flushed = place;
        while self.runs.len() > RUNS_MAX {
            self.join();
        }
    }

    /// The newest parts that have no more entries are joined with it.
    fn flush_times(&mut self, new: u64) {
        let mut entries = new;
        while let Some(&part) = self.times.last() {
            let is_worth_it = part + entries <= TIME_ENTRIES || part <= entries;
            if !is_worth_it || part + entries > TIMES_JOINED_MAX {
                break;
            }
            self.read += part.div_ceil(TIME_ENTRIES) as f64;
            entries += part;
            self.times.pop();
        }
        self.written += entries.div_ceil(TIME_ENTRIES) as f64;
        self.times.push(entries);
    }

    /// Joins the neighbours with the fewest entries.
    fn join(&mut self) {
        let cost = |first: &usize| -> u64 {
            let entries = self.runs[*first..*first + JOINED].iter().map(|run| run.entries);
            entries.sum::<f64>() as u64
        };
        let first = (0..=self.runs.len() - JOINED).min_by_key(cost).unwrap_or_default();
        self.merge(first, first + JOINED);
    }

    fn merge(&mut self, first: usize, end: usize) {
        if self.has_windows {
            let pages = self.times.iter().map(|entries| entries.div_ceil(TIME_ENTRIES));
            self.read += pages.sum::<u64>() as f64;
        }
        let inputs: Vec<Run> = self.runs.drain(first..end).collect();
        let (Some(oldest), Some(newest)) = (inputs.first(), inputs.last()) else { return };
        self.read += inputs.iter().map(|run| run.pages_read()).sum::<f64>();
        let run = self.write_run(oldest.from, newest.to);
        self.runs.insert(first, run);
    }
}

/// How far `checkpointing` is with bringing blocks home.
#[derive(Debug, Default)]
struct Destager {
    /// Extents that had been written at the last destage, and when it began.
    last: f64,
    began_ns: f64,
    homes: f64,
    copied: f64,
    /// Of what came home, what is the last of its window.
    retained: f64,
    /// Where the segment begins that the log fills, and what stays of it.
    segment: f64,
    staying: f64,
    moved: f64,
}

impl Destager {
    fn wants(&self, stepper: &Stepper<'_>, at_ns: f64) -> bool {
        let all: f64 = stepper.runs.iter().map(|run| run.entries).sum();
        let new = stepper.runs.iter().filter(|run| run.from >= self.last);
        let new: f64 = new.map(|run| run.entries).sum();
        let wait_ns = (all * DESTAGE_ENTRY_WAIT_NS).max(SETTLE_NS);
        new >= (all / DESTAGE_NEW_SHARE).max(stepper.destaged_min)
            || new >= 1.0 && at_ns - self.began_ns >= wait_ns
    }

    /// Two full merges: the second brings home what found its home taken.
    fn destage(&mut self, stepper: &mut Stepper<'_>, place: f64, at_ns: f64) {
        let merges = if self.last == 0.0 { 1 } else { 2 };
        (0..merges).for_each(|_| stepper.merge(0, stepper.runs.len()));
        let windows = &stepper.windows;
        let homes = windows.newest(place - self.last);
        self.homes += homes;
        self.retained += windows.retained_at_home(self.last, place);
        // The last version of each extent stays at home.
        let copied = (self.retained - windows.retained_at_home(0.0, place)).max(self.copied);
        self.copied = copied;
        let staying = (windows.entries(self.last, place) - homes).max(0.0);
        self.seal(stepper, staying, place);
        (self.last, self.began_ns) = (place, at_ns);
    }

    /// Segments that are full are emptied when little of them stays.
    fn seal(&mut self, stepper: &Stepper<'_>, staying: f64, place: f64) {
        let share = staying / (place - self.last).max(1.0);
        let length = ZONE_BYTES / (PAGE_BYTES * stepper.windows.logged.max(1e-6));
        let mut from = self.last;
        while self.segment + length <= place {
            let end = self.segment + length;
            self.staying += share * (end - from);
            if self.staying < SPARSE_SHARE * length * stepper.windows.logged {
                self.moved += self.staying;
            }
            (self.segment, self.staying, from) = (end, 0.0, end);
        }
        self.staying += share * (place - from);
    }
}
