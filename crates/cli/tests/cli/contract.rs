//! What scripts and people rely on, whatever the verb: one shape of dry runs, errors as JSON, help,
//! and short forms.

use std::collections::BTreeSet;
use std::fs;

use crate::fixture::{Fixture, Ran, run};

/// Every verb that has `--dry-run`, with something that it would do.
const DRY_RUNS: &[&[&str]] = &[
    &["volume", "set", "pg", "--window", "1h"],
    &["volume", "resize", "pg", "32MiB"],
    &["volume", "delete", "pg", "--force"],
    &["version", "delete", "pg", "0", "0..1"],
    &["version", "schedule", "set", "pg", "--keep-daily", "1"],
    &["version", "schedule", "remove", "pg"],
    &["group", "set", "db", "--hook", "none"],
    &["group", "delete", "db"],
    &["group", "delete-version", "db", "0"],
    &["group", "revert", "db", "--to", "v:0"],
    &["group", "schedule", "set", "db", "--keep-daily", "1"],
    &["group", "schedule", "remove", "db"],
    &["group", "retention", "apply", "db"],
    &["retention", "apply", "pg"],
    &["mark", "delete", "pg", "m"],
    &["revert", "pg", "--to", "v:0"],
    &["volume", "rename", "pg", "pg-main"],
    &["share", "set", "home", "--window", "1h", "--metadata", "server"],
    &["share", "delete", "home"],
    &["share", "restore", "home@m", "/", "--to", "/copy"],
    &["share", "repair", "home", "--undo", "op=MKDIR"],
    &["token", "revoke", "pg"],
];

/// The verbs whose manual page has the option, as `volume-set`.
fn verbs_with_dry_runs() -> BTreeSet<String> {
    let dir = tempfile::tempdir().expect("directory");
    assert_eq!(run(&["man", dir.path().to_str().expect("UTF-8")]).code, 0);
    let pages = fs::read_dir(dir.path()).expect("pages").map(|page| page.expect("page").path());
    let has = |page: &std::path::PathBuf| {
        fs::read_to_string(page).expect("page").contains("\\-\\-dry\\-run")
    };
    let name = |page: std::path::PathBuf| {
        let name = page.file_stem().expect("name").to_str().expect("UTF-8").to_owned();
        name.trim_start_matches("hindsight-").to_owned()
    };
    pages.filter(has).map(name).collect()
}

#[test]
fn every_dry_run_has_one_shape_and_changes_nothing() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    fixture.ok(&["share", "create", "home"]);
    fixture.ok(&["token", "create", "pg", "--role", "viewer"]);
    fixture.ok(&["group", "create", "db", "pg"]);
    fixture.ok(&["version", "schedule", "set", "pg", "--every", "7d", "--keep-last", "1"]);
    fixture.ok(&["group", "schedule", "set", "db", "--every", "7d", "--keep-last", "1"]);
    fixture.ok(&["group", "version", "db"]);
    fixture.ok(&["version", "create", "pg"]);
    fixture.ok(&["mark", "create", "home", "m"]);
    fixture.ok(&["share", "restore", "home@m", "/", "--to", "/there"]);
    fixture.ok(&["mark", "create", "pg", "m", "--pin"]);
    let state = || {
        let lists: [&[&str]; 7] = [
            &["token", "list"],
            &["share", "show", "home"],
            &["volume", "show", "pg"],
            &["version", "list", "pg"],
            &["group", "show", "db"],
            &["version", "schedule", "list"],
            &["mark", "list", "pg"],
        ];
        lists.map(|list| fixture.ok(list))
    };
    // How much a version changed is counted in the background.
    let began = std::time::Instant::now();
    while fixture.ok(&["version", "list", "pg"]).contains("<=") {
        assert!(began.elapsed().as_secs() < 60, "versions are never counted");
    }
    let before = state();
    let mut tried = BTreeSet::new();
    for verb in DRY_RUNS {
        let dry = fixture.run(&[verb, &["--dry-run", "--json"][..]].concat());
        let answer = dry.json();
        assert_eq!(answer["dry_run"], true, "{verb:?}: {dry:?}");
        let would = answer["would"].as_array().unwrap_or_else(|| panic!("{verb:?}: {dry:?}"));
        assert!(!would.is_empty() || verb.contains(&"apply"), "{verb:?}: {dry:?}");
        for one in would {
            let fields: Vec<&String> = one.as_object().expect("an object").keys().collect();
            assert_eq!(fields, ["action", "target", "text"], "{verb:?}");
            let text = one["text"].as_str().expect("text");
            assert!(dry.err.contains(text) || verb.contains(&"apply"), "{verb:?}: {dry:?}");
        }
        assert!(dry.err.contains("nothing was changed"), "{verb:?}: {dry:?}");
        tried.insert(verbs_of(verb));
    }
    assert_eq!(state(), before);
    assert_eq!(tried, verbs_with_dry_runs());
}

/// The nouns and the verb at the beginning of a command, as its manual page has them.
fn verbs_of(words: &[&str]) -> String {
    let is_word = |word: &&&str| {
        let is_name = matches!(**word, "pg" | "db" | "home") || word.contains('@');
        !is_name && !word.starts_with('-')
    };
    words.iter().take_while(is_word).copied().collect::<Vec<_>>().join("-")
}

/// The one line of JSON that a failure is.
fn problem(ran: &Ran) -> serde_json::Value {
    let mut lines = ran.err.lines().filter(|line| line.starts_with('{'));
    let line = lines.next().unwrap_or_else(|| panic!("{ran:?}"));
    assert!(lines.next().is_none() && !ran.err.contains("error:"), "{ran:?}");
    let problem: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(problem["exit_code"], ran.code, "{ran:?}");
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{ran:?}");
    problem
}

