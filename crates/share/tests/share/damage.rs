//! Damaged blocks: an error for what needs them, a finding of `check`, and never a panic.

use std::collections::{BTreeMap, BTreeSet};

use format::share::place::{DATA_FIRST, INODES_FIRST, LOG_FIRST};
use proptest::prelude::{ProptestConfig, any, proptest};
use proptest::sample::Index;
use units::Inode;

use crate::memory::Memory;
use crate::model::{Model, Op};
use crate::share::check::check;
use crate::share::{Credentials, ErrorKind, Opening, Past, Share, Tree, Wait};
use crate::world::{self, START, apply, do_all, list, make};

/// With a cache so small that most blocks are read again.
fn opening() -> Opening {
    Opening { cache_blocks_max: 4, ..world::opening() }
}

/// A tree with everything: a file inside its inode, one in slabs, links, a large directory, freed
/// numbers.
fn built() -> Memory {
    let memory = Memory::default();
    let share = make(&memory);
    let mut model = Model::new(START);
    let mut ops = vec![
        Op::Create("small".into()),
        Op::Write("small".into(), 0, vec![1; 50]),
        Op::Create("file".into()),
        Op::Write("file".into(), 100, vec![2; 30_000]),
        Op::Link("file".into(), "link".into()),
        Op::Symlink("symlink".into(), vec![b's'; 4000]),
        Op::Mkdir("d".into()),
        Op::Mkdir("d/e".into()),
        Op::Create("d/e/f".into()),
        Op::Mkdir("large".into()),
    ];
    ops.extend((0..300).map(|i| Op::Create(format!("large/{i:040}"))));
    ops.extend((0..20).map(|i| Op::Write(format!("large/{i:040}"), 0, vec![3; 5000])));
    ops.extend((0..10).map(|i| Op::Remove(format!("large/{i:040}"))));
    let mut now = START;
    ops.chunks(50).for_each(|ops| do_all(&share, &mut model, ops, &mut now));
    drop(share);
    memory
}

/// Does a little of everything, and does not mind errors.
fn use_all(memory: &Memory) {
    let Ok(share) = Share::open(memory, opening()) else { return };
    let Ok(tree) = share.tree(Wait::May) else { return };
    let findings = check(&tree, tree.state()).expect("memory does not fail");
    assert!(findings.iter().all(|finding| !finding.fault.is_empty()));
    let root = Credentials::root();
    for number in 1..40 {
        let Ok(found) = tree.attributes_of(Inode(number)) else { continue };
        let _ = tree.read(&root, found.id, 0, &mut vec![0; 20_000]);
        let _ = tree.read_link(found.id);
        let _ = tree.look_up(&root, found.id, b"f");
        let _ = tree.read_directory(&root, found.id, 0, &mut |_| true);
    }
    drop(tree);
    let ops = [
        Op::Create("large/new".into()),
        Op::Remove(format!("large/{:040}", 77)),
        Op::Write("file".into(), 3000, vec![7; 9000]),
        Op::Resize("link".into(), 5000),
        Op::Rename("d".into(), "large/d".into()),
        Op::Rename(format!("large/{:040}", 78), "small".into()),
        Op::Remove("symlink".into()),
        Op::Rmdir("d/e".into()),
        Op::Link("file".into(), "d/file".into()),
        Op::Mkdir("new".into()),
        Op::Write("new/a".into(), 70_000, vec![7; 9000]),
        Op::Resize("file".into(), 0),
    ];
    let Ok(mut transaction) = share.begin(Wait::May) else { return };
    for op in &ops {
        let _ = apply(&mut transaction, op, START * 2);
    }
    let _ = transaction.commit();
}

