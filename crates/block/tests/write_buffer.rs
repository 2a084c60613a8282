//! A write buffer against a plain copy of what was written: at every byte, after kills, power cuts,
//! errors and everything that happens beside them.

use std::io::IoSlice;
use std::sync::Arc;

use env::{Media, PIECE_BYTES};
use format::label::{AREA_BYTES, Label, Member, MemberStanding};
use hindsight_block::{Found, WriteBuffer, WriteBuffers};
use sim::{Failure, Op, Random, SimEntropy, SimMedia, SimMemories};
use units::WallTime;

const PIECES: u64 = 6;
const LEN_BYTES: u64 = AREA_BYTES + PIECES * PIECE_BYTES + 4096;
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

fn machine_of(seed: u64) -> Machine {
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
        all.set_memory_bytes(slots * PIECE_BYTES);
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
    let piece = random.below(PIECES);
    let begin = AREA_BYTES + piece * PIECE_BYTES;
    let tail = &mut tails[piece as usize];
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
        1 => begin + random.below(PIECE_BYTES) / grain * grain,
        _ => begin + *tail,
    };
    let length = length.min(LEN_BYTES - 4096 - offset);
    *tail = (offset + length - begin) % PIECE_BYTES;
    let stamp = random.next_u64() | 0x0101_0101_0101_0101;
    let bytes = (0..length).map(|i| stamp.to_le_bytes()[(i % 8) as usize] ^ (i >> 3) as u8);
    (offset, bytes.collect())
}

/// A machine, the process on it, and what it must say.
struct Story {
    random: Random,
    machine: Machine,
    process: Option<Process>,
    oracle: Oracle,
    tails: [u64; PIECES as usize],
    /// The write that the machine stopped in.
    begun: Option<(u64, Vec<u8>)>,
}

impl Story {
    fn new(seed: u64) -> Story {
        let (random, machine) = (Random::new(seed), machine_of(seed));
        let (oracle, tails) = (Oracle::new(), [0; PIECES as usize]);
        let mut story = Story { random, machine, process: None, oracle, tails, begun: None };
        story.start();
        story
    }

    fn start(&mut self) {
        let slots = self.random.below(PIECES + 2);
        self.process = Some(self.machine.start(slots));
    }

    fn buffer(&self) -> Arc<WriteBuffer> {
        Arc::clone(&self.process.as_ref().expect("it runs").buffer)
    }

    /// Whether the machine has stopped, as after each of those below.
    fn write(&mut self, durably: bool) -> bool {
        let (offset, bytes) = a_write(&mut self.random, &mut self.tails);
        let outcome = match durably {
            true => self.buffer().write_durable(offset, &[IoSlice::new(&bytes)]),
            false => write(&*self.buffer(), offset, &bytes),
        };
        match &outcome {
            Ok(()) => {
                self.oracle.write(offset, &bytes);
                if durably {
                    let range = offset as usize..offset as usize + bytes.len();
                    self.oracle.synced[range].copy_from_slice(&bytes);
                }
            }
            Err(_) => self.begun = Some((offset, bytes)),
        }
        outcome.is_err()
    }

    fn read(&mut self) -> bool {
        let offset = AREA_BYTES + self.random.below(LEN_BYTES - AREA_BYTES - 1);
        let length = (1 + self.random.below(300_000)).min(LEN_BYTES - offset) as usize;
        let mut bytes = vec![0; length];
        match self.buffer().read_at(offset, &mut bytes) {
            Ok(()) => self.oracle.check(&bytes, offset as usize, "read"),
            Err(_) => assert!(self.machine.media.is_halted()),
        }
        false
    }

    fn sync(&mut self) -> bool {
        let synced = self.buffer().sync();
        if synced.is_ok() {
            self.oracle.sync();
        }
        synced.is_err()
    }

    fn discard(&mut self) -> bool {
        let offset = AREA_BYTES + self.random.below(PIECES * PIECE_BYTES);
        let length = self.random.below(PIECE_BYTES * 2).min(LEN_BYTES - offset);
        let outcome = self.buffer().discard(offset, length);
        self.oracle.discard(offset as usize..(offset + length) as usize);
        outcome.is_err()
    }

    fn allocate(&mut self) -> bool {
        let piece = self.random.below(PIECES);
        let at = AREA_BYTES + piece * PIECE_BYTES;
        let count = 1 + self.random.below(PIECES - piece);
        self.buffer().allocate(at, count * PIECE_BYTES).is_err()
    }

