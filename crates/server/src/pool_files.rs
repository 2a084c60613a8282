//! The files of a pool: made in an empty or missing directory, opened, locked.
//!
//! A pool file is laid out under another name and renamed when it is whole, so that a half-made one
//! is never taken for a pool, and what is there is never taken for empty.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::stack::Stack;
use block::{BlockDevice, Layout, MediaDevice};
use env::{FileMedia, RealFiles};
use format::label::AREA_BYTES;
use volume::{Pool, PoolOptions, RebuildReport, read_superblock};

use crate::opening_log::OpeningLog;
use crate::pool_dir::{POOL_FILE, UNFINISHED_FILE, at, format_of, is_blank, machine, refused};
use crate::token::{TOKEN_FILE, UNFINISHED_TOKEN_FILE};
use crate::write_memory::media_at;
use crate::{Config, StartError, stack_files};

/// Files that a directory may hold and still count as empty: the leavings of an interrupted start.
const OWN_FILES: [&str; 5] =
    [UNFINISHED_FILE, "nbd.sock", "api.sock", TOKEN_FILE, UNFINISHED_TOKEN_FILE];
/// The smallest pool file made without being asked for a size, in bytes.
const POOL_BYTES_MIN: u64 = 1 << 30;
/// A pool file's size is a multiple of this, in bytes.
const POOL_BYTES_GRAIN: u64 = 32 << 20;

/// Where the bytes of the pool of `config` are; its directory if they are in several places.
pub(crate) fn path_of(config: &Config) -> PathBuf {
    let dir = &config.pool_dir;
    match &config.device {
        Some(device) => device.clone(),
        None => match stack_files::read(dir) {
            Ok(Some(layout)) => stack_files::place(dir, &layout),
            _ => dir.join(POOL_FILE),
        },
    }
}

/// Opens the pool of `config`; `None` where there is none and one may be made.
pub(crate) fn open(config: &Config) -> Result<Option<Arc<Pool>>, StartError> {
    let options = PoolOptions { memory_bytes: config.memory_bytes };
    if config.device.is_none()
        && let Some(stack) = stack_files::read(&config.pool_dir)?
    {
        return open_members(&config.pool_dir, &stack, options).map(Some);
    }
    let path = path_of(config);
    if config.device.is_some() {
        if !is_laid_out(&path)? {
            if !config.create {
                let text = format!("{} holds no pool: its first MiB is blank", path.display());
                return Err(StartError::setting(text, "give --create to make one there"));
            }
            return Ok(None);
        }
    } else if !path.try_exists().map_err(|e| at(&path, e))? {
        return refuse_foreign(&config.pool_dir).map(|()| None);
    }
    open_at(&path, options).map(Some)
}

fn open_members(
    dir: &Path,
    layout: &Layout,
    options: PoolOptions,
) -> Result<Arc<Pool>, StartError> {
    let mut log = OpeningLog::default();
    stack_files::open_pool(dir, layout, options, &mut |state| log.tell(state))
}

fn open_at(path: &Path, options: PoolOptions) -> Result<Arc<Pool>, StartError> {
    let files = Arc::new(RealFiles);
    let opened = Pool::open_with(device_at(path)?, machine(), options, files);
    opened.map_err(|error| refused(path, error))
}

/// Makes the pool of `config` where [`open`] found none, and opens it.
pub(crate) fn create(config: &Config) -> Result<Arc<Pool>, StartError> {
    let options = PoolOptions { memory_bytes: config.memory_bytes };
    if let Some(path) = &config.device {
        lay_out(path)?;
        return open_at(path, options);
    }
    let layout = Layout { stack: Stack::Member(POOL_FILE.to_owned()), spares: Vec::new() };
    create_file(config, &layout)?;
    open_members(&config.pool_dir, &layout, options)
}

/// Where a pool's bytes are: `pool.img` of its directory, or `path` itself if it is a file or disk.
///
/// # Errors
/// When there is no such path.
pub fn pool_path(path: &Path) -> Result<PathBuf, StartError> {
    let is_dir = fs::metadata(path).map_err(|e| at(path, e))?.is_dir();
    Ok(if is_dir { path.join(POOL_FILE) } else { path.to_owned() })
}

/// Throws the map of the pool at `path` away and builds it again from the log.
///
/// # Errors
/// When there is no pool, a server has it open, or its log cannot be read.
pub fn rebuild(path: &Path) -> Result<RebuildReport, StartError> {
    let device: Arc<dyn BlockDevice> = match stack_files::read_at(path)? {
        Some((dir, layout)) => Arc::new(stack_files::open(&dir, &layout)?),
        None => device_at(&pool_path(path)?)?,
    };
    Pool::rebuild(device, machine()).map_err(StartError::Pool)
}

