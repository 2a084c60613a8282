//! Work that goes on while a pool on several members is served.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use block::Standing;
use volume::Pool;

use crate::member_changes;

/// How long marks on regions stay after the last write there, at least.
const TIDY_EVERY: Duration = Duration::from_secs(5);

/// Keeps the marks on the members' regions few, and tells of members that are not in.
pub(crate) struct MemberWatch {
    dir: PathBuf,
    tidied: Instant,
    outs: Vec<String>,
}

impl MemberWatch {
    /// Watches the members of the pool in a directory.
    pub(crate) fn new(dir: PathBuf) -> MemberWatch {
        MemberWatch { dir, tidied: Instant::now(), outs: Vec::new() }
    }

    /// Does what is due.
    pub(crate) fn look(&mut self, pool: &Pool) {
        if self.tidied.elapsed() < TIDY_EVERY {
            return;
        }
        self.tidied = Instant::now();
        if let Err(error) = pool.tidy_members() {
            tracing::error!(%error, "the marks of members could not be written");
        }
        if let Err(error) = member_changes::follow_spares(&self.dir, pool) {
            tracing::error!(%error, "pool.stack does not say that a spare is a member");
        }
        let members = pool.members().into_iter();
        let outs: Vec<String> =
            members.filter(|m| m.standing == Standing::Out).map(|m| m.path).collect();
        for member in outs.iter().filter(|path| !self.outs.contains(path)) {
            tracing::error!(member, "a member of the pool is out; see `hindsight pool audit`");
        }
        for member in self.outs.iter().filter(|path| !outs.contains(path)) {
            tracing::info!(member, "a member of the pool is in use again");
        }
        self.outs = outs;
    }
}
