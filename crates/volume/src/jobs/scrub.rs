//! Looking at every copy of everything that is stored, and what is done after a crash where there
//! are several copies.
//!
//! After a crash copies may differ where something was in flight. None of them is taken for the
//! right one: a copy that rotted before would be spread over a good one. Until everything in the
//! open regions was looked at, by its own checksums, one side is read and the others are asked
//! where that is wrong. Places that still differ then are read by nobody, or, with the present in
//! place, are checked against the map by their readers.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::{Array, BlockDevice, Standing};
use format::map::Entry;
use history::{Scrub, ScrubMap, ScrubReport, Segment, Slot, Suspects, Version};
use units::Seq;

use crate::core::Core;
use crate::jobs::scrub_plan::progress::Scrubs;
use crate::names::VolumeName;
use crate::read::snapshot::Opening;
use crate::types::{SettlePhase, Settling, Wait};
use crate::{Error, Result};

/// Regions of which it is asked together whether parity agrees, at most, and how often that is told
/// at least, if there are as many.
const LOOKED_AT_MAX: usize = 64;
const LOOKS_TOLD: usize = 10;

/// Ranges that are kept to be looked at again, and how often each is.
const NOTICED_MAX: usize = 256;
const LOOKS_MAX: u32 = 16;

/// Whether something touches one of some ranges, which are `joined`. It is asked for each block.
fn touches(ranges: &[Range<u64>], from: u64, length: u64) -> bool {
    let first = ranges.partition_point(|range| range.end <= from);
    ranges.get(first).is_some_and(|range| range.start < from + length)
}

/// The same ranges in order, those that overlap as one.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// Where in some ranges parity does not agree, `joined`, and which of them cannot be looked at.
fn apart_in(
    array: &Array,
    ranges: &[Range<u64>],
    state: &mut Settling,
    told: &mut dyn FnMut(&Settling),
) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
    let (mut apart, mut unread) = (Vec::new(), Vec::new());
    if !array.has_parity() {
        return (apart, unread);
    }
    let count = (ranges.len() / LOOKS_TOLD).clamp(1, LOOKED_AT_MAX);
    for (done, some) in (0..).step_by(count).zip(ranges.chunks(count)) {
        state.phase = SettlePhase::Agreement;
        state.percent = done * 100 / ranges.len() as u64;
        told(state);
        // Neighbours are read together.
        for range in some.chunk_by(|a, b| a.end == b.start) {
            let (start, end) = (range[0].start, range[range.len() - 1].end);
            if let Ok(found) = array.disagreements(start, end - start) {
                apart.extend(found);
                continue;
            }
            for one in range {
                match array.disagreements(one.start, one.end - one.start) {
                    Ok(found) => apart.extend(found),
                    // It may be read another time, and stays to be settled.
                    Err(_) => unread.push(one.clone()),
                }
            }
        }
    }
    (joined(apart), unread)
}

impl Scrubs {
    /// Looks at all copies of everything in segments and runs that touches some ranges of the
    /// device, or one copy where all of them are known to say the same. Losses and misreads count
    /// everywhere, or where it is asked about. `told` hears how many bytes were read, and how many
    /// of the segments and timelines are done.
    fn scrub(
        &self,
        ranges: &[Range<u64>],
        agreed: Option<&dyn Fn(u64, u64) -> bool>,
        asked: Option<&dyn Fn(u64, u64) -> bool>,
        told: &mut dyn FnMut(u64, (u64, u64)),
    ) -> ScrubReport {
        let store = &self.core.store;
        let _epoch = store.enter();
        let touches = |from: u64, length: u64| touches(ranges, from, length);
        let mut scrub = Scrub::new(store, &*self.core).agreed(agreed).asked(asked);
        scrub.suspects = Some(Suspects::default());
        let mut segments = store.segments();
        segments.retain(|segment| touches(store.zone_offset(segment.zone), store.zone_bytes));
        let timelines: Vec<_> =
            self.core.timelines.read().values().map(|(_, t)| Arc::clone(t)).collect();
        let all = (segments.len() + timelines.len()) as u64;
        for (done, segment) in (1..).zip(&segments) {
            if !segment.retired.load(Ordering::Acquire) {
                scrub.segment(segment, 0, u64::MAX, self.stable_of(segment));
            }
            told(scrub.read_bytes(), (done, all));
        }
        // The names of suspect blocks may be in any run.
        let is_all = scrub.suspects.as_ref().is_some_and(|suspects| !suspects.is_empty());
        let wants = |at: u64| is_all || touches(at, format::PAGE_BYTES as u64);
        for (done, timeline) in (segments.len() as u64 + 1..).zip(&timelines) {
            for run in timeline.runs() {
                let pages = (&run.extents, 0..run.extents.count);
                scrub.pages((timeline.id, run.id), pages, &wants);
            }
            told(scrub.read_bytes(), (done, all));
        }
        for volume in self.registry.all() {
            for run in volume.times().runs() {
                scrub.pages((0, run.id), (&run.pages, 0..run.pages.count), &wants);
            }
        }
        scrub.report()
    }

