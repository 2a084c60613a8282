//! The faulty media itself. The fault model is the prose at the top of this crate.
//!
//! Invariants: 1. `durable` is what a power cut would leave if it lost every unsynced change;
//! `current` is what reads return; 2. `unsynced` lists the changes between them in the order in
//! which they were made (except those that a failed sync lost); 3. after `halt_after` has struck
//! nothing changes any more.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::Media;
use parking_lot::Mutex;

use crate::failures::Armed;
use crate::pages::{PAGE_BYTES, Pages, parts};
use crate::{Failure, Op, OpRecord, Random, Trick, sectors};

/// A change that no sync has covered yet, as a crash sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsynced {
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// 512-byte sectors touched.
    pub sectors: u64,
    /// Whether it is a discard.
    pub discard: bool,
}

/// The part of an unsynced change that survives a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// All of it.
    All,
    /// The sectors (counted from the change's first) for which this says true.
    Sectors(Vec<bool>),
}

#[derive(Clone, Debug)]
enum Content {
    Bytes(Arc<[u8]>),
    Junk(Option<u8>),
}

#[derive(Clone, Debug)]
struct Change {
    offset: u64,
    length: u64,
    content: Content,
}

/// Why an operation does not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// An armed error.
    Error,
    /// The machine stops.
    Halt,
}

#[derive(Clone, Debug)]
struct State {
    current: Pages,
    durable: Pages,
    unsynced: Vec<Change>,
    /// Pages of which a failed sync lost something that reads still return.
    lost: BTreeSet<u64>,
    allocated: Vec<u64>,
    allocated_pages: u64,
    space_limit_bytes: Option<u64>,
    armed: Armed,
    random: Random,
    log: Option<Vec<OpRecord>>,
    changes: u64,
    halt_at_change: Option<u64>,
    stopped: bool,
    reads_tried: u64,
    cold_every: u64,
    /// Set when the machine stops that this and other media are in.
    machine_stopped: Arc<AtomicBool>,
}

/// Media in memory that obeys the fault model of this crate.
pub struct SimMedia {
    state: Mutex<State>,
    len_bytes: AtomicU64,
    identity: AtomicU64,
    name: String,
}

impl SimMedia {
    /// Sparse media of `len_bytes`, all zeros, whose faults are drawn from `seed`.
    #[must_use]
    pub fn new(len_bytes: u64, seed: u64) -> SimMedia {
        SimMedia::filled(len_bytes, seed, 0)
    }

    /// The same, but reading as `background` where nothing was written, as a used disk would.
    #[must_use]
    pub fn filled(len_bytes: u64, seed: u64, background: u8) -> SimMedia {
        let state = State {
            current: Pages::new(background),
            durable: Pages::new(background),
            unsynced: Vec::new(),
            lost: BTreeSet::new(),
            allocated: vec![0; words_of(len_bytes)],
            allocated_pages: 0,
            space_limit_bytes: None,
            armed: Armed::default(),
            random: Random::new(seed),
            log: None,
            changes: 0,
            halt_at_change: None,
            stopped: false,
            reads_tried: 0,
            cold_every: 0,
            machine_stopped: Arc::default(),
        };
        let (state, name) = (Mutex::new(state), format!("sim seed {seed}"));
        let (len_bytes, identity) = (AtomicU64::new(len_bytes), AtomicU64::new(seed));
        SimMedia { state, len_bytes, identity, name }
    }

    /// A copy with everything: content, unsynced changes, armed faults, randomness.
    #[must_use]
    pub fn fork(&self) -> SimMedia {
        let mut state = self.state.lock().clone();
        let stopped = state.machine_stopped.load(Ordering::SeqCst);
        state.machine_stopped = Arc::new(AtomicBool::new(stopped));
        let state = Mutex::new(state);
        let len_bytes = AtomicU64::new(self.len_bytes());
        let identity = AtomicU64::new(self.identity.load(Ordering::SeqCst));
        SimMedia { state, len_bytes, identity, name: self.name.clone() }
    }

    /// Makes them other media with the same content, as a copy is.
    pub fn set_identity(&self, identity: u64) {
        self.identity.store(identity, Ordering::SeqCst);
    }

