//! Load on an NFS server in the proportions and sizes of SPECsfs97 for NFS version 3, with the
//! share of updates scaled as UCDP's evaluation does. It is not the benchmark: no set-up, ramp or
//! rules of SPEC's.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lab::times::Times;
use wire::mount;
use wire::nfs_client::{calls, replies};
use wire::nfs3::{
    self, Access, Call, CreateHow, DirOpArgs, FileHandle, Name, Nfspath3, Nfsstat3, Procedure,
    Results, Sattr3, StableHow,
};
use wire::rpc::record::last_mark;
use wire::rpc::{self, Accepted, AuthSys, Credentials, Gids, Reply};
use wire::xdr::Reader;

/// Operations with their proportions; those that are updates are scaled together.
const MIX: [(Procedure, u32, bool); 14] = [
    (Procedure::Lookup, 27, false),
    (Procedure::Read, 18, false),
    (Procedure::Write, 9, true),
    (Procedure::Getattr, 11, false),
    (Procedure::Readlink, 7, false),
    (Procedure::Readdir, 2, false),
    (Procedure::Create, 1, true),
    (Procedure::Remove, 1, true),
    (Procedure::Fsstat, 1, false),
    (Procedure::Setattr, 1, true),
    (Procedure::Readdirplus, 9, false),
    (Procedure::Access, 7, false),
    (Procedure::Commit, 5, false),
    (Procedure::Fsinfo, 1, false),
];
/// File sizes in KiB, with the percentage of files up to each.
const FILE_KIB: [(u32, u32); 10] = [
    (1, 33),
    (2, 54),
    (4, 67),
    (8, 77),
    (16, 85),
    (32, 90),
    (64, 94),
    (128, 97),
    (256, 99),
    (1024, 100),
];
const FILES_A_DIRECTORY: usize = 30;
const LINKS: usize = 64;
/// Files that were made last, which are not removed.
const MADE_MIN: usize = 256;
const DATA_BYTES: usize = 256 << 10;
/// Numbers of calls that a connection has for itself.
const CALLS_A_CONNECTION: u32 = 1 << 22;

/// Connections so far.
static CONNECTIONS: AtomicU32 = AtomicU32::new(0);

/// Where a server is.
#[derive(Clone, Debug)]
pub struct Target {
    pub nfs: SocketAddr,
    pub mount: SocketAddr,
    pub export: String,
}

/// How it is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub connections: usize,
    /// Calls in flight on each connection.
    pub depth: usize,
    pub update_percent: u32,
    /// Calls a second, at random times; none: as fast as they are answered.
    pub rate: Option<f64>,
    pub time: Duration,
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Ran {
    pub operations: u64,
    /// Operations that change something.
    pub updates: u64,
    /// The bytes that they wrote to files.
    pub written_bytes: u64,
    /// How often which operation failed, and with which status.
    pub failed: BTreeMap<String, u64>,
    pub seconds: f64,
    pub times: Times,
}

/// The files that are used.
pub struct Files {
    directories: Vec<FileHandle>,
    files: Vec<File>,
    links: Vec<FileHandle>,
    top: FileHandle,
}

#[derive(Clone)]
struct File {
    handle: FileHandle,
    directory: usize,
    name: String,
    bytes: u32,
}

/// Numbers that look random, the same for a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From 0 to 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn file_bytes(&mut self) -> u32 {
        let x = self.below(100) as u32;
        let kib = FILE_KIB.iter().find(|(_, until)| x < *until).expect("until 100").0;
        kib << 10
    }

    fn read_bytes(&mut self) -> u32 {
        match self.below(100) {
            0..85 => 8 << 10,
            85..93 => 20 << 10,
            93..97 => 36 << 10,
            97..99 => 68 << 10,
            _ => 132 << 10,
        }
    }

    fn write_bytes(&mut self) -> u32 {
        match self.below(100) {
            0..49 => (1 + self.below(7) as u32) << 10,
            49..85 => (9 + self.below(7) as u32) << 10,
            85..93 => 20 << 10,
            93..97 => 36 << 10,
            97..99 => 68 << 10,
            _ => 132 << 10,
        }
    }
}

