//! `share ops`, `share log`, `share repair`. What is in the share was put there by restores: bytes
//! come over NFS, in `docs/nfs.md`.

use serde_json::json;

use crate::fixture::{Fixture, Ran};

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
    let reads = ["share", "repair", "home", "--undo", "number>=1", "--follow", "reads"];
    let refused = fixture.run(&reads);
    assert!(refused.code == 2 && refused.err.contains("--log-reads on"), "{refused:?}");
    assert!(!fixture.ok(&["share", "show", "home"]).contains("reads logged"));
    assert!(fixture.ok(&["share", "set", "home", "--log-reads", "on"]).contains("reads logged"));
    assert_eq!(fixture.run(&reads).code, 2, "they were not logged then");
    let later = "number>=1 and time>=2100-01-01T00:00:00Z";
    fixture.ok(&["share", "repair", "home", "--undo", later, "--follow", "reads"]);
    fixture.ok(&["share", "set", "home", "--log-reads", "off"]);
    assert!(!fixture.ok(&["share", "show", "home"]).contains("reads logged"));
}

/// Commands that change a share can be undone by what they print, also where not every write is
/// retained.
#[test]
fn what_a_command_prints_undoes_it_whatever_is_retained() {
    for granularity in ["every-write", "1h", "on-demand"] {
        let fixture = Fixture::new();
        let dir = fixture.dir.path().join("tree");
        std::fs::create_dir(&dir).expect("made");
        let tree = dir.to_str().expect("text");
        let put = |text: &str| std::fs::write(dir.join("f"), text).expect("written");
        let now = || fixture.ok(&["share", "cat", "home", "/f"]);
        let undo = |ran: Ran| {
            let line = ran.err.lines().find_map(|line| line.strip_prefix("to undo: hindsight "));
            fixture.ok(&line.expect("said").split(' ').collect::<Vec<_>>());
        };
        put("first");
        fixture.ok(&["share", "create", "home", "--granularity", granularity]);
        fixture.ok(&["share", "import", "home", tree]);
        put("second");
        let imported = fixture.run(&["share", "import", "home", tree, "--overwrite"]);
        assert_eq!((imported.code, now()), (0, "second".to_owned()), "{imported:?}");
        undo(imported);
        assert_eq!(now(), "first", "{granularity}: an import");
        fixture.ok(&["share", "import", "home", tree, "--overwrite"]);
        fixture.ok(&["version", "create", "home"]);
        put("third");
        fixture.ok(&["share", "import", "home", tree, "--overwrite"]);
        let restored = fixture.run(&["share", "restore", "home@v:0", "/", "--delete"]);
        assert_eq!((restored.code, now()), (0, "second".to_owned()), "{restored:?}");
        undo(restored);
        assert_eq!(now(), "third", "{granularity}: a restore");
        let ops = fixture.run(&["share", "ops", "home", "--op", "WRITE", "--json"]).json();
        let last = ops[0]["number"].as_u64().expect("a number");
        let repaired =
            fixture.run(&["share", "repair", "home", "--undo", &format!("number={last}")]);
        if repaired.code != 0 {
            // Its bytes before are at no moment that is kept.
            assert!(granularity != "every-write" && repaired.code == 13, "{repaired:?}");
            continue;
        }
        assert_ne!(now(), "third");
        undo(repaired);
        assert_eq!(now(), "third", "{granularity}: a repair");
    }
}

#[test]
fn the_name_of_the_past_does_not_come_into_a_share() {
    let fixture = Fixture::new();
    let dir = fixture.dir.path().join("tree");
    std::fs::create_dir_all(dir.join(".hindsight/v:0")).expect("made");
    std::fs::write(dir.join(".hindsight/v:0/f"), "no past").expect("written");
    std::fs::write(dir.join("f"), "a file").expect("written");
    let tree = dir.to_str().expect("text");
    let imported = fixture.run(&["share", "import", "home", tree]);
    assert!(imported.code == 3 && imported.err.contains("the name of the past"), "{imported:?}");
    assert_eq!(fixture.ok(&["share", "ls", "home", "--json"]).matches("\"name\"").count(), 1);
    fixture.ok(&["version", "create", "home"]);
    for verb in [
        &["share", "import", "home", tree, "--to", "/.hindsight"][..],
        &["share", "restore", "home@v:0", "/f", "--to", "/.hindsight"],
    ] {
        let refused = fixture.run(verb);
        assert!(refused.code == 2 && refused.err.contains("the past"), "{refused:?}");
    }
    // A share that an import made, and could not fill, is gone, and the error says so.
    let broken = fixture.dir.path().join("broken.tar");
    std::fs::write(&broken, [b'x'; 2000]).expect("written");
    let broken = fixture.run(&["share", "import", "other", broken.to_str().expect("text")]);
    assert!(broken.code != 0 && broken.err.contains("other was not made"), "{broken:?}");
    assert_eq!(fixture.run(&["share", "show", "other"]).code, 10);
}
