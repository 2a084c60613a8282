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

use block::stack::{Stack, StackError};
use block::{
    Added, Array, ArrayError, BlockDevice, Candidate, CryptKey, Identities, KeySource, Layout,
    Materials, MediaDevice,
};
use env::{Clock, Entropy, FileMedia, RealClock, RealEntropy, RealFiles};
use format::label::AREA_BYTES;
use ring::rand::SecureRandom;
use volume::{Pool, PoolOptions, Settling};

use crate::at_once::AtOnce;
use crate::pool_dir::{self, POOL_FILE, at, format_of, is_blank, machine};
use crate::write_memory::media_at;
use crate::{StartError, lone_file};

/// The file that says how a pool's members are put together.
pub(crate) const STACK_FILE: &str = "pool.stack";
/// It is written under this name, and then renamed.
pub(crate) const NEW_STACK_FILE: &str = "pool.stack.new";
/// Other files that lie in a pool's directory, or may: no member can be called that.
const OWN_FILES: [&str; 8] = [
    STACK_FILE,
    NEW_STACK_FILE,
    POOL_FILE,
    crate::pool_dir::UNFINISHED_FILE,
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
pub(crate) fn written(dir: &Path) -> Result<Option<Layout>, StartError> {
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
        opened.map_err(|error| pool_dir::refused(&path, error))
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
        let device = match media_at(&path) {
            Ok(media) => Some(Arc::new(MediaDevice::new(media)) as _),
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

pub(crate) fn new_members(
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
    let pool = Pool::open_array(array, machine(), PoolOptions::default(), files, &mut |_| ());
    pool.and_then(|pool| pool.close()).map_err(StartError::Pool)
}

/// Removes `pool.stack`: the one file's label says what there is.
pub(crate) fn remove_layout(dir: &Path) -> Result<(), StartError> {
    let path = dir.join(STACK_FILE);
    fs::remove_file(&path).map_err(|e| at(&path, e))?;
    fs::File::open(dir).and_then(|d| d.sync_all()).map_err(|e| at(dir, e))
}

/// A layout that can be written down, and read again.
pub(crate) fn checked(dir: &Path, layout: &Layout) -> Result<Layout, StartError> {
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

pub(crate) fn unreadable(error: StackError) -> StartError {
    StartError::setting(error.to_string(), "")
}

/// Makes a pool on a stack in an empty or missing directory. Members that are not there are made as
/// sparse files of `size_bytes`; those that are there must be blank.
///
/// # Errors
/// When there is a pool, a member is not blank or too small, or something cannot be written.
pub fn create_stack(dir: &Path, text: &str, size_bytes: Option<u64>) -> Result<(), StartError> {
    let layout: Layout = text.parse().map_err(unreadable)?;
    crate::pool_dir::make_dir(dir)?;
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
pub(crate) fn write_layout(dir: &Path, layout: &Layout) -> Result<(), StartError> {
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
pub(crate) fn check_name(dir: &Path, path: &Path) -> Result<(), StartError> {
    let wanted = real(path);
    if OWN_FILES.iter().any(|own| real(&dir.join(own)) == wanted) {
        let text = format!("{} is what a pool's directory has itself", path.display());
        return Err(StartError::setting(text, "give the member another name"));
    }
    Ok(())
}

/// The device at a path; made where there is nothing, or an empty file.
pub(crate) fn device_at(
    path: &Path,
    size_bytes: Option<u64>,
    made: &mut Vec<PathBuf>,
) -> Result<Arc<dyn BlockDevice>, StartError> {
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let Some(size_bytes) = size_bytes else {
                let text = format!("{} is not there, and no size is given", path.display());
                return Err(StartError::setting(text, "give --size to make it as a sparse file"));
            };
            drop(FileMedia::create(path, size_bytes).map_err(|e| at(path, e))?);
            made.push(path.to_owned());
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
        }
    }
    let media = media_at(path).map_err(|e| at(path, e))?;
    Ok(Arc::new(MediaDevice::new(media)))
}

/// Runs what needs keys, random numbers or time for layers.
pub(crate) fn with_materials<T>(use_them: impl FnOnce(&Materials<'_>) -> T) -> T {
    let random = Arc::new(|bytes: &mut [u8]| {
        ring::rand::SystemRandom::new().fill(bytes).expect("the kernel has random numbers");
    });
    let together = Arc::new(AtOnce);
    use_them(&Materials { key: &read_key, random, together })
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

    use block::Layout;

    use super::{STACK_FILE, checked, create_stack, member_paths};

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
