//! Arrays that grow while they are used.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::FileMedia;
use hindsight_block::stack::Stack;
use hindsight_block::{
    Added, Array, ArrayError, BlockDevice, Candidate, Identities, MediaDevice, Standing,
};
use sim::{Failure, Op, Random, SimMedia};

use crate::grow::{blank, candidates, check, fill, grow};
use crate::settling::Settling;
use crate::{MIB, Rig, bring_up, materials, read, standings, write};

/// Adds to an array that is in use.
pub fn add(array: &Array, part: &str, new: Vec<Candidate>) -> Result<(u64, u64), ArrayError> {
    let stack: Stack = part.parse().expect("a stack");
    let mut id = 700 + u128::from(array.len_bytes());
    let random = &mut || {
        id += 1;
        id
    };
    let identities = Identities { random, now: units::WallTime::from_nanos(2) };
    array.add(Added { stack: &stack, candidates: new }, identities, &materials())
}

/// Writes at random within a part of an array until told to stop; what is there then.
pub fn storm(array: &Array, start: u64, length: u64, seed: u64, stop: &AtomicBool) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut model = read(array, start, length as usize);
    while !stop.load(Ordering::SeqCst) {
        let offset = random.below(length - 9000);
        let mut bytes = vec![0; random.between(1, 9000) as usize];
        random.fill(&mut bytes);
        write(array, start + offset, &bytes);
        model[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        match random.below(30) {
            0 => array.flush().expect("flushed"),
            1 => array.tidy().expect("tidied"),
            2 => _ = array.step().expect("nothing to bring up"),
            _ => {}
        }
    }
    model
}

#[test]
fn an_array_grows_beside_writers_and_has_everything() {
    for (stack, parts) in [
        ("mirror(a, b)", ["mirror(c, d)", "mirror(e, f)"]),
        ("stripe(a, b)", ["stripe(c, d)", "mirror(e, f)"]),
        (
            "crypt[key=env:A](mirror(a, b))",
            ["crypt[key=env:A](mirror(c, d))", "crypt[key=env:A](mirror(e, f))"],
        ),
        ("mirror(a, b)", ["parity[journal=64KiB](c, d, g)", "mirror(e, f)"]),
        ("parity[journal=64KiB](a, b, h)", ["parity[journal=64KiB](c, d, g)", "mirror(e, f)"]),
    ] {
        let rig = Rig::new(stack, 91);
        let array = rig.open();
        let mut model = fill(&array, &mut Random::new(91));
        let mut all = rig.candidates(&[]);
        for (turn, part) in parts.into_iter().enumerate() {
            let names = part.parse::<Stack>().expect("a stack");
            // A length that ends in the middle of a region.
            let new = blank(&names.members(), (3 + turn as u64) * MIB + 300 * 1024);
            let half = array.len_bytes() / 2;
            let length = array.len_bytes() - half;
            let stop = AtomicBool::new(false);
            let (low, high) = std::thread::scope(|scope| {
                let low = scope.spawn(|| storm(&array, 0, half, 1, &stop));
                let high = scope.spawn(|| storm(&array, half, length, 2, &stop));
                std::thread::sleep(std::time::Duration::from_millis(30));
                let (from, to) = add(&array, part, candidates(&new)).expect(part);
                assert!(from == model.len() as u64 && to >= from + 3 * MIB, "{from} to {to}");
                assert_eq!(array.len_bytes(), to);
                std::thread::sleep(std::time::Duration::from_millis(30));
                stop.store(true, Ordering::SeqCst);
                (low.join().expect("written"), high.join().expect("written"))
            });
            model = [low, high].concat();
            let old = model.len();
            model.resize(array.len_bytes() as usize, 0);
            Random::new(3).fill(&mut model[old..]);
            write(&array, old as u64, &model[old..]);
            array.flush().expect("flushed");
            check(&array, &model, stack);
            all.extend(candidates(&new));
        }
        let grown = array.stack();
        array.close().expect("closed");
        drop(array);
        let array = Array::open(all, &materials()).expect("all of them");
        assert_eq!(array.stack(), grown);
        assert!(array.unsettled().is_empty() && array.behind_bytes() == 0);
        check(&array, &model, stack);
    }
}

#[test]
fn new_members_fail_and_are_replaced_like_the_others() {
    let rig = Rig::new("mirror(a, b)", 92);
    let array = rig.open();
    let new = blank(&["c", "d"], 4 * MIB);
    let (from, to) = add(&array, "mirror(c, d)", candidates(&new)).expect("longer");
    let over = vec![6; 20_000];
    write(&array, from - 10_000, &over);
    new[1].1.fail(Failure::for_ever(Op::Write));
    write(&array, to - 20_000, &over);
    assert_eq!(standings(&array)[3], Standing::Out);
    let fresh = blank(&["e"], 4 * MIB);
    let fresh_one = candidates(&fresh).remove(0);
    array.replace(3, fresh_one, 77).expect("replaced");
    bring_up(&array);
    assert!(standings(&array).iter().all(|s| *s == Standing::In));
    array.close().expect("closed");
    drop(array);
    let there = rig.candidates(&[0]).into_iter().chain(candidates(&fresh)).collect();
    let array = Array::open(there, &materials()).expect("one of each");
    assert_eq!(read(&array, from - 10_000, 20_000), over);
    assert_eq!(read(&array, to - 20_000, 20_000), over);
}

