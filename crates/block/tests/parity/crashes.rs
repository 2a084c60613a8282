//! Power cuts at any point, with members lost in the same moment: the write hole.

use std::io::IoSlice;

use hindsight_block::{Array, BlockDevice, Standing};
use sim::{Failure, Op, Random};

use crate::rig::{JOURNAL_BYTES, MIB, Rig, bring_up, copy, noise, read, standings};
use crate::settling::Settling;

const SECTOR: usize = 512;

struct Case {
    stack: &'static str,
    failures: usize,
    data_bytes: u64,
    stripe_bytes: u64,
}

const CASES: [Case; 4] = [
    Case {
        stack: "parity[journal=64KiB](a, b, c)",
        failures: 1,
        data_bytes: JOURNAL_BYTES + 2 * MIB,
        stripe_bytes: 128 << 10,
    },
    Case {
        stack: "parity[chunk=4KiB,journal=64KiB](a, b, c, d)",
        failures: 1,
        data_bytes: JOURNAL_BYTES + MIB + 4096,
        stripe_bytes: 12 << 10,
    },
    Case {
        stack: "parity[failures=2,chunk=8KiB,journal=128KiB](a, b, c, d)",
        failures: 2,
        data_bytes: 2 * JOURNAL_BYTES + 2 * MIB,
        stripe_bytes: 16 << 10,
    },
    Case {
        stack: "parity[failures=2,chunk=4KiB,journal=64KiB](a, b, c, d, e)",
        failures: 2,
        data_bytes: JOURNAL_BYTES + MIB,
        stripe_bytes: 12 << 10,
    },
];

/// What may be there.
struct Model {
    case: &'static Case,
    now: Vec<u8>,
    flushed: Vec<u8>,
    /// Sectors that nobody may expect anything of: never written, or discarded.
    is_any: Vec<bool>,
    was_any: Vec<bool>,
    /// Written since the last flush that succeeded.
    maybe: Vec<(u64, Vec<u8>)>,
    /// What is being written and was not answered.
    under_way: Option<(u64, Vec<u8>)>,
    /// Regions in which all that is there agrees.
    used: Vec<bool>,
}

impl Model {
    fn new(case: &'static Case, len: usize) -> Model {
        Model {
            case,
            now: vec![0; len],
            flushed: vec![0; len],
            is_any: vec![true; len / SECTOR],
            was_any: vec![true; len / SECTOR],
            maybe: Vec::new(),
            under_way: None,
            used: vec![false; len.div_ceil(MIB as usize)],
        }
    }

    fn wrote(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self.now[at..at + bytes.len()].copy_from_slice(bytes);
        self.is_any[at / SECTOR..(at + bytes.len()) / SECTOR].fill(false);
        self.under_way = None;
    }

    fn touch(&mut self, offset: u64, length: u64) {
        let range = offset / MIB..(offset + length).div_ceil(MIB);
        range.for_each(|region| self.used[region as usize] = true);
    }

    fn flushed(&mut self) {
        self.maybe.clear();
        self.flushed.clone_from(&self.now);
        self.was_any.clone_from(&self.is_any);
    }

    /// Stripes that may have been written as a whole since the last flush.
    fn whole(&self) -> Vec<bool> {
        let size = self.case.stripe_bytes as usize;
        let mut sectors = vec![false; self.now.len() / SECTOR];
        for (offset, bytes) in &self.maybe {
            let at = *offset as usize / SECTOR;
            sectors[at..at + bytes.len() / SECTOR].fill(true);
        }
        sectors.chunks(size / SECTOR).map(|stripe| stripe.iter().all(|s| *s)).collect()
    }

    /// Every sector is as it was flushed, or as one of the writes since made it. Where members were
    /// lost, a stripe that was being written as a whole may be anything.
    fn check(&mut self, array: &Array, is_lost: bool, seed: u64) {
        let found = read(array, 0, self.now.len());
        let whole = self.whole();
        for (number, sector) in found.chunks(SECTOR).enumerate() {
            let at = number * SECTOR;
            let was_written = |(offset, bytes): &(u64, Vec<u8>)| {
                let from = *offset as usize;
                at >= from
                    && at < from + bytes.len()
                    && bytes[at - from..at - from + SECTOR] == *sector
            };
            let is_right = self.was_any[number]
                || self.flushed[at..at + SECTOR] == *sector
                || self.maybe.iter().any(was_written)
                || (is_lost && whole[at / self.case.stripe_bytes as usize]);
            assert!(is_right, "seed {seed}: sector {number} of {}", self.case.stack);
        }
        self.now.clone_from(&found);
        self.flushed = found;
        self.is_any.clone_from(&self.was_any);
        self.maybe.clear();
    }

