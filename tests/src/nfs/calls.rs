//! Calls as bytes.

use super::xdr::Writer;
use super::{Call, How, Set, Stable, Time};

/// The program MOUNT, and NFS.
const MOUNT: u32 = 100_005;
const NFS: u32 = 100_003;

impl Call {
    /// The program and procedure.
    fn procedure(&self) -> (u32, u32) {
        let number = match self {
            Call::Mount { .. } => return (MOUNT, 1),
            Call::Getattr { .. } => 1,
            Call::Setattr { .. } => 2,
            Call::Lookup { .. } => 3,
            Call::Readlink { .. } => 5,
            Call::Read { .. } => 6,
            Call::Write { .. } => 7,
            Call::Create { .. } => 8,
            Call::Mkdir { .. } => 9,
            Call::Symlink { .. } => 10,
            Call::Remove { .. } => 12,
            Call::Rmdir { .. } => 13,
            Call::Rename { .. } => 14,
            Call::Link { .. } => 15,
            Call::Readdir { .. } => 16,
            Call::Readdirplus { .. } => 17,
            Call::Fsstat { .. } => 18,
            Call::Commit { .. } => 21,
        };
        (NFS, number)
    }

    /// The record of the call: of one fragment, by a user of one group.
    pub(super) fn record(&self, xid: u32, uid: u32, gid: u32) -> Vec<u8> {
        let (program, procedure) = self.procedure();
        let mut sys = Writer::default();
        sys.u32(0).opaque(b"checker").u32(uid).u32(gid).u32(0);
        let mut out = Writer(vec![0; 4]);
        out.u32(xid).u32(0).u32(2).u32(program).u32(3).u32(procedure);
        out.u32(1).opaque(&sys.0).u32(0).u32(0);
        self.arguments(&mut out);
        let mark = u32::try_from(out.0.len() - 4).expect("calls are short") | 1 << 31;
        out.0[..4].copy_from_slice(&mark.to_be_bytes());
        out.0
    }

    fn arguments(&self, out: &mut Writer) {
        match self {
            Call::Mount { path } => out.opaque(path),
            Call::Getattr { object } | Call::Readlink { link: object } => out.opaque(object),
            Call::Fsstat { root } => out.opaque(root),
            // No guard.
            Call::Setattr { object, set } => attributes(out.opaque(object), set).u32(0),
            Call::Lookup { dir, name } | Call::Remove { dir, name } | Call::Rmdir { dir, name } => {
                out.opaque(dir).opaque(name)
            }
            Call::Read { file, offset, count } => out.opaque(file).u64(*offset).u32(*count),
            Call::Write { file, offset, stable, data } => {
                let count = u32::try_from(data.len()).expect("writes are short");
                let stable = match stable {
                    Stable::Unstable => 0,
                    Stable::DataSync => 1,
                    Stable::FileSync => 2,
                };
                out.opaque(file).u64(*offset).u32(count).u32(stable).opaque(data)
            }
            Call::Create { dir, name, how } => {
                out.opaque(dir).opaque(name);
                match how {
                    How::Unchecked(set) => attributes(out.u32(0), set),
                    How::Guarded(set) => attributes(out.u32(1), set),
                    How::Exclusive(verifier) => out.u32(2).fixed(verifier),
                }
            }
            Call::Mkdir { dir, name, set } => attributes(out.opaque(dir).opaque(name), set),
            Call::Symlink { dir, name, set, target } => {
                attributes(out.opaque(dir).opaque(name), set).opaque(target)
            }
            Call::Rename { from, name, to, new_name } => {
                out.opaque(from).opaque(name).opaque(to).opaque(new_name)
            }
            Call::Link { file, dir, name } => out.opaque(file).opaque(dir).opaque(name),
            Call::Readdir { dir, cookie, verifier, count } => {
                out.opaque(dir).u64(*cookie).fixed(verifier).u32(*count)
            }
            Call::Readdirplus { dir, cookie, verifier, count } => {
                out.opaque(dir).u64(*cookie).fixed(verifier).u32(*count).u32(*count)
            }
            Call::Commit { file } => out.opaque(file).u64(0).u32(0),
        };
    }
}

fn attributes<'w>(out: &'w mut Writer, set: &Set) -> &'w mut Writer {
    for value in [set.mode, set.uid, set.gid] {
        match value {
            Some(value) => out.u32(1).u32(value),
            None => out.u32(0),
        };
    }
    match set.size {
        Some(size) => out.u32(1).u64(size),
        None => out.u32(0),
    };
    time(time(out, set.atime), set.mtime)
}

/// A time of the client's, or none.
fn time(out: &mut Writer, time: Option<Time>) -> &mut Writer {
    match time {
        Some((seconds, nanoseconds)) => out.u32(2).u32(seconds).u32(nanoseconds),
        None => out.u32(0),
    }
}
