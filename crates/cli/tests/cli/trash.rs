//! `volume delete`, `undelete` and `list --deleted`; what is asked on a terminal; groups as one.

use std::process::Command;

use crate::fixture::Fixture;

fn with_volume() -> Fixture {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    fixture
}

#[test]
fn a_deleted_volume_is_had_back_by_what_the_command_prints() {
    let fixture = with_volume();
    assert!(fixture.qemu_io("pg", &["write -P 1 0 64k", "flush"]));
    let dry = fixture.run(&["volume", "delete", "pg", "--dry-run", "--json"]).json();
    assert_eq!((&dry["dry_run"], &dry["live_bytes"]), (&true.into(), &65_536.into()));
    let words =
        |more: &[&str]| fixture.run(&[&["volume", "delete", "pg", "--dry-run"], more].concat()).err;
    assert!(words(&[]).contains("it could be had back until 20"), "{}", words(&[]));
    assert!(words(&["--now"]).contains("it could not be had back"), "{}", words(&["--now"]));
    let deleted = fixture.run(&["volume", "delete", "pg"]);
    let undo = deleted.err.lines().find_map(|line| line.split_once(": hindsight "));
    let undo: Vec<&str> = undo.expect("how to undo").1.split(' ').collect();
    assert_eq!(fixture.run(&["volume", "show", "pg"]).code, 10);
    assert!(fixture.ok(&["volume", "list", "--deleted"]).contains("pg"));
    assert!(fixture.ok(&["pool", "status"]).contains("of 1 deleted volume"));
    fixture.ok(&undo);
    let shown = fixture.ok(&["volume", "show", "pg"]);
    let grace = shown.lines().find(|line| line.starts_with("grace")).expect("it has one");
    assert!(grace.contains("window 1d 0h,"), "{grace}");
    assert!(fixture.qemu_io("pg", &["read -P 1 0 64k"]));
    fixture.ok(&["volume", "delete", "pg", "--grace", "1h"]);
    fixture.ok(&["volume", "create", "pg", "--size", "1MiB"]);
    assert_eq!(fixture.run(&["volume", "undelete", "pg"]).code, 1, "the name is taken");
    fixture.ok(&["volume", "undelete", "pg", "--as", "old"]);
    assert!(fixture.qemu_io("old", &["read -P 1 0 64k"]));
    for _ in 0..2 {
        fixture.ok(&["volume", "delete", "pg"]);
        fixture.ok(&["volume", "create", "pg", "--size", "1MiB"]);
    }
    let twice = fixture.run(&["volume", "undelete", "pg", "--as", "new"]);
    assert!(twice.code == 2 && twice.err.contains("give --id"), "{twice:?}");
    let listed = fixture.run(&["volume", "list", "--deleted", "--json"]).json();
    let id = listed[1]["id"].to_string();
    fixture.ok(&["volume", "undelete", "pg", "--as", "new", "--id", &id]);
    assert_eq!(fixture.run(&["volume", "undelete", "nobody"]).code, 10);
}

#[test]
fn a_volume_is_deleted_for_good_now_or_from_the_trash() {
    let fixture = with_volume();
    fixture.ok(&["volume", "delete", "pg"]);
    let dry = fixture.run(&["volume", "delete", "pg", "--now", "--dry-run"]);
    assert!(dry.err.contains("nothing was changed"), "{dry:?}");
    let gone = fixture.run(&["volume", "delete", "pg", "--now", "--json"]).json();
    assert_eq!(gone["deleted"], true);
    assert_eq!(fixture.run(&["volume", "delete", "pg", "--now"]).code, 10);
    fixture.ok(&["volume", "create", "pg", "--size", "1MiB"]);
    fixture.ok(&["volume", "delete", "pg", "--now"]);
    assert_eq!(
        fixture.run(&["volume", "list", "--deleted", "--json"]).json(),
        serde_json::json!([])
    );
}

/// Runs a command on a terminal, which is given an answer; says its exit code and what it showed.
fn on_terminal(fixture: &Fixture, arguments: &str, answer: &str) -> (i32, String) {
    let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_hindsight"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    script.env("HINDSIGHT_SERVER", fixture.server()).stdin(std::process::Stdio::piped());
    script.stdout(std::process::Stdio::piped());
    let mut child = script.spawn().expect("script (apt-get install bsdutils)");
    let mut stdin = child.stdin.take().expect("piped");
    std::io::Write::write_all(&mut stdin, answer.as_bytes()).expect("answer");
    let output = child.wait_with_output().expect("run");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().expect("it was not killed"), shown)
}

