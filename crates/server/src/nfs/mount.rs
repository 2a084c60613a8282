//! MOUNT: from `/SHARE[@MOMENT][/DIRECTORY...]` to the first handle; `.hindsight/MOMENT` is a part
//! of a path here too, as some clients mount the directory that they are about to read.

use share::{ErrorKind, FileKind, Tree, Wait};
use units::{FileId, Moment, VolumeMoment};
use wire::mount::{
    Call, ExportNode, MntOk, MountBody, Mountstat3, Results, encode, limits::PATH_BYTES_MAX,
};
use wire::nfs3::FileHandle;
use wire::rpc::{self, Flavor};

use super::answer::{Scope, status, success};
use super::context::{MOUNTS_MAX, NfsContext};
use super::exports::{Admitted, Peer, admit};
use super::moments::{LIST_NAME_TEXT, moment_of};
use super::shares::Opened;

/// Carries out a call of MOUNT. That may wait for a device.
pub(crate) fn mount(
    context: &NfsContext,
    peer: Peer,
    asked: &rpc::Call<'_>,
    call: &Call<'_>,
) -> Vec<u8> {
    let answer = |results: &Results<'_>| success(asked.xid, |out| encode::results(results, out));
    match call {
        Call::Null => answer(&Results::Nothing),
        Call::Mnt(path) => {
            let path = path.of_any_length();
            let found = find(context, peer, &asked.credentials, path);
            if let (Ok(_), Some(path)) = (&found, canonical(path)) {
                let mut mounts = context.mounts.lock();
                if mounts.len() < MOUNTS_MAX {
                    mounts.insert((peer.ip, path));
                }
            }
            let auth_flavors = &[Flavor::SYS];
            answer(&Results::Mnt(found.map(|fhandle| MntOk { fhandle, auth_flavors })))
        }
        Call::Umnt(path) => {
            if let Some(path) = canonical(path.of_any_length()) {
                context.mounts.lock().remove(&(peer.ip, path));
            }
            answer(&Results::Nothing)
        }
        Call::Umntall => {
            context.mounts.lock().retain(|(ip, _)| *ip != peer.ip);
            answer(&Results::Nothing)
        }
        Call::Dump => {
            let mounts: Vec<(String, String)> = {
                let mounts = context.mounts.lock();
                mounts.iter().map(|(ip, path)| (ip.to_string(), path.clone())).collect()
            };
            let bodies: Vec<MountBody<'_>> = mounts
                .iter()
                .map(|(ip, path)| MountBody { hostname: ip.as_bytes(), directory: path.as_bytes() })
                .collect();
            answer(&Results::Dump(&bodies))
        }
        Call::Export => exports(context, asked.xid),
    }
}

/// A path in one spelling.
fn canonical(path: &[u8]) -> Option<String> {
    let path = str::from_utf8(path).ok()?;
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    Some(parts.fold(String::new(), |all, part| all + "/" + part))
}

/// The shares, and who may mount them.
fn exports(context: &NfsContext, xid: u32) -> Vec<u8> {
    let listed: Vec<(String, Vec<String>)> = context
        .pool
        .volumes()
        .iter()
        .filter_map(|volume| {
            let setting = volume.share()?;
            let networks = setting.allowed.iter().map(|allowed| allowed.network.to_string());
            Some((format!("/{}", volume.name()), networks.collect()))
        })
        .collect();
    let groups: Vec<Vec<&[u8]>> = listed
        .iter()
        .map(|(_, networks)| networks.iter().map(String::as_bytes).collect())
        .collect();
    let nodes: Vec<ExportNode<'_>> = listed
        .iter()
        .zip(&groups)
        .map(|((path, _), groups)| ExportNode { dir: path.as_bytes(), groups })
        .collect();
    success(xid, |out| encode::results(&Results::Export(&nodes), out))
}

