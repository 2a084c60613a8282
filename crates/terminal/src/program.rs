//! The other program of the two.

use std::path::PathBuf;

/// Where a program is: beside this one, or in PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(std::path::Path::parent).map(PathBuf::from);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&paths));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}
