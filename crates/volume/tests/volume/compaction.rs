//! Versions that are compacted and uncompacted by hand, whatever the volume's policy.

use std::sync::Arc;

use hindsight_volume::{
    Architecture, Budget, Compaction, CompactionInfo, CompactionState, Encoding, ErrorKind,
    Granularity, Volume, WriteOp,
};

use sim::Random;
use units::Moment;

use crate::base::{BLOCK, Rig, content};
use crate::packs::{Pages, encode, pack, packed};

/// The compaction of a version as it is told.
fn compaction(volume: &Volume, number: u64) -> CompactionInfo {
    volume.compaction(number).expect("told").expect("asked for")
}

fn done(volume: &Volume, number: u64) -> (u64, u64) {
    let info = compaction(volume, number);
    assert_eq!(info.state, CompactionState::Done, "version {number}: {info:?}");
    (info.packed, info.raw)
}

/// A volume with three versions of 20 pages, each of 400 writes that are kept.
fn with_versions(rig: &Rig, architecture: Architecture) -> (Arc<Volume>, Pages) {
    let volume = rig.make("v", architecture, Granularity::EveryWrite);
    let mut pages = Pages::new(&volume);
    for _ in 0..3 {
        pages.change(&volume, 20, 400);
        volume.create_version("").expect("captured");
    }
    pages.change(&volume, 20, 100);
    (volume, pages)
}

#[test]
fn a_version_is_compacted_and_uncompacted_and_reads_as_before() {
    for architecture in Architecture::ALL {
        let mut rig = Rig::new();
        let (volume, pages) = with_versions(&rig, architecture);
        rig.settle();
        assert_eq!(packed(&volume), (0, 0), "{architecture:?}: nothing was asked for");
        let asked = volume.compact_version(1, Compaction::Compacted).expect("asked");
        assert_eq!((asked.wish, asked.state), (Compaction::Compacted, CompactionState::Waiting));
        rig.settle();
        let (in_packs, raw) = done(&volume, 1);
        assert!(in_packs > 350 && in_packs + raw <= 400, "{architecture:?}: {in_packs} and {raw}");
        let (bytes, were) = packed(&volume);
        // And of each of the 20 pages at most the version before them.
        let others = were / BLOCK - in_packs;
        assert!(others <= 20, "{architecture:?}: {others} blocks that do not belong to it");
        assert!(bytes * 4 < were, "{architecture:?}: {were} bytes became {bytes}");
        assert_eq!(volume.compaction(0).expect("told"), None);
        pages.check(&volume);
        rig.pool().verify_invariants().expect("all agree");
        drop(volume);

        let volume = rig.restart();
        assert_eq!(done(&volume, 1), (in_packs, raw), "{architecture:?}: it is remembered");
        pages.check(&volume);
        volume.compact_version(1, Compaction::Uncompacted).expect("asked");
        rig.settle();
        assert_eq!(done(&volume, 1), (0, in_packs + raw), "{architecture:?}");
        assert_eq!(packed(&volume), (0, 0), "{architecture:?}: all of it is raw again");
        pages.check(&volume);
        rig.pool().verify_invariants().expect("all agree");
    }
}

#[test]
fn what_was_asked_for_goes_before_the_policy_of_the_volume() {
    let rig = Rig::new();
    let (volume, pages) = with_versions(&rig, Architecture::Logging);
    volume.compact_version(2, Compaction::Uncompacted).expect("asked");
    rig.settle();
    encode(&rig, &volume, Encoding::Xor);
    let (in_packs, raw) = done(&volume, 2);
    assert_eq!((in_packs, raw), (0, 400), "nothing of it is packed");
    assert!(packed(&volume).1 > 800 * BLOCK, "the others are");
    pages.check(&volume);
    rig.pool().verify_invariants().expect("all agree");
    volume.compact_version(2, Compaction::Compacted).expect("asked");
    rig.settle();
    assert!(done(&volume, 2).0 > 350);
    pages.check(&volume);
}

#[test]
fn a_version_that_is_deleted_takes_what_was_asked_for_with_it() {
    let mut rig = Rig::new();
    let (volume, mut pages) = with_versions(&rig, Architecture::Logging);
    volume.compact_version(1, Compaction::Compacted).expect("asked");
    volume.compact_version(0, Compaction::Uncompacted).expect("asked");
    rig.settle();
    volume.delete_version(1).expect("deleted");
    assert_eq!(volume.compaction(1).expect_err("gone").kind, ErrorKind::NotFound);
    assert_eq!(volume.compactions().len(), 1);
    drop(volume);
    let volume = rig.restart();
    assert_eq!(volume.compactions().len(), 1, "and it does not come back");
    pages.change(&volume, 20, 100);
    pack(&rig);
    pages.check(&volume);
    rig.pool().verify_invariants().expect("all agree");
    rig.pool().delete_volume("v").expect("deleted");
    rig.settle();
}

