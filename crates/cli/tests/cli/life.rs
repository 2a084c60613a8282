//! What a volume lives through, by commands: output, JSON and exit codes of the contract.

use crate::fixture::{Fixture, run};

fn with_volume() -> Fixture {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    fixture
}

#[test]
fn a_table_is_lost_and_found_again() {
    let fixture = with_volume();
    assert!(fixture.qemu_io("pg", &["write -P 1 0 64k", "flush"]));
    fixture.ok(&["mark", "create", "pg", "before-upgrade"]);
    assert!(fixture.qemu_io("pg", &["write -P 2 0 64k", "flush"]));
    assert!(fixture.qemu_io("pg@mark:before-upgrade", &["read -P 1 0 64k"]));
    assert!(fixture.qemu_io("pg", &["read -P 2 0 64k"]));

    let dry = ["revert", "pg", "--to", "mark:before-upgrade", "--dry-run", "--json"];
    let dry = fixture.run(&dry);
    assert_eq!(dry.json()["changed_bytes"], 65536);
    assert!(fixture.qemu_io("pg", &["read -P 2 0 64k"]), "a dry run changes nothing");

    let reverted = fixture.run(&["revert", "pg", "--to", "mark:before-upgrade"]);
    assert_eq!(reverted.code, 0, "{reverted:?}");
    assert!(fixture.qemu_io("pg", &["read -P 1 0 64k"]));
    let undo = reverted.err.lines().find_map(|l| l.strip_prefix("to undo: hindsight "));
    let undo: Vec<&str> = undo.expect("how to undo").split(' ').collect();
    fixture.ok(&undo);
    assert!(fixture.qemu_io("pg", &["read -P 2 0 64k"]));
}

#[test]
fn the_line_of_the_web_page_is_drawn_in_the_terminal() {
    let fixture = with_volume();
    assert!(fixture.qemu_io("pg", &["write -P 1 0 64k", "flush"]));
    fixture.ok(&["mark", "create", "pg", "before-upgrade"]);
    let json = fixture.run(&["timeline", "pg", "--columns", "5", "--json"]).json();
    assert_eq!(json["bytes"].as_array().map(Vec::len), Some(5));
    let sum: u64 = json["bytes"].as_array().expect("array").iter().filter_map(|n| n.as_u64()).sum();
    assert_eq!(sum, 65_536);
    let shown = fixture.run(&["timeline", "pg", "--columns", "20"]).out;
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or("");
    assert!(line("bytes").ends_with('\u{2588}'), "{shown}");
    assert!(line("events").contains('c') && line("events").contains('m'), "{shown}");
    assert!(line("written").starts_with("written  64 KiB in "), "{shown}");
    assert!(shown.contains("  mark before-upgrade (seq:"), "{shown}");
    assert_eq!(fixture.run(&["timeline", "pg", "--columns", "0"]).code, 2);
    assert_eq!(fixture.run(&["timeline", "nothing"]).code, 10);
    assert_eq!(fixture.run(&["timeline", "pg", "--since", "seq:99999"]).code, 13);
}

#[test]
fn a_volume_and_its_clones_have_the_map_extents_they_are_given() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "v", "--size", "1MiB", "--extent", "32KiB"]);
    let extent =
        |name: &str| fixture.run(&["volume", "show", name, "--json"]).json()["extent"].clone();
    assert_eq!(extent("v"), 32_768);
    fixture.ok(&["clone", "v", "same"]);
    fixture.ok(&["clone", "v", "other", "--extent", "4KiB"]);
    assert_eq!((extent("same"), extent("other")), (32_768.into(), 4096.into()));
    assert!(fixture.run(&["volume", "show", "v"]).out.contains("32 KiB"));
    for wrong in ["512", "24KiB", "128KiB"] {
        let refused = fixture.run(&["volume", "create", "w", "--size", "1MiB", "--extent", wrong]);
        assert!(refused.err.contains("give one of 4KiB, 8KiB, 16KiB, 32KiB, 64KiB"), "{wrong}");
    }
}

