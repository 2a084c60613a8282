//! A subtree put back: random histories, any moment, any path, beside the model; and by hand what
//! holes, links, kinds and others' writes are about.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use units::WallTime;

use crate::histories::ops;
use crate::memory::Memory;
use crate::model::{Bytes, Kind, Model, Node, Op};
use crate::share::{
    Cause, CauseKind, Changer, Credentials, Effect, ErrorKind, FileKind, FilePath, Past, Restore,
    RestoreError, Restored, Share, Tree, Wait, restore,
};
use crate::world::{
    CACHE_BLOCKS, START, assert_sound, compare_bytes, do_all, find, kind_of, list, make,
};

/// A restore as a test asks for it.
#[derive(Clone, Debug)]
struct Asked {
    from: &'static str,
    to: Option<&'static str>,
    delete: bool,
}

const NUMBER: u64 = 77;

/// Restores from a moment; the path where it failed and how.
fn run(
    share: &Share<&Memory>,
    moment: usize,
    asked: &Asked,
    dry_run: bool,
) -> Result<Restored, (Vec<u8>, ErrorKind)> {
    let past = Past::open(share.present().at(moment), CACHE_BLOCKS).expect("it was there");
    let now = || WallTime::from_nanos(START * 1000);
    let changer = Changer {
        share,
        cause: Cause { kind: CauseKind::Restore, number: NUMBER },
        now: &now,
        wait_for: &|_| panic!("nothing is lacking"),
        done: Cell::default(),
    };
    let path = |path: &'static str| FilePath::new(path.as_bytes()).expect("a path");
    let (from, to) = (path(asked.from), asked.to.map(path));
    let asked =
        Restore { from: &from, to: to.as_ref(), delete: asked.delete, dry_run, goes_on: &|| true };
    restore(&past.tree(Wait::May), &changer, &asked).map_err(|error| match error {
        RestoreError::At { path, error } => (path, error.kind),
        RestoreError::Stopped => panic!("nobody stops it"),
    })
}

/// All paths of a model below one, which is `""` there, and their nodes.
pub fn paths(model: &Model, at: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut waiting = Vec::from_iter(model.look_up(at).ok().map(|node| (String::new(), node)));
    while let Some((path, number)) = waiting.pop() {
        if let Kind::Directory(entries, _) = &model.nodes[&number].kind {
            for (name, node) in entries {
                let name = std::str::from_utf8(name).expect("ASCII");
                waiting.push((format!("{path}/{name}"), *node));
            }
        }
        found.insert(path, number);
    }
    found
}

/// The object that a path has to have afterwards: of then or of now, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Then(u64),
    Now(u64),
}

fn is_directory(model: &Model, node: u64) -> bool {
    matches!(model.nodes[&node].kind, Kind::Directory(..))
}

/// The paths that there have to be afterwards, and those where something is in the way; or how it
/// fails.
fn expected(
    then: &Model,
    now: &Model,
    asked: &Asked,
) -> Result<(BTreeMap<String, Is>, BTreeSet<String>), ErrorKind> {
    let top = |path: &str| if path == "/" { String::new() } else { path.to_owned() };
    let (from, target) = (top(asked.from), top(asked.to.unwrap_or(asked.from)));
    let node = then.look_up(&from).map_err(kind_of)?;
    let mut all: BTreeMap<String, Is> =
        paths(now, "").into_iter().map(|(path, node)| (path, Is::Now(node))).collect();
    for (index, _) in target.match_indices('/').filter(|(index, _)| *index > 0) {
        let above = &target[..index];
        match all.get(above) {
            Some(Is::Now(node)) if !is_directory(now, *node) => {
                return Err(ErrorKind::NotDirectory);
            }
            Some(_) => {}
            None if asked.to.is_some() => return Err(ErrorKind::NotFound),
            None => {
                let found = then.look_up(above).map_err(kind_of)?;
                all.insert(above.to_owned(), Is::Then(found));
            }
        }
    }
    if let Some(Is::Now(there)) = all.get(&target)
        && (asked.to.is_some() || target.is_empty())
        && !(is_directory(now, *there) && is_directory(then, node))
    {
        return Err(ErrorKind::Exists);
    }
    let mut in_the_way = BTreeSet::new();
    let wanted = paths(then, &from);
    for (path, node) in &wanted {
        let path = format!("{target}{path}");
        let below = format!("{path}/");
        let has_entries = all.keys().any(|other| other.starts_with(&below));
        if !is_directory(then, *node) && has_entries {
            if !asked.delete {
                in_the_way.insert(path);
                continue;
            }
            all.retain(|other, _| !other.starts_with(&below));
        }
        all.insert(path, Is::Then(*node));
    }
    if asked.delete && is_directory(then, node) {
        let is_other = |path: &str| {
            let below = path.strip_prefix(&target).filter(|rest| rest.starts_with('/'));
            below.is_some_and(|rest| !wanted.contains_key(rest))
        };
        all.retain(|path, _| !is_other(path));
    }
    Ok((all, in_the_way))
}

