//! A write buffer against a plain copy of what was written: at every byte, after kills, power cuts,
//! errors and everything that happens beside them.

use std::io::IoSlice;
use std::sync::Arc;

use env::{Media, WINDOW_BYTES};
use format::label::{AREA_BYTES, Label, Member, MemberStanding};
use hindsight_block::{Found, WriteBuffer, WriteBuffers};
use sim::{Random, SimEntropy, SimMedia, SimMemories};
use units::WallTime;

const WINDOWS: u64 = 6;
const LEN_BYTES: u64 = AREA_BYTES + WINDOWS * WINDOW_BYTES + 4096;
const GRAIN: u64 = 64;

/// A machine with one media that has a label.
struct Machine {
    media: Arc<SimMedia>,
    memories: SimMemories,
    seed: u64,
    starts: u64,
}

/// One process.
struct Process {
    all: WriteBuffers,
    buffer: Arc<WriteBuffer>,
}

fn machine(seed: u64) -> Machine {
    let media = Arc::new(SimMedia::new(LEN_BYTES, seed));
    let member = Member {
        id: 7,
        data_bytes: LEN_BYTES - AREA_BYTES,
        out_generation: 0,
        standing: MemberStanding::In,
        path: String::new(),
    };
    let label = Label {
        array_id: 1,
        member_id: 7,
        generation: 0,
        created: WallTime::from_nanos(1),
        region_bytes: 1 << 20,
        stack: "0".to_owned(),
        members: vec![member],
    };
    media.write_at(0, &[IoSlice::new(&label.encode(0))]).expect("written");
    media.sync().expect("written");
    let memories = SimMemories::of(&media, seed);
    Machine { media, memories, seed, starts: 0 }
}

impl Machine {
    fn start(&mut self, slots: u64) -> Process {
        self.starts += 1;
        let entropy = SimEntropy::new(self.seed << 16 | self.starts);
        let memories = Box::new(self.memories.clone());
        let all = WriteBuffers::new(memories, Box::new(entropy));
        all.set_memory_bytes(slots * WINDOW_BYTES);
        let buffer = all.over(Arc::clone(&self.media) as _).expect("opened");
        Process { all, buffer }
    }

    fn kill(&self, process: Process) {
        self.media.halt_now();
        drop(process);
        self.memories.kill();
        self.media.kill();
    }
}

fn write(media: &dyn Media, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
    let (a, b) = bytes.split_at(bytes.len() / 3);
    media.write_at(offset, &[IoSlice::new(a), IoSlice::new(b)])
}

fn read(media: &dyn Media, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; length];
    media.read_at(offset, &mut bytes).expect("read");
    bytes
}

/// What each byte may be: what it was at the last sync, and all that it was since.
struct Oracle {
    now: Vec<u8>,
    synced: Vec<u8>,
    since: Vec<(u64, Vec<u8>)>,
    /// Bytes that may say anything.
    loose: Vec<bool>,
    /// Bytes that were discarded since the last sync: after a power cut they may say anything.
    discarded: Vec<bool>,
}

impl Oracle {
    fn new() -> Oracle {
        let zeros = vec![0; LEN_BYTES as usize];
        let loose = vec![false; LEN_BYTES as usize];
        let discarded = loose.clone();
        Oracle { now: zeros.clone(), synced: zeros, since: Vec::new(), loose, discarded }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let range = offset as usize..offset as usize + bytes.len();
        self.now[range.clone()].copy_from_slice(bytes);
        self.loose[range].fill(false);
        self.since.push((offset, bytes.to_vec()));
    }

    /// A write that the machine stopped in.
    fn begun(&mut self, offset: u64, bytes: &[u8]) {
        self.since.push((offset, bytes.to_vec()));
    }

    fn discard(&mut self, range: std::ops::Range<usize>) {
        self.loose[range.clone()].fill(true);
        self.discarded[range].fill(true);
    }

    fn sync(&mut self) {
        self.synced.copy_from_slice(&self.now);
        self.since.clear();
        self.discarded.copy_from_slice(&self.loose);
    }

    fn check(&self, found: &[u8], from: usize, why: &str) {
        for (at, &byte) in found.iter().enumerate() {
            let at = at + from;
            assert!(self.loose[at] || byte == self.now[at], "{why}: byte {at}");
        }
    }

    /// After a kill only what was under way is in doubt; after a power cut all since the sync is.
    fn settle(&mut self, found: &[u8], under_way: Option<&(u64, Vec<u8>)>, cut: bool) {
        let mut doubt = vec![false; found.len()];
        let mut may = |offset: u64, bytes: &[u8]| {
            for (i, &byte) in bytes.iter().enumerate() {
                let at = offset as usize + i;
                doubt[at] |= found[at] == byte;
            }
        };
        if let Some((offset, bytes)) = under_way {
            may(*offset, bytes);
        }
        if cut {
            self.since.iter().for_each(|(offset, bytes)| may(*offset, bytes));
        }
        for at in AREA_BYTES as usize..found.len() {
            let is_right = self.loose[at]
                || doubt[at]
                || (cut && self.discarded[at])
                || found[at] == if cut { self.synced[at] } else { self.now[at] };
            let what = if cut { "a power cut" } else { "a kill" };
            let (now, synced, is) = (self.now[at], self.synced[at], found[at]);
            assert!(is_right, "byte {at} after {what}: {is}, was {now}, synced {synced}");
        }
        self.now.copy_from_slice(found);
        if cut {
            self.sync();
        }
    }
}

