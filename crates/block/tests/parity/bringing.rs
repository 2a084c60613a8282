//! Members that get what they have not, beside clients and in several steps at a time.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use hindsight_block::{Array, BlockDevice, Candidate, MediaDevice, Result, Resync, Standing};
use sim::{Keep, Op, OpRecord, Random, SimMedia};

use crate::rig::{
    AREA_BYTES, JOURNAL_BYTES, MIB, Rig, bring_up, copy, lose, noise, read, standings, wipe, write,
};

const THREE: &str = "parity[journal=64KiB](a, b, c)";
const DATA_BYTES: u64 = JOURNAL_BYTES + 2 * MIB;
const STRIPE: u64 = 128 << 10;
const CELL: u64 = 4096;
/// Longer than anything takes here that does not wait for ever.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than it takes what does not wait.
const MOMENT: Duration = Duration::from_millis(300);

/// A device whose first write behind the journal waits until it is let go.
struct Held {
    media: MediaDevice,
    is_held: AtomicBool,
    is_free: AtomicBool,
}

fn wait_for(what: &AtomicBool) {
    while !what.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl BlockDevice for Held {
    fn len_bytes(&self) -> u64 {
        self.media.len_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.media.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let is_placed = offset >= AREA_BYTES + JOURNAL_BYTES;
        if is_placed && !self.is_held.swap(true, Ordering::SeqCst) {
            wait_for(&self.is_free);
        }
        self.media.write_at(offset, slices)
    }

    fn flush(&self) -> Result<()> {
        self.media.flush()
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.media.allocate(offset, length_bytes)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.media.discard(offset, length_bytes)
    }

    fn describe(&self) -> String {
        "held".to_owned()
    }
}

/// A blank member that is full of something.
fn fresh(seed: u64, with: u8) -> Arc<SimMedia> {
    let media = Arc::new(SimMedia::filled(AREA_BYTES + DATA_BYTES, seed, with));
    wipe(&media);
    media
}

fn replace(array: &Array, member: usize, device: Arc<dyn BlockDevice>, id: u128) {
    let candidate = Candidate { path: format!("new-{id}"), device: Some(device) };
    array.replace(member, candidate, id).expect("replaced");
    assert_eq!(standings(array)[member], Standing::Stale);
}

fn plain(media: &Arc<SimMedia>) -> Arc<dyn BlockDevice> {
    Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(media)))
}

#[test]
fn a_step_keeps_waiting_only_who_writes_the_same_stripe() {
    let rig = Rig::new(THREE, DATA_BYTES, 51);
    let array = rig.open();
    let mut expected = noise(&mut Random::new(51), array.len_bytes());
    write(&array, 0, &expected);
    array.flush().expect("a flush");
    let media = MediaDevice::new(fresh(77, 0x11));
    let (is_held, is_free) = (AtomicBool::new(false), AtomicBool::new(false));
    let held = Arc::new(Held { media, is_held, is_free });
    lose(&array, &rig.media[2], 2);
    replace(&array, 2, Arc::<Held>::clone(&held), 71);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| array.resync(0, STRIPE, Resync::Stale));
        wait_for(&held.is_held);
        let (done, is_done) = mpsc::channel();
        let array = &array;
        let second = scope.spawn(move || {
            array.resync(STRIPE, STRIPE, Resync::Stale).expect("brought up");
            write(array, 5 * STRIPE + 1000, b"beside");
            array.flush().expect("a flush");
            done.send(()).expect("somebody waits for it");
            write(array, 1000, b"after");
            array.flush().expect("a flush");
            let _ = done.send(());
        });
        let beside = is_done.recv_timeout(PATIENCE);
        // What was read before the cell got there must not be written after it.
        let after = is_done.recv_timeout(MOMENT);
        held.is_free.store(true, Ordering::SeqCst);
        first.join().expect("a step").expect("brought up");
        second.join().expect("the others");
        beside.expect("it did not wait for the first step");
        after.expect_err("this one did");
    });
    expected[5 * STRIPE as usize + 1000..][..6].copy_from_slice(b"beside");
    expected[1000..1005].copy_from_slice(b"after");
    // The parity of stripe 0 is on the last side.
    let (first, second) = expected[..STRIPE as usize].split_at(STRIPE as usize / 2);
    let parity: Vec<u8> = first.iter().zip(second).map(|(a, b)| a ^ b).collect();
    assert!(read(&held.media, AREA_BYTES + JOURNAL_BYTES, parity.len()) == parity);
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::In; 3]);
    for number in 0..2 {
        assert!(copy(&array, number, 0, expected.len()) == expected, "copy {number}");
    }
}

