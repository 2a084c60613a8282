//! Rot and lies: whatever the media does to stored bytes, a read returns the right ones or an
//! error.
//!
//! Runs have no crash and no I/O error, so that anything that is not as the oracle says is the
//! doing of the flipped bits, lost writes and misdirected reads that this file puts in.

use std::sync::Arc;

use hindsight_volume::{Architecture, ErrorKind, Result};
use sim::{Op, OpRecord, Random, Trick};
use units::Moment;

use crate::action::Action;
use crate::check::content_of;
use crate::workload::Workload;
use crate::world::{World, at_seq};

/// Actions before the damage.
const ACTIONS: usize = 60;

/// A world with some history, and every write that the media saw.
fn grown(seed: u64, architecture: Architecture) -> (World, Vec<OpRecord>) {
    let mut workload = Workload::new(seed);
    workload.faulty = false;
    let mut world = World::new(seed, 128 << 20, workload.memory_bytes);
    world.architectures = vec![architecture];
    world.media.start_log();
    while world.trace.len() < ACTIONS {
        let action = workload.next(&world.models, world.now_ns());
        if !matches!(action, Action::SpaceLimit(_)) {
            world.act(&action);
        }
    }
    // A rotten tail looks like one that a power cut tore: the promise is about what was closed or
    // flushed.
    world.act(&Action::Restart);
    let log = world.media.take_log();
    let writes = log.into_iter().filter(|r| r.op == Op::Write && r.length_bytes > 0).collect();
    (world, writes)
}

/// An honest answer: the right one, or an error that says what is wrong.
fn honest<T>(outcome: Result<T>, what: &str) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(e) => {
            let known = matches!(
                e.kind,
                ErrorKind::Corrupt | ErrorKind::Refused | ErrorKind::Unusable | ErrorKind::Io
            );
            assert!(known, "{what}: {:?} {e}", e.kind);
            None
        }
    }
}

/// Reads every block of every present and some of the past; says how many answers were errors.
fn read_everything(world: &mut World, random: &mut Random) -> usize {
    let mut errors = 0;
    for (name, model) in &world.models {
        let Some(volume) = honest(world.pool().volume(name), "a volume") else { continue };
        for (index, expected) in model.present.chunks(4096).enumerate() {
            let mut bytes = vec![0x5a; expected.len()];
            match honest(volume.read(index as u64 * 4096, &mut bytes), "a read") {
                Some(()) => assert!(bytes == expected, "{name} block {index}: wrong bytes"),
                None => errors += 1,
            }
        }
        let (first, last) = (model.oracle.base.0, model.oracle.latest());
        for _ in 0..5 {
            let moment = at_seq(random.between(first, last));
            let view = match volume.view(&moment) {
                Err(e) if matches!(e.kind, ErrorKind::OutsideWindow { .. }) => continue,
                outcome => honest(outcome, "a view"),
            };
            let content = view.map(|view| (view.resolved(), honest(content_of(&view), "a view")));
            match content {
                Some((resolved, Some(content))) => {
                    let what = format!("{name}@{moment}");
                    model.expected_at(resolved.seq.0).check(&content, &what);
                }
                _ => errors += 1,
            }
        }
        honest(volume.resolve(&Moment::Latest), "the present");
    }
    errors
}

fn rot_somewhere(world: &World, writes: &[OpRecord], random: &mut Random, flips: u64) {
    for _ in 0..flips {
        let write = &writes[random.below(writes.len() as u64) as usize];
        let offset = write.offset + random.below(write.length_bytes);
        world.media.rot(offset, random.below(8) as u8);
    }
}

/// Lets bits rot; says how many answers were errors.
fn let_rot(architecture: Architecture) -> usize {
    let mut errors = 0;
    for seed in 100..124 {
        let (mut world, writes) = grown(seed, architecture);
        let mut random = Random::new(seed);
        rot_somewhere(&world, &writes, &mut random, 1 + seed % 40);
        errors += read_everything(&mut world, &mut random);
        honest(world.pool().verify_invariants(), "the invariants");
        world.pool = None;
        if let Some(pool) = honest(world.try_open(), "opening") {
            world.pool = Some(pool);
            errors += read_everything(&mut world, &mut random);
        } else {
            errors += 1;
        }
    }
    errors
}

