//! Repairs: the tree after all operations but those that are undone, held against an oracle that
//! does the operations of a history one by one.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::test_runner::RngSeed;
use units::{FileId, Seq, WallTime};

use crate::memory::{Memory, View};
use crate::model::Op;
use crate::repair_oracle::{Done, Oracle};
use crate::share::check::check;
use crate::share::repair::{Applied, Change, Follow, Moments, Plan, Reason, Request, apply, plan};
use crate::share::{
    Attributes, Blocks, Caller, Cause, CauseKind, Changer, Credentials, ErrorKind, Logged, Past,
    Present, Procedure, Result, Share, Transaction, Tree, Wait,
};
use crate::world::{CACHE_BLOCKS, START, caller, find, make};

/// A moment of a share's past, by its seq.
type AnyPast<'m, B> = Box<dyn Fn(Seq) -> Result<Arc<Past<B>>> + 'm>;

/// A share, and everything that was done to it.
pub struct Story<'m, P, B> {
    pub share: Share<P>,
    past: AnyPast<'m, B>,
    top: Attributes,
    pub done: Vec<Done>,
    now: u64,
    /// Since when its reads are logged.
    pub reads_since: Option<WallTime>,
}

/// A request of a client.
pub type Sent = (u128, Op);

pub fn in_memory(memory: &Memory) -> Story<'_, &Memory, View<'_>> {
    let moments = |seq| {
        let past = Past::open(memory.at(memory.moment_of(seq)), CACHE_BLOCKS)?;
        Ok(Arc::new(past))
    };
    Story::new(make(memory), Box::new(moments))
}

impl<'m, P: Present, B: Blocks> Story<'m, P, B> {
    /// Of a new share.
    pub fn new(share: Share<P>, past: AnyPast<'m, B>) -> Story<'m, P, B> {
        let tree = share.tree(Wait::May).expect("usable");
        let top = tree.attributes(tree.top().expect("a top")).expect("a top");
        drop(tree);
        let reads_since = Some(WallTime::EPOCH);
        Story { share, past, top, done: Vec::new(), now: START, reads_since }
    }

    /// Does requests in one transaction, or several if their senders may not share one; those that
    /// are not possible are left out.
    pub fn send(&mut self, sent: &[Sent]) {
        let mut at = 0;
        while at < sent.len() {
            let mut taken = Vec::new();
            let mut transaction = self.share.begin(Wait::May).expect("usable");
            while let Some((client, op)) = sent.get(at) {
                // Times are told to a millisecond.
                self.now += 10_000_000;
                let before = transaction.operations();
                match do_op_as(&mut transaction, *client, op, self.now) {
                    Err(ErrorKind::TransactionFull) => break,
                    Err(_) => {}
                    Ok(()) if transaction.operations() > before => {
                        taken.push((op.clone(), object_of(&transaction, op)));
                    }
                    Ok(()) => {}
                }
                at += 1;
            }
            transaction.commit().expect("it is written");
            let all = self.logged();
            let new = all.into_iter().skip(self.done.len());
            for (logged, (op, made)) in new.zip(taken) {
                let is_made = logged.record.before.is_none()
                    && !matches!(logged.record.procedure, Procedure::Link | Procedure::Rename);
                self.done.push(Done { logged, op, made: made.filter(|_| is_made) });
            }
        }
    }

    /// A client reads a file, as a front end does it; the file.
    pub fn read(&self, client: u128, path: &str) -> Option<FileId> {
        let root = Credentials::root();
        let id = find(&self.share.tree(Wait::May).expect("usable"), path).ok()?;
        let read = self.share.read(&root, id, 0, &mut [0; 10], Wait::May).ok()?;
        let from = Caller { client, ..caller(&root, self.now) };
        self.share.log_read(&from, id, read.operation, Wait::May).expect("it is logged");
        Some(id)
    }

    /// The operations that changed something.
    fn logged(&self) -> Vec<Logged> {
        let all = self.records().into_iter();
        all.filter(|logged| logged.record.procedure != Procedure::Read).collect()
    }

    pub fn records(&self) -> Vec<Logged> {
        let log = self.share.operation_log();
        let blocks = log.blocks();
        blocks.flat_map(|block| log.operations(block).expect("it is read")).collect()
    }

    pub fn plan(&self, follow: Follow, named: impl Fn(&Logged) -> bool) -> Plan {
        self.try_plan(follow, named).expect("a plan")
    }

    pub fn try_plan(&self, follow: Follow, named: impl Fn(&Logged) -> bool) -> Result<Plan> {
        let mut named = |logged: &Logged| Ok(named(logged));
        let since = WallTime::EPOCH;
        let reads_since = self.reads_since;
        let mut request =
            Request { since, named: &mut named, follow, reads_since, goes_on: &|| true };
        plan(&self.share, &self.to_read(), &mut request)
    }

    fn to_read(&self) -> Moments<'_, B> {
        let seq = self.share.present().seq();
        let present = (self.past)(seq).expect("the present");
        Moments { present, seq, at: &*self.past }
    }

