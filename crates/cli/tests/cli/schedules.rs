//! Schedules, retention and ranges of versions, by commands.

use crate::fixture::Fixture;

fn with_volume() -> Fixture {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    fixture
}

#[test]
fn a_schedule_is_set_shown_and_removed() {
    let fixture = with_volume();
    assert_eq!(fixture.run(&["version", "schedule", "show", "pg"]).code, 10);
    let set = ["version", "schedule", "set", "pg", "--cron", "30 3 * * *"];
    let keep = ["--keep-last", "2", "--keep-daily", "7", "--keep-within", "2d", "--label", "night"];
    let set = fixture.run(&[&set[..], &keep].concat());
    assert_eq!(set.code, 0, "{set:?}");
    assert!(set.out.contains("last 2, daily 7, within 2d"), "{set:?}");
    let shown = fixture.run(&["version", "schedule", "show", "pg", "--json"]).json();
    assert_eq!((&shown["cron"], &shown["label"]), (&"30 3 * * *".into(), &"night".into()));
    assert_eq!(shown["keep"]["daily"], 7);
    assert!(fixture.ok(&["version", "schedule", "list"]).contains("cron 30 3 * * *"));
    let set = ["version", "schedule", "set", "pg", "--keep-last", "1"];
    let dry = fixture.run(&[&set[..], &["--dry-run", "--json"]].concat()).json();
    assert_eq!((&dry["dry_run"], &dry["keep"]["last"]), (&true.into(), &1.into()));
    assert_eq!(fixture.run(&["version", "schedule", "show", "pg", "--json"]).json(), shown);
    let set = fixture.run(&[&set[..], &["--json"]].concat()).json();
    assert_eq!((&set["keep"]["daily"], &set["label"]), (&7.into(), &"night".into()));
    let dry = fixture.run(&["version", "schedule", "remove", "pg", "--dry-run"]);
    assert!(dry.err.contains("would be removed"), "{dry:?}");
    fixture.ok(&["version", "schedule", "remove", "pg"]);
    assert_eq!(fixture.run(&["version", "schedule", "remove", "pg"]).code, 10);
    let all = fixture.run(&["version", "schedule", "set", "pg", "--every", "1h"]);
    assert!(all.err.contains("all of its versions stay"), "{all:?}");
}

#[test]
fn what_is_no_schedule_is_wrong_usage() {
    let fixture = with_volume();
    let set =
        |more: &[&str]| fixture.run(&[&["version", "schedule", "set", "pg"], more].concat()).code;
    assert_eq!(set(&[]), 2);
    assert_eq!(set(&["--every", "5m"]), 2);
    assert_eq!(set(&["--cron", "* * * *"]), 2);
    assert_eq!(set(&["--every", "1h", "--cron", "0 * * * *"]), 2);
    assert_eq!(set(&["--every", "1ms"]), 2);
}

#[test]
fn ranges_are_deleted_and_the_present_never_is() {
    let fixture = with_volume();
    for _ in 0..8 {
        fixture.ok(&["version", "create", "pg"]);
    }
    let listed = fixture.ok(&["version", "list", "pg", "--from", "2", "--limit", "3"]);
    assert_eq!(listed.lines().count(), 4, "{listed}");
    let latest = fixture.run(&["version", "delete", "pg", "latest"]);
    assert_eq!(latest.code, 2);
    assert!(latest.err.contains("the present is no version"), "{latest:?}");
    let dry = fixture.run(&["version", "delete", "pg", "2..5", "--dry-run", "--json"]);
    assert_eq!((&dry.json()["count"], &dry.json()["deleted"]), (&4.into(), &false.into()));
    let gone = fixture.run(&["version", "delete", "pg", "2..5", "7", "--json"]).json();
    assert_eq!(gone["count"], 5);
    let partly = fixture.run(&["version", "delete", "pg", "0", "2..5"]);
    assert_eq!(partly.code, 3, "{partly:?}");
    let left = fixture.run(&["version", "list", "pg", "--json"]).json();
    let numbers: Vec<_> =
        left.as_array().expect("array").iter().map(|v| v["number"].as_u64()).collect();
    assert_eq!(numbers, [Some(1), Some(6)]);
    let why = fixture.ok(&["retention", "explain", "pg"]);
    assert!(why.contains("made by people"), "{why}");
    assert_eq!(fixture.run(&["retention", "apply", "pg", "--dry-run"]).code, 10);
}

