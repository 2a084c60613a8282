//! Media on a file or a raw block device, through the page cache.
//!
//! Reads that the page cache can answer never wait (`RWF_NOWAIT`), so a caller can serve those
//! inline and hand only cold reads to threads; writes go to the page cache in one vectored call,
//! or past it for who asks for that; `sync` is `fdatasync`.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::ReadWriteFlags;

use crate::Media;
use crate::locked::LockedFile;
use crate::mapped::is_mapped;

/// Slices per vectored call (the kernel's limit, `UIO_MAXIOV`).
const SLICES_PER_CALL_MAX: usize = 1024;

/// File systems that tell no hole where something was written and waits in the page cache: tmpfs,
/// ext2 to 4, XFS, Btrfs. Others have told one (OpenZFS before 2.2.2), or cannot know.
const TELL_HOLES: [u64; 4] = [0x0102_1994, EXT4, XFS, 0x9123_683e];

/// File systems on which space that was reserved is there, and writes past the page cache are what
/// they say: ext4 and XFS. One that copies on write takes new space for the same place.
const WRITE_DIRECT: [u64; 2] = [EXT4, XFS];
const XFS: u64 = 0x5846_5342;
/// ext2 and ext3 call themselves the same.
const EXT4: u64 = 0xef53;
/// A file that ext4 keeps in extents.
const EXT4_EXTENTS: u32 = 0x0008_0000;
/// Offsets, lengths and addresses of writes past the page cache are multiples of it.
const DIRECT_ALIGNMENT: u64 = 4096;
/// Writes of fewer bytes go by way of the page cache: a flush soon writes them with others.
const DIRECT_MIN: u64 = 64 << 10;

/// A file or block device.
#[derive(Debug)]
pub struct FileMedia {
    file: LockedFile,
    name: String,
    /// It only rises.
    len_bytes: AtomicU64,
    /// A file, which somebody may cut while it is used; not a block device.
    is_file: bool,
    /// Somebody did.
    was_cut: AtomicBool,
    /// Whether what its file system says of holes can be relied on.
    tells_holes: bool,
    /// The same past the page cache, or why there is no such way.
    direct: Result<File, String>,
    /// Whether a sync has failed; held while one is made.
    sync_failed: Mutex<bool>,
}

