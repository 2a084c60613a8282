//! The words of the audit log about history that leaves the past.

use units::{Span, WallTime};

/// So long, in nanoseconds, what leaves the window of a volume is told in one audit record, which
/// takes the place of the one before: a window of seconds would make one four times a second.
const FOLD_NS: u64 = 3_600_000_000_000;

/// The audit record of what left the window of a volume last.
#[derive(Clone, Copy, Debug)]
pub struct Expired {
    pub number: u64,
    /// The first seq that it names.
    pub first: u64,
    /// When that left.
    pub since: WallTime,
    pub why: Why,
}

impl Expired {
    /// Whether more that leaves now for the same reason is told in its place.
    pub fn takes(&self, why: Why, now: WallTime) -> bool {
        let age = now.as_nanos().checked_sub(self.since.as_nanos());
        matches!(why, Why::Window(_)) && self.why == why && age.is_some_and(|age| age < FOLD_NS)
    }
}

/// Why history can no longer be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is older than the window, of so many nanoseconds.
    Window(u64),
    /// There was more than so many bytes of it.
    Limit(u64),
    /// There was no room for a write, and it was the oldest of the volume that had most.
    NoRoom,
    /// There was no room for a write, and it was kept only for a grace period.
    NoRoomInGrace,
}

impl Why {
    pub fn action(self) -> &'static str {
        match self {
            Why::Window(_) => "expire",
            Why::Limit(_) => "history-limit",
            Why::NoRoom | Why::NoRoomInGrace => "sacrifice",
        }
    }

    pub fn reason(self) -> String {
        match self {
            Why::Window(nanos) => format!("older than the window of {}", Span(nanos)),
            Why::Limit(bytes) => format!("more history than the limit of {bytes} bytes"),
            Why::NoRoom => "the pool was full, and this volume retained most".to_owned(),
            Why::NoRoomInGrace => {
                "the pool was full, and this was kept only for a grace period".to_owned()
            }
        }
    }
}
