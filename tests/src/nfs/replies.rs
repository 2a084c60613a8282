//! Replies from bytes.

use anyhow::{Result, bail, ensure};

use super::xdr::Reader;
use super::{Attr, Call, Entry, Kind, Reply, Stable, Time, status};

/// The reply to a call, from what stands behind the xid of its record.
pub(super) fn reply(call: &Call, bytes: &[u8]) -> Result<Reply> {
    let mut from = Reader(bytes);
    ensure!(from.u32()? == 1, "a record that is no reply");
    let header = [from.u32()?, from.u32()?, from.u32()?, from.u32()?];
    ensure!(header == [0; 4], "a call was not accepted: {header:?}");
    let mut reply = Reply { status: from.u32()?, ..Reply::default() };
    match (call, reply.status) {
        (Call::Mount { .. }, status::OK) => {
            reply.handle = Some(handle(&mut from)?);
            for _ in 0..from.u32()? {
                from.u32()?;
            }
        }
        // Only its status.
        (Call::Mount { .. } | Call::Getattr { .. }, failed) if failed != status::OK => {}
        (_, status::OK) => results(call, &mut from, &mut reply)?,
        _ => failure(call, &mut from, &mut reply)?,
    }
    from.end()?;
    Ok(reply)
}

fn results(call: &Call, from: &mut Reader<'_>, reply: &mut Reply) -> Result<()> {
    match call {
        Call::Getattr { .. } => reply.attr = Some(attr(from)?),
        Call::Setattr { .. } => reply.attr = wcc(from)?,
        Call::Lookup { .. } => {
            reply.handle = Some(handle(from)?);
            reply.attr = post_op(from)?;
            reply.dirs.extend(post_op(from)?);
        }
        Call::Readlink { .. } => {
            reply.attr = post_op(from)?;
            reply.data = from.opaque()?.to_vec();
        }
        Call::Read { count: asked, .. } => {
            reply.attr = post_op(from)?;
            reply.count = from.u32()?;
            reply.is_end = from.flag()?;
            reply.data = from.opaque()?.to_vec();
            ensure!(reply.data.len() == reply.count as usize, "a READ of another count");
            ensure!(reply.count <= *asked, "a READ of more than was asked for");
        }
        Call::Write { .. } => {
            reply.attr = wcc(from)?;
            reply.count = from.u32()?;
            reply.committed = Some(match from.u32()? {
                0 => Stable::Unstable,
                1 => Stable::DataSync,
                2 => Stable::FileSync,
                other => bail!("a WRITE that is {other}"),
            });
            reply.verifier = from.eight()?;
        }
        Call::Create { .. } | Call::Mkdir { .. } | Call::Symlink { .. } => {
            reply.handle = if from.flag()? { Some(handle(from)?) } else { None };
            reply.attr = post_op(from)?;
            reply.dirs.extend(wcc(from)?);
        }
        Call::Remove { .. } | Call::Rmdir { .. } => reply.dirs.extend(wcc(from)?),
        Call::Rename { .. } => {
            reply.dirs.extend(wcc(from)?);
            reply.dirs.extend(wcc(from)?);
        }
        Call::Link { .. } => {
            reply.attr = post_op(from)?;
            reply.dirs.extend(wcc(from)?);
        }
        Call::Readdir { .. } => directory(from, reply, false)?,
        Call::Readdirplus { .. } => directory(from, reply, true)?,
        Call::Fsstat { .. } => {
            reply.attr = post_op(from)?;
            let mut room = [0; 6];
            for value in &mut room {
                *value = from.u64()?;
            }
            from.u32()?;
            reply.room = (room[0], room[1], room[3], room[4]);
        }
        Call::Commit { .. } => {
            reply.attr = wcc(from)?;
            reply.verifier = from.eight()?;
        }
        Call::Mount { .. } => bail!("MOUNT is read elsewhere"),
    }
    Ok(())
}

/// Attributes that come with a failure.
fn failure(call: &Call, from: &mut Reader<'_>, reply: &mut Reply) -> Result<()> {
    match call {
        Call::Setattr { .. } | Call::Write { .. } | Call::Commit { .. } => reply.attr = wcc(from)?,
        Call::Create { .. }
        | Call::Mkdir { .. }
        | Call::Symlink { .. }
        | Call::Remove { .. }
        | Call::Rmdir { .. } => reply.dirs.extend(wcc(from)?),
        Call::Rename { .. } => {
            reply.dirs.extend(wcc(from)?);
            reply.dirs.extend(wcc(from)?);
        }
        Call::Link { .. } => {
            reply.attr = post_op(from)?;
            reply.dirs.extend(wcc(from)?);
        }
        _ => reply.attr = post_op(from)?,
    }
    Ok(())
}

fn directory(from: &mut Reader<'_>, reply: &mut Reply, is_plus: bool) -> Result<()> {
    reply.dirs.extend(post_op(from)?);
    reply.verifier = from.eight()?;
    while from.flag()? {
        let (fileid, name, cookie) = (from.u64()?, from.opaque()?.to_vec(), from.u64()?);
        let mut entry = Entry { fileid, name, cookie, attr: None, handle: None };
        if is_plus {
            entry.attr = post_op(from)?;
            entry.handle = if from.flag()? { Some(handle(from)?) } else { None };
        }
        reply.entries.push(entry);
    }
    reply.is_end = from.flag()?;
    Ok(())
}

fn handle(from: &mut Reader<'_>) -> Result<Vec<u8>> {
    let handle = from.opaque()?;
    ensure!(handle.len() <= 64, "a handle of {} bytes", handle.len());
    Ok(handle.to_vec())
}

fn post_op(from: &mut Reader<'_>) -> Result<Option<Attr>> {
    if from.flag()? { attr(from).map(Some) } else { Ok(None) }
}

/// `wcc_data`: the attributes after.
fn wcc(from: &mut Reader<'_>) -> Result<Option<Attr>> {
    if from.flag()? {
        from.u64()?;
        time(from)?;
        time(from)?;
    }
    post_op(from)
}

fn attr(from: &mut Reader<'_>) -> Result<Attr> {
    let kind = match from.u32()? {
        1 => Kind::File,
        2 => Kind::Directory,
        5 => Kind::Symlink,
        other => bail!("an object of kind {other}"),
    };
    let (mode, nlink, uid, gid) = (from.u32()?, from.u32()?, from.u32()?, from.u32()?);
    let size = from.u64()?;
    // Bytes that are used, and the number of a device.
    from.u64()?;
    from.u64()?;
    let (fsid, fileid) = (from.u64()?, from.u64()?);
    let (atime, mtime, ctime) = (time(from)?, time(from)?, time(from)?);
    Ok(Attr { kind, mode, nlink, uid, gid, size, fsid, fileid, atime, mtime, ctime })
}

fn time(from: &mut Reader<'_>) -> Result<Time> {
    let time = (from.u32()?, from.u32()?);
    ensure!(time.1 < 1_000_000_000, "a time of {} nanoseconds", time.1);
    Ok(time)
}
