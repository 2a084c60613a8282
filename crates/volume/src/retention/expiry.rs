//! How history leaves the past: by the window, by the history limit, and for want of room.
//!
//! The order of sacrifice when the pool is full: expired history first; then volumes in the trash,
//! the one that was deleted first first; then scratch clones; then what is kept only for a grace
//! period; then the oldest unpinned history of the volume that retains most seqs, half at a time.
//! Pinned moments and the present never, but those of scratch clones. Each has a line in the audit
//! log, with its reason. Of the last some is given up before the pool is full (`jobs/room_ahead`).

pub mod told;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use history::{By, Content, Segment};
use units::{Seq, WallTime};

use crate::Result;
use crate::catalogue::tables;
use crate::jobs::job::spare_others;
use crate::jobs::parts::Parts;
use crate::retention::Retention;
use crate::retention::expiry::told::{Expired, Why};
use crate::types::{KeptFor, Sacrifice, Stamp};
use crate::volume::Volume;

/// The horizon moves by at least this much, in nanoseconds: each move is a durable commit.
const EXPIRY_STEP_NS: u64 = 250_000_000;

/// The history that would be given up next.
struct Offering {
    volume: Arc<Volume>,
    to: Seq,
    why: Why,
}

impl Parts {
    /// The history that would be given up next if a write found no room: that of a grace period, or
    /// else the older half of the unpinned history of the volume that retains most seqs. A write
    /// that was never retained is no history, however many seqs it took.
    fn next_offering(&self) -> Result<Option<Offering>> {
        // History that cannot be reclaimed for damage is not given up for nothing.
        let mut volumes = self.registry.all();
        volumes.retain(|v| {
            let stable = v.log().stable();
            let record = v.record.lock();
            !v.reclamation().is_ailing()
                && record.trash.is_none()
                && record.has_unpinned_past(stable)
        });
        let mut graced: Option<(u64, Offering)> = None;
        for volume in &volumes {
            let outcome = volume.announced_horizon();
            let Some(to) = spare_others(volume, outcome, &mut None)? else { continue };
            // Another expiry may have raised the horizon beyond it meanwhile.
            let span = to.0.saturating_sub(volume.record.lock().horizon_seq);
            if graced.as_ref().is_none_or(|(most, _)| *most <= span) {
                let volume = Arc::clone(volume);
                graced = Some((span, Offering { volume, to, why: Why::NoRoomInGrace }));
            }
        }
        if let Some((_, offering)) = graced {
            return Ok(Some(offering));
        }
        let span = |v: &Arc<Volume>| {
            let stable = v.log().stable().0;
            stable.saturating_sub(v.record.lock().horizon_seq)
        };
        let Some(volume) = volumes.into_iter().max_by_key(span) else { return Ok(None) };
        let span = span(&volume);
        if span == 0 {
            return Ok(None);
        }
        let to = Seq(volume.record.lock().horizon_seq + span.div_ceil(2));
        Ok(Some(Offering { volume, to, why: Why::NoRoom }))
    }

    /// Gives up what goes next; false when nothing is left to give up. The caller has the work.
    pub(crate) fn sacrifice(&self) -> Result<bool> {
        if self.sacrifice_trash()? || self.sacrifice_scratch()? {
            return Ok(true);
        }
        let Some(offering) = self.next_offering()? else { return Ok(false) };
        self.give_up(offering).map(|()| true)
    }

    /// Gives up as much of the history in windows as takes so many bytes, or half of it if figures
    /// do not tell, before a write finds no room; false when other things go first, or nothing is
    /// left. The caller has the work.
    pub(crate) fn sacrifice_ahead(&self, bytes: u64) -> Result<bool> {
        if !self.in_trash().is_empty() || !self.scratch_clones().is_empty() {
            return Ok(false);
        }
        let offering = self.next_offering()?;
        let Some(offering) = offering.filter(|one| one.why == Why::NoRoom) else {
            return Ok(false);
        };
        let to = offering.volume.seq_that_frees(bytes)?.unwrap_or(offering.to);
        self.give_up(Offering { to, ..offering }).map(|()| true)
    }

    fn give_up(&self, Offering { volume, to, why }: Offering) -> Result<()> {
        let raised = volume.raise_horizon(to, None, why);
        spare_others(&volume, raised, &mut None)
    }

    /// The history that a full pool would give up next.
    ///
    /// # Errors
    /// `Corrupt` or `Io`, from a time index.
    pub fn next_sacrifice(&self) -> Result<Option<Sacrifice>> {
        let whole = |volume: &Volume, kept_for| -> Result<Option<Sacrifice>> {
            let (from, to) = (volume.info()?.oldest, volume.latest_told()?);
            Ok(Some(Sacrifice { volume: volume.name().to_owned(), from, to, kept_for }))
        };
        if let Some((volume, _)) = self.in_trash().first() {
            return whole(volume, KeptFor::Trash);
        }
        if let Some((volume, _)) = self.scratch_clones().first() {
            return whole(volume, KeptFor::Scratch);
        }
        let Some(Offering { volume, to, why }) = self.next_offering()? else {
            return Ok(None);
        };
        let record = volume.record.lock().clone();
        let from = Stamp::of(record.horizon_seq, record.horizon_ns);
        Ok(Some(Sacrifice {
            volume: volume.name().to_owned(),
            from,
            to: volume.stamp(to)?,
            kept_for: match why {
                Why::NoRoomInGrace => KeptFor::Grace,
                _ => KeptFor::Window,
            },
        }))
    }
}