/// The bytes of a file, and zeros wherever a file of now has a block.
fn with_zeros(bytes: &Bytes, now: &Model) -> Bytes {
    let mut all = bytes.clone();
    for node in now.nodes.values() {
        let Kind::File(other, _) = &node.kind else { continue };
        for block in other.blocks.keys().filter(|block| **block * 4096 < bytes.size) {
            all.blocks.entry(*block).or_insert_with(|| vec![0; 4096]);
        }
    }
    all
}

fn compare_node(tree: &impl Tree, path: &str, node: &Node, now: &Model, has_times: bool) {
    let id = find(tree, path).unwrap_or_else(|kind| panic!("{path}: {kind}"));
    let found = tree.attributes(id).expect("it is there");
    assert_eq!((found.mode, found.uid, found.gid), (node.mode, node.uid, node.gid), "{path}");
    if has_times {
        let times = [found.accessed, found.modified].map(WallTime::as_nanos);
        assert_eq!(times, [node.accessed, node.modified], "times of {path}");
    }
    match &node.kind {
        Kind::Directory(..) => assert_eq!(found.kind, FileKind::Directory, "{path}"),
        Kind::File(bytes, _) => {
            assert_eq!((found.kind, found.size), (FileKind::File, bytes.size), "{path}");
            compare_bytes(tree, id, &with_zeros(bytes, now));
        }
        Kind::Symlink(target) => {
            assert_eq!(&tree.read_link(id).expect("a link"), target, "{path}");
        }
        Kind::Fifo => assert_eq!(found.kind, FileKind::Fifo, "{path}"),
    }
}

/// Every path of a share.
fn all_paths(tree: &impl Tree) -> BTreeMap<String, units::FileId> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(String::new(), tree.top().expect("a top"))];
    while let Some((path, id)) = waiting.pop() {
        if tree.attributes(id).expect("it is there").kind == FileKind::Directory {
            for name in list(tree, id).into_keys().filter(|name| name != b"." && name != b"..") {
                let below = tree.look_up(&Credentials::root(), id, &name).expect("it is found");
                let name = String::from_utf8(name).expect("ASCII");
                waiting.push((format!("{path}/{name}"), below.id));
            }
        }
        found.insert(path, id);
    }
    found
}

