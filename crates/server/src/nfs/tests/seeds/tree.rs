//! The model's operations as calls of NFS, and the whole tree as a client sees it.

use std::collections::BTreeMap;

use sim::posix::{Bytes, Kind, Model, Op, ROOT, Refusal, split};
use wire::nfs3::{self, Nfsstat3, Procedure};

use super::super::client::{Args, Attr, Client, Fh, Res};

const SECOND_NS: u64 = 1_000_000_000;

/// The call of an operation, or the reason why there is none to be made.
pub(super) type Ready = Result<Call, Refusal>;

/// A call that changes something.
pub(super) struct Call {
    pub(super) procedure: Procedure,
    pub(super) arguments: Vec<u8>,
}

/// The results of a call, or the reason against it; none if the server had died.
pub(super) type Answer = Option<Result<Vec<u8>, Refusal>>;

/// Whether a server that has died may still answer that, and no other does.
fn is_trouble(status: Nfsstat3) -> bool {
    matches!(status, Nfsstat3::Io | Nfsstat3::Jukebox | Nfsstat3::ServerFault)
}

pub(super) fn refusal(status: Nfsstat3) -> Refusal {
    match status {
        Nfsstat3::NoEnt => Refusal::NotFound,
        Nfsstat3::Exist => Refusal::Exists,
        Nfsstat3::NotDir => Refusal::NotDirectory,
        Nfsstat3::IsDir => Refusal::IsDirectory,
        Nfsstat3::NotEmpty => Refusal::NotEmpty,
        Nfsstat3::Inval => Refusal::Invalid,
        Nfsstat3::Fbig => Refusal::FileTooLarge,
        other => panic!("{other:?}"),
    }
}

/// Sends a record and awaits its results.
pub(super) fn ask(client: &mut Client, record: &[u8]) -> Answer {
    let mut body = client.ask(record)?;
    let results = body.split_off(4);
    let status = u32::from_be_bytes(body.try_into().expect("four"));
    if status == 0 {
        return Some(Ok(results));
    }
    let status = Nfsstat3::from_number(status).expect("a status");
    (!is_trouble(status)).then(|| Err(refusal(status)))
}

impl Call {
    /// Its bytes, with the next number.
    pub(super) fn record(&self, client: &mut Client) -> Vec<u8> {
        client.xid += 1;
        client.record(nfs3::PROGRAM, self.procedure.number(), &self.arguments)
    }
}

/// `sattr3`: what is given is set.
#[derive(Default)]
struct Set {
    mode: Option<u16>,
    owner: Option<(u32, u32)>,
    size: Option<u64>,
    times: Option<(u64, u64)>,
}

impl Set {
    fn after(self, mut args: Args) -> Args {
        let owner = self.owner.map_or([None; 2], |(uid, gid)| [Some(uid), Some(gid)]);
        for word in [self.mode.map(u32::from), owner[0], owner[1]] {
            args = match word {
                Some(word) => args.u32(1).u32(word),
                None => args.u32(0),
            };
        }
        args = match self.size {
            Some(size) => args.u32(1).u64(size),
            None => args.u32(0),
        };
        let times = self.times.map_or([None; 2], |(atime, mtime)| [Some(atime), Some(mtime)]);
        for time in times {
            args = match time {
                Some(time) => {
                    let (seconds, rest) = (time / SECOND_NS, time % SECOND_NS);
                    args.u32(2).u32(u32::try_from(seconds).expect("one")).u32(rest as u32)
                }
                None => args.u32(0),
            };
        }
        args
    }
}

fn mode(mode: u16) -> Set {
    Set { mode: Some(mode), ..Set::default() }
}

/// Whether the server answered that, and the reason.
fn found<T>(result: Res<T>) -> Result<T, Refusal> {
    result.map_err(refusal)
}

fn object(client: &mut Client, top: &Fh, path: &str) -> Result<Fh, Refusal> {
    if path.is_empty() { Ok(top.clone()) } else { found(client.find(top, path)) }
}

/// The directory of a path.
fn directory(client: &mut Client, top: &Fh, path: &str) -> Result<Fh, Refusal> {
    let handle = object(client, top, split(path).0)?;
    match found(client.getattr(&handle))?.kind {
        2 => Ok(handle),
        _ => Err(Refusal::NotDirectory),
    }
}

