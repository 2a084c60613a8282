//! Several sources of entries as one, in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use format::map::{Entry, Key};
use units::Seq;

use super::cursor::EntrySource;
use crate::Result;

/// The order of the heap: an entry's place, then its source's place in the list.
type Head = Reverse<(Key, Reverse<Seq>, usize)>;

/// Merges sources in the order of entries. Of entries with the same key and seq it returns the one
/// of the source that comes first in the list. After an error it ends.
pub struct MergeIter<S: EntrySource> {
    sources: Vec<S>,
    heads: BinaryHeap<Head>,
    previous: Option<(Key, Reverse<Seq>)>,
}

impl<S: EntrySource> MergeIter<S> {
    /// Begins where the sources stand.
    pub fn new(sources: Vec<S>) -> MergeIter<S> {
        let head = |(i, source): (usize, &S)| source.peek().map(|entry| head(i, &entry));
        let heads = sources.iter().enumerate().filter_map(head).collect();
        MergeIter { sources, heads, previous: None }
    }

    /// Takes the first head; its source goes on.
    fn pop(&mut self) -> Result<Option<Entry>> {
        let Some(Reverse((.., i))) = self.heads.pop() else { return Ok(None) };
        let source = &mut self.sources[i];
        let entry = source.peek().expect("a source with a head has an entry");
        source.advance()?;
        if let Some(next) = source.peek() {
            assert!(entry.order() < next.order(), "a source in order");
            self.heads.push(head(i, &next));
        }
        Ok(Some(entry))
    }
}

fn head(source: usize, entry: &Entry) -> Head {
    let (key, seq) = entry.order();
    Reverse((key, seq, source))
}

impl<S: EntrySource> Iterator for MergeIter<S> {
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
