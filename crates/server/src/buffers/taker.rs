//! How a connection takes buffers, and waits for some.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use smallvec::SmallVec;
use units::BLOCK_BYTES;

use super::chain::Chain;
use super::pool::{
    Buffer, Buffers, CLASS_BYTES, HEADROOM, Held, OWN_BYTES, Purpose, State, Waiting,
};

/// One connection holds at most this part of the buffers, or a single request.
const SHARE: usize = 4;

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
