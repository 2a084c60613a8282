//! Pools on parity, of which members are wrong while nobody has the pool open, or change while
//! somebody looks at them.

use std::collections::{HashMap, HashSet};
use std::io::IoSlice;
use std::sync::Arc;

use block::stack::Stack;
use block::{Array, BlockDevice, Candidate, Identities, Materials, MediaDevice};
use env::NoFiles;
use format::superblock::{COPY_OFFSETS, Superblock};
use hindsight_volume::{
    Architecture, Budget, ErrorKind, Granularity, Machine, Pool, PoolFormat, PoolOptions, Result,
    ScrubState, SettlePhase, Settling, VolumeSpec, WriteOp,
};
use sim::{Failure, Op, SimClock, SimEntropy, SimMedia};
use units::WallTime;

use crate::hook::{SECOND_NS, get, make, put};

mod torn;

const MIB: u64 = 1 << 20;
/// Bytes of a member before the first of the pool.
const LABEL_BYTES: u64 = MIB;
const CELL: u64 = 4096;
const CHUNK: u64 = 64 << 10;
/// Of each of two slots and two areas.
const JOURNAL: u64 = 256 << 10;
const MEMBER_BYTES: u64 = 32 * MIB;
const THREE: &str = "parity[journal=256KiB](a, b, c)";
const FOUR: &str = "parity[failures=2,journal=256KiB](a, b, c, d)";

/// Its catalogue and the first segments are on four of the members.
const EIGHT: &str = "parity[failures=3,journal=256KiB](a, b, c, d, e, f, g, h)";

/// The members of a pool.
struct Members {
    stack: Stack,
    media: Vec<Arc<SimMedia>>,
    machine: Machine,
}

impl Members {
    fn new(stack: &str) -> Members {
        let stack: Stack = stack.parse().expect("a stack");
        let media = (0..stack.members().len() as u64)
            .map(|seed| Arc::new(SimMedia::new(MEMBER_BYTES, seed + 1)))
            .collect();
        let clock = SimClock::new(WallTime::from_nanos(1_795_255_200 * SECOND_NS));
        let machine = Machine { clock: Arc::new(clock), entropy: Arc::new(SimEntropy::new(1)) };
        let members = Members { stack, media, machine };
        let mut id = 0;
        let random = &mut || {
            id += 1;
            id
        };
        let identities = Identities { random, now: WallTime::from_nanos(1) };
        Array::create(&members.stack, members.candidates(), identities, &Materials::none())
            .expect("labels");
        let device: Arc<dyn BlockDevice> = Arc::new(members.array());
        let format = PoolFormat { zone_bytes: MIB };
        Pool::create(&device, &members.machine, &format).expect("made");
        members
    }