#[test]
fn what_is_not_there_is_not_compacted() {
    let rig = Rig::new();
    let (volume, _) = with_versions(&rig, Architecture::Logging);
    for wish in [Compaction::Compacted, Compaction::Uncompacted] {
        let error = volume.compact_version(7, wish).expect_err("no such version");
        assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    }
    assert!(volume.compactions().is_empty());
}

#[test]
fn versions_that_left_their_packs_are_told_as_shadows() {
    let rig = Rig::new();
    let (volume, _) = with_versions(&rig, Architecture::Logging);
    encode(&rig, &volume, Encoding::Xor);
    assert_eq!(volume.info().expect("info").encoding.shadow_bytes, 0);
    volume.compact_version(1, Compaction::Uncompacted).expect("asked");
    let mut shadows = 0;
    while compaction(&volume, 1).state != CompactionState::Done {
        rig.pool().step(Budget { bytes: 64 << 20 }).expect("a step");
        shadows = volume.info().expect("info").encoding.shadow_bytes.max(shadows);
    }
    assert!(shadows > 0, "a third of what is in packs has left them");
    rig.settle();
    rig.pool().verify_invariants().expect("all agree");
}

/// Versions of a volume on demand: after each, 40 of the 4,096 bytes of every page are changed for
/// the next. Nothing is written after the last.
struct Chain {
    versions: Vec<Vec<u8>>,
}

const PAGES: u64 = 200;

impl Chain {
    fn make(rig: &Rig, architecture: Architecture, versions: usize) -> (Arc<Volume>, Chain) {
        let volume = rig.make("v", architecture, Granularity::OnDemand);
        let mut random = Random::new(11);
        let mut present = vec![0; volume.size_bytes() as usize];
        random.fill(&mut present[..(PAGES * BLOCK) as usize]);
        let mut chain = Chain { versions: Vec::new() };
        for _ in 0..versions {
            for page in present[..(PAGES * BLOCK) as usize].chunks_exact_mut(BLOCK as usize) {
                let at = random.below(BLOCK - 40) as usize;
                random.fill(&mut page[at..at + 40]);
            }
            let bytes = &present[..(PAGES * BLOCK) as usize];
            volume.write_batch(&[WriteOp::Data { offset: 0, bytes }]).expect("written");
            volume.create_version("").expect("captured");
            chain.versions.push(present.clone());
        }
        rig.settle();
        (volume, chain)
    }

    fn check(&self, volume: &Arc<Volume>) {
        assert!(content(volume) == *self.versions.last().expect("some"), "the present");
        for (number, expected) in self.versions.iter().enumerate() {
            let view = volume.view(&Moment::Version(number as u64)).expect("a view");
            let mut bytes = vec![0xee; view.size_bytes() as usize];
            view.read(0, &mut bytes).expect("read");
            assert!(bytes == *expected, "version {number} has other bytes");
        }
    }

    fn ask(&self, volume: &Volume, wish: Compaction) {
        for number in 0..self.versions.len() as u64 {
            volume.compact_version(number, wish).expect("asked");
        }
    }
}

/// Bytes kept only for the past.
fn history(volume: &Volume) -> u64 {
    volume.info().expect("info").history_bytes
}

#[test]
fn ten_versions_take_less_than_a_tenth_once_they_are_compacted() {
    for architecture in Architecture::ALL {
        let mut rig = Rig::new();
        // Where the present has to be at home, no pack can have it: one of the others is whole, and
        // a ninth of what ten versions keep is more than a tenth.
        let count = if architecture == Architecture::Checkpointing { 13 } else { 10 };
        let (volume, chain) = Chain::make(&rig, architecture, count as usize);
        let raw = history(&volume);
        assert!(raw >= (count - 1) * PAGES * BLOCK, "{architecture:?}: {raw} bytes of history");
        chain.check(&volume);
        chain.ask(&volume, Compaction::Compacted);
        rig.settle();
        let now = history(&volume);
        assert!(now * 10 < raw, "{architecture:?}: {raw} bytes became {now}");
        for number in 1..count - 1 {
            assert_eq!(done(&volume, number), (PAGES, 0), "{architecture:?}: version {number}");
        }
        chain.check(&volume);
        rig.pool().verify_invariants().expect("all agree");
        drop(volume);
        let volume = rig.restart();
        chain.check(&volume);
        rig.settle();
        chain.ask(&volume, Compaction::Uncompacted);
        rig.settle();
        assert_eq!(packed(&volume), (0, 0), "{architecture:?}: all of it is raw again");
        assert_eq!(history(&volume), raw, "{architecture:?}: as much as before");
        chain.check(&volume);
        rig.pool().verify_invariants().expect("all agree");
    }
}