#[test]
fn a_group_is_made_captured_shown_and_deleted() {
    let fixture = with_volume();
    fixture.ok(&["volume", "create", "wal", "--size", "64MiB"]);
    fixture.ok(&["group", "create", "db", "pg", "wal"]);
    let made = fixture.run(&["group", "version", "db", "--label", "both", "--json"]).json();
    assert_eq!(made["versions"].as_array().expect("array").len(), 2);
    let shown = fixture.ok(&["group", "show", "db"]);
    assert!(shown.contains("pg, wal") && shown.contains("pg@v:0, wal@v:0"), "{shown}");
    assert!(fixture.ok(&["group", "list"]).contains("db"));
    let hook = fixture.run(&["group", "version", "db", "--hook", "other"]);
    assert!(hook.code == 10 && hook.err.contains("[hooks.NAME]"), "{hook:?}");
    let dry = fixture.run(&["group", "delete", "db", "--dry-run"]);
    assert!(dry.err.contains("would be deleted"), "{dry:?}");
    fixture.ok(&["group", "delete", "db"]);
    assert_eq!(fixture.run(&["group", "show", "db"]).code, 10);
    assert_eq!(fixture.run(&["group", "create", "db", "nothing"]).code, 10);
}

#[test]
fn a_group_is_captured_by_a_schedule_with_the_words_of_a_volume() {
    let fixture = with_volume();
    fixture.ok(&["group", "create", "db", "pg"]);
    assert_eq!(fixture.run(&["group", "schedule", "show", "db"]).code, 10);
    assert_eq!(fixture.run(&["group", "retention", "apply", "db"]).code, 10);
    let set = ["group", "schedule", "set", "db", "--cron", "30 3 * * *"];
    let keep = ["--keep-last", "2", "--keep-daily", "7", "--keep-within", "2d", "--label", "night"];
    let set = fixture.run(&[&set[..], &keep].concat());
    assert!(set.code == 0 && set.out.contains("last 2, daily 7, within 2d"), "{set:?}");
    let shown = fixture.run(&["group", "schedule", "show", "db", "--json"]).json();
    assert_eq!((&shown["group"], &shown["cron"]), (&"db".into(), &"30 3 * * *".into()));
    let listed = fixture.ok(&["group", "schedule", "list"]);
    assert!(listed.contains("GROUP") && listed.contains("db"), "{listed}");
    assert!(!fixture.ok(&["version", "schedule", "list"]).contains("db"));
    fixture.ok(&["group", "version", "db"]);
    let why = fixture.ok(&["group", "retention", "explain", "db"]);
    assert!(why.contains("made by people"), "{why}");
    let dry = fixture.run(&["group", "retention", "apply", "db", "--dry-run"]);
    assert!(dry.code == 0 && dry.err.contains("0 captures of group db would be pruned"), "{dry:?}");
    let dry = fixture.run(&["group", "schedule", "remove", "db", "--dry-run"]);
    assert!(dry.err.contains("would be removed"), "{dry:?}");
    fixture.ok(&["group", "schedule", "remove", "db"]);
    assert_eq!(fixture.run(&["group", "schedule", "remove", "db"]).code, 10);
}

#[test]
fn a_hook_that_the_server_does_not_have_is_refused_as_a_setting() {
    let fixture = with_volume();
    fixture.ok(&["group", "create", "db", "pg"]);
    for set in [["volume", "set", "pg", "--hook", "fs"], ["group", "set", "db", "--hook", "fs"]] {
        let refused = fixture.run(&set);
        assert!(refused.code == 10 && refused.err.contains("[hooks.NAME]"), "{refused:?}");
        let dry = fixture.run(&[&set[..], &["--dry-run"]].concat());
        assert!(dry.code == 0 && dry.out.contains("fs"), "{dry:?}");
    }
    let none = fixture.run(&["volume", "set", "pg", "--hook", "none", "--json"]).json();
    assert!(none["hook"].is_null(), "{none}");
    assert!(
        fixture.run(&["group", "set", "db", "--hook", "none", "--json"]).json()["hook"].is_null()
    );
}
