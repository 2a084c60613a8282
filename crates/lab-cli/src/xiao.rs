//! `hindsight-lab xiao`: Xiao's experiments through the iSCSI target of a server of our own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api::{Client, CreateVersion, CreateVolume, ExitCode, SizeInput};
use lab::experiment::xiao_served::{Measured, Method, Mix, Moved, UNITS, Writes, outcomes};
use lab::report::Preface;
use load::LoadError;
use load::drive::{DriveSettings, Target, drive};
use load::machine::device_of;
use terminal::arguments::size;
use terminal::failure::Failure;
use terminal::session::{Session, say};
use trace::generate::{Extent, Generator, Spread, SpreadSettings, Workload};
use units::{Granularity, Size};

use crate::initiator::{COMMAND_BYTES_MAX, Initiator};
use crate::run::{answer, write_outcome};
use crate::served::{Folder, OwnServer, Running};

const MEASURED: Preface<'static> = Preface {
    title: "Xiao's experiments through an iSCSI target, measured",
    words: "Xiao and Yang, Implementation and Performance Evaluation of Two Snapshot Methods on \
            iSCSI Target Storages, MSST 2006 (its slides). A server of our own is the target, the \
            laboratory the initiator, both on this machine. Copy-on-write is `checkpointing`, \
            redirect-on-write `redirect`, both captured on demand; a snapshot's block is the copy \
            unit, of 4 KiB at least (the 0.5 KiB of the paper are simulated by `lab run xiao`). \
            Judged is what the engine counts of its device once all has settled; the paper's \
            targets, disks and network are not these, so times are shown beside its own, and of \
            them only their order is judged, where it gives figures.",
    found: "Measured",
};

const SMALL_BYTES: u64 = 4 << 10;
const LARGE_BYTES: u64 = COMMAND_BYTES_MAX as u64;
/// A unit of the largest size is written to once in a pass: so many of them at most.
const WRITES_MAX: u64 = 2048;
/// Shares of reads of the mixes. Those without a write come last: there is something to read.
const READ_PERCENTS: [u8; 3] = [0, 50, 100];
/// Times of arrival are made and not looked at: requests are sent as others end.
const RATE: f64 = 1e6;
const SETTLED_WITHIN: Duration = Duration::from_secs(300);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory to write into; is made, files of the same names are replaced.
    #[arg(long, short, value_name = "DIR", default_value = "hindsight-xiao")]
    output: PathBuf,
    /// Where the pool's file is while it runs [default: the output directory].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of each volume; there is one for each method and copy unit.
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = size)]
    size: Size,
    /// Requests of each mix [default: one for each block of 4 KiB].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Requests of a mix in flight.
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    depth: u32,
    /// How often everything is measured.
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The seed of all workloads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let output = &args.output;
    let is_whole = args.size.bytes().is_multiple_of(LARGE_BYTES) && args.size.bytes() >= 1 << 20;
    if !is_whole {
        return Err(Failure::usage("a volume has whole units of 64 KiB, 1 MiB at least").into());
    }
    std::fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
    let dir = args.dir.as_ref().unwrap_or(output);
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    let rig = Rig::new(args, &dir)?;
    let mut measured = Measured { setting: setting(args, &dir), ..Measured::default() };
    for round in 0..args.rounds {
        rig.round(round, &mut measured)?;
    }
    drop(rig);
    let outcomes = outcomes(&measured);
    outcomes.iter().try_for_each(|one| write_outcome(output, one))?;
    answer(session, output, MEASURED, outcomes, began)
}

fn setting(args: &Args, dir: &std::path::Path) -> String {
    format!(
        "Volumes of {}, written whole before; one pool, in a file on {}, with the server's \
         defaults. First writes one at a time, {} of each volume in units of 64 KiB apart, and the \
         same once more. Mixes of {} random requests of 4 KiB, {} in flight, after a capture. {} \
         rounds, methods in turns; seed {}. The device's bytes are counted once nothing waits to \
         be put in place.",
        args.size,
        device_of(dir),
        writes_of(args),
        requests_of(args),
        args.depth,
        args.rounds,
        args.seed,
    )
}

/// Writes of a pass.
fn writes_of(args: &Args) -> u64 {
    (args.size.bytes() / LARGE_BYTES).min(WRITES_MAX)
}

