//! Members with a layer of their own, which is made anew with another device in their place, or
//! with the same one.

use std::sync::Arc;

use hindsight_block::{Array, BlockDevice, Candidate, Standing};
use sim::{Failure, Op, SimMedia};

use crate::{AREA_BYTES, DATA_BYTES, MIB, Rig, bring_up, candidate, lose, read, standings, write};

/// Writes here and there, and says what is there.
pub fn fill(array: &Array) -> Vec<u8> {
    let len = array.len_bytes() as usize;
    let mut expected = vec![0; len];
    for n in 0..(len as u64 / MIB).div_ceil(2) {
        write(array, n * 2 * MIB + 777, &[n as u8 + 1; 300_000]);
        expected[(n * 2 * MIB) as usize + 777..][..300_000].fill(n as u8 + 1);
    }
    array.flush().expect("a flush");
    expected
}

/// What was written is there, as far as something was.
pub fn check(array: &Array, expected: &[u8], what: &str) {
    for (at, bytes) in (0..).step_by(2 << 20).zip(expected.chunks(2 << 20)) {
        if bytes.len() > 300_777 {
            assert!(read(array, at + 777, 300_000) == bytes[777..300_777], "{what}, at {at}");
        }
    }
}

pub fn itself(path: &str) -> Candidate {
    Candidate { path: path.to_owned(), device: None }
}

#[test]
fn another_device_takes_the_place_of_one_under_a_layer_and_gets_everything() {
    for (stack, gone) in [
        ("mirror(crypt[key=env:K](a), crypt[key=env:K](b))", 0),
        ("parity[journal=64KiB](crypt[key=env:K](a), crypt[key=env:K](b), c)", 2),
    ] {
        let mut rig = Rig::new(stack, 32);
        let array = rig.open();
        let expected = fill(&array);
        let fresh = Arc::new(SimMedia::filled(AREA_BYTES + DATA_BYTES, 77, 0));
        lose(&array, &rig.media[1], 1);
        array.replace(1, candidate("new", &fresh), 71).expect("replaced");
        write(&array, 777, &[1; 300_000]);
        bring_up(&array);
        array.close().expect("closed");
        drop(array);
        rig.media[1] = fresh;
        check(&rig.open_without(gone), &expected, stack);
    }
}

#[test]
fn a_spare_takes_a_place_under_a_layer_and_the_next_one_if_it_fails() {
    let mut rig = Rig::new("mirror(crypt[key=env:K](a), crypt[key=env:K](b))", 33);
    let array = rig.open();
    let expected = fill(&array);
    let [bad, good] = [1, 2].map(|seed| Arc::new(SimMedia::new(AREA_BYTES + DATA_BYTES, seed)));
    array.add_spare(candidate("bad", &bad), 71).expect("a spare");
    array.add_spare(candidate("good", &good), 72).expect("a spare");
    rig.media[1].fail(Failure::for_ever(Op::Write));
    write(&array, 777, &[1; 300_000]);
    assert_eq!(standings(&array)[1], Standing::Out);
    bad.fail(Failure::for_ever(Op::Write));
    array.use_spare().expect_err("it fails at once");
    assert!(array.use_spare().expect("the next one"));
    bring_up(&array);
    array.close().expect("closed");
    drop(array);
    rig.media[1] = good;
    check(&rig.open_without(0), &expected, "the spare alone");
}