#[test]
fn what_cannot_be_undone_is_asked_for_on_a_terminal_only() {
    let fixture = with_volume();
    fixture.ok(&["version", "create", "pg"]);
    fixture.ok(&["mark", "create", "pg", "m", "--pin"]);
    fixture.ok(&["group", "create", "g", "pg"]);
    fixture.ok(&["group", "version", "g"]);
    for arguments in [
        "volume delete pg --now --force",
        "volume set pg --window 1s --now",
        "version delete pg 0",
        "mark delete pg m",
        "group delete-version g 0",
    ] {
        for answer in ["n\n", "\n"] {
            let (code, shown) = on_terminal(&fixture, arguments, answer);
            assert!(code == 1 && shown.contains("Go on? [y/N]"), "{arguments}: {shown}");
        }
    }
    assert_eq!(fixture.run(&["version", "show", "pg", "0"]).code, 0, "nothing was done");
    assert!(
        fixture.run(&["mark", "list", "pg", "--json"]).out.contains("\"m\""),
        "nothing was done"
    );
    let (code, shown) = on_terminal(&fixture, "version delete pg 0 --dry-run", "");
    assert!(code == 0 && !shown.contains("Go on?"), "{shown}");
    let (code, shown) = on_terminal(&fixture, "version delete pg 0", "y\n");
    assert!(code == 0 && shown.contains("Go on?"), "{shown}");
    let (code, shown) = on_terminal(&fixture, "volume delete pg --now --force --yes", "");
    assert!(code == 0 && !shown.contains("Go on?"), "{shown}");
}

#[test]
fn a_group_is_reverted_cloned_and_compared_as_one() {
    let fixture = with_volume();
    fixture.ok(&["volume", "create", "wal", "--size", "1MiB"]);
    fixture.ok(&["group", "create", "db", "pg", "wal"]);
    assert!(fixture.qemu_io("pg", &["write -P 1 0 64k", "flush"]));
    assert!(fixture.qemu_io("wal", &["write -P 2 0 4k", "flush"]));
    fixture.ok(&["group", "version", "db"]);
    assert!(fixture.qemu_io("pg", &["write -P 3 0 8k", "flush"]));
    assert!(fixture.qemu_io("wal", &["write -P 4 0 4k", "flush"]));
    let diff = fixture.run(&["group", "diff", "db@v:0", "db"]);
    assert!(diff.code == 0 && diff.err.contains("2 ranges, 12 KiB differ"), "{diff:?}");
    let diff = fixture.run(&["group", "diff", "db@v:0", "db", "--json"]).json();
    assert_eq!(
        diff[1],
        serde_json::json!({"volume": "wal", "ranges": [{"offset": 0, "length": 4096}]})
    );
    let dry = fixture.run(&["group", "revert", "db", "--to", "v:0", "--dry-run", "--json"]).json();
    assert_eq!(
        (&dry["dry_run"], &dry["volumes"][0]["changed_bytes"]),
        (&true.into(), &8192.into())
    );
    let reverted = fixture.run(&["group", "revert", "db", "--to", "v:0"]);
    let read = |pg: &str, wal: &str| {
        fixture.qemu_io("pg", &[&format!("read -P {pg} 0 8k")])
            && fixture.qemu_io("wal", &[&format!("read -P {wal} 0 4k")])
    };
    assert!(read("1", "2"), "{reverted:?}");
    let undo = reverted.err.lines().find_map(|line| line.strip_prefix("to undo: hindsight "));
    let undo: Vec<&str> = undo.expect("how to undo").split(' ').collect();
    fixture.ok(&undo);
    assert!(read("3", "4"));
    fixture.ok(&["group", "clone", "db@v:0", "old"]);
    assert!(fixture.qemu_io("old-pg", &["read -P 1 0 8k"]));
    assert_eq!(fixture.run(&["group", "revert", "db", "--to", "seq:1"]).code, 2);
    assert_eq!(fixture.run(&["group", "revert", "db", "--to", "v:7"]).code, 10);
    assert_eq!(fixture.run(&["group", "diff", "db", "other"]).code, 2);
}
