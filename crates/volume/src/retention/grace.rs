//! Shrinking a window or a history limit in two steps: announced, and after a grace period done.
//!
//! Invariants
//! 1. Until the grace is over history expires by what held before; nothing goes for the sake of
//!    what was announced, but for want of room.
//! 2. Setting back what held before ends the grace, and nothing was lost by it.

use history::By;
use units::{Seq, Span, WallTime};

use crate::Result;
use crate::catalogue::VolumeRecord;
use crate::retention::Retention;
use crate::types::{Grace, VolumeChange};

/// How long history is kept that a smaller window or limit takes away, if nothing else is said: a
/// day, in nanoseconds.
pub(crate) const GRACE_NS: u64 = 24 * 3600 * 1_000_000_000;

/// The words of the audit log about it.
pub type Told = (&'static str, String);

/// The larger of two limits; none is the largest.
fn looser(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.zip(b).map(|(a, b)| a.max(b))
}

impl VolumeRecord {
    /// The grace period that is under way.
    #[must_use]
    pub fn grace_at(&self, now: WallTime) -> Option<Grace> {
        self.grace.filter(|grace| now.as_nanos() < grace.until_ns)
    }

    /// The window that history expires by.
    #[must_use]
    pub fn window_in_force(&self, now: WallTime) -> u64 {
        self.grace_at(now).map_or(self.window_ns, |grace| grace.window_ns.max(self.window_ns))
    }

    /// The limit that history is held to.
    #[must_use]
    pub fn limit_in_force(&self, now: WallTime) -> Option<u64> {
        self.grace_at(now).map_or(self.history_limit_bytes, |grace| {
            looser(grace.history_limit_bytes, self.history_limit_bytes)
        })
    }

    /// Whether the past can be opened as far back as the window says, or to the beginning.
    #[must_use]
    pub fn is_window_held(&self, now: WallTime) -> bool {
        let held = now.as_nanos().saturating_sub(self.horizon_ns);
        self.horizon_seq == self.created_seq || held >= self.window_ns
    }

    /// Takes over the window and limit of a change; says what is to be told of a grace period that
    /// begins or ends with it. A grace period that begins does so at `wall`.
    pub fn set_retention(
        &mut self,
        change: &VolumeChange,
        (now, wall): (WallTime, WallTime),
    ) -> Option<Told> {
        let sets = change.window_ns.is_some() || change.history_limit_bytes.is_some();
        if !sets && change.grace_ns.is_none() {
            return None;
        }
        let before = self.grace_at(now);
        let held = (self.window_in_force(now), self.limit_in_force(now));
        self.window_ns = change.window_ns.unwrap_or(self.window_ns);
        self.history_limit_bytes = change.history_limit_bytes.unwrap_or(self.history_limit_bytes);
        let kept = (held.0.max(self.window_ns), looser(held.1, self.history_limit_bytes));
        let shrinks = kept != (self.window_ns, self.history_limit_bytes);
        let grace_ns = change.grace_ns.unwrap_or(GRACE_NS);
        self.grace = (shrinks && grace_ns > 0).then(|| Grace {
            until_ns: wall.as_nanos().saturating_add(grace_ns),
            window_ns: kept.0,
            history_limit_bytes: kept.1,
        });
        match (before, self.grace) {
            (_, Some(grace)) => Some(("grace-begin", self.told_of(&grace))),
            (Some(_), None) if shrinks => {
                Some(("grace-end", "at once, as it was asked for".to_owned()))
            }
            (Some(_), None) => {
                Some(("grace-cancel", "what held before holds again; nothing was lost".to_owned()))
            }
            (None, None) => None,
        }
    }

    fn told_of(&self, grace: &Grace) -> String {
        let limit = |bytes: Option<u64>| match bytes {
            Some(bytes) => format!("a limit of {bytes} bytes"),
            None => "no limit".to_owned(),
        };
        format!(
            "kept until {}: history within a window of {} and {}, though {} and {} were set",
            WallTime::from_nanos(grace.until_ns),
            Span(grace.window_ns),
            limit(grace.history_limit_bytes),
            Span(self.window_ns),
            limit(self.history_limit_bytes),
        )
    }
}

impl Retention {
    /// Ends a grace period whose time is over. The caller holds `work`.
    ///
    /// # Errors
    /// `Refused` or `Io`.
    pub(crate) fn end_grace(&self) -> Result<()> {
        let now = self.core.time();
        let is_over = |record: &VolumeRecord| {
            record.grace.is_some()
                && record.grace_at(now).is_none()
                && !record.deleted
                && record.trash.is_none()
        };
        if !is_over(&self.record.lock()) {
            return Ok(());
        }
        let mut tx = self.begin()?;
        let record = tx.change(&self.record);
        if !is_over(record) {
            return Ok(());
        }
        record.grace = None;
        let detail = format!("history is kept for {} from now on", Span(record.window_ns));
        tx.audit("grace-end", &self.name, detail)?;
        tx.commit().map(drop)
    }

    /// Where the window begins that was announced, if history before that is kept only for a grace
    /// period.
    ///
    /// # Errors
    /// `Corrupt` or `Io`, from the time index.
    pub(crate) fn announced_horizon(&self) -> Result<Option<Seq>> {
        // After an opening nothing expires by pool time; what a full pool offers goes by the log's.
        let now = self.core.time().max(self.log().last_time());
        let record = self.record.lock().clone();
        // One that is over by the log's time counts until pool time has ended it.
        if record.deleted || record.trash.is_some() || record.grace.is_none() {
            return Ok(None);
        }
        let start = WallTime::from_nanos(now.as_nanos().saturating_sub(record.window_ns));
        let entry = self.time_entry(By::Time(start))?;
        Ok(entry.map(|entry| entry.seq).filter(|seq| seq.0 > record.horizon_seq))
    }
}
