//! What the write buffers of a process share: memory, and the threads that write what waits.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use env::{Entropy, Media, SharedMemories, WINDOW_BYTES};
use parking_lot::{Condvar, Mutex};

use super::WriteBuffer;

/// How a write buffer stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferStatus {
    /// The media.
    pub media: String,
    /// Whether it has a memory.
    pub is_used: bool,
    /// Why it has none and gets none.
    pub off: Option<String>,
    /// Where its memory is.
    pub place: Option<String>,
    /// Bytes of its slots.
    pub slots_bytes: u64,
    /// Bytes of those that have something to be written.
    pub waiting_bytes: u64,
    /// Bytes that were put into it since it was opened.
    pub buffered_bytes: u64,
    /// Bytes that were written from it.
    pub written_bytes: u64,
    /// Bytes that found no slot and went to the page cache.
    pub passed_by_bytes: u64,
    /// The error of a write from it that failed.
    pub failed: Option<String>,
}

pub(super) struct Common {
    pub(super) memories: Box<dyn SharedMemories>,
    entropy: Box<dyn Entropy>,
    /// Slots that may be made still, of those that all buffers may have.
    left: AtomicUsize,
    slots_max: AtomicUsize,
    bell: Mutex<bool>,
    rung: Condvar,
}

impl Common {
    /// A random number of 128 bits.
    pub(super) fn draw(&self) -> u128 {
        u128::from(self.entropy.next_u64()) << 64 | u128::from(self.entropy.next_u64())
    }

    pub(super) fn slots_max(&self) -> usize {
        self.slots_max.load(Ordering::Acquire)
    }

    /// The right to make a slot.
    pub(super) fn reserve(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    pub(super) fn give_back(&self, slots: usize) {
        self.left.fetch_add(slots, Ordering::AcqRel);
    }

    /// The system has no more memory: no slot is made any more.
    pub(super) fn lower_budget(&self) {
        self.left.store(0, Ordering::Release);
    }

    /// Wakes a thread that writes what waits.
    pub(super) fn ring(&self) {
        *self.bell.lock() = true;
        self.rung.notify_one();
    }
}

/// The write buffers of a process.
pub struct WriteBuffers {
    common: Arc<Common>,
    all: Mutex<Vec<Weak<WriteBuffer>>>,
}

impl WriteBuffers {
    /// None yet, and no memory for them.
    #[must_use]
    pub fn new(memories: Box<dyn SharedMemories>, entropy: Box<dyn Entropy>) -> WriteBuffers {
        let (left, slots_max) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (bell, rung) = (Mutex::new(false), Condvar::new());
        let common = Arc::new(Common { memories, entropy, left, slots_max, bell, rung });
        WriteBuffers { common, all: Mutex::default() }
    }

    /// Those that come into use from now on have at most so many bytes together, none for 0.
    pub fn set_memory_bytes(&self, bytes: u64) {
        let slots = usize::try_from(bytes / WINDOW_BYTES).unwrap_or(usize::MAX);
        self.common.left.store(slots, Ordering::Release);
        self.common.slots_max.store(slots, Ordering::Release);
    }

    /// A buffer over media. What a process that died left to be written is written now; the buffer
    /// is used from a later [`WriteBuffers::tick`] on.
    ///
    /// # Errors
    /// When what was left cannot be read, or not be written.
    pub fn over(&self, media: Arc<dyn Media>) -> io::Result<Arc<WriteBuffer>> {
        let buffer = Arc::new(WriteBuffer::over(media, Arc::clone(&self.common))?);
        let mut all = self.all.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&buffer));
        Ok(buffer)
    }

    fn each(&self) -> Vec<Arc<WriteBuffer>> {
        self.all.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Writes something that is full or has waited long; whether there was anything.
    pub fn write_some(&self) -> bool {
        let mut any = false;
        for buffer in self.each() {
            any |= buffer.write_one();
        }
        any
    }

    /// Makes a slot ahead of need; whether one was needed.
    pub fn grow(&self) -> bool {
        self.each().iter().any(|buffer| buffer.grow())
    }

    /// Time goes on: buffers come into use, and what has waited for some ticks is written soon.
    /// Says whether anything waits.
    pub fn tick(&self) -> bool {
        let mut waits = false;
        for buffer in self.each() {
            waits |= buffer.tick();
        }
        waits
    }

    /// Waits until there is something to do, or so long.
    pub fn wait(&self, at_most: Duration) {
        let mut bell = self.common.bell.lock();
        if !std::mem::take(&mut *bell) {
            self.common.rung.wait_for(&mut bell, at_most);
            *bell = false;
        }
    }

    /// Wakes all who wait.
    pub fn wake(&self) {
        self.common.ring();
        self.common.rung.notify_all();
    }

    /// How each stands.
    #[must_use]
    pub fn status(&self) -> Vec<BufferStatus> {
        self.each().iter().map(|buffer| buffer.status()).collect()
    }
}
