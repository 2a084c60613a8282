//! The delay layer: it passes on what redundancy needs, and makes it wait.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hindsight_block::{BlockDevice, DelayDevice, Delays, Outcome, Pause, Resync};

use crate::pair::Pair;

const LEN: u64 = 1 << 20;

fn counting_pause() -> (Arc<AtomicU64>, Pause) {
    let waited = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&waited);
    let pause: Pause = Arc::new(move |ns| {
        counter.fetch_add(ns, Ordering::SeqCst);
    });
    (waited, pause)
}

#[test]
fn every_request_waits_its_time_and_a_read_that_may_not_is_told_so() {
    let (waited, pause) = counting_pause();
    let delays = Delays { read_ns: 1, write_ns: 100, flush_ns: 10_000 };
    let device = DelayDevice::new(Pair::new(LEN, 1), delays, pause);
    let waits = |request: &mut dyn FnMut()| {
        waited.store(0, Ordering::SeqCst);
        request();
        waited.load(Ordering::SeqCst)
    };
    let mut buffer = [0; 16];
    let ones = [1; 16];
    assert_eq!(waits(&mut || device.write_at(0, &[IoSlice::new(&ones)]).unwrap()), 100);
    assert_eq!(waits(&mut || device.read_at(0, &mut buffer).unwrap()), 1);
    assert_eq!(buffer, ones);
    assert_eq!(waits(&mut || assert!(!device.try_read_at(0, &mut buffer).unwrap())), 0);
    assert_eq!(waits(&mut || device.flush().unwrap()), 10_000);
    let durable = &mut || device.write_durable(0, &[IoSlice::new(&ones)]).unwrap();
    assert_eq!(waits(durable), 10_100);
    assert_eq!(waits(&mut || device.allocate(0, 16).unwrap()), 100);
    assert_eq!(waits(&mut || device.discard(64, 16).unwrap()), 100);
    assert_eq!(waits(&mut || device.read_copy(1, 0, &mut buffer).unwrap()), 1);
    assert_eq!(waits(&mut || device.resync(0, 16, Resync::All).unwrap()), 100);
    let heal = &mut || assert!(device.heal(0, &mut buffer, &|_| true).is_ok());
    assert_eq!(waits(heal), 1);
    assert_eq!(device.describe(), "delay[read=1ns,write=100ns,flush=10000ns](pair)");
}

#[test]
fn without_a_delay_of_reads_they_need_not_wait() {
    let delays = Delays { read_ns: 0, write_ns: 5, flush_ns: 5 };
    let device = DelayDevice::new(Pair::new(LEN, 1), delays, Arc::new(|_| {}));
    assert!(device.try_read_at(0, &mut [0; 8]).unwrap());
}

#[test]
fn what_redundancy_needs_is_passed_on() {
    let pair = Pair::new(LEN, 2);
    let delays = Delays { read_ns: 1, write_ns: 1, flush_ns: 1 };
    let device = DelayDevice::new(Arc::<Pair>::clone(&pair), delays, Arc::new(|_| {}));
    device.write_durable(4096, &[IoSlice::new(&[7; 4096])]).unwrap();
    assert_eq!(pair.durable_writes.load(Ordering::Relaxed), 1);
    assert_eq!(device.copies(0, LEN), 2);
    pair.rot(0, 4100);
    let mut buffer = [0; 4096];
    device.read_copy(1, 4096, &mut buffer).unwrap();
    assert_eq!(buffer, [7; 4096], "the copy that was asked for");
    buffer.fill(0);
    device.read_way(1, 4096, &mut buffer).unwrap();
    assert!(device.ways() == 2 && buffer == [7; 4096], "the way");
    let right = |bytes: &[u8]| bytes == [7; 4096];
    assert_eq!(device.heal(4096, &mut buffer, &right).unwrap(), Outcome::Recovered);
    pair.rot(1, 4100);
    device.resync(4096, 4096, Resync::All).unwrap();
    device.read_copy(1, 4096, &mut buffer).unwrap();
    assert_eq!(buffer, [7; 4096], "a resync is passed on");
}
