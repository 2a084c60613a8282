//! Members that are there and whose layers cannot be opened: what they keep is lost or another's.

use std::error::Error;
use std::sync::Arc;

use hindsight_block::{Array, CryptDevice, CryptKey, Event, Standing};
use sim::{Failure, Op, Random, SimMedia};

use crate::renewed::{check, fill, itself};
use crate::{AREA_BYTES, DATA_BYTES, Rig, bring_up, candidate, standings, write};

/// Where the layer that lies on a member itself has its header.
const HEADERS: [u64; 2] = [AREA_BYTES, AREA_BYTES + (64 << 10)];

/// Stacks, those who are out when the first member's layer cannot be opened, and who may be lost
/// then.
const STACKS: [(&str, &[usize], usize); 5] = [
    ("mirror(crypt[key=env:A](a), crypt[key=env:A](b))", &[0], 1),
    ("mirror(crypt[key=env:A](a), b)", &[0], 1),
    ("mirror(stripe(crypt[key=env:A](a), crypt[key=env:A](b)), stripe(c, d))", &[0], 2),
    ("parity[journal=64KiB](crypt[key=env:A](a), crypt[key=env:A](b), c)", &[0], 2),
    ("mirror(crypt[key=env:B](crypt[key=env:A](a)), crypt[key=env:A](b))", &[0], 1),
];

fn lose_headers(media: &SimMedia) {
    HEADERS.iter().for_each(|at| media.rot(at + 40, 3));
}

fn told<'e>(events: &'e [Event], what: &str) -> Option<&'e Event> {
    events.iter().find(|event| event.what == what)
}

fn out(array: &Array) -> Vec<usize> {
    let standings = standings(array).into_iter().enumerate();
    standings.filter(|(_, s)| *s == Standing::Out).map(|(number, _)| number).collect()
}

#[test]
fn a_member_that_lost_its_header_is_out_and_takes_its_own_place() {
    for (stack, lost, gone) in STACKS {
        let rig = Rig::new(stack, 41);
        let array = rig.open();
        let expected = fill(&array);
        array.close().expect("closed");
        drop(array);
        lose_headers(&rig.media[0]);
        for _ in 0..2 {
            let array = rig.open();
            assert_eq!(out(&array), lost, "{stack}");
            let events = array.take_events();
            let event = told(&events, "member-out").expect("it is told");
            assert!(event.member == "a" && event.detail.contains("checksum"), "{stack}: {event:?}");
            assert_eq!(told(&events, "member-back"), None, "{stack}");
            assert!(array.members()[0].errors > 0, "{stack}");
            check(&array, &expected, stack);
            bring_up(&array);
            assert_eq!(out(&array), lost, "{stack}: it cannot be brought up to date");
            // What it misses from now on is another region than it missed before.
            write(&array, 777, &[1; 300_000]);
            array.close().expect("closed");
        }
        let array = rig.open();
        array.replace(0, itself("a"), 71).expect("made anew");
        assert_eq!(standings(&array)[0], Standing::Stale, "{stack}");
        bring_up(&array);
        assert!(standings(&array).iter().all(|s| *s == Standing::In), "{stack}");
        check(&array, &expected, stack);
        array.close().expect("closed");
        drop(array);
        check(&rig.open_without(gone), &expected, stack);
    }
}

#[test]
fn a_header_that_cannot_be_read_once_puts_nobody_out() {
    for (stack, _, _) in STACKS {
        let rig = Rig::new(stack, 44);
        let array = rig.open();
        let expected = fill(&array);
        array.close().expect("closed");
        drop(array);
        // Either copy, once.
        let range = Some(HEADERS[0]..HEADERS[1] + 4096);
        rig.media[0].fail(Failure { range, times: Some(2), ..Failure::once(Op::Read) });
        let array = rig.open();
        assert_eq!(out(&array), [], "{stack}");
        check(&array, &expected, stack);
        array.close().expect("closed");
    }
}

