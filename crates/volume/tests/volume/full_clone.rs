//! Clones of which all is copied: right from the first second, through kills, and without their
//! origin in the end.

use std::sync::Arc;

use hindsight_volume::{
    Architecture, Budget, CloneSpec, Deletion, Granularity, IoKind, Volume, WriteOp,
};
use units::Moment;

use crate::base::{BLOCK, Rig, content, put};
use crate::{damage, hook};

const BLOCKS: u64 = 300;
const IN_FULL: CloneSpec = CloneSpec { extent: None, in_full: true, scratch_ns: None };

/// A volume with a version, written over since; what the version has.
fn with_version(rig: &Rig, architecture: Architecture) -> Vec<u8> {
    let volume = rig.make("v", architecture, Granularity::OnDemand);
    for block in 0..BLOCKS {
        put(&volume, block, block as u8 | 1, 1);
    }
    let expected = content(&volume);
    volume.create_version("").expect("captured");
    put(&volume, 0, 0xee, BLOCKS);
    volume.flush().expect("flushed");
    expected
}

fn clone_in_full(rig: &Rig) -> Arc<Volume> {
    rig.pool().clone_as("v", &Moment::Version(0), "c", IN_FULL).expect("cloned")
}

fn clone(rig: &Rig) -> Arc<Volume> {
    rig.pool().volume("c").expect("there")
}

/// Clones that need the version.
fn needed_by(rig: &Rig) -> Vec<String> {
    let volume = rig.pool().volume("v").expect("there");
    volume.version(0).expect("there").dependants.clones
}

#[test]
fn a_full_clone_is_right_at_once_and_needs_its_origin_no_more_in_the_end() {
    for architecture in Architecture::ALL {
        let rig = Rig::new();
        let mut expected = with_version(&rig, architecture);
        let volume = clone_in_full(&rig);
        assert!(content(&volume) == expected, "{architecture:?}: before anything is copied");
        let import = volume.import_info().expect("it is being copied");
        assert_eq!((import.done_bytes, import.total_bytes), (0, expected.len() as u64));
        assert_eq!(needed_by(&rig), ["c"], "{architecture:?}");
        put(&volume, 7, 0x77, 2);
        expected[7 * BLOCK as usize..][..2 * BLOCK as usize].fill(0x77);
        rig.settle();
        assert_eq!(volume.import_info(), None, "{architecture:?}: all is copied");
        assert_eq!(needed_by(&rig), Vec::<String>::new(), "{architecture:?}");
        rig.pool().delete_volume("v").expect("deleted");
        rig.settle();
        assert!(content(&volume) == expected, "{architecture:?}: without its origin");
        rig.pool().verify_invariants().expect("all agree");
    }
}

#[test]
fn kills_while_a_clone_is_copied_lose_nothing_and_it_goes_on() {
    let mut rig = Rig::new();
    let mut expected = with_version(&rig, Architecture::Logging);
    drop(clone_in_full(&rig));
    for turn in 0..12 {
        let volume = clone(&rig);
        put(&volume, turn * 9, 0x55, 1);
        expected[(turn * 9 * BLOCK) as usize..][..BLOCK as usize].fill(0x55);
        volume.flush().expect("flushed");
        drop(volume);
        for _ in 0..turn / 2 {
            rig.pool().step(Budget { bytes: 64 << 10 }).expect("a step");
        }
        drop(if turn % 2 == 0 { rig.kill() } else { rig.power_cut() });
        assert!(content(&clone(&rig)) == expected, "turn {turn}");
        rig.pool().verify_invariants().expect("all agree");
    }
    rig.settle();
    assert_eq!(clone(&rig).import_info(), None);
    drop(rig.restart());
    assert!(content(&clone(&rig)) == expected);
    assert_eq!(rig.rebuild(), 0, "nothing is damaged");
    assert!(content(&clone(&rig)) == expected, "after a rebuild");
}

#[test]
fn the_origin_may_be_deleted_while_its_clone_is_copied() {
    let mut rig = Rig::new();
    let expected = with_version(&rig, Architecture::Redirect);
    let volume = clone_in_full(&rig);
    rig.pool().step(Budget { bytes: 64 << 10 }).expect("a step");
    rig.pool().delete_volume("v").expect("deleted");
    assert!(content(&volume) == expected, "while it is copied");
    drop(volume);
    rig.make("v", Architecture::Logging, Granularity::OnDemand);
    drop(rig.kill());
    assert!(content(&clone(&rig)) == expected, "after a kill");
    rig.settle();
    assert_eq!(clone(&rig).import_info(), None);
    assert!(content(&clone(&rig)) == expected, "without it");
    let audit = rig.pool().audit(0, 100).expect("the audit log");
    assert!(audit.iter().any(|record| record.action == "cloned"), "{audit:?}");
    rig.pool().verify_invariants().expect("all agree");
}

