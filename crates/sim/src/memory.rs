//! Shared memory that survives the end of a process and not that of the machine.
//!
//! A process that is killed leaves what its words and bytes said at that instant: what it seems to
//! do afterwards, until the test has noticed, is not seen by the next one. A write that it was
//! killed in is there up to some page, or in any of its bytes where what was there was not needed.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::{Media, Owner, PIECE_BYTES, SLOT_WORDS, SharedMemories, SharedMemory, SlotWords};
use parking_lot::Mutex;

use crate::pages::PAGE_BYTES;
use crate::{Random, SimMedia};

struct Slot {
    words: Box<SlotWords>,
    bytes: Mutex<Vec<u8>>,
}

impl Slot {
    fn new() -> Slot {
        let words = Box::new(std::array::from_fn(|_| AtomicU64::new(0)));
        Slot { words, bytes: Mutex::new(vec![0; PIECE_BYTES as usize]) }
    }

    fn copy(&self) -> Slot {
        let words = std::array::from_fn(|i| AtomicU64::new(self.words[i].load(Ordering::SeqCst)));
        Slot { words: Box::new(words), bytes: Mutex::new(self.bytes.lock().clone()) }
    }
}

/// A memory as a process sees it.
struct Content {
    owner: Owner,
    slots_max: usize,
    /// Their number only rises, and none moves.
    slots: Vec<std::sync::OnceLock<Slot>>,
}

impl Content {
    fn new(owner: Owner, slots_max: usize) -> Content {
        let slots = (0..slots_max).map(|_| std::sync::OnceLock::new()).collect();
        Content { owner, slots_max, slots }
    }

    fn there(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().map_while(std::sync::OnceLock::get)
    }

    fn copy(&self) -> Content {
        let copy = Content::new(self.owner, self.slots_max);
        for (to, slot) in copy.slots.iter().zip(self.there()) {
            assert!(to.set(slot.copy()).is_ok(), "a fresh slot");
        }
        copy
    }
}

/// All that is left when a process ends.
struct State {
    memories: Mutex<BTreeMap<u128, Arc<Content>>>,
    /// As they were when the process was killed.
    left: Mutex<Option<BTreeMap<u128, Arc<Content>>>>,
    machine_stopped: Arc<AtomicBool>,
    boot: AtomicU64,
    /// Writes into slots that succeed still; the one after them ends the process.
    writes_left: AtomicU64,
    random: Mutex<Random>,
}

impl State {
    /// Whether the process is dead; what it leaves is taken down when that is seen first.
    fn is_dead(&self) -> bool {
        let is_dead = self.machine_stopped.load(Ordering::SeqCst);
        if is_dead {
            let mut left = self.left.lock();
            if left.is_none() {
                let copy =
                    |(&tag, content): (&u128, &Arc<Content>)| (tag, Arc::new(content.copy()));
                *left = Some(self.memories.lock().iter().map(copy).collect());
            }
        }
        is_dead
    }

    fn check(&self) -> io::Result<()> {
        if self.is_dead() { Err(io::Error::other("simulated halt")) } else { Ok(()) }
    }
}

/// The shared memory of a simulated machine; a clone is the same.
#[derive(Clone)]
pub struct SimMemories(Arc<State>);

impl SimMemories {
    /// That of the machine that `media` are in.
    #[must_use]
    pub fn of(media: &SimMedia, seed: u64) -> SimMemories {
        SimMemories(Arc::new(State {
            memories: Mutex::default(),
            left: Mutex::default(),
            machine_stopped: media.machine(),
            boot: AtomicU64::new(1),
            writes_left: AtomicU64::new(u64::MAX),
            random: Mutex::new(Random::new(seed)),
        }))
    }

    /// Lets so many more writes into slots succeed; the process dies in the one after them, and
    /// the media halt with it.
    pub fn halt_after(&self, writes: u64) {
        self.0.writes_left.store(writes, Ordering::SeqCst);
    }

    /// The process has ended, whether it was killed or not: what it left is found by the next. Call
    /// it before the halt of the media is ended.
    pub fn kill(&self) {
        self.0.is_dead();
        if let Some(left) = self.0.left.lock().take() {
            *self.0.memories.lock() = left;
        }
        self.halt_after(u64::MAX);
    }

    /// The machine has ended.
    pub fn cut(&self) {
        self.kill();
        self.0.memories.lock().clear();
        self.0.boot.fetch_add(1, Ordering::SeqCst);
    }