    /// The threads of the server do some of their work.
    fn work(&mut self) -> bool {
        let all = &self.process.as_ref().expect("it runs").all;
        match self.random.below(4) {
            0 => {
                all.tick();
                all.grow();
            }
            _ => {
                all.write_some();
            }
        }
        self.machine.media.is_halted()
    }

    /// An orderly end, if nothing stops it.
    fn end(&mut self) -> bool {
        let _ = self.buffer().sync();
        self.process = None;
        let is_halted = self.machine.media.is_halted();
        self.machine.memories.kill();
        self.machine.media.kill();
        self.start();
        if is_halted {
            return true;
        }
        self.oracle.sync();
        assert_eq!(self.buffer().found(), &Found::Nothing);
        let found = read(&*self.buffer(), 0, LEN_BYTES as usize);
        self.oracle.check(&found[AREA_BYTES as usize..], AREA_BYTES as usize, "a stop");
        false
    }

    /// Kills the process, or cuts the power, and looks what is there.
    fn restart(&mut self) {
        self.machine.kill(self.process.take().expect("it runs"));
        let cut = self.random.chance(400);
        if cut {
            self.machine.media.crash(&mut self.random);
            self.machine.memories.cut();
        }
        if let Some((offset, bytes)) = &self.begun {
            self.oracle.begun(*offset, bytes);
        }
        self.start();
        let found = read(&*self.buffer(), 0, LEN_BYTES as usize);
        self.oracle.settle(&found, self.begun.take().as_ref(), cut);
        assert!(!matches!(self.buffer().found(), Found::Lost(_)), "{cut}");
        self.tails.fill(0);
    }

