//! Directories: large ones, and listings beside changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use proptest::prelude::{ProptestConfig, any, proptest};
use units::{FileId, Inode};

use crate::memory::Memory;
use crate::share::{Create, Credentials, ErrorKind, Past, Place, SetAttributes, Share, Tree, Wait};
use crate::world::{assert_sound, caller, list, make};

const NAMES: u32 = 50_000;

fn name(number: u32) -> Vec<u8> {
    let length = [1, 10, 30, 200][number as usize % 4];
    format!("{number:x}-{}", "n".repeat(length)).into_bytes()
}

/// Makes or removes files, some of them in each transaction.
fn change(share: &Share<&Memory>, top: FileId, numbers: &[u32], is_made: bool, now: &mut u64) {
    let root = Credentials::root();
    let names: Vec<Vec<u8>> = numbers.iter().map(|number| name(*number)).collect();
    let set = SetAttributes::default();
    for names in names.chunks(300) {
        let mut transaction = share.begin(Wait::May).expect("usable");
        for name in names {
            *now += 1;
            let caller = caller(&root, *now);
            let done = match is_made {
                true => transaction.create(&caller, top, name, Create::Guarded(&set)).map(drop),
                false => transaction.remove(&caller, top, name),
            };
            done.expect("it is done");
        }
        transaction.commit().expect("it is written");
    }
}

#[test]
fn fifty_thousand_names_are_found_listed_and_removed() {
    let memory = Memory::default();
    let share = make(&memory);
    let top = share.tree(Wait::May).expect("usable").top().expect("a top");
    let mut now = 10_000_000;
    let all: Vec<u32> = (0..NAMES).collect();
    change(&share, top, &all, true, &mut now);
    assert_sound(&share);
    let listed = list(&share.tree(Wait::May).expect("usable"), top);
    let expected: BTreeSet<Vec<u8>> = all.iter().map(|number| name(*number)).collect();
    let found = listed.keys().filter(|name| !name.starts_with(b"."));
    assert!(found.eq(expected.iter()));

    // Looking up one name reads a node of each level, and two inodes.
    let past = Past::open(memory.at(memory.moments()), 100).expect("it is there");
    let before = memory.reads.load(Ordering::Relaxed);
    let found = past.tree(Wait::May).look_up(&Credentials::root(), top, &name(777));
    assert!(found.is_ok());
    assert!(memory.reads.load(Ordering::Relaxed) - before <= 5);

    // Out of order, most of them; then the rest.
    let (few, most): (Vec<u32>, Vec<u32>) =
        all.iter().map(|number| number * 7 % NAMES).partition(|number| number % 100 == 0);
    change(&share, top, &most, false, &mut now);
    assert_sound(&share);
    assert_eq!(list(&share.tree(Wait::May).expect("usable"), top).len(), few.len() + 2);
    let nodes = share.statistics().data_bytes / 4096;
    assert!(nodes < 40, "{} names are in {nodes} nodes", few.len());
    change(&share, top, &few, false, &mut now);
    assert_sound(&share);
    assert_eq!(share.statistics().data_bytes, 0);
    assert_eq!(share.statistics().inodes, 1);
}