impl Retention {
    /// Moves the horizon to where the window says; to where the history limit says only when
    /// nothing is being reclaimed: what the last move freed is not known before.
    pub(crate) fn expire(&self, is_settled: bool) -> Result<()> {
        self.end_grace()?;
        let record = self.record.lock().clone();
        if record.deleted || record.trash.is_some() {
            return Ok(());
        }
        let now = self.core.time();
        let window_ns = record.window_in_force(now);
        let start = WallTime::from_nanos(now.as_nanos().saturating_sub(window_ns));
        // Commits cost a flush: move in steps of a hundredth of the window.
        let step = (window_ns / 100).max(EXPIRY_STEP_NS);
        if start.as_nanos() > record.horizon_ns.saturating_add(step)
            && let Some(entry) = self.time_entry(By::Time(start))?
            && entry.seq.0 > record.horizon_seq
        {
            self.raise_horizon(entry.seq, Some(start), Why::Window(window_ns))?;
        }
        let Some(limit) = record.limit_in_force(now) else { return Ok(()) };
        let is_settled =
            is_settled && !self.reclamation().is_under_way() && !self.reclamation().is_wanted();
        if !is_settled {
            return Ok(());
        }
        let history = self.history_bytes()?;
        match history.saturating_sub(limit) {
            0 => {
                if self.is_history_doubtful(limit - history)? {
                    // The figures of history hold after the whole map was merged.
                    self.reclamation().want();
                }
                Ok(())
            }
            excess => self.expire_bytes(excess, limit),
        }
    }

    /// Expires the oldest segments' worth of history. Segments that end before the horizon hold
    /// only what is needed after it, and what is not in the map yet cannot be reclaimed.
    fn expire_bytes(&self, excess: u64, limit: u64) -> Result<()> {
        let (horizon, flushed) = {
            let record = self.record.lock();
            (Seq(record.horizon_seq), Seq(record.flushed_seq))
        };
        let mut segments = self.core.store.segments();
        let is_mixed = |content| matches!(content, Content::Pack | Content::Shared);
        let is_pack = |s: &Arc<Segment>| s.log == self.id && is_mixed(s.content());
        if segments.iter().any(is_pack) {
            return self.expire_share(excess, limit, (horizon, flushed));
        }
        segments.retain(|s| {
            let in_window = horizon < s.last_seq() && s.last_seq() <= flushed;
            s.log == self.id && s.slab.is_none() && in_window && s.sealed.load(Ordering::Acquire)
        });
        segments.sort_by_key(|s| s.last_seq());
        let mut bytes = 0;
        let mut until = None;
        for segment in segments {
            if bytes >= excess {
                break;
            }
            bytes += segment.live_bytes();
            until = Some(segment.last_seq());
        }
        match until {
            Some(seq) => self.raise_horizon(seq, None, Why::Limit(limit)),
            None => Ok(()),
        }
    }

    /// Expires as large a share of the seqs as the excess is of the history: in packs and shared
    /// batches old and new versions lie together, so that their segments do not tell where history
    /// ends.
    fn expire_share(&self, excess: u64, limit: u64, (horizon, flushed): (Seq, Seq)) -> Result<()> {
        let history = u128::from(self.history_bytes()?.max(excess).max(1));
        let span = u128::from(flushed.0.saturating_sub(horizon.0));
        let share = (span * u128::from(excess)).div_ceil(history);
        match u64::try_from(share.min(span)).unwrap_or(u64::MAX) {
            0 => Ok(()),
            share => self.raise_horizon(Seq(horizon.0 + share), None, Why::Limit(limit)),
        }
    }

    /// Makes `seq` the oldest seq that can be opened without a pin.
    fn raise_horizon(&self, seq: Seq, time: Option<WallTime>, why: Why) -> Result<()> {
        let seq = self.batch_of(seq.min(self.log().stable()))?;
        let stamp = self.stamp(seq)?;
        let pins = self.pins().lock();
        let mut tx = self.begin()?;
        let horizon_seq = tx.change(&self.record).horizon_seq;
        if seq.0 <= horizon_seq {
            return Ok(());
        }
        let now = self.core.machine.clock.wall();
        let before = self.expired.lock().filter(|before| before.takes(why, now));
        let since = before.map_or(now, |before| before.since);
        let first = before.map_or(horizon_seq, |before| before.first);
        let (last, reason) = (seq.0 - 1, why.reason());
        let mut detail = format!("seqs {first} to {last} can no longer be opened: {reason}");
        if let Some(before) = before {
            tx.remove(tables::AUDIT, before.number)?;
            detail.push_str(&format!("; since {since}"));
        }
        let record = tx.change(&self.record);
        record.horizon_seq = seq.0;
        record.horizon_ns = time.map_or(stamp.time, |t| t.max(stamp.time)).as_nanos();
        record.forget_expired(pins.first_from(Seq::ZERO));
        tx.audit(why.action(), &self.name, detail)?;
        let number = tx.numbers.audit;
        let _books = tx.commit()?;
        *self.expired.lock() = Some(Expired { number, first, since, why });
        if !matches!(why, Why::Window(_)) {
            self.reclamation().press();
        }
        Ok(())
    }
}
