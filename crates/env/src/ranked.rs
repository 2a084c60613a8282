//! Locks with a rank, so that no two threads can wait for each other.
//!
//! Invariants
//! 1. A thread waits for a lock only if its place (rank, then number) is above those of all that
//!    the thread holds. So no two threads can wait for each other.
//! 2. In builds with debug assertions the wrong order is a panic, whether or not another thread
//!    was there to wait for. In others nothing is recorded and nothing is checked.
//! 3. A lock that is only tried waits for nobody, so its place is not checked; once it is had it
//!    counts as held.
//!
//! Deliberately unaware of what the locks protect; the order is the list in `rank`.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::rank::Rank;

/// Where a lock stands in the order.
#[derive(Clone, Copy, Debug)]
struct Place {
    #[cfg(debug_assertions)]
    at: (Rank, u64),
}

impl Place {
    #[cfg_attr(not(debug_assertions), allow(unused_variables))]
    const fn new(rank: Rank, number: u64) -> Place {
        Place {
            #[cfg(debug_assertions)]
            at: (rank, number),
        }
    }

    /// A thread is about to wait for it.
    #[inline]
    #[track_caller]
    fn check(self) {
        #[cfg(debug_assertions)]
        order::check(self.at);
    }

    /// The guard of a lock there that was had.
    #[inline]
    fn guarded<G>(self, guard: G) -> Ranked<G> {
        Ranked { guard, _held: self.hold() }
    }

    /// It was had.
    #[inline]
    fn hold(self) -> Held {
        #[cfg(debug_assertions)]
        order::push(self.at);
        Held { _place: self, _thread: PhantomData }
    }
}

/// Something that counts as a held lock until it is dropped, by the thread that made it.
#[derive(Debug)]
pub struct Held {
    _place: Place,
    _thread: PhantomData<*const ()>,
}

impl Held {
    /// A thing without a lock of its own that others wait for stands in the order like one: its end
    /// is to be reached with locks of higher places only.
    #[must_use]
    pub fn new(rank: Rank, number: u64) -> Held {
        Place::new(rank, number).hold()
    }

    /// Says that a thread is about to wait for the end of such a thing, or for its turn to begin
    /// one.
    ///
    /// # Panics
    /// With debug assertions, when the thread holds anything of this place or above it.
    #[inline]
    #[track_caller]
    pub fn will_wait(rank: Rank, number: u64) {
        Place::new(rank, number).check();
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        order::pop(self._place.at);
    }
}

#[cfg(debug_assertions)]
mod order {
    use std::cell::RefCell;

    use crate::rank::Rank;

    thread_local! {
        /// Places of the locks that this thread holds, in the order in which it got them.
        static HELD: RefCell<Vec<(Rank, u64)>> = const { RefCell::new(Vec::new()) };
    }

    /// A thread that ends may drop guards after its list is gone: then nothing is checked.
    fn with<T: Default>(f: impl FnOnce(&mut Vec<(Rank, u64)>) -> T) -> T {
        HELD.try_with(|held| f(&mut held.borrow_mut())).unwrap_or_default()
    }

    #[track_caller]
    pub(super) fn check(at: (Rank, u64)) {
        let above = with(|held| held.iter().copied().filter(|&h| h >= at).max());
        // A second panic while the first unwinds would abort, and hide it.
        if let Some(above) = above.filter(|_| !std::thread::panicking()) {
            let held = with(|held| held.clone());
            panic!("lock order: {at:?} is waited for while {above:?} is held, of {held:?}");
        }
    }

    pub(super) fn push(at: (Rank, u64)) {
        with(|held| held.push(at));
    }

    pub(super) fn pop(at: (Rank, u64)) {
        with(|held| {
            if let Some(index) = held.iter().rposition(|&h| h == at) {
                held.remove(index);
            }
        });
    }
}

/// The guard of a lock, and the place that it holds in the order.
#[derive(Debug)]
pub struct Ranked<G> {
    guard: G,
    _held: Held,
}

/// The right to what a [`RankedMutex`] protects.
pub type RankedGuard<'l, T> = Ranked<MutexGuard<'l, T>>;
/// The right to read what a [`RankedRwLock`] protects.
pub type RankedReadGuard<'l, T> = Ranked<RwLockReadGuard<'l, T>>;
/// The right to change what a [`RankedRwLock`] protects.
pub type RankedWriteGuard<'l, T> = Ranked<RwLockWriteGuard<'l, T>>;

impl<G: Deref> Deref for Ranked<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Ranked<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// A mutex with a rank.
#[derive(Debug)]
pub struct RankedMutex<T> {
    place: Place,
    lock: Mutex<T>,
}

impl<T> RankedMutex<T> {
    /// A mutex that no thread ever holds together with another of its rank.
    pub const fn new(rank: Rank, value: T) -> RankedMutex<T> {
        RankedMutex::numbered(rank, 0, value)
    }

    /// A mutex of which a thread may hold several of the rank, those with lower numbers first.
    pub const fn numbered(rank: Rank, number: u64, value: T) -> RankedMutex<T> {
        RankedMutex { place: Place::new(rank, number), lock: Mutex::new(value) }
    }

