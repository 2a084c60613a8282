//! The uppermost layer, which a growth puts another one over: requests under way go on in the one
//! that they began in, which stays part of it.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use format::label::MEMBERS_MAX;

use crate::BlockDevice;

/// Each growth brings a member at least.
const GROWTHS_MAX: usize = MEMBERS_MAX;

/// The layers that were uppermost, the last of which is.
pub(super) struct Top {
    devices: [OnceLock<Arc<dyn BlockDevice>>; GROWTHS_MAX],
    now: AtomicUsize,
}

impl Top {
    pub fn new(device: Arc<dyn BlockDevice>) -> Top {
        let devices = [const { OnceLock::new() }; GROWTHS_MAX];
        assert!(devices[0].set(device).is_ok(), "nothing is set");
        Top { devices, now: AtomicUsize::new(0) }
    }

    /// The layer that is uppermost now.
    pub fn now(&self) -> &Arc<dyn BlockDevice> {
        self.devices[self.now.load(Ordering::Acquire)].get().expect("set before it is named")
    }

    /// Puts another one over it, which has it at its beginning. Not two at a time.
    pub fn put_over(&self, device: Arc<dyn BlockDevice>) {
        let next = self.now.load(Ordering::Acquire) + 1;
        assert!(self.devices[next].set(device).is_ok(), "one growth at a time");
        self.now.store(next, Ordering::Release);
    }
}

impl Deref for Top {
    type Target = dyn BlockDevice;

    fn deref(&self) -> &Self::Target {
        &**self.now()
    }
}
