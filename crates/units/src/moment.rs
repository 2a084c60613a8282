//! Moment expressions.

use crate::{Seq, Span, WallTime};

/// A moment as a user names it; a volume resolves it to a seq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The present.
    Latest,
    /// An instant.
    At(WallTime),
    /// That long ago.
    Ago(Span),
    /// The state after the write with this number.
    Seq(Seq),
    /// A captured version by number.
    Version(u64),
    /// A mark by name.
    Mark(String),
}

/// Why a text is not a moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MomentError {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}
