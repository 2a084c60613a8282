//! Media whose appended bytes wait in memory that outlives the process, and go to the media in
//! large writes past the page cache.
//!
//! A page that the page cache has not got costs more than the device does. So a range of the media
//! that is written from its beginning on (a *piece*) gets a *slot* of memory, which is used again
//! and again. What is written there is acknowledged, as a write to the page cache is: the death of
//! the process takes nothing of it, for the next one to open the media puts it there first. A sync
//! writes what waits, and syncs the media.
//!
//! Invariants
//! 1. A byte that was acknowledged is on the media, or its grain has a bit in the words of the slot
//!    of its piece, at every instant.
//! 2. A slot is given another piece only when no bit of it is set and nobody has it pinned.
//! 3. One thread at a time writes a slot to the media (`is_busy`).
//! 4. Only ranges that were allocated wait: the media have room for them.
//! 5. While a memory may have what the media lack, the mark on the media says so.
//! 6. After a write to the media failed, writes and syncs fail; what waits answers reads.
//!
//! Deliberately unaware of what the bytes are: logs, maps and blocks in place wait alike.

mod buffer;
mod buffers;
mod changes;
mod mark;
mod shared;
mod table;
#[cfg(test)]
mod tests;
mod words;

pub use buffer::WriteBuffer;
pub use buffers::WriteBuffers;
pub use mark::Found;
pub use shared::BufferStatus;
