//! The members of a pool on several devices: a line of text in the pool's directory says which
//! layers lie over which files and disks.
//!
//! The members' labels say what is true; `pool.stack` says where to look. It is written last when a
//! pool is made, so that a half-made pool is none.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use block::stack::{Stack, StackError};
use block::{
    Added, Array, ArrayError, BlockDevice, Candidate, CryptKey, Identities, KeySource, Layout,
    Materials, MediaDevice, SpareStatus, Standing,
};
use env::{Clock, Entropy, FileMedia, Rank, RankedMutex, RealClock, RealEntropy, RealFiles};
use format::label::AREA_BYTES;
use ring::rand::SecureRandom;
use volume::{Pool, PoolOptions, Settling};

use crate::at_once::AtOnce;
use crate::pool_files::{self, POOL_FILE, at, format_of, is_blank, machine};
use crate::{StartError, lone_file};

/// Held while the members of a served pool, and the file that names them, are changed.
static CHANGING: RankedMutex<()> = RankedMutex::new(Rank::Members, ());

/// The file that says how a pool's members are put together.
const STACK_FILE: &str = "pool.stack";
/// It is written under this name, and then renamed.
const NEW_STACK_FILE: &str = "pool.stack.new";
/// Other files that lie in a pool's directory, or may: no member can be called that.
const OWN_FILES: [&str; 8] = [
    STACK_FILE,
    NEW_STACK_FILE,
    POOL_FILE,
    crate::pool_files::UNFINISHED_FILE,
    "nbd.sock",
    "api.sock",
    crate::token::TOKEN_FILE,
    crate::token::UNFINISHED_TOKEN_FILE,
];

/// The layout of the pool in `dir`, if it is on members: as `pool.stack` says, or its one file's
/// label.
pub(crate) fn read(dir: &Path) -> Result<Option<Layout>, StartError> {
    match written(dir)? {
        None => lone_file::layout(&dir.join(POOL_FILE)),
        written => Ok(written),
    }
}

/// The layout of the pool at a path, and its directory, if it is on members: the path is its
/// directory, or its one file.
pub(crate) fn read_at(path: &Path) -> Result<Option<(PathBuf, Layout)>, StartError> {
    let is_dir = fs::metadata(path).map_err(|e| at(path, e))?.is_dir();
    if is_dir {
        return Ok(read(path)?.map(|layout| (path.to_owned(), layout)));
    }
    let dir = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    Ok(lone_file::layout(path)?.map(|layout| (dir, layout)))
}

/// The layout in `pool.stack`.
fn written(dir: &Path) -> Result<Option<Layout>, StartError> {
    let path = dir.join(STACK_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(at(&path, e)),
    };
    let layout = text.trim().parse::<Layout>();
    let wrong = |e| StartError::setting(format!("{}: {e}", path.display()), "");
    layout.map(Some).map_err(wrong)
}

/// Where the members and spares of the pool at a path are looked for; none if they have no labels.
/// The path is its directory, or a member: without `pool.stack` that is looked at, whose label may
/// name others.
///
/// # Errors
/// When there is nothing, or `pool.stack` cannot be read.
pub fn member_paths(path: &Path) -> Result<Vec<PathBuf>, StartError> {
    let is_dir = fs::metadata(path).map_err(|e| at(path, e))?.is_dir();
    let (dir, member) = match is_dir {
        true => (path.to_owned(), path.join(POOL_FILE)),
        false => (path.parent().map_or_else(PathBuf::new, Path::to_owned), path.to_owned()),
    };
    match if is_dir { written(&dir)? } else { None } {
        Some(layout) => Ok(layout.names().iter().map(|name| dir.join(name)).collect()),
        None => lone_file::named_paths(&member),
    }
}

/// Puts the members of the pool in `dir` together. Those that cannot be opened are missing.
pub(crate) fn open(dir: &Path, layout: &Layout) -> Result<Array, StartError> {
    let candidates = candidates(dir, layout)?;
    with_materials(|materials| Array::open(candidates, materials)).map_err(of_array)
}

