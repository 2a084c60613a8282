//! A server on a pool of its own, and plain sockets to talk to it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use api::{Client, ClientError, CreateVolume, Problem, ProblemKind, SizeInput};
use hindsight_server::{Config, Server, Settings};
use tempfile::TempDir;
use units::Size;
use volume::WriteOp;

/// A running server; its pool is gone when this is.
pub struct Fixture {
    pub server: Option<Server>,
    pub client: Client,
    pub dir: TempDir,
}

pub fn settings(pool: &Path) -> Settings {
    let mut settings = Settings {
        pool: Some(pool.to_owned()),
        pool_size: Some("1GiB".to_owned()),
        memory: Some("32MiB".to_owned()),
        ..Settings::default()
    };
    settings.nbd.listen = vec!["127.0.0.1:0".to_owned()];
    settings.http.listen = vec!["127.0.0.1:0".to_owned()];
    settings
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with(|_, _| {})
    }

    /// A server with other settings; they may name what is in the folder.
    pub fn with(set: impl FnOnce(&mut Settings, &Path)) -> Fixture {
        let dir = tempfile::tempdir().expect("directory");
        let mut settings = settings(&dir.path().join("pool"));
        set(&mut settings, dir.path());
        let config = Config::from_settings(settings).expect("settings");
        Fixture::of(Server::start(&config).expect("start"), dir)
    }

    /// A server on `pool` in the folder.
    pub fn of(server: Server, dir: TempDir) -> Fixture {
        let address = format!("unix:{}", dir.path().join("pool/api.sock").display());
        let client = Client::new(address.parse().expect("address")).expect("client");
        Fixture { server: Some(server), client, dir }
    }

    /// Stops the server and starts one with the settings that there are without others.
    pub fn restart(&mut self) {
        self.server.take().expect("running").stop().expect("stop");
        let config = Config::from_settings(settings(&self.dir.path().join("pool")));
        self.server = Some(Server::start(&config.expect("settings")).expect("start"));
        let address = format!("unix:{}", self.dir.path().join("pool/api.sock").display());
        self.client = Client::new(address.parse().expect("address")).expect("client");
    }

    /// A server with a volume `v` of 1 MiB.
    pub fn with_volume() -> Fixture {
        let fixture = Fixture::new();
        fixture.client.create_volume(&new_volume("v", 1 << 20)).expect("create");
        fixture
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("running")
    }

    /// Fills a block of `v` with a byte; answers the seq of the write.
    pub fn write(&self, block: u64, byte: u8) -> u64 {
        let volume = self.server().pool().volume("v").expect("v");
        let bytes = [byte; 4096];
        let op = WriteOp::Data { offset: block * 4096, bytes: &bytes };
        volume.write_batch(&[op]).expect("write").0
    }

    /// The first byte of a block of `v`.
    pub fn first_byte(&self, block: u64) -> u8 {
        let volume = self.server().pool().volume("v").expect("v");
        let mut byte = [0];
        volume.read(block * 4096, &mut byte).expect("read");
        byte[0]
    }

    /// Where HTTP is served over TCP, `127.0.0.1:PORT`, with TLS or without, and the token.
    pub fn http_address(&self) -> (&str, &str) {
        let mut lines = self.server().listeners().iter();
        let url = lines.find_map(|line| line.strip_prefix("http http"));
        let (_, place) = url.expect("a TCP listener").split_once("://").expect("a URL");
        place.split_once("/?token=").expect("a token")
    }

    pub fn nbd_socket(&self) -> PathBuf {
        self.dir.path().join("pool/nbd.sock")
    }

    /// Sends a request over TCP, with the token, and reads until the server closes: status and
    /// body.
    pub fn raw(&self, request: &str) -> (u16, String) {
        self.bare(&self.with_token(request))
    }

    /// A request with the token in its head.
    pub fn with_token(&self, request: &str) -> String {
        let header = format!("\r\nAuthorization: Bearer {}\r\n", self.http_address().1);
        request.replacen("\r\n", &header, 1)
    }

    /// Sends bytes over TCP as they are.
    pub fn bare(&self, request: &str) -> (u16, String) {
        let answer = self.whole(request);
        let status = answer.split(' ').nth(1).expect("status").parse().expect("number");
        let body = answer.split_once("\r\n\r\n").expect("head").1.to_owned();
        (status, body)
    }

    /// Sends bytes over TCP as they are; the whole answer.
    pub fn whole(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.http_address().0).expect("connect");
        stream.write_all(request.as_bytes()).expect("send");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answer");
        answer
    }

    /// A request with a JSON body by hand, over TCP.
    pub fn send(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let length = body.len();
        self.raw(&format!(
            "{method} /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let stopped = server.stop();
            // What a test says that failed is not hidden behind this.
            if !std::thread::panicking() {
                stopped.expect("stop");
            }
        }
    }
}

pub fn new_volume(name: &str, bytes: u64) -> CreateVolume {
    CreateVolume {
        name: name.to_owned(),
        size: SizeInput(Size(bytes)),
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

/// The problem that the server answered.
pub fn problem<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Problem {
    match result {
        Err(ClientError::Problem(problem)) => *problem,
        other => panic!("a problem was expected, not {other:?}"),
    }
}

pub fn kind<T: std::fmt::Debug>(result: Result<T, ClientError>) -> ProblemKind {
    problem(result).problem_kind().expect("a known kind")
}

/// An NBD client attached to an export, by the shortest handshake there is.
pub fn attach(socket: &Path, export: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("connect");
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("greeting");
    assert_eq!(&greeting[..8], b"NBDMAGIC");
    let length = u32::try_from(export.len()).expect("short").to_be_bytes();
    let option: [&[u8]; 5] =
        [&3_u32.to_be_bytes(), b"IHAVEOPT", &1_u32.to_be_bytes(), &length, export.as_bytes()];
    stream.write_all(&option.concat()).expect("option");
    let mut size_and_flags = [0; 10];
    stream.read_exact(&mut size_and_flags).expect("the export");
    stream
}

pub const NBD_READ: u16 = 0;
pub const NBD_WRITE: u16 = 1;

/// A request as an NBD client sends it.
pub fn nbd_request(command: u16, offset: u64, payload: &[u8], length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(7_u64.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend(payload);
    bytes
}
