//! `hindsight doctor` against a server that really has what it speaks of.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::fixture::{Fixture, hindsight};

/// The levels of what a report found of one check, and the text.
fn found<'a>(report: &'a Value, check: &str) -> Vec<(&'a str, &'a str)> {
    let of_check = report["findings"].as_array().expect("a list").iter();
    let of_check = of_check.filter(|finding| finding["check"] == check);
    let text = |finding: &'a Value, field: &str| finding[field].as_str().expect("text");
    of_check.map(|finding| (text(finding, "level"), text(finding, "what"))).collect()
}

/// What the doctor says, and its exit code.
fn doctor(server: &str, path: Option<&Path>, arguments: &[&str]) -> (Option<i32>, Value) {
    let mut command = hindsight();
    command.args(["doctor", "--json", "--server", server]).args(arguments);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let output = command.output().expect("run");
    let report =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (output.status.code(), report)
}

/// A machine whose timedatectl says that.
fn clock_says(fixture: &Fixture, word: &str) -> std::path::PathBuf {
    let folder = fixture.path(&format!("clock-{word}"));
    fs::create_dir(&folder).expect("a folder");
    let program = folder.join("timedatectl");
    let write = r#"printf '#!/bin/sh\necho %s\n' "$1" > "$0" && chmod 755 "$0""#;
    by_another_process(Command::new("sh").arg("-c").arg(write).arg(&program).arg(word));
    folder
}

/// Makes a program. A child of another test that has not begun its own yet has open what this
/// process has, and a file that is open for writing cannot be run.
fn by_another_process(command: &mut Command) {
    let status = command.status().expect("run");
    assert!(status.success(), "{command:?}: {status}");
}

#[test]
fn it_speaks_of_the_schedule_the_window_and_the_clock_and_of_nothing_else() {
    let fixture = Fixture::new();
    let server = fixture.server();
    let (yes, no) = (clock_says(&fixture, "yes"), clock_says(&fixture, "no"));
    // Not the one that this machine may have.
    let config = fixture.path("config.toml");
    fs::write(&config, "").expect("written");
    let config = ["--config", config.to_str().expect("UTF-8")];
    let (_, report) = doctor(&server, Some(&yes), &config);
    // Where temporary files lie, and what the server may have, is the machine's own.
    let own = ["file-system", "open-files"];
    let all = report["findings"].as_array().expect("a list").iter();
    let mut checks = all.map(|finding| finding["check"].as_str().expect("text"));
    assert!(checks.all(|check| own.contains(&check)), "{report}");
    let (_, report) = doctor(&server, Some(&no), &[]);
    assert_eq!(found(&report, "clock"), [("warning", "the clock is not synchronised")]);

    fixture.ok(&["volume", "create", "gone", "--size", "1MiB"]);
    fixture.ok(&["group", "create", "db", "gone"]);
    fixture.ok(&["volume", "delete", "gone", "--now"]);
    fixture.ok(&["group", "schedule", "set", "db", "--every", "1s"]);
    fixture.ok(&["volume", "create", "pg", "--size", "64MiB", "--history-limit", "1MiB"]);
    let fails = || found(&doctor(&server, Some(&yes), &[]).1, "schedule").len() == 1;
    let short = || found(&doctor(&server, Some(&yes), &[]).1, "window").len() == 1;
    let mut tries = 0;
    while !(fails() && short()) {
        assert!(fixture.qemu_io("pg", &["write -P 7 0 8M", "write -P 8 0 8M", "flush"]));
        tries += 1;
        assert!(tries < 100, "{}", doctor(&server, Some(&yes), &[]).1);
    }
    let (code, report) = doctor(&server, Some(&yes), &[]);
    assert!(code == Some(1) || code == Some(2), "{report}");
    assert!(found(&report, "schedule")[0].1.contains("the schedule of db fails"), "{report}");
    let said = fixture.run(&["doctor"]);
    assert!(said.out.contains("hindsight volume space pg says"), "{said:?}");
    assert!(said.out.contains("[schedule]"), "{said:?}");
}