/// Opens the pool in `dir`; `told` hears how far it is. Where what is there is not enough to open
/// it nobody is put out.
pub(crate) fn open_pool(
    dir: &Path,
    layout: &Layout,
    options: PoolOptions,
    told: &mut dyn FnMut(&Settling),
) -> Result<Arc<Pool>, StartError> {
    let candidates = candidates(dir, layout)?;
    with_materials(|materials| {
        let opening = Array::prepare(candidates, materials).map_err(of_array)?;
        let files = Arc::new(RealFiles);
        let opened = Pool::open_members(opening, machine(), options, files, told);
        let path = place(dir, layout);
        opened.map_err(|error| pool_files::refused(&path, error))
    })
}

/// Where a pool is, for people: its one file, or its directory.
pub(crate) fn place(dir: &Path, layout: &Layout) -> PathBuf {
    match layout.names()[..] {
        [name] => dir.join(name),
        _ => dir.to_owned(),
    }
}

fn candidates(dir: &Path, layout: &Layout) -> Result<Vec<Candidate>, StartError> {
    lone_file::check_newest(dir, layout)?;
    let mut candidates = Vec::new();
    for member in layout.names() {
        let path = dir.join(member);
        let device = match FileMedia::open(&path) {
            Ok(media) => Some(Arc::new(MediaDevice::new(Arc::new(media))) as _),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(at(&path, e)),
            Err(error) => {
                tracing::error!(member = %path.display(), %error, "a member cannot be opened");
                None
            }
        };
        candidates.push(Candidate { path: path.display().to_string(), device });
    }
    Ok(candidates)
}

