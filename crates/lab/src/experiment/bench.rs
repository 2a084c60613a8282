//! Workloads, profiles and counts that experiments share, each made once.

use std::collections::HashMap;
use std::rc::Rc;

use super::asked::{Compacted, CompactionAsked, CompactionRun, EngineCount, EnginePoint};
use crate::simulate::{Counted, Extents, PlainSimulation, Simulation, SimulationSettings, Touch};
use model::{
    Architecture, DIRTY_SHARE_DEFAULT, Meter, MeterSettings, Profile, Shares, dirty_pages,
};
use model::{Error, Result};
use trace::Source;
use trace::generate::{Extent, Generator, Pattern, Spread, SpreadSettings, Walk, Workload};

pub(super) const SECOND_NS: u64 = 1_000_000_000;
pub(super) const MINUTE_NS: u64 = 60 * SECOND_NS;
pub(super) const HOUR_NS: u64 = 60 * MINUTE_NS;
const EXTENT_BYTES: u64 = 4096;
/// The walk's trees have a power of two of leaves. At these scales they fill as much of their
/// regions as at full size, for every load that is used here; else distances would change. At 8 the
/// smallest load has so few walks that its crossing depends on the seed.
const SCALES: [u32; 3] = [1, 2, 4];
/// The one at which the engine counts.
const ENGINE_SCALE: u32 = 4;
/// Bytes of the stores at full scale.
const CAPACITY_BYTES: u64 = 100_000_000_000;

/// Granularities of the figures, in seconds; 0 is every write.
pub(super) const GRANULARITIES: [u64; 14] =
    [0, 1, 5, 10, 30, 60, 120, 300, 600, 900, 1200, 1800, 2400, 3600];

/// How experiments are run.
#[derive(Clone, Copy, Debug)]
pub struct BenchSettings {
    /// The seed of all generators.
    pub seed: u64,
    /// Requests, space and cache of the workloads like SPC-1 are divided by this, which leaves
    /// their distances as they are; 1, 2 or 4.
    pub scale: u32,
}

impl Default for BenchSettings {
    fn default() -> BenchSettings {
        BenchSettings { seed: 1, scale: 1 }
    }
}

/// A workload of the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Load {
    /// Like SPC-1, with so many business scaling units at full scale, for an hour.
    Spc1 {
        bsu: u32,
    },
    /// Like cello99.
    Cello {
        hours: u64,
    },
    Uniform,
    Zipf,
    Oltp,
    FileServer,
    SequentialWrite,
}

impl Load {
    pub(super) fn name(self) -> String {
        match self {
            Load::Spc1 { bsu } => format!("SPC-1-like {bsu} BSU"),
            Load::Cello { .. } => "cello99-like".to_owned(),
            Load::Uniform => "uniform".to_owned(),
            Load::Zipf => "Zipf".to_owned(),
            Load::Oltp => "Iometer OLTP".to_owned(),
            Load::FileServer => "Iometer file server".to_owned(),
            Load::SequentialWrite => "Iometer sequential write".to_owned(),
        }
    }

    pub(super) fn duration_ns(self) -> u64 {
        match self {
            Load::Cello { hours } => hours * HOUR_NS,
            _ => HOUR_NS,
        }
    }
}

/// A workload that was generated once: what the model needs, and what is counted with.
pub(super) struct Prepared {
    pub(super) load: Load,
    pub(super) profile: Profile,
    pub(super) touches: Vec<Touch>,
}

/// One granularity with one cache.
pub(super) struct Point {
    /// Seconds; 0 is every write.
    pub(super) granularity_s: u64,
    pub(super) counted: Counted,
    pub(super) measured: Shares,
    pub(super) predicted: Shares,
}

/// Granularities with one cache.
pub(super) struct Sweep {
    pub(super) dirty_pages: u64,
    pub(super) wait_ns: f64,
    pub(super) points: Vec<Point>,
}

impl Point {
    pub(super) fn measured_ios(&self, architecture: Architecture) -> f64 {
        self.counted.ios(architecture, self.measured.evicted).total()
    }

    pub(super) fn predicted_ios(&self, architecture: Architecture) -> f64 {
        self.predicted.ios(architecture).total()
    }
}

impl Sweep {
    pub(super) fn at(&self, granularity_s: u64) -> &Point {
        let mut points = self.points.iter();
        points.find(|point| point.granularity_s == granularity_s).expect("one of the sweep's")
    }

