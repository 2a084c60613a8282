//! `hindsight-lab ucdp`: UCDP's figures, measured on servers of our own and on one that is given.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use api::{Client, CreateShare, ExitCode};
use lab::experiment::ucdp::{Line, Measured, Point, outcomes};
use lab::report::Preface;
use units::Span;

use crate::run::{answer, write_outcome};
use crate::served::{Folder, OwnServer, Running};
use sfs::{Files, Load, Target};
use terminal::arguments::span;
use terminal::failure::Failure;
use terminal::session::{Session, say};

mod sfs;

const MEASURED: Preface<'static> = Preface {
    title: "UCDP's figures, measured",
    words: "Zhu and Chiueh, Portable and Efficient Continuous Data Protection for Network File \
            Servers, DSN 2007, its evaluation. The load has SPECsfs97's operations and sizes, \
            with the share of updates scaled; it is not that benchmark. Beside what was measured \
            stands what the paper says in words. Lines take turns within a round, on one machine \
            with the load itself; shares have `metadata = server`, as the server alone flushes no \
            names.",
    found: "Measured",
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Export of an NFS server to protect, HOST:PORT[,MOUNTPORT]:/EXPORT; without it lines I and K
    /// alone are measured. It is written to.
    #[arg(long, value_name = "PRIMARY", requires = "primary_pid")]
    primary: Option<String>,
    /// Its process, whose time is counted.
    #[arg(long, value_name = "PID")]
    primary_pid: Option<u32>,
    /// Lines: alone, O, A, I, K; may be given several times [default: all that can be].
    #[arg(long, value_name = "LINE", value_parser = line)]
    line: Vec<Line>,
    /// The directory to write into; is made, files of the same names are replaced.
    #[arg(long, short, value_name = "DIR", default_value = "hindsight-ucdp")]
    output: PathBuf,
    /// Where the pools' files are while it runs [default: the output directory].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Updates, per cent of the operations; may be given several times
    /// [default: 12, 24, 36, 48, 60, 72, 84, 96].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    updates: Vec<u32>,
    /// Operations a second, 0 for as fast as they are answered; may be given several times
    /// [default: 0, 200, 500].
    #[arg(long, value_name = "N")]
    rate: Vec<u32>,
    /// How long each point is measured.
    #[arg(long, value_name = "SPAN", default_value = "5s", value_parser = span)]
    time: Span,
    /// How often everything is measured.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Files of each line.
    #[arg(long, value_name = "N", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(1..))]
    files: u32,
    /// Connections, with 8 calls in flight each.
    #[arg(long, value_name = "N", default_value_t = 4)]
    connections: usize,
    /// The seed of all workloads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Calls in flight on a connection.
const DEPTH: usize = 8;

fn line(text: &str) -> Result<Line, String> {
    let known = || Line::ALL.map(Line::name).join(", ");
    let found = Line::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("there are {}", known()))
}

/// A server of ours, with a pool of its own, that ends with this.
struct Server {
    running: Running,
    client: Client,
    nfs: SocketAddr,
    relay: Option<SocketAddr>,
    /// Goes after the server.
    _folder: Folder,
}

/// What a line of the figures is measured on.
struct Rig {
    line: Line,
    target: Target,
    files: Files,
    /// Processes whose time is counted.
    processes: Vec<u32>,
    server: Option<Server>,
}

/// The server that is given.
struct Primary {
    address: String,
    export: String,
    nfs: SocketAddr,
    mount: SocketAddr,
    process: u32,
}

pub fn run(session: &Session, args: &Args) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let output = &args.output;
    fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
    let dir = args.dir.as_ref().unwrap_or(output);
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    let primary = primary(args)?;
    let needs = |line: Line| matches!(line, Line::Alone | Line::Append | Line::Overwrite);
    let lines: Vec<Line> = match &args.line[..] {
        [] => Line::ALL.into_iter().filter(|line| primary.is_some() || !needs(*line)).collect(),
        given => given.to_vec(),
    };
    if primary.is_none() && lines.iter().any(|line| needs(*line)) {
        return Err(Failure::usage("alone, O and A need an NFS server")
            .with_hint("give --primary HOST:PORT:/EXPORT and --primary-pid PID")
            .into());
    }
    let mut rigs = Vec::new();
    for line in lines {
        rigs.push(rig(args, line, primary.as_ref(), &dir)?);
        say(&format!("{} is ready", line.name()));
    }
    let measured = Measured { setting: setting(args), points: measure(args, &rigs)? };
    drop(rigs);
    let outcomes = outcomes(&measured);
    outcomes.iter().try_for_each(|one| write_outcome(output, one))?;
    answer(session, output, MEASURED, outcomes, began)
}

