//! Pools filled to the brim, from a seed: several volumes that are written, trimmed, captured,
//! reverted, and whose versions are deleted, with background work, restarts and kills between. As
//! long as what is
//! live and what versions hold is within what `docs/operations.md` says fits, no write fails
//! (promise 7), and nothing is other than what was written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use block::{BlockDevice, MemoryDevice};
use env::{RealClock, RealEntropy};
use hindsight_volume::{
    Budget, ErrorKind, Granularity, Machine, Pool, PoolFormat, PoolOptions, Volume, VolumeSpec,
    WriteOp,
};
use sim::Random;
use units::{Moment, WallTime};

use crate::hook::{self, Rig, SECOND_NS};
use crate::little_room::{MIB, fitting_bytes, spec};

const UNIT_BYTES: u64 = 64 << 10;

/// What a volume holds, by unit: 0 is nothing.
struct Model {
    present: Vec<u32>,
    versions: BTreeMap<u64, Vec<u32>>,
}

impl Model {
    /// Units that the present or some version needs.
    fn held(&self) -> u64 {
        let of = |unit: usize| {
            let past = self.versions.values().map(|version| version[unit]);
            past.chain([self.present[unit]]).filter(|id| *id > 0).collect::<BTreeSet<_>>().len()
        };
        (0..self.present.len()).map(of).sum::<usize>() as u64
    }
}

struct World {
    device: Arc<dyn BlockDevice>,
    pool: Option<Arc<Pool>>,
    models: Vec<Model>,
    random: Random,
    id: u32,
    story: Vec<String>,
    /// Units that fit together.
    fits: u64,
    full: u64,
}

fn machine() -> Machine {
    Machine { clock: Arc::new(RealClock::new()), entropy: Arc::new(RealEntropy::default()) }
}

fn open(device: &Arc<dyn BlockDevice>) -> Arc<Pool> {
    let options = PoolOptions { memory_bytes: 64 << 20 };
    Pool::open(Arc::clone(device), machine(), options).expect("opened")
}

