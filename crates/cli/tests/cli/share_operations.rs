//! `share ops`, `share log`, `share repair`. What is in the share was put there by restores: bytes
//! come over NFS, in `docs/nfs.md`.

use serde_json::json;

use crate::fixture::Fixture;

#[test]
fn operations_are_listed_and_undone() {
    let fixture = Fixture::new();
    fixture.ok(&["share", "create", "home"]);
    fixture.ok(&["version", "create", "home"]);
    assert_eq!(fixture.run(&["share", "ops", "home", "--json"]).json(), json!([]));
    for to in ["/a", "/b", "/a/c"] {
        fixture.ok(&["share", "restore", "home@v:0", "/", "--to", to]);
    }
    let listed = fixture.ok(&["share", "ops", "home", "--op", "MKDIR"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("NUMBER") && lines[0].ends_with("WHAT"), "{listed}");
    let paths: Vec<&str> =
        lines[1..].iter().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(paths, ["/a/c", "/b", "/a"]);
    assert!(lines[1].contains("restore="), "{listed}");
    let two = fixture.run(&["share", "ops", "home", "--limit", "2"]);
    assert!(two.out.lines().count() == 3 && two.err.contains("there are more"), "{two:?}");
    let all = fixture.run(&["share", "ops", "home", "--limit", "0", "--json"]).json();
    let all = all.as_array().expect("a list");
    assert!(all.len() >= 3 && all.iter().all(|one| one["client"].is_null()), "{all:?}");
    let log = fixture.run(&["share", "log", "home", "/b", "--json"]).json();
    let log = log.as_array().expect("a list");
    assert!(!log.is_empty() && log.iter().all(|one| one["path"] == "/b"), "{log:?}");
    let restore = log[0]["cause"].as_str().expect("a command").to_owned();

    let dry = fixture.run(&["share", "repair", "home", "--undo", &restore, "--dry-run"]);
    assert!(dry.code == 0 && dry.err.contains("/b would be removed"), "{dry:?}");
    assert!(dry.err.contains("nothing was changed"), "{dry:?}");
    assert!(fixture.ok(&["share", "ls", "home"]).contains('b'));
    let done = fixture.run(&["share", "repair", "home", "--undo", &restore]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!fixture.ok(&["share", "ls", "home"]).contains('b'));
    let undo = done.err.lines().find_map(|line| line.strip_prefix("to undo: hindsight "));
    fixture.ok(&undo.expect("said").split(' ').collect::<Vec<_>>());
    assert!(fixture.ok(&["share", "ls", "home"]).contains('b'));

    // A directory in one that would go keeps that.
    let kept =
        fixture.run(&["share", "repair", "home", "--undo", "path=/a and op=MKDIR and number<=2"]);
    assert!(kept.code == 3 && kept.err.contains("--follow names undoes both"), "{kept:?}");
    assert!(kept.out.contains("STANDS ON") && kept.out.contains("/a/c"), "{kept:?}");
    let none = fixture.run(&["share", "repair", "home", "--undo", "uid=77"]);
    assert!(none.code == 0 && none.err.contains("no operation is as it was named"), "{none:?}");
    for wrong in ["", "uid", "uid=all", "everything"] {
        let refused = fixture.run(&["share", "repair", "home", "--undo", wrong]);
        assert!(refused.code == 2 && refused.err.contains("client, uid, time"), "{refused:?}");
    }
    assert_eq!(fixture.run(&["share", "ops", "nothing"]).code, 10);
    assert_eq!(fixture.run(&["share", "log", "home", "/z"]).code, 10);
    let reads = ["share", "repair", "home", "--undo", "uid=0", "--follow", "reads"];
    assert_eq!(fixture.run(&reads).code, 2);
}