    fn candidates(&self) -> Vec<Candidate> {
        let of = |(path, media): (&str, &Arc<SimMedia>)| Candidate {
            path: path.to_owned(),
            device: Some(Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(media)))),
        };
        self.stack.members().into_iter().zip(&self.media).map(of).collect()
    }

    fn array(&self) -> Array {
        Array::open(self.candidates(), &Materials::none()).expect("all are there")
    }

    fn try_open(&self) -> Result<Arc<Pool>> {
        let options = PoolOptions { memory_bytes: 0 };
        Pool::open_array(
            self.array(),
            self.machine.clone(),
            options,
            Arc::new(NoFiles),
            &mut |_| (),
        )
    }

    fn open_told(&self, told: &mut dyn FnMut(&Settling)) -> Arc<Pool> {
        let options = PoolOptions { memory_bytes: 0 };
        let machine = self.machine.clone();
        Pool::open_array(self.array(), machine, options, Arc::new(NoFiles), told).expect("opened")
    }

    /// A pool with forty volumes, of which each has something.
    fn filled(stack: &str) -> Members {
        let members = Members::new(stack);
        let pool = members.try_open().expect("opened");
        for number in 0..VOLUMES {
            let spec =
                VolumeSpec { window_ns: 1 << 60, ..VolumeSpec::new(&format!("v{number}"), MIB) };
            let volume = pool.create_volume(&spec).expect("made");
            put(&volume, number, number as u8 + 1);
            put(&volume, number + 7, number as u8 + 2);
        }
        pool.close().expect("closed");
        members
    }

    fn check(&self, pool: &Pool) {
        for number in 0..VOLUMES {
            let volume = pool.volume(&format!("v{number}")).expect("it is there");
            assert_eq!(get(&volume, number), number as u8 + 1);
            assert_eq!(get(&volume, number + 7), number as u8 + 2);
        }
    }

    /// Spoils something in every cell that a member has of the stripes.
    fn spoil(&self, member: usize) {
        let start = LABEL_BYTES + 4 * JOURNAL;
        let cells = (start..MEMBER_BYTES).step_by(CELL as usize);
        cells.for_each(|at| self.media[member].rot(at + 99, 4));
    }

    /// The offsets in the pool of the catalogue's pages, of a parity without anything over it.
    fn catalogue(&self) -> Vec<u64> {
        let array = self.array();
        let mut bytes = vec![0; format::PAGE_BYTES];
        array.read_at(COPY_OFFSETS[0], &mut bytes).expect("read");
        let superblock = Superblock::decode(&bytes, 0).expect("a superblock");
        let zone_bytes = superblock.zone_bytes;
        let place = |at: u64| {
            let zone = superblock.catalogue_zones[(at / zone_bytes) as usize];
            u64::from(zone) * zone_bytes + at % zone_bytes
        };
        (0..superblock.catalogue_bytes).step_by(CELL as usize).map(place).collect()
    }
}

const VOLUMES: u64 = 40;
const BLOCKS: u64 = 2000;

/// Blocks of a kind of noise, so that none is like another.
fn noise(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; CELL as usize];
    sim::Random::new(number + 1).fill(&mut bytes);
    bytes
}

#[test]
fn what_rots_while_a_scrub_goes_on_is_never_what_parity_is_computed_of() {
    let members = Members::new(THREE);
    let pool = members.try_open().expect("opened");
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    for block in 0..400 {
        let op = WriteOp::Data { offset: block * CELL, bytes: &noise(block) };
        volume.write_batch(&[op]).expect("written");
    }
    while pool.step(Budget { bytes: 64 << 20 }).expect("stepped") {}
    pool.tidy_members().expect("tidy");
    // Where the members have the blocks: in pieces of sectors, of which one is enough.
    let mut places = Vec::new();
    for (member, media) in members.media.iter().enumerate() {
        let device = MediaDevice::new(Arc::<SimMedia>::clone(media));
        let mut bytes = vec![0; usize::try_from(MEMBER_BYTES).expect("small")];
        device.read_at(0, &mut bytes).expect("read");
        let start = (LABEL_BYTES + 4 * JOURNAL) as usize;
        for at in (start..bytes.len() - 64).step_by(64) {
            places.push((bytes[at..at + 64].to_vec(), member, at as u64));
        }
    }
    places.sort_unstable();
    let place_of = |block: u64| {
        let bytes = noise(block);
        let found = places.binary_search_by(|(there, _, _)| there[..].cmp(&bytes[2048..2112]));
        found.ok().map(|i| (places[i].1, places[i].2))
    };
    let mut rotten = 0;
    let scrub = |after: usize, rot: &mut dyn FnMut()| {
        pool.scrubs().start().expect("started");
        let mut steps = 0;
        while pool.step_job("scrub", Budget { bytes: 512 << 10 }).expect("stepped") {
            steps += 1;
            if steps == after {
                rot();
            }
        }
        let info = pool.scrubs().info().expect("there was one");
        assert_eq!((info.state, info.record.lost), (ScrubState::Done, 0), "{info:?}");
        steps
    };
    let steps = scrub(0, &mut || {});
    for after in 0..steps {
        let block = after as u64 * 3 % 400;
        scrub(after, &mut || {
            if let Some((member, at)) = place_of(block) {
                members.media[member].rot(at, 2);
                rotten += 1;
            }
        });
        let mut bytes = vec![0; CELL as usize];
        volume.read(block * CELL, &mut bytes).unwrap_or_else(|e| panic!("after {after}: {e}"));
        assert!(bytes == noise(block), "after {after} steps");
    }
    assert!(steps > 20 && rotten > 15, "{rotten} in {steps} steps");
}

