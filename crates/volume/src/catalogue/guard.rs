//! Damage that the catalogue's library finds by a panic, made into an error.
//!
//! The library asserts where it finds pages that cannot be. For us that is damage on the disk, not
//! a mistake, and whoever runs the program should read of an error, not of a panic.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

std::thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`; `None` if it panicked.
pub fn guarded<T>(f: impl FnOnce() -> T) -> Option<T> {
    let before = GUARDED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(f));
    GUARDED.set(before);
    outcome.ok()
}

/// Whether a panic of this thread, now, is caught and becomes an error: a panic hook need not tell
/// of it.
#[must_use]
pub fn panic_becomes_error() -> bool {
    GUARDED.get()
}

#[cfg(test)]
mod tests {
    use super::{guarded, panic_becomes_error};

    #[test]
    fn a_panic_is_an_answer_only_within() {
        assert!(!panic_becomes_error());
        assert_eq!(guarded(|| panic_becomes_error().then_some(7)), Some(Some(7)));
        assert_eq!(guarded(|| -> u8 { panic!("damage") }), None);
        assert!(!panic_becomes_error());
    }
}
