//! An allocator that counts: for benchmarks and tests that say what a request allocates.
//!
//! It is the system's, with two additions per allocation, kept apart by thread. A program counts
//! when it names it as its global allocator; the product does not. Allocations can be recorded by
//! stack as well, which is slow.

#![expect(unsafe_code, reason = "an allocator is an unsafe trait; this one only forwards")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Threads that are counted apart; those that begin later share the last place.
const THREADS_MAX: usize = 1024;

static THREADS: [Thread; THREADS_MAX] = [const { Thread::new() }; THREADS_MAX];
static THREADS_SEEN: AtomicUsize = AtomicUsize::new(0);
/// Stacks that are still to be recorded.
static WANTED: AtomicUsize = AtomicUsize::new(0);
static STACKS: Mutex<Vec<(usize, Backtrace)>> = Mutex::new(Vec::new());

/// The allocations of one thread.
struct Thread {
    /// Its number at the operating system; 0 for none.
    number: AtomicI32,
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl Thread {
    const fn new() -> Thread {
        Thread { number: AtomicI32::new(0), calls: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }
}

thread_local! {
    /// The place of this thread among all plus one; 0 before its first allocation.
    static PLACE: Cell<usize> = const { Cell::new(0) };
    /// A stack is being recorded: what that allocates is not.
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator, counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

/// The allocations since the program began: memory asked for, and made larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// How often.
    pub calls: u64,
    /// Bytes asked for.
    pub bytes: u64,
}

impl Allocations {
    /// The allocations until now of threads with names that begin so; zero for ever where
    /// [`CountingAllocator`] is not the allocator. Threads that have ended have no name.
    pub fn of_threads(name: &str) -> Allocations {
        let mut sum = Allocations::default();
        for thread in &THREADS[..THREADS_SEEN.load(Ordering::Relaxed).min(THREADS_MAX)] {
            let number = thread.number.load(Ordering::Relaxed);
            let path = format!("/proc/self/task/{number}/comm");
            if std::fs::read_to_string(path).is_ok_and(|found| found.starts_with(name)) {
                sum.calls += thread.calls.load(Ordering::Relaxed);
                sum.bytes += thread.bytes.load(Ordering::Relaxed);
            }
        }
        sum
    }

    /// The allocations since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Allocations) -> Allocations {
        Allocations { calls: self.calls - earlier.calls, bytes: self.bytes - earlier.bytes }
    }
}

/// Records the stacks of the next `count` allocations.
pub fn record_stacks(count: usize) {
    STACKS.lock().clear();
    WANTED.store(count, Ordering::Relaxed);
}

/// The stacks recorded, with the bytes that each asked for. Ends the recording.
#[must_use]
pub fn take_stacks() -> Vec<(usize, Backtrace)> {
    WANTED.store(0, Ordering::Relaxed);
    std::mem::take(&mut STACKS.lock())
}

fn count(bytes: usize) {
    let thread = &THREADS[place()];
    thread.calls.fetch_add(1, Ordering::Relaxed);
    thread.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    if WANTED.load(Ordering::Relaxed) > 0 {
        record(bytes);
    }
}

/// The place of this thread among all.
fn place() -> usize {
    // A thread that ends has no such variable any more.
    PLACE.try_with(|place| place.get().checked_sub(1).unwrap_or_else(|| enter(place))).unwrap_or(0)
}

#[cold]
fn enter(place: &Cell<usize>) -> usize {
    let index = THREADS_SEEN.fetch_add(1, Ordering::Relaxed).min(THREADS_MAX - 1);
    place.set(index + 1);
    let number = rustix::thread::gettid().as_raw_nonzero().get();
    THREADS[index].number.store(number, Ordering::Relaxed);
    index
}

#[cold]
fn record(bytes: usize) {
    // A thread that ends has no such variable any more.
    let is_first = IS_RECORDING.try_with(|r| !r.replace(true)).unwrap_or(false);
    if !is_first {
        return;
    }
    let one_less = |wanted: usize| wanted.checked_sub(1);
    if WANTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
        let stack = Backtrace::force_capture();
        STACKS.lock().push((bytes, stack));
    }
    let _ = IS_RECORDING.try_with(|r| r.set(false));
}

// SAFETY: every call is forwarded to the system's allocator with the arguments as they came, which
// is the contract; counting touches no memory that was allocated or freed here.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are the callee's conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: as above; `memory` came from the system's allocator, as all memory here does.
        unsafe { System.realloc(memory, layout, new_size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}
