//! In whose name a thread calls the engine: what audit records of its commits carry as `caller`.
//!
//! It belongs to the thread: every verb that commits would only hand a parameter through.

use std::cell::RefCell;

std::thread_local! {
    static CALLER: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `f`: audit records of what it changes name `caller`.
pub fn on_behalf_of<T>(caller: &str, f: impl FnOnce() -> T) -> T {
    let _before = Before(CALLER.replace(Some(caller.to_owned())));
    f()
}

/// In whose name this thread calls, if in anybody's.
pub fn caller() -> Option<String> {
    CALLER.with_borrow(Clone::clone)
}

/// The caller before, who is it again when this is dropped, also by a panic.
struct Before(Option<String>);

impl Drop for Before {
    fn drop(&mut self) {
        CALLER.set(self.0.take());
    }
}