    /// Waits for it.
    ///
    /// # Panics
    /// With debug assertions, in the wrong order.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> RankedGuard<'_, T> {
        self.place.check();
        self.place.guarded(self.lock.lock())
    }

    /// Takes it if nobody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<RankedGuard<'_, T>> {
        Some(self.place.guarded(self.lock.try_lock()?))
    }

    /// Its content: the only owner need not wait.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }

    /// Its content.
    pub fn into_inner(self) -> T {
        self.lock.into_inner()
    }

    /// Tries to take it for a time. A caller that will try until it has it says so with
    /// `will_wait`.
    #[inline]
    pub fn try_lock_for(&self, timeout: Duration) -> Option<RankedGuard<'_, T>> {
        Some(self.place.guarded(self.lock.try_lock_for(timeout)?))
    }

    /// Says that a thread is about to try for it until it is had.
    ///
    /// # Panics
    /// Those of [`RankedMutex::lock`].
    #[inline]
    #[track_caller]
    pub fn will_wait(&self) {
        self.place.check();
    }
}

/// One under which nothing is waited for.
impl<T: Default> Default for RankedMutex<T> {
    fn default() -> RankedMutex<T> {
        RankedMutex::new(Rank::Leaf, T::default())
    }
}

impl<T> RankedGuard<'_, T> {
    /// Lets it go until the condition is told, and has it again afterwards.
    pub fn wait(guard: &mut Self, condition: &Condvar) {
        condition.wait(&mut guard.guard);
    }

    /// The same until a time; whether it is over.
    pub fn wait_until(guard: &mut Self, condition: &Condvar, until: Instant) -> bool {
        condition.wait_until(&mut guard.guard, until).timed_out()
    }

    /// Lets others have it who wait, and has it again afterwards.
    pub fn bump(guard: &mut Self) {
        MutexGuard::bump(&mut guard.guard);
    }
}

/// A lock for many readers or one writer, with a rank.
#[derive(Debug)]
pub struct RankedRwLock<T> {
    place: Place,
    lock: RwLock<T>,
}

impl<T> RankedRwLock<T> {
    /// A lock that no thread ever holds together with another of its rank, nor twice: a writer
    /// that waits stops the second reading.
    pub fn new(rank: Rank, value: T) -> RankedRwLock<T> {
        RankedRwLock::numbered(rank, 0, value)
    }

    /// A lock of which a thread may hold several of the rank, those with lower numbers first.
    pub fn numbered(rank: Rank, number: u64, value: T) -> RankedRwLock<T> {
        RankedRwLock { place: Place::new(rank, number), lock: RwLock::new(value) }
    }

    /// Waits until it may be read.
    ///
    /// # Panics
    /// With debug assertions, in the wrong order.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RankedReadGuard<'_, T> {
        self.place.check();
        self.place.guarded(self.lock.read())
    }

    /// Reads it if that needs no waiting.
    #[inline]
    pub fn try_read(&self) -> Option<RankedReadGuard<'_, T>> {
        Some(self.place.guarded(self.lock.try_read()?))
    }

    /// The right to change it, if that needs no waiting.
    #[inline]
    pub fn try_write(&self) -> Option<RankedWriteGuard<'_, T>> {
        Some(self.place.guarded(self.lock.try_write()?))
    }

    /// Waits until it may be changed.
    ///
    /// # Panics
    /// With debug assertions, in the wrong order.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RankedWriteGuard<'_, T> {
        self.place.check();
        self.place.guarded(self.lock.write())
    }
}

/// One under which nothing is waited for.
impl<T: Default> Default for RankedRwLock<T> {
    fn default() -> RankedRwLock<T> {
        RankedRwLock::new(Rank::Leaf, T::default())
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::{Held, RankedMutex, RankedRwLock};
    use crate::rank::Rank;

    fn panics(f: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(f)).is_err()
    }

    #[test]
    fn the_wrong_order_is_a_panic_though_nobody_waits() {
        let (books, pins) = (RankedMutex::new(Rank::Books, 1), RankedMutex::new(Rank::Pins, 2));
        drop((pins.lock(), books.lock()));
        let held = books.lock();
        assert!(panics(|| drop(pins.lock())));
        // A lock that is tried waits for nobody, but is held.
        let tried = pins.try_lock().expect("nobody has it");
        drop(held);
        assert!(panics(|| drop(pins.lock())), "not twice");
        drop(books.lock());
        drop(tried);
        drop((pins.lock(), books.lock()));
    }

    #[test]
    fn several_of_one_rank_go_by_their_numbers() {
        let of = |number| RankedMutex::numbered(Rank::Pins, number, ());
        let (first, second) = (of(1), of(2));
        drop((first.lock(), second.lock()));
        let held = second.lock();
        assert!(panics(|| drop(first.lock())));
        drop(held);
        drop((first.lock(), second.lock()));
    }

    #[test]
    fn a_lock_is_not_read_twice_by_one_thread() {
        let lock = RankedRwLock::new(Rank::Volumes, 3);
        let held = lock.read();
        assert!(panics(|| drop(lock.read())));
        assert_eq!(*lock.try_read().expect("only read"), *held);
    }

    #[test]
    fn guards_may_be_dropped_in_any_order() {
        let (pins, books) = (RankedMutex::new(Rank::Pins, ()), RankedMutex::new(Rank::Books, ()));
        let (first, second) = (pins.lock(), books.lock());
        drop(first);
        assert!(panics(|| drop(pins.lock())), "the books are held");
        drop(second);
        drop(pins.lock());
    }

    #[test]
    fn what_is_awaited_without_a_lock_has_its_place() {
        let _write = Held::new(Rank::Log, 2);
        assert!(panics(|| Held::will_wait(Rank::Log, 2)), "it would wait for itself");
        let pins = RankedMutex::new(Rank::Pins, ());
        assert!(panics(|| drop(pins.lock())), "who has the pins may wait for the write");
    }
}
