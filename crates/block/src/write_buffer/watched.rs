//! Media under a write buffer, watched for others who write to them: then memory does not say what
//! they have.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::Media;
use parking_lot::Mutex;

/// Media, with a count of our own changes.
pub(super) struct Watched {
    media: Arc<dyn Media>,
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

impl Watched {
    pub(super) fn new(media: Arc<dyn Media>) -> Watched {
        let seen = Mutex::new(Seen { stamp: media.stamp(), changes: 0 });
        Watched { media, begun: AtomicU64::new(0), ended: AtomicU64::new(0), seen }
    }

    /// Whether somebody else has written since this was asked last. Beside changes of our own that
    /// cannot be told.
    pub(super) fn was_changed(&self) -> bool {
        let ended = self.ended.load(Ordering::Acquire);
        let stamp = self.media.stamp();
        let is_quiet = self.begun.load(Ordering::Acquire) == ended;
        let mut seen = self.seen.lock();
        let was_changed = is_quiet && seen.changes == ended && seen.stamp != stamp;
        if is_quiet {
            *seen = Seen { stamp, changes: ended };
        }
        was_changed
    }

    fn change<T>(&self, f: impl FnOnce(&dyn Media) -> T) -> T {
        self.begun.fetch_add(1, Ordering::AcqRel);
        let outcome = f(&*self.media);
        self.ended.fetch_add(1, Ordering::AcqRel);
        outcome
    }
}

impl Media for Watched {
    fn len_bytes(&self) -> u64 {
        self.media.len_bytes()
    }
    fn lengthen(&self, len_bytes: Option<u64>) -> io::Result<u64> {
        self.change(|media| media.lengthen(len_bytes))
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.media.read_at(offset, buffer)
    }
    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
        self.media.try_read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.change(|media| media.write_at(offset, slices))
    }
    fn write_direct(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(|media| media.write_direct(offset, bytes))
    }
    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.change(|media| media.write_durable(offset, slices))
    }
    fn why_no_buffer(&self) -> Option<String> {
        self.media.why_no_buffer()
    }
    fn stamp(&self) -> u128 {
        self.media.stamp()
    }
    fn identity(&self) -> u128 {
        self.media.identity()
    }
    fn is_hole(&self, offset: u64, length_bytes: u64) -> bool {
        self.media.is_hole(offset, length_bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.media.sync()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.change(|media| media.allocate(offset, length_bytes))
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<()> {
        self.change(|media| media.discard(offset, length_bytes))
    }
    fn name(&self) -> &str {
        self.media.name()
    }
}
