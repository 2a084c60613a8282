//! The content that a file would have: pieces of what it had at some moments.

use std::collections::BTreeMap;

use super::ranges::Ranges;
use crate::operation_log::At;

/// A part of a file: first byte, end, and a moment at which its bytes were in it, or none of zeros.
pub(crate) type Piece = (u64, u64, Option<At>);

/// The content of a file, by the moments at which its bytes were in it. Bytes of no piece are
/// zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub size: u64,
    /// By first byte: the end, and the moment. They do not overlap.
    pieces: BTreeMap<u64, (u64, At)>,
    /// Ranges that were changed since, by undone operations or others: all else is as it is.
    changed: Ranges<()>,
}

impl Content {
    /// All of a file as it was.
    pub(crate) fn of(size: u64, at: At) -> Content {
        let mut content = Content { size, ..Content::default() };
        if size > 0 {
            content.pieces.insert(0, (size, at));
        }
        content
    }

    /// Bytes were written, and were in the file at that moment.
    pub(crate) fn write(&mut self, offset: u64, bytes: u64, at: At) {
        if bytes == 0 {
            return;
        }
        let end = offset.saturating_add(bytes);
        self.change(offset, end);
        self.clear(offset, end);
        self.pieces.insert(offset, (end, at));
        self.size = self.size.max(end);
    }

    /// It was given another size.
    pub(crate) fn resize(&mut self, size: u64) {
        self.change(size, u64::MAX);
        self.clear(size, u64::MAX);
        self.size = size;
    }

    /// A range was changed, in history or here.
    pub(crate) fn change(&mut self, from: u64, to: u64) {
        self.changed.add(from, to, ());
    }

    /// The pieces of the whole in order: first byte, end, and the moment, or none of zeros.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        let (mut all, mut next) = (Vec::new(), 0);
        for (&start, &(end, at)) in &self.pieces {
            if next < start {
                all.push((next, start, None));
            }
            all.push((start, end, Some(at)));
            next = end;
        }
        if next < self.size {
            all.push((next, self.size, None));
        }
        all
    }

    /// The pieces of what was changed.
    pub(crate) fn changed_pieces(&self) -> Vec<Piece> {
        let of = |(start, end, at): Piece| {
            self.changed.within(start, end).map(move |(start, end, ())| (start, end, at))
        };
        self.pieces().into_iter().flat_map(of).collect()
    }

    fn clear(&mut self, from: u64, to: u64) {
        let first = self.pieces.range(..from).next_back().map(|(start, _)| *start);
        let inside = self.pieces.range(from..to).map(|(start, _)| *start);
        let touched: Vec<u64> = first.into_iter().chain(inside).collect();
        for start in touched {
            let (end, at) = self.pieces[&start];
            if end <= from {
                continue;
            }
            self.pieces.remove(&start);
            if start < from {
                self.pieces.insert(start, (from, at));
            }
            if end > to {
                self.pieces.insert(to, (end, at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Seq;

    use super::Content;
    use crate::operation_log::At;

    #[test]
    fn pieces_are_what_was_written_last_and_only_what_changed_is_looked_at() {
        let at = |operation| At { seq: Seq(operation), operation, incarnation: None };
        let mut content = Content::of(100, at(1));
        assert_eq!(content.changed_pieces(), []);
        content.change(10, 20);
        content.write(15, 10, at(2));
        assert_eq!(content.changed_pieces(), [(10, 15, Some(at(1))), (15, 25, Some(at(2)))]);
        content.resize(50);
        content.write(80, 10, at(3));
        let whole = [
            (0, 15, Some(at(1))),
            (15, 25, Some(at(2))),
            (25, 50, Some(at(1))),
            (50, 80, None),
            (80, 90, Some(at(3))),
        ];
        assert_eq!(content.pieces(), whole);
        let changed =
            [(10, 15, Some(at(1))), (15, 25, Some(at(2))), (50, 80, None), (80, 90, Some(at(3)))];
        assert_eq!(content.changed_pieces(), changed);
        content.resize(0);
        assert_eq!((content.pieces(), content.changed_pieces()), (vec![], vec![]));
    }
}
