//! `tls init`, `client` and `list`: what they make is taken by a server, its clients and openssl,
//! and nothing is made in the place of what was there.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::fixture::{Fixture, Ran, hindsight, run};
use crate::tls::{AT_TIME, openssl};

/// What `find` tells of a directory: each path with its mode and size.
fn tree(dir: &Path) -> String {
    let mut find = Command::new("find");
    let found = find.arg(dir).args(["-printf", "%P %m %s\n"]).output().expect("find");
    let text = String::from_utf8_lossy(&found.stdout);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Runs `hindsight tls` in a directory, after a clock that is ahead.
fn ahead(dir: &Path, ahead: &str, words: &str) -> Ran {
    let mut command = Command::new(AT_TIME);
    command.args([ahead, env!("CARGO_BIN_EXE_hindsight"), "tls"]);
    command.args(words.split(' ')).current_dir(dir);
    Ran::of(command.output().expect("run"))
}

fn ok(ran: &Ran) {
    assert_eq!(ran.code, 0, "{ran:?}");
}

fn tls(dir: &Path, words: &str) -> Ran {
    let mut command = hindsight();
    command.arg("tls").args(words.split(' ')).current_dir(dir);
    Ran::of(command.output().expect("run"))
}

fn done(dir: &Path, words: &str) -> String {
    let ran = tls(dir, words);
    ok(&ran);
    ran.out
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

fn nbdinfo(uri: &str) -> Output {
    Command::new("nbdinfo").args(["--size", uri]).output().expect("nbdinfo: libnbd-bin")
}

#[test]
fn what_init_and_client_make_is_taken_by_servers_and_clients_and_that_of_others_is_not() {
    let dir = tempfile::tempdir().expect("directory");
    done(dir.path(), "init --name localhost --name 127.0.0.1 --name ::1 tls");
    done(dir.path(), "client backup tls");
    done(dir.path(), "client ops tls --out ops");
    done(dir.path(), "init --name localhost others");
    done(dir.path(), "client backup others");
    openssl(dir.path(), "now", "verify -x509_strict -CAfile tls/ca-cert.pem tls/ca-cert.pem");
    for (purpose, cert) in
        [("server -verify_hostname localhost", "tls/server"), ("client", "ops/client")]
    {
        let words = format!("verify -x509_strict -CAfile tls/ca-cert.pem -purpose ssl{purpose}");
        openssl(dir.path(), "now", &format!("{words} {cert}-cert.pem"));
    }
    let file = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    let (cert, key, ca) =
        (file("tls/server-cert.pem"), file("tls/server-key.pem"), file("tls/ca-cert.pem"));
    let named = file("named.toml");
    fs::write(&named, "[access]\ncertificates = \"named\"\n").expect("written");
    let flags = ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca];
    let http = ["--http-tls-cert", &cert, "--http-tls-key", &key, "--http-tls-client-ca", &ca];
    let config = ["--config", &named];
    let (own, ops) = (file("tls/clients/backup"), file("ops"));
    let (foreign, foreign_ca) = (file("others/clients/backup"), file("others/ca-cert.pem"));
    let fixture = Fixture::with(dir, &[&flags[..], &http, &config].concat());
    fixture.ok(&["volume", "create", "pg", "--size", "1MiB"]);
    // The rights are those of a token of the name.
    fixture.ok(&["token", "create", "backup", "--role", "reader"]);
    fixture.ok(&["token", "create", "ops", "--role", "admin"]);
    let line = fixture.lines.iter().find_map(|line| line.strip_prefix("nbd 127.0.0.1:"));
    let port = line.expect("NBD over TCP").trim_end_matches(" (TLS)");
    for host in ["localhost", "127.0.0.1"] {
        for folder in [&own, &ops] {
            let ran = nbdinfo(&format!("nbds://{host}:{port}/pg?tls-certificates={folder}"));
            assert_eq!(String::from_utf8_lossy(&ran.stdout), "1048576\n", "{ran:?}");
        }
    }
    // A foreign client, and a server that is foreign to it: each half alone is refused too.
    let foreign_but_for_the_server = fixture.path("half");
    fs::create_dir(&foreign_but_for_the_server).expect("made");
    for (from, name) in [(&own, "ca-cert"), (&foreign, "client-cert"), (&foreign, "client-key")] {
        let name = format!("{name}.pem");
        fs::copy(format!("{from}/{name}"), foreign_but_for_the_server.join(name)).expect("copied");
    }
    for folder in [&foreign, foreign_but_for_the_server.to_str().expect("plain")] {
        let ran = nbdinfo(&format!("nbds://localhost:{port}/pg?tls-certificates={folder}"));
        assert!(!ran.status.success(), "{folder}: {ran:?}");
    }
    let creds = format!("tls-creds-x509,id=tls,dir={own},endpoint=client");
    let image = format!("driver=nbd,host=localhost,port={port},export=pg,tls-creds=tls");
    let mut qemu = Command::new("qemu-img");
    let ran = qemu.args(["info", "--object", &creds, "--image-opts", &image]).output();
    let ran = ran.expect("qemu-img: qemu-utils");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("1 MiB"), "{ran:?}");
    let server = format!("https://{}", fixture.http_address().0);
    let list = |ca: &str, folder: &str| {
        let (cert, key) = (format!("{folder}/client-cert.pem"), format!("{folder}/client-key.pem"));
        run(&["volume", "list", "--server", &server, "--ca", ca, "--cert", &cert, "--key", &key])
    };
    assert_eq!(list(&ca, &ops).code, 0);
    let ran = list(&ca, &foreign);
    assert!(ran.code == 12 && ran.err.contains("client_ca"), "{ran:?}");
    let ran = list(&foreign_ca, &ops);
    assert!(ran.code == 1 && ran.err.contains("no authority of --ca"), "{ran:?}");
}

