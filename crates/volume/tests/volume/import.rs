//! Volumes that begin as a file: each thing that can be done to them, before, while and after it is
//! copied; and what is read of a file that is not what it was.

use std::sync::Arc;

use block::{BlockDevice, MediaDevice};
use hindsight_volume::{
    Architecture, Budget, CacheChange, ErrorKind, Granularity, ImportSpec, IoKind, Machine, Pool,
    PoolFormat, PoolOptions, Result, Volume, VolumeChange, VolumeSpec, WriteOp,
};
use sim::{Random, SimClock, SimEntropy, SimFile, SimFiles, SimMedia};
use units::{MapExtent, Moment, Seq, WallTime};

/// Something done to the file that is imported.
type Spoil = fn(&Rig);

const BLOCK: usize = 4096;
const PAGE: usize = 512 * BLOCK;
const ZONE_BYTES: u64 = 256 << 10;
/// Two pages of the map and a part of a third, the last block not whole.
const IMAGE_BYTES: usize = 2 * PAGE + 37 * BLOCK + 1000;
const PATH: &str = "/images/disk";

/// The bytes of an image: some blocks of the first page are zeros, and all of the second.
fn image() -> Vec<u8> {
    let byte = |at: usize| {
        let block = at / BLOCK;
        let is_zero = block % 16 == 5 || at / PAGE == 1;
        if is_zero { 0 } else { (block * 7 + at % 13) as u8 | 1 }
    };
    (0..IMAGE_BYTES).map(byte).collect()
}

/// What the volume shows of it.
fn original() -> Vec<u8> {
    let mut bytes = image();
    bytes.resize(IMAGE_BYTES.next_multiple_of(512), 0);
    bytes
}

/// How a pool is left and opened again.
#[derive(Clone, Copy, Debug)]
enum Leave {
    Not,
    Close,
    Kill,
    Power,
}

/// A pool and the files beside it.
struct Rig {
    media: Arc<SimMedia>,
    clock: Arc<SimClock>,
    files: Arc<SimFiles>,
    file: Arc<SimFile>,
    pool: Option<Arc<Pool>>,
}

impl Rig {
    fn new(media_bytes: u64) -> Rig {
        let media = Arc::new(SimMedia::filled(media_bytes, 5, 0xdd));
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(1 << 60)));
        let files = Arc::new(SimFiles::default());
        let file = files.put(PATH, 7, image());
        let mut rig = Rig { media, clock, files, file, pool: None };
        let format = PoolFormat { zone_bytes: ZONE_BYTES };
        Pool::create(&rig.device(), &rig.machine(), &format).expect("a pool on empty media");
        rig.open();
        rig
    }

    fn machine(&self) -> Machine {
        let entropy = Arc::new(SimEntropy::new(self.media.changes()));
        Machine { clock: Arc::<SimClock>::clone(&self.clock), entropy }
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(&self.media)))
    }

    fn open(&mut self) {
        let options = PoolOptions { memory_bytes: 4 << 20 };
        let files = Arc::clone(&self.files) as _;
        let pool = Pool::open_with(self.device(), self.machine(), options, files);
        self.pool = Some(pool.expect("opens"));
    }

    fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().expect("open")
    }

    fn volume(&self) -> Arc<Volume> {
        self.pool().volume("v").expect("there")
    }

    fn import(&self, architecture: Architecture, granularity: Granularity) -> Result<Arc<Volume>> {
        let bytes = architecture.needs_cache().then_some(256 << 10);
        let spec = VolumeSpec {
            architecture,
            granularity,
            window_ns: 1 << 60,
            cache: CacheChange { bytes, dirty_percent: None },
            ..VolumeSpec::new("v", 0)
        };
        let import = ImportSpec { file: PATH.to_owned(), as_raw: false };
        self.pool().import_volume(&spec, &import)
    }

    fn leave(&mut self, how: Leave) {
        match how {
            Leave::Not => return,
            Leave::Close => {
                self.pool().close().expect("closed");
                self.pool = None;
            }
            Leave::Kill | Leave::Power => {
                for volume in self.pool().volumes() {
                    volume.flush().expect("flushed");
                }
                self.media.halt_now();
                self.pool = None;
                match how {
                    Leave::Kill => self.media.kill(),
                    _ => self.media.crash(&mut Random::new(3)),
                };
            }
        }
        self.open();
    }

    fn step(&self) -> bool {
        self.clock.advance(1_000_000);
        self.pool().step(Budget { bytes: 64 << 10 }).expect("a step")
    }

    /// Copies all of it, and whatever follows.
    fn settle(&self) {
        for _ in 0..2000 {
            if !self.step() && self.volume().import_info().is_none() {
                return;
            }
        }
        panic!("it goes on for ever: {:?}", self.volume().import_info());
    }

    fn audited(&self, action: &str) -> usize {
        let records = self.pool().audit(0, usize::MAX).expect("the audit log");
        records.iter().filter(|record| record.action == action).count()
    }
}

