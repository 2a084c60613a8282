//! The NFS server that is protected, as its client.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wire::mount::{self, Mountstat3, Path};
use wire::nfs_client::calls;
use wire::nfs_client::replies::{self, Decode, Listed};
use wire::nfs3::{self, Call, DirOpArgs, Fattr3, FileHandle, Name, Nfsstat3, Procedure, Results};
use wire::rpc::record::{Found, Search, last_mark};
use wire::rpc::{self, Accepted, AuthSys, Credentials, Gids, Reply};
use wire::xdr::{Reader, XdrError};

/// How often a call that waits looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the primary may take for a call.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a READ.
pub(crate) const READ_BYTES: u32 = 256 << 10;
/// Bytes of a READDIRPLUS.
const LIST_BYTES: u32 = 64 << 10;
const RECEIVE_BYTES: usize = 64 << 10;
/// Entries of a directory: a list that is longer has no end.
const ENTRIES_MAX: usize = 1 << 24;

/// Where an export of an NFS server is: `HOST:PORT[,MOUNTPORT]:/EXPORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryAddress {
    /// Its NFS program: `HOST:PORT`.
    pub nfs: String,
    /// Its MOUNT program, likewise.
    pub mount: String,
    /// The path that is exported.
    pub export: String,
}

impl FromStr for PrimaryAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<PrimaryAddress, &'static str> {
        const FORM: &str = "HOST:PORT:/EXPORT, or HOST:PORT,MOUNTPORT:/EXPORT";
        let (server, export) = text.split_once(":/").ok_or(FORM)?;
        let (host, ports) = server.rsplit_once(':').ok_or(FORM)?;
        let (nfs, mount) = ports.split_once(',').unwrap_or((ports, ports));
        let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        if host.is_empty() || !is_port(nfs) || !is_port(mount) {
            return Err(FORM);
        }
        Ok(PrimaryAddress {
            nfs: format!("{host}:{nfs}"),
            mount: format!("{host}:{mount}"),
            export: format!("/{export}"),
        })
    }
}

impl fmt::Display for PrimaryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PrimaryAddress { nfs, mount, export } = self;
        let mount_port = mount.rsplit(':').next().unwrap_or_default();
        match nfs.ends_with(&format!(":{mount_port}")) {
            true => write!(f, "{nfs}:{export}"),
            false => write!(f, "{nfs},{mount_port}:{export}"),
        }
    }
}

/// Why the primary did not give what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// It cannot be reached, or the connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It answers what no NFS server answers.
    #[error("its reply is malformed: {0}")]
    Nonsense(#[from] XdrError),
    /// It refused to carry out a call at all.
    #[error("it refused the call: {0:?}")]
    Refused(Reply),
    /// It does not let the export be mounted.
    #[error("MOUNT: {}", .0.name())]
    Mount(Mountstat3),
    /// It answered a failure.
    #[error("{}", .0.name())]
    Status(Nfsstat3),
}

impl Trouble {
    /// Whether the object that was asked for is gone.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Trouble::Status(Nfsstat3::Stale | Nfsstat3::NoEnt))
    }
}

/// An object of the primary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) handle: FileHandle,
    pub(crate) attributes: Fattr3,
}

/// A connection to one program.
struct Connection {
    address: String,
    /// Whether nobody waits for it any more.
    is_stopped: Arc<AtomicBool>,
    stream: TcpStream,
    received: Vec<u8>,
    search: Search,
    xid: u32,
}

/// The primary.
pub(crate) struct Primary {
    connection: Connection,
    top: Object,
}

impl Connection {
    fn open(address: &str, is_stopped: &Arc<AtomicBool>) -> io::Result<Connection> {
        let stream = connect(address)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let address = address.to_owned();
        let (received, search) = (Vec::new(), Search::default());
        let is_stopped = Arc::clone(is_stopped);
        Ok(Connection { address, is_stopped, stream, received, search, xid: 0 })
    }

    /// The results of a call that changes nothing, as root. Servers close connections that nobody
    /// uses: it is asked once more on another.
    fn call(&mut self, program: u32, procedure: u32, arguments: &[u8]) -> Result<Vec<u8>, Trouble> {
        match self.ask(program, procedure, arguments) {
            Err(Trouble::Io(error)) if error.kind() != io::ErrorKind::TimedOut => {
                *self = Connection::open(&self.address, &self.is_stopped)?;
                self.ask(program, procedure, arguments)
            }
            asked => asked,
        }
    }