/// Members and offsets there at which a block of noise lies, beside the journal.
fn lies_at(members: &Members, block: u64) -> Vec<(usize, u64)> {
    let noise = noise(block);
    let start = (LABEL_BYTES + 4 * JOURNAL) as usize;
    let mut found = Vec::new();
    for (member, media) in members.media.iter().enumerate() {
        let device = MediaDevice::new(Arc::<SimMedia>::clone(media));
        let mut there = vec![0; usize::try_from(MEMBER_BYTES).expect("small")];
        device.read_at(0, &mut there).expect("read");
        let at = (start..there.len() - 64).step_by(64);
        found.extend(at.filter(|at| there[*at..*at + 64] == noise[..64]).map(|at| (member, at)));
    }
    found.into_iter().map(|(member, at)| (member, at as u64)).collect()
}

#[test]
fn a_place_that_rotted_is_not_trusted_when_parity_was_computed_of_it() {
    let members = Members::new(THREE);
    let pool = members.try_open().expect("opened");
    let spec = VolumeSpec {
        architecture: Architecture::SplitStream,
        window_ns: 1 << 60,
        ..VolumeSpec::new("v", 4 * MIB)
    };
    let volume = pool.create_volume(&spec).expect("made");
    for block in 0..400 {
        let op = WriteOp::Data { offset: block * CELL, bytes: &noise(block) };
        volume.write_batch(&[op]).expect("written");
    }
    volume.flush().expect("flushed");
    while pool.step(Budget { bytes: 64 << 20 }).expect("stepped") {}
    pool.tidy_members().expect("tidy");
    for block in [7, 130, 260, 399] {
        // In the log and in place; where the rest of a row is zeros its parity is the same.
        let all = lies_at(&members, block);
        assert!(all.len() >= 2, "{all:?}");
        for &(member, at) in &all {
            members.media[member].rot(at + 9, 2);
            assert_eq!(lies_at(&members, block).len(), all.len() - 1);
            pool.scrubs().start().expect("started");
            while pool.step_job("scrub", Budget { bytes: MIB }).expect("stepped") {}
            pool.verify_invariants().unwrap_or_else(|e| panic!("block {block}: {e}"));
            while pool.step(Budget { bytes: 64 << 20 }).expect("stepped") {}
            volume.flush().expect("flushed");
            assert_eq!(lies_at(&members, block), all, "where it rotted it was written again");
        }
    }
}

/// The member and the offset there of an offset of a parity of three.
fn place(at: u64) -> (usize, u64) {
    let stripe = at / (2 * CHUNK);
    let chunk = at / CHUNK % 2;
    let member = (2 - stripe % 3 + 1 + chunk) % 3;
    let offset = LABEL_BYTES + 4 * JOURNAL + stripe * CHUNK + at % CHUNK;
    (member as usize, offset)
}

#[test]
fn a_pool_opens_whichever_members_rotted_while_it_was_closed() {
    let stripe = "stripe(parity[journal=256KiB](a, b, c), parity[journal=256KiB](d, e, f))";
    let cases: [(&str, &[usize]); 8] = [
        (THREE, &[0]),
        (THREE, &[1]),
        (THREE, &[2]),
        (FOUR, &[0, 2]),
        (FOUR, &[2, 3]),
        (stripe, &[1, 5]),
        ("stripe(mirror(a, b), mirror(c, d))", &[0, 3]),
        (EIGHT, &[1, 2, 3]),
    ];
    for (stack, rotten) in cases {
        let members = Members::filled(stack);
        rotten.iter().for_each(|&member| members.spoil(member));
        let pool = members.try_open().unwrap_or_else(|e| panic!("{stack}, {rotten:?}: {e}"));
        members.check(&pool);
        pool.close().expect("closed");
        let pool = members.try_open().expect("again");
        members.check(&pool);
    }
}

