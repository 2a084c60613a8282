//! The quiet of a volume at a capture, and the files that were open on it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::Consistency;

/// Paths that are kept of a version; those beyond are counted.
const PATHS_MAX: usize = 1000;
/// Bytes of these paths.
const PATHS_BYTES_MAX: usize = 64 << 10;
/// Bytes of one path: what Linux takes.
const PATH_BYTES_MAX: usize = 4096;

/// Files that were open at a capture, as far as a hook told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenFiles {
    /// How many.
    pub count: u64,
    /// The first of them, within bounds; control characters as escapes.
    pub paths: Vec<String>,
}

impl OpenFiles {
    /// Adds a file; beyond the bounds it is only counted.
    pub fn add(&mut self, path: &str) {
        self.count += 1;
        let is_much = self.paths.len() >= PATHS_MAX
            || self.paths.iter().map(String::len).sum::<usize>() + path.len() > PATHS_BYTES_MAX;
        if is_much || path.len() > PATH_BYTES_MAX {
            return;
        }
        let escaped = |c: char| match c.is_control() {
            true => c.escape_default().collect::<String>(),
            false => c.to_string(),
        };
        self.paths.push(path.chars().map(escaped).collect());
    }
}

/// The state at the instant of a capture.
#[derive(Clone, Debug)]
pub struct Quiet {
    /// How quiet the volume was.
    pub consistency: Consistency,
    /// The files that were open on it, if somebody looked.
    pub open_files: Option<Arc<OpenFiles>>,
}

impl Consistency {
    /// That of several volumes at one instant: failed where one failed, quiesced where all are.
    #[must_use]
    pub fn of_all(all: impl IntoIterator<Item = Consistency>) -> Consistency {
        let worse = |one, other| match (one, other) {
            (Consistency::QuiesceFailed, _) | (_, Consistency::QuiesceFailed) => {
                Consistency::QuiesceFailed
            }
            (Consistency::CrashConsistent, _) => Consistency::CrashConsistent,
            (Consistency::Quiesced, other) => other,
        };
        all.into_iter().fold(Consistency::Quiesced, worse)
    }
}

impl From<Consistency> for Quiet {
    fn from(consistency: Consistency) -> Quiet {
        Quiet { consistency, open_files: None }
    }
}
