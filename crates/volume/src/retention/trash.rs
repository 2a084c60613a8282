//! Deleting volumes: into the trash, out of it again, and for good.
//!
//! Invariants
//! 1. A volume in the trash is whole: its history, versions, marks and schedule, and its places in
//!    groups. Nothing of it expires, nobody writes to it, and nobody finds it by its name.
//! 2. It goes for good when its grace period is over, when that is asked for, or when room is
//!    wanted and nothing expired is left: the one that was deleted first goes first.
//! 3. Which map a volume is in (`served` or `ghosts`) changes under the books, as its record does.

use std::sync::Arc;

use units::WallTime;

use crate::catalogue::{TrashRecord, VolumeRecord, all_of, tables};
use crate::names::check_name;
use crate::pool::Engine;
use crate::pool::volumes::Volumes;
use crate::retention::grace::GRACE_NS;
use crate::retention::groups::Groups;
use crate::retention::moments::Moments;
use crate::retention::pins::Pins;
use crate::types::{Access, DeletedVolume, Deletion, Grace, Reservations};
use crate::volume::Volume;
use crate::{Error, ErrorKind, Result};

/// How long a deleted volume can be had back, if nothing else is said: a week, in nanoseconds.
pub const TRASH_NS: u64 = 7 * 24 * 3600 * 1_000_000_000;

/// Why a volume goes for good, and from where.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Somebody deletes one that is served; unless forced, not with versions or pinned marks.
    Asked { force: bool },
    /// Somebody deletes one in the trash, which went there so.
    Emptied(TrashRecord),
    /// Its grace period is over.
    Over(TrashRecord),
    /// A write found no room.
    NoRoom(TrashRecord),
    /// It is a scratch clone: its time is over, or nobody needs it any more.
    Scratch,
    /// It is one, and a write found no room.
    ScratchNoRoom,
}

impl End {
    /// How it went into the trash.
    fn trash(self) -> Option<TrashRecord> {
        match self {
            End::Asked { .. } | End::Scratch | End::ScratchNoRoom => None,
            End::Emptied(trash) | End::Over(trash) | End::NoRoom(trash) => Some(trash),
        }
    }

    fn told(self, record: &VolumeRecord) -> (&'static str, String) {
        let what = format!("volume {} with its history", record.id);
        let since = WallTime::from_nanos(record.trash.map_or(0, |trash| trash.deleted_ns));
        match self {
            End::Asked { .. } => ("volume-delete", what),
            End::Scratch => ("volume-delete", format!("{what}: it was a scratch clone")),
            End::Emptied(_) => ("volume-delete", format!("{what}, in the trash since {since}")),
            End::Over(_) => {
                ("trash-expire", format!("{what}: in the trash since {since}, its grace is over"))
            }
            End::NoRoom(_) => (
                "sacrifice",
                format!("{what}: the pool was full, and this was in the trash since {since}"),
            ),
            End::ScratchNoRoom => {
                ("sacrifice", format!("{what}: the pool was full, and this was a scratch clone"))
            }
        }
    }
}

/// How many versions and pinned marks there are.
fn pinned_counts(pins: &Pins) -> (u64, u64) {
    let marks = pins.marks().filter(|(_, mark)| mark.pinned).count();
    (pins.version_count() as u64, marks as u64)
}

/// The error of a number that no volume in the trash has.
#[must_use]
pub fn not_in_trash(which: &str) -> Error {
    Error::not_found(format!("there is no deleted volume {which}"))
        .with_hint("`hindsight volume list --deleted` names them")
}

