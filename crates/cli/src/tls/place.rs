//! New files in directories: all of them, or none.
//!
//! 1. Nothing that is there is overwritten.
//! 2. A file has its place when it is whole and on the disk.
//! 3. Without `keep` all that was made goes again.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::{NamedTempFile, PersistError};

use crate::failure::Failure;

/// What was made, in that order.
#[derive(Debug, Default)]
pub struct Placed {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

impl Placed {
    /// Makes a directory for its owner, unless there is one.
    pub fn directory(&mut self, path: &Path) -> anyhow::Result<()> {
        if path.is_dir() { Ok(()) } else { self.new_directory(path) }
    }

    /// Makes a directory for its owner.
    pub fn new_directory(&mut self, path: &Path) -> anyhow::Result<()> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists(path)),
            made => {
                made.with_context(|| format!("cannot make {}", path.display()))?;
                self.directories.push(path.to_owned());
                Ok(())
            }
        }
    }

    /// Writes files into a directory; those called `...-key.pem` only their owner may read.
    pub fn files(&mut self, dir: &Path, files: &[(&str, &String)]) -> anyhow::Result<()> {
        let staged: io::Result<Vec<_>> =
            files.iter().map(|(name, text)| stage(dir, name, text)).collect();
        let cannot = || format!("cannot write into {}", dir.display());
        for ((name, _), file) in files.iter().zip(staged.with_context(cannot)?) {
            let path = dir.join(name);
            match file.persist_noclobber(&path) {
                Ok(_) => self.files.push(path),
                Err(PersistError { error, .. }) if error.kind() == ErrorKind::AlreadyExists => {
                    return Err(exists(&path));
                }
                Err(PersistError { error, .. }) => return Err(error).with_context(cannot),
            }
        }
        File::open(dir).and_then(|dir| dir.sync_all()).with_context(cannot)
    }

    /// Leaves all of it where it is.
    pub fn keep(mut self) {
        self.files.clear();
        self.directories.clear();
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // The error that led here is the one to tell.
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
        for directory in self.directories.iter().rev() {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

fn stage(dir: &Path, name: &str, text: &str) -> io::Result<NamedTempFile> {
    let mode = if name.ends_with("-key.pem") { 0o600 } else { 0o644 };
    let mut file =
        tempfile::Builder::new().permissions(Permissions::from_mode(mode)).tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn exists(path: &Path) -> anyhow::Error {
    let failure = Failure::new(format!("{} is there already", path.display()));
    failure.with_hint("nothing is overwritten: move it away, or give another directory").into()
}
