//! A file that keeps others out for as long as it is held.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FlockOperation;
use rustix::io::{Errno, ReadWriteFlags};

/// An open file with its `flock`.
///
/// The lock belongs to the open file, not to the descriptor: a child that was forked and has not
/// yet replaced its program holds a copy, and with that the lock. So the end is told, rather than
/// left to the last copy's closing.
#[derive(Debug)]
pub(crate) struct LockedFile {
    file: File,
    nowait_works: AtomicBool,
}

impl LockedFile {
    /// # Errors
    /// `WouldBlock` when another open file of it is locked; what the file system says otherwise.
    pub(crate) fn exclusive(file: File) -> io::Result<LockedFile> {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(LockedFile { file, nowait_works: AtomicBool::new(true) })
    }

    /// Shared with others who only read. Some file systems have no locks: there it is only open.
    ///
    /// # Errors
    /// `WouldBlock` when somebody who writes has locked it.
    pub(crate) fn shared_if_possible(file: File) -> io::Result<LockedFile> {
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
        if locked == Err(rustix::io::Errno::AGAIN) {
            let text = "another process has locked it";
            return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
        }
        Ok(LockedFile { file, nowait_works: AtomicBool::new(true) })
    }

    /// Fills `buffer` only if that needs no waiting for a device, and says whether it did; `None`
    /// where the file system cannot tell, which is remembered.
    pub(crate) fn read_cached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<Option<bool>> {
        if !self.nowait_works.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let wanted = buffer.len();
        let mut slices = [IoSliceMut::new(buffer)];
        match rustix::io::preadv2(&self.file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(got) => Ok(Some(got == wanted)),
            Err(Errno::AGAIN) => Ok(Some(false)),
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                self.nowait_works.store(false, Ordering::Relaxed);
                Ok(None)
            }
            Err(e) => Err(e.into()),
        }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing it does the same where nobody has a copy, so a failure needs no answer.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    use super::LockedFile;

    fn open(path: &Path) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    #[test]
    fn a_copy_that_a_child_has_yet_to_close_keeps_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let locks: [fn(File) -> io::Result<LockedFile>; 2] =
            [LockedFile::exclusive, LockedFile::shared_if_possible];
        for lock in locks {
            let held = lock(open(&path)).unwrap();
            let of_a_child = held.try_clone().unwrap();
            let refused = LockedFile::exclusive(open(&path)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
            drop(held);
            LockedFile::exclusive(open(&path)).expect("nobody has it any more");
            drop(of_a_child);
        }
    }
}
