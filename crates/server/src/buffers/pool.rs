//! Buffers for requests that wait for a device or for their client: of fixed sizes, allocated when
//! the server starts, taken and given back in constant time.
//!
//! Invariants
//! 1. All connections together hold at most what the server was told, a `KEPT`th more to read, and
//!    one buffer of `OWN_BYTES` more for each connection.
//! 2. A connection that finds none left waits in the order of coming, and is woken when some are
//!    given back. It keeps its place only while it still tries, so nobody waits for a connection
//!    that has stopped.
//! 3. However many buffers others hold, a connection that waits for none of its requests can make
//!    one of up to `OWN_BYTES`.
//! 4. A connection that holds a `SHARE`th of them gets no more.
//! 5. Writes may hold theirs for as long as they wait for room: a `KEPT`th is for reads alone.
//! 6. A client that keeps others waiting, and neither takes its answers nor sends its data, loses
//!    its connection (`serving::Stall`).
//! 7. A buffer holds arbitrary bytes when it is taken, of other clients too: who takes one fills it
//!    before anything of it is sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use env::{Rank, RankedMutex};
use smallvec::SmallVec;
use units::BLOCK_BYTES;

mod chain;
mod metrics;
#[cfg(test)]
mod tests;

pub(crate) use chain::Chain;
pub(crate) use metrics::BuffersCollector;

/// Data bytes of the buffers of each class.
pub(crate) const CLASS_BYTES: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];
/// Eighths of the memory that each class has.
const CLASS_EIGHTHS: [usize; 3] = [1, 1, 6];
/// Room before the data, where the header of a reply is put.
const HEADROOM: usize = 64;
/// Longest request that a connection has a buffer of its own for.
pub(crate) const OWN_BYTES: usize = 64 << 10;
/// One connection holds at most this part of the buffers, or a single request.
const SHARE: usize = 4;
/// For each so many buffers there is one more that only reads take, when none of the others is
/// left.
const KEPT: usize = 16;
/// Memory for buffers where nothing else is said.
pub(crate) const BUFFERS_BYTES_DEFAULT: usize = 64 << 20;
/// The least memory with which the longest request, of 32 MiB, still finds enough.
pub(crate) const BUFFERS_BYTES_MIN: usize = 48 << 20;

/// The buffers of a server.
pub struct Buffers {
    classes: [Class; 3],
    is_pool: bool,
    total_bytes: usize,
    next_id: AtomicU64,
    taken: AtomicU64,
    waits: AtomicU64,
    own: AtomicU64,
}

/// The purpose of taking buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// Buffers of one size.
struct Class {
    count: usize,
    /// How many more there are that only reads take.
    kept: usize,
    state: RankedMutex<State>,
}

#[derive(Default)]
struct State {
    /// Where buffers are kept: those that nobody has.
    free: Vec<Box<[u8]>>,
    /// How many nobody has.
    left: usize,
    /// How many nobody has of those that only reads take.
    kept_left: usize,
    /// The waiting connections, in the order of coming.
    waiting: VecDeque<Waiting>,
}

/// A connection that waits.
struct Waiting {
    id: u64,
    waker: Waker,
    purpose: Purpose,
    /// How many it asked for last.
    count: usize,
}

/// The buffers that a connection holds.
#[derive(Default)]
struct Held {
    bytes: AtomicUsize,
    has_own: AtomicBool,
}