#[test]
fn what_cannot_be_added_changes_nothing() {
    let rig = Rig::new("mirror(a, b)", 93);
    let array = rig.open();
    let model = fill(&array, &mut Random::new(4));
    let new = blank(&["c", "d"], 4 * MIB);
    let refusal =
        |part: &str, new: Vec<Candidate>| add(&array, part, new).expect_err("refused").to_string();
    let error = refusal("stripe(c, d)", candidates(&new));
    assert!(error.contains("survives the loss"), "{error}");
    let error =
        refusal("mirror(c, b)", vec![candidates(&new).remove(0), rig.candidates(&[])[1].clone()]);
    assert!(error.contains("b is not blank"), "{error}");
    // A new member that fails is no reason to put out anybody, nor to be longer.
    new[1].1.fail(Failure::for_ever(Op::Write));
    refusal("mirror(c, d)", candidates(&new));
    assert_eq!((array.len_bytes(), array.members().len()), (model.len() as u64, 2));
    new[1].1.calm();
    check(&array, &model, "as it was");
    rig.media[1].fail(Failure::for_ever(Op::Write));
    write(&array, 0, &model[..5000]);
    let error = refusal("mirror(c, d)", candidates(&new));
    assert!(error.contains("b is not there or not up to date"), "{error}");
    rig.media[1].calm();
    drop(array);
    let array = rig.open();
    array.settle_by_the_first().expect("settled");
    bring_up(&array);
    add(&array, "mirror(c, d)", candidates(&new)).expect("what was claimed is added after all");
    check(&array, &model, "longer");
}

#[test]
fn whenever_the_power_fails_there_is_the_array_of_before_or_the_longer_one() {
    let (mut old, mut longer) = (0, 0);
    for changes in 0..200 {
        let rig = Rig::new("mirror(a, b)", 94);
        let array = rig.open();
        write(&array, 3000, &[5; 100_000]);
        array.flush().expect("flushed");
        let before = array.len_bytes();
        let new = blank(&["c", "d"], 4 * MIB);
        let media: Vec<&Arc<SimMedia>> =
            rig.media.iter().chain(new.iter().map(|(_, media)| media)).collect();
        media[1..].iter().for_each(|one| one.join(media[0]));
        media[changes % 4].halt_after(changes as u64 / 4);
        let outcome = add(&array, "mirror(c, d)", candidates(&new));
        let _ = array.write_at(before - 50_000, &[IoSlice::new(&[6; 40_000])]);
        let is_over = outcome.is_ok() && !media[changes % 4].is_halted();
        media.iter().for_each(|one| one.halt_now());
        drop(array);
        let mut random = Random::new(changes as u64);
        media.iter().for_each(|one| one.crash(&mut random));
        media.iter().for_each(|one| one.calm());
        let all = || rig.candidates(&[]).into_iter().chain(candidates(&new)).collect::<Vec<_>>();
        let array = Array::open(all(), &materials()).expect("the old or the longer one");
        match array.len_bytes() {
            bytes if bytes == before => old += 1,
            bytes if bytes == before + 4 * MIB => longer += 1,
            other => panic!("{other} bytes"),
        }
        assert!(outcome.is_err() || array.len_bytes() > before, "{changes}: it was answered");
        array.settle_by_the_first().expect("settled");
        assert_eq!(read(&array, 3000, 100_000), [5; 100_000], "{changes}");
        array.close().expect("closed");
        drop(array);
        grow(rig.candidates(&[]), Some(("mirror(c, d)", candidates(&new)))).expect("completed");
        let array = Array::open(all(), &materials()).expect("the longer one");
        assert_eq!(array.len_bytes(), before + 4 * MIB);
        assert_eq!(read(&array, 3000, 100_000), [5; 100_000], "{changes}");
        if is_over && changes % 4 == 3 {
            break;
        }
    }
    assert!(old > 8 && longer > 4, "{old} times the old one, {longer} times the longer one");
}

#[test]
fn regions_become_longer_where_there_would_be_too_many() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| {
        let media = FileMedia::create(&folder.path().join(name), 20 << 30).expect("sparse");
        let device = Arc::new(MediaDevice::new(Arc::new(media))) as Arc<dyn BlockDevice>;
        Candidate { path: name.to_owned(), device: Some(device) }
    };
    let (there, new) = ([file("a"), file("b")], [file("c"), file("d")]);
    let mut id = 0;
    let random = &mut || {
        id += 1;
        id
    };
    let identities = Identities { random, now: units::WallTime::from_nanos(1) };
    let stack = "mirror(a, b)".parse().expect("a stack");
    Array::create(&stack, there.to_vec(), identities, &materials()).expect("labels");
    let array = Array::open(there.to_vec(), &materials()).expect("opened");
    write(&array, 7 * MIB + 5, &[3; 3_000_000]);
    let (from, to) = add(&array, "mirror(c, d)", new.to_vec()).expect("longer");
    write(&array, 9 * MIB, &[4; 5000]);
    write(&array, from - 2500, &[4; 5000]);
    write(&array, to - 5000, &[4; 5000]);
    array.flush().expect("flushed");
    // The program ends: what was open still is.
    drop(array);
    let all = there.into_iter().chain(new).collect();
    let array = Array::open(all, &materials()).expect("all of them");
    let open = array.unsettled();
    for at in [7 * MIB, 9 * MIB, from - 2500, from, to - 1] {
        assert!(open.iter().any(|range| range.contains(&at)), "{at} of {open:?}");
    }
    array.settle_by_the_first().expect("settled");
    assert_eq!(read(&array, 7 * MIB + 5, 2 * MIB as usize - 5), [3; 2 * MIB as usize - 5]);
    assert_eq!(read(&array, from - 2500, 5000), [4; 5000]);
    assert_eq!(read(&array, to - 5000, 5000), [4; 5000]);
}
