//! The paths that differ between two moments of random histories, beside the model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{ProptestConfig, any, proptest};
use units::Inode;

use crate::histories::ops;
use crate::memory::Memory;
use crate::model::{Kind, Model, Node};
use crate::restores::paths;
use crate::share::{Blocks, Difference, Past, Wait, differences};
use crate::world::{CACHE_BLOCKS, START, applied, apply, make};

/// What differs between two moments.
fn diff(memory: &Memory, from: usize, to: usize) -> Vec<Difference> {
    let open = |moment| Past::open(memory.at(moment), CACHE_BLOCKS).expect("it was there");
    let (before, after) = (open(from), open(to));
    let end = before.state().free[0].next.max(after.state().free[0].next);
    let differs = |first: u64, blocks: u64| {
        // Only what is there is looked at: slabs are large.
        let is_here = |block: &u64| (first..first + blocks).contains(block);
        let read = |moment, block| {
            let mut bytes = vec![0; 4096];
            memory.at(moment).read(block, &mut bytes, Wait::May).expect("read");
            bytes
        };
        let all = memory.all_blocks();
        let mut here = all.into_iter().filter(is_here);
        Ok(here.any(|block| read(from, block) != read(to, block)))
    };
    let numbers = (Inode::ROOT.0..end).map(Inode);
    let (before, after) = (before.tree(Wait::May), after.tree(Wait::May));
    differences(&before, &after, numbers, &differs).expect("compared")
}

/// What a node's content is.
fn content(node: &Node) -> Option<Vec<u8>> {
    match &node.kind {
        Kind::File(bytes, _) => {
            let mut all = bytes.size.to_le_bytes().to_vec();
            for (block, bytes) in bytes.blocks.iter().filter(|(_, b)| b.iter().any(|b| *b != 0)) {
                all.extend(block.to_le_bytes());
                all.extend(bytes);
            }
            Some(all)
        }
        _ => None,
    }
}

/// The names of each node.
fn names(model: &Model) -> BTreeMap<u64, BTreeSet<String>> {
    let mut names: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for (path, node) in paths(model, "") {
        let path = if path.is_empty() { "/".to_owned() } else { path };
        names.entry(node).or_default().insert(path);
    }
    names
}

fn check(found: &[Difference], before: &Model, after: &Model) {
    let (old, new) = (names(before), names(after));
    let text =
        |path: &Option<Vec<u8>>| path.clone().map(|path| String::from_utf8(path).expect("ASCII"));
    let at = |model: &Model, path: &str| model.look_up(path).expect("it is there");
    let (mut removed, mut created) = (BTreeMap::new(), BTreeMap::new());
    let (mut renamed, mut changed) = (BTreeMap::<u64, usize>::new(), BTreeMap::new());
    for difference in found {
        let parts = (difference.has_other_content, difference.has_other_attributes);
        match (text(&difference.before), text(&difference.after)) {
            (Some(path), Some(same)) if path == same => {
                assert_eq!(at(before, &path), at(after, &path), "{path}");
                assert_eq!(changed.insert(path, parts), None, "told twice");
            }
            (Some(from), Some(to)) => {
                let node = at(before, &from);
                assert_eq!(node, at(after, &to), "{from} {to}");
                *renamed.entry(node).or_default() += 1;
                assert_eq!(removed.insert(from, node), None, "told twice");
                assert_eq!(created.insert(to, node), None, "told twice");
            }
            (from, to) => {
                assert_eq!(parts, (false, false));
                if let Some(path) = from {
                    let node = at(before, &path);
                    assert_eq!(removed.insert(path, node), None, "told twice");
                }
                if let Some(path) = to {
                    let node = at(after, &path);
                    assert_eq!(created.insert(path, node), None, "told twice");
                }
            }
        }
    }
    let all: BTreeSet<u64> = old.keys().chain(new.keys()).copied().collect();
    let none = BTreeSet::new();
    for number in all {
        let (old, new) = (old.get(&number).unwrap_or(&none), new.get(&number).unwrap_or(&none));
        let gone = old.difference(new).filter(|path| removed.remove(*path).is_some()).count();
        let made = new.difference(old).filter(|path| created.remove(*path).is_some()).count();
        let count = renamed.remove(&number).unwrap_or_default();
        let (node, other) = (before.nodes.get(&number), after.nodes.get(&number));
        let is_moved = node.map(|node| node.changed) == other.map(|node| node.changed);
        if is_moved {
            // A directory above it was renamed.
            assert_eq!((gone, made, count), (0, 0, 0));
            continue;
        }
        assert_eq!((gone, made), (old.difference(new).count(), new.difference(old).count()));
        assert_eq!(count, if node.and(other).is_some() { gone.min(made) } else { 0 });
        let (Some(node), Some(other)) = (node, other) else { continue };
        let is_directory = matches!(node.kind, Kind::Directory(..));
        let owner = |node: &Node| (node.mode, node.uid, node.gid);
        let times = |node: &Node| (node.modified, node.accessed);
        for path in old.intersection(new) {
            let (has_content, has_attributes) = changed.remove(path).unwrap_or_default();
            assert!(has_content || content(node) == content(other), "{path}");
            let has_time = !is_directory && !has_content && times(node) != times(other);
            assert_eq!(has_attributes, owner(node) != owner(other) || has_time, "{path}");
        }
    }
    assert!(removed.is_empty() && created.is_empty(), "{removed:?} {created:?}");
    assert!(renamed.is_empty() && changed.is_empty(), "{renamed:?} {changed:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn paths_that_differ_are_those_of_the_model(
        steps in proptest::collection::vec(ops(), 1..30),
        from in any::<proptest::sample::Index>(),
        to in any::<proptest::sample::Index>(),
    ) {
        let memory = Memory::default();
        let share = make(&memory);
        let mut model = Model::new(START);
        let mut now = START;
        let mut moments = vec![model.clone(), model.clone()];
        for ops in &steps {
            let mut transaction = share.begin(Wait::May).expect("usable");
            for op in ops {
                now += 10;
                let expected = applied(&mut model, op, now);
                assert_eq!(apply(&mut transaction, op, now), expected);
            }
            transaction.commit().expect("it is written");
            moments.resize(memory.moments() + 1, model.clone());
        }
        let moment = |index: proptest::sample::Index| 1 + index.index(moments.len() - 1);
        let (from, to) = (moment(from), moment(to));
        check(&diff(&memory, from, to), &moments[from], &moments[to]);
        assert_eq!(diff(&memory, to, to), []);
    }
}
