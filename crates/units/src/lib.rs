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
mod moment;
mod name;
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
pub use cron::{Cron, CronError};
pub use extent::{MapExtent, MapExtentError};
pub use file::{FILE_NAME_BYTES_MAX, FileId, FileName, FileNameError, Generation, Inode};
pub use granularity::{Granularity, GranularityError};
pub use jiff::tz::TimeZone;
pub use local::Reading;
pub use moment::{Moment, MomentError, VolumeMoment};
pub use name::{MarkName, NAME_CHARS_MAX, NameError, VolumeName};
pub use network::{Network, NetworkError};
pub use pattern::{NamePattern, NamePatternError};
pub use position::{BLOCK_BYTES, BlockCount, Lba, Seq};
pub use role::{Role, RoleError};
pub use sensitivity::Sensitivity;
pub use size::{Size, SizeError};
pub use span::{Span, SpanError};
pub use time::{TimeError, WallTime};
pub use timing::Timing;
