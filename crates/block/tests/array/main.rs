//! Arrays over the simulator's media: members that fail, come back, rot; crashes.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hindsight_block::stack::Stack;
use hindsight_block::{
    Array, ArrayError, BlockDevice, Candidate, CryptKey, Identities, KeySource, Materials,
    MediaDevice, Outcome, Standing,
};
use sim::{Failure, Op, Random, SimMedia};

mod absurd;
mod attach;
mod beside;
mod bringing;
mod grow;
mod mixed;
mod online;
mod renewed;
mod resume;
#[path = "../shared/settling.rs"]
mod settling;
mod spares;
mod succession;
mod tidying;
mod torn;
mod trial;
mod unopened;

use settling::Settling;

const MIB: u64 = 1 << 20;
const DATA_BYTES: u64 = 8 * MIB;
const AREA_BYTES: u64 = MIB;

/// The members of a stack, and what they are made of.
struct Rig {
    stack: Stack,
    media: Vec<Arc<SimMedia>>,
}

impl Rig {
    fn new(stack: &str, seed: u64) -> Rig {
        let stack: Stack = stack.parse().expect("a stack");
        let media: Vec<Arc<SimMedia>> = (0..stack.members().len() as u64)
            .map(|n| Arc::new(SimMedia::new(AREA_BYTES + DATA_BYTES, seed * 100 + n)))
            .collect();
        let rig = Rig { stack, media };
        let mut id = u128::from(seed) << 64;
        let random = &mut || {
            id += 1;
            id
        };
        let identities = Identities { random, now: units::WallTime::from_nanos(1) };
        Array::create(&rig.stack, rig.candidates(&[]), identities, &materials()).expect("labels");
        rig
    }

    /// All members but some.
    fn candidates(&self, without: &[usize]) -> Vec<Candidate> {
        let of = |(number, path): (usize, &str)| {
            let media = Arc::<SimMedia>::clone(&self.media[number]);
            let device = (!without.contains(&number))
                .then(|| Arc::new(MediaDevice::new(media)) as Arc<dyn BlockDevice>);
            Candidate { path: path.to_owned(), device }
        };
        self.stack.members().into_iter().enumerate().map(of).collect()
    }

    fn try_open(&self, without: &[usize]) -> Result<Array, ArrayError> {
        Array::open(self.candidates(without), &materials())
    }

    fn open(&self) -> Array {
        self.try_open(&[]).expect("all members are there")
    }

    fn open_without(&self, member: usize) -> Array {
        self.try_open(&[member]).expect("one may be missing")
    }

    fn crash(&self, random: &mut Random) {
        self.media.iter().for_each(|media| media.crash(random));
    }
}

/// The key that a source gives.
fn key_of(source: &str) -> CryptKey {
    CryptKey::new(source.bytes().cycle().take(64).collect()).expect("long enough")
}

/// With a key for each source.
fn materials() -> Materials<'static> {
    let key = &|source: &KeySource| Ok(key_of(&source.to_string()));
    static SEED: AtomicU64 = AtomicU64::new(0);
    let random = |bytes: &mut [u8]| Random::new(SEED.fetch_add(1, Ordering::Relaxed)).fill(bytes);
    Materials { key, random: Arc::new(random), ..Materials::none() }
}

fn candidate(path: &str, media: &Arc<SimMedia>) -> Candidate {
    let media = Arc::<SimMedia>::clone(media);
    Candidate { path: path.to_owned(), device: Some(Arc::new(MediaDevice::new(media))) }
}

/// What is behind a member's label.
struct Shifted(Arc<dyn BlockDevice>);

