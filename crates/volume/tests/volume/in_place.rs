//! Volumes whose present lies in place: what it costs, and that the map decides.

use std::sync::Arc;

use block::{BlockDevice, MediaDevice};
use format::checksum::block_crc;
use hindsight_volume::{
    Architecture, Budget, Granularity, IoKind, Machine, Pool, PoolFormat, PoolOptions, Volume,
    VolumeSpec, WriteOp,
};
use sim::{Keep, Op, Random, SimClock, SimEntropy, SimMedia};
use units::{Moment, Seq, WallTime};

const BLOCK: u64 = 4096;
const SIZE_BYTES: u64 = 8 << 20;
const ZONE_BYTES: u64 = 1 << 20;

/// A pool on simulated media.
struct Rig {
    media: Arc<SimMedia>,
    pool: Option<Arc<Pool>>,
}

fn machine() -> Machine {
    let clock = Arc::new(SimClock::new(WallTime::from_nanos(1 << 60)));
    Machine { clock, entropy: Arc::new(SimEntropy::new(7)) }
}

impl Rig {
    fn new() -> Rig {
        let media = Arc::new(SimMedia::filled(256 << 20, 5, 0xdd));
        let mut rig = Rig { media, pool: None };
        let format = PoolFormat { zone_bytes: ZONE_BYTES };
        Pool::create(&rig.device(), &machine(), &format).expect("a pool on empty media");
        rig.open();
        rig
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(&self.media)))
    }

    fn open(&mut self) {
        let options = PoolOptions { memory_bytes: 8 << 20 };
        self.pool = Some(Pool::open(self.device(), machine(), options).expect("opens"));
    }

    fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().expect("open")
    }

    fn make(&self, name: &str, granularity: Granularity) -> Arc<Volume> {
        let spec = VolumeSpec {
            architecture: Architecture::SplitStream,
            granularity,
            window_ns: 1 << 60,
            ..VolumeSpec::new(name, SIZE_BYTES)
        };
        self.pool().create_volume(&spec).expect("made")
    }

    fn restart(&mut self) -> Arc<Volume> {
        self.pool().close().expect("closed");
        self.pool = None;
        self.open();
        self.pool().volume("v").expect("there")
    }

    fn settle(&self) {
        while self.pool().step(Budget { bytes: 1 << 16 }).expect("a step") {}
    }
}

fn requests(volume: &Volume, kind: IoKind) -> u64 {
    let info = volume.info().expect("info");
    info.device_io.iter().find(|count| count.kind == kind).expect("every kind is told").requests
}

fn put(volume: &Volume, block: u64, byte: u8, blocks: u64) -> Seq {
    let bytes = vec![byte; (blocks * BLOCK) as usize];
    volume.write_batch(&[WriteOp::Data { offset: block * BLOCK, bytes: &bytes }]).expect("written")
}

fn content(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xee; volume.size_bytes() as usize];
    volume.read(0, &mut bytes).expect("read");
    bytes
}

/// Reads everything; says whether all of it came from its place.
fn all_in_place(volume: &Volume, expected: &[u8]) -> bool {
    let before = requests(volume, IoKind::HistoryRead);
    assert!(content(volume) == expected, "the present");
    requests(volume, IoKind::HistoryRead) == before
}

/// Writes blocks here and there, and in `expected` too.
fn scribble(volume: &Volume, expected: &mut [u8], random: &mut Random, times: u64) {
    for _ in 0..times {
        let block = random.below(SIZE_BYTES / BLOCK);
        let byte = random.below(255) as u8 + 1;
        put(volume, block, byte, 1);
        expected[(block * BLOCK) as usize..][..BLOCK as usize].fill(byte);
    }
}

