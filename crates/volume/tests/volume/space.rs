//! Space: what is not needed is given back, and history goes before anybody hears "full".

use hindsight_volume::{Budget, Granularity, Pool, Volume, VolumeChange, VolumeSpec};

use crate::hook::{Rig, SECOND_NS, get, make, put};

const ALL: Budget = Budget { bytes: 64 << 20 };

fn step_all(pool: &Pool) {
    for _ in 0..10_000 {
        if !pool.step(ALL).expect("stepped") {
            return;
        }
    }
    panic!("background work never ends");
}

/// Overwrites the same 64 blocks until so many blocks were written, with background work.
fn churn(rig: &Rig, pool: &Pool, volume: &Volume, blocks: u64) {
    for turn in 0..blocks {
        put(volume, turn % 64, (turn % 251) as u8);
        rig.clock.advance(1_000_000);
        if turn % 100 == 99 {
            step_all(pool);
        }
    }
}

#[test]
fn a_volume_that_keeps_no_past_takes_no_space_for_it() {
    for granularity in [Granularity::OnDemand, Granularity::Interval(1000 * SECOND_NS)] {
        // A map flush takes four segments; nothing in the first three is needed by then.
        let rig = Rig::new(64 << 20, 256 << 10);
        let pool = rig.open();
        let volume = make(&pool, granularity, 3600 * SECOND_NS);
        churn(&rig, &pool, &volume, 6000);
        step_all(&pool);
        let used = pool.status().log_bytes;
        assert!(used <= 10 << 20, "{granularity:?}: {used} bytes of log for 256 KiB of data");
        pool.verify_invariants().expect("sound");
    }
}

#[test]
fn a_history_limit_holds_beside_old_data_that_is_still_there() {
    let rig = Rig::new(256 << 20, 1 << 20);
    let pool = rig.open();
    let volume = make(&pool, Granularity::EveryWrite, 1 << 60);
    for block in 64..1564 {
        put(&volume, block, 5);
    }
    let limit = VolumeChange {
        history_limit_bytes: Some(Some(4 << 20)),
        grace_ns: Some(0),
        ..VolumeChange::default()
    };
    volume.change(&limit).expect("limited");
    churn(&rig, &pool, &volume, 8000);
    step_all(&pool);
    let info = volume.info().expect("told");
    assert!(info.history_bytes <= 7 << 20, "{} bytes of history", info.history_bytes);
    assert!(info.history_bytes >= 1 << 20, "only {} bytes of history", info.history_bytes);
    let clone = pool.clone_volume("v", &units::Moment::Latest, "c").expect("cloned");
    churn(&rig, &pool, &clone, 6000);
    step_all(&pool);
    let info = clone.info().expect("told");
    assert!(info.history_bytes <= 7 << 20, "{} bytes of a clone's history", info.history_bytes);
    pool.verify_invariants().expect("sound");
}

#[test]
fn a_full_pool_gives_up_history_that_lies_among_living_blocks() {
    let rig = Rig::new(128 << 20, 1 << 20);
    let pool = rig.open();
    let spec = VolumeSpec { window_ns: 1 << 60, ..VolumeSpec::new("v", 64 << 20) };
    let volume = pool.create_volume(&spec).expect("made");
    // Every other block stays for ever, so that no segment is ever empty by itself, and all that
    // stays is more than the reserve.
    for block in 64..11_000 {
        put(&volume, block, 5);
        put(&volume, block % 64, 6);
        rig.clock.advance(1_000_000);
    }
    for turn in 0..12_000 {
        put(&volume, turn % 64, 7);
    }
    for block in (64..11_000).step_by(7) {
        assert_eq!(get(&volume, block), 5);
    }
    pool.verify_invariants().expect("sound");
}