    /// From which granularity on checkpointing costs no more than split-downstream, in minutes;
    /// between two that were counted, on a straight line of logarithms. `None`: at none of them.
    pub(super) fn crossing_minutes(&self) -> Option<f64> {
        let lead = |point: &Point| {
            point.measured_ios(Architecture::Checkpointing)
                - point.measured_ios(Architecture::SplitDownstream)
        };
        let pair = self.points.windows(2).find(|pair| lead(&pair[1]) <= 0.0)?;
        let (before, after) = (lead(&pair[0]), lead(&pair[1]));
        let log = |point: &Point| (point.granularity_s.max(1) as f64).ln();
        let part = before / (before - after);
        Some((log(&pair[0]) + part * (log(&pair[1]) - log(&pair[0]))).exp() / 60.0)
    }
}

/// Where experiments run.
pub struct Bench {
    settings: BenchSettings,
    prepared: HashMap<Load, Rc<Prepared>>,
    sweeps: HashMap<(Load, u64, Vec<u64>), Rc<Sweep>>,
    engine: Option<EngineCount>,
    /// Two figures show the same workload.
    pub(super) engine_counts: HashMap<(Load, u64, Vec<u64>), Vec<EnginePoint>>,
    compaction: Option<CompactionRun>,
}

impl Bench {
    /// An empty one.
    ///
    /// # Errors
    /// `Setting` for a scale out of its range.
    pub fn new(settings: BenchSettings) -> Result<Bench> {
        if !SCALES.contains(&settings.scale) {
            return Err(Error::setting(format!("a scale of {}", settings.scale))
                .with_hint("give 1 (full size), 2 or 4"));
        }
        Ok(Bench::empty(settings))
    }

    fn empty(settings: BenchSettings) -> Bench {
        Bench {
            settings,
            prepared: HashMap::new(),
            sweeps: HashMap::new(),
            engine: None,
            engine_counts: HashMap::new(),
            compaction: None,
        }
    }

    /// The same with the engine's own count beside.
    #[must_use]
    pub fn with_engine(self, engine: EngineCount) -> Bench {
        Bench { engine: Some(engine), ..self }
    }

    /// The same with versions that the engine compacts and reads.
    #[must_use]
    pub fn with_compaction(self, run: CompactionRun) -> Bench {
        Bench { compaction: Some(run), ..self }
    }

    /// The outcome of compacting; `None` without an engine.
    pub(super) fn compacted(&mut self, asked: CompactionAsked) -> Result<Option<Compacted>> {
        self.compaction.as_mut().map(|run| run(asked)).transpose()
    }

    pub(super) fn take_engine(&mut self) -> Option<EngineCount> {
        self.engine.take()
    }

    pub(super) fn give_engine(&mut self, engine: EngineCount) {
        self.engine = Some(engine);
    }

    /// A workload and its cache as the engine gets them: a quarter of the full size, which leaves
    /// distances as they are.
    pub(super) fn scaled_for_engine(&self, load: Load, cache_bytes: u64) -> (Workload, u64) {
        let settings = BenchSettings { scale: ENGINE_SCALE, ..self.settings };
        let small = Bench::empty(settings);
        let cache_bytes = match load {
            Load::Spc1 { bsu } => (cache_bytes as f64 * small.scaled(bsu).1) as u64,
            _ => cache_bytes,
        };
        (small.workload(load), cache_bytes)
    }

    pub(super) fn seed(&self) -> u64 {
        self.settings.seed
    }

    /// Business scaling units at this scale, and the share of the full size that they are.
    fn scaled(&self, bsu: u32) -> (u32, f64) {
        let scaled = (bsu / self.settings.scale).max(1);
        (scaled, f64::from(scaled) / f64::from(bsu))
    }

    /// Pages that may be dirty with a cache of this size at full scale.
    pub(super) fn pages(&self, load: Load, cache_bytes: u64) -> u64 {
        let pages = dirty_pages(cache_bytes, DIRTY_SHARE_DEFAULT, EXTENT_BYTES);
        match load {
            Load::Spc1 { bsu } => (pages as f64 * self.scaled(bsu).1) as u64,
            _ => pages,
        }
    }