impl FileMedia {
    /// Creates a sparse file of `len_bytes` and locks it.
    ///
    /// # Errors
    /// When the file exists, cannot be made or cannot be locked; what was made is gone then.
    pub fn create(path: &Path, len_bytes: u64) -> io::Result<FileMedia> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        FileMedia::prepare(file, path, len_bytes).inspect_err(|_| {
            // One that is too short would be in the way of the next try.
            let _ = std::fs::remove_file(path);
        })
    }

    /// Makes a new file so long, and durable.
    fn prepare(file: File, path: &Path, len_bytes: u64) -> io::Result<FileMedia> {
        file.set_len(len_bytes)?;
        file.sync_all()?;
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            File::open(parent)?.sync_all()?;
        }
        FileMedia::locked(file, path, len_bytes)
    }

    /// Makes a file longer, with a hole, that no other process holds; whether it was shorter.
    ///
    /// # Errors
    /// `WouldBlock` when another process holds it; `InvalidInput` when it is no regular file.
    pub fn lengthen(path: &Path, len_bytes: u64) -> io::Result<bool> {
        let file = LockedFile::exclusive(OpenOptions::new().read(true).write(true).open(path)?)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let is_shorter = found.len() < len_bytes;
        if is_shorter {
            file.set_len(len_bytes)?;
            file.sync_all()?;
        }
        Ok(is_shorter)
    }

    /// Opens an existing file or block device and locks it against a second server.
    ///
    /// # Errors
    /// `WouldBlock` when another process holds it.
    pub fn open(path: &Path) -> io::Result<FileMedia> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let len_bytes = length_of(&file)?;
        FileMedia::locked(file, path, len_bytes)
    }

    fn locked(file: File, path: &Path, len_bytes: u64) -> io::Result<FileMedia> {
        let file = LockedFile::exclusive(file)?;
        let name = path.display().to_string();
        // A block device says what the file system of its node does.
        let is_file = file.metadata()?.is_file();
        let found = rustix::fs::fstatfs(&*file);
        let kind = found.map_or(0, |found| u64::try_from(found.f_type).unwrap_or(0));
        let tells_holes = is_file && TELL_HOLES.contains(&kind);
        let direct = match is_file {
            _ if is_file && !WRITE_DIRECT.contains(&kind) => {
                Err(format!("{name} is on a file system other than ext4 and XFS"))
            }
            true if !can_reserve(&file, kind) => {
                Err(format!("{name}: no space can be reserved for it"))
            }
            _ => open_direct(&file).map_err(|e| format!("{name} has no direct I/O: {e}")),
        };
        Ok(FileMedia {
            file,
            name,
            len_bytes: AtomicU64::new(len_bytes),
            is_file,
            was_cut: AtomicBool::new(false),
            tells_holes,
            direct,
            sync_failed: Mutex::new(false),
        })
    }

    /// Whether it tells where it has holes: not every file system can be asked.
    pub fn tells_holes(&self) -> bool {
        self.tells_holes
    }

    fn check_range(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        match offset.checked_add(length_bytes) {
            Some(end) if end <= self.len_bytes() => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "beyond the end of the media")),
        }
    }

    /// Refuses a file that somebody cut, also when it is as long as before again. A write would
    /// make it long again, and then what was cut off would read as zeros instead of failing.
    fn check_whole(&self) -> io::Result<()> {
        if !self.is_file {
            return Ok(());
        }
        // Asked in this order: a file that grows is longer before this says so.
        let had = self.len_bytes();
        // The position of the file has a lock, this has none.
        let there = u64::try_from(rustix::fs::fstat(&*self.file)?.st_size).unwrap_or(0);
        let cut = check_cut(had, there);
        if cut.is_err() {
            self.was_cut.store(true, Ordering::Release);
        } else if self.was_cut.load(Ordering::Acquire) {
            return Err(io::Error::other("somebody cut it, and it is long again"));
        }
        cut
    }

    /// Refuses what was read from a file that somebody cut, unless all of it has blocks: a hole may
    /// be where something was, in front of a write that was under way meanwhile.
    fn check_read(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.check_whole().or_else(|error| {
            let hole = rustix::fs::seek(&*self.file, SeekFrom::Hole(offset));
            let has_blocks = self.tells_holes && hole.is_ok_and(|at| at >= offset + length_bytes);
            if has_blocks { Ok(()) } else { Err(error) }
        })
    }

    /// Writes to a range of a file that is whole before and after. A write that is under way while
    /// somebody cuts the file can still make it longer; it fails, and what lies in front of it is
    /// not read as zeros. One that reaches the old end is told by nothing.
    fn write_whole(
        &self,
        offset: u64,
        length_bytes: u64,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        self.check_range(offset, length_bytes)?;
        self.check_whole()?;
        write()?;
        self.check_whole()
    }

    fn write_past_cache(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let length = bytes.len() as u64;
        let Some(direct) = self.direct.as_ref().ok().filter(|_| length >= DIRECT_MIN) else {
            return self.file.write_all_at(bytes, offset);
        };
        // Both ends, as far as they are not aligned, go by way of the page cache.
        let first = offset.next_multiple_of(DIRECT_ALIGNMENT);
        let end = (offset + length) / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT;
        let at = |position: u64| usize::try_from(position - offset).expect("within the bytes");
        self.file.write_all_at(&bytes[..at(first)], offset)?;
        match direct.write_all_at(&bytes[at(first)..at(end)], first) {
            // Not so aligned in memory, or for this device.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                self.file.write_all_at(&bytes[at(first)..at(end)], first)?;
            }
            other => other?,
        }
        self.file.write_all_at(&bytes[at(end)..], end)
    }

    /// Writes what is on the device when this ends, which is asked for these bytes only.
    fn write_through(&self, offset: u64, slices: &[IoSlice<'_>], total: usize) -> io::Result<()> {
        if slices.len() <= SLICES_PER_CALL_MAX {
            match rustix::io::pwritev2(&*self.file, slices, offset, ReadWriteFlags::DSYNC) {
                Ok(written) if written == total => return Ok(()),
                // In part, or not possible here: the long way.
                Ok(_)
                | Err(
                    rustix::io::Errno::INTR
                    | rustix::io::Errno::OPNOTSUPP
                    | rustix::io::Errno::INVAL
                    | rustix::io::Errno::NOSYS,
                ) => {}
                Err(e) => return Err(e.into()),
            }
        }
        write_all(&self.file, offset, slices)?;
        self.sync()
    }
}

