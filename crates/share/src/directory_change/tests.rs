//! Names with one hash, which nobody finds by trying.

use format::share::directory::{Entries, EntryObject, NodeContent};
use format::share::inode::{Content, FileKind, InodeBlock};
use format::share::log::State;
use format::share::place::STACKS;
use format::share::root::ShareRoot;
use units::{FileName, Generation, Inode, WallTime};

use super::Changed;
use crate::directory::{find_at, for_each_from};
use crate::error::{ErrorKind, Result};
use crate::layered::{Changes, Layered};
use crate::source::{Below, Meta, Source};

/// A share without anything.
struct Nothing(ShareRoot);

impl Source for Nothing {
    fn root(&self) -> &ShareRoot {
        &self.0
    }

    fn meta(&self, _: u64) -> Result<Option<Meta>> {
        Ok(None)
    }

    fn data(&self, _: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.fill(0);
        Ok(())
    }

    fn count_data(&self, _: u64, _: u64) -> Result<u64> {
        Ok(0)
    }
}

const FIRST: u64 = 77 << 8;
const NUMBER: Inode = Inode(5);

fn object(inode: u64) -> EntryObject {
    EntryObject::of(Inode(inode), FileKind::File, Generation(1))
}

fn directory() -> InodeBlock {
    InodeBlock {
        generation: Generation(1),
        kind: FileKind::Directory,
        mode: 0o755,
        links: 2,
        uid: 0,
        gid: 0,
        size: 4096,
        used: 0,
        accessed: WallTime::EPOCH,
        modified: WallTime::EPOCH,
        changed: WallTime::EPOCH,
        created: WallTime::EPOCH,
        parent: Inode::ROOT,
        entries: 0,
        verifier: None,
        device: (0, 0),
        operation: 0,
        content: Content::Entries(Entries::default()),
    }
}

fn nothing() -> Nothing {
    Nothing(ShareRoot {
        share_id: 1,
        hash_key: 2,
        created: WallTime::EPOCH,
        log_hint: 0,
        features_read_only: 0,
        features_compatible: 0,
    })
}

fn changes() -> Changes<'static> {
    Changes::new(State::empty(WallTime::EPOCH), [0; STACKS])
}

fn name_of(number: u64) -> String {
    // Long enough for some leaves.
    format!("{number}-{}", "n".repeat(80))
}

#[test]
fn names_with_one_hash_have_counters_and_there_are_256_of_them() {
    let nothing = nothing();
    let mut layer = Layered::new(&nothing, changes());
    let mut directory = directory();
    let names: Vec<String> = (0..257).map(name_of).collect();
    let name = |number: usize| FileName::new(names[number].as_bytes()).expect("a name");
    let inode = |number: usize| object(number as u64 + 10);
    let mut changed = Changed { layer: &mut layer, number: NUMBER, directory: &mut directory };
    // Neighbours before and after must not be taken for names of this hash.
    changed.add_at(FIRST - 256, name(0), object(1)).expect("there is room");
    changed.add_at(FIRST + 256, name(0), object(2)).expect("there is room");
    for number in 0..256 {
        changed.add_at(FIRST, name(number), inode(number)).expect("there is room");
    }
    let full = changed.add_at(FIRST, name(256), inode(256)).expect_err("no counter is left");
    assert_eq!(full.kind, ErrorKind::NoSpace);
    changed.remove(FIRST + 100).expect("it is there");
    changed.add_at(FIRST, name(256), inode(256)).expect("there is room again");
    changed.replace(FIRST + 7, object(9)).expect("it is there");
    changed.remove(FIRST + 100 + 256).expect_err("it is not there");

    assert_eq!(directory.entries, 258);
    let find = |number| find_at(&layer, NUMBER, &directory, (FIRST, name(number)));
    for number in 0..257 {
        let found = find(number).expect("it is read");
        let key = if number == 256 { 100 } else { number as u64 };
        let expected = match number {
            100 => None,
            7 => Some((FIRST + 7, object(9))),
            _ => Some((FIRST + key, inode(number))),
        };
        assert_eq!(found.map(|found| (found.key, found.object)), expected);
    }
    let mut keys = Vec::new();
    let end = for_each_from(&layer, NUMBER, &directory, 0, &mut |entry| {
        keys.push(entry.key);
        true
    });
    assert!(end.expect("it is read"));
    let expected: Vec<u64> = [FIRST - 256].into_iter().chain(FIRST..FIRST + 257).collect();
    assert_eq!(keys, expected);

    let mut changed = Changed { layer: &mut layer, number: NUMBER, directory: &mut directory };
    for key in expected {
        changed.remove(key).expect("it is there");
    }
    assert_eq!((directory.entries, directory.used, directory.size), (0, 0, 4096));
    assert_eq!(directory.content, Content::Entries(Entries::default()));
    assert_eq!(layer.changes.state.used, 0);
}

#[test]
fn the_first_child_of_a_node_begins_where_the_node_does() {
    let nothing = nothing();
    let mut layer = Layered::new(&nothing, changes());
    let mut directory = directory();
    let names: Vec<String> = (0..300).map(name_of).collect();
    let mut changed = Changed { layer: &mut layer, number: NUMBER, directory: &mut directory };
    let mut keys = Vec::new();
    for (number, name) in (0_u64..).zip(&names) {
        let first = (number * 7919 % 1000 + 1) << 8;
        let name = FileName::new(name.as_bytes()).expect("a name");
        changed.add_at(first, name, object(1)).expect("there is room");
        keys.push(first);
    }
    keys.sort_unstable();
    let mut inner = 0;
    for key in keys {
        changed.remove(key).expect("it is there");
        let Content::Tree(root) = changed.directory.content else { continue };
        let node = changed.layer.node(NUMBER, Below::root(root)).expect("it is there");
        if let NodeContent::Inner(_, children) = &node.content {
            assert_eq!(children[0].key, 0);
            inner += 1;
        }
    }
    assert!(inner > 100, "the tree has levels for long: {inner}");
}