    /// Puts the media into one machine: a halt of one halts the others.
    pub fn join(&self, other: &SimMedia) {
        let machine = Arc::clone(&other.state.lock().machine_stopped);
        self.state.lock().machine_stopped = machine;
    }

    /// Set when the machine stops that the media are in.
    pub(crate) fn machine(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.state.lock().machine_stopped)
    }

    /// Arms an error.
    pub fn fail(&self, failure: Failure) {
        self.state.lock().armed.fail(failure);
    }

    /// Arms a lie.
    pub fn trick(&self, trick: Trick) {
        self.trick_after(trick, 0);
    }

    /// Arms a lie about the write (or read) that comes after so many.
    pub fn trick_after(&self, trick: Trick, after: u64) {
        self.state.lock().armed.trick(trick, after);
    }

    /// Disarms every error, lie and halt.
    pub fn calm(&self) {
        let mut state = self.state.lock();
        state.armed.clear();
        state.resume();
    }

    /// Lets `changes` more writes, syncs, allocations and discards succeed; the one after them is
    /// begun (a write may arrive in part) and fails, and so does every operation from then on,
    /// until [`SimMedia::crash`], [`SimMedia::kill`] or [`SimMedia::calm`].
    pub fn halt_after(&self, changes: u64) {
        let mut state = self.state.lock();
        state.halt_at_change = Some(state.changes.saturating_add(changes));
    }

    /// Halts the machine at once: nothing that is dropped from now on can touch the media any more,
    /// as nothing runs in a process that was killed.
    pub fn halt_now(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.machine_stopped.store(true, Ordering::SeqCst);
    }

    /// Whether a halt has struck.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.state.lock().halted()
    }

    /// Writes, syncs, allocations and discards so far: the points at which a crash differs.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Allows at most this many allocated bytes; `None` is no limit.
    pub fn set_space_limit(&self, limit_bytes: Option<u64>) {
        self.state.lock().space_limit_bytes = limit_bytes;
    }

    /// Bytes of allocated pages.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.state.lock().allocated_pages * PAGE_BYTES as u64
    }

    /// Makes every `n`th `try_read_at` say "would wait"; 0 is never, 1 always.
    pub fn set_cold_every(&self, n: u64) {
        self.state.lock().cold_every = n;
    }

    /// Begins the record of operations anew.
    pub fn start_log(&self) {
        self.state.lock().log = Some(Vec::new());
    }

    /// Ends the record of operations and returns it.
    #[must_use]
    pub fn take_log(&self) -> Vec<OpRecord> {
        self.state.lock().log.take().unwrap_or_default()
    }

    /// Flips one bit at rest.
    pub fn rot(&self, offset: u64, bit: u8) {
        assert!(offset < self.len_bytes(), "rot lies on the media");
        let mut state = self.state.lock();
        state.current.flip(offset, bit);
        state.durable.flip(offset, bit);
    }

    /// A byte offset in a page of a range that has space on the device, each as likely as the
    /// others; `None` if there is none.
    pub fn somewhere(&self, within: Range<u64>, random: &mut Random) -> Option<u64> {
        let state = self.state.lock();
        let pages = within.start.div_ceil(PAGE_BYTES as u64)
            ..within.end.min(self.len_bytes()) / PAGE_BYTES as u64;
        let taken: Vec<u64> = state.pages_allocated().filter(|p| pages.contains(p)).collect();
        if taken.is_empty() {
            return None;
        }
        let page = taken[usize::try_from(random.below(taken.len() as u64)).expect("an index")];
        Some(page * PAGE_BYTES as u64 + random.below(PAGE_BYTES as u64))
    }

    /// The changes that a power cut could lose, oldest first.
    #[must_use]
    pub fn unsynced(&self) -> Vec<Unsynced> {
        self.state.lock().unsynced.iter().map(Change::seen).collect()
    }

    /// Cuts the power and restores it: keeps a random part of the unsynced changes.
    pub fn crash(&self, random: &mut Random) {
        // One crash in five each: all is lost, all is kept, only what came after some point
        // suffers. Else every change has its own fate: kept, lost or torn.
        let fate = random.below(5);
        let count = self.state.lock().unsynced.len() as u64;
        let intact = random.below(count + 1);
        self.crash_with(&mut |index, change| match (fate, random.below(3)) {
            (0, _) => Keep::Nothing,
            (1, _) | (_, 0) => Keep::All,
            (2, _) if (index as u64) < intact => Keep::All,
            (_, 1) => Keep::Nothing,
            _ => Keep::Sectors((0..change.sectors).map(|_| random.chance(500)).collect()),
        });
    }

    /// Cuts the power and restores it: `keep` is asked for every unsynced change, oldest first.
    pub fn crash_with(&self, keep: &mut dyn FnMut(usize, &Unsynced) -> Keep) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for (index, change) in std::mem::take(&mut state.unsynced).iter().enumerate() {
            let seen = change.seen();
            match keep(index, &seen) {
                Keep::Nothing => {}
                Keep::All => change.apply(&mut state.durable),
                Keep::Sectors(kept) => change.apply_sectors(&mut state.durable, &kept),
            }
        }
        state.current = state.durable.clone();
        state.lost.clear();
        state.resume();
    }

    /// Ends the process: everything written stays, still unsynced; a halt ends.
    pub fn kill(&self) {
        self.state.lock().resume();
    }

    /// Drops some of the pages that a failed sync lost from what reads return, as an operating
    /// system does that takes them for clean; from then on reads return what is durable.
    pub fn forget_lost(&self, random: &mut Random) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let pending: BTreeSet<u64> = state.unsynced.iter().flat_map(Change::pages).collect();
        let lost = std::mem::take(&mut state.lost);
        for page in lost.into_iter().filter(|page| !pending.contains(page)) {
            if random.chance(500) {
                state.current.share(page, &state.durable);
            } else {
                state.lost.insert(page);
            }
        }
    }

    /// A number that is the same for the same content.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.state.lock().current.digest()
    }

    /// Checks the range, strikes and records; `act` runs when the operation is to succeed and
    /// `fail` when not.
    fn operate<T>(
        &self,
        op: Op,
        offset: u64,
        length: u64,
        act: impl FnOnce(&mut State) -> io::Result<T>,
        fail: impl FnOnce(&mut State, Why),
    ) -> io::Result<T> {
        if offset.checked_add(length).is_none_or(|end| end > self.len_bytes()) {
            let text = format!("{op:?} of {length} bytes at {offset} ends beyond the media");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let halted = state.halted();
        if op != Op::Read && !halted {
            state.changes += 1;
        }
        let result = if halted {
            Err(io::Error::other("simulated halt"))
        } else if state.halted() {
            state.machine_stopped.store(true, Ordering::SeqCst);
            fail(state, Why::Halt);
            Err(io::Error::other("simulated halt"))
        } else {
            match state.armed.strike(op, offset, length) {
                Ok(()) => act(state),
                Err(e) => {
                    fail(state, Why::Error);
                    Err(e)
                }
            }
        };
        let ok = result.is_ok();
        if let Some(log) = &mut state.log {
            log.push(OpRecord { op, offset, length_bytes: length, ok });
        }
        result
    }
}

