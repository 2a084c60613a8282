//! Things that go wrong from outside: reads that fail in the middle of an update, power cuts that
//! take the last calls and their seqs along, reverts beside transactions and reads, volumes whose
//! batches are small.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use units::FileId;

use crate::memory::Memory;
use crate::model::{Model, Op};
use crate::share::{
    Create, Credentials, ErrorKind, SetAttributes, Share, Tree, WHOLE_BLOCKS_MIN, Wait,
};
use crate::world::{
    START, applied, apply, assert_sound, caller, compare, do_all, make, opening, random,
};

fn create(share: &Share<&Memory>, name: &[u8]) -> FileId {
    let root = Credentials::root();
    let mut transaction = share.begin(Wait::May).expect("usable");
    let top = transaction.top().expect("a top");
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let how = Create::Guarded(&set);
    let made = transaction.create(&caller(&root, START), top, name, how).expect("it is made");
    transaction.commit().expect("it is written");
    made.id
}

fn write(share: &Share<&Memory>, id: FileId, offset: u64, bytes: &[u8]) {
    let root = Credentials::root();
    let mut transaction = share.begin(Wait::May).expect("usable");
    transaction.write(&caller(&root, START), id, offset, bytes).expect("it is written");
    transaction.commit().expect("it is written");
}

fn read(share: &Share<&Memory>, id: FileId, count: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; count];
    let read = share.read(&Credentials::root(), id, 0, &mut buffer, Wait::May).expect("it is read");
    buffer.truncate(read.count);
    buffer
}

/// A tree with something of everything, and operations on all of it.
fn ops() -> (Vec<Op>, Vec<Op>) {
    let mut first: Vec<Op> = (0..200).map(|i| Op::Create(format!("large{i:060}"))).collect();
    first.extend((0..30).map(|i| Op::Remove(format!("large{i:060}"))));
    first.extend([
        Op::Mkdir("d".into()),
        Op::Write(format!("large{:060}", 50), 0, vec![1; 30_000]),
        Op::Write(format!("large{:060}", 51), 100, vec![2; 9000]),
    ]);
    let second = vec![
        Op::Create("new".into()),
        Op::Write("new".into(), 3000, vec![3; 5000]),
        Op::Write(format!("large{:060}", 50), 4000, vec![4; 5000]),
        Op::Resize(format!("large{:060}", 51), 5000),
        Op::Rename(format!("large{:060}", 51), format!("large{:060}", 50)),
        Op::Rename("d".into(), "e".into()),
        Op::Mkdir("e/f".into()),
        Op::Remove(format!("large{:060}", 77)),
        Op::Rmdir("e/f".into()),
        Op::Create("e/g".into()),
    ];
    (first, second)
}

#[test]
fn an_update_that_cannot_read_leaves_nothing_wherever_it_fails() {
    let memory = Memory::default();
    let share = make(&memory);
    let mut model = Model::new(START);
    let mut now = START;
    let (first, second) = ops();
    first.chunks(40).for_each(|ops| do_all(&share, &mut model, ops, &mut now));
    drop(share);
    let mut failures = 0;
    for kind in [ErrorKind::WouldWait, ErrorKind::Storage] {
        for nth in 1.. {
            let (memory, mut model, mut now) = (memory.clone(), model.clone(), now);
            let share = Share::open(&memory, opening()).expect("it is there");
            let mut transaction = share.begin(Wait::May).expect("usable");
            memory.fail_read(nth, kind);
            let mut has_failed = false;
            for op in &second {
                now += 10;
                match apply(&mut transaction, op, now) {
                    Err(found) if found == kind => {
                        has_failed = true;
                        compare(&transaction, &model);
                    }
                    found => assert_eq!(found, applied(&mut model, op, now), "{op:?}, read {nth}"),
                }
            }
            assert_eq!(has_failed, memory.has_failed());
            memory.fail_read(0, kind);
            transaction.commit().expect("it is written");
            compare(&share.tree(Wait::May).expect("usable"), &model);
            assert_sound(&share);
            failures += usize::from(has_failed);
            if !has_failed {
                break;
            }
        }
    }
    assert!(failures > 10, "{failures} updates could not read");
}

