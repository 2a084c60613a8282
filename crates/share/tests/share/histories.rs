//! Random histories against the model: transactions of several operations, some of which are given
//! up or cannot be written; openings and reverts in between; and at the end every moment.

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};

use crate::memory::Memory;
use crate::model::{Model, Op};
use crate::share::{Share, Wait};
use crate::world::{
    START, applied, apply, assert_past, assert_sound, compare, make, opening, random,
};

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Op>),
    GiveUp(Vec<Op>),
    Fail(Vec<Op>),
    Open,
    Revert(proptest::sample::Index),
    /// A power cut that takes the last calls and their seqs along.
    Lose(proptest::sample::Index),
}

fn path() -> impl Strategy<Value = String> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c")];
    let directory = prop_oneof![3 => Just(""), 3 => Just("d/"), 1 => Just("d/e/"), 1 => Just("b/")];
    let named = (directory.clone(), name).prop_map(|(at, name)| format!("{at}{name}"));
    prop_oneof![6 => named, 1 => Just("d".to_owned()), 1 => Just("d/e".to_owned())]
}

/// Offsets and sizes: near the edges of inline content, blocks and slabs, and far out.
fn offset() -> impl Strategy<Value = u64> {
    let edge = prop_oneof![
        Just(0_u64),
        Just(3584),
        Just(4096),
        Just(8192),
        Just(16_384),
        Just(65_536),
        Just(1 << 20),
        Just(1 << 32),
        Just((16 << 40) - 4096),
    ];
    let near = (edge, 0..5000_u64, any::<bool>());
    prop_oneof![
        2 => 0..9000_u64,
        2 => near.prop_map(|(edge, near, is_below)| {
            if is_below { edge.saturating_sub(near) } else { edge + near % 3000 }
        }),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![0..100_usize, 3000..5000_usize, 4090..21_000_usize];
    (length, any::<u8>()).prop_map(|(length, seed)| {
        (0..length).map(|at| (at * 7 + at / 256) as u8 ^ seed | 1).collect()
    })
}

fn op() -> impl Strategy<Value = Op> {
    let two = || (path(), path());
    prop_oneof![
        4 => path().prop_map(Op::Create),
        2 => (path(), proptest::option::of(offset())).prop_map(|(p, size)| Op::Open(p, size)),
        1 => (path(), 0..3_u8).prop_map(|(p, verifier)| Op::Exclusive(p, verifier)),
        3 => path().prop_map(Op::Mkdir),
        1 => (path(), 1..4096_usize).prop_map(|(p, length)| Op::Symlink(p, vec![b'x'; length])),
        1 => path().prop_map(Op::Fifo),
        2 => two().prop_map(|(old, new)| Op::Link(old, new)),
        3 => path().prop_map(Op::Remove),
        2 => path().prop_map(Op::Rmdir),
        4 => two().prop_map(|(from, to)| Op::Rename(from, to)),
        8 => (path(), offset(), bytes()).prop_map(|(p, at, bytes)| Op::Write(p, at, bytes)),
        4 => (path(), offset()).prop_map(|(p, size)| Op::Resize(p, size)),
        1 => (path(), 0..0o10000_u16).prop_map(|(p, mode)| Op::Mode(p, mode)),
        1 => (path(), any::<u32>(), any::<u32>()).prop_map(|(p, u, g)| Op::Owner(p, u, g)),
        1 => (path(), any::<u64>(), any::<u64>()).prop_map(|(p, a, m)| Op::Times(p, a, m)),
    ]
}

/// The operations of a transaction.
pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), 1..5)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => ops().prop_map(Step::Commit),
        1 => ops().prop_map(Step::GiveUp),
        1 => ops().prop_map(Step::Fail),
        1 => Just(Step::Open),
        1 => any::<proptest::sample::Index>().prop_map(Step::Revert),
        1 => any::<proptest::sample::Index>().prop_map(Step::Lose),
    ]
}

/// Applies operations to both.
fn run(share: &Share<&Memory>, model: &mut Model, now: &mut u64, ops: &[Op], how: &Step) {
    let mut after = model.clone();
    let mut transaction = share.begin(Wait::May).expect("usable");
    for op in ops {
        *now += 10;
        let expected = applied(&mut after, op, *now);
        let found = apply(&mut transaction, op, *now);
        assert_eq!(found, expected, "{op:?}");
    }
    compare(&transaction, &after);
    match how {
        Step::GiveUp(_) => drop(transaction),
        Step::Fail(_) => {
            let changed = transaction.operations() > 0;
            share.present().fails.store(changed, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(transaction.commit().is_err(), changed);
        }
        _ => {
            transaction.commit().expect("it is written");
            *model = after;
        }
    }
}

fn play(steps: &[Step]) {
    let memory = Memory::default();
    let mut share = make(&memory);
    let mut model = Model::new(START);
    let mut now = START;
    // Moment 0 has no share.
    let mut moments = vec![model.clone(), model.clone()];
    for step in steps {
        match step {
            Step::Commit(ops) | Step::GiveUp(ops) | Step::Fail(ops) => {
                run(&share, &mut model, &mut now, ops, step);
            }
            Step::Open => share = Share::open(&memory, opening()).expect("it is there"),
            Step::Lose(index) => {
                let kept = 1 + index.index(moments.len() - 1);
                memory.lose(memory.moments() - kept);
                share = Share::open(&memory, opening()).expect("it is there");
                model = moments[kept].clone();
            }
            Step::Revert(index) => {
                let moment = 1 + index.index(moments.len() - 1);
                memory.revert(moment);
                share.reload(random()).expect("it is there");
                model = moments[moment].clone();
            }
        }
        moments.resize(memory.moments() + 1, model.clone());
        compare(&share.tree(Wait::May).expect("usable"), &model);
        assert_sound(&share);
    }
    for (moment, model) in moments.iter().enumerate().skip(1) {
        assert_past(&memory, moment, model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_moment_is_as_the_model_was(steps in proptest::collection::vec(step(), 1..40)) {
        play(&steps);
    }
}
