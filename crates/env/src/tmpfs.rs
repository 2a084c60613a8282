//! Shared memory that is a file on a tmpfs: it is there as long as the machine runs.
//!
//! The file begins with a page that says whose it is; then come the slots, each two pages with its
//! words and then the bytes of a piece. A slot's memory is reserved before it is touched, so a
//! tmpfs that is full is an error of [`SharedMemory::grow`] and no signal.

#![expect(unsafe_code, reason = "the file is mapped; what is said of it stands beside each use")]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::locked::LockedFile;
use crate::shared_memory::{
    Owner, PIECE_BYTES, SLOT_WORDS, SharedMemories, SharedMemory, SlotWords,
};
use crate::{Media, file};

const PAGE_BYTES: usize = 4096;
/// Bytes before the piece in a slot: its words.
const WORDS_BYTES: usize = 2 * PAGE_BYTES;
const SLOT_BYTES: usize = WORDS_BYTES + PIECE_BYTES as usize;
const _: () = assert!(SLOT_WORDS * 8 <= WORDS_BYTES);
/// `HINDWMEM`, as bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"HINDWMEM");
/// The version of the file.
const VERSION: u64 = 1;
/// Words of the first page: magic, version, slots that can be, slots that there are, tag, media,
/// whether it was trimmed.
const HEAD_WORDS: usize = 9;
const SLOTS_WORD: usize = 3;
const TRIMMED_WORD: usize = 8;
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// How every file of ours begins.
const NAME: &str = "hindsight-write-";

/// Memories in a directory.
#[derive(Debug)]
pub struct Tmpfs {
    dir: PathBuf,
}

impl Tmpfs {
    /// Those in `dir`.
    #[must_use]
    pub fn new(dir: &Path) -> Tmpfs {
        Tmpfs { dir: dir.to_owned() }
    }

    fn path(&self, tag: u128) -> PathBuf {
        self.dir.join(format!("{NAME}{tag:032x}"))
    }

    /// Fails where files do not outlive the process alone.
    fn check(&self) -> io::Result<()> {
        match u64::try_from(rustix::fs::statfs(&self.dir)?.f_type) {
            Ok(TMPFS_MAGIC) => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, "it is on no tmpfs")),
        }
    }

    /// Gives back the memory of slots that have nothing to be written, of memories that no process
    /// holds. Slots that a killed process left to be written stay, until its media are opened.
    pub fn trim(&self) {
        let Ok(entries) = std::fs::read_dir(&self.dir) else { return };
        let names = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(NAME))
        };
        for path in names.filter(is_ours) {
            // One that is held, or not to be read by us, is not ours to look at.
            let _ = trim(&path);
        }
    }
}

fn trim(path: &Path) -> io::Result<()> {
    let file = LockedFile::exclusive(OpenOptions::new().read(true).write(true).open(path)?)?;
    let head = read_head(&file)?;
    if head[TRIMMED_WORD] != 0 {
        return Ok(());
    }
    for slot in 0..usize_of(head[SLOTS_WORD]) {
        let at = (PAGE_BYTES + slot * SLOT_BYTES) as u64;
        let words = read_words::<SLOT_WORDS>(&file, at)?;
        if words[1..].iter().all(|&word| word == 0) {
            // Its words stay, so that who looks at them needs no memory for that.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&*file, flags, at + WORDS_BYTES as u64, PIECE_BYTES)?;
        }
    }
    file.write_all_at(&1_u64.to_le_bytes(), (TRIMMED_WORD * 8) as u64)
}