fn primary(args: &Args) -> anyhow::Result<Option<Primary>> {
    let (Some(text), Some(process)) = (&args.primary, args.primary_pid) else { return Ok(None) };
    let wrong = || Failure::usage("--primary is HOST:PORT[,MOUNTPORT]:/EXPORT");
    let (server, export) = text.split_once(":/").ok_or_else(wrong)?;
    let (host, ports) = server.rsplit_once(':').ok_or_else(wrong)?;
    let (nfs, mount) = ports.split_once(',').unwrap_or((ports, ports));
    let at = |port: &str| -> anyhow::Result<SocketAddr> {
        let address = format!("{host}:{port}");
        let mut found = address.to_socket_addrs().with_context(|| address.clone())?;
        found.next().context(address)
    };
    Ok(Some(Primary {
        address: server.to_owned(),
        export: format!("/{export}"),
        nfs: at(nfs)?,
        mount: at(mount)?,
        process,
    }))
}

/// Whether a share follows, or is it.
fn rig(args: &Args, line: Line, primary: Option<&Primary>, dir: &Path) -> anyhow::Result<Rig> {
    let own = format!("{}-{}", line.name(), std::process::id());
    let mut processes = Vec::new();
    let mut server = None;
    let target = match (line, primary) {
        (Line::Inline | Line::Embedded, _) => {
            let started = Server::start(dir, &own, line, None)?;
            let nfs = started.relay.unwrap_or(started.nfs);
            processes.push(started.running.process());
            server = Some(started);
            Target { nfs, mount: nfs, export: "/share".to_owned() }
        }
        (_, Some(primary)) => {
            processes.push(primary.process);
            let export = format!("{}/{own}", primary.export.trim_end_matches('/'));
            sfs::make_directory(&primary.target(&primary.export), &own)?;
            match line {
                Line::Alone => primary.target(&export),
                _ => {
                    let address = format!("{}:{export}", primary.address);
                    let started = Server::start(dir, &own, line, Some(&address))?;
                    let nfs = started.relay.context("a relay has an address")?;
                    processes.push(started.running.process());
                    server = Some(started);
                    Target { nfs, mount: nfs, export }
                }
            }
        }
        (_, None) => bail!("{} needs an NFS server", line.name()),
    };
    let files = sfs::prepare(&target, args.files as usize, args.seed)?;
    Ok(Rig { line, target, files, processes, server })
}

impl Primary {
    fn target(&self, export: &str) -> Target {
        Target { nfs: self.nfs, mount: self.mount, export: export.to_owned() }
    }
}

impl Server {
    /// Starts one with a share, `share`, and a relay as the line has it.
    fn start(dir: &Path, own: &str, line: Line, primary: Option<&str>) -> anyhow::Result<Server> {
        let folder = Folder(dir.join(own));
        let pool = folder.0.display().to_string();
        let api = format!("unix:{pool}/api.sock");
        let relay = match line {
            Line::Inline => Some("127.0.0.1:0,inline,share".to_owned()),
            Line::Append => primary.map(|at| format!("127.0.0.1:0,append,share,{at}")),
            Line::Overwrite => primary.map(|at| format!("127.0.0.1:0,overwrite,share,{at}")),
            Line::Alone | Line::Embedded => None,
        };
        let mut arguments = vec!["--pool", &pool, "--pool-size", "16GiB", "--http", &api];
        arguments.extend(["--nfs", "127.0.0.1:0", "--nbd", "none"]);
        arguments.extend(relay.iter().flat_map(|relay| ["--intercept", relay]));
        let running = OwnServer::find()?.start(&arguments)?;
        let at = |protocol| anyhow::Ok(running.address(protocol)?.parse::<SocketAddr>()?);
        let relayed = relay.as_ref().map(|_| at("intercept")).transpose()?;
        let nfs = at("nfs")?;
        let client = Client::new(api.parse().map_err(Failure::new)?)?;
        let server = Server { running, client, nfs, relay: relayed, _folder: folder };
        if relay.is_none() {
            let share = CreateShare { name: "share".to_owned(), ..CreateShare::default() };
            server.client.create_share(&share)?;
        }
        let metadata = Some("server".to_owned());
        let change = api::ChangeShare { metadata, ..api::ChangeShare::default() };
        server.client.change_share("share", &change)?;
        server.settle()?;
        Ok(server)
    }

