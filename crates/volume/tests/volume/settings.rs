//! Settings and size, changed together: all of it, or nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::Operation;
use hindsight_volume::{
    Architecture, CacheChange, EncodingChange, ErrorKind, Granularity, VolumeChange, WriteOp,
};

use crate::hook::{Rig, SECOND_NS, get, make, put};

const SMALL: u64 = 4 << 20;
const LARGE: u64 = 8 << 20;

#[test]
fn a_size_with_a_setting_that_is_refused_changes_nothing() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::OnDemand, 0);
    put(&volume, 2000, 7);
    let seq = volume.info().expect("told").latest.seq;
    let with = |change| VolumeChange { size_bytes: Some(SMALL), ..change };
    let cache = |bytes, dirty_percent| CacheChange { bytes, dirty_percent };
    let none = VolumeChange::default;
    let refused = [
        VolumeChange { granularity: Some(Granularity::Interval(0)), ..none() },
        VolumeChange { cache: cache(Some(1 << 50), None), ..none() },
        VolumeChange { cache: cache(Some(1 << 20), Some(101)), ..none() },
        VolumeChange { architecture: Some(Architecture::SplitStream), ..none() },
        VolumeChange {
            encoding: EncodingChange { encoding: None, after_ns: Some(1) },
            window_ns: Some(5),
            ..none()
        },
    ];
    for change in refused {
        let error = volume.change(&with(change.clone())).expect_err("it is refused");
        assert_eq!(error.kind, ErrorKind::Invalid, "{change:?}: {error}");
        let info = volume.info().expect("told");
        assert_eq!((info.size_bytes, info.latest.seq, info.window_ns), (LARGE, seq, 0));
        assert_eq!(get(&volume, 2000), 7, "{change:?}: nothing was cut off");
    }
    for size_bytes in [0, 511, 1 << 60] {
        let change = VolumeChange { size_bytes: Some(size_bytes), window_ns: Some(5), ..none() };
        volume.change(&change).expect_err("no size");
        assert_eq!(volume.info().expect("told").window_ns, 0);
    }
    let audit = pool.audit(0, 100).expect("read");
    let told = audit.iter().filter(|r| matches!(&*r.action, "resize" | "volume-set"));
    assert_eq!(told.count(), 0);
}

#[test]
fn a_size_that_is_smaller_by_now_is_refused_where_that_was_asked_for() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 0);
    put(&volume, 2000, 7);
    let to = |size_bytes| VolumeChange {
        size_bytes: Some(size_bytes),
        never_smaller: true,
        ..VolumeChange::default()
    };
    let error = volume.change(&to(SMALL)).expect_err("it is larger by now");
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    let seq = volume.info().expect("told").latest.seq;
    volume.change(&to(LARGE)).expect("as large as it is");
    let info = volume.info().expect("told");
    assert_eq!((info.size_bytes, info.latest.seq, get(&volume, 2000)), (LARGE, seq, 7));
    volume.change(&to(2 * LARGE)).expect("larger");
    assert_eq!(volume.info().expect("told").size_bytes, 2 * LARGE);
    let audit = pool.audit(0, 100).expect("read");
    let count = |action| audit.iter().filter(|r| r.action == action).count();
    assert_eq!((count("resize"), count("volume-set")), (1, 0));
}

#[test]
fn size_and_settings_change_together_and_stay() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open_with(64 << 20);
    let volume = make(&pool, Granularity::OnDemand, 0);
    put(&volume, 5, 3);
    put(&volume, 2000, 7);
    let change = VolumeChange {
        size_bytes: Some(SMALL),
        granularity: Some(Granularity::EveryWrite),
        window_ns: Some(60 * SECOND_NS),
        cache: CacheChange { bytes: Some(1 << 20), dirty_percent: None },
        ..VolumeChange::default()
    };
    volume.change(&change).expect("changed");
    drop(volume);
    let pool = rig.kill(pool);
    let volume = pool.volume("v").expect("there");
    let info = volume.info().expect("told");
    assert_eq!((info.size_bytes, info.granularity), (SMALL, Granularity::EveryWrite));
    assert_eq!((info.window_ns, info.cache.is_some()), (60 * SECOND_NS, true));
    assert_eq!(get(&volume, 5), 3);
    // The same again changes no size, and takes no seq.
    let again = VolumeChange { window_ns: Some(SECOND_NS), ..change };
    volume.change(&again).expect("changed");
    let now = volume.info().expect("told");
    assert_eq!((now.latest.seq, now.window_ns), (info.latest.seq, SECOND_NS));
    volume.resize(LARGE).expect("resized");
    assert_eq!(get(&volume, 2000), 0, "what was cut off reads as zeros");
}

/// Writers of parts of a block keep others away by a lock of the log or of the cache, whichever is
/// used: a cache that is switched on and off while one reads leaves it without either.
#[test]
fn a_cache_that_comes_and_goes_while_a_part_of_a_block_is_written_takes_no_other_write_away() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open_with(64 << 20);
    let volume = make(&pool, Granularity::EveryWrite, 0);
    put(&volume, 0, 1);
    volume.flush().expect("flushed");
    let cache = |bytes| {
        let cache = CacheChange { bytes: Some(bytes), dirty_percent: None };
        VolumeChange { cache, ..VolumeChange::default() }
    };
    let other = Arc::clone(&volume);
    let meets = AtomicBool::new(true);
    rig.device.hook(move |operation, _| {
        let is_writer = std::thread::current().name() == Some("writes a part");
        if operation == Operation::Read && is_writer && meets.swap(false, Ordering::SeqCst) {
            let other = Arc::clone(&other);
            let meanwhile = std::thread::spawn(move || {
                other.change(&cache(1 << 20)).expect("switched on");
                put(&other, 0, 3);
                other.change(&cache(0)).expect("switched off");
            });
            meanwhile.join().expect("it was done");
        }
    });
    let part = Arc::clone(&volume);
    let writer = std::thread::Builder::new().name("writes a part".to_owned()).spawn(move || {
        let op = WriteOp::Data { offset: 0, bytes: &[2; 512] };
        part.write_batch(&[op]).expect("written");
    });
    writer.expect("a thread").join().expect("it only writes");
    rig.device.unhook();
    let mut bytes = [0; 4096];
    volume.read(0, &mut bytes).expect("read");
    assert_eq!((bytes[0], bytes[511], bytes[512], bytes[4095]), (2, 2, 3, 3));
}
