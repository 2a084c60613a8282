//! Damaged blocks: an error for what needs them, a finding of `check`, and never a panic.

use format::share::place::{DATA_FIRST, INODES_FIRST};
use proptest::prelude::{ProptestConfig, any, proptest};
use proptest::sample::Index;
use units::Inode;

use crate::memory::Memory;
use crate::model::{Model, Op};
use crate::share::check::check;
use crate::share::{Credentials, ErrorKind, Opening, Share, Tree, Wait};
use crate::world::{self, START, apply, list, make};

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
    for ops in ops.chunks(50) {
        let mut transaction = share.begin(Wait::May).expect("usable");
        for op in ops {
            now += 10;
            model.apply(op, now).expect("it is done");
            apply(&mut transaction, op, now).expect("it is done");
        }
        transaction.commit().expect("it is written");
    }
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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_panic(
        changes in proptest::collection::vec(
            (any::<Index>(), any::<Index>(), any::<u8>()),
            1..12,
        ),
        near in any::<bool>(),
        swap in any::<Option<(Index, Index)>>(),
    ) {
        thread_local! { static BUILT: Memory = built(); }
        let memory = BUILT.with(Clone::clone);
        // Mostly structures: blocks of data would take most of the hits.
        let mut blocks = memory.data_blocks();
        blocks.retain(|block| {
            let mut bytes = [0; 4096];
            let read = crate::share::Blocks::read(&memory, *block, &mut bytes, Wait::May);
            read.is_ok() && bytes.starts_with(b"HS")
        });
        for (block, at, byte) in &changes {
            let at = at.index(if near { 520 } else { 4096 });
            memory.damage(blocks[block.index(blocks.len())], |bytes| bytes[at] = *byte);
        }
        if let Some((from, to)) = swap {
            let mut other = [0; 4096];
            let from = blocks[from.index(blocks.len())];
            crate::share::Blocks::read(&memory, from, &mut other, Wait::May).expect("read");
            memory.damage(blocks[to.index(blocks.len())], |bytes| {
                // It says that it is here, so that what it says otherwise is looked at.
                bytes[16..].copy_from_slice(&other[16..]);
            });
        }
        use_all(&memory);
    }
}
