//! Arrays that get another side while they are used, and lone members that become longer.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use env::FileMedia;
use hindsight_block::{
    Array, ArrayError, BlockDevice, Candidate, Identities, MediaDevice, Standing, has_label,
    is_superseded, named_by,
};
use sim::{Failure, Op, Random, SimMedia};

use crate::grow::{blank, candidates, check, fill, grow};
use crate::online::storm;
use crate::settling::Settling;
use crate::{DATA_BYTES, MIB, Rig, bring_up, copy, lose, materials, read, standings, write};

fn identities(random: &mut dyn FnMut() -> u128) -> Identities<'_> {
    Identities { random, now: units::WallTime::from_nanos(2) }
}

fn attach(array: &Array, with: Candidate) -> Result<(), ArrayError> {
    let id = 900 + array.members().len() as u128;
    array.attach(with, identities(&mut || id))
}

fn one(path: &str, data_bytes: u64) -> (Arc<SimMedia>, Candidate) {
    let mut new = blank(&[path], data_bytes);
    let candidate = candidates(&new).remove(0);
    (new.remove(0).1, candidate)
}

/// Whether all sides that are in say the same everywhere.
fn check_copies(array: &Array, model: &[u8], copies: usize) {
    assert_eq!(array.copies(0, 4096), copies);
    for number in 0..copies {
        for start in (0..model.len()).step_by(MIB as usize) {
            let length = (model.len() - start).min(MIB as usize);
            let there = copy(array, number, start as u64, length);
            assert!(there == model[start..start + length], "copy {number} at {start}");
        }
    }
}

#[test]
fn a_side_that_is_attached_beside_writers_has_everything() {
    for (stack, count) in [("a", 1), ("mirror(a, b)", 2)] {
        let rig = Rig::new(stack, 131);
        let array = rig.open();
        let mut model = fill(&array, &mut Random::new(131));
        let half = array.len_bytes() / 2;
        let mut all = rig.candidates(&[]);
        for (turn, name) in ["x", "y"].into_iter().enumerate() {
            let (_, new) = one(name, DATA_BYTES + turn as u64 * 700_000);
            let stop = AtomicBool::new(false);
            let (low, high) = std::thread::scope(|scope| {
                let low = scope.spawn(|| storm(&array, 0, half, 1, &stop));
                let high = scope.spawn(|| storm(&array, half, half, 2, &stop));
                let _stopped = Stopped(&stop);
                std::thread::sleep(Duration::from_millis(30));
                attach(&array, new.clone()).expect("attached");
                assert_ne!(standings(&array)[count + turn], Standing::Out);
                std::thread::sleep(Duration::from_millis(30));
                stop.store(true, Ordering::SeqCst);
                (low.join().expect("written"), high.join().expect("written"))
            });
            model = [low, high].concat();
            bring_up(&array);
            assert!(standings(&array).iter().all(|standing| *standing == Standing::In));
            assert!(array.take_events().iter().any(|event| event.what == "member-attached"));
            check_copies(&array, &model, count + turn + 1);
            all.push(new);
        }
        let text = array.stack();
        assert!(text.starts_with("mirror(") && text.ends_with("x, y)"), "{text}");
        array.close().expect("closed");
        drop(array);
        // Each of them has everything.
        for there in &all {
            let only = |one: &Candidate| Candidate {
                device: one.device.clone().filter(|_| one.path == there.path),
                ..one.clone()
            };
            // The missing member is written down for the next opening.
            let held = all.iter().map(only).collect();
            let opening = Array::prepare(held, leaked()).expect("enough");
            check(&opening.tried().expect("opened"), &model, &there.path);
        }
        let array = Array::open(all, &materials()).expect("all of them");
        assert!(array.unsettled().is_empty() && array.behind_bytes() == 0);
        assert_eq!(array.stack(), text);
    }
}

fn leaked() -> &'static hindsight_block::Materials<'static> {
    Box::leak(Box::new(materials()))
}

