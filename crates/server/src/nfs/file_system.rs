//! Answers that are made alike of objects and of the list of moments.

use share::Wait;
use units::Inode;
use wire::nfs3::{
    self, Call, DirList, Fail, FsProperties, FsinfoOk, FsstatOk, Nfstime3, PathconfOk, PostOpAttr,
    ReaddirOk, Results, Verifier, limits,
};

use super::answer::{results, success};
use super::context::NfsContext;
use super::located::{Fault, Located};

/// Cookies are the keys of entries, and never refused: all listings have this verifier.
pub(crate) const COOKIE_VERIFIER: Verifier = [1; 8];

/// The answer that a list is.
pub(crate) fn listing(
    xid: u32,
    list: DirList,
    is_end: bool,
    dir_attributes: PostOpAttr,
    plus: bool,
) -> Vec<u8> {
    let of = |res| if plus { Results::Readdirplus(res) } else { Results::Readdir(res) };
    match list.finish(is_end) {
        Ok(entries) => success(xid, |out| {
            let ok = ReaddirOk { dir_attributes, cookieverf: COOKIE_VERIFIER };
            nfs3::encode::results(&of(Ok(ok)), out);
            out.extend_from_slice(&entries);
        }),
        Err(status) => results(xid, &of(Err(Fail { status, attributes: dir_attributes }))),
    }
}

/// FSSTAT, FSINFO, PATHCONF: the same of all objects.
pub(crate) fn about_the_file_system(
    context: &NfsContext,
    located: &Located,
    xid: u32,
    call: &Call<'_>,
    here: PostOpAttr,
    wait: Wait,
) -> Result<Vec<u8>, Fault> {
    Ok(match call {
        Call::Fsstat { .. } => {
            let inodes = located.share().tree(wait)?.state().inodes;
            let (used, _, room) = context.pool.room();
            let ok = FsstatOk {
                obj_attributes: here,
                tbytes: used + room,
                fbytes: room,
                abytes: room,
                tfiles: Inode::END.0 - 1,
                ffiles: Inode::END.0 - 1 - inodes,
                afiles: Inode::END.0 - 1 - inodes,
                invarsec: 0,
            };
            results(xid, &Results::Fsstat(Ok(ok)))
        }
        Call::Fsinfo { .. } => {
            let write_max = transfer_bytes(located.share().write_bytes_max());
            let read_max = transfer_bytes(limits::TRANSFER_BYTES_MAX);
            let ok = FsinfoOk {
                obj_attributes: here,
                rtmax: read_max,
                rtpref: read_max,
                rtmult: 4096,
                wtmax: write_max,
                wtpref: write_max,
                wtmult: 4096,
                dtpref: 64 << 10,
                maxfilesize: share::FILE_BYTES_MAX,
                time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
                properties: FsProperties::LINK
                    .with(FsProperties::SYMLINK)
                    .with(FsProperties::HOMOGENEOUS)
                    .with(FsProperties::CANSETTIME),
            };
            results(xid, &Results::Fsinfo(Ok(ok)))
        }
        Call::Pathconf { .. } => {
            let ok = PathconfOk {
                obj_attributes: here,
                linkmax: share::LINKS_MAX,
                name_max: limits::NAME_BYTES_MAX as u32,
                no_trunc: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            };
            results(xid, &Results::Pathconf(Ok(ok)))
        }
        _ => unreachable!("all others are answered"),
    })
}

/// The largest power of two up to a size and to what a message has.
pub(super) fn transfer_bytes(most: usize) -> u32 {
    let most = u32::try_from(most.min(limits::TRANSFER_BYTES_MAX)).expect("a message is short");
    1 << most.ilog2()
}
