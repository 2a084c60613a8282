//! The right to change a volume's size, and the end that writes keep to meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};

use env::{Rank, RankedMutex};

/// A volume's size while it changes.
pub struct Sizing {
    /// The right to change it.
    pub right: RankedMutex<()>,
    /// No write may end beyond this byte: the size to come, while the volume is made smaller.
    cut_at: AtomicU64,
}

impl Default for Sizing {
    fn default() -> Sizing {
        let right = RankedMutex::new(Rank::Resizing, ());
        Sizing { right, cut_at: AtomicU64::new(u64::MAX) }
    }
}

impl Sizing {
    /// Keeps writes below a size.
    pub fn cut_at(&self, size_bytes: u64) -> Cut<'_> {
        self.cut_at.store(size_bytes, Ordering::Release);
        Cut(self)
    }

    /// The last byte at which a write may end.
    pub fn limit(&self) -> u64 {
        self.cut_at.load(Ordering::Acquire)
    }
}

/// Keeps writes below a size while it lives.
pub struct Cut<'v>(&'v Sizing);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.cut_at.store(u64::MAX, Ordering::Release);
    }
}