    /// Every sector is as the last write made it that returned, or as the one that did not would
    /// have. Where members were lost, what was being written may be anything.
    fn check_killed(&mut self, array: &Array, is_lost: bool, seed: u64) {
        let found = read(array, 0, self.now.len());
        let (from, bytes) = self.under_way.take().unwrap_or_default();
        let (from, to) = (from as usize, from as usize + bytes.len());
        for (number, sector) in found.chunks(SECTOR).enumerate() {
            let at = number * SECTOR;
            let is_under_way = at >= from && at < to;
            let is_right = self.is_any[number]
                || self.now[at..at + SECTOR] == *sector
                || (is_under_way && (is_lost || bytes[at - from..at - from + SECTOR] == *sector));
            assert!(is_right, "seed {seed}: sector {number} of {}", self.case.stack);
        }
        self.now.clone_from(&found);
    }

    /// All ways of having what is used agree.
    fn check_copies(&self, array: &Array, seed: u64) {
        for region in (0..self.used.len()).filter(|&region| self.used[region]) {
            let from = region * MIB as usize;
            let length = (self.now.len() - from).min(MIB as usize);
            let found = read(array, from as u64, length);
            let copies = array.copies(from as u64, 4096);
            // There are more while the last record has a difference of a stripe that was torn.
            assert!(copies > self.case.failures, "seed {seed}: {copies} of {region}");
            for number in 0..=self.case.failures {
                let copy = copy(array, number, from as u64, length);
                let wrong = copy.iter().zip(&found).position(|(a, b)| a != b);
                assert_eq!(wrong, None, "seed {seed}: copy {number} of {region}");
            }
        }
    }
}

/// Writes at random with all that happens in between, until something fails.
fn exercise(array: &Array, random: &mut Random, model: &mut Model) -> Option<()> {
    let len = model.now.len() as u64;
    let hot = random.below(len - (128 << 10)) / 4096 * 4096;
    for _ in 0..random.between(5, 60) {
        let (mut offset, mut length) = match random.below(10) {
            0..3 => (random.below(len), random.between(1, 40) * 512),
            3..8 => (hot + random.below(100 << 10), random.between(1, 24) * 512),
            _ => (random.below(len), random.between(1, 3) * model.case.stripe_bytes),
        };
        if random.chance(300) {
            offset = offset / model.case.stripe_bytes * model.case.stripe_bytes;
        }
        offset = (offset / 512 * 512).min(len - 512);
        length = length.min(len - offset);
        if random.chance(40) {
            discard(array, model, offset, length * 8)?;
            continue;
        }
        let bytes = noise(random, length);
        model.maybe.push((offset, bytes.clone()));
        model.under_way = Some((offset, bytes.clone()));
        array.write_at(offset, &[IoSlice::new(&bytes)]).ok()?;
        // One that fails may be the first of its region, and not say so any more.
        model.touch(offset, length);
        model.wrote(offset, &bytes);
        if random.chance(200) {
            let mut found = vec![0; length as usize];
            array.read_at(offset, &mut found).ok()?;
            assert!(found == bytes, "what was just written");
        }
        match random.below(10) {
            0 | 1 => {
                array.flush().ok()?;
                model.flushed();
            }
            2 if random.chance(500) => array.tidy().ok()?,
            2 => array.tidy_early().ok()?,
            3 => drop(array.step().ok()?),
            _ => {}
        }
    }
    Some(())
}

fn discard(array: &Array, model: &mut Model, offset: u64, length: u64) -> Option<()> {
    let length = length.min(model.now.len() as u64 - offset);
    let (from, to) = (offset as usize, (offset + length) as usize);
    model.is_any[from / SECTOR..to / SECTOR].fill(true);
    model.was_any[from / SECTOR..to / SECTOR].fill(true);
    // One that fails may have been done.
    for region in 0..model.used.len() {
        let start = region as u64 * MIB;
        let end = (start + MIB).min(model.now.len() as u64);
        if offset <= start && end <= offset + length {
            model.used[region] = false;
        }
    }
    array.discard(offset, length).ok()?;
    Some(())
}