/// What a client wrote.
struct Model {
    now: Vec<u8>,
    flushed: Vec<u8>,
    /// Written since the last flush that succeeded; of the last one not all may be there.
    maybe: Vec<(u64, Vec<u8>)>,
}

impl Model {
    /// Writes and flushes until the machine halts. No stripe is written as a whole: of such a one
    /// nothing is promised while a side is missing.
    fn keep_writing(&mut self, array: &Array, random: &mut Random) {
        loop {
            if random.chance(100) {
                if array.flush().is_err() {
                    return;
                }
                self.flushed.clone_from(&self.now);
                self.maybe.clear();
                continue;
            }
            let stripe = random.below(self.now.len() as u64 / STRIPE);
            let cell = random.below(STRIPE / CELL * 3 / 4);
            let start = 512 * random.below(8);
            let offset = stripe * STRIPE + cell * CELL + start;
            let count = random.between(1, 3) * CELL;
            let bytes = noise(random, count);
            let is_written = array.write_at(offset, &[IoSlice::new(&bytes)]).is_ok();
            let at = offset as usize;
            if is_written {
                self.now[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            self.maybe.push((offset, bytes));
            if !is_written {
                return;
            }
        }
    }

    fn check(&self, found: &[u8], is_killed: bool, text: &str) {
        // Whatever a kill leaves was answered, or is the last that was under way.
        let (surely, skipped) = match is_killed {
            true => (&self.now, self.maybe.len().saturating_sub(1)),
            false => (&self.flushed, 0),
        };
        for (at, (byte, sure)) in found.iter().zip(surely).enumerate() {
            let is_of = |(offset, bytes): &(u64, Vec<u8>)| {
                at.checked_sub(*offset as usize).is_some_and(|i| bytes.get(i) == Some(byte))
            };
            let is_right = byte == sure || self.maybe[skipped..].iter().any(is_of);
            assert!(is_right, "{text}: byte {at} is {byte}");
        }
    }
}

#[test]
fn what_is_written_while_a_side_is_brought_up_survives_crashes_and_kills() {
    let stacks = [THREE, "parity[failures=2,journal=64KiB](a, b, c, d)"];
    for seed in 0..12 {
        let mut rig = Rig::new(stacks[seed as usize % 2], DATA_BYTES, 200 + seed);
        let mut random = Random::new(seed);
        let array = rig.open();
        let now = noise(&mut random, array.len_bytes());
        write(&array, 0, &now);
        array.flush().expect("a flush");
        let mut model = Model { flushed: now.clone(), now, maybe: Vec::new() };
        let mut array = Some(array);
        for round in 0..4_u64 {
            let open = array.take().expect("an array");
            let member = random.below(rig.media.len() as u64) as usize;
            let all_in = standings(&open).iter().all(|s| *s == Standing::In);
            if all_in {
                let media = fresh(1000 + seed * 10 + round, 0x33);
                lose(&open, &rig.media[member], member);
                replace(&open, member, plain(&media), u128::from(100 + round));
                media.join(&rig.media[(member + 1) % rig.media.len()]);
                rig.media[member] = media;
            }
            rig.media[0].halt_after(20 + random.below(120));
            std::thread::scope(|scope| {
                scope.spawn(|| while open.step_while(&|| true).is_ok_and(|more| more) {});
                model.keep_writing(&open, &mut random);
            });
            drop(open);
            let is_killed = random.chance(500);
            if is_killed {
                rig.kill()
            } else {
                rig.crash(&mut random)
            }
            let open = rig.open();
            let found = read(&open, 0, model.now.len());
            model.check(&found, is_killed, &format!("seed {seed}, round {round}"));
            if random.chance(500) {
                bring_up(&open);
                for number in 0..rig.media.len() - 1 {
                    let text = format!("seed {seed}, round {round}, copy {number}");
                    assert!(copy(&open, number, 0, found.len()) == found, "{text}");
                }
            }
            open.flush().expect("a flush");
            model = Model { flushed: found.clone(), now: found, maybe: Vec::new() };
            array = Some(open);
        }
    }
}

#[test]
fn what_is_a_hole_on_all_sides_is_neither_read_nor_written() {
    let rig = Rig::filled(THREE, DATA_BYTES, 52, |_| 0);
    let array = rig.open();
    let expected = noise(&mut Random::new(52), STRIPE);
    write(&array, 2 * STRIPE, &expected);
    array.flush().expect("a flush");
    let media = fresh(78, 0);
    array.close().expect("closed");
    drop(array);
    let array = rig.open_without(&[1]);
    replace(&array, 1, plain(&media), 71);
    let all = [&rig.media[0], &media, &rig.media[2]];
    all.iter().for_each(|media| media.start_log());
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::In; 3]);
    let places = AREA_BYTES + JOURNAL_BYTES;
    let chunk = STRIPE / 2;
    for (number, media) in all.iter().enumerate() {
        let is_of_hole = |record: &&OpRecord| {
            let is_asked = matches!(record.op, Op::Read | Op::Write);
            is_asked && record.offset >= places && (record.offset - places) / chunk != 2
        };
        let log = media.take_log();
        let found: Vec<&OpRecord> = log.iter().filter(is_of_hole).collect();
        assert!(found.is_empty(), "side {number}: {found:?}");
        assert_eq!(log.iter().any(|r| r.op == Op::Write && r.offset >= places), number == 1);
    }
    for number in 0..2 {
        assert!(copy(&array, number, 2 * STRIPE, expected.len()) == expected, "copy {number}");
        assert!(copy(&array, number, 0, 2 * STRIPE as usize).iter().all(|&byte| byte == 0));
    }
}

