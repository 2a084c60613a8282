//! The files of the project: where they are, which there are, what they say.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// One file that is, or is about to be, under version control.
pub struct SourceFile {
    /// Path from the top of the project, with slashes.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl SourceFile {
    /// The text, if it is UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }
}

/// The top of the project.
pub fn top() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the project").to_owned()
}

/// Every file that git tracks or would track.
pub fn files() -> Result<Vec<SourceFile>> {
    let top = top();
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&top)
        .output()
        .context("git ls-files")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).context("file names are UTF-8")?;
    let mut paths: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        match std::fs::read(top.join(path)) {
            Ok(bytes) => files.push(SourceFile { path: path.to_owned(), bytes }),
            // Deleted but not yet committed, or a link to a directory.
            Err(_) => continue,
        }
    }
    Ok(files)
}