fn run(seed: u64) {
    let case = &CASES[(seed % 4) as usize];
    let mut random = Random::new(seed);
    let rig = Rig::new(case.stack, case.data_bytes, 1000 + seed);
    let count = rig.media.len();
    let mut model = Model::new(case, rig.open().len_bytes() as usize);
    for _ in 0..6 {
        let array = rig.open();
        exercise(&array, &mut random, &mut model);
        let mut lost = Vec::new();
        match random.below(5) {
            // The power fails, perhaps in the middle of something, and some do not come back.
            0..3 => {
                rig.media[0].halt_after(random.below(40));
                while exercise(&array, &mut random, &mut model).is_some() {}
                drop(array);
                rig.crash(&mut random);
                for _ in 0..random.below(case.failures as u64 + 1) {
                    lost.push(random.below(count as u64) as usize);
                }
            }
            // A member fails for good, is away, and comes back as it was.
            3 => {
                let failed = random.below(count as u64) as usize;
                let op = [Op::Write, Op::Sync, Op::Read][random.below(3) as usize];
                rig.media[failed].fail(Failure::for_ever(op));
                exercise(&array, &mut random, &mut model).expect("one may fail");
                array.flush().expect("without it");
                model.flushed();
                rig.media[failed].calm();
                drop(array);
                rig.crash(&mut random);
            }
            _ => {
                array.close().expect("closed");
                model.flushed();
            }
        }
        if random.chance(300) {
            // The power fails while it is opened.
            rig.media[0].halt_after(random.below(25));
            if let Ok(array) = rig.try_open(&lost) {
                array.settle_as_it_is();
            }
            rig.crash(&mut random);
        }
        let array = rig.open_without(&lost);
        model.check(&array, !lost.is_empty(), seed);
        if !lost.is_empty() {
            exercise(&array, &mut random, &mut model).expect("without some");
            array.flush().expect("a flush");
            model.flushed();
        }
        drop(array);
        let array = rig.open();
        bring_up(&array);
        assert_eq!(standings(&array), vec![Standing::In; count], "seed {seed}");
        model.check(&array, false, seed);
        array.close().expect("closed");
        drop(array);
        model.check_copies(&rig.open(), seed);
    }
}

#[test]
fn nothing_flushed_is_lost_though_members_are_lost_with_the_power() {
    for seed in 0..48 {
        run(seed);
    }
}

/// The process ends at any point, the machine goes on; perhaps members are lost as well.
fn run_killed(seed: u64) {
    let case = &CASES[(seed % 4) as usize];
    let mut random = Random::new(seed);
    let rig = Rig::new(case.stack, case.data_bytes, 2000 + seed);
    let count = rig.media.len();
    let mut model = Model::new(case, rig.open().len_bytes() as usize);
    for _ in 0..8 {
        let array = rig.open();
        exercise(&array, &mut random, &mut model);
        rig.media[0].halt_after(random.below(60));
        while exercise(&array, &mut random, &mut model).is_some() {}
        drop(array);
        rig.kill();
        let mut lost = Vec::new();
        if random.chance(300) {
            lost = (0..case.failures).map(|_| random.below(count as u64) as usize).collect();
        }
        while random.chance(400) {
            // And again while it is opened.
            rig.media[0].halt_after(random.below(30));
            if let Ok(array) = rig.try_open(&lost) {
                array.settle_as_it_is();
            }
            rig.kill();
        }
        let array = rig.open_without(&lost);
        model.check_killed(&array, !lost.is_empty(), seed);
        drop(array);
        rig.kill();
        let array = rig.open();
        bring_up(&array);
        assert_eq!(standings(&array), vec![Standing::In; count], "seed {seed}");
        model.check_killed(&array, false, seed);
        if random.chance(300) {
            array.close().expect("closed");
            drop(array);
            model.check_copies(&rig.open(), seed);
        }
        model.flushed();
    }
}

#[test]
fn nothing_that_was_answered_is_lost_when_the_process_ends() {
    for seed in 0..48 {
        run_killed(seed);
    }
}

/// More of the same: `PARITY_SEEDS=from..to`.
#[test]
fn seeds_of_choice() {
    let Ok(seeds) = std::env::var("PARITY_SEEDS") else { return };
    let (from, to) = seeds.split_once("..").expect("from..to");
    for seed in from.parse().expect("a number")..to.parse().expect("a number") {
        run(seed);
        run_killed(seed);
    }
}
