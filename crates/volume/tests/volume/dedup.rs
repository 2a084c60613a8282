//! Equal blocks are stored once: nothing reads differently, and nothing that goes takes from others
//! what they have.

use std::collections::BTreeMap;
use std::sync::Arc;

use hindsight_volume::{
    Architecture, Budget, Encoding, EncodingChange, Granularity, Volume, VolumeChange, WriteOp,
};
use sim::Random;
use units::{Moment, Seq};

use crate::base::{BLOCK, Rig, SIZE_BYTES, WINDOW_NS, content, past};
use crate::packs;

const SECOND: u64 = 1_000_000_000;

/// Writes blocks of which there are few contents, and remembers some moments.
struct Copies {
    random: Random,
    contents: Vec<Vec<u8>>,
    present: Vec<u8>,
    moments: BTreeMap<Seq, Vec<u8>>,
}

impl Copies {
    fn new(contents: u64) -> Copies {
        let mut random = Random::new(11);
        let block = |_| {
            let mut block = vec![0; BLOCK as usize];
            random.fill(&mut block);
            block
        };
        let contents = (0..contents).map(block).collect();
        let present = vec![0; SIZE_BYTES as usize];
        Copies { random, contents, present, moments: BTreeMap::new() }
    }

    fn write(&mut self, volume: &Volume, blocks: u64, times: u64) {
        for turn in 0..times {
            let block = self.random.below(blocks);
            let content = &self.contents[self.random.below(self.contents.len() as u64) as usize];
            let start = (block * BLOCK) as usize;
            self.present[start..start + BLOCK as usize].copy_from_slice(content);
            let op = WriteOp::Data { offset: block * BLOCK, bytes: content };
            let seq = volume.write_batch(&[op]).expect("written");
            if turn % (times / 4).max(1) == 0 {
                self.moments.insert(seq, self.present.clone());
            }
        }
    }

    fn check(&self, volume: &Arc<Volume>) {
        assert!(content(volume) == self.present, "another present");
        for (&seq, expected) in &self.moments {
            assert!(past(volume, seq) == *expected, "another past at {seq}");
        }
    }
}

/// Turns it on, and keeps all of the past.
fn deduplicate(volume: &Volume) {
    let change =
        VolumeChange { dedup: Some(true), window_ns: Some(1 << 59), ..VolumeChange::default() };
    volume.change(&change).expect("changed");
}

/// Lets a search be due, and all that follows from it be done.
fn share(rig: &Rig) {
    for _ in 0..2 {
        rig.clock.advance(601 * SECOND);
        rig.settle();
    }
    rig.pool().verify_invariants().expect("all agree");
}

/// Times that something was shared.
fn searches(rig: &Rig) -> usize {
    let audit = rig.pool().audit(0, 10_000).expect("read");
    audit.iter().filter(|record| record.action == "deduplicate").count()
}

#[test]
fn equal_blocks_are_stored_once_and_every_moment_reads_as_before() {
    for architecture in Architecture::ALL {
        let mut rig = Rig::new();
        let volume = rig.make("v", architecture, Granularity::EveryWrite);
        let mut copies = Copies::new(10);
        copies.write(&volume, 200, 1500);
        volume.flush().expect("flushed");
        let before = volume.info().expect("info");
        deduplicate(&volume);
        share(&rig);
        copies.check(&volume);
        let info = volume.info().expect("info");
        let (bytes, named) = (info.dedup.shared_bytes, info.dedup.named_bytes);
        println!("{architecture:?}: {bytes} for {named}, history {}", info.history_bytes);
        assert!(named > 1000 * BLOCK, "{architecture:?}: {named} bytes are shared");
        assert!(bytes * 10 < named, "{architecture:?}: {bytes} bytes for {named}");
        let (was, is) = (before.history_bytes, info.history_bytes);
        assert!(is * 4 < was, "{architecture:?}: history {was} became {is}");
        drop(volume);

        let volume = rig.restart();
        copies.check(&volume);
        copies.write(&volume, 200, 300);
        drop(volume);
        assert_eq!(rig.rebuild(), 0, "nothing is damaged");
        let volume = rig.pool().volume("v").expect("there");
        copies.check(&volume);
        share(&rig);
        copies.check(&volume);
    }
}