/// Makes the pool at `path` larger, which no server may have open: by members or a file that are
/// longer than they were, or are made so now, and by a stack that is added. Returns its bytes
/// before and after.
///
/// # Errors
/// When there is no pool, a server has it open, it was not stopped cleanly, or there is nothing to
/// grow by.
pub fn grow(
    path: &Path,
    added: Option<&str>,
    size_bytes: Option<u64>,
) -> Result<(u64, u64), StartError> {
    let grown = match stack_files::read_at(path)? {
        Some((dir, layout)) => stack_files::grow(&dir, &layout, added, size_bytes)?,
        None => {
            if added.is_some() {
                let text = "the pool is on one file or device without a label";
                return Err(StartError::setting(text, "only --size makes it larger"));
            }
            let file = pool_path(path)?;
            if let Some(bytes) = size_bytes {
                // One that somebody cut is refused: what was cut off would be zeros.
                read_superblock(&*device_at(&file)?).map_err(StartError::Pool)?;
                FileMedia::lengthen(&file, bytes).map_err(|e| at(&file, e))?;
            }
            Pool::grow(&device_at(&file)?).map_err(StartError::Pool)?
        }
    };
    if grown.1 > grown.0 { Ok(grown) } else { Err(nothing_to_grow_by()) }
}

/// Makes a pool on one file or device larger while it is served.
pub(crate) fn lengthen(pool: &Pool, size_bytes: Option<u64>) -> Result<(), StartError> {
    match pool.lengthen(size_bytes).map_err(StartError::Pool)? {
        (before, after) if after > before => Ok(()),
        _ => Err(nothing_to_grow_by()),
    }
}

fn nothing_to_grow_by() -> StartError {
    let hint = "make the one file, or all members of a mirror or stripe longer, or give --size \
                (a zone more at least) or --add";
    StartError::setting("there is nothing to grow by", hint)
}

fn device_at(path: &Path) -> Result<Arc<dyn BlockDevice>, StartError> {
    let media = media_at(path).map_err(|e| at(path, e))?;
    Ok(Arc::new(MediaDevice::new(media)))
}

/// Refuses a directory that holds what no start of ours leaves.
fn refuse_foreign(dir: &Path) -> Result<(), StartError> {
    for entry in fs::read_dir(dir).map_err(|e| at(dir, e))? {
        let name = entry.map_err(|e| at(dir, e))?.file_name();
        // The root of a file system that was just made is as good as empty.
        if name != "lost+found" && !OWN_FILES.iter().any(|own| name == *own) {
            return Err(StartError::NotAPool { path: dir.to_owned() });
        }
    }
    Ok(())
}

fn create_file(config: &Config, layout: &Layout) -> Result<(), StartError> {
    let path = config.pool_dir.join(POOL_FILE);
    let dir = &config.pool_dir;
    let size_bytes = match config.pool_size_bytes {
        Some(bytes) => bytes,
        None => capacity_bytes(dir)?.max(POOL_BYTES_MIN),
    };
    let unfinished = dir.join(UNFINISHED_FILE);
    remove_unfinished(&unfinished)?;
    let size_bytes = size_bytes - size_bytes % POOL_BYTES_GRAIN;
    if size_bytes == 0 {
        return Err(StartError::setting("the pool's size is too little", "give at least 64MiB"));
    }
    // The label comes on top.
    let media = FileMedia::create(&unfinished, size_bytes.saturating_add(AREA_BYTES));
    let media = media.map_err(|e| at(&unfinished, e))?;
    let device: Arc<dyn BlockDevice> = Arc::new(MediaDevice::new(Arc::new(media)));
    let made = stack_files::make(layout, &[(path.display().to_string(), Arc::clone(&device))])
        .and_then(|()| device.flush().map_err(|e| at(&unfinished, e.source)))
        .and_then(|()| fs::rename(&unfinished, &path).map_err(|e| at(&path, e)));
    if made.is_err() {
        // Still locked, so it is ours; that it could not be finished is the error to tell.
        let _ = fs::remove_file(&unfinished);
    }
    made?;
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| at(dir, e))
}

/// Removes what an interrupted start left, unless another server is making it right now.
fn remove_unfinished(unfinished: &Path) -> Result<(), StartError> {
    match FileMedia::open(unfinished) {
        Ok(_locked) => fs::remove_file(unfinished).map_err(|e| at(unfinished, e)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(at(unfinished, e)),
    }
}

/// The capacity of the file system that holds `dir`, in bytes.
fn capacity_bytes(dir: &Path) -> Result<u64, StartError> {
    let stat = rustix::fs::statvfs(dir).map_err(|e| at(dir, e.into()))?;
    Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
}

/// Whether a device holds anything: its first MiB has a byte that is not zero. Nothing is laid out
/// unless the operator said `create`: a device whose beginning was lost is not an empty one.
fn is_laid_out(path: &PathBuf) -> Result<bool, StartError> {
    let kind = fs::metadata(path).map_err(|e| at(path, e))?.file_type();
    if !kind.is_block_device() && !kind.is_file() {
        return Err(StartError::setting(
            format!("--device: {} is neither a block device nor a file", path.display()),
            "",
        ));
    }
    is_blank(&*device_at(path)?).map(|blank| !blank).map_err(|e| at(path, e))
}

fn lay_out(path: &Path) -> Result<(), StartError> {
    let device = device_at(path)?;
    let format = format_of(device.len_bytes());
    Pool::create(&device, &machine(), &format).map_err(StartError::Pool)
}
