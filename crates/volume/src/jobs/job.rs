//! One kind of background work, and its turn in a round of all of them (`scheduler`).

use crate::jobs::parts::Parts;
use crate::volume::Volume;
use crate::{Error, ErrorKind, Result};

/// The share of the time that work has which can wait for clients that write: one in so many parts.
const SHARE: u32 = 8;

/// One kind of background work.
pub trait Job: Send + Sync {
    /// Its name, for who is told that it fails.
    fn name(&self) -> &'static str;

    /// Device bytes of a step, if it is not as much as others do.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// Does some of it.
    ///
    /// # Errors
    /// Those of the work: it is tried again in another round.
    fn step(&mut self, parts: &Parts, turn: &mut Turn) -> Result<Left>;

    /// Lets go of what is under way: a write wants the room that it holds, or the pool is let go.
    fn give_up(&mut self, _parts: &Parts) {}

    /// Keeps what is under way as far as it is done: the pool is being closed.
    ///
    /// # Errors
    /// Those of the commit.
    fn finish(&mut self, parts: &Parts) -> Result<()> {
        self.give_up(parts);
        Ok(())
    }
}

/// The work that is left of a job after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// None before this time, by the monotonic clock.
    Until(u64),
    /// More. While clients write it may have one in so many parts of the time; 1: it cannot wait.
    More(u32),
}

impl Left {
    /// Nothing that is known.
    pub const NOTHING: Left = Left::Until(u64::MAX);
    /// More that cannot wait.
    pub const NOW: Left = Left::More(1);
    /// More that can wait for clients.
    pub const CAN_WAIT: Left = Left::More(SHARE);

    /// This if there is more, or nothing.
    pub fn when(self, more: bool) -> Left {
        if more { self } else { Left::NOTHING }
    }

    /// More that has been waiting for clients for so long, of the time that it may take: the longer
    /// the larger its share, until it cannot wait any more.
    pub fn waiting(since_ns: u64, allowed_ns: u64) -> Left {
        let doublings = since_ns.checked_div(allowed_ns).unwrap_or(0);
        let doublings = u32::try_from(doublings).unwrap_or(u32::MAX);
        Left::More(SHARE.checked_shr(doublings).unwrap_or(0).max(1))
    }

    /// Whether there is more to do now.
    pub fn is_more(self) -> bool {
        matches!(self, Left::More(_))
    }

    /// The work that is left of two jobs.
    pub fn and(self, other: Left) -> Left {
        match (self, other) {
            (Left::More(a), Left::More(b)) => Left::More(a.min(b)),
            (Left::Until(a), Left::Until(b)) => Left::Until(a.min(b)),
            (more @ Left::More(_), _) | (_, more) => more,
        }
    }
}

/// A job's turn in a round.
#[derive(Default)]
pub struct Turn {
    /// About so many bytes of device reads and writes.
    pub bytes: u64,
    /// When the round began, by the monotonic clock.
    pub now_ns: u64,
    /// Clients have asked for something lately.
    pub has_clients: bool,
    /// A job before it in the round has more to do.
    pub is_busy: bool,
    /// The first failure that the job goes on after.
    pub failure: Option<Error>,
}

impl Turn {
    /// The outcome for one volume: others are not kept from their work by its failure.
    ///
    /// # Errors
    /// Those after which the pool does nothing any more.
    pub fn spare<T: Default>(&mut self, volume: &Volume, outcome: Result<T>) -> Result<T> {
        match spare_others(volume, outcome, &mut self.failure) {
            Err(error) if !volume.core.store.has_failed() => {
                self.failure.get_or_insert(error);
                Ok(T::default())
            }
            outcome => outcome,
        }
    }
}

/// Damage in what one volume has does not keep others from their background work: it is noted.
///
/// # Errors
/// All others.
pub fn spare_others<T: Default>(
    volume: &Volume,
    outcome: Result<T>,
    damage: &mut Option<Error>,
) -> Result<T> {
    match outcome {
        Err(e)
            if matches!(e.kind, ErrorKind::Corrupt | ErrorKind::Io)
                && !volume.core.store.has_failed() =>
        {
            volume.reclamation().set_ailing(true);
            damage.get_or_insert(e);
            Ok(T::default())
        }
        other => other,
    }
}

/// A job with nothing of its own under way: what is left of it if there is more, and the work.
pub struct Plain(pub &'static str, pub Left, pub fn(&Parts, &mut Turn) -> Result<bool>);

impl Job for Plain {
    fn name(&self) -> &'static str {
        self.0
    }

    fn step(&mut self, parts: &Parts, turn: &mut Turn) -> Result<Left> {
        (self.2)(parts, turn).map(|more| self.1.when(more))
    }
}

/// One that is done volume by volume.
pub struct EachVolume(pub &'static str, pub Left, pub fn(&Volume, &Parts, u64) -> Result<bool>);

impl Job for EachVolume {
    fn name(&self) -> &'static str {
        self.0
    }

    fn step(&mut self, parts: &Parts, turn: &mut Turn) -> Result<Left> {
        let mut more = false;
        for volume in parts.registry.all() {
            more |= turn.spare(&volume, (self.2)(&volume, parts, turn.bytes))?;
        }
        Ok(self.1.when(more))
    }
}

#[cfg(test)]
mod tests {
    use super::Left;

    #[test]
    fn the_longer_work_waits_the_larger_its_share_until_it_waits_no_more() {
        let waiting = |since_ns| Left::waiting(since_ns, 1000);
        assert_eq!([0, 999].map(waiting), [Left::CAN_WAIT; 2]);
        assert_eq!([1000, 2000, 3000].map(waiting), [Left::More(4), Left::More(2), Left::NOW]);
        assert_eq!(waiting(u64::MAX), Left::NOW);
        assert_eq!(Left::waiting(u64::MAX, 0), Left::CAN_WAIT, "as long as it likes");
        assert_eq!(Left::CAN_WAIT.and(Left::NOW), Left::NOW);
        assert_eq!(Left::NOTHING.and(Left::CAN_WAIT).and(Left::Until(3)), Left::CAN_WAIT);
        assert_eq!(Left::Until(5).and(Left::Until(3)), Left::Until(3));
    }
}
