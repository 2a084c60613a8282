//! One rotten bit after a kill: what was flushed last is healed, or said to be damaged. It is never
//! taken for what a crash cut short.

use std::sync::Arc;

use block::stack::Stack;
use block::{Array, BlockDevice, Candidate, Identities, Materials, MediaDevice};
use env::{Media, NoFiles};
use format::batch::{
    BATCH_HEADER_FIXED_BYTES, Batch, BatchEncoder, BatchHeader, BatchKind, header_bytes,
};
use format::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use hindsight_volume::{
    Architecture, Budget, CacheChange, ErrorKind, Machine, Pool, PoolFormat, PoolOptions, Result,
    Volume, VolumeSpec, WriteOp,
};
use sim::{Op, Random, SimClock, SimEntropy, SimMedia};
use units::{Moment, Seq, WallTime};

use crate::hook::{SECOND_NS, get, put};

const MIB: u64 = 1 << 20;
const MEDIA_BYTES: u64 = 48 * MIB;
const ZONE_BYTES: u64 = 256 << 10;
const PLAIN: &str = "";
const LABELLED: &str = "a";
const MIRROR: &str = "mirror(a, b)";
/// The block that is written twice, and with what.
const BLOCK: u64 = 3;
const EARLIER: u8 = 0xa1;
const LAST: u8 = 0xb2;

/// A pool with a volume `v` on media that can rot.
struct Rig {
    stack: &'static str,
    memory_bytes: u64,
    media: Vec<Arc<SimMedia>>,
    clock: Arc<SimClock>,
}

impl Rig {
    fn new(stack: &'static str) -> Rig {
        let members = stack.parse::<Stack>().map_or(1, |stack| stack.members().len() as u64);
        let media = (0..members).map(|seed| Arc::new(SimMedia::new(MEDIA_BYTES, seed + 1)));
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(1_795_255_200 * SECOND_NS)));
        let rig = Rig { stack, memory_bytes: 1 << 20, media: media.collect(), clock };
        if stack != PLAIN {
            let mut id = 0;
            let random = &mut || {
                id += 1;
                id
            };
            let identities = Identities { random, now: WallTime::from_nanos(1) };
            let stack: Stack = stack.parse().expect("a stack");
            Array::create(&stack, rig.candidates(), identities, &Materials::none())
                .expect("labels");
        }
        let device: Arc<dyn BlockDevice> = match stack {
            PLAIN => Arc::new(rig.plain()),
            _ => Arc::new(rig.array()),
        };
        let format = PoolFormat { zone_bytes: ZONE_BYTES };
        Pool::create(&device, &rig.machine(), &format).expect("made");
        rig
    }

    /// The same media as they are now, with nobody at them.
    fn fork(&self) -> Rig {
        let media = self.media.iter().map(|media| Arc::new(media.fork())).collect();
        let (stack, memory_bytes) = (self.stack, self.memory_bytes);
        Rig { stack, memory_bytes, media, clock: Arc::clone(&self.clock) }
    }

    fn machine(&self) -> Machine {
        let entropy = Arc::new(SimEntropy::new(self.media[0].changes()));
        Machine { clock: Arc::<SimClock>::clone(&self.clock), entropy }
    }

    fn plain(&self) -> MediaDevice {
        MediaDevice::new(Arc::<SimMedia>::clone(&self.media[0]))
    }

    fn candidates(&self) -> Vec<Candidate> {
        let of = |(path, media): (&str, &Arc<SimMedia>)| Candidate {
            path: path.to_owned(),
            device: Some(Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(media)))),
        };
        ["a", "b", "c"].into_iter().zip(&self.media).map(of).collect()
    }

    fn array(&self) -> Array {
        Array::open(self.candidates(), &Materials::none()).expect("all are there")
    }

    fn try_open(&self) -> Result<Arc<Pool>> {
        let options = PoolOptions { memory_bytes: self.memory_bytes };
        match self.stack {
            PLAIN => Pool::open(Arc::new(self.plain()), self.machine(), options),
            _ => {
                let files = Arc::new(NoFiles);
                Pool::open_array(self.array(), self.machine(), options, files, &mut |_| ())
            }
        }
    }

    fn open(&self) -> Arc<Pool> {
        self.try_open().expect("opens")
    }

    /// Nobody closes anything.
    fn kill(&self, pool: Arc<Pool>) {
        self.media.iter().for_each(|media| media.halt_now());
        drop(pool);
        self.media.iter().for_each(|media| media.kill());
    }

    fn bytes(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.media[0].read_at(at, &mut bytes).expect("read");
        bytes
    }

    /// Where the headers of segments are, the newest last.
    fn segments(&self) -> Vec<(u64, SegmentHeader)> {
        let all = self.bytes(0, MEDIA_BYTES as usize);
        let header = |at: usize| SegmentHeader::decode(&all[at..]).ok().map(|h| (at as u64, h));
        let mut found: Vec<_> =
            (0..all.len() - SEGMENT_HEADER_BYTES).step_by(512).filter_map(header).collect();
        found.sort_by_key(|(_, header)| header.segment);
        found
    }

    /// Where the last batch with operations is, and how long its header.
    fn last_batch(&self) -> (u64, u64) {
        let all = self.bytes(0, MEDIA_BYTES as usize);
        let batch = |at: usize| Batch::decode(&all[at..]).ok().map(|batch| (at, batch));
        let (at, batch) = (0..all.len() - BATCH_HEADER_FIXED_BYTES)
            .step_by(64)
            .filter_map(batch)
            .filter(|(_, batch)| batch.op_count > 0 && batch.header.kind == BatchKind::Writes)
            .max_by_key(|(_, batch)| batch.header.base_seq)
            .expect("something was written");
        (at as u64, u64::from(batch.header_bytes))
    }
}

