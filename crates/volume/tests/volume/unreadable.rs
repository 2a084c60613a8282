//! Packs on a device with a place that cannot be read.

use std::io::IoSlice;
use std::sync::Arc;

use block::{BlockDevice, DeviceError, DeviceErrorKind, MemoryDevice, Operation};
use hindsight_volume::{
    Budget, Encoding, EncodingChange, Granularity, Pool, PoolFormat, VolumeChange,
};
use units::{Moment, Seq};

use crate::golden::{BLOCK, DEVICE_BYTES, SECOND_NS, clock, machine, make, open, write};

/// A device with a place that cannot be read.
struct Unreadable {
    below: Arc<dyn BlockDevice>,
    place: u64,
}

impl BlockDevice for Unreadable {
    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> block::Result<()> {
        if (offset..offset + buffer.len() as u64).contains(&self.place) {
            let range = (offset, buffer.len() as u64);
            let kind = DeviceErrorKind::Io;
            return Err(DeviceError::new(kind, Operation::Read, range, self.describe(), "rot"));
        }
        self.below.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> block::Result<()> {
        self.below.write_at(offset, slices)
    }
    fn flush(&self) -> block::Result<()> {
        self.below.flush()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> block::Result<()> {
        self.below.allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> block::Result<()> {
        self.below.discard(offset, length_bytes)
    }
    fn describe(&self) -> String {
        self.below.describe()
    }
}

#[test]
fn a_pack_that_cannot_be_read_takes_none_of_those_before_it_along() {
    const BLOCKS: u64 = 50;
    const WRITES: u64 = 6 * BLOCKS;
    let below: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let clock = clock(1_800_000_000);
    Pool::create(&below, &machine(&clock, 1), &PoolFormat { zone_bytes: 256 << 10 }).expect("made");
    let pool = open(&below, machine(&clock, 2));
    let volume = make(&pool, "v", Granularity::EveryWrite);
    let encoding = EncodingChange { encoding: Some(Encoding::Xor), after_ns: Some(SECOND_NS) };
    volume.change(&VolumeChange { encoding, ..VolumeChange::default() }).expect("changed");
    (0..WRITES).for_each(|i| write(&volume, &clock, i % BLOCKS * BLOCK, BLOCK, 100 + i));
    clock.advance(61 * SECOND_NS);
    while pool.step(Budget { bytes: 1 << 20 }).expect("a step") {}
    pool.close().expect("closed");
    drop((volume, pool));
    let mut image = vec![0; usize::try_from(DEVICE_BYTES).expect("small")];
    below.read_at(0, &mut image).expect("read");
    let packs: Vec<usize> =
        (0..image.len()).step_by(64).filter(|&at| image[at..].starts_with(b"HPACKVER")).collect();
    let mut lost = 0;
    for pair in packs.windows(2).filter(|pair| pair[1] - pair[0] < 16 << 10) {
        let device = Unreadable { below: Arc::clone(&below), place: pair[1] as u64 };
        let pool = open(&(Arc::new(device) as _), machine(&clock, 3));
        let volume = pool.volume("v").expect("there");
        let mut failed = 0;
        for seq in 1..=WRITES {
            let view = volume.view(&Moment::Seq(Seq(seq))).expect("a view");
            let mut found = [0; 8];
            match view.read((seq - 1) % BLOCKS * BLOCK, &mut found) {
                Ok(()) => assert_eq!(u64::from_le_bytes(found), 99 + seq),
                Err(_) => failed += 1,
            }
        }
        // One that nothing names any more loses nothing.
        assert!(failed == 0 || failed == image[pair[1] + 14], "{failed} versions");
        lost += u64::from(failed);
    }
    assert!(lost > 0, "no pack that is in use lies right behind another");
}
