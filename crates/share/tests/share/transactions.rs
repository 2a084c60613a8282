//! Transactions: what fails leaves nothing, what is full says so; generations, times, records; the
//! ring of the log; reads beside writes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use format::share::log::log_block;
use format::share::place::LOG_BLOCKS;
use format::share::root::ShareRoot;
use units::{FileId, Seq, WallTime};

use crate::memory::Memory;
use crate::share::{
    BlockWrite, Create, Credentials, ErrorKind, LogBlock, Operation, Past, Place, Present,
    Procedure, SetAttributes, Share, Tree, Wait,
};
use crate::world::{CACHE_BLOCKS, assert_sound, caller, make, opening, random, spec};

fn mode(mode: u16) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

fn create(share: &Share<&Memory>, name: &[u8], now: u64) -> FileId {
    let root = Credentials::root();
    let mut transaction = share.begin(Wait::May).expect("usable");
    let top = transaction.top().expect("a top");
    let (set, caller) = (mode(0o644), caller(&root, now));
    let made = transaction.create(&caller, top, name, Create::Guarded(&set)).expect("it is made");
    transaction.commit().expect("it is written");
    made.id
}

fn remove(share: &Share<&Memory>, name: &[u8]) {
    let root = Credentials::root();
    let mut transaction = share.begin(Wait::May).expect("usable");
    let top = transaction.top().expect("a top");
    transaction.remove(&caller(&root, 1), top, name).expect("it is removed");
    transaction.commit().expect("it is written");
}

#[test]
fn an_update_that_fails_leaves_the_others_and_nothing_of_itself() {
    let memory = Memory::default();
    let share = make(&memory);
    let root = Credentials::root();
    let caller = caller(&root, 1);
    let mut transaction = share.begin(Wait::May).expect("usable");
    let top = transaction.top().expect("a top");
    let set = mode(0o755);
    let d = transaction.make_directory(&caller, top, b"d", &set).expect("it is made").id;
    let place = |directory, name| Place { directory, name };
    let inside = transaction.rename(&caller, place(top, b"d"), place(d, b"d"));
    assert_eq!(inside.expect_err("into itself").kind, ErrorKind::Invalid);
    // The attributes fail after the inode was taken: its number is not lost.
    let set = SetAttributes { size: Some(u64::MAX), ..mode(0o644) };
    let failed = transaction.create(&caller, d, b"f", Create::Guarded(&set));
    assert_eq!(failed.expect_err("too large").kind, ErrorKind::FileTooLarge);
    let missing = transaction.look_up(&root, d, b"f").expect_err("it was not made");
    assert_eq!(missing.kind, ErrorKind::NotFound);
    transaction.make_directory(&caller, d, b"e", &mode(0o755)).expect("it is made");
    assert_eq!(transaction.operations(), 2);
    transaction.commit().expect("it is written");
    assert_sound(&share);
    assert_eq!(share.statistics().inodes, 3);
    assert_eq!(share.statistics().operations, 2);
}

#[test]
fn a_transaction_without_changes_writes_nothing() {
    let memory = Memory::default();
    let share = make(&memory);
    let id = create(&share, b"f", 1);
    let moments = memory.moments();
    let root = Credentials::root();
    let mut transaction = share.try_begin(Wait::May).expect("usable").expect("none is under way");
    assert!(share.try_begin(Wait::May).expect("usable").is_none(), "one is under way");
    let top = transaction.top().expect("a top");
    transaction.remove(&caller(&root, 1), top, b"none").expect_err("there is none");
    transaction.write(&caller(&root, 1), id, 0, b"").expect("nothing is written");
    let f = Place { directory: top, name: b"f" };
    transaction.rename(&caller(&root, 1), f, f).expect("nothing happens");
    assert_eq!(transaction.commit().expect("nothing to write"), Seq(memory_seq(&memory)));
    assert_eq!(memory.moments(), moments);
}

fn memory_seq(memory: &Memory) -> u64 {
    crate::share::Present::seq(memory).0
}

