//! What the integrity layer makes of what is below it: of one copy, and of two that differ.

use std::io::IoSlice;
use std::sync::Arc;

use format::integrity::GROUPS_OFFSET;
use hindsight_block::{
    BlockDevice, DeviceErrorKind, IntegrityDevice, IntegrityOptions, Ledger, MediaDevice,
};
use sim::{Keep, SimMedia, Trick};

use crate::pair::Pair;

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

/// After a crash one copy may have what was flushed last, and the other what was there before. One
/// that is right is not enough: the device that has it may fail next.
#[test]
fn what_was_in_flight_is_settled_on_all_copies_also_where_the_first_is_right() {
    for lost in [0, 1] {
        let pair = Pair::new(Integrity::bytes_below(LEN), 5);
        let below: Device = Arc::<Pair>::clone(&pair);
        IntegrityDevice::format(&below, 99).expect("room for it");
        let device = open(below);
        write(&device, 0, &[1; 3 * 4096]);
        device.flush().expect("flushed");
        write(&device, BLOCK, &[2; 4096]);
        let pages = pair.media[lost].unsynced().len();
        // The flush writes the page; then the power goes, and one device has only that.
        pair.media[0].halt_after(1);
        device.flush().expect_err("halted");
        pair.media[lost].crash_with(&mut |change, _| match change < pages {
            true => Keep::Nothing,
            false => Keep::All,
        });
        pair.media[1 - lost].crash_with(&mut |_, _| Keep::All);
        let device = open(Arc::<Pair>::clone(&pair));
        let mut buffer = [0; 3 * 4096];
        device.read_at(0, &mut buffer).expect("read");
        assert_eq!(buffer[4096..8192], [2; 4096]);
        for media in &pair.media {
            let mut there = [0; 4096];
            env::Media::read_at(&**media, place(1), &mut there).expect("read");
            assert_eq!(there, [2; 4096], "{lost} lost it");
        }
    }
}