#[test]
fn files_have_their_modes_and_nothing_is_made_in_the_place_of_what_is_there() {
    let dir = tempfile::tempdir().expect("directory");
    let at = |name: &str| dir.path().join(name);
    let said = done(dir.path(), "init --name storage.example tls");
    let key = format!("tls_key = \"{}\"\n", at("tls/server-key.pem").display());
    assert!(said.contains(&key), "{said}");
    let folder = done(dir.path(), "client backup tls");
    assert_eq!(folder, format!("{}\n", at("tls/clients/backup").display()));
    done(dir.path(), "client ops tls --out ops");
    for name in ["tls", "tls/clients", "tls/clients/backup", "tls/clients/ops", "ops"] {
        assert_eq!(mode(&at(name)), 0o700, "{name}");
    }
    for name in ["tls/ca-key", "tls/server-key", "tls/clients/backup/client-key", "ops/client-key"]
    {
        assert_eq!(mode(&at(&format!("{name}.pem"))), 0o600, "{name}");
    }
    assert_eq!(mode(&at("ops/ca-cert.pem")), 0o644);
    assert!(!at("tls/clients/ops/client-key.pem").exists());
    fs::create_dir(at("some")).expect("made");
    std::os::unix::fs::symlink("nowhere", at("some/client-cert.pem")).expect("linked");
    fs::write(at("file"), "text").expect("written");
    let before = tree(dir.path());
    for (words, said) in [
        ("init --name other tls", "tls/server-key.pem is there already"),
        ("init --name other file", "file is there already"),
        ("init --name other no/where", "cannot make no/where"),
        ("client backup tls", "tls/clients/backup is there already"),
        ("client backup tls --out other", "tls/clients/backup is there already"),
        ("client new tls --out some", "some/client-cert.pem is there already"),
        ("client new tls --out ops", "ops/client-key.pem is there already"),
        ("client new tls --out file", "file is there already"),
        ("client new tls --out no/where", "cannot make no/where"),
        ("client new some", "there is no some/ca-cert.pem"),
        ("client new nowhere", "there is no nowhere/ca-cert.pem"),
        ("list nowhere", "there is no nowhere/ca-cert.pem"),
    ] {
        let ran = tls(dir.path(), words);
        assert!(ran.code == 1 && ran.err.contains(said), "{words}: {ran:?}");
        assert_eq!(tree(dir.path()), before, "{words}");
    }
    // A path that is no text is one all the same.
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let run =
        hindsight().args(["tls", "init", "--name=a"]).arg(odd).current_dir(dir.path()).output();
    assert_eq!(Ran::of(run.expect("run")).code, 0);
    // Halves of two pairs sign nothing.
    done(dir.path(), "init --name other mixed");
    fs::copy(at("tls/ca-cert.pem"), at("mixed/ca-cert.pem")).expect("copied");
    let before = tree(dir.path());
    let ran = tls(dir.path(), "client new mixed");
    assert!(ran.code == 1 && ran.err.contains("have to be one pair"), "{ran:?}");
    assert_eq!(tree(dir.path()), before);
    // Of many at a time one makes it.
    let starts = (0..6).map(|_| {
        let mut command = hindsight();
        command.args(["tls", "client", "new", "tls", "--out", "new"]).current_dir(dir.path());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.spawn().expect("spawn")
    });
    let all: Vec<_> = starts.collect();
    let ends = all.into_iter().map(|mut one| one.wait().expect("wait").code());
    assert_eq!(ends.filter(|code| *code == Some(0)).count(), 1);
    openssl(dir.path(), "now", "verify -CAfile new/ca-cert.pem new/client-cert.pem");
}