/// Restores, first as a dry run, and compares all that there is with what there has to be.
fn check(share: &Share<&Memory>, moments: &[Model], moment: usize, asked: &Asked) {
    let (then, now) = (&moments[moment], moments.last().expect("one"));
    let written = share.present().moments();
    let told = run(share, moment, asked, true);
    assert_eq!(share.present().moments(), written, "a dry run writes nothing");
    let (expected, in_the_way) = match expected(then, now, asked) {
        Ok(expected) => expected,
        Err(kind) => {
            let failed = run(share, moment, asked, false).map_err(|(_, kind)| kind);
            assert_eq!((told.map_err(|(_, kind)| kind), &failed), (Err(kind), &Err(kind)));
            assert_eq!(share.present().moments(), written, "what is refused changes nothing");
            return;
        }
    };
    let operations = share.statistics().operations;
    let done = run(share, moment, asked, false).expect("it is put back");
    let told = told.expect("it would be put back");
    let effects =
        |effect| told.told.iter().filter(move |told| told.effect == effect).count() as u64;
    let by_effect = [Effect::Created, Effect::Overwritten, Effect::Removed].map(effects);
    assert_eq!(by_effect, [told.created, told.overwritten, told.removed]);
    let counts = |d: &Restored| (d.created, d.overwritten, d.removed, d.kept, d.in_the_way);
    assert_eq!((counts(&told), told.bytes), (counts(&done), done.bytes), "{asked:?}");
    assert_sound(share);
    let tree = share.tree(Wait::May).expect("usable");
    let found = all_paths(&tree);
    assert!(found.keys().eq(expected.keys()), "{:?}\n{:?}", found.keys(), expected.keys());
    // Directories of now that it is in have another time if something was made or went there.
    let target = asked.to.unwrap_or(asked.from).trim_end_matches('/');
    let is_above = |path: &str| target.starts_with(&format!("{path}/"));
    let mut ids = BTreeMap::new();
    for (path, is) in &expected {
        let (model, node) = match is {
            Is::Then(node) => (then, node),
            Is::Now(node) => (now, node),
        };
        let has_times = matches!(is, Is::Then(_)) || !is_above(path);
        compare_node(&tree, path, &model.nodes[node], now, has_times);
        let id = *ids.entry(format!("{is:?}")).or_insert(found[path]);
        assert_eq!(id, found[path], "{path}: names of one object");
        let others = expected.iter().filter(|(_, other)| match (is, other) {
            (Is::Then(_), Is::Then(_)) | (Is::Now(_), Is::Now(_)) => is != *other,
            _ => false,
        });
        for (other, _) in others {
            assert_ne!(found[path], found[other], "{path} and {other} were two");
        }
    }
    let stay: BTreeSet<String> =
        done.told.iter().map(|told| String::from_utf8(told.path.clone()).expect("ASCII")).collect();
    assert_eq!(stay, in_the_way);
    let is_changed = done.created + done.overwritten + done.removed > 0;
    assert_eq!(tree.state().operation > operations, is_changed);
    drop(tree);
    if asked.to.is_none() {
        let written = share.present().moments();
        let again = run(share, moment, asked, false).expect("it is as it was");
        assert_eq!((again.created, again.overwritten, again.removed, again.bytes), (0, 0, 0, 0));
        assert_eq!(share.present().moments(), written, "nothing is left to do");
    }
}

fn asked() -> impl Strategy<Value = Asked> {
    let from = prop_oneof![
        2 => Just("/"), 4 => Just("/d"), 1 => Just("/d/e"), 1 => Just("/a"), 1 => Just("/b"),
        1 => Just("/d/a"), 1 => Just("/d/e/b"), 1 => Just("/b/c"),
    ];
    let to = prop_oneof![
        6 => Just(None), 1 => Just(Some("/x")), 1 => Just(Some("/d")), 1 => Just(Some("/d/x")),
        1 => Just(Some("/b")), 1 => Just(Some("/")),
    ];
    (from, to, any::<bool>()).prop_map(|(from, to, delete)| Asked { from, to, delete })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_subtree_is_as_it_was_and_all_else_as_it_is(
        steps in proptest::collection::vec(ops(), 1..30),
        moment in any::<proptest::sample::Index>(),
        asked in asked(),
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
                let expected = crate::world::applied(&mut model, op, now);
                assert_eq!(crate::world::apply(&mut transaction, op, now), expected);
            }
            transaction.commit().expect("it is written");
            moments.resize(memory.moments() + 1, model.clone());
        }
        check(&share, &moments, 1 + moment.index(moments.len() - 1), &asked);
    }
}

/// A share, its model, and what is done to it, step by step.
fn histories(steps: &[Vec<Op>]) -> (Memory, Vec<Model>) {
    let memory = Memory::default();
    let mut model = Model::new(START);
    let share = make(&memory);
    let (mut now, mut moments) = (START, vec![model.clone(), model.clone()]);
    for ops in steps {
        do_all(&share, &mut model, ops, &mut now);
        moments.resize(memory.moments() + 1, model.clone());
    }
    (memory, moments)
}

