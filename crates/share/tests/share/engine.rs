//! A share on the engine itself: over every architecture that takes one, with kills and power cuts,
//! beside background work, and each moment of its past held against the model.

use std::sync::Arc;

use block::{BlockDevice, MediaDevice};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sim::{Random, SimClock, SimEntropy, SimMedia};
use units::{Moment, Seq, WallTime};
use volume::{
    Architecture, Budget, Granularity, Machine, Pool, PoolFormat, PoolOptions, RoomWait, VolumeSpec,
};

use crate::histories::ops;
use crate::model::{Model, Op};
use crate::repair::{Culprit, Story, op, undo};
use crate::share::check::check;
use crate::share::repair::Follow;
use crate::share::{
    ErrorKind, Past, Share, Tree, ViewBlocks, VolumeBlocks, WHOLE_BLOCKS_MIN, Wait,
};
use crate::world::{CACHE_BLOCKS, START, applied, apply, compare, opening, random, spec};

const SECOND_NS: u64 = 1_000_000_000;
const VOLUME_BYTES: u64 = 4 << 50;
const ARCHITECTURES: [Architecture; 4] = [
    Architecture::Logging,
    Architecture::SplitStream,
    Architecture::Redirect,
    Architecture::Checkpointing,
];

/// A machine with a pool on it.
struct Rig {
    media: Arc<SimMedia>,
    clock: Arc<SimClock>,
    machine: Machine,
}

impl Rig {
    fn new(media_bytes: u64) -> Rig {
        let media = Arc::new(SimMedia::new(media_bytes, 1));
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(1_795_255_200 * SECOND_NS)));
        let entropy = Arc::new(SimEntropy::new(1));
        let machine = Machine { clock: Arc::clone(&clock) as _, entropy };
        let rig = Rig { media, clock, machine };
        let format = PoolFormat { zone_bytes: 1 << 20 };
        Pool::create(&rig.device(), &rig.machine, &format).expect("made");
        rig
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(MediaDevice::new(Arc::clone(&self.media) as _))
    }

    fn open(&self) -> Arc<Pool> {
        let options = PoolOptions { memory_bytes: 0 };
        Pool::open(self.device(), self.machine.clone(), options).expect("opened")
    }
}

fn strict(architecture: Architecture) -> VolumeSpec {
    let window_ns = 1 << 60;
    VolumeSpec { architecture, window_ns, strict: true, ..VolumeSpec::new("s", VOLUME_BYTES) }
}

fn share_of(pool: &Pool) -> Share<VolumeBlocks> {
    let volume = pool.volume("s").expect("it is there");
    Share::open(VolumeBlocks::new(volume), opening()).expect("there is a tree")
}

/// Makes the transaction until the volume takes it.
fn commit(share: &Share<VolumeBlocks>, model: &mut Model, ops: &[Op], now: &mut u64) -> Seq {
    let begin = *now;
    let mut wait = RoomWait::default();
    loop {
        let mut after = model.clone();
        *now = begin;
        let mut transaction = share.begin(Wait::May).expect("usable");
        for op in ops {
            *now += 10;
            let expected = applied(&mut after, op, *now);
            assert_eq!(apply(&mut transaction, op, *now), expected, "{op:?}");
        }
        match transaction.commit() {
            Ok(seq) => {
                *model = after;
                return seq;
            }
            Err(error) => {
                let ErrorKind::Lacks(lack) = error.kind else { panic!("{error:?}") };
                share.present().wait_for(lack, &mut wait, &|| true).expect("there is room");
            }
        }
    }
}

fn assert_same(share: &Share<VolumeBlocks>, model: &Model) {
    let tree = share.tree(Wait::May).expect("usable");
    compare(&tree, model);
    assert_eq!(check(&tree, tree.state()).expect("it is read"), []);
}

/// A moment: its seq, the last change as the volume has it, and the tree.
struct Kept {
    seq: Seq,
    changed: (u64, WallTime),
    model: Model,
}

impl Kept {
    fn of(share: &Share<VolumeBlocks>, model: &Model) -> Kept {
        let seq = share.present().volume().last_seq();
        let statistics = share.statistics();
        let changed = (statistics.operations, statistics.changed);
        Kept { seq, changed, model: model.clone() }
    }
}

