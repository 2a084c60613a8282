//! P15: what encoding makes of the history of real inputs, and what reading it costs.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tests::command::{call, run};
use tests::disk::Disk;
use tests::postgres::Postgres;
use tests::random::Random;

use super::Options;
use super::fio::{self, Amount};
use super::patterns::{Pattern, RANDOM_WRITE};
use super::report::Report;
use super::servers::Hindsight;

const READS: [Pattern; 2] = [
    Pattern { name: "randread-4k-qd1", arguments: &["--rw=randread", "--bs=4k", "--iodepth=1"] },
    Pattern { name: "read-64k-qd1", arguments: &["--rw=read", "--bs=64k", "--iodepth=1"] },
];
/// Bytes of the volumes.
const SIZE_BYTES: u64 = 1 << 30;
/// Files of the tree that is churned.
const FILES: u64 = 2000;

type Input = fn(&Options, &Hindsight) -> Result<()>;
const INPUTS: [(&str, Input); 3] =
    [("pgbench", pgbench), ("file churn", churn), ("random", random)];

/// P15.
pub fn of_history(options: &Options) -> Result<Report> {
    let goal = "history of a pgbench run at most 1/10 of what it takes raw; reading an encoded \
                moment at least half as fast";
    let mut report = Report::new("P15: encoded history", goal, "see the case").with_ratio(
        "encoded",
        &["raw"],
        "encoded / raw",
    );
    report.note(
        "Each input writes to a volume that keeps every write (pgbench: scale 5 on ext4; file \
         churn: a tree of text files on ext4 of which lines are changed, files rewritten, renamed \
         and deleted; random: 4 KiB of random bytes at random). History is then encoded with an \
         age of nothing. `bytes` are `history_bytes` of the volume; `bytes a version` those for \
         each version that was raw before. Reads (requests/s) are of the moment in the middle of \
         the run, one connection, queue depth 1, before and after. Zones that are being filled \
         count as a whole in neither.",
    );
    for (round, encoding) in ["xor", "delta"].into_iter().cycle().take(options.rounds).enumerate() {
        for (name, input) in INPUTS {
            let hindsight = Hindsight::start(options)?;
            let size = SIZE_BYTES.to_string();
            hindsight.ask(&["volume", "create", "bench", "--size", &size])?;
            let first = latest(&hindsight)?;
            input(options, &hindsight).with_context(|| format!("input {name}"))?;
            let middle = first.midpoint(latest(&hindsight)?);
            hindsight.settle()?;
            let case = |what: &str| format!("{name}, {encoding}: {what}");
            let raw = history_bytes(&hindsight)?;
            let versions = (raw / 4096).max(1);
            read(options, &hindsight, middle, |p, iops| {
                report.add(&case(p), "raw", round, iops, None);
            })?;
            let set = ["volume", "set", "bench", "--encoding", encoding, "--encode-after", "0s"];
            hindsight.ask(&set)?;
            let begun = Instant::now();
            wait_until_encoded(&hindsight)?;
            let seconds = begun.elapsed().as_secs_f64();
            let encoded = history_bytes(&hindsight)?;
            report.add(&case("bytes"), "raw", round, raw as f64, None);
            report.add(&case("bytes"), "encoded", round, encoded as f64, None);
            let each = |bytes: u64| bytes as f64 / versions as f64;
            report.add(&case("bytes a version"), "raw", round, each(raw), None);
            report.add(&case("bytes a version"), "encoded", round, each(encoded), None);
            report.add(&case("seconds to encode"), "encoded", round, seconds, None);
            read(options, &hindsight, middle, |p, iops| {
                report.add(&case(p), "encoded", round, iops, None);
            })?;
        }
    }
    Ok(report)
}

fn latest(hindsight: &Hindsight) -> Result<u64> {
    hindsight.ask(&["resolve", "bench@latest"])?["seq"].as_u64().context("resolve says no seq")
}

fn history_bytes(hindsight: &Hindsight) -> Result<u64> {
    let shown = hindsight.ask(&["volume", "show", "bench"])?;
    shown["history_bytes"].as_u64().context("volume show says no history_bytes")
}