impl World {
    fn new(seed: u64, volumes: u64, size_bytes: u64) -> World {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(320 * MIB));
        Pool::create(&device, &machine(), &PoolFormat { zone_bytes: 2 * MIB }).expect("made");
        let pool = open(&device);
        for n in 0..volumes {
            let granularity = [Granularity::OnDemand, Granularity::EveryWrite][n as usize % 2];
            let spec = VolumeSpec { granularity, ..spec(&format!("v{n}"), size_bytes) };
            pool.create_volume(&spec).expect("made");
        }
        let fits = fitting_bytes(&pool, 2 * MIB, volumes) / UNIT_BYTES;
        let model = || Model {
            present: vec![0; (size_bytes / UNIT_BYTES) as usize],
            versions: BTreeMap::new(),
        };
        World {
            device,
            pool: Some(pool),
            models: (0..volumes).map(|_| model()).collect(),
            random: Random::new(seed),
            id: 0,
            story: Vec::new(),
            fits,
            full: 0,
        }
    }

    fn volume(&self, n: usize) -> Arc<Volume> {
        self.pool.as_ref().expect("open").volume(&format!("v{n}")).expect("there")
    }

    fn held(&self) -> u64 {
        self.models.iter().map(Model::held).sum()
    }

    fn tell(&self) -> String {
        let space = self.pool.as_ref().expect("open").status();
        let last = self.story.len().saturating_sub(12);
        format!(
            "{:?}\nheld {} of {} units\n{space:#?}",
            &self.story[last..],
            self.held(),
            self.fits
        )
    }

    /// Writes or trims a unit; want of room is right only beyond what fits.
    fn write(&mut self, n: usize, unit: usize, is_trim: bool) {
        self.id += 1;
        let offset = unit as u64 * UNIT_BYTES;
        let bytes = self.id.to_le_bytes().repeat(UNIT_BYTES as usize / 4);
        let op = match is_trim {
            true => WriteOp::Zero { offset, length_bytes: UNIT_BYTES },
            false => WriteOp::Data { offset, bytes: &bytes },
        };
        match self.volume(n).write_batch(&[op]) {
            Ok(_) => self.models[n].present[unit] = if is_trim { 0 } else { self.id },
            Err(e) => {
                assert_eq!(e.kind, ErrorKind::Full, "{e}");
                let is_right = !is_trim && self.held() >= self.fits;
                assert!(
                    is_right,
                    "{} of v{n}: {e}: {}",
                    if is_trim { "a trim" } else { "a write" },
                    self.tell()
                );
                self.full += 1;
                // A write of several batches may have been done in part.
                self.heal(n, unit);
            }
        }
    }

    /// After a write that failed its unit holds what it held, or a part of each: it is trimmed.
    fn heal(&mut self, n: usize, unit: usize) {
        self.write(n, unit, true);
    }

    fn check(&self, n: usize, moment: Option<u64>) {
        let volume = self.volume(n);
        let (model, view) = match moment {
            None => (&self.models[n].present, None),
            Some(v) => {
                let view = volume.view(&Moment::Version(v)).expect("a version opens");
                (&self.models[n].versions[&v], Some(view))
            }
        };
        let mut bytes = vec![0; UNIT_BYTES as usize];
        for (unit, id) in model.iter().enumerate() {
            let at = unit as u64 * UNIT_BYTES;
            match &view {
                None => volume.read(at, &mut bytes).expect("read"),
                Some(view) => view.read(at, &mut bytes).expect("read"),
            }
            let right = id.to_le_bytes().repeat(UNIT_BYTES as usize / 4);
            assert!(bytes == right, "v{n}, {moment:?}, unit {unit}: {}", self.tell());
        }
    }

    fn restart(&mut self, is_kill: bool) {
        let pool = self.pool.take().expect("open");
        if !is_kill {
            pool.close().expect("closed");
        }
        drop(pool);
        self.pool = Some(open(&self.device));
    }

    fn step(&mut self) {
        let n = self.random.below(self.models.len() as u64) as usize;
        let units = self.models[n].present.len() as u64;
        let versions: Vec<u64> = self.models[n].versions.keys().copied().collect();
        let some = |random: &mut Random| versions[random.below(versions.len() as u64) as usize];
        let told = match self.random.below(100) {
            0..60 => {
                let (first, count) = (self.random.below(units), self.random.between(1, units / 4));
                let is_scattered = self.random.chance(500);
                for i in 0..count {
                    let at =
                        if is_scattered { self.random.below(units) } else { (first + i) % units };
                    self.write(n, at as usize, false);
                }
                format!("v{n}: {count} writes")
            }
            60..68 => {
                let (first, count) = (self.random.below(units), self.random.between(1, units / 8));
                (0..count).for_each(|i| self.write(n, ((first + i) % units) as usize, true));
                format!("v{n}: {count} trims")
            }
            68..76 => {
                let made = self.volume(n).create_version("").expect("captured").number;
                let present = self.models[n].present.clone();
                self.models[n].versions.insert(made, present);
                format!("v{n}: version {made}")
            }
            76..84 if !versions.is_empty() => {
                let gone = some(&mut self.random);
                self.volume(n).delete_version(gone).expect("deletes work");
                self.models[n].versions.remove(&gone);
                format!("v{n}: version {gone} is deleted")
            }
            84..92 if !versions.is_empty() => {
                let to = some(&mut self.random);
                self.volume(n).revert(&Moment::Version(to), false).expect("reverted");
                self.models[n].present = self.models[n].versions[&to].clone();
                format!("v{n}: back to {to}")
            }
            92..95 => {
                let is_kill = self.random.chance(500);
                self.restart(is_kill);
                format!("restart, {is_kill}")
            }
            95..98 => {
                let pool = self.pool.as_ref().expect("open");
                let rest = self.random.below(200);
                let done = (0..rest).try_for_each(|_| pool.step(Budget { bytes: MIB }).map(drop));
                assert!(done.as_ref().err().is_none_or(|e| e.kind == ErrorKind::Full), "{done:?}");
                format!("{rest} steps")
            }
            _ => {
                let version = (!versions.is_empty() && self.random.chance(700))
                    .then(|| some(&mut self.random));
                self.check(n, version);
                "look".to_owned()
            }
        };
        self.story.push(told);
        // What does not fit is no fault; most of the time all of it does.
        while self.held() > self.fits && self.random.chance(900) {
            let most = (0..self.models.len()).max_by_key(|&n| self.models[n].versions.len());
            let n = most.expect("some");
            let Some(gone) = self.models[n].versions.keys().next().copied() else { break };
            self.volume(n).delete_version(gone).expect("deletes work");
            self.models[n].versions.remove(&gone);
            self.story.push(format!("v{n}: version {gone} makes room"));
        }
    }
}