/// Makes the pool in `dir` larger, by members that are or become longer and by a stack behind what
/// there is. Returns its bytes before and after. It can be done again when it was interrupted.
pub(crate) fn grow(
    dir: &Path,
    layout: &Layout,
    added: Option<&str>,
    size_bytes: Option<u64>,
) -> Result<(u64, u64), StartError> {
    let added: Option<Stack> = added.map(|text| text.parse().map_err(unreadable)).transpose()?;
    let before = finished(dir, layout, added.as_ref())?;
    let grown = match &added {
        None => before.clone(),
        Some(added) => checked(dir, &before.followed_by(added))?,
    };
    if added.is_none()
        && let Some(bytes) = size_bytes
    {
        // The part that was cut off a member does not count as growth.
        with_materials(|materials| {
            let opening = Array::prepare(candidates(dir, &before)?, materials).map_err(of_array)?;
            let Some((path, why)) = opening.cut().next() else { return Ok(()) };
            let hint = "start the server without it, and replace it, before the pool grows";
            Err(StartError::setting(format!("{path}: {why}"), hint))
        })?;
        lengthen(dir, &before, bytes)?;
    }
    // Nobody serves it, or this fails: before anything is made or written.
    let there = candidates(dir, &before)?;
    let mut made = Vec::new();
    let new = new_members(dir, added.as_ref(), size_bytes, &mut made);
    let outcome = new.and_then(|new| {
        // First where to look: devices without a label are no members yet, and do no harm there.
        if grown != *layout {
            write_layout(dir, &grown)?;
        }
        let new = added.as_ref().map(|stack| Added { stack, candidates: new });
        grow_array(there, new)
    });
    if !matches!(outcome, Ok(()) | Err(StartError::Path { .. })) {
        // Nothing was written. Where a device failed new members may be needed by now.
        if grown != *layout {
            write_layout(dir, layout)?;
        }
        made.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    outcome?;
    let mut array = Arc::new(open(dir, &grown)?);
    if !array.unsettled().is_empty() {
        // Parity is computed of regions that are used in part: what is there is looked at before.
        drop(array);
        settle(candidates(dir, &grown)?.iter())?;
        array = Arc::new(open(dir, &grown)?);
    }
    let device = Arc::<Array>::clone(&array) as Arc<dyn BlockDevice>;
    let bytes = Pool::grow(&device).map_err(StartError::Pool)?;
    array.close().map_err(|e| of_array(e.into()))?;
    Ok(bytes)
}

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

/// The layout of the pool in `dir`, without the part that is added now and may have been before,
/// and without a part that was to be added once and never was.
fn finished(dir: &Path, layout: &Layout, added: Option<&Stack>) -> Result<Layout, StartError> {
    let strangers = || block::strangers(candidates(dir, layout)?).map_err(of_array);
    if let Some((before, last)) = layout.without_last_side() {
        let is_stranger = strangers()?.iter().any(|s| Path::new(s) == dir.join(&last));
        return Ok(if is_stranger { before } else { layout.clone() });
    }
    let Some((before, last)) = layout.without_last() else { return Ok(layout.clone()) };
    if added == Some(&last) {
        return Ok(before);
    }
    let strangers = strangers()?;
    let is_stranger = |name: &&str| strangers.iter().any(|s| Path::new(s) == dir.join(name));
    if !last.members().iter().all(is_stranger) {
        return Ok(layout.clone());
    }
    if added.is_some() {
        return Ok(before);
    }
    let text = format!("{last} was to be added to the pool, which was not finished");
    let hint = format!("give `--add '{last}'` again, or take it out of pool.stack");
    Err(StartError::setting(text, &hint))
}

/// Makes the members that are files so long, if they are shorter.
fn lengthen(dir: &Path, layout: &Layout, bytes: u64) -> Result<(), StartError> {
    // The size of one file is that of the pool in it.
    let label_bytes = if matches!(layout.stack, Stack::Member(_)) { AREA_BYTES } else { 0 };
    let bytes = bytes.saturating_add(label_bytes);
    for path in layout.stack.members().into_iter().map(|member| dir.join(member)) {
        if fs::metadata(&path).is_ok_and(|found| found.is_file()) {
            FileMedia::lengthen(&path, bytes).map_err(|e| at(&path, e))?;
        }
    }
    Ok(())
}

fn new_members(
    dir: &Path,
    added: Option<&Stack>,
    size_bytes: Option<u64>,
    made: &mut Vec<PathBuf>,
) -> Result<Vec<Candidate>, StartError> {
    let member = |name: &str| {
        let path = dir.join(name);
        check_name(dir, &path)?;
        // Whether it is blank, or was claimed by a growth that was interrupted, is looked at later.
        let device = Some(device_at(&path, size_bytes, made)?);
        Ok(Candidate { path: path.display().to_string(), device })
    };
    added.map_or_else(Vec::new, Stack::members).into_iter().map(member).collect()
}

fn grow_array(there: Vec<Candidate>, added: Option<Added<'_>>) -> Result<(), StartError> {
    let entropy = RealEntropy::default();
    let mut random = || u128::from(entropy.next_u64()) << 64 | u128::from(entropy.next_u64());
    let now = RealClock::new().wall();
    let mut grow = || {
        let identities = Identities { random: &mut random, now };
        let (there, added) = (there.clone(), added.clone());
        with_materials(|materials| Array::grow(there, added, identities, materials)).map(drop)
    };
    match grow() {
        Err(ArrayError::NotClosed) => {
            settle(there.iter().chain(added.iter().flat_map(|added| &added.candidates)))?;
            grow().map_err(of_array)
        }
        outcome => outcome.map_err(of_array),
    }
}

/// Looks at what was in flight when a pool was used last, as at a start, and closes it.
fn settle<'c>(members: impl Iterator<Item = &'c Candidate>) -> Result<(), StartError> {
    let members = members.cloned().collect();
    let array = with_materials(|materials| Array::open(members, materials)).map_err(of_array)?;
    let files = Arc::new(RealFiles);
    let pool = Pool::open_array(array, machine(), PoolOptions::default(), files);
    pool.and_then(|pool| pool.close()).map_err(StartError::Pool)
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
    if let Err(error) = begun.and_then(|()| write_layout(dir, &changed)) {
        made.iter().for_each(|path| drop(fs::remove_file(path)));
        return Err(error);
    }
    let attached = pool.attach_member(candidate).map_err(StartError::Pool);
    // Where labels may name it the next opening must find it.
    if attached.is_err() && !pool.is_torn() && !is_known(pool, &path) {
        match before {
            Some(_) => write_layout(dir, &layout)?,
            None => remove_layout(dir)?,
        }
        made.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    attached
}

/// Removes `pool.stack`: the one file's label says what there is.
fn remove_layout(dir: &Path) -> Result<(), StartError> {
    let path = dir.join(STACK_FILE);
    fs::remove_file(&path).map_err(|e| at(&path, e))?;
    fs::File::open(dir).and_then(|d| d.sync_all()).map_err(|e| at(dir, e))
}

/// A layout that can be written down, and read again.
fn checked(dir: &Path, layout: &Layout) -> Result<Layout, StartError> {
    let written: Layout = layout.to_string().parse().map_err(unreadable)?;
    if written != *layout {
        let text = format!(
            "{layout} would be read as something else: a name has a comma, a bracket \
                            or a space that it cannot have"
        );
        return Err(StartError::setting(text, "give the file another name"));
    }
    check_apart(dir, &written)?;
    Ok(written)
}

/// Fails if two names of a layout lead to one file.
fn check_apart(dir: &Path, layout: &Layout) -> Result<(), StartError> {
    let mut seen = BTreeMap::new();
    for name in layout.names() {
        if let Some(other) = seen.insert(real(&dir.join(name)), name) {
            let text = format!("{other} and {name} are the same file");
            return Err(StartError::setting(text, "each member needs a file or disk of its own"));
        }
    }
    Ok(())
}

/// The path of a file without links in it. One that is to be made lies in a directory that is
/// there.
fn real(path: &Path) -> PathBuf {
    let made = || Some(fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?));
    fs::canonicalize(path).ok().or_else(made).unwrap_or_else(|| path.to_owned())
}