    /// Does a repair; its number, and what was done.
    pub fn repair(&self, plan: &Plan) -> (u64, Result<Applied>) {
        let number = self.share.statistics().operations;
        let cause = Cause { kind: CauseKind::Repair, number };
        let now = || WallTime::from_nanos(self.now + 1000);
        let wait_for = |lack| panic!("nothing is lacking: {lack:?}");
        let done = Cell::default();
        let changer = Changer { share: &self.share, cause, now: &now, wait_for: &wait_for, done };
        (number, apply(&plan.difference, &changer, &self.to_read(), &|| true))
    }

    /// The tree after all operations but some, each of which is possible; only the removal of what
    /// would not have been made is not needed.
    pub fn without(&self, undone: &BTreeSet<u64>) -> Oracle {
        let mut oracle = Oracle::new(&self.top);
        let (left_out, kept): (Vec<_>, Vec<_>) =
            self.done.iter().partition(|done| undone.contains(&done.logged.number()));
        let never: Vec<_> = left_out.iter().filter_map(|done| done.made.map(|m| m.id)).collect();
        for done in kept {
            let record = &done.logged.record;
            let removes =
                matches!(record.procedure, Procedure::Remove | Procedure::RemoveDirectory);
            if removes && record.other.is_some_and(|other| never.contains(&other)) {
                continue;
            }
            assert!(oracle.apply(done), "{:?} is kept, and not possible", done.logged);
        }
        oracle
    }

    pub fn assert_is(&self, oracle: &Oracle) {
        let tree = self.share.tree(Wait::May).expect("usable");
        oracle.assert_is(&tree);
        assert_eq!(check(&tree, tree.state()).expect("it is read"), []);
    }
}

fn do_op_as<'d, P: Present>(
    transaction: &mut Transaction<'_, 'd, P>,
    client: u128,
    op: &'d Op,
    now: u64,
) -> std::result::Result<(), ErrorKind> {
    let root = Credentials::root();
    let from = Caller { client, ..caller(&root, now) };
    crate::world::apply_as(transaction, &from, op)
}

/// The object that a request has made.
fn object_of<P: Present>(transaction: &Transaction<'_, '_, P>, op: &Op) -> Option<Attributes> {
    let path = match op {
        Op::Create(path)
        | Op::Open(path, _)
        | Op::Exclusive(path, _)
        | Op::Mkdir(path)
        | Op::Symlink(path, _)
        | Op::Fifo(path) => path,
        _ => return None,
    };
    let id = find(transaction, path).expect("it was made");
    Some(transaction.attributes(id).expect("it is there"))
}

pub fn path() -> impl Strategy<Value = String> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c")];
    let directory = prop_oneof![3 => Just(""), 3 => Just("d/"), 1 => Just("d/e/"), 1 => Just("b/")];
    let named = (directory, name).prop_map(|(at, name)| format!("{at}{name}"));
    prop_oneof![6 => named, 1 => Just("d".to_owned()), 1 => Just("d/e".to_owned())]
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..9000_u64, 1 => 250_000..280_000_u64]
}

