//! The past from inside: `.hindsight` in every directory of the present.
//!
//! `.hindsight/MOMENT` and `@MOMENT` are the directory as it was then. Both are found by LOOKUP and
//! listed by nobody; a real entry of the name comes first. `.hindsight` lists the versions, the
//! pinned marks, and an instant for each hour in which something was written; every other moment of
//! the window opens all the same. Windows has no colons in names: `.` in a time stands for one.

use share::{Attributes, ErrorKind, Tree, Wait};
use units::{Moment, Span, WallTime};
use volume::Volume;
use wire::nfs3::{
    Access, AccessOk, Call, DirList, Entry3, EntryPlus3, Fail, Fattr3, Ftype3, LookupOk, Nfsstat3,
    Results,
};

use super::answer::{results, time};
use super::context::NfsContext;
use super::file_system::{about_the_file_system, listing};
use super::handles::Handle;
use super::located::{Fault, Located, directory_of};

/// The name of the list of moments.
pub(crate) const LIST_NAME: &[u8] = LIST_NAME_TEXT.as_bytes();
pub(crate) const LIST_NAME_TEXT: &str = ".hindsight";
const HOUR_NS: u64 = 3600 * 1_000_000_000;
/// Versions, and hours, that are listed at most.
const LISTED_MAX: usize = 1000;
/// Keys of entries, which are their cookies: `.`, `..`, then versions, marks and hours.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
const VERSIONS: u64 = 1 << 56;
const MARKS: u64 = 2 << 56;
const HOURS: u64 = 3 << 56;
const KEY_MASK: u64 = VERSIONS - 1;

/// The object that a directory of the present shows beside its entries, if the name is of that
/// kind.
pub(crate) fn look_up_beside(
    located: &Located,
    directory: &Attributes,
    name: &[u8],
    wait: Wait,
) -> Result<Option<LookupOk>, Fault> {
    if located.handle.moment.is_some() || !located.admitted.may_see_past {
        return Ok(None);
    }
    if name == LIST_NAME {
        return Ok(Some(LookupOk {
            object: located.scope().handle_at(None, directory.id, true),
            obj_attributes: Some(fattr(located, directory)),
            dir_attributes: None,
        }));
    }
    match name.strip_prefix(b"@") {
        Some(moment) => look_up_moment(located, moment, wait),
        None => Ok(None),
    }
}

