//! How a volume comes to be: what a commit has of it, and what memory has once it is committed.

use std::sync::Arc;

use history::Branch;
use units::Seq;

use crate::catalogue::transaction::Transaction;
use crate::catalogue::{TimelineRecord, VolumeRecord};
use crate::core::Core;
use crate::pool::Origin;
use crate::volume::Volume;
use crate::{Error, ErrorKind, Result};

/// A volume that is in a transaction.
pub struct Newborn {
    record: VolumeRecord,
    timeline: TimelineRecord,
    branch: Option<Branch>,
}

impl Newborn {
    /// Its id.
    pub fn id(&self) -> u64 {
        self.record.id
    }
}

impl Core {
    /// Puts a new volume into a transaction. `told` is the action and detail of its audit record.
    ///
    /// # Errors
    /// `Exists`, `Invalid`; `NotFound` where its origin is deleted; those of the catalogue.
    pub fn prepare_volume(
        &self,
        mut record: VolumeRecord,
        origin: Origin<'_>,
        tx: &mut Transaction<'_>,
        (action, detail): (&str, String),
    ) -> Result<Newborn> {
        // An origin that is deleted meanwhile is deleted under the same books: its past may be
        // gone.
        let (branch, source) = match origin {
            Origin::Nothing => (None, None),
            Origin::Moment(origin, branch, source) => {
                origin.check_served()?;
                // It may have been renamed since the record was begun.
                if let Some((name, _)) = &mut record.cloned_from {
                    origin.name().clone_into(name);
                }
                (Some(branch), source)
            }
            Origin::File(source) => (None, Some(source)),
        };
        if self.volumes.read().contains_key(&record.name) {
            let text = format!("there is a volume {} already", record.name);
            return Err(Error::new(ErrorKind::Exists, text));
        }
        self.check_cache(record.cache, None)?;
        tx.numbers.volume += 1;
        tx.numbers.timeline += 1;
        record.id = tx.numbers.volume;
        record.line = vec![(record.created_seq, tx.numbers.timeline)];
        let timeline = TimelineRecord {
            id: tx.numbers.timeline,
            log: record.id,
            parent: branch.as_ref().map(|b| (b.timeline.id, b.seq.0)),
            source: source.map(|source| tx.numbers.keep_orders(source)),
        };
        if record.architecture.has_current_store() {
            tx.begin_slabs()?;
        }
        if record.architecture.has_base() {
            tx.begin_bases()?;
        }
        tx.put_volume(&record)?;
        tx.put_timeline(&timeline)?;
        tx.audit(action, &record.name, detail)?;
        Ok(Newborn { record, timeline, branch })
    }

    /// Takes up a new volume that was committed, under the same books.
    ///
    /// # Errors
    /// `Corrupt`, from the catalogue.
    pub fn take_volume(self: &Arc<Self>, newborn: Newborn) -> Result<Arc<Volume>> {
        let Newborn { record, timeline, branch } = newborn;
        let map = self.timeline_of(&timeline, record.extent, branch, Vec::new());
        self.timelines.write().insert(timeline.id, (timeline, map));
        let volume = Arc::new(Volume::start(Arc::clone(self), record)?);
        self.volumes.write().insert(volume.name().to_owned(), Arc::clone(&volume));
        Ok(volume)
    }

    /// The record of a clone of a volume at a seq that begins with another one, where it branches
    /// off, and what is told of it.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn clone_record(
        &self,
        origin: &Volume,
        (seq, Seq(begin)): (Seq, Seq),
        name: &str,
    ) -> Result<(VolumeRecord, Branch, String)> {
        let record = origin.record.lock().clone();
        let parent = record.timeline_at(seq);
        let timeline = self.timeline(parent).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("timeline {parent} is not there"))
        })?;
        let now = self.machine.clock.wall().as_nanos();
        let Seq(at) = seq;
        let detail = format!("from {} at seq {at}", origin.name);
        let clone = VolumeRecord {
            id: 0,
            name: name.to_owned(),
            created_ns: now,
            created_seq: begin,
            cloned_from: Some((origin.name().to_owned(), at)),
            granularities: vec![(begin, record.granularity_at(Seq(u64::MAX)))],
            sizes: vec![(begin, record.size_at(seq))],
            line: Vec::new(),
            events: Vec::new(),
            horizon_seq: begin,
            horizon_ns: now,
            reclaimed_to: begin,
            flushed_seq: begin,
            flushed_ns: now,
            flushed_bytes_total: 0,
            flushed_flushes_total: 0,
            voids: Vec::new(),
            next_version: 0,
            placed: Vec::new(),
            conversion: None,
            common: 0,
            uncut: 0,
            grace: None,
            hook: None,
            trash: None,
            ..record
        };
        Ok((clone, Branch { timeline, seq }, detail))
    }
}
