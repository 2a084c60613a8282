//! Clients that are broken or mean: the server answers or ends that connection, and serves the
//! others.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wire::nbd::{ClientFlags, Command, CommandFlags, ReplyStyle, Request, encode};

use super::client::Client;
use super::memory::SIZE;
use super::rig::{Rig, eventually, memory, memory_with};
use crate::buffers::BUFFERS_BYTES_DEFAULT;
use crate::serving::Limits;

/// Numbers from a seed: the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

fn still_serves(rig: &Rig) {
    let mut client = Client::begin(rig, "disk", ReplyStyle::Structured);
    assert_eq!(client.ask(Command::Write, 0, &[3; 512]), 0);
    assert_eq!(client.read(0, 512), Ok(vec![3; 512]));
}

fn all_gone(rig: &Rig) {
    let open = &rig.context.counters.connections_open;
    eventually("all connections end", || open.load(Ordering::SeqCst) == 0);
    assert_eq!(rig.attached(), 0);
}

#[test]
fn random_bytes_harm_nobody() {
    let (rig, _) = memory();
    let mut random = Random(0x5eed);
    for _ in 0..100 {
        let mut socket = UnixStream::connect(&rig.socket).expect("connect");
        let length = random.next() as usize % 2000;
        // The server may have hung up already.
        let _ = socket.write_all(&random.bytes(length));
    }
    all_gone(&rig);
    still_serves(&rig);
}

#[test]
fn damaged_requests_harm_nobody() {
    let (rig, _) = memory();
    let mut random = Random(0xdead);
    for round in 0..100_u64 {
        let style =
            [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended][round as usize % 3];
        let mut client = Client::begin(&rig, "disk", style);
        let mut bytes = Vec::new();
        for _ in 0..20 {
            let command = Command::from_number((random.next() % 10) as u16);
            if command == Command::Resize {
                continue;
            }
            let mut request = client.request(command, random.next() % SIZE, random.next() % 9000);
            if random.next().is_multiple_of(4) {
                request.flags = CommandFlags(random.next() as u16);
            }
            let header = encode::request(&request, style.headers());
            bytes.extend_from_slice(header.as_bytes());
            let payload = request.payload_bytes(style.headers());
            bytes.extend(random.bytes(payload as usize));
        }
        for _ in 0..round % 4 {
            let at = random.next() as usize % bytes.len();
            bytes[at] = random.next() as u8;
        }
        bytes.truncate(bytes.len() - random.next() as usize % 3000 % bytes.len());
        let _ = client.socket.write_all(&bytes);
        let _ = client.socket.shutdown(std::net::Shutdown::Write);
        assert!(client.is_closed());
    }
    all_gone(&rig);
    still_serves(&rig);
}

#[test]
fn a_client_that_vanishes_leaves_nothing_behind() {
    let (rig, disk) = memory();
    disk.close_gate();
    disk.is_cold.store(true, Ordering::SeqCst);
    for part in [0, 10, 28, 29, 4000, 300_000] {
        let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
        let read = client.request(Command::Read, 0, 4096);
        client.send(&read, &[]);
        let write = client.request(Command::Write, 0, 1 << 20);
        let mut bytes = encode::request(&write, client.style.headers()).as_bytes().to_vec();
        bytes.extend(vec![5; 1 << 20]);
        client.socket.write_all(&bytes[..part]).expect("send");
    }
    eventually("cold reads wait", || disk.waiting.load(Ordering::SeqCst) == 6);
    disk.open_gate();
    disk.is_cold.store(false, Ordering::SeqCst);
    all_gone(&rig);
    assert_eq!(disk.batches.load(Ordering::SeqCst), 0, "half a write is no write");
    still_serves(&rig);
}

#[test]
fn huge_lengths_end_the_connection_or_are_refused() {
    let (rig, _) = memory();
    let huge = Request {
        flags: CommandFlags(0),
        command: Command::Write,
        cookie: 1,
        offset: 0,
        length_bytes: u64::from(u32::MAX),
    };
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    client.send(&huge, &[]);
    assert!(client.is_closed());
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Extended);
    let flags = CommandFlags::PAYLOAD_LEN;
    client.send(&Request { flags, length_bytes: u64::MAX, ..huge }, &[]);
    assert!(client.is_closed());
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Extended);
    assert_eq!(client.ask_for(Command::Trim, 1, u64::MAX, &[]), 22);
    assert_eq!(client.ask_for(Command::Cache, u64::MAX, u64::MAX, &[]), 22);
    assert_eq!(client.read(0, 1), Ok(vec![0]));
    all_gone_but_one(&rig);
}

