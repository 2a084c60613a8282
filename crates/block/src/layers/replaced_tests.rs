//! A device that takes the place of another while somebody reads there.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Keeper, Layout, MemoryDevice, MirrorDevice, ParityDevice, Setting, Side, Standing};
use crate::{BlockDevice, DeviceError, InTurn, Result};

const BYTES: u64 = 1 << 20;

/// The first member is replaced when it is read next.
#[derive(Default)]
struct House {
    is_about_to: AtomicBool,
    absences: AtomicU64,
    is_stale: AtomicBool,
}

impl Keeper for House {
    fn standing(&self, members: &[usize]) -> Standing {
        let is_stale = members.contains(&0) && self.is_stale.load(Ordering::SeqCst);
        if is_stale { Standing::Stale } else { Standing::In }
    }
    fn put_out(&self, members: &[usize], failure: &DeviceError) -> Result<()> {
        panic!("{members:?} should stay: {failure}");
    }
    fn note_failed_read(&self, _members: &[usize], _failure: &DeviceError) {}
    fn absences(&self, members: &[usize]) -> u64 {
        if members.contains(&0) { self.absences.load(Ordering::SeqCst) } else { 0 }
    }
    fn is_unsettled(&self) -> bool {
        false
    }
}

/// The place of a member: what is there when the read gets there is blank.
struct Place {
    house: Arc<House>,
    device: MemoryDevice,
}

impl BlockDevice for Place {
    fn len_bytes(&self) -> u64 {
        BYTES
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if self.house.is_about_to.swap(false, Ordering::SeqCst) {
            self.house.is_stale.store(true, Ordering::SeqCst);
            self.house.absences.fetch_add(1, Ordering::SeqCst);
        }
        if self.house.is_stale.load(Ordering::SeqCst) {
            buffer.fill(0xee);
            return Ok(());
        }
        self.device.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.device.write_at(offset, slices)
    }
    fn flush(&self) -> Result<()> {
        self.device.flush()
    }
    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.device.allocate(offset, length_bytes)
    }
    fn discard(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.device.discard(offset, length_bytes)
    }
    fn describe(&self) -> String {
        "place".to_owned()
    }
}

type Made = (Arc<House>, Box<dyn BlockDevice>);

/// A mirror or a parity of three, the first of which can be replaced.
fn made(is_parity: bool) -> Made {
    let house = Arc::new(House::default());
    let device = |number| -> Arc<dyn BlockDevice> {
        let device = MemoryDevice::new(BYTES);
        match number {
            0 => Arc::new(Place { house: Arc::clone(&house), device }),
            _ => Arc::new(device),
        }
    };
    let devices: Vec<Arc<dyn BlockDevice>> = (0..3).map(device).collect();
    let side = |(number, device): (usize, &Arc<dyn BlockDevice>)| Side {
        device: Arc::clone(device),
        members: vec![number],
    };
    let sides = devices.iter().enumerate().map(side).collect();
    let keeper = Arc::<House>::clone(&house) as Arc<dyn Keeper>;
    let (ledger, together) = (Arc::default(), Arc::new(InTurn));
    let setting = Setting { keeper, ledger, together, depth: 0 };
    if !is_parity {
        return (house, Box::new(MirrorDevice::new(sides, setting)));
    }
    let layout = Layout { sides: 3, parities: 1, chunk_bytes: 4096, slot_bytes: 65_536 };
    ParityDevice::format(&devices, layout, 1).expect("a journal");
    let device = ParityDevice::open(sides, layout, 1, setting).expect("a parity");
    (house, Box::new(device))
}

#[test]
fn what_took_the_place_of_a_member_meanwhile_is_not_what_is_read() {
    type Request = fn(&dyn BlockDevice, &mut [u8]);
    let requests: [Request; 4] = [
        |device, buffer| device.read_at(0, buffer).expect("a read"),
        |device, buffer| {
            if !device.try_read_at(0, buffer).expect("a read") {
                device.read_at(0, buffer).expect("a read");
            }
        },
        |device, buffer| {
            if device.read_copy(0, 0, buffer).is_err() {
                device.read_copy(0, 0, buffer).expect("another copy");
            }
        },
        |device, buffer| {
            let is_right = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 7);
            device.heal(0, buffer, &is_right).expect("readable");
        },
    ];
    for (is_parity, request) in [false, true].iter().flat_map(|p| requests.map(|r| (*p, r))) {
        let (house, device) = made(is_parity);
        device.write_at(0, &[IoSlice::new(&[7; 8192])]).expect("a write");
        house.is_about_to.store(true, Ordering::SeqCst);
        let mut buffer = vec![0; 4096];
        request(&*device, &mut buffer);
        assert!(house.is_stale.load(Ordering::SeqCst), "the first member was asked");
        assert_eq!(buffer, [7; 4096], "parity: {is_parity}");
    }
}
