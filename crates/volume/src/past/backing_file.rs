//! The file that a volume began as, while not all of it was copied: read as it was, or not at all.
//! A volume that is cloned in full begins as a moment of another, which is read like a file.
//!
//! Invariants
//! 1. Bytes are only given away if the file was what it had been when they were read: its identity
//!    is compared after each read. A write to it changes that before its bytes can be read.
//! 2. A block counts as done once its copy is committed, or nothing that can be opened sees it.
//!
//! Deliberately unaware of the map and of how blocks are copied (`backing_copy`).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use env::{FileIdentity, Files, NoFiles, Rank, RankedMutex, ReadOnlyFile};
use history::{BLOCKS_PER_PAGE, Outside};
use units::BLOCK_BYTES;

use crate::catalogue::SourceRecord;
use crate::read::snapshot::Opening;
use crate::types::Wait;

/// Pages that clients have read and that are copied before others, at most.
const WANTED_MAX: usize = 64;

/// A file that blocks are read and copied from.
pub struct Source {
    record: SourceRecord,
    files: Arc<dyn Files>,
    held: RankedMutex<Held>,
    progress: RankedMutex<Progress>,
}

/// The open file.
#[derive(Default)]
struct Held {
    file: Option<Arc<dyn ReadOnlyFile>>,
    /// Why reads fail, if they do.
    trouble: Option<String>,
}

/// How far copying is, in pages of the map.
#[derive(Default)]
struct Progress {
    /// Ranges that are done: first page and end.
    done: BTreeMap<u64, u64>,
    done_pages: u64,
    /// Where copying in the order of addresses goes on.
    cursor: u64,
    /// Pages that clients have read.
    wanted: VecDeque<u64>,
    /// The last unreadable place.
    unreadable: Option<String>,
    /// Why copying rests, if it does.
    rest: Option<Rest>,
}

/// Why copying rests, and until when.
#[derive(Clone, Debug)]
struct Rest {
    why: String,
    until_ns: u64,
}

impl Source {
    /// The file that a record names. Where it cannot be opened, or is not what it was, reads fail
    /// until it is.
    #[must_use]
    pub fn open(record: SourceRecord, files: Arc<dyn Files>) -> Source {
        let source = Source::new(record, files, Held::default());
        // The trouble, if there is one, is kept.
        let _ = source.revive();
        source
    }

    /// A moment of another volume.
    #[must_use]
    pub fn of_moment(record: SourceRecord, opening: Arc<Opening>) -> Source {
        let file: Arc<dyn ReadOnlyFile> =
            Arc::new(MomentFile { opening, identity: identity(&record) });
        Source::new(record, Arc::new(NoFiles), Held { file: Some(file), trouble: None })
    }

    fn new(record: SourceRecord, files: Arc<dyn Files>, held: Held) -> Source {
        Source {
            record,
            files,
            held: RankedMutex::new(Rank::CopyFile, held),
            progress: RankedMutex::new(Rank::CopyProgress, Progress::default()),
        }
    }

    /// Its record in the catalogue.
    #[must_use]
    pub fn record(&self) -> &SourceRecord {
        &self.record
    }

    /// Opens the file if it is not open, or not what it was.
    ///
    /// # Errors
    /// `Io` or `Corrupt` when it still is not.
    pub fn revive(&self) -> history::Result<()> {
        if let Ok(file) = self.file()
            && self.check(&*file).is_ok()
        {
            return Ok(());
        }
        let file = self.files.open(&self.record.file).map_err(|e| self.lost(&e))?;
        self.check(&*file)?;
        *self.held.lock() = Held { file: Some(file), trouble: None };
        Ok(())
    }

    fn file(&self) -> history::Result<Arc<dyn ReadOnlyFile>> {
        let held = self.held.lock();
        match (&held.file, &held.trouble) {
            (Some(file), None) => Ok(Arc::clone(file)),
            (_, trouble) => {
                let why = trouble.as_deref().unwrap_or("it is not open");
                Err(self.failed(history::ErrorKind::Corrupt, why))
            }
        }
    }

    fn failed(&self, kind: history::ErrorKind, why: &str) -> history::Error {
        let text = format!("{}, which is still being imported: {why}", self.record.file);
        history::Error::new(kind, text)
    }

    /// It cannot be read any more.
    fn lost(&self, error: &io::Error) -> history::Error {
        let why = format!("it cannot be opened: {error}");
        self.held.lock().trouble = Some(why.clone());
        self.failed(history::ErrorKind::Io, &why)
    }

    /// Fails unless a file is what it was.
    fn check(&self, file: &dyn ReadOnlyFile) -> history::Result<()> {
        let now = file.identity().map_err(|e| self.lost(&e))?;
        let Some(why) = identity(&self.record).difference(&now) else { return Ok(()) };
        self.held.lock().trouble = Some(why.clone());
        Err(self.failed(history::ErrorKind::Corrupt, &why))
    }

    /// Reads as it was; zeros beyond its end.
    ///
    /// # Errors
    /// `Corrupt` when it is not what it was, `Io` when it cannot be read.
    pub fn read_bytes(&self, offset: u64, out: &mut [u8], may_wait: bool) -> history::Result<bool> {
        let file = self.file()?;
        let there = self.record.length_bytes.saturating_sub(offset);
        let there = usize::try_from(there).map_or(out.len(), |there| there.min(out.len()));
        let (inside, beyond) = out.split_at_mut(there);
        let outcome = match (inside.is_empty(), may_wait) {
            (true, _) => Ok(true),
            (false, true) => file.read_at(offset, inside).map(|()| true),
            (false, false) => file.try_read_at(offset, inside),
        };
        self.check(&*file)?;
        beyond.fill(0);
        outcome.map_err(|e| {
            let why = format!("{there} bytes at {offset} cannot be read: {e}");
            self.failed(history::ErrorKind::Io, &why)
        })
    }

