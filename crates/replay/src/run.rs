//! The replay itself.

use std::sync::Arc;

use block::{BlockDevice, MemoryDevice};
use env::Clock;
use model::{DeviceIos, EngineIos, EngineSettings, Meter, MeterSettings};
use trace::{Request, RequestKind, Source};
use units::{BLOCK_BYTES, Granularity};
use volume::{
    Architecture, Budget, CacheChange, Granularity as EngineGranularity, IoCount, IoKind, Machine,
    Pool, PoolFormat, PoolOptions, Volume, VolumeSpec, WriteOp,
};

use crate::count::HybridCount;
use crate::machine::{Counting, VirtualClock};
use crate::{KindCount, ReplayError, ReplaySettings, Replayed, lab_name, modelled};

/// Room for payload that is not kept: only zones that are used take memory.
const POOL_BYTES: u64 = 16 << 40;
/// Background work is done after so many requests, all there is: as on a server that keeps up.
const STEP_EVERY: u64 = 256;
const STEP_BYTES: u64 = 8 << 20;
/// The longest request; longer ones are cut, as the server's sessions take 32 MiB.
const REQUEST_BYTES_MAX: u64 = 32 << 20;
/// Background work looks whether there is any this often, in nanoseconds of the trace.
const LOOK_EVERY_NS: u64 = 1_000_000_000;
/// What stands before a block at home (docs/design, *The base*).
const HOME_HEADER_BYTES: u64 = 192;

/// Longer than any trace.
const WINDOW_NS_MAX: f64 = 1e18;
/// How long places wait on demand (`volume/placement/deferred`).
const WINDOW_NS_PLACES: f64 = 600e9;
/// Longer than that.
const WINDOW_NS_ENDED: f64 = 3600e9;

type Result<T> = std::result::Result<T, ReplayError>;

struct Engine {
    pool: Arc<Pool>,
    clock: Arc<VirtualClock>,
    settings: ReplaySettings,
    volumes: Vec<Arc<Volume>>,
    buffer: Vec<u8>,
    /// Blocks that may wait in each volume's cache.
    dirty: Vec<u64>,
    window: u64,
    /// When background work looked last whether there is any.
    looked_ns: u64,
}

/// Sends a trace through the engine.
///
/// # Errors
/// What the source or the engine fails with.
pub fn replay(source: &mut dyn Source, settings: ReplaySettings) -> Result<Replayed> {
    let mut engine = Engine::new(settings)?;
    let mut meter = Meter::new(MeterSettings::default())?;
    let mut counted = Counted::default();
    let window_ns = window_ns(settings.granularity);
    // Where windows have no end the count has one that no trace comes to.
    let is_hybrid = settings.architecture == Architecture::Hybrid;
    let mut hybrid =
        is_hybrid.then(|| HybridCount::new(window_ns.min(WINDOW_NS_MAX) as u64)).transpose()?;
    while let Some(request) = source.next()? {
        if request.end_bytes() > settings.volume_bytes {
            counted.beyond += 1;
            continue;
        }
        if !settings.has_reads && request.kind == RequestKind::Read {
            continue;
        }
        meter.add(&request)?;
        if let Some(hybrid) = &mut hybrid {
            hybrid.add(&request, engine.dirty_blocks_of(request.device)?)?;
        }
        engine.work_until(request.time_ns)?;
        engine.clock.set(request.time_ns);
        if is_hybrid && engine.begins_window(window_ns) {
            // What waited for the window's end is due before anything is written in the next.
            engine.work()?;
        }
        engine.request(&request)?;
        counted.add(&request);
        if counted.requests.is_multiple_of(STEP_EVERY) {
            engine.work()?;
        }
    }
    engine.work()?;
    let dirty_blocks = engine.dirty_blocks()?;
    if is_hybrid {
        engine.end_window(window_ns);
    }
    engine.flush()?;
    if is_hybrid {
        engine.work()?;
    }
    let kinds = engine.kinds()?;
    engine.pool.close()?;
    let profile = meter.finish();
    // Without a cache every write leaves at once.
    let wait_ns = if dirty_blocks == 0 { 0.0 } else { profile.wait_ns_in(window_ns, dirty_blocks) };
    let by_formula = |one| profile.shares(window_ns, wait_ns).ios(one);
    let by_count = || hybrid.map(HybridCount::finish).unwrap_or_default();
    let predicted = modelled(settings.architecture).map_or_else(by_count, by_formula);
    let mut told = counted.told(settings, &kinds, predicted, profile.duration_ns());
    let machine = EngineSettings { dirty_pages: dirty_blocks, memory_bytes: settings.memory_bytes };
    let architecture = lab_name(settings.architecture);
    told.engine = profile.engine_ios(architecture, settings.granularity, machine);
    told.engine_off = told.engine.map(|engine| engine.total() / told.counted.total() - 1.0);
    Ok(told)
}

/// The length of windows: 0 for every write, infinite on demand.
fn window_ns(granularity: Granularity) -> f64 {
    match granularity {
        Granularity::EveryWrite => 0.0,
        Granularity::Interval(span) => span.as_nanos() as f64,
        Granularity::OnDemand => f64::INFINITY,
    }
}