    fn step(&mut self) {
        let is_down = match self.random.below(100) {
            0..50 => self.write(false),
            50..62 => self.read(),
            62..70 => self.sync(),
            70..86 => self.work(),
            86..89 => self.allocate(),
            89..91 => self.discard(),
            91..94 => self.write(true),
            94..96 => {
                self.machine.media.halt_after(self.random.below(20));
                false
            }
            96..98 => {
                self.machine.memories.halt_after(self.random.below(20));
                false
            }
            98 => true,
            _ => self.end(),
        };
        if is_down {
            self.restart();
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_and_what_was_synced_after_a_power_cut() {
    for seed in 1..60 {
        println!("seed {seed}");
        let mut story = Story::new(seed);
        (0..400).for_each(|_| story.step());
    }
}

/// A process with a MiB in which something waits.
fn with_something_that_waits(machine: &mut Machine) -> (Process, Vec<u8>) {
    let process = machine.start(4);
    process.all.tick();
    // The first that finds no slot has some made.
    assert!(!process.all.grow(), "nobody needs one");
    process.buffer.allocate(AREA_BYTES, PIECE_BYTES).expect("there is space");
    write(&*process.buffer, AREA_BYTES, &[0; 128]).expect("written");
    while process.all.grow() {}
    let bytes = vec![0x5a; 70_000 / GRAIN as usize * GRAIN as usize];
    write(&*process.buffer, AREA_BYTES, &bytes).expect("written");
    assert_eq!(read(&*machine.media, AREA_BYTES, 4), [0; 4], "it waits");
    (process, bytes)
}

#[test]
fn what_waits_is_found_by_its_own_member_and_by_no_copy() {
    let mut machine = machine_of(1);
    let (process, bytes) = with_something_that_waits(&mut machine);
    machine.kill(process);
    let media = Arc::new(machine.media.fork());
    media.set_identity(99);
    let memories = machine.memories.fork(&media);
    let mut copy = Machine { media, memories, ..machine_of(1) };
    let of_copy = copy.start(0);
    let found = of_copy.buffer.found();
    assert!(matches!(found, Found::Lost(why) if why.contains("another file")), "{found:?}");
    drop(of_copy);
    assert_eq!(copy.start(0).buffer.found(), &Found::Nothing, "it is told once");
    let again = machine.start(0);
    assert_eq!(again.buffer.found(), &Found::Written(bytes.len() as u64));
    assert_eq!(read(&*machine.media, AREA_BYTES, bytes.len()), bytes);
    assert_eq!(machine.memories.count(), 0, "it is needed no more");
}

#[test]
fn a_memory_that_is_gone_is_told_of_and_so_is_another_start_of_the_machine() {
    for is_restarted in [false, true] {
        let mut machine = machine_of(2);
        let (process, _) = with_something_that_waits(&mut machine);
        machine.kill(process);
        match is_restarted {
            true => machine.memories.cut(),
            false => machine.memories.clear(),
        }
        let process = machine.start(4);
        match process.buffer.found() {
            Found::Restarted if is_restarted => {}
            Found::Lost(why) if !is_restarted && why.contains("not there") => {}
            found => panic!("{found:?}"),
        }
        assert_eq!(read(&*process.buffer, AREA_BYTES, 4), [0; 4]);
        process.all.tick();
        assert_eq!(machine.memories.count(), 1, "another one is in use");
        drop(process);
        assert_eq!(
            (machine.memories.count(), machine.start(0).buffer.found()),
            (0, &Found::Nothing)
        );
    }
}

#[test]
fn after_a_write_that_failed_reads_go_on_and_a_start_has_all_of_it() {
    let mut machine = machine_of(3);
    let (process, bytes) = with_something_that_waits(&mut machine);
    machine.media.fail(Failure::once(Op::Write));
    process.buffer.sync().expect_err("the write fails");
    process.buffer.sync().expect_err("a sync after it says nothing of what failed");
    write(&*process.buffer, AREA_BYTES + PIECE_BYTES, &bytes).expect_err("writes are refused");
    process.buffer.write_durable(0, &[IoSlice::new(&[1; 512])]).expect_err("these as well");
    assert!(!process.all.write_some() && process.all.tick(), "it is not tried again");
    assert_eq!(read(&*process.buffer, AREA_BYTES, bytes.len()), bytes);
    drop(process);
    assert_eq!(machine.memories.count(), 1, "it was not written");
    let again = machine.start(4);
    assert_eq!(again.buffer.found(), &Found::Written(bytes.len() as u64));
    assert_eq!(read(&*machine.media, AREA_BYTES, bytes.len()), bytes);
}

#[test]
fn what_was_not_allocated_or_finds_no_slot_goes_to_the_media() {
    let mut machine = machine_of(4);
    let (process, bytes) = with_something_that_waits(&mut machine);
    for piece in 1..PIECES {
        let at = AREA_BYTES + piece * PIECE_BYTES;
        if piece > 1 {
            process.buffer.allocate(at, PIECE_BYTES).expect("there is space");
        }
        write(&*process.buffer, at, &bytes).expect("written");
        // Three of the four slots are left, for what was allocated.
        let waits = (2..5).contains(&piece);
        assert_eq!(read(&*machine.media, at, 4) == [0; 4], waits, "{piece}");
        assert_eq!(read(&*process.buffer, at, bytes.len()), bytes);
    }
    process.buffer.sync().expect("synced");
    let at = AREA_BYTES + 5 * PIECE_BYTES;
    write(&*process.buffer, at, &[7; 128]).expect("a slot that has nothing to be written");
    assert_eq!(read(&*process.buffer, at, 130), [vec![7; 128], vec![0x5a; 2]].concat());
    assert_eq!(read(&*machine.media, at, 1), [0x5a], "it waits");
}

#[test]
fn a_memory_that_somebody_removes_has_nothing_that_waits_any_more() {
    let mut machine = machine_of(5);
    let (process, bytes) = with_something_that_waits(&mut machine);
    machine.memories.clear();
    assert!(process.all.tick(), "it waits still");
    while process.all.write_some() {}
    assert_eq!(read(&*machine.media, AREA_BYTES, bytes.len()), bytes, "a kill takes nothing");
    write(&*process.buffer, AREA_BYTES + bytes.len() as u64, &[3; 256]).expect("written");
    assert_eq!(read(&*machine.media, AREA_BYTES + bytes.len() as u64, 256), [3; 256]);
    let status = process.all.status().swap_remove(0);
    assert!(!status.is_used && status.off.is_some_and(|why| why.contains("removed")));
    assert!(!process.all.tick() && !process.all.write_some(), "nothing waits");
    machine.kill(process);
    assert_eq!(machine.start(0).buffer.found(), &Found::Nothing, "nothing was lost");
}

/// A labelled file under a write buffer, where there can be one.
fn over_a_file(
    bytes: u64,
    slots: u64,
) -> Option<(tempfile::TempDir, WriteBuffers, Arc<WriteBuffer>)> {
    let folder = tempfile::tempdir().expect("a folder");
    let media = env::FileMedia::create(&folder.path().join("member"), bytes).expect("made");
    let mut area = vec![0; 1 << 16];
    machine_of(1).media.read_at(0, &mut area).expect("a label");
    media.write_at(0, &[IoSlice::new(&area)]).expect("labelled");
    let memories = Box::new(env::Tmpfs::new(std::path::Path::new("/dev/shm")));
    let all = WriteBuffers::new(memories, Box::new(env::RealEntropy::default()));
    all.set_memory_bytes(slots * PIECE_BYTES);
    let buffer = all.over(Arc::new(media)).expect("opened");
    all.tick();
    if let Some(why) = all.status()[0].off.clone() {
        println!("no write buffer here: {why}");
        return None;
    }
    buffer.allocate(AREA_BYTES, bytes - AREA_BYTES).expect("there is space");
    Some((folder, all, buffer))
}

#[test]
fn a_read_sees_what_somebody_else_wrote_to_the_file() {
    let over = over_a_file(AREA_BYTES + 2 * PIECE_BYTES, 2);
    let Some((folder, all, buffer)) = over else { return };
    write(&*buffer, AREA_BYTES, &[1; 128]).expect("written");
    while all.grow() {}
    write(&*buffer, AREA_BYTES, &[1; 8192]).expect("written");
    buffer.sync().expect("synced");
    let file = std::fs::File::options().write(true).open(folder.path().join("member"));
    let file = file.expect("it is there");
    for byte in 2..40 {
        assert_eq!(read(&*buffer, AREA_BYTES + 4096, 2), [byte - 1; 2]);
        std::os::unix::fs::FileExt::write_all_at(&file, &[byte; 2], AREA_BYTES + 4096)
            .expect("written");
        assert_eq!(read(&*buffer, AREA_BYTES + 4096, 2), [byte; 2]);
        // In the slot again.
        write(&*buffer, AREA_BYTES, &[byte; 8192]).expect("written");
        write(&*buffer, AREA_BYTES, &[byte; 8192]).expect("written");
        buffer.sync().expect("synced");
    }
}

/// Threads that write, read, sync, discard and write durably, each in its own part of a file, with
/// threads that write what waits beside them and little memory: pieces are shared by two writers.
#[test]
fn many_threads_over_a_real_file_read_what_they_wrote_last() {
    const PARTS: u64 = 8;
    const PART_BYTES: u64 = 3 * PIECE_BYTES / 2;
    let Some((folder, all, buffer)) = over_a_file(AREA_BYTES + PARTS * PART_BYTES, 7) else {
        return;
    };
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Acquire) {
                    all.write_some();
                    all.tick();
                    all.grow();
                }
            });
        }
        let writers: Vec<_> = (0..PARTS)
            .map(|part| {
                let buffer = &buffer;
                scope.spawn(move || write_and_read(&**buffer, part, PART_BYTES))
            })
            .collect();
        let models = writers.into_iter().map(|writer| writer.join().expect("as written"));
        let models = models.collect();
        is_over.store(true, std::sync::atomic::Ordering::Release);
        models
    });
    let status = all.status().swap_remove(0);
    assert!(status.buffered_bytes > 64 << 20, "{status:?}");
    drop(buffer);
    let file = env::FileMedia::open(&folder.path().join("member")).expect("closed, and open again");
    for (part, model) in (0..).zip(&models) {
        let found = read(&file, AREA_BYTES + part * PART_BYTES, model.len());
        assert!(found == *model, "part {part}");
    }
}