#[test]
fn generations_and_operations_differ_over_a_power_cut_that_takes_seqs_along() {
    let memory = Memory::default();
    let share = make(&memory);
    create(&share, b"kept");
    let mut share = share;
    let (mut ids, mut operations) = (BTreeSet::new(), BTreeSet::new());
    for name in [&b"a"[..], b"b", b"a"] {
        let before = crate::share::Present::seq(&memory);
        assert!(ids.insert(create(&share, name)), "one number and generation twice");
        let block = share.log_block(share.last_log_block()).expect("read").expect("there");
        let last = block.operations().last().expect("there is one");
        assert!(operations.insert((last.incarnation, last.number)), "one operation twice");
        assert_eq!(block.state.incarnation, last.incarnation);
        drop(share);
        memory.lose(1);
        assert_eq!(crate::share::Present::seq(&memory), before, "seqs fall back");
        share = Share::open(&memory, opening()).expect("it is there");
        assert_sound(&share);
        assert_eq!(share.statistics().inodes, 2);
    }
    let numbers: BTreeSet<u64> = operations.iter().map(|(_, number)| *number).collect();
    assert_eq!((ids.len(), numbers.len()), (3, 1));
}

#[test]
fn a_revert_waits_for_the_transaction_before_it_and_drops_all_that_came_after_its_moment() {
    let memory = Memory::default();
    let share = make(&memory);
    let old = create(&share, b"old");
    write(&share, old, 0, &[1; 10_000]);
    let moment = memory.moments();
    let transaction = share.begin(Wait::May).expect("usable");
    std::thread::scope(|scope| {
        let reverter = scope.spawn(|| {
            share.suspend();
            memory.revert(moment);
            share.reload(random())
        });
        let root = Credentials::root();
        let mut transaction = transaction;
        let bytes = [2; 10_000];
        transaction.write(&caller(&root, START), old, 0, &bytes).expect("it is written");
        assert!(!reverter.is_finished());
        transaction.commit().expect("it is written");
        reverter.join().expect("no panic").expect("it is reverted");
    });
    assert_eq!(read(&share, old, 20_000), [1; 10_000]);
    let time = share.statistics().changed;
    write(&share, old, 0, b"new");
    assert!(share.statistics().changed > time);
    assert_sound(&share);
}

#[test]
fn a_share_that_is_suspended_or_cannot_be_loaded_is_of_no_use_until_it_is() {
    let memory = Memory::default();
    let share = make(&memory);
    let id = create(&share, b"f");
    write(&share, id, 0, b"bytes");
    let kinds = || {
        let read = share.read(&Credentials::root(), id, 0, &mut [0], Wait::May);
        [
            share.tree(Wait::May).err().map(|error| error.kind),
            share.begin(Wait::May).err().map(|error| error.kind),
            share.try_begin(Wait::May).err().map(|error| error.kind),
            read.err().map(|error| error.kind),
        ]
    };
    share.suspend();
    assert_eq!(kinds(), [Some(ErrorKind::Unusable); 4]);
    memory.fail_read(1, ErrorKind::Storage);
    let error = share.reload(random()).expect_err("it cannot be loaded");
    assert_eq!(error.kind, ErrorKind::Storage);
    assert_eq!(kinds(), [Some(ErrorKind::Unusable); 4]);
    share.reload(random()).expect("it is there");
    assert_eq!(read(&share, id, 10), b"bytes");
    assert_eq!(kinds(), [None; 4]);
}

#[test]
fn a_read_is_done_again_if_its_file_changed_meanwhile_and_only_then() {
    let memory = Memory::default();
    let share = make(&memory);
    let [a, b] = [create(&share, b"a"), create(&share, b"b")];
    let root = Credentials::root();
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    let cut = |id, to| {
        let mut transaction = share.begin(Wait::May).expect("usable");
        let set = size(to);
        transaction.set_attributes(&caller(&root, START), id, &set, None).expect("it is cut");
        transaction.commit().expect("it is written");
    };
    write(&share, a, 0, &[1; 40_000]);
    write(&share, b, 0, &[2; 40_000]);
    let moment = memory.moments();
    let reads = |change: &(dyn Fn() + Sync)| memory.read_beside(change, || read(&share, a, 50_000));
    let once = reads(&|| {});
    assert_eq!(once.0, [1; 40_000]);
    // Another file is cut: the read goes on.
    assert_eq!(reads(&|| cut(b, 10_000)), once);
    // A cut within one block, which makes no hole.
    assert_eq!(reads(&|| cut(a, 39_999)), ([1; 39_999].to_vec(), 2 * once.1));
    // All of it is cut and another file takes its slabs.
    let swapped = reads(&|| {
        cut(a, 0);
        write(&share, b, 0, &[2; 40_000]);
        write(&share, a, 0, &[3; 5000]);
    });
    assert_eq!(swapped.0, [3; 5000]);
    // A revert, to a moment and back, with one in between: the file is as it was, the read is not.
    let now = memory.moments();
    let reverted = reads(&|| {
        for to in [moment, now] {
            share.suspend();
            memory.revert(to);
            share.reload(random()).expect("it is reverted");
        }
    });
    assert_eq!(reverted.0, [3; 5000]);
    assert_eq!(reverted.1, 4, "two blocks, and once more");
    assert_sound(&share);
}

