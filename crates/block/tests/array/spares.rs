//! Spares: they take the place of a member that is out, and do nothing before.

use std::sync::Arc;

use std::io::IoSlice;

use format::label::{self, Label};
use hindsight_block::{Array, ArrayError, BlockDevice, MediaDevice, Standing};
use sim::{Failure, Op, SimMedia};

use crate::{AREA_BYTES, DATA_BYTES, MIB, Rig, bring_up, candidate, read, standings, write};

fn media(data_bytes: u64, seed: u64) -> Arc<SimMedia> {
    Arc::new(SimMedia::new(AREA_BYTES + data_bytes, seed))
}

/// Opens the members but some, and others beside them.
fn open_with(
    rig: &Rig,
    without: &[usize],
    others: &[(&str, &Arc<SimMedia>)],
) -> Result<Array, ArrayError> {
    let mut candidates = rig.candidates(without);
    candidates.extend(others.iter().map(|(path, media)| candidate(path, media)));
    Array::open(candidates, &crate::materials())
}

fn refusal(outcome: Result<(), ArrayError>) -> String {
    outcome.expect_err("refused").to_string()
}

#[test]
fn a_spare_takes_the_place_of_a_member_that_fails_and_gets_everything() {
    let rig = Rig::new("stripe(mirror(a, b), mirror(c, d))", 21);
    let (large, small, fit) = (media(20 * MIB, 1), media(MIB, 2), media(DATA_BYTES, 3));
    let array = rig.open();
    array.add_spare(candidate("large", &large), 71).expect("a spare");
    let error = refusal(array.add_spare(candidate("small", &small), 72));
    assert!(error.contains("smaller than every member"), "{error}");
    array.add_spare(candidate("fit", &fit), 73).expect("another");
    write(&array, 3 * MIB, &[7; 100_000]);
    array.flush().expect("a flush");
    assert!(!array.use_spare().expect("nobody is out"));

    rig.media[2].fail(Failure::for_ever(Op::Write));
    write(&array, 9 * MIB, &[8; 100_000]);
    assert_eq!(standings(&array)[2], Standing::Out);
    assert!(array.use_spare().expect("the smallest that is large enough"));
    assert!(!array.use_spare().expect("nobody else is out"));
    assert_eq!(standings(&array)[2], Standing::Stale);
    assert_eq!(array.members()[2].path, "fit");
    let left: Vec<String> = array.spares().into_iter().map(|s| s.path).collect();
    assert_eq!(left, ["large"]);
    bring_up(&array);
    assert!(standings(&array).iter().all(|s| *s == Standing::In));
    array.close().expect("closed");
    drop(array);

    // The one that failed comes back, and is nobody; without its twin the spare has everything.
    rig.media[2].calm();
    let others = [("fit", &fit), ("large", &large)];
    let array = open_with(&rig, &[1, 3], &others).expect("enough members");
    let what: Vec<&str> = array.take_events().iter().map(|e| e.what).collect();
    assert_eq!(what, ["member-ignored", "member-out", "member-out"]);
    assert_eq!(read(&array, 3 * MIB, 100_000), [7; 100_000]);
    assert_eq!(read(&array, 9 * MIB, 100_000), [8; 100_000]);
    assert_eq!(array.spares().len(), 1, "the other one is remembered");
    assert!(array.use_spare().expect("two are out"), "one is replaced");
    assert!(!array.use_spare().expect("there are no more"));
}

#[test]
fn a_spare_that_is_missing_hinders_nobody_and_one_that_was_taken_away_is_blank() {
    let rig = Rig::new("mirror(a, b)", 22);
    let (spare, other) = (media(DATA_BYTES, 1), media(DATA_BYTES, 2));
    let array = rig.open();
    array.add_spare(candidate("s", &spare), 71).expect("a spare");
    array.add_spare(candidate("t", &other), 72).expect("a spare");
    let error = refusal(array.remove_spare("a"));
    assert!(error.contains("no spare"), "{error}");
    let removed = candidate("t", &other).device.expect("there");
    // As a write buffer does.
    removed.write_at(format::write_buffer::OFFSET, &[IoSlice::new(&[7; 64])]).expect("marked");
    array.remove_spare("t").expect("taken away");
    let mut area = vec![1; MIB as usize];
    removed.read_at(0, &mut area).expect("read");
    assert!(area.iter().all(|&byte| byte == 0), "it is blank");
    array.close().expect("closed");
    drop(array);

    let array = open_with(&rig, &[1], &[]).expect("neither b nor the spare is needed");
    assert!(!array.spares()[0].is_there);
    assert!(!array.use_spare().expect("none is there"));
    drop(array);
    let array = open_with(&rig, &[1], &[("s", &spare)]).expect("the spare is back");
    assert!(array.use_spare().expect("used"));
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::In; 2]);
}

