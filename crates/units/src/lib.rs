//! The words of the contract as types: positions, times, moments, sizes, spans, names, and their
//! parsing.
//!
//! No I/O and no clock: whoever parses a local time hands in the present and the time zone.
//! Invariants: 1. whatever `Display` prints, `FromStr` reads back as the same value; 2. no text
//! makes a parser panic; 3. every error has a message for people and, where one is possible, a
//! hint.

mod calendar;
mod cron;
mod extent;
mod file;
mod granularity;
mod local;
mod malformed;
mod moment;
mod name;
mod names;
mod network;
mod number;
mod pattern;
mod position;
mod role;
mod sensitivity;
mod size;
mod span;
mod time;
mod timing;

pub use calendar::Period;
pub use cron::Cron;
pub use extent::MapExtent;
pub use file::{FILE_NAME_BYTES_MAX, FileId, FileName, FileNameError, Generation, Inode};
pub use granularity::Granularity;
pub use jiff::tz::TimeZone;
pub use local::Reading;
pub use malformed::Malformed;
pub use moment::{Moment, VolumeMoment};
pub use name::{MarkName, NAME_CHARS_MAX, VolumeName};
pub use network::Network;
pub use pattern::NamePattern;
pub use position::{BLOCK_BYTES, BlockCount, Lba, Seq};
pub use role::Role;
pub use sensitivity::Sensitivity;
pub use size::Size;
pub use span::Span;
pub use time::{TimeError, WallTime};
pub use timing::Timing;
