//! The map of what differs, against the blocks that `diff` names.

use std::sync::Arc;

use hindsight_volume::{Architecture, ErrorKind, Granularity, Volume};
use sim::Random;
use units::{Moment, Seq};

use crate::base::{BLOCK, Rig, SIZE_BYTES, put};

/// Blocks that differ in each cell of so many bytes, by `diff`.
fn expected(
    volume: &Arc<Volume>,
    from: &Moment,
    to: &Moment,
    cell_bytes: u64,
    count: usize,
) -> Vec<u64> {
    let mut cells = vec![0; count];
    let mut next = Some(0);
    while let Some(offset) = next {
        let page = volume.diff(from, to, offset, u64::MAX - offset, 5).expect("compared");
        for range in &page.ranges {
            let end = (range.offset + range.length_bytes).div_ceil(BLOCK);
            for block in range.offset / BLOCK..end {
                cells[(block * BLOCK / cell_bytes) as usize] += 1;
            }
        }
        next = page.next_offset;
    }
    cells
}

#[test]
fn a_map_of_what_differs_has_the_blocks_of_a_diff_in_each_part() {
    for architecture in Architecture::ALL {
        let rig = Rig::new();
        let random = &mut Random::new(11);
        let volume = rig.make("v", architecture, Granularity::EveryWrite);
        let mut moments = vec![Seq(0)];
        for turn in 0..12 {
            for _ in 0..20 {
                put(&volume, random.below(SIZE_BYTES / BLOCK), random.below(3) as u8, 1);
            }
            if turn % 5 == 4 {
                let back = Moment::Seq(moments[random.below(moments.len() as u64) as usize]);
                volume.revert(&back, false).expect("reverted");
            }
            if turn == 7 {
                volume.resize(SIZE_BYTES / 2).expect("smaller");
                volume.resize(SIZE_BYTES).expect("as large as before");
            }
            moments.push(volume.resolve(&Moment::Latest).expect("resolved").seq);
        }
        for turn in 0..40 {
            let mut one = || Moment::Seq(moments[random.below(moments.len() as u64) as usize]);
            let (from, to) = (one(), one());
            let cells = [1, 3, 16, 10_000][turn % 4];
            let heat = volume.heat(&from, &to, cells).expect("compared");
            assert!(heat.blocks.len() as u64 <= cells);
            assert!(heat.cell_bytes * heat.blocks.len() as u64 >= SIZE_BYTES);
            let expected = expected(&volume, &from, &to, heat.cell_bytes, heat.blocks.len());
            assert_eq!(heat.blocks, expected, "{architecture:?}: {from} to {to} in {cells}");
            let between = (Moment::Seq(heat.between.0.seq), Moment::Seq(heat.between.1.seq));
            assert_eq!(between, (from, to));
        }
    }
}

#[test]
fn a_map_of_no_parts_is_refused() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    let error = volume.heat(&Moment::Latest, &Moment::Latest, 0).expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Invalid);
}