impl Media for FileMedia {
    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    fn lengthen(&self, len_bytes: Option<u64>) -> io::Result<u64> {
        self.check_whole()?;
        let had = self.len_bytes();
        let there = length_of(&self.file)?;
        check_cut(had, there)?;
        let wanted = len_bytes.unwrap_or(there).max(had);
        if there < wanted {
            if !self.is_file {
                let text = format!("it has {there} bytes, and is no file that can be made longer");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            self.file.set_len(wanted)?;
            self.file.sync_all()?;
        }
        let now = there.max(wanted);
        self.len_bytes.store(now, Ordering::Release);
        Ok(now)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check_range(offset, buffer.len() as u64)?;
        self.file.read_exact_at(buffer, offset).inspect_err(|_| _ = self.check_whole())?;
        self.check_read(offset, buffer.len() as u64)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        self.check_range(offset, buffer.len() as u64)?;
        if self.was_cut.load(Ordering::Acquire) {
            return Ok(false);
        }
        match self.file.read_cached(offset, buffer)? {
            Some(read) => Ok(read),
            // This file system cannot tell: read and wait.
            None => self.read_at(offset, buffer).map(|()| true),
        }
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let total = slices.iter().map(|s| s.len() as u64).sum();
        self.write_whole(offset, total, || write_all(&self.file, offset, slices))
    }

    fn write_direct(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_whole(offset, bytes.len() as u64, || self.write_past_cache(offset, bytes))
    }

    fn why_no_buffer(&self) -> Option<String> {
        self.direct.as_ref().err().cloned()
    }

    fn stamp(&self) -> u128 {
        if !self.is_file {
            return 0;
        }
        let nanos = |seconds: i64, nanos: i64| seconds.wrapping_mul(1_000_000_000) + nanos;
        self.file.metadata().map_or(u128::MAX, |m| {
            u128::from(m.len()) << 64 | u128::from(nanos(m.ctime(), m.ctime_nsec()).cast_unsigned())
        })
    }

    fn identity(&self) -> u128 {
        // A block device is the one that its node names, wherever that is.
        self.file.metadata().map_or(0, |m| match self.is_file {
            true => u128::from(m.dev()) << 64 | u128::from(m.ino()),
            false => u128::from(m.rdev()) << 64,
        })
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let total = slices.iter().map(|s| s.len()).sum();
        self.write_whole(offset, total as u64, || self.write_through(offset, slices, total))
    }

    fn is_hole(&self, offset: u64, length_bytes: u64) -> bool {
        if !self.tells_holes || self.check_range(offset, length_bytes).is_err() {
            return false;
        }
        match rustix::fs::seek(&*self.file, SeekFrom::Data(offset)) {
            // If no data follows, there is a hole up to the end of the file.
            Ok(data) if data < offset + length_bytes => false,
            Ok(_) | Err(rustix::io::Errno::NXIO) => self.check_whole().is_ok(),
            Err(_) => false,
        }
    }

    fn sync(&self) -> io::Result<()> {
        // The kernel tells of a failed write-back once for each open file: of two syncs at a time
        // one may hear that all is well. So one at a time, and after a failure none succeeds.
        let mut failed = self.sync_failed.lock();
        if *failed {
            return Err(io::Error::other("an earlier sync failed"));
        }
        let outcome = self.file.sync_data();
        *failed = outcome.is_err();
        outcome
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.check_range(offset, length_bytes)?;
        self.check_whole()?;
        let reserve = |flags| rustix::fs::fallocate(&*self.file, flags, offset, length_bytes);
        // A file that somebody cuts meanwhile stays as short as it is; NFS has no way to say so.
        let reserved = match reserve(FallocateFlags::KEEP_SIZE) {
            Err(rustix::io::Errno::OPNOTSUPP) => reserve(FallocateFlags::empty()),
            other => other,
        };
        match reserved {
            // A block device has its space already; some file systems cannot reserve.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NODEV) => Ok(()),
            // XFS wants room for a whole range before it looks at what the range has. Elsewhere a
            // range that has its blocks may need others to be written over.
            Err(rustix::io::Errno::NOSPC)
                if is_on(&self.file, XFS)
                    && is_mapped(&self.file, offset, length_bytes).unwrap_or(false) =>
            {
                Ok(())
            }
            other => Ok(other?),
        }
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.check_range(offset, length_bytes)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&*self.file, flags, offset, length_bytes) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NODEV) => Ok(()),
            other => Ok(other?),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Whether a file is on a file system of this kind.
fn is_on(file: &File, kind: u64) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| u64::try_from(found.f_type) == Ok(kind))
}

/// The length of a file or block device.
fn length_of(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, SeekFrom::End(0))?)
}

/// Refuses a file or device that had more bytes when it was opened.
fn check_cut(had: u64, there: u64) -> io::Result<()> {
    if there < had {
        let text = format!("somebody cut it: it has {there} bytes, and had {had}");
        return Err(io::Error::other(text));
    }
    Ok(())
}

/// Whether space can be reserved for it: where ext4 keeps it in extents, as XFS keeps all. Nothing
/// of it is changed to find out.
fn can_reserve(file: &File, kind: u64) -> bool {
    let has_extents = |flags: rustix::fs::IFlags| flags.bits() & EXT4_EXTENTS != 0;
    kind != EXT4 || rustix::fs::ioctl_getflags(file).is_ok_and(has_extents)
}

/// The same file past the page cache.
fn open_direct(file: &File) -> io::Result<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).expect("a flag");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().write(true).custom_flags(flags).open(path)
}

/// Writes all slices, one after another.
pub(crate) fn write_all(file: &File, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
    let mut position = offset;
    for chunk in slices.chunks(SLICES_PER_CALL_MAX) {
        let length: usize = chunk.iter().map(|s| s.len()).sum();
        let written = loop {
            match rustix::io::pwritev(file, chunk, position) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        if written < length {
            write_rest(file, chunk, position, written)?;
        }
        position += length as u64;
    }
    Ok(())
}

/// Finishes a short vectored write: `written` bytes of `slices` are out already.
fn write_rest(file: &File, slices: &[IoSlice<'_>], offset: u64, written: usize) -> io::Result<()> {
    let mut skip = written;
    let mut position = offset + written as u64;
    for slice in slices {
        if skip >= slice.len() {
            skip -= slice.len();
            continue;
        }
        file.write_all_at(&slice[skip..], position)?;
        position += (slice.len() - skip) as u64;
        skip = 0;
    }
    Ok(())
}
