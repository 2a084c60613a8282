//! Writes that find no room: they wait beside everything else, and their waiting ends.

use std::io::{IoSlice, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use block::{BlockDevice, MediaDevice};
use env::{FileMedia, RealClock, RealEntropy};
use parking_lot::{Condvar, Mutex};
use units::Moment;
use volume::{Architecture, CacheChange, Machine, Pool, PoolFormat, PoolOptions, Volume, WriteOp};
use wire::nbd::{Command, CommandFlags, ReplyStyle, encode};

use super::client::{Client, data_of, reset};
use super::memory::{DISK, MemoryExports};
use super::pool::{SIZE, spec};
use super::rig::{Rig, eventually, memory};
use crate::attach::Part;
use crate::serving::{Limits, PoolExports};

const MIB: u64 = 1 << 20;
/// The error number of what finds no room.
const NO_SPACE: u32 = 28;
/// That of what is not permitted.
const NOT_PERMITTED: u32 = 1;

/// A device whose reads wait while its gate is closed. Writers read nothing; who makes room does.
struct GatedDevice {
    below: MediaDevice,
    gate: Mutex<Gate>,
    opened: Condvar,
}

#[derive(Default)]
struct Gate {
    is_closed: bool,
    waiting: usize,
}

impl GatedDevice {
    fn set(&self, is_closed: bool) {
        self.gate.lock().is_closed = is_closed;
        self.opened.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.gate.lock().is_closed
    }

    fn waiting(&self) -> usize {
        self.gate.lock().waiting
    }
}

impl BlockDevice for GatedDevice {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> block::Result<()> {
        let mut gate = self.gate.lock();
        gate.waiting += 1;
        while gate.is_closed {
            // A test that failed shall not leave threads behind for ever.
            if self.opened.wait_for(&mut gate, Duration::from_secs(60)).timed_out() {
                break;
            }
        }
        gate.waiting -= 1;
        drop(gate);
        self.below.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> block::Result<()> {
        self.below.write_at(offset, slices)
    }
    fn flush(&self) -> block::Result<()> {
        self.below.flush()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> block::Result<()> {
        self.below.allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> block::Result<()> {
        self.below.discard(offset, length_bytes)
    }
    fn describe(&self) -> String {
        self.below.describe()
    }
}

/// A small pool with volumes `vol` and `other`, served by one data thread.
struct Small {
    rig: Rig,
    pool: Arc<Pool>,
    device: Arc<GatedDevice>,
    _dir: tempfile::TempDir,
}

impl Drop for Small {
    fn drop(&mut self) {
        self.device.set(false);
    }
}

fn small(limits: Limits, cache: CacheChange) -> Small {
    let dir = tempfile::tempdir().expect("directory");
    let media = FileMedia::create(&dir.path().join("pool.img"), 48 * MIB).expect("a file");
    let below = MediaDevice::new(Arc::new(media));
    let device = Arc::new(GatedDevice { below, gate: Mutex::default(), opened: Condvar::new() });
    let machine =
        Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) };
    let below: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    Pool::create(&below, &machine, &PoolFormat { zone_bytes: MIB }).expect("a pool");
    let options = PoolOptions { memory_bytes: 32 << 20 };
    let pool = Pool::open(below, machine, options).expect("it opens");
    for name in ["vol", "other"] {
        pool.create_volume(&spec(name, Architecture::Logging, cache)).expect("a volume");
    }
    let exports = Arc::new(PoolExports::new(Arc::clone(&pool)));
    let rig = Rig::start_on(1, exports, limits, None);
    Small { rig, pool, device, _dir: dir }
}

/// Every cache that a test here is made with.
fn caches() -> [CacheChange; 2] {
    [CacheChange::default(), CacheChange { bytes: Some(1 << 20), dirty_percent: Some(20) }]
}

impl Small {
    fn volume(&self, name: &str) -> Arc<Volume> {
        self.pool.volume(name).expect("it is there")
    }

    fn writes_waiting(&self) -> u64 {
        self.rig.context.counters.writes_waiting.load(Ordering::SeqCst)
    }

    /// Writes over the same bytes until there is an answer no more because `waits`.
    fn write_until(&self, client: &mut Client, length: usize, waits: impl Fn() -> bool) {
        loop {
            let write = client.request(Command::Write, 0, length as u64);
            client.send(&write, &vec![7; length]);
            eventually("an answer, or the wait", || waits() || client.has_reply());
            if waits() {
                return;
            }
            assert_eq!(client.reply(0).error, 0);
        }
    }

    /// Somebody who is no client makes room, and stands at the gate with the right to do so.
    fn hold_up_who_makes_room(&self) -> JoinHandle<()> {
        let volume = self.volume("other");
        let device = Arc::clone(&self.device);
        device.set(true);
        let writer = std::thread::spawn(move || {
            let bytes = vec![3; MIB as usize];
            while device.is_closed() {
                volume.write_batch(&[WriteOp::Data { offset: 0, bytes: &bytes }]).expect("room");
            }
        });
        eventually("room is being made", || self.device.waiting() > 0);
        writer
    }
}

#[test]
fn a_write_that_waits_for_room_keeps_no_other_connection_waiting() {
    for cache in caches() {
        for length in [16 << 10, 64 << 10, 1 << 20] {
            let small = small(Limits::default(), cache);
            let mut writer = Client::begin(&small.rig, "vol", ReplyStyle::Structured);
            let mut reader = Client::begin(&small.rig, "other", ReplyStyle::Structured);
            small.device.set(true);
            small.write_until(&mut writer, length, || small.device.waiting() > 0);
            assert_eq!(reader.read(0, 4096), Ok(vec![0; 4096]), "{length} bytes, {cache:?}");
            eventually("it is counted", || small.writes_waiting() == 1);
            small.device.set(false);
            assert_eq!(writer.reply(0).error, 0, "history makes room");
            assert_eq!(writer.read(0, length), Ok(vec![7; length]));
            assert_eq!(small.writes_waiting(), 0);
            small.pool.verify_invariants().expect("the pool is sound");
        }
    }
}

#[test]
fn a_server_stops_though_a_write_waits_for_room() {
    let limits = Limits { farewell: Duration::from_millis(50), ..Limits::default() };
    let mut small = small(limits, CacheChange::default());
    let mut writer = Client::begin(&small.rig, "vol", ReplyStyle::Structured);
    let other = small.hold_up_who_makes_room();
    small.write_until(&mut writer, 64 << 10, || small.writes_waiting() > 0);
    small.rig.stop();
    assert!(writer.is_closed());
    assert!(small.device.is_closed(), "it did not wait for that");
    small.device.set(false);
    other.join().expect("it got its room");
}

#[test]
fn a_server_stops_though_a_flush_waits_for_room() {
    let limits = Limits { farewell: Duration::from_millis(50), ..Limits::default() };
    let mut small = small(limits, caches()[1]);
    let mut writer = Client::begin(&small.rig, "vol", ReplyStyle::Structured);
    let mut flusher = Client::begin(&small.rig, "vol", ReplyStyle::Structured);
    let other = small.hold_up_who_makes_room();
    small.write_until(&mut writer, 64 << 10, || small.writes_waiting() > 0);
    let flush = flusher.request(Command::Flush, 0, 0);
    flusher.send(&flush, &[]);
    let in_flight = &small.rig.context.counters.jobs_in_flight;
    eventually("it has begun", || in_flight.load(Ordering::SeqCst) == 2);
    let began = Instant::now();
    small.rig.stop();
    assert!(began.elapsed() < Duration::from_secs(20), "nobody waits at the gate for so short");
    assert!(small.device.is_closed(), "it did not wait for that");
    small.device.set(false);
    other.join().expect("it got its room");
    small.pool.verify_invariants().expect("the pool is sound");
}

#[test]
fn a_write_that_waits_for_room_is_given_up_when_its_client_goes() {
    let small = small(Limits::default(), CacheChange::default());
    let mut writer = Client::begin(&small.rig, "vol", ReplyStyle::Structured);
    let other = small.hold_up_who_makes_room();
    small.write_until(&mut writer, 64 << 10, || small.writes_waiting() > 0);
    drop(writer);
    eventually("nothing is left", || small.rig.attached() == 0);
    assert_eq!(small.writes_waiting(), 0);
    assert!(small.device.is_closed(), "there was no room meanwhile");
    small.device.set(false);
    other.join().expect("it got its room");
}

#[test]
fn a_volume_is_deleted_though_a_write_to_it_waits_for_room() {
    let small = small(Limits::default(), CacheChange::default());
    let mut writer = Client::begin(&small.rig, "vol", ReplyStyle::Structured);
    let other = small.hold_up_who_makes_room();
    small.write_until(&mut writer, 64 << 10, || small.writes_waiting() > 0);
    let pool = Arc::clone(&small.pool);
    let deletion = std::thread::spawn(move || pool.delete_volume("vol"));
    small.rig.disconnect();
    small.device.set(false);
    deletion.join().expect("no panic").expect("deleted");
    other.join().expect("it got its room");
    assert!(writer.is_closed(), "answered or not, the session is over");
    eventually("detached", || small.rig.attached() == 0);
    small.pool.verify_invariants().expect("the pool is sound");
}

#[test]
fn a_write_for_which_there_is_no_room_fails_and_the_next_finds_what_a_delete_leaves() {
    for cache in caches() {
        let small = small(Limits::default(), cache);
        let mut writer = Client::begin(&small.rig, "vol", ReplyStyle::Structured);
        let bytes = vec![5; 64 << 10];
        let mut answers =
            (0..SIZE / 65536).map(|place| writer.ask(Command::Write, place * 65536, &bytes));
        assert!(answers.all(|error| error == 0), "a third of the pool");
        small.pool.create_volume(&spec("more", Architecture::Logging, cache)).expect("made");
        let mut more = Client::begin(&small.rig, "more", ReplyStyle::Structured);
        small.volume("vol").create_mark("kept", &Moment::Latest, true).expect("marked");
        let mut writes = (0..SIZE / 65536 * 3).map(|place| {
            let client = if place % 2 == 0 { &mut writer } else { &mut more };
            client.ask(Command::Write, place / 3 * 65536, &bytes)
        });
        assert_eq!(writes.find(|&error| error != 0), Some(NO_SPACE), "live data is not given up");
        assert_eq!(more.ask(Command::Flush, 0, &[]), 0, "what was accepted has its reserve");
        drop(writer);
        eventually("detached", || small.rig.attached() == 0);
        small.pool.delete_volume("vol").expect("deletes need no room");
        assert_eq!(more.ask(Command::Write, 0, &bytes), 0);
        assert_eq!(small.writes_waiting(), 0);
    }
}

/// Sends writes of 100 bytes, each to a block of its own, and awaits no answer.
fn send_parts(client: &mut Client, count: u64) {
    let mut burst = Vec::new();
    for place in 0..count {
        let request = client.request(Command::Write, place * 4096 + 1, 100);
        burst.extend_from_slice(encode::request(&request, client.style.headers()).as_bytes());
        burst.extend([1; 100]);
    }
    client.socket.write_all(&burst).expect("send");
}

#[test]
fn writes_that_wait_for_room_leave_threads_to_others() {
    let exports = MemoryExports::default();
    let disk = Arc::clone(&exports.disk);
    let rig = Rig::start_on(1, Arc::new(exports), Limits::default(), None);
    disk.set_room(0);
    let mut writers: Vec<Client> =
        (0..4).map(|_| Client::begin(&rig, "disk", ReplyStyle::Simple)).collect();
    writers.iter_mut().for_each(|writer| send_parts(writer, 100));
    let waiting = &rig.context.counters.writes_waiting;
    eventually("all of them wait", || waiting.load(Ordering::SeqCst) == 400);
    eventually("some on a thread", || disk.waiting_for_room.load(Ordering::SeqCst) == 8);
    disk.is_cold.store(true, Ordering::SeqCst);
    let mut other = Client::begin(&rig, "disk", ReplyStyle::Simple);
    assert_eq!(other.read(0, 4096), Ok(vec![0; 4096]), "a cold read is a job");
    assert_eq!(other.ask(Command::Flush, 0, &[]), 0);
    disk.set_room(u64::MAX);
    for writer in &mut writers {
        assert!((0..100).all(|_| writer.reply(0).error == 0));
    }
    assert_eq!(waiting.load(Ordering::SeqCst), 0);
    assert_eq!(rig.context.counters.writes_waited.load(Ordering::SeqCst), 400);
}

#[test]
fn a_resize_does_not_wait_behind_writes_that_wait_for_room() {
    let exports = MemoryExports::default();
    let disk = Arc::clone(&exports.disk);
    let rig = Rig::start_on(1, Arc::new(exports), Limits::default(), None);
    disk.set_room(0);
    let mut writers: Vec<Client> =
        (0..9).map(|_| Client::begin(&rig, "disk", ReplyStyle::Simple)).collect();
    writers.iter_mut().for_each(|writer| send_parts(writer, 1));
    let waiting = &rig.context.counters.writes_waiting;
    eventually("all of them wait", || waiting.load(Ordering::SeqCst) == 9);
    let mut other = Client::begin(&rig, "disk", ReplyStyle::Simple);
    assert_eq!(other.ask_for(Command::Resize, 65 * MIB, 0, &[]), 0);
    disk.set_room(u64::MAX);
    assert!(writers.iter_mut().all(|writer| writer.reply(0).error == 0));
}

#[test]
fn a_resize_to_less_is_refused_though_the_other_client_came_while_it_waited() {
    let exports = MemoryExports::default();
    let disk = Arc::clone(&exports.disk);
    let rig = Rig::start_on(1, Arc::new(exports), Limits::default(), None);
    disk.close_gate();
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    for size in [65 * MIB, MIB] {
        let resize = client.request(Command::Resize, size, 0);
        client.send(&resize, &[]);
    }
    let in_flight = &rig.context.counters.jobs_in_flight;
    eventually("both have come", || in_flight.load(Ordering::SeqCst) == 2);
    let _other = Client::begin(&rig, "disk", ReplyStyle::Simple);
    disk.open_gate();
    // The answers may come in either order, the resizes do not.
    let mut answers = [(); 2].map(|()| client.reply(0)).map(|reply| (reply.cookie, reply.error));
    answers.sort_unstable();
    assert_eq!(answers, [(1, 0), (2, NOT_PERMITTED)]);
    assert_eq!(disk.bytes.lock().len() as u64, 65 * MIB);
}

#[test]
fn nobody_attaches_while_a_client_makes_its_disk_smaller() {
    let exports = MemoryExports::default();
    let disk = Arc::clone(&exports.disk);
    let rig = Rig::start_on(1, Arc::new(exports), Limits::default(), None);
    disk.close_gate();
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    let resize = client.request(Command::Resize, MIB, 0);
    client.send(&resize, &[]);
    eventually("it is on its way", || disk.waiting.load(Ordering::SeqCst) == 1);
    let attach = || rig.context.attachments.attach(DISK, Part::Present, "another");
    assert!(attach().is_none());
    disk.open_gate();
    assert_eq!(client.reply(0).error, 0);
    eventually("it is open again", || attach().is_some());
}

#[test]
fn a_resize_that_has_no_thread_yet_is_given_up_when_its_client_goes() {
    let exports = MemoryExports::default();
    let disk = Arc::clone(&exports.disk);
    let rig = Rig::start_on(1, Arc::new(exports), Limits::default(), None);
    let begin = || Client::connect_tcp(&rig).at_export("disk", ReplyStyle::Simple, &[]);
    let (mut reader, mut client, mut other) = (begin(), begin(), begin());
    disk.close_gate();
    disk.is_cold.store(true, Ordering::SeqCst);
    for _ in 0..64 {
        let read = reader.request(Command::Read, 0, 4096);
        reader.send(&read, &[]);
    }
    eventually("they have all threads", || disk.waiting.load(Ordering::SeqCst) == 64);
    let resize = client.request(Command::Resize, 65 * MIB, 0);
    client.send(&resize, &[]);
    let in_flight = &rig.context.counters.jobs_in_flight;
    eventually("it has come", || in_flight.load(Ordering::SeqCst) == 65);
    reset(client);
    for _ in 0..2 {
        assert_eq!(other.ask(Command::Write, 0, &[1; 4096]), 0, "its data thread saw that");
    }
    disk.open_gate();
    eventually("it is gone", || rig.attached() == 2);
    assert_eq!(disk.bytes.lock().len() as u64, 64 * MIB);
    assert!((0..64).all(|_| reader.reply(4096).error == 0));
}

#[test]
fn writes_that_wait_for_room_leave_buffers_to_others() {
    let exports = MemoryExports::default();
    let disk = Arc::clone(&exports.disk);
    let rig = Rig::start_on(1, Arc::new(exports), Limits::default(), None);
    disk.set_room(0);
    let senders: Vec<JoinHandle<()>> = (0..6_u64)
        .map(|number| {
            let mut writer = Client::begin(&rig, "disk", ReplyStyle::Simple);
            std::thread::spawn(move || {
                let mut socket = writer.socket.try_clone().expect("a socket");
                let mut burst = Vec::new();
                for place in 0..32 {
                    let at = ((number * 32 + place) % 64) << 20;
                    let write = writer.request(Command::Write, at, 1 << 20);
                    let header = encode::request(&write, writer.style.headers());
                    burst.extend_from_slice(header.as_bytes());
                    burst.resize(burst.len() + (1 << 20), 4);
                }
                let sender = std::thread::spawn(move || socket.write_all(&burst).expect("send"));
                assert!((0..32).all(|_| writer.reply(0).error == 0));
                sender.join().expect("all is sent");
            })
        })
        .collect();
    let waiting = &rig.context.counters.writes_waiting;
    eventually("they have all buffers", || waiting.load(Ordering::SeqCst) == 48);
    disk.is_cold.store(true, Ordering::SeqCst);
    let mut reader = Client::begin(&rig, "disk", ReplyStyle::Simple);
    for _ in 0..4 {
        assert_eq!(reader.read(0, 1 << 20), Ok(vec![0; 1 << 20]));
    }
    disk.set_room(u64::MAX);
    senders.into_iter().for_each(|sender| sender.join().expect("all is answered"));
    assert!(disk.bytes.lock().iter().all(|&byte| byte == 4));
}

#[test]
fn flushes_that_stand_still_leave_threads_to_reads() {
    let exports = MemoryExports::default();
    let disk = Arc::clone(&exports.disk);
    let rig = Rig::start_on(1, Arc::new(exports), Limits::default(), None);
    disk.close_gate();
    let mut flushers: Vec<Client> =
        (0..70).map(|_| Client::begin(&rig, "disk", ReplyStyle::Simple)).collect();
    for flusher in &mut flushers {
        let flush = flusher.request(Command::Flush, 0, 0);
        flusher.send(&flush, &[]);
    }
    let in_flight = &rig.context.counters.jobs_in_flight;
    eventually("all have come", || in_flight.load(Ordering::SeqCst) == 70);
    eventually("most stand still", || disk.waiting.load(Ordering::SeqCst) == 47);
    disk.is_cold.store(true, Ordering::SeqCst);
    disk.reads_pass_gate.store(true, Ordering::SeqCst);
    let mut reader = Client::begin(&rig, "disk", ReplyStyle::Simple);
    assert_eq!(reader.read(0, 4096), Ok(vec![0; 4096]));
    disk.open_gate();
    assert!(flushers.iter_mut().all(|flusher| flusher.reply(0).error == 0));
}

#[test]
fn writes_that_wait_are_given_up_with_their_session() {
    let limits = Limits { farewell: Duration::from_millis(50), ..Limits::default() };
    let exports = MemoryExports::default();
    let disk = Arc::clone(&exports.disk);
    let mut rig = Rig::start_on(1, Arc::new(exports), limits, None);
    disk.set_room(0);
    let mut parts = Client::begin(&rig, "disk", ReplyStyle::Simple);
    send_parts(&mut parts, 50);
    let mut whole = Client::begin(&rig, "disk", ReplyStyle::Simple);
    let write = whole.request(Command::Write, 1 << 20, 4096);
    whole.send(&write, &[9; 4096]);
    let waiting = &rig.context.counters.writes_waiting;
    eventually("all of them wait", || waiting.load(Ordering::SeqCst) == 51);
    rig.disconnect();
    assert!(parts.is_closed() && whole.is_closed());
    eventually("nothing is left", || rig.attached() == 0);
    eventually("nothing waits", || waiting.load(Ordering::SeqCst) == 0);
    assert!(disk.bytes.lock().iter().all(|&byte| byte == 0), "nothing was written");
    let mut again = Client::begin(&rig, "disk", ReplyStyle::Simple);
    let write = again.request(Command::Write, 1 << 20, 4096);
    again.send(&write, &[9; 4096]);
    eventually("it waits", || waiting.load(Ordering::SeqCst) == 1);
    rig.stop();
    assert!(again.is_closed());
}

#[test]
fn what_comes_behind_a_write_that_waits_is_carried_out_after_it() {
    for style in [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended] {
        let (rig, disk) = memory();
        let mut client = Client::begin(&rig, "disk", style);
        // Room for the first write and a part of the second.
        disk.set_room(6000);
        let mut burst = Vec::new();
        let mut sent = Vec::new();
        for place in 0..4_u64 {
            let mut write = client.request(Command::Write, place * 4096, 4096);
            if place == 3 {
                write.flags = CommandFlags(write.flags.0 | CommandFlags::FUA.0);
            }
            burst.extend_from_slice(encode::request(&write, style.headers()).as_bytes());
            burst.extend([place as u8 + 1; 4096]);
            sent.push(write.cookie);
        }
        let read = client.request(Command::Read, 4096, 4096);
        burst.extend_from_slice(encode::request(&read, style.headers()).as_bytes());
        client.socket.write_all(&burst).expect("send");
        let waiting = &rig.context.counters.writes_waiting;
        eventually("they wait", || waiting.load(Ordering::SeqCst) > 0);
        assert_eq!(disk.flushes.load(Ordering::SeqCst), 0);
        disk.set_room(u64::MAX);
        // The read may come before the answer to FUA, but not before what it reads was written.
        sent.push(read.cookie);
        while !sent.is_empty() {
            let is_read = style == ReplyStyle::Simple && client.peek_cookie() == read.cookie;
            let reply = client.reply(if is_read { 4096 } else { 0 });
            let place = sent.iter().position(|&cookie| cookie == reply.cookie);
            sent.remove(place.expect("each is answered once"));
            match reply.cookie == read.cookie {
                true => assert_eq!(data_of(reply, 4096, 4096), Ok(vec![2; 4096])),
                false => assert_eq!(reply.error, 0),
            }
        }
        assert_eq!(disk.flushes.load(Ordering::SeqCst), 1);
        let whole = client.read(0, 4 * 4096).expect("it reads");
        assert!(whole.chunks(4096).zip(1..).all(|(block, byte)| block == [byte; 4096]));
    }
}

#[test]
fn writes_of_all_lengths_arrive_however_room_comes() {
    let (rig, disk) = memory();
    disk.set_room(0);
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    let lengths = [512, 4096, 65536, 300_000, 8192, 1000, 1 << 20, 4096, 20_480, 262_144, 262_145];
    let mut socket = client.socket.try_clone().expect("a socket");
    let mut offset = 0;
    let mut expected = Vec::new();
    let mut burst = Vec::new();
    for (number, length) in lengths.iter().cycle().take(60).enumerate() {
        let write = client.request(Command::Write, offset, *length as u64);
        burst.extend_from_slice(encode::request(&write, client.style.headers()).as_bytes());
        let bytes = vec![number as u8 + 1; *length];
        burst.extend_from_slice(&bytes);
        expected.extend_from_slice(&bytes);
        // The next begins where a block does, as a rule.
        offset += (*length as u64).next_multiple_of(4096);
        expected.resize(offset as usize, 0);
    }
    let sender = std::thread::spawn(move || socket.write_all(&burst).expect("send"));
    let giver = Arc::clone(&disk);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let giving = std::thread::spawn(move || {
        for portion in (1..).map(|turn: u64| turn * 7919 % 100_000) {
            giver.set_room(portion);
            if over.load(Ordering::SeqCst) {
                return;
            }
            std::thread::yield_now();
        }
    });
    assert!((0..60).all(|_| client.reply(0).error == 0));
    is_over.store(true, Ordering::SeqCst);
    sender.join().expect("all is sent");
    giving.join().expect("it ends");
    assert!(disk.bytes.lock()[..expected.len()] == expected);
    assert_eq!(rig.context.counters.writes_waiting.load(Ordering::SeqCst), 0);
}