/// A connection that asks one thing after the other.
struct Asking {
    stream: TcpStream,
    xid: u32,
}

fn record(xid: u32, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let root = AuthSys { stamp: 0, machine_name: b"lab", uid: 0, gid: 0, gids: Gids::default() };
    let credentials = Credentials::Sys(root);
    let call = rpc::Call { xid, program, version: 3, procedure, credentials, arguments };
    let body = calls::rpc_call(&call);
    [&last_mark(body.len())[..], &body].concat()
}

/// The body of the next record of one fragment.
fn receive(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut mark = [0; 4];
    from.read_exact(&mut mark)?;
    let length = (u32::from_be_bytes(mark) & !(1 << 31)) as usize;
    if mark[0] >> 7 == 0 || length > rpc::limits::RECORD_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a reply in several fragments"));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(body)
}

impl Asking {
    fn connect(address: SocketAddr) -> anyhow::Result<Asking> {
        let stream = TcpStream::connect(address).with_context(|| address.to_string())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        // A number that was used lately is that of a call sent again, to servers that remember.
        let xid = CONNECTIONS.fetch_add(1, Ordering::Relaxed).wrapping_mul(CALLS_A_CONNECTION);
        Ok(Asking { stream, xid })
    }

    fn ask(&mut self, program: u32, procedure: u32, arguments: &[u8]) -> anyhow::Result<Vec<u8>> {
        self.xid += 1;
        self.stream.write_all(&record(self.xid, program, procedure, arguments))?;
        let reply = receive(&mut self.stream)?;
        let mut from = Reader::new(&reply);
        match replies::rpc_reply(&mut from)? {
            (_, Reply::Accepted(Accepted::Success)) => Ok(from.rest().to_vec()),
            (_, refused) => bail!("a call was refused: {refused:?}"),
        }
    }

    fn nfs(&mut self, call: &Call<'_>) -> anyhow::Result<Vec<u8>> {
        let (procedure, arguments) = calls::nfs_call(call);
        self.ask(nfs3::PROGRAM, procedure.number(), &arguments)
    }

    fn mount(target: &Target) -> anyhow::Result<(Asking, FileHandle)> {
        let path = mount::Call::Mnt(mount::Path::new(target.export.as_bytes()));
        let (procedure, arguments) = calls::mount_call(&path);
        let body = Asking::connect(target.mount)?.ask(mount::PROGRAM, procedure, &arguments)?;
        match replies::mnt(&mut Reader::new(&body))? {
            Ok((top, _)) => Ok((Asking::connect(target.nfs)?, top)),
            Err(status) => bail!("MOUNT of {}: {}", target.export, status.name()),
        }
    }

    fn make(&mut self, call: &Call<'_>) -> anyhow::Result<FileHandle> {
        let procedure = calls::nfs_call(call).0;
        let body = self.nfs(call)?;
        let made = match replies::results(procedure, &mut Reader::new(&body))? {
            Results::Create(made) | Results::Mkdir(made) | Results::Symlink(made) => made,
            _ => unreachable!("only these make something"),
        };
        let made = made.map_err(|fail| anyhow::anyhow!("{procedure:?}: {}", fail.status.name()))?;
        made.obj.context("the server gives no handle of what it made")
    }
}

fn place(dir: FileHandle, name: &str) -> DirOpArgs<'_> {
    DirOpArgs { dir, name: Name::new(name.as_bytes()) }
}

/// Makes a directory at the top.
pub fn make_directory(target: &Target, name: &str) -> anyhow::Result<()> {
    let (mut asking, top) = Asking::mount(target)?;
    let attributes = Sattr3 { mode: Some(0o755), ..Sattr3::default() };
    asking.make(&Call::Mkdir { place: place(top, name), attributes }).map(drop)
}

