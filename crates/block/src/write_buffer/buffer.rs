//! One write buffer: media with a memory over them.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use env::{GRAIN_BYTES, Media, PIECE_BYTES, SharedMemory};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use super::changes::Changes;
use super::mark::{self, Found, Memory};
use super::shared::{BufferStatus, Shared};
use super::table::Table;
use super::words::{
    begin_writing, end_writing, forget_dirty, runs, set_dirty, set_piece, set_writing,
    undo_writing, writing,
};
use crate::slices::cut;

/// Slots without a piece that are kept ready.
const FREE_SLOTS: usize = 16;

/// What was counted since the media were opened.
#[derive(Debug, Default)]
struct Counters {
    /// Bytes that were put into slots.
    buffered: AtomicU64,
    /// Bytes that were written to the media from them.
    written: AtomicU64,
    /// Bytes that would have gone to a slot, had there been one.
    passed_by: AtomicU64,
}

/// Media with a write buffer over them, as the threads that write what waits see it.
pub(super) struct Inner {
    below: Arc<dyn Media>,
    /// Made of what is below by us.
    changes: Changes,
    shared: Arc<Shared>,
    found: Found,
    memory: OnceLock<Memory>,
    table: Mutex<Table>,
    /// A slot is busy no more.
    ended: Condvar,
    counters: Counters,
    /// Held by a thread that writes what waits.
    turn: Mutex<()>,
    /// Why it is not used.
    off: Mutex<Option<String>>,
    /// Its memory was removed, and its mark was to be.
    has_left: AtomicBool,
}

/// The grains of which a part of a piece has any byte.
fn grains_of(within: usize, length: usize) -> (usize, usize) {
    let grain = GRAIN_BYTES as usize;
    (within / grain, (within + length).div_ceil(grain))
}