pub fn op() -> impl Strategy<Value = Op> {
    let two = || (path(), path());
    let bytes = (1..6000_usize, 1..255_u8).prop_map(|(length, byte)| vec![byte; length]);
    prop_oneof![
        5 => path().prop_map(Op::Create),
        2 => (path(), proptest::option::of(offset())).prop_map(|(p, size)| Op::Open(p, size)),
        3 => path().prop_map(Op::Mkdir),
        1 => (path(), 1..40_usize).prop_map(|(p, length)| Op::Symlink(p, vec![b'x'; length])),
        1 => path().prop_map(Op::Fifo),
        2 => two().prop_map(|(old, new)| Op::Link(old, new)),
        4 => path().prop_map(Op::Remove),
        2 => path().prop_map(Op::Rmdir),
        5 => two().prop_map(|(from, to)| Op::Rename(from, to)),
        9 => (path(), offset(), bytes).prop_map(|(p, at, bytes)| Op::Write(p, at, bytes)),
        3 => (path(), offset()).prop_map(|(p, size)| Op::Resize(p, size)),
        1 => (path(), 0..0o10000_u16).prop_map(|(p, mode)| Op::Mode(p, mode)),
        1 => (path(), 0..9_u32, 0..9_u32).prop_map(|(p, u, g)| Op::Owner(p, u, g)),
        1 => (path(), any::<u64>(), any::<u64>()).prop_map(|(p, a, m)| Op::Times(p, a, m)),
    ]
}

#[derive(Clone, Debug)]
pub enum Culprit {
    Client(u128),
    Some(Vec<proptest::sample::Index>),
    Since(proptest::sample::Index),
    Procedure(u8),
}

impl Culprit {
    pub fn numbers(&self, done: &[Done]) -> BTreeSet<u64> {
        let all = done.iter().map(|done| &done.logged);
        let numbers = |is: &dyn Fn(&Logged) -> bool| {
            all.clone().filter(|logged| is(logged)).map(Logged::number).collect()
        };
        let at = |index: &proptest::sample::Index| index.index(done.len().max(1)) as u64 + 1;
        match self {
            Culprit::Client(client) => numbers(&|logged| logged.record.origin.client == *client),
            Culprit::Some(some) => {
                some.iter().map(at).filter(|n| *n <= done.len() as u64).collect()
            }
            Culprit::Since(index) => numbers(&|logged| logged.number() >= at(index)),
            Culprit::Procedure(number) => {
                numbers(&|logged| logged.record.procedure.number() == *number)
            }
        }
    }
}

fn culprit() -> impl Strategy<Value = Culprit> {
    let index = any::<proptest::sample::Index>;
    prop_oneof![
        4 => (1..4_u128).prop_map(Culprit::Client),
        3 => proptest::collection::vec(index(), 1..4).prop_map(Culprit::Some),
        1 => index().prop_map(Culprit::Since),
        2 => prop_oneof![Just(7_u8), Just(12), Just(14), Just(2)].prop_map(Culprit::Procedure),
    ]
}

fn follow() -> impl Strategy<Value = Follow> {
    prop_oneof![2 => Just(Follow::Nothing), 1 => Just(Follow::Names), 1 => Just(Follow::Bytes)]
}

/// Undoes operations, compares, and undoes that; what was planned.
pub fn undo(
    story: &Story<'_, impl Present, impl Blocks>,
    culprit: &Culprit,
    follow: Follow,
) -> Plan {
    let asked = culprit.numbers(&story.done);
    let planned = story.plan(follow, |logged| asked.contains(&logged.number()));
    assert_eq!(planned.kept, asked.difference(&planned.undone).copied().collect());
    assert_eq!(planned.followed, planned.undone.difference(&asked).copied().collect());
    if follow != Follow::Nothing {
        assert!(planned.kept.is_empty(), "all that was named is undone");
    }
    if planned.dependents.is_empty() && follow == Follow::Nothing {
        assert!(planned.kept.is_empty(), "nothing says why {:?} are kept", planned.kept);
    }
    let before = story.without(&BTreeSet::new());
    story.assert_is(&before);
    let (number, applied) = story.repair(&planned);
    let applied = applied.expect("it is done");
    story.assert_is(&story.without(&planned.undone));
    assert_eq!(applied.names as usize, planned.difference.changes.iter().filter(is_name).count());
    // A repair is undone by another.
    let of_repair =
        |logged: &Logged| logged.record.cause == Some(Cause { kind: CauseKind::Repair, number });
    let back = story.plan(Follow::Nothing, of_repair);
    assert!(back.kept.is_empty());
    story.repair(&back).1.expect("it is done");
    story.assert_is(&before);
    planned
}

fn is_name(change: &&Change) -> bool {
    matches!(change, Change::Restored(_) | Change::Removed(_) | Change::Renamed(_))
}

/// The same thousands of histories each time, as some faults are seldom; with `PROPTEST_CASES` as
/// many others.
pub fn histories() -> ProptestConfig {
    let config = ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 3000,
        ..ProptestConfig::default()
    };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config,
        None => ProptestConfig { cases: 4000, rng_seed: RngSeed::Fixed(1), ..config },
    }
}

