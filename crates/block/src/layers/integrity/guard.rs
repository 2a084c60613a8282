//! Blocks that their owner guards: no checksum is kept of them, and no page written for them.
//!
//! Invariant: nothing durable is written to such blocks before the page that says so is durable,
//! nor to the operating system before it has that page. So no crash leaves one that was written
//! durably as one that was not, and none, as long as the power stays, that was written at all.

use std::collections::BTreeMap;
use std::io::IoSlice;

use format::checksum::block_crc;
use format::integrity::{BLOCK_BYTES, SECTOR_BLOCKS};
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
    /// Lets `act` have the parts of a span that one guards, in order, and whether that is their
    /// owner. The range is held before that is asked: with others where it is, else alone.
    pub(super) fn by_guard(
        &self,
        mut span: Span,
        mut act: impl FnMut(&Span, bool) -> Result<()>,
    ) -> Result<()> {
        while !span.blocks.is_empty() {
            let ask = || self.with_group(span.group, |group| Ok(group.are_exempt(&span)));
            let mut held = self.ranges.share(span.numbers());
            let (mut count, mut is_exempt) = ask()?;
            if !is_exempt {
                drop(held);
                held = self.ranges.hold(span.numbers());
                // Its owner may guard it since: nobody minds that it is held alone.
                (count, is_exempt) = ask()?;
            }
            let end = span.blocks.start + count;
            act(&Span { group: span.group, blocks: span.blocks.start..end }, is_exempt)?;
            drop(held);
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
        if by == Guard::Again {
            return spans(whole).try_for_each(|span| self.guard_again(&span));
        }
        let _held = self.ranges.hold(whole.clone());
        self.last.forget(whole.clone());
        spans(whole).try_for_each(|span| self.set_guard_of(&span, by))
    }

    /// Begins to keep checksums of what is there, in those sectors of a span that are exempt. One
    /// of which something cannot be read stays as it is.
    fn guard_again(&self, span: &Span) -> Result<()> {
        let last = self.blocks_in(span.group);
        for place in self.with_group(span.group, |group| Ok(group.exempt_in(span, last)))? {
            let blocks = place * SECTOR_BLOCKS..(place + 1) * SECTOR_BLOCKS;
            let sector = Span { group: span.group, blocks };
            let _held = self.ranges.hold(sector.numbers());
            let mut bytes = vec![0; sector.length()];
            if self.below.read_at(sector.offset(), &mut bytes).is_err() {
                continue;
            }
            // The page calls them in flight until they are flushed, as if they were written now.
            self.begin(&sector)?;
            self.end(&sector, |group| {
                group.end_exemption(place);
                let blocks = sector.blocks.clone().zip(bytes.chunks_exact(BLOCK_BYTES));
                blocks.for_each(|(block, bytes)| group.set(block, block_crc(bytes)));
            })?;
            self.with_group(span.group, |group| self.write_page_durably(span.group, group))?;
        }
        Ok(())
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
