//! When blocks were written, against a list of all writes.

use std::sync::Arc;

use hindsight_volume::{Architecture, Budget, ErrorKind, Range, Volume, VolumeSpec, WriteOp};
use sim::Random;
use units::{MapExtent, Moment, Seq};

use crate::hook::{Rig, SECOND_NS};

const BLOCK: u64 = 4096;
const SIZE_BLOCKS: u64 = 1 << 22;

/// The blocks (first, end) of each write, with the moment after it.
type Told = Vec<(u64, u64, Seq)>;

fn at(seq: Seq) -> Moment {
    Moment::Seq(seq)
}

/// Near some few places, so that there is something to find, and now and then over many pages.
fn draw(random: &mut Random) -> (u64, u64) {
    let near = [0, 508, 262_100, SIZE_BLOCKS - 40][random.below(4) as usize];
    let first = near + random.below(30);
    match random.chance(50) {
        true => (first, first + random.below(SIZE_BLOCKS - first - 8).max(1)),
        false => (first, first + random.between(1, 8)),
    }
}

fn write(volume: &Volume, random: &mut Random, bytes: &[u8], is_strict: bool) -> Told {
    let count = if is_strict { random.between(1, 4) } else { 1 };
    let drawn: Vec<(u64, u64)> = (0..count).map(|_| draw(random)).collect();
    let op = |&(first, end): &(u64, u64)| {
        let (offset, length_bytes) = (first * BLOCK, (end - first) * BLOCK);
        match usize::try_from(length_bytes).ok().and_then(|length| bytes.get(..length)) {
            Some(bytes) => WriteOp::Data { offset, bytes },
            None => WriteOp::Zero { offset, length_bytes },
        }
    };
    let ops: Vec<WriteOp<'_>> = drawn.iter().map(op).collect();
    let seq = match is_strict {
        true => volume.write_whole(&ops),
        false => volume.write_batch(&ops),
    };
    let seq = seq.expect("written");
    drawn.into_iter().map(|(first, end)| (first, end, seq)).collect()
}

/// All pages of what the volume says, of so many writes each.
fn asked(volume: &Arc<Volume>, (from, to): (Seq, Seq), ranges: &[Range], limit: usize) -> Vec<Seq> {
    let mut all = Vec::new();
    let mut after = Seq(0);
    loop {
        let page = volume.writes_between(&at(from), &at(to), ranges, after, limit).expect("told");
        assert!(page.writes.len() <= limit);
        for stamp in &page.writes {
            assert_eq!(volume.resolve(&at(stamp.seq)).expect("resolved").time, stamp.time);
        }
        all.extend(page.writes.iter().map(|stamp| stamp.seq));
        let Some(next) = page.next else { return all };
        assert_eq!(all.last(), Some(&next));
        after = next;
    }
}

#[test]
fn all_writes_of_some_blocks_are_told_and_no_others() {
    let bytes = [5; 8 * BLOCK as usize];
    for (number, extent) in [MapExtent::BLOCK, MapExtent::ALL[2]].into_iter().enumerate() {
        for strict in [false, true] {
            let rig = Rig::new(256 << 20, 1 << 20);
            let pool = rig.open();
            let spec = VolumeSpec { architecture: Architecture::Redirect, strict, ..spec(extent) };
            let volume = pool.create_volume(&spec).expect("made");
            let mut random = Random::new(number as u64 + 1);
            let mut told: Told = Vec::new();
            let mut seqs = vec![Seq(0)];
            for turn in 0..600 {
                rig.clock.advance(SECOND_NS);
                told.extend(write(&volume, &mut random, &bytes, strict));
                seqs.push(told.last().expect("one").2);
                if turn % 150 == 100 {
                    let back = seqs[random.below(seqs.len() as u64) as usize];
                    seqs.push(volume.revert(&at(back), false).expect("reverted").seq);
                }
                if turn % 60 == 59 {
                    pool.step(Budget { bytes: 1 << 20 }).expect("stepped");
                }
                if turn % 20 == 0 {
                    check(&volume, &mut random, &told, &seqs);
                }
            }
            let runs = pool.verify_invariants();
            runs.expect("sound");
            while pool.step(Budget { bytes: 8 << 20 }).expect("stepped") {}
            (0..40).for_each(|_| check(&volume, &mut random, &told, &seqs));
        }
    }
}

fn spec(extent: MapExtent) -> VolumeSpec {
    VolumeSpec { extent, window_ns: 1 << 60, ..VolumeSpec::new("v", SIZE_BLOCKS * BLOCK) }
}

fn check(volume: &Arc<Volume>, random: &mut Random, told: &Told, seqs: &[Seq]) {
    let mut pick = || seqs[random.below(seqs.len() as u64) as usize];
    let (a, b) = (pick(), pick());
    let (from, to) = (a.min(b), a.max(b));
    let ranges: Vec<(u64, u64)> = (0..random.between(1, 3)).map(|_| draw(random)).collect();
    let is_in = |&&(first, end, seq): &&(u64, u64, Seq)| {
        let meets = |range: &(u64, u64)| first < range.1 && range.0 < end;
        from < seq && seq <= to && ranges.iter().any(meets)
    };
    let mut expected: Vec<Seq> = told.iter().filter(is_in).map(|write| write.2).collect();
    expected.dedup();
    // A byte of a block stands for all of it.
    let bytes = |&(first, end): &(u64, u64)| Range {
        offset: first * BLOCK + 7,
        length_bytes: (end - first) * BLOCK - 8,
    };
    let ranges: Vec<Range> = ranges.iter().map(bytes).collect();
    let limit = [1, 3, 1000][random.below(3) as usize];
    assert_eq!(asked(volume, (from, to), &ranges, limit), expected, "{ranges:?} {from} {to}");
}

#[test]
fn a_page_of_no_writes_is_refused_and_nothing_is_told_of_nothing() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = pool.create_volume(&spec(MapExtent::BLOCK)).expect("made");
    let op = WriteOp::Data { offset: 0, bytes: &[1; 4096] };
    let last = volume.write_batch(&[op]).expect("written");
    let all = [Range { offset: 0, length_bytes: u64::MAX }];
    let ask = |from: Seq, ranges: &[Range], limit: usize| {
        volume.writes_between(&at(from), &Moment::Latest, ranges, Seq(0), limit)
    };
    assert_eq!(ask(Seq(0), &all, 0).map_err(|e| e.kind).expect_err("refused"), ErrorKind::Invalid);
    let page = ask(Seq(0), &all, 1).expect("told");
    assert_eq!((page.writes.len(), page.writes[0].seq, page.next), (1, last, None));
    let far = Range { offset: u64::MAX - 9, length_bytes: 9 };
    let nothing =
        [far, Range { offset: 0, length_bytes: 0 }, Range { offset: 4096, length_bytes: 9 }];
    assert_eq!(ask(Seq(0), &nothing, 9).expect("told").writes, []);
    assert_eq!(ask(last, &all, 9).expect("told").writes, []);
}
