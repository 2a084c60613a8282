//! `share import` and `share export`: directories and archives, in and out, all attributes kept;
//! what is refused changes nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::fixture::Fixture;

/// A directory with all that a share can have.
fn tree(dir: &Path) {
    fs::create_dir_all(dir.join("sub/deep")).expect("made");
    fs::write(dir.join("a"), "hi\n").expect("written");
    fs::write(dir.join("sub/large"), vec![5; 3 << 20]).expect("written");
    fs::hard_link(dir.join("a"), dir.join("sub/again")).expect("linked");
    symlink("../a", dir.join("sub/link")).expect("linked");
    symlink("/nowhere at all", dir.join("dangling")).expect("linked");
    let sparse = fs::File::create(dir.join("sparse")).expect("made");
    sparse.set_len(40 << 20).expect("set");
    let script = "mkfifo fifo; chmod 2750 sub; chmod 4711 a; touch -h -d '1999-01-02 03:04:05.123' \
                  sub/link; touch -d '2001-01-01 00:00:00.000000001' sub sub/deep; \
                  printf x > $'odd \\n\\377 name'; \
                  if [ $(id -u) = 0 ]; then mknod dev c 1 3; chown -h 1000:1001 sub/*; fi";
    shell(dir, script);
}

fn shell(dir: &Path, script: &str) -> Vec<u8> {
    let done = Command::new("bash").args(["-ec", script]).current_dir(dir).output().expect("run");
    assert!(done.status.success(), "{done:?}");
    done.stdout
}

/// All that is in a directory, with its attributes and sums of its content.
fn listing(dir: &Path) -> Vec<u8> {
    let script = "find . -printf '%p %y %m %U %G %T@ %l %n\\0' | sort -z; \
                  find . -type f -print0 | sort -z | xargs -0 md5sum; \
                  find . -type f -printf '%s %p\\0' | sort -z";
    shell(dir, script)
}

#[test]
fn a_directory_comes_back_as_it_was() {
    let fixture = Fixture::new();
    let (from, to) = (fixture.path("from"), fixture.path("to"));
    fs::create_dir(&from).expect("made");
    tree(&from);
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let imported = fixture.run(&["share", "import", "home", &text(&from), "--json"]);
    assert_eq!(imported.code, 0, "{imported:?}");
    assert!(!imported.err.contains("to undo"), "a new share has nothing to go back to");
    assert_eq!(imported.json()["left_out"], json!(0));

    fixture.ok(&["share", "export", "home", &text(&to)]);
    assert!(listing(&from) == listing(&to));
    let holes = shell(&to, "du -k sparse | cut -f1");
    assert!(String::from_utf8_lossy(&holes).trim().parse::<u32>().expect("a number") < 100);
    let there = fixture.run(&["share", "export", "home", &text(&to)]);
    assert!(there.code == 1 && there.err.contains("is there already"), "{there:?}");
    // What is in the way gives way, and directories are merged into.
    shell(&to, "rm sub/link; mkdir -p more; echo other > a; ln -s a sub/link");
    fixture.ok(&["share", "export", "home", &text(&to), "--force"]);
    shell(&to, "rmdir more; touch -r ../from .");
    assert!(listing(&from) == listing(&to));

    // GNU tar reads what is written, and what it writes is read.
    let archive = text(&fixture.path("home.tar"));
    fixture.ok(&["share", "export", "home", &archive]);
    let again = fixture.run(&["share", "export", "home", &archive]);
    assert!(again.code == 1 && again.err.contains("is there already"), "{again:?}");
    // What fails takes nothing away.
    let lost = fixture.run(&["share", "export", "none", &archive, "--force"]);
    assert_eq!(lost.code, 10, "{lost:?}");
    let unpacked = fixture.path("unpacked");
    fs::create_dir(&unpacked).expect("made");
    shell(&unpacked, &format!("tar --delay-directory-restore -xpf '{archive}'"));
    assert!(listing(&from) == listing(&unpacked));
    let made = shell(&from, "tar --format=posix -S -c .");
    let piped = fixture.pipe(&["share", "import", "second", "-"], &made);
    assert!(piped.status.success(), "{piped:?}");
    let second = fixture.path("second");
    fixture.ok(&["share", "export", "second", &text(&second)]);
    assert!(listing(&from) == listing(&second));

    // One path of a moment of the past.
    fixture.ok(&["version", "create", "home"]);
    let other = fixture.path("other");
    fs::create_dir(&other).expect("made");
    fs::write(other.join("a"), "changed").expect("written");
    let over = fixture.run(&["share", "import", "home", &text(&other), "--overwrite"]);
    assert_eq!(over.code, 0, "{over:?}");
    let undo = over.err.lines().find_map(|line| line.strip_prefix("to undo: hindsight "));
    let cat = |at: &str| fixture.ok(&["share", "cat", at, "a"]);
    assert_eq!((&*cat("home"), &*cat("home@v:0")), ("changed", "hi\n"));
    let before = text(&fixture.path("a-before"));
    fixture.ok(&["share", "export", "home@v:0", &before, "--path", "/a"]);
    assert_eq!(fs::read_to_string(&before).expect("there"), "hi\n");
    // Its other name was not written to.
    assert_eq!(fixture.ok(&["share", "cat", "home", "sub/again"]), "hi\n");
    fixture.ok(&undo.expect("said").split(' ').collect::<Vec<_>>());
    assert_eq!(cat("home"), "hi\n");
}