impl BlockDevice for Shifted {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes() - AREA_BYTES
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> hindsight_block::Result<()> {
        self.0.read_at(AREA_BYTES + offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> hindsight_block::Result<()> {
        self.0.write_at(AREA_BYTES + offset, slices)
    }
    fn flush(&self) -> hindsight_block::Result<()> {
        self.0.flush()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> hindsight_block::Result<()> {
        self.0.allocate(AREA_BYTES + offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> hindsight_block::Result<()> {
        self.0.discard(AREA_BYTES + offset, length_bytes)
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

fn write(device: &dyn BlockDevice, offset: u64, bytes: &[u8]) {
    device.write_at(offset, &[IoSlice::new(bytes)]).expect("a write");
}

fn read(device: &dyn BlockDevice, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    device.read_at(offset, &mut buffer).expect("a read");
    buffer
}

fn copy(device: &dyn BlockDevice, copy: usize, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    device.read_copy(copy, offset, &mut buffer).expect("a copy");
    buffer
}

fn standings(array: &Array) -> Vec<Standing> {
    array.members().iter().map(|member| member.standing).collect()
}

/// Has a member fail a write, by writing what is there again, and so be out.
fn lose(array: &Array, media: &SimMedia, member: usize) {
    media.fail(Failure::for_ever(Op::Write));
    let mut places = (0..array.len_bytes()).step_by(4096);
    while standings(array)[member] != Standing::Out {
        let at = places.next().expect("it is written to somewhere");
        let there = read(array, at, 4096);
        write(array, at, &there);
    }
}
fn bring_up(array: &Array) -> u64 {
    let mut steps = 0;
    while array.step().expect("a step") {
        steps += 1;
    }
    steps
}

#[test]
fn a_member_that_fails_is_put_out_and_brought_up_to_date_by_what_it_missed() {
    for stack in ["mirror(a, b)", "stripe(mirror(a, b), mirror(c, d))", "mirror(a, b, c)"] {
        let rig = Rig::new(stack, 1);
        let array = rig.open();
        write(&array, 0, &[1; 70_000]);
        array.flush().expect("a flush");
        rig.media[1].fail(Failure::for_ever(Op::Write));
        write(&array, 5 * MIB, &[2; 70_000]);
        assert_eq!(standings(&array)[1], Standing::Out, "{stack}");
        assert_eq!(array.take_events()[0].what, "member-out");
        assert_eq!(read(&array, 5 * MIB, 70_000), [2; 70_000]);
        array.flush().expect("without it");
        drop(array);
        rig.media[1].calm();
        let before = rig.media[1].changes();
        let array = rig.open();
        assert_eq!(standings(&array)[1], Standing::Stale, "{stack}");
        assert_eq!(read(&array, 5 * MIB, 70_000), [2; 70_000]);
        assert!(array.behind_bytes() > 0 && array.behind_bytes() <= 4 * MIB, "what was missed");
        assert!(bring_up(&array) > 0);
        assert_eq!(standings(&array)[1], Standing::In, "{stack}");
        assert!(rig.media[1].changes() > before);
        for number in 0..array.copies(5 * MIB, 4096) {
            assert_eq!(copy(&array, number, 5 * MIB, 70_000), [2; 70_000], "{stack}");
            assert_eq!(copy(&array, number, 0, 70_000), [1; 70_000], "{stack}");
        }
    }
}

#[test]
fn what_was_never_written_is_not_copied_to_a_member_that_comes_back() {
    let rig = Rig::new("mirror(a, b)", 2);
    drop(rig.open());
    let array = rig.open_without(1);
    write(&array, 3 * MIB, &[7; 4096]);
    write(&array, 5 * MIB, &[7; 4096]);
    array.discard(5 * MIB, MIB).expect("nobody needs it any more");
    array.close().expect("closed");
    drop(array);
    rig.media[1].start_log();
    let array = rig.open();
    assert_eq!(array.behind_bytes(), MIB);
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::In; 2]);
    let log = rig.media[1].take_log();
    let data = log.iter().filter(|r| r.op == Op::Write && r.offset >= AREA_BYTES);
    let range: Vec<(u64, u64)> = data.map(|r| (r.offset, r.length_bytes)).collect();
    assert!(!range.is_empty());
    for (offset, length) in range {
        let region = AREA_BYTES + 3 * MIB..AREA_BYTES + 4 * MIB;
        assert!(region.contains(&offset) && offset + length <= region.end, "at {offset}");
    }
}

#[test]
fn a_flush_covers_many_regions_that_a_member_got() {
    let rig = Rig::new("mirror(a, b)", 17);
    drop(rig.open());
    let array = rig.open_without(1);
    for region in 0..8 {
        write(&array, region * MIB, &[region as u8 + 1; 4096]);
    }
    array.close().expect("closed");
    drop(array);
    let array = rig.open();
    assert_eq!(array.behind_bytes(), 8 * MIB);
    rig.media[1].start_log();
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::In; 2]);
    let log = rig.media[1].take_log();
    let syncs = log.iter().filter(|record| record.op == Op::Sync).count();
    assert!((1..8).contains(&syncs), "{syncs} syncs for eight regions");
    for region in 0..8 {
        assert_eq!(copy(&array, 1, region * MIB, 4096), [region as u8 + 1; 4096]);
    }
}

#[test]
fn what_a_member_got_and_did_not_keep_is_brought_once_more() {
    let rig = Rig::new("mirror(a, b)", 18);
    drop(rig.open());
    let array = rig.open_without(1);
    for region in 0..8 {
        write(&array, region * MIB, &[region as u8 + 1; 4096]);
    }
    array.close().expect("closed");
    drop(array);
    for steps in 0..12 {
        let array = rig.open();
        for _ in 0..steps {
            array.step().expect("a step");
        }
        // Its mark is durable at once, and with it whatever else the maps say.
        write(&array, 7 * MIB + 9000, &[9; 100]);
        drop(array);
        // Of what was not flushed nothing is kept.
        rig.media.iter().for_each(|media| media.crash_with(&mut |_, _| sim::Keep::Nothing));
    }
    let array = rig.open();
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::In; 2]);
    for region in 0..8 {
        assert_eq!(copy(&array, 1, region * MIB, 4096), [region as u8 + 1; 4096], "{region}");
    }
}

#[test]
fn members_used_apart_are_not_put_together() {
    let rig = Rig::new("mirror(a, b)", 3);
    drop(rig.open());
    for without in [0, 1] {
        let array = rig.open_without(without);
        write(&array, 0, &[without as u8; 4096]);
        array.close().expect("closed");
    }
    let error = rig.try_open(&[]).err().expect("refused").to_string();
    assert_eq!(error, "a and b were used apart from each other");
    // Each alone can still be looked at.
    assert_eq!(read(&rig.open_without(0), 0, 4096), [0; 4096]);
}

#[test]
fn too_few_members_are_refused_by_name() {
    let rig = Rig::new("stripe(mirror(a, b), mirror(c, d))", 4);
    let error = rig.try_open(&[2, 3]).err().expect("refused").to_string();
    assert!(error.contains("c is missing, d is missing"), "{error}");
    drop(rig.try_open(&[0, 3]).expect("one of each mirror"));
    drop(rig.try_open(&[1, 2]).expect("the others of each"));
    let error = rig.try_open(&[]).err().expect("they were used apart").to_string();
    assert!(error.contains("used apart"), "{error}");
    let error = rig.try_open(&[0, 1, 2, 3]).err().expect("none is there").to_string();
    assert!(error.contains("no member of a pool was found: a: not there"), "{error}");
}

#[test]
fn the_last_good_side_is_never_put_out() {
    let rig = Rig::new("mirror(a, b)", 5);
    let array = rig.open();
    write(&array, 0, &[1; 4096]);
    for media in &rig.media {
        media.fail(Failure::for_ever(Op::Write));
    }
    array.write_at(0, &[IoSlice::new(&[2; 4096])]).expect_err("nobody took it");
    let ins = standings(&array).iter().filter(|s| **s == Standing::In).count();
    assert!(ins >= 1, "somebody is left to be read");
}

#[test]
fn healing_takes_what_table_4_says() {
    let rig = Rig::new("mirror(a, b)", 6);
    let array = rig.open();
    let good = vec![0x5a; 4096];
    write(&array, 0, &good);
    array.flush().expect("a flush");
    let counts = |array: &Array| {
        let ledger = array.ledger();
        [&ledger.data_ios, &ledger.checksums]
            .map(|count| count.swap(0, std::sync::atomic::Ordering::Relaxed))
    };
    let heal = |array: &Array| {
        let mut buffer = vec![0; 4096];
        let outcome = array.heal(0, &mut buffer, &|bytes| bytes == good).expect("readable");
        (outcome, buffer == good)
    };
    // One copy is wrong: data recovered.
    rig.media[0].rot(AREA_BYTES + 17, 3);
    assert_eq!(heal(&array), (Outcome::Recovered, true));
    assert_eq!(counts(&array), [3, 2]);
    assert_eq!(copy(&array, 0, 0, 4096), good, "it was written back");
    // Nothing is wrong any more: transient.
    assert_eq!(heal(&array), (Outcome::Transient, true));
    assert_eq!(counts(&array), [2, 2]);
    // Both are wrong in different ways: unrecoverable.
    rig.media[0].rot(AREA_BYTES + 17, 3);
    rig.media[1].rot(AREA_BYTES + 17, 4);
    assert_eq!(heal(&array).0, Outcome::Unrecoverable);
    assert_eq!(counts(&array), [2, 2]);
    // Both are wrong in one way: they agree against the checksum.
    rig.media[0].rot(AREA_BYTES + 17, 4);
    rig.media[0].rot(AREA_BYTES + 17, 3);
    assert_eq!(heal(&array).0, Outcome::Agreed);
    assert_eq!(counts(&array), [2, 2]);
}

#[test]
fn a_range_over_two_chunks_is_healed_from_one_copy_of_each() {
    let rig = Rig::new("stripe[chunk=4KiB](mirror(a, b), mirror(c, d))", 7);
    let array = rig.open();
    let mut good = vec![0; 4096];
    Random::new(9).fill(&mut good);
    write(&array, 2048, &good);
    // The first half is wrong on one mirror's first side, the second half on the other's second.
    rig.media[0].rot(AREA_BYTES + 3000, 1);
    rig.media[3].rot(AREA_BYTES + 1000, 1);
    let mut buffer = vec![0; 4096];
    let outcome = array.heal(2048, &mut buffer, &|bytes| bytes == good).expect("readable");
    assert_eq!((outcome, &buffer), (Outcome::Recovered, &good));
    for number in 0..2 {
        assert_eq!(copy(&array, number, 2048, 4096), good);
    }
}

#[test]
fn reads_go_to_both_sides_alike() {
    let rig = Rig::new("mirror(a, b)", 8);
    let array = rig.open();
    let mut random = Random::new(5);
    for _ in 0..1000 {
        read(&array, random.below(DATA_BYTES - 4096), 4096);
    }
    let read: Vec<u64> = array.members().iter().map(|member| member.counters.0).collect();
    let share = read[0] as f64 / (read[0] + read[1]) as f64;
    assert!((0.4..=0.6).contains(&share), "{read:?}");
}

#[test]
fn a_read_that_fails_is_answered_and_healed_by_the_other_side() {
    let rig = Rig::new("mirror(a, b)", 9);
    let array = rig.open();
    write(&array, 0, &[9; 8192]);
    array.flush().expect("a flush");
    // The first block cannot be read, by itself neither; the second can.
    let range = Some(AREA_BYTES..AREA_BYTES + 4096);
    rig.media[0].fail(Failure { op: Op::Read, range, after: 0, times: Some(2) });
    rig.media[0].rot(AREA_BYTES + 5, 1);
    rig.media[0].rot(AREA_BYTES + 4096 + 5, 1);
    assert_eq!(read(&array, 0, 8192), [9; 8192]);
    assert_eq!(standings(&array), [Standing::In; 2]);
    assert_eq!(copy(&array, 0, 0, 4096), [9; 4096], "it was written again");
    assert_ne!(copy(&array, 0, 4096, 4096), [9; 4096], "its owner knows what is right there");
    assert!(array.take_events().iter().any(|event| event.what == "read-healed"));
    assert_eq!(array.members()[0].errors, 2);
}

#[test]
fn a_region_is_marked_once_and_before_anything_is_written_into_it() {
    let rig = Rig::new("mirror(a, b)", 10);
    let array = rig.open();
    for media in &rig.media {
        media.start_log();
    }
    array.allocate(2 * MIB, 2 * MIB).expect("space");
    for n in 0..100 {
        write(&array, 2 * MIB + n * 8192, &[1; 4096]);
    }
    for media in &rig.media {
        let log = media.take_log();
        let marks = log.iter().filter(|r| r.op == Op::Write && r.offset < AREA_BYTES).count();
        assert_eq!(marks, 1);
        let first = log.iter().position(|r| r.op == Op::Write && r.offset >= AREA_BYTES);
        let mark = log.iter().position(|r| r.op == Op::Write && r.offset < AREA_BYTES);
        assert!(mark < first);
        assert_eq!(log[mark.expect("a mark") + 1].op, Op::Sync, "durably");
    }
}

/// Takes marks off as is done every some seconds, or as where much is marked.
fn tidy(array: &Array, random: &mut Random) -> hindsight_block::Result<()> {
    if random.chance(500) { array.tidy() } else { array.tidy_early() }
}

/// Writes at random with flushes, tidying and steps in between, until something fails; what was
/// flushed, and what may be there beside it.
fn exercise(array: &Array, random: &mut Random, model: &mut Model) {
    let hot = random.below(DATA_BYTES / MIB) * MIB;
    for _ in 0..random.between(5, 60) {
        let from = if random.chance(900) { hot } else { 0 };
        let length = if from == hot { MIB } else { DATA_BYTES };
        let offset = (from + random.below(length - 20_480)) / 512 * 512;
        let mut bytes = vec![0; (random.between(1, 40) * 512) as usize];
        random.fill(&mut bytes);
        model.maybe.push((offset, bytes.clone()));
        if array.write_at(offset, &[IoSlice::new(&bytes)]).is_err() {
            return;
        }
        let at = offset as usize;
        model.now[at..at + bytes.len()].copy_from_slice(&bytes);
        match random.below(8) {
            0 => {
                if array.flush().is_err() {
                    return;
                }
                model.maybe.clear();
                model.flushed.clone_from(&model.now);
            }
            1 if tidy(array, random).is_err() => return,
            2 if array.step().is_err() => return,
            _ => {}
        }
    }
}

struct Model {
    now: Vec<u8>,
    flushed: Vec<u8>,
    /// Written since the last flush that succeeded.
    maybe: Vec<(u64, Vec<u8>)>,
}

impl Model {
    /// Every sector is as it was flushed, or as one of the writes since made it.
    fn check(&mut self, array: &Array, seed: u64) {
        let found = read(array, 0, DATA_BYTES as usize);
        for (number, sector) in found.chunks(512).enumerate() {
            let at = number * 512;
            let was_written = |(offset, bytes): &(u64, Vec<u8>)| {
                let from = *offset as usize;
                at >= from
                    && at < from + bytes.len()
                    && bytes[at - from..at - from + 512] == *sector
            };
            let is_right =
                self.flushed[at..at + 512] == *sector || self.maybe.iter().any(was_written);
            assert!(is_right, "seed {seed}: sector {number}");
        }
        for number in 0..array.copies(0, DATA_BYTES) {
            assert!(copy(array, number, 0, found.len()) == found, "seed {seed}: copy {number}");
        }
        self.now.clone_from(&found);
        self.flushed = found;
        self.maybe.clear();
    }
}

#[test]
fn nothing_flushed_is_lost_and_all_copies_agree_after_crashes_and_failures_of_a_member() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let rig = Rig::new("mirror(a, b)", 1000 + seed);
        let zeros = vec![0; DATA_BYTES as usize];
        let mut model = Model { now: zeros.clone(), flushed: zeros, maybe: Vec::new() };
        for _ in 0..8 {
            let array = rig.open();
            array.settle_by_the_first().expect("settled");
            exercise(&array, &mut random, &mut model);
            match random.below(4) {
                // The power fails, perhaps in the middle of something.
                0 | 1 => {
                    let at = random.below(30);
                    rig.media.iter().for_each(|media| media.halt_after(at));
                    exercise(&array, &mut random, &mut model);
                    drop(array);
                    rig.crash(&mut random);
                }
                // A member fails for good, is away, and comes back as it was.
                2 => {
                    let failed = random.below(2) as usize;
                    let op = if random.chance(500) { Op::Write } else { Op::Sync };
                    rig.media[failed].fail(Failure::for_ever(op));
                    exercise(&array, &mut random, &mut model);
                    assert!(array.flush().is_ok(), "seed {seed}: one side is left");
                    model.flushed.clone_from(&model.now);
                    model.maybe.clear();
                    drop(array);
                    rig.media[failed].calm();
                    rig.crash(&mut random);
                }
                _ => array.close().expect("closed"),
            }
            let array = rig.open();
            array.settle_by_the_first().expect("settled");
            bring_up(&array);
            assert_eq!(standings(&array), [Standing::In; 2], "seed {seed}");
            array.flush().expect("a flush");
            model.check(&array, seed);
            drop(array);
        }
    }
}

