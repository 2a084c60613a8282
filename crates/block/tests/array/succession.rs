//! Members that work are copied to the devices that take their places: until a copy has everything
//! the old one counts, whatever fails meanwhile.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hindsight_block::{Array, BlockDevice, Candidate, Standing};
use sim::{Failure, Op, Random, SimMedia};

use crate::online::storm;
use crate::renewed::{check, fill};
use crate::settling::Settling;
use crate::{
    AREA_BYTES, DATA_BYTES, MIB, Rig, bring_up, candidate, lose, materials, read, standings, write,
};

/// A device of which only the first MiB is blank.
fn used_before(seed: u64) -> Arc<SimMedia> {
    let media = Arc::new(SimMedia::filled(AREA_BYTES + DATA_BYTES, seed, 0x77));
    let device = hindsight_block::MediaDevice::new(Arc::<SimMedia>::clone(&media));
    write(&device, 0, &[0; AREA_BYTES as usize]);
    device.flush().expect("flushed");
    media
}

fn events(array: &Array) -> Vec<&'static str> {
    array.take_events().iter().map(|event| event.what).collect()
}

/// The members, but for what is at some paths, and a new one.
fn with_new(rig: &Rig, without: &[usize], new: &Arc<SimMedia>) -> Vec<Candidate> {
    let mut all = rig.candidates(without);
    all.push(candidate("new", new));
    all
}

#[test]
fn a_member_counts_until_its_successor_has_everything_under_any_layers() {
    for (stack, member, others) in [
        ("a", 0, vec![]),
        ("stripe(a, b)", 1, vec![]),
        ("mirror(a, b)", 1, vec![0]),
        ("mirror(stripe(a, b), stripe(c, d))", 2, vec![0, 1]),
        ("mirror(crypt[key=env:K](a), crypt[key=env:K](b))", 0, vec![1]),
        ("mirror(crypt[key=env:K](stripe(a, b)), c)", 1, vec![2]),
        ("parity[journal=64KiB](crypt[key=env:K](a), b, c)", 0, vec![2]),
    ] {
        let mut rig = Rig::new(stack, 51);
        let array = rig.open();
        let mut expected = fill(&array);
        let new = used_before(52);
        array.replace(member, candidate("new", &new), 71).expect("begun");
        let error = array.replace(member, candidate("x", &used_before(53)), 72).expect_err("twice");
        assert!(error.to_string().contains("is being copied to new"), "{stack}: {error}");
        assert!(array.spares()[0].is_copied_to, "{stack}");
        let mut behind = array.behind_bytes();
        while array.step().expect("a step") {
            assert!(standings(&array).iter().all(|s| *s == Standing::In), "{stack}: all count");
            assert!(array.behind_bytes() <= behind, "{stack}");
            behind = array.behind_bytes();
            // Before and behind what is copied by now.
            for at in [MIB / 2, array.len_bytes() - MIB / 2] {
                write(&array, at, &[behind as u8 | 1; 5000]);
                expected[at as usize..][..5000].fill(behind as u8 | 1);
            }
            array.discard(2 * MIB, MIB / 2).expect("discarded");
        }
        // It reads as anything, and as the same of both.
        let discarded = 2 * MIB as usize..(2 * MIB + MIB / 2) as usize;
        expected[discarded.clone()].copy_from_slice(&read(&array, 2 * MIB, discarded.len()));
        assert_eq!((behind, array.spares().len()), (0, 0), "{stack}");
        assert_eq!(array.members()[member].path, "new", "{stack}");
        let told = array.take_events();
        let last = told.last().expect("it was told");
        assert!(last.what == "member-replaced" && last.member == "new", "{stack}: {last:?}");
        assert!(!hindsight_block::has_label(&*rig.candidates(&[])[member].device.take_there()));
        check(&array, &expected, stack);
        array.close().expect("closed");
        drop(array);
        rig.media[member] = new;
        let array = rig.try_open(&others).expect("it is enough of its side");
        array.settle_by_the_first().expect("settled");
        check(&array, &expected, stack);
    }
}

/// What is there, of a candidate that is.
trait Take {
    fn take_there(&self) -> Arc<dyn BlockDevice>;
}

impl Take for Option<Arc<dyn BlockDevice>> {
    fn take_there(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(self.as_ref().expect("it is there"))
    }
}