#[test]
fn names_that_nobody_could_ask_for_are_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let before = tree(dir.path());
    let wrong =
        ["", "*.example", "gr\u{f6}\u{df}e", "a/b", "a..b", "a.", "a:80", "10.0.0.256", "[::1]"];
    for name in wrong.into_iter().chain(["https://a", "a b", "fe80::1%eth0"]) {
        let path = dir.path().join("tls");
        let ran = run(&["tls", "init", "--name", name, path.to_str().expect("plain")]);
        assert!(ran.code == 2 && ran.err.contains("no name of a host"), "{name}: {ran:?}");
    }
    let many = vec!["--name=a"; 101];
    let path = dir.path().join("tls");
    let ran = run(&[&["tls", "init", path.to_str().expect("plain")][..], &many].concat());
    assert!(ran.code == 2 && ran.err.contains("at most 100 names"), "{ran:?}");
    assert_eq!(tree(dir.path()), before);
    done(dir.path(), "init --name a tls");
    let before = tree(dir.path());
    let long = "a".repeat(65);
    for name in ["", ".", "..", "a/b", "../a", "gr\u{f6}\u{df}e", "a b", "*", &long] {
        let path = dir.path().join("tls");
        let ran = run(&["tls", "client", name, path.to_str().expect("plain")]);
        assert!(ran.code == 2 && ran.err.contains("1 to 64 letters"), "{name}: {ran:?}");
    }
    assert_eq!(tree(dir.path()), before);
}

