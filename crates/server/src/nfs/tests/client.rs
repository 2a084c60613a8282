//! A client of the tests' own: arguments to bytes and results to values, written from RFC 1813.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use wire::nfs3::{self, Nfsstat3, Procedure};
use wire::xdr::{Reader, padding};

/// A handle.
pub(crate) type Fh = Vec<u8>;
/// The results of a call, or the status that it failed with.
pub(crate) type Res<T> = Result<T, Nfsstat3>;

/// Arguments.
#[derive(Default)]
pub(crate) struct Args(pub(crate) Vec<u8>);

impl Args {
    pub(crate) fn u32(mut self, value: u32) -> Args {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Args {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn opaque(mut self, bytes: &[u8]) -> Args {
        self = self.u32(u32::try_from(bytes.len()).expect("short"));
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(padding(bytes.len()));
        self
    }

    pub(crate) fn at(self, dir: &Fh, name: &str) -> Args {
        self.opaque(dir).opaque(name.as_bytes())
    }

    /// `sattr3` with a mode.
    pub(crate) fn mode(self, mode: u32) -> Args {
        self.u32(1).u32(mode).u32(0).u32(0).u32(0).u32(0).u32(0)
    }
}

/// Attributes, as far as tests look at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attr {
    pub(crate) kind: u32,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) fsid: u64,
    pub(crate) fileid: u64,
    pub(crate) atime: (u32, u32),
    pub(crate) mtime: (u32, u32),
    pub(crate) ctime: (u32, u32),
}

pub(crate) fn attr(from: &mut Reader<'_>) -> Attr {
    let mut word = || from.u32().expect("attributes");
    let [kind, mode, links, uid, gid] = std::array::from_fn(|_| word());
    let size = from.u64().expect("size");
    from.u64().expect("used");
    from.u64().expect("rdev");
    let [fsid, fileid] = std::array::from_fn(|_| from.u64().expect("number"));
    let mut time = || (from.u32().expect("seconds"), from.u32().expect("nanoseconds"));
    let [atime, mtime, ctime] = std::array::from_fn(|_| time());
    Attr { kind, mode, links, uid, gid, size, fsid, fileid, atime, mtime, ctime }
}

pub(crate) fn post_op(from: &mut Reader<'_>) -> Option<Attr> {
    from.bool().expect("a flag").then(|| attr(from))
}

/// `wcc_data`: sizes before and after.
pub(crate) fn wcc(from: &mut Reader<'_>) -> (Option<u64>, Option<Attr>) {
    let before = from.bool().expect("a flag").then(|| {
        let size = from.u64().expect("size");
        from.u64().expect("mtime");
        from.u64().expect("ctime");
        size
    });
    (before, post_op(from))
}