impl Engine {
    fn new(settings: ReplaySettings) -> Result<Engine> {
        let clock = Arc::new(VirtualClock::default());
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(POOL_BYTES));
        let machine = Machine { clock: clock.clone(), entropy: Arc::new(Counting::default()) };
        Pool::create(&device, &machine, &PoolFormat::default())?;
        let options = PoolOptions { memory_bytes: settings.memory_bytes };
        let pool = Pool::open(device, machine, options)?;
        Ok(Engine {
            pool,
            clock,
            settings,
            volumes: Vec::new(),
            buffer: Vec::new(),
            dirty: Vec::new(),
            window: 0,
            looked_ns: 0,
        })
    }

    /// The volume of a device of the trace.
    fn volume(&mut self, device: u32) -> Result<Arc<Volume>> {
        let settings = &self.settings;
        while self.volumes.len() <= device as usize {
            let granularity = match settings.granularity {
                Granularity::EveryWrite => EngineGranularity::EveryWrite,
                Granularity::Interval(span) => EngineGranularity::Interval(span.as_nanos()),
                Granularity::OnDemand => EngineGranularity::OnDemand,
            };
            let volume = self.pool.create_volume(&VolumeSpec {
                architecture: settings.architecture,
                granularity,
                window_ns: settings.window_ns,
                cache: CacheChange { bytes: settings.cache_bytes, dirty_percent: None },
                ..VolumeSpec::new(&format!("device-{}", self.volumes.len()), settings.volume_bytes)
            })?;
            self.volumes.push(volume);
        }
        Ok(Arc::clone(&self.volumes[device as usize]))
    }

    fn request(&mut self, request: &Request) -> Result<()> {
        let volume = self.volume(request.device)?;
        let (mut offset, end) = (request.offset_bytes, request.end_bytes());
        if request.kind == RequestKind::Flush {
            return Ok(volume.flush()?);
        }
        while offset < end {
            let length_bytes = (end - offset).min(REQUEST_BYTES_MAX);
            let length = length_bytes as usize;
            match request.kind {
                RequestKind::Read => {
                    self.buffer.resize(length, 0);
                    volume.read(offset, &mut self.buffer)?;
                    // Zeros were written, and zeros come back.
                    self.buffer.clear();
                }
                RequestKind::Write => {
                    self.buffer.clear();
                    self.buffer.resize(length, 0);
                    volume.write_batch(&[WriteOp::Data { offset, bytes: &self.buffer }])?;
                }
                _ => {
                    volume.write_batch(&[WriteOp::Zero { offset, length_bytes }])?;
                }
            }
            offset += length_bytes;
        }
        if request.is_fua {
            volume.flush()?;
        }
        Ok(())
    }

    /// How many blocks may wait in the volumes' caches.
    fn dirty_blocks(&self) -> Result<u64> {
        let mut blocks = 0;
        for volume in &self.volumes {
            let limit = volume.info()?.cache.map_or(0, |cache| cache.used.dirty_limit_bytes);
            blocks += limit / BLOCK_BYTES;
        }
        Ok(blocks)
    }

    /// Background work, all there is.
    fn work(&self) -> Result<()> {
        while self.pool.step(Budget { bytes: STEP_BYTES })? {}
        Ok(())
    }

    /// Lets the time until the next request pass, with background work in between.
    fn work_until(&mut self, time_ns: u64) -> Result<()> {
        while self.looked_ns.saturating_add(LOOK_EVERY_NS) <= time_ns {
            self.looked_ns += LOOK_EVERY_NS;
            self.clock.set(self.looked_ns);
            self.work()?;
        }
        Ok(())
    }

    /// How many may wait in the cache of one of them.
    fn dirty_blocks_of(&mut self, device: u32) -> Result<u64> {
        while self.dirty.len() <= device as usize {
            let volume = self.volume(self.dirty.len() as u32)?;
            let limit = volume.info()?.cache.map_or(0, |cache| cache.used.dirty_limit_bytes);
            self.dirty.push(limit / BLOCK_BYTES);
        }
        Ok(self.dirty[device as usize])
    }

    /// Whether it is another window than when this was asked last.
    fn begins_window(&mut self, window_ns: f64) -> bool {
        let window_ns = window_ns.min(WINDOW_NS_PLACES) as u64;
        let window = self.clock.monotonic_ns().checked_div(window_ns).unwrap_or(0);
        std::mem::replace(&mut self.window, window) != window
    }

    /// Lets the last window end, as far as it has an end.
    fn end_window(&self, window_ns: f64) {
        let window_ns = window_ns.min(WINDOW_NS_ENDED) as u64;
        let now_ns = self.clock.monotonic_ns();
        self.clock.set(now_ns.checked_div(window_ns).map_or(now_ns, |n| (n + 1) * window_ns));
    }

    fn flush(&self) -> Result<()> {
        for volume in &self.volumes {
            volume.flush()?;
        }
        Ok(())
    }

    /// What all volumes asked of the device.
    fn kinds(&self) -> Result<Vec<IoCount>> {
        let empty = |kind: &IoKind| IoCount { kind: *kind, requests: 0, bytes: 0, header_bytes: 0 };
        let mut sum: Vec<IoCount> = IoKind::ALL.iter().map(empty).collect();
        for volume in &self.volumes {
            for (all, one) in sum.iter_mut().zip(volume.info()?.device_io) {
                assert_eq!(all.kind, one.kind, "kinds are told in one order");
                all.requests += one.requests;
                all.bytes += one.bytes;
                all.header_bytes += one.header_bytes;
            }
        }
        Ok(sum)
    }
}