/// Words of the bitmap of what is allocated.
fn words_of(len_bytes: u64) -> usize {
    let words = len_bytes.div_ceil(PAGE_BYTES as u64).div_ceil(64);
    usize::try_from(words).expect("a bitmap that fits in memory")
}

impl Change {
    fn pages(&self) -> impl Iterator<Item = u64> {
        parts(self.offset, self.length).map(|(page, _, _)| page)
    }

    fn seen(&self) -> Unsynced {
        Unsynced {
            offset: self.offset,
            length_bytes: self.length,
            sectors: sectors::count(self.offset, self.length),
            discard: matches!(self.content, Content::Junk(_)),
        }
    }

    fn apply(&self, pages: &mut Pages) {
        self.apply_part(pages, self.offset, self.length);
    }

    fn apply_sectors(&self, pages: &mut Pages, kept: &[bool]) {
        for index in 0..sectors::count(self.offset, self.length) {
            if usize::try_from(index).is_ok_and(|i| kept.get(i) == Some(&true)) {
                let (offset, length) = sectors::part(self.offset, self.length, index);
                self.apply_part(pages, offset, length);
            }
        }
    }

    fn apply_part(&self, pages: &mut Pages, offset: u64, length: u64) {
        match &self.content {
            Content::Bytes(bytes) => {
                let start = usize::try_from(offset - self.offset).expect("within the write");
                let count = usize::try_from(length).expect("within the write");
                pages.write(offset, &bytes[start..start + count]);
            }
            Content::Junk(Some(byte)) => pages.fill(offset, length, *byte),
            Content::Junk(None) => {}
        }
    }
}

