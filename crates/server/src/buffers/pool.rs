//! The buffers themselves, and how they are given back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use env::{Rank, RankedMutex};

/// Data bytes of the buffers of each class.
pub(crate) const CLASS_BYTES: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];
/// Eighths of the memory that each class has.
const CLASS_EIGHTHS: [usize; 3] = [1, 1, 6];
/// Room before the data, where the header of a reply is put.
pub(super) const HEADROOM: usize = 64;
/// Longest request that a connection has a buffer of its own for.
pub(crate) const OWN_BYTES: usize = 64 << 10;
/// For each so many buffers there is one more that only reads take, when none of the others is
/// left.
const KEPT: usize = 16;
/// Memory for buffers where nothing else is said.
pub(crate) const BUFFERS_BYTES_DEFAULT: usize = 64 << 20;
/// The least memory with which the longest request, of 32 MiB, still finds enough.
pub(crate) const BUFFERS_BYTES_MIN: usize = 48 << 20;

/// The buffers of a server.
pub struct Buffers {
    pub(super) classes: [Class; 3],
    pub(super) is_pool: bool,
    pub(super) total_bytes: usize,
    pub(super) next_id: AtomicU64,
    pub(super) taken: AtomicU64,
    pub(super) waits: AtomicU64,
    pub(super) own: AtomicU64,
}

/// The purpose of taking buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// Buffers of one size.
pub(super) struct Class {
    pub(super) count: usize,
    /// How many more there are that only reads take.
    kept: usize,
    pub(super) state: RankedMutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// Where buffers are kept: those that nobody has.
    pub(super) free: Vec<Box<[u8]>>,
    /// How many nobody has.
    pub(super) left: usize,
    /// How many nobody has of those that only reads take.
    pub(super) kept_left: usize,
    /// The waiting connections, in the order of coming.
    pub(super) waiting: VecDeque<Waiting>,
}

/// A connection that waits.
pub(super) struct Waiting {
    pub(super) id: u64,
    pub(super) waker: Waker,
    pub(super) purpose: Purpose,
    /// How many it asked for last.
    pub(super) count: usize,
}

/// The buffers that a connection holds.
#[derive(Default)]
pub(super) struct Held {
    pub(super) bytes: AtomicUsize,
    pub(super) has_own: AtomicBool,
}

/// One buffer, given back when it is dropped.
pub(super) struct Buffer {
    pub(super) bytes: Box<[u8]>,
    pub(super) class: Option<usize>,
    pub(super) is_kept: bool,
    pub(super) buffers: Arc<Buffers>,
    pub(super) held: Arc<Held>,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers::new(BUFFERS_BYTES_DEFAULT, true)
    }
}

impl Buffers {
    /// So many bytes of buffers. Without a pool they are as many, but each is allocated when it is
    /// taken: a measuring aid.
    #[must_use]
    pub fn new(total_bytes: usize, is_pool: bool) -> Buffers {
        let total_bytes = total_bytes.max(BUFFERS_BYTES_MIN);
        let class = |index: usize| {
            let count = total_bytes / 8 * CLASS_EIGHTHS[index] / CLASS_BYTES[index];
            let bytes = CLASS_BYTES[index] + HEADROOM;
            let kept = count / KEPT;
            let made = if is_pool { count + kept } else { 0 };
            let free = (0..made).map(|_| vec![0; bytes].into_boxed_slice()).collect();
            let waiting = VecDeque::new();
            let state = State { free, left: count, kept_left: kept, waiting };
            let state = RankedMutex::new(Rank::Leaf, state);
            Class { count, kept, state }
        };
        Buffers {
            classes: [class(0), class(1), class(2)],
            is_pool,
            total_bytes,
            next_id: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            own: AtomicU64::new(0),
        }
    }

    /// Bytes of all buffers of a size.
    pub(crate) fn class_bytes(&self, class: usize) -> usize {
        self.classes[class].count * CLASS_BYTES[class]
    }

    /// Whether memory is kept from request to request.
    pub(crate) fn is_pool(&self) -> bool {
        self.is_pool
    }

    /// Bytes of the buffers that requests hold.
    pub(crate) fn held_bytes(&self) -> usize {
        let held = |class: &Class, bytes| {
            let state = class.state.lock();
            (class.count - state.left + class.kept - state.kept_left) * bytes
        };
        self.classes.iter().zip(CLASS_BYTES).map(|(class, bytes)| held(class, bytes)).sum()
    }

    /// How often a connection had to wait for buffers.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Whether a connection other than this waits.
    pub(super) fn others_wait(&self, id: u64) -> bool {
        let waits = |class: &Class| class.state.lock().waiting.iter().any(|one| one.id != id);
        self.classes.iter().any(waits)
    }

    fn give_back(&self, class: usize, is_kept: bool, bytes: Box<[u8]>) {
        let mut state = self.classes[class].state.lock();
        if self.is_pool {
            state.free.push(bytes);
        }
        let next = match is_kept {
            true => {
                state.kept_left += 1;
                state.next_to_read()
            }
            false => {
                state.left += 1;
                state.next()
            }
        };
        drop(state);
        if let Some(waker) = next {
            waker.wake();
        }
    }

    pub(super) fn leave(&self, class: usize, id: u64) {
        let mut state = self.classes[class].state.lock();
        state.waiting.retain(|waiting| waiting.id != id);
        let (next, to_read) = (state.next(), state.next_to_read());
        drop(state);
        next.into_iter().chain(to_read).for_each(Waker::wake);
    }
}

impl State {
    /// The waker to be called when something is given back.
    fn next(&self) -> Option<Waker> {
        self.waiting.front().map(|waiting| waiting.waker.clone())
    }

    /// The waker to be called when that is of the part for reads alone: the first for which it is
    /// enough, since for a long read it may never be.
    fn next_to_read(&self) -> Option<Waker> {
        let is_enough =
            |one: &&Waiting| one.purpose == Purpose::Read && one.count <= self.kept_left;
        self.waiting.iter().find(is_enough).map(|one| one.waker.clone())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match self.class {
            Some(class) => {
                self.held.bytes.fetch_sub(CLASS_BYTES[class], Ordering::Relaxed);
                let bytes = std::mem::take(&mut self.bytes);
                self.buffers.give_back(class, self.is_kept, bytes);
            }
            None => self.held.has_own.store(false, Ordering::Release),
        }
    }
}
