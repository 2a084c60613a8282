//! Marks that are taken off by several at a time.

use std::sync::Arc;

use sim::{Failure, Op, Random};

use crate::settling::Settling;
use crate::{Rig, write};

#[test]
fn a_mark_stays_while_parity_cannot_be_computed_however_many_tidy() {
    for seed in 0..8 {
        let rig = Rig::new("parity[journal=64KiB](a, b, c)", 80 + seed);
        let array = rig.open();
        write(&array, 5000, &[1; 200_000]);
        rig.media.iter().for_each(|media| media.halt_now());
        drop(array);
        rig.crash(&mut Random::new(seed));
        rig.media.iter().for_each(|media| media.calm());
        let array = Arc::new(rig.open());
        assert!(!array.unsettled().is_empty(), "it was in flight");
        // Two of three cannot be read: nothing can be computed.
        rig.media[..2].iter().for_each(|media| media.fail(Failure::for_ever(Op::Read)));
        array.settle_as_it_is();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..60).for_each(|_| _ = array.tidy()));
            }
        });
        drop(array);
        rig.media.iter().for_each(|media| media.calm());
        assert!(!rig.open().unsettled().is_empty(), "seed {seed}: the mark was taken off");
    }
}
