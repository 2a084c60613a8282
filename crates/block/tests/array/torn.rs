//! Growths of arrays in use that fail while maps and labels are written.

use std::io::IoSlice;
use std::sync::Arc;

use hindsight_block::stack::Stack;
use hindsight_block::{Array, BlockDevice, Candidate};
use sim::{Failure, Op, Random, SimMedia};

use crate::grow::{blank, candidates, fill};
use crate::online::add;
use crate::{AREA_BYTES, DATA_BYTES, MIB, Rig, candidate, materials, write};

/// Writes with which a new member is claimed, before anything is written to the others.
const CLAIM_WRITES: u64 = 3;

/// An array that grows, and who fails.
#[derive(Clone, Copy)]
struct Case {
    stack: &'static str,
    part: &'static str,
    /// Members that fail, of those that were there and of the new ones.
    old: &'static [usize],
    new: &'static [usize],
    /// How many of their writes fail.
    times: Option<u64>,
}

/// How often the growth was done, was as if it had never begun, or may be either.
#[derive(Default, Debug)]
struct Counts {
    done: u32,
    undone: u32,
    torn: u32,
}

fn fail_from(media: &Arc<SimMedia>, after: u64, times: Option<u64>) {
    media.fail(Failure { after, times, ..Failure::for_ever(Op::Write) });
}

/// Who asks for other members or spares of a torn array is told why not, and nothing is written.
fn check_refused(array: &Array, what: &str) {
    let fresh = Arc::new(SimMedia::new(AREA_BYTES + DATA_BYTES, 1));
    let asked = [
        array.replace(0, candidate("new", &fresh), 71),
        array.add_spare(candidate("new", &fresh), 72),
        array.remove_spare("none"),
    ];
    for outcome in asked {
        let error = outcome.expect_err("refused").to_string();
        assert!(error.contains("what its members have is not known"), "{what}: {error}");
    }
    assert!(!array.use_spare().expect("nobody is asked"), "{what}");
    assert_eq!(fresh.changes(), 0, "{what}");
}

/// Lets the writes of a case fail from one on; false when they were too few to come to that.
fn grow_and_fail(case: Case, from: u64, counts: &mut Counts) -> bool {
    let what = format!("{} and {}, from write {from} on", case.stack, case.part);
    let rig = Rig::new(case.stack, 95);
    let array = rig.open();
    let mut model = fill(&array, &mut Random::new(from));
    array.close().expect("closed");
    drop(array);
    let array = rig.open();
    write(&array, 3 * MIB, &[1; 5000]);
    model[3 * MIB as usize..][..5000].fill(1);
    let names = case.part.parse::<Stack>().expect("a stack");
    // So little that there are no more regions for it, or more.
    let new = blank(&names.members(), if from.is_multiple_of(2) { 2 * MIB } else { 7 * MIB });
    let first = from.saturating_sub(CLAIM_WRITES);
    case.old.iter().for_each(|&m| fail_from(&rig.media[m], first, case.times));
    case.new.iter().for_each(|&m| fail_from(&new[m].1, from, case.times));
    let outcome = add(&array, case.part, candidates(&new));
    let has_failed = array.members().iter().any(|m| m.errors > 0) || outcome.is_err();
    let is_torn = array.is_torn();
    assert!(!is_torn || outcome.is_err(), "{what}");
    rig.media.iter().chain(new.iter().map(|(_, media)| media)).for_each(|media| media.calm());
    let is_written = array.write_at(MIB, &[IoSlice::new(&[2; 5000])]).is_ok();
    assert!(is_written || is_torn, "{what}");
    let has_copies = case.stack.contains("mirror");
    assert!(!is_torn || !has_copies || !is_written, "{what}: nothing can be marked any more");
    if is_torn {
        check_refused(&array, &what);
    }
    if is_written {
        model[MIB as usize..][..5000].fill(2);
    }
    array.flush().expect("flushed");
    // The program ends without closing it.
    drop(array);
    let all = || rig.candidates(&[]).into_iter().chain(candidates(&new)).collect();
    let open = |candidates: Vec<Candidate>| Array::open(candidates, &materials());
    let grows = match (&outcome, is_torn) {
        (Ok(_), _) => (&mut counts.done, vec![all()]),
        (Err(_), true) => (&mut counts.torn, vec![all()]),
        // Whoever adds to it may take the new members away.
        (Err(_), false) => (&mut counts.undone, vec![rig.candidates(&[]), all()]),
    };
    *grows.0 += 1;
    for there in grows.1 {
        let array = open(there).unwrap_or_else(|error| panic!("{what}: {error}"));
        let old = model.len() as u64;
        match outcome {
            Ok((_, to)) => assert_eq!(array.len_bytes(), to, "{what}"),
            Err(_) if is_torn => assert!(array.len_bytes() >= old, "{what}"),
            Err(_) => assert_eq!(array.len_bytes(), old, "{what}"),
        }
        let open = array.unsettled();
        let is_open = |at: u64| open.iter().any(|range| range.contains(&at));
        let wanted = is_open(3 * MIB) && (!is_written || is_open(MIB));
        assert!(!has_copies || wanted, "{what}: {open:?}");
        let mut found = vec![0; model.len()];
        array.read_at(0, &mut found).expect("read");
        assert!(found == model, "{what}: something is lost");
    }
    has_failed
}

#[test]
fn a_growth_that_fails_while_labels_are_written_loses_nothing() {
    let whole = Case { stack: "a", part: "c", old: &[], new: &[0], times: None };
    let mirrors = Case { stack: "mirror(a, b)", part: "mirror(c, d)", new: &[0, 1], ..whole };
    let mut all = Counts::default();
    for case in [
        whole,
        Case { times: Some(1), ..whole },
        Case { stack: "stripe(a, b)", part: "mirror(c, d)", new: &[0, 1], ..whole },
        mirrors,
        Case { times: Some(1), ..mirrors },
        Case { new: &[1], ..mirrors },
        Case { old: &[1], ..mirrors },
        Case { old: &[1], times: Some(1), ..mirrors },
        Case { old: &[0, 1], ..mirrors },
        Case { old: &[0, 1], times: Some(3), ..mirrors },
        Case { old: &[0], ..whole },
        Case { old: &[0], new: &[], ..whole },
        Case { stack: "stripe(a, b)", old: &[0], times: Some(2), ..whole },
    ] {
        let mut counts = Counts::default();
        let has_end = (0..60).any(|from| !grow_and_fail(case, from, &mut counts));
        assert!(has_end, "{} and {}", case.stack, case.part);
        all.done += counts.done;
        all.undone += counts.undone;
        all.torn += counts.torn;
    }
    assert!(all.done > 5 && all.undone > 20 && all.torn > 3, "{all:?}");
}
