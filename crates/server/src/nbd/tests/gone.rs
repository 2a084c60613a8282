//! Clients that go away while their writes wait for room: what has not begun is given up.

use std::future::poll_fn;
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use wire::nbd::{Command, ReplyStyle, encode};

use super::client::{Client, reset};
use super::memory::{Disk, MemoryExports};
use super::rig::{Rig, eventually};
use crate::serving::{AHEAD_BYTES_MAX, Connection, End, Limits, Watch};

const BLOCK: u64 = 4096;
/// The error number of what finds no room.
const NO_SPACE: u32 = 28;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Unix,
    Tcp,
}

/// A disk without room, served by one data thread, and a client of it.
struct Waiting {
    /// Gone first: a server that stops waits for it.
    client: Client,
    rig: Rig,
    disk: Arc<Disk>,
}

impl Waiting {
    fn new(over: Over) -> Waiting {
        let exports = MemoryExports::default();
        let disk = Arc::clone(&exports.disk);
        // Longer than a test waits for anything.
        let limits = Limits { farewell: Duration::from_secs(30), ..Limits::default() };
        let rig = Rig::start_on(1, Arc::new(exports), limits, None);
        disk.set_room(0);
        let client = match over {
            Over::Unix => Client::connect(&rig),
            Over::Tcp => Client::connect_tcp(&rig),
        };
        let client = client.at_export("disk", ReplyStyle::Simple, &[]);
        Waiting { rig, disk, client }
    }

    /// Sends a write to each of these blocks, of its number and one.
    fn send(&mut self, blocks: std::ops::Range<u64>) {
        for block in blocks {
            let write = self.client.request(Command::Write, block * BLOCK, BLOCK);
            self.client.send(&write, &vec![block as u8 + 1; BLOCK as usize]);
        }
    }

    /// Sends a write of a part of a block.
    fn send_part(&mut self) {
        let write = self.client.request(Command::Write, 1, 100);
        self.client.send(&write, &[9; 100]);
    }

    fn disconnect(&mut self) {
        let request = self.client.request(Command::Disconnect, 0, 0);
        self.client.send(&request, &[]);
    }

    fn waiting(&self) -> u64 {
        self.rig.context.counters.writes_waiting.load(Ordering::SeqCst)
    }

    fn until_waiting(&self, writes: u64) {
        eventually("they wait", || self.waiting() == writes);
        let on_thread = &self.disk.waiting_for_room;
        eventually("on a thread", || on_thread.load(Ordering::SeqCst) == 1);
    }

    /// One block waits, and others come behind it.
    fn one_waits_and_others_come(&mut self) {
        self.send(0..1);
        self.until_waiting(1);
        self.send(1..4);
    }

    fn is_detached(&self) -> bool {
        self.rig.attached() == 0
    }

    /// Though there is no room: nothing is left, and nothing was written.
    fn comes_to_nothing(self) {
        eventually("given up", || self.is_detached());
        assert_eq!(self.waiting(), 0);
        self.disk.set_room(u64::MAX);
        assert!(self.disk.bytes.lock().iter().all(|&byte| byte == 0), "nothing was written");
    }

    /// Whether the blocks that were sent are on the disk.
    fn has_written(&self, blocks: std::ops::Range<u64>) -> bool {
        let bytes = self.disk.bytes.lock();
        blocks.into_iter().all(|block| bytes[(block * BLOCK) as usize] == block as u8 + 1)
    }
}

#[test]
fn a_write_that_waits_is_given_up_when_its_client_closes() {
    for over in [Over::Unix, Over::Tcp] {
        let mut waiting = Waiting::new(over);
        waiting.one_waits_and_others_come();
        let Waiting { rig, disk, client } = waiting;
        drop(client);
        // Another client in its place, so that the names stay.
        let other = Client::connect(&rig);
        Waiting { rig, disk, client: other }.comes_to_nothing();
    }
}