/// A history of a share, from a seed.
fn play(architecture: Architecture, granularity: Granularity, seed: u64) {
    let rig = Rig::new(96 << 20);
    let mut pool = rig.open();
    let volume = VolumeSpec { granularity, ..strict(architecture) };
    let volume = pool.create_volume(&volume).expect("made");
    let mut share = Share::make(VolumeBlocks::new(volume), &spec(), opening()).expect("empty");
    let mut model = Model::new(START);
    let mut now = START;
    let (mut random_number, mut runner) = (Random::new(seed), runner(seed));
    let mut moments = vec![Kept::of(&share, &model)];
    let mut flushed = moments.len();
    for _ in 0..60 {
        rig.clock.advance(SECOND_NS);
        match random_number.below(20) {
            0 => {
                share.present().volume().flush_while(&|| true).expect("flushed");
                flushed = moments.len();
            }
            1 => while pool.step(Budget { bytes: 1 << 20 }).expect("worked") {},
            2 => {
                // A kill, or a power cut: a prefix that has all that was flushed.
                let is_cut = random_number.chance(500);
                drop(share);
                rig.media.halt_now();
                drop(pool);
                if is_cut {
                    rig.media.crash(&mut random_number)
                } else {
                    rig.media.kill()
                }
                pool = rig.open();
                share = share_of(&pool);
                let least = if is_cut { flushed } else { moments.len() };
                let found = Kept::of(&share, &model).changed;
                let kept = moments.iter().rposition(|moment| moment.changed == found);
                let kept = kept.expect("it is a moment") + 1;
                assert!(kept >= least, "{kept} of {}, {least} were flushed", moments.len());
                moments.truncate(kept);
                model = moments[kept - 1].model.clone();
                flushed = kept;
            }
            3 => {
                let old = &moments[random_number.below(moments.len() as u64) as usize];
                let (seq, changed) = (old.seq, old.changed);
                let volume = share.present().volume();
                if volume.resolve(&Moment::Seq(seq)).is_ok_and(|found| found.seq == seq) {
                    share.suspend();
                    volume.revert(&Moment::Seq(seq), false).expect("it can be opened");
                    model = old.model.clone();
                    share.reload(random()).expect("it is there");
                    moments.push(Kept { changed, ..Kept::of(&share, &model) });
                }
            }
            _ => {
                let ops = ops().new_tree(&mut runner).expect("some").current();
                let seq = commit(&share, &mut model, &ops, &mut now);
                moments.push(Kept { seq, ..Kept::of(&share, &model) });
            }
        }
        assert_same(&share, &model);
    }
    if granularity == Granularity::EveryWrite {
        assert_past(&share, &moments);
    }
}

/// Asserts that every moment can be opened and is the model's.
fn assert_past(share: &Share<VolumeBlocks>, moments: &[Kept]) {
    let volume = share.present().volume();
    for Kept { seq, model, .. } in moments {
        let view = volume.view(&Moment::Seq(*seq)).expect("it is in the window");
        assert_eq!(view.resolved().seq, *seq);
        let past = Past::open(ViewBlocks(view), CACHE_BLOCKS).expect("it was there");
        let tree = past.tree(Wait::May);
        compare(&tree, model);
        assert_eq!(check(&tree, past.state()).expect("it is read"), []);
    }
}

/// Requests of three clients, of which one is undone, and the repair as well.
fn repair(architecture: Architecture, seed: u64) {
    let rig = Rig::new(96 << 20);
    let pool = rig.open();
    let volume = pool.create_volume(&strict(architecture)).expect("made");
    let share = Share::make(VolumeBlocks::new(Arc::clone(&volume)), &spec(), opening());
    let moments = |seq| {
        let view = volume.view(&Moment::Seq(seq))?;
        Ok(Arc::new(Past::open(ViewBlocks(view), CACHE_BLOCKS)?))
    };
    let mut story = Story::new(share.expect("empty"), Box::new(moments));
    let (mut random_number, mut runner) = (Random::new(seed), runner(seed));
    for _ in 0..80 {
        rig.clock.advance(SECOND_NS);
        if random_number.chance(100) {
            while pool.step(Budget { bytes: 1 << 20 }).expect("worked") {}
        }
        let count = 1 + random_number.below(3);
        let mut one = || {
            let op = op().new_tree(&mut runner).expect("some").current();
            (1 + u128::from(random_number.below(3)), op)
        };
        let sent: Vec<_> = (0..count).map(|_| one()).collect();
        story.send(&sent);
    }
    undo(&story, &Culprit::Client(1), Follow::default());
}