/// A volume that somebody took out of the trash meanwhile stays.
fn unless_taken_out(destroyed: Result<()>) -> Result<()> {
    destroyed.or_else(|error| match error.kind {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

impl VolumeRecord {
    /// Keeps, for a day, what would have left the window while the volume was in the trash.
    fn keep_what_stood_still(&mut self, trash: TrashRecord, now: WallTime) {
        let deleted = WallTime::from_nanos(trash.deleted_ns);
        let away_ns = now.as_nanos().saturating_sub(trash.deleted_ns);
        let left_ns = self.grace.map_or(0, |grace| grace.until_ns.saturating_sub(trash.deleted_ns));
        self.grace = Some(Grace {
            until_ns: now.as_nanos().saturating_add(GRACE_NS.max(left_ns)),
            window_ns: self.window_in_force(deleted).saturating_add(away_ns),
            history_limit_bytes: self.limit_in_force(deleted),
        });
    }
}

impl Volumes {
    /// The volumes in the trash, in the order of their deletion.
    ///
    /// # Errors
    /// `Corrupt` or `Io`, where space cannot be told.
    pub fn trash(&self) -> Result<Vec<DeletedVolume>> {
        let told = |(volume, trash): (Arc<Volume>, TrashRecord)| volume.told_deleted(trash);
        self.in_trash().into_iter().map(told).collect()
    }

    /// Takes a volume out of the trash, under the name that it had or another one.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Invalid`, `Refused`.
    pub fn undelete_volume(&self, id: u64, name: Option<&str>) -> Result<Arc<Volume>> {
        self.check_open()?;
        name.map_or(Ok(()), |name| check_name("volume", name))?;
        let core = &self.core;
        let mut tx = core.begin()?;
        let (volume, trash) = self.trashed(id)?;
        let name = name.unwrap_or(&volume.name).to_owned();
        self.check_unused(&name)
            .map_err(|error| error.with_hint("give the deleted one another name (--as NEWNAME)"))?;
        let record = tx.change(&volume.record);
        record.trash = None;
        record.keep_what_stood_still(trash, core.machine.clock.wall());
        record.name.clone_from(&name);
        let since = WallTime::from_nanos(trash.deleted_ns);
        let detail = format!("volume {id}, in the trash since {since} as {}", volume.name);
        tx.audit("volume-undelete", &name, detail)?;
        let books = tx.commit()?;
        volume.set_in_trash(false);
        volume.name.change(&name);
        self.registry.serve_again(&volume);
        drop(books);
        self.share_memory();
        Ok(volume)
    }
}

impl Engine {
    /// Deletes a volume for good, with all that is pinned of it. Blocks that clones still need stay
    /// until they are gone.
    ///
    /// # Errors
    /// `NotFound`, `Refused`, `Io`.
    pub fn delete_volume(&self, name: &str) -> Result<()> {
        let asked = Deletion { grace_ns: Some(0), force: true, dry_run: false };
        self.remove_volume(name, asked).map(drop)
    }

    /// Deletes a volume: into the trash, or for good where the grace period is nothing. Says what
    /// becomes of it.
    ///
    /// # Errors
    /// `NotFound`, `Refused`, `Io`; `Busy` unless it is forced while there are versions or pinned
    /// marks.
    pub fn remove_volume(&self, name: &str, asked: Deletion) -> Result<DeletedVolume> {
        self.remove(&self.volume(name)?, asked)
    }

    /// The same of a volume, whatever it is called meanwhile.
    ///
    /// # Errors
    /// Those of [`Engine::remove_volume`].
    pub fn remove(&self, volume: &Arc<Volume>, asked: Deletion) -> Result<DeletedVolume> {
        self.check_open()?;
        volume.check_served()?;
        if !asked.force {
            volume.check_unpinned(&volume.pins().lock())?;
        }
        let deleted_ns = self.core.machine.clock.wall().as_nanos();
        // Nobody looks for a scratch clone in the trash.
        let is_scratch = volume.is_scratch();
        let grace_ns = if is_scratch { 0 } else { asked.grace_ns.unwrap_or(TRASH_NS) };
        let trash = TrashRecord { deleted_ns, until_ns: deleted_ns.saturating_add(grace_ns) };
        let told = volume.told_deleted(trash)?;
        if asked.dry_run {
            return Ok(told);
        }
        if is_scratch {
            self.remove_scratch(volume)?;
            return Ok(told);
        }
        if grace_ns == 0 {
            let mut work = self.work.lock();
            self.destroy(volume, End::Asked { force: asked.force })?;
            work.purge()?;
            return Ok(told);
        }
        self.put_away(volume, trash, asked.force)?;
        self.share_memory();
        Ok(told)
    }

    /// Deletes a scratch clone for good, and nothing else: one that was given a name of its own
    /// meanwhile stays.
    ///
    /// # Errors
    /// `NotFound` if it is none, or gone; `Refused`, `Io`.
    pub fn remove_scratch(&self, volume: &Arc<Volume>) -> Result<()> {
        self.check_open()?;
        let mut work = self.work.lock();
        self.destroy(volume, End::Scratch)?;
        work.purge()
    }

    /// Deletes for good what is in the trash under a number.
    ///
    /// # Errors
    /// `NotFound`, `Refused`, `Io`.
    pub fn empty_trash(&self, id: u64, dry_run: bool) -> Result<DeletedVolume> {
        self.check_open()?;
        let (volume, trash) = self.trashed(id)?;
        let told = volume.told_deleted(trash)?;
        if !dry_run {
            let mut work = self.work.lock();
            self.destroy(&volume, End::Emptied(trash))?;
            work.purge()?;
        }
        Ok(told)
    }
}

impl Volumes {
    /// The volumes in the trash, in the order of their deletion.
    pub(crate) fn in_trash(&self) -> Vec<(Arc<Volume>, TrashRecord)> {
        let ghosts = self.registry.ghosts();
        let trashed = |volume: Arc<Volume>| {
            let trash = volume.record.lock().trash.filter(|_| !volume.is_gone())?;
            Some((volume, trash))
        };
        let mut all: Vec<_> = ghosts.into_iter().filter_map(trashed).collect();
        all.sort_by_key(|(volume, trash)| (trash.deleted_ns, volume.id));
        all
    }

    /// The scratch clones, those first that may go first, and when they may.
    pub fn scratch_clones(&self) -> Vec<(Arc<Volume>, WallTime)> {
        let told = |volume: Arc<Volume>| {
            let until = volume.scratch_until_ns()?;
            Some((volume, WallTime::from_nanos(until)))
        };
        let mut all: Vec<_> = self.registry.served().into_iter().filter_map(told).collect();
        all.sort_by_key(|(volume, until)| (*until, volume.id));
        all
    }

    fn trashed(&self, id: u64) -> Result<(Arc<Volume>, TrashRecord)> {
        let found = self.in_trash().into_iter().find(|(volume, _)| volume.id == id);
        found.ok_or_else(|| not_in_trash(&id.to_string()))
    }

    fn put_away(&self, volume: &Arc<Volume>, trash: TrashRecord, force: bool) -> Result<()> {
        // Nothing is pinned between the look and the commit.
        let pins = volume.pins().lock();
        if !force {
            volume.check_unpinned(&pins)?;
        }
        let mut tx = volume.begin()?;
        volume.check_served()?;
        tx.change(&volume.record).trash = Some(trash);
        let until = WallTime::from_nanos(trash.until_ns);
        let detail = format!("volume {}: it can be had back until {until}", volume.id);
        tx.audit("volume-delete", &volume.name, detail)?;
        let _books = tx.commit()?;
        volume.set_in_trash(true);
        self.registry.withdraw(volume);
        Ok(())
    }
}

impl Groups {
    /// Deletes for good what has been in the trash for long enough. The caller has the work.
    ///
    /// # Errors
    /// `Refused`, `Io`.
    pub(crate) fn expire_trash(&self) -> Result<()> {
        let now_ns = self.core.time().as_nanos();
        for (volume, trash) in self.in_trash() {
            if trash.until_ns <= now_ns {
                unless_taken_out(self.destroy(&volume, End::Over(trash)))?;
            }
        }
        Ok(())
    }

    /// Deletes for good, for want of room, what was deleted first; false when the trash is empty.
    /// The caller has the work.
    ///
    /// # Errors
    /// `Refused`, `Io`.
    pub(crate) fn sacrifice_trash(&self) -> Result<bool> {
        let Some((volume, trash)) = self.in_trash().into_iter().next() else { return Ok(false) };
        unless_taken_out(self.destroy(&volume, End::NoRoom(trash))).map(|()| true)
    }

    /// Deletes a scratch clone, for want of room; false when there is none. Clients that have it
    /// open see it gone. The caller has the work.
    ///
    /// # Errors
    /// `Refused`, `Io`.
    pub(crate) fn sacrifice_scratch(&self) -> Result<bool> {
        let Some((volume, _)) = self.scratch_clones().into_iter().next() else { return Ok(false) };
        unless_taken_out(self.destroy(&volume, End::ScratchNoRoom)).map(|()| true)
    }

    /// Deletes a volume for good. It is removed as soon as no clone needs any of it. The caller has
    /// the work.
    fn destroy(&self, volume: &Arc<Volume>, end: End) -> Result<()> {
        // Nothing is pinned between the look and the commit.
        let mut pins = volume.pins().lock();
        if end == (End::Asked { force: false }) {
            volume.check_unpinned(&pins)?;
        }
        // Waiting writes go with it: deletes need no room.
        volume.cache().hold();
        let deleted = volume.log().with_gate(|gate| -> Result<()> {
            let mut tx = volume.begin()?;
            let record = tx.change(&volume.record);
            // It went into the trash meanwhile, or out of it, or in once more.
            if record.trash != end.trash() {
                return Err(not_in_trash(&volume.name));
            }
            // Somebody has named it, and so kept it; or it is gone.
            let is_of_scratch = matches!(end, End::Scratch | End::ScratchNoRoom);
            if is_of_scratch && record.scratch_until_ns.is_none() {
                return Err(Error::not_found(format!("{} is no scratch clone", volume.name)));
            }
            let (action, detail) = end.told(record);
            record.deleted = true;
            record.name = String::new();
            record.conversion = None;
            record.trash = None;
            record.scratch_until_ns = None;
            record.proofs = Vec::new();
            record.watch = None;
            record.access = Access::default();
            record.reservations = Reservations::default();
            record.share = None;
            tx.remove_pins(volume.id)?;
            volume.compactions.remove_all(volume.id, &tx)?;
            let groups = self.groups_without(volume.id, &tx)?;
            if volume.schedule.lock().is_some() {
                tx.remove(tables::SCHEDULES, volume.id)?;
            }
            if volume.present().current.is_some() {
                tx.remove_all(tables::SLABS, all_of(volume.id))?;
            }
            tx.audit(action, &volume.name, detail)?;
            let _books = tx.commit()?;
            volume.set_gone();
            // Its zone is given to others: a flush that is under way must leave no mark there.
            gate.seal();
            volume.compactions.clear();
            self.set_groups(groups);
            if matches!(end, End::Asked { .. } | End::Scratch | End::ScratchNoRoom) {
                self.registry.withdraw(volume);
            }
            volume.cache().discard();
            Ok(())
        });
        volume.cache().release(volume.log().stable(), volume.log().last_time());
        deleted?;
        if let Some(current) = &volume.present().current {
            current.retire();
        }
        pins.clear();
        drop(pins);
        *volume.schedule.lock() = None;
        self.share_memory();
        Ok(())
    }
}

impl Moments {
    fn check_unpinned(&self, pins: &Pins) -> Result<()> {
        let (versions, marks) = pinned_counts(pins);
        if (versions, marks) == (0, 0) {
            return Ok(());
        }
        let text = format!("{} has {versions} versions and {marks} pinned marks", self.name);
        Err(Error::busy(text).with_hint("delete them, or force it (--force, ?force=true)"))
    }

    fn told_deleted(&self, trash: TrashRecord) -> Result<DeletedVolume> {
        let space = self.space()?;
        let (versions, pinned_marks) = pinned_counts(&self.pins().lock());
        Ok(DeletedVolume {
            id: self.id,
            name: self.name().to_owned(),
            size_bytes: self.size_bytes(),
            deleted: WallTime::from_nanos(trash.deleted_ns),
            until: WallTime::from_nanos(trash.until_ns),
            live_bytes: space.live_bytes,
            history_bytes: space.history_bytes,
            versions,
            pinned_marks,
        })
    }
}
