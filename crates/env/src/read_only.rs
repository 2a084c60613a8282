//! Files that are only read, and how it is told that one is still what it was.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::locked::LockedFile;

/// The marks of a file: they change when it is written to, cut or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Its length in bytes.
    pub length_bytes: u64,
    /// Its inode; of a block device the number of the device.
    pub inode: u64,
    /// When it was written last, in nanoseconds since 1970; 0 of a block device, of which nothing
    /// tells.
    pub modified_ns: i64,
    /// When it was last changed in any way, likewise.
    pub changed_ns: i64,
}

impl FileIdentity {
    /// In what another identity is not this one; `None` when it is.
    pub fn difference(&self, now: &FileIdentity) -> Option<String> {
        if now.inode != self.inode {
            return Some("it is another file now".to_owned());
        }
        if now.length_bytes != self.length_bytes {
            let (was, is) = (self.length_bytes, now.length_bytes);
            return Some(format!("it had {was} bytes and has {is}"));
        }
        if now.modified_ns != self.modified_ns {
            return Some("it was written to".to_owned());
        }
        (now.changed_ns != self.changed_ns)
            .then(|| "it was changed, or its owner, mode, name or times were".to_owned())
    }
}

/// A file that is open for reading.
pub trait ReadOnlyFile: Send + Sync {
    /// Its identity now.
    ///
    /// # Errors
    /// The file system's.
    fn identity(&self) -> io::Result<FileIdentity>;
    /// Fills `buffer` from `offset`; never short.
    ///
    /// # Errors
    /// The file system's; `UnexpectedEof` beyond the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Fills `buffer` only if that needs no waiting for a device; `Ok(false)` means "would wait".
    ///
    /// # Errors
    /// Those of `read_at`.
    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        self.read_at(offset, buffer).map(|()| true)
    }
}

/// Where files are opened by their paths.
pub trait Files: Send + Sync {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// The file system's; `InvalidInput` for what is neither a file nor a block device;
    /// `WouldBlock` when another process has locked it.
    fn open(&self, path: &str) -> io::Result<Arc<dyn ReadOnlyFile>>;
}

/// The machine's own files.
#[derive(Debug, Default)]
pub struct RealFiles;

/// No files at all.
#[derive(Debug, Default)]
pub struct NoFiles;

struct RealFile {
    file: LockedFile,
    is_device: bool,
}

impl fmt::Debug for dyn Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Files")
    }
}

impl Files for NoFiles {
    fn open(&self, _path: &str) -> io::Result<Arc<dyn ReadOnlyFile>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "no files are read here"))
    }
}

impl Files for RealFiles {
    fn open(&self, path: &str) -> io::Result<Arc<dyn ReadOnlyFile>> {
        // Opening a pipe would wait for its other end.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag");
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let text = "neither a file nor a block device";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // A courtesy to those who lock what they write.
        let file = LockedFile::shared_if_possible(file)?;
        let is_device = kind.is_block_device();
        Ok(Arc::new(RealFile { file, is_device }))
    }
}

impl ReadOnlyFile for RealFile {
    fn identity(&self) -> io::Result<FileIdentity> {
        let metadata = self.file.metadata()?;
        if self.is_device {
            let length_bytes = (&*self.file).seek(SeekFrom::End(0))?;
            let inode = metadata.rdev();
            return Ok(FileIdentity { length_bytes, inode, modified_ns: 0, changed_ns: 0 });
        }
        let ns = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns);
        Ok(FileIdentity {
            length_bytes: metadata.len(),
            inode: metadata.ino(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        // Where the file system cannot tell, whoever may wait reads.
        Ok(self.file.read_cached(offset, buffer)?.unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::{FileIdentity, Files, RealFiles};

    const WAS: FileIdentity =
        FileIdentity { length_bytes: 8192, inode: 7, modified_ns: 5, changed_ns: 6 };

    #[test]
    fn every_part_of_an_identity_tells() {
        assert_eq!(WAS.difference(&WAS), None);
        let cut = FileIdentity { length_bytes: 4096, ..WAS };
        assert_eq!(WAS.difference(&cut).as_deref(), Some("it had 8192 bytes and has 4096"));
        for other in [
            FileIdentity { inode: 8, ..WAS },
            FileIdentity { modified_ns: 6, ..WAS },
            FileIdentity { changed_ns: 7, ..WAS },
        ] {
            assert!(WAS.difference(&other).is_some());
        }
    }

    #[test]
    fn a_real_file_that_is_written_to_is_another_than_before() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("image");
        std::fs::write(&path, [7; 8192]).expect("written");
        let name = path.to_str().expect("a path of letters");
        let file = RealFiles.open(name).expect("opens");
        let before = file.identity().expect("told");
        assert_eq!(before.length_bytes, 8192);
        let mut bytes = [0; 10];
        file.read_at(8182, &mut bytes).expect("read");
        assert_eq!(bytes, [7; 10]);
        assert!(file.read_at(8190, &mut bytes).is_err(), "beyond the end");
        std::fs::write(&path, [8; 4096]).expect("written");
        assert!(before.difference(&file.identity().expect("told")).is_some());
        let is_refused = |path: &str| RealFiles.open(path).is_err();
        assert!(is_refused(dir.path().to_str().expect("letters")), "a directory is no file");
        assert!(is_refused("/dev/null"), "nor is a character device");
    }
}