/// Until something was packed, or was not because it does not pay, and then nothing more is packed
/// or freed for some seconds.
fn wait_until_encoded(hindsight: &Hindsight) -> Result<()> {
    let mut before = None;
    let mut same = 0;
    let begun = Instant::now();
    while same < 12 {
        ensure!(begun.elapsed() < Duration::from_secs(300), "history was not encoded in 300 s");
        std::thread::sleep(Duration::from_secs(1));
        let shown = hindsight.ask(&["volume", "show", "bench"])?;
        let count = |name: &str| shown["encoding"][name].as_u64().unwrap_or(0);
        let looked_at = count("encoded") + count("left");
        let now = (looked_at, shown["history_bytes"].as_u64());
        same = if looked_at > 0 && before == Some(now) { same + 1 } else { 0 };
        before = Some(now);
    }
    Ok(())
}

fn read(
    options: &Options,
    hindsight: &Hindsight,
    seq: u64,
    mut tell: impl FnMut(&str, f64),
) -> Result<()> {
    let uri = hindsight.server.uri(&format!("bench@seq:{seq}"));
    for pattern in &READS {
        let amount = Amount::Seconds(options.seconds);
        tell(pattern.name, fio::run(&uri, pattern, SIZE_BYTES, 1, amount)?.iops);
    }
    Ok(())
}

/// An ext4 on the volume, made anew.
fn file_system(options: &Options, hindsight: &Hindsight) -> Result<Disk> {
    let folder = options.directory.join("disk");
    let mut disk = Disk::attach(&hindsight.server.uri("bench"), &folder.join("fuse"), false)?;
    call("mkfs.ext4", &["-q", "-F", disk.device()])?;
    disk.mount(&folder.join("mnt"), "defaults")?;
    Ok(disk)
}

fn pgbench(options: &Options, hindsight: &Hindsight) -> Result<()> {
    let disk = file_system(options, hindsight)?;
    let folder = options.directory.join("disk");
    let mut postgres = Postgres::at(&folder.join("mnt/data"), &folder.join("socket"))?;
    postgres.init()?;
    postgres.start()?;
    run(&mut postgres.bench(&["-i", "-q", "-s", "5"]))?;
    let seconds = (10 * options.seconds).to_string();
    run(&mut postgres.bench(&["-c", "4", "-T", &seconds]))?;
    postgres.stop("fast")?;
    disk.detach()
}

/// Lines of text as sources have them.
fn line(random: &mut Random) -> String {
    const WORDS: [&str; 16] = [
        "static", "int", "return", "struct", "device", "buffer", "->", "= 0;", "if", "(", ")",
        "unsigned", "lock", "flags", "&", "error",
    ];
    let words = random.between(3, 12);
    let mut line: Vec<&str> = Vec::new();
    line.extend((0..words).map(|_| WORDS[random.between(0, 15) as usize]));
    format!("\t{} {}\n", line.join(" "), random.between(0, 99_999))
}

fn churn(options: &Options, hindsight: &Hindsight) -> Result<()> {
    let disk = file_system(options, hindsight)?;
    let tree = options.directory.join("disk/mnt/tree");
    let mut random = Random::new(15);
    let mut files: Vec<Vec<String>> = Vec::new();
    let path = |index: u64| tree.join(format!("{}/file-{index}.c", index / 50));
    let save = |index: u64, lines: &[String]| -> Result<()> {
        fs::create_dir_all(path(index).parent().unwrap_or(Path::new("/")))?;
        Ok(fs::write(path(index), lines.concat())?)
    };
    for index in 0..FILES {
        let lines = (0..random.between(20, 800)).map(|_| line(&mut random)).collect::<Vec<_>>();
        save(index, &lines)?;
        files.push(lines);
    }
    let end = Instant::now() + Duration::from_secs(10 * u64::from(options.seconds));
    let mut turn = 0;
    while Instant::now() < end {
        let index = random.between(0, FILES - 1);
        let lines = &mut files[index as usize];
        let at = random.between(0, lines.len() as u64 - 1) as usize;
        match random.between(0, 9) {
            0 => lines.insert(at, line(&mut random)),
            1 if lines.len() > 20 => drop(lines.remove(at)),
            _ => lines[at] = line(&mut random),
        }
        if random.between(0, 20) == 0 {
            fs::remove_file(path(index))?;
        }
        save(index, lines)?;
        turn += 1;
        if turn % 50 == 0 {
            call("sync", &["-f", tree.to_str().context("a path in UTF-8")?])?;
        }
    }
    disk.detach()
}

fn random(_: &Options, hindsight: &Hindsight) -> Result<()> {
    let uri = hindsight.server.uri("bench");
    fio::run(&uri, &RANDOM_WRITE, 64 << 20, 1, Amount::Bytes(512 << 20)).map(|_| ())?;
    Ok(())
}