/// The call of an operation; `stable` is how safe a WRITE has to be.
pub(super) fn call(client: &mut Client, top: &Fh, op: &Op, stable: u32) -> Ready {
    let at = |client: &mut Client, path: &str| -> Result<Args, Refusal> {
        Ok(Args::default().at(&directory(client, top, path)?, split(path).1))
    };
    let ready = |procedure, args: Args| Ok(Call { procedure, arguments: args.0 });
    match op {
        Op::Create(path) => {
            let args = at(client, path)?.u32(1);
            ready(Procedure::Create, mode(0o644).after(args))
        }
        Op::Open(path, size) => {
            let args = at(client, path)?.u32(0);
            ready(Procedure::Create, Set { size: *size, ..mode(0o644) }.after(args))
        }
        Op::Exclusive(path, verifier) => {
            let verifier = u64::from_be_bytes([*verifier; 8]);
            ready(Procedure::Create, at(client, path)?.u32(2).u64(verifier))
        }
        Op::Mkdir(path) => ready(Procedure::Mkdir, mode(0o755).after(at(client, path)?)),
        Op::Symlink(path, target) => {
            let args = mode(0o777).after(at(client, path)?);
            ready(Procedure::Symlink, args.opaque(target))
        }
        Op::Fifo(path) => ready(Procedure::Mknod, mode(0o600).after(at(client, path)?.u32(7))),
        Op::Link(old, path) => {
            let old = object(client, top, old)?;
            if found(client.getattr(&old))?.kind == 2 {
                return Err(Refusal::IsDirectory);
            }
            let to = at(client, path)?;
            let args = Args([Args::default().opaque(&old).0, to.0].concat());
            ready(Procedure::Link, args)
        }
        Op::Remove(path) => ready(Procedure::Remove, at(client, path)?),
        Op::Rmdir(path) => ready(Procedure::Rmdir, at(client, path)?),
        Op::Rename(from, to) => {
            let (from, to) = (at(client, from)?, at(client, to)?);
            ready(Procedure::Rename, Args([from.0, to.0].concat()))
        }
        Op::Write(path, offset, bytes) => {
            let args = Args::default().opaque(&object(client, top, path)?).u64(*offset);
            let count = u32::try_from(bytes.len()).expect("short");
            ready(Procedure::Write, args.u32(count).u32(stable).opaque(bytes))
        }
        Op::Resize(path, size) => set(client, top, path, Set { size: Some(*size), ..mode_none() }),
        Op::Mode(path, bits) => set(client, top, path, mode(*bits)),
        Op::Owner(path, uid, gid) => {
            set(client, top, path, Set { owner: Some((*uid, *gid)), ..mode_none() })
        }
        Op::Times(path, accessed, modified) => {
            let times = Some((*accessed, *modified));
            set(client, top, path, Set { times, ..mode_none() })
        }
    }
}

fn mode_none() -> Set {
    Set::default()
}

fn set(client: &mut Client, top: &Fh, path: &str, set: Set) -> Ready {
    let args = Args::default().opaque(&object(client, top, path)?);
    Ok(Call { procedure: Procedure::Setattr, arguments: set.after(args).u32(0).0 })
}

fn nanoseconds((seconds, rest): (u32, u32)) -> u64 {
    u64::from(seconds) * SECOND_NS + u64::from(rest)
}

/// The number of a kind in NFS.
fn kind_number(kind: &Kind) -> u32 {
    match kind {
        Kind::File(..) => 1,
        Kind::Directory(..) => 2,
        Kind::Symlink(_) => 5,
        Kind::Fifo => 7,
    }
}

/// Asserts that a tree is the model's. Listings come in parts of so many bytes.
pub(super) fn compare(client: &mut Client, top: &Fh, model: &Model, part_bytes: u32) {
    let mut handles = BTreeMap::new();
    let mut waiting = vec![(top.clone(), ROOT)];
    while let Some((handle, number)) = waiting.pop() {
        if let Some(known) = handles.insert(number, handle.clone()) {
            assert_eq!(known, handle, "names of one object");
            continue;
        }
        let node = &model.nodes[&number];
        let there = client.getattr(&handle).expect("it is there");
        let Attr { kind, mode, links, uid, gid, .. } = there;
        let found = (kind, mode, links, uid, gid);
        let wanted = (kind_number(&node.kind), u32::from(node.mode), node.links);
        assert_eq!(found, (wanted.0, wanted.1, wanted.2, node.uid, node.gid), "of {number}");
        let times = [there.atime, there.mtime, there.ctime].map(nanoseconds);
        assert_eq!(times, [node.accessed, node.modified, node.changed], "times of {number}");
        match &node.kind {
            Kind::Directory(entries, _) => {
                let listed = client.list(&handle, part_bytes).expect("listed");
                let names: BTreeMap<&[u8], u64> =
                    listed.iter().map(|(name, id)| (name.as_bytes(), *id)).collect();
                assert_eq!(names.len(), listed.len(), "listed once");
                assert_eq!(names.len(), entries.len() + 2);
                assert!(names.contains_key(&b"."[..]) && names.contains_key(&b".."[..]));
                for (name, inode) in entries {
                    let name = std::str::from_utf8(name).expect("a word");
                    let (child, found) = client.lookup(&handle, name).expect("found");
                    assert_eq!(names.get(name.as_bytes()), Some(&found.fileid), "{name}");
                    waiting.push((child, *inode));
                }
            }
            Kind::File(bytes, _) => {
                assert_eq!(there.size, bytes.size);
                compare_bytes(client, &handle, bytes);
            }
            Kind::Symlink(target) => {
                let args = Args::default().opaque(&handle);
                let body = client.nfs(Procedure::Readlink, args).expect("a link");
                let mut from = wire::xdr::Reader::new(&body);
                super::super::client::post_op(&mut from).expect("attributes");
                assert_eq!(from.opaque(4096).expect("a target"), target);
            }
            Kind::Fifo => {}
        }
    }
    assert_eq!(handles.len(), model.nodes.len());
}

/// Asserts that a file has these bytes.
fn compare_bytes(client: &mut Client, file: &Fh, bytes: &Bytes) {
    // Also where there may have been some before it was cut.
    let far = [0, (1 << 20) - 5000, (1 << 32) - 5000].map(|offset| (offset, 150_000));
    for (offset, count) in bytes.ranges().into_iter().chain(far) {
        let expected = bytes.read(offset, count);
        let is_end = offset + expected.len() as u64 >= bytes.size;
        let (data, was_end) = client.read(file, offset, count as u32).expect("read");
        assert!(data == expected, "bytes at {offset}");
        assert_eq!(was_end, is_end, "the end of {} at {offset}", bytes.size);
    }
}
