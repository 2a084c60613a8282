//! Which moments of a timeline can be opened, and so which block versions are needed.
//!
//! The one rule: a block version written at seq i and superseded at seq j is needed if and only if
//! some openable moment m has i <= m < j. Granularity, deletion of versions and expiry all follow
//! from it.

use units::Seq;

/// The openable moments of one timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Openable {
    /// Closed ranges of seqs all of which can be opened; sorted, disjoint.
    ranges: Vec<(Seq, Seq)>,
}

impl Openable {
    /// No moment at all.
    pub fn none() -> Openable {
        Openable::default()
    }

    /// From any ranges, in any order, overlapping or not; empty ones are dropped.
    pub fn new(mut ranges: Vec<(Seq, Seq)>) -> Openable {
        ranges.retain(|(first, last)| first <= last);
        ranges.sort_unstable();
        let mut joined: Vec<(Seq, Seq)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(open) if first.0 <= open.1.0.saturating_add(1) => open.1 = open.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Openable { ranges: joined }
    }

    /// The part within `first..=last`.
    #[must_use]
    pub fn within(&self, first: Seq, last: Seq) -> Openable {
        let cut = |&(a, b): &(Seq, Seq)| (a.max(first), b.min(last));
        Openable::new(self.ranges.iter().map(cut).collect())
    }

    /// The ranges, sorted and disjoint.
    pub fn ranges(&self) -> &[(Seq, Seq)] {
        &self.ranges
    }

    /// Whether no moment can be opened.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether this very moment can be opened.
    pub fn contains(&self, seq: Seq) -> bool {
        self.last_at_or_before(seq) == Some(seq)
    }

    /// Whether a version from `written` up to but not including `superseded` (never, if `None`) is
    /// needed.
    pub fn needs(&self, written: Seq, superseded: Option<Seq>) -> bool {
        let last = match superseded {
            Some(seq) if seq <= written => return false,
            Some(seq) => Seq(seq.0 - 1),
            None => Seq(u64::MAX),
        };
        self.last_at_or_before(last).is_some_and(|moment| moment >= written)
    }

    /// The last openable moment at or before `seq`.
    pub fn last_at_or_before(&self, seq: Seq) -> Option<Seq> {
        let after = self.ranges.partition_point(|r| r.0 <= seq);
        let (_, last) = *self.ranges.get(after.checked_sub(1)?)?;
        Some(last.min(seq))
    }

    /// The first openable moment.
    pub fn first(&self) -> Option<Seq> {
        self.ranges.first().map(|r| r.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Openable;
    use units::Seq;

    #[test]
    fn agrees_with_the_rule_by_enumeration() {
        let sets: [&[(u64, u64)]; 4] =
            [&[], &[(3, 3)], &[(2, 4), (8, 8)], &[(8, 9), (1, 2), (3, 4)]];
        for set in sets {
            let open = Openable::new(set.iter().map(|&(a, b)| (Seq(a), Seq(b))).collect());
            let is_open = |m: u64| set.iter().any(|&(a, b)| a <= m && m <= b);
            for i in 0..12 {
                assert_eq!(open.contains(Seq(i)), is_open(i), "{set:?} {i}");
                assert_eq!(open.needs(Seq(i), None), (i..20).any(is_open));
                for j in i..12 {
                    assert_eq!(open.needs(Seq(i), Some(Seq(j))), (i..j).any(is_open));
                }
            }
        }
    }
}