fn path(path: &str) -> String {
    path.to_owned()
}

#[test]
fn of_a_large_file_only_what_differs_is_written_and_holes_stay_holes() {
    let big = path("big");
    let (memory, moments) = histories(&[
        vec![
            Op::Create(path("big")),
            Op::Write(path("big"), 0, vec![1; 3 << 20]),
            Op::Write(path("big"), 1 << 40, vec![2; 8192]),
            Op::Resize(path("big"), (1 << 40) + (8 << 30)),
        ],
        vec![
            Op::Write(big.clone(), 4096 * 10, vec![9; 100]),
            Op::Write(big.clone(), 1 << 35, vec![9; 5000]),
            Op::Write(big.clone(), (1 << 40) + 4096, vec![9; 4096]),
            Op::Resize(big.clone(), (1 << 40) + (9 << 30)),
        ],
    ]);
    let share = Share::open(&memory, crate::world::opening()).expect("it is there");
    let used = |moment: usize| {
        let past = Past::open(memory.at(moment), CACHE_BLOCKS).expect("it was there");
        let tree = past.tree(Wait::May);
        tree.attributes(find(&tree, "big").expect("found")).expect("there").used_bytes
    };
    let id = find(&share.tree(Wait::May).expect("usable"), "big");
    let asked = Asked { from: "/big", to: None, delete: false };
    let done = run(&share, 2, &asked, true).expect("it would be put back");
    assert_eq!(done.bytes, 2 * 4096);
    check(&share, &moments, 2, &asked);
    assert_eq!(find(&share.tree(Wait::May).expect("usable"), "big"), id, "it is the same file");
    assert_eq!(used(memory.moments()), used(2));

    let asked = Asked { from: "/big", to: Some("/copy"), delete: false };
    let done = run(&share, 2, &asked, false).expect("it is put back");
    assert_eq!((done.created, done.bytes), (1, (3 << 20) + 8192));
    let tree = share.tree(Wait::May).expect("usable");
    let copy = tree.attributes(find(&tree, "copy").expect("found")).expect("there");
    assert_eq!((copy.used_bytes, copy.size), (used(2), (1 << 40) + (8 << 30)));
    drop(tree);
    assert_sound(&share);
}

#[test]
fn zeros_in_the_inode_are_a_hole_like_others() {
    let zeros =
        vec![Op::Create(path("a")), Op::Write(path("a"), 4096, vec![1]), Op::Resize(path("a"), 1)];
    for other in [Op::Resize(path("a"), 0), Op::Write(path("a"), 0, vec![1])] {
        let (memory, moments) = histories(&[zeros.clone(), vec![other]]);
        let share = Share::open(&memory, crate::world::opening()).expect("it is there");
        check(&share, &moments, 2, &Asked { from: "/a", to: None, delete: false });
    }
}

#[test]
fn its_operations_name_it() {
    let (memory, _) = histories(&[
        vec![Op::Create(path("a")), Op::Write(path("a"), 0, vec![1; 10])],
        vec![Op::Write(path("a"), 0, vec![2; 10]), Op::Create(path("b"))],
    ]);
    let share = Share::open(&memory, crate::world::opening()).expect("it is there");
    let before = share.statistics().operations;
    let asked = Asked { from: "/", to: None, delete: true };
    let done = run(&share, 2, &asked, false).expect("it is put back");
    assert_eq!((done.overwritten, done.removed, done.bytes), (2, 1, 10));
    let log = share.log_block(share.last_log_block()).expect("read").expect("there");
    let own = log.operations().filter(|operation| operation.number > before);
    let causes: Vec<_> = own.map(|operation| operation.cause).collect();
    let cause = Some(Cause { kind: CauseKind::Restore, number: NUMBER });
    assert!(causes.len() >= 3 && causes.iter().all(|own| *own == cause), "{causes:?}");
}