fn unreadable(error: StackError) -> StartError {
    StartError::setting(error.to_string(), "")
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

/// Makes a pool on a stack in an empty or missing directory. Members that are not there are made as
/// sparse files of `size_bytes`; those that are there must be blank.
///
/// # Errors
/// When there is a pool, a member is not blank or too small, or something cannot be written.
pub fn create_stack(dir: &Path, text: &str, size_bytes: Option<u64>) -> Result<(), StartError> {
    let layout: Layout = text.parse().map_err(unreadable)?;
    crate::pool_files::make_dir(dir)?;
    for taken in [STACK_FILE, POOL_FILE] {
        let path = dir.join(taken);
        if path.try_exists().map_err(|e| at(&path, e))? {
            let text = format!("{} is there already: {} has a pool", path.display(), dir.display());
            return Err(StartError::setting(text, "choose another directory"));
        }
    }
    check_apart(dir, &layout)?;
    let (mut made, mut blank) = (Vec::new(), Vec::new());
    let outcome = lay_out(dir, &layout, size_bytes, (&mut made, &mut blank));
    if outcome.is_err() {
        // The device had zeros where its label would be.
        blank.iter().for_each(|device| drop(make_blank(&**device)));
        // Only what was made just now, which nobody has used.
        made.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    outcome
}

fn lay_out(
    dir: &Path,
    layout: &Layout,
    size_bytes: Option<u64>,
    (made, blank): (&mut Vec<PathBuf>, &mut Vec<Arc<dyn BlockDevice>>),
) -> Result<(), StartError> {
    let mut devices: Vec<(String, Arc<dyn BlockDevice>)> = Vec::new();
    for member in layout.names() {
        let path = dir.join(member);
        let device = member_at(dir, &path, size_bytes, made)?;
        blank.push(Arc::clone(&device));
        devices.push((path.display().to_string(), device));
    }
    make(layout, &devices)?;
    write_layout(dir, layout)
}

/// Makes a pool on devices that are to be found at these paths.
pub(crate) fn make(
    layout: &Layout,
    devices: &[(String, Arc<dyn BlockDevice>)],
) -> Result<(), StartError> {
    let candidates = || {
        let of = |(path, device): &(String, Arc<dyn BlockDevice>)| Candidate {
            path: path.clone(),
            device: Some(Arc::clone(device)),
        };
        devices.iter().map(of).collect::<Vec<_>>()
    };
    let entropy = RealEntropy::default();
    let random = || u128::from(entropy.next_u64()) << 64 | u128::from(entropy.next_u64());
    let identities = Identities { random: &mut { random }, now: RealClock::new().wall() };
    let array = with_materials(|materials| {
        let members = candidates().into_iter().take(layout.stack.members().len()).collect();
        Array::create(&layout.stack, members, identities, materials)?;
        let array = Array::open(candidates(), materials)?;
        for spare in candidates().into_iter().skip(array.members().len()) {
            array.add_spare(spare, random())?;
        }
        Ok(array)
    });
    let array = Arc::new(array.map_err(of_array)?);
    let device = Arc::<Array>::clone(&array) as Arc<dyn BlockDevice>;
    let format = format_of(device.len_bytes());
    Pool::create(&device, &machine(), &format).map_err(StartError::Pool)?;
    array.close().map_err(|e| of_array(e.into()))
}

/// Writes zeros where a label may be.
fn make_blank(device: &dyn BlockDevice) -> block::Result<()> {
    let zeros = vec![0; AREA_BYTES.min(device.len_bytes()) as usize];
    device.write_durable(0, &[io::IoSlice::new(&zeros)])
}

/// Writes where members are to be looked for.
fn write_layout(dir: &Path, layout: &Layout) -> Result<(), StartError> {
    let (path, unfinished) = (dir.join(STACK_FILE), dir.join(NEW_STACK_FILE));
    fs::write(&unfinished, format!("{layout}\n")).map_err(|e| at(&unfinished, e))?;
    fs::File::open(&unfinished).and_then(|f| f.sync_all()).map_err(|e| at(&unfinished, e))?;
    fs::rename(&unfinished, &path).map_err(|e| at(&path, e))?;
    fs::File::open(dir).and_then(|d| d.sync_all()).map_err(|e| at(dir, e))
}

/// A member to be: made where there is none, blank where there is one.
fn member_at(
    dir: &Path,
    path: &Path,
    size_bytes: Option<u64>,
    made: &mut Vec<PathBuf>,
) -> Result<Arc<dyn BlockDevice>, StartError> {
    check_name(dir, path)?;
    let device = device_at(path, size_bytes, made)?;
    if !is_blank(&*device).map_err(|e| at(path, e))? {
        let text = format!("{} is not blank: its first MiB holds something", path.display());
        return Err(StartError::setting(text, "wipe it first if nobody needs what is there"));
    }
    Ok(device)
}

/// Fails where a new member would be in the place of something else that the directory has.
fn check_name(dir: &Path, path: &Path) -> Result<(), StartError> {
    let wanted = real(path);
    if OWN_FILES.iter().any(|own| real(&dir.join(own)) == wanted) {
        let text = format!("{} is what a pool's directory has itself", path.display());
        return Err(StartError::setting(text, "give the member another name"));
    }
    Ok(())
}

/// The device at a path; made where there is nothing, or an empty file.
fn device_at(
    path: &Path,
    size_bytes: Option<u64>,
    made: &mut Vec<PathBuf>,
) -> Result<Arc<dyn BlockDevice>, StartError> {
    let media = match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let Some(size_bytes) = size_bytes else {
                let text = format!("{} is not there, and no size is given", path.display());
                return Err(StartError::setting(text, "give --size to make it as a sparse file"));
            };
            let media = FileMedia::create(path, size_bytes).map_err(|e| at(path, e))?;
            made.push(path.to_owned());
            media
        }
        Err(e) => return Err(at(path, e)),
        Ok(found) if !found.file_type().is_block_device() && !found.is_file() => {
            let text = format!("{} is neither a block device nor a file", path.display());
            return Err(StartError::setting(text, ""));
        }
        Ok(found) => {
            if let Some(bytes) = size_bytes.filter(|_| found.is_file() && found.len() == 0) {
                // The process that made it was interrupted.
                FileMedia::lengthen(path, bytes).map_err(|e| at(path, e))?;
            }
            FileMedia::open(path).map_err(|e| at(path, e))?
        }
    };
    Ok(Arc::new(MediaDevice::new(Arc::new(media))))
}