#[derive(Default)]
struct Counted {
    requests: u64,
    beyond: u64,
    extents: u64,
}

impl Counted {
    fn add(&mut self, request: &Request) {
        self.requests += 1;
        if request.kind == RequestKind::Write {
            let end = request.end_bytes().div_ceil(BLOCK_BYTES);
            self.extents += end - request.offset_bytes / BLOCK_BYTES;
        }
    }

    fn told(
        &self,
        settings: ReplaySettings,
        kinds: &[IoCount],
        predicted: DeviceIos,
        duration_ns: u64,
    ) -> Replayed {
        let (mut measured, besides) = Counted::measured(settings.architecture, kinds);
        let writes = (self.extents as f64).max(1.0);
        measured.reads /= writes;
        measured.writes /= writes;
        let told = |count: &IoCount| KindCount {
            kind: count.kind.name(),
            requests: count.requests,
            bytes: count.bytes,
        };
        Replayed {
            architecture: settings.architecture.name(),
            granularity: settings.granularity,
            requests: self.requests,
            beyond: self.beyond,
            extents_written: self.extents,
            duration_ns,
            kinds: kinds.iter().map(told).collect(),
            measured,
            predicted,
            off: measured.total() / predicted.total() - 1.0,
            counted: self.counted(kinds),
            engine: None,
            engine_off: None,
            besides: besides / writes,
        }
    }

    /// All that the engine asked of the device but what clients read, in extents.
    fn counted(&self, kinds: &[IoCount]) -> EngineIos {
        let writes = (self.extents as f64).max(1.0);
        let mut counted = EngineIos::default();
        for count in kinds {
            let extents = count.bytes as f64 / BLOCK_BYTES as f64 / writes;
            match count.kind {
                IoKind::CurrentRead | IoKind::HistoryRead => {}
                IoKind::MapRead => counted.map.reads += extents,
                IoKind::MapWrite => counted.map.writes += extents,
                IoKind::BeforeImageRead | IoKind::DeferredRead | IoKind::CopyRead => {
                    counted.data.reads += extents;
                }
                _ => counted.data.writes += extents,
            }
        }
        counted
    }

    /// Extents that the model speaks of, and device requests that it leaves out.
    fn measured(architecture: Architecture, kinds: &[IoCount]) -> (DeviceIos, f64) {
        let of = |kind: IoKind| kinds.iter().find(|count| count.kind == kind);
        let requests = |kind: IoKind| of(kind).map_or(0.0, |count| count.requests as f64);
        let bytes = |kind: IoKind| of(kind).map_or(0.0, |count| count.bytes as f64);
        let block = BLOCK_BYTES as f64;
        let payload = of(IoKind::HistoryWrite).map_or(0, |count| count.bytes - count.header_bytes);
        let history = payload as f64 / block;
        let (reads, writes, modelled): (f64, f64, &[IoKind]) = match architecture {
            // Before-images are copied one by one.
            Architecture::Checkpointing => {
                let read = requests(IoKind::BeforeImageRead);
                let copied = requests(IoKind::BeforeImageWrite);
                let homes = bytes(IoKind::CurrentWrite) / (BLOCK_BYTES + HOME_HEADER_BYTES) as f64;
                let kinds =
                    &[IoKind::CurrentWrite, IoKind::BeforeImageRead, IoKind::BeforeImageWrite];
                (read, copied + homes, kinds)
            }
            // What waited for its window's end is read from the log.
            Architecture::Hybrid => {
                let late = bytes(IoKind::DeferredRead) / block;
                let placed = bytes(IoKind::CurrentWrite) + bytes(IoKind::DeferredWrite);
                let kinds = &[
                    IoKind::HistoryWrite,
                    IoKind::CurrentWrite,
                    IoKind::DeferredRead,
                    IoKind::DeferredWrite,
                ];
                (late, history + placed / block, kinds)
            }
            // What comes home later does so beside the writes.
            Architecture::Redirect => (0.0, history, &[IoKind::HistoryWrite]),
            _ => {
                let placed = bytes(IoKind::CurrentWrite) / block;
                (0.0, history + placed, &[IoKind::HistoryWrite, IoKind::CurrentWrite])
            }
        };
        let is_besides = |kind: IoKind| {
            let is_for_reads = matches!(kind, IoKind::CurrentRead | IoKind::HistoryRead);
            !is_for_reads && !modelled.contains(&kind)
        };
        let besides = kinds.iter().filter(|count| is_besides(count.kind));
        (DeviceIos { reads, writes }, besides.map(|count| count.requests as f64).sum())
    }
}