    /// Up to which seq writes to a segment have ended.
    pub(crate) fn stable_of(&self, segment: &Segment) -> Seq {
        let log = self.registry.all().into_iter().find(|volume| volume.id == segment.log);
        log.map_or(Seq(u64::MAX), |volume| volume.log().stable())
    }

    /// Looks at what is trusted in place in some ranges, of which parity is about to be computed. A
    /// block that rotted there is in the parity afterwards: so it is trusted no more, as if a
    /// reader had found it. The log answers, and its block is written there.
    fn distrust_what_rotted(&self, ranges: &[Range<u64>]) -> Result<()> {
        let _epoch = self.core.store.enter();
        let wants = |from: u64, length: u64| touches(ranges, from, length);
        self.registry.all().iter().try_for_each(|volume| {
            volume.each_wrong_place(&wants, &mut |place| {
                place.current.distrust(place.block);
                Ok(())
            })
        })
    }

    /// Looks at everything in some ranges; whether readers get it right. A healed block is right
    /// when it is looked at again; otherwise only parity may give it. Damage beside the ranges has
    /// no part in their parity.
    fn is_right(&self, ranges: &[Range<u64>]) -> bool {
        let asked = |from: u64, length: u64| touches(ranges, from, length);
        let mut looks = (0..2).map(|_| self.scrub(ranges, None, Some(&asked), &mut |_, _| ()));
        let is_right = looks.any(|found| found.misread + found.lost == 0);
        if !is_right || self.distrust_what_rotted(ranges).is_err() {
            return false;
        }
        let _books = self.core.books.lock();
        let touches = |from: u64, length: u64| touches(ranges, from, length);
        self.core.media.scrub_zones(&|zone| touches(zone, self.core.store.zone_bytes))
            && self.core.media.has_superblocks(&touches)
    }

