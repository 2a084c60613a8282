//! The things that the write buffers of a process share: memory, and the bell of the threads that
//! write what waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use env::{Entropy, PIECE_BYTES, SharedMemories};
use parking_lot::{Condvar, Mutex};

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
}

impl Shared {
    /// No memory yet.
    pub(super) fn new(memories: Box<dyn SharedMemories>, entropy: Box<dyn Entropy>) -> Shared {
        let (left, slots_max) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (bell, rung) = (Mutex::new(false), Condvar::new());
        Shared { memories, entropy, left, slots_max, bell, rung }
    }

    /// Buffers that come into use from now on have at most so many bytes together.
    pub(super) fn set_memory_bytes(&self, bytes: u64) {
        let slots = usize::try_from(bytes / PIECE_BYTES).unwrap_or(usize::MAX);
        self.left.store(slots, Ordering::Release);
        self.slots_max.store(slots, Ordering::Release);
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

    /// Waits until somebody rang, or so long.
    pub(super) fn wait(&self, at_most: Duration) {
        let mut bell = self.bell.lock();
        if !std::mem::take(&mut *bell) {
            self.rung.wait_for(&mut bell, at_most);
            *bell = false;
        }
    }

    /// Wakes all who wait.
    pub(super) fn wake(&self) {
        self.ring();
        self.rung.notify_all();
    }
}
