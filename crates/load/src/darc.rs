//! What DARC's figures and tables need, measured: configurations side by side, in turns.

use std::path::PathBuf;
use std::time::Duration;

use lab::experiment::darc::{
    Configuration, Exhibit, Layout, MailRun, Measure, Measured, Point, QueryRun,
};
use trace::generate::{Extent, Generator, Pattern, Workload};
use units::{Size, Span};

use crate::drive::{DriveSettings, Driven, drive};
use crate::rig::{Rig, RigSettings, Sample, Serve, stack_of};
use crate::{LoadError, Result, machine, recovery};

/// Captures in a measurement: the paper has five, one every 60 s in 5 minutes.
const CAPTURES: u32 = 5;
/// The paper's interval; longer runs have it as it is.
const INTERVAL_MAX_NS: u64 = 60_000_000_000;
/// Schedules capture no more often.
const INTERVAL_MIN_NS: u64 = 1_000_000_000;
/// The log of the mail store is a volume of its own, this part of the other.
const LOG_SHARE: u64 = 8;
/// A pool has room for so many times what its volumes hold: for the present, for two versions of
/// which one is about to be pruned, and as much again for what was not yet cleaned. With 4 a mail
/// store that wrote over everything each second found the pool full.
const ROOM: u64 = 8;
const ROOM_BYTES_MIN: u64 = 512 << 20;
/// Labels and checksums of members, at most this share.
const METADATA_SHARE: u64 = 64;
const METADATA_BYTES: u64 = 8 << 20;
/// Requests in flight for what is no pattern: ours, the paper says nothing.
const QUERY_DEPTH: usize = 8;
const MAIL_DEPTH: usize = 16;
/// Passes of the queries over the volume, at least: the paper has ten queries.
const PASSES: u64 = 10;
const PASSES_MAX: u64 = 10_000;
/// They take so many times as long as a point, so that versions are captured meanwhile.
const QUERY_TIMES: u32 = 3;
/// Times of arrival are made and not looked at: requests are sent as others end.
const RATE: f64 = 1e6;
/// Memory of each pool.
const MEMORY_BYTES: u64 = 128 << 20;
const CHUNK_BYTES: u64 = 64 << 10;
/// Sequential patterns come before those that leave a log in the order of random writes.
const ORDER: [Pattern; 5] = [
    Pattern::SequentialRead,
    Pattern::SequentialWrite,
    Pattern::WebServer,
    Pattern::Oltp,
    Pattern::FileServer,
];

/// What is measured, and how long.
#[derive(Clone, Debug)]
pub struct DarcSettings {
    /// Figures and tables.
    pub exhibits: Vec<Exhibit>,
    /// What is set side by side.
    pub configurations: Vec<Configuration>,
    /// Requests in flight.
    pub depths: Vec<u32>,
    /// A directory that is there; files are made in one of their own in it, only meanwhile.
    pub dir: PathBuf,
    /// Bytes of the volume; its log, if it has one, has an eighth more.
    pub volume_bytes: u64,
    /// Members of a stack: an even number, from 2 on.
    pub members: usize,
    /// How long each point runs before it is measured.
    pub warm_up: Duration,
    /// How long it is measured.
    pub time: Duration,
    /// How often everything is measured.
    pub rounds: u32,
    /// The seed of all workloads.
    pub seed: u64,
}

/// Measures. Without a server what is behind one is missing.
///
/// # Errors
/// What a setting, a file, the engine or a request fails with; no figure is made of the rest then.
/// A pool that is full ends its configuration only, which is then among the missing.
pub fn measure(
    settings: &DarcSettings,
    server: Option<&dyn Serve>,
    say: &mut dyn FnMut(&str),
) -> Result<Measured> {
    check(settings)?;
    let dir = settings.dir.join(format!("hindsight-darc-{}", std::process::id()));
    std::fs::create_dir(&dir).map_err(|e| LoadError::at(&dir, e))?;
    let mut run = Run { settings, server, dir, measured: Measured::default(), say };
    let outcome = run.all();
    // What is in it went with the rigs, or is there to be looked at after a failure.
    _ = std::fs::remove_dir(&run.dir);
    outcome?;
    Ok(run.measured)
}

