//! All histories of three operations over a few names: after each of them, and so after a crash at
//! any point, the tree is the model's, and nothing is wrong with it.

use crate::memory::Memory;
use crate::model::{Model, Op};
use crate::share::{Share, Wait};
use crate::world::{START, applied, apply, assert_past, assert_sound, compare, make, opening};

fn bytes(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 ^ seed | 1).collect()
}

fn s(text: &str) -> String {
    text.to_owned()
}

/// What is there at first: a file with its content inside, one in two slabs with two names, a
/// directory.
fn beginning() -> Vec<Op> {
    vec![
        Op::Mkdir(s("d")),
        Op::Create(s("a")),
        Op::Write(s("a"), 0, bytes(100, 1)),
        Op::Create(s("d/x")),
        Op::Write(s("d/x"), 0, bytes(9000, 2)),
        Op::Link(s("d/x"), s("h")),
    ]
}

fn ops() -> Vec<Op> {
    vec![
        Op::Create(s("b")),
        Op::Create(s("d/a")),
        Op::Exclusive(s("b"), 5),
        Op::Mkdir(s("e")),
        Op::Mkdir(s("d/e")),
        Op::Symlink(s("b"), bytes(3600, 3)),
        Op::Link(s("a"), s("b")),
        Op::Link(s("h"), s("d/a")),
        Op::Remove(s("a")),
        Op::Remove(s("h")),
        Op::Remove(s("d/x")),
        Op::Rmdir(s("d")),
        Op::Rmdir(s("e")),
        Op::Rename(s("a"), s("b")),
        Op::Rename(s("a"), s("h")),
        Op::Rename(s("h"), s("d/x")),
        Op::Rename(s("d/x"), s("a")),
        Op::Rename(s("d"), s("e")),
        Op::Rename(s("e"), s("d/e")),
        Op::Rename(s("d"), s("d/e")),
        Op::Write(s("a"), 3000, bytes(2000, 4)),
        Op::Write(s("h"), 4000, bytes(200, 5)),
        Op::Write(s("d/x"), 16_370, bytes(30, 6)),
        Op::Resize(s("a"), 0),
        Op::Resize(s("h"), 5000),
        Op::Resize(s("h"), 0),
        Op::Resize(s("h"), 70_000),
        Op::Open(s("a"), Some(10)),
    ]
}

/// A share after a crash, and the model of each of its moments.
struct Node {
    memory: Memory,
    models: Vec<Model>,
    now: u64,
}

/// One operation more, in a transaction of its own, on what a crash left.
fn after(node: &Node, op: &Op) -> Node {
    let memory = node.memory.clone();
    let now = node.now + 10;
    let share = Share::open(&memory, opening()).expect("it is there");
    let mut model = node.models.last().expect("there is one").clone();
    let expected = applied(&mut model, op, now);
    let mut transaction = share.begin(Wait::May).expect("usable");
    assert_eq!(apply(&mut transaction, op, now), expected, "{op:?}");
    transaction.commit().expect("it is written");
    compare(&share.tree(Wait::May).expect("usable"), &model);
    assert_sound(&share);
    let mut models = node.models.clone();
    models.resize(memory.moments() + 1, model);
    Node { memory, models, now }
}

/// All of them in one transaction, which leaves one moment.
fn together(beginning: &Node, ops: [&Op; 3], model: &Model) {
    let memory = beginning.memory.clone();
    let share = Share::open(&memory, opening()).expect("it is there");
    let mut transaction = share.begin(Wait::May).expect("usable");
    let mut now = beginning.now;
    for op in ops {
        now += 10;
        let _ = apply(&mut transaction, op, now);
    }
    compare(&transaction, model);
    transaction.commit().expect("it is written");
    assert!(memory.moments() <= beginning.memory.moments() + 1);
    drop(share);
    let share = Share::open(&memory, opening()).expect("it is there");
    compare(&share.tree(Wait::May).expect("usable"), model);
    assert_sound(&share);
}

#[test]
fn after_each_prefix_of_each_history_of_three_operations_the_tree_is_the_models() {
    let memory = Memory::default();
    make(&memory);
    let model = Model::new(START);
    let mut first = Node { memory, models: vec![model.clone(), model], now: START };
    for op in beginning() {
        first = after(&first, &op);
    }
    let mut histories = 0;
    for one in &ops() {
        let second = after(&first, one);
        for two in &ops() {
            let third = after(&second, two);
            for three in &ops() {
                let last = after(&third, three);
                let model = last.models.last().expect("there is one");
                together(&first, [one, two, three], model);
                if histories % 97 == 0 {
                    for (moment, model) in last.models.iter().enumerate().skip(1) {
                        assert_past(&last.memory, moment, model);
                    }
                }
                histories += 1;
            }
        }
    }
    assert_eq!(histories, ops().len().pow(3));
}