proptest! {
    #![proptest_config(histories())]

    #[test]
    fn a_repair_is_the_tree_without_what_is_undone(
        transactions in proptest::collection::vec(
            proptest::collection::vec((1..4_u128, op()), 1..4), 1..25,
        ),
        culprit in culprit(),
        follow in follow(),
    ) {
        let memory = Memory::default();
        let mut story = in_memory(&memory);
        transactions.iter().for_each(|sent| story.send(sent));
        undo(&story, &culprit, follow);
    }
}

/// Writes some lines into a file of a client's.
pub fn write(client: u128, path: &str, text: &str) -> Sent {
    (client, Op::Write(path.to_owned(), 0, text.as_bytes().to_vec()))
}

pub fn create(client: u128, path: &str) -> Sent {
    (client, Op::Create(path.to_owned()))
}

pub fn text(story: &Story<'_, &Memory, View<'_>>, path: &str) -> Option<String> {
    let tree = story.share.tree(Wait::May).expect("usable");
    let id = find(&tree, path).ok()?;
    let mut bytes = vec![0; 100];
    let read = tree.read(&Credentials::root(), id, 0, &mut bytes).expect("it is read");
    Some(String::from_utf8_lossy(&bytes[..read.count]).into_owned())
}

/// Five clients work, one of them encrypts what all have, some in place and some by new files, and
/// the others go on.
#[test]
fn one_client_of_five_encrypts_a_tree_and_the_others_keep_their_work() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    for client in 1..=5 {
        story.send(&[(client, Op::Mkdir(format!("home{client}")))]);
        for file in 0..20 {
            let path = format!("home{client}/{file}");
            story.send(&[create(client, &path), write(client, &path, &format!("of {client}"))]);
        }
    }
    let own_work = story.done.len() as u64;
    for client in 1..=5_u128 {
        for file in 0..20 {
            let path = format!("home{client}/{file}");
            let locked = format!("{path}.locked");
            if file % 2 == 0 {
                story.send(&[write(3, &path, "encrypted")]);
            } else {
                story.send(&[create(3, &locked), write(3, &locked, "encrypted")]);
                story.send(&[(3, Op::Remove(path))]);
            }
            // Meanwhile its owner writes elsewhere.
            if client != 3 {
                let path = format!("home{client}/new{file}");
                story.send(&[create(client, &path), write(client, &path, "meanwhile")]);
            }
        }
    }
    // One wrote over a file that was encrypted in place, and one looks for the file that is gone.
    let later = "of 1, and a longer text than was there before";
    story.send(&[write(1, "home1/0", later), create(2, "home2/1")]);
    story.send(&[write(2, "home2/1", "begun again")]);
    let is_attack =
        |logged: &Logged| logged.record.origin.client == 3 && logged.number() > own_work;
    let planned = story.plan(Follow::Nothing, is_attack);
    // The name that was taken again stays with its new file: the removal of the old one stays.
    assert_eq!(planned.kept.len(), 1);
    let reasons: Vec<Reason> = planned.dependents.iter().map(|one| one.reason).collect();
    assert_eq!(reasons, [Reason::NameTaken, Reason::Object], "its CREATE and its WRITE");
    assert_eq!(&*planned.dependents[0].operation.name, b"1");
    let restored = |change: &&Change| matches!(change, Change::Restored(_));
    assert_eq!(planned.difference.changes.iter().filter(restored).count(), 49);
    story.repair(&planned).1.expect("it is done");
    story.assert_is(&story.without(&planned.undone));
    for client in 1..=5 {
        for file in 0..20 {
            let expected = match (client, file) {
                (1, 0) => later.to_owned(),
                (2, 1) => "begun again".to_owned(),
                _ => format!("of {client}"),
            };
            assert_eq!(text(&story, &format!("home{client}/{file}")), Some(expected));
            assert_eq!(text(&story, &format!("home{client}/{file}.locked")), None);
            let new = (client != 3).then(|| "meanwhile".to_owned());
            assert_eq!(text(&story, &format!("home{client}/new{file}")), new);
        }
    }
}