#[test]
fn a_mark_is_not_taken_off_a_region_that_somebody_is_in() {
    for seed in 0..6 {
        let rig = Rig::new("mirror(a, b)", 2000 + seed);
        // The power fails for both at once: else one of them puts the other out.
        rig.media[1].join(&rig.media[0]);
        let array = rig.open();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let array = &array;
                scope.spawn(move || {
                    let mut random = Random::new(seed * 2 + thread);
                    // Until the power fails. Each has its own blocks: what two write to the same
                    // one at the same time may come to the sides in either order.
                    for _ in 0..1_000_000 {
                        let offset = (random.below(DATA_BYTES / 8192) * 2 + thread) * 4096;
                        let bytes = [random.below(256) as u8; 4096];
                        if array.write_at(offset, &[IoSlice::new(&bytes)]).is_err() {
                            return;
                        }
                    }
                });
            }
            let mut random = Random::new(seed);
            for _ in 0..300 {
                tidy(&array, &mut random).expect("tidied");
            }
            rig.media[0].halt_now();
        });
        drop(array);
        rig.crash(&mut Random::new(seed));
        let array = rig.open();
        array.settle_by_the_first().expect("settled");
        let copies = [0, 1].map(|number| copy(&array, number, 0, DATA_BYTES as usize));
        assert!(copies[0] == copies[1], "seed {seed}");
    }
}