fn seq(seq: u64) -> Moment {
    Moment::Seq(Seq(seq))
}

fn read_all(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0x5a; volume.size_bytes() as usize];
    volume.read(0, &mut bytes).expect("read");
    bytes
}

fn same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: size");
    let at = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(at.map(|at| (at / BLOCK, at % BLOCK)), None, "{what}: differs in block, byte");
}

/// A volume beside what it must be, now and at every moment of before.
struct Known {
    name: &'static str,
    present: Vec<u8>,
    states: Vec<(u64, Vec<u8>)>,
}

impl Known {
    fn new(rig: &Rig, name: &'static str, present: Vec<u8>) -> Known {
        let mut known = Known { name, present, states: Vec::new() };
        known.note(rig);
        known
    }

    fn volume(&self, rig: &Rig) -> Arc<Volume> {
        rig.pool().volume(self.name).expect("there")
    }

    fn note(&mut self, rig: &Rig) -> u64 {
        let latest = self.volume(rig).resolve(&Moment::Latest).expect("resolved").seq.0;
        self.states.push((latest, self.present.clone()));
        latest
    }

    fn write(&mut self, rig: &Rig, offset: usize, bytes: &[u8]) {
        let op = WriteOp::Data { offset: offset as u64, bytes };
        self.volume(rig).write_batch(&[op]).expect("written");
        self.present[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.note(rig);
    }

    fn trim(&mut self, rig: &Rig, offset: usize, length: usize) {
        let op = WriteOp::Zero { offset: offset as u64, length_bytes: length as u64 };
        self.volume(rig).write_batch(&[op]).expect("trimmed");
        self.present[offset..offset + length].fill(0);
        self.note(rig);
    }

    fn revert(&mut self, rig: &Rig, to: u64) {
        self.volume(rig).revert(&seq(to), false).expect("reverted");
        let (_, content) = self.states.iter().rfind(|(seq, _)| *seq == to).expect("noted");
        self.present = content.clone();
        self.note(rig);
    }

    fn resize(&mut self, rig: &Rig, bytes: usize) {
        self.volume(rig).resize(bytes as u64).expect("resized");
        self.present.resize(bytes, 0);
        self.note(rig);
    }

    /// Everything about it.
    fn check(&self, rig: &Rig, what: &str) {
        let volume = self.volume(rig);
        let what = format!("{what}: {}", self.name);
        same(&read_all(&volume), &self.present, &what);
        for (at, expected) in &self.states {
            let view = volume.view(&seq(*at)).expect("a moment of before");
            let mut bytes = vec![0x5a; view.size_bytes() as usize];
            view.read(0, &mut bytes).expect("read");
            same(&bytes, expected, &format!("{what}@seq:{at}"));
        }
        let extents = volume.extents(0, self.present.len() as u64, usize::MAX).expect("told");
        for extent in extents.iter().filter(|extent| extent.hole) {
            let range = extent.offset as usize..(extent.offset + extent.length_bytes) as usize;
            assert!(self.present[range].iter().all(|&b| b == 0), "{what}: {extent:?} is no hole");
        }
        let told: u64 = extents.iter().map(|extent| extent.length_bytes).sum();
        assert_eq!(told, self.present.len() as u64, "{what}: extents to the end");
        self.check_diff(&volume, &what);
    }

    /// The first state and the present differ exactly where a diff says so.
    fn check_diff(&self, volume: &Arc<Volume>, what: &str) {
        let (first, before) = &self.states[0];
        let page =
            volume.diff(&seq(*first), &Moment::Latest, 0, u64::MAX, usize::MAX).expect("a diff");
        let blocks = before.len().max(self.present.len()).div_ceil(BLOCK);
        let mut told = vec![false; blocks];
        for range in &page.ranges {
            let (first, end) = (range.offset as usize, range.offset + range.length_bytes);
            told[first / BLOCK..(end as usize).div_ceil(BLOCK)].fill(true);
        }
        for (block, told) in told.into_iter().enumerate() {
            let part = |of: &[u8]| {
                let start = (block * BLOCK).min(of.len());
                of[start..(start + BLOCK).min(of.len())].to_vec()
            };
            let (a, b) = (part(before), part(&self.present));
            if a.len() == b.len() {
                assert_eq!(told, a != b, "{what}: the diff about block {block}");
            }
        }
    }
}

/// All that can be done to a volume, each in pages with data, without, and at the end.
fn story(rig: &mut Rig, known: &mut Known, leave: Leave, copy: impl Fn(&Rig)) -> Vec<Known> {
    known.write(rig, 3 * BLOCK, &[0xa1; 2 * BLOCK]);
    known.write(rig, 600 * BLOCK, &[0xa2; BLOCK]);
    copy(rig);
    known.trim(rig, 20 * BLOCK, 21 * BLOCK);
    known.trim(rig, 500 * BLOCK, 40 * BLOCK);
    rig.leave(leave);
    known.write(rig, 50 * BLOCK + 100, &[0xa3; 200]);
    known.write(rig, 700 * BLOCK + 10, &[0xa4; BLOCK]);
    copy(rig);
    known.write(rig, original().len() - 700, &[0xa5; 700]);
    let version = known.volume(rig).create_version("before").expect("captured").stamp.seq.0;
    known.note(rig);
    rig.leave(leave);
    known.trim(rig, PAGE, PAGE);
    known.trim(rig, 0, PAGE);
    let mut clones = Vec::new();
    rig.pool().clone_volume("v", &Moment::Latest, "late").expect("cloned");
    clones.push(Known::new(rig, "late", known.present.clone()));
    copy(rig);
    known.revert(rig, 1);
    known.write(rig, 8 * BLOCK, &[0xa6; BLOCK]);
    rig.pool().clone_volume("v", &seq(1), "early").expect("cloned");
    clones.push(Known::new(rig, "early", original()));
    rig.leave(leave);
    clones[0].write(rig, 9 * BLOCK + 7, &[0xa7; 50]);
    clones[1].write(rig, 10 * BLOCK + 7, &[0xa8; 50]);
    copy(rig);
    known.resize(rig, 40 * BLOCK);
    known.resize(rig, original().len() + 64 * BLOCK);
    rig.leave(leave);
    known.write(rig, 100 * BLOCK + 5, &[0xa9; 5]);
    known.revert(rig, version);
    known.write(rig, 101 * BLOCK + 5, &[0xaa; 5]);
    clones
}

fn check(rig: &Rig, known: &[Known], what: &str) {
    known.iter().for_each(|known| known.check(rig, what));
    rig.pool().verify_invariants().expect("sound");
}

/// Everything, with a file that is not copied meanwhile, that is, or that was before.
fn whole_story(architecture: Architecture, leave: Leave, copied: &str) {
    let what = format!("{}, {leave:?}, {copied} copied", architecture.name());
    let mut rig = Rig::new(64 << 20);
    let volume = rig.import(architecture, Granularity::EveryWrite).expect("imported");
    let info = volume.info().expect("told");
    assert_eq!((info.oldest.seq, info.latest.seq), (Seq(1), Seq(1)), "{what}");
    assert_eq!(info.import.expect("under way").done_bytes, 0, "{what}");
    assert_eq!(info.live_bytes, 0, "{what}: nothing is stored");
    drop(volume);
    let mut known = Known::new(&rig, "v", original());
    if copied == "all" {
        rig.settle();
    }
    let clones = story(&mut rig, &mut known, leave, |rig| {
        if copied == "some" {
            (0..3).for_each(|_| {
                rig.step();
            });
        }
    });
    let mut all = vec![known];
    all.extend(clones);
    check(&rig, &all, &what);
    rig.settle();
    assert_eq!(rig.audited("imported"), 1, "{what}");
    rig.files.unlink(PATH);
    rig.file.truncate(0);
    rig.leave(Leave::Close);
    check(&rig, &all, &format!("{what}, without the file"));
}

fn every_story(architecture: Architecture) {
    whole_story(architecture, Leave::Not, "all");
    for leave in [Leave::Not, Leave::Close, Leave::Kill, Leave::Power] {
        for copied in ["nothing", "some"] {
            whole_story(architecture, leave, copied);
        }
    }
}

#[test]
fn everything_can_be_done_while_a_file_is_copied_with_logging() {
    every_story(Architecture::Logging);
}

#[test]
fn everything_can_be_done_while_a_file_is_copied_with_split_stream() {
    every_story(Architecture::SplitStream);
}

#[test]
fn everything_can_be_done_while_a_file_is_copied_with_split_downstream() {
    every_story(Architecture::SplitDownstream);
}

#[test]
fn everything_can_be_done_while_a_file_is_copied_with_hybrid() {
    every_story(Architecture::Hybrid);
}

#[test]
fn everything_can_be_done_while_a_file_is_copied_with_redirect() {
    every_story(Architecture::Redirect);
}

#[test]
fn everything_can_be_done_while_a_file_is_copied_with_checkpointing() {
    every_story(Architecture::Checkpointing);
}

#[test]
fn a_conversion_and_an_import_meet() {
    for to in Architecture::ALL {
        for first in [true, false] {
            let what = format!("to {}, converted first: {first}", to.name());
            let mut rig = Rig::new(64 << 20);
            let from = if to == Architecture::Logging {
                Architecture::SplitStream
            } else {
                Architecture::Logging
            };
            rig.import(from, Granularity::EveryWrite).expect("imported");
            let mut known = Known::new(&rig, "v", original());
            known.write(&rig, 3 * BLOCK, &[0xa1; 2 * BLOCK]);
            if !first {
                (0..4).for_each(|_| {
                    rig.step();
                });
            }
            let bytes = if to.needs_cache() { 256 << 10 } else { 0 };
            let cache = CacheChange { bytes: Some(bytes), dirty_percent: None };
            let change = VolumeChange { architecture: Some(to), cache, ..VolumeChange::default() };
            rig.volume().change(&change).expect("changed");
            known.write(&rig, 600 * BLOCK, &[0xa2; BLOCK]);
            rig.leave(Leave::Kill);
            rig.settle();
            while rig.step() {}
            if to.has_current_store() {
                let slabs = rig.pool().status().current_bytes;
                assert!(slabs > PAGE as u64, "{what}: {slabs} bytes are in place");
                assert_eq!(rig.volume().info().expect("told").unplaced_bytes, 0, "{what}");
            }
            check(&rig, &[known], &what);
        }
    }
}

/// Reads each block alone: which can be read, and are what they were.
fn readable(volume: &Volume, expected: &[u8]) -> Vec<std::result::Result<(), ErrorKind>> {
    let blocks = expected.chunks(BLOCK).enumerate();
    let read = blocks.map(|(block, expected)| {
        let mut bytes = vec![0x5a; expected.len()];
        let told = volume.read((block * BLOCK) as u64, &mut bytes);
        told.map_err(|e| e.kind)?;
        same(&bytes, expected, &format!("block {block}"));
        Ok(())
    });
    read.collect()
}

#[test]
fn a_file_that_is_not_what_it_was_gives_errors_and_never_other_bytes() {
    let spoil: [(&str, Spoil); 3] = [
        ("written to", |rig| rig.file.change(30 * BLOCK, &[0xff; 10])),
        ("cut", |rig| rig.file.truncate(PAGE)),
        ("replaced and opened again", |rig| {
            rig.files.put(PATH, 8, vec![0xee; IMAGE_BYTES]);
        }),
    ];
    for (what, spoil) in spoil {
        let mut rig = Rig::new(64 << 20);
        let volume = rig.import(Architecture::Logging, Granularity::EveryWrite).expect("imported");
        let mut known = Known::new(&rig, "v", original());
        // One page is copied whole; the third was written to.
        let mut first = [0; 10];
        volume.read(0, &mut first).expect("read");
        while volume.import_info().expect("under way").done_bytes == 0 {
            rig.step();
        }
        known.write(&rig, 2 * PAGE, &[0xa1; BLOCK]);
        spoil(&rig);
        drop(volume);
        if what.starts_with("replaced") {
            rig.leave(Leave::Kill);
        }
        let volume = rig.volume();
        let before = volume.import_info().expect("under way").done_bytes;
        for _ in 0..100 {
            rig.clock.advance(1_000_000_000);
            rig.step();
        }
        let info = volume.import_info().expect("never ends");
        assert!(info.trouble.is_some(), "{what}: {info:?}");
        assert!(info.done_bytes <= before.max(PAGE as u64), "{what}: {info:?}");
        let told = readable(&volume, &known.present);
        assert!(told[2 * PAGE / BLOCK].is_ok(), "{what}: what was written can be read");
        assert!(told.contains(&Err(ErrorKind::Corrupt)), "{what}: what was not copied cannot");
        let bad = told.iter().filter(|told| told.is_err()).count();
        assert!(bad >= 37, "{what}: {bad} blocks are not readable");
        let error = volume.read((2 * PAGE + BLOCK) as u64, &mut [0; 10]).expect_err("outside");
        assert!(error.message.contains(PATH), "{what}: {error}");
        // Whole writes go on, partial ones do not.
        known.write(&rig, 2 * PAGE + BLOCK, &[0xa2; BLOCK]);
        let op = WriteOp::Data { offset: (2 * PAGE + 2 * BLOCK + 5) as u64, bytes: &[1; 5] };
        volume.write_batch(&[op]).expect_err("what is there is not known");
        rig.pool().verify_invariants().expect("sound");
    }
}

#[test]
fn a_file_that_comes_back_as_it_was_is_copied_on() {
    let mut rig = Rig::new(64 << 20);
    rig.import(Architecture::Logging, Granularity::EveryWrite).expect("imported");
    rig.files.unlink(PATH);
    rig.leave(Leave::Close);
    let volume = rig.volume();
    assert_eq!(readable(&volume, &original())[0], Err(ErrorKind::Corrupt));
    rig.step();
    let trouble = volume.import_info().expect("under way").trouble.expect("told");
    assert!(trouble.contains("no such file"), "{trouble}");
    rig.files.link(PATH, &rig.file);
    rig.clock.advance(60_000_000_000);
    rig.settle();
    same(&read_all(&volume), &original(), "all of it");
    assert_eq!(volume.import_info(), None);
}

#[test]
fn sectors_that_cannot_be_read_keep_the_file_and_nothing_else() {
    let rig = Rig::new(64 << 20);
    let volume = rig.import(Architecture::Logging, Granularity::EveryWrite).expect("imported");
    let bad = 30 * BLOCK as u64..32 * BLOCK as u64;
    rig.file.spoil(Some(bad.start + 512..bad.end - 512));
    for _ in 0..200 {
        rig.clock.advance(100_000_000);
        rig.step();
    }
    let info = volume.import_info().expect("under way");
    assert_eq!(info.unverified_bytes, PAGE as u64, "the page of the sectors");
    let told = readable(&volume, &original());
    for (block, told) in told.into_iter().enumerate() {
        let expected = if (30..32).contains(&block) { Err(ErrorKind::Io) } else { Ok(()) };
        assert_eq!(told, expected, "block {block}");
    }
    assert!(info.trouble.expect("told").contains("cannot be read"));
    rig.file.spoil(None);
    rig.clock.advance(60_000_000_000);
    rig.settle();
    same(&read_all(&volume), &original(), "all of it");
}

/// Clients read it, another, and it again, before anything of it is in the map.
#[test]
fn a_page_of_which_a_part_cannot_be_read_is_copied_once() {
    let rig = Rig::new(64 << 20);
    let volume = rig.import(Architecture::Logging, Granularity::EveryWrite).expect("imported");
    rig.file.spoil(Some(30 * BLOCK as u64..31 * BLOCK as u64));
    for offset in [0, PAGE as u64, 0] {
        volume.read(offset, &mut vec![0; BLOCK]).expect("read");
    }
    (0..4).for_each(|_| {
        rig.step();
    });
    rig.file.spoil(None);
    rig.clock.advance(60_000_000_000);
    rig.settle();
    same(&read_all(&volume), &original(), "all of it");
    rig.pool().verify_invariants().expect("all agree");
}

#[test]
fn what_no_moment_sees_in_the_file_is_not_copied() {
    let mut rig = Rig::new(64 << 20);
    let volume = rig.import(Architecture::Logging, Granularity::OnDemand).expect("imported");
    let mut known = Known::new(&rig, "v", original());
    known.write(&rig, 0, &vec![0xa1; PAGE]);
    known.states.clear();
    known.note(&rig);
    volume.flush().expect("flushed");
    drop(volume);
    let reads = rig.file.reads();
    let cut = |rig: &Rig| rig.file.spoil(Some(0..PAGE as u64));
    cut(&rig);
    rig.settle();
    assert!(rig.file.reads() > reads, "the rest was");
    known.check(&rig, "written over");
    rig.leave(Leave::Power);
    known.check(&rig, "after a power cut");
}

#[test]
fn a_rebuild_in_the_middle_finds_what_was_copied_and_reads_the_rest() {
    for architecture in Architecture::ALL {
        let mut rig = Rig::new(64 << 20);
        rig.import(architecture, Granularity::EveryWrite).expect("imported");
        let mut known = Known::new(&rig, "v", original());
        known.write(&rig, 3 * BLOCK, &[0xa1; 2 * BLOCK]);
        (0..2).for_each(|_| {
            rig.step();
        });
        known.trim(&rig, 500 * BLOCK, 40 * BLOCK);
        rig.pool().close().expect("closed");
        rig.pool = None;
        let report = Pool::rebuild(rig.device(), rig.machine()).expect("rebuilt");
        assert_eq!(report.damaged_bytes, 0);
        rig.open();
        known.check(&rig, "rebuilt");
        let reads = rig.file.reads();
        rig.settle();
        assert!(rig.file.reads() > reads, "the rest is copied");
        check(&rig, &[known], "rebuilt and copied");
    }
}

#[test]
fn a_deleted_volume_leaves_its_file_to_its_clones() {
    let mut rig = Rig::new(64 << 20);
    rig.import(Architecture::Logging, Granularity::EveryWrite).expect("imported");
    let mut known = Known::new(&rig, "v", original());
    known.write(&rig, 0, &[0xa1; BLOCK]);
    rig.pool().clone_volume("v", &Moment::Latest, "c").expect("cloned");
    let mut clone = Known::new(&rig, "c", known.present.clone());
    rig.pool().delete_volume("v").expect("deleted");
    clone.write(&rig, 9 * BLOCK + 1, &[0xa2; 10]);
    rig.leave(Leave::Kill);
    clone.check(&rig, "the first is deleted");
    let volume = clone.volume(&rig);
    for _ in 0..2000 {
        rig.step();
        if volume.import_info().is_none() {
            break;
        }
    }
    assert_eq!(volume.import_info(), None);
    rig.files.unlink(PATH);
    clone.check(&rig, "and copied");
    drop(volume);
    // Without clones all of it goes.
    rig.pool().delete_volume("c").expect("deleted");
    rig.import(Architecture::Logging, Granularity::EveryWrite).err().expect("the file is gone");
    rig.files.link(PATH, &rig.file);
    let free = rig.pool().status().free_bytes;
    rig.import(Architecture::Logging, Granularity::EveryWrite).expect("imported");
    (0..5).for_each(|_| {
        rig.step();
    });
    assert!(rig.pool().status().free_bytes < free);
    rig.pool().delete_volume("v").expect("deleted");
    while rig.step() {}
    rig.pool().verify_invariants().expect("sound");
    assert_eq!(rig.pool().status().free_bytes, free);
}

#[test]
fn copies_wait_for_room_and_take_none_from_the_history() {
    let rig = Rig::new(14 << 20);
    let volume = rig.import(Architecture::Logging, Granularity::EveryWrite).expect("imported");
    let mut known = Known::new(&rig, "v", original());
    for round in 0..4u8 {
        known.write(&rig, 2 * PAGE, &[round + 1; 30 * BLOCK]);
        known.write(&rig, 0, &vec![round + 1; 256 * BLOCK]);
    }
    for _ in 0..300 {
        rig.clock.advance(1_100_000_000);
        rig.step();
    }
    let info = volume.import_info().expect("there is no room for all of it");
    assert!(info.trouble.expect("told").contains("room"));
    assert_eq!(rig.audited("sacrifice"), 0);
    known.check(&rig, "waiting");
}

#[test]
fn what_cannot_be_imported_is_refused_by_name() {
    let rig = Rig::new(64 << 20);
    let refused = |what: &str, content: Vec<u8>| {
        rig.files.put(PATH, 9, content);
        let error = rig.import(Architecture::Logging, Granularity::EveryWrite).err().expect(what);
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        assert!(error.message.contains(what), "{error}");
    };
    refused("is empty", Vec::new());
    refused("qcow2", b"QFI\xfb and more".to_vec());
    refused("VHDX", b"vhdxfile and more".to_vec());
    rig.files.unlink(PATH);
    let error = rig.import(Architecture::Logging, Granularity::EveryWrite).err().expect("gone");
    assert_eq!(error.kind, ErrorKind::NotFound);
    rig.files.put(PATH, 9, vec![1; 100]);
    rig.import(Architecture::Logging, Granularity::EveryWrite).expect("a small one");
    assert_eq!(rig.volume().size_bytes(), 4096);
    let error = rig.import(Architecture::Logging, Granularity::EveryWrite).err().expect("there");
    assert_eq!(error.kind, ErrorKind::Exists);
}

#[test]
fn reads_that_may_not_wait_say_so() {
    let rig = Rig::new(64 << 20);
    let volume = rig.import(Architecture::Logging, Granularity::EveryWrite).expect("imported");
    let mut bytes = [0; 100];
    assert!(!volume.try_read(0, &mut bytes).expect("the map is not there"));
    volume.read(0, &mut bytes).expect("read");
    rig.file.set_cold_every(1);
    assert!(!volume.try_read(0, &mut bytes).expect("the file is cold"));
    rig.file.set_cold_every(0);
    assert!(volume.try_read(0, &mut bytes).expect("it is warm"));
    assert_eq!(bytes[..], original()[..100]);
}

#[test]
fn a_clone_of_what_is_in_a_file_differs_where_it_was_written_before_and_after_the_copy() {
    let rig = Rig::new(64 << 20);
    let volume = rig.import(Architecture::Logging, Granularity::EveryWrite).expect("imported");
    let early = volume.resolve(&Moment::Latest).expect("resolved").seq;
    let clone = rig.pool().clone_volume("v", &Moment::Latest, "c").expect("cloned");
    let put = |volume: &Volume, block: usize, bytes: &[u8]| {
        let op = WriteOp::Data { offset: (block * BLOCK) as u64, bytes };
        volume.write_batch(&[op]).expect("written");
    };
    put(&clone, 3, &[0xc5; BLOCK]);
    // What it was already, and what both write.
    put(&clone, 7, &image()[7 * BLOCK..8 * BLOCK]);
    put(&clone, 600, &[0xc6; BLOCK]);
    put(&volume, 600, &[0xc6; BLOCK]);
    let told = |from: &Moment| {
        let latest = Moment::Latest;
        let page = volume.diff_with(from, (&clone, &latest), 0, usize::MAX).expect("compared");
        page.ranges.iter().map(|r| (r.offset as usize / BLOCK, r.length_bytes)).collect::<Vec<_>>()
    };
    for what in ["in the file", "copied"] {
        assert_eq!(told(&Moment::Latest), [(3, 4096)], "{what}");
        assert_eq!(told(&Moment::Seq(early)), [(3, 4096), (600, 4096)], "{what}");
        rig.settle();
    }
}

#[test]
fn a_write_takes_along_nothing_that_is_only_in_the_file() {
    for architecture in [Architecture::Redirect, Architecture::Checkpointing] {
        let rig = Rig::new(64 << 20);
        let volume = rig.import(architecture, Granularity::OnDemand).expect("imported");
        let copy_unit = Some(MapExtent::ALL[4]);
        volume.change(&VolumeChange { copy_unit, ..VolumeChange::default() }).expect("set");
        volume.create_version("").expect("captured");
        let logged = || {
            let counts = volume.info().expect("told").device_io;
            let is_log = |kind| matches!(kind, IoKind::HistoryWrite | IoKind::JournalWrite);
            counts.iter().filter(|count| is_log(count.kind)).map(|count| count.bytes).sum::<u64>()
        };
        // How many blocks a write of one block logs.
        let write = |block: usize| {
            let before = logged();
            let op = WriteOp::Data { offset: (block * BLOCK) as u64, bytes: &[7; BLOCK] };
            volume.write_batch(&[op]).expect("written");
            (logged() - before) / BLOCK as u64
        };
        assert_eq!([write(3), write(20)], [1, 1], "{architecture:?}");
        rig.settle();
        volume.create_version("").expect("captured");
        // One of the unit is a hole.
        assert_eq!(write(3), 15, "{architecture:?}: what was copied is taken along");
    }
}