/// Stops those who write, also where a test fails.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A device whose writes, or reads, wait while it is held.
struct Held {
    below: Arc<dyn BlockDevice>,
    what: Op,
    is_held: Mutex<bool>,
    waits: AtomicBool,
    changed: Condvar,
}

impl Held {
    fn over(below: Arc<dyn BlockDevice>, what: Op) -> Arc<Held> {
        let (is_held, waits, changed) = Default::default();
        Arc::new(Held { below, what, is_held, waits, changed })
    }

    fn pass(&self, what: Op) {
        let mut is_held = self.is_held.lock().expect("held");
        while *is_held && what == self.what {
            self.waits.store(true, Ordering::SeqCst);
            is_held = self.changed.wait(is_held).expect("held");
        }
    }

    fn until_waited(&self) {
        while !self.waits.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    fn hold(&self, is_held: bool) {
        *self.is_held.lock().expect("held") = is_held;
        self.changed.notify_all();
    }
}

impl BlockDevice for Held {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> hindsight_block::Result<()> {
        self.pass(Op::Read);
        self.below.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> hindsight_block::Result<()> {
        self.pass(Op::Write);
        self.below.write_at(offset, slices)
    }
    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> hindsight_block::Result<()> {
        self.below.write_durable(offset, slices)
    }
    fn flush(&self) -> hindsight_block::Result<()> {
        self.below.flush()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> hindsight_block::Result<()> {
        self.below.allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> hindsight_block::Result<()> {
        self.below.discard(offset, length_bytes)
    }
    fn describe(&self) -> String {
        self.below.describe()
    }
}

#[test]
fn a_write_that_began_before_is_waited_for_and_reaches_the_new_side() {
    for stack in ["a", "mirror(a, b)"] {
        let rig = Rig::new(stack, 132);
        let mut there = rig.candidates(&[]);
        let below = there[0].device.clone().expect("it is there");
        let held = Held::over(below, Op::Write);
        there[0].device = Some(Arc::clone(&held) as Arc<dyn BlockDevice>);
        let array = Array::open(there, &materials()).expect("opened");
        write(&array, 0, &[1; 8192]);
        assert!(array.is_ready(0, 4096), "{stack}: nothing to wait for");
        let (_, new) = one("x", DATA_BYTES);
        held.hold(true);
        let is_attached = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| write(&array, 4096, &[2; 4096]));
            held.until_waited();
            scope.spawn(|| {
                attach(&array, new).expect("attached");
                is_attached.store(true, Ordering::SeqCst);
            });
            // Session threads are told to leave it to those who may wait; reads go on.
            while array.is_ready(0, 4096) {
                std::thread::yield_now();
            }
            assert_eq!(read(&array, 0, 4096), [1; 4096]);
            std::thread::sleep(Duration::from_millis(50));
            let is_early = is_attached.load(Ordering::SeqCst);
            held.hold(false);
            assert!(!is_early, "{stack}: a write was on its way to the old top");
        });
        bring_up(&array);
        let model = [[1; 4096], [2; 4096]].concat();
        for number in 0..array.copies(0, 8192) {
            assert_eq!(copy(&array, number, 0, 8192), model, "{stack}: copy {number}");
        }
    }
}

#[test]
fn a_read_that_heals_in_the_mirror_of_before_writes_nothing_over_what_came_after() {
    let rig = Rig::new("mirror(a, b)", 140);
    let mut there = rig.candidates(&[]);
    let held = Held::over(there[1].device.clone().expect("it is there"), Op::Read);
    there[1].device = Some(Arc::clone(&held) as Arc<dyn BlockDevice>);
    let array = Array::open(there, &materials()).expect("opened");
    write(&array, 0, &[1; 4096]);
    held.hold(true);
    // The first reads of one side fail: what the other says is to be written there.
    rig.media[0].fail(Failure::for_ever(Op::Read));
    let is_written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(read(&array, 0, 4096), [1; 4096]));
        held.until_waited();
        attach(&array, one("x", DATA_BYTES).1).expect("attached");
        scope.spawn(|| {
            write(&array, 0, &[2; 4096]);
            is_written.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(50));
        let is_early = is_written.load(Ordering::SeqCst);
        held.hold(false);
        assert!(!is_early, "a write came between, and what was read before is written over it");
    });
    rig.media[0].calm();
    bring_up(&array);
    for number in 0..array.copies(0, 4096) {
        assert_eq!(copy(&array, number, 0, 4096), [2; 4096], "copy {number}");
    }
}

