//! The stripe: chunks in turn over several devices (RAID-0); and the concatenation: one device
//! after the other.
//!
//! In a stripe chunk c lies on device c mod n, as its chunk c / n. A request is cut where chunks
//! end; what a device gets of a long range lies there in one piece.
//!
//! Invariant: a stripe's length is a whole number of rounds over the devices; what the smallest of
//! them has beyond that is not used.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use crate::heal::{self, Outcome, Right};
use crate::slices::cut;
use crate::together::ask_all;
use crate::{BlockDevice, InTurn, Operation, Result, Resync, Together};

/// Combinations of the devices' ways that are all ways of a stripe.
const WAYS_MAX: usize = 256;

/// Devices of which each has a part of the bytes: every n-th chunk, or one range.
pub struct StripeDevice {
    below: Vec<Arc<dyn BlockDevice>>,
    order: Order,
    len_bytes: u64,
    together: Arc<dyn Together>,
}

/// Which bytes are where.
enum Order {
    /// Chunks of so many bytes in turn.
    InTurn(u64),
    /// Each device begins where the one before it ends: here.
    Starts(Vec<u64>),
}

/// What a part of a range is: on which device, where there, and where in the range.
struct Part {
    device: usize,
    offset: u64,
    range: Range<usize>,
}

impl StripeDevice {
    /// A stripe over devices that should be of one length.
    #[must_use]
    pub fn new(below: Vec<Arc<dyn BlockDevice>>, chunk_bytes: u64) -> StripeDevice {
        assert!(chunk_bytes.is_power_of_two(), "the stack's parser saw to that");
        let shortest = below.iter().map(|d| d.len_bytes()).min().expect("several devices");
        let len_bytes = shortest / chunk_bytes * chunk_bytes * below.len() as u64;
        let order = Order::InTurn(chunk_bytes);
        StripeDevice { below, order, len_bytes, together: Arc::new(InTurn) }
    }

    /// Devices one after the other.
    #[must_use]
    pub fn concat(below: Vec<Arc<dyn BlockDevice>>) -> StripeDevice {
        let mut len_bytes = 0;
        let mut starts = Vec::with_capacity(below.len());
        for device in &below {
            starts.push(len_bytes);
            len_bytes += device.len_bytes();
        }
        let order = Order::Starts(starts);
        StripeDevice { below, order, len_bytes, together: Arc::new(InTurn) }
    }

    /// The same, whose devices are asked to flush in this way.
    #[must_use]
    pub fn asked(self, together: Arc<dyn Together>) -> StripeDevice {
        StripeDevice { together, ..self }
    }