#[test]
fn a_write_that_waits_is_given_up_when_its_connection_is_reset() {
    for disconnects in [false, true] {
        let mut waiting = Waiting::new(Over::Tcp);
        waiting.send(0..1);
        if disconnects {
            waiting.disconnect();
        }
        waiting.until_waiting(1);
        let Waiting { rig, disk, client } = waiting;
        reset(client);
        let other = Client::connect(&rig);
        Waiting { rig, disk, client: other }.comes_to_nothing();
    }
}

#[test]
fn a_part_of_a_block_that_waits_is_given_up_when_its_client_closes() {
    for over in [Over::Unix, Over::Tcp] {
        let mut waiting = Waiting::new(over);
        waiting.send_part();
        waiting.until_waiting(1);
        let Waiting { rig, disk, client } = waiting;
        drop(client);
        let other = Client::connect(&rig);
        Waiting { rig, disk, client: other }.comes_to_nothing();
    }
}

#[test]
fn a_unix_client_that_only_sends_no_more_gets_its_answers() {
    let mut waiting = Waiting::new(Over::Unix);
    waiting.one_waits_and_others_come();
    waiting.client.socket.shutdown(Shutdown::Write).expect("shut down");
    // Its session goes on until there is room.
    waiting.disk.set_room(BLOCK);
    assert_eq!(waiting.client.reply(0).error, 0);
    waiting.until_waiting(3);
    waiting.disk.set_room(u64::MAX);
    assert!((1..4).all(|_| waiting.client.reply(0).error == 0));
    assert!(waiting.client.is_closed());
    assert!(waiting.has_written(0..4));
}

#[test]
fn a_unix_client_that_sends_no_more_and_then_closes_is_gone() {
    let mut waiting = Waiting::new(Over::Unix);
    waiting.send_part();
    waiting.until_waiting(1);
    waiting.client.socket.shutdown(Shutdown::Write).expect("shut down");
    let Waiting { rig, disk, client } = waiting;
    drop(client);
    let other = Client::connect(&rig);
    Waiting { rig, disk, client: other }.comes_to_nothing();
}

#[test]
fn nothing_waits_for_a_tcp_client_that_sends_no_more() {
    let mut waiting = Waiting::new(Over::Tcp);
    waiting.one_waits_and_others_come();
    waiting.client.socket.shutdown(Shutdown::Write).expect("shut down");
    assert_eq!(waiting.client.reply(0).error, NO_SPACE, "it may be gone altogether");
    assert!(waiting.client.is_closed(), "what came behind is not carried out");
    waiting.comes_to_nothing();
}

#[test]
fn what_finds_room_is_carried_out_for_a_tcp_client_that_sends_no_more() {
    let mut waiting = Waiting::new(Over::Tcp);
    waiting.disk.set_room(u64::MAX);
    waiting.send(0..4);
    waiting.client.socket.shutdown(Shutdown::Write).expect("shut down");
    assert!((0..4).all(|_| waiting.client.reply(0).error == 0));
    assert!(waiting.client.is_closed());
    assert!(waiting.has_written(0..4));
}

#[test]
fn a_client_that_said_goodbye_and_sends_no_more_gets_its_answers() {
    for over in [Over::Unix, Over::Tcp] {
        let mut waiting = Waiting::new(over);
        // In one turn, so that it is read before the write waits.
        let write = waiting.client.request(Command::Write, 0, BLOCK);
        waiting.client.send_last(&write, &[1; BLOCK as usize]);
        waiting.until_waiting(1);
        waiting.client.socket.shutdown(Shutdown::Write).expect("shut down");
        let mut other = Client::begin(&waiting.rig, "disk", ReplyStyle::Simple);
        assert_eq!(other.read(0, 4096), Ok(vec![0; 4096]), "its data thread saw that");
        assert_eq!(waiting.waiting(), 1);
        waiting.disk.set_room(u64::MAX);
        assert_eq!(waiting.client.reply(0).error, 0);
        assert!(waiting.client.is_closed());
        assert!(waiting.has_written(0..1));
    }
}