fn a_write(random: &mut Random, tails: &mut [u64]) -> (u64, Vec<u8>) {
    let window = random.below(WINDOWS);
    let begin = AREA_BYTES + window * WINDOW_BYTES;
    let tail = &mut tails[window as usize];
    let grain = if random.chance(50) { 1 } else { GRAIN };
    let length = match random.below(4) {
        0 => (1 + random.below(40)) * GRAIN,
        1 => 1 + random.below(9000),
        _ => (1 + random.below(2000)) * GRAIN,
    } / grain
        * grain;
    let length = length.max(grain);
    let offset = match random.below(10) {
        0 => begin,
        1 => begin + random.below(WINDOW_BYTES) / grain * grain,
        _ => begin + *tail,
    };
    let length = length.min(LEN_BYTES - 4096 - offset);
    *tail = (offset + length - begin) % WINDOW_BYTES;
    let stamp = random.next_u64() | 0x0101_0101_0101_0101;
    let bytes = (0..length).map(|i| stamp.to_le_bytes()[(i % 8) as usize] ^ (i >> 3) as u8);
    (offset, bytes.collect())
}

/// Runs random requests; kills the process or cuts the power now and then.
fn run(seed: u64, steps: u32) {
    let mut random = Random::new(seed);
    let mut machine = machine(seed);
    let slots = random.below(WINDOWS + 2);
    let mut process = machine.start(slots);
    let mut oracle = Oracle::new();
    let mut tails = [0; WINDOWS as usize];
    let mut begun = None;
    for _ in 0..steps {
        let is_down = match random.below(100) {
            0..50 => {
                let (offset, bytes) = a_write(&mut random, &mut tails);
                let outcome = write(&*process.buffer, offset, &bytes);
                match &outcome {
                    Ok(()) => oracle.write(offset, &bytes),
                    Err(_) => begun = Some((offset, bytes)),
                }
                outcome.is_err()
            }
            50..62 => {
                let offset = AREA_BYTES + random.below(LEN_BYTES - AREA_BYTES - 1);
                let length = (1 + random.below(300_000)).min(LEN_BYTES - offset) as usize;
                let mut bytes = vec![0; length];
                match process.buffer.read_at(offset, &mut bytes) {
                    Ok(()) => oracle.check(&bytes, offset as usize, "read"),
                    Err(_) => assert!(machine.media.is_halted()),
                }
                false
            }
            62..70 => {
                let synced = process.buffer.sync();
                if synced.is_ok() {
                    oracle.sync();
                }
                synced.is_err()
            }
            70..82 => {
                process.all.write_some();
                machine.media.is_halted()
            }
            82..86 => {
                process.all.tick();
                process.all.grow();
                machine.media.is_halted()
            }
            86..89 => {
                let window = random.below(WINDOWS);
                let at = AREA_BYTES + window * WINDOW_BYTES;
                let count = 1 + random.below(WINDOWS - window);
                process.buffer.allocate(at, count * WINDOW_BYTES).is_err()
            }
            89..91 => {
                let offset = AREA_BYTES + random.below(WINDOWS * WINDOW_BYTES);
                let length = random.below(WINDOW_BYTES * 2).min(LEN_BYTES - offset);
                let range = offset as usize..(offset + length) as usize;
                let outcome = process.buffer.discard(offset, length);
                oracle.discard(range);
                outcome.is_err()
            }
            91..94 => {
                let (offset, bytes) = a_write(&mut random, &mut tails);
                let slices = [IoSlice::new(&bytes)];
                let outcome = process.buffer.write_durable(offset, &slices);
                match &outcome {
                    Ok(()) => {
                        oracle.write(offset, &bytes);
                        let range = offset as usize..offset as usize + bytes.len();
                        oracle.synced[range].copy_from_slice(&bytes);
                    }
                    Err(_) => begun = Some((offset, bytes)),
                }
                outcome.is_err()
            }
            94..96 => {
                machine.media.halt_after(random.below(20));
                false
            }
            96..98 => {
                machine.memories.halt_after(random.below(20));
                false
            }
            98 => true,
            _ => {
                // An orderly end, if nothing stops it.
                let _ = process.buffer.sync();
                drop(process);
                let is_halted = machine.media.is_halted();
                machine.memories.kill();
                machine.media.kill();
                if !is_halted {
                    oracle.sync();
                    process = machine.start(random.below(WINDOWS + 2));
                    assert_eq!(process.buffer.found(), &Found::Nothing);
                    let found = read(&*process.buffer, 0, LEN_BYTES as usize);
                    oracle.check(&found[AREA_BYTES as usize..], AREA_BYTES as usize, "a stop");
                    continue;
                }
                process = machine.start(random.below(WINDOWS + 2));
                true
            }
        };
        if is_down {
            machine.kill(process);
            let cut = random.chance(400);
            if cut {
                machine.media.crash(&mut random);
                machine.memories.cut();
            }
            if let Some((offset, bytes)) = &begun {
                oracle.begun(*offset, bytes);
            }
            process = machine.start(random.below(WINDOWS + 2));
            let found = read(&*process.buffer, 0, LEN_BYTES as usize);
            oracle.settle(&found, begun.take().as_ref(), cut);
            assert!(!matches!(process.buffer.found(), Found::Lost(_)), "{cut}");
            tails.fill(0);
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_and_what_was_synced_after_a_power_cut() {
    for seed in 1..60 {
        println!("seed {seed}");
        run(seed, 400);
    }
}
