//! Background work: spares, map flushes, merges, burying deleted volumes, and making room. Expiry
//! and sacrifice are in `expiry`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block::Purpose;
use env::RankedGuard;
use history::TimeRun;
use units::Seq;

use crate::catalogue::{all_of, tables};
use crate::core::SPARES_WANTED;
use crate::host::RoomWait;
use crate::jobs::cleaning::Haste;
use crate::jobs::merge::MergeJob;
use crate::jobs::merges::Merges;
use crate::jobs::room::Standing;
use crate::pool::Engine;
use crate::types::Budget;
use crate::volume::Volume;
use crate::{Error, ErrorKind, Result};
/// Trims of whole pages that may wait in memory: a page look-up walks them.
const PENDING_NODES_MAX: usize = 2048;
/// Bytes of free zones that are given back to the device in a step.
const GIVEN_BYTES_MAX: u64 = 4 << 20;
/// A full merge is due when this share of the retained seqs has left the window: 1 in 8.
const EXPIRED_SHARE: u64 = 8;

/// How often room is made for a request that gets no further by it, though nobody else took it.
const ROOM_TRIES: usize = 3;
/// How long a request waits at most for room while nobody takes any, in nanoseconds. It may have
/// waited long for its turn to make some, or beside a scrub, while others got on.
const ROOM_WAIT_NS: u64 = 60_000_000_000;

