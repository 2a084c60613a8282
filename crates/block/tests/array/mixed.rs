//! Arrays of which only a part is redundant: that part is kept like any other.

use std::io::IoSlice;
use std::sync::Arc;

use hindsight_block::{Array, BlockDevice, Candidate, Standing};
use sim::{Failure, Op, Random, SimMedia};

use crate::grow::{blank, candidates, fill};
use crate::online::add;
use crate::settling::Settling;
use crate::{AREA_BYTES, MIB, Rig, bring_up, materials, read, standings, write};

const PARITY: &str = "parity[journal=64KiB](b, c, d)";

/// Looks at an array whose first member is alone and whose last one, in a redundant part, fails.
fn check_last(array: Array, all: &[Candidate], last: &Arc<SimMedia>, what: &str) {
    let mut model = fill(&array, &mut Random::new(8));
    array.close().expect("closed");
    drop(array);
    let open = |without: Option<usize>| {
        let mut there = all.to_vec();
        if let Some(number) = without {
            there[number].device = None;
        }
        Array::open(there, &materials())
    };
    let number = all.len() - 1;
    let array = open(None).expect("all of them");
    assert!(array.unsettled().is_empty(), "{what}");
    last.fail(Failure::for_ever(Op::Write));
    let start = model.len() - 2 * MIB as usize;
    Random::new(9).fill(&mut model[start..]);
    write(&array, start as u64, &model[start..]);
    array.flush().expect("flushed");
    assert_eq!(standings(&array)[number], Standing::Out, "{what}");
    drop(array);
    last.calm();
    let array = open(None).expect("all of them");
    assert!(array.unsettled().iter().any(|range| range.contains(&(start as u64))), "{what}");
    array.settle_as_it_is();
    assert!(bring_up(&array) > 0, "{what}");
    assert_eq!(standings(&array)[number], Standing::In, "{what}");
    array.close().expect("closed");
    drop(array);
    for without in 1..all.len() {
        let array = open(Some(without)).expect("one may be missing");
        assert!(read(&array, 0, model.len()) == model, "{what} without {without}");
        drop(array);
        bring_up(&open(None).expect("all of them"));
    }
    assert!(open(Some(0)).is_err(), "{what}");
}

#[test]
fn a_redundant_part_beside_one_that_is_not_is_kept_up_to_date() {
    for part in ["mirror(b, c)", PARITY] {
        for stack in [format!("concat(a, {part})"), format!("stripe(a, {part})")] {
            let rig = Rig::new(&stack, 96);
            let last = rig.media.last().expect("members");
            check_last(rig.open(), &rig.candidates(&[]), last, &stack);
        }
    }
}

#[test]
fn a_redundant_part_that_is_added_to_one_that_is_not_is_kept_up_to_date() {
    for (part, names) in [("mirror(b, c)", &["b", "c"][..]), (PARITY, &["b", "c", "d"])] {
        let rig = Rig::new("a", 97);
        let new = blank(names, 5 * MIB + 300 * 1024);
        for (seed, (_, media)) in new.iter().enumerate() {
            // Somebody used it before.
            let mut old = vec![0; 3 * MIB as usize];
            Random::new(seed as u64).fill(&mut old);
            let device = hindsight_block::MediaDevice::new(Arc::<SimMedia>::clone(media));
            device.write_at(AREA_BYTES, &[IoSlice::new(&old)]).expect("written");
        }
        let array = rig.open();
        fill(&array, &mut Random::new(7));
        add(&array, part, candidates(&new)).expect("longer");
        let all: Vec<Candidate> = rig.candidates(&[]).into_iter().chain(candidates(&new)).collect();
        check_last(array, &all, &new.last().expect("members").1, part);
    }
}