#[test]
fn every_cookie_is_taken_and_dots_have_theirs() {
    let memory = Memory::default();
    let share = make(&memory);
    let tree_top = share.tree(Wait::May).expect("usable").top().expect("a top");
    change(&share, tree_top, &(0..200).collect::<Vec<_>>(), true, &mut 10_000_000);
    let tree = share.tree(Wait::May).expect("usable");
    let mut cookies = Vec::new();
    let mut tell = |entry: crate::share::Listed<'_>| {
        cookies.push(entry.cookie);
        true
    };
    assert!(tree.read_directory(&Credentials::root(), tree_top, 0, &mut tell).expect("listed"));
    assert_eq!(cookies.len(), 202);
    assert!(cookies.is_sorted() && cookies.iter().all(|cookie| *cookie < 1 << 63));
    for cookie in [0, 1, 2, 3, 255, 256, cookies[77], cookies[77] + 1, 1 << 63, u64::MAX] {
        let mut after = Vec::new();
        let is_end = tree
            .read_directory(&Credentials::root(), tree_top, cookie, &mut |entry| {
                after.push(entry.cookie);
                true
            })
            .expect("no cookie is refused");
        let expected: Vec<u64> = cookies.iter().copied().filter(|own| *own > cookie).collect();
        assert!(is_end && after == expected, "after {cookie}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_listing_beside_changes_has_nothing_twice_and_misses_nothing(
        seed in any::<u64>(), stay in 1..400_u32, at_once in 1..20_usize, changes in 0..60_u32,
    ) {
        let memory = Memory::default();
        let share = make(&memory);
        let root = Credentials::root();
        let top = share.tree(Wait::May).expect("usable").top().expect("a top");
        let mut now = 10_000_000;
        change(&share, top, &(0..stay).collect::<Vec<_>>(), true, &mut now);
        // Others come and go; none comes twice.
        let mut others: Vec<u32> = (stay..stay + 100).collect();
        change(&share, top, &others, true, &mut now);
        let mut next = stay + 100;
        let mut random = seed;
        let mut seen: BTreeMap<Vec<u8>, Inode> = BTreeMap::new();
        let mut cookie = 0;
        loop {
            let mut room = at_once;
            let tree = share.tree(Wait::May).expect("usable");
            let is_end = tree.read_directory(&root, top, cookie, &mut |entry| {
                if room == 0 {
                    return false;
                }
                room -= 1;
                cookie = entry.cookie;
                assert!(seen.insert(entry.name.to_vec(), entry.inode).is_none(), "listed twice");
                true
            });
            drop(tree);
            if is_end.expect("listed") {
                break;
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            for _ in 0..random >> 33 & u64::from(changes) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                if random >> 63 == 0 || others.is_empty() {
                    change(&share, top, &[next], true, &mut now);
                    others.push(next);
                    next += 1;
                } else {
                    let gone = others.swap_remove((random >> 33) as usize % others.len());
                    change(&share, top, &[gone], false, &mut now);
                }
            }
        }
        for number in 0..stay {
            assert!(seen.contains_key(&name(number)), "{number} was there throughout");
        }
        assert!(seen.contains_key(&b"."[..]) && seen.contains_key(&b".."[..]));
        assert_sound(&share);
    }
}

#[test]
fn an_entry_that_is_replaced_by_a_rename_keeps_its_cookie() {
    let memory = Memory::default();
    let share = make(&memory);
    let root = Credentials::root();
    let top = share.tree(Wait::May).expect("usable").top().expect("a top");
    for names in [10, 1000] {
        let all: Vec<u32> = (0..names).collect();
        change(&share, top, &all, true, &mut 10_000_000);
        let cookie_of = |wanted: &[u8]| {
            let mut cookie = 0;
            let found = share.tree(Wait::May).expect("usable").read_directory(
                &root,
                top,
                0,
                &mut |entry| {
                    cookie = entry.cookie;
                    entry.name != wanted
                },
            );
            assert!(!found.expect("listed"));
            cookie
        };
        let before = cookie_of(&name(5));
        let mut transaction = share.begin(Wait::May).expect("usable");
        let (from, to) = (name(4), name(5));
        let place = |name| Place { directory: top, name };
        transaction.rename(&caller(&root, 1), place(&from), place(&to)).expect("renamed");
        transaction.commit().expect("it is written");
        assert_eq!(cookie_of(&name(5)), before);
        let gone = share
            .tree(Wait::May)
            .expect("usable")
            .look_up(&root, top, &from)
            .expect_err("it was moved");
        assert_eq!(gone.kind, ErrorKind::NotFound);
        assert_sound(&share);
        let rest: Vec<u32> = all.into_iter().filter(|number| *number != 4).collect();
        change(&share, top, &rest, false, &mut 20_000_000);
    }
}

#[test]
fn a_directory_moves_below_4096_others_at_most() {
    let memory = Memory::default();
    let share = make(&memory);
    let root = Credentials::root();
    let caller = caller(&root, 10_000_000);
    let set = SetAttributes::default();
    let top = share.tree(Wait::May).expect("usable").top().expect("a top");
    let mut at = top;
    for _ in 0..5 {
        let mut transaction = share.begin(Wait::May).expect("usable");
        for _ in 0..820 {
            at = transaction.make_directory(&caller, at, b"d", &set).expect("it is made").id;
        }
        transaction.commit().expect("it is written");
    }
    let mut transaction = share.begin(Wait::May).expect("usable");
    let place = |directory, name| Place { directory, name };
    transaction.make_directory(&caller, top, b"moved", &set).expect("it is made");
    transaction.make_directory(&caller, at, b"here", &set).expect("it is made");
    let far = transaction.rename(&caller, place(top, b"moved"), place(at, b"moved"));
    assert_eq!(far.expect_err("too deep").kind, ErrorKind::NameTooLong);
    transaction.rename(&caller, place(at, b"here"), place(at, b"there")).expect("its own place");
    transaction.rename(&caller, place(at, b"there"), place(top, b"there")).expect("up is near");
    transaction.commit().expect("it is written");
    assert_sound(&share);
}
