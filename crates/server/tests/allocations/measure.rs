//! What requests to a server in this process allocate, by kind and size of request.
//!
//! Counted are the threads that serve NBD: those that receive, and those that may block. What the
//! background thread does meanwhile is not part of a request.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use hindsight_server::{Config, Server, Settings};
use tempfile::TempDir;

use crate::counting::{Allocations, record_stacks, take_stacks};

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
/// Bytes of a reply without data.
const REPLY_BYTES: usize = 16;
const VOLUME_BYTES: u64 = 64 << 20;
/// How the names of threads begin that serve NBD.
const DATA_THREADS: &str = "nbd-";

/// Requests of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    command: u16,
    length: u32,
    /// Requests that are sent together, whose replies are then awaited.
    depth: usize,
    /// Where requests begin within a block.
    skew: u64,
}

const fn case(name: &'static str, command: u16, length: u32, depth: usize) -> Case {
    Case { name, command, length, depth, skew: 0 }
}

/// What is measured: first the hot path, which allocates nothing for a request, then the rest.
pub const CASES: [Case; 14] = [
    case("write 4K QD1", WRITE, 4 << 10, 1),
    case("write 4K QD16", WRITE, 4 << 10, 16),
    case("read 4K QD1", READ, 4 << 10, 1),
    case("read 4K QD16", READ, 4 << 10, 16),
    case("write 64K QD1", WRITE, 64 << 10, 1),
    case("write 64K QD16", WRITE, 64 << 10, 16),
    case("read 64K QD1", READ, 64 << 10, 1),
    case("read 64K QD16", READ, 64 << 10, 16),
    case("read 256K QD1", READ, 256 << 10, 1),
    case("flush QD1", FLUSH, 0, 1),
    Case { skew: 512, ..case("write 512 QD1", WRITE, 512, 1) },
    Case { skew: 512, ..case("read 512 QD1", READ, 512, 1) },
    case("write 1M QD1", WRITE, 1 << 20, 1),
    case("read 1M QD1", READ, 1 << 20, 1),
];

/// What a request allocates, and how many were made to find out.
#[derive(Clone, Copy, Debug)]
pub struct PerRequest {
    /// Allocations.
    pub calls: f64,
    /// Bytes asked for.
    pub bytes: f64,
}

/// A server with a volume that is full, and a client of it.
pub struct Rig {
    server: Option<Server>,
    socket: UnixStream,
    sent: Vec<u8>,
    received: Vec<u8>,
    next_block: u64,
    _dir: TempDir,
}

impl Rig {
    /// Starts one; `set` changes its settings.
    pub fn start(set: impl FnOnce(&mut Settings)) -> Rig {
        let dir = tempfile::tempdir().expect("directory");
        let pool = dir.path().join("pool");
        let mut settings = Settings {
            pool: Some(pool.clone()),
            pool_size: Some("8GiB".to_owned()),
            memory: Some("128MiB".to_owned()),
            ..Settings::default()
        };
        settings.nbd.listen = vec![format!("unix:{}", pool.join("nbd.sock").display())];
        settings.http.listen = vec![format!("unix:{}", pool.join("api.sock").display())];
        set(&mut settings);
        let server = Server::start(&Config::from_settings(settings).expect("settings"));
        let address = format!("unix:{}", pool.join("api.sock").display());
        let client = api::Client::new(address.parse().expect("address")).expect("client");
        client.create_volume(&new_volume()).expect("create");
        let socket = attach(&pool.join("nbd.sock"));
        let mut rig = Rig {
            server: Some(server.expect("start")),
            socket,
            sent: Vec::with_capacity(32 << 20),
            received: vec![0; 32 << 20],
            next_block: 1,
            _dir: dir,
        };
        let fill = case("fill", WRITE, 64 << 10, 1);
        for at in (0..VOLUME_BYTES).step_by(64 << 10) {
            rig.prepare(fill, |_| at);
            rig.round(fill);
        }
        rig
    }

    /// Makes some thousand requests of a kind, after as many that are not counted.
    pub fn measure(&mut self, case: Case, requests: usize) -> PerRequest {
        let rounds = requests.div_ceil(case.depth);
        self.rounds(case, rounds);
        let before = Allocations::of_threads(DATA_THREADS);
        self.rounds(case, rounds);
        let found = Allocations::of_threads(DATA_THREADS).since(before);
        let count = (rounds * case.depth) as f64;
        PerRequest { calls: found.calls as f64 / count, bytes: found.bytes as f64 / count }
    }

    /// The stacks that some requests of a kind allocate at, after as many that are not counted.
    pub fn stacks(&mut self, case: Case, requests: usize) -> Vec<(usize, String)> {
        let rounds = requests.div_ceil(case.depth);
        self.rounds(case, rounds);
        record_stacks(200);
        self.rounds(case, rounds);
        let stacks = take_stacks();
        stacks.into_iter().map(|(bytes, stack)| (bytes, stack.to_string())).collect()
    }

    fn rounds(&mut self, case: Case, rounds: usize) {
        let span = VOLUME_BYTES / 4096 - u64::from(case.length.div_ceil(4096)) - 1;
        for _ in 0..rounds {
            let mut next = self.next_block;
            self.prepare(case, |_| {
                // Every block of the span once, in an order that is no sequence.
                next = (next + 40_503) % span;
                next * 4096 + case.skew
            });
            self.next_block = next;
            self.round(case);
        }
    }

    fn prepare(&mut self, case: Case, mut offset: impl FnMut(usize) -> u64) {
        self.sent.clear();
        for index in 0..case.depth {
            let at = if case.command == FLUSH { 0 } else { offset(index) };
            self.sent.extend(0x2560_9513_u32.to_be_bytes());
            self.sent.extend(0_u16.to_be_bytes());
            self.sent.extend(case.command.to_be_bytes());
            self.sent.extend((index as u64).to_be_bytes());
            self.sent.extend(at.to_be_bytes());
            self.sent.extend(case.length.to_be_bytes());
            if case.command == WRITE {
                let end = self.sent.len() + case.length as usize;
                self.sent.resize(end, index as u8 + 1);
            }
        }
    }

    fn round(&mut self, case: Case) {
        self.socket.write_all(&self.sent).expect("send");
        let data = if case.command == READ { case.length as usize } else { 0 };
        let whole = case.depth * (REPLY_BYTES + data);
        self.socket.read_exact(&mut self.received[..whole]).expect("replies");
        assert_eq!(&self.received[..8], &[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "no error");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().expect("stop");
        }
    }
}

fn new_volume() -> api::CreateVolume {
    let size = api::SizeInput(units::Size(VOLUME_BYTES));
    api::CreateVolume {
        name: "v".to_owned(),
        size,
        architecture: None,
        like: None,
        granularity: None,
        window: None,
        history_limit: None,
        extent: None,
        copy_unit: None,
        cache: None,
        cache_dirty_percent: None,
        encoding: None,
        encode_after: None,
        dedup: None,
    }
}

fn attach(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("connect");
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("greeting");
    let option: [&[u8]; 5] =
        [&3_u32.to_be_bytes(), b"IHAVEOPT", &1_u32.to_be_bytes(), &1_u32.to_be_bytes(), b"v"];
    stream.write_all(&option.concat()).expect("option");
    let mut size_and_flags = [0; 10];
    stream.read_exact(&mut size_and_flags).expect("the export");
    stream
}