impl SharedMemories for Tmpfs {
    fn boot(&self) -> u128 {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&digits, 16).unwrap_or(0)
    }

    fn create(&self, owner: Owner, slots_max: usize) -> io::Result<Box<dyn SharedMemory>> {
        let path = self.path(owner.tag);
        let made = self.check().and_then(|()| {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create_new(true).mode(0o600);
            let file = options.open(&path)?;
            let make = |file| TmpfsMemory::make(file, path.clone(), owner, slots_max);
            held(file).and_then(make).inspect_err(|_| {
                let _ = std::fs::remove_file(&path);
            })
        });
        Ok(Box::new(made.map_err(|e| of(&path, &e))?))
    }

    fn open(&self, owner: Owner) -> io::Result<Option<Box<dyn SharedMemory>>> {
        let path = self.path(owner.tag);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(of(&path, &e)),
        };
        let found = || {
            // Another's may be in use, and locked for as long as that is.
            if owner_in(&read_head(&file)?) != owner {
                return Err(wrong("it is for another file: this one is a copy, or was put back"));
            }
            TmpfsMemory::found(held(file)?, path.clone())
        };
        Ok(Some(Box::new(found().map_err(|e| of(&path, &e))?)))
    }

    fn remove(&self, tag: u128) -> io::Result<()> {
        std::fs::remove_file(self.path(tag))
    }
}

/// An error with the file that it is of.
fn of(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Locks a memory of ours: others hold it for an instant (`Tmpfs::trim`).
fn held(file: File) -> io::Result<LockedFile> {
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    LockedFile::exclusive(file)
}

/// A memory that is mapped.
struct TmpfsMemory {
    file: LockedFile,
    path: PathBuf,
    map: *mut u8,
    map_bytes: usize,
    slots_max: usize,
    slots: AtomicUsize,
    growing: Mutex<()>,
}

// SAFETY: the mapping belongs to no thread. Its words are only used as atomics, and its bytes are
// copied in and out, never referred to.
unsafe impl Send for TmpfsMemory {}
// SAFETY: as above.
unsafe impl Sync for TmpfsMemory {}

impl TmpfsMemory {
    fn make(
        file: LockedFile,
        path: PathBuf,
        owner: Owner,
        slots_max: usize,
    ) -> io::Result<TmpfsMemory> {
        let bytes = PAGE_BYTES + slots_max * SLOT_BYTES;
        file.set_len(bytes as u64)?;
        rustix::fs::fallocate(&*file, FallocateFlags::empty(), 0, PAGE_BYTES as u64)?;
        let halves = |n: u128| [n as u64, (n >> 64) as u64];
        let [tag, media] = [owner.tag, owner.media].map(halves);
        let head = [MAGIC, VERSION, slots_max as u64, 0, tag[0], tag[1], media[0], media[1], 0];
        let bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all_at(&bytes, 0)?;
        TmpfsMemory::found(file, path)
    }

    fn found(file: LockedFile, path: PathBuf) -> io::Result<TmpfsMemory> {
        let head = read_head(&file)?;
        let (slots_max, slots) = (usize_of(head[2]), usize_of(head[SLOTS_WORD]));
        let map_bytes = PAGE_BYTES + slots_max * SLOT_BYTES;
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, of a file that has so many bytes and is cut by nobody: it is
        // locked, and its name is ours.
        let map = unsafe {
            rustix::mm::mmap(ptr::null_mut(), map_bytes, flags, MapFlags::SHARED, &*file, 0)?
        };
        Ok(TmpfsMemory {
            file,
            path,
            map: map.cast(),
            map_bytes,
            slots_max,
            slots: AtomicUsize::new(slots),
            growing: Mutex::new(()),
        })
    }

    /// Where a part of a slot's piece is in the file.
    fn place(&self, slot: usize, part: &Range<usize>) -> usize {
        assert!(slot < self.slots() && part.end <= PIECE_BYTES as usize, "within a slot");
        PAGE_BYTES + slot * SLOT_BYTES + WORDS_BYTES + part.start
    }
}

impl Drop for TmpfsMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(self.map.cast(), self.map_bytes) };
    }
}