#[test]
fn a_damaged_inode_is_an_error_for_it_alone_and_check_names_it() {
    let memory = built();
    let share = Share::open(&memory, opening()).expect("it is there");
    let tree = share.tree(Wait::May).expect("usable");
    assert_eq!(check(&tree, tree.state()).expect("it is read"), []);
    let top = tree.top().expect("a top");
    let root = Credentials::root();
    let file = tree.look_up(&root, top, b"file").expect("it is there").id;
    let large = tree.look_up(&root, top, b"large").expect("it is there").id;
    drop(tree);
    let block = INODES_FIRST + file.inode.0;
    memory.damage(block, |bytes| bytes[24] = 9);
    let share = Share::open(&memory, opening()).expect("it is there");
    let tree = share.tree(Wait::May).expect("usable");
    let error = tree.look_up(&root, top, b"file").expect_err("it is damaged");
    assert_eq!(error.kind, ErrorKind::Corrupt);
    let cause = std::error::Error::source(&error).expect("it has one").to_string();
    assert!(cause.contains("a kind from 1 to 7"), "{cause}");
    assert!(tree.look_up(&root, top, b"small").is_ok());
    assert_eq!(list(&tree, large).len(), 292);
    let findings = check(&tree, tree.state()).expect("it is read");
    assert!(findings.iter().any(|finding| finding.block == block), "{findings:?}");
}

#[test]
fn a_damaged_node_is_an_error_and_never_an_empty_directory() {
    let memory = built();
    let is_node = |block: &u64| {
        let mut bytes = [0; 4096];
        let read = crate::share::Blocks::read(&memory, *block, &mut bytes, Wait::May);
        read.is_ok() && &bytes[..4] == b"HSDN"
    };
    let nodes: Vec<u64> =
        memory.data_blocks().into_iter().filter(|b| *b >= DATA_FIRST).filter(is_node).collect();
    assert!(nodes.len() > 3);
    for block in nodes {
        let memory = memory.clone();
        memory.damage(block, |bytes| bytes.fill(0));
        let share = Share::open(&memory, opening()).expect("it is there");
        let tree = share.tree(Wait::May).expect("usable");
        let root = Credentials::root();
        let large = tree.look_up(&root, tree.top().expect("a top"), b"large").expect("there");
        let listed = tree.read_directory(&root, large.id, 0, &mut |_| true);
        assert_eq!(listed.expect_err("it is damaged").kind, ErrorKind::Corrupt);
        let findings = check(&tree, tree.state()).expect("it is read");
        assert!(findings.iter().any(|finding| finding.block == block), "{findings:?}");
    }
}

#[test]
fn check_sees_what_is_wrong_between_blocks() {
    let memory = built();
    let share = Share::open(&memory, opening()).expect("it is there");
    let tree = share.tree(Wait::May).expect("usable");
    let root = Credentials::root();
    let top = tree.top().expect("a top");
    let id = |path: &[u8]| tree.look_up(&root, top, path).expect("it is there").id;
    let block_of = |path: &[u8]| INODES_FIRST + id(path).inode.0;
    let [file, small, d] = [block_of(b"file"), block_of(b"small"), block_of(b"d")];
    drop(tree);
    let numbers = 1 << 36;
    type Change = fn(&mut [u8; 4096]);
    let cases: [(u64, Change, &str); 6] = [
        (file, |b| b[28] = 3, "2 links, 3 counted"),
        (file, |b| b[136..144].copy_from_slice(&(DATA_FIRST + 1024).to_le_bytes()), "used twice"),
        (file, |b| b[48] = 3, "blocks are used"),
        (d, |b| b[88] = 7, "its parent is 1, not 7"),
        (small, |b| b.fill(0), "an entry names an inode that is free"),
        (numbers, |b| b[16] = 2, "is used, and free"),
    ];
    for (block, change, fault) in cases {
        let memory = memory.clone();
        memory.damage(block, change);
        let share = Share::open(&memory, opening()).expect("it is there");
        let tree = share.tree(Wait::May).expect("usable");
        let findings = check(&tree, tree.state()).expect("it is read");
        assert!(findings.iter().any(|f| f.fault.contains(fault)), "{fault}: {findings:?}");
    }
}

