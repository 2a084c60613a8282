//! The engine, one way of the data at a time.

mod audit;
mod base;
mod cached;
mod compaction;
mod conversion;
mod corners;
mod extents;
mod figures;
mod golden;
mod grace;
mod groups;
mod handover;
mod hook;
mod hybrid;
mod import;
mod in_place;
mod matrix;
mod packs;
mod past;
mod room;
mod schedule;
mod space;
mod story;
mod versions;
mod wide;
