//! The log, the time-indexed map, retention and reclamation.
//!
//! Reading order: `log` (a write becomes a batch), `pending` and `timeline` (where the map is),
//! `run`, `stored_run` and `run_builder` (its immutable part), `page_table` (its cached present),
//! `time_index`, `openable` (what is needed), `recover` (after a crash). `store` is what all of
//! them share.

mod error;
mod hash;
mod healing;
mod io_tally;
mod log;
mod map_pages;
mod map_zones;
mod newest;
mod openable;
mod outside;
mod pack_cache;
mod packs;
mod page_table;
mod pending;
mod pool_device;
mod recover;
mod room;
pub mod run;
mod run_builder;
mod scan;
mod scrub;
mod segment;
mod slot;
mod space_tally;
mod store;
mod stored_run;
mod time_index;
mod timeline;

pub use error::{Error, ErrorKind, Result};
pub use hash::{FastMap, FastSet};
pub use io_tally::{IoCount, IoKind, IoTally};
pub use log::{
    Appended, AppendedRun, BatchPlace, BlockOp, Gate, LockedBlocks, Log, LogStart, SegmentSource,
    Stance, TimedOps,
};
pub use map_zones::{PageExtent, PageExtents};
pub use openable::Openable;
pub use outside::{OUTSIDE_SEQ, Outside};
pub use page_table::{PageBudget, PageTable};
pub use pending::{Pending, node_covers};
pub use pool_device::Healed;
pub use recover::{KnownLog, RecoveredLog, RecoveredSegment, recover_log};
pub use run_builder::{RunBuilder, write_time_run};
pub use scan::{ScanEnd, header_from_batch, read_header, scan_segment};
pub use scrub::{Loss, Scrub, ScrubMap, ScrubReport, Suspects, Version};
pub use segment::{Content, NO_LOG, Segment};
pub use slot::{BLOCKS_PER_PAGE, LoadedPage, Slot, block_location};
pub use space_tally::{Account, SpaceCount, SpaceTally};
pub use store::{Behind, Epoch, SecondSource, Spare, Store, StoreParts};
pub use stored_run::{Pages, StoredRun, next_entries};
pub use time_index::{By, TimeIndex, TimeRun};
pub use timeline::{Branch, Timeline};
