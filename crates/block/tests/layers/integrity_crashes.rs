//! The integrity layer against a model, over media that crash, fail and rot.
//!
//! The model knows of each sector which contents it may have after a crash: the one that was
//! flushed last, and each that was written since. Of a block that was never written and flushed,
//! or not since it was discarded, it knows what it is, and that a crash may leave anything.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::Arc;

use hindsight_block::{
    Array, BlockDevice, Candidate, DeviceErrorKind, Guard, Identities, IntegrityDevice,
    IntegrityOptions, Materials, MediaDevice, Resync,
};
use sim::{Random, SimMedia};

use crate::pair::Pair;

type Device = Arc<dyn BlockDevice>;
type Integrity = IntegrityDevice<Device>;

const SECTOR: usize = 512;
const BLOCK: u64 = 4096;
const LEN: u64 = 2000 * BLOCK;
/// Blocks that are used: around the places where groups and sectors of checksums meet.
const AREAS: [(u64, u64); 3] = [(0, 5), (954, 12), (1915, 9)];

#[derive(Default)]
struct Model {
    /// Of each sector: what it is, after all that it may still be after a crash.
    sectors: BTreeMap<u64, Vec<Vec<u8>>>,
    /// Blocks that were written and flushed since they were discarded: of others a crash may leave
    /// anything.
    kept: BTreeSet<u64>,
    written: BTreeSet<u64>,
    /// Blocks that the layer does not guard.
    exempt: BTreeSet<u64>,
}

impl Model {
    fn possible(&mut self, sector: u64) -> &mut Vec<Vec<u8>> {
        self.sectors.entry(sector).or_insert_with(|| vec![vec![0; SECTOR]])
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        for sector in offset / 512..end.div_ceil(512) {
            let start = sector * 512;
            let (from, to) = (start.max(offset), (start + 512).min(end));
            let possible = self.possible(sector);
            let mut content = possible.last().expect("never empty").clone();
            let part = &bytes[(from - offset) as usize..(to - offset) as usize];
            content[(from - start) as usize..(to - start) as usize].copy_from_slice(part);
            possible.push(content);
            self.written.insert(sector / 8);
        }
    }

    fn discard(&mut self, offset: u64, length: u64) {
        for block in offset.div_ceil(BLOCK)..(offset + length) / BLOCK {
            (block * 8..block * 8 + 8).for_each(|s| self.possible(s).push(vec![0; SECTOR]));
            self.kept.remove(&block);
            self.written.remove(&block);
        }
    }

    fn flushed(&mut self) {
        for possible in self.sectors.values_mut() {
            possible.drain(..possible.len() - 1);
        }
        self.kept.append(&mut self.written);
    }

    /// What was written durably, as far as it is whole.
    fn durable(&mut self, offset: u64, length: u64) {
        for sector in offset.div_ceil(512)..(offset + length) / 512 {
            let possible = self.possible(sector);
            possible.drain(..possible.len() - 1);
        }
        for block in offset.div_ceil(BLOCK)..(offset + length) / BLOCK {
            self.kept.insert(block);
            self.written.remove(&block);
        }
    }

    /// Blocks have this guard, and are nothing, but for those that have it again.
    fn guard(&mut self, blocks: std::ops::Range<u64>, by: Guard) {
        for block in blocks {
            let _ = match by {
                Guard::Owner => self.exempt.insert(block),
                Guard::Layers | Guard::Again => self.exempt.remove(&block),
            };
            if by == Guard::Again {
                continue;
            }
            self.kept.remove(&block);
            self.written.remove(&block);
        }
    }

    /// What a block is.
    fn block(&mut self, block: u64) -> Vec<u8> {
        let sectors = block * 8..block * 8 + 8;
        sectors.flat_map(|s| self.possible(s).last().expect("never empty").clone()).collect()
    }

    /// Holds a block against what it has to be.
    fn check(&mut self, block: u64, bytes: &[u8], text: &str) {
        for (i, found) in bytes.chunks(SECTOR).enumerate() {
            let expected = self.possible(block * 8 + i as u64).last().expect("never empty");
            assert!(expected == found, "{text}: sector {i} of block {block}");
        }
    }

    /// Takes what a block is after a crash, if it may be that.
    fn take(&mut self, block: u64, bytes: &[u8], text: &str) {
        self.written.remove(&block);
        let is_kept = self.kept.contains(&block);
        for (i, found) in bytes.chunks(SECTOR).enumerate() {
            let possible = self.possible(block * 8 + i as u64);
            let may = !is_kept || possible.iter().any(|content| content == found);
            assert!(may, "{text}: sector {i} of block {block} after a crash");
            *possible = vec![found.to_vec()];
        }
    }
}

