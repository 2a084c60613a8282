//! `share ls`, `share cat`, `share restore`, and `diff` of a share. What is in the share was put
//! there by restores: bytes come over NFS, in `docs/nfs.md`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use crate::fixture::{Fixture, hindsight};

#[test]
fn trees_are_listed_put_back_and_compared_at_any_moment() {
    let fixture = Fixture::new();
    fixture.ok(&["share", "create", "home"]);
    fixture.ok(&["version", "create", "home"]);
    assert_eq!(fixture.run(&["share", "ls", "home", "--json"]).json(), json!([]));

    let dry = fixture.run(&["share", "restore", "home@v:0", "/", "--to", "/a b", "--dry-run"]);
    assert!(dry.code == 0 && dry.err.contains("/a b would be created"), "{dry:?}");
    assert!(dry.err.contains("nothing was changed"), "{dry:?}");
    assert_eq!(fixture.run(&["share", "ls", "home", "--json"]).json(), json!([]));
    let copied = fixture.run(&["share", "restore", "home@v:0", "/", "--to", "/a b", "--json"]);
    assert!(copied.err.contains("to undo: remove $'/a b', which was not there"), "{copied:?}");
    let copied = copied.json();
    assert_eq!((&copied["created"], &copied["kept"]), (&json!(1), &json!(0)));
    assert_eq!((&copied["dry_run"], &copied["would"]), (&json!(false), &json!([])));
    let listed = fixture.ok(&["share", "ls", "home"]);
    assert!(listed.contains("MODE") && listed.contains("drwxr-xr-x"), "{listed}");
    assert!(listed.trim_end().ends_with("a b"), "{listed}");
    assert!(!fixture.ok(&["share", "ls", "home@v:0"]).contains("a b"));
    // A byte that is no UTF-8 is a byte of the path all the same.
    let mut command = hindsight();
    command.args(["share", "restore", "home@v:0", "/", "--to"]);
    command.arg(OsStr::from_bytes(b"a b/\xff\\")).env("HINDSIGHT_SERVER", fixture.server());
    let done = command.output().expect("run");
    assert!(done.status.success(), "{done:?}");
    let below = fixture.run(&["share", "ls", "home", "a b", "--json"]).json();
    assert_eq!((&below[0]["name"], &below[0]["kind"]), (&json!("\\xff\\\\"), &json!("directory")));

    let diff = fixture.run(&["diff", "home@v:0", "--json"]).json();
    let path = |path: &str| {
        json!({
            "path": path, "change": "created", "path_before": null, "kind": "directory",
            "content": false, "attributes": false,
        })
    };
    assert_eq!(diff, json!([path("/a b"), path("/a b/\\xff\\\\")]));
    let back = fixture.run(&["diff", "home", "home@v:0"]);
    assert!(back.out.contains("removed") && back.err.contains("2 paths changed"), "{back:?}");
    fixture.ok(&["clone", "home@v:0", "other"]);
    let other = fixture.run(&["diff", "other", "home", "--json"]).json();
    assert_eq!(other, diff);

    let undone = fixture.run(&["share", "restore", "home@v:0", "/", "--delete"]);
    assert!(undone.code == 0 && undone.err.contains("to undo: hindsight share restore home@seq:"));
    assert_eq!(fixture.run(&["diff", "home@v:0", "--json"]).json(), json!([]));
    let undo = undone.err.lines().find_map(|line| line.strip_prefix("to undo: hindsight "));
    fixture.ok(&undo.expect("said").split(' ').collect::<Vec<_>>());
    assert!(fixture.ok(&["share", "ls", "home"]).contains("a b"));
    let again = fixture.run(&["share", "restore", "home@v:0", "/"]);
    assert!(again.err.contains("to undo"), "the time of the top: {again:?}");
    let again = fixture.run(&["share", "restore", "home@v:0", "/"]);
    assert!(again.err.contains("nothing was changed"), "{again:?}");
}

#[test]
fn what_cannot_be_listed_read_or_put_back_is_told() {
    let fixture = Fixture::new();
    fixture.ok(&["share", "create", "home"]);
    fixture.ok(&["volume", "create", "disk", "--size", "1MiB"]);
    fixture.ok(&["version", "create", "home"]);
    for (arguments, code, text) in [
        (&["share", "ls", "home", "/none"][..], 10, "there is no /none in home"),
        (&["share", "ls", "disk"], 10, "there is no share disk"),
        (&["share", "ls", "home@v:7"], 10, "7"),
        (&["share", "ls", "home", "a//b"], 2, "a name is empty"),
        (&["share", "cat", "home", "/"], 2, "is a directory, and no file"),
        (&["share", "cat", "home", "/x"], 10, "there is no /x in home"),
        (&["share", "cat", "home", "../x"], 2, "a name is `.` or `..`"),
        (&["share", "restore", "home", "/x"], 2, "name a moment"),
        (&["share", "restore", "home@v:0", "/x"], 10, "there is no /x in home"),
        (&["share", "restore", "home@v:0", "/", "--to", "/x/y"], 10, "there is no /x"),
        (&["diff", "home", "disk"], 10, "there is no share disk"),
    ] {
        let ran = fixture.run(arguments);
        assert!(ran.code == code && ran.err.contains(text), "{arguments:?}: {ran:?}");
    }
}