#[test]
fn what_cannot_be_attached_changes_nothing() {
    let crypts = "mirror(crypt[key=env:K](a), crypt[key=env:K](b))";
    for stack in ["stripe(a, b)", "crypt[key=env:K](a)", crypts] {
        let rig = Rig::new(stack, 133);
        let error = attach(&rig.open(), one("x", DATA_BYTES).1).expect_err(stack).to_string();
        assert!(error.contains("gets another side"), "{error}");
    }
    for stack in ["a", "mirror(a, b)"] {
        let rig = Rig::new(stack, 134);
        let array = rig.open();
        let model = fill(&array, &mut Random::new(4));
        let (media, new) = one("x", DATA_BYTES);
        let refusal = |new: Candidate| attach(&array, new).expect_err("refused").to_string();
        let error = refusal(one("y", DATA_BYTES - 4096).1);
        assert!(error.contains("y has"), "{error}");
        let error = refusal(rig.candidates(&[])[0].clone());
        assert!(error.contains("a is not blank"), "{error}");
        let error = refusal(Candidate { device: None, ..new.clone() });
        assert!(error.contains("x is not there"), "{error}");
        // One that fails is no reason to be a mirror.
        media.fail(Failure::for_ever(Op::Write));
        refusal(new.clone());
        media.calm();
        check(&array, &model, "as it was");
        assert_eq!((array.stack().as_str(), array.is_torn()), (stack, false));
        array.close().expect("closed");
        drop(array);
        let array = rig.open();
        attach(&array, new).expect("what was claimed is attached after all");
        bring_up(&array);
        check_copies(&array, &model, rig.media.len() + 1);
    }
    let rig = Rig::new("mirror(a, b)", 135);
    let array = rig.open();
    lose(&array, &rig.media[1], 1);
    let error = attach(&array, one("x", DATA_BYTES).1).expect_err("degraded").to_string();
    assert!(error.contains("b is not there or not up to date"), "{error}");
}

#[test]
fn a_lone_member_whose_maps_rotted_has_nothing_to_settle() {
    let rotten = || {
        let rig = Rig::new("a", 139);
        let model = fill(&rig.open(), &mut Random::new(6));
        for copy in format::label::REGIONS_OFFSETS {
            rig.media[0].rot(copy + 100, 3);
        }
        (rig, model)
    };
    let (rig, _) = rotten();
    grow(rig.candidates(&[]), Some(("b", vec![one("b", MIB).1]))).expect("longer");
    let (rig, model) = rotten();
    let array = rig.open();
    assert!(array.unsettled().is_empty());
    attach(&array, one("x", DATA_BYTES).1).expect("attached");
    bring_up(&array);
    check_copies(&array, &model, 2);
}