#[test]
fn a_search_that_finds_nothing_new_writes_nothing() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    deduplicate(&volume);
    let mut copies = Copies::new(10);
    copies.write(&volume, 200, 1500);
    share(&rig);
    let shared = volume.info().expect("info").dedup;
    assert_eq!(searches(&rig), 1);
    // Random blocks are equal to nothing.
    let mut block = vec![0; BLOCK as usize];
    for _ in 0..400 {
        copies.random.fill(&mut block);
        volume.write_batch(&[WriteOp::Data { offset: 0, bytes: &block }]).expect("written");
    }
    share(&rig);
    assert_eq!((searches(&rig), volume.info().expect("info").dedup), (1, shared));
    // What is new and equal joins what is shared.
    let again = copies.contents[3].clone();
    volume.write_batch(&[WriteOp::Data { offset: 0, bytes: &again }]).expect("written");
    share(&rig);
    let now = volume.info().expect("info").dedup;
    assert_eq!((searches(&rig), now.named_bytes), (2, shared.named_bytes + BLOCK));
}

#[test]
fn blocks_with_the_same_checksum_are_not_taken_for_equal() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    deduplicate(&volume);
    let one = vec![0x5a; BLOCK as usize];
    // The polynomial of CRC32C itself, bits in the order in which it is worked out: added to a
    // block it changes no checksum.
    let polynomial = (1_u64 | 0x82f6_3b78 << 1).to_le_bytes();
    let mut other = one.clone();
    other[100..108].iter_mut().zip(polynomial).for_each(|(byte, bits)| *byte ^= bits);
    assert_eq!(format::checksum::block_crc(&one), format::checksum::block_crc(&other));
    assert_ne!(one, other);
    for (block, bytes) in [(0, &one), (1, &other), (2, &one), (3, &other), (4, &one)] {
        volume.write_batch(&[WriteOp::Data { offset: block * BLOCK, bytes }]).expect("written");
    }
    volume.flush().expect("flushed");
    share(&rig);
    let info = volume.info().expect("info").dedup;
    assert_eq!(info.named_bytes, 5 * BLOCK, "all five have an equal one");
    let found = content(&volume);
    let parts = found.chunks_exact(BLOCK as usize).take(5);
    assert!(parts.eq([&one, &other, &one, &other, &one]));
}

#[test]
fn of_many_contents_with_one_checksum_only_some_are_told_apart_at_a_time() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    deduplicate(&volume);
    let polynomial = (1_u64 | 0x82f6_3b78 << 1).to_le_bytes();
    let one = vec![0x5a; BLOCK as usize];
    let content_of = |number: usize| {
        let mut block = one.clone();
        let changed = block[64 * number..].iter_mut().zip(polynomial);
        changed.for_each(|(byte, bits)| *byte ^= bits);
        block
    };
    // Each twice: 24 contents, of which 16 are told apart.
    let blocks: Vec<Vec<u8>> = (0..48).map(|at| content_of(at % 24)).collect();
    let crc = format::checksum::block_crc(&one);
    for (at, bytes) in (0..).zip(&blocks) {
        assert_eq!(format::checksum::block_crc(bytes), crc);
        let op = WriteOp::Data { offset: at * BLOCK, bytes };
        volume.write_batch(&[op]).expect("written");
    }
    volume.flush().expect("flushed");
    rig.clock.advance(601 * SECOND);
    rig.settle();
    let info = volume.info().expect("info").dedup;
    assert_eq!((searches(&rig), info.named_bytes), (1, 2 * 16 * BLOCK));
    for _ in 0..3 {
        assert!(content(&volume).chunks_exact(BLOCK as usize).take(48).eq(&blocks));
        share(&rig);
    }
    let info = volume.info().expect("info").dedup;
    assert!(info.named_bytes <= 48 * BLOCK && info.shared_bytes <= 25 * BLOCK, "{info:?}");
}

