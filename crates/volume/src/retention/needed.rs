//! The moments of a timeline that can be opened, and whether what branched off shows a version.

use std::sync::{Arc, OnceLock};

use format::map::Key;
use history::{Openable, Store, Timeline};
use units::Seq;

use crate::retention::filter::{Nodes, nodes_of};

/// The moments of a timeline that can be opened.
pub struct Needed {
    /// All of them.
    pub openable: Openable,
    /// Of these: what pins and branches hold, whatever leaves the window; ascending.
    pub held: Vec<Seq>,
    /// All but those that only branches hold.
    pub own: Openable,
    /// Timelines that branched off and have something that can be opened.
    pub branches: Vec<Branch>,
}

/// A timeline that branched off another one.
pub struct Branch {
    /// Where it left that.
    pub at: Seq,
    pub timeline: Arc<Timeline>,
    /// The first of its moments that can be opened, or an earlier one, if any can.
    pub first: Option<Seq>,
    /// Its trims of larger ranges, once they were asked for.
    pub nodes: OnceLock<Nodes>,
    pub branches: Vec<Branch>,
}

impl Branch {
    /// Whether some open moment below the branch shows a version that was written at the first seq
    /// and superseded at the second. Where damage hides that, it does.
    #[must_use]
    pub fn sees(&self, store: &Store, key: Key, written: Seq, superseded: Option<Seq>) -> bool {
        let is_there = written <= self.at && superseded.is_none_or(|seq| seq > self.at);
        is_there && self.sees_through(store, key)
    }

    fn sees_through(&self, store: &Store, key: Key) -> bool {
        self.first.is_some_and(|first| !self.covers(store, key, first))
            || self.branches.iter().any(|branch| {
                !self.covers(store, key, branch.at) && branch.sees_through(store, key)
            })
    }

    /// Whether the timeline has something of its own of all of a key at a moment of it.
    fn covers(&self, store: &Store, key: Key, at: Seq) -> bool {
        let nodes = || nodes_of(store, &self.timeline).unwrap_or_default();
        if self.nodes.get_or_init(nodes).first_after(key, Seq::ZERO).is_some_and(|seq| seq <= at) {
            return true;
        }
        self.timeline.runs().iter().any(|run| {
            run.with_source(store, |source| {
                let found =
                    run.run.cursor_at(source, key, at).ok().and_then(|cursor| cursor.peek());
                found.is_some_and(|entry| entry.key == key)
            })
        })
    }
}