fn check(settings: &DarcSettings) -> Result<()> {
    let DarcSettings { members, volume_bytes, rounds, depths, .. } = settings;
    let wrong = |text: &str| Err(LoadError::Setting(text.to_owned()));
    if *members < 2 || !members.is_multiple_of(2) || *members > 32 {
        return wrong("members are an even number from 2 to 32");
    }
    if *volume_bytes < 8 << 20 || !volume_bytes.is_multiple_of(1 << 20) {
        return wrong("a volume has whole MiB, 8 at least");
    }
    if *rounds == 0 || settings.time < Duration::from_millis(10) {
        return wrong("at least one round of 10 ms");
    }
    if depths.is_empty() || depths.iter().any(|depth| !(1..=1024).contains(depth)) {
        return wrong("requests in flight are 1 to 1024");
    }
    Ok(())
}

/// Versions so often that a measurement has as many as the paper's.
fn interval(time: Duration) -> Span {
    let each = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / u64::from(CAPTURES);
    Span(each.clamp(INTERVAL_MIN_NS, INTERVAL_MAX_NS))
}

struct Run<'a> {
    settings: &'a DarcSettings,
    server: Option<&'a dyn Serve>,
    dir: PathBuf,
    measured: Measured,
    say: &'a mut dyn FnMut(&str),
}

/// Configurations that are there at the same time.
type Rigs = Vec<(Configuration, Rig)>;

