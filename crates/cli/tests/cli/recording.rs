//! A live volume is recorded, measured and advised on.

use std::path::Path;

use crate::fixture::{Fixture, Ran, run};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Records until `work` has made the recording end.
fn while_recorded<T>(server: &Fixture, file: &Path, work: impl FnOnce() -> T) -> (Ran, T) {
    let api = server.server();
    std::thread::scope(|scope| {
        let recording = scope.spawn(|| {
            let what = ["trace", "record", "seen", text(file), "--for", "1h", "--json"];
            run(&[&what[..], &["--server", &api]].concat())
        });
        while !server.http("/metrics").contains("hindsight_trace_recordings 1") {
            assert!(!recording.is_finished(), "it ended too early");
        }
        let done = work();
        (recording.join().expect("no panic"), done)
    })
}

#[test]
fn a_live_volume_is_recorded_and_the_record_is_what_was_asked() {
    let server = Fixture::new();
    server.ok(&["volume", "create", "seen", "--size", "64MiB"]);
    server.ok(&["volume", "create", "unseen", "--size", "64MiB"]);
    let file = server.path("record");
    let (ran, ()) = while_recorded(&server, &file, || {
        assert!(server.qemu_io("unseen", &["write 0 64k"]));
        assert!(server.qemu_io("seen", &["write 8k 4k", "read 0 64k", "write -z 1M 1M", "flush"]));
        assert!(server.qemu_io("seen@latest", &["read 0 4k"]));
        // The recording of a volume ends with it.
        server.ok(&["volume", "delete", "seen"]);
    });
    let recorded = ran.json();
    assert_eq!((&recorded["writes"], &recorded["lost"]), (&1.into(), &0.into()), "{recorded}");
    let summary = run(&["trace", "summarise", text(&file), "--json"]).json();
    assert_eq!(summary["devices"][0]["name"], "seen");
    let kind = |name: &str| {
        let kinds = summary["kinds"].as_array().expect("a list");
        kinds.iter().find(|kind| kind["kind"] == name).expect("a kind").clone()
    };
    assert_eq!(kind("write")["bytes"], 4096, "{summary}");
    assert_eq!(kind("read")["bytes"], 65_536, "and nothing of views: {summary}");
    assert_eq!(kind("zero")["bytes"], 1 << 20, "{summary}");
    assert!(kind("flush")["requests"].as_u64().expect("a number") >= 1, "{summary}");
    let model = run(&["model", "show", text(&file), "--json"]).json();
    assert_eq!(model["writes"], 1, "{model}");
    assert!(server.http("/metrics").contains("hindsight_trace_recordings 0"));

    let record = |name: &str, file: &Path, how: [&str; 2]| {
        server.run(&["trace", "record", name, text(file), how[0], how[1]])
    };
    let again = record("unseen", &file, ["--for", "1s"]);
    assert_eq!(again.code, 1, "it exists: {again:?}");
    let other = server.path("other");
    assert_eq!(record("nobody", &other, ["--for", "1s"]).code, 10);
    assert_eq!(record("unseen", &other, ["--for", "8d"]).code, 2);
    assert_eq!(record("unseen", &other, ["--limit", "1KiB"]).code, 2);
    assert!(!other.exists() && !server.path("other.part").exists());
    assert_eq!(record("unseen", &other, ["--for", "1ms"]).code, 0);
    assert_eq!(server.stop().0, 0);
}

#[test]
fn a_server_that_stops_ends_recordings_as_they_should_end() {
    let server = Fixture::new();
    server.ok(&["volume", "create", "seen", "--size", "64MiB"]);
    let file = server.path("record");
    let (ran, ()) = while_recorded(&server, &file, || server.signal("TERM"));
    assert_eq!(ran.code, 0, "whole, with an end: {ran:?}");
    assert_eq!(server.ended().0, 0);
}

