//! Members that are brought up to date by whoever has the time: several steps beside each other,
//! and more of them while what came before is flushed.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hindsight_block::{
    Array, BlockDevice, Candidate, Identities, Materials, MediaDevice, Result, Standing, Together,
};
use sim::{Failure, Keep, Op, OpRecord, SimMedia};

use crate::{AREA_BYTES, MIB, Rig, bring_up, copy, lose, materials, standings, write};

/// More than is brought up between two flushes.
const BYTES: u64 = 96 * MIB;

/// Each by a thread.
struct Threads;

impl Together for Threads {
    fn each(&self, count: usize, ask: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| (0..count).for_each(|n| _ = scope.spawn(move || ask(n))));
    }
}

/// A device whose first flush of much ends only after so much more was written.
struct SlowToAnswer {
    media: MediaDevice,
    written: AtomicU64,
    has_waited: AtomicBool,
    has_answered: AtomicBool,
}

const MUCH: u64 = 60 * MIB;
/// At least a region.
const MORE: u64 = 8 * MIB;

impl SlowToAnswer {
    fn new(media: MediaDevice) -> SlowToAnswer {
        let (has_waited, has_answered) = (AtomicBool::new(false), AtomicBool::new(false));
        SlowToAnswer { media, written: AtomicU64::new(0), has_waited, has_answered }
    }
}

impl BlockDevice for SlowToAnswer {
    fn len_bytes(&self) -> u64 {
        self.media.len_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.media.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.media.write_at(offset, slices)?;
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        self.written.fetch_add(bytes as u64, Ordering::SeqCst);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.media.flush()?;
        let written = || self.written.load(Ordering::SeqCst);
        if written() >= MUCH && !self.has_waited.swap(true, Ordering::SeqCst) {
            // Not so much more than now: some of it may have been written since this was asked for.
            while written() < MUCH + 2 * MORE {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.has_answered.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.media.allocate(offset, length_bytes)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.media.discard(offset, length_bytes)
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.media.write_durable(offset, slices)
    }

    fn describe(&self) -> String {
        "slow".to_owned()
    }
}

fn media(number: u64) -> Arc<SimMedia> {
    Arc::new(SimMedia::new(AREA_BYTES + BYTES, number))
}

fn on(path: &str, device: Arc<dyn BlockDevice>) -> Candidate {
    Candidate { path: path.to_owned(), device: Some(device) }
}

fn plain(path: &str, media: &Arc<SimMedia>) -> Candidate {
    on(path, Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(media))))
}

fn asked() -> Materials<'static> {
    Materials { together: Arc::new(Threads), ..materials() }
}

/// A mirror that nothing was written to.
fn empty(a: &Arc<SimMedia>, b: &Arc<SimMedia>) -> Array {
    let mut id = 0;
    let random = &mut || {
        id += 1;
        id
    };
    let identities = Identities { random, now: units::WallTime::from_nanos(1) };
    let stack = "mirror(a, b)".parse().expect("a stack");
    let both = || vec![plain("a", a), plain("b", b)];
    Array::create(&stack, both(), identities, &materials()).expect("labels");
    Array::open(both(), &asked()).expect("both are there")
}

/// One that is full, with each block told apart.
fn full(a: &Arc<SimMedia>, b: &Arc<SimMedia>) -> Array {
    let array = empty(a, b);
    (0..array.len_bytes() / MIB).for_each(|n| write(&array, n * MIB, &[n as u8 + 1; MIB as usize]));
    // Once quiet, no region is in flight any more.
    (0..2).for_each(|_| array.tidy().expect("tidied"));
    array
}

fn has_all(array: &Array, number: usize) -> bool {
    let right = |n: u64| copy(array, number, n * MIB, MIB as usize) == [n as u8 + 1; MIB as usize];
    (0..array.len_bytes() / MIB).all(right)
}