impl Run<'_> {
    fn all(&mut self) -> Result<()> {
        self.measured.setting = self.told();
        self.measured.checksum_ns = machine::checksum_ns();
        self.measured.point_seconds = self.settings.time.as_secs_f64();
        let wanted = self.settings.configurations.iter();
        self.measured.missing =
            wanted.filter_map(|one| Some((*one, self.why_missing(*one)?.to_owned()))).collect();
        for layout in [Layout::Raid0, Layout::Raid10] {
            self.layout(layout)?;
        }
        if self.settings.exhibits.contains(&Exhibit::Table4) {
            (self.say)("table4");
            self.measured.recoveries = recovery::recoveries(&self.dir)?;
        }
        Ok(())
    }

    /// Why a configuration is not there; `None` if it is.
    fn why_missing(&self, configuration: Configuration) -> Option<&'static str> {
        let has_buffer_pool = match configuration {
            Configuration::Served => true,
            Configuration::DefaultAllocator => false,
            _ => return None,
        };
        match self.server {
            Some(server) => server.is_missing(has_buffer_pool),
            None => Some("nobody starts a server"),
        }
    }

    /// What has to be known of all of it.
    fn told(&self) -> String {
        let DarcSettings { members, volume_bytes, warm_up, time, rounds, dir, .. } = self.settings;
        let (interval, scale) =
            (interval(*time), interval(*time).0 as f64 / INTERVAL_MAX_NS as f64);
        format!(
            "{members} members, all files in one directory ({}), where the paper has 8 disks; 64 \
             KiB chunks. Files go through the page cache, so reads that it holds never reach the \
             device, and a write is answered when the operating system has it. No pattern asks for \
             a flush, as Iometer on a disk does not; flushes that are counted are the engine's \
             own. Volume of {}, written whole before; granularity on-demand. Each point ran {:.1} \
             s after {:.1} s, in {rounds} rounds, configurations in turns; the paper: 5 min after \
             1 min. Versions every {interval} ({scale:.3} of the paper's 60 s), the one before \
             pruned by the schedule's keep rule (last 1); the pool's clock is ten minutes ahead of \
             the machine's, since schedules prune only where it went evenly for so long. As many \
             threads as requests in flight, in this process, without sockets but for what is \
             served. Figures in brackets are least, most and how many.",
            machine::device_of(dir),
            Size(*volume_bytes),
            time.as_secs_f64(),
            warm_up.as_secs_f64(),
        )
    }

    /// The patterns that are wanted on a layout, in the order in which they are measured.
    fn patterns(&self, layout: Layout) -> Vec<Pattern> {
        let exhibits = self.settings.exhibits.iter().map(|one| one.patterns());
        let of_it = exhibits.filter(|(on, _)| *on == layout);
        let wanted: Vec<Pattern> = of_it.flat_map(|(_, patterns)| patterns.to_vec()).collect();
        ORDER.into_iter().filter(|pattern| wanted.contains(pattern)).collect()
    }

    /// Whether an exhibit has a configuration at a pattern.
    fn shows(&self, layout: Layout, pattern: Pattern, configuration: Configuration) -> bool {
        let of_it = |exhibit: &Exhibit| {
            let (on, patterns) = exhibit.patterns();
            on == layout && patterns.contains(&pattern) && exhibit.shows(configuration)
        };
        self.settings.exhibits.iter().any(of_it)
    }

    fn layout(&mut self, layout: Layout) -> Result<()> {
        let patterns = self.patterns(layout);
        let wants = |exhibit| layout == Layout::Raid10 && self.settings.exhibits.contains(&exhibit);
        let (queries, mail) = (wants(Exhibit::Fig10), wants(Exhibit::Table3));
        if patterns.is_empty() && !queries && !mail {
            return Ok(());
        }
        let rigs = self.rigs(layout)?;
        for pattern in patterns {
            for &depth in &self.settings.depths {
                (self.say)(&format!("{} {} depth {depth}", layout.name(), pattern.name()));
                for round in 0..self.settings.rounds {
                    self.turns(&rigs, round, |run, configuration, rig| {
                        if !run.shows(layout, pattern, configuration) {
                            return Ok(());
                        }
                        run.point(layout, pattern, (configuration, rig), depth, round)
                    })?;
                }
            }
        }
        if queries {
            // A database that was loaded, not one that other patterns wrote over.
            rigs.iter().try_for_each(|(_, rig)| self.fill(rig))?;
            let passes = self.passes(&rigs)?;
            for round in 0..self.settings.rounds {
                (self.say)(&format!("fig10 round {}, {passes} passes", round + 1));
                self.turns(&rigs, round, |run, configuration, rig| {
                    run.queries(configuration, rig, passes, round)
                })?;
            }
        }
        if mail {
            for round in 0..self.settings.rounds {
                (self.say)(&format!("table3 round {}", round + 1));
                self.turns(&rigs, round, |run, configuration, rig| {
                    run.mail(configuration, rig, round)
                })?;
            }
        }
        rigs.into_iter().try_for_each(|(_, rig)| rig.close())
    }

    /// One after the other; every other round the other way round.
    fn turns(
        &mut self,
        rigs: &Rigs,
        round: u32,
        mut turn: impl FnMut(&mut Self, Configuration, &Rig) -> Result<()>,
    ) -> Result<()> {
        let mut order: Vec<usize> = (0..rigs.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let (configuration, rig) = &rigs[at];
            if self.measured.missing.iter().any(|(one, _)| one == configuration) {
                continue;
            }
            match turn(self, *configuration, rig) {
                // Others go on; what is not measured from here on is said.
                Err(LoadError::Engine(error)) if error.kind == volume::ErrorKind::Full => {
                    let why = format!("ended before its time: {error}");
                    (self.say)(&format!("{}: {why}", configuration.name()));
                    self.measured.missing.push((*configuration, why));
                    continue;
                }
                other => other?,
            }
            if let Some(error) = rig.schedule_error() {
                return Err(LoadError::Unexpected(format!("the schedule failed: {error}")));
            }
        }
        Ok(())
    }

    fn rigs(&mut self, layout: Layout) -> Result<Rigs> {
        let mut rigs = Vec::new();
        for &configuration in &self.settings.configurations {
            let shows =
                |exhibit: &Exhibit| exhibit.patterns().0 == layout && exhibit.shows(configuration);
            let is_shown = self.settings.exhibits.iter().any(shows);
            if !is_shown || self.why_missing(configuration).is_some() {
                continue;
            }
            (self.say)(&format!("{} {}", layout.name(), configuration.name()));
            let rig_settings = self.rig_settings(layout, configuration);
            let rig = match (configuration, self.server) {
                (Configuration::Served, Some(server)) => Rig::served(&rig_settings, server, true),
                (Configuration::DefaultAllocator, Some(server)) => {
                    Rig::served(&rig_settings, server, false)
                }
                _ => Rig::new(&rig_settings),
            }?;
            self.fill(&rig)?;
            rigs.push((configuration, rig));
        }
        Ok(rigs)
    }

    fn rig_settings(&self, layout: Layout, configuration: Configuration) -> RigSettings {
        let DarcSettings { members, volume_bytes, time, .. } = *self.settings;
        let has_pool = !matches!(configuration, Configuration::NoEdc | Configuration::Edc);
        let volumes = vec![("data", volume_bytes), ("log", volume_bytes / LOG_SHARE)];
        let held: u64 = volumes.iter().map(|(_, bytes)| bytes).sum();
        let room = if has_pool { (held * ROOM).max(ROOM_BYTES_MIN) } else { held };
        let apart = match layout {
            Layout::Raid0 => members,
            Layout::Raid10 => members / 2,
        };
        let each = (room + room / METADATA_SHARE) / apart as u64 + METADATA_BYTES;
        RigSettings {
            dir: self.dir.join(format!("{}-{}", layout.name(), configuration.name())),
            stack: stack_of(layout, members),
            member_bytes: each.next_multiple_of(1 << 20),
            is_checked: configuration == Configuration::Edc,
            volumes,
            has_pool,
            versions_every: (configuration == Configuration::Version).then(|| interval(time)),
            memory_bytes: MEMORY_BYTES,
        }
    }

    fn generator(&self, workload: Workload, requests_max: Option<u64>) -> Result<Generator> {
        let extent = Extent { seed: self.settings.seed, duration_ns: None, requests_max };
        Ok(Generator::new(workload, extent)?)
    }

    /// Writes the whole volume in order.
    fn fill(&self, rig: &Rig) -> Result<()> {
        let capacity_bytes = self.settings.volume_bytes;
        let pattern = Pattern::SequentialWrite;
        let workload = Workload::Iometer { pattern, rate: RATE, capacity_bytes };
        let mut generator = self.generator(workload, Some(capacity_bytes / CHUNK_BYTES))?;
        self.drive(rig, &mut generator, 1, None).map(drop)
    }

    fn drive(
        &self,
        rig: &Rig,
        generator: &mut Generator,
        depth: usize,
        time: Option<Duration>,
    ) -> Result<(Driven, Sample)> {
        let settings = DriveSettings { depth, warm_up: self.settings.warm_up, time };
        let (mut before, mut after) = (Sample::default(), Sample::default());
        let driven =
            drive(rig.targets(), generator, settings, &mut || before = rig.sample(), &mut || {
                after = rig.sample()
            })?;
        Ok((driven, after.since(before)))
    }

    fn point(
        &mut self,
        layout: Layout,
        pattern: Pattern,
        (configuration, rig): (Configuration, &Rig),
        depth: u32,
        round: u32,
    ) -> Result<()> {
        let capacity_bytes = self.settings.volume_bytes;
        let workload = Workload::Iometer { pattern, rate: RATE, capacity_bytes };
        let mut generator = self.generator(workload, None)?;
        let time = Some(self.settings.time);
        let (driven, sample) = self.drive(rig, &mut generator, depth as usize, time)?;
        let measure = measure_of(&driven, sample, configuration);
        self.measured.points.push(Point { layout, pattern, configuration, depth, round, measure });
        Ok(())
    }

    /// Passes over the database that take long enough in the first configuration.
    fn passes(&self, rigs: &Rigs) -> Result<u64> {
        let Some((_, first)) = rigs.first() else { return Ok(PASSES) };
        let (driven, _) = self.query(first, PASSES)?;
        let wanted = self.settings.time.as_secs_f64() * f64::from(QUERY_TIMES);
        let passes = (PASSES as f64 * wanted / driven.seconds).ceil();
        Ok((passes as u64).clamp(PASSES, PASSES_MAX))
    }

    fn query(&self, rig: &Rig, passes: u64) -> Result<(Driven, Sample)> {
        let capacity_bytes = self.settings.volume_bytes;
        let workload = Workload::Queries { rate: RATE, capacity_bytes };
        let requests = passes * capacity_bytes / CHUNK_BYTES;
        let mut generator = self.generator(workload, Some(requests))?;
        self.drive(rig, &mut generator, QUERY_DEPTH, None)
    }

    fn queries(
        &mut self,
        configuration: Configuration,
        rig: &Rig,
        passes: u64,
        round: u32,
    ) -> Result<()> {
        let (driven, sample) = self.query(rig, passes)?;
        let measure = measure_of(&driven, sample, configuration);
        let seconds = driven.seconds;
        self.measured.queries.push(QueryRun { configuration, round, seconds, measure });
        Ok(())
    }

    fn mail(&mut self, configuration: Configuration, rig: &Rig, round: u32) -> Result<()> {
        let data_bytes = self.settings.volume_bytes;
        let log_bytes = data_bytes / LOG_SHARE;
        let workload = Workload::Mail { rate: RATE, data_bytes, log_bytes };
        let mut generator = self.generator(workload, None)?;
        let time = Some(self.settings.time);
        let (driven, sample) = self.drive(rig, &mut generator, MAIL_DEPTH, time)?;
        let [data, log] = driven.devices;
        let a_second = |count: u64| count as f64 / driven.seconds;
        self.measured.mail.push(MailRun {
            configuration,
            round,
            reads: a_second(data.reads),
            writes: a_second(data.writes),
            log_writes: a_second(log.writes),
            measure: measure_of(&driven, sample, configuration),
        });
        Ok(())
    }
}