#[test]
fn a_spare_takes_the_place_of_a_member_that_lost_its_header() {
    for (stack, _, gone) in STACKS {
        let mut rig = Rig::new(stack, 42);
        let array = rig.open();
        let expected = fill(&array);
        let spare = Arc::new(SimMedia::filled(AREA_BYTES + DATA_BYTES, 77, 0));
        array.add_spare(candidate("spare", &spare), 71).expect("a spare");
        array.close().expect("closed");
        drop(array);
        lose_headers(&rig.media[0]);
        let mut candidates = rig.candidates(&[]);
        candidates.push(candidate("spare", &spare));
        let array = Array::open(candidates, &crate::materials()).expect("the others are enough");
        assert!(array.use_spare().expect("it works"), "{stack}");
        bring_up(&array);
        assert!(standings(&array).iter().all(|s| *s == Standing::In), "{stack}");
        array.close().expect("closed");
        drop(array);
        rig.media[0] = spare;
        check(&rig.open_without(gone), &expected, stack);
    }
}

/// What lies over several members, and is no layer of one, cannot be made anew with one of them.
#[test]
fn members_under_a_layer_of_several_are_out_together_and_stay_so() {
    let rig = Rig::new("mirror(crypt[key=env:A](stripe(a, b)), stripe(c, d))", 43);
    let array = rig.open();
    let expected = fill(&array);
    array.close().expect("closed");
    drop(array);
    // The second copy lies in the second chunk, which is the other member's.
    rig.media[0].rot(AREA_BYTES + 40, 3);
    rig.media[1].rot(AREA_BYTES + 40, 3);
    let array = rig.open();
    assert_eq!(out(&array), [0, 1]);
    check(&array, &expected, "degraded");
    array.replace(0, itself("a"), 71).expect_err("not by itself");
}

#[test]
fn a_header_of_another_key_puts_out_the_member_only_where_the_key_opens_others() {
    let other = CryptKey::new(vec![99; 64]).expect("a key");
    let change = |rig: &Rig| {
        let member = crate::Shifted(candidate("a", &rig.media[0]).device.expect("there"));
        let mut random = Random::new(5);
        CryptDevice::format(&member, &other, &mut |bytes| random.fill(bytes)).expect("made");
    };
    let rig = Rig::new("mirror(crypt[key=env:A](a), crypt[key=env:A](b))", 44);
    let array = rig.open();
    let expected = fill(&array);
    array.close().expect("closed");
    drop(array);
    change(&rig);
    let array = rig.open();
    assert_eq!(out(&array), [0]);
    let events = array.take_events();
    let event = told(&events, "member-out").expect("it is told");
    assert!(event.detail.contains("wrong key"), "{event:?}");
    check(&array, &expected, "degraded");
    drop(array);
    // A key that opens nothing is more likely to be wrong than a member.
    let rig = Rig::new("mirror(crypt[key=env:A](a), crypt[key=env:B](b))", 45);
    change(&rig);
    let error = rig.try_open(&[]).err().expect("refused").to_string();
    assert!(error.contains("wrong key"), "{error}");
}

#[test]
fn members_none_of_which_can_be_opened_are_refused_and_nothing_is_changed() {
    for stack in [STACKS[0].0, STACKS[3].0] {
        let rig = Rig::new(stack, 46);
        let array = rig.open();
        let expected = fill(&array);
        array.close().expect("closed");
        drop(array);
        rig.media[..2].iter().for_each(|media| lose_headers(media));
        let error = rig.try_open(&[]).err().expect("refused");
        let source = error.source().map_or_else(String::new, ToString::to_string);
        assert!(format!("{error}: {source}").contains("checksum"), "{stack}: {error:?}");
        rig.media[..2].iter().for_each(|media| lose_headers(media));
        let array = rig.open();
        assert!(standings(&array).iter().all(|s| *s == Standing::In), "{stack}");
        check(&array, &expected, stack);
    }
}
