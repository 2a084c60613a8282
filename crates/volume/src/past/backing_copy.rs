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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use history::Timeline;
use units::BLOCK_BYTES;

use crate::catalogue::{TimelineRecord, tables};
use crate::jobs::job::{Job, Left, Turn};
use crate::jobs::parts::Parts;
use crate::past::backing_file::Source;
use crate::past::copy_job::{CopyJob, Page, Way};
use crate::volume::Volume;
use crate::{ErrorKind, Result};

/// How long copying rests after the file could not be read, in nanoseconds.
const AGAIN_NS: u64 = 10_000_000_000;
/// How long it rests for want of room.
const ROOM_AGAIN_NS: u64 = 1_000_000_000;

/// Copies under way from outside, by timeline.
#[derive(Default)]
pub struct Copies(BTreeMap<u64, CopyJob>);

impl Job for Copies {
    fn name(&self) -> &'static str {
        "copies"
    }

    /// Copies about as many bytes from each file. The trouble of one is told with its volume.
    fn step(&mut self, parts: &Parts, turn: &mut Turn) -> Result<Left> {
        let hung = parts.core.hung();
        self.0.retain(|id, _| hung.iter().any(|(timeline, _)| timeline.id == *id));
        let mut more = false;
        for (timeline, source) in hung {
            let now_ns = parts.core.machine.clock.monotonic_ns();
            match self.copy_from(parts, (&timeline, &source), turn.bytes, now_ns) {
                Ok(goes_on) => more |= goes_on,
                Err(e) if e.kind == ErrorKind::Full => {
                    let why = "the pool has no room for more of it".to_owned();
                    source.rest(why, now_ns + ROOM_AGAIN_NS);
                }
                Err(e) => {
                    source.rest(e.to_string(), now_ns + AGAIN_NS);
                    if parts.core.store.has_failed() {
                        return Err(e);
                    }
                }
            }
        }
        Ok(Left::NOW.when(more))
    }

    fn give_up(&mut self, parts: &Parts) {
        self.0.clear();
        parts.core.hung().iter().for_each(|(_, source)| source.begin_again());
    }

    /// Commits what was copied so far.
    fn finish(&mut self, parts: &Parts) -> Result<()> {
        for (timeline, source) in parts.core.hung() {
            if let Some(mut job) = self.0.remove(&timeline.id) {
                let copied = |pages: &BTreeSet<u64>| note_copied(parts, &timeline, pages);
                let (timeline, source) = (&timeline, &*source);
                job.commit(&Way { timeline, source, copied: &copied })?;
            }
        }
        Ok(())
    }
}

impl Copies {
    /// True when there is more to do now. Where it rests, what is not committed is let go, and will
    /// be copied again.
    fn copy_from(
        &mut self,
        parts: &Parts,
        (timeline, source): (&Arc<Timeline>, &Source),
        budget_bytes: u64,
        now_ns: u64,
    ) -> Result<bool> {
        let owner = parts.registry.all().into_iter().find(|volume| volume.id == timeline.log);
        let Some(owner) = owner.filter(|_| !source.rests(now_ns)) else { return Ok(false) };
        let under_way = self.0.remove(&timeline.id);
        if let Err(e) = source.revive() {
            source.rest(e.to_string(), now_ns + AGAIN_NS);
            return Ok(false);
        }
        if !owner.has_plenty_of_room() {
            let why = "the pool has too little room for more of it".to_owned();
            source.rest(why, now_ns + ROOM_AGAIN_NS);
            return Ok(false);
        }
        source.wake();
        let mut job = under_way.map_or_else(|| CopyJob::begin(&parts.core, timeline), Ok)?;
        let copied = |pages: &BTreeSet<u64>| note_copied(parts, timeline, pages);
        let way = Way { timeline, source, copied: &copied };
        let mut spent = 0;
        while spent < budget_bytes.max(1) {
            let Some(page) = source.next_page(&|page| job.has(page)) else {
                job.commit(&way)?;
                return end_copying(parts, timeline, source, &owner, now_ns);
            };
            match job.copy_page(&way, page)? {
                Page::Copied(bytes) => spent += bytes.max(BLOCK_BYTES),
                Page::Unreadable(e) if e.kind == history::ErrorKind::Io => {
                    // Others can still be copied.
                    source.note_unreadable(&e);
                    spent += BLOCK_BYTES;
                }
                Page::Unreadable(e) => {
                    source.rest(e.to_string(), now_ns + AGAIN_NS);
                    return Ok(false);
                }
            }
            if job.is_full() {
                job.commit(&way)?;
            }
        }
        self.0.insert(timeline.id, job);
        Ok(true)
    }
}

/// All was looked at: the file is let go if nothing needs it any more.
fn end_copying(
    parts: &Parts,
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
    if heirs(parts, timeline).iter().any(|volume| volume.wants_slabs()) {
        return Ok(false);
    }
    let mut tx = parts.core.begin()?;
    let known = parts.core.timelines.read().get(&timeline.id).map(|(record, _)| record.clone());
    let Some(known) = known else { return Ok(false) };
    let record = TimelineRecord { source: None, parent: None, ..known };
    tx.put(tables::TIMELINES, record.id, &record)?;
    let bytes = source.record().length_bytes;
    let detail = format!("all {bytes} bytes of {}", source.record().file);
    let action = if source.record().moment { "cloned" } else { "imported" };
    tx.audit(action, &owner.name, detail)?;
    let books = tx.commit()?;
    parts.core.timelines.write().insert(timeline.id, (record, Arc::clone(timeline)));
    timeline.set_outside(None);
    parts.core.forget_source(timeline.id);
    drop(books);
    parts.core.forget_pages(|read| read.id == timeline.id);
    Ok(true)
}

/// Volumes whose present may show what hangs at a timeline.
fn heirs(parts: &Parts, timeline: &Timeline) -> Vec<Arc<Volume>> {
    let mut heirs = parts.registry.all();
    heirs.retain(|volume| volume.present().root.id == timeline.id);
    heirs
}

/// Blocks of these pages are in the map now.
fn note_copied(parts: &Parts, timeline: &Timeline, pages: &BTreeSet<u64>) {
    parts.core.forget_pages_of(timeline.id, pages);
    for heir in heirs(parts, timeline) {
        heir.last_count().forget();
        heir.place_copied(pages);
    }
}
