//! In whose name a thread calls the engine: what audit records of its commits carry as `who` and
//! `from`.
//!
//! It belongs to the thread: every verb that commits would only hand a parameter through.

use std::cell::RefCell;

/// The caller of a thread: who it is, and the address that it calls from, if it has one.
type Named = (String, Option<String>);

std::thread_local! {
    static CALLER: RefCell<Option<Named>> = const { RefCell::new(None) };
}

/// Runs `f`: audit records of what it changes name `who`, and where they called from.
pub fn on_behalf_of<T>(who: &str, from: Option<&str>, f: impl FnOnce() -> T) -> T {
    let named = (who.to_owned(), from.map(str::to_owned));
    let _before = Before(CALLER.replace(Some(named)));
    f()
}

/// In whose name this thread calls, if in anybody's.
pub fn caller() -> Option<String> {
    CALLER.with_borrow(|named| named.as_ref().map(|(who, _)| who.clone()))
}

/// Where that caller calls from.
pub fn caller_from() -> Option<String> {
    CALLER.with_borrow(|named| named.as_ref().and_then(|(_, from)| from.clone()))
}

/// The caller before, who is it again when this is dropped, also by a panic.
struct Before(Option<Named>);

impl Drop for Before {
    fn drop(&mut self) {
        CALLER.set(self.0.take());
    }
}