fn measure_of(driven: &Driven, sample: Sample, configuration: Configuration) -> Measure {
    let requests = driven.requests() as f64;
    let checksums = driven.blocks * configuration.checksums_a_block();
    Measure {
        requests_per_second: requests / driven.seconds,
        bytes_per_second: driven.bytes as f64 / driven.seconds,
        mean_us: driven.times.mean_us(),
        p50_us: driven.times.quantile_us(0.5),
        p99_us: driven.times.quantile_us(0.99),
        cpu_us: sample.cpu_seconds.map(|seconds| seconds * 1e6 / requests),
        member_reads: sample.reads as f64 / requests,
        member_writes: sample.writes as f64 / requests,
        member_flushes: sample.flushes,
        checksums: checksums as f64 / requests,
        captures: sample.captures,
        pruned: sample.pruned,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use units::Span;

    use super::interval;

    #[test]
    fn a_measurement_has_as_many_versions_as_the_papers() {
        assert_eq!(interval(Duration::from_secs(300)), Span(60_000_000_000));
        assert_eq!(interval(Duration::from_secs(3000)), Span(60_000_000_000));
        assert_eq!(interval(Duration::from_secs(10)), Span(2_000_000_000));
        assert_eq!(interval(Duration::from_millis(100)), Span(1_000_000_000));
    }
}
