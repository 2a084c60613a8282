//! Where nothing says what there was, or what there is is wrong on every copy: whether that is a
//! loss is for the map to say.

use std::collections::BTreeMap;
use std::ops::Range;

use format::location::Location;
use units::BLOCK_BYTES;

/// Ranges of one segment, beyond which all of it from the first to the last is suspect.
const RANGES_MAX: usize = 64;

/// Ranges of segments, ascending and apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspects(BTreeMap<u64, Vec<Range<u32>>>);

impl Suspects {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range of a segment, behind or within those that are there.
    pub fn add(&mut self, segment: u64, range: Range<u32>) {
        let ranges = self.0.entry(segment).or_default();
        if ranges.iter().any(|r| r.start <= range.start && range.end <= r.end) {
            return;
        }
        let is_full = ranges.len() >= RANGES_MAX;
        match ranges.last_mut() {
            Some(last) if range.start <= last.end || is_full => {
                last.start = last.start.min(range.start);
                last.end = last.end.max(range.end);
            }
            _ => ranges.push(range),
        }
    }

    /// Whether a block or pack there touches one.
    pub fn has(&self, location: Location) -> bool {
        let Some(ranges) = self.0.get(&location.segment()) else { return false };
        let from = location.offset_bytes();
        let end = from.saturating_add(BLOCK_BYTES as u32);
        !location.is_hole() && ranges.iter().any(|r| r.start < end && from < r.end)
    }

    /// All of them, with their segments.
    pub fn list(&self) -> impl Iterator<Item = (u64, Range<u32>)> + '_ {
        self.0.iter().flat_map(|(segment, ranges)| ranges.iter().map(|r| (*segment, r.clone())))
    }
}

#[cfg(test)]
mod tests {
    use format::location::Location;

    use super::{RANGES_MAX, Suspects};

    #[test]
    fn ranges_that_meet_are_one_and_what_touches_them_is_suspect() {
        let mut suspects = Suspects::default();
        suspects.add(3, 4096..8192);
        suspects.add(3, 8192..8256);
        suspects.add(3, 4160..4224);
        suspects.add(3, 65536..65600);
        let list: Vec<_> = suspects.list().collect();
        assert_eq!(list, [(3, 4096..8256), (3, 65536..65600)]);
        for (offset, is_one) in [(64, true), (8192, true), (8256, false), (61_440, false)] {
            assert_eq!(suspects.has(Location::new(3, offset)), is_one, "offset {offset}");
        }
        assert!(!suspects.has(Location::new(4, 4096)));
    }

    #[test]
    fn many_ranges_of_a_segment_become_one_that_has_them_all() {
        let mut suspects = Suspects::default();
        for n in 0..1000 {
            suspects.add(1, n * 8192..n * 8192 + 64);
        }
        assert!(suspects.list().count() <= RANGES_MAX);
        assert!((0..1000).all(|n| n == 0 || suspects.has(Location::new(1, n * 8192))));
    }
}