#[test]
fn an_opening_tells_how_often_the_catalogue_was_tried_in_vain() {
    let opened = |rotten: &[usize]| {
        let members = Members::filled(FOUR);
        rotten.iter().for_each(|&member| members.spoil(member));
        let mut heard = Vec::new();
        let pool = members.open_told(&mut |state| {
            if state.phase == SettlePhase::Catalogue {
                heard.push(state.trials);
            }
        });
        members.check(&pool);
        heard
    };
    assert_eq!(opened(&[]), []);
    // Nothing left out, one of four, then two of four: the last of these ways.
    let most = 11 + 8 * 512;
    assert_eq!(opened(&[2, 3]), (1..11).map(|tried| (tried, most)).collect::<Vec<_>>());
}

#[test]
fn an_opening_after_a_crash_tells_how_far_it_is_with_parity() {
    let members = Members::new(THREE);
    let pool = members.try_open().expect("opened");
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    for block in 0..BLOCKS {
        let op = WriteOp::Data { offset: block * CELL, bytes: &noise(block) };
        volume.write_batch(&[op]).expect("written");
    }
    volume.flush().expect("flushed");
    drop((volume, pool));
    // A parity that is of nothing, in some stripes of which each side has the parity of some.
    let start = LABEL_BYTES + 4 * JOURNAL;
    for stripe in 16..40 {
        members.media[2 - stripe % 3].rot(start + stripe as u64 * CHUNK + 3, 3);
    }
    let mut heard = Vec::new();
    let pool = members.open_told(&mut |state| heard.push((state.phase, state.percent)));
    let of = |phase: SettlePhase| heard.iter().filter(move |(of, _)| *of == phase).map(|(_, p)| *p);
    assert!(heard.is_sorted_by_key(|(phase, percent)| (*phase as usize, *percent)), "{heard:?}");
    assert!(of(SettlePhase::Agreement).count() > 3, "{heard:?}");
    assert!(of(SettlePhase::Copies).count() > 3, "{heard:?}");
    assert!(of(SettlePhase::Parity).filter(|percent| *percent < 100).count() > 3, "{heard:?}");
    assert_eq!(heard.last(), Some(&(SettlePhase::Done, 100)));
    drop(pool);
}

#[test]
fn what_agrees_after_a_crash_is_read_once_and_what_does_not_of_every_copy() {
    let read = |rot: &dyn Fn(&Members)| {
        let members = Members::new(THREE);
        let pool = members.try_open().expect("opened");
        let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
        for block in 0..BLOCKS {
            let op = WriteOp::Data { offset: block * CELL, bytes: &noise(block) };
            volume.write_batch(&[op]).expect("written");
        }
        volume.flush().expect("flushed");
        drop((volume, pool));
        rot(&members);
        let mut last = (0, 0);
        let pool = members.open_told(&mut |state| last = (state.read_bytes, state.wrong));
        drop(pool);
        last
    };
    let (once, wrong) = read(&|_| ());
    assert_eq!(wrong, 0);
    assert!(once > BLOCKS * CELL && once < BLOCKS * CELL * 3 / 2, "{once}");
    // Copies of what one member has: of each cell of data that, and what the others say.
    let (more, wrong) = read(&|members| members.spoil(1));
    assert!(more > once * 3 / 2 && wrong > 100, "{more}, {once}, {wrong}");
}