#[test]
fn a_share_that_changed_since_the_plan_is_not_changed_by_it() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    story.send(&[create(1, "f"), write(1, "f", "good")]);
    story.send(&[write(2, "f", "evil")]);
    story.send(&[(2, Op::Rename("f".to_owned(), "g".to_owned()))]);
    let names = story.plan(Follow::Nothing, |logged| logged.record.procedure == Procedure::Rename);
    let bytes = story.plan(Follow::Nothing, |logged| {
        logged.record.origin.client == 2 && logged.record.procedure == Procedure::Write
    });
    story.send(&[write(1, "g", "more")]);
    story.send(&[create(1, "f")]);
    for planned in [&names, &bytes] {
        let error = story.repair(planned).1.expect_err("it changed");
        assert_eq!(error.kind, ErrorKind::NotSync);
    }
    assert_eq!(text(&story, "g").as_deref(), Some("more"));
    let top = story.share.tree(Wait::May).expect("usable");
    assert_eq!(crate::world::list(&top, top.top().expect("a top")).len(), 4, "nothing is left");
}

#[test]
fn a_moment_that_is_not_kept_is_an_error() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    story.send(&[create(1, "f"), write(1, "f", "good")]);
    story.send(&[write(2, "f", "evil")]);
    // All moments but the last one are taken for it.
    let past = std::mem::replace(&mut story.past, Box::new(|_| unreachable!("replaced")));
    story.past = Box::new(move |_| past(Seq(u64::MAX)));
    let culprit = |logged: &Logged| logged.record.origin.client == 2;
    let error = story.try_plan(Follow::Nothing, culprit).expect_err("not kept");
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.source.is_some_and(|source| source.to_string().contains("history")));
}

#[test]
fn operations_are_found_by_number_and_by_time() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    story.send(&[create(1, "f")]);
    for _ in 0..500 {
        story.send(&[write(1, "f", "text")]);
    }
    let log = story.share.operation_log();
    assert!(log.blocks().count() > 10, "of one block it says nothing");
    let blocks: Vec<(u64, Vec<Logged>)> =
        log.blocks().map(|block| (block, log.operations(block).expect("it is read"))).collect();
    for (block, operations) in &blocks {
        for logged in operations {
            assert_eq!(log.block_of(logged.number()).expect("it is read"), *block);
            assert_eq!(log.block_since(logged.record.time).expect("it is read"), *block);
        }
    }
    assert_eq!(log.block_of(u64::MAX).expect("it is read"), *log.blocks().end());
    assert_eq!(log.block_since(WallTime::from_nanos(0)).expect("it is read"), 0);
    let numbers: Vec<u64> =
        blocks.iter().flat_map(|(_, all)| all.iter().map(Logged::number)).collect();
    assert_eq!(numbers, (1..=501).collect::<Vec<u64>>());
}

#[test]
fn objects_that_are_gone_keep_their_names_in_listings() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    story.send(&[(1, Op::Mkdir("d".to_owned())), create(1, "d/f"), create(1, "d/g")]);
    story.send(&[(1, Op::Rename("d".to_owned(), "e".to_owned()))]);
    story.send(&[write(1, "e/f", "text"), write(1, "e/g", "text")]);
    story.send(&[(1, Op::Rename("e/f".to_owned(), "e/g".to_owned()))]);
    story.send(&[(1, Op::Remove("e/g".to_owned())), (1, Op::Rmdir("e".to_owned()))]);
    let tree = story.share.tree(Wait::May).expect("usable");
    let mut naming = crate::share::Naming::new(&tree);
    let logged: Vec<Logged> = story.done.iter().map(|done| done.logged.clone()).collect();
    logged.iter().rev().for_each(|logged| naming.see(logged));
    let mut told = Vec::new();
    for logged in &logged {
        let paths = naming.of_operation(logged).expect("it is read");
        let words = |path: Option<Vec<u8>>| path.map(|p| String::from_utf8_lossy(&p).into_owned());
        told.push((words(paths.path), words(paths.to)));
    }
    let one = |path: &str| (Some(path.to_owned()), None);
    let two = |from: &str, to: &str| (Some(from.to_owned()), Some(to.to_owned()));
    // Directories have the name that they had last; files that were moved, too.
    let expected = [
        one("/d"),
        one("/e/f"),
        one("/e/g"),
        two("/d", "/e"),
        one("/e/g"),
        one("/e/g"),
        two("/e/f", "/e/g"),
        one("/e/g"),
        one("/e"),
    ];
    assert_eq!(told, expected);
}

