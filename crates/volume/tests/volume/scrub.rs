//! Scrubs of everything: what they find and heal, what they tell as lost, and how they go on.

use std::io::IoSlice;
use std::sync::Arc;

use block::stack::Stack;
use block::{Array, BlockDevice, Candidate, Identities, MediaDevice};
use env::{Media, NoFiles};
use hindsight_volume::{
    Budget, Encoding, EncodingChange, ErrorKind, Granularity, Machine, Pool, PoolFormat,
    PoolOptions, ScrubInfo, ScrubState, SettlePhase, Settling, Volume, VolumeChange, WriteOp,
};
use sim::{SimClock, SimEntropy, SimMedia};
use units::{Moment, WallTime};

use crate::hook::{Rig, SECOND_NS, get, make, put};

const MIB: u64 = 1 << 20;
/// Bytes of a member before the first of the pool.
const LABEL_BYTES: u64 = MIB;
const ALL: Budget = Budget { bytes: 64 << 20 };

/// A pool on a mirror of two media.
pub struct Pair {
    pub media: [Arc<SimMedia>; 2],
    pub clock: Arc<SimClock>,
    machine: Machine,
}

impl Pair {
    pub fn new(stack: &str) -> Pair {
        let media = [1, 2].map(|seed| Arc::new(SimMedia::new(65 * MIB, seed)));
        let clock = Arc::new(SimClock::new(WallTime::from_nanos(1_795_255_200 * SECOND_NS)));
        let entropy = Arc::new(SimEntropy::new(1));
        let machine = Machine { clock: Arc::<SimClock>::clone(&clock), entropy };
        let pair = Pair { media, clock, machine };
        let stack: Stack = stack.parse().expect("a stack");
        let mut id = 0;
        let random = &mut || {
            id += 1;
            id
        };
        let identities = Identities { random, now: WallTime::from_nanos(1) };
        Array::create(&stack, pair.candidates(), identities, &block::Materials::none())
            .expect("labels");
        let device: Arc<dyn BlockDevice> = Arc::new(pair.array());
        let format = PoolFormat { zone_bytes: MIB };
        Pool::create(&device, &pair.machine, &format).expect("made");
        pair
    }

    /// The same members as they are now, as if the machine had stopped.
    pub fn fork(&self) -> Pair {
        let media = [0, 1].map(|side| Arc::new(self.media[side].fork()));
        Pair { media, clock: Arc::clone(&self.clock), machine: self.machine.clone() }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let of = |(path, media): (&str, &Arc<SimMedia>)| Candidate {
            path: path.to_owned(),
            device: Some(Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(media)))),
        };
        ["a", "b"].into_iter().zip(&self.media).map(of).collect()
    }

    pub fn array(&self) -> Array {
        Array::open(self.candidates(), &block::Materials::none()).expect("both are there")
    }

    pub fn open(&self) -> Arc<Pool> {
        self.open_on(self.array())
    }

    pub fn try_open(&self) -> hindsight_volume::Result<Arc<Pool>> {
        let options = PoolOptions { memory_bytes: 0 };
        Pool::open_array(
            self.array(),
            self.machine.clone(),
            options,
            Arc::new(NoFiles),
            &mut |_| (),
        )
    }

    /// The second is not there.
    pub fn open_on_one(&self) -> Arc<Pool> {
        let mut candidates = self.candidates();
        candidates[1].device = None;
        let array = Array::open(candidates, &block::Materials::none()).expect("one is enough");
        self.open_on(array)
    }

    fn open_on(&self, array: Array) -> Arc<Pool> {
        self.open_told(array, &mut |_| ())
    }

    fn open_told(&self, array: Array, told: &mut dyn FnMut(&Settling)) -> Arc<Pool> {
        let options = PoolOptions { memory_bytes: 0 };
        let machine = self.machine.clone();
        let files = Arc::new(NoFiles);
        Pool::open_array(array, machine, options, files, told).expect("opened")
    }

    fn rot(&self, side: usize, at: u64) {
        self.media[side].rot(at, 3);
    }
}

/// Everything on a member or device.
fn bytes_of(media: &Arc<SimMedia>) -> Vec<u8> {
    let device = MediaDevice::new(Arc::<SimMedia>::clone(media));
    let mut bytes = vec![0; usize::try_from(device.len_bytes()).expect("small")];
    device.read_at(0, &mut bytes).expect("read");
    bytes
}

