//! Delay, fault and tap: they pass on what redundancy needs, and do to it what they do.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hindsight_block::{
    BlockDevice, DelayDevice, Delays, DeviceErrorKind, Effect, FaultDevice, FaultPlan, FaultRule,
    Operation, Outcome, Pause, Resync, Tap, TapDevice,
};

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

fn a_tap() -> (Arc<Tap>, Arc<sim::SimClock>) {
    (Arc::new(Tap::new(9)), Arc::new(sim::SimClock::new(units::WallTime::EPOCH)))
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
    let delays = Delays { read_ns: 0, ..Delays::all(5) };
    let device = DelayDevice::new(Pair::new(LEN, 1), delays, Arc::new(|_| {}));
    assert!(device.try_read_at(0, &mut [0; 8]).unwrap());
}

#[test]
fn layers_that_pass_on_pass_on_what_redundancy_needs() {
    let (tap, clock) = a_tap();
    type Layer = fn(Arc<Pair>, Arc<Tap>, Arc<sim::SimClock>) -> Box<dyn BlockDevice>;
    let layers: [Layer; 3] = [
        |pair, tap, clock| Box::new(TapDevice::new(pair, tap, clock)),
        |pair, _, _| Box::new(FaultDevice::new(pair, Arc::default(), Arc::new(|_| {}))),
        |pair, _, _| Box::new(DelayDevice::new(pair, Delays::all(1), Arc::new(|_| {}))),
    ];
    for layer in layers {
        let pair = Pair::new(LEN, 2);
        let device = layer(Arc::clone(&pair), Arc::clone(&tap), Arc::clone(&clock));
        device.write_durable(4096, &[IoSlice::new(&[7; 4096])]).unwrap();
        assert_eq!(pair.durable_writes.load(Ordering::Relaxed), 1);
        assert_eq!(device.copies(0, LEN), 2);
        pair.rot(0, 4100);
        let mut buffer = [0; 4096];
        device.read_copy(1, 4096, &mut buffer).unwrap();
        assert_eq!(buffer, [7; 4096], "{} reads the copy that was asked for", device.describe());
        buffer.fill(0);
        device.read_way(1, 4096, &mut buffer).unwrap();
        assert!(device.ways() == 2 && buffer == [7; 4096], "{}: the way", device.describe());
        let right = |bytes: &[u8]| bytes == [7; 4096];
        assert_eq!(device.heal(4096, &mut buffer, &right).unwrap(), Outcome::Recovered);
        pair.rot(1, 4100);
        device.resync(4096, 4096, Resync::All).unwrap();
        device.read_copy(1, 4096, &mut buffer).unwrap();
        assert_eq!(buffer, [7; 4096], "{} passes a resync on", device.describe());
    }
}

#[test]
fn a_tap_records_durable_writes_and_what_is_read_to_heal() {
    let (tap, clock) = a_tap();
    let device = TapDevice::new(Pair::new(LEN, 3), Arc::clone(&tap), clock);
    device.write_durable(512, &[IoSlice::new(&[1; 100])]).unwrap();
    device.read_copy(1, 512, &mut [0; 50]).unwrap();
    device.heal(512, &mut [0; 25], &|_| true).unwrap();
    device.resync(0, 4096, Resync::All).unwrap();
    let seen: Vec<_> =
        tap.take_trace().iter().map(|r| (r.operation, r.offset, r.length_bytes)).collect();
    let expected =
        [(Operation::Write, 512, 100), (Operation::Read, 512, 50), (Operation::Read, 512, 25)];
    assert_eq!(seen, expected);
}

#[test]
fn rules_strike_durable_writes_copies_healing_and_resyncs_before_they_reach_what_lies_below() {
    let plan = Arc::new(FaultPlan::default());
    let pair = Pair::new(LEN, 4);
    let device = FaultDevice::new(Arc::clone(&pair), Arc::clone(&plan), Arc::new(|_| {}));
    let strike = |operation, kind| {
        plan.clear();
        plan.add(FaultRule {
            operation: Some(operation),
            range: None,
            after: 0,
            times: None,
            effect: Effect::Fail(kind),
        });
    };
    for operation in [Operation::Write, Operation::Flush] {
        strike(operation, DeviceErrorKind::Io);
        let error = device.write_durable(0, &[IoSlice::new(&[1; 8])]).unwrap_err();
        assert_eq!((error.kind, error.operation), (DeviceErrorKind::Io, operation));
        assert_eq!(pair.durable_writes.load(Ordering::Relaxed), 0);
    }
    strike(Operation::Write, DeviceErrorKind::Io);
    assert!(device.resync(0, 512, Resync::All).is_err());
    assert_eq!(pair.resyncs.load(Ordering::Relaxed), 0);
    strike(Operation::Read, DeviceErrorKind::Corrupt);
    let error = device.read_copy(1, 0, &mut [0; 8]).unwrap_err();
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    assert!(device.heal(0, &mut [0; 8], &|_| true).is_err());
    assert_eq!(pair.ledger.data_ios.load(Ordering::Relaxed), 0);
}
