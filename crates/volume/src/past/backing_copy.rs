//! Copying what lies outside into the pool, in the background, a little at a time.
//!
//! A copied block is no write: it enters the map of the timeline that the file hangs at with the
//! seq of the import, in runs below all others, and its bytes are in relocated batches, which
//! rebuilds and merges know. A job fills one segment; its commit names segment and run together.
//!
//! Invariants
//! 1. A block is copied if some moment that can be opened sees it in the file: then the first such
//!    moment does. Others are done without: none will see them again.
//! 2. The file is let go in one commit, after all pages were done since the pool was opened. A page
//!    was skipped if a write over it was not durable then; by that commit it is.
//! 3. Room is never made for copies, and the reserve is not for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use history::Timeline;
use units::BLOCK_BYTES;

use crate::catalogue::{TimelineRecord, tables};
use crate::past::backing_file::Source;
use crate::past::copy_job::{CopyJob, Page, Way};
use crate::pool::Engine;
use crate::volume::Volume;
use crate::{ErrorKind, Result};

/// How long copying rests after the file could not be read, in nanoseconds.
const AGAIN_NS: u64 = 10_000_000_000;
/// How long it rests for want of room.
const ROOM_AGAIN_NS: u64 = 1_000_000_000;

impl Engine {
    /// Copies about so many bytes from each file; true when there is more to do now. The caller
    /// holds `work`.
    ///
    /// # Errors
    /// `Refused` or `Io` after which the pool refuses writes.
    pub(crate) fn copy_outside(&self, budget_bytes: u64) -> Result<bool> {
        let mut more = false;
        for (timeline, source) in self.core.hung() {
            let now_ns = self.core.machine.clock.monotonic_ns();
            match self.copy_from(&timeline, &source, budget_bytes, now_ns) {
                Ok(goes_on) => more |= goes_on,
                Err(e) if e.kind == ErrorKind::Full => {
                    let why = "the pool has no room for more of it".to_owned();
                    self.rest(&timeline, &source, why, now_ns + ROOM_AGAIN_NS);
                }
                // Told with the volume; others are not kept from their background work.
                Err(e) if !self.core.store.has_failed() => {
                    self.rest(&timeline, &source, e.to_string(), now_ns + AGAIN_NS);
                }
                Err(e) => {
                    self.rest(&timeline, &source, e.to_string(), now_ns + AGAIN_NS);
                    return Err(e);
                }
            }
        }
        Ok(more)
    }

    /// Lets go of what is not committed; it will be copied again.
    fn rest(&self, timeline: &Timeline, source: &Source, why: String, until_ns: u64) {
        self.copies.lock().remove(&timeline.id);
        source.rest(why, until_ns);
    }

    /// Lets go of the room that copies under way hold. The caller holds `work`.
    pub(crate) fn drop_copies(&self) {
        self.copies.lock().clear();
        self.core.hung().iter().for_each(|(_, source)| source.begin_again());
    }

    /// Commits what was copied so far. The caller holds `work`.
    pub(crate) fn commit_copies(&self) -> Result<()> {
        for (timeline, source) in self.core.hung() {
            let job = self.copies.lock().remove(&timeline.id);
            if let Some(mut job) = job {
                let copied = |pages: &BTreeSet<u64>| self.note_copied(&timeline, pages);
                let (timeline, source) = (&timeline, &*source);
                job.commit(&Way { core: &self.core, timeline, source, copied: &copied })?;
            }
        }
        Ok(())
    }

