//! Metadata contexts: what BLOCK_STATUS tells about a range.
//!
//! `base:allocation` is the specification's. `x-hindsight:changed@MOMENT` has flag 1 where the
//! export differs from that moment of its volume; the moment is resolved once, when it is chosen.

use std::sync::Arc;

use units::BLOCK_BYTES;
use wire::nbd::limits::STATUS_EXTENTS_MAX;
use wire::nbd::{CommandFlags, ReplyStyle, Request, Status, encode};

use crate::buffers::OWN_BYTES;
use crate::serving::{Changes, Export, OpenError, Stretch};

/// The context of the specification.
pub(super) const ALLOCATION: &str = "base:allocation";
/// The beginning of a context of changes; a moment follows.
pub(super) const CHANGED: &str = "x-hindsight:changed@";

/// A context in use on a connection.
pub(super) struct MetaContext {
    /// The number it has on this connection.
    pub(super) id: u32,
    /// As the client named it.
    pub(super) name: String,
    pub(super) kind: ContextKind,
}

/// The subject of a context.
pub(super) enum ContextKind {
    Allocation,
    Changed(Arc<dyn Changes>),
}

/// The kind of context that a query chooses; `None` when it chooses none.
pub(super) fn choose(
    export: &Arc<dyn Export>,
    query: &str,
) -> Result<Option<ContextKind>, OpenError> {
    if query == ALLOCATION {
        return Ok(Some(ContextKind::Allocation));
    }
    match query.strip_prefix(CHANGED) {
        Some(moment) if !moment.is_empty() => {
            export.changes_since(moment).map(|changes| Some(ContextKind::Changed(changes)))
        }
        _ => Ok(None),
    }
}

/// The contexts that a query lists: those it names, and all of a namespace for `namespace:`.
pub(super) fn listed(export: &Arc<dyn Export>, queries: &[&str]) -> Result<Vec<String>, OpenError> {
    let mut found = Vec::new();
    let mut add = |name: &str| {
        if !found.iter().any(|f| f == name) {
            found.push(name.to_owned());
        }
    };
    if queries.is_empty() {
        add(ALLOCATION);
        add(CHANGED);
    }
    for &query in queries {
        match query {
            "base:" => add(ALLOCATION),
            // Without a moment it is a pattern: a client completes it.
            "x-hindsight:" | CHANGED => add(CHANGED),
            _ if choose(export, query)?.is_some() => add(query),
            _ => {}
        }
    }
    Ok(found)
}

/// How many extents of each of so many contexts the reply to a BLOCK_STATUS request tells, and how
/// many bytes it has then at most: no more than what a connection always has a buffer for.
pub(super) fn limit(
    style: ReplyStyle,
    request: &Request,
    length_bytes: u64,
    contexts: usize,
) -> (usize, usize) {
    let (chunk_bytes, extent_bytes) = match style {
        ReplyStyle::Extended => (32 + 8, 16),
        ReplyStyle::Simple | ReplyStyle::Structured => (20 + 4, 8),
    };
    let wanted = match request.flags.has(CommandFlags::REQ_ONE) {
        true => 1,
        // Blocks that the range touches: no two extents are of one.
        false => usize::try_from(length_bytes / BLOCK_BYTES + 2).unwrap_or(usize::MAX),
    };
    let fits = (OWN_BYTES / contexts - chunk_bytes) / extent_bytes;
    let limit = wanted.min(fits).min(STATUS_EXTENTS_MAX);
    (limit, contexts * (chunk_bytes + limit * extent_bytes))
}

/// Adds the reply to a BLOCK_STATUS request: one chunk of at most `limit` extents for each context.
pub(super) fn answer(
    export: &dyn Export,
    contexts: &[&MetaContext],
    style: ReplyStyle,
    (request, length_bytes, limit): (&Request, u64, usize),
    out: &mut Vec<u8>,
) -> volume::Result<()> {
    for (index, context) in contexts.iter().enumerate() {
        let found = match &context.kind {
            ContextKind::Allocation => allocation(export, request.offset, length_bytes, limit)?,
            ContextKind::Changed(changes) => {
                let stretches = changes.extents(request.offset, length_bytes, limit)?;
                stretches.into_iter().map(as_status).collect()
            }
        };
        let extents = fitted(found, length_bytes, limit);
        let is_last = index + 1 == contexts.len();
        encode::block_status(style, request, is_last, context.id, &extents, out);
    }
    Ok(())
}

fn as_status(stretch: Stretch) -> Status {
    let flags = if stretch.differs { Status::CHANGED } else { 0 };
    Status { length_bytes: stretch.length_bytes, flags }
}

fn allocation(
    export: &dyn Export,
    offset: u64,
    length_bytes: u64,
    limit: usize,
) -> volume::Result<Vec<Status>> {
    let extents = export.extents(offset, length_bytes, limit)?;
    let flags = |hole| if hole { Status::HOLE | Status::ZERO } else { 0 };
    let status = |e: volume::Extent| Status { length_bytes: e.length_bytes, flags: flags(e.hole) };
    Ok(extents.into_iter().map(status).collect())
}

/// Extents joined where equal, cut at the end of the range, at most `limit`, and at least one.
fn fitted(found: Vec<Status>, length_bytes: u64, limit: usize) -> Vec<Status> {
    let mut fitted: Vec<Status> = Vec::with_capacity(found.len().min(limit));
    let mut left = length_bytes;
    for extent in found {
        let length_bytes = extent.length_bytes.min(left);
        left -= length_bytes;
        let is_full = fitted.len() == limit;
        match fitted.last_mut() {
            _ if length_bytes == 0 => {}
            Some(last) if last.flags == extent.flags => last.length_bytes += length_bytes,
            _ if is_full => break,
            _ => fitted.push(Status { length_bytes, flags: extent.flags }),
        }
    }
    if fitted.is_empty() {
        // "Allocated, or not known": always allowed.
        fitted.push(Status { length_bytes, flags: 0 });
    }
    fitted
}
