//! What the write buffers of a process share: memory, and the threads that write what waits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use env::{Entropy, Media, PIECE_BYTES, SharedMemories};
use parking_lot::{Condvar, Mutex, RwLock};

use super::{Inner, WriteBuffer};

/// How a write buffer stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferStatus {
    /// The media.
    pub media: String,
    /// Whether it has a memory.
    pub is_used: bool,
    /// Why it has none and gets none.
    pub off: Option<String>,
    /// Its memory.
    pub memory: Option<String>,
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

pub(super) struct Shared {
    pub(super) memories: Box<dyn SharedMemories>,
    entropy: Box<dyn Entropy>,
    /// Slots that may be made still, of those that all buffers may have.
    left: AtomicUsize,
    slots_max: AtomicUsize,
    bell: Mutex<bool>,
    rung: Condvar,
    /// Held to read by those who do anything with one: an owner that lets go of its own waits.
    all: RwLock<Vec<Arc<Inner>>>,
}

impl Shared {
    /// Nobody else has this one when this returns.
    pub(super) fn remove(&self, inner: &Arc<Inner>) {
        self.all.write().retain(|one| !Arc::ptr_eq(one, inner));
    }

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
    shared: Arc<Shared>,
}

impl WriteBuffers {
    /// None yet, and no memory for them.
    #[must_use]
    pub fn new(memories: Box<dyn SharedMemories>, entropy: Box<dyn Entropy>) -> WriteBuffers {
        let (left, slots_max) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (bell, rung) = (Mutex::new(false), Condvar::new());
        let all = RwLock::default();
        let shared = Shared { memories, entropy, left, slots_max, bell, rung, all };
        WriteBuffers { shared: Arc::new(shared) }
    }

    /// Those that come into use from now on have at most so many bytes together, none for 0.
    pub fn set_memory_bytes(&self, bytes: u64) {
        let slots = usize::try_from(bytes / PIECE_BYTES).unwrap_or(usize::MAX);
        self.shared.left.store(slots, Ordering::Release);
        self.shared.slots_max.store(slots, Ordering::Release);
    }

    /// A buffer over media. What a process that died left to be written is written now; the buffer
    /// is used from a later [`WriteBuffers::tick`] on.
    ///
    /// # Errors
    /// When what was left cannot be read, or not be written.
    pub fn over(&self, media: Arc<dyn Media>) -> io::Result<Arc<WriteBuffer>> {
        let inner = Arc::new(Inner::over(media, Arc::clone(&self.shared))?);
        self.shared.all.write().push(Arc::clone(&inner));
        Ok(Arc::new(WriteBuffer(inner)))
    }

    /// Writes something that is full or has waited long; whether there was anything.
    pub fn write_some(&self) -> bool {
        let mut any = false;
        let all = self.shared.all.read();
        for buffer in &*all {
            any |= buffer.write_one(all.len() > 1);
        }
        any
    }

    /// Reads go to the media from now on, but for what waits: somebody wants to know what is there.
    pub fn forget_clean(&self) {
        self.shared.all.read().iter().for_each(|buffer| buffer.lock().forget_clean());
    }

    /// Makes a slot ahead of need, for the one that has the fewest; whether one was needed.
    pub fn grow(&self) -> bool {
        let all = self.shared.all.read();
        let mut all: Vec<_> = all.iter().map(|one| (one.lock().slot_count(), one)).collect();
        all.sort_by_key(|(slots, _)| *slots);
        all.iter().any(|(_, buffer)| buffer.grow())
    }

    /// Time goes on: buffers come into use, and what has waited for some ticks is written soon.
    /// Says whether anything waits.
    pub fn tick(&self) -> bool {
        let mut waits = false;
        for buffer in &*self.shared.all.read() {
            waits |= buffer.tick();
        }
        waits
    }

    /// Waits until there is something to do, or so long.
    pub fn wait(&self, at_most: Duration) {
        let mut bell = self.shared.bell.lock();
        if !std::mem::take(&mut *bell) {
            self.shared.rung.wait_for(&mut bell, at_most);
            *bell = false;
        }
    }

    /// Wakes all who wait.
    pub fn wake(&self) {
        self.shared.ring();
        self.shared.rung.notify_all();
    }

    /// How each stands.
    #[must_use]
    pub fn status(&self) -> Vec<BufferStatus> {
        self.shared.all.read().iter().map(|buffer| buffer.status()).collect()
    }
}