#[test]
fn a_full_transaction_says_so_and_what_is_in_it_is_written() {
    let memory = Memory::default();
    let share = make(&memory);
    let id = create(&share, b"f", 1);
    let root = Credentials::root();
    let megabyte = vec![9; 1 << 20];
    let mut transaction = share.begin(Wait::May).expect("usable");
    let mut written = 0;
    let full = loop {
        match transaction.write(&caller(&root, 1), id, written << 20, &megabyte) {
            Ok(_) => written += 1,
            Err(error) => break error.kind,
        }
    };
    assert_eq!((full, written), (ErrorKind::TransactionFull, 30));
    transaction.commit().expect("it is written");
    assert_eq!(
        share.tree(Wait::May).expect("usable").attributes(id).expect("it is there").size,
        30 << 20
    );
    // The same bytes again take no more room.
    let mut transaction = share.begin(Wait::May).expect("usable");
    for _ in 0..100 {
        transaction.write(&caller(&root, 1), id, 0, &megabyte).expect("there is room");
    }
    transaction.commit().expect("it is written");
    let huge = vec![0; 8000 * 4096];
    let mut transaction = share.begin(Wait::May).expect("usable");
    let error = transaction.write(&caller(&root, 1), id, 0, &huge).expect_err("it never fits");
    assert_eq!(error.kind, ErrorKind::Invalid);
    // Small updates come to the end as well.
    let set = mode(0o644);
    let top = transaction.top().expect("a top");
    let full = (0_u64..).find_map(|number| {
        let name = number.to_le_bytes().map(|byte| byte % 64 + 64);
        let how = Create::Unchecked(&set);
        transaction.create(&caller(&root, 1), top, &name, how).err().map(|error| error.kind)
    });
    assert_eq!(full, Some(ErrorKind::TransactionFull));
    transaction.commit().expect("it is written");
    drop(megabyte);
    assert_sound(&share);
}

#[test]
fn who_does_not_wait_is_told_and_nothing_is_left_behind() {
    let memory = Memory::default();
    let id = create(&make(&memory), b"f", 1);
    let share = Share::open(&memory, opening()).expect("it is there");
    let root = Credentials::root();
    memory.is_slow.store(true, Ordering::Relaxed);
    let mut buffer = [0; 10];
    let waits = share.read(&root, id, 0, &mut buffer, Wait::MayNot).expect_err("not in memory");
    assert_eq!(waits.kind, ErrorKind::WouldWait);
    let mut transaction = share.begin(Wait::MayNot).expect("usable");
    let waits = transaction.write(&caller(&root, 1), id, 0, b"bytes").expect_err("not in memory");
    assert_eq!((waits.kind, transaction.operations()), (ErrorKind::WouldWait, 0));
    drop(transaction);
    share.read(&root, id, 0, &mut buffer, Wait::May).expect("it is read");
    share.read(&root, id, 0, &mut buffer, Wait::MayNot).expect("it is in memory now");
    let mut transaction = share.begin(Wait::MayNot).expect("usable");
    transaction.write(&caller(&root, 1), id, 0, b"bytes").expect("it is in memory");
    transaction.commit().expect("it is written");
}

#[test]
fn no_two_objects_ever_have_one_number_and_one_generation() {
    let memory = Memory::default();
    let share = make(&memory);
    let root = Credentials::root();
    let mut seen = BTreeSet::new();
    for turn in 0..20_u64 {
        let first = create(&share, b"a", 1);
        assert!(seen.insert(first), "{first:?} again");
        // Made and removed and made again in one transaction.
        let mut transaction = share.begin(Wait::May).expect("usable");
        let top = transaction.top().expect("a top");
        let (set, caller) = (mode(0o644), caller(&root, 1));
        for _ in 0..4 {
            let made = transaction.create(&caller, top, b"b", Create::Guarded(&set));
            assert!(seen.insert(made.expect("it is made").id));
            transaction.remove(&caller, top, b"b").expect("it is removed");
        }
        transaction.commit().expect("it is written");
        remove(&share, b"a");
        let stale =
            share.tree(Wait::May).expect("usable").attributes(first).expect_err("it is gone");
        assert_eq!(stale.kind, ErrorKind::Stale);
        if turn % 3 == 0 {
            memory.revert(1);
            share.reload(random()).expect("it is there");
            assert_eq!(share.statistics().inodes, 1);
        }
        assert_sound(&share);
    }
    assert!(seen.iter().any(|id| id.inode.0 < 9), "numbers are used again");
}

