//! `verify_invariants`: every structure against every other. For tests, the simulator and scrub.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use history::run::EntrySource;

use crate::pool::Pool;
use crate::{Error, ErrorKind, Result};

impl Pool {
    /// Checks that segments, runs and pending entries agree on what is live.
    ///
    /// # Errors
    /// `Corrupt` with what disagrees.
    pub fn verify_invariants(&self) -> Result<()> {
        let _work = self.core.work.lock();
        let _epoch = self.core.store.enter();
        let store = &self.core.store;
        let mut counted: BTreeMap<u64, i64> = BTreeMap::new();
        let timelines: Vec<_> =
            self.core.timelines.read().values().map(|(_, t)| Arc::clone(t)).collect();
        for timeline in &timelines {
            let runs = timeline.runs();
            if !runs.windows(2).all(|pair| pair[0].order > pair[1].order) {
                return Err(broken(format!("runs of timeline {} out of order", timeline.id)));
            }
            for run in runs {
                run.with_source(store, |source| -> history::Result<()> {
                    let mut cursor = run.run.scan(source)?;
                    while let Some(entry) = cursor.peek() {
                        *counted.entry(entry.location.segment()).or_default() += 1;
                        cursor.advance()?;
                    }
                    Ok(())
                })?;
            }
        }
        for segment in store.segments() {
            let found = counted.remove(&segment.number).unwrap_or(0);
            let expected = segment.committed_entries.load(Ordering::Acquire);
            if found != expected {
                return Err(broken(format!(
                    "segment {}: runs have {found} entries of it, its record says {expected}",
                    segment.number
                )));
            }
        }
        match counted.into_iter().next() {
            Some((segment, count)) => {
                Err(broken(format!("{count} entries of segment {segment}, which is not there")))
            }
            None => Ok(()),
        }
    }
}

fn broken(text: String) -> Error {
    Error::new(ErrorKind::Corrupt, text)
}