impl State {
    fn halted(&self) -> bool {
        self.stopped
            || self.machine_stopped.load(Ordering::SeqCst)
            || self.halt_at_change.is_some_and(|at| self.changes > at)
    }

    fn resume(&mut self) {
        self.stopped = false;
        self.machine_stopped.store(false, Ordering::SeqCst);
        self.halt_at_change = None;
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.unsynced.push(change);
    }

    /// A write that failed: any of its sectors may be there.
    fn change_in_part(&mut self, change: &Change) {
        for index in 0..sectors::count(change.offset, change.length) {
            if self.random.chance(500) {
                let (offset, length) = sectors::part(change.offset, change.length, index);
                let content = match &change.content {
                    Content::Bytes(bytes) => {
                        let start = usize::try_from(offset - change.offset).expect("within");
                        let count = usize::try_from(length).expect("within");
                        Content::Bytes(bytes[start..start + count].into())
                    }
                    Content::Junk(byte) => Content::Junk(*byte),
                };
                self.change(Change { offset, length, content });
            }
        }
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            for page in change.pages() {
                self.durable.share(page, &self.current);
                self.lost.remove(&page);
            }
        }
    }

    /// Makes the last change durable, if it is that of the range; all, if others are in its way.
    fn sync_last(&mut self, offset: u64, length: u64) {
        let overlaps = |change: &Change| {
            change.offset < offset + length && offset < change.offset + change.length
        };
        let Some((last, others)) = self.unsynced.split_last() else { return };
        let is_it = (last.offset, last.length) == (offset, length);
        if !is_it || others.iter().any(overlaps) {
            return self.sync();
        }
        let last = self.unsynced.pop().expect("it is there");
        last.apply(&mut self.durable);
    }

    /// A sync that failed: each change became durable, stays pending, or (not at a halt, which is
    /// no error) is lost though reads return it.
    fn sync_in_part(&mut self, why: Why) {
        for change in std::mem::take(&mut self.unsynced) {
            match self.random.below(3) {
                0 => change.apply(&mut self.durable),
                1 if why == Why::Error => self.lost.extend(change.pages()),
                _ => self.unsynced.push(change),
            }
        }
    }

    fn allocate(&mut self, offset: u64, length: u64) -> io::Result<()> {
        let fresh = self.pages_unallocated(offset, length);
        let limit_pages = self.space_limit_bytes.map(|bytes| bytes / PAGE_BYTES as u64);
        if fresh > 0 && limit_pages.is_some_and(|limit| self.allocated_pages + fresh > limit) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "simulated full device"));
        }
        for (page, _, _) in parts(offset, length) {
            let (word, bit) = place(page);
            self.allocated[word] |= bit;
        }
        self.allocated_pages += fresh;
        Ok(())
    }

    fn release(&mut self, offset: u64, length: u64) {
        for (page, _, take) in parts(offset, length) {
            let (word, bit) = place(page);
            if take == PAGE_BYTES && self.allocated[word] & bit != 0 {
                self.allocated[word] &= !bit;
                self.allocated_pages -= 1;
            }
        }
    }

    fn pages_unallocated(&self, offset: u64, length: u64) -> u64 {
        let is_fresh = |page| {
            let (word, bit) = place(page);
            self.allocated[word] & bit == 0
        };
        parts(offset, length).filter(|&(page, _, _)| is_fresh(page)).count() as u64
    }

    fn pages_allocated(&self) -> impl Iterator<Item = u64> {
        let words = (0..).zip(&self.allocated).filter(|(_, bits)| **bits != 0);
        words.flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
        })
    }
}