#[test]
fn a_spare_that_fails_when_it_is_needed_is_out_and_the_next_one_is_taken() {
    let rig = Rig::new("mirror(a, b)", 23);
    let (bad, good) = (media(DATA_BYTES, 1), media(DATA_BYTES + MIB, 2));
    let array = rig.open();
    array.add_spare(candidate("bad", &bad), 71).expect("a spare");
    array.add_spare(candidate("good", &good), 72).expect("a spare");
    write(&array, 0, &[1; 9000]);
    for media in [&rig.media[1], &bad] {
        media.fail(Failure::for_ever(Op::Write));
    }
    write(&array, 0, &[2; 9000]);
    assert_eq!(standings(&array)[1], Standing::Out);
    let error = array.use_spare().expect_err("it cannot be labelled").to_string();
    assert_eq!(error, "bad failed at once");
    assert_eq!(standings(&array)[1], Standing::Out);
    assert!(array.use_spare().expect("the other one"));
    bring_up(&array);
    assert_eq!(standings(&array), [Standing::In; 2]);
    assert!(array.spares().is_empty());
    drop(array);
    let array = open_with(&rig, &[0, 1], &[("good", &good)]).expect("it has everything");
    assert_eq!(read(&array, 0, 9000), [2; 9000]);
}

#[test]
fn a_spare_that_cannot_be_wiped_is_taken_away_all_the_same() {
    let rig = Rig::new("mirror(a, b)", 24);
    let spare = media(DATA_BYTES, 1);
    let array = rig.open();
    array.add_spare(candidate("s", &spare), 71).expect("a spare");
    spare.fail(Failure::for_ever(Op::Write));
    array.remove_spare("s").expect("the others name it no more");
    assert!(array.spares().is_empty());
    let events = array.take_events();
    let last = events.last().expect("it was noted");
    assert!(last.what == "spare-removed" && last.detail.contains("not wiped"), "{last:?}");
    array.close().expect("closed");
    drop(array);
    spare.calm();
    let array = open_with(&rig, &[], &[("s", &spare)]).expect("it is nobody");
    assert!(array.spares().is_empty());
}

/// Labels media as a growth of an array claims them, with an identity.
fn claim(media: &Arc<SimMedia>, of: &Label, member_id: u128) {
    let claim = Label { generation: label::CLAIM_GENERATION, ..named(of, member_id) };
    let device = MediaDevice::new(Arc::<SimMedia>::clone(media));
    for copy in label::copies_of_generation(claim.generation) {
        let bytes = claim.encode(copy);
        device.write_at(label::COPY_OFFSETS[copy], &[IoSlice::new(&bytes)]).expect("written");
    }
}

/// A label of a member with an identity, which is in the table.
fn named(of: &Label, member_id: u128) -> Label {
    let mut label = Label { member_id, ..of.clone() };
    if label.members.iter().all(|member| member.id != member_id) {
        label.members[1].id = member_id;
    }
    label
}

/// The newest label on media.
fn label_on(media: &Arc<SimMedia>) -> Label {
    let device = MediaDevice::new(Arc::<SimMedia>::clone(media));
    let mut bytes = vec![0; label::layout::BYTES];
    let labels = label::COPY_OFFSETS.into_iter().enumerate().filter_map(|(copy, at)| {
        device.read_at(at, &mut bytes).expect("read");
        Label::decode(&bytes, copy).ok()
    });
    labels.max_by_key(|label| label.generation).expect("a label")
}

#[test]
fn what_a_growth_of_this_pool_claimed_and_never_took_need_not_be_wiped() {
    let rig = Rig::new("mirror(a, b)", 25);
    let other = label_on(&Rig::new("mirror(a, b)", 26).media[0]);
    let own = label_on(&rig.media[0]);
    let array = rig.open();
    write(&array, 3 * MIB, &[7; 100_000]);
    // Of another pool, of this pool and with the name of one of its members, and sound labels.
    let [foreign, twin, member] = [1, 2, 3].map(|seed| media(DATA_BYTES, seed));
    claim(&foreign, &Label { array_id: own.array_id ^ 1, ..other }, 900);
    claim(&twin, &own, own.members[1].id);
    let sound = label::copies_of_generation(own.generation)[0];
    let device = MediaDevice::new(Arc::<SimMedia>::clone(&member));
    let bytes = named(&own, 901).encode(sound);
    device.write_at(label::COPY_OFFSETS[sound], &[IoSlice::new(&bytes)]).expect("written");
    for media in [&foreign, &twin, &member] {
        let error = refusal(array.add_spare(candidate("x", media), 71));
        assert!(error.contains("is not blank"), "{error}");
        let error = refusal(array.replace(1, candidate("x", media), 71));
        assert!(error.contains("is not blank"), "{error}");
    }
    assert!(standings(&array).iter().all(|s| *s == Standing::In), "nothing was changed");

    let [spare, new] = [4, 5].map(|seed| media(DATA_BYTES, seed));
    claim(&spare, &own, 902);
    claim(&new, &own, 903);
    array.add_spare(candidate("spare", &spare), 72).expect("it was claimed, and is none");
    array.replace(1, candidate("new", &new), 73).expect("so was this");
    bring_up(&array);
    array.close().expect("closed");
    drop(array);
    let array = open_with(&rig, &[0, 1], &[("new", &new), ("spare", &spare)]).expect("opens");
    assert_eq!(read(&array, 3 * MIB, 100_000), [7; 100_000]);
    assert_eq!(array.spares().len(), 1);
}