/// Makes files in a directory of its own.
pub fn prepare(target: &Target, count: usize, seed: u64) -> anyhow::Result<Files> {
    let (mut asking, top) = Asking::mount(target)?;
    let mut random = Random(seed | 1);
    let mode = Sattr3 { mode: Some(0o755), ..Sattr3::default() };
    let name = format!("sfs-{:x}", random.next());
    let own = asking.make(&Call::Mkdir { place: place(top, &name), attributes: mode })?;
    let mut files = Files { directories: Vec::new(), files: Vec::new(), links: Vec::new(), top };
    for number in 0..count / FILES_A_DIRECTORY + 1 {
        let name = format!("d{number}");
        let made = asking.make(&Call::Mkdir { place: place(own, &name), attributes: mode })?;
        files.directories.push(made);
    }
    for number in 0..LINKS {
        let (name, data) = (format!("l{number}"), Nfspath3::new(b"../some/where/else"));
        let call = Call::Symlink { place: place(own, &name), attributes: mode, data };
        files.links.push(asking.make(&call)?);
    }
    let data = vec![0x5a; DATA_BYTES];
    for number in 0..count {
        let (name, bytes) = (format!("f{number}"), random.file_bytes());
        let directory = number % files.directories.len();
        let at = place(files.directories[directory], &name);
        let handle = asking.make(&Call::Create { place: at, how: CreateHow::Unchecked(mode) })?;
        for offset in (0..bytes).step_by(64 << 10) {
            let length = (bytes - offset).min(64 << 10) as usize;
            let (offset, stable) = (u64::from(offset), StableHow::Unstable);
            let data = &data[..length];
            asking.nfs(&Call::Write { file: handle, offset, stable, data })?;
        }
        files.files.push(File { handle, directory, name, bytes });
    }
    Ok(files)
}

/// What is under way on a connection.
#[derive(Default)]
struct Flights {
    sent: HashMap<u32, (Procedure, Instant)>,
    times: Times,
    failed: BTreeMap<String, u64>,
    updates: u64,
    written_bytes: u64,
    is_over: bool,
    error: Option<anyhow::Error>,
}

#[derive(Default)]
struct Shared {
    flights: Mutex<Flights>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().expect("no holder panics")
    }
}

/// Loads a server.
pub fn load(target: &Target, files: &Files, load: &Load) -> anyhow::Result<Ran> {
    let began = Instant::now();
    let loaded: Vec<anyhow::Result<Flights>> = std::thread::scope(|scope| {
        let connection = |number: usize| connection(target, files, load, number);
        let all: Vec<_> =
            (0..load.connections).map(|number| scope.spawn(move || connection(number))).collect();
        all.into_iter().map(|one| one.join().expect("no thread panics")).collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut ran = Ran {
        operations: 0,
        updates: 0,
        written_bytes: 0,
        failed: BTreeMap::new(),
        seconds,
        times: Times::new(),
    };
    for one in loaded {
        let one = one?;
        ran.operations += one.times.count();
        ran.updates += one.updates;
        ran.written_bytes += one.written_bytes;
        for (what, count) in one.failed {
            *ran.failed.entry(what).or_default() += count;
        }
        ran.times.merge(&one.times);
    }
    Ok(ran)
}

fn connection(
    target: &Target,
    files: &Files,
    load: &Load,
    number: usize,
) -> anyhow::Result<Flights> {
    let mut asking = Asking::connect(target.nfs)?;
    let mut from = BufReader::with_capacity(256 << 10, asking.stream.try_clone()?);
    let shared = Shared::default();
    let sent = std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = answers(&mut from, &shared) {
                shared.lock().error.get_or_insert(error);
                shared.changed.notify_all();
            }
        });
        let sent = Sender::new(files, load, number).send(&mut asking, &shared);
        shared.lock().is_over = true;
        if sent.is_err() {
            let _ = asking.stream.shutdown(std::net::Shutdown::Both);
        }
        shared.changed.notify_all();
        // The receiver ends with the last answer.
        let mut flights = shared.lock();
        while !flights.sent.is_empty() && flights.error.is_none() {
            flights = shared.changed.wait(flights).expect("no holder panics");
        }
        drop(flights);
        let _ = asking.stream.shutdown(std::net::Shutdown::Both);
        sent
    });
    sent?;
    let mut flights = shared.flights.into_inner().expect("no holder panics");
    match flights.error.take().filter(|_| !flights.sent.is_empty()) {
        Some(error) => Err(error),
        None => Ok(flights),
    }
}