#[test]
fn a_share_whose_log_is_damaged_or_that_has_more_features_is_read_only() {
    let memory = built();
    let share = Share::open(&memory, opening()).expect("it is there");
    let last = LOG_FIRST + share.last_log_block();
    drop(share);
    type Change = fn(&mut [u8; 4096]);
    // Those in the middle, and the first once it is zeros, are not needed to find the last.
    let cases: [(u64, Change, bool); 5] = [
        (last, |bytes| bytes[60] = 1, true),
        (LOG_FIRST, |bytes| bytes[0] = 1, true),
        (LOG_FIRST, |bytes| bytes.fill(0), false),
        (LOG_FIRST + 5, |bytes| bytes[40] = 0xff, false),
        (0, |bytes| bytes[72] = 1, true),
    ];
    for (block, change, is_seen) in cases {
        let memory = memory.clone();
        memory.damage(block, change);
        let opened = Share::open(&memory, opening()).expect("it is there");
        let past = Past::open(memory.at(memory.moments()), 10).expect("it is there");
        let error = opened.begin(Wait::May).err().map(|error| error.kind);
        assert_eq!(error, is_seen.then_some(ErrorKind::ReadOnly), "block {block}");
        let tree = opened.tree(Wait::May).expect("usable");
        let top = tree.top().expect("a top");
        assert!(list(&tree, top).len() > 4);
        assert_eq!(list(&tree, top), list(&past.tree(Wait::May), top));
    }
}

#[test]
fn nodes_in_each_others_places_are_damage() {
    let memory = built();
    let is_inner = |block: &u64| {
        let mut bytes = [0; 4096];
        crate::share::Blocks::read(&memory, *block, &mut bytes, Wait::May).expect("it is read");
        bytes.starts_with(b"HSDN") && bytes[28] == 1
    };
    let inner = memory.data_blocks().into_iter().find(is_inner).expect("a tree of two levels");
    type Change = fn(&mut [u8; 4096]);
    let cases: [Change; 2] = [
        // The blocks of the first two children change places; the first child begins later.
        |bytes| (0..8).for_each(|at| bytes.swap(40 + at, 56 + at)),
        |bytes| bytes[32] = 1,
    ];
    for change in cases {
        let memory = memory.clone();
        memory.damage(inner, change);
        let share = Share::open(&memory, opening()).expect("it is there");
        let tree = share.tree(Wait::May).expect("usable");
        let root = Credentials::root();
        let large = tree.look_up(&root, tree.top().expect("a top"), b"large").expect("there");
        let listed = tree.read_directory(&root, large.id, 0, &mut |_| true);
        assert_eq!(listed.expect_err("it is damaged").kind, ErrorKind::Corrupt);
        assert!(!check(&tree, tree.state()).expect("it is read").is_empty());
        drop(tree);
        let mut kinds = BTreeSet::new();
        let mut transaction = share.begin(Wait::May).expect("usable");
        let ops: Vec<Op> = (0..400).map(|i| Op::Create(format!("large/x{i}"))).collect();
        for op in &ops {
            kinds.insert(
                apply(&mut transaction, op, START * 2).err().map(|kind| format!("{kind:?}")),
            );
        }
        assert!(kinds.contains(&Some("Corrupt".to_owned())), "{kinds:?}");
    }
}

#[test]
fn check_ends_soon_whatever_the_state_says() {
    let memory = built();
    let last = LOG_FIRST + Share::open(&memory, opening()).expect("there").last_log_block();
    memory.damage(last, |bytes| bytes[72..80].copy_from_slice(&(1_u64 << 34).to_le_bytes()));
    let share = Share::open(&memory, opening()).expect("it is there");
    let tree = share.tree(Wait::May).expect("usable");
    let findings = check(&tree, tree.state()).expect("it is read");
    assert!(findings.iter().any(|finding| finding.fault.contains("lost")), "{findings:?}");
}

