//! A pool on one file that begins with a label, as those do that a server makes: without
//! `pool.stack` the label says what it is.
//!
//! Such a file may get others beside it, which `pool.stack` names then. Where that is gone, or is
//! an older one, the labels are asked whether this file has everything, before it is used alone.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use block::stack::Stack;
use block::{BlockDevice, Layout, MemoryDevice, is_superseded, named_by};
use format::label::AREA_BYTES;

use crate::StartError;
use crate::pool_dir::at;

/// The layout that the label of the file at a path names; none where it has no label.
fn named(path: &Path) -> Result<Option<Layout>, StartError> {
    match head(path) {
        Ok(head) => {
            named_by(&head).map_err(|e| StartError::setting(format!("{}: {e}", path.display()), ""))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(at(path, e)),
    }
}

/// Where the members and spares are that the label of the file at a path names, as far as they are
/// where they were, or beside it.
pub(crate) fn named_paths(path: &Path) -> Result<Vec<PathBuf>, StartError> {
    let Some(named) = named(path)? else { return Ok(Vec::new()) };
    if named.names().len() == 1 {
        return Ok(vec![path.to_owned()]);
    }
    let beside = path.with_file_name("");
    let were: Vec<PathBuf> = named.names().into_iter().map(|name| beside.join(name)).collect();
    let place = |was: &PathBuf| {
        let moved = was.file_name().map(|file| beside.join(file));
        // Another member may have that place.
        let moved = moved.filter(|moved| moved.exists() && !were.contains(moved));
        if was.exists() { was.clone() } else { moved.unwrap_or_else(|| was.clone()) }
    };
    Ok(were.iter().map(place).collect())
}

/// The layout of which the file at a path is the only member; none where it has no label.
pub(crate) fn layout(path: &Path) -> Result<Option<Layout>, StartError> {
    let (Some(named), Some(name)) = (named(path)?, path.file_name()) else { return Ok(None) };
    if named.names().len() == 1 {
        let stack = Stack::Member(name.to_string_lossy().into_owned());
        return Ok(Some(Layout { stack, spares: Vec::new() }));
    }
    let text = format!("{} is a member of a pool beside others: {named}", path.display());
    let hint = "write that to the file pool.stack of the pool's directory, with the paths as they \
                are now";
    Err(StartError::setting(text, hint))
}

/// Fails where a label names others than the layout, one of which may have what the newest of those
/// in the layout has not.
pub(crate) fn check_newest(dir: &Path, layout: &Layout) -> Result<(), StartError> {
    let names = layout.names();
    // A file that cannot be read is told of when it is opened.
    let heads: Vec<MemoryDevice> = names.iter().filter_map(|n| head(&dir.join(n)).ok()).collect();
    let own: Vec<&dyn BlockDevice> = heads.iter().map(|head| head as &dyn BlockDevice).collect();
    for named in heads.iter().filter_map(|head| named_by(head).ok().flatten()) {
        for other in named.names().into_iter().map(Path::new) {
            // Where it was, or beside these if all was moved.
            let beside = other.file_name().map(|file| dir.join(file));
            for place in [Some(dir.join(other)), beside].into_iter().flatten() {
                if head(&place).is_ok_and(|head| is_superseded(&own, &head)) {
                    let text = format!("{} may have what {layout} has not", place.display());
                    let hint =
                        format!("write {named} to pool.stack, with the paths as they are now");
                    return Err(StartError::setting(text, &hint));
                }
            }
        }
    }
    Ok(())
}

/// The first MiB of a file or disk, whoever has it open. Sectors that cannot be read are zeros:
/// there are several copies of a label.
fn head(path: &Path) -> io::Result<MemoryDevice> {
    let file = File::open(path)?;
    pieces(|offset, piece| file.read_at(piece, offset))
}

/// Puts a MiB together of what a function reads at offsets; fails where all of that fails.
fn pieces(read: impl Fn(u64, &mut [u8]) -> io::Result<usize>) -> io::Result<MemoryDevice> {
    const PIECE: usize = 4096;
    let mut bytes = vec![0; usize::try_from(AREA_BYTES).expect("a MiB")];
    let (mut is_read, mut failure) = (false, None);
    for (at, piece) in bytes.chunks_mut(PIECE).enumerate() {
        let (start, mut length) = (at * PIECE, 0);
        while length < PIECE {
            match read((start + length) as u64, &mut piece[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    failure = Some(e);
                    break;
                }
            }
        }
        is_read |= length > 0;
    }
    if let Some(failure) = failure.filter(|_| !is_read) {
        return Err(failure);
    }
    let head = MemoryDevice::new(AREA_BYTES);
    head.write_at(0, &[IoSlice::new(&bytes)]).map_err(|e| e.source)?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use block::named_by;

    use super::{check_newest, pieces};
    use crate::stack_files::{self, create_stack};

    /// Makes a pool, opens it with some names alone, and says what the others' check says.
    fn check(dir: &Path, made: &str, alone: &str, asked: &str) -> Result<(), String> {
        create_stack(dir, made, Some(64 << 20)).expect("a pool");
        drop(stack_files::open(dir, &alone.parse().expect("names")).expect("opened"));
        check_newest(dir, &asked.parse().expect("names")).map_err(|e| e.to_string())
    }

    #[test]
    fn a_label_is_found_where_a_sector_of_it_cannot_be_read() {
        let folder = tempfile::tempdir().expect("a folder");
        create_stack(folder.path(), "mirror(a, b)", Some(64 << 20)).expect("a pool");
        let file = File::open(folder.path().join("a")).expect("a file");
        for bad in (0..1 << 20).step_by(4096) {
            let read = |offset: u64, piece: &mut [u8]| match offset {
                _ if offset == bad => Err(io::Error::from_raw_os_error(5)),
                _ => file.read_at(piece, offset),
            };
            assert!(matches!(named_by(&pieces(read).expect("read")), Ok(Some(_))), "at {bad}");
        }
        let error = pieces(|_, _| Err(io::Error::from_raw_os_error(5))).err().expect("nothing");
        assert_eq!(error.raw_os_error(), Some(5));
    }

    #[test]
    fn an_older_list_of_several_names_is_not_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = check(folder.path(), "mirror(a, b, c)", "c", "mirror(a, b)").expect_err("older");
        assert!(text.contains("/c may have what mirror(a, b) has not"), "{text}");
        let folder = tempfile::tempdir().expect("a folder");
        check(folder.path(), "mirror(a, b, c)", "mirror(a, b)", "mirror(a, b)")
            .expect("the newest");
        check_newest(folder.path(), &"mirror(a, b, c)".parse().expect("names")).expect("all");
    }

    #[test]
    fn a_copy_of_a_pool_does_not_miss_what_its_original_has() {
        let [folder, other] = [0; 2].map(|_| tempfile::tempdir().expect("a folder"));
        create_stack(folder.path(), "mirror(a, b)", Some(64 << 20)).expect("a pool");
        for name in ["a", "b"] {
            std::fs::copy(folder.path().join(name), other.path().join(name)).expect("copied");
        }
        drop(stack_files::open(folder.path(), &"a".parse().expect("a name")).expect("opened"));
        check_newest(other.path(), &"mirror(a, b)".parse().expect("names")).expect("both");
    }
}