#[test]
fn a_configuration_that_is_wrong_open_or_of_a_certificate_that_ends_is_told() {
    let fixture = Fixture::new();
    let server = fixture.server();
    let file = fixture.path("config.toml");
    let of = |text: &str| {
        fs::write(&file, text).expect("written");
        doctor(&server, None, &["--config", file.to_str().expect("UTF-8")])
    };
    let (code, report) = of("memroy = \"1GiB\"\n");
    let (level, what) = found(&report, "configuration")[0];
    assert_eq!((code, level), (Some(2), "critical"));
    assert!(what.contains("memroy"), "{what}");
    let (_, report) = of("memory = \"little\"\n");
    assert_eq!(found(&report, "configuration")[0].0, "critical");
    let (_, report) = of("pool = \"${SURELY_NOT_SET_HERE}\"\n");
    assert_eq!(found(&report, "configuration"), []);
    assert!(report["not_looked"].to_string().contains("SURELY_NOT_SET_HERE"), "{report}");

    let open = "insecure = true\n[nbd]\nlisten = [\"0.0.0.0:10809\"]\n";
    let (_, report) = of(open);
    let (level, what) = found(&report, "insecure")[0];
    assert!(level == "warning" && what.contains("nbd is served beyond"), "{what}");
    assert_eq!(found(&of(&open.replace("0.0.0.0", "127.0.0.1")).1, "insecure"), []);
    let (_, report) = of(&open.replace("nbd", "http"));
    assert!(found(&report, "insecure")[0].1.contains("http is served beyond"), "{report}");

    let (cert, key) = (fixture.path("cert.pem"), fixture.path("key.pem"));
    let with = |text: &str, key: &Path| {
        let (cert, key) = (cert.display(), key.display());
        of(&format!("{text}tls_cert = \"{cert}\"\ntls_key = \"{key}\"\n")).1
    };
    let with_key = |key: &Path| with("[nbd]\n", key);
    let ends_in = |days: &str| {
        let mut make = Command::new("openssl");
        make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        make.args(["-nodes", "-subj", "/CN=storage", "-days", days]).arg("-keyout").arg(&key);
        assert!(make.arg("-out").arg(&cert).output().expect("openssl").status.success());
        with_key(&key)
    };
    let report = ends_in("29");
    let (level, what) = found(&report, "certificate")[0];
    assert!(level == "warning" && what.contains("ends within 30 days"), "{what}");
    let report = ends_in("40");
    assert_eq!(found(&report, "certificate"), []);
    assert_eq!(found(&report, "configuration"), []);
    let https = open.replace("nbd", "http");
    assert_eq!(found(&with(&https, &key), "insecure"), [], "it has TLS");
    ends_in("29");
    assert_eq!(found(&with(&https, &key), "certificate")[0].0, "warning");
    assert_eq!(found(&with(&https, &cert), "configuration")[0].0, "critical");
    // An authority of clients ends too.
    let ca = fixture.path("ca.pem");
    fs::copy(&cert, &ca).expect("copied");
    ends_in("40");
    let with_ca = with(&format!("[nbd]\ntls_client_ca = \"{}\"\n", ca.display()), &key);
    let (level, what) = found(&with_ca, "certificate")[0];
    assert!(level == "warning" && what.contains("ca.pem ends within 30 days"), "{what}");
    for (key, why) in [(&cert, "cannot read"), (&fixture.path("gone"), "No such file")] {
        let report = with_key(key);
        let (level, what) = found(&report, "configuration")[0];
        assert!(level == "critical" && what.contains(why), "{what}");
    }
}

#[test]
fn what_the_server_was_started_with_is_looked_at_and_of_another_machines_nothing() {
    let fixture = Fixture::new();
    let own = fixture.path("own.toml");
    let pool = fixture.path("other");
    let text = format!("pool = \"{}\"\n[nbd]\nlisten = [\"none\"]\n", pool.display());
    fs::write(&own, text).expect("written");
    let socket = format!("unix:{}", fixture.path("other.sock").display());
    let mut serve = hindsight();
    serve.args(["serve", "--config=own.toml", "--pool-size", "128MiB", "--http", &socket]);
    serve.current_dir(fixture.dir.path()).stderr(Stdio::null());
    let mut child = serve.spawn().expect("started");
    await_server(&mut child, &socket);
    let (_, good) = doctor(&socket, None, &[]);
    fs::write(&own, "memroy = 1\n").expect("written");
    let (_, wrong) = doctor(&socket, None, &[]);
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(found(&good, "configuration"), []);
    assert!(!good["not_looked"].to_string().contains("file-system"), "{good}");
    assert!(found(&wrong, "configuration")[0].1.contains("memroy"), "{wrong}");

    let (address, token) = fixture.http_address();
    let with_token = format!("http://{address}/?token={token}");
    let (code, report) = doctor(&with_token, None, &[]);
    assert_eq!((code, report["findings"].as_array().map(Vec::len)), (Some(0), Some(0)), "{report}");
    let not_looked = report["not_looked"].as_array().expect("a list").iter();
    let not_looked: Vec<_> = not_looked.map(|one| one["check"].as_str().expect("text")).collect();
    let local = ["clock", "configuration", "program", "open-files", "memory", "file-system"];
    assert_eq!(not_looked, local);
    let without = doctor(&format!("http://{address}"), None, &["--token-file", "/nowhere"]);
    assert_eq!(without.0, Some(3), "{}", without.1);
    assert!(without.1["not_looked"].to_string().contains("cannot read /nowhere"), "{}", without.1);
}

/// Waits until a server answers.
fn await_server(child: &mut Child, address: &str) {
    let mut ask = hindsight();
    ask.args(["pool", "status", "--server", address]);
    while !ask.output().expect("run").status.success() {
        assert!(child.try_wait().expect("asked").is_none(), "it ended");
    }
}

#[test]
fn a_replaced_program_and_a_pool_in_memory_are_told_and_a_server_that_is_away_is_3() {
    let fixture = Fixture::new();
    let in_memory = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let folder = in_memory.path().to_str().expect("UTF-8");
    let (code, report) = doctor(&fixture.server(), None, &["--pool", folder]);
    assert_eq!(code, Some(2), "{report}");
    let (level, what) = found(&report, "file-system")[0];
    assert!(level == "critical" && what.contains("tmpfs"), "{what}");
    assert_eq!(found(&report, "program"), []);
    let away = doctor("unix:/nowhere/api.sock", None, &["--pool", "/proc"]);
    assert_eq!(away.0, Some(3), "{}", away.1);
    assert!(away.1["not_looked"].to_string().contains("no server at unix:/nowhere"), "{}", away.1);

    // The server of a program that an upgrade has put another one in the place of.
    let program = fixture.path("hindsight");
    let own = Path::new(env!("CARGO_BIN_EXE_hindsight"));
    by_another_process(Command::new("cp").arg(own).arg(&program));
    let pool = fixture.path("other");
    let mut serve = Command::new(&program);
    serve.args(["serve", "--nbd", "none", "--pool-size", "128MiB", "--pool"]);
    let socket = fixture.path("other.sock");
    let address = format!("unix:{}", socket.display());
    serve.arg(&pool).args(["--http", &address]).stderr(Stdio::null());
    let mut child = serve.spawn().expect("started");
    await_server(&mut child, &address);
    fs::remove_file(&program).expect("replaced");
    let (_, report) = doctor(&address, None, &[]);
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(found(&report, "program")[0].0, "warning", "{report}");
}