/// How often who waits for the right to do background work looks whether it still wants it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Engine {
    /// One step of background work; true when there is more.
    ///
    /// # Errors
    /// Those of the work.
    pub(crate) fn step_work(&self, budget: Budget) -> Result<bool> {
        let Some(mut merges) = self.work.try_lock() else { return Ok(false) };
        if self.core.is_closed() {
            return Ok(false);
        }
        self.can_wait.store(false, Ordering::Relaxed);
        self.core.store.collect_freed();
        self.note_healed()?;
        self.expire_trash(&mut merges)?;
        // Without a free zone there are no spares; writers will find out and make room.
        match self.core.make_spares(SPARES_WANTED, Purpose::Data) {
            Err(e) if e.kind != ErrorKind::Full => return Err(e),
            _ => {}
        }
        let mut damage = None;
        // A member that cannot be brought up to date keeps nothing else from being done.
        let mut behind = self.step_members().unwrap_or_else(|error| {
            damage = Some(error);
            false
        });
        let mut has_flushed = false;
        // A map that is full again at each step keeps nothing else from being done either.
        for volume in self.registry.all().iter().filter(|volume| volume.is_map_full()) {
            has_flushed |= self.flush_and_free(volume, &mut damage)?;
        }
        has_flushed |= self.flush_what_waited(&mut damage)?;
        for volume in self.registry.all() {
            self.spare_others(
                &volume,
                volume.expire(merges.full().is_none() && !merges.is_of(&volume)),
                &mut damage,
            )?;
        }
        behind |= self.copy_outside(budget.bytes)?;
        self.bury_copied(&merges, &mut damage)?;
        let mut more = behind;
        for volume in self.registry.all() {
            more |= volume.destage_behind(budget.bytes)?;
            more |= self.spare_others(&volume, volume.fill_places(), &mut damage)?;
            more |= volume.settle_places(budget.bytes)?;
            more |= volume.place_deferred(budget.bytes)?;
            volume.end_conversion(!merges.is_of(&volume))?;
        }
        let is_pressed = more;
        more |= has_flushed;
        more |= self.core.store.give_back(budget.bytes.min(GIVEN_BYTES_MAX));
        self.begin_merges(&mut merges, &mut damage)?;
        self.can_wait.store(!is_pressed && merges.can_wait(), Ordering::Relaxed);
        if merges.step(budget)? {
            return Ok(true);
        }
        // A pass that found nothing to merge is over as well.
        self.registry.all().iter().try_for_each(|volume| volume.end_conversion(true))?;
        let volumes = self.registry.served();
        for volume in volumes {
            more |= volume.count_a_version()?;
        }
        more |= self.step_dedup(budget)?;
        damage.filter(|_| !more).map_or(Ok(more), Err)
    }

    /// Writes out the map of the volume that time has asked for it longest, if any: one at a step,
    /// so that many of them keep nothing else waiting.
    fn flush_what_waited(&self, damage: &mut Option<Error>) -> Result<bool> {
        let now_ns = self.core.machine.clock.monotonic_ns();
        let mut due = self.registry.all();
        due.retain(|volume| volume.has_waited(now_ns));
        match due.iter().min_by_key(|volume| volume.pending().since_ns()) {
            Some(volume) => self.flush_and_free(volume, damage),
            None => Ok(false),
        }
    }

    /// Writes a map out, and frees what that emptied; false when damage or want of room is in the
    /// way: what comes after it may make room.
    fn flush_and_free(&self, volume: &Volume, damage: &mut Option<Error>) -> Result<bool> {
        let outcome = volume.flush_map().and_then(|()| volume.free_empty_segments());
        match outcome {
            Err(e) if e.kind == ErrorKind::Full => {
                damage.get_or_insert(e);
                Ok(false)
            }
            outcome => self.spare_others(volume, outcome.map(|()| true), damage),
        }
    }

    /// Damage in what one volume has does not keep others from their background work: it is noted,
    /// and told when there is nothing else to do.
    pub(crate) fn spare_others<T: Default>(
        &self,
        volume: &Volume,
        outcome: Result<T>,
        damage: &mut Option<Error>,
    ) -> Result<T> {
        match outcome {
            Err(e)
                if matches!(e.kind, ErrorKind::Corrupt | ErrorKind::Io)
                    && !self.core.store.has_failed() =>
            {
                volume.reclamation().set_ailing(true);
                damage.get_or_insert(e);
                Ok(T::default())
            }
            other => other,
        }
    }

    /// Removes deleted volumes of which nothing is needed any more since it was copied, unless a
    /// merge is under way: it may be of them. One that cannot be removed keeps nothing else from
    /// being done.
    fn bury_copied(&self, merges: &Merges, damage: &mut Option<Error>) -> Result<()> {
        if !merges.is_empty() {
            return Ok(());
        }
        match self.bury_ghosts() {
            Err(e) if !self.core.store.has_failed() => {
                damage.get_or_insert(e);
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Begins the merges that are wanted. The full one is asked for first: a volume whose runs are
    /// joined again and again would never have one otherwise.
    fn begin_merges(&self, merges: &mut Merges, damage: &mut Option<Error>) -> Result<()> {
        let mut volumes = self.registry.all();
        volumes.sort_by_key(|volume| volume.reclamation().is_ailing());
        if !merges.is_empty() {
            // A merge that fails ends the step, and the one under way would wait with it; two take
            // more room than one; and deleted volumes are removed between merges only.
            volumes.retain(|volume| !volume.reclamation().is_ailing());
            if self.is_room_short() || self.unneeded_ghost().is_some() {
                return Ok(());
            }
        }
        for volume in &volumes {
            if merges.takes_full(volume)
                && let Some(merge) = self.spare_others(volume, self.next_reclaim(volume), damage)?
            {
                merges.begin(merge);
            }
        }
        for volume in &volumes {
            if merges.takes_join(volume)
                && let Some(merge) = self.spare_others(volume, volume.wanted_join(), damage)?
            {
                merges.begin(merge);
            }
        }
        Ok(())
    }

    fn next_reclaim(&self, volume: &Arc<Volume>) -> Result<Option<MergeJob>> {
        if !volume.reclamation().is_under_way() {
            volume.end_compactions()?;
        }
        if volume.wants_reclaim(self.has_moves(volume))? {
            self.begin_reclaim(volume)?;
        }
        self.next_full_merge(volume, Haste::None)
    }

    /// The next full merge of a reclamation under way.
    fn next_full_merge(&self, volume: &Arc<Volume>, haste: Haste) -> Result<Option<MergeJob>> {
        loop {
            let Some(id) = volume.reclamation().next() else { return Ok(None) };
            let Some(timeline) = self.core.timeline(id) else { continue };
            let sparse = volume.sparse_segments(&timeline, haste);
            // They are for this merge or for none: should there be nothing to merge, nothing waits.
            let moves = self.dedup.lock().take_moves(id);
            let job = volume.full_merge(timeline, sparse, moves, haste == Haste::Urgent)?;
            if job.is_some() {
                return Ok(job);
            }
        }
    }

    fn begin_reclaim(&self, volume: &Volume) -> Result<()> {
        // Pending entries neither supersede anything in runs nor come home.
        match volume.flush_map() {
            Err(e) if e.kind == ErrorKind::Full => {}
            flushed => flushed?,
        }
        volume.begin_pass()?;
        volume.reclamation().begin(self.core.machine.clock.monotonic_ns());
        volume.begin_encoding()?;
        volume.free_empty_segments()?;
        self.free_empty_homes(volume)?;
        volume.begin_destage_pass();
        let horizon = volume.record.lock().reclaimable_to();
        volume.reclamation().set_out(|| volume.own_timelines().iter().map(|t| t.id).collect());
        self.reclaim_to(volume, Seq(horizon))
    }

    /// Frees slabs of a base that is being left. The caller holds `work`; nothing is coming home.
    fn free_empty_homes(&self, volume: &Volume) -> Result<()> {
        let empty = volume.empty_homes();
        if empty.is_empty() {
            return Ok(());
        }
        let tx = self.core.begin()?;
        for segment in &empty {
            tx.remove(tables::SEGMENTS, segment.number)?;
            tx.remove(tables::BASES, (volume.id, segment.slab.expect("a slab of a base")))?;
        }
        drop(tx.commit()?);
        self.core.forget_pages(|timeline| timeline.log == volume.id);
        empty.iter().filter_map(|segment| segment.slab).for_each(|slab| volume.base().remove(slab));
        self.core.store.retire_segments(&empty);
        Ok(())
    }

    /// Notes how far a reclamation that begins will have reclaimed, and removes parts of the time
    /// index that no openable moment needs.
    fn reclaim_to(&self, volume: &Volume, horizon: Seq) -> Result<()> {
        let runs = volume.times().runs();
        let pins = volume.pins().lock();
        let mut gone: Vec<Arc<TimeRun>> = Vec::new();
        for part in 0..runs.len() {
            // The last part before the horizon stays: it answers "the last write at or before". So
            // do those that pins lie in, and those behind them: a time after a pin is none of it.
            let begin = part.checked_sub(1).map_or(Seq::ZERO, |before| runs[before].first.seq);
            let is_gone = runs.get(part + 1).is_some_and(|next| {
                let last = Seq(next.first.seq.0.saturating_sub(1));
                next.last.seq < horizon && pins.seqs_within(begin, last).next().is_none()
            });
            gone.extend(is_gone.then(|| Arc::clone(&runs[part])));
        }
        drop(pins);
        if gone.is_empty() && volume.record.lock().reclaimed_to == horizon.0 {
            return Ok(());
        }
        let mut tx = self.core.begin()?;
        for run in &gone {
            tx.remove(tables::TIME_RUNS, run.id)?;
        }
        tx.change(&volume.record).reclaimed_to = horizon.0;
        drop(tx.commit()?);
        volume.times().drop_parts(|run| gone.iter().any(|part| part.id == run.id));
        gone.iter().for_each(|run| self.core.store.retire_extents(&run.pages));
        Ok(())
    }

    /// Removes deleted volumes that no clone needs any more. The caller holds `work`, with no job.
    ///
    /// # Errors
    /// `Refused` or `Io`.
    pub(crate) fn bury_ghosts(&self) -> Result<()> {
        loop {
            let Some(ghost) = self.unneeded_ghost() else { return Ok(()) };
            self.bury(&ghost)?;
        }
    }

    /// A deleted volume that no clone needs any more.
    fn unneeded_ghost(&self) -> Option<Arc<Volume>> {
        let ghosts = self.registry.ghosts();
        ghosts.into_iter().find(|ghost| ghost.is_gone() && !self.is_needed(ghost))
    }

    /// Whether a timeline of another volume branched off this one.
    fn is_needed(&self, ghost: &Volume) -> bool {
        let timelines = self.core.timelines.read();
        let own = |id: u64| timelines.get(&id).is_some_and(|(r, _)| r.log == ghost.id);
        timelines
            .values()
            .any(|(r, _)| r.log != ghost.id && r.parent.is_some_and(|(parent, _)| own(parent)))
    }

    fn bury(&self, ghost: &Volume) -> Result<()> {
        let timelines = ghost.own_timelines();
        let segments: Vec<_> =
            self.core.store.segments().into_iter().filter(|s| s.log == ghost.id).collect();
        let unnamed = match ghost.record.lock().common {
            0 => BTreeMap::new(),
            _ => self.names_elsewhere(&timelines),
        };
        let tx = self.core.begin()?;
        for timeline in &timelines {
            tx.remove(tables::TIMELINES, timeline.id)?;
            for run in timeline.runs() {
                tx.remove_map_run(run.id)?;
            }
        }
        for run in ghost.times().runs() {
            tx.remove(tables::TIME_RUNS, run.id)?;
        }
        for segment in &segments {
            tx.remove(tables::SEGMENTS, segment.number)?;
            tx.remove(tables::SPARES, segment.number)?;
        }
        self.commit_unnamed(&tx, &unnamed)?;
        if segments.iter().any(|segment| segment.slab.is_some()) {
            tx.remove_all(tables::BASES, all_of(ghost.id))?;
        }
        tx.remove_pins(ghost.id)?;
        tx.remove(tables::VOLUMES, ghost.id)?;
        drop(tx.commit()?);
        self.registry.bury(ghost);
        self.core.store.forget_space(ghost.id);
        let mut all = self.core.timelines.write();
        timelines.iter().for_each(|t| drop(all.remove(&t.id)));
        drop(all);
        self.unhang(&timelines);
        self.core.forget_pages(|timeline| timeline.log == ghost.id);
        self.core.store.retire_segments(&segments);
        self.note_unnamed(&unnamed);
        for run in timelines.iter().flat_map(|t| t.runs()) {
            self.core.store.retire_extents(&run.extents);
        }
        for run in ghost.times().runs() {
            self.core.store.retire_extents(&run.pages);
        }
        self.core.store.collect_freed();
        Ok(())
    }

    /// See `Host`.
    pub(crate) fn wait_for_room(
        &self,
        wait: &mut RoomWait,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let made = || self.core.segments_made();
        loop {
            let now_ns = self.core.machine.clock.monotonic_ns();
            let before = made();
            if before != wait.made || wait.since_ns.is_none() {
                *wait = RoomWait { since_ns: Some(now_ns), tries: 0, made: before };
            }
            let since_ns = wait.since_ns.unwrap_or(now_ns);
            wait.tries += 1;
            if self.core.is_closed()
                || !goes_on()
                || wait.tries > ROOM_TRIES
                || now_ns.saturating_sub(since_ns) > ROOM_WAIT_NS
            {
                return Ok(false);
            }
            match self.make_room(goes_on) {
                // Others have taken what was made, or may have written over what makes more.
                Err(e)
                    if e.kind == ErrorKind::Full
                        && (wait.tries < ROOM_TRIES || made() != before) => {}
                outcome => return outcome.map(|()| true),
            }
        }
    }

    /// See `Host`.
    pub(crate) fn make_room(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let Some(mut merges) = self.lock_work(goes_on) else { return Err(given_up()) };
        let enough = || self.core.store.spares().len() > 1 || self.core.store.has_room();
        self.drop_background(&mut merges);
        self.free_unshared()?;
        let mut tries = 0;
        // Free zones, live entries and segments at best: a pass that frees something may let the
        // next one free more (what it dropped leaves segments sparse, and room to empty them into).
        // A zone that became somebody's segment meanwhile was freed as well.
        let mut best = (0, u64::MAX, usize::MAX);
        loop {
            self.core.store.collect_freed();
            if enough() {
                return Ok(());
            }
            let now = self.standing();
            // All of it was gone through for an earlier write, and nothing has changed since.
            if tries == 0 && *self.refused.lock() == Some(now) {
                break;
            }
            let freed = u64::from(now.free_zones) + now.made;
            let segments = self.core.store.segments().len();
            let gets_on = freed > best.0 || now.entries < best.1 || segments < best.2;
            best = (best.0.max(freed), best.1.min(now.entries), best.2.min(segments));
            if tries > 1 && !gets_on && !self.sacrifice(&mut merges)? {
                *self.refused.lock() = Some(self.standing());
                break;
            }
            tries += 1;
            self.reclaim_all(goes_on)?;
            if !goes_on() {
                return Err(given_up());
            }
            // A delete that waits for its turn frees more than the next pass.
            RankedGuard::bump(&mut merges);
            if self.core.is_closed() {
                return Err(given_up());
            }
            self.drop_background(&mut merges);
        }
        Err(Error::new(
            ErrorKind::Full,
            "the pool is full and no unpinned history is left to give up",
        )
        .with_hint("delete versions, pinned marks, clones or volumes, or trim"))
    }

    /// The right to do background work; none when `goes_on` says no before it is had.
    pub(crate) fn lock_work(&self, goes_on: &dyn Fn() -> bool) -> Option<RankedGuard<'_, Merges>> {
        self.work.will_wait();
        loop {
            if !goes_on() {
                return None;
            }
            if let Some(work) = self.work.try_lock_for(LOOK_EVERY) {
                return Some(work).filter(|_| !self.core.is_closed());
            }
        }
    }

    fn standing(&self) -> Standing {
        // Let go at once: pins come before the books.
        let audit = self.core.books.lock().audit;
        Standing {
            free_zones: self.core.store.zone_counts().1,
            made: self.core.segments_made(),
            entries: self.core.store.space_of_all().entries,
            audit,
            views: self.registry.all().iter().map(|volume| volume.pins().lock().viewed()).sum(),
        }
    }

    /// Drops the background work that is under way: it holds room.
    pub(crate) fn drop_background(&self, merges: &mut Merges) {
        merges.give_up();
        self.drop_copies();
        self.drop_search();
    }

    /// Drops and moves together all that can be, once, as long as `goes_on`. The caller holds
    /// `work`, with no job.
    fn reclaim_all(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        for volume in self.registry.all() {
            if !goes_on() {
                return Ok(());
            }
            match self.reclaim(&volume, goes_on) {
                // There may be room for what others need to give some up.
                Err(e) if e.kind == ErrorKind::Full => {}
                outcome => self.spare_others(&volume, outcome, &mut None)?,
            }
        }
        self.bury_ghosts()
    }

    fn reclaim(&self, volume: &Arc<Volume>, goes_on: &dyn Fn() -> bool) -> Result<()> {
        volume.flush_map()?;
        volume.expire(false)?;
        self.begin_reclaim(volume)?;
        while let Some(mut merge) = self.next_full_merge(volume, Haste::Urgent)? {
            while !merge.step(1 << 16)? {
                if !goes_on() {
                    // Left to the background, like what else is to be merged.
                    merge.volume().compaction_queue().fail();
                    return Ok(());
                }
            }
        }
        volume.reclamation().set_ailing(false);
        Ok(())
    }
}

fn given_up() -> Error {
    Error::new(ErrorKind::Full, "nobody waits for the room any more")
}

impl Volume {
    /// Whether something has been pending for so long that a map flush is due.
    fn has_waited(&self, now_ns: u64) -> bool {
        if self.log().with_times(<[_]>::is_empty) {
            self.pending().reset();
            return false;
        }
        self.pending().is_due(now_ns)
    }

    /// Whether so much of the map is pending that memory asks for a flush.
    pub(crate) fn is_map_full(&self) -> bool {
        let counts = self.own_timelines().into_iter().map(|t| t.pending_counts());
        let (entries, nodes) = counts.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let batches = self.log().with_times(<[_]>::len);
        entries >= self.core.pending_max
            || nodes >= PENDING_NODES_MAX
            || batches >= self.core.pending_max
    }

    fn wants_reclaim(&self, has_moves: bool) -> Result<bool> {
        if self.reclamation().is_under_way() {
            return Ok(false);
        }
        let now_ns = self.core.machine.clock.monotonic_ns();
        let wants_moves = self.wants_destage(now_ns) || self.wants_conversion() || has_moves;
        if wants_moves || self.wants_encoding()? {
            return Ok(true);
        }
        // Before the record is locked: whoever holds the gate locks it last.
        let stable = self.log().stable().0;
        let record = self.record.lock();
        let expired = record.reclaimable_to().saturating_sub(record.reclaimed_to);
        let retained = stable.saturating_sub(record.reclaimed_to);
        let is_due = expired > 0 && expired >= retained / EXPIRED_SHARE;
        Ok(self.reclamation().is_wanted() || is_due)
    }
}
