//! Arrays that grow: by members that became longer, and by new ones.

use std::io::IoSlice;
use std::sync::Arc;

use hindsight_block::stack::Stack;
use hindsight_block::{Added, Array, ArrayError, BlockDevice, Candidate, Identities, MediaDevice};
use sim::{Random, SimMedia};

use crate::settling::Settling;
use crate::{AREA_BYTES, DATA_BYTES, MIB, Rig, bring_up, candidate, read, write};

fn device(media: &Arc<SimMedia>) -> MediaDevice {
    MediaDevice::new(Arc::<SimMedia>::clone(media))
}

/// Makes every medium of a rig longer.
pub fn lengthen(rig: &mut Rig, by: u64) {
    for media in &mut rig.media {
        let old = device(media);
        let longer = Arc::new(SimMedia::filled(old.len_bytes() + by, 5, 0x77));
        let new = device(&longer);
        let mut part = vec![0; MIB as usize];
        for offset in (0..old.len_bytes()).step_by(MIB as usize) {
            old.read_at(offset, &mut part).expect("read");
            new.write_at(offset, &[IoSlice::new(&part)]).expect("written");
        }
        new.flush().expect("flushed");
        *media = longer;
    }
}

/// Grows what is on the candidates.
pub fn grow(
    candidates: Vec<Candidate>,
    added: Option<(&str, Vec<Candidate>)>,
) -> Result<(u64, u64), ArrayError> {
    let stack: Option<Stack> = added.as_ref().map(|(text, _)| text.parse().expect("a stack"));
    let added = added
        .map(|(_, candidates)| Added { stack: stack.as_ref().expect("with a stack"), candidates });
    let mut id = 500;
    let random = &mut || {
        id += 1;
        id
    };
    let identities = Identities { random, now: units::WallTime::from_nanos(2) };
    Array::grow(candidates, added, identities, &crate::materials())
}

fn refusal(outcome: Result<(u64, u64), ArrayError>) -> String {
    outcome.expect_err("refused").to_string()
}

/// Writes something everywhere, and says what is there.
pub fn fill(array: &Array, random: &mut Random) -> Vec<u8> {
    let mut model = vec![0; array.len_bytes() as usize];
    for start in (0..model.len()).step_by(MIB as usize) {
        let end = (start + MIB as usize).min(model.len());
        random.fill(&mut model[start..end]);
        write(array, start as u64, &model[start..end]);
    }
    array.flush().expect("flushed");
    model
}

pub fn check(array: &Array, model: &[u8], what: &str) {
    assert!(read(array, 0, model.len()) == model, "{what}");
    for copy in 0..array.copies(0, 4096) {
        assert!(crate::copy(array, copy, 0, 4096) == model[..4096], "{what}: copy {copy}");
    }
}

#[test]
fn an_array_grows_with_its_members_and_has_everything_that_it_had() {
    for stack in [
        "mirror(a, b)",
        "stripe(mirror(a, b), mirror(c, d))",
        "crypt[key=env:K](mirror(a, b))",
        "mirror(crypt[key=env:K](a), crypt[key=env:K](b))",
        "concat(mirror(a, b), mirror(c, d))",
        "parity[journal=256KiB](a, b, c)",
    ] {
        let mut random = Random::new(31);
        let mut rig = Rig::new(stack, 31);
        let array = rig.open();
        let model = fill(&array, &mut random);
        let before = array.len_bytes();
        drop(array);
        lengthen(&mut rig, 3 * MIB);
        let error = refusal(grow(rig.candidates(&[]), None));
        assert!(error.contains("not stopped cleanly"), "{stack}: {error}");
        let array = rig.open();
        assert_eq!(array.len_bytes(), before, "{stack}: not by itself");
        array.settle_by_the_first().expect("settled");
        array.close().expect("closed");
        drop(array);
        let (from, to) = grow(rig.candidates(&[]), None).expect("longer");
        assert!(from == before && to >= before + 2 * MIB, "{stack}: {from} to {to}");
        let array = rig.open();
        assert_eq!(array.len_bytes(), to, "{stack}");
        array.settle_as_it_is();
        check(&array, &model, stack);
        write(&array, to - 70_000, &[9; 70_000]);
        array.flush().expect("flushed");
        assert_eq!(read(&array, to - 70_000, 70_000), [9; 70_000], "{stack}");
        check(&array, &model, stack);
        array.close().expect("closed");
        drop(array);
        assert_eq!(grow(rig.candidates(&[]), None).expect("as long as it was"), (to, to));
    }
}