    fn copy_from(
        &self,
        timeline: &Arc<Timeline>,
        source: &Source,
        budget_bytes: u64,
        now_ns: u64,
    ) -> Result<bool> {
        let owner = self.registry.all().into_iter().find(|volume| volume.id == timeline.log);
        let Some(owner) = owner.filter(|_| !source.rests(now_ns)) else { return Ok(false) };
        if let Err(e) = source.revive() {
            self.rest(timeline, source, e.to_string(), now_ns + AGAIN_NS);
            return Ok(false);
        }
        if !owner.has_plenty_of_room() {
            let why = "the pool has too little room for more of it".to_owned();
            self.rest(timeline, source, why, now_ns + ROOM_AGAIN_NS);
            return Ok(false);
        }
        source.wake();
        let under_way = self.copies.lock().remove(&timeline.id);
        let mut job = under_way.map_or_else(|| CopyJob::begin(&self.core, timeline), Ok)?;
        let copied = |pages: &BTreeSet<u64>| self.note_copied(timeline, pages);
        let way = Way { core: &self.core, timeline, source, copied: &copied };
        let mut spent = 0;
        while spent < budget_bytes.max(1) {
            let Some(page) = source.next_page(job.pages()) else {
                job.commit(&way)?;
                return self.end_copying(timeline, source, &owner, now_ns);
            };
            match job.copy_page(&way, page)? {
                Page::Copied(bytes) => spent += bytes.max(BLOCK_BYTES),
                Page::Unreadable(e) if e.kind == history::ErrorKind::Io => {
                    // Others can still be copied.
                    source.note_unreadable(&e);
                    spent += BLOCK_BYTES;
                }
                Page::Unreadable(e) => {
                    self.rest(timeline, source, e.to_string(), now_ns + AGAIN_NS);
                    return Ok(false);
                }
            }
            if job.is_full() {
                job.commit(&way)?;
            }
        }
        self.copies.lock().insert(timeline.id, job);
        Ok(true)
    }

    /// Copies no more from the files at timelines that are no more. They stay where they hang: a
    /// read that has begun must not take what it does not find for zeros.
    pub(crate) fn unhang(&self, timelines: &[Arc<Timeline>]) {
        for timeline in timelines {
            if self.core.forget_source(timeline.id) {
                self.copies.lock().remove(&timeline.id);
            }
        }
    }

    /// All was looked at: the file is let go if nothing needs it any more.
    fn end_copying(
        &self,
        timeline: &Arc<Timeline>,
        source: &Source,
        owner: &Volume,
        now_ns: u64,
    ) -> Result<bool> {
        if !source.is_done() {
            match source.take_unreadable() {
                Some(why) => source.rest(why, now_ns + AGAIN_NS),
                None => source.begin_again(),
            }
            return Ok(false);
        }
        // Slabs are found by what has just been copied: not after it is forgotten what that was.
        if self.heirs(timeline).iter().any(|volume| volume.wants_slabs()) {
            return Ok(false);
        }
        let mut tx = self.core.begin()?;
        let known = self.core.timelines.read().get(&timeline.id).map(|(record, _)| record.clone());
        let Some(known) = known else { return Ok(false) };
        let record = TimelineRecord { source: None, parent: None, ..known };
        tx.put(tables::TIMELINES, record.id, &record)?;
        let bytes = source.record().length_bytes;
        let detail = format!("all {bytes} bytes of {}", source.record().file);
        let action = if source.record().moment { "cloned" } else { "imported" };
        tx.audit(action, &owner.name, detail)?;
        let books = tx.commit()?;
        self.core.timelines.write().insert(timeline.id, (record, Arc::clone(timeline)));
        timeline.set_outside(None);
        self.core.forget_source(timeline.id);
        drop(books);
        self.core.forget_pages(|read| read.id == timeline.id);
        Ok(true)
    }

    /// Volumes whose present may show what hangs at a timeline.
    fn heirs(&self, timeline: &Timeline) -> Vec<Arc<Volume>> {
        let mut heirs = self.registry.all();
        heirs.retain(|volume| volume.present().root.id == timeline.id);
        heirs
    }

    /// Blocks of these pages are in the map now.
    fn note_copied(&self, timeline: &Timeline, pages: &BTreeSet<u64>) {
        self.core.forget_pages_of(timeline.id, pages);
        for heir in self.heirs(timeline) {
            heir.last_count().forget();
            heir.place_copied(pages);
        }
    }
}