/// Takes replies until the connection ends.
fn answers(from: &mut impl Read, shared: &Shared) -> anyhow::Result<()> {
    loop {
        let reply = receive(from)?;
        let now = Instant::now();
        let mut reader = Reader::new(&reply);
        let (xid, reply) = replies::rpc_reply(&mut reader)?;
        let status = match reply {
            Reply::Accepted(Accepted::Success) => reader.u32()?,
            refused => bail!("a call was refused: {refused:?}"),
        };
        let mut flights = shared.lock();
        let (procedure, sent) = flights.sent.remove(&xid).context("a reply to no call")?;
        flights.times.add(u64::try_from((now - sent).as_nanos()).unwrap_or(u64::MAX));
        if status != 0 {
            let status = Nfsstat3::from_number(status).map_or("an unknown status", Nfsstat3::name);
            *flights.failed.entry(format!("{} {status}", procedure.name())).or_default() += 1;
        }
        drop(flights);
        shared.changed.notify_all();
    }
}

/// Chooses and sends calls.
struct Sender<'f> {
    files: &'f Files,
    load: &'f Load,
    random: Random,
    number: usize,
    made: Vec<(usize, String)>,
    serial: u64,
    data: Vec<u8>,
    updates: u64,
    written_bytes: u64,
}

impl<'f> Sender<'f> {
    fn new(files: &'f Files, load: &'f Load, number: usize) -> Sender<'f> {
        let seed = load.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number as u64 + 1);
        let mut random = Random(seed | 1);
        let data = (0..DATA_BYTES).map(|_| random.next() as u8).collect();
        let (made, serial, updates, written_bytes) = (Vec::new(), 0, 0, 0);
        Sender { files, load, random, number, made, serial, data, updates, written_bytes }
    }

    fn send(&mut self, asking: &mut Asking, shared: &Shared) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut next = began;
        while began.elapsed() < self.load.time {
            let mut flights = shared.lock();
            if flights.error.is_some() {
                bail!("the connection ended");
            }
            match self.load.rate {
                None if flights.sent.len() >= self.load.depth => {
                    let wait = Duration::from_millis(100);
                    drop(shared.changed.wait_timeout(flights, wait).expect("no holder panics"));
                    continue;
                }
                None => {}
                Some(_) => {
                    let now = Instant::now();
                    if now < next {
                        drop(flights);
                        std::thread::sleep((next - now).min(Duration::from_millis(20)));
                        continue;
                    }
                }
            }
            // Times count from when it was to be sent.
            let mut since = Instant::now();
            if let Some(rate) = self.load.rate {
                let own = rate / self.load.connections as f64;
                since = next;
                next += Duration::from_secs_f64(-(1.0 - self.random.part()).ln() / own);
            }
            asking.xid = asking.xid.wrapping_add(1);
            let (procedure, arguments) = self.call();
            flights.sent.insert(asking.xid, (procedure, since));
            drop(flights);
            let call = record(asking.xid, nfs3::PROGRAM, procedure.number(), &arguments);
            asking.stream.write_all(&call)?;
        }
        let mut flights = shared.lock();
        (flights.updates, flights.written_bytes) = (self.updates, self.written_bytes);
        Ok(())
    }

    /// An operation in the proportions of the load.
    fn choose(&mut self) -> Procedure {
        let sum = |of: bool| MIX.iter().filter(|one| one.2 == of).map(|one| one.1).sum::<u32>();
        let is_update = self.random.below(100) < u64::from(self.load.update_percent);
        let mut left = self.random.below(u64::from(sum(is_update))) as u32;
        for (procedure, weight, _) in MIX.iter().filter(|one| one.2 == is_update) {
            if left < *weight {
                return *procedure;
            }
            left -= weight;
        }
        unreachable!("the weights are those of the sum")
    }

    fn call(&mut self) -> (Procedure, Vec<u8>) {
        let files = self.files;
        let file = &files.files[self.random.below(files.files.len() as u64) as usize];
        let directory = self.random.below(files.directories.len() as u64) as usize;
        let dir = files.directories[directory];
        let chosen = match self.choose() {
            // Of those that remain the CREATE was answered long ago.
            Procedure::Remove if self.made.len() <= MADE_MIN => Procedure::Create,
            chosen => chosen,
        };
        self.updates += u64::from(MIX.iter().any(|one| one.0 == chosen && one.2));
        let call = match chosen {
            Procedure::Lookup => {
                Call::Lookup { what: place(files.directories[file.directory], &file.name) }
            }
            Procedure::Read => {
                let count = self.random.read_bytes();
                Call::Read { file: file.handle, offset: self.offset(file, count), count }
            }
            Procedure::Write => {
                let count = self.random.write_bytes();
                let (offset, stable) = (self.offset(file, count), StableHow::Unstable);
                let data = &self.data[..count as usize];
                self.written_bytes += u64::from(count);
                Call::Write { file: file.handle, offset, stable, data }
            }
            Procedure::Readlink => {
                let link = self.random.below(files.links.len() as u64) as usize;
                Call::Readlink { symlink: files.links[link] }
            }
            Procedure::Readdir => Call::Readdir { dir, cookie: 0, cookieverf: [0; 8], count: 8192 },
            Procedure::Readdirplus => Call::Readdirplus {
                dir,
                cookie: 0,
                cookieverf: [0; 8],
                dircount: 4096,
                maxcount: 8192,
            },
            Procedure::Create => {
                self.serial += 1;
                let name = format!("n{}_{:x}", self.number, self.serial);
                self.made.push((directory, name));
                let (_, name) = self.made.last().expect("it was just pushed");
                let attributes = Sattr3 { mode: Some(0o644), ..Sattr3::default() };
                Call::Create { place: place(dir, name), how: CreateHow::Unchecked(attributes) }
            }
            Procedure::Remove => {
                let (directory, name) = self.made.remove(0);
                let dir = files.directories[directory];
                return calls::nfs_call(&Call::Remove { object: place(dir, &name) });
            }
            Procedure::Fsstat => Call::Fsstat { fsroot: files.top },
            Procedure::Fsinfo => Call::Fsinfo { fsroot: files.top },
            Procedure::Setattr => {
                let mode = Some(0o640 + (self.random.below(8) as u32));
                let new_attributes = Sattr3 { mode, ..Sattr3::default() };
                Call::Setattr { object: file.handle, new_attributes, guard: None }
            }
            Procedure::Access => Call::Access { object: file.handle, access: Access(0x3f) },
            Procedure::Commit => Call::Commit { file: file.handle, offset: 0, count: 0 },
            _ => Call::Getattr { object: file.handle },
        };
        calls::nfs_call(&call)
    }

    /// Where so many bytes of a file may begin.
    fn offset(&mut self, file: &File, count: u32) -> u64 {
        match file.bytes.checked_sub(count) {
            Some(beyond) if beyond > 0 => self.random.below(u64::from(beyond)) & !8191,
            _ => 0,
        }
    }
}
