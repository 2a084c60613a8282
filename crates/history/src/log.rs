//! One volume's log: seqs, batches, segments.
//!
//! Invariants
//! 1. A write gets its seq and its place in the open segment in one short critical section;
//!    copying, checksumming and the device write happen outside it.
//! 2. `stable` is the highest seq at and below which every write has ended: its bytes are with the
//!    operating system and its entries in the map. Only stable moments are ever resolved.
//! 3. `durable` is a stable seq that a completed device flush covers.
//! 4. Time rises strictly from batch to batch, whatever the clock does, and about as fast as time.
//! 5. While the gate is closed nothing is in flight: whoever closed it sees one instant of the
//!    volume.
//! 6. While a block range is locked (a partial block is being merged) no other write to it is
//!    reserved.
//! 7. A flush is named by something behind what it covers: a flush mark (`mark`), for which the end
//!    of a segment is kept.
//! 8. A strict log has one batch in flight at a time: each says that all before it have ended, so
//!    whoever is told that a write ended is told it of all before.
//!
//! Deliberately unaware of the map: the caller enters locations there before it calls
//! `Appended::end`.

mod append;
mod many;
mod mark;

pub use append::{Appended, BlockOp, Gate, LockedBlocks, Log, LogStart, SegmentSource, Stance};
pub use many::{AppendedRun, BatchPlace, TimedOps};
