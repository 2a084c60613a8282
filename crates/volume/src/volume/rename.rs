//! Another name for a volume.
//!
//! Invariants
//! 1. Nothing but the catalogue's record of a volume, and of its clones where they came from, knows
//!    a volume by its name: groups, schedules, versions and marks go by its id. So a rename is one
//!    commit, before which the volume has the old name, and after which it has the new one.
//! 2. Clients that have the volume open keep it: a name is only looked up when something is opened.

use std::sync::Arc;

use crate::catalogue::VolumeRecord;
use crate::names::check_name;
use crate::pool::volumes::Volumes;
use crate::volume::Volume;
use crate::{Error, Result};

impl Volumes {
    /// Gives a volume another name, or says whether it could have that.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Invalid`, `Refused`.
    pub fn rename_volume(&self, name: &str, new: &str, dry_run: bool) -> Result<Arc<Volume>> {
        self.check_open()?;
        check_name("volume", new)?;
        let volume = self.volume(name)?;
        let mut tx = volume.begin()?;
        volume.check_served()?;
        if volume.name() != name {
            let text = format!("{name} was renamed meanwhile: it is {}", volume.name());
            return Err(Error::not_found(text));
        }
        self.check_unused(new)?;
        if dry_run {
            return Ok(Arc::clone(&volume));
        }
        let record = tx.change(&volume.record);
        new.clone_into(&mut record.name);
        // A scratch clone that gets a name of its own is kept.
        record.scratch_until_ns = None;
        for clone in self.clones_of(volume.id) {
            if let Some((origin, _)) = &mut tx.change(&clone.record).cloned_from {
                new.clone_into(origin);
            }
        }
        tx.audit("volume-rename", new, format!("volume {}, which was {name}", volume.id))?;
        let _books = tx.commit()?;
        volume.name.change(new);
        self.registry.rename(name, &volume);
        Ok(Arc::clone(&volume))
    }

    /// The clones of a volume, also those in the trash.
    fn clones_of(&self, id: u64) -> Vec<Arc<Volume>> {
        let mut all = self.registry.all();
        all.retain(|volume| {
            let record = volume.record.lock().clone();
            let is_clone = record.cloned_from.is_some() && !record.deleted;
            is_clone && self.origin_of(&record) == Some(id)
        });
        all
    }

    /// The volume of which a clone began as a moment.
    fn origin_of(&self, record: &VolumeRecord) -> Option<u64> {
        let timelines = self.core.timelines.read();
        let mut at = record.timeline_now();
        loop {
            let (timeline, _) = timelines.get(&at)?;
            if timeline.log != record.id {
                return Some(timeline.log);
            }
            at = timeline.parent?.0;
        }
    }
}