/// Runs what needs keys, random numbers or time for layers.
fn with_materials<T>(use_them: impl FnOnce(&Materials<'_>) -> T) -> T {
    let random = Arc::new(|bytes: &mut [u8]| {
        ring::rand::SystemRandom::new().fill(bytes).expect("the kernel has random numbers");
    });
    let pause = Arc::new(|nanos| std::thread::sleep(Duration::from_nanos(nanos)));
    let together = Arc::new(AtOnce);
    use_them(&Materials { key: &read_key, random, pause, together })
}

/// The key that a source names.
fn read_key(source: &KeySource) -> Result<CryptKey, String> {
    let read = |path: &Path| fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let bytes = match source {
        KeySource::File(path) => read(Path::new(path))?,
        KeySource::Env(name) => match std::env::var_os(name) {
            Some(value) => value.into_encoded_bytes(),
            None => return Err(format!("{name} is not set")),
        },
        KeySource::Credential(name) => match std::env::var_os("CREDENTIALS_DIRECTORY") {
            Some(dir) => read(&Path::new(&dir).join(name))?,
            None => return Err("systemd gave no credentials to this process".to_owned()),
        },
    };
    CryptKey::new(bytes).map_err(|e| e.to_string())
}

fn of_array(error: ArrayError) -> StartError {
    match error {
        ArrayError::Refused { what, hint } => StartError::setting(what, &hint),
        ArrayError::NotClosed => StartError::setting(error.to_string(), "start the server once"),
        ArrayError::Device(error) => {
            StartError::Path { path: PathBuf::from(error.device), source: error.source }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use block::Layout;
    use volume::{Pool, PoolOptions};

    use super::{
        NEW_STACK_FILE, STACK_FILE, attach, checked, create_stack, member_paths, open_pool,
    };

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

    #[test]
    fn members_are_found_by_a_label_where_the_list_of_them_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        create_stack(dir, "mirror(pool.img, b)", Some(64 << 20)).expect_err("its own name");
        create_stack(dir, "mirror(a, b)", Some(64 << 20)).expect("a pool");
        let both = [dir.join("a"), dir.join("b")];
        assert_eq!(member_paths(dir).expect("named"), both);
        fs::remove_file(dir.join(STACK_FILE)).expect("lost");
        assert_eq!(member_paths(&both[1]).expect("named"), both);
        fs::rename(&both[0], dir.join("pool.img")).expect("renamed");
        assert_eq!(member_paths(dir).expect("named"), both, "one that is gone is named");
        // All was moved.
        let other = tempfile::tempdir().expect("a folder");
        let moved = ["a", "b"].map(|name| other.path().join(name));
        fs::rename(dir.join("pool.img"), &moved[0]).expect("moved");
        fs::rename(&both[1], &moved[1]).expect("moved");
        assert_eq!(member_paths(&moved[0]).expect("named"), moved);
    }

    #[test]
    fn a_name_that_would_be_read_as_others_is_refused() {
        let layout: Layout = "pool.img".parse().expect("a layout");
        for name in ["b.img, c.img", " b.img", "b.img ", "mirror(b.img, c.img)"] {
            let side = layout.with_side(name).expect("a side");
            let spare = layout.with_spare(Some(name));
            for changed in [side, spare, layout.with_member(0, name)] {
                checked(Path::new("/tmp"), &changed).expect_err(name);
            }
        }
        let changed = layout.with_side("b-c.img").expect("a side");
        assert_eq!(checked(Path::new("/tmp"), &changed).expect("a name"), changed);
    }
}
