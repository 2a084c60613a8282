//! The content that a file would have: pieces of what it had at some moments.

use std::collections::BTreeMap;

use crate::operation_log::At;

/// The content of a file, by the moments at which its bytes were in it. Bytes of no piece are
/// zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub size: u64,
    /// By first byte: the end, and the moment. They do not overlap.
    pieces: BTreeMap<u64, (u64, At)>,
}

impl Content {
    /// All of a file as it was.
    pub(crate) fn of(size: u64, at: At) -> Content {
        let mut content = Content { size, pieces: BTreeMap::new() };
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
        self.clear(offset, end);
        self.pieces.insert(offset, (end, at));
        self.size = self.size.max(end);
    }

    /// It was given another size.
    pub(crate) fn resize(&mut self, size: u64) {
        self.clear(size, u64::MAX);
        self.size = size;
    }

    /// The pieces in order: first byte, end, and the moment, or none of zeros.
    pub(crate) fn pieces(&self) -> Vec<(u64, u64, Option<At>)> {
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