#[test]
fn names_of_one_file_stay_names_of_one_and_other_names_keep_what_they_have() {
    let (memory, moments) = histories(&[
        vec![
            Op::Mkdir(path("d")),
            Op::Create(path("d/a")),
            Op::Write(path("d/a"), 0, vec![1; 10_000]),
            Op::Link(path("d/a"), path("d/b")),
            Op::Link(path("d/a"), path("out")),
            Op::Create(path("d/c")),
        ],
        vec![Op::Write(path("d/a"), 0, vec![2; 100])],
        vec![Op::Remove(path("d/c")), Op::Link(path("d/a"), path("d/c"))],
        vec![Op::Remove(path("d/b")), Op::Create(path("d/b"))],
    ]);
    let share = Share::open(&memory, crate::world::opening()).expect("it is there");
    let asked = Asked { from: "/d", to: None, delete: false };
    check(&share, &moments, 2, &asked);
    let tree = share.tree(Wait::May).expect("usable");
    let mut byte = [0];
    let out = find(&tree, "out").expect("found");
    tree.read(&Credentials::root(), out, 0, &mut byte).expect("read");
    assert_eq!(byte, [2]);
    assert_eq!(find(&tree, "d/a"), find(&tree, "d/b"));
    assert_ne!(find(&tree, "d/a"), Ok(out));
}

#[test]
fn a_dry_run_tells_the_bytes_of_files_that_were_several_and_have_become_one() {
    let two = |byte: u8| {
        ["d/a", "d/b"].into_iter().flat_map(move |name| {
            [Op::Create(path(name)), Op::Write(path(name), 0, vec![byte; 20_000])]
        })
    };
    // One of two names goes by what is put back, or by what is removed.
    for (other, delete, dir) in
        [("d/b", true, "/d"), ("d/b", false, "/"), ("d/a0", true, "/d"), ("d/a0", false, "/d")]
    {
        let mut ops = vec![Op::Mkdir(path("d"))];
        ops.extend(two(1));
        let (memory, moments) = histories(&[
            ops,
            vec![Op::Remove(path("d/b")), Op::Link(path("d/a"), path(other))],
            vec![Op::Write(path("d/a"), 0, vec![2; 100])],
        ]);
        let share = Share::open(&memory, crate::world::opening()).expect("it is there");
        check(&share, &moments, 2, &Asked { from: dir, to: None, delete });
    }
}

#[test]
fn a_dry_run_tells_the_bytes_of_files_whose_other_names_go_first() {
    // Whichever of the two directories is the first.
    for (own, other) in [("b/f", "a/x"), ("a/f", "b/x"), ("b/f", "a/new/x"), ("a/f", "b/new/x")] {
        let (dir, _) = other.rsplit_once('/').expect("it is in one");
        let mut named = Vec::new();
        if dir.contains('/') {
            named.push(Op::Mkdir(path(dir)));
        }
        named.push(Op::Link(path(own), path(other)));
        let (memory, moments) = histories(&[
            vec![
                Op::Mkdir(path("a")),
                Op::Mkdir(path("b")),
                Op::Create(path(own)),
                Op::Write(path(own), 0, vec![1; 20_000]),
            ],
            named,
            vec![Op::Write(path(own), 0, vec![2; 100])],
        ]);
        let share = Share::open(&memory, crate::world::opening()).expect("it is there");
        check(&share, &moments, 2, &Asked { from: "/", to: None, delete: true });
    }
}

#[test]
fn a_directory_in_the_way_stays_unless_it_may_go() {
    let steps = [
        vec![Op::Mkdir(path("d")), Op::Create(path("d/a")), Op::Create(path("d/b"))],
        vec![Op::Remove(path("d/a")), Op::Mkdir(path("d/a")), Op::Create(path("d/a/x"))],
        vec![Op::Mkdir(path("d/a/y")), Op::Fifo(path("d/a/y/z")), Op::Remove(path("d/b"))],
        vec![Op::Mkdir(path("d/b"))],
    ];
    for delete in [false, true] {
        let (memory, moments) = histories(&steps);
        let share = Share::open(&memory, crate::world::opening()).expect("it is there");
        let asked = Asked { from: "/d", to: None, delete };
        let told = run(&share, 2, &asked, true).expect("told");
        assert_eq!((told.in_the_way, told.removed), if delete { (0, 3) } else { (1, 0) });
        check(&share, &moments, 2, &asked);
    }
}

