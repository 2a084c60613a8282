//! Growing that the power interrupts, and that is begun again.

use std::sync::Arc;

use hindsight_block::{Array, BlockDevice, Candidate};
use sim::{Random, SimMedia};

use crate::grow::{blank, candidates, check, fill, grow, lengthen};
use crate::settling::Settling;
use crate::{DATA_BYTES, MIB, Rig, candidate, materials, read, write};

/// Where the power fails while an array grows.
struct Crash<'r> {
    media: Vec<&'r Arc<SimMedia>>,
    random: Random,
}

impl Crash<'_> {
    /// Lets it fail after so many changes of one of the media.
    fn arm(&self, changes: u64) -> usize {
        for media in &self.media[1..] {
            media.join(self.media[0]);
        }
        let at = changes as usize % self.media.len();
        self.media[at].halt_after(changes / self.media.len() as u64);
        at
    }

    /// Whether it has failed; it comes back.
    fn end(&mut self, at: usize) -> bool {
        let struck = self.media[at].is_halted();
        for media in &self.media {
            media.crash(&mut self.random);
            media.calm();
        }
        struck
    }
}

fn all(rig: &Rig, new: &[(String, Arc<SimMedia>)]) -> Vec<Candidate> {
    rig.candidates(&[]).into_iter().chain(candidates(new)).collect()
}

/// What the first member and, where it may be missing, each of the others alone says.
fn check_each(stack: &str, rig: &Rig, new: &[(String, Arc<SimMedia>)], model: &[u8]) {
    if !stack.contains("mirror") {
        return;
    }
    for lost in 0..rig.media.len() {
        let mut there = rig.candidates(&[lost]);
        there.extend(candidates(new));
        let array = Array::open(there, &materials()).expect("one may be missing");
        array.settle_by_the_first().expect("settled");
        assert!(read(&array, 0, model.len()) == *model, "{stack} without {lost}");
        array.close().expect("closed");
        drop(array);
        // It comes back and gets what it missed.
        let array = Array::open(all(rig, new), &materials()).expect("all of them");
        array.settle_by_the_first().expect("settled");
        crate::bring_up(&array);
        check(&array, model, stack);
        array.close().expect("closed");
    }
}

/// Adds a part, with a crash after so many changes; returns whether there was none.
fn added_after(stack: &str, part: &str, changes: u64) -> bool {
    let rig = Rig::new(stack, 33);
    let array = rig.open();
    let mut model = fill(&array, &mut Random::new(3));
    array.close().expect("closed");
    let before = array.len_bytes();
    drop(array);
    let new = blank(&["c", "d"], 4 * MIB);
    let media = rig.media.iter().chain(new.iter().map(|(_, media)| media)).collect();
    let mut crash = Crash { media, random: Random::new(33 + changes) };
    let at = crash.arm(changes);
    let outcome = grow(rig.candidates(&[]), Some((part, candidates(&new))));
    let struck = crash.end(at);
    assert_eq!(outcome.is_err(), struck, "{stack} + {part}, {changes}");
    // Whoever opens it now has the old array or the new one, and may use it.
    if changes.is_multiple_of(2) {
        let array = Array::open(all(&rig, &new), &materials()).expect("the old or the new");
        array.settle_by_the_first().expect("settled");
        check(&array, &model, stack);
        write(&array, 5000, &[4; 5000]);
        model[5000..10_000].fill(4);
        array.close().expect("closed");
    }
    let again = grow(rig.candidates(&[]), Some((part, candidates(&new))));
    let (from, to) = again.unwrap_or_else(|e| panic!("{stack} + {part}, {changes}: {e}"));
    assert!(from == before || from == to, "{from} to {to}");
    let array = Array::open(all(&rig, &new), &materials()).expect("the new one");
    assert_eq!(array.len_bytes(), to);
    assert!(to >= before + 3 * MIB, "{before} to {to}");
    assert!(array.members().iter().all(|member| member.is_there));
    array.settle_as_it_is();
    model.resize(to as usize, 0);
    let from = before as usize - 5000;
    model[from..].fill(7);
    write(&array, from as u64, &model[from..]);
    array.flush().expect("flushed");
    check(&array, &model, stack);
    array.close().expect("closed");
    drop(array);
    if changes.is_multiple_of(5) {
        check_each(stack, &rig, &new, &model);
    }
    !struck
}