#[test]
fn errors_are_json_where_answers_are_and_exit_codes_stay() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    let refused = fixture.run(&["volume", "show", "nobody", "--json"]);
    let told = problem(&refused);
    assert_eq!((refused.code, &told["status"]), (10, &404.into()));
    assert_eq!(told["type"], "urn:hindsight:problem:not-found");
    assert!(told["hint"].is_string(), "{told}");
    let outside = problem(&fixture.run(&["resolve", "pg@seq:99", "--json"]));
    assert!(outside["latest"].is_object() && outside["exit_code"] == 13, "{outside}");
    // Failures of the command itself, of a part, and of the command line.
    let local = problem(&fixture.run(&["mark", "delete", "pg", "x", "--dry-run", "--json"]));
    assert_eq!((&local["type"], &local["exit_code"]), (&"about:blank".into(), &10.into()));
    fixture.ok(&["version", "create", "pg"]);
    let partly = fixture.run(&["version", "delete", "pg", "0", "7", "--json"]);
    assert!(partly.code == 3 && partly.err.contains("\"exit_code\":10"), "{partly:?}");
    let usage = problem(&run(&["volume", "create", "pg", "--size", "ten", "--json"]));
    assert_eq!(usage["exit_code"], 2);
    assert!(usage["detail"].as_str().is_some_and(|text| text.contains("ten")), "{usage}");
    let plain = fixture.run(&["volume", "show", "nobody"]);
    assert!(plain.err.starts_with("error: ") && plain.err.contains("\nhint: "), "{plain:?}");
}

#[test]
fn a_mark_is_found_by_its_bare_name_where_the_text_has_no_other_meaning() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    fixture.ok(&["mark", "create", "pg", "before-upgrade"]);
    assert!(fixture.qemu_io("pg", &["write -P 1 0 64k", "flush"]));
    let seq = |moment: &str| fixture.run(&["resolve", moment, "--json"]).json()["seq"].clone();
    let marked = seq("pg@mark:before-upgrade");
    assert_eq!(seq("pg@before-upgrade"), marked);
    assert!(fixture.qemu_io("pg@before-upgrade", &["read -P 0 0 64k"]));
    let missing = fixture.run(&["resolve", "pg@before-upgrad"]);
    assert!(missing.code == 10 && missing.err.contains("before-upgrad"), "{missing:?}");
    // What means something else goes on to mean it.
    fixture.ok(&["mark", "create", "pg", "latest", "--at", "before-upgrade"]);
    assert_ne!(seq("pg@latest"), marked);
    assert_eq!(seq("pg@mark:latest"), marked);
    fixture.ok(&["mark", "create", "pg", "now", "--at", "before-upgrade"]);
    assert_ne!(seq("pg@now"), marked);
}

#[test]
fn a_revert_is_undone_and_made_again_without_naming_the_moment() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    let nothing = fixture.run(&["revert", "pg", "--undo"]);
    assert!(nothing.code == 10 && nothing.err.contains("was not reverted"), "{nothing:?}");
    fixture.ok(&["mark", "create", "pg", "empty"]);
    assert!(fixture.qemu_io("pg", &["write -P 1 0 64k", "flush"]));
    fixture.ok(&["revert", "pg", "--to", "empty"]);
    assert!(fixture.qemu_io("pg", &["read -P 0 0 64k"]));
    let dry = fixture.run(&["revert", "pg", "--undo", "--dry-run", "--json"]);
    assert_eq!(dry.json()["changed_bytes"], 65536);
    fixture.ok(&["revert", "pg", "--undo"]);
    assert!(fixture.qemu_io("pg", &["read -P 1 0 64k"]));
    fixture.ok(&["revert", "pg", "--undo"]);
    assert!(fixture.qemu_io("pg", &["read -P 0 0 64k"]));
    assert_eq!(fixture.run(&["revert", "pg"]).code, 2);
    assert_eq!(fixture.run(&["revert", "pg", "--undo", "--to", "empty"]).code, 2);
}

#[test]
fn a_volume_gets_so_much_larger() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    let dry = fixture.run(&["volume", "resize", "pg", "+16MiB", "--dry-run", "--json"]).json();
    assert_eq!(dry["to"], 80 << 20);
    let grown = fixture.run(&["volume", "resize", "pg", "+16M", "--json"]).json();
    assert_eq!(grown["size"], 80 << 20);
    assert_eq!(fixture.run(&["volume", "resize", "pg", "+"]).code, 2);
    let beyond = fixture.run(&["volume", "resize", "pg", "+15EiB"]);
    assert_eq!(beyond.code, 2, "{beyond:?}");
}

#[test]
fn help_is_a_command_and_every_page_has_an_example_the_environment_and_the_exit_codes() {
    assert_eq!(run(&["help", "volume", "create"]).out, run(&["volume", "create", "--help"]).out);
    assert_eq!(run(&["help"]).out, run(&["--help"]).out);
    let wrong = run(&["help", "volume", "conjure"]);
    assert!(wrong.code == 2 && wrong.err.contains("conjure"), "{wrong:?}");
    let dir = tempfile::tempdir().expect("directory");
    assert_eq!(run(&["man", dir.path().to_str().expect("UTF-8")]).code, 0);
    for page in fs::read_dir(dir.path()).expect("pages") {
        let path = page.expect("page").path();
        // The laboratory's own, if it was built: it asks no server.
        if path.to_string_lossy().contains("hindsight-lab") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("page");
        let has = |what: &str| text.contains(what);
        assert!(has("Exit status:") && has("HINDSIGHT_SERVER"), "{path:?}");
    }
}