impl SharedMemory for TmpfsMemory {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn is_there(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.nlink() > 0)
    }

    fn slots(&self) -> usize {
        self.slots.load(Ordering::Acquire)
    }

    fn grow(&self) -> io::Result<()> {
        let _one = self.growing.lock();
        let slot = self.slots();
        if slot == self.slots_max {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "it has all its slots"));
        }
        let at = (PAGE_BYTES + slot * SLOT_BYTES) as u64;
        let none = FallocateFlags::empty();
        rustix::fs::fallocate(&*self.file, none, at, SLOT_BYTES as u64)?;
        // Its pages are mapped now rather than one by one at their first use.
        let all = Advice::LinuxPopulateWrite;
        // SAFETY: within the mapping; nothing that is there changes.
        let _ = unsafe {
            rustix::mm::madvise(
                self.map.add(PAGE_BYTES + slot * SLOT_BYTES).cast(),
                SLOT_BYTES,
                all,
            )
        };
        self.file.write_all_at(&(slot as u64 + 1).to_le_bytes(), (SLOTS_WORD * 8) as u64)?;
        self.slots.store(slot + 1, Ordering::Release);
        Ok(())
    }

    fn words(&self, slot: usize) -> &SlotWords {
        assert!(slot < self.slots(), "a slot that is there");
        let at = PAGE_BYTES + slot * SLOT_BYTES;
        // SAFETY: a page within the mapping, aligned, that is only used as these atomics.
        unsafe { &*self.map.add(at).cast::<[AtomicU64; SLOT_WORDS]>() }
    }

    fn write(
        &self,
        slot: usize,
        offset: usize,
        slices: &[IoSlice<'_>],
        is_needed: bool,
    ) -> io::Result<()> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut at = self.place(slot, &(offset..offset + length));
        if is_needed {
            // The kernel ends no process within a page.
            return file::write_all(&self.file, at as u64, slices);
        }
        for slice in slices {
            // SAFETY: within the mapping, which no slice of a caller is in. No reader wants what is
            // there before this returns.
            unsafe { ptr::copy_nonoverlapping(slice.as_ptr(), self.map.add(at), slice.len()) };
            at += slice.len();
        }
        Ok(())
    }

    fn read(&self, slot: usize, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let at = self.place(slot, &(offset..offset + buffer.len()));
        // SAFETY: within the mapping, which no buffer of a caller is in. Where somebody writes to
        // what is read the reader gets old bytes and new ones, as from a file.
        unsafe { ptr::copy_nonoverlapping(self.map.add(at), buffer.as_mut_ptr(), buffer.len()) };
        Ok(())
    }

    fn put(&self, slot: usize, part: Range<usize>, media: &dyn Media, at: u64) -> io::Result<()> {
        let from = self.place(slot, &part);
        // SAFETY: within the mapping. The media hand the bytes to the kernel, and do not look at
        // them: another thread may have it write there meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(self.map.add(from), part.len()) };
        media.write_direct(at, bytes)
    }
}

/// The head of a file, whose lengths fit each other.
fn read_head(file: &File) -> io::Result<[u64; HEAD_WORDS]> {
    if file.metadata()?.len() < PAGE_BYTES as u64 {
        return Err(wrong("it is too short for a memory of a write buffer"));
    }
    let head = read_words::<HEAD_WORDS>(file, 0)?;
    if head[0] != MAGIC || head[1] != VERSION {
        return Err(wrong("it is no memory of a write buffer, or of another version"));
    }
    let bytes = head[2].checked_mul(SLOT_BYTES as u64).map(|bytes| bytes + PAGE_BYTES as u64);
    if bytes != Some(file.metadata()?.len()) || head[SLOTS_WORD] > head[2] {
        return Err(wrong("it has not the length that it had"));
    }
    Ok(head)
}