#[test]
fn a_whole_tree_that_is_gone_comes_back_and_large_directories_too() {
    let mut ops = vec![Op::Mkdir(path("d")), Op::Mkdir(path("d/e")), Op::Mkdir(path("d/e/f"))];
    ops.extend((0..700).map(|index| Op::Create(format!("d/e/f/{index}"))));
    ops.push(Op::Mode(path("d/e"), 0o2750));
    let mut gone: Vec<Op> = (0..700).map(|index| Op::Remove(format!("d/e/f/{index}"))).collect();
    gone.extend(["d/e/f", "d/e", "d"].map(|directory| Op::Rmdir(path(directory))));
    let (memory, moments) = histories(&[ops, gone, vec![Op::Create(path("other"))]]);
    let share = Share::open(&memory, crate::world::opening()).expect("it is there");
    let asked = Asked { from: "/d/e", to: None, delete: true };
    check(&share, &moments, 2, &asked);
    let told = run(&share, 2, &Asked { to: Some("/other"), ..asked.clone() }, false);
    assert_eq!(told, Err((b"/other".to_vec(), ErrorKind::Exists)));
    let told = run(&share, 2, &Asked { to: Some("/no/x"), ..asked.clone() }, false);
    assert_eq!(told, Err((b"/no".to_vec(), ErrorKind::NotFound)));
    let told = run(&share, 1, &asked, false);
    assert_eq!(told, Err((b"/d/e".to_vec(), ErrorKind::NotFound)));
    let all = Asked { from: "/", to: None, delete: true };
    let done = run(&share, 1, &all, true).expect("told");
    assert_eq!((done.removed, done.told.len(), done.has_more), (704, 705, false));
    let done = run(&share, 1, &all, false).expect("done");
    assert_eq!((done.removed, share.statistics().inodes), (704, 1));
    assert_sound(&share);
}

#[test]
fn a_pool_of_small_zones_takes_it_piece_by_piece() {
    let (memory, moments) = histories(&[
        vec![Op::Create(path("a")), Op::Write(path("a"), 100, vec![1; 1 << 20])],
        vec![Op::Remove(path("a")), Op::Create(path("a"))],
    ]);
    memory.whole_blocks_max.store(128, std::sync::atomic::Ordering::Relaxed);
    let share = Share::open(&memory, crate::world::opening()).expect("it is there");
    check(&share, &moments, 2, &Asked { from: "/a", to: None, delete: false });
}

#[test]
fn it_stops_when_it_is_told_to() {
    let (memory, _) = histories(&[
        vec![Op::Create(path("a")), Op::Create(path("b"))],
        vec![Op::Remove(path("a")), Op::Remove(path("b"))],
    ]);
    let share = Share::open(&memory, crate::world::opening()).expect("it is there");
    let past = Past::open(memory.at(2), CACHE_BLOCKS).expect("it was there");
    let changer = Changer {
        share: &share,
        cause: Cause { kind: CauseKind::Restore, number: NUMBER },
        now: &|| WallTime::from_nanos(START),
        wait_for: &|_| panic!("nothing is lacking"),
        done: Cell::default(),
    };
    let (top, asked_for) = (FilePath::new(b"/").expect("a path"), Cell::new(0));
    let goes_on = || asked_for.replace(asked_for.get() + 1) < 1;
    let asked = Restore { from: &top, to: None, delete: false, dry_run: false, goes_on: &goes_on };
    let stopped = restore(&past.tree(Wait::May), &changer, &asked);
    assert!(matches!(stopped, Err(RestoreError::Stopped)), "{stopped:?}");
    assert_eq!(share.statistics().inodes, 2, "one was put back");
}
