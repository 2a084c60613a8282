//! What deletes, reverts and expires is in the audit log (promise 10).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{BlockDevice, MediaDevice};
use env::{Clock, FileMedia, RealEntropy};
use hindsight_volume::{
    Budget, Encoding, EncodingChange, ErrorKind, Granularity, Machine, Pool, PoolFormat,
    PoolOptions, VolumeChange, VolumeSpec, WriteOp, on_behalf_of,
};
use units::{Moment, Seq, WallTime};

use crate::hook::{Rig, make, put};

const SECOND_NS: u64 = 1_000_000_000;

/// A clock that stands where it is put.
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.0.load(Ordering::Relaxed))
    }
    fn monotonic_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn deletes_reverts_and_expiry_are_in_the_audit_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let media = FileMedia::create(&directory.path().join("pool.img"), 256 << 20).expect("made");
    let device: Arc<dyn BlockDevice> = Arc::new(MediaDevice::new(Arc::new(media)));
    let clock = Arc::new(SetClock(AtomicU64::new(1_700_000_000 * SECOND_NS)));
    let machine =
        Machine { clock: Arc::clone(&clock) as _, entropy: Arc::new(RealEntropy::default()) };
    Pool::create(&device, &machine, &PoolFormat { zone_bytes: 1 << 20 }).expect("made");
    let pool = Pool::open(device, machine, PoolOptions::default()).expect("opened");
    let spec = VolumeSpec { window_ns: 10 * SECOND_NS, ..VolumeSpec::new("v", 1 << 20) };
    let volume = pool.create_volume(&spec).expect("made");
    let bytes = vec![7; 4096];
    for _ in 0..30 {
        clock.0.fetch_add(SECOND_NS, Ordering::Relaxed);
        volume.write_batch(&[WriteOp::Data { offset: 0, bytes: &bytes }]).expect("written");
    }
    while pool.step(Budget { bytes: 1 << 20 }).expect("stepped") {}
    let gone = volume.view(&Moment::Seq(Seq(3))).err().expect("seq 3 left the window");
    assert!(matches!(gone.kind, ErrorKind::OutsideWindow { .. }), "{gone:?}");
    volume.revert(&Moment::Seq(Seq(25)), false).expect("reverted");
    let version = volume.create_version("").expect("captured");
    volume.delete_version(version.number).expect("deleted");
    volume.create_mark("m", &Moment::Latest, true).expect("marked");
    volume.delete_mark("m").expect("deleted");
    drop(volume);
    pool.delete_volume("v").expect("deleted");
    let actions: Vec<String> =
        pool.audit(0, 100).expect("read").into_iter().map(|r| r.action).collect();
    for action in
        ["volume-create", "expire", "revert", "version-delete", "mark-delete", "volume-delete"]
    {
        assert!(actions.iter().any(|a| a == action), "{action} is missing of {actions:?}");
    }
    let numbers: Vec<u64> =
        pool.audit(0, 100).expect("read").into_iter().map(|r| r.number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "numbers only rise: {numbers:?}");
}

#[test]
fn an_hour_of_what_leaves_a_window_is_one_record_that_tells_all_of_it() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 10 * SECOND_NS);
    let write = |seconds: u64| {
        for second in 0..seconds {
            put(&volume, second % 64, second as u8);
            rig.clock.advance(SECOND_NS);
            while pool.step(Budget { bytes: 64 << 20 }).expect("stepped") {}
        }
    };
    let expired = || {
        let mut records = pool.audit(0, 10_000).expect("read");
        records.retain(|record| record.action == "expire");
        records
    };
    write(40);
    let one = expired();
    assert_eq!(one.len(), 1, "{one:?}");
    let horizon = |detail: &str| {
        let words = detail.strip_prefix("seqs 0 to ").expect("from the beginning").to_owned();
        words.split(' ').next().expect("a seq").parse::<u64>().expect("a number")
    };
    let first = horizon(&one[0].detail);
    assert!(first > 20 && one[0].detail.contains("; since 20"), "{one:?}");
    assert!(volume.view(&Moment::Seq(Seq(first))).is_err());
    assert!(volume.view(&Moment::Seq(Seq(first + 1))).is_ok(), "no more is told than has left");
    write(10);
    let same = expired();
    assert_eq!(same.len(), 1, "{same:?}");
    assert!(same[0].number > one[0].number && horizon(&same[0].detail) > first);
    rig.clock.advance(3600 * SECOND_NS);
    write(20);
    let two = expired();
    assert_eq!((two.len(), two[0].clone()), (2, same[0].clone()), "{two:?}");
    // Numbers that are not used any more end no page of what is read from the newest on.
    let all = pool.audit(0, 10_000).expect("read");
    let numbers = all.last().expect("some").number - all[0].number + 1;
    assert!(numbers > 2 * all.len() as u64, "{numbers} numbers, {} records", all.len());
    let mut read = pool.audit_newest(None, 2).expect("read");
    while let page @ [_, ..] =
        &pool.audit_newest(read.last().map(|record| record.number), 2).expect("read")[..]
    {
        assert!(page.len() == 2 || page[page.len() - 1] == all[0], "{page:?}");
        read.extend_from_slice(page);
    }
    read.reverse();
    assert_eq!(read, all);
}

