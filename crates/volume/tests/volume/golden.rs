//! Golden pools: small images made by the first program of each format version, which every later
//! one must open as the pools they were.
//!
//! `tests/golden/format-N.pool` is the image without what it repeats, `format-N.txt` what it must
//! hold: a line for each moment with size and digest, and the lists. A new format version adds a
//! pair (`HINDSIGHT_BLESS=1 cargo test -p hindsight-volume golden`); none is ever made again. So is
//! `packs.pool`, whose packs are of encodings that are no longer written.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;

use block::{BlockDevice, MemoryDevice};
use format::FORMAT_VERSION;
use format::superblock::{FEATURE_TABLES, FEATURES_INCOMPATIBLE_KNOWN};
use hindsight_volume::{
    Budget, ErrorKind, Granularity, Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeSpec,
    WriteOp, read_superblock,
};
use sim::{SimClock, SimEntropy};
use units::{Moment, WallTime};

pub const BLOCK: u64 = 4096;
pub const SECOND_NS: u64 = 1_000_000_000;
pub const DEVICE_BYTES: u64 = 12 << 20;
/// Bytes of the shortest repetition that is left out.
const REPEATED_MIN: usize = 24;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

pub fn machine(clock: &Arc<SimClock>, seed: u64) -> Machine {
    Machine { clock: Arc::clone(clock) as _, entropy: Arc::new(SimEntropy::new(seed)) }
}

pub fn clock(seconds: u64) -> Arc<SimClock> {
    Arc::new(SimClock::new(WallTime::from_nanos(seconds * SECOND_NS)))
}

pub fn open(device: &Arc<dyn BlockDevice>, machine: Machine) -> Arc<Pool> {
    Pool::open(Arc::clone(device), machine, PoolOptions::default()).expect("opened")
}

/// Packed bytes: again and again a count of bytes, those bytes, and then where a repetition began
/// in the unpacked bytes and how long it is; counts and places have 4 bytes.
fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut seen = HashMap::new();
    let (mut at, mut literal) = (0, 0);
    let mut put = |literal: &[u8], from: usize, length: usize| {
        packed.extend(u32::try_from(literal.len()).expect("small").to_le_bytes());
        packed.extend(literal);
        packed.extend(u32::try_from(from).expect("small").to_le_bytes());
        packed.extend(u32::try_from(length).expect("small").to_le_bytes());
    };
    while let Some(key) = bytes.get(at..at + REPEATED_MIN) {
        let Some(from) = seen.insert(key, at) else {
            at += 1;
            continue;
        };
        let length = bytes[at..].iter().zip(&bytes[from..]).take_while(|(a, b)| a == b).count();
        put(&bytes[literal..at], from, length);
        at += length;
        literal = at;
    }
    put(&bytes[literal..], 0, 0);
    packed
}

