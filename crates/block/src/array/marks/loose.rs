//! Regions in which parity need not agree, because nobody has anything there yet.
//!
//! A region that is used for the first time has what was on the devices before; a discard leaves
//! anything. Parity that follows from what changes would never come to agree there. So the layer is
//! told ([`Resync::Unused`]) and computes it of a stripe when somebody writes there first. Of what
//! is left it is done before the region's mark is taken off, as the layer knows only while it is
//! open. After a crash the region is open, and settled as a whole.

use std::sync::atomic::{AtomicBool, Ordering};

use format::label::REGIONS_MAX;

/// Which regions are loose.
pub struct Loose {
    pub(super) regions: Vec<AtomicBool>,
    /// Whether the last tidying left some for the next.
    pub(super) is_behind: AtomicBool,
}

impl Loose {
    pub fn new() -> Loose {
        let regions = (0..REGIONS_MAX).map(|_| AtomicBool::new(false)).collect();
        Loose { regions, is_behind: AtomicBool::new(false) }
    }

    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::SeqCst)
    }
}