#[test]
fn an_audit_record_names_its_caller_where_there_was_one() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 100 * SECOND_NS);
    put(&volume, 0, 1);
    let version = volume.create_version("").expect("captured");
    on_behalf_of("unix:7", Some("10.0.0.7:9"), || volume.delete_version(version.number))
        .expect("deleted");
    let panicked =
        std::panic::catch_unwind(|| on_behalf_of("unix:8", None, || panic!("on purpose")));
    assert!(panicked.is_err());
    drop(volume);
    pool.delete_volume("v").expect("deleted");
    drop(pool);
    let records = rig.open().audit(0, 100).expect("read");
    let caller = |action: &str| {
        let record = records.iter().find(|record| record.action == action).expect(action);
        (record.who.as_deref(), record.from.as_deref())
    };
    assert_eq!(caller("version-delete"), (Some("unix:7"), Some("10.0.0.7:9")));
    assert_eq!(caller("volume-create"), (None, None));
    assert_eq!(caller("volume-delete"), (None, None));
}

#[test]
fn whatever_is_lost_has_a_reason_in_the_audit_log() {
    let rig = Rig::new(64 << 20, 256 << 10);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 100 * SECOND_NS);
    let write = |turns: u64| {
        for turn in 0..turns {
            put(&volume, turn % 64, turn as u8);
            rig.clock.advance(SECOND_NS / 10);
        }
    };
    let step = || while pool.step(Budget { bytes: 64 << 20 }).expect("stepped") {};
    let set = |change: &VolumeChange| volume.change(change).expect("changed");
    write(2000);
    step();
    let encoding = EncodingChange { encoding: Some(Encoding::Xor), after_ns: Some(SECOND_NS) };
    set(&VolumeChange { encoding, window_ns: Some(1 << 60), ..VolumeChange::default() });
    write(3000);
    rig.clock.advance(100 * SECOND_NS);
    step();
    let limit = Some(Some(1));
    set(&VolumeChange { history_limit_bytes: limit, grace_ns: Some(0), ..VolumeChange::default() });
    step();
    set(&VolumeChange { history_limit_bytes: Some(None), ..VolumeChange::default() });
    let version = volume.create_version("").expect("captured");
    volume.delete_version(version.number).expect("deleted");
    let encoding = EncodingChange { encoding: Some(Encoding::Raw), after_ns: None };
    set(&VolumeChange { encoding, ..VolumeChange::default() });
    write(30_000);
    pool.delete_volume("v").expect("deleted");
    let records = pool.audit(0, 10_000).expect("read");
    for (action, reason) in [
        ("expire", "older than the window of 100s"),
        ("history-limit", "more history than the limit of 1 bytes"),
        ("sacrifice", "the pool was full, and this volume retained most"),
        ("encode", "versions in"),
        ("version-delete", "version 0"),
        ("volume-delete", "with its history"),
    ] {
        let mut found = records.iter().filter(|record| record.action == action).peekable();
        assert!(found.peek().is_some(), "{action} is missing");
        assert!(found.all(|one| one.volume == "v" && one.detail.contains(reason)), "{action}");
    }
}