    /// What a workload is, for people.
    pub(super) fn describe(&self, load: Load, cache_bytes: u64) -> String {
        let pages = self.pages(load, cache_bytes);
        let cache = match cache_bytes {
            0 => "no cache".to_owned(),
            _ => format!("{} MiB of cache, {pages} dirty pages of 4 KiB", cache_bytes >> 20),
        };
        let hours = load.duration_ns() / HOUR_NS;
        let seed = self.settings.seed;
        match load {
            Load::Spc1 { bsu } => {
                let (scaled, share) = self.scaled(bsu);
                let gigabytes = CAPACITY_BYTES as f64 * share / 1e9;
                let scale = if scaled == bsu {
                    "at full size".to_owned()
                } else {
                    format!("of {bsu} BSU on 100 GB and the whole cache, scaled down alike")
                };
                format!(
                    "Generated: like SPC-1 without its log, {scaled} BSU on {gigabytes:.1} GB, \
                     {hours} h, {scale}; {cache}; seed {seed}."
                )
            }
            _ => format!("Generated: {}, {hours} h; {cache}; seed {seed}.", load.name()),
        }
    }

    pub(super) fn workload(&self, load: Load) -> Workload {
        let spread = |spread| {
            Workload::Spread(SpreadSettings {
                spread,
                rate: 400.0,
                write_percent: 50,
                length_bytes: EXTENT_BYTES,
                capacity_bytes: 200 << 20,
            })
        };
        let iometer =
            |pattern, rate| Workload::Iometer { pattern, rate, capacity_bytes: 500 << 20 };
        match load {
            Load::Spc1 { bsu } => {
                let (bsu, share) = self.scaled(bsu);
                let capacity_bytes = (CAPACITY_BYTES as f64 * share) as u64;
                Workload::Spc1 { bsu, capacity_bytes, has_log: false, walk: Walk::Classic }
            }
            Load::Cello { .. } => Workload::Cello,
            Load::Uniform => spread(Spread::Uniform),
            Load::Zipf => spread(Spread::Zipf { exponent: 1.0 }),
            Load::Oltp => iometer(Pattern::Oltp, 400.0),
            Load::FileServer => iometer(Pattern::FileServer, 400.0),
            Load::SequentialWrite => iometer(Pattern::SequentialWrite, 40.0),
        }
    }

    pub(super) fn prepared(&mut self, load: Load) -> Result<Rc<Prepared>> {
        if let Some(prepared) = self.prepared.get(&load) {
            return Ok(Rc::clone(prepared));
        }
        let extent = Extent {
            seed: self.settings.seed,
            duration_ns: Some(load.duration_ns()),
            requests_max: None,
        };
        let mut generator = Generator::new(self.workload(load), extent)?;
        let mut meter = Meter::new(MeterSettings::default())?;
        let mut extents = Extents::new(EXTENT_BYTES)?;
        let mut touches = Vec::new();
        while let Some(request) = generator.next()? {
            meter.add(&request)?;
            extents.touch(&request, |touch| touches.push(touch))?;
        }
        let prepared = Rc::new(Prepared { load, profile: meter.finish(), touches });
        self.prepared.insert(load, Rc::clone(&prepared));
        Ok(prepared)
    }

    pub(super) fn sweep(
        &mut self,
        load: Load,
        cache_bytes: u64,
        granularities_s: &[u64],
    ) -> Result<Rc<Sweep>> {
        let pages = self.pages(load, cache_bytes);
        let key = (load, pages, granularities_s.to_vec());
        if let Some(sweep) = self.sweeps.get(&key) {
            return Ok(Rc::clone(sweep));
        }
        let prepared = self.prepared(load)?;
        let sweep = Rc::new(prepared.sweep(pages, granularities_s));
        self.sweeps.insert(key, Rc::clone(&sweep));
        Ok(sweep)
    }
}

impl Prepared {
    pub(super) fn sweep(&self, dirty_pages: u64, granularities_s: &[u64]) -> Sweep {
        let mut plain = PlainSimulation::new(dirty_pages);
        for touch in &self.touches {
            plain.write(touch.extent);
        }
        let evicted = plain.evicted_share();
        let wait_ns = self.profile.wait_ns(dirty_pages);
        let point = |granularity_s: &u64| {
            let window_ns = granularity_s * SECOND_NS;
            let end_ns = self.load.duration_ns();
            let settings = SimulationSettings { window_ns, dirty_pages, end_ns };
            let mut simulation = Simulation::new(settings);
            for touch in &self.touches {
                simulation.write(*touch);
            }
            let counted = simulation.finish();
            Point {
                granularity_s: *granularity_s,
                counted,
                measured: counted.shares(evicted),
                predicted: self.profile.shares(window_ns as f64, wait_ns),
            }
        };
        let points = granularities_s.iter().map(point).collect();
        Sweep { dirty_pages, wait_ns, points }
    }
}