#[test]
fn names_that_need_several_transactions_are_all_there_at_every_moment() {
    const FILES: usize = 300;
    let memory = Memory::default();
    memory.whole_blocks_max.store(140, std::sync::atomic::Ordering::Relaxed);
    let mut story = in_memory(&memory);
    for file in 0..FILES {
        let path = format!("{file}");
        story.send(&[create(1, &path), write(1, &path, &path)]);
    }
    for file in 0..FILES {
        story.send(&[(2, Op::Rename(format!("{file}"), format!("{file}.locked")))]);
    }
    let planned = story.plan(Follow::Nothing, |logged| logged.record.origin.client == 2);
    let before = memory.moments();
    story.repair(&planned).1.expect("it is done");
    assert!(memory.moments() > before + 5, "it is several transactions");
    for moment in before..=memory.moments() {
        let past = Past::open(memory.at(moment), CACHE_BLOCKS).expect("it was there");
        let tree = past.tree(Wait::May);
        let names = crate::world::list(&tree, tree.top().expect("a top"));
        let files = names.keys().filter(|name| !name.starts_with(b".")).count();
        assert_eq!(files, FILES, "at {moment}");
    }
    for file in 0..FILES {
        assert_eq!(text(&story, &format!("{file}")), Some(format!("{file}")));
    }
    story.assert_is(&story.without(&planned.undone));
}

#[test]
fn a_file_that_somebody_wrote_to_since_the_plan_does_not_go() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    story.send(&[create(2, "f")]);
    story.send(&[write(2, "f", "ransom, and more of it")]);
    let culprit = |logged: &Logged| logged.record.origin.client == 2;
    let planned = story.plan(Follow::Nothing, culprit);
    story.send(&[write(1, "f", "work of another")]);
    let error = story.repair(&planned).1.expect_err("it changed");
    assert_eq!(error.kind, ErrorKind::NotSync);
    assert_eq!(text(&story, "f").as_deref(), Some("work of anothere of it"));
    // Planned anew, the file stays.
    let planned = story.plan(Follow::Nothing, culprit);
    assert_eq!(planned.kept.len(), 1, "its CREATE");
    story.repair(&planned).1.expect("it is done");
    assert_eq!(text(&story, "f").as_deref(), Some("work of another"));
    story.assert_is(&story.without(&planned.undone));
}

#[test]
fn a_moment_that_a_revert_left_is_not_taken_for_one_of_the_same_number() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    story.send(&[create(1, "f")]);
    story.send(&[write(1, "f", "good")]);
    let kept = memory.moments();
    story.send(&[write(2, "f", "evil")]);
    let left = memory.moments();
    memory.revert(kept);
    story.share.reload(crate::world::random()).expect("it is there");
    story.done.truncate(2);
    story.send(&[write(1, "f", "better")]);
    story.send(&[write(2, "f", "evil again")]);
    let culprit = |logged: &Logged| logged.record.origin.client == 2;
    let planned = story.plan(Follow::Nothing, culprit);
    assert_eq!(planned.undone.len(), 1, "the other is not of this past");
    // The engine may have that one in the place of the moment before: it has the same number.
    let memory = &memory;
    story.past = Box::new(move |seq| {
        let moment = memory.moment_of(seq);
        let moment = if moment == memory.moments() { moment } else { left };
        Ok(Arc::new(Past::open(memory.at(moment), CACHE_BLOCKS)?))
    });
    let error = story.try_plan(Follow::Nothing, culprit).expect_err("not that moment");
    assert_eq!(error.kind, ErrorKind::NotFound);
    story.past = Box::new(move |seq| {
        Ok(Arc::new(Past::open(memory.at(memory.moment_of(seq)), CACHE_BLOCKS)?))
    });
    story.repair(&planned).1.expect("it is done");
    assert_eq!(text(&story, "f").as_deref(), Some("better"));
}