#[test]
fn numbers_on_a_damaged_stack_are_not_given_out() {
    let memory = built();
    let share = Share::open(&memory, opening()).expect("it is there");
    let tree = share.tree(Wait::May).expect("usable");
    let top = tree.top().expect("a top");
    let root = Credentials::root();
    let small = tree.look_up(&root, top, b"small").expect("it is there").id;
    let free = tree.state().free;
    drop(tree);
    assert!(free[0].height > 2 && free[1].height > 2);
    let create = |memory: &Memory| {
        let share = Share::open(memory, opening()).expect("it is there");
        let make = Op::Create("new".into());
        let op = Op::Write("new".into(), 0, vec![1; 9000]);
        let mut transaction = share.begin(Wait::May).expect("usable");
        let made = apply(&mut transaction, &make, START * 2);
        let done = made.and_then(|()| apply(&mut transaction, &op, START * 2));
        let new = transaction.look_up(&root, top, b"new").map(|found| found.id.inode.0);
        assert!(transaction.look_up(&root, top, b"small").is_ok_and(|found| found.id == small));
        (done, new.ok())
    };
    let [inodes, slabs] = [1 << 36, (1 << 36) + (1 << 31)];
    // An inode that is in use, one that never was given out, none; no slab.
    for number in [small.inode.0, free[0].next + 1, 0, u64::MAX] {
        let memory = memory.clone();
        for block in [inodes, slabs] {
            memory.damage(block, |bytes| {
                bytes[16..].chunks_exact_mut(8).for_each(|slot| {
                    slot.copy_from_slice(&number.to_le_bytes());
                });
            });
        }
        assert_eq!(create(&memory), (Ok(()), Some(free[0].next)), "{number}");
    }
    memory.damage(inodes, |bytes| bytes.fill(0));
    assert_eq!(create(&memory), (Err(ErrorKind::Corrupt), None));
}

/// The kinds of blocks of structures: those of each.
fn kinds(memory: &Memory) -> Vec<Vec<u64>> {
    let mut kinds: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
    for block in memory.data_blocks() {
        let mut bytes = [0; 4096];
        crate::share::Blocks::read(memory, block, &mut bytes, Wait::May).expect("it is read");
        // Inodes by kind and flags, nodes by level.
        let more = match &bytes[..4] {
            b"HSIN" => &bytes[24..26],
            b"HSDN" => &bytes[28..29],
            _ => &[],
        };
        if bytes.starts_with(b"HS") {
            kinds.entry([&bytes[..4], more].concat()).or_default().push(block);
        }
    }
    assert!(kinds.len() >= 9, "{:?}", kinds.keys());
    kinds.into_values().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_panic(
        changes in proptest::collection::vec(
            (any::<Index>(), any::<Index>(), any::<Index>(), any::<u8>()),
            1..12,
        ),
        near in any::<bool>(),
        swap in any::<Option<(Index, Index, Index, Index)>>(),
    ) {
        thread_local! { static BUILT: Memory = built(); }
        let memory = BUILT.with(Clone::clone);
        // The kind first: most blocks are inodes of files.
        let kinds = kinds(&memory);
        let pick = |kind: &Index, block: &Index| *block.get(&kind.get(&kinds)[..]);
        for (kind, block, at, byte) in &changes {
            let at = at.index(if near { 620 } else { 4096 });
            memory.damage(pick(kind, block), |bytes| bytes[at] = *byte);
        }
        if let Some((kind, from, other_kind, to)) = swap {
            let mut other = [0; 4096];
            let from = pick(&kind, &from);
            crate::share::Blocks::read(&memory, from, &mut other, Wait::May).expect("read");
            memory.damage(pick(&other_kind, &to), |bytes| {
                // It says that it is here, so that what it says otherwise is looked at.
                bytes[16..].copy_from_slice(&other[16..]);
            });
        }
        use_all(&memory);
    }
}
