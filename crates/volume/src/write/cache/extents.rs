//! Waiting writes, where data and holes are told.

use std::ops::Range;

use units::BLOCK_BYTES;

use super::Cache;
use crate::types::Extent;

impl Cache {
    /// Data and holes, as what waits in `extents`' range makes them. `waiting` was asked for
    /// before the map was.
    pub fn overlay(waiting: &[(u64, bool)], extents: &[Extent], size_bytes: u64) -> Vec<Extent> {
        let mut all: Vec<Extent> = Vec::new();
        let mut push = |offset: u64, end: u64, hole: bool| match all.last_mut() {
            _ if offset >= end => {}
            Some(open) if open.hole == hole => open.length_bytes += end - offset,
            _ => all.push(Extent { offset, length_bytes: end - offset, hole }),
        };
        let mut rest = waiting;
        for extent in extents {
            let end = extent.offset + extent.length_bytes;
            let mut at = extent.offset;
            while at < end {
                let Some(&(block, hole)) = rest.first() else { break };
                let start = block * BLOCK_BYTES;
                let stop = (start + BLOCK_BYTES).min(size_bytes);
                if stop <= at {
                    rest = &rest[1..];
                    continue;
                }
                if start >= end {
                    break;
                }
                push(at, start.max(at), extent.hole);
                push(start.max(at), stop.min(end), hole);
                at = stop.min(end);
            }
            push(at, end, extent.hole);
        }
        all
    }

    /// The blocks from `first` to before `end` that wait, ascending, and whether they are holes.
    pub fn waiting_in(&self, first: u64, end: u64) -> Vec<(u64, bool)> {
        let state = self.lock();
        let newest = state.pages.waiting().filter(|page| {
            let is_newest = || state.pages.newest_write(page.block) == Some(page.write);
            (first..end).contains(&page.block) && is_newest()
        });
        let mut found: Vec<_> = newest.map(|page| (page.block, page.bytes().is_none())).collect();
        found.sort_unstable();
        found
    }

    /// The blocks of a few that wait: a bit each, the first is the lowest.
    pub fn waiting_bits(&self, blocks: Range<u64>) -> u32 {
        let state = self.lock();
        let waits = blocks.map(|block| u32::from(state.pages.newest_write(block).is_some()));
        waits.enumerate().fold(0, |bits, (index, waits)| bits | waits << index)
    }
}
