//! `volume rename`, and `diff` between volumes with a past in common.

use crate::fixture::Fixture;

#[test]
fn a_volume_is_renamed_and_undone_by_what_the_command_prints_also_after_a_kill() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    assert!(fixture.qemu_io("pg", &["write -P 1 0 64k", "flush"]));
    fixture.ok(&["mark", "create", "pg", "m", "--pin"]);
    let dry = fixture.run(&["volume", "rename", "pg", "db", "--dry-run", "--json"]);
    assert!(dry.err.contains("pg would be called db") && dry.err.contains("nothing was changed"));
    let dry = dry.json();
    let would = (&dry["would"][0]["action"], &dry["would"][0]["target"]);
    assert_eq!((&dry["dry_run"], would), (&true.into(), (&"rename".into(), &"pg".into())));
    let renamed = fixture.run(&["volume", "rename", "pg", "db"]);
    assert_eq!(renamed.code, 0, "{renamed:?}");
    let undo = renamed.err.lines().find_map(|line| line.strip_prefix("to undo: hindsight "));
    let undo: Vec<String> = undo.expect("how to undo").split(' ').map(str::to_owned).collect();
    fixture.ok(&["volume", "create", "wal", "--size", "1MiB"]);
    assert_eq!(fixture.run(&["volume", "rename", "db", "wal"]).code, 1, "the name is taken");
    assert_eq!(fixture.run(&["volume", "rename", "db", "no name"]).code, 2);
    assert_eq!(fixture.run(&["volume", "rename", "pg", "x"]).code, 10);
    fixture.signal("KILL");
    let fixture = Fixture::on(fixture.killed());
    assert!(fixture.qemu_io("db", &["read -P 1 0 64k"]), "it kept its new name");
    assert!(fixture.qemu_io("db@m", &["read -P 1 0 64k"]));
    assert_eq!(fixture.run(&["volume", "show", "pg"]).code, 10);
    let undo: Vec<&str> = undo.iter().map(String::as_str).collect();
    fixture.ok(&undo);
    assert!(fixture.qemu_io("pg", &["read -P 1 0 64k"]));
}

#[test]
fn a_clone_is_compared_with_its_origin_and_strangers_are_not() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    assert!(fixture.qemu_io("pg", &["write -P 1 0 64k", "flush"]));
    fixture.ok(&["mark", "create", "pg", "m", "--pin"]);
    fixture.ok(&["clone", "pg", "test"]);
    fixture.ok(&["clone", "pg@m", "other"]);
    assert!(fixture.qemu_io("test", &["write -P 2 4k 8k", "flush"]));
    let none = fixture.run(&["diff", "pg@m", "other"]);
    assert!(none.code == 0 && none.err.contains("0 ranges, 0 B differ"), "{none:?}");
    let ranges = serde_json::json!([{"offset": 4096, "length": 8192}]);
    for (a, b) in [("pg@m", "test"), ("test", "pg"), ("other", "test"), ("test", "test@-0s")] {
        let expected = if b == "test@-0s" { serde_json::json!([]) } else { ranges.clone() };
        assert_eq!(fixture.run(&["diff", a, b, "--json"]).json(), expected, "{a} {b}");
    }
    fixture.ok(&["volume", "create", "wal", "--size", "64MiB"]);
    let refused = fixture.run(&["diff", "pg", "wal"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("pg and wal have no past in common"), "{refused:?}");
    assert!(refused.err.contains("hint: a diff is of moments of one volume"), "{refused:?}");
}
