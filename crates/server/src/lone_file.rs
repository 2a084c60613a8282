//! A pool on one file that begins with a label, as those do that a server makes: without
//! `pool.stack` the label says what it is.
//!
//! Such a file may get others beside it, which `pool.stack` names then. Where that is gone, or is
//! an older one, the labels are asked whether this file has everything, before it is used alone.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;

use block::stack::Stack;
use block::{BlockDevice, Layout, MemoryDevice, is_superseded, named_by};
use format::label::AREA_BYTES;

use crate::StartError;
use crate::pool_files::at;

/// The layout of which the file at a path is the only member; none where it has no label.
pub(crate) fn layout(path: &Path) -> Result<Option<Layout>, StartError> {
    let head = match head(path) {
        Ok(head) => head,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(at(path, e)),
    };
    let (Some(named), Some(name)) = (named_by(&head), path.file_name()) else { return Ok(None) };
    if named.names().len() == 1 {
        let stack = Stack::Member(name.to_string_lossy().into_owned());
        return Ok(Some(Layout { stack, spares: Vec::new() }));
    }
    let text = format!("{} is a member of a pool beside others: {named}", path.display());
    let hint = "write that to the file pool.stack of the pool's directory, with the paths as they \
                are now";
    Err(StartError::setting(text, hint))
}

/// Fails where a layout has one name alone and the label there names others, one of which has what
/// this one has not.
pub(crate) fn check_alone(dir: &Path, layout: &Layout) -> Result<(), StartError> {
    let [name] = layout.names()[..] else { return Ok(()) };
    let path = dir.join(name);
    // A file that cannot be read is told of when it is opened.
    let Ok(own) = head(&path) else { return Ok(()) };
    let Some(named) = named_by(&own) else { return Ok(()) };
    for other in named.names().into_iter().map(Path::new) {
        // Where it was, or beside this one if all was moved.
        let beside = other.file_name().map(|file| dir.join(file));
        for place in [Some(dir.join(other)), beside].into_iter().flatten() {
            if head(&place).is_ok_and(|head| is_superseded(&own, &head)) {
                let (newer, own) = (place.display(), path.display());
                let text = format!("{newer} may have what {own} has not, and is not named");
                let hint = format!("write {named} to pool.stack, with the paths as they are now");
                return Err(StartError::setting(text, &hint));
            }
        }
    }
    Ok(())
}

/// The first MiB of a file or disk, whoever has it open.
fn head(path: &Path) -> io::Result<MemoryDevice> {
    let file = File::open(path)?;
    let mut bytes = vec![0; usize::try_from(AREA_BYTES).expect("a MiB")];
    let mut length = 0;
    loop {
        match file.read_at(&mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let head = MemoryDevice::new(AREA_BYTES);
    head.write_at(0, &[IoSlice::new(&bytes)]).map_err(|e| e.source)?;
    Ok(head)
}
