//! Calls to bytes.

use crate::mount;
use crate::nfs3::{Call, CreateHow, DirOpArgs, Ftype3, MknodData, Procedure, Sattr3, SetTime};
use crate::rpc::{self, Credentials, Flavor};
use crate::xdr::{Encode, Writer};

/// A call as the body of a record.
///
/// # Panics
/// When its credentials have 4 GiB.
#[must_use]
pub fn rpc_call(call: &rpc::Call<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = Writer::new(&mut bytes);
    out.put(&call.xid).put(&0_u32).put(&2_u32);
    out.put(&call.program).put(&call.version).put(&call.procedure);
    let mut body = Vec::new();
    let flavor = match &call.credentials {
        Credentials::None => Flavor::NONE,
        Credentials::Other(flavor) => *flavor,
        Credentials::Sys(sys) => {
            let mut body = Writer::new(&mut body);
            body.put(&sys.stamp).put(&sys.machine_name).put(&sys.uid).put(&sys.gid);
            let gids = sys.gids.as_slice();
            body.put(&u32::try_from(gids.len()).expect("few groups"));
            gids.iter().for_each(|gid| gid.encode(&mut body));
            Flavor::SYS
        }
    };
    out.put(&flavor.0).put(&body.as_slice()).put(&0_u64);
    out.raw(call.arguments);
    bytes
}

/// The procedure of a call to MOUNT, and its arguments.
#[must_use]
pub fn mount_call(call: &mount::Call<'_>) -> (u32, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut out = Writer::new(&mut bytes);
    let procedure = match call {
        mount::Call::Null => 0,
        mount::Call::Mnt(path) => {
            out.put(path);
            1
        }
        mount::Call::Dump => 2,
        mount::Call::Umnt(path) => {
            out.put(path);
            3
        }
        mount::Call::Umntall => 4,
        mount::Call::Export => 5,
    };
    (procedure, bytes)
}

/// The procedure of a call to NFS, and its arguments.
///
/// # Panics
/// When the data of a WRITE has 4 GiB.
#[must_use]
pub fn nfs_call(call: &Call<'_>) -> (Procedure, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut out = Writer::new(&mut bytes);
    let procedure = match call {
        Call::Null => return (Procedure::Null, bytes),
        Call::Getattr { object } => (Procedure::Getattr, out.put(object)),
        Call::Setattr { object, new_attributes, guard } => {
            out.put(object);
            sattr(new_attributes, &mut out);
            (Procedure::Setattr, out.put(guard))
        }
        Call::Lookup { what } => (Procedure::Lookup, dir_op(what, &mut out)),
        Call::Access { object, access } => (Procedure::Access, out.put(object).put(access)),
        Call::Readlink { symlink } => (Procedure::Readlink, out.put(symlink)),
        Call::Read { file, offset, count } => {
            (Procedure::Read, out.put(file).put(offset).put(count))
        }
        Call::Write { file, offset, stable, data } => {
            let count = u32::try_from(data.len()).expect("short data");
            (Procedure::Write, out.put(file).put(offset).put(&count).put(stable).put(data))
        }
        Call::Remove { object } => (Procedure::Remove, dir_op(object, &mut out)),
        Call::Rmdir { object } => (Procedure::Rmdir, dir_op(object, &mut out)),
        Call::Rename { from, to } => {
            dir_op(from, &mut out);
            (Procedure::Rename, dir_op(to, &mut out))
        }
        Call::Link { file, link } => {
            out.put(file);
            (Procedure::Link, dir_op(link, &mut out))
        }
        Call::Readdir { dir, cookie, cookieverf, count } => {
            (Procedure::Readdir, out.put(dir).put(cookie).put(cookieverf).put(count))
        }
        Call::Readdirplus { dir, cookie, cookieverf, dircount, maxcount } => {
            out.put(dir).put(cookie).put(cookieverf);
            (Procedure::Readdirplus, out.put(dircount).put(maxcount))
        }
        Call::Fsstat { fsroot } => (Procedure::Fsstat, out.put(fsroot)),
        Call::Fsinfo { fsroot } => (Procedure::Fsinfo, out.put(fsroot)),
        Call::Pathconf { object } => (Procedure::Pathconf, out.put(object)),
        Call::Commit { file, offset, count } => {
            (Procedure::Commit, out.put(file).put(offset).put(count))
        }
        making => (make(making, &mut out), &mut out),
    };
    (procedure.0, bytes)
}

/// The calls that make a file.
fn make(call: &Call<'_>, out: &mut Writer<'_>) -> Procedure {
    match call {
        Call::Create { place, how } => {
            dir_op(place, out);
            match how {
                CreateHow::Unchecked(attributes) => sattr(attributes, out.put(&0_u32)),
                CreateHow::Guarded(attributes) => sattr(attributes, out.put(&1_u32)),
                CreateHow::Exclusive(verifier) => {
                    out.put(&2_u32).put(verifier);
                }
            }
            Procedure::Create
        }
        Call::Mkdir { place, attributes } => {
            sattr(attributes, dir_op(place, out));
            Procedure::Mkdir
        }
        Call::Symlink { place, attributes, data } => {
            sattr(attributes, dir_op(place, out));
            out.put(data);
            Procedure::Symlink
        }
        Call::Mknod { place, what } => {
            dir_op(place, out);
            match what {
                MknodData::Chr(attributes, device) => {
                    sattr(attributes, out.put(&Ftype3::Chr));
                    out.put(device);
                }
                MknodData::Blk(attributes, device) => {
                    sattr(attributes, out.put(&Ftype3::Blk));
                    out.put(device);
                }
                MknodData::Sock(attributes) => sattr(attributes, out.put(&Ftype3::Sock)),
                MknodData::Fifo(attributes) => sattr(attributes, out.put(&Ftype3::Fifo)),
                MknodData::Other(number) => number.encode(out),
            }
            Procedure::Mknod
        }
        other => unreachable!("{other:?} makes no file"),
    }
}

fn dir_op<'w, 'o>(args: &DirOpArgs<'_>, out: &'w mut Writer<'o>) -> &'w mut Writer<'o> {
    out.put(&args.dir).put(&args.name)
}

fn sattr(attributes: &Sattr3, out: &mut Writer<'_>) {
    let Sattr3 { mode, uid, gid, size, atime, mtime } = attributes;
    out.put(mode).put(uid).put(gid).put(size);
    for time in [atime, mtime] {
        match time {
            SetTime::DontChange => out.put(&0_u32),
            SetTime::ToServerTime => out.put(&1_u32),
            SetTime::ToClientTime(time) => out.put(&2_u32).put(time),
        };
    }
}