/// New blank media by name.
pub fn blank(names: &[&str], data_bytes: u64) -> Vec<(String, Arc<SimMedia>)> {
    let media = |n: usize| Arc::new(SimMedia::filled(AREA_BYTES + data_bytes, n as u64, 0));
    names.iter().enumerate().map(|(n, name)| ((*name).to_owned(), media(n))).collect()
}

pub fn candidates(media: &[(String, Arc<SimMedia>)]) -> Vec<Candidate> {
    media.iter().map(|(path, media)| candidate(path, media)).collect()
}

#[test]
fn what_is_added_lies_behind_what_is_there_and_is_as_safe() {
    let mut random = Random::new(32);
    let rig = Rig::new("mirror(a, b)", 32);
    let array = rig.open();
    let spare = Arc::new(SimMedia::new(AREA_BYTES + 2 * DATA_BYTES, 9));
    array.add_spare(candidate("s", &spare), 77).expect("a spare");
    let mut model = fill(&array, &mut random);
    array.close().expect("closed");
    drop(array);
    let new = blank(&["c", "d"], 2 * DATA_BYTES);
    let error = refusal(grow(rig.candidates(&[1]), Some(("mirror(c, d)", candidates(&new)))));
    assert!(error.contains("b is not there"), "{error}");
    let error = refusal(grow(rig.candidates(&[]), Some(("stripe(c, d)", candidates(&new)))));
    assert!(error.contains("survives the loss"), "{error}");
    let grown = grow(rig.candidates(&[]), Some(("mirror(c, d)", candidates(&new))));
    assert_eq!(grown.expect("longer"), (DATA_BYTES, 3 * DATA_BYTES));
    let all = || {
        let mut all = rig.candidates(&[]);
        all.extend(candidates(&new));
        all
    };
    let array = Array::open(all(), &crate::materials()).expect("opened");
    assert_eq!(array.stack(), "concat(mirror(a, b), mirror(c, d))");
    assert_eq!(array.spares().len(), 1);
    check(&array, &model, "what was there");
    model.resize(3 * DATA_BYTES as usize, 0);
    let over = DATA_BYTES as usize - 5000;
    model[over..over + 9000].fill(8);
    write(&array, over as u64, &[8; 9000]);
    array.flush().expect("flushed");
    assert_eq!(read(&array, over as u64, 9000), [8; 9000], "over the seam");
    array.close().expect("closed");
    drop(array);

    // A new member may fail like the others; the spare takes its place.
    let without_d: Vec<Candidate> = all().into_iter().filter(|c| c.path != "d").collect();
    let with_spare = without_d.into_iter().chain([candidate("s", &spare)]);
    let array = Array::open(with_spare.collect(), &crate::materials()).expect("degraded");
    assert!(array.use_spare().expect("in the place of d"));
    bring_up(&array);
    assert_eq!(read(&array, over as u64, 9000), [8; 9000]);
    assert_eq!(array.stack(), "concat(mirror(a, b), mirror(c, s))");
}

#[test]
fn whenever_the_power_fails_there_is_the_old_array_or_the_new_one() {
    let (mut old, mut grown) = (0, 0);
    for changes in 0.. {
        let mut random = Random::new(33 + changes);
        let rig = Rig::new("mirror(a, b)", 33);
        let array = rig.open();
        write(&array, 0, &[3; 100_000]);
        array.close().expect("closed");
        let before = array.len_bytes();
        drop(array);
        let new = blank(&["c", "d"], 4 * MIB);
        for (_, media) in &new {
            media.join(&rig.media[0]);
        }
        rig.media[1].join(&rig.media[0]);
        let halting = [&rig.media[0], &rig.media[1], &new[0].1, &new[1].1];
        // Each of them may be where it ends.
        let at = (changes % 4) as usize;
        halting[at].halt_after(changes / 4);
        let outcome = grow(rig.candidates(&[]), Some(("mirror(c, d)", candidates(&new))));
        let is_over = !halting[at].is_halted();
        assert_eq!(outcome.is_ok(), is_over, "{changes}");
        halting.iter().for_each(|media| media.crash(&mut random));
        halting.iter().for_each(|media| media.calm());
        let mut all = rig.candidates(&[]);
        all.extend(candidates(&new));
        let array = Array::open(all, &crate::materials()).expect("the old or the new");
        match array.len_bytes() {
            bytes if bytes == before => old += 1,
            bytes if bytes == before + 4 * MIB => grown += 1,
            other => panic!("{other} bytes"),
        }
        assert_eq!(read(&array, 0, 100_000), [3; 100_000], "{changes}");
        if is_over && at == 3 {
            break;
        }
    }
    assert!(old > 4 && grown > 4, "{old} times the old one, {grown} times the new one");
}
