//! `volume export --since` and `volume import --diff`: copies follow, and take nothing that is not
//! theirs.

use std::fs;
use std::path::Path;

use crate::fixture::Fixture;

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn content(fixture: &Fixture, volume: &str) -> Vec<u8> {
    let output = fixture.pipe(&["volume", "export", volume, "-"], b"");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// A stream of changes.
fn stream(fixture: &Fixture, source: &str, since: &str) -> Vec<u8> {
    let output = fixture.pipe(&["volume", "export", source, "-", "--since", since], b"");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// Applies one; answers the exit code and what was said.
fn apply(fixture: &Fixture, volume: &str, stream: &[u8]) -> (Option<i32>, String) {
    let output = fixture.pipe(&["volume", "import", volume, "-", "--diff"], stream);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn with_volume() -> Fixture {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "4MiB"]);
    assert!(fixture.qemu_io("pg", &["write -P 1 0 1M", "write -P 2 2M 4k", "flush"]));
    fixture.ok(&["mark", "create", "pg", "m", "--pin"]);
    fixture
}

#[test]
fn a_copy_on_another_server_follows_and_each_step_is_undone_by_what_is_printed() {
    let (here, there) = (with_volume(), Fixture::new());
    let whole = stream(&here, "pg@m", "nothing");
    assert!(whole.len() < (1 << 20) + (65 << 10), "zeros are not sent: {}", whole.len());
    assert_eq!(apply(&there, "copy", &whole).0, Some(0));
    let first = content(&here, "pg@m");
    assert!(content(&there, "copy") == first);
    let shown = there.run(&["volume", "show", "copy", "--json"]).json();
    assert_eq!(shown["unfinished_import"], false, "{shown}");
    assert!(
        shown["live_bytes"].as_u64().expect("bytes") <= (1 << 20) + (64 << 10),
        "holes stay holes"
    );

    let written = ["write -P 3 4k 200k", "discard 512k 256k", "write -z 2M 4k", "flush"];
    assert!(here.qemu_io("pg", &written));
    here.ok(&["volume", "resize", "pg", "6MiB"]);
    assert!(here.qemu_io("pg", &["write -P 4 5M 100k", "flush"]));
    let file = here.path("changes");
    let told = ["volume", "export", "pg", text(&file), "--since", "m", "--json"];
    let told = here.run(&told).json();
    assert_eq!((&told["data_bytes"], &told["size"]), (&(300 << 10).into(), &(6 << 20).into()));
    let sent = fs::read(&file).expect("a file");
    assert!(sent.starts_with(b"rbd diff v1\n") && sent.len() < 301 << 10, "{}", sent.len());
    let second = content(&here, "pg");
    for turn in 0..2 {
        let ran = there.run(&["volume", "import", "copy", text(&file), "--diff"]);
        assert_eq!(ran.code, 0, "turn {turn}: {ran:?}");
        assert!(content(&there, "copy") == second, "turn {turn}");
        let printed = ran.err.lines().find_map(|line| line.strip_prefix("to undo: hindsight "));
        let undo: Vec<&str> = printed.expect("how to undo").split(' ').collect();
        if turn == 0 {
            there.ok(&undo);
            assert!(content(&there, "copy") == first, "undone, and its size too");
        }
    }
    // The next one, which makes it smaller, and one back to the very first.
    let at = here.run(&["resolve", "pg@latest", "--json"]).json()["seq"].to_string();
    here.ok(&["volume", "resize", "pg", "3MiB"]);
    assert!(here.qemu_io("pg", &["write -P 5 0 8k", "flush"]));
    let third = stream(&here, "pg", &format!("seq:{at}"));
    assert_eq!(apply(&there, "copy", &third).0, Some(0));
    assert!(content(&there, "copy") == content(&here, "pg"));
    assert_eq!(apply(&there, "copy", &stream(&here, "pg@m", "latest")).0, Some(0));
    assert!(content(&there, "copy") == first);
    let marks = there.run(&["mark", "list", "copy", "--json"]).json();
    assert_eq!(marks.as_array().map(Vec::len), Some(2), "what it was made of, and it: {marks}");
}

#[test]
fn a_stream_is_refused_by_what_is_not_its_base() {
    let fixture = with_volume();
    assert_eq!(apply(&fixture, "copy", &stream(&fixture, "pg@m", "nothing")).0, Some(0));
    assert!(fixture.qemu_io("pg", &["write -P 3 0 4k", "flush"]));
    fixture.ok(&["mark", "create", "pg", "n", "--pin"]);
    let second = stream(&fixture, "pg@n", "m");
    assert!(fixture.qemu_io("pg", &["write -P 4 0 4k", "flush"]));
    let third = stream(&fixture, "pg", "n");
    let before = content(&fixture, "copy");
    let versions = || fixture.run(&["version", "list", "copy", "--json"]).json();
    for (stream, volume, code, said) in [
        (&third, "copy", 1, "is not known to be the stream's base"),
        (&second, "pg", 1, "apply streams in the order in which they were made"),
        (&second, "nobody", 10, "nobody"),
        (&stream(&fixture, "pg", "nothing"), "copy", 1, "there is a volume copy already"),
        (&b"QFI\xfb, and so on and on".to_vec(), "copy", 1, "this is no stream of changes"),
    ] {
        let refused = apply(&fixture, volume, stream);
        assert!(refused.0 == Some(code) && refused.1.contains(said), "{volume}: {refused:?}");
    }
    assert!(fixture.qemu_io("copy", &["write -P 9 3M 4k", "flush"]));
    let refused = apply(&fixture, "copy", &second);
    assert!(refused.0 == Some(1) && refused.1.contains("was written since"), "{refused:?}");
    let back = refused.1.split("revert copy --to ").nth(1).expect("a way back").trim();
    let mark = back.split(' ').next().expect("a mark");
    assert_eq!(versions(), serde_json::json!([]), "nothing was touched");
    fixture.ok(&["revert", "copy", "--to", mark]);
    assert!(content(&fixture, "copy") == before);
    // A part of one changes nothing in the end.
    let cut = apply(&fixture, "copy", &second[..second.len() - 1]);
    assert!(cut.0 == Some(1) && cut.1.contains("the stream ends before its end"), "{cut:?}");
    assert!(cut.1.contains("copy is as it was before") && content(&fixture, "copy") == before);
    let whole = stream(&fixture, "pg", "nothing");
    let cut = apply(&fixture, "other", &whole[..whole.len() / 2]);
    assert_eq!((cut.0, fixture.run(&["volume", "show", "other"]).code), (Some(1), 10), "{cut:?}");
    assert_eq!(apply(&fixture, "copy", &second).0, Some(0));
    assert_eq!(apply(&fixture, "copy", &third).0, Some(0), "in order");
    assert!(content(&fixture, "copy") == content(&fixture, "pg"));
    // What somebody knows to be the base can be said to be it.
    let base = String::from_utf8_lossy(&second[17..]).into_owned();
    let base = base.split('t').next().expect("a name");
    fixture.ok(&["clone", "pg@m", "by-hand"]);
    fixture.ok(&["mark", "create", "by-hand", base]);
    assert_eq!(apply(&fixture, "by-hand", &second).0, Some(0));
    assert!(content(&fixture, "by-hand") == content(&fixture, "pg@n"));
}

#[test]
fn streams_of_changes_have_no_other_form_and_no_writer_beside_them() {
    let fixture = with_volume();
    let code = |arguments: &[&str]| fixture.run(arguments).code;
    let export = ["volume", "export", "pg", "-", "--since"];
    assert_eq!(code(&[&export[..], &["m", "--format", "raw"]].concat()), 2);
    assert_eq!(code(&[&export[..], &["nobody"]].concat()), 10);
    assert_eq!(code(&[&export[..], &["2001-01-01T00:00:00Z"]].concat()), 13);
    for other in ["--lazy", "--overwrite", "--size=1MiB", "--format=raw"] {
        assert_eq!(code(&["volume", "import", "v", "f", "--diff", other]), 2, "{other}");
    }
    assert_eq!(code(&["volume", "import", "v", "/nowhere", "--diff"]), 1);
    let file = fixture.path("changes");
    fixture.ok(&["volume", "export", "pg", text(&file), "--since", "nothing"]);
    let again = fixture.run(&["volume", "export", "pg", text(&file), "--since", "nothing"]);
    assert!(again.code == 1 && again.err.contains("--overwrite"), "{again:?}");
    fixture.ok(&["volume", "import", "copy", text(&file), "--diff"]);
    fixture.ok(&["volume", "export", "pg", text(&file), "--since", "latest", "--overwrite"]);
    let nothing = fixture.run(&["volume", "import", "copy", text(&file), "--diff", "--json"]);
    assert_eq!(nothing.json()["name"], "copy", "nothing changed, and that is fine");
}

#[test]
fn an_export_of_a_moment_has_the_size_of_then() {
    let fixture = with_volume();
    fixture.ok(&["volume", "resize", "pg", "3MiB"]);
    let file = fixture.path("then.raw");
    let told = fixture.run(&["volume", "export", "pg@m", text(&file), "--json"]).json();
    assert_eq!((&told["size"], content(&fixture, "pg@m").len()), (&(4 << 20).into(), 4 << 20));
    assert_eq!(fs::metadata(&file).expect("a file").len(), 4 << 20);
}

#[test]
fn a_stream_takes_no_mark_away_that_is_not_of_a_stream() {
    let fixture = with_volume();
    assert_eq!(apply(&fixture, "copy", &stream(&fixture, "pg@m", "nothing")).0, Some(0));
    let base = fixture.run(&["mark", "list", "copy", "--json"]).json()[0]["name"].clone();
    fixture.ok(&["mark", "create", "copy", "keep", "--pin"]);
    let marks = || fixture.run(&["mark", "list", "copy", "--json"]).json();
    let (before, all) = (content(&fixture, "copy"), marks());
    let base = base.as_str().expect("a name");
    let mut hostile = b"rbd diff v1\n".to_vec();
    for (tag, name) in [(b'f', base), (b't', "keep")] {
        hostile.push(tag);
        hostile.extend((name.len() as u32).to_le_bytes());
        hostile.extend(name.as_bytes());
    }
    hostile.push(b's');
    hostile.extend((4_u64 << 20).to_le_bytes());
    hostile.push(b'z');
    hostile.extend([0_u64.to_le_bytes(), 4096_u64.to_le_bytes()].concat());
    hostile.push(b'e');
    let (code, told) = apply(&fixture, "copy", &hostile);
    assert!(code == Some(1) && told.contains("has a mark keep"), "{code:?}: {told}");
    assert_eq!(marks(), all);
    assert!(content(&fixture, "copy") == before, "nothing was written");
}

#[test]
fn of_a_large_volume_with_little_in_it_only_that_is_read() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "thin", "--size", "1TiB"]);
    assert!(fixture.qemu_io("thin", &["write -P 7 0 64k", "write -P 8 1000G 4k", "flush"]));
    // To read all of it would take an hour.
    let whole = stream(&fixture, "thin", "nothing");
    assert!(whole.len() < 70 << 10, "{}", whole.len());
    assert_eq!(apply(&fixture, "copy", &whole).0, Some(0));
    assert!(fixture.qemu_io("copy", &["read -P 7 0 64k", "read -P 8 1000G 4k"]));
}