#[test]
fn rotten_bits_become_errors_and_never_wrong_bytes() {
    let errors = let_rot(Architecture::Logging);
    assert!(errors > 10, "rot was noticed {errors} times");
}

#[test]
fn rotten_bits_are_never_wrong_bytes_with_the_present_in_place_as_well() {
    let errors = let_rot(Architecture::SplitStream);
    assert!(errors > 0, "what is only in the log rots for good");
}

/// Loses writes and misdirects reads; says how many answers were errors.
fn lie(architecture: Architecture) -> usize {
    let mut errors = 0;
    for seed in 200..206 {
        let (mut world, _) = grown(seed, architecture);
        let mut random = Random::new(seed);
        let Some(name) = world.models.keys().next().cloned() else { continue };
        for _ in 0..10 {
            if random.chance(300) {
                world.media.trick(Trick::LoseWrite);
            }
            let size = world.models[&name].present.len() as u64;
            let blocks = size / 4096;
            let mut bytes = vec![0; 4096];
            random.fill(&mut bytes);
            let change = crate::oracle::Change::Write(random.below(blocks) * 4096, bytes);
            world.act(&Action::Write(name.clone(), vec![change]));
        }
        errors += read_everything(&mut world, &mut random);
        for _ in 0..8 {
            let elsewhere = random.below(world.media.allocated_bytes());
            world.media.trick(Trick::MisdirectRead(elsewhere));
            errors += read_everything(&mut world, &mut random);
            world.media.calm();
        }
    }
    errors
}

#[test]
fn lost_writes_and_misdirected_reads_become_errors_and_never_wrong_bytes() {
    let errors = lie(Architecture::Logging);
    assert!(errors > 5, "lies were noticed {errors} times");
}

#[test]
fn lies_are_no_wrong_bytes_with_the_present_in_place_as_well() {
    println!("lies were noticed {} times", lie(Architecture::SplitStream));
}

#[test]
fn neither_rot_nor_lies_are_wrong_bytes_where_blocks_come_home() {
    for architecture in [Architecture::Redirect, Architecture::Checkpointing] {
        let errors = let_rot(architecture) + lie(architecture);
        assert!(errors > 15, "they were noticed {errors} times with {}", architecture.name());
    }
}

/// Flushes everything, is killed, and has one bit of what was written before flipped; says how
/// often opening was refused.
fn rot_after_a_kill(architecture: Architecture) -> usize {
    let mut refused = 0;
    for seed in 300..304 {
        let mut workload = Workload::new(seed);
        workload.faulty = false;
        // Caches take half of it at most.
        let mut world = World::new(seed, 128 << 20, workload.memory_bytes.max(1 << 20));
        world.architectures = vec![architecture];
        world.all_cached = architecture.needs_cache();
        while world.trace.len() < ACTIONS {
            if world.trace.len() == ACTIONS - 20 {
                world.media.start_log();
            }
            let action = workload.next(&world.models, world.now_ns());
            if !matches!(action, Action::SpaceLimit(_) | Action::Restart) {
                world.act(&action);
            }
        }
        let names: Vec<String> = world.models.keys().cloned().collect();
        names.into_iter().for_each(|name| world.act(&Action::Flush(name)));
        let log = world.media.take_log().into_iter();
        let writes: Vec<_> = log.filter(|r| r.op == Op::Write && r.length_bytes > 0).collect();
        world.media.halt_now();
        world.views.clear();
        world.pool = None;
        world.media.kill();
        let mut random = Random::new(seed);
        for _ in 0..40 {
            let mut world = world.with_media(Arc::new(world.media.fork()));
            rot_somewhere(&world, &writes, &mut random, 1);
            match honest(world.try_open(), "opening") {
                Some(pool) => {
                    world.pool = Some(pool);
                    read_everything(&mut world, &mut random);
                }
                None => refused += 1,
            }
        }
    }
    refused
}

#[test]
fn one_rotten_bit_after_a_kill_is_never_an_older_state() {
    let refused: usize = Architecture::ALL.into_iter().map(rot_after_a_kill).sum();
    assert!(refused > 5, "what was flushed last was missed {refused} times");
}
