//! Which entries of one key are still needed (`history::Openable` has the rule).

use std::collections::BTreeMap;

use format::map::{Entry, Key, LEVEL_MAX};
use history::{Openable, Store, Timeline};
use units::Seq;

use crate::Result;

/// Trims of larger ranges, by what they cover.
#[derive(Debug, Default)]
pub struct Nodes(BTreeMap<Key, Vec<Seq>>);

impl Nodes {
    /// From entries of level 1 and more, in any order.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Nodes {
        let mut nodes = Nodes::default();
        // One of the first seq supersedes nothing; after an import of zeros there are many.
        let supersedes = |e: &Entry| e.key.level > 0 && e.seq > Seq(1);
        for entry in entries.into_iter().filter(supersedes) {
            nodes.0.entry(entry.key).or_default().push(entry.seq);
        }
        nodes.0.values_mut().for_each(|seqs| seqs.sort_unstable());
        nodes
    }

    /// The first trim after `seq` of a larger range that covers `key`.
    #[must_use]
    pub fn first_after(&self, key: Key, seq: Seq) -> Option<Seq> {
        if self.0.is_empty() {
            return None;
        }
        (key.level + 1..=LEVEL_MAX)
            .filter_map(|level| self.0.get(&Key::covering(key.first_block(), level)))
            .filter_map(|seqs| seqs.get(seqs.partition_point(|&s| s <= seq)).copied())
            .min()
    }
}

/// Trims of larger ranges in all runs and frozen entries of a timeline.
///
/// # Errors
/// `Corrupt` or `Io`.
pub fn nodes_of(store: &Store, timeline: &Timeline) -> Result<Nodes> {
    let mut found: Vec<Entry> = Vec::new();
    for run in timeline.runs() {
        if run.footer().key_last.level == 0 {
            continue;
        }
        run.with_source(store, |source| -> history::Result<()> {
            let place = Key { level: 1, index: 0 };
            let mut cursor = run.run.cursor_at(source, place, Seq::MAX)?;
            while let Some(entry) = cursor.peek() {
                found.push(entry);
                cursor.advance()?;
            }
            Ok(())
        })?;
    }
    for part in timeline.frozen() {
        found.extend_from_slice(part.nodes());
    }
    Ok(Nodes::new(found))
}

/// Visits the entries of one key (newest first) with whether each is needed, and the seq that
/// supersedes it. `nodes` supersede what they cover.
///
/// # Errors
/// Those of `visit`.
pub fn sift(
    entries: &[Entry],
    nodes: &Nodes,
    openable: &Openable,
    mut visit: impl FnMut(&Entry, bool, Option<Seq>) -> Result<()>,
) -> Result<()> {
    let mut newer: Option<Seq> = None;
    for entry in entries {
        let node = nodes.first_after(entry.key, entry.seq);
        let superseded = match (newer, node) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        visit(entry, openable.needs(entry.seq, superseded), superseded)?;
        newer = Some(entry.seq);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Nodes, sift};
    use format::map::{Entry, Key};
    use history::Openable;
    use units::{Lba, Seq};

    fn kept(seqs: &[u64], nodes: &[u64], open: &[(u64, u64)]) -> Vec<u64> {
        let entry = |seq: &u64| Entry::hole(Key::block(Lba(7)), Seq(*seq));
        let node = |seq: &u64| Entry::hole(Key { level: 1, index: 0 }, Seq(*seq));
        let entries: Vec<_> = seqs.iter().map(entry).collect();
        let nodes = Nodes::new(nodes.iter().map(node));
        let open = Openable::new(open.iter().map(|&(a, b)| (Seq(a), Seq(b))).collect());
        let mut kept = Vec::new();
        sift(&entries, &nodes, &open, |e, keep, _| {
            if keep {
                kept.push(e.seq.0);
            }
            Ok(())
        })
        .expect("visits do not fail");
        kept
    }

    #[test]
    fn a_version_pins_exactly_what_it_sees() {
        assert_eq!(kept(&[9, 5, 2], &[], &[(9, 99)]), [9]);
        assert_eq!(kept(&[9, 5, 2], &[], &[(6, 6), (9, 99)]), [9, 5]);
        assert_eq!(kept(&[9, 5, 2], &[], &[(4, 4), (9, 99)]), [9, 2]);
        assert_eq!(kept(&[9, 5, 2], &[12], &[(12, 99)]), [0u64; 0]);
        assert_eq!(kept(&[9, 5, 2], &[7], &[(7, 8), (9, 99)]), [9]);
        assert_eq!(kept(&[9, 5, 2], &[7], &[(6, 6), (9, 99)]), [9, 5]);
    }
}
