//! A part of a disk.

use std::iter;
use std::ops::Range;
use std::rc::Rc;

use crate::source::{self, Slice, Source};

/// A part of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// `p2` by the number that the kernel gives it, `GROUP-VOLUME` as device mapper names one of
    /// LVM; the whole disk has none.
    pub name: String,
    /// Its name in the table, if that has names.
    pub label: String,
    /// Where it is on the disk, in bytes and in order.
    pub ranges: Vec<Range<u64>>,
    /// Why it is not read, where that is known without a look into it.
    pub refused: Option<String>,
}

impl Part {
    /// A whole disk of so many bytes.
    #[must_use]
    pub fn whole(size: u64) -> Part {
        Part { ranges: iter::once(0..size).collect(), ..Part::default() }
    }

    /// That of a number.
    pub(crate) fn numbered(number: u32, label: String, range: Range<u64>) -> Part {
        Part { name: format!("p{number}"), label, ranges: vec![range], refused: None }
    }

    /// Its length, in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Where a range of it is on the disk, in order.
    pub fn places(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        source::places(&self.ranges, range)
    }

    /// It, as a source.
    #[must_use]
    pub fn of(&self, disk: &Rc<dyn Source>) -> Slice {
        Slice::joined(disk.clone(), self.ranges.iter().cloned())
    }
}