#[test]
fn numbers_that_come_and_go_in_one_transaction_are_used_again() {
    let memory = Memory::default();
    let share = make(&memory);
    let root = Credentials::root();
    let bytes = [7; 9000];
    let set = SetAttributes::default();
    for turn in 0..300_u32 {
        let mut transaction = share.begin(Wait::May).expect("usable");
        let top = transaction.top().expect("a top");
        let caller = caller(&root, START);
        for number in 0..3 {
            let name = |turn: u32| format!("{turn}-{number}").into_bytes();
            if turn > 0 {
                transaction.remove(&caller, top, &name(turn - 1)).expect("it is removed");
            }
            let made = transaction.create(&caller, top, &name(turn), Create::Guarded(&set));
            let id = made.expect("it is made").id;
            transaction.write(&caller, id, 0, &bytes).expect("it is written");
        }
        transaction.commit().expect("it is written");
    }
    assert_sound(&share);
    let tree = share.tree(Wait::May).expect("usable");
    let free = tree.state().free;
    assert!(free[0].next <= 12, "{} inodes were given out", free[0].next);
    assert!(free[1].next - (1 << 39) <= 16 && free[2].next % 4096 <= 64);
}

#[test]
fn two_senders_do_not_write_over_each_other_in_one_transaction() {
    let memory = Memory::default();
    let share = make(&memory);
    let [a, b] = [create(&share, b"a"), create(&share, b"b")];
    let root = Credentials::root();
    let one = caller(&root, START);
    let two = crate::share::Caller { client: 2, ..one };
    let set = SetAttributes { size: Some(1), ..SetAttributes::default() };
    let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let full = Some(ErrorKind::TransactionFull);
    for turn in 0..2 {
        let mut transaction = share.begin(Wait::May).expect("usable");
        let top = transaction.top().expect("a top");
        transaction.write(&one, a, 0, b"one").expect("it is written");
        let made = transaction.create(&one, top, &[b'0' + turn], Create::Guarded(&mode));
        let made = made.expect("it is made").id;
        let mut refused = vec![
            transaction.write(&two, a, 0, b"two").err(),
            transaction.write(&two, made, 0, b"two").err(),
            transaction.set_attributes(&two, a, &set, None).err(),
            transaction.create(&two, top, b"a", Create::Unchecked(&set)).err(),
            transaction.remove(&two, top, b"a").err(),
        ];
        let place = |name| crate::share::Place { directory: top, name };
        refused.push(transaction.rename(&two, place(b"b"), place(b"a")).err());
        let refused: Vec<_> = refused.into_iter().map(|error| error.map(|e| e.kind)).collect();
        assert_eq!(refused, vec![full; 6]);
        // Attributes are in the record, and other files are others.
        transaction.set_attributes(&two, a, &mode, None).expect("it is set");
        transaction.write(&two, b, 0, b"two").expect("it is written");
        transaction.write(&one, a, 1, b"one").expect("its own");
        transaction.commit().expect("it is written");
        write(&share, a, 0, b"two");
    }
    assert_sound(&share);
}

#[test]
fn a_volume_of_small_zones_takes_small_transactions_or_is_refused() {
    let memory = Memory::default();
    memory.whole_blocks_max.store(WHOLE_BLOCKS_MIN - 1, Ordering::Relaxed);
    let refused = Share::make(&memory, &crate::world::spec(), opening()).err();
    assert_eq!(refused.map(|error| error.kind), Some(ErrorKind::Invalid));
    memory.whole_blocks_max.store(WHOLE_BLOCKS_MIN, Ordering::Relaxed);
    let share = make(&memory);
    let root = Credentials::root();
    let id = create(&share, b"f");
    let bytes = vec![1; share.write_bytes_max() + 4096];
    assert!(bytes.len() >= 100_000);
    write(&share, id, 77, &bytes[4096..]);
    let mut transaction = share.begin(Wait::May).expect("usable");
    let error = transaction.write(&caller(&root, START), id, 0, &bytes).expect_err("too long");
    assert_eq!(error.kind, ErrorKind::Invalid);
    drop(transaction);
    // Large holes count by their parts.
    write(&share, id, (16 << 40) - 10, b"!");
    let mut transaction = share.begin(Wait::May).expect("usable");
    let top = transaction.top().expect("a top");
    transaction.remove(&caller(&root, START), top, b"f").expect("it is removed");
    transaction.commit().expect("it is written");
    assert_sound(&share);
    let reopened = Share::open(&memory, opening()).expect("it is there");
    memory.whole_blocks_max.store(WHOLE_BLOCKS_MIN - 1, Ordering::Relaxed);
    drop(reopened);
    assert!(Share::open(&memory, opening()).is_err());
}