#[test]
fn a_side_that_is_lost_or_comes_back_is_as_any_other() {
    let rig = Rig::new("a", 136);
    let array = rig.open();
    let mut model = fill(&array, &mut Random::new(5));
    let (media, new) = one("x", DATA_BYTES);
    attach(&array, new.clone()).expect("attached");
    assert_eq!(standings(&array)[1], Standing::Stale);
    assert!(array.behind_bytes() >= model.len() as u64, "everything was missed");
    // A side that has not everything is not enough by itself.
    drop(array);
    let without_a = || vec![rig.candidates(&[0]).remove(0), new.clone()];
    let error = Array::open(without_a(), &materials()).err().expect("refused").to_string();
    assert!(error.contains("a is missing") && error.contains("x is not up to date"), "{error}");
    let both = || vec![rig.candidates(&[]).remove(0), new.clone()];
    let array = Array::open(both(), &materials()).expect("both");
    array.settle_by_the_first().expect("settled");
    bring_up(&array);
    check_copies(&array, &model, 2);
    lose(&array, &media, 1);
    write(&array, 5000, &[9; 9000]);
    model[5000..14_000].fill(9);
    drop(array);
    // The one that has everything says so, and the label of the other does not know of it.
    let [a, x] = [rig.candidates(&[]).remove(0), new.clone()].map(|one| one.device.expect("there"));
    assert!(is_superseded(&[&*x], &*a) && !is_superseded(&[&*a], &*x));
    assert!(!is_superseded(&[&*x, &*a], &*a), "it is one of them");
    assert_eq!(named_by(&*a).expect("sound").expect("a label").to_string(), "mirror(a, x)");
    media.calm();
    let array = Array::open(both(), &materials()).expect("both");
    array.settle_by_the_first().expect("settled");
    bring_up(&array);
    assert!(standings(&array).iter().all(|standing| *standing == Standing::In));
    array.close().expect("closed");
    drop(array);
    let array = Array::open(without_a(), &materials()).expect("the other has everything");
    check(&array, &model, "of the one that was attached");
}

#[test]
fn whenever_the_power_fails_nothing_that_was_flushed_is_lost() {
    for stack in ["a", "mirror(a, b)"] {
        let (mut old, mut wider) = (0, 0);
        for changes in 0..300 {
            let rig = Rig::new(stack, 137);
            let array = rig.open();
            write(&array, 3000, &[5; 100_000]);
            array.flush().expect("flushed");
            let (new_media, new) = one("x", DATA_BYTES + 5000);
            let media: Vec<_> = rig.media.iter().chain([&new_media]).collect();
            media[1..].iter().for_each(|one| one.join(media[0]));
            let which = changes % media.len();
            media[which].halt_after((changes / media.len()) as u64);
            let outcome = attach(&array, new.clone());
            let late =
                array.write_at(50_000, &[IoSlice::new(&[6; 40_000])]).and_then(|()| array.flush());
            let stepped = (0..40).try_for_each(|_| array.step().map(drop));
            let is_over = outcome.is_ok() && stepped.is_ok() && !media[which].is_halted();
            media.iter().for_each(|one| one.halt_now());
            drop(array);
            let mut random = Random::new(changes as u64);
            media.iter().for_each(|one| one.crash(&mut random));
            media.iter().for_each(|one| one.calm());
            let all = || rig.candidates(&[]).into_iter().chain([new.clone()]).collect::<Vec<_>>();
            let array = Array::open(all(), &materials()).expect("with or without it");
            match array.members().len() - rig.media.len() {
                0 => old += 1,
                _ => wider += 1,
            }
            let is_wider = array.members().len() > rig.media.len();
            assert!(outcome.is_err() || is_wider, "{changes}: it was answered");
            assert!(is_wider || array.behind_bytes() == 0, "{changes}: nobody misses anything");
            array.settle_by_the_first().expect("settled");
            let right = |array: &Array| {
                let there = read(array, 3000, 100_000);
                let is_old = |at: usize| !(47_000..87_000).contains(&at);
                let is_right = |at: usize| {
                    there[at] == 5 && (late.is_err() || is_old(at)) || there[at] == 6 && !is_old(at)
                };
                assert!((0..there.len()).all(is_right), "{stack}: {changes}");
                there
            };
            let there = right(&array);
            if !is_wider {
                attach(&array, new.clone()).expect("it is completed");
            }
            bring_up(&array);
            assert!(standings(&array).iter().all(|standing| *standing == Standing::In));
            for number in 0..array.copies(3000, 100_000) {
                assert!(copy(&array, number, 3000, 100_000) == there, "{stack}: {changes}");
            }
            array.close().expect("closed");
            if is_over && which + 1 == media.len() {
                break;
            }
        }
        assert!(old > 4 && wider > 4, "{stack}: {old} times as it was, {wider} times wider");
    }
}