    /// Computes parity anew in ranges where it does not agree, if they are right when they are
    /// looked at now. Where something is lost the parity stays: it may give that back one day;
    /// these ranges are answered. `told` hears how much is done, in percent.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn compute_parity(
        &self,
        array: &Array,
        apart: Vec<Range<u64>>,
        told: &mut dyn FnMut(u64),
    ) -> Result<Vec<Range<u64>>> {
        let apart = joined(apart);
        let (all, mut done, mut left) = (apart.len() as u64, 0, Vec::new());
        let mut parts = vec![apart];
        while let Some(mut part) = parts.pop() {
            let is_right = !part.is_empty() && self.is_right(&part);
            if !is_right && part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
                continue;
            }
            for range in part {
                match is_right {
                    true => array.compute_again(&range)?,
                    false => left.push(range),
                }
                done += 1;
                told(done * 100 / all);
            }
        }
        Ok(left)
    }

    /// Looks where writes met what does not agree. It is read and verified at once: what was
    /// written there has no redundancy before parity is computed of it. A place that cannot be
    /// read, or is not right, is looked at again some times: a device may be busy, or be replaced.
    /// Half of these are kept for when no member is missing any more.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn settle_noticed(&self, array: &Array) -> Result<()> {
        let mut wanted = std::mem::take(&mut *self.members.noticed.lock());
        for range in array.noticed() {
            if !wanted.iter().any(|(known, _)| *known == range) {
                wanted.push((range, 0));
            }
        }
        let is_whole = array.members().iter().all(|member| member.standing == Standing::In);
        let looks = if is_whole { LOOKS_MAX } else { LOOKS_MAX / 2 };
        let (mut wanted, mut kept): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|(_, tries)| *tries < looks);
        let (mut apart, mut unread) = (Vec::new(), Vec::new());
        for (range, _) in &wanted {
            match array.disagreements(range.start, range.end - range.start) {
                Ok(found) => apart.extend(found),
                Err(_) => unread.push(range.clone()),
            }
        }
        let computed = self.compute_parity(array, apart.clone(), &mut |_| ());
        unread.extend(computed.as_ref().map_or(apart, Clone::clone));
        let unread = joined(unread);
        wanted.retain(|(range, _)| touches(&unread, range.start, range.end - range.start));
        wanted.iter_mut().for_each(|(_, tries)| *tries += 1);
        if !is_whole {
            wanted.append(&mut kept);
        }
        // The next scrub finds the others.
        wanted.truncate(NOTICED_MAX);
        *self.members.noticed.lock() = wanted;
        computed.map(drop)
    }

    /// Looks at what was in flight when the pool was used last. The opening began at `began_ns`;
    /// `told` hears how far it is, and at last what it took.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn settle_members(
        &self,
        began_ns: u64,
        told: &mut dyn FnMut(&Settling),
    ) -> Result<()> {
        let Some(array) = self.members.array() else { return Ok(()) };
        let ranges = array.unsettled();
        let now_ns = self.core.machine.clock.monotonic_ns();
        let mut state = Settling {
            unsettled_bytes: ranges.iter().map(|range| range.end - range.start).sum(),
            recovered_ns: now_ns.saturating_sub(began_ns),
            ..Settling::default()
        };
        if !ranges.is_empty() {
            self.settle(array, &ranges, &mut state, told)?;
        }
        state.phase = SettlePhase::Done;
        told(&state);
        assert!(self.members.settled.set(state).is_ok(), "a pool is opened once");
        Ok(())
    }

    fn settle(
        &self,
        array: &Array,
        ranges: &[Range<u64>],
        state: &mut Settling,
        told: &mut dyn FnMut(&Settling),
    ) -> Result<()> {
        let clock = &self.core.machine.clock;
        let began_ns = clock.monotonic_ns();
        let (apart, mut unread) = apart_in(array, ranges, state, told);
        // Stripes reach into regions beside those that are open: what is there gets into their
        // parity as well.
        (state.phase, state.percent) = (SettlePhase::Copies, 0);
        told(state);
        let looked_at = joined(ranges.iter().chain(&apart).cloned().collect());
        // Where parity agrees what is computed is what lies there.
        let apart_or_unread = joined(unread.iter().chain(&apart).cloned().collect());
        let agrees = |from: u64, length: u64| !touches(&apart_or_unread, from, length);
        let agreed: Option<&dyn Fn(u64, u64) -> bool> =
            if array.has_parity_alone() { Some(&agrees) } else { None };
        let report = self.scrub(&looked_at, agreed, None, &mut |read_bytes, (done, all)| {
            state.read_bytes = read_bytes;
            state.percent = done * 100 / all.max(1);
            told(state);
        });
        self.core.media.scrub().map_err(|e| Error::corrupt(e.to_string()))?;
        let looked_ns = clock.monotonic_ns();
        state.copies_ns = looked_ns.saturating_sub(began_ns);
        state.phase = SettlePhase::Parity;
        state.percent = if apart.is_empty() { 100 } else { 0 };
        state.wrong = report.wrong;
        told(state);
        let computed = self.compute_parity(array, apart, &mut |percent| {
            state.percent = percent;
            told(state);
        });
        match computed {
            Err(_) => unread = ranges.to_vec(),
            // Their regions stay open: the next opening looks at them too. Before that a member
            // that comes back may make them right.
            Ok(left) => {
                let left = joined(left);
                let is_left =
                    |range: &&Range<u64>| touches(&left, range.start, range.end - range.start);
                unread.extend(ranges.iter().filter(is_left).cloned());
                self.members
                    .noticed
                    .lock()
                    .extend(left.into_iter().take(NOTICED_MAX).map(|r| (r, 0)));
            }
        }
        array.end_settling(&unread);
        state.parity_ns = clock.monotonic_ns().saturating_sub(looked_ns);
        if report.wrong > 0 {
            let detail = format!(
                "after a crash: {} ranges differed, {} were written again from a copy that was \
                 right, {} were repaired from another version, {} blocks are lost",
                report.wrong, report.healed, report.repaired, report.lost
            );
            self.core.note("settle", "", detail)?;
        }
        Ok(())
    }
}

impl ScrubMap for Core {
    fn still_names(&self, version: &Version) -> bool {
        let timelines = self.timelines.read();
        let Some((_, timeline)) = timelines.get(&version.timeline) else { return false };
        let of = (timeline.log, Arc::new(VolumeName::new(String::new())));
        let at = version.seq;
        let opening =
            Opening::new(Arc::clone(&self.store), of, Arc::clone(timeline), at, (u64::MAX, None));
        let mut slots = [Slot::default()];
        match opening.look_up(version.block.0, &mut slots, Wait::Device) {
            Ok(_) => slots[0].location == version.location,
            Err(_) => true,
        }
    }

    fn alike(&self, like: (u64, u32)) -> Vec<Entry> {
        self.alike_on(&self.timelines.read(), like)
    }
}

#[cfg(test)]
mod tests {
    use super::{joined, touches};

    #[test]
    fn what_touches_ranges_touches_them_joined() {
        let mut seed = 0x5eed_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let ranges: Vec<_> = (0..random(12))
                .map(|_| {
                    let start = random(100);
                    start..start + 1 + random(9)
                })
                .collect();
            let joined = joined(ranges.clone());
            assert!(joined.windows(2).all(|two| two[0].end <= two[1].start));
            for (from, length) in (0..110).flat_map(|from| (1..5).map(move |n| (from, n))) {
                let one_by_one = ranges.iter().any(|r| r.start < from + length && from < r.end);
                assert_eq!(touches(&joined, from, length), one_by_one, "{from}, {length}");
            }
        }
    }
}
