//! The help of every command, word by word, against `tests/snapshots`.
//!
//! `BLESS=1 cargo test -p hindsight-cli help` writes the snapshots instead of comparing them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fixture::run;

/// Every command with a help of its own.
const COMMANDS: &[&str] = &[
    "",
    "serve",
    "volume",
    "volume create",
    "volume list",
    "volume show",
    "volume space",
    "volume set",
    "volume resize",
    "volume rename",
    "volume delete",
    "volume undelete",
    "volume import",
    "volume export",
    "version",
    "version create",
    "version list",
    "version show",
    "version delete",
    "version compact",
    "version uncompact",
    "version schedule",
    "version schedule set",
    "version schedule show",
    "version schedule list",
    "version schedule remove",
    "group",
    "group create",
    "group list",
    "group show",
    "group set",
    "group delete",
    "group delete-version",
    "group version",
    "group revert",
    "group clone",
    "group diff",
    "group schedule",
    "group schedule set",
    "group schedule show",
    "group schedule list",
    "group schedule remove",
    "group retention",
    "group retention explain",
    "group retention apply",
    "retention",
    "retention explain",
    "retention apply",
    "mark",
    "mark create",
    "mark list",
    "mark delete",
    "share",
    "share create",
    "share list",
    "share show",
    "share set",
    "share delete",
    "share allow",
    "share deny",
    "share import",
    "share export",
    "share ls",
    "share cat",
    "share log",
    "share ops",
    "share repair",
    "share restore",
    "target",
    "target list",
    "target show",
    "target create",
    "target set",
    "target delete",
    "page",
    "tls",
    "tls init",
    "tls client",
    "tls list",
    "token",
    "token create",
    "token list",
    "token show",
    "token revoke",
    "history",
    "timeline",
    "resolve",
    "revert",
    "clone",
    "diff",
    "file",
    "file list",
    "file stat",
    "file cat",
    "file restore",
    "file tar",
    "file diff",
    "file history",
    "file find",
    "mount",
    "bisect",
    "prove",
    "prove list",
    "watch",
    "watch set",
    "watch show",
    "watch remove",
    "unmount",
    "pool",
    "pool create",
    "pool status",
    "pool audit",
    "pool set",
    "pool grow",
    "pool replace",
    "pool attach",
    "pool spare",
    "pool spare add",
    "pool spare remove",
    "pool scrub",
    "pool inspect",
    "pool rebuild",
    "doctor",
    "trace",
    "trace convert",
    "trace record",
    "trace cut",
    "trace scale",
    "trace summarise",
    "trace generate",
    "model",
    "model show",
    "model advise",
    "completions",
    "man",
    "help",
];

fn snapshot(command: &str) -> PathBuf {
    let name = format!("hindsight {command}").trim_end().replace(' ', "-");
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(format!("{name}.txt"))
}

fn help(command: &str) -> String {
    let arguments: Vec<&str> = command.split(' ').filter(|a| !a.is_empty()).collect();
    let ran = run(&[&arguments[..], &["--help"]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{command}");
    ran.out
}

#[test]
fn the_help_of_every_command_is_its_snapshot() {
    let bless = std::env::var("BLESS").is_ok_and(|value| value == "1");
    for command in COMMANDS {
        let (path, help) = (snapshot(command), help(command));
        if bless {
            fs::write(&path, help).expect("write the snapshot");
        } else {
            let kept = fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(help, kept, "{}: BLESS=1 writes it anew", path.display());
        }
    }
}

#[test]
fn every_command_has_a_snapshot_and_every_snapshot_a_command() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let mut kept: Vec<PathBuf> =
        fs::read_dir(dir).expect("snapshots").map(|e| e.expect("entry").path()).collect();
    let mut known: Vec<PathBuf> = COMMANDS.iter().map(|c| snapshot(c)).collect();
    kept.sort();
    known.sort();
    assert_eq!(kept, known);
    for command in COMMANDS {
        for line in help(command).lines().skip_while(|l| *l != "Commands:").skip(1) {
            let Some(name) = line.strip_prefix("  ").and_then(|l| l.split(' ').next()) else {
                break;
            };
            // A program of its own, with snapshots of its own.
            if name.is_empty() || name == "lab" {
                continue;
            }
            let whole = format!("{command} {name}");
            assert!(COMMANDS.contains(&whole.trim()), "{whole} is not in the list");
        }
    }
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).out.contains("hindsight"), "{shell}");
    }
    let dir = tempfile::tempdir().expect("directory");
    let pages = dir.path().join("man1");
    let ran = run(&["man", pages.to_str().expect("UTF-8")]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for page in ["hindsight.1", "hindsight-serve.1", "hindsight-volume-create.1"] {
        assert!(pages.join(page).exists(), "{page}");
    }
}
