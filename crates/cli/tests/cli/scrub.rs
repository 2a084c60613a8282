//! Scrubs: of a mirror of which a side rots, and then both.

use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::fixture::{Fixture, run};

/// Flips a bit of the block that is full of a byte, in the file of a member.
fn rot(member: &Path, byte: u8) {
    let bytes = std::fs::read(member).expect("read");
    let is_block = |at: &usize| bytes[*at..at + 4096].iter().all(|b| *b == byte);
    let at = (0..bytes.len() - 4096).step_by(64).find(is_block).expect("it is there") + 100;
    let file = std::fs::File::options().write(true).open(member).expect("opened");
    file.write_all_at(&[byte ^ 4], at as u64).expect("written");
}

#[test]
fn a_mirror_is_scrubbed_and_what_is_wrong_is_healed_or_named() {
    let dir = tempfile::tempdir().expect("directory");
    let pool = dir.path().join("pool");
    let (at, stack) = (pool.to_str().expect("UTF-8"), "mirror(a.img, b.img)");
    let made = run(&["pool", "create", "--pool", at, "--stack", stack, "--size", "80MiB"]);
    assert_eq!(made.code, 0, "{made:?}");
    let fixture = Fixture::on(dir);
    assert!(!fixture.ok(&["pool", "status"]).contains("scrub"), "there was none yet");
    fixture.ok(&["volume", "create", "v", "--size", "1MiB"]);
    assert!(fixture.qemu_io("v", &["write -P 90 8k 4k", "write -P 91 16k 4k", "flush"]));
    let clean = fixture.run(&["pool", "scrub", "--wait", "--json"]).json();
    assert_eq!((&clean["state"], &clean["wrong"]), (&"done".into(), &0.into()), "{clean}");

    rot(&pool.join("a.img"), 90);
    rot(&pool.join("b.img"), 91);
    let healed = fixture.ok(&["pool", "scrub", "--wait"]);
    assert!(healed.contains("2 wrong, 2 healed, 0 lost"), "{healed}");
    assert!(fixture.qemu_io("v", &["read -P 90 8k 4k", "read -P 91 16k 4k"]));

    rot(&pool.join("a.img"), 90);
    rot(&pool.join("b.img"), 90);
    let lost = fixture.run(&["pool", "scrub", "--wait"]);
    assert_eq!(lost.code, 3, "{lost:?}");
    assert!(lost.out.contains("1 wrong, 0 healed, 1 lost\nlost: block 2 of v, seq "), "{lost:?}");
    let status = fixture.ok(&["pool", "status"]);
    assert!(status.contains("1 wrong, 0 healed, 1 lost"), "{status}");
    let audit = fixture.ok(&["pool", "audit"]);
    assert!(audit.contains("1 are lost: block 2 of v"), "{audit}");
    let metrics = fixture.http("/metrics");
    assert!(metrics.contains("hindsight_pool_scrub_lost 1\n"), "{metrics}");
    assert!(metrics.contains("hindsight_pool_scrub_repaired 0\n"), "{metrics}");
    assert!(metrics.contains("hindsight_pool_opening_seconds{phase=\"copies\"} 0"), "{metrics}");
    assert!(metrics.contains("hindsight_pool_opening_unsettled_bytes 0\n"), "{metrics}");
    let job = fixture.http("/api/v1/jobs");
    assert!(job.contains(r#""id":"scrub""#) && job.contains(r#""state":"done""#), "{job}");
}

#[test]
fn scrubs_come_by_a_schedule_and_are_stopped() {
    let fixture = Fixture::new();
    let none = fixture.run(&["pool", "scrub", "--stop"]);
    assert_eq!(none.code, 10, "{none:?}");
    assert_eq!(fixture.ok(&["pool", "scrub", "--every", "7d"]), "a scrub every 7d\n");
    let status = fixture.run(&["pool", "status", "--json"]).json();
    assert!(status["scrub_every"] == "7d" && status["scrub"].is_null(), "{status}");
    assert_eq!(fixture.run(&["pool", "scrub", "--every", "5s"]).code, 2, "too often");
    assert_eq!(fixture.ok(&["pool", "scrub", "--never"]), "a scrub only when asked for\n");
    let status = fixture.run(&["pool", "status", "--json"]).json();
    assert!(status["scrub_every"].is_null());
}

#[test]
fn rates_are_changed_while_the_server_runs() {
    let fixture = Fixture::new();
    let status = fixture.ok(&["pool", "status"]);
    assert!(!status.contains("rate"), "there is no limit: {status}");
    let set = fixture.ok(&["pool", "set", "--scrub-rate", "50MiB", "--rebuild-rate", "64KiB"]);
    assert!(set.contains("scrub rate") && set.contains("50 MiB a second"), "{set}");
    let status = fixture.run(&["pool", "status", "--json"]).json();
    assert_eq!(status["scrub_rate_bytes"], 50 << 20, "{status}");
    assert_eq!(status["rebuild_rate_bytes"], 64 << 10, "{status}");
    let metrics = fixture.http("/metrics");
    assert!(metrics.contains("hindsight_pool_scrub_rate_bytes 52428800\n"), "{metrics}");

    fixture.ok(&["pool", "set", "--scrub-rate", "none"]);
    let status = fixture.run(&["pool", "status", "--json"]).json();
    assert!(status["scrub_rate_bytes"].is_null(), "{status}");
    assert_eq!(status["rebuild_rate_bytes"], 64 << 10, "it was not named: {status}");
    let metrics = fixture.http("/metrics");
    assert!(metrics.contains("hindsight_pool_scrub_rate_bytes 0\n"), "{metrics}");
    let audit = fixture.ok(&["pool", "audit"]);
    assert!(audit.contains("scrub at most 50MiB a second, rebuild at most 64KiB"), "{audit}");
    for wrong in [&["pool", "set"][..], &["pool", "set", "--scrub-rate", "soon"]] {
        assert_eq!(fixture.run(wrong).code, 2, "{wrong:?}");
    }
    for little in ["1KiB", "0"] {
        let refused = fixture.run(&["pool", "set", "--scrub-rate", little]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.err.contains("no limit"), "what else to give: {refused:?}");
    }
}