fn all_gone_but_one(rig: &Rig) {
    let open = &rig.context.counters.connections_open;
    eventually("the others end", || open.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_connection_ends_whole_though_its_client_sent_more_than_is_read() {
    // Longer than a test waits for anything.
    let limits = Limits { farewell: Duration::from_secs(60), ..Limits::default() };
    let (rig, disk) = memory_with(limits);
    disk.bytes.lock().fill(5);
    for client in [Client::connect(&rig), Client::connect_tcp(&rig)] {
        let mut client = client.at_export("disk", ReplyStyle::Simple, &[]);
        let read = client.request(Command::Read, 0, 4096);
        let mut sent = encode::request(&read, client.style.headers()).as_bytes().to_vec();
        // No request begins so.
        sent.resize(4 << 20, 0xee);
        let mut socket = client.socket.try_clone().expect("a socket");
        let sender = std::thread::spawn(move || {
            socket.write_all(&sent)?;
            socket.shutdown(Shutdown::Write)
        });
        assert_eq!(client.reply(4096).payload, [5; 4096]);
        let mut rest = Vec::new();
        client.socket.read_to_end(&mut rest).expect("it is not reset");
        assert!(rest.is_empty());
        sender.join().expect("no panic").expect("all is taken");
    }
}

#[test]
fn a_client_that_never_stops_sending_is_not_listened_to_for_ever() {
    let limits = Limits { farewell: Duration::from_secs(60), ..Limits::default() };
    let (rig, _) = memory_with(limits);
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    let garbage = vec![0xee; 1 << 20];
    let sent = (0..1024).take_while(|_| client.socket.write_all(&garbage).is_ok()).count();
    assert!((64..80).contains(&sent), "{sent} MiB");
    all_gone(&rig);
}

#[test]
fn a_slow_handshake_is_cut_off() {
    let limits = Limits { handshake_step: Duration::from_millis(50), ..Limits::default() };
    let (rig, _) = memory_with(limits);
    let mut silent = UnixStream::connect(&rig.socket).expect("connect");
    let mut half = UnixStream::connect(&rig.socket).expect("connect");
    // On a busy machine it may be over before anything is sent.
    let flags = encode::client_flags(ClientFlags { fixed_newstyle: true, no_zeroes: true });
    let _ = half.write_all(&[&flags[..], b"IHAVE"].concat());
    silent.read_to_end(&mut Vec::new()).expect("closed");
    // A reset is the answer to what was sent and not read.
    let _ = half.read_to_end(&mut Vec::new());
    let failed = &rig.context.counters.handshakes_failed;
    eventually("both are counted", || failed.load(Ordering::SeqCst) == 2);
}

#[test]
fn a_session_may_be_silent_for_longer_than_a_handshake() {
    // Longer than the handshakes of a busy machine.
    let limits = Limits { handshake_step: Duration::from_secs(2), ..Limits::default() };
    let (rig, _) = memory_with(limits);
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    let mut silent = UnixStream::connect(&rig.socket).expect("connect");
    silent.read_to_end(&mut Vec::new()).expect("closed");
    assert_eq!(client.read(0, 1), Ok(vec![0]));
}

#[test]
fn connections_beyond_the_limit_are_closed_at_once() {
    let limits = Limits { connections_max: 3, ..Limits::default() };
    let (rig, _) = memory_with(limits);
    let clients: Vec<Client> =
        (0..3).map(|_| Client::begin(&rig, "disk", ReplyStyle::Simple)).collect();
    let mut refused = UnixStream::connect(&rig.socket).expect("connect");
    assert_eq!(refused.read_to_end(&mut Vec::new()).expect("closed"), 0);
    drop(clients);
    all_gone(&rig);
    still_serves(&rig);
}

#[test]
fn thousands_of_connections_come_and_go() {
    let (rig, _) = memory();
    for round in 0..2000 {
        if round % 4 == 0 {
            drop(Client::begin(&rig, "disk", ReplyStyle::Simple));
        } else {
            drop(UnixStream::connect(&rig.socket).expect("connect"));
        }
    }
    all_gone(&rig);
    still_serves(&rig);
}

#[test]
fn a_client_that_takes_no_replies_is_not_read_from() {
    let (rig, disk) = memory();
    disk.bytes.lock().fill(1);
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    client.socket.set_nonblocking(true).expect("set");
    let request = client.request(Command::Read, 0, 128 << 10);
    let header = encode::request(&request, client.style.headers());
    // The server must stop to take requests long before 2 GiB of replies are owed.
    let sent = (0..16 << 10).take_while(|_| client.socket.write_all(header.as_bytes()).is_ok());
    let sent = sent.count();
    eventually("the server stops to read", || {
        let turns = rig.context.counters.requests.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        turns == rig.context.counters.requests.load(Ordering::SeqCst)
    });
    let taken = rig.context.counters.requests.load(Ordering::SeqCst);
    assert!(taken < 64, "{taken} of {sent} requests were taken");
    still_serves(&rig);
}

#[test]
fn bytes_in_flight_are_bounded() {
    let limits = Limits { in_flight_bytes_max: 1 << 20, ..Limits::default() };
    let (rig, disk) = memory_with(limits);
    disk.is_cold.store(true, Ordering::SeqCst);
    disk.close_gate();
    let mut client = Client::begin(&rig, "disk", ReplyStyle::Simple);
    for _ in 0..32 {
        let request = client.request(Command::Read, 0, 256 << 10);
        client.send(&request, &[]);
    }
    eventually("as many as allowed", || disk.waiting.load(Ordering::SeqCst) == 4);
    disk.open_gate();
    for _ in 0..32 {
        assert_eq!(client.reply(256 << 10).error, 0);
    }
    // A single request may be larger than the limit.
    assert_eq!(client.read(0, 2 << 20), Ok(vec![0; 2 << 20]));
}

/// Clients that ask for much and take nothing hold the buffers there are, and no more; who asks for
/// little is served beside them, and who asks for much when they are gone.
#[test]
fn clients_that_take_no_replies_hold_the_buffers_and_no_more() {
    let (rig, disk) = memory();
    disk.bytes.lock().fill(1);
    disk.is_cold.store(true, Ordering::SeqCst);
    let mut greedy: Vec<Client> =
        (0..4).map(|_| Client::begin(&rig, "disk", ReplyStyle::Simple)).collect();
    // A connection that is owed a reply takes no more requests: no reply before all are asked for.
    // All have begun: what stands at the gate may leave no thread to open an export.
    disk.close_gate();
    for client in &mut greedy {
        for _ in 0..100 {
            let request = client.request(Command::Read, 0, 256 << 10);
            client.send(&request, &[]);
        }
    }
    let buffers = &rig.context.buffers;
    eventually("the buffers of that size are held", || buffers.waits() > 0);
    assert!(buffers.held_bytes() <= BUFFERS_BYTES_DEFAULT);
    disk.open_gate();
    let mut modest = Client::begin(&rig, "disk", ReplyStyle::Simple);
    assert_eq!(modest.read(0, 4096), Ok(vec![1; 4096]));
    assert_eq!(modest.read(4096, 64 << 10), Ok(vec![1; 64 << 10]));
    assert_eq!(modest.ask(Command::Write, 512, &[2; 512]), 0);
    drop(greedy);
    assert_eq!(modest.read(0, 256 << 10).map(|bytes| bytes.len()), Ok(256 << 10));
    assert_eq!(modest.read(0, 32 << 20).map(|bytes| bytes.len()), Ok(32 << 20));
    drop(modest);
    all_gone(&rig);
    assert_eq!(buffers.held_bytes(), 0, "every buffer comes back");
}

/// Two clients want more than there is, and take no answers or send no data: those behind them in
/// the line are served once the first is given up. Nobody is while nobody waits.
#[test]
fn clients_that_move_nothing_keep_nobody_waiting_for_ever() {
    const LONGEST: u64 = 32 << 20;
    let stall = Duration::from_millis(500);
    for command in [Command::Read, Command::Write] {
        let (rig, disk) = memory_with(Limits { stall, ..Limits::default() });
        disk.is_cold.store(true, Ordering::SeqCst);
        let mut greedy: Vec<Client> =
            (0..2).map(|_| Client::begin(&rig, "disk", ReplyStyle::Simple)).collect();
        let ask = |client: &mut Client| {
            let request = client.request(command, 0, LONGEST);
            let header = encode::request(&request, client.style.headers());
            client.socket.write_all(header.as_bytes()).expect("send");
        };
        let open = || rig.context.counters.connections_open.load(Ordering::SeqCst);
        ask(&mut greedy[0]);
        eventually("the first has its buffers", || rig.context.buffers.held_bytes() > 30 << 20);
        std::thread::sleep(3 * stall);
        assert_eq!(open(), 2, "nobody waits for what it holds");
        ask(&mut greedy[1]);
        eventually("the second waits", || rig.context.buffers.waits() > 0);
        let mut patient = Client::begin(&rig, "disk", ReplyStyle::Simple);
        assert_eq!(patient.ask(Command::Write, 0, &[7; 256 << 10]), 0);
        assert_eq!(patient.read(0, 256 << 10), Ok(vec![7; 256 << 10]));
        eventually("one was given up", || open() < 3);
        let stalled = &rig.context.counters.clients_stalled;
        assert!(stalled.load(Ordering::SeqCst) >= 1);
        drop((greedy, patient));
        all_gone(&rig);
    }
}

/// One that takes a little of its answer again and again is served to the end, though others wait.
#[test]
fn a_client_that_is_only_slow_is_served_while_others_wait() {
    let stall = Duration::from_millis(300);
    let (rig, disk) = memory_with(Limits { stall, ..Limits::default() });
    disk.bytes.lock().fill(1);
    disk.is_cold.store(true, Ordering::SeqCst);
    let mut slow = Client::begin(&rig, "disk", ReplyStyle::Simple);
    let mut other = Client::begin(&rig, "disk", ReplyStyle::Simple);
    for client in [&mut slow, &mut other] {
        let request = client.request(Command::Read, 0, 32 << 20);
        client.send(&request, &[]);
    }
    eventually("one of them waits", || rig.context.buffers.waits() > 0);
    let mut head = [0; 16];
    slow.socket.read_exact(&mut head).expect("an answer");
    let mut piece = vec![0; 1 << 20];
    for _ in 0..32 {
        std::thread::sleep(stall / 5);
        slow.socket.read_exact(&mut piece).expect("it is not given up");
        assert!(piece.iter().all(|&byte| byte == 1));
    }
}

#[test]
fn jobs_of_all_connections_are_bounded_and_each_connection_has_one() {
    let limits = Limits { in_flight_total_max: 8, ..Limits::default() };
    let (rig, disk) = memory_with(limits);
    disk.is_cold.store(true, Ordering::SeqCst);
    disk.close_gate();
    let mut clients: Vec<Client> =
        (0..4).map(|_| Client::begin(&rig, "disk", ReplyStyle::Simple)).collect();
    for client in &mut clients {
        for _ in 0..20 {
            let request = client.request(Command::Read, 0, 4096);
            client.send(&request, &[]);
        }
    }
    eventually("as many as allowed", || disk.waiting.load(Ordering::SeqCst) >= 8);
    std::thread::sleep(Duration::from_millis(50));
    let in_flight = rig.context.counters.jobs_in_flight.load(Ordering::SeqCst);
    assert!(in_flight < 8 + 4, "{in_flight}");
    disk.open_gate();
    for client in &mut clients {
        for _ in 0..20 {
            assert_eq!(client.reply(4096).error, 0);
        }
    }
    eventually("none", || rig.context.counters.jobs_in_flight.load(Ordering::SeqCst) == 0);
}

#[test]
fn a_listener_that_is_full_locks_nobody_out_of_another() {
    let limits = Limits { connections_max: 3, ..Limits::default() };
    let (rig, _) = memory_with(limits);
    let at_export = |client: Client| client.at_export("disk", ReplyStyle::Simple, &[]);
    let idle: Vec<Client> = (0..3).map(|_| at_export(Client::connect_tcp(&rig))).collect();
    let mut socket = std::net::TcpStream::connect(rig.tcp).expect("connect");
    assert_eq!(socket.read(&mut [0; 1]).unwrap_or(0), 0, "there are three over TCP");
    let mut own = Client::begin(&rig, "disk", ReplyStyle::Simple);
    assert_eq!(own.ask(Command::Write, 0, &[1]), 0);
    drop(idle);
    eventually("they are gone", || rig.attached() == 1);
    at_export(Client::connect_tcp(&rig));
}