#[test]
fn what_came_before_a_server_was_killed_is_kept() {
    let server = Fixture::new();
    server.ok(&["volume", "create", "seen", "--size", "64MiB"]);
    let file = server.path("record");
    let (ran, ()) = while_recorded(&server, &file, || {
        assert!(server.qemu_io("seen", &["write 8k 4k"]));
        while !file.with_extension("part").metadata().is_ok_and(|part| part.len() > 100) {
            std::thread::yield_now();
        }
        server.signal("KILL");
    });
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("broke off") && ran.err.contains("end"), "{ran:?}");
    assert_eq!(run(&["trace", "summarise", text(&file), "--json"]).code, 3);
}

#[test]
fn a_live_volume_is_modelled_and_advised_on_and_another_made_like_it() {
    let server = Fixture::new();
    server.ok(&["volume", "create", "used", "--size", "64MiB"]);
    let none = server.run(&["model", "advise", "used"]);
    assert_eq!(none.code, 1, "{none:?}");
    assert!(none.err.contains("hint: let its clients work"), "{none:?}");
    let file = server.path("record");
    let api = server.server();
    let ran = std::thread::scope(|scope| {
        let recording = scope
            .spawn(|| server.run(&["trace", "record", "used", text(&file), "--limit", "4KiB"]));
        while !server.http("/metrics").contains("hindsight_trace_recordings 1") {
            assert!(!recording.is_finished(), "it ended too early");
        }
        let writes: Vec<String> =
            (0..1200).map(|number| format!("write {}k 4k", number % 50 * 4)).collect();
        assert!(server.qemu_io("used", &writes.iter().map(String::as_str).collect::<Vec<_>>()));
        recording.join().expect("no panic")
    });
    assert_eq!(ran.code, 0, "{ran:?}");
    let model: serde_json::Value =
        serde_json::from_str(&server.ok(&["model", "show", "used", "--json"])).expect("JSON");
    assert_eq!((&model["writes"], &model["extents"]), (&1200.into(), &50.0.into()), "{model}");
    let shown = server.ok(&["model", "show", "used", "--granularity", "1min"]);
    assert!(shown.contains("writes") && shown.contains("1min"), "{shown}");
    let advice = server.ok(&["model", "advise", "used", "--cache", "0", "--window", "1h"]);
    assert!(advice.contains("logging") && advice.contains("Because:"), "{advice}");
    // Both prices are there, and the command works as it stands.
    assert!(advice.contains("by the paper's formula"), "{advice}");
    let command = advice.lines().find_map(|line| line.trim().strip_prefix("hindsight "));
    let command: Vec<&str> = command.expect("a command to paste").split(' ').collect();
    assert_eq!(command[..3], ["volume", "set", "used"], "{advice}");
    server.ok(&command);
    // A file of that name comes first, unless told otherwise.
    let in_dir = |arguments: &[&str]| {
        let mut command = crate::fixture::hindsight();
        command.args(arguments).env("HINDSIGHT_SERVER", &api).current_dir(server.dir.path());
        command.output().expect("run").status.code()
    };
    std::fs::write(server.path("used"), "no trace").expect("write");
    assert_eq!(in_dir(&["model", "advise", "used"]), Some(1));
    assert_eq!(in_dir(&["model", "advise", "used", "--live"]), Some(0));
    assert_eq!(in_dir(&["model", "advise", "used", "--live", "--size", "1GiB"]), Some(2));
    assert_eq!(in_dir(&["model", "show", "nobody"]), Some(10));

    let create = |name: &str, how: &[&str]| {
        let what =
            ["volume", "create", name, "--size", "64MiB", "--architecture", "auto", "--json"];
        server.run(&[&what[..], how].concat())
    };
    assert_eq!(create("a", &["--like", "used"]).json()["architecture"], "logging");
    assert_eq!(create("b", &["--trace", text(&file)]).json()["architecture"], "logging");
    let refused = create("c", &[]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("--like VOLUME"), "{refused:?}");
    let wrong = ["volume", "create", "d", "--size", "1GiB", "--trace", text(&file)];
    assert_eq!(server.run(&wrong).code, 2);
    assert_eq!(server.stop().0, 0);
}
