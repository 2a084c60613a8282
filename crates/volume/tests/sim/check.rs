//! The comparisons: the present, moments, diffs, holes, everything.

use hindsight_volume::{ErrorKind, Granularity, Resolved, Result, View};
use units::Moment;

use crate::cached::is_mixture;
use crate::model::Model;
use crate::oracle::{Change, Entry};
use crate::world::{Held, World, at_seq};

const BLOCK: usize = 4096;

/// What a seq must show.
pub enum Expected {
    /// These bytes.
    Exact(Vec<u8>),
    /// A write of several seqs is half done: from some block on the first, before it the second.
    Between(Vec<u8>, Vec<u8>),
    /// Each block is as it was before these changes or after one of them.
    Mixed(Vec<u8>, Vec<Change>),
}

impl Expected {
    /// Fails where `content` is something else.
    pub fn check(&self, content: &[u8], what: &str) {
        match self {
            Expected::Exact(expected) => same(content, expected, what),
            Expected::Mixed(before, changes) => {
                assert!(is_mixture(before, changes, content), "{what}: not a part of the writes");
            }
            Expected::Between(before, after) => {
                assert!(
                    cut_of(before, after, content).is_some(),
                    "{what}: not a part of the write"
                );
            }
        }
    }
}

/// Fails with the first difference.
pub fn same(content: &[u8], expected: &[u8], what: &str) {
    assert_eq!(content.len(), expected.len(), "{what}: size");
    // Nearly always they are, and the whole is compared many times as fast as byte by byte.
    if content == expected {
        return;
    }
    if let Some(at) = content.iter().zip(expected).position(|(a, b)| a != b) {
        let last = content.iter().zip(expected).rposition(|(a, b)| a != b).expect("there is one");
        let zeros = content[at..=last].iter().all(|&b| b == 0);
        panic!("{what}: differs from byte {at} to {last} (all zeros there: {zeros})");
    }
}

/// Up to which byte `content` is `after`, from where on it is `before`; a block boundary or an end.
pub fn cut_of(before: &[u8], after: &[u8], content: &[u8]) -> Option<usize> {
    if before.len() != content.len() || after.len() != content.len() {
        return None;
    }
    let changed = content.chunks(BLOCK).zip(before.chunks(BLOCK)).rposition(|(a, b)| a != b);
    let cut = changed.map_or(0, |block| (block + 1) * BLOCK).min(content.len());
    (content[..cut] == after[..cut]).then_some(cut)
}

impl Model {
    /// What must be seen at a seq that was given.
    pub fn expected_at(&self, seq: u64) -> Expected {
        let entries = &self.oracle.entries;
        let next = entries.partition_point(|e| e.seq < seq);
        match entries.get(next) {
            Some(Entry { seq: end, change: Change::Whole(_), .. }) if *end != seq => {
                let before = next.checked_sub(1).map_or(self.oracle.base.0, |i| entries[i].seq);
                assert_eq!(before, seq, "no moment lies within a batch, which ends at {end}");
                Expected::Exact(self.oracle.view_at(seq))
            }
            Some(entry) if entry.seq != seq && spans(&entry.change) => {
                // `seq` may lie within this change, which took several.
                let before = self.oracle.view_at(entry.seq - 1);
                if let Change::Several(changes) | Change::Become(_, changes) = &entry.change {
                    return Expected::Mixed(before, changes.clone());
                }
                let after = self.oracle.view_at(entry.seq);
                Expected::Between(before, after)
            }
            _ => Expected::Exact(self.oracle.view_at(seq)),
        }
    }

    /// The content at a seq, unless a write is half done there.
    pub fn exact_at(&self, seq: u64) -> Option<Vec<u8>> {
        let is_end = seq <= self.oracle.base.0 || self.oracle.entries.iter().any(|e| e.seq == seq);
        match self.expected_at(seq) {
            Expected::Exact(content) => Some(content),
            Expected::Between(before, _) => is_end.then_some(before),
            Expected::Mixed(..) => None,
        }
    }