/// Requests of a mix: their number decides how many are first writes, whatever the machine.
fn requests_of(args: &Args) -> u64 {
    args.requests.unwrap_or(args.size.bytes() / SMALL_BYTES)
}

/// A server with a volume for each method and unit.
struct Rig<'a> {
    args: &'a Args,
    client: Client,
    portal: SocketAddr,
    _running: Running,
    /// Goes after the server.
    _folder: Folder,
}

/// One of its volumes.
#[derive(Clone, Copy)]
struct Subject {
    method: Method,
    unit_bytes: u64,
}

impl Subject {
    fn name(self) -> String {
        format!("{}-{}k", self.method.architecture(), self.unit_bytes >> 10)
    }
}

impl<'a> Rig<'a> {
    fn new(args: &'a Args, dir: &std::path::Path) -> anyhow::Result<Rig<'a>> {
        let folder = Folder(dir.join(format!("xiao-{}", std::process::id())));
        let pool = folder.0.display().to_string();
        let api = format!("unix:{pool}/api.sock");
        // All volumes, and their history of each round.
        let volumes = UNITS.len() as u64 * Method::ALL.len() as u64;
        let room = args.size.bytes() * volumes * (4 + 3 * u64::from(args.rounds));
        let pool_size = room.max(4 << 30).to_string();
        let arguments = ["--pool", &pool, "--pool-size", &pool_size, "--http", &api];
        let listeners = ["--iscsi", "127.0.0.1:0", "--nbd", "none"];
        let running = OwnServer::find()?.start(&[&arguments[..], &listeners].concat())?;
        let portal = running.address("iscsi")?.parse()?;
        let client = Client::new(api.parse().map_err(Failure::new)?)?;
        let rig = Rig { args, client, portal, _running: running, _folder: folder };
        for subject in UNITS.iter().flat_map(|unit| both(*unit, 0)) {
            rig.make(subject)?;
            say(&format!("{} is full", subject.name()));
        }
        Ok(rig)
    }

    /// Makes a volume, and writes all of it.
    fn make(&self, subject: Subject) -> anyhow::Result<()> {
        self.client.create_volume(&CreateVolume {
            name: subject.name(),
            size: SizeInput(self.args.size),
            architecture: Some(subject.method.architecture().to_owned()),
            granularity: Some(Granularity::OnDemand),
            copy_unit: Some(SizeInput(Size(subject.unit_bytes))),
            ..CreateVolume::default()
        })?;
        let mut initiator = self.initiator(subject, 0)?;
        let bytes = vec![0xa5; COMMAND_BYTES_MAX];
        for at in (0..self.args.size.bytes()).step_by(COMMAND_BYTES_MAX) {
            initiator.write(at, &bytes)?;
        }
        initiator.flush()?;
        self.settle(subject)
    }

    fn initiator(&self, subject: Subject, port: u32) -> anyhow::Result<Initiator> {
        let name = self.client.volume(&subject.name())?.iscsi_name.context("it has a target")?;
        Initiator::log_in(self.portal, &name, port)
    }

    /// Waits until all is in place that the architecture puts there: what is redirected stays
    /// where it is as long as the capture does.
    fn settle(&self, subject: Subject) -> anyhow::Result<()> {
        let until = Instant::now() + SETTLED_WITHIN;
        loop {
            let unplaced = self.client.volume(&subject.name())?.unplaced_bytes;
            let pending = self.client.pool()?.pending_entries;
            let is_placed = subject.method == Method::RedirectOnWrite || unplaced == 0;
            if is_placed && pending == 0 {
                return Ok(());
            }
            let left = format!("{unplaced} bytes and {pending} entries");
            ensure!(Instant::now() < until, "{} does not settle: {left}", subject.name());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn capture(&self, subject: Subject) -> anyhow::Result<()> {
        self.client.create_version(&subject.name(), &CreateVersion::default())?;
        Ok(())
    }

    /// Bytes of its device that a volume has moved so far.
    fn moved(&self, subject: Subject) -> anyhow::Result<Moved> {
        let volume = self.client.volume(&subject.name())?;
        let mut moved = Moved::default();
        for one in volume.device_io {
            let sum = match &*one.kind {
                "current-read" => &mut moved.place_read,
                "history-read" => &mut moved.log_read,
                "journal-write" | "history-write" => &mut moved.logged,
                "before-image-read" => &mut moved.before_read,
                "before-image-write" => &mut moved.before_written,
                "current-write" => &mut moved.placed,
                _ => &mut moved.rest,
            };
            *sum += one.bytes as f64;
        }
        Ok(moved)
    }

    fn round(&self, round: u32, measured: &mut Measured) -> anyhow::Result<()> {
        measured.small.extend(self.writes(round, SMALL_BYTES)?);
        measured.large.extend(self.writes(round, LARGE_BYTES)?);
        for unit in [UNITS[0], UNITS[UNITS.len() - 1]] {
            for read_percent in READ_PERCENTS {
                for subject in both(unit, round) {
                    let mix = self.mix(subject, round, read_percent)?;
                    say(&format!(
                        "round {round}, {}, {read_percent} % reads: {:.0} requests/s, {:.0} bytes \
                         of the device each",
                        subject.name(),
                        mix.requests_per_second,
                        mix.device_bytes,
                    ));
                    measured.mixes.push(mix);
                }
            }
        }
        Ok(())
    }

    /// Writes once to each 64 KiB of all volumes after a capture, and then once more. Nothing of a
    /// volume is put in place before all have been written to: that begins seconds later.
    fn writes(&self, round: u32, length: u64) -> anyhow::Result<Vec<Writes>> {
        let subjects: Vec<Subject> = UNITS.iter().flat_map(|unit| both(*unit, round)).collect();
        let places = places(self.args, round, length);
        let pass = |written| -> anyhow::Result<Vec<f64>> {
            subjects.iter().map(|one| self.pass(*one, &places, length, written)).collect()
        };
        let settled = || -> anyhow::Result<Vec<Moved>> {
            subjects.iter().try_for_each(|one| self.settle(*one))?;
            subjects.iter().map(|one| self.moved(*one)).collect()
        };
        subjects.iter().try_for_each(|one| self.capture(*one))?;
        let start = settled()?;
        let first_us = pass(Some(round as u8 | 1))?;
        let middle = settled()?;
        let efficiency = subjects.iter().map(|one| self.efficiency(*one));
        let efficiency = efficiency.collect::<anyhow::Result<Vec<Option<f64>>>>()?;
        let second_us = pass(Some(round as u8 & !1))?;
        let end = settled()?;
        let read_us = pass(None)?;
        let each = |from: &[Moved], to: &[Moved], at: usize| {
            between(from[at], to[at], places.len() as f64)
        };
        let writes = |(at, subject): (usize, &Subject)| {
            say(&format!(
                "round {round}, {}, {}: {:.0} us, then {:.0} us",
                subject.name(),
                Size(length),
                first_us[at],
                second_us[at],
            ));
            Writes {
                method: subject.method,
                unit_bytes: subject.unit_bytes,
                write_bytes: length,
                round,
                first_us: first_us[at],
                second_us: second_us[at],
                read_us: read_us[at],
                first: each(&start, &middle, at),
                second: each(&middle, &end, at),
                efficiency: efficiency[at],
            }
        };
        Ok(subjects.iter().enumerate().map(writes).collect())
    }

    /// Bytes that changed since the newest capture, of those that it keeps; none where the server
    /// does not count them, since the map is long.
    fn efficiency(&self, subject: Subject) -> anyhow::Result<Option<f64>> {
        let copies = self.client.volume(&subject.name())?.copies;
        Ok(copies.and_then(|copies| copies.space_efficiency))
    }

    /// Writes these bytes to all places, or reads them; the mean time in microseconds.
    fn pass(
        &self,
        subject: Subject,
        places: &[u64],
        length: u64,
        written: Option<u8>,
    ) -> anyhow::Result<f64> {
        let mut initiator = self.initiator(subject, 0)?;
        let mut bytes = vec![written.unwrap_or(0); length as usize];
        let began = Instant::now();
        for &place in places {
            match written {
                Some(_) => initiator.write(place, &bytes)?,
                None => initiator.read(place, &mut bytes)?,
            }
        }
        let took = began.elapsed();
        initiator.flush()?;
        Ok(took.as_secs_f64() * 1e6 / places.len() as f64)
    }

    /// Random requests after a capture.
    fn mix(&self, subject: Subject, round: u32, read_percent: u8) -> anyhow::Result<Mix> {
        if read_percent < 100 {
            self.capture(subject)?;
        }
        self.settle(subject)?;
        let before = self.moved(subject)?;
        let workload = Workload::Spread(SpreadSettings {
            spread: Spread::Uniform,
            rate: RATE,
            write_percent: 100 - read_percent,
            length_bytes: SMALL_BYTES,
            capacity_bytes: self.args.size.bytes(),
        });
        let seed = self.args.seed.wrapping_add(u64::from(round));
        let requests_max = Some(requests_of(self.args));
        let extent = Extent { seed, requests_max, duration_ns: None };
        let mut source = Generator::new(workload, extent)?;
        let name = self.client.volume(&subject.name())?.iscsi_name.context("it has a target")?;
        let (ports, idle) = (AtomicU32::new(0), Mutex::default());
        let target: Arc<dyn Target> = Arc::new(Remote { portal: self.portal, name, ports, idle });
        let settings =
            DriveSettings { depth: self.args.depth as usize, warm_up: Duration::ZERO, time: None };
        let driven = drive(&[target], &mut source, settings, &mut || (), &mut || ())?;
        self.settle(subject)?;
        let requests = driven.requests() as f64;
        let moved = between(before, self.moved(subject)?, requests);
        Ok(Mix {
            method: subject.method,
            unit_bytes: subject.unit_bytes,
            round,
            read_percent,
            requests_per_second: requests / driven.seconds,
            device_bytes: moved.all(),
        })
    }
}

/// Both methods; which is first turns around from round to round.
fn both(unit_bytes: u64, round: u32) -> [Subject; 2] {
    let [one, other] = Method::ALL.map(|method| Subject { method, unit_bytes });
    if round.is_multiple_of(2) { [one, other] } else { [other, one] }
}

/// Somewhere in each 64 KiB, in no order.
fn places(args: &Args, round: u32, length: u64) -> Vec<u64> {
    let count = writes_of(args);
    let within = args.seed.wrapping_add(round.into()) % (LARGE_BYTES / length) * length;
    let stride = coprime(count * 5 / 8 + 1, count);
    (0..count).map(|nth| nth * stride % count * LARGE_BYTES + within).collect()
}

/// The next number from there that has no factor in common with another.
fn coprime(mut number: u64, other: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    while gcd(number, other) != 1 {
        number += 1;
    }
    number
}

fn between(from: Moved, to: Moved, count: f64) -> Moved {
    Moved {
        place_read: (to.place_read - from.place_read) / count,
        log_read: (to.log_read - from.log_read) / count,
        logged: (to.logged - from.logged) / count,
        before_read: (to.before_read - from.before_read) / count,
        before_written: (to.before_written - from.before_written) / count,
        placed: (to.placed - from.placed) / count,
        rest: (to.rest - from.rest) / count,
    }
}

/// A target with as many sessions as requests were in flight at once.
struct Remote {
    portal: SocketAddr,
    name: String,
    ports: AtomicU32,
    idle: Mutex<Vec<Initiator>>,
}

impl Remote {
    /// Does something in a session of its own; one in which something failed is not used again.
    fn with(&self, work: impl FnOnce(&mut Initiator) -> anyhow::Result<()>) -> load::Result<()> {
        let failed = |error: anyhow::Error| LoadError::Unexpected(format!("iSCSI: {error:#}"));
        let lock = || self.idle.lock().expect("no holder panics");
        let idle = lock().pop();
        let mut initiator = match idle {
            Some(initiator) => initiator,
            None => {
                let port = self.ports.fetch_add(1, Ordering::Relaxed);
                Initiator::log_in(self.portal, &self.name, port).map_err(failed)?
            }
        };
        work(&mut initiator).map_err(failed)?;
        lock().push(initiator);
        Ok(())
    }
}

impl Target for Remote {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> load::Result<()> {
        self.with(|initiator| initiator.read(offset, buffer))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> load::Result<()> {
        self.with(|initiator| initiator.write(offset, bytes))
    }

    fn flush(&self) -> load::Result<()> {
        self.with(Initiator::flush)
    }
}