#[test]
fn a_write_is_one_request_to_the_log_and_one_in_place_at_every_granularity() {
    for granularity in
        [Granularity::EveryWrite, Granularity::Interval(1_000_000_000), Granularity::OnDemand]
    {
        let rig = Rig::new();
        let volume = rig.make("v", granularity);
        let mut expected = vec![0; SIZE_BYTES as usize];
        scribble(&volume, &mut expected, &mut Random::new(1), 500);
        assert_eq!(requests(&volume, IoKind::HistoryWrite), 500, "{granularity:?}");
        assert_eq!(requests(&volume, IoKind::CurrentWrite), 500, "{granularity:?}");
        assert!(all_in_place(&volume, &expected), "{granularity:?}");
        assert!(requests(&volume, IoKind::CurrentRead) > 0);
        assert_eq!(requests(&volume, IoKind::CopyRead) + requests(&volume, IoKind::CopyWrite), 0);
    }
}

#[test]
fn writes_of_one_batch_that_overlap_beyond_a_group_all_come_into_their_places() {
    let rig = Rig::new();
    let volume = rig.make("v", Granularity::EveryWrite);
    // 256 blocks lie together in a group: the second write ends in the group of the first.
    let (first, second) = (vec![1; 2 * BLOCK as usize], vec![2; 2 * BLOCK as usize]);
    let ops = [
        WriteOp::Data { offset: 256 * BLOCK, bytes: &first },
        WriteOp::Data { offset: 255 * BLOCK, bytes: &second },
    ];
    volume.write_batch(&ops).expect("written");
    let mut expected = vec![0; SIZE_BYTES as usize];
    expected[256 * BLOCK as usize..][..first.len()].copy_from_slice(&first);
    expected[255 * BLOCK as usize..][..second.len()].copy_from_slice(&second);
    rig.settle();
    assert!(all_in_place(&volume, &expected));
    rig.pool().verify_invariants().expect("places have what the map says");
    assert_eq!(volume.info().expect("info").counters.rotten_places, 0);
}

#[test]
fn after_a_restart_the_present_is_in_place() {
    let mut rig = Rig::new();
    let volume = rig.make("v", Granularity::EveryWrite);
    let mut expected = vec![0; SIZE_BYTES as usize];
    scribble(&volume, &mut expected, &mut Random::new(2), 800);
    rig.settle();
    drop(volume);
    let volume = rig.restart();
    assert_eq!(volume.info().expect("info").architecture, Architecture::SplitStream);
    assert!(all_in_place(&volume, &expected));
}

#[test]
fn a_revert_is_instant_and_what_differs_is_put_back_behind_it() {
    let rig = Rig::new();
    let volume = rig.make("v", Granularity::EveryWrite);
    let mut expected = vec![0; SIZE_BYTES as usize];
    // Pages of the map are 2 MiB: all four are written, one differs.
    for block in 0..SIZE_BYTES / BLOCK {
        put(&volume, block, 1, 1);
    }
    expected.fill(1);
    let then = volume.resolve(&Moment::Latest).expect("now").seq;
    put(&volume, 600, 2, 20);
    rig.settle();
    let copied = requests(&volume, IoKind::CopyWrite);
    volume.revert(&Moment::Seq(then), false).expect("reverted");
    assert!(volume.info().expect("info").unplaced_bytes > 0);
    assert_eq!(requests(&volume, IoKind::CopyWrite), copied, "a revert copies nothing");
    assert!(!all_in_place(&volume, &expected), "the log answers at first");
    rig.settle();
    assert_eq!(volume.info().expect("info").unplaced_bytes, 0);
    // Each of them lies by itself in the log, so each is a request of its own.
    assert_eq!(requests(&volume, IoKind::CopyWrite) - copied, 20, "only what differs is written");
    assert!(all_in_place(&volume, &expected));
}

