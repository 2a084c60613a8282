//! Ranges that are read and written while nobody else writes there.

use std::thread;

use hindsight_volume::{ErrorKind, Updated, Volume, WriteOp};
use units::{Moment, Seq};

use crate::groups::add;
use crate::hook::{Rig, get, put};

/// Where numbers are counted: across the edge of two blocks.
const COUNTED: u64 = 4096 - 2;
const THREADS: u32 = 4;
const TURNS: u32 = 60;

fn count(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

fn latest(volume: &std::sync::Arc<Volume>) -> Seq {
    volume.view(&Moment::Latest).expect("opened").resolved().seq
}

fn add_one(volume: &Volume) {
    let updated = volume.update(COUNTED, 4, &mut |bytes| {
        let next = count(bytes) + 1;
        bytes.copy_from_slice(&next.to_le_bytes());
        true
    });
    assert_eq!(updated.expect("updated"), Updated::Written);
}

#[test]
fn no_change_is_lost_between_the_read_and_the_write_of_another() {
    for cache_bytes in [0, 1 << 20] {
        let rig = Rig::new(64 << 20, 256 << 10);
        let pool = rig.open_with(16 << 20);
        let volume = add(&pool, "v", cache_bytes);
        thread::scope(|scope| {
            for index in 0..THREADS {
                let volume = &volume;
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        add_one(volume);
                        // Others write to the same blocks.
                        let bytes = [turn as u8; 16];
                        let offset = 4096 + 512 * u64::from(index + 1);
                        let op = WriteOp::Data { offset, bytes: &bytes };
                        volume.write_batch(&[op]).expect("written");
                    }
                });
            }
        });
        let mut bytes = [0; 4];
        volume.read(COUNTED, &mut bytes).expect("read");
        assert_eq!(count(&bytes), THREADS * TURNS, "with a cache of {cache_bytes} bytes");
        let mut last = [0; 16];
        for index in 0..u64::from(THREADS) {
            volume.read(4096 + 512 * (index + 1), &mut last).expect("read");
            assert_eq!(last, [TURNS as u8 - 1; 16]);
        }
    }
}

#[test]
fn what_is_not_wanted_is_not_written() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open_with(16 << 20);
    let volume = add(&pool, "v", 0);
    put(&volume, 3, 7);
    let before = latest(&volume);
    let refused = volume.update(3 * 4096, 512, &mut |bytes| {
        assert!(bytes.iter().all(|&byte| byte == 7));
        bytes.fill(9);
        false
    });
    assert_eq!(refused.expect("read"), Updated::Unchanged);
    assert_eq!((get(&volume, 3), latest(&volume)), (7, before));
    let error = volume.update(u64::MAX - 100, 512, &mut |_| true).expect_err("beyond the end");
    assert_eq!(error.kind, ErrorKind::OutOfBounds);
    let error = volume.update(0, 128 << 10, &mut |_| true).expect_err("too long");
    assert_eq!(error.kind, ErrorKind::Invalid);
}