#[test]
fn times_of_changes_rise_whatever_the_clock_does() {
    let memory = Memory::default();
    let share = make(&memory);
    let mut last = WallTime::EPOCH;
    for (number, now) in [5_000_000, 5_000_000, 3, u64::MAX / 2, 7, 0].into_iter().enumerate() {
        let id = create(&share, &[b'a' + number as u8], now);
        let tree = share.tree(Wait::May).expect("usable");
        for id in [id, tree.top().expect("a top")] {
            assert!(tree.attributes(id).expect("it is there").changed > last);
        }
        let found = tree.attributes(id).expect("it is there");
        // A jump of the clock spoils no other times.
        let now = WallTime::from_nanos(now);
        assert_eq!([found.created, found.modified, found.accessed], [now; 3]);
        last = found.changed;
    }
}

#[test]
fn records_say_who_did_what_to_which_and_what_was_before() {
    let memory = Memory::default();
    let share = make(&memory);
    let user = Credentials { uid: 0, gid: 5, groups: vec![6, 7] };
    let from = crate::share::Caller { client: 99, xid: 3, ..caller(&user, 9_000_000) };
    let seq = memory_seq(&memory);
    let mut t = share.begin(Wait::May).expect("usable");
    let top = t.top().expect("a top");
    let f = t.create(&from, top, b"f", Create::Guarded(&mode(0o644))).expect("made").id;
    let g = t.create(&from, top, b"g", Create::Guarded(&mode(0o600))).expect("made").id;
    t.write(&from, f, 4096, b"bytes").expect("written");
    t.link(&from, f, top, b"h").expect("linked");
    let place = |name| Place { directory: top, name };
    t.rename(&from, place(b"f"), place(b"g")).expect("renamed");
    t.set_attributes(&from, f, &mode(0o600), None).expect("set");
    t.remove(&from, top, b"h").expect("removed");
    let cut = SetAttributes { size: Some(2), ..mode(0o777) };
    t.create(&from, top, b"g", Create::Unchecked(&cut)).expect("cut");
    t.commit().expect("it is written");
    let block = share.log_block(share.last_log_block()).expect("read").expect("there");
    let found: Vec<Operation<'_>> = block.operations().collect();
    let procedures: Vec<Procedure> = found.iter().map(|operation| operation.procedure).collect();
    let expected = [
        Procedure::Create,
        Procedure::Create,
        Procedure::Write,
        Procedure::Link,
        Procedure::Rename,
        Procedure::SetAttributes,
        Procedure::Remove,
        Procedure::Create,
    ];
    assert_eq!(procedures, expected);
    for (operation, number) in found.iter().zip(1..) {
        assert_eq!((operation.number, operation.seq_before), (number, Seq(seq)));
        let origin = operation.origin;
        assert_eq!((origin.client, origin.xid, origin.gid), (99, 3, 5));
        assert_ne!(origin.groups_hash, 0);
    }
    assert!(found.windows(2).all(|pair| pair[0].time < pair[1].time));
    let [create, _, write, link, rename, set, remove, open] = &found[..] else { panic!("eight") };
    assert_eq!((create.before, create.range), (None, None));
    assert_eq!((open.object, open.other, open.name), (top, Some(f), &b"g"[..]));
    assert_eq!(
        (open.range, open.before.map(|b| (b.size, b.mode))),
        (Some((2, 0)), Some((4101, 0o600)))
    );
    assert_eq!((create.object, create.other, create.name), (top, Some(f), &b"f"[..]));
    assert_eq!((write.object, write.range), (f, Some((4096, 5))));
    assert_eq!(write.before.map(|before| before.size), Some(0));
    assert_eq!((link.other, link.name), (Some(f), &b"h"[..]));
    let target = rename.target.expect("a rename has one");
    assert_eq!((target.directory, target.victim), (top, Some(g)));
    assert_eq!((rename.name, rename.new_name), (&b"f"[..], &b"g"[..]));
    assert_eq!(rename.before.map(|before| before.mode), Some(0o600));
    assert_eq!(set.before.map(|before| before.mode), Some(0o644));
    assert_eq!(remove.before.map(|before| before.links), Some(2));
}

