//! Deterministic simulation of the whole engine: one seed is one run, in one thread, on faulty
//! media.
//!
//! `HINDSIGHT_SIM_SEED=N` runs one seed and prints what it does. `HINDSIGHT_SIM_SECONDS=S` runs
//! seeds, from that one on, for so long. Without them a fixed set runs, which takes seconds.
//! `HINDSIGHT_CRASH_FULL=1` makes the crash enumeration complete (`crash.rs`).

mod action;
mod check;
mod crash;
mod lies;
mod model;
mod oracle;
mod reboot;
mod threads;
mod workload;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use action::Action;
use hindsight_volume::Architecture;
use workload::Workload;
use world::World;

/// Actions of a run.
const ACTIONS: usize = 250;
/// Seeds of the fixed set.
const SEEDS: u64 = 40;
/// Seeds beyond it that once found a bug.
const REGRESSIONS: [u64; 11] = [41, 43, 55, 74, 81, 331, 50007, 50217, 60003, 60552, 70372];

/// Runs one seed; the result depends on nothing else.
fn run(seed: u64, architectures: &[Architecture]) -> u64 {
    let world = live(seed, architectures);
    let mut digest = world.media.digest();
    for line in &world.trace {
        for byte in line.bytes() {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    digest
}

/// The world at the end of a seed.
fn live(seed: u64, architectures: &[Architecture]) -> World {
    let verbose = std::env::var_os("HINDSIGHT_SIM_SEED").is_some();
    let mut workload = Workload::new(seed);
    let mut world = World::new(seed, workload.media_bytes, workload.memory_bytes);
    world.verbose = verbose;
    world.architectures = architectures.to_vec();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        for step in 0..ACTIONS {
            let action = workload.next(&world.models, world.now_ns());
            let told = world.trace.len();
            world.act(&action);
            if verbose {
                world.trace[told..].iter().skip(1).for_each(|line| println!("    {line}"));
            }
            if step % 50 == 49 {
                world.act(&Action::CheckAll);
                world.note_homes();
            }
        }
        world.media.calm();
        world.act(&Action::CheckAll);
    }));
    if let Err(panic) = outcome {
        for line in world.trace.iter().rev().take(12).rev() {
            println!("  {line}");
        }
        println!("seed {seed} failed. Again, with everything it does:");
        println!(
            "HINDSIGHT_SIM_SEED={seed} cargo test -p hindsight-volume --test sim {} -- --nocapture",
            match architectures {
                [Architecture::Logging] => "seeds_run",
                [_] => "blocks_come_home",
                _ => "seeds_of_all",
            }
        );
        // The world may be in any state: what its parts do when dropped would only hide the
        // failure.
        std::mem::forget(world);
        std::panic::resume_unwind(panic);
    }
    world
}

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Runs the seeds that the environment names, or the fixed set.
fn run_seeds(architectures: &[Architecture]) {
    let first = number_from("HINDSIGHT_SIM_SEED");
    let Some(seconds) = number_from("HINDSIGHT_SIM_SECONDS") else {
        match first {
            Some(seed) => println!("seed {seed}: digest {:016x}", run(seed, architectures)),
            None => (1..=SEEDS)
                .chain(REGRESSIONS)
                .for_each(|seed| assert!(run(seed, architectures) != 0)),
        }
        return;
    };
    let (start, limit) = (Instant::now(), Duration::from_secs(seconds));
    let (mut seed, mut failed) = (first.unwrap_or(1), Vec::new());
    while start.elapsed() < limit {
        // One that fails has told so; the others are run all the same.
        if catch_unwind(|| run(seed, architectures)).is_err() {
            failed.push(seed);
        }
        seed += 1;
    }
    println!("ran seeds {} to {}, failed: {failed:?}", first.unwrap_or(1), seed - 1);
    assert!(failed.is_empty());
}

#[test]
fn seeds_run_without_a_broken_promise() {
    run_seeds(&[Architecture::Logging]);
}

#[test]
fn seeds_of_all_architectures_run_without_a_broken_promise() {
    run_seeds(&Architecture::ALL);
}

#[test]
fn the_same_seed_gives_the_same_digest() {
    for seed in [3, 14] {
        let all = &Architecture::ALL;
        assert_eq!(run(seed, all), run(seed, all), "seed {seed}");
    }
}

#[test]
fn blocks_come_home_in_the_simulator() {
    for architecture in [Architecture::Redirect, Architecture::Checkpointing] {
        let homes: u64 = (1..=12).map(|seed| live(seed, &[architecture]).homes).sum();
        println!("{homes} blocks at home when it was looked, with {}", architecture.name());
        assert!(homes > 1000, "only {homes} blocks at home when it was looked");
    }
}
