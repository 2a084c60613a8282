//! Background work: flushing the map, merging and reclaiming, encoding, deduplication, scrubs.

pub mod cleaning;
pub mod compacted;
pub mod compactions;
pub mod dedup;
pub mod encoding;
pub mod map_flush;
pub mod merge;
pub mod merges;
pub mod meter;
pub mod mover;
pub mod packer;
pub mod passes;
pub mod rates;
pub mod reclaim;
pub mod resync_pace;
pub mod room;
pub mod scrub;
pub mod scrub_plan;
pub mod segment_writer;
pub mod throttle;