    /// The rules about what a moment may come to.
    pub fn check_resolved(&self, moment: &Moment, resolved: Option<Resolved>) {
        let latest = self.oracle.latest();
        if let Some(resolved) = resolved {
            assert!(resolved.seq.0 <= latest, "{moment}: beyond the latest seq {latest}");
        }
        let exactly = |seq: u64| {
            let found = resolved.unwrap_or_else(|| panic!("{moment}: cannot be opened"));
            assert_eq!((found.seq.0, found.exact), (seq, true), "{moment} came to something else");
        };
        match moment {
            Moment::Latest => exactly(latest),
            Moment::Version(number) => exactly(self.versions[number]),
            Moment::Mark(name) if self.marks[name].1 => exactly(self.marks[name].0),
            Moment::Mark(name) => self.check_resolved_seq(self.marks[name].0, resolved),
            Moment::Seq(seq) => self.check_resolved_seq(seq.0, resolved),
            Moment::At(time) => self.check_resolved_time(time.as_nanos(), resolved),
            Moment::Ago(_) => {}
        }
    }

    fn check_resolved_seq(&self, seq: u64, resolved: Option<Resolved>) {
        if let Some(found) = resolved {
            assert!(found.seq.0 <= seq, "seq:{seq} came to a later moment");
            assert_eq!(found.exact, found.seq.0 == seq, "seq:{seq}: exact says whether it is");
        }
        let exact = resolved.is_some_and(|r| r.exact);
        if self.pinned().any(|pin| pin == seq) {
            assert!(exact, "seq:{seq} is pinned");
        }
        if let Some(index) = self.oracle.entries.iter().position(|e| e.seq == seq) {
            let retained = self.must_open(index) || self.ends_interval(index);
            assert!(exact || !retained, "seq:{seq} is in the window: {resolved:?}");
        }
    }

    /// Whether a seq is the last of a complete interval that the window must still hold.
    fn ends_interval(&self, index: usize) -> bool {
        let (entry, next) = (&self.oracle.entries[index], self.oracle.entries.get(index + 1));
        let until_ns = self.oracle.was_present_until_ns(index);
        let Granularity::Interval(nanos) = self.granularity_at(entry.seq) else { return false };
        let Some(next) = next else { return false };
        !self.squeezed
            && until_ns > self.expired_to_ns
            && next.seq == entry.seq + 1
            && !matches!(next.change, Change::Nothing)
            && !matches!(entry.change, Change::Nothing)
            && self.granularity_at(next.seq) == self.granularity_at(entry.seq)
            && until_ns / nanos > entry.time_ns / nanos
    }

    fn check_resolved_time(&self, time_ns: u64, resolved: Option<Resolved>) {
        let entries = &self.oracle.entries;
        let after = entries.iter().position(|e| e.time_ns > time_ns).unwrap_or(entries.len());
        if let Some(found) = resolved {
            assert!(
                found.time.as_nanos() <= time_ns,
                "the time {time_ns} came to the later {found:?}; base seq {}",
                self.oracle.base.0
            );
            if let Some(next) = entries.iter().find(|e| e.earliest_ns > time_ns) {
                assert!(found.seq.0 < next.seq, "a time came to a later seq");
            }
        }
        let last = entries[..after].iter().rposition(|e| e.change != Change::Nothing);
        let Some(index) = last.filter(|&index| self.must_open(index)) else { return };
        if time_ns > self.expired_to_ns {
            let found = resolved.unwrap_or_else(|| panic!("the time {time_ns} is in the window"));
            let expected = entries[index].seq;
            assert!(found.seq.0 >= expected, "a time came to {}, not {expected}", found.seq.0);
        }
    }
}

/// Whether a change may take several seqs.
fn spans(change: &Change) -> bool {
    matches!(change, Change::Write(..) | Change::Zero(..) | Change::Several(_) | Change::Become(..))
}

/// Reads all of a view, in pieces of odd sizes.
pub fn content_of(view: &View) -> Result<Vec<u8>> {
    let mut content = vec![0x5a; view.size_bytes() as usize];
    let mut offset = 0;
    for piece in content.chunks_mut(700_001) {
        if !view.try_read(offset, piece)? {
            view.read(offset, piece)?;
        }
        offset += piece.len() as u64;
    }
    Ok(content)
}

