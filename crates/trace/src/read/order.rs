//! Putting requests in order: traces are nearly sorted, since they are written by several
//! processors or when requests complete.
//!
//! A request waits until `ORDER_REQUESTS` others have come. One that is still too late gets the
//! time of the request before it, and is counted: rejected were sorting all of it (needs memory or
//! a second pass) and dropping it (changes what the trace does).

use std::collections::VecDeque;

use crate::Request;

/// Requests that wait.
pub(super) const ORDER_REQUESTS: usize = 4096;

#[derive(Default)]
pub(super) struct Order {
    waiting: VecDeque<Request>,
    last_ns: u64,
}

impl Order {
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() > ORDER_REQUESTS
    }

    pub(super) fn push(&mut self, request: Request) {
        // Nearly always at the end, so the search begins there; equal times keep their order.
        let mut place = self.waiting.len();
        while place > 0 && self.waiting[place - 1].time_ns > request.time_ns {
            place -= 1;
        }
        self.waiting.insert(place, request);
    }

    /// The earliest, and whether it came too late.
    pub(super) fn pop(&mut self) -> Option<(Request, bool)> {
        let mut request = self.waiting.pop_front()?;
        let is_late = request.time_ns < self.last_ns;
        request.time_ns = request.time_ns.max(self.last_ns);
        self.last_ns = request.time_ns;
        Some((request, is_late))
    }
}