#[test]
fn a_lone_member_becomes_longer_while_it_is_written_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a");
    let file = |path: &std::path::Path| {
        let media = FileMedia::open(path).expect("open");
        let device = Arc::new(MediaDevice::new(Arc::new(media))) as Arc<dyn BlockDevice>;
        vec![Candidate { path: "a".to_owned(), device: Some(device) }]
    };
    drop(FileMedia::create(&path, 5 * MIB).expect("made"));
    let stack = "a".parse().expect("a stack");
    Array::create(&stack, file(&path), identities(&mut || 7), &materials()).expect("a label");
    let array = Array::open(file(&path), &materials()).expect("opened");
    let stop = AtomicBool::new(false);
    let low = std::thread::scope(|scope| {
        let low = scope.spawn(|| storm(&array, 0, 4 * MIB, 1, &stop));
        let _stopped = Stopped(&stop);
        for (asked, wanted) in [(None, 4), (Some(3 * MIB), 4), (Some(9 * MIB), 9)] {
            assert_eq!(array.lengthen_member(asked).expect("longer"), wanted * MIB, "{asked:?}");
        }
        // By somebody else.
        let file = std::fs::File::options().write(true).open(&path).expect("open");
        file.set_len(40 << 30).expect("longer");
        assert_eq!(array.lengthen_member(None).expect("longer"), (40 << 30) - MIB);
        stop.store(true, Ordering::SeqCst);
        low.join().expect("written")
    });
    assert_eq!(std::fs::metadata(&path).expect("there").len(), 40 << 30);
    write(&array, (40 << 30) - MIB - 5000, &[7; 5000]);
    array.close().expect("closed");
    drop(array);
    let array = Array::open(file(&path), &materials()).expect("opened");
    assert_eq!(array.len_bytes(), (40 << 30) - MIB);
    assert!(read(&array, 0, 4 * MIB as usize) == low);
    assert_eq!(read(&array, (40 << 30) - MIB - 5000, 5000), [7; 5000]);
    drop(array);
    let options = std::fs::File::options().write(true).open(&path).expect("open");
    options.set_len(39 << 30).expect("cut");
    assert!(has_label(&**file(&path)[0].device.as_ref().expect("there")));
    let error = Array::open(file(&path), &materials()).err().expect("refused").to_string();
    assert!(error.contains("when it became a member"), "{error}");
    let rig = Rig::new("mirror(a, b)", 138);
    let error = rig.open().lengthen_member(None).expect_err("two of them").to_string();
    assert!(error.contains("when no server runs"), "{error}");
}

#[test]
fn a_lone_member_that_cannot_write_its_label_is_as_long_as_it_was() {
    for changes in 0..6 {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let media = FileMedia::create(&path, 5 * MIB).expect("made");
        let device = Arc::new(MediaDevice::new(Arc::new(media))) as Arc<dyn BlockDevice>;
        let failing = Arc::new(Failing { below: device, failures: Arc::default() });
        let there = || {
            let device = Some(Arc::clone(&failing) as Arc<dyn BlockDevice>);
            vec![Candidate { path: "a".to_owned(), device }]
        };
        let stack = "a".parse().expect("a stack");
        Array::create(&stack, there(), identities(&mut || 7), &materials()).expect("a label");
        let array = Array::open(there(), &materials()).expect("opened");
        write(&array, 0, &[3; 5000]);
        *failing.failures.lock().expect("failures") = vec![changes];
        let outcome = array.lengthen_member(Some(9 * MIB));
        failing.failures.lock().expect("failures").clear();
        // Maps, and two copies of the label; each written again where one of them failed.
        assert_eq!(outcome.is_ok(), changes >= 3, "{changes}: {outcome:?}");
        let length = if outcome.is_ok() { 9 * MIB } else { 4 * MIB };
        assert_eq!(array.len_bytes(), length);
        assert_eq!(read(&array, 0, 5000), [3; 5000]);
        let is_torn = array.is_torn();
        drop(array);
        let array = Array::open(there(), &materials()).expect("opened");
        assert!(array.len_bytes() == length || is_torn, "{changes}");
        assert_eq!(read(&array, 0, 5000), [3; 5000]);
    }
}