#[test]
fn putting_back_goes_on_after_a_restart_a_second_revert_and_writes_meanwhile() {
    let mut rig = Rig::new();
    let mut volume = rig.make("v", Granularity::EveryWrite);
    let mut random = Random::new(3);
    let mut first = vec![0; SIZE_BYTES as usize];
    scribble(&volume, &mut first, &mut random, 300);
    let one = volume.resolve(&Moment::Latest).expect("now").seq;
    let mut second = first.clone();
    scribble(&volume, &mut second, &mut random, 300);
    let two = volume.resolve(&Moment::Latest).expect("now").seq;
    let mut third = second.clone();
    scribble(&volume, &mut third, &mut random, 300);
    volume.revert(&Moment::Seq(two), false).expect("reverted");
    rig.pool().step(Budget { bytes: 1 }).expect("a step");
    scribble(&volume, &mut second, &mut random, 50);
    drop(volume);
    volume = rig.restart();
    assert!(volume.info().expect("info").unplaced_bytes > 0, "it goes on");
    assert!(content(&volume) == second);
    rig.pool().step(Budget { bytes: 1 }).expect("a step");
    volume.revert(&Moment::Seq(one), false).expect("reverted");
    rig.pool().step(Budget { bytes: 1 }).expect("a step");
    scribble(&volume, &mut first, &mut random, 50);
    assert!(content(&volume) == first);
    rig.settle();
    assert_eq!(volume.info().expect("info").unplaced_bytes, 0);
    assert!(all_in_place(&volume, &first));
}

#[test]
fn rot_in_place_is_answered_by_the_log_and_put_right() {
    let rig = Rig::new();
    let volume = rig.make("v", Granularity::OnDemand);
    put(&volume, 4, 1, 1);
    rig.media.start_log();
    put(&volume, 5, 9, 1);
    let log = rig.media.take_log();
    let last = log.iter().rfind(|r| r.op == Op::Write).expect("it was written");
    assert_eq!(last.length_bytes, BLOCK, "the last write is the one in place");
    rig.media.rot(last.offset + 77, 3);
    let mut expected = vec![0; SIZE_BYTES as usize];
    expected[4 * BLOCK as usize..][..BLOCK as usize].fill(1);
    expected[5 * BLOCK as usize..][..BLOCK as usize].fill(9);
    assert!(!all_in_place(&volume, &expected), "the log answers");
    let counters = volume.info().expect("info").counters;
    assert_eq!((counters.checksum_errors, counters.rotten_places), (0, 1));
    rig.settle();
    assert!(all_in_place(&volume, &expected), "put right");
}

#[test]
fn whatever_of_a_write_survives_a_power_cut_the_present_is_old_or_new() {
    for kept in 0..8 {
        let mut rig = Rig::new();
        let volume = rig.make("v", Granularity::OnDemand);
        put(&volume, 5, 1, 1);
        volume.flush().expect("flushed");
        put(&volume, 5, 2, 1);
        let count = rig.media.unsynced().len();
        assert_eq!(count, 3, "the mark of the flush, to the log, and in place");
        rig.media.halt_now();
        drop(volume);
        let keep = |at: usize| if kept >> at & 1 == 1 { Keep::All } else { Keep::Nothing };
        rig.pool = None;
        rig.media.crash_with(&mut |at, _| keep(at));
        rig.open();
        let volume = rig.pool().volume("v").expect("there");
        let mut block = vec![0; BLOCK as usize];
        volume.read(5 * BLOCK, &mut block).expect("read");
        let expected = if kept & 2 == 2 { 2 } else { 1 };
        assert!(block == vec![expected; BLOCK as usize], "kept {kept:03b}: the log decides");
        rig.settle();
        volume.read(5 * BLOCK, &mut block).expect("read");
        assert!(block == vec![expected; BLOCK as usize], "kept {kept:03b}: in place too");
    }
}