#[test]
fn a_repair_on_every_architecture_is_the_tree_without_what_is_undone() {
    for (seed, architecture) in (1..=4).flat_map(|seed| ARCHITECTURES.map(|a| (seed, a))) {
        repair(architecture, seed);
    }
}

fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

#[test]
fn a_share_is_its_model_at_every_moment_on_every_architecture_through_kills_and_cuts() {
    for (seed, architecture) in (1..=3).flat_map(|seed| ARCHITECTURES.map(|a| (seed, a))) {
        play(architecture, Granularity::EveryWrite, seed);
    }
}

#[test]
fn a_share_that_keeps_little_is_its_model_in_the_present() {
    for granularity in [Granularity::Interval(5 * SECOND_NS), Granularity::OnDemand] {
        for architecture in ARCHITECTURES {
            play(architecture, granularity, 7);
        }
    }
}

#[test]
fn a_transaction_without_room_is_made_again_once_there_is_some() {
    let rig = Rig::new(48 << 20);
    let pool = rig.open();
    let volume = pool.create_volume(&strict(Architecture::Logging)).expect("made");
    let share = Share::make(VolumeBlocks::new(volume), &spec(), opening()).expect("empty");
    assert!(share.present().volume().whole_blocks_max() >= WHOLE_BLOCKS_MIN);
    let (mut model, mut now) = (Model::new(START), START);
    commit(&share, &mut model, &[Op::Create("f".to_owned())], &mut now);
    // Four times what the pool holds, of which all but the last is history.
    for round in 0..1600 {
        let bytes = vec![round as u8; 128 << 10];
        commit(&share, &mut model, &[Op::Write("f".to_owned(), 0, bytes)], &mut now);
    }
    assert_same(&share, &model);
    // Files that stay: until the pool is full, which is an error and leaves the share as it is.
    let mut wait = RoomWait::default();
    for number in 0..800 {
        let name = format!("g{number}");
        let ops = [Op::Create(name.clone()), Op::Write(name, 0, vec![1; 128 << 10])];
        let mut transaction = share.begin(Wait::May).expect("usable");
        ops.iter().for_each(|op| apply(&mut transaction, op, now).expect("it is done"));
        let lack = match transaction.commit() {
            Ok(_) => {
                ops.iter().for_each(|op| model.apply(op, now).expect("it is done"));
                now += 10;
                wait = RoomWait::default();
                continue;
            }
            Err(error) => match error.kind {
                ErrorKind::Lacks(lack) => lack,
                ErrorKind::Full => break,
                kind => panic!("{kind:?}"),
            },
        };
        match share.present().wait_for(lack, &mut wait, &|| true) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Full);
                break;
            }
        }
    }
    let full = share.begin(Wait::May).expect("usable");
    drop(full);
    share.tree(Wait::May).expect("usable").top().expect("it is read");
    let statistics = share.statistics();
    assert!(statistics.inodes > 20 && statistics.inodes < 800, "{statistics:?}");
}

#[test]
fn who_does_not_wait_is_told_what_would_wait() {
    let rig = Rig::new(96 << 20);
    let pool = rig.open();
    let volume = pool.create_volume(&strict(Architecture::Logging)).expect("made");
    let share = Share::make(VolumeBlocks::new(volume), &spec(), opening()).expect("empty");
    let (mut model, mut now) = (Model::new(START), START);
    let ops = [Op::Create("f".to_owned()), Op::Write("f".to_owned(), 0, vec![1; 100_000])];
    commit(&share, &mut model, &ops, &mut now);
    now += 10;
    let held = share.tree(Wait::May).expect("usable");
    let mut transaction = share.try_begin(Wait::MayNot).expect("usable").expect("nobody has it");
    let op = Op::Create("g".to_owned());
    apply(&mut transaction, &op, now).expect("it is done");
    let error = transaction.commit().expect_err("somebody reads the tree");
    assert_eq!(error.kind, ErrorKind::WouldWait);
    drop(held);
    let transaction = share.begin(Wait::May).expect("usable");
    assert!(share.try_begin(Wait::MayNot).expect("usable").is_none());
    drop(transaction);
    let mut transaction = share.try_begin(Wait::MayNot).expect("usable").expect("nobody has it");
    apply(&mut transaction, &op, now).expect("it is done");
    transaction.commit().expect("written without waiting");
    model.apply(&op, now).expect("it is done");
    assert_same(&share, &model);
}