#[test]
fn the_last_block_of_a_long_log_is_found_again() {
    let memory = Memory::default();
    let share = make(&memory);
    let root = Credentials::root();
    let id = create(&share, b"f", 1);
    let mut numbers = 1;
    // Beyond the first block of the log that the root names.
    while share.last_log_block() < 4096 + 5 {
        let mut transaction = share.begin(Wait::May).expect("usable");
        for _ in 0..3000 {
            numbers += 1;
            let set = mode(numbers as u16 % 512);
            transaction.set_attributes(&caller(&root, 1), id, &set, None).expect("it is set");
        }
        transaction.commit().expect("it is written");
    }
    let opened = Share::open(&memory, opening()).expect("it is there");
    assert_eq!(opened.last_log_block(), share.last_log_block());
    assert_eq!(opened.statistics(), share.statistics());
    assert_eq!(opened.statistics().operations, numbers);
    let mut last = 0;
    for number in 0..=opened.last_log_block() {
        let block = opened.log_block(number).expect("it is read").expect("the ring has it");
        for operation in block.operations() {
            last += 1;
            assert_eq!(operation.number, last);
        }
        assert_eq!(block.state.operation, last);
    }
    assert_eq!(last, numbers);
    assert_eq!(opened.log_block(opened.last_log_block() + 1).expect("it is read"), None);
    for moment in [2, memory.moments() / 2, memory.moments()] {
        let past = Past::open(memory.at(moment), CACHE_BLOCKS).expect("it was there");
        let attributes = past.tree(Wait::May).attributes(id).expect("it was there");
        assert_eq!(attributes.operation, past.state().operation);
    }
}

#[test]
fn the_ring_of_the_log_comes_round() {
    let memory = Memory::default();
    let share = make(&memory);
    let id = create(&share, b"f", 1);
    let state = *share.tree(Wait::May).expect("usable").state();
    drop(share);
    // As if all that had been written: the last thousands of blocks of the first round.
    let mut root = [0; 4096];
    crate::share::Blocks::read(&memory, 0, &mut root, Wait::May).expect("it is read");
    ShareRoot::set_log_hint(&mut root, LOG_BLOCKS - 4096);
    let address = ShareRoot::decode(&root).expect("a root");
    let mut blocks = vec![(0, Box::new(root))];
    for number in (LOG_BLOCKS - 4096..LOG_BLOCKS - 1).chain([10_000]) {
        let block = log_block(number);
        blocks.push((block, LogBlock::new(number, state).encode(address.address(block))));
    }
    let writes =
        blocks.iter().map(|(block, bytes)| BlockWrite::Data { block: *block, bytes: &bytes[..] });
    memory.write_whole(&writes.collect::<Vec<_>>(), Wait::May).expect("it is written");

    let share = Share::open(&memory, opening()).expect("it is there");
    assert_eq!(share.last_log_block(), LOG_BLOCKS - 2);
    let root = Credentials::root();
    let mut reverts = vec![memory.moments()];
    let set_all = |share: &Share<&Memory>, reverts: &mut Vec<usize>| {
        let mut transaction = share.begin(Wait::May).expect("usable");
        for number in 0..100 {
            let set = mode(number % 512);
            transaction.set_attributes(&caller(&root, 1), id, &set, None).expect("it is set");
        }
        transaction.commit().expect("it is written");
        reverts.push(memory.moments());
        let opened = Share::open(&memory, opening()).expect("it is there");
        assert_eq!(opened.last_log_block(), share.last_log_block());
        assert_eq!(opened.statistics(), share.statistics());
        assert_sound(share);
    };
    // The window leaves the beginning: all up to what the end is found by.
    assert!(share.log_block(10_000).expect("it is read").is_some());
    share.forget_log_before(units::WallTime::from_nanos(u64::MAX)).expect("it is read");
    let mut transaction = share.begin(Wait::May).expect("usable");
    transaction.set_attributes(&caller(&root, 1), id, &mode(0), None).expect("it is set");
    transaction.commit().expect("it is written");
    let first = share.last_log_block() / 4096 * 4096;
    assert_eq!(share.tree(Wait::May).expect("usable").state().log_first, first);
    assert_eq!(share.log_block(0).expect("it is read"), None);
    assert_eq!(share.log_block(10_000).expect("it is read"), None);
    assert!(!memory.data_blocks().contains(&log_block(10_000)), "it takes no room");
    assert!(share.log_block(first).expect("it is read").is_some());
    let past = Past::open(memory.at(memory.moments()), CACHE_BLOCKS).expect("it is there");
    assert_eq!(past.log_block(0).expect("it is read"), None);
    assert!(past.log_block(first).expect("it is read").is_some());
    drop(past);
    reverts.push(memory.moments());
    (0..3).for_each(|_| set_all(&share, &mut reverts));
    assert!(share.last_log_block() > LOG_BLOCKS + 3);
    // The first block of the ring is another one now.
    assert_eq!(share.log_block(0).expect("it is read"), None);
    assert!(share.log_block(LOG_BLOCKS).expect("it is read").is_some());
    for moment in reverts {
        let before = Past::open(memory.at(moment), CACHE_BLOCKS).expect("it was there");
        memory.revert(moment);
        share.reload(random()).expect("it is there");
        assert_eq!(share.last_log_block(), before.last_log_block());
        assert_eq!(share.statistics().operations, before.state().operation);
        assert_sound(&share);
        assert_gives_nothing_up(&share, id, before.state().log_first);
    }
}

