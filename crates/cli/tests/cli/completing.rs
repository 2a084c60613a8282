//! Completions, typed into real shells on a terminal: words become what the server has.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::fixture::{Fixture, hindsight, run};

fn with_volumes() -> Fixture {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB"]);
    fixture.ok(&["volume", "create", "wal", "--size", "1MiB"]);
    fixture.ok(&["mark", "create", "pg", "before-upgrade"]);
    fixture.ok(&["mark", "create", "pg", "latest-but-one"]);
    fixture.ok(&["version", "create", "pg"]);
    fixture.ok(&["group", "create", "db", "pg", "wal"]);
    fixture
}

/// A command with the program in its path and the server in its environment.
fn with_program(program: &str, fixture: &Fixture) -> Command {
    let own = Path::new(env!("CARGO_BIN_EXE_hindsight")).parent().expect("a directory");
    let path = format!("{}:{}", own.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    command.env("PATH", path).env("HINDSIGHT_SERVER", fixture.server()).env("TERM", "dumb");
    command.env("HOME", fixture.dir.path()).current_dir(fixture.dir.path());
    command
}

/// What a shell shows in which lines are typed.
fn typed(fixture: &Fixture, shell: &str, lines: &[&str]) -> String {
    let mut script = with_program("script", fixture);
    script.args(["--quiet", "--command", shell, "/dev/null"]);
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = script.spawn().expect("script (apt-get install bsdutils)");
    let keys = format!("{}\nexit\n", lines.join("\n"));
    child.stdin.take().expect("piped").write_all(keys.as_bytes()).expect("type");
    let output = child.wait_with_output().expect("run");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Lines with tabs, and what the commands that they become show.
const TYPED: &[(&str, &str)] = &[
    ("hindsight resolve p\tbef\t", "exact  yes"),
    ("hindsight resolve pg@v:\t", "exact  yes"),
    ("hindsight resolve pg@mark:latest-\t", "exact  yes"),
    ("hindsight diff pg@lat\t-\t p\t", "0 ranges, 0 B differ"),
    ("hindsight vol\tsh\tw\t", "?socket="),
    ("hindsight revert pg --dr\t--to bef\t", "nothing was changed"),
    ("hindsight revert pg --dr\t--to=mark:bef\t", "nothing was changed"),
    ("hindsight mark del\tpg bef\t--dry-run", "nothing was changed"),
    ("hindsight version show pg \t", "crash-consistent"),
    ("hindsight group show d\t", "wal"),
    ("hindsight trace summarise a-tr\t", "a-trace"),
];

fn all_are_completed(shell: &str, setup: &str) {
    let fixture = with_volumes();
    std::fs::write(fixture.path("a-trace"), "no trace").expect("a file");
    for (line, shown) in TYPED {
        let seen = typed(&fixture, shell, &[setup, line]);
        // What was typed is echoed, too.
        let seen = seen.rsplit(line.split('\t').next().unwrap_or_default()).next();
        assert!(seen.is_some_and(|seen| seen.contains(shown)), "{shell}: {line:?}: {seen:?}");
    }
}

#[test]
fn bash_completes_what_the_server_has() {
    all_are_completed("bash --norc --noprofile -i", "source <(hindsight completions bash)");
}

#[test]
fn zsh_completes_what_the_server_has() {
    let setup = "autoload -U compinit; compinit -D -u; source <(hindsight completions zsh)";
    all_are_completed("zsh -f -i", setup);
}

#[test]
fn fish_completes_what_the_server_has() {
    let fixture = with_volumes();
    for (line, expected) in [
        ("volume show ", "pg wal"),
        ("resolve p", "pg@"),
        ("diff pg@", "pg@before-upgrade pg@latest pg@latest-but-one pg@v:0"),
        ("revert pg --to mark:l", "mark:latest-but-one"),
        (
            "volume set pg --architecture=split",
            "--architecture=split-downstream \
                                                --architecture=split-stream",
        ),
        ("group clone db@", "db@latest"),
    ] {
        let asked = format!("hindsight completions fish | source; complete -C 'hindsight {line}'");
        let mut fish = with_program("fish", &fixture);
        let output = fish.args(["--no-config", "-c", &asked]).output();
        let output = output.expect("fish (apt-get install fish)");
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(shown.split_whitespace().collect::<Vec<_>>().join(" "), expected, "{line}");
    }
}

#[test]
fn values_are_those_of_the_server_that_the_line_names() {
    let fixture = with_volumes();
    let of = |line: &str| {
        let words = line.split(' ');
        let asked: Vec<&str> = ["complete", "--"].into_iter().chain(words).collect();
        let ran = run(&asked);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        ran.out.split_whitespace().map(str::to_owned).collect::<Vec<String>>().join(" ")
    };
    let server = format!("--server {}", fixture.server());
    assert_eq!(of(&format!("{server} volume show ")), "pg wal");
    assert_eq!(of(&format!("volume {server} show ")), "pg wal");
    assert_eq!(of(&format!("{server} volume create ")), "", "a new name is nobody's yet");
    assert_eq!(of(&format!("{server} mark delete pg ")), "before-upgrade latest-but-one");
    assert_eq!(of(&format!("{server} version delete pg 0 ")), "0", "it takes several");
    assert_eq!(of(&format!("{server} group create new p")), "pg");
    assert_eq!(of(&format!("{server} resolve nobody@")), "nobody@latest");
    fixture.ok(&["token", "create", "nightly", "--role", "keeper"]);
    assert_eq!(of(&format!("{server} token revoke ")), "nightly");
    assert_eq!(of(&format!("{server} token create ")), "", "a new name is nobody's yet");
    let (address, token) = fixture.http_address();
    let server = format!("--server http://{address} --token {token}");
    assert_eq!(of(&format!("{server} volume show ")), "pg wal");
    fixture.ok(&["volume", "delete", "wal"]);
    let server = format!("--server {}", fixture.server());
    assert_eq!(of(&format!("{server} volume undelete ")), "wal");
    assert_eq!(of("--server unix:/nowhere volume show "), "", "nobody is there");
    assert_eq!(of("--server nonsense volume show "), "");
}

#[test]
fn a_server_that_does_not_answer_is_not_waited_for() {
    let dir = tempfile::tempdir().expect("directory");
    let socket = dir.path().join("api.sock");
    let _silent = UnixListener::bind(&socket).expect("bind");
    let mut command = hindsight();
    command.env("HINDSIGHT_SERVER", format!("unix:{}", socket.display()));
    let began = Instant::now();
    let output = command.args(["complete", "--", "volume", "show", ""]).output().expect("run");
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
    // Bodies are waited for for 30 s, and answers for ever.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