/// Two contents with the same CRC32C are easy to make; a revert between them must still put the
/// right one in place, and until then show it.
#[test]
fn contents_with_the_same_checksum_are_told_apart() {
    let (one, other) = same_checksum();
    let mut rig = Rig::new();
    let volume = rig.make("v", Granularity::EveryWrite);
    let write = |volume: &Volume, bytes: &[u8]| {
        volume.write_batch(&[WriteOp::Data { offset: 0, bytes }]).expect("written")
    };
    let first = write(&volume, &one);
    write(&volume, &other);
    rig.settle();
    volume.revert(&Moment::Seq(first), false).expect("reverted");
    let mut seen = vec![0; BLOCK as usize];
    volume.read(0, &mut seen).expect("read");
    assert!(seen == one, "before it is put back");
    rig.settle();
    volume.read(0, &mut seen).expect("read");
    assert!(seen == one, "after");
    // A power cut keeps the log's part of the next write and loses the one in place.
    rig.pool().close().expect("closed");
    rig.pool = None;
    rig.open();
    let volume = rig.pool().volume("v").expect("there");
    write(&volume, &other);
    rig.media.halt_now();
    drop(volume);
    rig.pool = None;
    let last = rig.media.unsynced().len() - 1;
    rig.media.crash_with(&mut |at, _| if at == last { Keep::Nothing } else { Keep::All });
    rig.open();
    let volume = rig.pool().volume("v").expect("there");
    for what in ["before", "after"] {
        volume.read(0, &mut seen).expect("read");
        assert!(seen == other, "{what} it is put in place");
        rig.settle();
    }
}

/// Two different blocks with one CRC32C: its polynomial, anywhere, changes nothing.
fn same_checksum() -> (Vec<u8>, Vec<u8>) {
    let one = vec![7_u8; BLOCK as usize];
    let mut other = one.clone();
    // x^32 + 0x1edc6f41, lowest coefficient last; bytes are fed lowest bit first.
    for bit in (0..33).filter(|bit| 0x1_1edc_6f41_u64 >> (32 - bit) & 1 == 1) {
        other[100 + bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(block_crc(&one), block_crc(&other), "made to be the same");
    (one, other)
}

#[test]
fn slabs_are_thin_and_go_with_the_volume() {
    let rig = Rig::new();
    let idle = rig.pool().status().current_bytes;
    let volume = rig.make("v", Granularity::EveryWrite);
    assert_eq!((idle, rig.pool().status().current_bytes), (0, 0));
    put(&volume, 0, 1, 1);
    assert_eq!(rig.pool().status().current_bytes, ZONE_BYTES);
    put(&volume, 1000, 1, 1);
    assert_eq!(rig.pool().status().current_bytes, 2 * ZONE_BYTES);
    drop(volume);
    rig.settle();
    let before = rig.pool().status();
    rig.pool().delete_volume("v").expect("deleted");
    rig.pool().step(Budget { bytes: 1 }).expect("a step");
    let after = rig.pool().status();
    assert_eq!(after.current_bytes, 0);
    assert!(after.used_bytes <= before.used_bytes - 2 * ZONE_BYTES, "its zones are free");
}

#[test]
fn a_clone_copies_nothing_and_is_written_in_places_of_its_own() {
    let mut rig = Rig::new();
    let origin = rig.make("v", Granularity::EveryWrite);
    let mut expected = vec![0; SIZE_BYTES as usize];
    let mut random = Random::new(4);
    scribble(&origin, &mut expected, &mut random, 300);
    let taken = rig.pool().status().current_bytes;
    let clone = rig.pool().clone_volume("v", &Moment::Latest, "c").expect("cloned");
    rig.settle();
    assert_eq!(rig.pool().status().current_bytes, taken);
    let mut changed = expected.clone();
    scribble(&clone, &mut changed, &mut random, 300);
    assert!(content(&clone) == changed && content(&origin) == expected);
    assert!(rig.pool().status().current_bytes > taken);
    drop((origin, clone));
    let origin = rig.restart();
    assert!(content(&origin) == expected);
    assert!(content(&rig.pool().volume("c").expect("there")) == changed);
    rig.pool().verify_invariants().expect("sound");
}
