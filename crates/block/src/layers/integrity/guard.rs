//! Blocks that their owner guards: no checksum is kept of them, and no page written for them.
//!
//! Invariant: nothing durable is written to such blocks before the page that says so is durable,
//! nor to the operating system before it has that page. So no crash leaves one that was written
//! durably as one that was not, and none, as long as the power stays, that was written at all.

use std::collections::BTreeMap;
use std::io::IoSlice;

use parking_lot::Mutex;

use super::IntegrityDevice;
use super::geometry::{BLOCK, Span, block_number, spans};
use crate::{BlockDevice, Guard, Result};

/// Groups whose page says whose guard is whose, and may not be durable yet.
#[derive(Default)]
pub(super) struct Handed(Mutex<Tickets>);

/// When each page was handed over; later ones have greater numbers.
#[derive(Default)]
struct Tickets {
    last: u64,
    groups: BTreeMap<u64, u64>,
}

impl Handed {
    fn note(&self, group: u64) {
        let mut tickets = self.0.lock();
        tickets.last += 1;
        let ticket = tickets.last;
        tickets.groups.insert(group, ticket);
    }

    fn ticket(&self, group: u64) -> Option<u64> {
        self.0.lock().groups.get(&group).copied()
    }

    /// The last one until now.
    pub(super) fn last(&self) -> u64 {
        self.0.lock().last
    }

    /// What was handed over until then is durable.
    pub(super) fn flushed(&self, last: u64) {
        self.0.lock().groups.retain(|_, ticket| *ticket > last);
    }

    /// That one is, unless it was handed over again.
    fn written(&self, group: u64, ticket: u64) {
        let mut tickets = self.0.lock();
        if tickets.groups.get(&group) == Some(&ticket) {
            tickets.groups.remove(&group);
        }
    }
}

impl<D: BlockDevice> IntegrityDevice<D> {
    /// Lets `act` have the parts of a span that one guards, in order.
    pub(super) fn by_guard(
        &self,
        mut span: Span,
        mut act: impl FnMut(&Span, Guard) -> Result<()>,
    ) -> Result<()> {
        while !span.blocks.is_empty() {
            let (count, by) = self.with_group(span.group, |group| Ok(group.guard_of(&span)))?;
            let end = span.blocks.start + count;
            act(&Span { group: span.group, blocks: span.blocks.start..end }, by)?;
            span.blocks.start = end;
        }
        Ok(())
    }

    /// Gives whole sectors of a range this guard.
    pub(super) fn set_guard(&self, offset: u64, length_bytes: u64, by: Guard) -> Result<()> {
        if !self.header.has_exempt {
            return Ok(());
        }
        let whole = offset.div_ceil(BLOCK)..(offset + length_bytes) / BLOCK;
        if whole.is_empty() {
            return Ok(());
        }
        let _held = self.ranges.hold(whole.clone());
        self.last.forget(whole.clone());
        spans(whole).try_for_each(|span| self.set_guard_of(&span, by))
    }

    fn set_guard_of(&self, span: &Span, by: Guard) -> Result<()> {
        let last = self.blocks_in(span.group);
        self.with_group(span.group, |group| {
            let (is_changed, had_blocks) = group.set_guard(span, last, by);
            if !is_changed && !group.unsure {
                return Ok(());
            }
            // A page that is of before may only meet data of before: checksums that do not match
            // would be errors, where nothing that was written is only zeros.
            let written = if had_blocks || by == Guard::Layers || group.unsure {
                self.write_page_durably(span.group, group)
            } else {
                let handed = self.hand_over(span.group, group);
                self.groups.handed.note(span.group);
                handed
            };
            if written.is_err() {
                // Whatever the page says, the next guard and the next write here write it first.
                group.set_guard(span, last, Guard::Layers);
                group.unsure = true;
            }
            written
        })
    }

    /// Writes what its owner guards.
    pub(super) fn write_exempt(
        &self,
        span: &Span,
        offset: u64,
        slices: &[IoSlice<'_>],
        durable: bool,
    ) -> Result<()> {
        let skip = offset - block_number(span.group, span.blocks.start) * BLOCK;
        let at = span.offset() + skip;
        if !durable {
            return self.below.write_at(at, slices);
        }
        if let Some(ticket) = self.groups.handed.ticket(span.group) {
            self.with_group(span.group, |group| self.write_page_durably(span.group, group))?;
            self.groups.handed.written(span.group, ticket);
        }
        self.below.write_durable(at, slices)
    }
}
