//! Versions that are compacted or uncompacted by hand (Clotho 3.5), whatever the volume's policy.
//!
//! The blocks of a version are those written after the version before it, up to its own moment.
//! Compacted, it is packed now beside its neighbours (`packer`), though the present has it as well;
//! uncompacted, it is taken out of packs and stays raw, and so do neighbours that were packed for
//! its sake. Both are work of full merges, as all encoding is.
//!
//! Invariants
//! 1. A request stands in the catalogue until the version is deleted, and every full merge goes by
//!    it. It is *done* only after a pass over all timelines that began after it was asked for, in
//!    which no merge failed and none was short of room.
//! 2. No moment depends on any of it: versions are where the map says, raw or packed.

use units::Seq;

use crate::Result;
use crate::catalogue::{CompactionRecord, tables};
use crate::retention::Retention;
use crate::types::{Compaction, CompactionInfo};

impl Retention {
    /// Asks for a version to be compacted or uncompacted; that is done in the background. A
    /// repeated request is done again: more may have been written over by now.
    ///
    /// # Errors
    /// `NotFound`; `Refused` or `Io`.
    pub fn compact_version(&self, number: u64, wish: Compaction) -> Result<CompactionInfo> {
        self.check_open()?;
        let pins = self.pins().lock();
        if pins.version(number).is_none() {
            return Err(self.no_version(number));
        }
        let asked_ns = self.core.machine.clock.wall().as_nanos();
        let record = CompactionRecord { wish, asked_ns, done: false, packed: 0, raw: 0 };
        let mut tx = self.begin()?;
        tx.put(tables::COMPACTIONS, (self.id, number), &record)?;
        let action = match wish {
            Compaction::Compacted => "version-compact",
            Compaction::Uncompacted => "version-uncompact",
        };
        tx.audit(action, &self.name, format!("version {number}"))?;
        drop(tx.commit()?);
        self.compaction_queue().ask(number, record);
        drop(pins);
        Ok(self.compaction_queue().info(number).expect("asked for just now"))
    }

    /// The request for a version, and its progress; `None` without one.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn compaction(&self, number: u64) -> Result<Option<CompactionInfo>> {
        self.check_open()?;
        if self.pins().lock().version(number).is_none() {
            return Err(self.no_version(number));
        }
        Ok(self.compaction_queue().info(number))
    }

    /// Everything that was asked for, by number.
    #[must_use]
    pub fn compactions(&self) -> Vec<(u64, CompactionInfo)> {
        self.compaction_queue().infos()
    }

    /// A pass over all timelines begins: what was asked for before is done when it ends. The caller
    /// holds `work`.
    pub(crate) fn begin_compactions(&self) -> Result<()> {
        let wanted = self.compaction_queue().wanted();
        let flushed = || Seq(self.record.lock().flushed_seq);
        let last = |numbers: &[u64]| {
            let pins = self.pins().lock();
            numbers.iter().filter_map(|&n| pins.version(n).map(|v| (n, v.seq))).collect::<Vec<_>>()
        };
        let versions = last(&wanted);
        if versions.iter().any(|&(_, seq)| seq > flushed()) {
            // Entries in memory are not in the runs that are merged.
            self.flush_map_if_room()?;
        }
        let done_to = flushed();
        let runs = self.own_timelines().into_iter().flat_map(|timeline| timeline.runs());
        let entries = runs.map(|run| run.footer().entries).sum();
        let reached = versions.into_iter().filter(|&(_, seq)| seq <= done_to);
        // Before: "now" is the log's, and who has closed its gate asks for the state.
        let now_ns = self.now().as_nanos();
        self.compaction_queue().begin(reached.map(|(number, _)| number).collect(), entries, now_ns);
        Ok(())
    }

    /// The pass under way has gone over every timeline.
    ///
    /// # Errors
    /// `Refused` or `Io`; it is tried again then.
    pub(crate) fn end_compactions(&self) -> Result<()> {
        let Some(pass) = self.compaction_queue().end() else { return Ok(()) };
        if pass.has_failed || pass.versions.is_empty() {
            return Ok(());
        }
        let pins = self.pins().lock();
        let mut tx = self.begin()?;
        let mut done = Vec::new();
        for &number in &pass.versions {
            let Some(record) = self.compaction_queue().record(number) else { continue };
            let record = pass.done(number, record);
            let CompactionRecord { packed, raw, .. } = record;
            tx.put(tables::COMPACTIONS, (self.id, number), &record)?;
            let (action, detail) = match record.wish {
                Compaction::Compacted if packed == 0 => {
                    ("not-compacted", "nothing packed".to_owned())
                }
                Compaction::Compacted => ("compacted", format!("{packed} blocks packed")),
                Compaction::Uncompacted => ("uncompacted", format!("{packed} blocks left packed")),
            };
            tx.audit(action, &self.name, format!("version {number}: {detail}, {raw} raw"))?;
            done.push((number, record));
        }
        drop(tx.commit()?);
        self.compaction_queue().done(done);
        drop(pins);
        Ok(())
    }
}