/// The handle of a path.
fn find(
    context: &NfsContext,
    peer: Peer,
    credentials: &rpc::Credentials<'_>,
    path: &[u8],
) -> Result<FileHandle, Mountstat3> {
    if path.len() > PATH_BYTES_MAX {
        return Err(Mountstat3::NameTooLong);
    }
    let path = str::from_utf8(path).map_err(|_| Mountstat3::NoEnt)?;
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let name = parts.next().ok_or(Mountstat3::NoEnt)?;
    let wanted: VolumeMoment = name.parse().map_err(|_| Mountstat3::NoEnt)?;
    let volume = context.pool.volume(&wanted.volume).map_err(|_| Mountstat3::NoEnt)?;
    let setting = volume.share().ok_or(Mountstat3::NoEnt)?;
    let admitted = admit(&setting, peer, credentials).ok_or(Mountstat3::Acces)?;
    let opened = context.shares.open_volume(&volume).map_err(|e| refused(&e))?;
    let parts: Vec<&str> = parts.collect();
    if name.contains('@') {
        return at_moment(&opened, &admitted, &wanted.moment, None, &parts);
    }
    let scope = Scope { opened: &opened, moment: None };
    // Not held while a moment is opened.
    let walked = {
        let tree = opened.share().tree(Wait::May).map_err(|e| refused(&e))?;
        walk(&tree, tree.top().map_err(|e| refused(&e))?, &parts)
    };
    match walked {
        Ok(id) => Ok(scope.handle(id)),
        Err(Stopped { id, rest, status }) => match rest {
            [LIST_NAME_TEXT] if admitted.may_see_past => Ok(scope.handle_at(None, id, true)),
            [LIST_NAME_TEXT, moment, rest @ ..] => {
                let moment = moment_of(moment.as_bytes()).ok_or(Mountstat3::NoEnt)?;
                at_moment(&opened, &admitted, &moment, Some(id), rest)
            }
            _ => Err(status),
        },
    }
}

/// The handle of a path at a moment, from a directory on, or from the top.
fn at_moment(
    opened: &Opened,
    admitted: &Admitted,
    moment: &Moment,
    from: Option<FileId>,
    parts: &[&str],
) -> Result<FileHandle, Mountstat3> {
    if !admitted.may_see_past {
        return Err(Mountstat3::Acces);
    }
    let (seq, past) = opened.open_moment(moment).map_err(|e| refused(&e))?;
    let scope = Scope { opened, moment: Some(seq) };
    let tree = past.tree(Wait::May);
    let top = tree.top().map_err(|e| refused(&e))?;
    let from = from.unwrap_or(top);
    // It may not have been there then.
    tree.attributes(from).map_err(|e| refused(&e))?;
    let walked = walk(&tree, from, parts);
    walked.map(|id| scope.handle(id)).map_err(|stopped| stopped.status)
}

/// Where the walk along a path ended early: the last directory, and what was left.
struct Stopped<'p> {
    id: FileId,
    rest: &'p [&'p str],
    status: Mountstat3,
}

/// The directory of a path. Modes do not matter here, as handles are looked at again; links are for
/// clients to follow.
fn walk<'p, T: Tree>(tree: &T, from: FileId, parts: &'p [&'p str]) -> Result<FileId, Stopped<'p>> {
    let root = share::Credentials::root();
    let mut id = from;
    for (index, part) in parts.iter().enumerate() {
        let stopped = |status| Stopped { id, rest: &parts[index..], status };
        let found = tree.look_up(&root, id, part.as_bytes());
        let found = found.map_err(|e| stopped(refused(&e)))?;
        if found.kind != FileKind::Directory {
            return Err(stopped(Mountstat3::NotDir));
        }
        id = found.id;
    }
    Ok(id)
}

fn refused(error: &share::Error) -> Mountstat3 {
    match error.kind {
        ErrorKind::NotFound | ErrorKind::Stale => Mountstat3::NoEnt,
        ErrorKind::NotDirectory => Mountstat3::NotDir,
        ErrorKind::NameTooLong => Mountstat3::NameTooLong,
        ErrorKind::Invalid => Mountstat3::Inval,
        _ => {
            // It is logged if it is a failure of ours.
            let _ = status(error);
            Mountstat3::Io
        }
    }
}