/// One buffer, given back when it is dropped.
struct Buffer {
    bytes: Box<[u8]>,
    class: Option<usize>,
    is_kept: bool,
    buffers: Arc<Buffers>,
    held: Arc<Held>,
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
    fn others_wait(&self, id: u64) -> bool {
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

    fn leave(&self, class: usize, id: u64) {
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

/// The buffers that bytes of a volume take.
pub(crate) struct Share {
    /// Which size they have.
    pub(crate) class: usize,
    count: usize,
    first_bytes: usize,
}

impl Share {
    pub(crate) fn of(offset: u64, length: usize) -> Share {
        let last = CLASS_BYTES.len() - 1;
        let class = CLASS_BYTES.iter().position(|&bytes| length <= bytes).unwrap_or(last);
        let size = CLASS_BYTES[class];
        // Where one buffer ends and the next begins a block does too.
        let first_bytes = if length <= size { length } else { size - skew(offset) };
        Share { class, count: 1 + (length - first_bytes).div_ceil(size), first_bytes }
    }

    /// All bytes of them.
    pub(crate) fn bytes(&self) -> usize {
        self.count * CLASS_BYTES[self.class]
    }
}

/// Where a connection takes its buffers.
pub(crate) struct Taker {
    buffers: Arc<Buffers>,
    held: Arc<Held>,
    id: u64,
    waker: Waker,
    waits_in: Option<usize>,
    has_tried: bool,
}

impl Taker {
    pub(crate) fn new(buffers: &Arc<Buffers>) -> Taker {
        Taker {
            buffers: Arc::clone(buffers),
            held: Arc::default(),
            id: buffers.next_id.fetch_add(1, Ordering::Relaxed),
            waker: Waker::noop().clone(),
            waits_in: None,
            has_tried: false,
        }
    }

    /// Whether the connection waits for buffers.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits_in.is_some()
    }

    /// Whether the connection holds buffers while others wait for some.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.held.bytes.load(Ordering::Relaxed) > 0 && self.buffers.others_wait(self.id)
    }

    /// Before a turn: who is to be woken when it has to wait.
    pub(crate) fn begin(&mut self, waker: &Waker) {
        self.has_tried = false;
        if !self.waker.will_wake(waker) {
            self.waker.clone_from(waker);
        }
    }

    /// After a turn: gives up a place among those who wait if it was not asked for again.
    pub(crate) fn end(&mut self) {
        if !self.has_tried {
            self.leave();
        }
    }

    fn leave(&mut self) {
        if let Some(class) = self.waits_in.take() {
            self.buffers.leave(class, self.id);
        }
    }

    /// Buffers for `length` bytes from `offset` of a volume. `None`: the connection is woken when
    /// some are given back, and shall then ask again.
    pub(crate) fn take(&mut self, purpose: Purpose, offset: u64, length: usize) -> Option<Chain> {
        let Share { class, count, first_bytes } = Share::of(offset, length);
        let size = CLASS_BYTES[class];
        let mut taken = SmallVec::new();
        if self.may_hold(count * size)
            && self.take_from(class, (purpose, count), length, &mut taken)
        {
            self.leave();
            return Some(Chain::new(taken, first_bytes, length));
        }
        if length <= OWN_BYTES && !self.held.has_own.swap(true, Ordering::AcqRel) {
            self.buffers.own.fetch_add(1, Ordering::Relaxed);
            let bytes = vec![0; HEADROOM + length].into_boxed_slice();
            taken.push(self.buffer(bytes, None, false));
            self.leave();
            return Some(Chain::new(taken, length, length));
        }
        None
    }

    /// Whether so many bytes more are within the connection's share. If they are not it is woken by
    /// its own requests, which end or are sent.
    fn may_hold(&self, bytes: usize) -> bool {
        let held = self.held.bytes.load(Ordering::Relaxed);
        held == 0 || held + bytes <= self.buffers.total_bytes / SHARE
    }

    fn take_from(
        &mut self,
        class: usize,
        (purpose, count): (Purpose, usize),
        length: usize,
        taken: &mut SmallVec<[Buffer; 1]>,
    ) -> bool {
        if self.waits_in.is_some_and(|other| other != class) {
            self.leave();
        }
        let buffers = Arc::clone(&self.buffers);
        let mut state = buffers.classes[class].state.lock();
        let is_first = state.waiting.front().is_none_or(|waiting| waiting.id == self.id);
        let is_kept = if is_first && state.left >= count {
            state.left -= count;
            false
        } else if purpose == Purpose::Read && state.kept_left >= count {
            state.kept_left -= count;
            true
        } else {
            self.has_tried = true;
            self.wait(&mut state, class, (purpose, count));
            return false;
        };
        for _ in 0..count {
            let bytes = match buffers.is_pool {
                true => state.free.pop().expect("as many as are left"),
                false => vec![0; HEADROOM + length.min(CLASS_BYTES[class])].into_boxed_slice(),
            };
            taken.push(self.buffer(bytes, Some(class), is_kept));
        }
        drop(state);
        self.held.bytes.fetch_add(count * CLASS_BYTES[class], Ordering::Relaxed);
        self.buffers.taken.fetch_add(count as u64, Ordering::Relaxed);
        true
    }

    fn wait(&mut self, state: &mut State, class: usize, (purpose, count): (Purpose, usize)) {
        if self.waits_in.is_none() {
            let waker = self.waker.clone();
            state.waiting.push_back(Waiting { id: self.id, waker, purpose, count });
            self.waits_in = Some(class);
            self.buffers.waits.fetch_add(1, Ordering::Relaxed);
        }
        // Its next request may be another than the one for which it came.
        if let Some(mine) = state.waiting.iter_mut().find(|waiting| waiting.id == self.id) {
            (mine.purpose, mine.count) = (purpose, count);
        }
    }

    fn buffer(&self, bytes: Box<[u8]>, class: Option<usize>, is_kept: bool) -> Buffer {
        let (buffers, held) = (Arc::clone(&self.buffers), Arc::clone(&self.held));
        Buffer { bytes, class, is_kept, buffers, held }
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        self.leave();
    }
}

fn skew(offset: u64) -> usize {
    (offset % BLOCK_BYTES) as usize
}