#[test]
fn a_volume_has_the_copy_unit_it_is_given_and_tells_what_it_keeps() {
    let fixture = Fixture::new();
    let kind = ["--architecture", "redirect", "--granularity", "on-demand"];
    let create = ["volume", "create", "v", "--size", "1MiB", "--copy-unit", "64KiB"];
    fixture.ok(&[&create[..], &kind].concat());
    let show = || fixture.run(&["volume", "show", "v", "--json"]).json();
    assert_eq!(
        (&show()["copy_unit"], &show()["copies"]),
        (&65_536.into(), &serde_json::Value::Null)
    );
    assert!(fixture.qemu_io("v", &["write -P 1 0 256k", "flush"]));
    fixture.ok(&["version", "create", "v"]);
    assert!(fixture.qemu_io("v", &["write -P 2 4k 4k", "flush"]));
    let copies = &show()["copies"];
    assert_eq!((&copies["kept_bytes"], &copies["changed_bytes"]), (&65_536.into(), &4096.into()));
    assert_eq!(copies["space_efficiency"], 0.0625);
    let shown = fixture.run(&["volume", "show", "v"]).out;
    assert!(shown.contains("4 KiB changed of 64 KiB kept") && shown.contains("0.0625"), "{shown}");
    let refused = fixture.run(&["volume", "set", "v", "--granularity", "1s"]);
    assert!(
        refused.err.contains("hint: give 4KiB, which every volume may have"),
        "{}",
        refused.err
    );
    fixture.ok(&["volume", "set", "v", "--granularity", "1s", "--copy-unit", "4KiB"]);
    assert_eq!(show()["copy_unit"], 4096);
    for wrong in ["512", "24KiB", "128KiB"] {
        let refused = fixture.run(&["volume", "set", "v", "--copy-unit", wrong]);
        assert!(refused.err.contains("give one of 4KiB, 8KiB, 16KiB, 32KiB, 64KiB"), "{wrong}");
    }
}

