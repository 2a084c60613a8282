//! What is tried before members are put out, and members that were cut.

use std::sync::Arc;

use env::Media;
use hindsight_block::{Array, Candidate, Identities, MediaDevice, Standing};
use sim::{Failure, Op, SimMedia};

use crate::renewed::{check, fill};
use crate::settling::Settling;
use crate::{AREA_BYTES, Rig, bring_up, materials, standings, write};

const STACKS: [&str; 4] = [
    "mirror(a, b)",
    "crypt[key=env:K](mirror(a, b))",
    "parity[journal=64KiB](a, b, c)",
    "parity[journal=64KiB](crypt[key=env:K](a), crypt[key=env:K](b), crypt[key=env:K](c))",
];

/// All that a member has.
fn bytes(media: &SimMedia) -> Vec<u8> {
    let mut bytes = vec![0; media.len_bytes() as usize];
    media.read_at(0, &mut bytes).expect("read");
    bytes
}

#[test]
fn a_trial_changes_nothing() {
    for stack in STACKS {
        let rig = Rig::new(stack, 81);
        let array = rig.open();
        let expected = fill(&array);
        // A kill: what waits is in logs, and regions are open.
        drop(array);
        let before: Vec<Vec<u8>> = rig.media.iter().map(|media| bytes(media)).collect();
        let materials = materials();
        let opening = Array::prepare(rig.candidates(&[0]), &materials).expect("enough");
        assert!(opening.puts_out(), "{stack}: one is missing");
        let tried = opening.tried().expect("enough");
        assert_eq!(standings(&tried)[0], Standing::Out);
        check(&tried, &expected, stack);
        write(&tried, 5000, &[9; 70_000]);
        tried.settle_as_it_is();
        tried.close().expect("closed");
        drop((tried, opening));
        for (before, media) in before.iter().zip(&rig.media) {
            assert!(*before == bytes(media), "{stack}: something was written");
        }
        let opening = Array::prepare(rig.candidates(&[]), &materials).expect("all of them");
        assert!(!opening.puts_out(), "{stack}: nobody was put out");
        let array = opening.open().expect("all of them");
        assert!(standings(&array).iter().all(|s| *s == Standing::In), "{stack}");
        check(&array, &expected, stack);
    }
}

/// The candidates of a rig, the first of them cut to a length.
fn cut(rig: &Rig, len_bytes: usize) -> Vec<Candidate> {
    let mut candidates = rig.candidates(&[]);
    let media = SimMedia::new(len_bytes as u64, 5);
    let kept = &bytes(&rig.media[0])[..len_bytes];
    media.write_at(0, &[std::io::IoSlice::new(kept)]).expect("written");
    candidates[0].device = Some(Arc::new(MediaDevice::new(Arc::new(media))));
    candidates
}

#[test]
fn a_member_that_was_cut_is_out_and_gets_everything_when_it_is_whole_again() {
    for stack in STACKS {
        let mut rig = Rig::new(stack, 82);
        let array = rig.open();
        let mut expected = fill(&array);
        array.close().expect("closed");
        drop(array);
        let whole = rig.media[0].len_bytes() as usize;
        for len in [AREA_BYTES as usize, whole / 2, whole - 1] {
            let array = Array::open(cut(&rig, len), &materials()).expect("the others are enough");
            assert_eq!(standings(&array)[0], Standing::Out, "{stack}");
            let events = array.take_events();
            let wanted = format!("it has {len} bytes, but had {whole}");
            let told: Vec<_> = events.iter().filter(|e| e.what == "member-out").collect();
            assert!(told.len() == 1 && told[0].detail.contains(&wanted), "{stack}: {told:?}");
            check(&array, &expected, stack);
            write(&array, 9000, &[len as u8; 5000]);
            expected[9000..14_000].fill(len as u8);
            array.close().expect("closed");
        }
        // As long as before, with zeros where something was.
        let label = bytes(&rig.media[0])[..AREA_BYTES as usize].to_vec();
        let again = SimMedia::filled(whole as u64, 6, 0);
        again.write_at(0, &[std::io::IoSlice::new(&label)]).expect("written");
        rig.media[0] = Arc::new(again);
        let array = rig.open();
        check(&array, &expected, stack);
        if stack.contains("(a)") {
            // What its layer kept is gone, so it cannot be brought up to date.
            assert_eq!(standings(&array)[0], Standing::Out, "{stack}");
            continue;
        }
        assert_eq!(standings(&array)[0], Standing::Stale, "{stack}");
        bring_up(&array);
        assert!(standings(&array).iter().all(|s| *s == Standing::In), "{stack}");
        array.close().expect("closed");
        drop(array);
        check(&rig.open_without(1), &expected, stack);
    }
}