fn make(pool: &Pool, architecture: Architecture) -> Arc<Volume> {
    let bytes = architecture.needs_cache().then_some(256 << 10);
    let spec = VolumeSpec {
        architecture,
        window_ns: 1 << 60,
        cache: CacheChange { bytes, dirty_percent: None },
        ..VolumeSpec::new("v", 2 * MIB)
    };
    pool.create_volume(&spec).expect("made")
}

/// Two writes of one block, of which `promise` makes the second durable, and a kill.
fn killed(stack: &'static str, of: Architecture, promise: impl Fn(&Arc<Volume>)) -> Rig {
    let rig = Rig::new(stack);
    let pool = rig.open();
    let volume = make(&pool, of);
    put(&volume, BLOCK, EARLIER);
    volume.flush().expect("flushed");
    put(&volume, BLOCK, LAST);
    promise(&volume);
    drop(volume);
    rig.kill(pool);
    rig
}

fn flushed(volume: &Arc<Volume>) {
    volume.flush().expect("flushed");
}

/// Every architecture, without a label and on a member.
fn everywhere(mut check: impl FnMut(&'static str, Architecture)) {
    for stack in [PLAIN, LABELLED] {
        Architecture::ALL.into_iter().for_each(|architecture| check(stack, architecture));
    }
}

fn refused(rig: &Rig, what: &str) {
    let error = rig.try_open().map(drop).expect_err(what);
    assert_eq!(error.kind, ErrorKind::Corrupt, "{what}: {error}");
    let text = error.to_string();
    let is_told =
        text.starts_with("volume v: ") && text.contains("was flushed but is not in the log");
    assert!(is_told && error.hint.is_some(), "{what}: {error}");
}

#[test]
fn the_rotten_header_of_the_newest_segment_is_made_again() {
    everywhere(|stack, architecture| {
        let whole = killed(stack, architecture, flushed);
        let (at, _) = *whole.segments().last().expect("there is one");
        for byte in [0, 9, 14, 20, 33, 41, 50, 60, 70, 80, 300] {
            let what = format!("{stack} {architecture:?}, byte {byte}");
            let rig = whole.fork();
            rig.media[0].rot(at + byte, 3);
            let pool = rig.open();
            let volume = pool.volume("v").expect("there");
            assert_eq!(get(&volume, BLOCK), LAST, "{what}");
            assert_eq!(pool.status().healed.recovered, 1, "{what}");
            drop(volume);
            rig.kill(pool);
            assert!(rig.segments().iter().any(|segment| segment.0 == at), "{what}: written again");
            let pool = rig.open();
            assert_eq!(get(&pool.volume("v").expect("there"), BLOCK), LAST, "{what}");
            pool.verify_invariants().expect("sound");
        }
    });
}

#[test]
fn the_rotten_header_of_a_segment_that_others_follow_is_made_again() {
    everywhere(|stack, architecture| {
        let rig = Rig::new(stack);
        let pool = rig.open();
        let volume = make(&pool, architecture);
        put(&volume, BLOCK, LAST);
        volume.flush().expect("flushed");
        let (at, _) = *rig.segments().last().expect("there is one");
        let mut block = 10;
        while rig.segments().last().expect("there is one").0 == at {
            (0..20).for_each(|_| _ = put(&volume, block, 7));
            volume.flush().expect("flushed");
            block += 1;
        }
        drop(volume);
        rig.kill(pool);
        rig.media[0].rot(at + 60, 3);
        let pool = rig.open();
        let volume = pool.volume("v").expect("there");
        assert_eq!((get(&volume, BLOCK), get(&volume, block - 1)), (LAST, 7));
    });
}

#[test]
fn the_rotten_header_of_the_last_flushed_batch_is_told_and_no_earlier_write_shown() {
    everywhere(|stack, architecture| {
        let whole = killed(stack, architecture, flushed);
        let (at, _) = whole.last_batch();
        for byte in [0, 9, 13, 21, 25, 33, 37, 41, 49, 57, 66, 81, 97, 110] {
            let rig = whole.fork();
            rig.media[0].rot(at + byte, 3);
            refused(&rig, &format!("{stack} {architecture:?}, byte {byte}"));
        }
    });
}

#[test]
fn the_rotten_payload_of_the_last_flushed_batch_is_an_error_for_who_reads_it() {
    everywhere(|stack, architecture| {
        let whole = killed(stack, architecture, flushed);
        let (at, header_bytes) = whole.last_batch();
        for byte in [0, 2000, 4095] {
            let what = format!("{stack} {architecture:?}, byte {byte}");
            let rig = whole.fork();
            rig.media[0].rot(at + header_bytes + byte, 3);
            let pool = rig.open();
            let mut bytes = [0; 4096];
            let read = pool.volume("v").expect("there").read(BLOCK * 4096, &mut bytes);
            assert_eq!(read.expect_err(&what).kind, ErrorKind::Corrupt, "{what}");
        }
    });
}

#[test]
fn what_a_version_a_mark_or_a_clone_names_is_as_durable_as_what_was_flushed() {
    let version = |volume: &Arc<Volume>| _ = volume.create_version("").expect("captured");
    let mark = |volume: &Arc<Volume>| {
        volume.create_mark("m", &Moment::Latest, false).expect("marked");
    };
    let revert = |volume: &Arc<Volume>| {
        let earlier = Moment::Seq(Seq(volume.info().expect("told").latest.seq.0 - 1));
        volume.revert(&earlier, false).expect("reverted");
    };
    for (name, promise) in
        [("version", &version as &dyn Fn(&Arc<Volume>)), ("mark", &mark), ("revert", &revert)]
    {
        let rig = killed(PLAIN, Architecture::Logging, promise);
        let (at, _) = rig.last_batch();
        rig.media[0].rot(at + 66, 3);
        refused(&rig, name);
    }
    let rig = Rig::new(PLAIN);
    let pool = rig.open();
    let volume = make(&pool, Architecture::Logging);
    put(&volume, BLOCK, EARLIER);
    put(&volume, BLOCK, LAST);
    drop(pool.clone_volume("v", &Moment::Latest, "c").expect("cloned"));
    drop(volume);
    rig.kill(pool);
    let (at, _) = rig.last_batch();
    rig.media[0].rot(at + 66, 3);
    refused(&rig, "clone");
}

#[test]
fn on_a_mirror_the_other_copy_is_right() {
    let whole = killed(MIRROR, Architecture::Logging, flushed);
    let (segment, _) = *whole.segments().last().expect("there is one");
    let (batch, header_bytes) = whole.last_batch();
    for at in [segment + 60, batch + 66, batch + header_bytes + 9] {
        for side in 0..2 {
            let rig = whole.fork();
            rig.media[side].rot(at, 3);
            let pool = rig.open();
            assert_eq!(get(&pool.volume("v").expect("there"), BLOCK), LAST, "side {side}, {at}");
        }
    }
}

#[test]
fn what_an_opening_found_in_the_log_is_not_lost_to_rot_once_it_is_flushed() {
    everywhere(|stack, architecture| {
        let rig = killed(stack, architecture, |_| ());
        let pool = rig.open();
        let volume = pool.volume("v").expect("there");
        volume.flush().expect("flushed");
        let before = get(&volume, BLOCK);
        drop(volume);
        rig.kill(pool);
        let (at, _) = rig.last_batch();
        rig.media[0].rot(at + 66, 3);
        match rig.try_open() {
            Ok(pool) => assert_eq!(get(&pool.volume("v").expect("there"), BLOCK), before),
            Err(_) => refused(&rig, &format!("{stack} {architecture:?}")),
        }
    });
}

/// Bytes that an opening reads and writes after so many writes of a block and a kill.
fn opened_after(stack: &'static str, blocks: u64) -> [u64; 2] {
    let rig = Rig::new(stack);
    let pool = rig.open();
    let volume = make(&pool, Architecture::Logging);
    (0..blocks).for_each(|block| _ = put(&volume, block % 500, block as u8));
    drop(volume);
    rig.kill(pool);
    rig.media.iter().for_each(|media| media.start_log());
    let pool = rig.open();
    let log: Vec<_> = rig.media.iter().flat_map(|media| media.take_log()).collect();
    let volume = pool.volume("v").expect("there");
    let last = blocks - 1;
    assert_eq!(get(&volume, last % 500), last as u8, "{stack}");
    [Op::Read, Op::Write].map(|op| {
        log.iter().filter(|record| record.op == op).map(|record| record.length_bytes).sum()
    })
}

#[test]
fn an_opening_reads_what_was_not_flushed_twice_and_writes_it_once_on_each_side() {
    // A mirror is settled besides, for which both sides are read.
    for (stack, most) in
        [(LABELLED, [2.3, 1.2]), ("stripe(a, b)", [2.3, 1.2]), (MIRROR, [4.3, 2.3])]
    {
        let (few, many) = (opened_after(stack, 100), opened_after(stack, 2100));
        let times = [0, 1].map(|i| (many[i] - few[i]) as f64 / (2000.0 * 4096.0));
        assert!(times[0] < most[0] && times[1] < most[1], "{stack}: {times:?}");
    }
}

#[test]
fn what_a_client_wrote_to_look_like_a_segment_without_its_header_is_not_taken_for_one() {
    let rig = Rig::new(PLAIN);
    let pool = rig.open();
    let volume = make(&pool, Architecture::Logging);
    while pool.step(Budget { bytes: MIB }).expect("spares are made") {}
    put(&volume, BLOCK, EARLIER);
    put(&volume, BLOCK, LAST);
    volume.flush().expect("flushed");
    drop(volume);
    rig.kill(pool);
    let (_, newest) = rig.segments().last().expect("there is one").clone();
    // The next spare: where a log would go on.
    let probe = rig.fork();
    let pool = probe.open();
    let volume = pool.volume("v").expect("there");
    put(&volume, BLOCK, 1);
    let (at, next) = probe.segments().last().expect("another").clone();
    assert!(next.segment > newest.segment);
    let forged = BatchHeader {
        segment: next.segment,
        offset: SEGMENT_HEADER_BYTES as u32,
        kind: BatchKind::Writes,
        nonce: next.nonce ^ 1,
        timeline: 1,
        time: WallTime::from_nanos(u64::MAX >> 1),
        base_seq: Seq(3),
        stable_seq: Seq(9),
        durable_seq: Seq(9),
        flush_count: 0,
    };
    let mut bytes = Vec::new();
    let mut encoder = BatchEncoder::new(&mut bytes);
    encoder.push_zero(BLOCK, 1);
    encoder.finish(&forged);
    let slices = [std::io::IoSlice::new(&bytes)];
    rig.media[0].write_at(at + SEGMENT_HEADER_BYTES as u64, &slices).expect("written");
    let pool = rig.open();
    assert_eq!(get(&pool.volume("v").expect("there"), BLOCK), LAST);
}

#[test]
fn a_flush_leaves_one_mark_when_it_covers_something_new_and_no_sync_more() {
    let rig = Rig::new(PLAIN);
    let pool = rig.open();
    let volume = make(&pool, Architecture::Logging);
    let mark_bytes = u64::from(header_bytes(BatchKind::Writes, 0, 0));
    for _ in 0..3 {
        put(&volume, BLOCK, LAST);
        rig.media[0].start_log();
        volume.flush().expect("flushed");
        let log = rig.media[0].take_log();
        let done: Vec<(Op, u64)> = log.iter().map(|done| (done.op, done.length_bytes)).collect();
        assert_eq!(done, [(Op::Sync, 0), (Op::Write, mark_bytes)]);
        rig.media[0].start_log();
        (0..20).for_each(|_| volume.flush().expect("flushed"));
        let log = rig.media[0].take_log();
        assert!(log.iter().all(|done| done.op == Op::Sync), "an idle volume's log does not grow");
    }
}

#[test]
fn a_flush_mark_has_its_place_also_where_a_segment_ends() {
    let rig = Rig::new(PLAIN);
    let pool = rig.open();
    let volume = make(&pool, Architecture::Logging);
    let mark_bytes = u64::from(header_bytes(BatchKind::Writes, 0, 0));
    // Batches of all sizes, so that segments end with all kinds of rests.
    for turn in 0..400_u64 {
        let blocks = 1 + turn % 13;
        let bytes = vec![turn as u8; blocks as usize * 4096];
        volume.write_batch(&[WriteOp::Data { offset: 0, bytes: &bytes }]).expect("written");
        rig.media[0].start_log();
        volume.flush().expect("flushed");
        let marks = rig.media[0].take_log().into_iter().filter(|done| done.op == Op::Write);
        let marks: Vec<_> = marks.collect();
        assert!(matches!(&marks[..], [mark] if mark.length_bytes == mark_bytes), "turn {turn}");
        let offset = marks[0].offset % ZONE_BYTES;
        assert!(offset + mark_bytes <= ZONE_BYTES, "turn {turn}: within the zone");
    }
    drop(volume);
    rig.kill(pool);
    let pool = rig.open();
    assert_eq!(get(&pool.volume("v").expect("there"), 0), (399 % 256) as u8);
    pool.verify_invariants().expect("sound");
}

/// The requests that opening a pool on a mirror takes, with so many writes that no run has.
fn requests_of_opening(count: u64) -> usize {
    let rig = Rig { memory_bytes: 1 << 30, ..Rig::new(MIRROR) };
    let pool = rig.open();
    let volume = make(&pool, Architecture::Logging);
    for number in 0..count {
        let op = WriteOp::Zero { offset: number % 512 * 4096, length_bytes: 4096 };
        volume.write_batch(&[op]).expect("written");
    }
    drop(volume);
    rig.kill(pool);
    rig.media.iter().for_each(|media| media.start_log());
    let pool = rig.open();
    let requests = rig.media.iter().map(|media| media.take_log().len()).sum();
    assert_eq!(pool.volume("v").expect("there").info().expect("told").latest.seq, Seq(count));
    requests
}

#[test]
fn opening_asks_devices_by_what_no_run_has_and_not_by_its_square() {
    let [few, many] = [5_000, 40_000].map(requests_of_opening);
    assert!(many < 9 * few, "{few} requests for 5,000 writes, {many} for 40,000");
}

/// P8 in bytes: an opening reads and writes what waits in the log a few times, and does not wait
/// until what it wrote is durable.
#[test]
fn opening_goes_over_what_was_not_flushed_a_few_times_and_waits_for_no_sync_of_it() {
    // What lies on the members of each byte, and how often that is read at most: by the scan, to be
    // written again, and by the look, of all copies or of all sides.
    for (stack, lies_100, read_100) in
        [(MIRROR, 200, 480), ("parity[chunk=4KiB,journal=2MiB](a, b, c)", 150, 650)]
    {
        let rig = Rig { memory_bytes: 1 << 30, ..Rig::new(stack) };
        let pool = rig.open();
        let volume = make(&pool, Architecture::Logging);
        let mut bytes = vec![0; 16 << 10];
        let count = 1000;
        for number in 0..count {
            Random::new(number).fill(&mut bytes);
            let op = WriteOp::Data { offset: number % 64 * (16 << 10), bytes: &bytes };
            volume.write_batch(&[op]).expect("written");
        }
        drop(volume);
        rig.kill(pool);
        rig.media.iter().for_each(|media| media.start_log());
        let pool = rig.open();
        let log: Vec<_> = rig.media.iter().flat_map(|media| media.take_log()).collect();
        let all = count * (16 << 10);
        let of = |op| {
            let bytes = log.iter().filter(|done| done.op == op).map(|done| done.length_bytes);
            bytes.sum::<u64>() * 100 / all
        };
        let unsynced = rig.media.iter().flat_map(|media| media.unsynced());
        let unsynced = unsynced.map(|change| change.length_bytes).sum::<u64>() * 100 / all;
        assert!(of(Op::Read) < read_100, "{stack}: read {} %", of(Op::Read));
        assert!(of(Op::Write) < lies_100 * 3 / 2, "{stack}: wrote {} %", of(Op::Write));
        assert!(unsynced >= lies_100, "{stack}: {unsynced} % wait for a sync");
        pool.verify_invariants().expect("sound");
    }
}
