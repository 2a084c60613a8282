//! The moment at which the server was started.

use std::sync::OnceLock;

use env::{Clock, RealClock};
use units::WallTime;

/// When the server was started.
pub(super) static STARTED: OnceLock<WallTime> = OnceLock::new();

pub(super) fn now() -> WallTime {
    RealClock::new().wall()
}

/// Remembers that the server starts now.
pub(super) fn remember_start() {
    STARTED.get_or_init(now);
}