/// Pairs of equal blocks that compress to a half, each written over by another that differs a
/// little.
fn pairs_of_the_past(volume: &Volume, pairs: u64) -> Copies {
    let mut copies = Copies::new(pairs);
    for at in 0..4 * pairs {
        let block = at % (2 * pairs);
        let mut bytes = copies.contents[(block / 2) as usize].clone();
        bytes[BLOCK as usize / 2..].fill(0);
        if at >= 2 * pairs {
            bytes[..8].copy_from_slice(&at.to_le_bytes());
        }
        let op = WriteOp::Data { offset: block * BLOCK, bytes: &bytes };
        let seq = volume.write_batch(&[op]).expect("written");
        let start = (block * BLOCK) as usize;
        copies.present[start..start + BLOCK as usize].copy_from_slice(&bytes);
        if at % pairs == pairs - 1 {
            copies.moments.insert(seq, copies.present.clone());
        }
    }
    volume.flush().expect("flushed");
    copies
}

#[test]
fn what_was_packed_while_it_was_compared_is_left_there() {
    let mut late = 0;
    for steps in 0..24 {
        let rig = Rig::new();
        let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
        deduplicate(&volume);
        let copies = pairs_of_the_past(&volume, 100);
        rig.clock.advance(601 * SECOND);
        for _ in 0..steps {
            rig.pool().step(Budget { bytes: 16 << 10 }).expect("a step");
        }
        if searches(&rig) > 0 {
            break;
        }
        // In the middle of a search, a merge packs what it compares.
        let encoding = EncodingChange { encoding: Some(Encoding::Xor), after_ns: Some(SECOND) };
        volume.change(&VolumeChange { encoding, ..VolumeChange::default() }).expect("changed");
        rig.settle();
        copies.check(&volume);
        let info = volume.info().expect("info");
        assert!(info.encoding.unpacked_bytes >= 190 * BLOCK, "{steps}: {:?}", info.encoding);
        assert_eq!(info.dedup.named_bytes, 0, "after {steps} steps: {:?}", info.dedup);
        late += searches(&rig);
        rig.pool().verify_invariants().expect("all agree");
    }
    assert!(late > 0, "no search found what was packed meanwhile");
}

#[test]
fn clones_share_what_they_write_alike_and_outlive_each_other() {
    let mut rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    deduplicate(&volume);
    let clone = rig.pool().clone_volume("v", &Moment::Latest, "c").expect("cloned");
    let second = rig.pool().clone_volume("c", &Moment::Latest, "d").expect("cloned");
    let all = [&volume, &clone, &second];
    let mut copies = Copies::new(400);
    for (block, content) in (0..).zip(&copies.contents) {
        for volume in all {
            let op = WriteOp::Data { offset: block * BLOCK, bytes: content };
            volume.write_batch(&[op]).expect("written");
        }
    }
    copies.present = content(&volume);
    all.iter().for_each(|volume| volume.flush().expect("flushed"));
    let before = rig.pool().space().expect("space").stored_bytes;
    share(&rig);
    let after = rig.pool().space().expect("space");
    assert!(before >= 1200 * BLOCK, "{before} bytes before");
    assert!(after.stored_bytes < 450 * BLOCK, "{before} became {}", after.stored_bytes);
    assert!(after.common_bytes >= 400 * BLOCK, "{} bytes of all three", after.common_bytes);
    all.iter().for_each(|volume| copies.check(volume));
    drop((volume, clone, second));

    // One after the other goes; the others have all they had, after a restart and a rebuild too.
    rig.restart();
    for (gone, left) in [("v", vec!["c", "d"]), ("d", vec!["c"])] {
        rig.pool().delete_volume(gone).expect("deleted");
        share(&rig);
        assert_eq!(rig.rebuild(), 0, "nothing is damaged");
        for name in left {
            copies.check(&rig.pool().volume(name).expect("there"));
        }
        rig.pool().verify_invariants().expect("all agree");
    }
    rig.pool().delete_volume("c").expect("deleted");
    share(&rig);
    let left = rig.pool().space().expect("space");
    assert_eq!((left.stored_bytes, left.common_bytes), (0, 0), "nobody is left");
}