    /// A copy with everything, of the machine that `media` are in.
    #[must_use]
    pub fn fork(&self, media: &SimMedia) -> SimMemories {
        let copies = |memories: &BTreeMap<u128, Arc<Content>>| {
            let copy = |(&tag, content): (&u128, &Arc<Content>)| (tag, Arc::new(content.copy()));
            memories.iter().map(copy).collect::<BTreeMap<_, _>>()
        };
        SimMemories(Arc::new(State {
            memories: Mutex::new(copies(&self.0.memories.lock())),
            left: Mutex::new(self.0.left.lock().as_ref().map(copies)),
            machine_stopped: media.machine(),
            boot: AtomicU64::new(self.0.boot.load(Ordering::SeqCst)),
            writes_left: AtomicU64::new(u64::MAX),
            random: Mutex::new(self.0.random.lock().clone()),
        }))
    }

    /// How many memories there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.memories.lock().len()
    }

    /// Removes all of them, as somebody who cleans up does.
    pub fn clear(&self) {
        self.0.memories.lock().clear();
    }
}

impl SharedMemories for SimMemories {
    fn boot(&self) -> u128 {
        u128::from(self.0.boot.load(Ordering::SeqCst))
    }

    fn create(&self, owner: Owner, slots_max: usize) -> io::Result<Box<dyn SharedMemory>> {
        self.0.check()?;
        let content = Arc::new(Content::new(owner, slots_max));
        let before = self.0.memories.lock().insert(owner.tag, Arc::clone(&content));
        assert!(before.is_none(), "a tag is drawn once");
        Ok(Box::new(SimMemory { state: Arc::clone(&self.0), content }))
    }

    fn open(&self, owner: Owner) -> io::Result<Option<Box<dyn SharedMemory>>> {
        self.0.check()?;
        let found = self.0.memories.lock().get(&owner.tag).cloned();
        if found.as_ref().is_some_and(|content| content.owner != owner) {
            let text = "it is for another file";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let state = || Arc::clone(&self.0);
        Ok(found.map(|content| Box::new(SimMemory { state: state(), content }) as _))
    }

    fn remove(&self, tag: u128) -> io::Result<()> {
        self.0.check()?;
        self.0.memories.lock().remove(&tag);
        Ok(())
    }
}

struct SimMemory {
    state: Arc<State>,
    content: Arc<Content>,
}

impl SimMemory {
    fn slot(&self, slot: usize) -> &Slot {
        self.content.slots[slot].get().expect("a slot that is there")
    }
}

impl SharedMemory for SimMemory {
    fn name(&self) -> String {
        format!("{:032x}", self.content.owner.tag)
    }

    fn is_there(&self) -> bool {
        let memories = self.state.memories.lock();
        memories.values().any(|content| Arc::ptr_eq(content, &self.content))
    }

    fn slots(&self) -> usize {
        self.content.there().count()
    }

    fn grow(&self) -> io::Result<()> {
        self.state.check()?;
        let next = self.content.slots.iter().find(|slot| slot.get().is_none());
        let Some(next) = next else { return Err(io::ErrorKind::StorageFull.into()) };
        assert!(next.set(Slot::new()).is_ok(), "one thread");
        Ok(())
    }

    fn words(&self, slot: usize) -> &[AtomicU64; SLOT_WORDS] {
        self.state.is_dead();
        &self.slot(slot).words
    }

    fn write(
        &self,
        slot: usize,
        offset: usize,
        slices: &[IoSlice<'_>],
        is_needed: bool,
    ) -> io::Result<()> {
        self.state.check()?;
        let mut bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let writes_left = self.state.writes_left.load(Ordering::SeqCst);
        if writes_left == 0 {
            let mut random = self.state.random.lock();
            if is_needed {
                let pages = (offset % PAGE_BYTES + bytes.len()).div_ceil(PAGE_BYTES) as u64;
                let pages = random.below(pages + 1) as usize;
                bytes.truncate((pages * PAGE_BYTES).saturating_sub(offset % PAGE_BYTES));
            } else {
                // Some of it in any order.
                let there = self.slot(slot).bytes.lock()[offset..offset + bytes.len()].to_vec();
                let pick = |(new, old)| if random.chance(500) { new } else { old };
                bytes = bytes.into_iter().zip(there).map(pick).collect();
            }
        } else if writes_left < u64::MAX {
            self.state.writes_left.store(writes_left - 1, Ordering::SeqCst);
        }
        self.slot(slot).bytes.lock()[offset..offset + bytes.len()].copy_from_slice(&bytes);
        if writes_left == 0 {
            self.state.machine_stopped.store(true, Ordering::SeqCst);
        }
        self.state.check()
    }

    fn read(&self, slot: usize, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        self.state.check()?;
        let bytes = self.slot(slot).bytes.lock();
        buffer.copy_from_slice(&bytes[offset..offset + buffer.len()]);
        Ok(())
    }

    fn put(&self, slot: usize, part: Range<usize>, media: &dyn Media, at: u64) -> io::Result<()> {
        self.state.check()?;
        let bytes = self.slot(slot).bytes.lock()[part].to_vec();
        let put = media.write_direct(at, &bytes);
        self.state.is_dead();
        put
    }
}