#[test]
fn what_was_written_over_rot_has_a_redundancy_when_the_pool_was_tidied() {
    // Also if it could not be looked at for a while.
    for (is_closed, is_unread) in [(false, false), (true, false), (false, true), (true, true)] {
        let members = Members::new(THREE);
        let pool = members.try_open().expect("opened");
        let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
        put(&volume, 0, 1);
        volume.flush().expect("flushed");
        // Where nothing is yet, and something will be.
        let device = MediaDevice::new(Arc::<SimMedia>::clone(&members.media[0]));
        let mut there = vec![0; usize::try_from(MEMBER_BYTES).expect("small")];
        device.read_at(0, &mut there).expect("read");
        let start = (LABEL_BYTES + 4 * JOURNAL) as usize;
        for at in (start..there.len()).step_by(CELL as usize) {
            if there[at..at + CELL as usize].iter().all(|&byte| byte == 0) {
                members.media[0].rot(at as u64 + 99, 4);
            }
        }
        for block in 0..200 {
            let op = WriteOp::Data { offset: block * CELL, bytes: &noise(block) };
            volume.write_batch(&[op]).expect("written");
        }
        volume.flush().expect("flushed");
        if is_unread {
            let range = Some(LABEL_BYTES + 4 * JOURNAL..MEMBER_BYTES);
            for media in &members.media[..2] {
                media.fail(Failure { range: range.clone(), ..Failure::for_ever(Op::Read) });
            }
            // Its marks are seen to, whatever can be read.
            pool.tidy_members().expect("tidied");
            members.media.iter().for_each(|media| media.calm());
        }
        if is_closed {
            drop(volume);
            pool.close().expect("closed");
        } else {
            pool.tidy_members().expect("tidied");
        }
        drop(pool);
        let candidates = members.candidates().into_iter().skip(1).collect();
        let array = Array::open(candidates, &Materials::none()).expect("two are enough");
        let options = PoolOptions { memory_bytes: 0 };
        let files = Arc::new(NoFiles);
        let pool = Pool::open_array(array, members.machine.clone(), options, files, &mut |_| ());
        let pool = pool.expect("opened without one");
        let volume = pool.volume("v").expect("there");
        for block in 0..200 {
            let mut bytes = vec![0; CELL as usize];
            volume.read(block * CELL, &mut bytes).unwrap_or_else(|e| panic!("{block}: {e}"));
            assert!(bytes == noise(block), "{block}");
        }
    }
}

#[test]
fn members_that_rotted_in_different_places_of_the_catalogue_are_made_good_page_by_page() {
    let members = Members::filled(THREE);
    let pages = members.catalogue();
    let mut rotten = [0; 3];
    for &page in &pages {
        // One cell of each row, of the two chunks in turn.
        if page / CHUNK % 2 == page / CELL % 2 {
            let (member, at) = place(page);
            members.media[member].rot(at + 40, 1);
            rotten[member] += 1;
        }
    }
    assert!(rotten.iter().filter(|&&count| count >= 7).count() > 1, "{rotten:?}");
    let pool = members.try_open().expect("opened");
    members.check(&pool);
    pool.close().expect("closed");
    let pool = members.try_open().expect("again");
    members.check(&pool);
}

#[test]
fn a_catalogue_with_two_wrong_pages_in_a_row_is_said_to_be_damaged() {
    let members = Members::filled(THREE);
    for page in members.catalogue() {
        let (member, at) = place(page);
        members.media[member].rot(at + 40, 1);
    }
    let error = members.try_open().err().expect("too much is wrong");
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
}

#[test]
fn what_rotted_beside_an_open_region_is_not_what_parity_is_computed_of() {
    // Three chunks are no power of two: some stripes lie in two regions.
    let members = Members::new("parity[journal=256KiB](a, b, c, d)");
    let pool = members.try_open().expect("opened");
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    for block in 0..BLOCKS {
        let op = WriteOp::Data { offset: block * CELL, bytes: &noise(block) };
        volume.write_batch(&[op]).expect("written");
    }
    let name = volume.name().to_owned();
    pool.close().expect("closed");
    drop((volume, pool));
    let array = members.array();
    let mut there = vec![0; usize::try_from(array.len_bytes()).expect("small")];
    array.read_at(0, &mut there).expect("read");
    let blocks: HashMap<Vec<u8>, u64> = (0..BLOCKS).map(|b| (noise(b)[..64].to_vec(), b)).collect();
    let mut rotten = Vec::new();
    for border in (MIB..array.len_bytes()).step_by(MIB as usize) {
        // After the border, of the stripe that begins before it.
        let stripe = border / (3 * CHUNK);
        let found = (border..(stripe + 1) * 3 * CHUNK).step_by(512).find_map(|at| {
            let block = blocks.get(&there[at as usize..at as usize + 64])?;
            Some((at, *block))
        });
        let Some((at, block)) = found else { continue };
        let member = (3 - stripe % 4 + 1 + at / CHUNK % 3) % 4;
        let place = LABEL_BYTES + 4 * JOURNAL + stripe * CHUNK + at % CHUNK;
        members.media[member as usize].rot(place + 40, 3);
        // The region before the border is open when the process ends.
        let before = border as usize - MIB as usize;
        let bytes = IoSlice::new(&there[before..before + CELL as usize]);
        array.write_at(before as u64, &[bytes]).expect("written");
        rotten.push((at, block));
    }
    drop(array);
    assert!(rotten.len() >= 4, "{rotten:?}");
    let pool = members.try_open().expect("opened after a crash");
    let volume = pool.volume(&name).expect("it is there");
    for (at, block) in rotten {
        let mut bytes = vec![0; CELL as usize];
        volume.read(block * CELL, &mut bytes).unwrap_or_else(|e| panic!("{at}: {e}"));
        assert!(bytes == noise(block), "at {at}");
    }
}

