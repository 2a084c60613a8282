//! Map extents of more than a block: what is kept in them, and what stays as it was.

use std::sync::Arc;

use hindsight_volume::{
    Architecture, Budget, CacheChange, CloneSpec, Granularity, Volume, WriteOp,
};
use units::{MapExtent, Moment};

use crate::cached::{Rig, Wish};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 512;
const PLAIN: Wish = (
    Architecture::Logging,
    Granularity::EveryWrite,
    CacheChange { bytes: Some(0), dirty_percent: None },
);

fn write(volume: &Volume, block: u64, blocks: u64, byte: u8) {
    let bytes = vec![byte; (blocks * BLOCK) as usize];
    volume.write_batch(&[WriteOp::Data { offset: block * BLOCK, bytes: &bytes }]).expect("written");
}

fn content(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xee; (BLOCKS * BLOCK) as usize];
    volume.read(0, &mut bytes).expect("read");
    bytes
}

fn settle(rig: &Rig) {
    while rig.pool().step(Budget { bytes: 1 << 20 }).expect("step") {}
    rig.pool().verify_invariants().expect("its parts agree");
}

fn restart(rig: &mut Rig, volume: Arc<Volume>) -> Arc<Volume> {
    let name = volume.name().to_owned();
    rig.pool().close().expect("closed");
    drop(volume);
    rig.open(16 << 20);
    rig.pool().volume(&name).expect("there")
}

#[test]
fn a_volume_says_how_large_its_extents_are() {
    let mut rig = Rig::new();
    rig.make("plain", PLAIN);
    rig.extent = MapExtent::ALL[1];
    rig.make("large", PLAIN);
    let info = |name: &str| rig.pool().volume(name).expect("there").info().expect("info");
    assert_eq!(info("plain").extent, MapExtent::BLOCK);
    assert_eq!(info("large").extent.bytes(), 8192);
}

#[test]
fn a_clone_may_have_another_extent_than_what_it_came_from() {
    for (origin, clone) in [(0, 4), (4, 0), (3, 1)] {
        let mut rig = Rig::new();
        rig.extent = MapExtent::ALL[origin];
        let volume = rig.make("v", PLAIN);
        write(&volume, 0, BLOCKS, 1);
        (0..60).for_each(|i| write(&volume, i * 37 % BLOCKS, 1, 2));
        settle(&rig);
        let expected = content(&volume);
        let spec = CloneSpec { extent: Some(MapExtent::ALL[clone]), ..CloneSpec::default() };
        let made = rig.pool().clone_as("v", &Moment::Latest, "c", spec).expect("made");
        assert_eq!(made.info().expect("info").extent, MapExtent::ALL[clone]);
        let again = rig.pool().clone_volume("v", &Moment::Latest, "same").expect("made");
        assert_eq!(again.info().expect("info").extent, MapExtent::ALL[origin]);
        drop(again);
        assert!(content(&made) == expected);
        write(&made, 3, 40, 3);
        let mut expected_of_clone = expected.clone();
        expected_of_clone[3 * 4096..43 * 4096].fill(3);
        drop(volume);
        let made = restart(&mut rig, made);
        settle(&rig);
        assert!(content(&made) == expected_of_clone);
        assert!(content(&rig.pool().volume("v").expect("there")) == expected);
        assert_eq!(made.info().expect("info").extent, MapExtent::ALL[clone]);
    }
}

#[test]
fn the_map_of_what_was_written_in_order_takes_less_of_the_device_and_is_rebuilt_so() {
    let written = [0, 4].map(|extent| {
        let mut rig = Rig::new();
        rig.extent = MapExtent::ALL[extent];
        let volume = rig.make("v", PLAIN);
        (0..32).for_each(|i| write(&volume, i * 16, 16, i as u8));
        let expected = content(&volume);
        let mut volume = restart(&mut rig, volume);
        let before = volume.map_bytes() / 4096;
        drop(volume);
        rig.rebuild();
        volume = rig.pool().volume("v").expect("there");
        assert_eq!(volume.map_bytes() / 4096, before, "{}", rig.extent);
        assert!(content(&volume) == expected);
        before
    });
    assert_eq!(written, [3 + 2, 1 + 2], "512 entries, and 32 records of 84 bytes");
}