/// A whole stripe was being written when the power failed; only the stale side has nothing of it.
#[test]
fn what_a_stale_side_lost_when_the_power_failed_is_brought_though_its_region_was_closed() {
    let double = "parity[failures=2,journal=64KiB](a, b, c, d)";
    for (stack, stale, out) in [(THREE, 1, None), (THREE, 0, None), (double, 1, Some(0))] {
        let rig = Rig::new(stack, DATA_BYTES, 53);
        let array = rig.open();
        let mut expected = noise(&mut Random::new(53), array.len_bytes());
        write(&array, 0, &expected);
        array.close().expect("closed");
        drop(array);
        let out: Vec<usize> = out.into_iter().collect();
        let both: Vec<usize> = out.iter().copied().chain([stale]).collect();
        let array = rig.open_without(&both);
        let mut put = |array: &Array, stripe: u64, seed: u64| {
            let bytes = noise(&mut Random::new(seed), STRIPE);
            write(array, stripe * STRIPE, &bytes);
            expected[(stripe * STRIPE) as usize..][..STRIPE as usize].copy_from_slice(&bytes);
        };
        put(&array, 0, 54);
        array.close().expect("closed");
        drop(array);
        // It is back, and has not missed what is written now.
        let array = rig.open_without(&out);
        assert_eq!(standings(&array)[stale], Standing::Stale);
        for stripe in 9..13 {
            put(&array, stripe, 55 + stripe);
        }
        for (number, media) in rig.media.iter().enumerate() {
            let is_lost = number == stale;
            media.crash_with(&mut |_, _| if is_lost { Keep::Nothing } else { Keep::All });
        }
        drop(array);
        // Nobody brings it up before the next opening.
        let array = rig.open_without(&out);
        assert_eq!(standings(&array)[stale], Standing::Stale);
        array.close().expect("closed");
        drop(array);
        let array = rig.open_without(&out);
        bring_up(&array);
        assert_eq!(standings(&array)[stale], Standing::In);
        array.close().expect("closed");
        drop(array);
        // Another fails, and it has to be right.
        let next = (stale + 1) % rig.media.len();
        let missing: Vec<usize> = out.iter().copied().chain([next]).collect();
        let array = rig.open_without(&missing);
        assert!(read(&array, 0, expected.len()) == expected, "{stack} {stale}");
    }
}
