//! Media, clock and entropy that are faulty and deterministic: the machine of the simulator.
//!
//! # The fault model
//!
//! The faults of [`SimMedia`]; everything else is kept faithfully.
//!
//! - **Power cut** ([`SimMedia::crash`]): of the writes and discards since the last completed sync
//!   any subset is lost, whatever their order; each that is not lost may be torn at 512-byte
//!   granularity: an arbitrary subset of its sectors arrives. Everything that a completed sync
//!   covered is there.
//! - **Death of the process** ([`SimMedia::kill`]): everything written stays, and stays unsynced. A
//!   halt ([`SimMedia::halt_after`]) stops the machine in the middle of an operation, before either
//!   of the two.
//! - **Shared memory** ([`SimMemories`]): survives the death of the process, as it was at that
//!   instant, with a write under way in it up to some page; nothing of it survives a power cut.
//! - **Errors** ([`SimMedia::fail`]): a read, write, sync, allocation or discard fails, once,
//!   several times or for ever, everywhere or in a range. A failed write leaves any subset of its
//!   sectors written. A failed sync leaves each pending write durable, pending, or lost for good
//!   although reads still return it: the next sync may well succeed, and says nothing about those.
//!   Reads may return what was lost for as long as they like, and then no longer
//!   ([`SimMedia::forget_lost`]).
//! - **Full** ([`SimMedia::set_space_limit`]): an allocation beyond the limit fails with
//!   `StorageFull`; so does a write into a page that was never allocated. Overwriting allocated
//!   pages goes on.
//! - **Rot** ([`SimMedia::rot`]): a bit flips at rest.
//! - **Lies** ([`SimMedia::trick`]): a write is confirmed and lost, or lands elsewhere; a read
//!   returns another place's content.
//! - **Discarded ranges** read as their old content, as zeros or as 0xDD, chosen by the seed, until
//!   written.
//! - **Files that are only read** ([`SimFiles`]): may be written to, cut, replaced under their path
//!   or taken away by others, which shows in what they are told by; a range may be unreadable.
//! - **Slow**: `try_read_at` says "would wait" as often as it is told to
//!   ([`SimMedia::set_cold_every`]).
//!
//! Beside the machine stands the oracle of shares ([`posix`]).
//!
//! # Invariants
//!
//! 1. Same seed, same calls: same bytes, same errors. No real time, no hashing order, no thread.
//! 2. Memory is used for pages that were written, not for the length of the media.

mod clock;
mod failures;
mod files;
mod media;
mod memory;
mod pages;
pub mod posix;
mod random;
mod sectors;

pub use clock::SimClock;
pub use failures::{Failure, Op, OpRecord, Trick};
pub use files::{SimFile, SimFiles};
pub use media::{Keep, SimMedia, Unsynced};
pub use memory::SimMemories;
pub use random::{Random, SimEntropy};
pub use sectors::SECTOR_BYTES;