/// The directory at the moment of a name; none if that is no moment, or it was not there.
fn look_up_moment(located: &Located, name: &[u8], wait: Wait) -> Result<Option<LookupOk>, Fault> {
    let Some(moment) = moment_of(name) else { return Ok(None) };
    if wait == Wait::MayNot {
        return Err(Fault::WouldWait);
    }
    let (seq, past) = match located.opened.open_moment(&moment) {
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let id = located.handle.file;
    let attributes = match past.tree(wait).attributes(id) {
        Err(error) if error.kind == ErrorKind::Stale => return Ok(None),
        found => found?,
    };
    let scope = super::answer::Scope { opened: &located.opened, moment: Some(seq) };
    Ok(Some(LookupOk {
        object: scope.handle(id),
        obj_attributes: Some(scope.fattr(&attributes)),
        dir_attributes: None,
    }))
}

/// The moment that a name is.
pub(crate) fn moment_of(name: &[u8]) -> Option<Moment> {
    let text = std::str::from_utf8(name).ok()?;
    with_colons(text).and_then(|time| time.parse().ok()).or_else(|| text.parse().ok())
}

/// A time in which `.` stands for `:`, or as Windows names previous versions
/// (`GMT-2026.11.21-10.00.00`), as it is written elsewhere.
fn with_colons(text: &str) -> Option<String> {
    if let Some((date, clock)) = text.strip_prefix("GMT-").and_then(|gmt| gmt.split_once('-')) {
        return Some(format!("{}T{}Z", date.replace('.', "-"), clock.replace('.', ":")));
    }
    // The third part may have a fraction of a second.
    let (date, clock) = text.split_once('T')?;
    Some(format!("{date}T{}", clock.replacen('.', ":", 2)))
}

/// The attributes of the list: a directory that nobody changes, and no client believes to know.
fn fattr(located: &Located, directory: &Attributes) -> Fattr3 {
    let now = time(located.opened.volume().now());
    let fileid = Handle::file_number(None, directory.id.inode, true);
    Fattr3 {
        ftype: Ftype3::Dir,
        mode: u32::from(directory.mode & 0o555),
        nlink: 2,
        fileid,
        mtime: now,
        ctime: now,
        ..located.scope().fattr(directory)
    }
}

/// Calls on the list itself.
pub(crate) fn answer(
    context: &NfsContext,
    located: &Located,
    xid: u32,
    call: &Call<'_>,
    wait: Wait,
) -> Result<Vec<u8>, Fault> {
    let (id, directory) = directory_of(located, wait)?;
    let own = fattr(located, &directory);
    let here = Some(own);
    Ok(match *call {
        Call::Getattr { .. } => results(xid, &Results::Getattr(Ok(own))),
        Call::Access { access, .. } => {
            let reads = Access::READ.with(Access::LOOKUP).0 & access.0;
            let tree = located.opened.share().tree(wait)?;
            let granted = Access(tree.access(located.user(), id)?.0 & reads);
            results(xid, &Results::Access(Ok(AccessOk { obj_attributes: here, access: granted })))
        }
        Call::Lookup { what } => {
            let name = what.name.of_any_length();
            let found = match name {
                b"." | b".." => {
                    let (is_moments, attributes) = match name {
                        b"." => (true, own),
                        _ => (false, located.scope().fattr(&directory)),
                    };
                    Some(LookupOk {
                        object: located.scope().handle_at(None, id, is_moments),
                        obj_attributes: Some(attributes),
                        dir_attributes: None,
                    })
                }
                _ if name.len() > wire::nfs3::limits::NAME_BYTES_MAX => None,
                _ => look_up_moment(located, name, wait)?,
            };
            let fail = Fail { status: Nfsstat3::NoEnt, attributes: here };
            let found = found.map(|found| LookupOk { dir_attributes: here, ..found }).ok_or(fail);
            results(xid, &Results::Lookup(found))
        }
        Call::Readdir { cookie, count, .. } => {
            list(located, xid, (cookie, DirList::readdir(count)), own, false, wait)?
        }
        Call::Readdirplus { cookie, dircount, maxcount, .. } => {
            let room = DirList::readdirplus(dircount, maxcount);
            list(located, xid, (cookie, room), own, true, wait)?
        }
        Call::Fsstat { .. } | Call::Fsinfo { .. } | Call::Pathconf { .. } => {
            return about_the_file_system(context, located, xid, call, here, wait);
        }
        Call::Read { .. } | Call::Commit { .. } => return Err(Fault::Status(Nfsstat3::IsDir)),
        _ => return Err(Fault::Status(Nfsstat3::Inval)),
    })
}

fn list(
    located: &Located,
    xid: u32,
    (cookie, mut room): (u64, DirList),
    own: Fattr3,
    plus: bool,
    wait: Wait,
) -> Result<Vec<u8>, Fault> {
    if wait == Wait::MayNot {
        return Err(Fault::WouldWait);
    }
    let directory = located.handle.file.inode;
    let dots = [
        (DOT, ".".to_owned(), own.fileid),
        (DOT_DOT, "..".to_owned(), Handle::file_number(None, directory, false)),
    ];
    let volume = located.opened.volume();
    let named = moments(volume).map_err(share::Error::from)?;
    let named = named.into_iter().filter(|(key, _)| *key > cookie);
    let entries = named.map(|(key, name)| {
        // Of one that cannot be opened any more, any number will do.
        let seq = name.parse().ok().and_then(|moment| volume.resolve(&moment).ok());
        let number = Handle::file_number(seq.map(|found| found.seq), directory, false);
        (key, name, number)
    });
    let mut is_end = true;
    let dots = dots.into_iter().filter(|(key, ..)| *key > cookie);
    for (key, name, fileid) in dots.chain(entries) {
        let entry = Entry3 { fileid, name: name.as_bytes(), cookie: key };
        // Without handles: that would open every moment there is.
        let is_added = match plus {
            true => room.add_plus(&EntryPlus3 { entry, name_attributes: None, name_handle: None }),
            false => room.add(&entry),
        };
        if !is_added {
            is_end = false;
            break;
        }
    }
    Ok(listing(xid, room, is_end, Some(own), plus))
}

/// The moments that are listed, by key.
fn moments(volume: &Volume) -> volume::Result<Vec<(u64, String)>> {
    let mut all = Vec::new();
    for version in volume.newest_versions(LISTED_MAX)? {
        all.push((VERSIONS | (version.number & KEY_MASK), format!("v:{}", version.number)));
    }
    for mark in volume.marks()?.into_iter().filter(|mark| mark.pinned) {
        let key = MARKS | (format::share::name_hash::sip_hash(0, mark.name.as_bytes()) & KEY_MASK);
        all.push((key, format!("mark:{}", mark.name)));
    }
    // The newest ones, if the window is longer.
    let since = volume.now().saturating_sub(Span(HOUR_NS * LISTED_MAX as u64));
    let page = volume.history(Some(&Moment::At(since)), None, HOUR_NS, LISTED_MAX)?;
    for bucket in page.buckets.iter().filter(|bucket| bucket.writes > 0) {
        let hour = bucket.time.as_nanos() / HOUR_NS;
        let moment = WallTime::from_nanos(hour * HOUR_NS);
        // The first hour began before there was anything.
        if volume.resolve(&Moment::At(moment)).is_ok() {
            all.push((HOURS | hour, moment.to_string()));
        }
    }
    all.sort_unstable();
    all.dedup_by_key(|(key, _)| *key);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use units::{Moment, Seq};

    use super::moment_of;

    #[test]
    fn moments_are_named_as_everywhere_and_as_windows_can() {
        let at = |text: &str| Some(Moment::At(text.parse().expect("a time")));
        let expected = at("2026-11-21T10:00:00Z");
        for name in ["2026-11-21T10:00:00Z", "2026-11-21T10.00.00Z", "GMT-2026.11.21-10.00.00"] {
            assert_eq!(moment_of(name.as_bytes()), expected, "{name}");
        }
        let fraction = moment_of(b"2026-11-21T10.00.00.25Z");
        assert_eq!(fraction, at("2026-11-21T10:00:00.25Z"));
        assert_eq!(moment_of(b"seq:7"), Some(Moment::Seq(Seq(7))));
        assert_eq!(moment_of(b"before-T.1"), Some(Moment::Mark("before-T.1".to_owned())));
        for name in [&b"\xff"[..], b"", b"a/b", b"2026-11-21T10:00", b"a b", b"v:"] {
            assert_eq!(moment_of(name), None, "{name:?}");
        }
    }
}
