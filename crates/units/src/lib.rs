//! The words of the contract as types: positions, times, moments, sizes, spans, and their parsing. No I/O.

mod moment;
mod position;
mod size;
mod span;
mod time;

pub use moment::{Moment, MomentError};
pub use position::{BLOCK_BYTES, BlockCount, Lba, Seq};
pub use size::{Size, SizeError};
pub use span::{Span, SpanError};
pub use time::{TimeError, WallTime};