fn owner_in(head: &[u64; HEAD_WORDS]) -> Owner {
    let half = |at: usize| u128::from(head[at]) | u128::from(head[at + 1]) << 64;
    Owner { tag: half(4), media: half(6) }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn read_words<const N: usize>(file: &File, at: u64) -> io::Result<[u64; N]> {
    let mut bytes = vec![0; N * 8];
    file.read_exact_at(&mut bytes, at)?;
    let words = bytes.as_chunks::<8>().0;
    Ok(std::array::from_fn(|i| u64::from_le_bytes(words[i])))
}

fn usize_of(n: u64) -> usize {
    usize::try_from(n).expect("checked against the file's length")
}

#[cfg(test)]
mod tests {
    use std::io::{self, IoSlice};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use super::Tmpfs;
    use crate::shared_memory::{Owner, PIECE_BYTES, SharedMemories};

    #[test]
    fn a_dead_process_leaves_its_words_and_what_waits_and_no_more() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
        let memories = Tmpfs::new(folder.path());
        let owner = Owner { tag: 7 << 64 | 8, media: 9 << 64 | 10 };
        let memory = memories.create(owner, 3).expect("made");
        let place = memory.name();
        for slot in 0..3 {
            memory.grow().expect("there is memory");
            let bytes = vec![slot as u8 + 1; PIECE_BYTES as usize];
            let is_needed = slot == 1;
            memory.write(slot, 0, &[IoSlice::new(&bytes)], is_needed).expect("written");
        }
        assert_eq!(memory.grow().map_err(|e| e.kind()), Err(io::ErrorKind::StorageFull));
        memory.words(0)[0].store(5, Ordering::Release);
        memory.words(0)[256].store(1 << 63, Ordering::Release);
        memory.words(1)[512].store(1, Ordering::Release);
        // It is in use: nobody looks at it, and somebody else's is refused without waiting for it.
        memories.trim();
        let used = || std::fs::metadata(&place).expect("there").blocks() * 512;
        assert!(used() > 3 << 20);
        let other = Owner { media: 1, ..owner };
        assert_eq!(memories.open(other).err().map(|e| e.kind()), Some(io::ErrorKind::InvalidData));
        let name = |tag: u128| folder.path().join(format!("hindsight-write-{tag:032x}"));
        std::fs::hard_link(name(owner.tag), name(1)).expect("another name");
        let other = Owner { tag: 1, ..owner };
        assert_eq!(memories.open(other).err().map(|e| e.kind()), Some(io::ErrorKind::InvalidData));
        memories.remove(1).expect("removed");
        drop(memory);
        memories.trim();
        assert!((2 << 20..3 << 20).contains(&used()), "{} bytes", used());
        let found = memories.open(owner).expect("ours").expect("there");
        assert_eq!(found.slots(), 3);
        let words = |slot: usize, word: usize| found.words(slot)[word].load(Ordering::Acquire);
        assert_eq!((words(0, 0), words(0, 256), words(1, 512), words(2, 0)), (5, 1 << 63, 1, 0));
        for (slot, byte) in [(0, 1), (1, 2), (2, 0)] {
            let mut bytes = vec![9; 8192];
            found.read(slot, PIECE_BYTES as usize - 8192, &mut bytes).expect("read");
            assert!(bytes.iter().all(|&b| b == byte), "slot {slot}");
        }
        assert!(found.is_there());
        memories.remove(owner.tag).expect("removed");
        assert!(!found.is_there());
        assert!(memories.open(owner).expect("nothing").is_none());
    }

    #[test]
    fn a_file_that_is_no_memory_or_was_cut_is_refused() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
        let memories = Tmpfs::new(folder.path());
        let owner = Owner { tag: 1, media: 2 };
        let memory = memories.create(owner, 2).expect("made");
        let place = memory.name();
        drop(memory);
        let file = std::fs::File::options().write(true).open(&place).expect("there");
        for length in [0, 8, 4096, 1 << 20] {
            file.set_len(length).expect("cut");
            let error = memories.open(owner).err().map(|e| e.kind());
            assert_eq!(error, Some(io::ErrorKind::InvalidData), "{length}");
        }
        let refused = Tmpfs::new(Path::new("/proc")).create(owner, 2).err().map(|e| e.kind());
        assert_eq!(refused, Some(io::ErrorKind::Unsupported), "no tmpfs");
    }
}
