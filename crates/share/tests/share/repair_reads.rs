//! Repairs that follow reads: what a client did after it had read a file that an undone operation
//! wrote is undone too.

use std::collections::BTreeSet;

use proptest::prelude::{Just, Strategy, prop_oneof, proptest};
use units::{FileId, WallTime};

use crate::memory::{Memory, View};
use crate::model::Op;
use crate::repair::{
    Culprit, Sent, Story, create, histories, in_memory, op, path, text, undo, write,
};
use crate::repair_oracle::Done;
use crate::share::repair::{Follow, Reason};
use crate::share::{ErrorKind, Logged, Procedure};

type InMemory<'m> = Story<'m, &'m Memory, View<'m>>;

/// A read: by whom, of what, and the last operation then.
#[derive(Clone, Copy, Debug)]
struct Read {
    client: u128,
    file: FileId,
    after: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Change(Vec<Sent>),
    Read(u128, String),
}

fn step() -> impl Strategy<Value = Step> {
    let change = proptest::collection::vec((1..4_u128, op()), 1..4).prop_map(Step::Change);
    prop_oneof![3 => change, 2 => (1..4_u128, path()).prop_map(|(c, p)| Step::Read(c, p))]
}

fn culprit() -> impl Strategy<Value = Culprit> {
    prop_oneof![
        3 => (1..4_u128).prop_map(Culprit::Client),
        1 => prop_oneof![Just(7_u8), Just(8), Just(2)].prop_map(Culprit::Procedure),
    ]
}

/// Whether an operation wrote a file, by what was asked for.
fn wrote(done: &Done, file: FileId) -> bool {
    let record = &done.logged.record;
    match done.op {
        Op::Write(..) | Op::Resize(..) => record.object == file,
        Op::Create(_) | Op::Exclusive(..) => record.other == Some(file),
        // That of a file which is there changes it only if it sets a size.
        Op::Open(..) => record.other == Some(file),
        _ => false,
    }
}

/// The operations by which what a client read is wrong.
fn wrong_at(story: &InMemory<'_>, read: &Read, undone: &BTreeSet<u64>) -> BTreeSet<u64> {
    let before = story.done.iter().filter(|done| done.logged.number() <= read.after);
    let wrong = before.filter(|done| undone.contains(&done.logged.number()));
    wrong.filter(|done| wrote(done, read.file)).map(|done| done.logged.number()).collect()
}

proptest! {
    #![proptest_config(histories())]

    #[test]
    fn all_that_a_reader_did_since_follows_and_nothing_without_a_read(
        steps in proptest::collection::vec(step(), 1..30),
        culprit in culprit(),
    ) {
        let memory = Memory::default();
        let mut story = in_memory(&memory);
        let mut reads = Vec::new();
        for step in &steps {
            match step {
                Step::Change(sent) => story.send(sent),
                Step::Read(client, path) => {
                    let after = story.share.statistics().operations;
                    if let Some(file) = story.read(*client, path) {
                        reads.push(Read { client: *client, file, after });
                    }
                }
            }
        }
        let planned = undo(&story, &culprit, Follow::Reads);
        let is_wrong = |read: &&Read| !wrong_at(&story, read, &planned.undone).is_empty();
        for read in reads.iter().filter(is_wrong) {
            let by_it = |done: &&Done| {
                let logged = &done.logged;
                logged.record.origin.client == read.client && logged.number() > read.after
            };
            for done in story.done.iter().filter(by_it) {
                assert!(planned.undone.contains(&done.logged.number()), "{read:?}: {done:?}");
            }
        }
        for dependent in planned.dependents.iter().filter(|one| one.reason == Reason::Reads) {
            let logged = &dependent.operation;
            let own = |read: &&Read| {
                logged.record.origin.client == read.client && read.after < logged.number()
            };
            let mut on = reads.iter().filter(own).map(|read| {
                wrong_at(&story, read, &planned.undone)
            });
            assert!(on.any(|on| dependent.on.is_subset(&on)), "{dependent:?} without a read");
        }
    }
}

fn by(client: u128) -> impl Fn(&Logged) -> bool {
    move |logged| logged.record.origin.client == client
}