fn live(seed: u64, steps: usize) {
    println!("seed {seed}");
    let mut world = World::new(seed, 4, 24 * MIB);
    (0..steps).for_each(|_| world.step());
    for n in 0..4 {
        world.check(n, None);
        let versions: Vec<u64> = world.models[n].versions.keys().copied().collect();
        versions.into_iter().for_each(|v| world.check(n, Some(v)));
    }
    world.pool.as_ref().expect("open").verify_invariants().expect("sound");
    println!("seed {seed}: {} writes, {} found no room", world.id, world.full);
}

#[test]
fn no_write_fails_while_something_that_nothing_holds_can_be_freed() {
    let seeds = std::env::var("SEEDS").ok().map(|s| {
        s.split_once("-").map(|(a, b)| a.parse().expect("n")..b.parse().expect("n")).expect("a-b")
    });
    let steps = std::env::var("STEPS").map_or(300, |s| s.parse().expect("n"));
    for seed in seeds.unwrap_or(0..3u64) {
        live(seed, steps);
    }
}

/// As an attack did it: volumes reverted again and again, with all that was captured deleted.
#[test]
fn reverts_leave_nothing_that_no_moment_can_open() {
    let mut world = World::new(1, 4, 24 * MIB);
    for turn in 0..17u64 {
        for n in 0..4 {
            let made = world.volume(n).create_version("").expect("captured").number;
            let before = world.models[n].present.clone();
            (0..384).for_each(|unit| world.write(n, unit, false));
            world.volume(n).revert(&Moment::Version(made), false).expect("reverted");
            world.models[n].present = before;
            world.volume(n).delete_version(made).expect("deleted");
            for _ in 0..200 {
                let unit = world.random.below(384) as usize;
                world.write(n, unit, false);
            }
            world.story.push(format!("turn {turn} of v{n}"));
        }
    }
    for n in 0..4 {
        (0..384).for_each(|unit| world.write(n, unit, false));
        world.check(n, None);
    }
}

/// What one has made room for another takes: it waits, and fails only if nothing more can be freed.
#[test]
fn several_writers_at_once_find_room_for_all_that_fits() {
    let world = World::new(1, 4, 48 * MIB);
    let units = world.fits * 9 / 10 / 4;
    std::thread::scope(|scope| {
        for n in 0..4 {
            let volume = world.volume(n);
            scope.spawn(move || {
                let mut random = Random::new(n as u64);
                let bytes = [n as u8; UNIT_BYTES as usize];
                for turn in 0..units * 3 {
                    let unit = if turn < units { turn } else { random.below(units) };
                    let op = WriteOp::Data { offset: unit * UNIT_BYTES, bytes: &bytes };
                    let done = volume.write_batch(&[op]);
                    assert!(done.is_ok(), "write {turn} of v{n}: {done:?}");
                }
            });
        }
    });
    world.pool.as_ref().expect("open").verify_invariants().expect("sound");
}

/// A version that is kept for years keeps no times of what was written since and left the window.
#[test]
fn a_pin_keeps_no_times_but_those_around_it() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open_with(8 << 20);
    let volume = hook::make(&pool, Granularity::EveryWrite, 10 * SECOND_NS);
    hook::put(&volume, 0, 1);
    let version = volume.create_version("").expect("captured");
    let mut most = 0;
    for turn in 0..60u64 {
        for write in 0..2000 {
            hook::put(&volume, write % 8, turn as u8);
            rig.clock.advance(SECOND_NS / 1000);
        }
        rig.clock.advance(20 * SECOND_NS);
        while pool.step(Budget { bytes: MIB }).expect("stepped") {}
        most = most.max(pool.status().map_bytes);
    }
    // 120,000 times of 32 bytes are 3.7 MiB.
    assert!(most <= 3 * MIB, "{most} bytes of maps and times");
    let view = volume.view(&Moment::Version(version.number)).expect("a version opens");
    let mut block = [0; 4096];
    view.read(0, &mut block).expect("read");
    assert_eq!(block, [1; 4096]);
    for later_ns in [SECOND_NS, 40 * SECOND_NS, 400 * SECOND_NS] {
        let later = WallTime::from_nanos(version.stamp.time.as_nanos() + later_ns);
        let kind = volume.view(&Moment::At(later)).err().expect("it has left").kind;
        assert!(matches!(kind, ErrorKind::OutsideWindow { .. }), "{later_ns} ns later: {kind:?}");
    }
    volume.view(&Moment::At(version.stamp.time)).expect("its own time opens");
    pool.verify_invariants().expect("sound");
}