#[test]
fn a_new_device_takes_the_place_of_a_member_and_gets_everything() {
    for (stack, path, member) in
        [("mirror(a, b)", "b", 1), ("mirror(stripe(a, b), stripe(c, d))", "c", 2)]
    {
        let mut rig = Rig::new(stack, 11);
        let array = rig.open();
        let len = array.len_bytes() as usize;
        let mut expected = vec![0; len];
        for n in 0..len as u64 / MIB / 2 {
            write(&array, n * 2 * MIB + 777, &[n as u8 + 1; 300_000]);
            expected[(n * 2 * MIB) as usize + 777..][..300_000].fill(n as u8 + 1);
        }
        array.flush().expect("a flush");
        assert_eq!(array.member_at(path), Some(member));
        let fresh = Arc::new(SimMedia::new(AREA_BYTES + DATA_BYTES, 77));
        let small = Arc::new(SimMedia::new(DATA_BYTES, 78));
        array.replace(member, candidate("small", &small), 70).expect_err("too small");
        assert_eq!(standings(&array)[member], Standing::In, "nothing was changed");
        array.replace(member, candidate("new", &fresh), 71).expect("replaced");
        assert_eq!(standings(&array)[member], Standing::In, "the old one counts");
        // While it gets what there was, something is written.
        array.step().expect("a step");
        write(&array, 5, b"between");
        expected[5..12].copy_from_slice(b"between");
        bring_up(&array);
        assert!(standings(&array).iter().all(|s| *s == Standing::In));
        array.close().expect("closed");
        drop(array);
        // The old one is no member any more; the new one can be all there is of its side.
        let mut candidates = rig.candidates(&[]);
        candidates.push(candidate("new", &fresh));
        let array = Array::open(candidates, &materials()).expect("one too many");
        let events = array.take_events();
        assert_eq!((events[0].what, &*events[0].member), ("member-ignored", path));
        assert_eq!(events.len(), 1, "{events:?}");
        drop(array);
        rig.media[member] = fresh;
        let others: Vec<usize> = if member == 1 { vec![0] } else { vec![0, 1] };
        let array = rig.try_open(&others).expect("the new one is enough");
        assert!(read(&array, 0, len) == expected, "{stack}");
    }
}