/// A connection.
pub(crate) struct Client {
    stream: TcpStream,
    pub(crate) xid: u32,
    pub(crate) uid: u32,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("set");
        Client { stream, xid: 100, uid: 0 }
    }

    /// The bytes of a call, with its mark.
    pub(crate) fn record(&self, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let sys = Args::default().u32(0).opaque(b"host").u32(self.uid).u32(self.uid).u32(0).0;
        let head = Args::default().u32(self.xid).u32(0).u32(2).u32(program).u32(3).u32(procedure);
        let mut body = head.u32(1).opaque(&sys).u32(0).u32(0).0;
        body.extend_from_slice(arguments);
        let mark = wire::rpc::record::last_mark(body.len());
        [&mark[..], &body].concat()
    }

    /// It is gone: nobody waits for it.
    pub(crate) fn close(&self) {
        // It may have ended already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("send");
    }

    /// The next reply: its xid, and what stands behind it; none if the connection has ended.
    pub(crate) fn receive(&mut self) -> Option<(u32, Vec<u8>)> {
        let mut mark = [0; 4];
        if let Err(error) = self.stream.read_exact(&mut mark) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "no answer comes");
            return None;
        }
        let mark = u32::from_be_bytes(mark);
        assert!(mark >> 31 == 1, "a reply is one fragment");
        let mut body = vec![0; (mark & !(1 << 31)) as usize];
        self.stream.read_exact(&mut body).ok()?;
        let xid = u32::from_be_bytes(body[..4].try_into().expect("four"));
        assert_eq!(body[4..8], [0, 0, 0, 1], "it is a reply");
        Some((xid, body.split_off(8)))
    }

    /// The results of a call that was accepted.
    pub(crate) fn call(&mut self, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let record = self.record(program, procedure, arguments);
        self.ask(&record).expect("a reply")
    }

    /// The results of the call of a record, which has the number of this client; none if the
    /// connection has ended.
    pub(crate) fn ask(&mut self, record: &[u8]) -> Option<Vec<u8>> {
        self.send(record);
        let (xid, mut body) = self.receive()?;
        assert_eq!(xid, self.xid);
        assert_eq!(body[..16], [0; 16], "accepted, no verifier, success");
        Some(body.split_off(16))
    }

    /// The results of a call of NFS behind its status, or the status.
    pub(crate) fn nfs(&mut self, procedure: Procedure, arguments: Args) -> Res<Vec<u8>> {
        let mut body = self.call(nfs3::PROGRAM, procedure.number(), &arguments.0);
        let rest = body.split_off(4);
        match u32::from_be_bytes(body.try_into().expect("four")) {
            0 => Ok(rest),
            number => Err(Nfsstat3::from_number(number).expect("a status")),
        }
    }

    /// The handle of a path, or the status of MOUNT.
    pub(crate) fn mount(&mut self, path: &str) -> Result<Fh, u32> {
        let arguments = Args::default().opaque(path.as_bytes());
        let body = self.call(wire::mount::PROGRAM, 1, &arguments.0);
        let mut from = Reader::new(&body);
        match from.u32().expect("a status") {
            0 => Ok(from.opaque(64).expect("a handle").to_vec()),
            status => Err(status),
        }
    }

    pub(crate) fn getattr(&mut self, object: &Fh) -> Res<Attr> {
        let body = self.nfs(Procedure::Getattr, Args::default().opaque(object))?;
        Ok(attr(&mut Reader::new(&body)))
    }

    pub(crate) fn lookup(&mut self, dir: &Fh, name: &str) -> Res<(Fh, Attr)> {
        let body = self.nfs(Procedure::Lookup, Args::default().at(dir, name))?;
        let mut from = Reader::new(&body);
        let handle = from.opaque(64).expect("a handle").to_vec();
        let found = post_op(&mut from).expect("attributes");
        post_op(&mut from).expect("those of the directory");
        Ok((handle, found))
    }

    /// The handle of a path of names.
    pub(crate) fn find(&mut self, top: &Fh, path: &str) -> Res<Fh> {
        let mut at = top.clone();
        for name in path.split('/') {
            at = self.lookup(&at, name)?.0;
        }
        Ok(at)
    }

    pub(crate) fn create(&mut self, dir: &Fh, name: &str) -> Res<Fh> {
        let arguments = Args::default().at(dir, name).u32(1).mode(0o644);
        self.made(Procedure::Create, arguments)
    }

    pub(crate) fn mkdir(&mut self, dir: &Fh, name: &str) -> Res<Fh> {
        self.made(Procedure::Mkdir, Args::default().at(dir, name).mode(0o755))
    }

    pub(crate) fn made(&mut self, procedure: Procedure, arguments: Args) -> Res<Fh> {
        let body = self.nfs(procedure, arguments)?;
        let mut from = Reader::new(&body);
        assert!(from.bool().expect("a flag"), "it has a handle");
        let handle = from.opaque(64).expect("a handle").to_vec();
        post_op(&mut from).expect("attributes");
        let (before, after) = wcc(&mut from);
        assert!(before.is_some() && after.is_some());
        assert!(from.rest().is_empty());
        Ok(handle)
    }

    /// Writes; how many bytes, how safe, and the verifier.
    pub(crate) fn write(
        &mut self,
        file: &Fh,
        offset: u64,
        stable: u32,
        data: &[u8],
    ) -> Res<(usize, u32, [u8; 8])> {
        let count = u32::try_from(data.len()).expect("short");
        let arguments = Args::default().opaque(file).u64(offset).u32(count).u32(stable);
        let body = self.nfs(Procedure::Write, arguments.opaque(data))?;
        let mut from = Reader::new(&body);
        let (before, after) = wcc(&mut from);
        assert!(before.is_some() && after.is_some());
        let count = from.u32().expect("a count") as usize;
        Ok((count, from.u32().expect("stable"), from.fixed().expect("a verifier")))
    }

    pub(crate) fn commit(&mut self, file: &Fh) -> Res<[u8; 8]> {
        let body = self.nfs(Procedure::Commit, Args::default().opaque(file).u64(0).u32(0))?;
        let mut from = Reader::new(&body);
        wcc(&mut from);
        Ok(from.fixed().expect("a verifier"))
    }

    pub(crate) fn read(&mut self, file: &Fh, offset: u64, count: u32) -> Res<(Vec<u8>, bool)> {
        let arguments = Args::default().opaque(file).u64(offset).u32(count);
        let body = self.nfs(Procedure::Read, arguments)?;
        let mut from = Reader::new(&body);
        post_op(&mut from).expect("attributes");
        let count = from.u32().expect("a count") as usize;
        let is_end = from.bool().expect("a flag");
        let data = from.opaque(1 << 20).expect("data").to_vec();
        assert_eq!(data.len(), count);
        assert!(from.rest().is_empty());
        Ok((data, is_end))
    }

    pub(crate) fn remove(&mut self, dir: &Fh, name: &str) -> Res<()> {
        self.nfs(Procedure::Remove, Args::default().at(dir, name)).map(drop)
    }

    /// The names of a directory with their file numbers, by READDIR in parts of so many bytes.
    pub(crate) fn list(&mut self, dir: &Fh, count: u32) -> Res<Vec<(String, u64)>> {
        let (mut listed, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
        loop {
            let arguments = Args::default().opaque(dir).u64(cookie);
            let arguments = arguments.u64(u64::from_be_bytes(verifier)).u32(count);
            let body = self.nfs(Procedure::Readdir, arguments)?;
            assert!(body.len() <= count as usize, "{} of {count}", body.len());
            let mut from = Reader::new(&body);
            post_op(&mut from);
            verifier = from.fixed().expect("a verifier");
            while from.bool().expect("a flag") {
                let fileid = from.u64().expect("a number");
                let name = from.opaque(255).expect("a name");
                listed.push((String::from_utf8_lossy(name).into_owned(), fileid));
                cookie = from.u64().expect("a cookie");
            }
            if from.bool().expect("a flag") {
                return Ok(listed);
            }
        }
    }
}
