//! The entries of several runs as one sequence, in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use format::map::{Entry, Key};
use units::Seq;

use super::cursor::RunCursor;
use crate::Result;

/// The order of the heap: an entry's place, then its cursor's place in the list.
type Head = Reverse<(Key, Reverse<Seq>, usize)>;

/// Merges runs in the order of entries. Of entries with the same key and seq it returns the one of
/// the cursor that comes first in the list. After an error it ends.
pub struct MergeIter<'a> {
    cursors: Vec<RunCursor<'a>>,
    heads: BinaryHeap<Head>,
    previous: Option<(Key, Reverse<Seq>)>,
}

impl<'a> MergeIter<'a> {
    /// Begins where the cursors stand.
    pub fn new(cursors: Vec<RunCursor<'a>>) -> MergeIter<'a> {
        let head =
            |(i, cursor): (usize, &RunCursor<'a>)| cursor.peek().map(|entry| head(i, &entry));
        let heads = cursors.iter().enumerate().filter_map(head).collect();
        MergeIter { cursors, heads, previous: None }
    }

    /// Takes the first head; its cursor goes on.
    fn pop(&mut self) -> Result<Option<Entry>> {
        let Some(Reverse((.., i))) = self.heads.pop() else { return Ok(None) };
        let cursor = &mut self.cursors[i];
        let entry = cursor.peek().expect("a cursor with a head has an entry");
        cursor.advance()?;
        if let Some(next) = cursor.peek() {
            assert!(entry.order() < next.order(), "a run in order");
            self.heads.push(head(i, &next));
        }
        Ok(Some(entry))
    }
}

fn head(cursor: usize, entry: &Entry) -> Head {
    let (key, seq) = entry.order();
    Reverse((key, seq, cursor))
}

impl Iterator for MergeIter<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        loop {
            match self.pop() {
                Ok(None) => return None,
                Ok(Some(entry)) if self.previous == Some(entry.order()) => {}
                Ok(Some(entry)) => {
                    self.previous = Some(entry.order());
                    return Some(Ok(entry));
                }
                Err(error) => {
                    self.heads.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}