/// Where on the media the blocks are that are full of a byte.
fn places(media: &Arc<SimMedia>, byte: u8) -> Vec<u64> {
    let bytes = bytes_of(media);
    let mut at = 0;
    let mut found = Vec::new();
    while at + 4096 <= bytes.len() {
        if bytes[at..at + 4096].iter().all(|b| *b == byte) {
            found.push(at as u64);
            at += 4096;
        } else {
            at += 64;
        }
    }
    found
}

/// Where on the media something begins that begins like this.
pub fn beginnings(media: &Arc<SimMedia>, magic: &[u8]) -> Vec<u64> {
    let bytes = bytes_of(media);
    let starts = (0..bytes.len() - 64).step_by(64);
    starts.filter(|at| bytes[*at..].starts_with(magic)).map(|at| at as u64).collect()
}

/// Blocks 0 to 99 of bytes 100 and up; then some of it is in runs.
pub fn fill(pool: &Pool) -> Arc<Volume> {
    let volume = make(pool, Granularity::EveryWrite, 1 << 60);
    for turn in 0..4 {
        for block in 0..100 {
            put(&volume, block, 100 + block as u8);
        }
        put(&volume, 200, turn);
    }
    volume.flush().expect("flushed");
    volume
}

fn step_all(pool: &Pool) {
    while pool.step(ALL).expect("stepped") {}
}

/// Scrubs to the end in steps of so many bytes; says how many steps.
fn scrub_by(pool: &Pool, bytes: u64) -> (ScrubInfo, usize) {
    let mut steps = 0;
    while pool.step_job("scrub", Budget { bytes }).expect("stepped") {
        steps += 1;
    }
    let info = pool.scrubs().info().expect("there was one");
    assert_eq!((info.state, info.percent), (ScrubState::Done, 100), "{info:?}");
    (info, steps)
}

fn scrub(pool: &Pool) -> ScrubInfo {
    pool.scrubs().start().expect("started");
    scrub_by(pool, 8 * MIB).0
}

fn counts(info: &ScrubInfo) -> (u64, u64, u64) {
    (info.record.wrong, info.record.healed, info.record.lost)
}

fn last_audit(pool: &Pool, action: &str) -> String {
    let all = pool.audit(0, usize::MAX).expect("read");
    all.into_iter().rfind(|record| record.action == action).expect("there is one").detail
}

#[test]
fn rot_on_one_side_of_a_mirror_is_healed_wherever_it_is() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let volume = fill(&pool);
    step_all(&pool);
    assert_eq!(counts(&scrub(&pool)), (0, 0, 0), "nothing is wrong yet");
    let blocks = places(&pair.media[0], 107);
    let headers = beginnings(&pair.media[0], b"HBATCHES");
    let pages = beginnings(&pair.media[0], b"HLEF");
    let supers = beginnings(&pair.media[0], b"HINDSITE");
    assert!(blocks.len() >= 4 && headers.len() > 100 && !pages.is_empty() && supers.len() == 4);
    pair.media[0].rot(blocks[0] + 5, 1);
    pair.media[1].rot(blocks[1] + 5, 1);
    pair.media[1].rot(headers[20] + 9, 1);
    pair.media[0].rot(pages[0] + 500, 1);
    pair.media[0].rot(supers[2] + 40, 1);
    let info = scrub(&pool);
    assert_eq!(counts(&info), (5, 5, 0), "{info:?}");
    assert_eq!(counts(&scrub(&pool)), (0, 0, 0), "all of it was written again");
    let of = |media| bytes_of(media).split_off(LABEL_BYTES as usize);
    assert!(of(&pair.media[0]) == of(&pair.media[1]), "both sides are the same");
    assert!(info.record.read_bytes > 2 * 400 * 4096 && info.record.losses.is_empty());
    assert!((0..100).all(|block| get(&volume, block) == 100 + block as u8));
}

