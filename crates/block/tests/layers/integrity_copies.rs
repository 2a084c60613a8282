//! What the integrity layer makes of what is below it.

use std::io::IoSlice;
use std::sync::Arc;

use format::integrity::GROUPS_OFFSET;
use hindsight_block::{
    BlockDevice, DeviceErrorKind, IntegrityDevice, IntegrityOptions, Ledger, MediaDevice,
};
use sim::{SimMedia, Trick};

type Device = Arc<dyn BlockDevice>;
type Integrity = IntegrityDevice<Device>;

const BLOCK: u64 = 4096;
const LEN: u64 = 2000 * BLOCK;

fn open(below: Device) -> Integrity {
    IntegrityDevice::open(below, IntegrityOptions::default(), Arc::<Ledger>::default())
        .expect("an integrity device")
}

/// Where block `block` of the first group is below.
fn place(block: u64) -> u64 {
    GROUPS_OFFSET + (1 + block) * BLOCK
}

fn write(device: &Integrity, offset: u64, bytes: &[u8]) {
    device.write_at(offset, &[IoSlice::new(bytes)]).expect("a write");
}

#[test]
fn the_only_way_has_nothing_that_no_reader_gets() {
    let media = Arc::new(SimMedia::new(Integrity::bytes_below(LEN), 31));
    let below: Device = Arc::new(MediaDevice::new(Arc::<SimMedia>::clone(&media)));
    IntegrityDevice::format(&below, 99).expect("room for it");
    let device = open(below);
    write(&device, 0, &[1; 2 * 4096]);
    device.clean().expect("clean");
    media.rot(place(1) + 50, 3);
    let mut buffer = [0; 4096];
    device.read_way(0, 0, &mut buffer).expect("read");
    assert_eq!(buffer, [1; 4096]);
    let error = device.read_way(0, BLOCK, &mut buffer).expect_err("it is wrong");
    assert_eq!((device.ways(), error.kind), (1, DeviceErrorKind::Corrupt));
    media.trick(Trick::MisdirectRead(place(1)));
    device.read_way(0, 0, &mut buffer).expect("read again");
    assert_eq!(buffer, [1; 4096]);
}