#[test]
fn what_a_new_device_has_is_not_read_but_where_it_may_stay_a_hole() {
    let rig = Rig::new("mirror(a, b)", 22);
    let array = rig.open();
    let half = array.len_bytes() / 2 / MIB * MIB;
    write(&array, 0, &vec![7; half as usize]);
    write(&array, half, &vec![0; MIB as usize]);
    array.flush().expect("a flush");
    let fresh = Arc::new(SimMedia::filled(AREA_BYTES + DATA_BYTES, 80, 0));
    // Half of what stays as it is was written there once, so it is no hole.
    write(&MediaDevice::new(Arc::<SimMedia>::clone(&fresh)), AREA_BYTES + half, &[0; 512 << 10]);
    lose(&array, &rig.media[1], 1);
    array.replace(1, candidate("new", &fresh), 73).expect("replaced");
    fresh.start_log();
    bring_up(&array);
    let log = fresh.take_log();
    let of = |op: Op| log.iter().filter(move |r| r.op == op && r.offset >= AREA_BYTES);
    let zeros = AREA_BYTES + half..AREA_BYTES + half + MIB;
    let written = zeros.start..zeros.start + (512 << 10);
    assert!(of(Op::Read).count() > 0 && of(Op::Read).all(|r| written.contains(&r.offset)));
    assert!(of(Op::Write).all(|r| !zeros.contains(&r.offset)), "the hole stays");
    assert_eq!(copy(&array, 1, 0, half as usize), vec![7; half as usize]);
}

#[test]
fn a_member_without_room_is_put_out_and_fails_nobody() {
    let rig = Rig::new("mirror(a, b)", 13);
    drop(rig.open());
    let array = rig.open_without(0);
    array.allocate(4 * MIB, MIB).expect("room on b");
    array.close().expect("closed");
    drop(array);
    // It comes back where others took the room that was reserved without it.
    let array = rig.open();
    rig.media[0].set_space_limit(Some(rig.media[0].allocated_bytes()));
    write(&array, 4 * MIB, &[1; 65_536]);
    assert_eq!(standings(&array), [Standing::Out, Standing::In]);
    assert_eq!(read(&array, 4 * MIB, 65_536), [1; 65_536]);
    rig.media[0].set_space_limit(None);
    drop(array);
    let array = rig.open();
    bring_up(&array);
    // One that is in says that there is no room, and stays.
    rig.media[0].set_space_limit(Some(rig.media[0].allocated_bytes()));
    array.allocate(6 * MIB, MIB).expect_err("no room on a");
    assert_eq!(standings(&array), [Standing::In; 2]);
}