#[test]
fn the_version_that_the_present_has_is_compacted_beside_the_one_before_it() {
    for architecture in Architecture::ALL {
        let rig = Rig::new();
        let (volume, chain) = Chain::make(&rig, architecture, 3);
        volume.compact_version(2, Compaction::Compacted).expect("asked");
        rig.settle();
        let stays = architecture == Architecture::Checkpointing;
        let expected = if stays { (0, PAGES) } else { (PAGES, 0) };
        assert_eq!(done(&volume, 2), expected, "{architecture:?}");
        let pairs = if stays { 0 } else { 2 * PAGES * BLOCK };
        assert_eq!(packed(&volume).1, pairs, "{architecture:?}: each beside one other");
        chain.check(&volume);
        volume.compact_version(2, Compaction::Uncompacted).expect("asked");
        rig.settle();
        assert_eq!(packed(&volume), (0, 0), "{architecture:?}: its neighbour is raw again, too");
        chain.check(&volume);
        rig.pool().verify_invariants().expect("all agree");
    }
}

#[test]
fn pages_that_are_alike_are_packed_and_those_between_them_are_not() {
    // Every so many pages one is alike in both versions; the others are new.
    for every in [2, 5] {
        let rig = Rig::new();
        let volume = rig.make("v", Architecture::Logging, Granularity::OnDemand);
        let mut random = Random::new(13);
        let mut pages = vec![0; (PAGES * BLOCK) as usize];
        let mut versions = Vec::new();
        for _ in 0..2 {
            for (number, page) in pages.chunks_exact_mut(BLOCK as usize).enumerate() {
                let is_alike = !versions.is_empty() && number % every == 0;
                random.fill(if is_alike { &mut page[..40] } else { page });
            }
            volume.write_batch(&[WriteOp::Data { offset: 0, bytes: &pages }]).expect("written");
            volume.create_version("").expect("captured");
            versions.push(pages.clone());
        }
        let zero = WriteOp::Zero { offset: 0, length_bytes: volume.size_bytes() };
        volume.write_batch(&[zero]).expect("written");
        rig.settle();
        volume.compact_version(1, Compaction::Compacted).expect("asked");
        rig.settle();
        let alike = PAGES / every as u64;
        assert_eq!(done(&volume, 1), (alike, PAGES - alike), "one in {every}");
        assert_eq!(packed(&volume).1, 2 * alike * BLOCK, "each beside the one before it");
        for (number, expected) in versions.iter().enumerate() {
            let view = volume.view(&Moment::Version(number as u64)).expect("a view");
            let mut bytes = vec![0xee; expected.len()];
            view.read(0, &mut bytes).expect("read");
            assert!(bytes == *expected, "version {number} has other bytes");
        }
        rig.pool().verify_invariants().expect("all agree");
    }
}

#[test]
fn versions_that_are_compacted_one_after_the_other_share_packs_in_the_end() {
    for newest_first in [false, true] {
        let rig = Rig::new();
        let (volume, chain) = Chain::make(&rig, Architecture::Logging, 10);
        let raw = history(&volume);
        for turn in 0..10 {
            let number = if newest_first { 9 - turn } else { turn };
            volume.compact_version(number, Compaction::Compacted).expect("asked");
            rig.settle();
        }
        let now = history(&volume);
        assert!(now * 10 < raw, "newest first {newest_first}: {raw} bytes became {now}");
        chain.check(&volume);
        rig.pool().verify_invariants().expect("all agree");
    }
}

#[test]
fn kills_while_versions_are_compacted_and_uncompacted_change_no_byte() {
    for architecture in [Architecture::Logging, Architecture::Redirect, Architecture::SplitStream] {
        let mut rig = Rig::new();
        let (mut volume, chain) = Chain::make(&rig, architecture, 10);
        volume.flush().expect("flushed");
        for wish in [Compaction::Compacted, Compaction::Uncompacted] {
            chain.ask(&volume, wish);
            for steps in 0..8 {
                for _ in 0..steps {
                    rig.pool().step(Budget { bytes: 256 << 10 }).expect("a step");
                }
                drop(volume);
                volume = if steps % 2 == 0 { rig.kill() } else { rig.power_cut() };
                chain.check(&volume);
                rig.pool().verify_invariants().expect("all agree");
            }
            rig.settle();
            let is_packed = packed(&volume).1 > 0;
            assert_eq!(is_packed, wish == Compaction::Compacted, "{architecture:?}: {wish:?}");
            chain.check(&volume);
        }
    }
}