impl World {
    /// Compares part of the present.
    pub fn check_range(&mut self, name: &str, offset: u64, length: usize) -> Result<()> {
        let volume = self.volume(name);
        let mut bytes = vec![0x5a; length];
        if !self.random.chance(500) || !volume.try_read(offset, &mut bytes)? {
            volume.read(offset, &mut bytes)?;
        }
        let start = offset as usize;
        same(&bytes, &self.models[name].present[start..start + length], &format!("{name}@latest"));
        let end = volume.size_bytes();
        let beyond = volume.read(end, &mut [0]).expect_err("beyond the end");
        assert_eq!(beyond.kind, ErrorKind::OutOfBounds);
        Ok(())
    }

    /// Resolves a moment, opens it and compares it; holds the view when told to.
    pub fn check_moment(&mut self, name: &str, moment: &Moment, hold: bool) -> Result<()> {
        let Some(resolved) = self.resolve(name, moment)? else { return Ok(()) };
        let view = self.volume(name).view(moment)?;
        assert_eq!(view.resolved().seq, resolved.seq, "resolve and view agree");
        let content = content_of(&view)?;
        let what = format!("{name}@{moment} (seq {})", resolved.seq);
        self.models[name].expected_at(resolved.seq.0).check(&content, &what);
        if hold && self.views.len() < 8 {
            self.views.push_back(Held { view, volume: name.to_owned(), content });
        }
        Ok(())
    }

    /// Compares a diff with the two contents: every block that differs is in it.
    pub fn check_diff(&mut self, name: &str, from: u64, to: u64) -> Result<()> {
        let (Some(a), Some(b)) =
            (self.resolve(name, &at_seq(from))?, self.resolve(name, &at_seq(to))?)
        else {
            return Ok(());
        };
        let model = &self.models[name];
        let (Some(before), Some(after)) = (model.exact_at(a.seq.0), model.exact_at(b.seq.0)) else {
            return Ok(());
        };
        let mut covered = vec![false; before.len().max(after.len()).div_ceil(BLOCK)];
        let mut offset = Some(0);
        while let Some(start) = offset {
            let page =
                self.volume(name).diff(&at_seq(from), &at_seq(to), start, u64::MAX - start, 3)?;
            for range in &page.ranges {
                let first = range.offset as usize / BLOCK;
                let end = (range.offset + range.length_bytes).div_ceil(BLOCK as u64) as usize;
                assert!(range.length_bytes > 0 && end <= covered.len(), "{range:?} lies outside");
                covered[first..end].fill(true);
            }
            assert!(page.next_offset.is_none_or(|next| next > start), "a diff goes forward");
            offset = page.next_offset;
        }
        for (block, covered) in covered.iter().enumerate() {
            let part = |content: &[u8]| {
                let start = (block * BLOCK).min(content.len());
                content[start..(start + BLOCK).min(content.len())].to_vec()
            };
            let (x, y) = (part(&before), part(&after));
            let equal = x == y;
            if x.len() == y.len() {
                assert_eq!(*covered, !equal, "{name} diff {from} {to}: block {block}");
            }
        }
        Ok(())
    }

    /// Compares data and holes: joined, without a gap, and holes are zeros.
    pub fn check_extents(&mut self, name: &str) -> Result<()> {
        let present = &self.models[name].present;
        let extents = self.volume(name).extents(0, present.len() as u64, usize::MAX)?;
        let mut position = 0;
        let mut before = None;
        for extent in &extents {
            assert_eq!(extent.offset, position, "no gap");
            assert!(extent.length_bytes > 0 && before != Some(extent.hole), "joined");
            let range = position as usize..(position + extent.length_bytes) as usize;
            let is_zero = |part: &[u8]| part == &[0; BLOCK][..part.len()];
            let is_right = !extent.hole || present[range].chunks(BLOCK).all(is_zero);
            assert!(is_right, "holes are zeros");
            position += extent.length_bytes;
            before = Some(extent.hole);
        }
        assert_eq!(position, present.len() as u64, "to the end");
        Ok(())
    }