/// What the layer stands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Below {
    /// One copy.
    Single,
    /// Two that are kept by the plainest of mirrors.
    Pair,
    /// Two members with labels, as a pool has them.
    Array,
}

impl Below {
    /// Where the data of a member begins.
    fn offset(self) -> u64 {
        if self == Below::Array { 1 << 20 } else { 0 }
    }

    /// The device over these media, as after a restart.
    fn open(self, media: &[Arc<SimMedia>]) -> Device {
        match (self, media) {
            (Below::Single, [one]) => device(one),
            (Below::Pair, [one, two]) => Pair::over([Arc::clone(one), Arc::clone(two)]),
            (Below::Array, media) => {
                Arc::new(Array::open(candidates(media), &Materials::none()).expect("labels"))
            }
            _ => unreachable!("one copy or two"),
        }
    }
}

fn device(media: &Arc<SimMedia>) -> Device {
    let media: Arc<SimMedia> = Arc::clone(media);
    Arc::new(MediaDevice::new(media))
}

fn candidates(media: &[Arc<SimMedia>]) -> Vec<Candidate> {
    let named = ["a", "b"].into_iter().zip(media);
    named.map(|(path, m)| Candidate { path: path.to_owned(), device: Some(device(m)) }).collect()
}

/// A device under test.
struct Run {
    kind: Below,
    media: Vec<Arc<SimMedia>>,
    device: Integrity,
    model: Model,
    random: Random,
    text: String,
}

fn options(random: &mut Random) -> IntegrityOptions {
    let (groups_max, open_max) = [(2, 1), (3, 2), (100, 50)][random.below(3) as usize];
    IntegrityOptions { groups_max, open_max, ..IntegrityOptions::default() }
}

impl Run {
    fn new(seed: u64, kind: Below) -> Run {
        let mut random = Random::new(seed);
        let length = Integrity::bytes_below(LEN) + kind.offset();
        let copies = if kind == Below::Single { 1 } else { 2 };
        let media: Vec<_> = (0..copies)
            .map(|copy| Arc::new(SimMedia::filled(length, seed * 2 + copy, 0xa5)))
            .collect();
        if kind == Below::Array {
            let mut id = 0;
            let mut next = || {
                id += 1;
                id
            };
            let now = units::WallTime::from_nanos(1);
            let identities = Identities { random: &mut next, now };
            let stack = "mirror(a, b)".parse().expect("a stack");
            Array::create(&stack, candidates(&media), identities, &Materials::none())
                .expect("room for labels");
        }
        IntegrityDevice::format(&kind.open(&media), 7).expect("room");
        let options = options(&mut random);
        let below = kind.open(&media);
        let device = IntegrityDevice::open(below, options, Arc::default()).expect("made");
        let text = format!("seed {seed}, {kind:?}");
        Run { kind, media, device, model: Model::default(), random, text }
    }

    fn range(&mut self) -> (u64, u64) {
        let (first, blocks) = AREAS[self.random.below(AREAS.len() as u64) as usize];
        let length_max = blocks * BLOCK;
        let align = [1, 512, 4096][self.random.below(3) as usize];
        let start = self.random.below(length_max) / align * align;
        let most = [600, 9000, length_max][self.random.below(3) as usize];
        let length = (self.random.between(1, most).div_ceil(align) * align).min(length_max - start);
        (first * BLOCK + start, length)
    }

    /// One request; `false` if the machine has stopped.
    fn step(&mut self) -> bool {
        let (mut offset, mut length) = self.range();
        let blocks = offset / BLOCK..(offset + length).div_ceil(BLOCK);
        if self.model.exempt.range(blocks).next().is_some() {
            // Nobody makes whole blocks of these: a crash may leave the bytes of one write to a
            // sector among those of before another one, and the model knows sectors.
            (offset, length) = (offset / 512 * 512, (offset % 512 + length).next_multiple_of(512));
        }
        let done = match self.random.below(20) {
            0..=9 => {
                let mut bytes = vec![0; length as usize];
                self.random.fill(&mut bytes);
                let cut = self.random.below(length) as usize;
                let slices = [IoSlice::new(&bytes[..cut]), IoSlice::new(&bytes[cut..])];
                let durable = self.random.chance(100);
                let written = match durable {
                    true => self.device.write_durable(offset, &slices),
                    false => self.device.write_at(offset, &slices),
                };
                // What failed may have arrived as well.
                self.model.write(offset, &bytes);
                if durable && written.is_ok() {
                    self.model.durable(offset, length);
                }
                written
            }
            10 => {
                self.model.discard(offset, length);
                self.device.discard(offset, length).and_then(|()| self.fill_exempt(offset, length))
            }
            11..=13 => self.device.flush().map(|()| self.model.flushed()),
            14 => self.guard(),
            15 => self.device.clean().map(|()| self.model.flushed()),
            _ => {
                self.check_all();
                Ok(())
            }
        };
        if let Err(error) = &done {
            assert!(self.media.iter().any(|m| m.is_halted()), "{}: {error}", self.text);
        }
        done.is_ok()
    }