#[test]
fn what_is_written_beside_the_copying_is_on_both() {
    for stack in ["mirror(a, b)", "parity[journal=64KiB](a, b, c)"] {
        let mut rig = Rig::new(stack, 53);
        let array = rig.open();
        fill(&array);
        let new = used_before(54);
        array.replace(1, candidate("new", &new), 71).expect("begun");
        let half = array.len_bytes() / 2;
        let stop = AtomicBool::new(false);
        let model = std::thread::scope(|scope| {
            let low = scope.spawn(|| storm(&array, 0, half, 1, &stop));
            let high = scope.spawn(|| storm(&array, half, half, 2, &stop));
            while !array.spares().is_empty() {
                array.step_while(&|| !array.spares().is_empty()).expect("steps");
            }
            stop.store(true, Ordering::SeqCst);
            [low.join().expect("written"), high.join().expect("written")].concat()
        });
        assert_eq!(array.members()[1].path, "new");
        array.close().expect("closed");
        drop(array);
        rig.media[1] = new;
        let array = rig.open_without(0);
        array.settle_by_the_first().expect("settled");
        assert!(read(&array, 0, model.len()) == model, "{stack}");
    }
}

#[test]
fn the_last_member_of_a_mirror_is_copied_and_one_that_is_lost_meanwhile_takes_nothing_along() {
    let rig = Rig::new("mirror(a, b)", 55);
    let array = rig.open();
    let expected = fill(&array);
    let new = used_before(56);
    array.replace(1, candidate("new", &new), 71).expect("begun");
    array.step().expect("a step");
    lose(&array, &rig.media[0], 0);
    check(&array, &expected, "of the old one");
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::Out, Standing::In]);
    array.close().expect("closed");
    drop(array);
    let array = Array::open(vec![candidate("new", &new)], &materials()).expect("it has all");
    check(&array, &expected, "of the new one");
}

#[test]
fn a_successor_that_fails_at_any_time_leaves_the_old_one_in_its_place() {
    for stack in ["mirror(a, b)", "stripe(a, b)"] {
        for op in [Op::Write, Op::Sync] {
            let (mut kept, mut after) = (0, 0);
            loop {
                let mut rig = Rig::new(stack, 57);
                let array = rig.open();
                let mut expected = fill(&array);
                let new = used_before(58);
                new.fail(Failure { op, range: None, after, times: None });
                let begun = array.replace(1, candidate("new", &new), 71);
                let mut n = 0;
                while array.step().expect("nobody else fails") {
                    n += 1;
                    let done = array.write_at(5 * MIB, &[IoSlice::new(&[n; 5000])]);
                    let done = done.and_then(|()| array.flush());
                    let has_place = array.members()[1].path == "new";
                    assert!(done.is_ok() || has_place, "{stack} {op:?} {after}: {done:?}");
                    if done.is_err() {
                        break;
                    }
                    expected[5 * MIB as usize..][..5000].fill(n);
                }
                let path = array.members()[1].path.clone();
                // Once labels name it, it is a member that fails.
                let is_late = path == "new";
                assert!(is_late || standings(&array)[1] == Standing::In, "{stack} {op:?} {after}");
                assert!(array.spares().is_empty(), "{stack} {op:?} {after}");
                let told = events(&array);
                let is_told = told.contains(&"replace-failed") || begun.is_err();
                assert_eq!(is_told, !is_late, "{stack} {op:?} {after}: {told:?}");
                if is_late {
                    break;
                }
                check(&array, &expected, stack);
                kept += 1;
                array.close().expect("closed");
                drop(array);
                new.calm();
                let array =
                    Array::open(with_new(&rig, &[], &new), &materials()).expect("as before");
                check(&array, &expected, stack);
                assert_eq!(array.members()[1].path, "b");
                rig.media.clear();
                after += 1;
            }
            assert!(kept >= if op == Op::Write { 12 } else { 1 }, "{stack} {op:?}: {kept}");
        }
    }
}

#[test]
fn an_old_one_that_fails_meanwhile_is_replaced_as_by_a_spare() {
    let rig = Rig::new("mirror(a, b)", 59);
    let array = rig.open();
    let expected = fill(&array);
    let new = used_before(60);
    array.replace(1, candidate("new", &new), 71).expect("begun");
    array.step().expect("a step");
    lose(&array, &rig.media[1], 1);
    assert!(array.use_spare().expect("it takes the place"));
    assert_eq!(standings(&array), [Standing::In, Standing::Stale]);
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::In; 2]);
    array.close().expect("closed");
    drop(array);
    let array = Array::open(vec![candidate("new", &new)], &materials()).expect("it has all");
    check(&array, &expected, "the new one");
}

#[test]
fn an_old_one_that_cannot_be_read_stays_and_the_new_one_waits() {
    let rig = Rig::new("mirror(a, b)", 61);
    let array = rig.open();
    let expected = fill(&array);
    let new = used_before(62);
    array.replace(1, candidate("new", &new), 71).expect("begun");
    let at = AREA_BYTES + 4 * MIB;
    rig.media[1].fail(Failure { op: Op::Read, range: Some(at..at + 512), after: 0, times: None });
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::In; 2]);
    assert!(events(&array).contains(&"replace-failed"));
    assert!(array.spares().iter().all(|spare| !spare.is_copied_to) && array.spares().len() == 1);
    check(&array, &expected, "as it was");
    rig.media[1].calm();
    // What waits as a spare can be named.
    let there = Candidate { path: "new".to_owned(), device: None };
    array.replace(1, there, 72).expect("begun again");
    bring_up(&array);
    assert_eq!((&*array.members()[1].path, array.spares().len()), ("new", 0));
    array.close().expect("closed");
    drop(array);
    let array = Array::open(vec![candidate("new", &new)], &materials()).expect("it has all");
    check(&array, &expected, "the new one");
}

