//! Changes of the members of a pool that is served: growing, replacing, attaching, spares.
//!
//! `pool.stack` names a device before a label does, so that the next opening finds it. A change
//! that comes to nothing takes the name out again, and files that were made for it.

use std::fs;
use std::path::Path;

use block::stack::Stack;
use block::{Added, Candidate, Layout, SpareStatus, Standing};
use env::{Rank, RankedMutex};
use format::label::AREA_BYTES;
use volume::Pool;

use crate::StartError;
use crate::stack_files::{
    check_name, checked, device_at, new_members, read, remove_layout, unreadable, with_materials,
    write_layout, written,
};

/// Held while the members of a served pool, and the file that names them, are changed.
static CHANGING: RankedMutex<()> = RankedMutex::new(Rank::Members, ());

/// Makes the pool in `dir`, which is served, larger by a stack over new members. Where it was begun
/// before and not completed, it is completed.
pub(crate) fn grow_online(
    dir: &Path,
    pool: &Pool,
    added: &str,
    size_bytes: Option<u64>,
) -> Result<(), StartError> {
    let _changing = CHANGING.lock();
    check_whole(pool)?;
    let layout = on_members(dir, pool)?;
    let added: Stack = added.parse().map_err(unreadable)?;
    let is_member = |name: &&str| is_known(pool, &dir.join(name));
    let before = match layout.without_last() {
        // It was to be added once: what is no member by now is none.
        Some((before, last)) if last == added || !last.members().iter().any(is_member) => before,
        _ => layout.clone(),
    };
    let grown = checked(dir, &before.followed_by(&added))?;
    let mut made = Vec::new();
    let is_there = added.members().iter().all(is_member);
    let new = match is_there {
        true => Ok(None),
        false => new_members(dir, Some(&added), size_bytes, &mut made).map(Some),
    };
    let outcome = new.and_then(|new| {
        // First where to look: devices without a label are no members yet, and do no harm there.
        write_layout(dir, &grown)?;
        let added = new.map(|candidates| Added { stack: &added, candidates });
        with_materials(|materials| pool.grow_online(added, materials)).map_err(StartError::Pool)
    });
    // Where labels may name them the next opening must find them.
    if outcome.is_err() && !pool.is_torn() && !added.members().iter().any(is_member) {
        // None of them is a member, and nobody else uses them.
        write_layout(dir, &layout)?;
        made.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    match outcome? {
        (from, to) if to > from => Ok(()),
        _ => Err(StartError::setting("there is nothing to grow by", "it was added before")),
    }
}

/// Fails where a growth failed so that nobody knows what the members have: before anything is made
/// or looked at for what would be refused.
fn check_whole(pool: &Pool) -> Result<(), StartError> {
    if !pool.is_torn() {
        return Ok(());
    }
    let text = "the pool grew, its devices failed, and what they have is not known";
    Err(StartError::setting(text, "start the server again; that finds out"))
}

/// Has a spare, or a blank file or disk, take the place of a member of the pool in `dir`. One that
/// is not there is made as a sparse file of the member's size. A member that is out may take its
/// own place; for one that is in the other is a spare until it has everything.
pub(crate) fn replace(dir: &Path, pool: &Pool, member: &str, with: &str) -> Result<(), StartError> {
    let _changing = CHANGING.lock();
    check_whole(pool)?;
    let number = pool.member_at(member).map_err(StartError::Pool)?;
    let layout = on_members(dir, pool)?;
    let path = dir.join(with);
    let there = pool.members().swap_remove(number);
    let is_own = Path::new(&there.path) == path;
    let is_copied = there.standing == Standing::In && !is_own;
    let is_it = |spare: &SpareStatus| spare.is_there && Path::new(&spare.path) == path;
    let is_spare = is_copied && pool.spares().iter().any(is_it);
    let is_named = || layout.names().iter().any(|name| dir.join(name) == path);
    if !is_own && !is_spare && is_named() {
        return Err(StartError::setting(format!("{} is a member already", path.display()), ""));
    }
    let size_bytes = there.data_bytes + AREA_BYTES;
    let changed = match is_copied {
        true => layout.with_spare(if is_spare { None } else { Some(with) }),
        false => layout.with_member(number, with),
    };
    let changed = checked(dir, &changed)?;
    let mut made = Vec::new();
    // Whether it is blank, or was claimed by a growth that was given up, is looked at later.
    let device = match is_own && there.is_there || is_spare {
        // It is open, and nobody can open it twice.
        true => None,
        false => {
            if !is_own {
                check_name(dir, &path)?;
            }
            Some(device_at(&path, Some(size_bytes), &mut made)?)
        }
    };
    // First where to look: a device without a label is no member yet, and does no harm there.
    write_layout(dir, &changed)?;
    let candidate = Candidate { path: path.display().to_string(), device };
    let replaced = pool.replace_member(member, candidate).map_err(StartError::Pool);
    let is_known = is_known(pool, &path);
    if replaced.is_err() && (is_own || !is_known) {
        write_layout(dir, &layout)?;
    }
    if replaced.is_err() && !is_known {
        made.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    replaced
}

/// Whether the pool has this as a member or spare, whatever came of what was done.
fn is_known(pool: &Pool, path: &Path) -> bool {
    let members = pool.members().into_iter().map(|member| member.path);
    let spares = pool.spares().into_iter().map(|spare| spare.path);
    members.chain(spares).any(|known| Path::new(&known) == path)
}

/// The layout of a served pool, without a side that was to be attached and never was.
fn on_members(dir: &Path, pool: &Pool) -> Result<Layout, StartError> {
    let members = pool.members().len();
    let layout = if members == 0 { None } else { read(dir)? };
    let Some(layout) = layout else {
        let text = "the pool is on one file or disk without a label, and has no members";
        let hint = "a pool that a server makes in a directory has one: see *turn a one-file pool \
                    into a mirror* in docs/operations.md";
        return Err(StartError::setting(text, hint));
    };
    Ok(match layout.without_last_side() {
        Some((before, last))
            if layout.stack.members().len() > members && !is_known(pool, &dir.join(&last)) =>
        {
            before
        }
        _ => layout,
    })
}

/// Makes a blank file or disk another side of the pool in `dir`: of its one file, or its mirror.
/// One that is not there is made as a sparse file. An attach that was begun is completed.
pub(crate) fn attach(
    dir: &Path,
    pool: &Pool,
    member: Option<&str>,
    with: &str,
) -> Result<(), StartError> {
    let _changing = CHANGING.lock();
    check_whole(pool)?;
    let layout = on_members(dir, pool)?;
    member.map(|member| pool.member_at(member)).transpose().map_err(StartError::Pool)?;
    let path = dir.join(with);
    if layout.names().iter().any(|name| dir.join(name) == path) {
        return Err(StartError::setting(format!("{} is there already", path.display()), ""));
    }
    let Some(changed) = layout.with_side(with) else {
        let text = "only a single file or disk, or a mirror of such, gets another side";
        let hint = "`pool grow --add` makes others larger, `pool spare add` gives them spares";
        return Err(StartError::setting(text, hint));
    };
    let changed = checked(dir, &changed)?;
    let before = written(dir)?;
    check_name(dir, &path)?;
    let bytes = pool.members().iter().map(|m| m.data_bytes).min();
    let mut made = Vec::new();
    let device = device_at(&path, bytes.map(|bytes| bytes + AREA_BYTES), &mut made)?;
    let candidate = Candidate { path: path.display().to_string(), device: Some(device) };
    // A device without a label is no member yet, and does no harm in `pool.stack`.
    let begun = pool.check_side(&candidate).map_err(StartError::Pool);
    let begun = begun.and_then(|()| write_layout(dir, &changed));
    let attached = begun.and_then(|()| pool.attach_member(candidate).map_err(StartError::Pool));
    // Where labels may name it the next opening must find it.
    if attached.is_err() && !pool.is_torn() && !is_known(pool, &path) {
        if written(dir)?.as_ref() == Some(&changed) {
            match before {
                Some(_) => write_layout(dir, &layout)?,
                None => remove_layout(dir)?,
            }
        }
        made.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    attached
}

/// Adds a blank file or disk as a spare of the pool in `dir`. One that is not there is made as a
/// sparse file of the smallest member's size.
pub(crate) fn add_spare(dir: &Path, pool: &Pool, spare: &str) -> Result<(), StartError> {
    let _changing = CHANGING.lock();
    check_whole(pool)?;
    let layout = on_members(dir, pool)?;
    let path = dir.join(spare);
    if layout.names().iter().any(|name| dir.join(name) == path) {
        return Err(StartError::setting(format!("{} is there already", path.display()), ""));
    }
    let before = layout.clone();
    let layout = checked(dir, &layout.with_spare(Some(spare)))?;
    let smallest = pool.members().iter().map(|m| m.data_bytes).min();
    let mut made = Vec::new();
    check_name(dir, &path)?;
    // As in `replace`.
    let device = device_at(&path, smallest.map(|bytes| bytes + AREA_BYTES), &mut made)?;
    write_layout(dir, &layout)?;
    let candidate = Candidate { path: path.display().to_string(), device: Some(device) };
    let added = pool.add_spare(candidate).map_err(StartError::Pool);
    if added.is_err() && !is_known(pool, &path) {
        write_layout(dir, &before)?;
        made.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    added
}

/// Takes a spare of the pool in `dir` away; its file stays.
pub(crate) fn remove_spare(dir: &Path, pool: &Pool, spare: &str) -> Result<(), StartError> {
    let _changing = CHANGING.lock();
    let mut layout = on_members(dir, pool)?;
    let path = dir.join(spare);
    if is_known(pool, &path) || !layout.spares.iter().any(|name| dir.join(name) == path) {
        pool.remove_spare(&path.display().to_string()).map_err(StartError::Pool)?;
    }
    // Else it was taken away before, and this could not be written.
    layout.spares.retain(|name| dir.join(name) != path);
    write_layout(dir, &layout)
}

/// Writes down where to look when a spare has taken a member's place, or failed when it was to.
pub(crate) fn follow_spares(dir: &Path, pool: &Pool) -> Result<(), StartError> {
    let _changing = CHANGING.lock();
    let Some(mut layout) = written(dir)? else { return Ok(()) };
    let members = pool.members();
    let place = |spare: &String| {
        let path = dir.join(spare);
        members.iter().position(|member| Path::new(&member.path) == path)
    };
    let taken: Vec<(usize, String)> =
        layout.spares.iter().filter_map(|spare| Some((place(spare)?, spare.clone()))).collect();
    for (number, spare) in &taken {
        layout = layout.with_member(*number, spare);
    }
    let count = layout.spares.len();
    let spares = pool.spares();
    // A path that a label has no room for is not known.
    if spares.iter().all(|spare| !spare.path.is_empty()) {
        layout.spares.retain(|name| spares.iter().any(|s| Path::new(&s.path) == dir.join(name)));
    }
    let is_same = taken.is_empty() && layout.spares.len() == count;
    if is_same { Ok(()) } else { write_layout(dir, &checked(dir, &layout)?) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use volume::{Pool, PoolOptions};

    use super::attach;
    use crate::stack_files::{NEW_STACK_FILE, STACK_FILE, create_stack, open_pool};

    /// A pool on one member, `a`, that is served.
    fn served(dir: &Path) -> Arc<Pool> {
        create_stack(dir, "a", Some(64 << 20)).expect("a pool");
        let layout = "a".parse().expect("a layout");
        open_pool(dir, &layout, PoolOptions::default(), &mut |_| {}).expect("opened")
    }

    #[test]
    fn what_cannot_be_a_side_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = served(folder.path());
        // The list of members could not be written.
        fs::create_dir(folder.path().join(NEW_STACK_FILE)).expect("a folder");
        fs::write(folder.path().join("b"), vec![1; 66 << 20]).expect("a file");
        let error = attach(folder.path(), &pool, None, "b").expect_err("not blank");
        assert!(error.to_string().contains("b is not blank"), "{error}");
        fs::write(folder.path().join("c"), vec![0; 8 << 20]).expect("a file");
        let error = attach(folder.path(), &pool, None, "c").expect_err("too small");
        assert!(error.to_string().contains("c has 8388608 bytes"), "{error}");
        attach(folder.path(), &pool, None, "d").expect_err("it cannot be written down");
        assert!(!folder.path().join("d").exists(), "it was made for nothing");
        fs::remove_dir(folder.path().join(NEW_STACK_FILE)).expect("removed");
        attach(folder.path(), &pool, None, "d").expect("attached");
    }

    #[test]
    fn a_side_may_be_called_like_a_file_of_the_pool_where_it_is_not_in_its_place() {
        let [folder, other] = [0; 2].map(|_| tempfile::tempdir().expect("a folder"));
        let pool = served(folder.path());
        let own = folder.path().join(STACK_FILE);
        std::os::unix::fs::symlink(&own, other.path().join("link")).expect("a link");
        for taken in [own, folder.path().join("nbd.sock"), other.path().join("link")] {
            let taken = taken.to_str().expect("UTF-8");
            let error = attach(folder.path(), &pool, None, taken).expect_err("taken");
            assert!(error.to_string().contains("what a pool's directory has itself"), "{error}");
        }
        let side = other.path().join("pool.img");
        attach(folder.path(), &pool, None, side.to_str().expect("UTF-8")).expect("attached");
    }
}
