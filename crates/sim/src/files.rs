//! Files that are only read, and that others change, cut, replace, take away and spoil.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use env::{FileIdentity, Files, ReadOnlyFile};
use parking_lot::Mutex;

/// Files in memory, by path. A path may lead to another file later; who has opened one keeps it.
#[derive(Default)]
pub struct SimFiles {
    files: Mutex<BTreeMap<String, Arc<SimFile>>>,
}

/// One file.
pub struct SimFile {
    state: Mutex<State>,
}

struct State {
    content: Vec<u8>,
    identity: FileIdentity,
    unreadable: Option<Range<u64>>,
    reads: u64,
    cold_every: u64,
}

impl SimFiles {
    /// Puts a file at a path, in the place of what was there.
    pub fn put(&self, path: &str, inode: u64, content: Vec<u8>) -> Arc<SimFile> {
        let length_bytes = content.len() as u64;
        let identity = FileIdentity { length_bytes, inode, modified_ns: 1, changed_ns: 1 };
        let state = State { content, identity, unreadable: None, reads: 0, cold_every: 0 };
        let file = Arc::new(SimFile { state: Mutex::new(state) });
        self.files.lock().insert(path.to_owned(), Arc::clone(&file));
        file
    }

    /// Lets a path lead to this file.
    pub fn link(&self, path: &str, file: &Arc<SimFile>) {
        self.files.lock().insert(path.to_owned(), Arc::clone(file));
    }

    /// Takes a path away.
    pub fn unlink(&self, path: &str) {
        self.files.lock().remove(path);
    }
}

impl Files for SimFiles {
    fn open(&self, path: &str) -> io::Result<Arc<dyn ReadOnlyFile>> {
        let file = self.files.lock().get(path).cloned();
        file.map(|file| file as Arc<dyn ReadOnlyFile>)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such file"))
    }
}

impl SimFile {
    /// Writes to it, as nobody should.
    pub fn change(&self, offset: usize, bytes: &[u8]) {
        let mut state = self.state.lock();
        state.content[offset..offset + bytes.len()].copy_from_slice(bytes);
        state.identity.modified_ns += 1;
        state.identity.changed_ns += 1;
    }

    /// Cuts it off.
    pub fn truncate(&self, length: usize) {
        let mut state = self.state.lock();
        state.content.truncate(length);
        state.identity.length_bytes = length as u64;
        state.identity.modified_ns += 1;
        state.identity.changed_ns += 1;
    }

    /// Makes a range of it unreadable, or all of it readable.
    pub fn spoil(&self, range: Option<Range<u64>>) {
        self.state.lock().unreadable = range;
    }

    /// Says "would wait" to each so many reads that may not; 0 is never.
    pub fn set_cold_every(&self, reads: u64) {
        self.state.lock().cold_every = reads;
    }

    /// Reads that were asked for.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.state.lock().reads
    }
}

impl ReadOnlyFile for SimFile {
    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(self.state.lock().identity)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.reads += 1;
        let end = offset + buffer.len() as u64;
        if state.unreadable.as_ref().is_some_and(|r| offset < r.end && r.start < end) {
            return Err(io::Error::other("simulated input/output error"));
        }
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let there = state.content.get(start..start + buffer.len());
        let there = there.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        buffer.copy_from_slice(there);
        Ok(())
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        let (reads, cold_every) = {
            let state = self.state.lock();
            (state.reads, state.cold_every)
        };
        if cold_every > 0 && (reads + 1).is_multiple_of(cold_every) {
            self.state.lock().reads += 1;
            return Ok(false);
        }
        self.read_at(offset, buffer).map(|()| true)
    }
}