#[test]
fn versions_reverts_and_expiry_take_nothing_from_others() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    deduplicate(&volume);
    let mut copies = Copies::new(12);
    copies.write(&volume, 100, 800);
    share(&rig);
    let (&seq, then) = copies.moments.iter().nth(1).expect("some");
    let then = then.clone();
    volume.revert(&Moment::Seq(seq), false).expect("reverted");
    copies.present = then;
    copies.write(&volume, 100, 300);
    share(&rig);
    copies.check(&volume);
    // All of the past leaves the window; what is written now is equal to some of it.
    let (window_ns, grace_ns) = (Some(WINDOW_NS), Some(0));
    volume.change(&VolumeChange { window_ns, grace_ns, ..VolumeChange::default() }).expect("set");
    for _ in 0..3 {
        rig.clock.advance(2 * WINDOW_NS);
        copies.moments.clear();
        copies.write(&volume, 100, 700);
        share(&rig);
        assert!(content(&volume) == copies.present, "another present");
    }
    rig.clock.advance(2 * WINDOW_NS);
    copies.moments.clear();
    copies.write(&volume, 1, 1);
    share(&rig);
    share(&rig);
    assert!(content(&volume) == copies.present, "another present");
    let info = volume.info().expect("info");
    let names = info.dedup.named_bytes / BLOCK;
    assert!(names <= 200, "{names} names are left of 100 blocks");
    assert!(info.dedup.shared_bytes <= 40 * BLOCK, "{} bytes", info.dedup.shared_bytes);
}

#[test]
fn history_is_packed_and_what_packing_leaves_is_shared() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    let mut pages = packs::Pages::new(&volume);
    pages.change(&volume, 20, 600);
    // Two stretches that are equal, and stay.
    let mut copies = Copies::new(60);
    for block in 0..120_usize {
        let bytes = &copies.contents[block % 60];
        let offset = (block as u64 + 100) * BLOCK;
        volume.write_batch(&[WriteOp::Data { offset, bytes }]).expect("written");
        let start = offset as usize;
        pages.present[start..start + BLOCK as usize].copy_from_slice(bytes);
    }
    volume.flush().expect("flushed");
    copies.present.clone_from(&pages.present);
    let encoding = EncodingChange { encoding: Some(Encoding::Delta), after_ns: Some(SECOND) };
    volume.change(&VolumeChange { encoding, ..VolumeChange::default() }).expect("changed");
    deduplicate(&volume);
    share(&rig);
    pages.check(&volume);
    let info = volume.info().expect("info");
    assert!(info.encoding.unpacked_bytes > 400 * BLOCK, "{:?}", info.encoding);
    assert_eq!(info.dedup.named_bytes, 120 * BLOCK, "{:?}", info.dedup);
}

#[test]
fn whenever_the_power_fails_everything_is_there() {
    for steps in 0..60 {
        let mut rig = Rig::new();
        let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
        deduplicate(&volume);
        let mut copies = Copies::new(10);
        copies.write(&volume, 60, 300);
        volume.flush().expect("flushed");
        rig.clock.advance(601 * SECOND);
        for _ in 0..steps {
            rig.pool().step(Budget { bytes: 16 << 10 }).expect("a step");
        }
        drop(volume);
        let volume = rig.power_cut();
        rig.pool().verify_invariants().expect("all agree");
        copies.check(&volume);
        drop(volume);
        if steps % 10 == 9 {
            assert_eq!(rig.rebuild(), 0, "nothing is damaged");
        }
        share(&rig);
        let volume = rig.pool().volume("v").expect("there");
        copies.check(&volume);
        assert!(volume.info().expect("info").dedup.named_bytes > 200 * BLOCK);
    }
}

