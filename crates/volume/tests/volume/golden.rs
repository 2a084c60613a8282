//! Golden pools: small images made by the first program of each format version, which every later
//! one must open as the pools they were.
//!
//! `tests/golden/format-N.pool` is the image with its zeros left out, `format-N.txt` what it must
//! hold: a line for each moment with size and digest, and the lists. A new format version adds a
//! pair (`cargo test -p hindsight-volume a_golden_pool_is_made -- --ignored`); none is ever made
//! again.

use std::fmt::Write;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;

use block::{BlockDevice, MemoryDevice};
use format::FORMAT_VERSION;
use hindsight_volume::{
    Architecture, ErrorKind, Granularity, Machine, Pool, PoolFormat, PoolOptions, Volume,
    VolumeSpec, WriteOp,
};
use sim::{SimClock, SimEntropy};
use units::{Moment, WallTime};

const BLOCK: u64 = 4096;
const SECOND_NS: u64 = 1_000_000_000;
const DEVICE_BYTES: u64 = 12 << 20;
/// Zeros that are worth leaving out.
const ZEROS_MIN: usize = 32;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn machine(clock: &Arc<SimClock>, seed: u64) -> Machine {
    Machine { clock: Arc::clone(clock) as _, entropy: Arc::new(SimEntropy::new(seed)) }
}

fn clock(seconds: u64) -> Arc<SimClock> {
    Arc::new(SimClock::new(WallTime::from_nanos(seconds * SECOND_NS)))
}

fn open(device: &Arc<dyn BlockDevice>, machine: Machine) -> Arc<Pool> {
    Pool::open(Arc::clone(device), machine, PoolOptions::default()).expect("opened")
}

/// Each stretch without zeros: its offset and length, 8 bytes each, and its bytes.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut at = 0;
    while let Some(first) = bytes[at..].iter().position(|&b| b != 0).map(|i| at + i) {
        let gap = bytes[first..].windows(ZEROS_MIN).position(|w| w.iter().all(|&b| b == 0));
        let end = gap.map_or(bytes.len(), |length| first + length);
        packed.extend((first as u64).to_le_bytes());
        packed.extend(((end - first) as u64).to_le_bytes());
        packed.extend(&bytes[first..end]);
        at = end;
    }
    packed
}

fn unpack(mut packed: &[u8]) -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(DEVICE_BYTES);
    while let Some((offset, rest)) = packed.split_first_chunk() {
        let (length, rest) = rest.split_first_chunk().expect("a length");
        let length = usize::try_from(u64::from_le_bytes(*length)).expect("it fits memory");
        let (bytes, rest) = rest.split_at(length);
        device.write_at(u64::from_le_bytes(*offset), &[IoSlice::new(bytes)]).expect("written");
        packed = rest;
    }
    Arc::new(device)
}