/// What a device wrote in the wrong place is sound, but nothing that anybody looks for there.
#[test]
fn a_pack_in_the_place_of_another_is_had_from_the_other_side() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    let mut seqs = Vec::new();
    for turn in 0..40 {
        for block in 0..99 {
            put(&volume, block, turn ^ block as u8);
        }
        seqs.push(put(&volume, 99, turn ^ 99));
    }
    let encoding = EncodingChange { encoding: Some(Encoding::Delta), after_ns: Some(SECOND_NS) };
    volume.change(&VolumeChange { encoding, ..VolumeChange::default() }).expect("changed");
    pair.clock.advance(61 * SECOND_NS);
    step_all(&pool);
    drop(volume);
    pool.close().expect("closed");
    drop(pool);
    let packs = beginnings(&pair.media[0], b"HPACKVER");
    assert!(packs.len() > 4, "{} packs", packs.len());
    for (side, pack) in packs.windows(2).enumerate().step_by(2) {
        let mut other = vec![0; usize::try_from(pack[1] - pack[0]).expect("small")];
        let media = &pair.media[side / 2 % 2];
        media.read_at(pack[1], &mut other).expect("read");
        media.write_at(pack[0], &[IoSlice::new(&other)]).expect("written");
    }
    let pool = pair.open();
    let volume = pool.volume("v").expect("there");
    for (turn, seq) in (0..).zip(seqs) {
        let view = volume.view(&Moment::Seq(seq)).expect("a view");
        let mut bytes = vec![0; 100 * 4096];
        view.read(0, &mut bytes).expect("one side is right");
        let is_right = |(block, bytes): (u8, &[u8])| bytes.iter().all(|b| *b == turn ^ block);
        assert!((0..).zip(bytes.chunks(4096)).all(is_right), "turn {turn}");
    }
    assert!(pool.status().healed.recovered > 0, "they were written again");
}

#[test]
fn rot_on_both_sides_is_lost_and_named() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let volume = fill(&pool);
    step_all(&pool);
    // No version of block 7 is spared.
    let all = places(&pair.media[0], 107);
    for at in &all {
        pair.rot(0, *at);
        pair.rot(1, at + 1);
    }
    let info = scrub(&pool);
    assert_eq!(counts(&info), (4, 0, 4), "{info:?}");
    assert!(info.record.losses[0].starts_with("block 7 of v, seq "), "{:?}", info.record.losses);
    let told = last_audit(&pool, "scrub");
    assert!(told.contains("4 are lost: block 7 of v"), "{told}");
    let mut bytes = [0; 4096];
    assert_eq!(volume.read(7 * 4096, &mut bytes).expect_err("lost").kind, ErrorKind::Corrupt);
}

#[test]
fn what_no_copy_has_is_repaired_from_another_version_and_told_by_its_own_word() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    fill(&pool);
    step_all(&pool);
    let all = places(&pair.media[0], 107);
    for at in &all[1..] {
        pair.rot(0, *at);
        pair.rot(1, at + 1);
    }
    let info = scrub(&pool);
    assert_eq!((counts(&info), info.record.repaired), ((3, 0, 0), 3), "{info:?}");
    assert!(info.record.losses.is_empty());
    let told = last_audit(&pool, "scrub");
    assert!(told.contains("3 were repaired from another version, 0 are lost"), "{told}");
    for media in &pair.media {
        assert_eq!(places(media, 107), all, "they were written again");
    }
    assert_eq!(counts(&scrub(&pool)), (0, 0, 0), "nothing is left to do");
    let healed = pool.status().healed;
    assert_eq!((healed.recovered, healed.elsewhere, healed.unrecoverable), (3, 3, 0));
    drop(pool);
    let kept = pair.open().scrubs().info().expect("remembered");
    assert_eq!(kept.record.repaired, 0, "the last one found nothing: {kept:?}");
}

#[test]
fn a_stripe_has_one_copy_and_a_scrub_finds_damage_in_it() {
    let pair = Pair::new("stripe[chunk=64KiB](a, b)");
    let pool = pair.open();
    fill(&pool);
    step_all(&pool);
    let on = |byte| pair.media.iter().map(move |media| places(media, byte));
    let found: Vec<_> = on(142).zip(&pair.media).collect();
    for (at, media) in found.iter().flat_map(|(all, media)| all.iter().map(move |at| (at, media))) {
        media.rot(at + 77, 0);
    }
    let info = scrub(&pool);
    assert_eq!(counts(&info), (4, 0, 4), "{info:?}");
    assert!(info.record.losses[0].starts_with("block 42 of v, seq "), "{:?}", info.record.losses);
}