#[test]
fn what_comes_up_while_the_rest_is_flushed_is_not_said_to_be_durable() {
    let (a, b, new) = (media(1), media(2), media(3));
    let array = full(&a, &b);
    let device = MediaDevice::new(Arc::<SimMedia>::clone(&new));
    let slow = Arc::new(SlowToAnswer::new(device));
    let candidate = on("new", Arc::<SlowToAnswer>::clone(&slow) as Arc<dyn BlockDevice>);
    lose(&array, &b, 1);
    array.replace(1, candidate, 99).expect("replaced");
    let goes_on = || !slow.has_answered.load(Ordering::SeqCst);
    while goes_on() {
        assert!(array.step_while(&goes_on).expect("a step"), "there is more to be done");
    }
    assert!(slow.written.load(Ordering::SeqCst) >= MUCH + MORE);
    // The power fails: the new member lost what was not flushed.
    let [a, new] = [&a, &new].map(|media| Arc::new(media.fork()));
    [&a, &new].iter().for_each(|media| media.crash_with(&mut |_, _| Keep::Nothing));
    let array = Array::open(vec![plain("a", &a), plain("new", &new)], &asked()).expect("opened");
    assert_eq!(standings(&array), [Standing::In, Standing::Stale]);
    while array.step_while(&|| true).expect("a step") {}
    assert_eq!(standings(&array), [Standing::In; 2]);
    assert!(has_all(&array, 0) && has_all(&array, 1));
}

#[test]
fn a_step_that_failed_beside_others_is_made_again() {
    for after in [0, 30, 270] {
        let (a, b, new) = (media(1), media(2), media(3));
        let array = full(&a, &b);
        lose(&array, &b, 1);
        array.replace(1, plain("new", &new), 99).expect("replaced");
        a.fail(Failure { op: Op::Read, range: None, after, times: Some(1) });
        let mut failed = 0;
        loop {
            match array.step_while(&|| true) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => failed += 1,
            }
        }
        assert_eq!(failed, 1, "the only member that has it could not be read once");
        assert!(has_all(&array, 0) && has_all(&array, 1), "after {after}");
    }
}

#[test]
fn what_is_a_hole_on_both_sides_is_neither_read_nor_written() {
    let (a, b, new) = (media(1), media(2), media(3));
    let array = empty(&a, &b);
    write(&array, 3 * MIB, &[7; 4096]);
    array.flush().expect("a flush");
    lose(&array, &b, 1);
    array.replace(1, plain("new", &new), 99).expect("replaced");
    [&a, &new].iter().for_each(|media| media.start_log());
    while array.step_while(&|| true).expect("a step") {}
    assert_eq!(standings(&array), [Standing::In; 2]);
    // The rest of the region is used as well, for all that anybody knows.
    let of_data = |record: &&OpRecord| {
        matches!(record.op, Op::Read | Op::Write) && record.offset >= AREA_BYTES
    };
    for media in [a, new] {
        let log = media.take_log();
        let bytes: u64 = log.iter().filter(of_data).map(|record| record.length_bytes).sum();
        assert!((1..MIB).contains(&bytes), "{bytes}: {log:?}");
    }
    for number in 0..2 {
        let there = copy(&array, number, 3 * MIB, MIB as usize);
        assert!(there[..4096] == [7; 4096] && there[4096..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn what_a_stale_member_lost_when_the_power_failed_is_brought_though_its_region_was_closed() {
    let rig = Rig::new("mirror(a, b)", 96);
    let array = rig.open();
    (0..8).for_each(|n| write(&array, n * MIB, &[1; MIB as usize]));
    array.close().expect("closed");
    drop(array);
    let array = rig.open_without(1);
    write(&array, 3 * MIB, &[2; 4096]);
    array.close().expect("closed");
    drop(array);
    // It is back, and has not missed what is written now.
    let array = rig.open();
    assert_eq!(standings(&array), [Standing::In, Standing::Stale]);
    write(&array, 5 * MIB, &[3; 4096]);
    rig.media[0].crash_with(&mut |_, _| Keep::All);
    rig.media[1].crash_with(&mut |_, _| Keep::Nothing);
    drop(array);
    // Nobody brings it up before the next opening.
    let array = rig.open();
    assert_eq!(standings(&array), [Standing::In, Standing::Stale]);
    array.end_settling(&[]);
    array.close().expect("closed");
    drop(array);
    let array = rig.open();
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::In; 2]);
    for number in 0..2 {
        assert!(copy(&array, number, 5 * MIB, 4096) == [3; 4096], "copy {number}");
    }
}