#[test]
fn what_commands_do_to_a_share_is_audited_and_counted_and_what_does_nothing_is_not() {
    let fixture = Fixture::new();
    let from = fixture.path("from");
    fs::create_dir(&from).expect("made");
    fs::write(from.join("a"), "hi").expect("written");
    let from = from.to_str().expect("UTF-8");
    fixture.ok(&["share", "import", "home", from]);
    fixture.ok(&["mark", "create", "home", "m"]);
    // The directory at the top is as it was, until something is restored into it.
    fixture.ok(&["share", "import", "home", from, "--overwrite"]);
    fixture.ok(&["share", "restore", "home@m", "/a", "--to", "/put-back"]);
    for nothing in [
        &["share", "restore", "home@m", "/a", "--to", "/c", "--dry-run"][..],
        &["share", "restore", "home@m", "/a"],
        &["share", "repair", "home", "--undo", "client=10.0.0.1"],
    ] {
        fixture.ok(nothing);
    }
    let restored = fixture.run(&["share", "ops", "home", "--json"]).json();
    let cause = restored[0]["cause"].as_str().expect("a cause").to_owned();
    fixture.ok(&["share", "repair", "home", "--undo", &cause]);
    assert!(!fixture.ok(&["share", "ls", "home"]).contains("put-back"));

    let audit = fixture.run(&["pool", "audit", "--json"]).json();
    let records = audit.as_array().expect("records").iter();
    let records = records.filter(|it| it["action"].as_str().expect("a word").starts_with("share-"));
    let told: Vec<(&str, &str)> = records
        .map(|it| {
            assert_eq!(it["volume"], "home");
            assert!(it["caller"].as_str().expect("a caller").starts_with("unix:"), "{it}");
            let detail = it["detail"].as_str().expect("words");
            (it["action"].as_str().expect("a word"), detail)
        })
        .collect();
    let actions: Vec<&str> = told.iter().map(|(action, _)| *action).collect();
    assert_eq!(actions, ["share-import", "share-restore", "share-repair"], "{audit}");
    assert!(told[1].1.starts_with(&format!("{cause}, ")), "{told:?}");
    let metrics = fixture.http("/metrics");
    for command in ["import", "restore", "repair"] {
        let line = format!("hindsight_share_commands_total{{command=\"{command}\"}} 1\n");
        assert!(metrics.contains(&line), "{line} {metrics}");
        let operations =
            format!("hindsight_share_command_operations_total{{command=\"{command}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&operations)).expect("a line");
        let action = told.iter().find(|(action, _)| action.ends_with(command)).expect("there");
        assert!(action.1.ends_with(&format!(", {line} operations")), "{line} {action:?}");
    }
}

#[test]
fn what_cannot_be_imported_or_exported_is_told_and_changes_nothing() {
    let fixture = Fixture::new();
    let from = fixture.path("from");
    fs::create_dir(&from).expect("made");
    fs::write(from.join("a"), "1").expect("written");
    let from = from.to_str().expect("UTF-8");
    fixture.ok(&["share", "import", "home", from]);
    fixture.ok(&["volume", "create", "disk", "--size", "1MiB"]);
    let zipped = fixture.path("z.tgz");
    shell(&fixture.path("from"), &format!("tar -czf '{}' .", zipped.display()));
    let zipped = zipped.to_str().expect("UTF-8");
    for (arguments, code, text) in [
        (&["share", "import", "home", from][..], 1, "is there, and has files"),
        (&["share", "import", "new", "/not/there"], 1, "cannot read /not/there"),
        (&["share", "import", "new", zipped], 2, "compressed by gzip"),
        (&["share", "import", "disk", from], 1, "there is a volume disk already"),
        (&["share", "import", "a name", from], 2, "name"),
        (&["share", "import", "home", from, "--to", "/a/x", "--overwrite"], 3, "is no directory"),
        (&["share", "import", "home", from, "--to", "/b"], 0, "imported into"),
        (&["share", "import", "home", from, "--to", "/b"], 1, "no empty directory"),
        (&["share", "export", "none", "/not/there"], 10, "there is no share none"),
        (&["share", "export", "home", "x.tar.gz"], 2, "not compressed here"),
        (&["share", "export", "home@v:9", "never"], 10, "9"),
        (&["share", "export", "home", "never", "--path", "/none"], 10, "there is no /none"),
        (&["share", "export", "home", "/not/there/x"], 1, "/not/there/x"),
    ] {
        let ran = fixture.run(arguments);
        assert_eq!(ran.code, code, "{arguments:?} {ran:?}");
        assert!(format!("{}{}", ran.out, ran.err).contains(text), "{arguments:?} {ran:?}");
    }
    // A share that was created in vain is gone again; one that has something stays.
    assert_eq!(fixture.run(&["share", "show", "new"]).code, 10);
    let mut cut = shell(&fixture.path("from"), "tar -c a a");
    cut.truncate(1024 + 512 + 100);
    let cut = fixture.pipe(&["share", "import", "new", "-"], &cut);
    let said = String::from_utf8_lossy(&cut.stderr);
    assert!(said.contains("ends in the middle") && said.contains("--overwrite goes on"), "{said}");
    fixture.ok(&["share", "import", "new", from, "--overwrite"]);
    let socket = fixture.path("from/socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let partly = fixture.run(&["share", "import", "third", from]);
    assert_eq!(partly.code, 3, "{partly:?}");
    assert!(partly.err.contains("socket: a socket"), "{partly:?}");
    let count = partly.out.lines().find(|line| line.starts_with("left out"));
    assert!(count.is_some_and(|line| line.ends_with(" 1")), "{partly:?}");
}