/// A write waits that nothing came behind, or that came in one piece with what is behind it.
fn with_more_behind(over: Over, is_one_piece: bool) -> Waiting {
    let mut waiting = Waiting::new(over);
    let write = waiting.client.request(Command::Write, 0, BLOCK);
    if is_one_piece {
        // The read makes the turn end before what follows.
        let read = waiting.client.request(Command::Read, 0, BLOCK);
        let last = waiting.client.request(Command::Write, BLOCK, BLOCK);
        let header = |request| encode::request(request, ReplyStyle::Simple.headers());
        let [write, read, last] = [&write, &read, &last].map(header);
        let [first, second] = [1, 2].map(|byte| vec![byte; BLOCK as usize]);
        let all = [write.as_bytes(), &first, read.as_bytes(), last.as_bytes(), &second].concat();
        waiting.client.socket.write_all(&all).expect("send");
    } else {
        waiting.client.send(&write, &[1; BLOCK as usize]);
    }
    waiting.until_waiting(1);
    if !is_one_piece {
        let read = waiting.client.request(Command::Read, 0, BLOCK);
        waiting.client.send(&read, &[]);
        waiting.send(1..2);
    }
    waiting
}

#[test]
fn all_is_carried_out_that_came_before_a_goodbye_behind_a_write_that_waits() {
    for (over, is_one_piece) in
        [(Over::Unix, false), (Over::Tcp, false), (Over::Tcp, true), (Over::Unix, true)]
    {
        let mut waiting = with_more_behind(over, is_one_piece);
        waiting.disconnect();
        waiting.client.socket.shutdown(Shutdown::Write).expect("shut down");
        let mut other = Client::begin(&waiting.rig, "disk", ReplyStyle::Simple);
        assert_eq!(other.read(0, 4096), Ok(vec![0; 4096]), "its data thread saw that");
        assert_eq!(waiting.waiting(), 1, "{over:?}, {is_one_piece}");
        // Room for the first, so that another one waits once the goodbye is known.
        waiting.disk.set_room(BLOCK);
        for _ in 0..2 {
            // In either order. The read was the second request.
            let bytes = if waiting.client.peek_cookie() == 2 { 4096 } else { 0 };
            let reply = waiting.client.reply(bytes);
            assert_eq!((reply.error, reply.payload), (0, vec![1; bytes]));
        }
        waiting.until_waiting(1);
        waiting.disk.set_room(u64::MAX);
        assert_eq!(waiting.client.reply(0).error, 0);
        assert!(waiting.client.is_closed());
        assert!(waiting.has_written(0..2));
    }
}

#[test]
fn a_client_that_said_goodbye_and_resets_is_gone() {
    let mut waiting = with_more_behind(Over::Tcp, false);
    waiting.disconnect();
    waiting.client.socket.shutdown(Shutdown::Write).expect("shut down");
    let mut other = Client::begin(&waiting.rig, "disk", ReplyStyle::Simple);
    assert_eq!(other.read(0, 4096), Ok(vec![0; 4096]), "its data thread saw that");
    drop(other);
    let Waiting { rig, disk, client } = waiting;
    reset(client);
    let other = Client::connect(&rig);
    Waiting { rig, disk, client: other }.comes_to_nothing();
}

#[test]
fn what_only_looks_like_a_goodbye_is_none() {
    for is_one_piece in [false, true] {
        let mut waiting = with_more_behind(Over::Tcp, is_one_piece);
        let write = waiting.client.request(Command::Write, 2 * BLOCK, BLOCK);
        let last = waiting.client.request(Command::Disconnect, 0, 0);
        let header = encode::request(&last, ReplyStyle::Simple.headers());
        let mut payload = vec![0; BLOCK as usize - header.as_bytes().len()];
        payload.extend_from_slice(header.as_bytes());
        waiting.client.send(&write, &payload);
        waiting.client.socket.shutdown(Shutdown::Write).expect("shut down");
        assert_eq!(waiting.client.reply(0).error, NO_SPACE);
        assert!(waiting.client.is_closed());
        waiting.comes_to_nothing();
    }
}