#[test]
fn what_was_being_added_when_the_power_failed_is_added_when_it_is_asked_for_again() {
    for (stack, part) in [
        ("mirror(a, b)", "mirror(c, d)"),
        ("stripe(a, b)", "stripe(c, d)"),
        ("crypt[key=env:K](mirror(a, b))", "crypt[key=env:K](mirror(c, d))"),
    ] {
        let mut changes = 0;
        let mut without = 0;
        while without < 4 {
            without = if added_after(stack, part, changes) { without + 1 } else { 0 };
            // The first few of each member, and then some of them.
            changes += if changes < 8 { 1 } else { 7 };
        }
        assert!(changes > 40, "{stack} + {part}: {changes}");
    }
}

/// Makes the members longer, with a crash after so many changes; returns whether there was none.
fn longer_after(stack: &str, changes: u64) -> bool {
    let mut rig = Rig::new(stack, 34);
    let array = rig.open();
    let mut model = fill(&array, &mut Random::new(4));
    array.close().expect("closed");
    drop(array);
    lengthen(&mut rig, 9 * MIB);
    let mut crash = Crash { media: rig.media.iter().collect(), random: Random::new(changes) };
    let at = crash.arm(changes);
    let used = grow(rig.candidates(&[]), None).is_ok_and(|_| {
        rig.try_open(&[])
            .is_ok_and(|array| array.settle_by_the_first().is_ok() && array.close().is_ok())
    });
    let struck = crash.end(at);
    assert_eq!(used, !struck, "{stack}, {changes}");
    let array = rig.open();
    array.settle_by_the_first().expect("settled");
    check(&array, &model, stack);
    array.close().expect("closed");
    drop(array);
    grow(rig.candidates(&[]), None).expect("longer");
    let array = rig.open();
    assert!(array.len_bytes() >= model.len() as u64 + 8 * MIB, "{stack}");
    array.settle_as_it_is();
    let old = model.len();
    model.resize(array.len_bytes() as usize, 0);
    // Nothing is known of the middle of what is new until it is written.
    model[old - 9000..].fill(8);
    write(&array, old as u64 - 9000, &model[old - 9000..]);
    array.flush().expect("flushed");
    check(&array, &model, stack);
    array.close().expect("closed");
    drop(array);
    if changes.is_multiple_of(3) {
        check_each(stack, &rig, &[], &model);
    }
    !struck
}

#[test]
fn members_that_were_being_made_use_of_when_the_power_failed_are_so_the_next_time() {
    for stack in [
        "mirror(a, b)",
        "crypt[key=env:K](mirror(a, b))",
        "mirror(crypt[key=env:K](a), crypt[key=env:K](b))",
        "parity[journal=64KiB](crypt[key=env:K](a), crypt[key=env:K](b), crypt[key=env:K](c))",
    ] {
        let mut changes = 0;
        let mut without = 0;
        while without < 4 {
            without = if longer_after(stack, changes) { without + 1 } else { 0 };
            // The first few of each member, and then some of them.
            changes += if changes < 8 { 1 } else { 7 };
        }
        assert!(changes > 12, "{stack}: {changes}");
    }
}

#[test]
fn a_device_with_something_on_it_is_not_added() {
    let rig = Rig::new("mirror(a, b)", 35);
    rig.open().close().expect("closed");
    let new = blank(&["c", "d"], 4 * MIB);
    let other = Rig::new("mirror(a, b)", 36);
    other.open().close().expect("closed");
    let disks = [candidate("other", &other.media[0]), candidate("d", &new[1].1)];
    let error = grow(rig.candidates(&[]), Some(("mirror(c, d)", disks.to_vec())));
    let error = error.expect_err("a member of another").to_string();
    assert!(error.contains("not blank"), "{error}");
    // One that was replaced has what it had.
    let array = rig.open();
    let fresh = Arc::new(SimMedia::new(MIB + DATA_BYTES, 9));
    crate::lose(&array, &rig.media[1], 1);
    array.replace(1, candidate("b2", &fresh), 99).expect("replaced");
    crate::bring_up(&array);
    array.close().expect("closed");
    drop(array);
    rig.media[1].calm();
    let there = || vec![candidate("a", &rig.media[0]), candidate("b2", &fresh)];
    let disks = [candidate("b", &rig.media[1]), candidate("d", &new[1].1)];
    let error = grow(there(), Some(("mirror(c, d)", disks.to_vec())));
    let error = error.expect_err("it was a member").to_string();
    assert!(error.contains("not blank"), "{error}");
    let array = Array::open(there(), &materials()).expect("as it was");
    assert_eq!(array.len_bytes(), DATA_BYTES);
}
