//! Whether others write to the media of a write buffer: then memory does not say what they have.

use std::sync::atomic::{AtomicU64, Ordering};

use env::Media;
use parking_lot::Mutex;

/// Our own changes of media, counted.
#[derive(Debug, Default)]
pub(super) struct Changes {
    begun: AtomicU64,
    ended: AtomicU64,
    seen: Mutex<Seen>,
}

/// The stamp that the media had, after so many changes of ours.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    stamp: u128,
    changes: u64,
}

impl Changes {
    /// None yet of media that are as they are now.
    pub(super) fn of(media: &dyn Media) -> Changes {
        let seen = Mutex::new(Seen { stamp: media.stamp(), changes: 0 });
        Changes { seen, ..Changes::default() }
    }

    /// Makes one.
    pub(super) fn make<T>(&self, change: impl FnOnce() -> T) -> T {
        self.begun.fetch_add(1, Ordering::AcqRel);
        let outcome = change();
        self.ended.fetch_add(1, Ordering::AcqRel);
        outcome
    }

    /// Whether somebody else has written since this was asked last. Beside changes of our own that
    /// cannot be told.
    pub(super) fn are_of_others(&self, media: &dyn Media) -> bool {
        let ended = self.ended.load(Ordering::Acquire);
        let stamp = media.stamp();
        if self.begun.load(Ordering::Acquire) != ended {
            return false;
        }
        let now = Seen { stamp, changes: ended };
        let before = std::mem::replace(&mut *self.seen.lock(), now);
        before.changes == ended && before.stamp != stamp
    }
}