/// Fills a part again and again, and replaces what is in it; what it is at the end.
fn write_and_read(buffer: &dyn Media, part: u64, bytes: u64) -> Vec<u8> {
    let mut random = Random::new(part);
    let base = AREA_BYTES + part * bytes;
    let mut model = vec![0; bytes as usize];
    let mut tail = 0;
    for step in 0..1500_u64 {
        let is_next = random.below(10) < 7;
        let offset = if is_next { tail } else { random.below(bytes) / GRAIN * GRAIN };
        let length = ((1 + random.below(900)) * GRAIN).min(bytes - offset) as usize;
        let range = offset as usize..offset as usize + length;
        match random.below(20) {
            0 => buffer.sync().expect("synced"),
            1 => {
                let bytes_now = [step as u8; 512];
                let slices = [IoSlice::new(&bytes_now)];
                let offset = random.below(bytes - 512);
                buffer.write_durable(base + offset, &slices).expect("durable");
                model[offset as usize..][..512].fill(step as u8);
            }
            2..7 => {
                let found = read(buffer, base + offset, length);
                assert!(found == model[range], "part {part}, step {step}");
            }
            _ => {
                model[range.clone()].fill(step as u8 ^ part as u8);
                write(buffer, base + offset, &model[range]).expect("written");
                tail = (offset + length as u64) % bytes;
            }
        }
    }
    model
}
