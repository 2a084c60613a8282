//! Scratch clones: clones for a look, which go by themselves.
//!
//! 1. One goes when its time is over and nobody has it open, when the server stops or starts, and,
//!    which is the engine's, when the pool is full.
//! 2. One that was given a name of its own is none any more.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::SpanInput;
use units::WallTime;
use volume::{Error, ErrorKind, Pool, Result, Volume};

use crate::attach::{Attachments, Part};

/// The least and the greatest time of a scratch clone, in nanoseconds: a second, a week.
const LENGTH_NS: std::ops::RangeInclusive<u64> = 1_000_000_000..=7 * 86_400 * 1_000_000_000;

/// The clock, in nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The time that was asked for.
pub(crate) fn length_ns(asked: SpanInput) -> Result<u64> {
    let length_ns = asked.0.0;
    if LENGTH_NS.contains(&length_ns) {
        return Ok(length_ns);
    }
    let text = format!("a scratch clone cannot last {}", asked.0);
    Err(Error::new(ErrorKind::Invalid, text).with_hint("from 1s to 7d"))
}

/// The characters of an origin's name that a clone has before the rest, which has 28 at most.
const ORIGIN_CHARS: usize = 100;

/// The name of a scratch clone: as was asked for, or one that no other has, and that begins with
/// the origin's, as callers see volumes by their names.
pub(crate) fn name_for(origin: &str, asked: &str) -> String {
    if !asked.is_empty() {
        return asked.to_owned();
    }
    let origin = &origin[..origin.len().min(ORIGIN_CHARS)];
    format!("{origin}-scratch-{:x}", now_ns())
}

/// Whether it is gone, or stays for good.
fn remove(pool: &Pool, volume: &Arc<Volume>) -> bool {
    match pool.remove_scratch(volume) {
        Ok(()) => true,
        // Somebody was faster, or has named it.
        Err(error) if error.kind == ErrorKind::NotFound => true,
        Err(error) => {
            let name = volume.name();
            tracing::error!(name, %error, "a scratch clone could not be removed");
            false
        }
    }
}

/// Removes those whose time is over and that nobody has open; false once one could not be removed.
pub(crate) fn sweep(pool: &Pool, attachments: &Arc<Attachments>) -> bool {
    let now = WallTime::from_nanos(now_ns());
    let is_over = |(_, until): &(Arc<Volume>, WallTime)| *until <= now;
    for (volume, _) in pool.scratch_clones().into_iter().take_while(is_over) {
        // Nobody opens it meanwhile.
        let closed = attachments.close(volume.id(), Part::Past, false, Duration::ZERO);
        if closed.is_ok() && !remove(pool, &volume) {
            return false;
        }
    }
    true
}

/// Removes all of them, while nobody is served.
pub(crate) fn remove_all(pool: &Pool) {
    for (volume, _) in pool.scratch_clones() {
        remove(pool, &volume);
    }
}
