//! `hindsight doctor` against a server that really has what it speaks of.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

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
    fs::write(&program, format!("#!/bin/sh\necho {word}\n")).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
    folder
}

#[test]
fn it_speaks_of_the_schedule_the_window_and_the_clock_and_of_nothing_else() {
    let fixture = Fixture::new();
    let server = fixture.server();
    let (yes, no) = (clock_says(&fixture, "yes"), clock_says(&fixture, "no"));
    let (_, report) = doctor(&server, Some(&yes), &[]);
    // Where temporary files lie is the machine's own.
    let all = report["findings"].as_array().expect("a list");
    assert!(all.iter().all(|finding| finding["check"] == "file-system"), "{report}");
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

    let cert = fixture.path("cert.pem");
    let ends_in = |days: &str| {
        let mut make = Command::new("openssl");
        make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        make.args([
            "-nodes",
            "-subj",
            "/CN=storage",
            "-days",
            days,
            "-keyout",
            "/dev/null",
            "-out",
        ]);
        assert!(make.arg(&cert).output().expect("openssl").status.success());
        let path = cert.display();
        of(&format!("[nbd]\ntls_cert = \"{path}\"\ntls_key = \"{path}\"\n")).1
    };
    let report = ends_in("29");
    let (level, what) = found(&report, "certificate")[0];
    assert!(level == "warning" && what.contains("ends within 30 days"), "{what}");
    assert_eq!(found(&ends_in("40"), "certificate"), []);
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
    fs::copy(env!("CARGO_BIN_EXE_hindsight"), &program).expect("copied");
    let pool = fixture.path("other");
    let mut serve = Command::new(&program);
    serve.args(["serve", "--nbd", "none", "--pool-size", "128MiB", "--pool"]);
    let socket = fixture.path("other.sock");
    let address = format!("unix:{}", socket.display());
    serve.arg(&pool).args(["--http", &address]).stderr(std::process::Stdio::null());
    let mut child = serve.spawn().expect("started");
    while hindsight()
        .args(["pool", "status", "--server", &address])
        .output()
        .expect("run")
        .status
        .code()
        != Some(0)
    {
        assert!(child.try_wait().expect("asked").is_none(), "it ended");
    }
    fs::remove_file(&program).expect("replaced");
    let (_, report) = doctor(&address, None, &[]);
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(found(&report, "program")[0].0, "warning", "{report}");
}