    /// Compares every volume: the present, versions, pinned marks, some moments, held views,
    /// invariants.
    pub fn check_all(&mut self) -> Result<()> {
        self.pool().verify_invariants()?;
        let names: Vec<String> = self.models.keys().cloned().collect();
        let there: Vec<String> =
            self.pool().volumes().iter().map(|v| v.name().to_owned()).collect();
        assert_eq!(there, names, "the volumes by name");
        for name in names {
            self.check_range(&name, 0, self.models[&name].present.len())?;
            self.check_volume(&name)?;
        }
        for held in &self.views {
            let what = format!("held view of {}", held.volume);
            same(&content_of(&held.view)?, &held.content, &what);
        }
        Ok(())
    }

    /// The buckets of the window, a few at a time: ascending, and together every seq since its
    /// start, whatever the size of the pages in which they are told.
    fn check_history(&mut self, name: &str) -> Result<()> {
        let volume = self.volume(name);
        let info = volume.info()?;
        let step_ns = self.random.between(1, 20_000_000_000);
        let (mut since, mut last) = (None, None);
        let mut totals = (0, 0, 0);
        loop {
            let page = volume.history(since.as_ref(), None, step_ns, 5)?;
            for bucket in &page.buckets {
                let time = bucket.time.as_nanos();
                assert!(last.is_none_or(|last| last <= time), "{name}: buckets rise");
                last = Some(time);
                totals.0 += bucket.writes;
                totals.1 += bucket.bytes;
                totals.2 += bucket.flushes;
            }
            let Some(next) = page.next else { break };
            since = Some(Moment::At(next));
        }
        let whole = volume.history(None, None, u64::MAX, 1)?.buckets;
        let whole = whole.first().map_or((0, 0, 0), |b| (b.writes, b.bytes, b.flushes));
        assert_eq!(totals, whole, "{name}: the totals of all pages");
        // No number of the world's: its later ones would be others, and its seed another story.
        let columns = 1 + (info.latest.seq.0 % 50) as usize;
        let columns = volume.timeline(None, None, columns)?;
        let seqs = columns.seqs.last().expect("edges").0 - columns.seqs[0].0;
        let sums = (seqs, columns.bytes.iter().sum(), columns.flushes.iter().sum());
        assert_eq!(sums, whole, "{name}: the totals of all columns");
        let seqs = info.latest.seq.0 - info.oldest.seq.0;
        let model = &self.models[name];
        // Where not every write can be opened, the oldest that can may be younger than the window.
        let every = |g: &(u64, Granularity)| g.1 == Granularity::EveryWrite;
        let is_plain = model.granularities.iter().all(every) && model.oracle.base.0 == 0;
        // After a clock was set back, the window's start may lie after what was written since.
        if info.oldest.time <= info.latest.time && is_plain {
            assert!(whole.0 <= seqs, "{name}: {} writes, {seqs} seqs", whole.0);
        }
        Ok(())
    }

    fn check_volume(&mut self, name: &str) -> Result<()> {
        self.number(name)?;
        let model = &self.models[name];
        let mut moments: Vec<Moment> = model.versions.keys().map(|&n| Moment::Version(n)).collect();
        moments.extend(model.marks.keys().map(|mark| Moment::Mark(mark.clone())));
        let (first, last) = (model.oracle.base.0, model.oracle.latest());
        for _ in 0..4 {
            moments.push(at_seq(self.random.between(first, last)));
        }
        // A bounded number, so that a run with many pins does not spend its time here.
        while moments.len() > 12 {
            let index = self.random.below(moments.len() as u64) as usize;
            moments.swap_remove(index);
        }
        for moment in moments {
            self.check_moment(name, &moment, false)?;
        }
        self.check_history(name)?;
        let versions = self.volume(name).versions()?;
        let seqs: Vec<_> = versions.iter().map(|v| (v.number, v.stamp.seq.0)).collect();
        let expected: Vec<_> = self.models[name].versions.iter().map(|(&n, &s)| (n, s)).collect();
        assert_eq!(seqs, expected, "versions of {name}");
        let marks = self.volume(name).marks()?;
        let marks: Vec<_> =
            marks.into_iter().map(|m| (m.name, (m.stamp.seq.0, m.pinned))).collect();
        let expected: Vec<_> =
            self.models[name].marks.iter().map(|(n, &m)| (n.clone(), m)).collect();
        assert_eq!(marks, expected, "marks of {name}");
        Ok(())
    }
}