#[test]
fn a_full_clone_that_is_deleted_lets_go_of_its_origin() {
    let rig = Rig::new();
    with_version(&rig, Architecture::Logging);
    drop(clone_in_full(&rig));
    rig.pool().step(Budget { bytes: 64 << 10 }).expect("a step");
    rig.pool().delete_volume("c").expect("deleted");
    rig.settle();
    assert_eq!(needed_by(&rig), Vec::<String>::new());
    rig.pool().delete_volume("v").expect("deleted");
    rig.settle();
    rig.pool().verify_invariants().expect("all agree");
}

/// The origin goes with the last block that is copied: not while it is being merged.
#[test]
fn a_deleted_origin_is_not_removed_under_a_merge_of_it() {
    // How long the copy takes: it ends before, in and after the steps of a merge.
    for count in (768..=2304).step_by(256) {
        let rig = hook::Rig::new(256 << 20, 256 << 10);
        let pool = rig.open();
        let volume = damage::volume(&pool, "v", Granularity::OnDemand);
        volume.resize(count * BLOCK).expect("larger");
        let write = |byte: u8, count: u64| {
            let bytes = vec![byte; (count * BLOCK) as usize];
            volume.write_batch(&[WriteOp::Data { offset: 0, bytes: &bytes }]).expect("written")
        };
        let step = |bytes| pool.step(Budget { bytes }).expect("a step");
        write(1, count);
        volume.create_version("").expect("captured");
        // As many runs of the map as there may be before some are joined.
        for turn in 0..9 {
            rig.clock.advance(6 * hook::SECOND_NS);
            step(1 << 20);
            write(turn + 2, 700);
            volume.create_version("").expect("captured");
        }
        rig.clock.advance(6 * hook::SECOND_NS);
        step(1 << 20);
        write(99, 700);
        let copy = pool.clone_as("v", &Moment::Version(0), "c", IN_FULL).expect("cloned");
        drop(volume);
        step(8 * BLOCK);
        pool.delete_volume("v").expect("deleted");
        rig.clock.advance(6 * hook::SECOND_NS);
        for _ in 0..1000 {
            step(8 * BLOCK);
        }
        assert_eq!(copy.import_info(), None, "all is copied");
        assert_eq!(hook::get(&copy, count - 1), 1);
        pool.verify_invariants().expect("sound");
        drop(copy);
        let pool = rig.kill(pool);
        assert_eq!(hook::get(&pool.volume("c").expect("there"), 7), 1);
        pool.verify_invariants().expect("sound");
    }
}

#[test]
fn a_pool_that_is_let_go_lets_its_device_go_though_much_is_under_way() {
    for architecture in Architecture::ALL {
        let rig = Rig::new();
        with_version(&rig, architecture);
        let volume = clone_in_full(&rig);
        rig.pool().step(Budget { bytes: 1 }).expect("stepped");
        assert!(volume.import_info().is_some(), "{architecture:?}: it is being copied");
        let forced = Deletion { force: true, ..Deletion::default() };
        rig.pool().remove_volume("v", forced).expect("in the trash");
        let media = Arc::clone(&rig.media);
        drop((volume, rig));
        assert_eq!(Arc::strong_count(&media), 1, "{architecture:?}");
    }
}

/// Pages of nothing but zeros cost a record for all of them, whatever else a volume holds.
#[test]
fn zeros_of_the_origin_cost_little_and_read_as_zeros_without_it() {
    for architecture in Architecture::ALL {
        let rig = Rig::new();
        let volume = rig.make("v", architecture, Granularity::EveryWrite);
        // Pages of 512 blocks: some with data, some zeros alone, the last one not whole.
        volume.resize(15 << 20).expect("larger");
        put(&volume, 3, 0x33, 1);
        put(&volume, 600, 0, 20);
        put(&volume, 2600, 0x44, 1);
        let mut expected = content(&volume);
        let volume = rig.pool().clone_as("v", &Moment::Latest, "c", IN_FULL).expect("cloned");
        put(&volume, 2000, 0x55, 1);
        expected[2000 * BLOCK as usize..][..BLOCK as usize].fill(0x55);
        rig.settle();
        assert_eq!(volume.import_info(), None);
        let copied = {
            let io = volume.info().expect("info").device_io;
            io.iter().find(|io| io.kind == IoKind::CopyWrite).expect("told").bytes
        };
        let is_logging = architecture == Architecture::Logging;
        assert!(!is_logging || copied < 10 * BLOCK, "{copied} bytes for two blocks");
        rig.pool().delete_volume("v").expect("deleted");
        rig.settle();
        drop(volume);
        assert!(content(&clone(&rig)) == expected, "{architecture:?}");
        rig.pool().verify_invariants().expect("all agree");
    }
}