fn place(page: u64) -> (usize, u64) {
    (usize::try_from(page / 64).expect("a bitmap that fits in memory"), 1 << (page % 64))
}

impl Media for SimMedia {
    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::SeqCst)
    }

    fn lengthen(&self, len_bytes: Option<u64>) -> io::Result<u64> {
        let longer = len_bytes.unwrap_or(0).max(self.len_bytes());
        let mut state = self.state.lock();
        if state.halted() {
            return Err(io::Error::other("simulated halt"));
        }
        let words = words_of(longer).max(state.allocated.len());
        state.allocated.resize(words, 0);
        self.len_bytes.store(longer, Ordering::SeqCst);
        Ok(longer)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let length = buffer.len() as u64;
        let last = self.len_bytes().saturating_sub(length);
        let act = |state: &mut State| {
            let from = match state.armed.take_trick(Op::Read) {
                Some(Trick::MisdirectRead(elsewhere)) => elsewhere.min(last),
                _ => offset,
            };
            state.current.read(from, buffer);
            Ok(())
        };
        self.operate(Op::Read, offset, length, act, |_, _| {})
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        {
            let mut state = self.state.lock();
            state.reads_tried += 1;
            if state.cold_every > 0 && state.reads_tried.is_multiple_of(state.cold_every) {
                return Ok(false);
            }
        }
        self.read_at(offset, buffer).map(|()| true)
    }

    fn why_no_buffer(&self) -> Option<String> {
        None
    }

    fn identity(&self) -> u128 {
        u128::from(self.identity.load(Ordering::SeqCst))
    }

    fn is_hole(&self, offset: u64, length_bytes: u64) -> bool {
        if offset.checked_add(length_bytes).is_none_or(|end| end > self.len_bytes()) {
            return false;
        }
        let state = self.state.lock();
        let is_fresh = |page| {
            let (word, bit) = place(page);
            state.allocated[word] & bit == 0
        };
        if state.halted() || !parts(offset, length_bytes).all(|(page, _, _)| is_fresh(page)) {
            return false;
        }
        let mut bytes = vec![1; length_bytes as usize];
        state.current.read(offset, &mut bytes);
        bytes.iter().all(|&byte| byte == 0)
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(slices.iter().map(|slice| slice.len()).sum());
        slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
        let length = bytes.len() as u64;
        let change = Change { offset, length, content: Content::Bytes(bytes.into()) };
        let last = self.len_bytes().saturating_sub(length);
        let act = |state: &mut State| {
            let mut change = change.clone();
            state.allocate(offset, length)?;
            match state.armed.take_trick(Op::Write) {
                Some(Trick::LoseWrite) => return Ok(()),
                Some(Trick::MisdirectWrite(elsewhere)) => change.offset = elsewhere.min(last),
                _ => {}
            }
            state.change(change);
            Ok(())
        };
        self.operate(Op::Write, offset, length, act, |state, _| state.change_in_part(&change))
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.write_at(offset, slices)?;
        let length = slices.iter().map(|s| s.len() as u64).sum();
        let act = |state: &mut State| {
            state.sync_last(offset, length);
            Ok(())
        };
        self.operate(Op::Sync, offset, length, act, State::sync_in_part)
    }

    fn sync(&self) -> io::Result<()> {
        let act = |state: &mut State| {
            state.sync();
            Ok(())
        };
        self.operate(Op::Sync, 0, 0, act, State::sync_in_part)
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        let act = |state: &mut State| state.allocate(offset, length_bytes);
        self.operate(Op::Allocate, offset, length_bytes, act, |_, _| {})
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        let act = |state: &mut State| {
            let junk = match state.random.below(3) {
                0 => None,
                1 => Some(0),
                _ => Some(0xdd),
            };
            state.release(offset, length_bytes);
            state.change(Change { offset, length: length_bytes, content: Content::Junk(junk) });
            Ok(())
        };
        self.operate(Op::Discard, offset, length_bytes, act, |_, _| {})
    }

    fn name(&self) -> &str {
        &self.name
    }
}