#[test]
fn a_pool_on_one_device_is_looked_at_too() {
    let rig = Rig::new(64 * MIB, MIB);
    let pool = rig.open();
    let volume = make(&pool, Granularity::OnDemand, 0);
    for byte in [1, 2] {
        (0..100).for_each(|block| {
            put(&volume, block, byte);
        });
    }
    volume.flush().expect("flushed");
    step_all(&pool);
    assert_eq!(counts(&scrub(&pool)), (0, 0, 0));
    let new = places(&rig.media, 2);
    rig.media.rot(new[3] + 9, 1);
    rig.media.rot(new[4] + 9, 1);
    let info = scrub(&pool);
    assert_eq!(counts(&info), (2, 0, 2), "{info:?}");
    assert_eq!(info.record.losses.len(), 2);
}

#[test]
fn blocks_under_a_header_that_rotted_everywhere_are_looked_at_by_the_map() {
    let rig = Rig::new(64 * MIB, MIB);
    let pool = rig.open();
    let volume = fill(&pool);
    step_all(&pool);
    let at = places(&rig.media, 107)[1];
    let headers = beginnings(&rig.media, b"HBATCHES");
    let header = headers.into_iter().rfind(|header| *header < at).expect("before its block");
    rig.media.rot(header + 20, 1);
    let info = scrub(&pool);
    assert_eq!(counts(&info), (0, 0, 0), "the map has its own checksums: {info:?}");
    rig.media.rot(at + 20, 1);
    let info = scrub(&pool);
    assert_eq!(
        (counts(&info), info.record.repaired),
        ((1, 0, 0), 1),
        "others have the same: {info:?}"
    );
    for at in places(&rig.media, 107) {
        rig.media.rot(at + 20, 1);
    }
    let info = scrub(&pool);
    assert_eq!(counts(&info), (4, 0, 4), "{info:?}");
    assert!(info.record.losses[0].starts_with("block 7 of v, seq "), "{:?}", info.record.losses);
    put(&volume, 7, 108);
    assert_eq!(get(&volume, 7), 108, "the present is another version");
}

#[test]
fn a_scrub_goes_on_after_a_restart_where_it_was() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    fill(&pool);
    step_all(&pool);
    pool.scrubs().start().expect("started");
    let (whole, steps) = scrub_by(&pool, 256 << 10);
    assert!(steps > 8, "{steps} steps");
    let at = places(&pair.media[0], 107)[0];
    pair.rot(0, at);
    pool.scrubs().start().expect("started");
    for _ in 0..steps - 3 {
        pool.step_job("scrub", Budget { bytes: 256 << 10 }).expect("stepped");
    }
    let before = pool.scrubs().info().expect("under way");
    assert_eq!((before.state, counts(&before)), (ScrubState::Running, (1, 1, 0)));
    assert!(before.percent > 10, "{before:?}");
    assert_eq!(pool.scrubs().start().expect_err("one runs").kind, ErrorKind::Busy);
    pool.close().expect("closed");
    drop(pool);
    let pool = pair.open();
    let after = pool.scrubs().info().expect("under way");
    assert_eq!((after.state, counts(&after)), (ScrubState::Running, (1, 1, 0)));
    assert_eq!(after.record.read_bytes, before.record.read_bytes);
    let (end, left) = scrub_by(&pool, 256 << 10);
    assert_eq!((end.record.started_ns, counts(&end)), (before.record.started_ns, (1, 1, 0)));
    assert!(left < steps / 2 + 3, "{left} of {steps} steps were left");
    assert!(end.record.read_bytes < whole.record.read_bytes * 3 / 2, "{end:?} after {whole:?}");
    drop(pool);
    let pool = pair.open();
    assert_eq!(pool.scrubs().info(), Some(end), "and it is remembered");
}