    /// Writes what was discarded and is not zeros because of that.
    fn fill_exempt(&mut self, offset: u64, length: u64) -> hindsight_block::Result<()> {
        for block in offset.div_ceil(BLOCK)..(offset + length) / BLOCK {
            if self.model.exempt.contains(&block) {
                let mut bytes = [0; BLOCK as usize];
                self.random.fill(&mut bytes);
                self.model.write(block * BLOCK, &bytes);
                self.device.write_at(block * BLOCK, &[IoSlice::new(&bytes)])?;
            }
        }
        Ok(())
    }

    /// Blocks get another guard, and are written: until then they are nothing.
    fn guard(&mut self) -> hindsight_block::Result<()> {
        let (first, blocks) = AREAS[self.random.below(AREAS.len() as u64) as usize];
        let number = (first + self.random.below(blocks)) / 120;
        let whole = number * 120..((number + 1) * 120).min(LEN / BLOCK);
        // What reaches into a neighbour changes nothing of it.
        let start = (whole.start * BLOCK).saturating_sub(self.random.below(70 * BLOCK));
        let end = (whole.end * BLOCK + self.random.below(70 * BLOCK)).min(LEN);
        let by = match self.random.below(10) {
            0..6 => Guard::Owner,
            6..8 => Guard::Layers,
            _ => Guard::Again,
        };
        self.model.guard(whole.clone(), by);
        self.device.guard(start, end - start, by)?;
        if by == Guard::Again {
            return Ok(());
        }
        for (first, blocks) in AREAS {
            let (from, to) = (whole.start.max(first), whole.end.min(first + blocks));
            if from < to {
                let mut bytes = vec![0; ((to - from) * BLOCK) as usize];
                self.random.fill(&mut bytes);
                self.model.write(from * BLOCK, &bytes);
                self.device.write_at(from * BLOCK, &[IoSlice::new(&bytes)])?;
            }
        }
        Ok(())
    }

    fn check_all(&mut self) {
        for (first, blocks) in AREAS {
            let mut bytes = vec![0; (blocks * BLOCK) as usize];
            match self.device.read_at(first * BLOCK, &mut bytes) {
                Ok(()) => {}
                Err(_) if self.media.iter().any(|m| m.is_halted()) => return,
                Err(error) => panic!("{}: {error}: {:?}", self.text, error.source),
            }
            for (block, bytes) in (first..).zip(bytes.chunks(4096)) {
                self.model.check(block, bytes, &self.text);
            }
        }
    }

    /// The power fails and comes back; what is read then is what will be read from then on.
    fn crash(&mut self) {
        for media in &self.media {
            media.crash(&mut self.random);
        }
        let options = options(&mut self.random);
        let lower = self.kind.open(&self.media);
        // A mirror settles what was in flight before, or the layer above does.
        let mirror_first = self.random.chance(500);
        let resync = |device: &Device| device.resync(0, device.len_bytes(), Resync::All);
        if mirror_first {
            resync(&lower).expect("the media work again");
        }
        let device = IntegrityDevice::open(Arc::clone(&lower), options, Arc::default());
        self.device = device.expect("the header is there");
        for (first, blocks) in AREAS {
            let mut bytes = vec![0; (blocks * BLOCK) as usize];
            let read = self.device.read_at(first * BLOCK, &mut bytes);
            read.unwrap_or_else(|e| panic!("{}: {e}: {:?}", self.text, e.source));
            for (block, bytes) in (first..).zip(bytes.chunks(4096)) {
                self.model.take(block, bytes, &self.text);
            }
        }
        if !mirror_first {
            resync(&lower).expect("the media work again");
        }
    }

    fn open_again(&mut self) {
        let options = options(&mut self.random);
        let below = self.kind.open(&self.media);
        let device = IntegrityDevice::open(below, options, Arc::default());
        self.device = device.expect("the header is there");
    }