fn digest(bytes: &[u8]) -> u64 {
    let step = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Everything that can be said of a pool, one fact a line.
fn told(pool: &Pool) -> String {
    let mut text = String::new();
    for volume in pool.volumes() {
        let name = volume.name();
        let info = volume.info().expect("told");
        let (oldest, latest) = (info.oldest.seq.0, info.latest.seq.0);
        let _ = writeln!(text, "{name} {:?} {:?}", info.granularity, info.cloned_from);
        let mut moments: Vec<String> = (oldest..=latest).map(|seq| format!("seq:{seq}")).collect();
        for version in volume.versions().expect("listed") {
            let _ = writeln!(text, "{name} version {} {}", version.number, version.label);
            moments.push(format!("v:{}", version.number));
        }
        for mark in volume.marks().expect("listed") {
            let _ = writeln!(text, "{name} mark {} {}", mark.name, mark.pinned);
            moments.push(format!("mark:{}", mark.name));
        }
        for moment in moments {
            let view = match volume.view(&moment.parse().expect("a moment")) {
                Ok(view) => view,
                Err(e) => {
                    assert!(matches!(e.kind, ErrorKind::OutsideWindow { .. }), "{e:?}");
                    let _ = writeln!(text, "{name}@{moment} cannot be opened");
                    continue;
                }
            };
            let mut bytes = vec![0; usize::try_from(view.size_bytes()).expect("small")];
            view.read(0, &mut bytes).expect("read");
            let at = view.resolved();
            let _ = writeln!(
                text,
                "{name}@{moment} {} {} {} {:016x}",
                at.seq,
                at.time,
                bytes.len(),
                digest(&bytes)
            );
        }
    }
    for record in pool.audit(0, 1000).expect("read") {
        let _ = writeln!(text, "audit {} {} {}", record.number, record.action, record.volume);
    }
    text
}

fn write(volume: &Volume, clock: &SimClock, offset: u64, length: u64, mark: u64) {
    clock.advance(SECOND_NS / 4);
    // Mostly zeros: an image of a few kilobytes.
    let mut bytes = vec![0; usize::try_from(length).expect("small")];
    bytes[..8].copy_from_slice(&mark.to_le_bytes());
    volume.write_batch(&[WriteOp::Data { offset, bytes: &bytes }]).expect("written");
}

fn trim(volume: &Volume, clock: &SimClock, offset: u64, length_bytes: u64) {
    clock.advance(SECOND_NS / 4);
    volume.write_batch(&[WriteOp::Zero { offset, length_bytes }]).expect("trimmed");
}

fn make(pool: &Pool, name: &str, granularity: Granularity) -> Arc<Volume> {
    let spec = VolumeSpec {
        name: name.to_owned(),
        size_bytes: 4 << 20,
        architecture: Architecture::Logging,
        granularity,
        window_ns: 1 << 60,
        history_limit_bytes: None,
    };
    pool.create_volume(&spec).expect("made")
}

/// Some of everything that a pool can hold.
fn live(pool: &Pool, clock: &SimClock) {
    let at = |text: &str| text.parse::<Moment>().expect("a moment");
    let main = make(pool, "main", Granularity::EveryWrite);
    (0..6).for_each(|i| write(&main, clock, i * BLOCK, BLOCK, 100 + i));
    main.create_version("the first").expect("captured");
    write(&main, clock, 5000, 9000, 200);
    main.create_mark("loose", &Moment::Latest, false).expect("marked");
    trim(&main, clock, 0, 2 << 20);
    write(&main, clock, 4 * BLOCK, 3 * BLOCK, 300);
    main.create_mark("pinned", &Moment::Latest, true).expect("marked");
    main.revert(&at("v:0"), false).expect("reverted");
    write(&main, clock, BLOCK, BLOCK, 400);
    main.resize(3 << 20).expect("smaller");
    main.resize(5 << 20).expect("larger");
    main.create_version("the second").expect("captured");
    let interval = make(pool, "interval", Granularity::Interval(SECOND_NS));
    (0..9).for_each(|i| write(&interval, clock, (i % 2) * BLOCK, BLOCK, 500 + i));
    let demand = make(pool, "demand", Granularity::OnDemand);
    (0..4).for_each(|i| write(&demand, clock, 0, 2 * BLOCK, 600 + i));
    demand.create_version("kept").expect("captured");
    write(&demand, clock, 0, BLOCK, 700);
    demand.delete_version(0).expect("deleted");
    let branch = pool.clone_volume("main", &at("mark:pinned"), "branch").expect("cloned");
    write(&branch, clock, 6 * BLOCK, BLOCK, 800);
    let doomed = make(pool, "doomed", Granularity::EveryWrite);
    write(&doomed, clock, 0, BLOCK, 900);
    drop(doomed);
    pool.clone_volume("doomed", &Moment::Latest, "orphan").expect("cloned");
    pool.delete_volume("doomed").expect("deleted");
}

#[test]
#[ignore = "makes the golden pool of a new format version"]
fn a_golden_pool_is_made() {
    let (image, facts) =
        (format!("format-{FORMAT_VERSION}.pool"), format!("format-{FORMAT_VERSION}.txt"));
    assert!(!path(&image).exists(), "{image} is there and is never made again");
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let clock = clock(1_800_000_000);
    Pool::create(&device, &machine(&clock, 1), &PoolFormat { zone_bytes: 256 << 10 })
        .expect("made");
    let pool = open(&device, machine(&clock, 2));
    live(&pool, &clock);
    pool.close().expect("closed");
    drop(pool);
    // The last of it is only in the log's tail: no close.
    let pool = open(&device, machine(&clock, 3));
    let main = pool.volume("main").expect("it is there");
    (0..5).for_each(|i| write(&main, &clock, i * 7000, BLOCK, 1000 + i));
    main.flush().expect("flushed");
    let mut bytes = vec![0; usize::try_from(DEVICE_BYTES).expect("small")];
    device.read_at(0, &mut bytes).expect("read");
    std::fs::create_dir_all(path("")).expect("a folder");
    std::fs::write(path(&image), packed(&bytes)).expect("written");
    std::fs::write(path(&facts), told(&pool)).expect("written");
}

#[test]
fn pools_of_every_format_version_open_as_what_they_were() {
    for version in 1..=FORMAT_VERSION {
        let image = std::fs::read(path(&format!("format-{version}.pool"))).expect("it is there");
        let facts = std::fs::read_to_string(path(&format!("format-{version}.txt"))).expect("too");
        assert!(image.len() < 256 << 10, "{} bytes are not small", image.len());
        assert!(facts.lines().count() > 60, "little is told of it");
        let device = unpack(&image);
        let clock = clock(1_800_000_100);
        for turn in 0..3 {
            let pool = open(&device, machine(&clock, 10 + turn));
            for (line, (found, expected)) in told(&pool).lines().zip(facts.lines()).enumerate() {
                assert_eq!(found, expected, "opening {turn} of format {version}, line {line}");
            }
            assert_eq!(told(&pool).lines().count(), facts.lines().count());
            pool.close().expect("closed");
        }
        // And it goes on.
        let pool = open(&device, machine(&clock, 20));
        let main = pool.volume("main").expect("it is there");
        write(&main, &clock, 0, BLOCK, 2000);
        main.revert(&"v:0".parse().expect("a moment"), false).expect("reverted");
        let mut bytes = [0; 8];
        main.read(5 * BLOCK, &mut bytes).expect("read");
        assert_eq!(u64::from_le_bytes(bytes), 105);
    }
}