#[test]
fn whichever_two_writes_of_labels_and_maps_fail_no_side_is_in_without_its_data() {
    for stack in ["a", "mirror(a, b)"] {
        let (mut attached, mut undone, mut torn, mut again) = (0, 0, 0, 0);
        for (first, second) in (0..24).flat_map(|m| (0..m).map(move |k| (k, m))) {
            let what = format!("{stack}: writes {first} and {second}");
            let rig = Rig::new(stack, 140);
            let failures = Arc::new(Mutex::new(Vec::new()));
            let failing = |mut one: Candidate| {
                let below = one.device.take().expect("it is there");
                let failing = Failing { below, failures: Arc::clone(&failures) };
                one.device = Some(Arc::new(failing));
                one
            };
            let array =
                Array::open(rig.candidates(&[]).into_iter().map(failing).collect(), &materials());
            let array = array.expect("opened");
            write(&array, 3 * MIB, &[5; 70_000]);
            let (_, new) = one("x", DATA_BYTES);
            *failures.lock().expect("failures") = vec![first, second - first - 1];
            let outcome = attach(&array, failing(new.clone()));
            failures.lock().expect("failures").clear();
            match (&outcome, array.is_torn()) {
                (_, true) => torn += 1,
                (Ok(()), _) => attached += 1,
                (Err(_), _) => undone += 1,
            }
            drop(array);
            let there = || rig.candidates(&[]).into_iter().chain([new.clone()]).collect();
            let array =
                Array::open(there(), &materials()).unwrap_or_else(|e| panic!("{what}: {e}"));
            array.settle_by_the_first().expect("settled");
            if array.members().len() == rig.media.len() {
                bring_up(&array);
                // A device that failed too, or was labelled for good, has to be wiped.
                match attach(&array, new.clone()) {
                    Ok(()) => again += 1,
                    Err(_) => attach(&array, one("y", DATA_BYTES).1).expect("attached"),
                }
            }
            bring_up(&array);
            assert!(standings(&array).iter().all(|s| *s == Standing::In), "{what}");
            for number in 0..=rig.media.len() {
                assert!(copy(&array, number, 3 * MIB, 70_000) == [5; 70_000], "{what}: {number}");
            }
        }
        // A mirror whose sides are not both gone has its labels written after all.
        let torn = if stack == "a" { torn } else { 4 + torn };
        let counts = [attached, undone, torn, again];
        assert!(counts.iter().all(|count| *count > 3), "{stack}: {counts:?}");
    }
}

/// A device on which durable writes fail: of these counts, each after so many more.
struct Failing {
    below: Arc<dyn BlockDevice>,
    failures: Arc<Mutex<Vec<u32>>>,
}

impl BlockDevice for Failing {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> hindsight_block::Result<()> {
        self.below.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> hindsight_block::Result<()> {
        self.below.write_at(offset, slices)
    }
    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> hindsight_block::Result<()> {
        let mut failures = self.failures.lock().expect("failures");
        match failures.first_mut() {
            Some(0) => {
                failures.remove(0);
                return self.below.write_durable(u64::MAX, slices);
            }
            Some(more) => *more -= 1,
            None => {}
        }
        self.below.write_durable(offset, slices)
    }
    fn flush(&self) -> hindsight_block::Result<()> {
        self.below.flush()
    }
    fn lengthen(&self, len_bytes: Option<u64>) -> hindsight_block::Result<u64> {
        self.below.lengthen(len_bytes)
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> hindsight_block::Result<()> {
        self.below.allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> hindsight_block::Result<()> {
        self.below.discard(offset, length_bytes)
    }
    fn describe(&self) -> String {
        self.below.describe()
    }
}