#[test]
fn so_much_is_received_ahead_and_no_more() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("a runtime").block_on(async {
        let (mut client, server) = UnixStream::pair().expect("two ends");
        server.set_nonblocking(true).expect("set");
        let mut connection = Connection::from_unix(server).expect("registered");
        let sent: Vec<u8> = (0..AHEAD_BYTES_MAX + 5000).map(|at| (at % 251) as u8).collect();
        client.write_all(&sent).expect("the kernel takes it");
        drop(client);
        poll_fn(|cx| connection.poll_look_ahead(cx)).await.expect("it ends");
        assert_eq!(connection.ahead(), &sent[..AHEAD_BYTES_MAX]);
        let mut received = Vec::new();
        connection.read_to_end(&mut received).await.expect("all of it");
        assert!(received == sent, "nothing is lost by looking");
    });
}

#[test]
fn a_client_that_goes_while_its_volume_is_taken_away_is_noticed() {
    for over in [Over::Unix, Over::Tcp] {
        let mut waiting = Waiting::new(over);
        waiting.one_waits_and_others_come();
        waiting.rig.disconnect();
        let mut other = Client::connect(&waiting.rig);
        other.choose_style(ReplyStyle::Structured);
        assert_eq!(waiting.waiting(), 1, "it has its farewell");
        let Waiting { rig, disk, client } = waiting;
        drop(client);
        Waiting { rig, disk, client: other }.comes_to_nothing();
    }
}

#[test]
fn requests_behind_one_that_waits_stay_where_they_are() {
    let mut waiting = Waiting::new(Over::Tcp);
    waiting.send(0..1);
    waiting.until_waiting(1);
    let mut socket = waiting.client.socket.try_clone().expect("a socket");
    let mut burst = Vec::new();
    for block in 1..200 {
        let write = waiting.client.request(Command::Write, block * BLOCK, BLOCK);
        burst.extend_from_slice(encode::request(&write, ReplyStyle::Simple.headers()).as_bytes());
        burst.extend(vec![block as u8 + 1; BLOCK as usize]);
    }
    let sender = std::thread::spawn(move || socket.write_all(&burst).expect("send"));
    let mut other = Client::begin(&waiting.rig, "disk", ReplyStyle::Simple);
    assert_eq!(other.read(0, 4096), Ok(vec![0; 4096]));
    waiting.disk.set_room(u64::MAX);
    assert!((0..200).all(|_| waiting.client.reply(0).error == 0));
    sender.join().expect("all is sent");
    assert!(waiting.has_written(0..200));
}

#[test]
fn bytes_that_nobody_receives_wake_who_watches_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    runtime.expect("a runtime").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).expect("connect");
        let (server, _) = listener.accept().expect("accept");
        server.set_nonblocking(true).expect("set");
        let server = tokio::net::TcpStream::from_std(server).expect("registered");
        let connection = Connection::from_tcp(server).expect("set");
        let watch = Watch::new(&connection, End::Silent).expect("watched");
        let mut polls = 0;
        let seen = tokio::spawn(poll_fn(move |cx| {
            polls += 1;
            watch.poll_end(cx).map(|end| end.map(|()| polls))
        }));
        for _ in 0..10 {
            client.write_all(&[1; 4096]).expect("send");
            // Time to be woken again and again.
            for _ in 0..300 {
                tokio::task::yield_now().await;
            }
        }
        drop(client);
        let polls = seen.await.expect("no panic").expect("the end is seen");
        assert!(polls <= 12, "once for each of them, and for the end: {polls}");
    });
}
