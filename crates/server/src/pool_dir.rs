//! The directory of a pool, and how pools are made in it and opened.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::BlockDevice;
use env::{RealClock, RealEntropy};
use volume::{Machine, PoolFormat};

use crate::StartError;

pub(crate) const POOL_FILE: &str = "pool.img";

pub(crate) const UNFINISHED_FILE: &str = "pool.img.new";

/// Zones that a small pool shall have.
const ZONES_WANTED: u64 = 256;

/// The smallest zone made here, in bytes.
const ZONE_BYTES_MIN: u64 = 1 << 20;

/// The clock and randomness of this machine.
pub(crate) fn machine() -> Machine {
    Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) }
}

pub(crate) fn at(path: &Path, source: io::Error) -> StartError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::WouldBlock => StartError::Locked { path },
        _ => StartError::Path { path, source },
    }
}

pub(crate) fn make_dir(dir: &Path) -> Result<(), StartError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|e| at(dir, e))
}

/// Directories that a start made; those still empty are removed when this is dropped.
pub(crate) struct MadeDirs(Vec<PathBuf>);

impl MadeDirs {
    /// Makes `dir` and what is above it, as far as that is not there.
    pub(crate) fn make(dir: &Path) -> Result<MadeDirs, StartError> {
        let is_missing = |path: &&Path| {
            fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
        };
        let made = MadeDirs(dir.ancestors().take_while(is_missing).map(Path::to_owned).collect());
        make_dir(dir).map(|()| made)
    }
}

impl MadeDirs {
    /// They stay.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeDirs {
    fn drop(&mut self) {
        // The first that holds something stays, and those above it.
        let _ = self.0.iter().try_for_each(fs::remove_dir);
    }
}

/// Whether the first MiB of a device is zeros.
pub(crate) fn is_blank(device: &dyn BlockDevice) -> io::Result<bool> {
    let length = device.len_bytes().min(1 << 20);
    let mut head = vec![0; usize::try_from(length).expect("at most 1 MiB")];
    device.read_at(0, &mut head).map_err(|e| e.source)?;
    Ok(head.iter().all(|&byte| byte == 0))
}

/// Zones of 32 MiB, or smaller ones in a small pool, so that it has some hundred to hand out.
pub(crate) fn format_of(pool_bytes: u64) -> PoolFormat {
    let zone_bytes = (pool_bytes / ZONES_WANTED).max(ZONE_BYTES_MIN).next_power_of_two();
    PoolFormat { zone_bytes: zone_bytes.min(PoolFormat::default().zone_bytes) }
}

/// The engine refused to open the pool at `path`.
pub(crate) fn refused(path: &Path, mut error: volume::Error) -> StartError {
    error.message = format!("cannot open the pool {}: {}", path.display(), error.message);
    StartError::Pool(error)
}