fn length_of(slices: &[IoSlice<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

impl Inner {
    /// Puts what a process that died left to be written to its media; the buffer is not used yet.
    fn over(below: Arc<dyn Media>, shared: Arc<Shared>) -> io::Result<Inner> {
        let found = mark::recover(&*below, &*shared.memories)?;
        let (off, changes) = (below.why_no_buffer(), Changes::of(&*below));
        Ok(Inner {
            below,
            changes,
            shared,
            found,
            memory: OnceLock::new(),
            table: Mutex::new(Table::default()),
            ended: Condvar::new(),
            counters: Counters::default(),
            turn: Mutex::new(()),
            off: Mutex::new(off),
            has_left: AtomicBool::new(false),
        })
    }

    /// Makes a memory and says so on the media, if that can be and was not done yet.
    fn begin(&self) {
        let mut off = self.off.lock();
        if off.is_some() || self.memory.get().is_some() || self.shared.slots_max() == 0 {
            return;
        }
        match self.changes.make(|| mark::begin(&*self.below, &self.shared)) {
            // It has no label: it may get one.
            Ok(None) => {}
            Ok(Some(memory)) => {
                let set = self.memory.set(memory);
                assert!(set.is_ok(), "begun once");
            }
            Err(why) => *off = Some(why),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Fails after a write to the media has failed.
    fn check(table: &Table) -> io::Result<()> {
        match &table.failed {
            None => Ok(()),
            Some(why) => Err(io::Error::other(format!("an earlier write failed: {why}"))),
        }
    }

    /// The slot that is to have a part of a piece, pinned; none if it goes to the media.
    fn slot_for(
        &self,
        memory: &dyn SharedMemory,
        (piece, within): (u64, usize),
        length: usize,
    ) -> io::Result<Option<(usize, MutexGuard<'_, Table>)>> {
        let at = piece * PIECE_BYTES + within as u64;
        let mut table = self.lock();
        Inner::check(&table)?;
        let is_whole = [within, length].iter().all(|n| n.is_multiple_of(GRAIN_BYTES as usize));
        let may_wait = is_whole && table.is_allocated(at, length as u64);
        let slot = match table.slot_of(piece) {
            Some(slot) if may_wait => slot,
            Some(slot) => {
                // It goes past the slot, which has to forget what it has there.
                let has_any = table.has_any(slot, grains_of(within, length));
                drop(table);
                if has_any {
                    self.give_up(memory, slot, (piece, within, length), true)?;
                }
                return Ok(None);
            }
            None if !may_wait || within > 0 => return Ok(None),
            None => match table.take(piece) {
                Some(slot) => {
                    set_piece(memory.words(slot), piece);
                    slot
                }
                None => {
                    table.is_wanted = true;
                    self.counters.passed_by.fetch_add(length as u64, Ordering::Relaxed);
                    drop(table);
                    self.shared.ring();
                    return Ok(None);
                }
            },
        };
        table.pin(slot);
        Ok(Some((slot, table)))
    }

    /// Puts a part of a piece into its slot; `false` if it has none and gets none.
    fn put(
        &self,
        memory: &dyn SharedMemory,
        (piece, within): (u64, usize),
        slices: &[IoSlice<'_>],
    ) -> io::Result<bool> {
        let length = length_of(slices);
        if self.changes.are_of_others(&*self.below) {
            Inner::check(&self.lock())?;
            // The media say themselves whether they take this one.
            self.lock().forget_clean();
            let at = piece * PIECE_BYTES + within as u64;
            self.give_up_range(at, length as u64, true)?;
            return Ok(false);
        }
        let there = self.slot_for(memory, (piece, within), length)?;
        let Some((slot, mut table)) = there else { return Ok(false) };
        let (first, end) = grains_of(within, length);
        let is_needed = table.has_any(slot, (first, end));
        if is_needed {
            table.begin_overwrite(slot);
        }
        drop(table);
        let put = memory.write(slot, within, slices, is_needed);
        if put.is_ok() {
            set_dirty(memory.words(slot), first, end);
        }
        let mut table = self.lock();
        table.unpin(slot);
        if is_needed {
            table.end_overwrite(slot);
        }
        if let Err(e) = put {
            table.failed.get_or_insert_with(|| e.to_string());
            return Err(e);
        }
        self.counters.buffered.fetch_add(length as u64, Ordering::Relaxed);
        let calls = table.filled(slot, (first, end));
        drop(table);
        if calls {
            self.shared.ring();
        }
        Ok(true)
    }

    /// Has the right to write a slot to the media, once nobody else has; none if it is not this
    /// piece's any more.
    fn take_busy(&self, slot: usize, piece: u64) -> Option<MutexGuard<'_, Table>> {
        let mut table = self.lock();
        while table.slot_of(piece) == Some(slot) && table.is_busy(slot) {
            self.ended.wait(&mut table);
        }
        if table.slot_of(piece) != Some(slot) {
            return None;
        }
        table.set_busy(slot, true);
        Some(table)
    }

    /// A slot can be written by others again; a failure is kept.
    fn end_busy(&self, slot: usize, outcome: &io::Result<()>) {
        let mut table = self.lock();
        if let Err(e) = outcome {
            table.failed.get_or_insert_with(|| e.to_string());
        }
        table.set_busy(slot, false);
        drop(table);
        self.ended.notify_all();
    }

    /// Writes what of a slot waits to the media. The caller has made it busy.
    fn write_out(&self, memory: &dyn SharedMemory, slot: usize, piece: u64) -> io::Result<()> {
        let words = memory.words(slot);
        let before = self.lock().overwrites(slot);
        begin_writing(words);
        let mut written = 0;
        let mut outcome = Ok(());
        for (first, end) in runs(&writing(words)) {
            let grain = GRAIN_BYTES as usize;
            let (first, end) = self.lock().whole_blocks(slot, (first, end));
            // Grains beside them are written again, and may be replaced meanwhile.
            set_writing(words, first, end);
            let part = first * grain..end * grain;
            written += part.len() as u64;
            let at = piece * PIECE_BYTES + part.start as u64;
            outcome = self.changes.make(|| memory.put(slot, part, &*self.below, at));
            if outcome.is_err() {
                break;
            }
        }
        self.counters.written.fetch_add(written, Ordering::Relaxed);
        let mut table = self.lock();
        // Where something was replaced meanwhile the media may have part of it.
        let is_sound = outcome.is_ok() && table.overwrites(slot) == before;
        match is_sound && !table.is_overwritten(slot) {
            true => end_writing(words),
            false => {
                undo_writing(words);
                table.set_dirty(slot);
            }
        }
        outcome
    }

    /// Writes a slot to the media, if it has anything that waits.
    fn write_slot(&self, memory: &dyn SharedMemory, slot: usize, piece: u64) -> io::Result<()> {
        let Some(mut table) = self.take_busy(slot, piece) else { return Ok(()) };
        let waits = table.take_dirty(slot);
        drop(table);
        let outcome = if waits { self.write_out(memory, slot, piece) } else { Ok(()) };
        self.end_busy(slot, &outcome);
        outcome
    }

    /// Forgets a part of a piece, so that what is written past the slot counts. What waits of it
    /// is written before, or forgotten as well if it is not `needed` any more.
    fn give_up(
        &self,
        memory: &dyn SharedMemory,
        slot: usize,
        (piece, within, length): (u64, usize, usize),
        needed: bool,
    ) -> io::Result<()> {
        let Some(mut table) = self.take_busy(slot, piece) else { return Ok(()) };
        if needed {
            table.take_dirty(slot);
        }
        let grain = GRAIN_BYTES as usize;
        let (first, end) = match needed {
            true => grains_of(within, length),
            false => (within.div_ceil(grain), (within + length) / grain),
        };
        drop(table);
        let words = memory.words(slot);
        let outcome = if needed { self.write_out(memory, slot, piece) } else { Ok(()) };
        if outcome.is_ok() {
            // Some may wait again, as something else of the piece was replaced meanwhile.
            forget_dirty(words, first, end.max(first));
            self.lock().forget(slot, (first, end.max(first)));
        }
        self.end_busy(slot, &outcome);
        outcome
    }

    /// Gives up a range in all slots.
    fn give_up_range(&self, offset: u64, length: u64, needed: bool) -> io::Result<()> {
        let Some(memory) = self.memory.get() else { return Ok(()) };
        let there = self.lock().slots_within(offset, length);
        for (slot, piece) in there {
            let begin = piece * PIECE_BYTES;
            let first = offset.max(begin) - begin;
            let end = offset.saturating_add(length).min(begin + PIECE_BYTES) - begin;
            let part = (piece, size(first), size(end - first));
            self.give_up(&*memory.slots, slot, part, needed)?;
        }
        Ok(())
    }

    /// Writes one slot that is full or has waited long; whether there was one. Where there are
    /// others one thread at a time does: media that hang keep the rest of the threads for others.
    pub(super) fn write_one(&self, has_others: bool) -> bool {
        let Some(memory) = self.memory.get() else { return false };
        let turn = self.turn.try_lock();
        if has_others && turn.is_none() {
            return false;
        }
        let (next, is_over) = {
            let mut table = self.lock();
            (table.next_listed(), table.is_over())
        };
        let Some((slot, piece)) = next else {
            if is_over {
                self.leave(memory);
            }
            return false;
        };
        // A failure is kept, and told to the next who writes or syncs.
        let _ = self.write_slot(&*memory.slots, slot, piece);
        true
    }

    /// Makes a slot, if few are free; whether it did.
    pub(super) fn grow(&self) -> bool {
        let Some(memory) = self.memory.get() else { return false };
        if !self.lock().wants_slots(FREE_SLOTS) || !self.shared.reserve() {
            return false;
        }
        if memory.slots.grow().is_err() {
            self.shared.lower_budget();
            return false;
        }
        self.lock().add();
        true
    }

    /// Comes into use, and lists what has waited long; whether anything waits.
    pub(super) fn tick(&self) -> bool {
        self.begin();
        let is_lost = |memory: &Memory| !memory.slots.is_there();
        if self.memory.get().is_some_and(is_lost) {
            // Somebody removed it: a kill would take what waits from now on.
            self.lock().is_closing = true;
        }
        self.lock().tick()
    }

    /// Takes the mark of a memory away that somebody removed, as nothing waits nor will. That is
    /// tried once: after a sync that failed the media may lack what they were given.
    fn leave(&self, memory: &Memory) {
        if !self.has_left.swap(true, Ordering::AcqRel) && self.sync().is_ok() {
            mark::end(&*self.below, &*self.shared.memories, &memory.mark);
        }
    }

    /// Reads a part of a piece: from the slot, as far as that has it.
    fn read_part(
        &self,
        memory: &dyn SharedMemory,
        (piece, within): (u64, usize),
        buffer: &mut [u8],
        below: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let at = piece * PIECE_BYTES + within as u64;
        let length = buffer.len();
        let there = {
            let mut table = self.lock();
            table.slot_of(piece).map(|slot| {
                let there = table.valid_runs(slot, within, length);
                table.pin(slot);
                (slot, there)
            })
        };
        let Some((slot, there)) = there else { return below(at, buffer) };
        if self.changes.are_of_others(&*self.below) {
            let mut table = self.lock();
            table.unpin(slot);
            table.forget_clean();
            drop(table);
            return self.read_part(memory, (piece, within), buffer, below);
        }
        let is_all = there[..] == [(within, within + length)];
        let mut outcome = if is_all { Ok(true) } else { below(at, buffer) };
        if let Ok(true) = outcome {
            for (first, end) in there {
                let part = &mut buffer[first - within..end - within];
                if let Err(e) = memory.read(slot, first, part) {
                    outcome = Err(e);
                    break;
                }
            }
        }
        self.lock().unpin(slot);
        outcome
    }

    fn read_with(
        &self,
        offset: u64,
        buffer: &mut [u8],
        below: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let length = buffer.len() as u64;
        let end = offset.checked_add(length).filter(|&end| end <= self.below.len_bytes());
        let memory = self.memory.get().filter(|_| end.is_some());
        let is_one = end.is_some()
            && length > 0
            && offset / PIECE_BYTES == (offset + (length - 1)) / PIECE_BYTES;
        let looks = |_: &&Memory| is_one || self.lock().has_within(offset, length);
        let Some(memory) = memory.filter(looks) else {
            return below(offset, buffer);
        };
        let mut rest = buffer;
        for (piece, within, length) in parts(offset, length) {
            let (part, after) = rest.split_at_mut(length);
            rest = after;
            if !self.read_part(&*memory.slots, (piece, within), part, below)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes what waits, and syncs the media.
    fn sync(&self) -> io::Result<()> {
        if let Some(memory) = self.memory.get() {
            Inner::check(&self.lock())?;
            let waiting = self.lock().waiting();
            for (slot, piece) in waiting {
                self.write_slot(&*memory.slots, slot, piece)?;
            }
            Inner::check(&self.lock())?;
        }
        self.below.sync()
    }

    /// Why it is not used.
    fn why_off(&self) -> Option<String> {
        if self.memory.get().is_some() {
            let text = "its memory was removed; the page cache has all from now on";
            return self.lock().is_closing.then(|| text.to_owned());
        }
        let why = || match self.shared.slots_max() {
            0 => "there is no memory for it",
            _ => "it was not begun yet, or there is no label",
        };
        Some(self.off.lock().clone().unwrap_or_else(|| why().to_owned()))
    }

    /// Writes what waits, and puts the memory out of use. What cannot be written stays in it, and
    /// the mark says so.
    fn close(&self) {
        let Some(memory) = self.memory.get() else { return };
        self.shared.give_back(memory.slots.slots());
        if self.sync().is_ok() {
            mark::end(&*self.below, &*self.shared.memories, &memory.mark);
        }
    }

    /// How it stands.
    pub(super) fn status(&self) -> BufferStatus {
        let off = self.why_off();
        let table = self.lock();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BufferStatus {
            media: self.below.name().to_owned(),
            is_used: self.memory.get().is_some() && !table.is_closing,
            off,
            memory: self.memory.get().map(|memory| memory.slots.name()),
            slots_bytes: table.slot_count() as u64 * PIECE_BYTES,
            waiting_bytes: table.dirty_count() as u64 * PIECE_BYTES,
            buffered_bytes: count(&self.counters.buffered),
            written_bytes: count(&self.counters.written),
            passed_by_bytes: count(&self.counters.passed_by),
            failed: table.failed.clone(),
        }
    }
}

fn size(n: u64) -> usize {
    usize::try_from(n).expect("within a piece")
}

/// The parts of a range, piece by piece: the piece, where in it, how many bytes.
fn parts(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + length;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (piece, within) = (at / PIECE_BYTES, at % PIECE_BYTES);
        let take = (PIECE_BYTES - within).min(end - at);
        at += take;
        Some((piece, size(within), size(take)))
    })
}

/// Media with a write buffer over them, as their owner has them. Once that lets go of it nobody
/// else has it any more: the media are closed, and can be opened again.
pub struct WriteBuffer(pub(super) Arc<Inner>, Arc<All>);

/// All buffers of a process. Held to read by those who do anything with one: an owner that lets go
/// of its own waits.
pub(super) type All = RwLock<Vec<Arc<Inner>>>;

impl WriteBuffer {
    /// One over media, among all.
    pub(super) fn over(
        media: Arc<dyn Media>,
        shared: Arc<Shared>,
        all: &Arc<All>,
    ) -> io::Result<WriteBuffer> {
        let inner = Arc::new(Inner::over(media, shared)?);
        all.write().push(Arc::clone(&inner));
        Ok(WriteBuffer(inner, Arc::clone(all)))
    }

    /// What the last use of the media left.
    pub fn found(&self) -> &Found {
        &self.0.found
    }
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        // Nobody else has it when this is done.
        self.1.write().retain(|one| !Arc::ptr_eq(one, &self.0));
        self.0.close();
    }
}

impl Media for WriteBuffer {
    forward! {
        self.0.below =>
        fn len_bytes(&self) -> u64;
        fn why_no_buffer(&self) -> Option<String>;
        fn stamp(&self) -> u128;
        fn identity(&self) -> u128;
        fn name(&self) -> &str;
    }

    fn lengthen(&self, len_bytes: Option<u64>) -> io::Result<u64> {
        self.0.changes.make(|| self.0.below.lengthen(len_bytes))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let below = &mut |at: u64, part: &mut [u8]| self.0.below.read_at(at, part).map(|()| true);
        self.0.read_with(offset, buffer, below).map(|_| ())
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        self.0.read_with(offset, buffer, &mut |at, part| self.0.below.try_read_at(at, part))
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let length = length_of(slices) as u64;
        let end = offset.checked_add(length).filter(|&end| end <= self.len_bytes());
        let Some(memory) = self.0.memory.get().filter(|_| end.is_some()) else {
            return self.0.changes.make(|| self.0.below.write_at(offset, slices));
        };
        let mut done = 0;
        for (piece, within, length) in parts(offset, length) {
            let part = cut(slices, done..done + length);
            if !self.0.put(&*memory.slots, (piece, within), &part)? {
                let at = piece * PIECE_BYTES + within as u64;
                self.0.changes.make(|| self.0.below.write_at(at, &part))?;
            }
            done += length;
        }
        Ok(())
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        Inner::check(&self.0.lock())?;
        self.0.give_up_range(offset, length_of(slices) as u64, true)?;
        self.0.changes.make(|| self.0.below.write_durable(offset, slices))
    }

    fn is_hole(&self, offset: u64, length_bytes: u64) -> bool {
        // What waits is no hole yet, and none any more.
        let waits = self.0.memory.get().is_some() && self.0.lock().has_within(offset, length_bytes);
        !waits && self.0.below.is_hole(offset, length_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.0.changes.make(|| self.0.below.allocate(offset, length_bytes))?;
        self.0.lock().allocated(offset, length_bytes);
        Ok(())
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.0.lock().discarded(offset, length_bytes);
        self.0.give_up_range(offset, length_bytes, false)?;
        self.0.changes.make(|| self.0.below.discard(offset, length_bytes))
    }
}