#[test]
fn a_successor_that_is_taken_away_is_none_and_no_spare() {
    let rig = Rig::new("mirror(a, b)", 63);
    let array = rig.open();
    let expected = fill(&array);
    let new = used_before(64);
    array.replace(1, candidate("new", &new), 71).expect("begun");
    array.step().expect("a step");
    array.remove_spare("new").expect("taken away");
    let changes = new.changes();
    write(&array, 0, &expected[..5000]);
    bring_up(&array);
    assert_eq!(new.changes(), changes, "it is nobody");
    assert_eq!((&*array.members()[1].path, array.spares().len()), ("b", 0));
    check(&array, &expected, "as it was");
}

/// Replaces a member while the power fails after so many changes of one of the media; says which
/// device has its place afterwards, and whether it was over by then.
fn cut_after(stack: &str, changes: u64, random: &mut Random) -> (String, bool) {
    const AT: u64 = 5 * MIB;
    let rig = Rig::new(stack, 65);
    let array = rig.open();
    let mut expected = fill(&array);
    array.close().expect("closed");
    drop(array);
    let array = rig.open();
    let new = used_before(66);
    let media: Vec<&Arc<SimMedia>> = rig.media.iter().chain([&new]).collect();
    media[1..].iter().for_each(|one| one.join(media[0]));
    let at = changes as usize % media.len();
    media[at].halt_after(changes / media.len() as u64);
    let mut flushed = expected[AT as usize];
    let mut tried = flushed;
    let mut is_over = array.replace(1, candidate("new", &new), 71).is_ok();
    let mut n = 100;
    while is_over && !array.spares().is_empty() {
        n += 1;
        tried = n;
        is_over = array.write_at(AT, &[IoSlice::new(&[n; 4096])]).is_ok();
        is_over = is_over && array.flush().is_ok() && array.step().is_ok();
        if is_over {
            flushed = n;
        }
    }
    is_over = is_over && media.iter().all(|one| !one.is_halted());
    media.iter().for_each(|one| one.halt_now());
    drop(array);
    media.iter().for_each(|one| one.crash(random));
    media.iter().for_each(|one| one.calm());
    let array = Array::open(with_new(&rig, &[], &new), &materials()).expect("one or the other");
    array.settle_by_the_first().expect("settled");
    let there = read(&array, AT, 4096);
    let is_known = |byte: &u8| (flushed..=tried).contains(byte) || *byte == flushed;
    assert!(there.iter().all(is_known), "{stack} {changes}: {flushed} to {tried}");
    expected[AT as usize..][..4096].copy_from_slice(&there);
    check(&array, &expected, stack);
    let path = array.members()[1].path.clone();
    assert!(standings(&array).iter().all(|s| *s == Standing::In), "{stack} {changes}");
    array.close().expect("closed");
    drop(array);
    // It alone has what its side had.
    let lost: &[usize] = if stack.starts_with("mirror") { &[0] } else { &[] };
    let alone = if path == "new" { [lost, &[1]].concat() } else { lost.to_vec() };
    let array = Array::open(with_new(&rig, &alone, &new), &materials()).expect("its side");
    array.settle_by_the_first().expect("settled");
    check(&array, &expected, stack);
    drop(array);
    if path == "b" && lost.is_empty() {
        finish(&rig, &new, &expected);
    }
    (path, is_over)
}

/// Gives the command again that was cut.
fn finish(rig: &Rig, new: &Arc<SimMedia>, expected: &[u8]) {
    let array = Array::open(with_new(rig, &[], new), &materials()).expect("as before");
    let is_spare = array.spares().iter().any(|spare| spare.is_there);
    let again = match is_spare {
        true => Candidate { path: "new".to_owned(), device: None },
        false => candidate("other", &used_before(67)),
    };
    array.replace(1, again, 73).expect("begun again");
    bring_up(&array);
    assert_ne!(array.members()[1].path, "b");
    check(&array, expected, "in the end");
}

#[test]
fn whenever_the_power_fails_one_of_the_two_has_everything() {
    for stack in ["mirror(a, b)", "stripe(a, b)"] {
        let mut random = Random::new(68);
        let (mut old, mut new) = (0, 0);
        for changes in 0.. {
            let (path, is_over) = cut_after(stack, changes, &mut random);
            match &*path {
                "b" => old += 1,
                _ => new += 1,
            }
            if is_over && changes % 3 == 2 {
                break;
            }
        }
        assert!(old > 30 && new > 3, "{stack}: {old} times the old one, {new} times the new one");
    }
}