#[test]
fn certificates_end_when_they_should_and_are_renewed_by_the_authority_that_is_there() {
    let dir = tempfile::tempdir().expect("directory");
    // Days of openssl's own reckoning, from a clock that stands.
    let ends = |file: &str| {
        let mut command = Command::new("openssl");
        command.args(["x509", "-noout", "-dates", "-serial", "-in"]).arg(dir.path().join(file));
        let told = String::from_utf8(command.output().expect("openssl").stdout).expect("UTF-8");
        let (dates, serial) = told.split_once("serial=").expect("a serial number");
        // Positive, and of 20 bytes at most with its sign: RFC 5280, 4.1.2.2. openssl leaves bytes
        // of zeros at the beginning out, and tells a negative one by `-`.
        let digits = serial.trim();
        assert!(digits.len() < 40 || digits.len() == 40 && digits < "8", "{digits}");
        assert!(digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{digits}");
        dates.to_owned()
    };
    let at = "2026-11-29 12:00:00";
    ok(&ahead(dir.path(), at, "init --name storage.example --name 10.0.0.5 tls"));
    ok(&ahead(dir.path(), at, "client backup tls --days 30"));
    let begins = "notBefore=Nov 28 12:00:00 2026 GMT\nnotAfter=";
    for (file, end) in [
        ("tls/ca-cert.pem", "Nov 25 12:00:00 2036 GMT"),
        ("tls/server-cert.pem", "Mar  2 12:00:00 2029 GMT"),
        ("tls/clients/backup/client-cert.pem", "Dec 28 12:00:00 2026 GMT"),
    ] {
        assert_eq!(ends(file), format!("{begins}{end}\n"), "{file}");
    }
    let listed = ahead(dir.path(), "2026-12-28 12:00:00", "list tls --json").json();
    let listed = listed.as_array().expect("a list").iter();
    let told: Vec<_> =
        listed.map(|one| (&one["file"], &one["names"], &one["expires"], &one["expired"])).collect();
    let told = serde_json::json!(told);
    let server = serde_json::json!(["storage.example", "10.0.0.5"]);
    assert_eq!(
        told[1],
        serde_json::json!(["server-cert.pem", server, "2029-03-02T12:00:00.000000000Z", false])
    );
    let client = "clients/backup/client-cert.pem";
    assert_eq!(
        told[2],
        serde_json::json!([client, ["backup"], "2026-12-28T12:00:00.000000000Z", true])
    );
    // Nothing outlives the authority, and it signs no more when it has expired.
    let late = "2035-11-29 12:00:00";
    ok(&ahead(dir.path(), late, "client late tls"));
    assert!(
        ends("tls/clients/late/client-cert.pem").ends_with("notAfter=Nov 25 12:00:00 2036 GMT\n")
    );
    let before = tree(dir.path());
    let ran = ahead(dir.path(), "2036-11-25 12:00:01", "client later tls");
    assert!(ran.code == 1 && ran.err.contains("expired"), "{ran:?}");
    assert_eq!(tree(dir.path()), before);
    // Renewed: the authority stays.
    let authority = fs::read(dir.path().join("tls/ca-key.pem")).expect("read");
    for name in ["server-cert.pem", "server-key.pem"] {
        fs::remove_file(dir.path().join("tls").join(name)).expect("removed");
    }
    ok(&ahead(dir.path(), late, "init --name other.example tls"));
    assert_eq!(fs::read(dir.path().join("tls/ca-key.pem")).expect("read"), authority);
    let words = "verify -CAfile tls/ca-cert.pem -verify_hostname other.example tls/server-cert.pem";
    openssl(dir.path(), late, words);
}

#[test]
fn an_authority_by_openssl_signs_too() {
    let dir = tempfile::tempdir().expect("directory");
    let new = "req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1";
    let files = "-keyout ca-key.pem -out ca-cert.pem";
    openssl(dir.path(), "now", &format!("{new} -subj /CN=ours {files}"));
    done(dir.path(), "init --name storage.example .");
    done(dir.path(), "client backup .");
    let words = "verify -CAfile ca-cert.pem server-cert.pem";
    openssl(dir.path(), "now", &format!("{words} clients/backup/client-cert.pem"));
    // One with more in its subject is told to be of no use, not used wrongly.
    openssl(dir.path(), "now", &format!("{new} -subj /O=Example/CN=ours {files}"));
    let ran = tls(dir.path(), "client other .");
    assert!(ran.code == 1 && ran.err.contains("common name alone"), "{ran:?}");
    openssl(
        dir.path(),
        "now",
        &format!("req -x509 -nodes -newkey rsa:2048 -subj /CN=ours {files}"),
    );
    let ran = tls(dir.path(), "client other .");
    assert!(ran.code == 1 && ran.err.contains("no key for ECDSA P-256"), "{ran:?}");
}