/// The window of before a revert says nothing of the log of after it.
fn assert_gives_nothing_up(share: &Share<&Memory>, id: FileId, log_first: u64) {
    let mut transaction = share.begin(Wait::May).expect("usable");
    let root = Credentials::root();
    transaction.set_attributes(&caller(&root, 1), id, &mode(1), None).expect("it is set");
    transaction.commit().expect("it is written");
    assert_eq!(share.tree(Wait::May).expect("usable").state().log_first, log_first);
}

#[test]
fn a_share_is_made_once() {
    let memory = Memory::default();
    let missing = Share::open(&memory, opening()).err().expect("there is none");
    assert_eq!(missing.kind, ErrorKind::NotFound);
    make(&memory);
    let again = Share::make(&memory, &spec(), opening()).err().expect("there is one");
    assert_eq!(again.kind, ErrorKind::Exists);
    assert_eq!(Past::open(memory.at(0), 10).err().map(|e| e.kind), Some(ErrorKind::NotFound));
}

#[test]
fn a_read_beside_transactions_never_sees_the_bytes_of_another_file() {
    let memory = Memory::default();
    let share = make(&memory);
    let root = Credentials::root();
    let [a, b] = [create(&share, b"a", 1), create(&share, b"b", 1)];
    let [ones, twos] = [vec![1; 40_000], vec![2; 40_000]];
    let done = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            let mut buffer = vec![0; 50_000];
            while !done.load(Ordering::Relaxed) || reads == 0 {
                let read = share.read(&root, a, 0, &mut buffer, Wait::May).expect("it is read");
                assert!(read.count == 0 || read.count == 40_000);
                let wrong = buffer[..read.count].iter().find(|byte| **byte != 1);
                assert_eq!(wrong, None, "neither another's bytes nor a hole");
                reads += usize::from(read.count > 0);
            }
            reads
        });
        let size = SetAttributes { size: Some(0), ..SetAttributes::default() };
        for turn in 0..2001 {
            let (id, bytes) = if turn % 2 == 0 { (a, &ones) } else { (b, &twos) };
            let mut transaction = share.begin(Wait::May).expect("usable");
            for id in [a, b] {
                transaction.set_attributes(&caller(&root, 1), id, &size, None).expect("cut");
            }
            transaction.commit().expect("it is written");
            let mut transaction = share.begin(Wait::May).expect("usable");
            transaction.write(&caller(&root, 1), id, 0, bytes).expect("it is written");
            transaction.commit().expect("it is written");
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("the reader found nothing wrong")
    });
    assert!(reads > 0);
    assert_sound(&share);
}