#[test]
fn a_shared_block_that_rots_is_an_error_for_all_who_have_it() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    deduplicate(&volume);
    let block: Vec<u8> = (0..BLOCK).map(|i| (i * 7 % 251) as u8).collect();
    for at in 0..5 {
        let op = WriteOp::Data { offset: at * BLOCK, bytes: &block };
        volume.write_batch(&[op]).expect("written");
    }
    volume.flush().expect("flushed");
    share(&rig);
    assert_eq!(volume.info().expect("info").dedup.named_bytes, 5 * BLOCK);
    rig.rot(&block);
    for at in 0..5 {
        let mut bytes = vec![0; BLOCK as usize];
        volume.read(at * BLOCK, &mut bytes).expect_err("no wrong bytes");
    }
    // Searches and merges go on around it.
    let mut copies = Copies::new(4);
    copies.write(&volume, 50, 300);
    share(&rig);
}

#[test]
fn what_is_dead_beside_a_block_with_many_names_is_given_back() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    deduplicate(&volume);
    let mut copies = Copies::new(200);
    let (popular, rest) = copies.contents.split_first().expect("some");
    let write = |block: u64, bytes: &[u8]| {
        let op = WriteOp::Data { offset: block * BLOCK, bytes };
        volume.write_batch(&[op]).expect("written");
    };
    (0..60).for_each(|block| write(block, popular));
    for (block, content) in (60..).step_by(2).zip(rest) {
        write(block, content);
        write(block + 1, content);
    }
    volume.flush().expect("flushed");
    share(&rig);
    let before = volume.info().expect("info").dedup;
    assert_eq!(before.named_bytes, (60 + 2 * 199) * BLOCK);
    assert!(before.shared_bytes > 200 * BLOCK, "{before:?}");
    // All pairs are written over; of the segments only the one block is left.
    let mut block = vec![0; BLOCK as usize];
    let (window_ns, grace_ns) = (Some(WINDOW_NS), Some(0));
    volume.change(&VolumeChange { window_ns, grace_ns, ..VolumeChange::default() }).expect("set");
    for _ in 0..3 {
        for at in 60..60 + 2 * 199 {
            copies.random.fill(&mut block);
            write(at, &block);
        }
        rig.clock.advance(2 * WINDOW_NS);
        share(&rig);
    }
    let after = volume.info().expect("info").dedup;
    assert_eq!(after.named_bytes, 60 * BLOCK, "{after:?}");
    let stored = rig.pool().space().expect("space").stored_bytes;
    assert!(after.shared_bytes < 20 * BLOCK, "{after:?}");
    assert!(stored < (2 * 199 + 20) * BLOCK, "{stored} bytes are stored");
}

#[test]
fn history_is_told_though_the_present_lies_in_no_log_of_its_own() {
    let rig = Rig::new();
    let volume = rig.make("v", Architecture::Logging, Granularity::EveryWrite);
    deduplicate(&volume);
    let clone = rig.pool().clone_volume("v", &Moment::Latest, "c").expect("cloned");
    let mut copies = Copies::new(300);
    for (block, content) in (0..).zip(&copies.contents) {
        for volume in [&volume, &clone] {
            let op = WriteOp::Data { offset: block * BLOCK, bytes: content };
            volume.write_batch(&[op]).expect("written");
        }
    }
    share(&rig);
    assert_eq!(volume.info().expect("info").history_bytes, 0);
    let mut block = vec![0; BLOCK as usize];
    for _ in 0..600 {
        copies.random.fill(&mut block);
        let op = WriteOp::Data { offset: 400 * BLOCK, bytes: &block };
        volume.write_batch(&[op]).expect("written");
    }
    share(&rig);
    let history = volume.info().expect("info").history_bytes;
    assert!((350..=600).contains(&(history / BLOCK)), "{history} bytes of 600 blocks");
    // A limit is held to, though most of what is stored is shared with the clone.
    let limit = VolumeChange {
        history_limit_bytes: Some(Some(100 * BLOCK)),
        grace_ns: Some(0),
        ..VolumeChange::default()
    };
    volume.change(&limit).expect("set");
    share(&rig);
    let history = volume.info().expect("info").history_bytes;
    assert!(history <= 150 * BLOCK, "{history} bytes of history are kept");
}