#[test]
fn a_scrub_goes_on_behind_a_region_that_cannot_be_read() {
    let members = Members::new(THREE);
    let pool = members.try_open().expect("opened");
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    for block in 0..BLOCKS {
        let op = WriteOp::Data { offset: block * CELL, bytes: &noise(block) };
        volume.write_batch(&[op]).expect("written");
    }
    drop(volume);
    pool.close().expect("closed");
    drop(pool);
    let array = members.array();
    let mut there = vec![0; usize::try_from(array.len_bytes()).expect("small")];
    array.read_at(0, &mut there).expect("read");
    let blocks: HashSet<Vec<u8>> = (0..BLOCKS).map(|b| noise(b)[..64].to_vec()).collect();
    let places = (0..there.len()).step_by(512);
    let places: Vec<usize> = places.filter(|&at| blocks.contains(&there[at..at + 64])).collect();
    let region = places[places.len() / 2] as u64 / MIB;
    let used = |from: u64| {
        let next = |after: &u64| Some(array.computed_region(after + 1)?.0);
        let first = array.computed_region(from).map(|(region, _)| region);
        std::iter::successors(first, next).count() as u64
    };
    let (all, behind) = (used(0), used(region + 1));
    assert!(all > behind && behind > 2, "{all} {behind}");
    drop(array);
    let pool = members.try_open().expect("again");
    let scrub = |at_most: u64, fail: &dyn Fn()| {
        pool.scrubs().start().expect("started");
        let mut steps = 0;
        while pool.step_job("scrub", Budget { bytes: MIB }).expect("stepped") {
            steps += 1;
            if steps == at_most {
                fail();
            }
        }
        let info = pool.scrubs().info().expect("there was one");
        assert_eq!((info.state, info.record.lost), (ScrubState::Done, 0), "{info:?}");
        (steps, info)
    };
    let (steps, before) = scrub(0, &|| {});
    let rows = LABEL_BYTES + 4 * JOURNAL + region * MIB / 2;
    let (_, after) = scrub(steps - all, &|| {
        for media in &members.media[..2] {
            let range = Some(rows..rows + MIB / 2);
            media.fail(Failure { range, ..Failure::for_ever(Op::Read) });
        }
    });
    assert_eq!((before.record.wrong, after.record.wrong), (0, 1));
    assert!(after.record.read_bytes + MIB >= before.record.read_bytes, "{before:?} {after:?}");
    let audit = pool.audit(0, 1000).expect("a log");
    let told = audit.iter().filter(|entry| entry.detail.contains("cannot be seen to")).count();
    assert_eq!(told, 1);
}