    /// A bit flips in a clean group: nobody reads wrong bytes.
    fn rot(&mut self) {
        self.device.clean().expect("no fault is armed");
        self.model.flushed();
        if self.random.chance(500) {
            self.open_again();
        }
        let (first, blocks) = AREAS[self.random.below(AREAS.len() as u64) as usize];
        let block = first + self.random.below(blocks);
        let (group, within) = (block / 960, block % 960);
        let page = self.kind.offset() + format::integrity::GROUPS_OFFSET + group * 961 * BLOCK;
        let at = match self.random.below(4) {
            0 => page + self.random.below(BLOCK),
            _ => page + (1 + within) * BLOCK + self.random.below(BLOCK),
        };
        let bit = self.random.below(8) as u8;
        let side = self.random.below(self.media.len() as u64) as usize;
        self.media[side].rot(at, bit);
        let mut failed = false;
        for (first, blocks) in AREAS {
            for block in first..first + blocks {
                let mut bytes = vec![0; BLOCK as usize];
                match self.device.read_at(block * BLOCK, &mut bytes) {
                    Ok(()) if self.model.exempt.contains(&block) => {
                        let right = self.model.block(block);
                        let is_right = |bytes: &[u8]| bytes == right;
                        if !is_right(&bytes) {
                            let healed = self.device.heal(block * BLOCK, &mut bytes, &is_right);
                            healed.expect("no fault");
                            failed |= !is_right(&bytes);
                        }
                    }
                    Ok(()) => self.model.check(block, &bytes, &self.text),
                    Err(error) => {
                        assert_eq!(error.kind, DeviceErrorKind::Corrupt, "{}", self.text);
                        failed = true;
                    }
                }
            }
        }
        if self.media.len() == 1 {
            self.media[side].rot(at, bit);
            self.open_again();
        } else {
            assert!(!failed, "{}: one copy was right", self.text);
            // A bit that nobody read is healed when somebody does; here at once.
            self.media[side].rot(at, bit);
            let mut healed = [0; 2];
            let other = &self.media[1 - side];
            env::Media::read_at(&*self.media[side], at, &mut healed[..1]).expect("no fault");
            env::Media::read_at(&**other, at, &mut healed[1..]).expect("no fault");
            if healed[0] != healed[1] {
                self.media[side].rot(at, bit);
            }
        }
    }
}

fn run(seed: u64, kind: Below) {
    let mut run = Run::new(seed, kind);
    for _ in 0..6 {
        // A member of an array that stops is put out, and the array goes on: that is not this test.
        if kind != Below::Array && run.random.chance(700) {
            let side = run.random.below(run.media.len() as u64) as usize;
            run.media[side].halt_after(run.random.below(120));
        }
        for _ in 0..run.random.below(60) {
            if !run.step() {
                // The machine is one: where one side stops, all does.
                run.media.iter().for_each(|media| media.halt_now());
                break;
            }
        }
        if run.media.iter().any(|m| m.is_halted()) || run.random.chance(500) {
            run.crash();
        } else {
            run.media.iter().for_each(|media| media.calm());
        }
        run.check_all();
        run.rot();
        run.check_all();
    }
}

#[test]
fn nothing_that_was_flushed_is_read_wrong_over_one_copy() {
    (0..40).for_each(|seed| run(seed, Below::Single));
}

#[test]
fn nothing_that_was_flushed_is_read_wrong_over_two_copies() {
    (1000..1040).for_each(|seed| run(seed, Below::Pair));
}

#[test]
fn nothing_that_was_flushed_is_read_wrong_over_the_members_of_an_array() {
    (2000..2040).for_each(|seed| run(seed, Below::Array));
}

#[test]
fn a_kill_loses_nothing_that_was_answered() {
    let media = Arc::new(SimMedia::filled(LEN + (1 << 20), 3, 0x5a));
    let below: Device = Arc::new(MediaDevice::new(Arc::clone(&media) as Arc<dyn env::Media>));
    Integrity::format(&below, 77).expect("formatted");
    let open = || {
        Integrity::open(Arc::clone(&below), IntegrityOptions::default(), Arc::default())
            .expect("opened")
    };
    let mut random = Random::new(4);
    let mut model = vec![0; LEN as usize];
    for round in 0..30 {
        let device = open();
        for _ in 0..random.between(1, 8) {
            let length = random.between(1, 20_000);
            let offset = random.below(LEN - length);
            let mut bytes = vec![0; length as usize];
            random.fill(&mut bytes);
            device.write_at(offset, &[IoSlice::new(&bytes)]).expect("written");
            model[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            if random.chance(200) {
                device.flush().expect("flushed");
            }
        }
        drop(device);
        media.kill();
        let mut found = vec![0; model.len()];
        open().read_at(0, &mut found).expect("read");
        assert!(found == model, "round {round}");
    }
}