    /// Pages of the map that it reaches into.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.blocks().div_ceil(BLOCKS_PER_PAGE as u64)
    }

    /// The blocks of a page that it has.
    #[must_use]
    pub fn blocks_of(&self, page: u64) -> Range<u64> {
        let first = page * BLOCKS_PER_PAGE as u64;
        first..(first + BLOCKS_PER_PAGE as u64).min(self.blocks())
    }

    /// The next page to copy, besides those that are being copied.
    #[must_use]
    pub fn next_page(&self, is_under_way: &dyn Fn(u64) -> bool) -> Option<u64> {
        let mut progress = self.progress.lock();
        while let Some(page) = progress.wanted.pop_front() {
            if !progress.is_done(page) && !is_under_way(page) {
                return Some(page);
            }
        }
        loop {
            let page = progress.cursor;
            if page >= self.pages() {
                return None;
            }
            let last = progress.done.range(..=page).next_back();
            progress.cursor = match last {
                Some((_, &end)) if page < end => end,
                _ => page + 1,
            };
            if progress.cursor == page + 1 && !progress.is_done(page) && !is_under_way(page) {
                return Some(page);
            }
        }
    }

    /// These pages are done.
    pub fn note_done(&self, pages: impl IntoIterator<Item = u64>) {
        let mut progress = self.progress.lock();
        pages.into_iter().for_each(|page| progress.add(page));
    }

    /// Whether all of it is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.progress.lock().done_pages == self.pages()
    }

    /// Bytes of it that are done.
    #[must_use]
    pub fn done_bytes(&self) -> u64 {
        let progress = self.progress.lock();
        let whole = progress.done_pages * BLOCKS_PER_PAGE as u64 * BLOCK_BYTES;
        let last = self.pages().saturating_sub(1);
        let beyond = (last + 1) * BLOCKS_PER_PAGE as u64 * BLOCK_BYTES - self.record.length_bytes;
        if progress.is_done(last) { whole - beyond } else { whole }
    }

    /// Copying rests until then, and begins from the start again.
    pub fn rest(&self, why: String, until_ns: u64) {
        let mut progress = self.progress.lock();
        progress.rest = Some(Rest { why, until_ns });
        progress.cursor = 0;
    }

    /// The copy under way was let go: all that is not done is looked at again.
    pub fn begin_again(&self) {
        self.progress.lock().cursor = 0;
    }

    /// Some of it cannot be read.
    pub fn note_unreadable(&self, error: &history::Error) {
        self.progress.lock().unreadable = Some(error.to_string());
    }

    /// The unreadable place since this was asked last.
    #[must_use]
    pub fn take_unreadable(&self) -> Option<String> {
        self.progress.lock().unreadable.take()
    }

    /// Whether copying rests now.
    #[must_use]
    pub fn rests(&self, now_ns: u64) -> bool {
        self.progress.lock().rest.as_ref().is_some_and(|rest| now_ns < rest.until_ns)
    }

    /// Copying goes on.
    pub fn wake(&self) {
        self.progress.lock().rest = None;
    }

    /// The trouble: why reads fail, or why copying rests.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let trouble = self.held.lock().trouble.clone();
        trouble.or_else(|| self.progress.lock().rest.as_ref().map(|rest| rest.why.clone()))
    }
}

fn identity(record: &SourceRecord) -> FileIdentity {
    FileIdentity {
        length_bytes: record.length_bytes,
        inode: record.inode,
        modified_ns: record.modified_ns,
        changed_ns: record.changed_ns,
    }
}

/// A moment of a volume, read like a file: it never changes.
struct MomentFile {
    opening: Arc<Opening>,
    identity: FileIdentity,
}

impl ReadOnlyFile for MomentFile {
    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(self.identity)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.opening.read(offset, buffer, Wait::Device).map(drop).map_err(io::Error::other)
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        self.opening.read(offset, buffer, Wait::Never).map_err(io::Error::other)
    }
}

impl Outside for Source {
    fn blocks(&self) -> u64 {
        self.record.length_bytes.div_ceil(BLOCK_BYTES)
    }

    fn read(&self, first_block: u64, out: &mut [u8], may_wait: bool) -> history::Result<bool> {
        let ready = self.read_bytes(first_block * BLOCK_BYTES, out, may_wait)?;
        let mut progress = self.progress.lock();
        let page = first_block / BLOCKS_PER_PAGE as u64;
        let is_new = progress.wanted.back() != Some(&page) && !progress.is_done(page);
        if is_new && progress.wanted.len() < WANTED_MAX {
            progress.wanted.push_back(page);
        }
        Ok(ready)
    }
}

impl Progress {
    fn is_done(&self, page: u64) -> bool {
        self.done.range(..=page).next_back().is_some_and(|(_, &end)| page < end)
    }

    fn add(&mut self, page: u64) {
        if self.is_done(page) {
            return;
        }
        self.done_pages += 1;
        let mut range = page..page + 1;
        if let Some((&first, &end)) = self.done.range(..page).next_back()
            && end == page
        {
            range.start = first;
        }
        if let Some(end) = self.done.remove(&range.end) {
            range.end = end;
        }
        self.done.insert(range.start, range.end);
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn pages_that_are_done_join() {
        let mut progress = Progress::default();
        for page in [5, 3, 4, 9, 4, 0] {
            progress.add(page);
        }
        assert_eq!(progress.done.into_iter().collect::<Vec<_>>(), [(0, 1), (3, 6), (9, 10)]);
        assert_eq!(progress.done_pages, 5);
    }
}