fn unpack(mut packed: &[u8]) -> Arc<dyn BlockDevice> {
    fn number(packed: &mut &[u8]) -> Option<usize> {
        let (bytes, rest) = packed.split_first_chunk()?;
        *packed = rest;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    }
    let mut bytes = Vec::new();
    while let Some(count) = number(&mut packed) {
        let (literal, rest) = packed.split_at(count);
        bytes.extend_from_slice(literal);
        packed = rest;
        let from = number(&mut packed).expect("a place");
        let length = number(&mut packed).expect("a length");
        // It may repeat what it is just adding.
        (from..from + length).for_each(|i| bytes.push(bytes[i]));
    }
    assert_eq!(bytes.len() as u64, DEVICE_BYTES);
    let device = MemoryDevice::new(DEVICE_BYTES);
    device.write_at(0, &[IoSlice::new(&bytes)]).expect("written");
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
        let first = info.cloned_from.as_ref().map_or(0, |(_, seq)| seq.0);
        let _ = writeln!(text, "{name} {:?} {:?}", info.granularity, info.cloned_from);
        let mut moments: Vec<String> =
            (first..=info.latest.seq.0).map(|seq| format!("seq:{seq}")).collect();
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

pub fn write(volume: &Volume, clock: &SimClock, offset: u64, length: u64, mark: u64) {
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

pub fn make(pool: &Pool, name: &str, granularity: Granularity) -> Arc<Volume> {
    let spec = VolumeSpec { granularity, window_ns: 1 << 60, ..VolumeSpec::new(name, 4 << 20) };
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

/// Makes the pair of this program's format version.
fn make_golden() {
    let (image, facts) =
        (format!("format-{FORMAT_VERSION}.pool"), format!("format-{FORMAT_VERSION}.txt"));
    if path(&image).exists() {
        return;
    }
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
    std::fs::write(path(&image), pack(&bytes)).expect("written");
    std::fs::write(path(&facts), told(&pool)).expect("written");
}

#[test]
fn pools_of_every_format_version_open_as_what_they_were() {
    if std::env::var("HINDSIGHT_BLESS").is_ok_and(|value| value == "1") {
        make_golden();
    }
    for version in 1..=FORMAT_VERSION {
        let image = std::fs::read(path(&format!("format-{version}.pool"))).expect("it is there");
        let facts = std::fs::read_to_string(path(&format!("format-{version}.txt"))).expect("too");
        assert!(image.len() < 64 << 10, "{} bytes are not small", image.len());
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

/// It was made when tables were made at need and features set one by one.
#[test]
fn an_older_pool_gets_all_features_and_tables_when_it_is_opened_first() {
    let image = std::fs::read(path("format-1.pool")).expect("the image");
    let device = unpack(&image);
    let features = || read_superblock(&*device).expect("sound").features_incompatible;
    assert_eq!(features() & FEATURE_TABLES, 0);
    for _ in 0..2 {
        let pool = open(&device, machine(&clock(4_000_000), 9));
        assert_eq!(features(), FEATURES_INCOMPATIBLE_KNOWN);
        pool.close().expect("closed");
    }
}

/// The image was made on 2026-11-30, when all of a pack was one frame.
#[test]
fn packs_of_an_older_program_are_read_and_packed_anew() {
    let image = std::fs::read(path("packs.pool")).expect("the image");
    let facts = std::fs::read_to_string(path("packs.txt")).expect("the facts");
    let device = unpack(&image);
    let encodings = || {
        let mut bytes = vec![0; usize::try_from(DEVICE_BYTES).expect("small")];
        device.read_at(0, &mut bytes).expect("read");
        let packs = bytes.chunks(64).filter(|chunk| chunk.starts_with(b"HPACKVER"));
        packs.map(|pack| pack[12]).collect::<BTreeSet<u8>>()
    };
    assert_eq!(encodings(), BTreeSet::from([1, 2]));
    let moments = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains("@seq:")).map(str::to_owned).collect()
    };
    let expected = moments(&facts);
    assert_eq!(expected.len(), 2 * 61);
    let is_as_before = |pool: &Pool| {
        let found = moments(&told(pool));
        assert!(expected.iter().all(|line| found.contains(line)), "a moment changed");
    };
    let clock = clock(1_800_001_000);
    let pool = open(&device, machine(&clock, 10));
    assert_eq!(told(&pool), facts);
    for volume in pool.volumes() {
        (0..30).for_each(|i| write(&volume, &clock, i % 5 * BLOCK, BLOCK, 200 + i));
    }
    for _ in 0..3 {
        clock.advance(61 * SECOND_NS);
        while pool.step(Budget { bytes: 1 << 20 }).expect("a step") {}
    }
    assert!(encodings().contains(&3) && encodings().contains(&4), "{:?}", encodings());
    is_as_before(&pool);
    pool.close().expect("closed");
    drop(pool);
    Pool::rebuild(Arc::clone(&device), machine(&clock, 11)).expect("rebuilt");
    is_as_before(&open(&device, machine(&clock, 12)));
}