#[test]
fn space_is_told_by_age_and_by_what_holds_it() {
    let fixture = with_volume();
    assert!(fixture.qemu_io("pg", &["write -P 1 0 64k"]));
    fixture.ok(&["version", "create", "pg"]);
    assert!(fixture.qemu_io("pg", &["write -P 2 0 32k", "write -P 3 0 8k"]));
    let space = fixture.run(&["volume", "space", "pg", "--json"]).json();
    assert_eq!((&space["live_bytes"], &space["live_exact"]), (&65_536.into(), &true.into()));
    assert_eq!((&space["history_bytes"], &space["pinned_bytes"]), (&40_960.into(), &32_768.into()));
    assert_eq!(space["history_by_age"][0], serde_json::json!({"below": "1h", "bytes": 40_960}));
    let holder = &space["holders"][0];
    assert_eq!((&holder["names"][0], &holder["own_bytes"]), (&"v:0".into(), &32_768.into()));
    let told = fixture.run(&["volume", "space", "pg"]).out;
    for part in ["below 1h", "beyond the window", "ONLY ITS OWN", "v:0"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    let pool = fixture.run(&["pool", "status", "--json"]).json();
    assert_eq!((&pool["live_bytes"], &pool["history_bytes"]), (&65_536.into(), &40_960.into()));
    assert_eq!(pool["next_sacrifice"]["volume"], "pg");
    let told = fixture.run(&["pool", "status"]).out;
    assert!(told.contains("next to go") && told.contains("growth"), "{told}");
}

#[test]
fn a_smaller_window_is_announced_and_can_be_taken_back() {
    let fixture = with_volume();
    let grace = || fixture.run(&["volume", "show", "pg", "--json"]).json()["grace"].clone();
    let dry = fixture.run(&["volume", "set", "pg", "--window", "1h", "--dry-run"]);
    assert!(dry.err.contains("would be kept for 1d"), "{dry:?}");
    assert!(grace().is_null());
    let set = fixture.run(&["volume", "set", "pg", "--window", "1h", "--grace", "2h"]);
    assert!(set.err.contains("nothing is lost") && set.out.contains("grace"), "{set:?}");
    assert_eq!(grace()["window"], "1d");
    fixture.ok(&["volume", "set", "pg", "--window", "1d"]);
    assert!(grace().is_null(), "taken back");
    fixture.ok(&["volume", "set", "pg", "--history-limit", "1MiB"]);
    assert!(grace()["history_limit"].is_null() && grace()["until"].is_string());
    fixture.ok(&["volume", "set", "pg", "--now"]);
    assert!(grace().is_null(), "ended");
    assert_eq!(fixture.run(&["volume", "set", "pg", "--grace", "1h"]).code, 2);
    let audit = fixture.run(&["pool", "audit"]).out;
    for action in ["grace-begin", "grace-cancel", "grace-end"] {
        assert!(audit.contains(action), "{action} in {audit}");
    }
}

#[test]
fn json_has_the_fields_of_the_contract() {
    let fixture = with_volume();
    assert!(fixture.qemu_io("pg", &["write -P 1 0 4k", "write -P 2 8k 4k"]));
    let volume = fixture.run(&["volume", "show", "pg", "--json"]).json();
    for field in [
        "name",
        "size",
        "architecture",
        "granularity",
        "extent",
        "window",
        "state",
        "nbd_uri",
        "live_bytes",
        "history_bytes",
        "pinned_bytes",
        "oldest",
        "latest",
    ] {
        assert!(!volume[field].is_null(), "{field} in {volume}");
    }
    assert_eq!((&volume["size"], &volume["extent"]), (&(64 << 20).into(), &4096.into()));
    assert_eq!(volume["latest"]["seq"], 2);
    let time = volume["latest"]["time"].as_str().expect("text");
    assert_eq!((time.len(), time.ends_with('Z')), (30, true), "{time}");
    let resolved = fixture.run(&["resolve", "pg@seq:1", "--json"]).json();
    assert_eq!((&resolved["seq"], &resolved["exact"]), (&1.into(), &true.into()));
    let diff = fixture.run(&["diff", "pg@seq:0", "pg", "--json"]).json();
    let ranges = serde_json::json!([
        {"offset": 0, "length": 4096}, {"offset": 8192, "length": 4096}
    ]);
    assert_eq!(diff, ranges);
    let history = fixture.run(&["history", "pg", "--json"]).json();
    let writes = history["buckets"].as_array().expect("array").iter();
    assert_eq!(writes.map(|b| b["writes"].as_u64().expect("number")).sum::<u64>(), 2);
    assert_eq!(history["events"][0]["kind"], "created");
    let version = fixture.run(&["version", "create", "pg", "--label", "a", "--json"]).json();
    assert_eq!((&version["number"], &version["label"]), (&0.into(), &"a".into()));
    let full = fixture.run(&["clone", "pg@v:0", "copy", "--full", "--wait", "--json"]).json();
    assert!(full["import"].is_null() && full["cloned_from"].is_null(), "{full}");
    let clone = fixture.run(&["clone", "pg@v:0", "pg2", "--json"]).json();
    assert_eq!(clone["cloned_from"], serde_json::json!({"volume": "pg", "seq": 2}));
    let audit = fixture.run(&["pool", "audit", "--json"]).json();
    assert_eq!(audit[0]["action"], "volume-create");
    assert_eq!(fixture.run(&["pool", "status", "--json"]).json()["volumes"], 3);
}

#[test]
fn failures_have_the_exit_codes_of_the_contract() {
    let fixture = with_volume();
    let code = |arguments: &[&str]| {
        let ran = fixture.run(arguments);
        assert!(ran.err.contains("error: "), "{arguments:?}: {ran:?}");
        assert_eq!(ran.out, "", "{arguments:?}");
        ran.code
    };
    assert_eq!(code(&["volume", "show", "nobody"]), 10);
    assert_eq!(code(&["volume", "delete", "nobody"]), 10);
    assert_eq!(code(&["version", "show", "pg", "7"]), 10);
    assert_eq!(code(&["version", "compact", "pg", "7"]), 10);
    assert_eq!(code(&["version", "uncompact", "nobody", "0"]), 10);
    assert_eq!(code(&["mark", "delete", "pg", "nobody"]), 10);
    assert_eq!(code(&["mark", "delete", "pg", "nobody", "--dry-run"]), 10);
    assert_eq!(code(&["resolve", "pg@v:7"]), 10);
    assert_eq!(code(&["resolve", "pg@2001-01-01T00:00:00Z"]), 13);
    assert_eq!(code(&["revert", "pg", "--to", "seq:999"]), 13);
    assert_eq!(code(&["volume", "create", "pg", "--size", "1MiB"]), 1);
    assert_eq!(code(&["volume", "create", "x", "--size", "100"]), 2);
    assert_eq!(code(&["volume", "create", "x", "--size", "ten"]), 2);
    assert_eq!(code(&["volume", "create", "../x", "--size", "1MiB"]), 2);
    assert_eq!(code(&["revert", "pg", "--to", "-5m"]), 2);
    assert_eq!(code(&["diff", "pg", "other"]), 10);
    assert_eq!(code(&["nonsense"]), 2);
}

#[test]
fn versions_are_compacted_and_uncompacted() {
    let fixture = with_volume();
    for _ in 0..2 {
        fixture.ok(&["version", "create", "pg"]);
    }
    let some = fixture.run(&["version", "compact", "pg", "1", "7", "--wait"]);
    assert_eq!((some.code, some.out.contains("version 1 of pg: compact, ")), (3, true), "{some:?}");
    let listed = fixture.run(&["version", "list", "pg", "--json"]).json();
    assert_eq!((&listed[1]["compacted"], &listed[1]["job"]["packed"]), (&false.into(), &0.into()));
    assert!(fixture.ok(&["version", "list", "pg"]).contains("raw, nothing to compact"));
    let done = fixture.run(&["version", "uncompact", "pg", "1", "--wait", "--json"]).json();
    assert_eq!((&done[0]["state"], &done[0]["percent"]), (&"done".into(), &100.into()));
    let listed = fixture.run(&["version", "list", "pg"]);
    assert!(listed.out.contains("uncompacted"), "{listed:?}");
}

#[test]
fn deletes_say_what_they_would_do_and_do_it() {
    let fixture = with_volume();
    for _ in 0..3 {
        fixture.ok(&["version", "create", "pg"]);
    }
    let dry = fixture.run(&["version", "delete", "pg", "0", "1", "--dry-run", "--json"]);
    assert_eq!(dry.json()["deleted"], false);
    let some = fixture.run(&["version", "delete", "pg", "0", "7", "1"]);
    assert_eq!(some.code, 3, "{some:?}");
    let left = fixture.run(&["version", "list", "pg", "--json"]).json();
    assert_eq!(left.as_array().expect("array").len(), 1);
    fixture.ok(&["mark", "create", "pg", "m", "--pin"]);
    let dry = fixture.run(&["mark", "delete", "pg", "m", "--dry-run"]);
    assert!(dry.err.contains("pins its moment"), "{dry:?}");
    fixture.ok(&["mark", "delete", "pg", "m"]);
    let dry = fixture.run(&["volume", "delete", "pg", "--dry-run"]);
    assert_eq!(dry.code, 11, "it has a version: {dry:?}");
    let dry = fixture.run(&["volume", "delete", "pg", "--dry-run", "--force"]);
    assert!(dry.err.contains("would be deleted"), "{dry:?}");
    assert!(fixture.run(&["volume", "show", "pg"]).code == 0);
    assert_eq!(fixture.run(&["volume", "delete", "pg"]).code, 11, "it has a version");
    fixture.ok(&["volume", "delete", "pg", "--force"]);
    assert_eq!(fixture.run(&["volume", "show", "pg"]).code, 10);
}

#[test]
fn settings_are_changed_and_dry_runs_are_not() {
    let fixture = with_volume();
    let set = ["volume", "set", "pg", "--window", "7d", "--history-limit", "1GiB", "--json"];
    let dry = fixture.run(&[&set[..], &["--dry-run"]].concat()).json();
    assert_eq!(dry["window"], "7d");
    assert_eq!(fixture.run(&["volume", "show", "pg", "--json"]).json()["window"], "1d");
    let set = fixture.run(&set).json();
    assert_eq!((&set["window"], &set["history_limit"]), (&"7d".into(), &(1 << 30).into()));
    let none = fixture.run(&["volume", "set", "pg", "--history-limit", "none", "--json"]).json();
    assert!(none["history_limit"].is_null());
    let size = fixture.run(&["volume", "resize", "pg", "128MiB", "--json"]).json();
    assert_eq!(size["size"], 128 << 20);
    assert_eq!(fixture.run(&["volume", "set", "pg"]).code, 2);
    let dry = |more: &[&str]| {
        let ran = fixture.run(&[&["volume", "set", "pg", "--dry-run"], more].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.err
    };
    assert!(dry(&["--history-limit", "0"]).contains("history beyond it would be kept for 1d"));
    let now = dry(&["--history-limit", "0", "--now"]);
    assert!(now.contains("history beyond it would be lost at once"), "{now}");
    assert!(!now.contains("grace period that is under way"), "none is: {now}");
    assert!(dry(&["--architecture", "hybrid"]).contains("what was not flushed is lost if"));
    assert!(!dry(&["--architecture", "redirect"]).contains("what was not flushed is lost if"));
    let asked = ["volume", "set", "pg", "--architecture", "redirect"];
    let dry = fixture.run(&[&asked[..], &["--dry-run", "--json"]].concat());
    assert_eq!(dry.json()["architecture"], "redirect");
    assert_eq!(fixture.run(&["volume", "show", "pg", "--json"]).json()["architecture"], "logging");
    let set = fixture.run(&[&asked[..], &["--json"]].concat());
    assert_eq!(set.json()["architecture"], "redirect");
    let unknown = fixture.run(&["volume", "set", "pg", "--architecture", "fancy"]);
    assert!(unknown.code != 0 && unknown.err.contains("split-stream"), "{unknown:?}");
}

#[test]
fn a_local_time_is_said_back() {
    let fixture = with_volume();
    let ran = fixture.run(&["resolve", "pg@2001-01-01 00:00"]);
    assert_eq!(ran.code, 13, "{ran:?}");
    let said = ran.err.lines().next().expect("a line");
    assert!(said.starts_with("pg@2001-01-01 00:00 is 2001-01-01T00:00:00.000000000Z"), "{said}");
    let error = ran.err.lines().nth(1).expect("another");
    assert!(error.starts_with("error: pg was created at 2"), "{error}");
    assert!(error.contains("(seq 0), after 2001-01-01T00:00:00.000000000Z: pg can be"), "{error}");
}

#[test]
fn without_a_server_the_error_says_where_it_looked() {
    let ran = run(&["volume", "list"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.starts_with("error: no server at unix:/run/hindsight/api.sock"), "{ran:?}");
    assert!(ran.err.lines().nth(1).is_some_and(|l| l.starts_with("hint: ")), "{ran:?}");
    assert_eq!(run(&["--server", "nonsense", "volume", "list"]).code, 2);
}

#[test]
fn the_server_is_reached_over_tcp_too() {
    let fixture = with_volume();
    let (address, token) = fixture.http_address();
    let server = format!("http://{address}/?token={token}");
    let ran = fixture.run(&["volume", "list", "--server", &server, "--json"]);
    assert_eq!(ran.json()[0]["name"], "pg");
}