    /// What a range is cut into, in its order.
    fn parts(&self, offset: u64, length: usize) -> impl Iterator<Item = Part> + '_ {
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == length {
                return None;
            }
            let (device, offset, left) = self.place(offset + done as u64);
            let count = left.min((length - done) as u64) as usize;
            let range = done..done + count;
            done += count;
            Some(Part { device, offset, range })
        })
    }

    /// Where a byte is: on which device, where there, and how many follow it there.
    fn place(&self, at: u64) -> (usize, u64, u64) {
        match &self.order {
            Order::InTurn(chunk_bytes) => {
                let (chunk, within) = (at / chunk_bytes, at % chunk_bytes);
                let count = self.below.len() as u64;
                let offset = chunk / count * chunk_bytes + within;
                ((chunk % count) as usize, offset, chunk_bytes - within)
            }
            Order::Starts(starts) => {
                let device = starts.partition_point(|&start| start <= at) - 1;
                let offset = at - starts[device];
                (device, offset, self.below[device].len_bytes() - offset)
            }
        }
    }

    /// What each device has of a range, if anything: one piece.
    fn shares(&self, offset: u64, length_bytes: u64) -> Vec<(usize, Range<u64>)> {
        // A device's first and last byte in it are in its first and its last round.
        let round = match self.order {
            Order::InTurn(chunk_bytes) => chunk_bytes * self.below.len() as u64,
            Order::Starts(_) => self.len_bytes,
        };
        let ends = length_bytes.min(round);
        let of = |start| self.parts(start, usize::try_from(ends).expect("it fits memory"));
        let mut shares: Vec<Option<Range<u64>>> = vec![None; self.below.len()];
        for part in of(offset).chain(of(offset + length_bytes - ends)) {
            let end = part.offset + part.range.len() as u64;
            let share = shares[part.device].get_or_insert(part.offset..end);
            *share = share.start.min(part.offset)..share.end.max(end);
        }
        shares.into_iter().enumerate().filter_map(|(d, share)| Some((d, share?))).collect()
    }

    /// A range that has all of a range of one device in it.
    fn around(&self, device: usize, range: &Range<u64>) -> Range<u64> {
        match &self.order {
            Order::InTurn(chunk_bytes) => {
                let round = chunk_bytes * self.below.len() as u64;
                let end = range.end.div_ceil(*chunk_bytes) * round;
                range.start / chunk_bytes * round..end.min(self.len_bytes)
            }
            Order::Starts(starts) => starts[device] + range.start..starts[device] + range.end,
        }
    }

    fn ways_of_each(&self) -> Vec<usize> {
        self.below.iter().map(|device| device.ways()).collect()
    }

    fn on_shares(
        &self,
        operation: Operation,
        (offset, length_bytes): (u64, u64),
        request: impl Fn(&dyn BlockDevice, u64, u64) -> Result<()>,
    ) -> Result<()> {
        self.check(operation, offset, length_bytes)?;
        for (device, share) in self.shares(offset, length_bytes) {
            request(&*self.below[device], share.start, share.end - share.start)?;
        }
        Ok(())
    }

    fn write(
        &self,
        offset: u64,
        slices: &[IoSlice<'_>],
        request: impl Fn(&dyn BlockDevice, u64, &[IoSlice<'_>]) -> Result<()>,
    ) -> Result<()> {
        let length: usize = slices.iter().map(|s| s.len()).sum();
        self.check(Operation::Write, offset, length as u64)?;
        for part in self.parts(offset, length) {
            let below = &*self.below[part.device];
            if part.range.len() == length {
                return request(below, part.offset, slices);
            }
            request(below, part.offset, &cut(slices, part.range))?;
        }
        Ok(())
    }
}

/// For each way of a stripe the way of each device: each with each, if they are few.
///
/// Else those of all devices together, since they may be members of one; and of one device alone.
fn choices(ways: &[usize]) -> Box<dyn Iterator<Item = Vec<usize>> + '_> {
    let all = ways.iter().try_fold(1_usize, |all, ways| all.checked_mul(*ways));
    if all.is_some_and(|all| all <= WAYS_MAX) {
        return Box::new(each_with_each(ways.to_vec()));
    }
    let most = ways.iter().copied().max().unwrap_or(1);
    let together = (0..most).map(|way| ways.iter().map(|ways| way % ways).collect());
    let with = |device, way| {
        let mut choice = vec![0; ways.len()];
        choice[device] = way;
        choice
    };
    let of_one = move |device: usize| (1..ways[device]).map(move |way| with(device, way));
    Box::new(together.chain((0..ways.len()).flat_map(of_one)))
}

/// All choices among so many of each, those of the first change first.
fn each_with_each(counts: Vec<usize>) -> impl Iterator<Item = Vec<usize>> {
    (0..counts.iter().product()).map(move |mut number: usize| {
        let mut of = |&count: &usize| {
            let choice = number % count;
            number /= count;
            choice
        };
        counts.iter().map(&mut of).collect()
    })
}

impl BlockDevice for StripeDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        for part in self.parts(offset, buffer.len()) {
            self.below[part.device].read_at(part.offset, &mut buffer[part.range])?;
        }
        Ok(())
    }

    fn try_read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        for part in self.parts(offset, buffer.len()) {
            if !self.below[part.device].try_read_at(part.offset, &mut buffer[part.range])? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.write(offset, slices, |below, at, slices| below.write_at(at, slices))
    }

    fn flush(&self) -> Result<()> {
        let flush = |number: usize| self.below[number].flush();
        ask_all(&*self.together, self.below.len(), flush).into_iter().collect()
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        let range = (offset, length_bytes);
        self.on_shares(Operation::Allocate, range, |below, at, length| below.allocate(at, length))
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        let range = (offset, length_bytes);
        self.on_shares(Operation::Discard, range, |below, at, length| below.discard(at, length))
    }

    fn write_durable(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.write(offset, slices, |below, at, slices| below.write_durable(at, slices))
    }

    fn copies(&self, offset: u64, length_bytes: u64) -> usize {
        if self.check(Operation::Read, offset, length_bytes).is_err() {
            return 1;
        }
        let shares = self.shares(offset, length_bytes);
        let copies = shares.iter().map(|(d, s)| self.below[*d].copies(s.start, s.end - s.start));
        copies.max().unwrap_or(1)
    }

    fn read_copy(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        for part in self.parts(offset, buffer.len()) {
            self.below[part.device].read_copy(copy, part.offset, &mut buffer[part.range])?;
        }
        Ok(())
    }

    fn ways(&self) -> usize {
        choices(&self.ways_of_each()).count()
    }

    fn read_way(&self, way: usize, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let ways = self.ways_of_each();
        let none = || vec![0; ways.len()];
        let choice = choices(&ways).nth(way).unwrap_or_else(none);
        for part in self.parts(offset, buffer.len()) {
            let (way, to) = (choice[part.device], &mut buffer[part.range]);
            self.below[part.device].read_way(way, part.offset, to)?;
        }
        Ok(())
    }

    fn heal(&self, offset: u64, buffer: &mut [u8], right: &Right<'_>) -> Result<Outcome> {
        self.check(Operation::Read, offset, buffer.len() as u64)?;
        let pieces: Vec<heal::Piece<'_>> = self
            .parts(offset, buffer.len())
            .map(|part| (&*self.below[part.device], part.offset, part.range))
            .collect();
        match &pieces[..] {
            [(below, at, _)] => below.heal(*at, buffer, right),
            _ => heal::heal_pieces(&pieces, buffer, right),
        }
    }

    fn resync(&self, offset: u64, length_bytes: u64, which: Resync) -> Result<()> {
        let range = (offset, length_bytes);
        let used = match self.order {
            Order::InTurn(_) => self.len_bytes / self.below.len() as u64,
            Order::Starts(_) => u64::MAX,
        };
        self.on_shares(Operation::Write, range, |below, at, length| {
            // What a longer device has beyond that nobody reaches: it is in nobody's way.
            let is_about_all = matches!(which, Resync::Computed | Resync::Unused);
            let is_last = is_about_all && at + length == used;
            let end = if is_last { below.len_bytes() } else { at + length };
            below.resync(at, end - at, which)
        })
    }

    fn disagreements(&self, offset: u64, length_bytes: u64) -> Result<Vec<Range<u64>>> {
        self.check(Operation::Read, offset, length_bytes)?;
        let mut found = Vec::new();
        for (device, share) in self.shares(offset, length_bytes) {
            let below = self.below[device].disagreements(share.start, share.end - share.start)?;
            found.extend(below.into_iter().map(|range| self.around(device, &range)));
        }
        Ok(found)
    }

    fn noticed(&self) -> Vec<Range<u64>> {
        let of = |(device, below): (usize, &Arc<dyn BlockDevice>)| {
            let around = move |range: Range<u64>| self.around(device, &range);
            below.noticed().into_iter().map(around)
        };
        self.below.iter().enumerate().flat_map(of).filter(|range| !range.is_empty()).collect()
    }

    fn describe(&self) -> String {
        let below: Vec<String> = self.below.iter().map(|device| device.describe()).collect();
        let name = match self.order {
            Order::InTurn(_) => "stripe",
            Order::Starts(_) => "concat",
        };
        format!("{name}({})", below.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::choices;

    #[test]
    fn a_stripe_has_the_ways_of_each_device_with_those_of_the_others_if_they_are_few() {
        let all: Vec<_> = choices(&[4, 4, 4]).collect();
        assert_eq!((all.len(), &all[0][..], &all[1][..]), (64, &[0; 3][..], &[1, 0, 0][..]));
        let all: Vec<_> = choices(&[4; 6]).collect();
        assert_eq!((all.len(), &all[3][..]), (4 + 6 * 3, &[3; 6][..]));
        assert!(all.contains(&vec![0, 0, 2, 0, 0, 0]), "one alone");
        assert_eq!(choices(&[300, 1]).count(), 300 + 299);
    }
}
