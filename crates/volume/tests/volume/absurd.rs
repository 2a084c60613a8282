//! Superblocks with a right checksum and absurd numbers: an error, or a pool, but never a panic.

use std::io::IoSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};

use block::BlockDevice;
use format::checksum::salted_crc;
use format::superblock::{COPY_OFFSETS, layout};
use hindsight_volume::{Budget, Granularity};

use crate::hook::{Rig, put};

const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    991,
    4097,
    1 << 18,
    (1 << 31) + 1,
    u32::MAX as u64,
    1 << 40,
    1 << 56,
    1 << 62,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// The checksum of a superblock.
fn crc(bytes: &[u8]) -> u32 {
    salted_crc(u32::from_le_bytes(*b"supr"), &[&bytes[..8], &bytes[12..]].concat())
}

#[test]
fn absurd_numbers_in_a_superblock_are_errors_and_no_panics() {
    let mut refused = 0;
    for field in layout::FIELDS.iter().filter(|field| field.name != "crc") {
        for number in NUMBERS {
            let rig = Rig::new(64 << 20, 256 << 10);
            let pool = rig.open();
            put(&crate::damage::volume(&pool, "v", Granularity::EveryWrite), 3, 1);
            pool.close().expect("closed");
            drop(pool);
            let mut sound = 0;
            for place in COPY_OFFSETS {
                let mut bytes = vec![0; layout::BYTES];
                rig.device.read_at(place, &mut bytes).expect("read");
                sound += usize::from(crc(&bytes).to_le_bytes() == bytes[8..12]);
                let wide = number.to_le_bytes();
                let wide = wide.iter().copied().cycle().take(field.bytes).collect::<Vec<_>>();
                bytes[field.offset..field.end()].copy_from_slice(&wide);
                let crc = crc(&bytes);
                bytes[8..12].copy_from_slice(&crc.to_le_bytes());
                rig.device.write_at(place, &[IoSlice::new(&bytes)]).expect("written");
            }
            assert_eq!(sound, 4, "all copies are there");
            rig.device.flush().expect("flushed");
            let use_it = || match rig.try_open(0) {
                Err(_) => true,
                Ok(pool) => {
                    let volumes = pool.volumes();
                    volumes.iter().for_each(|v| _ = v.read(0, &mut [0; 4096]));
                    let _ = pool.step(Budget { bytes: 1 << 20 });
                    let _ = (pool.status(), pool.space(), pool.close());
                    false
                }
            };
            let outcome = catch_unwind(AssertUnwindSafe(use_it));
            let Ok(was_refused) = outcome else { panic!("{} is {number}", field.name) };
            refused += usize::from(was_refused);
        }
    }
    assert!(refused > 50, "{refused} were refused");
}
