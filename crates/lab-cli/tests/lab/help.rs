//! The help of every verb, word by word, against `tests/snapshots`, and `hindsight lab`.
//!
//! `BLESS=1 cargo test -p hindsight-lab-cli help` writes the snapshots instead of comparing them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::fixture::{Ran, hindsight, lab, program};

const VERBS: [&str; 7] = ["", "list", "run", "darc", "replay", "ucdp", "xiao"];

#[test]
fn the_help_of_every_verb_is_its_snapshot() {
    let bless = std::env::var("BLESS").is_ok_and(|value| value == "1");
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    for verb in VERBS {
        let words: Vec<&str> = verb.split(' ').filter(|word| !word.is_empty()).collect();
        let ran = lab(&[&words[..], &["--help"]].concat());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{verb}");
        let path = dir.join(format!("hindsight-lab {verb}").trim_end().replace(' ', "-") + ".txt");
        if bless {
            fs::write(&path, &ran.out).expect("write the snapshot");
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(ran.out, kept, "{}: BLESS=1 writes it anew", path.display());
    }
    assert_eq!(fs::read_dir(dir).expect("snapshots").count(), VERBS.len());
    let shown = lab(&["--help"]).out;
    let verbs = shown.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs = verbs.take_while(|line| !line.is_empty());
    // What is indented more goes on with the line before.
    let verbs: Vec<&str> = verbs.filter_map(|line| line[2..].split(' ').next()).collect();
    assert!(verbs.iter().all(|verb| *verb == "help" || VERBS.contains(verb)), "{verbs:?}");
}

#[test]
fn hindsight_starts_the_laboratory_with_the_same_words() {
    assert_eq!(hindsight(&["lab", "list", "--json"]).json(), lab(&["list", "--json"]).json());
    assert_eq!(hindsight(&["--json", "lab", "list"]).json(), lab(&["list", "--json"]).json());
    assert_eq!(hindsight(&["lab", "--help"]).out, lab(&["--help"]).out);
    assert_eq!(hindsight(&["help", "lab", "run"]).out, lab(&["run", "--help"]).out);
    assert_eq!(hindsight(&["complete", "--", "lab", "re"]).out, "replay\n");
    let refused = hindsight(&["lab", "run", "all", "--scale", "3", "--json"]);
    assert_eq!(
        (refused.code, refused.err),
        (2, lab(&["run", "all", "--scale", "3", "--json"]).err)
    );
    let dir = tempfile::tempdir().expect("directory");
    assert_eq!(hindsight(&["man", dir.path().to_str().expect("UTF-8")]).code, 0);
    let page = fs::read_to_string(dir.path().join("hindsight-lab-run.1")).expect("page");
    assert!(page.contains("Exit status:") && page.contains("no\\-engine"), "{page}");
}

#[test]
fn hindsight_alone_says_how_to_get_the_laboratory() {
    let dir = tempfile::tempdir().expect("directory");
    let alone = dir.path().join("hindsight");
    // By another process: a file that a child of another test has open for writing cannot be run.
    let copied = Command::new("cp").arg(program()).arg(&alone).status().expect("run");
    assert!(copied.success(), "{copied}");
    let run = |words: &[&str]| Ran::of(Command::new(&alone).args(words).env("PATH", dir.path()));
    for words in [&["lab", "list"][..], &["lab"], &["lab", "--help"], &["help", "lab"]] {
        let ran = run(words);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(ran.err.contains("\nhint: ") && ran.err.contains("make lab"), "{ran:?}");
    }
    assert_eq!(run(&["complete", "--", "lab", "re"]).out, "");
    let pages = dir.path().join("man");
    assert_eq!(run(&["man", pages.to_str().expect("UTF-8")]).code, 0);
    assert!(pages.join("hindsight-lab.1").exists(), "what it would be");
}