#[test]
fn a_scrub_beside_writes_finds_nothing_wrong() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let volume = fill(&pool);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (volume, stop) = (&volume, &stop);
            scope.spawn(move || {
                let mut turn = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) && turn < 6000 {
                    let bytes = vec![turn as u8; 8 * 4096];
                    let offset = (writer * 1000 + turn % 900) * 4096;
                    volume
                        .write_batch(&[WriteOp::Data { offset, bytes: &bytes }])
                        .expect("written");
                    turn += 1;
                }
            });
        }
        for _ in 0..6 {
            pool.scrubs().start().expect("started");
            // Others have the right to background work now and then.
            while pool.scrubs().info().is_some_and(|info| info.state == ScrubState::Running) {
                pool.step(Budget { bytes: MIB }).expect("stepped");
                pool.step_job("scrub", Budget { bytes: MIB }).expect("stepped");
            }
            let info = pool.scrubs().info().expect("done");
            assert_eq!(counts(&info), (0, 0, 0), "{info:?}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    pool.verify_invariants().expect("sound");
}

#[test]
fn a_scrub_is_stopped_and_another_begins_by_its_schedule() {
    let rig = Rig::new(64 * MIB, MIB);
    let pool = rig.open();
    fill(&pool);
    assert_eq!(pool.scrubs().stop().expect_err("none runs").kind, ErrorKind::NotFound);
    let week_ns = 7 * 24 * 3600 * SECOND_NS;
    assert_eq!(pool.scrubs().set_every(Some(5)).expect_err("too often").kind, ErrorKind::Invalid);
    pool.scrubs().set_every(Some(week_ns)).expect("set");
    assert!(!pool.step_job("scrub", ALL).expect("stepped"), "not yet");
    rig.clock.advance(week_ns);
    assert!(pool.step_job("scrub", Budget { bytes: 1 }).expect("stepped"), "it is due");
    let info = pool.scrubs().stop().expect("stopped");
    assert_eq!(info.state, ScrubState::Stopped);
    assert!(last_audit(&pool, "scrub").starts_with("stopped: "));
    assert!(!pool.step_job("scrub", ALL).expect("stepped"), "the next is due in a week");
    let pool = rig.kill(pool);
    assert_eq!(pool.scrubs().every_ns(), Some(week_ns));
    rig.clock.advance(week_ns);
    scrub_by(&pool, 8 * MIB);
    pool.scrubs().set_every(None).expect("set");
    rig.clock.advance(week_ns);
    assert!(!pool.step_job("scrub", ALL).expect("stepped"), "never again");
}

#[test]
fn an_opening_after_a_kill_tells_how_far_it_is_and_what_it_took() {
    let pair = Pair::new("mirror(a, b)");
    let pool = pair.open();
    let before = pool.settled().expect("it is on members");
    assert_eq!((before.phase, before.read_bytes), (SettlePhase::Done, 0));
    let volume = fill(&pool);
    drop((volume, pool));
    let mut heard: Vec<Settling> = Vec::new();
    // Whoever listens takes its time, so it is told in the time of what is being done.
    let pool = pair.open_told(pair.array(), &mut |state| {
        heard.push(*state);
        let is_copies = state.phase == SettlePhase::Copies;
        pair.clock.advance(if is_copies { SECOND_NS } else { 10 * SECOND_NS });
    });
    let phases: Vec<SettlePhase> = heard.iter().map(|state| state.phase).collect();
    let copies = phases.iter().filter(|phase| **phase == SettlePhase::Copies).count();
    assert!(copies > 2, "{phases:?}");
    assert_eq!(phases[copies..], [SettlePhase::Parity, SettlePhase::Done]);
    assert!(heard.is_sorted_by_key(|state| (state.read_bytes, state.percent)));
    let last = *heard.last().expect("told");
    assert_eq!(pool.settled(), Some(last));
    assert!(last.unsettled_bytes >= MIB && last.percent == 100, "{last:?}");
    assert!(last.read_bytes > 2 * 400 * 4096, "both copies of all that was written: {last:?}");
    assert_eq!(last.copies_ns, copies as u64 * SECOND_NS);
    assert_eq!(last.parity_ns, 10 * SECOND_NS);
    pool.close().expect("closed");
    drop(pool);
    let after = pair.open().settled().expect("it is on members");
    assert_eq!((after.unsettled_bytes, after.copies_ns), (0, 0), "a clean stop leaves nothing");
}