#[test]
fn directories_go_after_what_is_in_them() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    let rename = |from: &str, to: &str| (1, Op::Rename(from.to_owned(), to.to_owned()));
    // A file moves out of a directory that goes, into which it came, beside another that goes.
    story.send(&[create(1, "d")]);
    story.send(&[rename("d", "c")]);
    story.send(&[(1, Op::Mkdir("d".to_owned()))]);
    story.send(&[(1, Op::Mkdir("d/b".to_owned()))]);
    story.send(&[rename("c", "d/a")]);
    let renames = |logged: &Logged| logged.record.procedure == Procedure::Rename;
    let planned = story.plan(Follow::Names, renames);
    assert_eq!(planned.undone.len(), 4);
    story.repair(&planned).1.expect("it is done");
    story.assert_is(&story.without(&planned.undone));
    // Two directories, each of which is in the way of the other.
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    for path in ["x", "y", "x/p", "y/q"] {
        story.send(&[(1, Op::Mkdir(path.to_owned()))]);
    }
    story.send(&[rename("x/p", "y/p")]);
    story.send(&[rename("y/q", "x/q")]);
    let planned = story.plan(Follow::Names, |logged| logged.number() <= 2);
    story.repair(&planned).1.expect("it is done");
    story.assert_is(&story.without(&planned.undone));
}

/// A repair that found the share changed when half of it was done: the next plan leaves out what
/// the first did, and comes to what one repair would have.
#[test]
fn a_repair_that_is_planned_again_does_all_of_it() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    for path in ["a", "f"] {
        story.send(&[create(1, path)]);
        story.send(&[write(1, path, "good")]);
    }
    story.send(&[write(2, "a", "evil, and longer")]);
    story.send(&[(2, Op::Rename("f".to_owned(), "g".to_owned()))]);
    let culprit = |logged: &Logged| logged.record.origin.client == 2;
    let planned = story.plan(Follow::Nothing, culprit);
    story.send(&[create(1, "f")]);
    let (number, failed) = story.repair(&planned);
    assert_eq!(failed.expect_err("a name is taken").kind, ErrorKind::NotSync);
    assert_eq!(text(&story, "a").as_deref(), Some("good"), "a part was done");
    let own = Some(Cause { kind: CauseKind::Repair, number });
    let again = story.plan(Follow::Nothing, |logged| culprit(logged) || logged.record.cause == own);
    story.repair(&again).1.expect("it is done");
    let undone = again.undone.iter().filter(|number| **number <= story.done.len() as u64);
    story.assert_is(&story.without(&undone.copied().collect()));
    assert_eq!(text(&story, "g").as_deref(), Some("good"), "the name was taken again");
}

#[test]
fn large_files_that_are_mostly_holes_come_back_as_such() {
    const SIZE: u64 = 1 << 42;
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    let at = |path: &str, offset: u64| (1, Op::Write(path.to_owned(), offset, vec![7; 5000]));
    for path in ["removed", "cut"] {
        story.send(&[create(1, path)]);
        story.send(&[at(path, 3000), at(path, SIZE - 5000)]);
    }
    let blocks = memory.data_blocks().len();
    story.send(&[(2, Op::Remove("removed".to_owned()))]);
    story.send(&[(2, Op::Resize("cut".to_owned(), 10))]);
    let planned = story.plan(Follow::Nothing, |logged| logged.record.origin.client == 2);
    let applied = story.repair(&planned).1.expect("it is done");
    assert!(applied.bytes < 2 << 20, "{applied:?}");
    assert!(memory.data_blocks().len() < blocks + 300, "holes stay holes");
    let tree = story.share.tree(Wait::May).expect("usable");
    for path in ["removed", "cut"] {
        let id = find(&tree, path).expect("it is there");
        assert_eq!(tree.attributes(id).expect("it is there").size, SIZE);
        for offset in [3000, SIZE - 5000] {
            let mut bytes = vec![0; 5000];
            tree.read(&Credentials::root(), id, offset, &mut bytes).expect("it is read");
            assert!(bytes.iter().all(|byte| *byte == 7), "{path} at {offset}");
        }
    }
}

#[test]
fn an_operation_that_nobody_here_knows_is_not_passed_over() {
    let memory = Memory::default();
    let mut story = in_memory(&memory);
    story.send(&[create(1, "f")]);
    story.send(&[write(2, "f", "evil")]);
    story.send(&[write(1, "f", "good")]);
    memory.damage(format::share::log::log_block(0), |bytes| {
        // The third record, by the lengths of those before it.
        let length = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let second = 512 + length(512);
        let third = second + length(second);
        bytes[third + 2] = 200;
    });
    let culprit = |logged: &Logged| logged.record.origin.client == 2;
    let error = story.try_plan(Follow::Nothing, culprit).expect_err("it is not known");
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.source.is_some_and(|source| source.to_string().contains("does not know")));
}