#[test]
fn a_member_cut_within_its_label_is_refused() {
    let rig = Rig::new("mirror(a, b)", 84);
    let array = rig.open();
    let mut expected = fill(&array);
    array.close().expect("closed");
    drop(array);
    // The first goes on alone. Which copies of its label say so depends on how often it was
    // written; what is cut off may be them, and the second alone has older bytes.
    for round in 0..2 {
        let array = rig.open_without(1);
        write(&array, 9000, &[77 + round; 5000]);
        expected[9000..14_000].fill(77 + round);
        array.close().expect("closed");
        drop(array);
        for len in [16 << 10, 100_000, 144 << 10, AREA_BYTES as usize - 1] {
            match Array::open(cut(&rig, len), &materials()) {
                Ok(array) => check(&array, &expected, "older bytes"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("less than its label"), "{text}");
                }
            }
        }
        let array = rig.open();
        check(&array, &expected, "all of it");
        bring_up(&array);
        array.close().expect("closed");
    }
}

#[test]
fn what_layers_write_while_they_are_looked_at_puts_nobody_out() {
    let rig = Rig::new("crypt[key=env:K](mirror(a, b))", 85);
    let array = rig.open();
    let expected = fill(&array);
    array.close().expect("closed");
    drop(array);
    // One copy of the layer's header is wrong, and the member on which it is written again fails.
    rig.media[0].rot(AREA_BYTES + 40, 3);
    rig.media[0].fail(Failure { times: None, ..Failure::once(Op::Write) });
    let materials = materials();
    let before = bytes(&rig.media[1]);
    let opening = Array::prepare(rig.candidates(&[]), &materials).expect("both are there");
    assert!(before == bytes(&rig.media[1]), "something was written");
    let array = opening.open().expect("one is enough");
    check(&array, &expected, "the other one");
}

#[test]
fn too_few_members_say_who_was_cut() {
    let rig = Rig::new("stripe(a, b)", 83);
    drop(rig.open());
    let Err(error) = Array::open(cut(&rig, AREA_BYTES as usize), &materials()) else {
        panic!("a part is missing")
    };
    let text = error.to_string();
    assert!(text.contains("a: it has 1048576 bytes, but had"), "{text}");
    assert_eq!(rig.open().members().len(), 2);
}

#[test]
fn a_part_without_room_is_refused_before_anything_is_written() {
    let stack = "stripe(a, parity[journal=64MiB](b, c, d))".parse().expect("a stack");
    let media: Vec<Arc<SimMedia>> =
        (0..4).map(|n| Arc::new(SimMedia::filled(AREA_BYTES + (64 << 20), n, 0))).collect();
    let of = |(path, media): (&str, &Arc<SimMedia>)| crate::candidate(path, media);
    let candidates = ["a", "b", "c", "d"].into_iter().zip(&media).map(of).collect();
    let random = &mut || 7;
    let identities = Identities { random, now: units::WallTime::from_nanos(1) };
    let created = Array::create(&stack, candidates, identities, &materials());
    let error = created.expect_err("the journal is longer than the sides").to_string();
    assert!(error.starts_with("parity[journal=64MiB](b, c, d) has no room"), "{error}");
    assert!(media.iter().all(|media| bytes(media).iter().all(|&byte| byte == 0)));
}
