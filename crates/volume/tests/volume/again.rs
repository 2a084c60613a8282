//! Batches that are written again after a crash, for it is not known that they were flushed.

use std::sync::Arc;

use hindsight_volume::{Granularity, Pool, Volume, WriteOp};

use sim::{Failure, Op};

use crate::hook::make;
use crate::scrub::{Pair, beginnings};

const BLOCK: usize = 4096;
const BLOCKS: usize = 50;
/// The one that cannot be read once.
const FAILING: usize = 20;
/// At least as often as it is read while the pool opens.
const READS_MAX: u64 = 12;

/// Blocks that are told apart.
fn stamped() -> Vec<u8> {
    let stamp = |block: usize| [format!("block {block:8}").into_bytes(), vec![7; 50]].concat();
    (0..BLOCKS).flat_map(|block| stamp(block).into_iter().cycle().take(BLOCK)).collect()
}

/// A pool that was killed before what was written last had been flushed.
fn killed() -> Pair {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    volume.write_batch(&[WriteOp::Data { offset: 0, bytes: &stamped() }]).expect("written");
    pair.fork()
}

fn read(pool: &Arc<Pool>) -> Vec<u8> {
    let volume: Arc<Volume> = pool.volume("v").expect("there");
    let mut bytes = vec![0; BLOCKS * BLOCK];
    volume.read(0, &mut bytes).expect("one side is right");
    bytes
}

/// Where a block lies on a side.
fn place(pair: &Pair, side: usize, block: usize) -> u64 {
    let found = beginnings(&pair.media[side], &stamped()[block * BLOCK..][..64]);
    // The stamp is repeated within a block.
    found.into_iter().min().expect("it is there")
}

/// What is written again is read from the first side, and looked at before. When it fails between
/// the two, the other is read, with what rotted there.
#[test]
fn what_rotted_on_one_side_is_not_written_over_the_other() {
    let killed = killed();
    let failing = place(&killed, 0, FAILING);
    let rotten = place(&killed, 1, FAILING + 1);
    for reads in 0..READS_MAX {
        let pair = killed.fork();
        pair.media[1].rot(rotten + 700, 0);
        let range = Some(failing..failing + BLOCK as u64);
        pair.media[0].fail(Failure { op: Op::Read, range, after: reads, times: Some(1) });
        assert!(read(&pair.open()) == stamped(), "a failure after {reads} reads of the block");
    }
}
