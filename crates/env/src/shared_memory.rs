//! Memory that outlives the process, but not the machine: where a write buffer keeps what was
//! acknowledged and has not been written to its media yet.
//!
//! It is a number of slots. Each has the bytes of a piece of the media and, in words that change
//! atomically, which piece that is and which of its grains the media lack.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::AtomicU64;

use crate::Media;

/// Bytes of a piece: a range of media that begins at a multiple of it.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Bytes of a grain: what one bit of a slot's words is for. Places in logs are multiples of it.
pub const GRAIN_BYTES: u64 = 64;
/// Words of one bit for each grain of a piece.
pub const MAP_WORDS: usize = (PIECE_BYTES / GRAIN_BYTES) as usize / 64;
/// Words of a slot: its piece, what is to be written, what is being written.
pub const SLOT_WORDS: usize = 1 + 2 * MAP_WORDS;

/// Slots of memory that is found again after the process has died.
pub trait SharedMemory: Send + Sync {
    /// A name for people.
    fn name(&self) -> String;
    /// Whether the next process would find it: nobody removed it.
    fn is_there(&self) -> bool;
    /// The slots that there are; their number only rises.
    fn slots(&self) -> usize;
    /// Makes another slot, with words of zeros.
    ///
    /// # Errors
    /// When there is no memory for it, or it has as many as it can.
    fn grow(&self) -> io::Result<()>;
    /// The words of a slot.
    fn words(&self, slot: usize) -> &SlotWords;
    /// Puts all slices, one after another, into a slot. A process that is killed in it leaves whole
    /// pages, old or new; but any bytes where what was there is not needed, which is faster.
    ///
    /// # Errors
    /// Those of the system.
    fn write(
        &self,
        slot: usize,
        offset: usize,
        slices: &[IoSlice<'_>],
        is_needed: bool,
    ) -> io::Result<()>;
    /// Takes bytes out of a slot.
    ///
    /// # Errors
    /// Those of the system.
    fn read(&self, slot: usize, offset: usize, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes bytes of a slot to media at an offset, past a cache where that is possible.
    ///
    /// # Errors
    /// Those of the media.
    fn put(&self, slot: usize, part: Range<usize>, media: &dyn Media, at: u64) -> io::Result<()>;
}

/// The owner of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// A random number, which the media name while it is in use.
    pub tag: u128,
    /// [`Media::identity`].
    pub media: u128,
}

/// Makes and finds memories.
pub trait SharedMemories: Send + Sync {
    /// Says this start of the machine: memories do not outlive it.
    fn boot(&self) -> u128;
    /// Makes one of no slots.
    ///
    /// # Errors
    /// Those of the system, and where nothing would outlive the process; they say which memory.
    fn create(&self, owner: Owner, slots_max: usize) -> io::Result<Box<dyn SharedMemory>>;
    /// Finds one that a process left.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` when it is no memory, or is for other media.
    fn open(&self, owner: Owner) -> io::Result<Option<Box<dyn SharedMemory>>>;
    /// Removes one that is needed no more.
    ///
    /// # Errors
    /// Those of the system.
    fn remove(&self, tag: u128) -> io::Result<()>;
}

/// The words of a slot. At every instant what is to be written and what is being written are
/// together all that the media may lack.
pub type SlotWords = [AtomicU64; SLOT_WORDS];