    /// Operations that its share has not done yet.
    fn waiting(&self) -> anyhow::Result<Option<u64>> {
        let follower = self.client.share("share")?.relay.and_then(|relay| relay.follower);
        Ok(follower.map(|follower| match &*follower.state {
            "following" => follower.waiting,
            _ => u64::MAX,
        }))
    }

    /// Bytes that are kept for its share, of the present and the past.
    fn kept_bytes(&self) -> anyhow::Result<u64> {
        let share = self.client.share("share")?;
        Ok(share.live_bytes + share.history_bytes)
    }

    /// Waits until its share has done all.
    fn settle(&self) -> anyhow::Result<()> {
        let until = Instant::now() + Duration::from_secs(300);
        while self.waiting()?.is_some_and(|waiting| waiting > 0) {
            ensure!(Instant::now() < until, "the share does not come to follow");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

fn measure(args: &Args, rigs: &[Rig]) -> anyhow::Result<Vec<Point>> {
    let or =
        |given: &[u32], all: &[u32]| if given.is_empty() { all.to_vec() } else { given.to_vec() };
    let shares = or(&args.updates, &[12, 24, 36, 48, 60, 72, 84, 96]);
    let rates = or(&args.rate, &[0, 200, 500]);
    let mut points = Vec::new();
    for round in 0..args.rounds {
        for rate in &rates {
            for share in &shares {
                // The order turns around from round to round.
                let order: Vec<&Rig> = match round % 2 {
                    0 => rigs.iter().collect(),
                    _ => rigs.iter().rev().collect(),
                };
                for rig in order {
                    let rate = (*rate > 0).then_some(*rate);
                    let point = point(args, rig, (*share, rate, round))?;
                    say(&format!(
                        "round {round}, {share} % updates, {}: {:.0} operations/s, mean {:.0} us, \
                         {:.0} us of processor, {} wait, {} failed",
                        rig.line.name(),
                        point.operations_per_second,
                        point.mean_us,
                        point.processor_us,
                        point.waiting,
                        point.failed,
                    ));
                    points.push(point);
                }
            }
        }
    }
    Ok(points)
}

fn point(
    args: &Args,
    rig: &Rig,
    (update_percent, rate, round): (u32, Option<u32>, u32),
) -> anyhow::Result<Point> {
    let load = Load {
        connections: args.connections,
        depth: DEPTH,
        update_percent,
        rate: rate.map(f64::from),
        time: Duration::from_nanos(args.time.as_nanos()),
        seed: args.seed.wrapping_add(u64::from(round)),
    };
    let kept = || rig.server.as_ref().map(Server::kept_bytes).transpose();
    let (before, kept_before) = (processor(&rig.processes)?, kept()?);
    let ran = sfs::load(&rig.target, &rig.files, &load)?;
    let waiting = rig.server.as_ref().map(Server::waiting).transpose()?.flatten();
    // All that the load causes is counted, also what is done after it.
    rig.server.as_ref().map_or(Ok(()), Server::settle)?;
    let used = processor(&rig.processes)? - before;
    for (what, count) in &ran.failed {
        say(&format!("{}: {count} times {what}", rig.line.name()));
    }
    Ok(Point {
        line: rig.line,
        update_percent,
        rate,
        round,
        operations_per_second: ran.operations as f64 / ran.seconds,
        mean_us: ran.times.mean_us(),
        p99_us: ran.times.quantile_us(0.99),
        processor_us: used * 1e6 / ran.operations.max(1) as f64,
        updates: ran.updates,
        written_bytes: ran.written_bytes,
        kept_bytes: kept()?.zip(kept_before).map(|(after, before)| after.saturating_sub(before)),
        waiting: waiting.unwrap_or(0),
        failed: ran.failed.values().sum(),
    })
}

/// The processor time of processes, seconds.
fn processor(processes: &[u32]) -> anyhow::Result<f64> {
    let of = |process: &u32| {
        load::machine::cpu_seconds(Some(*process))
            .with_context(|| format!("there is no process {process}"))
    };
    processes.iter().map(of).sum()
}

fn setting(args: &Args) -> String {
    format!(
        "{} files a line, {} connections with {DEPTH} calls each, {} a point, {} rounds",
        args.files, args.connections, args.time, args.rounds
    )
}
