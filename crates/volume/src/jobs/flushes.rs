//! Map flushes: what is pending in memory is written out as runs.

use crate::Result;
use crate::jobs::job::Turn;
use crate::jobs::parts::Parts;
use crate::volume::Volume;

/// Writes out maps that are full, and the one that time has asked for longest: one in a round, so
/// that many of them keep nothing else waiting. True if any was.
///
/// # Errors
/// Those after which the pool refuses writes.
pub fn flush_maps(parts: &Parts, turn: &mut Turn) -> Result<bool> {
    let mut any = false;
    let volumes = parts.registry.all();
    for volume in volumes.iter().filter(|volume| volume.is_map_full()) {
        any |= turn.spare(volume, flush_and_free(volume))?;
    }
    let due = volumes.iter().filter(|volume| volume.has_waited(turn.now_ns));
    if let Some(volume) = due.min_by_key(|volume| volume.pending().since_ns()) {
        any |= turn.spare(volume, flush_and_free(volume))?;
    }
    Ok(any)
}

/// Writes a map out, and frees what that emptied. It may be the last there is to be done.
fn flush_and_free(volume: &Volume) -> Result<bool> {
    volume.flush_map()?;
    volume.free_empty_segments().map(|()| true)
}
