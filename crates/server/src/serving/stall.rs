//! Clients that buffers wait for: answers that are not taken, data that does not come.
//!
//! Invariant: a client is stalled only if for all of `Limits::stall` something waited for it, and
//! it moved less than `BYTES_PER_SECOND_MIN`.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::shared::Serving;
use crate::buffers::Taker;

/// A client that moves less is stalled.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// How long a client has been waited for.
#[derive(Default)]
pub(crate) struct Stall {
    /// Since when, and how many bytes it had moved then.
    begun: Option<(Instant, u64)>,
    /// Kept from one wait to the next: most are over long before it rings.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    /// Whether the client is to be given up: it is stalled, and others wait for buffers that it
    /// holds. `moved_bytes` are all that it has taken and sent so far; `None`: nothing waits for
    /// it.
    pub(crate) fn gives_up(
        &mut self,
        cx: &mut Context<'_>,
        serving: &Serving,
        moved_bytes: Option<u64>,
        (taker, client): (&Taker, &str),
    ) -> bool {
        let patience = serving.limits.stall;
        let gives_up = self.poll(cx, patience, moved_bytes).is_ready() && taker.is_in_the_way();
        if gives_up {
            serving.counters.clients_stalled.fetch_add(1, Ordering::Relaxed);
            let text = "disconnected: it neither takes its answers nor sends its data, and others \
                        wait for the buffers that it holds";
            tracing::warn!(client, "{text}");
        }
        gives_up
    }

    /// Ready when the client has been stalled for `patience`, and again after as long.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        patience: Duration,
        moved_bytes: Option<u64>,
    ) -> Poll<()> {
        let Some(moved_bytes) = moved_bytes else {
            self.begun = None;
            return Poll::Pending;
        };
        let least_bytes = patience.as_millis() as u64 * BYTES_PER_SECOND_MIN / 1000;
        let mut is_stalled = false;
        loop {
            let (since, had_moved) =
                *self.begun.get_or_insert_with(|| (Instant::now(), moved_bytes));
            let until = since + patience;
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if alarm.as_mut().poll(cx).is_pending() {
                return if is_stalled { Poll::Ready(()) } else { Poll::Pending };
            }
            if Instant::now() >= until {
                self.begun = None;
                alarm.as_mut().reset(Instant::now() + patience);
                is_stalled = moved_bytes - had_moved < least_bytes;
            } else {
                alarm.as_mut().reset(until);
            }
        }
    }
}