#[test]
fn a_pool_that_does_not_open_without_a_member_puts_nobody_out() {
    let members = Members::filled(THREE);
    // What was in flight makes an opening write, and one member has none of the catalogue any more.
    let pool = members.try_open().expect("opened");
    put(&pool.volume("v3").expect("there"), 3, 4);
    drop(pool);
    members.spoil(0);
    let all_bytes = || -> Vec<Vec<u8>> {
        let read = |media: &Arc<SimMedia>| {
            let mut bytes = vec![0; usize::try_from(MEMBER_BYTES).expect("small")];
            MediaDevice::new(Arc::<SimMedia>::clone(media)).read_at(0, &mut bytes).expect("read");
            bytes
        };
        members.media.iter().map(read).collect()
    };
    let open = |without: Option<usize>| {
        let mut candidates = members.candidates();
        if let Some(member) = without {
            candidates[member].device = None;
        }
        let materials = Materials::none();
        let opening = Array::prepare(candidates, &materials).expect("two are enough");
        let options = PoolOptions { memory_bytes: 0 };
        let files = Arc::new(NoFiles);
        Pool::open_members(opening, members.machine.clone(), options, files, &mut |_| ())
    };
    let before = all_bytes();
    for without in [1, 2] {
        let Err(error) = open(Some(without)) else { panic!("one is rotten, one is not there") };
        let hint = error.hint.expect("what to do");
        assert!(hint.contains(members.stack.members()[without]), "{hint}");
        assert!(all_bytes() == before, "something was written");
    }
    let pool = open(None).expect("all are there");
    let is_in = |m: block::MemberStatus| m.standing == block::Standing::In;
    assert!(pool.members().into_iter().all(is_in), "{:?}", pool.members());
    members.check(&pool);
    pool.scrubs().start().expect("started");
    while pool.step_job("scrub", Budget { bytes: 64 * MIB }).expect("stepped") {}
    pool.close().expect("closed");
    drop(pool);
    // The rotten one is whole again, so any other may be missing. What is so is told at once.
    let pool = open(Some(2)).expect("two are enough");
    members.check(&pool);
    let audit = pool.audit(0, 1000).expect("read");
    let told = audit.iter().find(|one| one.action == "member-out").expect("it is written down");
    assert!(told.detail.contains("was not there"), "{}", told.detail);
}

/// Blocks at random places of what a member has behind its journal.
fn rot_some(members: &Members, member: usize, random: &mut sim::Random) {
    let start = LABEL_BYTES + 4 * JOURNAL;
    let cells = (MEMBER_BYTES - start) / CELL;
    for _ in 0..cells / 3 {
        members.media[member].rot(start + random.below(cells) * CELL + random.below(CELL - 8), 4);
    }
}

#[test]
fn after_a_kill_one_member_may_be_missing_while_another_rotted() {
    for seed in 0..12 {
        let mut random = sim::Random::new(seed);
        let members = Members::new(FOUR);
        let pool = members.try_open().expect("opened");
        let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
        for block in 0..300 {
            let op = WriteOp::Data { offset: block % 200 * CELL, bytes: &noise(block) };
            volume.write_batch(&[op]).expect("written");
            if seed % 2 == 0 && block % 25 == 0 {
                volume.flush().expect("flushed");
            }
        }
        // The process ends: what was written is there.
        drop((volume, pool));
        let missing = random.below(4) as usize;
        let rotten = (missing + 1 + random.below(3) as usize) % 4;
        rot_some(&members, rotten, &mut random);
        let mut candidates = members.candidates();
        candidates[missing].device = None;
        let materials = Materials::none();
        let opening = Array::prepare(candidates, &materials).expect("three are enough");
        let options = PoolOptions { memory_bytes: 0 };
        let files = Arc::new(NoFiles);
        let machine = members.machine.clone();
        let pool = Pool::open_members(opening, machine, options, files, &mut |_| ());
        let pool = pool.unwrap_or_else(|e| panic!("{seed}, {missing} missing, {rotten}: {e}"));
        let volume = pool.volume("v").expect("there");
        for block in 0..200 {
            let newest = if block < 100 { block + 200 } else { block };
            let mut bytes = vec![0; CELL as usize];
            volume
                .read(block * CELL, &mut bytes)
                .unwrap_or_else(|e| panic!("{seed}: {block}: {e}"));
            assert!(bytes == noise(newest), "{seed}, {missing} missing, {rotten}: block {block}");
        }
    }
}