fn readers(story: &InMemory<'_>) -> Vec<(u128, u64)> {
    let records = story.records().into_iter();
    let reads = records.filter(|logged| logged.record.procedure == Procedure::Read);
    reads.map(|logged| (logged.record.origin.client, logged.number())).collect()
}

/// Client 1 writes a wrong price. Client 2 reads it and writes a bill, client 3 reads the bill and
/// pays; client 4 read the price before, and client 5 reads it when it is right again.
#[test]
fn what_came_of_a_wrong_file_through_its_readers_is_undone() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    for name in ["price", "bill", "paid", "note", "late", "other"] {
        story.send(&[create(9, name)]);
    }
    story.send(&[write(9, "price", "10")]);
    story.read(4, "price");
    story.send(&[write(1, "price", "99")]);
    story.send(&[write(2, "other", "before it read")]);
    story.read(2, "price");
    story.send(&[write(2, "bill", "99")]);
    story.read(3, "bill");
    story.send(&[write(3, "paid", "99")]);
    story.send(&[write(4, "note", "it is 10")]);
    story.read(5, "other");
    story.send(&[write(5, "late", "of another file")]);
    let names = story.plan(Follow::Bytes, by(1));
    assert_eq!((names.undone.len(), names.followed.len()), (1, 0));
    let planned = story.plan(Follow::Reads, by(1));
    let reasons: Vec<Reason> = planned.dependents.iter().map(|one| one.reason).collect();
    assert_eq!(reasons, [Reason::Reads, Reason::Reads], "one pass finds both");
    story.repair(&planned).1.expect("it is done");
    for (name, expected) in [
        ("price", "10"),
        ("bill", ""),
        ("paid", ""),
        ("note", "it is 10"),
        ("late", "of another file"),
        ("other", "before it read"),
    ] {
        assert_eq!(text(&story, name).as_deref(), Some(expected), "{name}");
    }
    story.assert_is(&story.without(&planned.undone));
}

#[test]
fn a_read_is_in_the_log_once_for_each_state_of_a_file() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    story.send(&[create(1, "f"), write(1, "f", "text")]);
    let read_by = |story: &InMemory<'_>, clients: &[u128]| {
        for client in clients {
            story.read(*client, "f").expect("it is there");
        }
    };
    read_by(&story, &[2, 2, 3, 2]);
    assert_eq!(readers(&story), [(2, 3), (3, 4)]);
    story.send(&[create(1, "g")]);
    read_by(&story, &[2, 3]);
    assert_eq!(readers(&story), [(2, 3), (3, 4)], "another file changed");
    story.send(&[write(1, "f", "more")]);
    read_by(&story, &[3, 3, 2]);
    assert_eq!(readers(&story), [(2, 3), (3, 4), (3, 7), (2, 8)]);
    // A revert takes records with it.
    let moment = memory.moment_of(story.records()[6].record.seq_before);
    memory.revert(moment);
    story.share.reload(crate::world::random()).expect("it is there");
    assert_eq!(readers(&story), [(2, 3), (3, 4)]);
    read_by(&story, &[2, 3, 2]);
    assert_eq!(readers(&story), [(2, 3), (3, 4), (2, 7), (3, 8)]);
}

#[test]
fn reads_are_followed_only_from_when_they_were_logged() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    story.send(&[create(1, "f"), create(1, "g")]);
    story.send(&[write(1, "f", "text")]);
    story.send(&[write(1, "g", "text")]);
    let is_write = |logged: &Logged| logged.record.procedure == Procedure::Write;
    let last = story.done.last().expect("it was done").logged.record.time;
    for (since, expected) in [
        (None, Some(ErrorKind::Invalid)),
        (Some(last), Some(ErrorKind::Invalid)),
        (Some(WallTime::EPOCH), None),
    ] {
        story.reads_since = since;
        let planned = story.try_plan(Follow::Reads, is_write);
        assert_eq!(planned.err().map(|error| error.kind), expected);
        story.plan(Follow::Bytes, is_write);
        if since.is_some() {
            story.plan(Follow::Reads, |logged| is_write(logged) && logged.record.time >= last);
        }
    }
}