    fn ask(&mut self, program: u32, procedure: u32, arguments: &[u8]) -> Result<Vec<u8>, Trouble> {
        self.xid = self.xid.wrapping_add(1);
        let root =
            AuthSys { stamp: 0, machine_name: b"hindsight", uid: 0, gid: 0, gids: Gids::default() };
        let credentials = Credentials::Sys(root);
        let call =
            rpc::Call { xid: self.xid, program, version: 3, procedure, credentials, arguments };
        let body = calls::rpc_call(&call);
        self.stream.write_all(&[&last_mark(body.len())[..], &body].concat())?;
        let reply = self.receive()?;
        let mut from = Reader::new(&reply);
        match replies::rpc_reply(&mut from)? {
            (xid, _) if xid != self.xid => {
                Err(XdrError::Contradiction("a reply to another call").into())
            }
            (_, Reply::Accepted(Accepted::Success)) => Ok(from.rest().to_vec()),
            (_, refused) => Err(Trouble::Refused(refused)),
        }
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let began = Instant::now();
        loop {
            let too_long = |e| io::Error::new(io::ErrorKind::InvalidData, e);
            if let Found::Whole(record) = self.search.find(&self.received).map_err(too_long)? {
                let (body, count) = (record.body().into_owned(), record.stream_bytes());
                self.received.drain(..count);
                return Ok(body);
            }
            let had = self.received.len();
            self.received.resize(had + RECEIVE_BYTES, 0);
            let count = self.stream.read(&mut self.received[had..]);
            self.received.truncate(had + *count.as_ref().unwrap_or(&0));
            match count {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let is_stopped = self.is_stopped.load(Ordering::Relaxed);
                    if is_stopped || began.elapsed() >= PATIENCE {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Connects to the first of an address' answers that takes it.
pub(crate) fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Primary {
    /// Mounts the export.
    pub(crate) fn mount(
        address: &PrimaryAddress,
        is_stopped: &Arc<AtomicBool>,
    ) -> Result<Primary, Trouble> {
        let path = mount::Call::Mnt(Path::new(address.export.as_bytes()));
        let (procedure, arguments) = calls::mount_call(&path);
        let mut mounting = Connection::open(&address.mount, is_stopped)?;
        let body = mounting.call(mount::PROGRAM, procedure, &arguments)?;
        let (handle, _) = replies::mnt(&mut Reader::new(&body))?.map_err(Trouble::Mount)?;
        let mut connection = Connection::open(&address.nfs, is_stopped)?;
        let attributes = attributes(&mut connection, handle)?;
        Ok(Primary { connection, top: Object { handle, attributes } })
    }

    /// The directory that is exported.
    pub(crate) fn top(&self) -> Object {
        self.top
    }

    pub(crate) fn attributes(&mut self, handle: FileHandle) -> Result<Fattr3, Trouble> {
        attributes(&mut self.connection, handle)
    }

    /// Reads; the bytes, and whether they are the last ones.
    pub(crate) fn read(
        &mut self,
        file: FileHandle,
        offset: u64,
    ) -> Result<(Vec<u8>, bool), Trouble> {
        let call = Call::Read { file, offset, count: READ_BYTES };
        let body = nfs(&mut self.connection, &call)?;
        let mut from = Reader::new(&body);
        let Results::Read(read) = replies::results(Procedure::Read, &mut from)? else {
            unreachable!("those of READ")
        };
        let read = read.map_err(|fail| Trouble::Status(fail.status))?;
        if read.count > READ_BYTES {
            return Err(XdrError::Contradiction("more bytes than were asked for").into());
        }
        let data = from.rest().get(..read.count as usize).ok_or(XdrError::CutShort)?;
        Ok((data.to_vec(), read.eof || data.is_empty()))
    }

    pub(crate) fn read_link(&mut self, symlink: FileHandle) -> Result<Vec<u8>, Trouble> {
        let body = nfs(&mut self.connection, &Call::Readlink { symlink })?;
        match replies::results(Procedure::Readlink, &mut Reader::new(&body))? {
            Results::Readlink(Ok(link)) => Ok(link.data.to_vec()),
            Results::Readlink(Err(fail)) => Err(Trouble::Status(fail.status)),
            _ => unreachable!("those of READLINK"),
        }
    }

    fn look_up(&mut self, dir: FileHandle, name: &[u8]) -> Result<Object, Trouble> {
        let what = DirOpArgs { dir, name: Name::new(name) };
        let body = nfs(&mut self.connection, &Call::Lookup { what })?;
        let found = match replies::results(Procedure::Lookup, &mut Reader::new(&body))? {
            Results::Lookup(found) => found.map_err(|fail| Trouble::Status(fail.status))?,
            _ => unreachable!("those of LOOKUP"),
        };
        let attributes = match found.obj_attributes {
            Some(attributes) => attributes,
            None => self.attributes(found.object)?,
        };
        Ok(Object { handle: found.object, attributes })
    }

    /// The entries of a directory but `.` and `..`; what is on another file system is left out.
    pub(crate) fn list(
        &mut self,
        dir: FileHandle,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Vec<(Vec<u8>, Object)>, Trouble> {
        let (mut all, mut cookie, mut cookieverf) = (Vec::new(), 0, [0; 8]);
        loop {
            let (dircount, maxcount) = (LIST_BYTES / 4, LIST_BYTES);
            let call = Call::Readdirplus { dir, cookie, cookieverf, dircount, maxcount };
            let body = nfs(&mut self.connection, &call)?;
            let mut from = Reader::new(&body);
            let Results::Readdirplus(listed) = replies::results(Procedure::Readdirplus, &mut from)?
            else {
                unreachable!("those of READDIRPLUS")
            };
            cookieverf = listed.map_err(|fail| Trouble::Status(fail.status))?.cookieverf;
            let (entries, is_end) = replies::dir_list(from.rest(), true)?;
            if (entries.is_empty() && !is_end) || all.len() > ENTRIES_MAX || !goes_on() {
                return Err(XdrError::Contradiction("a list without an end").into());
            }
            for entry in entries {
                cookie = entry.cookie;
                if let Some(found) = self.entry(dir, entry)? {
                    all.push(found);
                }
            }
            if is_end {
                return Ok(all);
            }
        }
    }

    fn entry(
        &mut self,
        dir: FileHandle,
        entry: Listed,
    ) -> Result<Option<(Vec<u8>, Object)>, Trouble> {
        if matches!(&entry.name[..], b"." | b"..") {
            return Ok(None);
        }
        let object = match (entry.handle, entry.attributes) {
            (Some(handle), Some(attributes)) => Ok(Object { handle, attributes }),
            _ => self.look_up(dir, &entry.name),
        };
        match object {
            Ok(object) if object.attributes.fsid != self.top.attributes.fsid => Ok(None),
            Ok(object) => Ok(Some((entry.name, object))),
            Err(gone) if gone.is_gone() => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }
}

fn nfs(connection: &mut Connection, call: &Call<'_>) -> Result<Vec<u8>, Trouble> {
    let (procedure, arguments) = calls::nfs_call(call);
    connection.call(nfs3::PROGRAM, procedure.number(), &arguments)
}

fn attributes(connection: &mut Connection, object: FileHandle) -> Result<Fattr3, Trouble> {
    let body = nfs(connection, &Call::Getattr { object })?;
    let mut from = Reader::new(&body);
    let status = from.u32()?;
    match Nfsstat3::from_number(status) {
        Some(status) => Err(Trouble::Status(status)),
        None => Ok(Fattr3::decode(&mut from)?),
    }
}

#[cfg(test)]
mod tests {
    use super::PrimaryAddress;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["10.0.0.5:2049:/srv/home", "nas:2049,20048:/", "[::1]:20490:/home@-1h"] {
            let address: PrimaryAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        let address: PrimaryAddress = "[::1]:2049,111:/a".parse().expect("an address");
        assert_eq!((&*address.nfs, &*address.mount), ("[::1]:2049", "[::1]:111"));
        for wrong in
            ["", "nas:/x", ":2049:/x", "nas:0:/x", "nas:2049", "nas:x:/x", "nas:1,70000:/x"]
        {
            assert!(wrong.parse::<PrimaryAddress>().is_err(), "{wrong}");
        }
    }
}
