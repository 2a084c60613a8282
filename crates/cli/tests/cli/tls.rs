//! HTTP under TLS by command: how a server is known, what is said where it is not, and SIGHUP.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::fixture::{Fixture, Ran, hindsight};

pub const AT_TIME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/at-time");
const NEW: &str = "req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1";
const SIGNED: &str = "-CA ca-cert.pem -CAkey ca-key.pem -extensions usr_cert";

/// Runs openssl in a directory, with words that blanks divide, after a clock that says `date`.
pub fn openssl(dir: &Path, date: &str, words: &str) {
    let mut command = Command::new(AT_TIME);
    command.args([date, "openssl"]).args(words.split(' ')).current_dir(dir);
    let output = command.output().expect("run");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an authority, and a certificate of the server for a name.
fn authority(dir: &Path, name: &str) {
    openssl(dir, "now", &format!("{NEW} -subj /CN=ours -keyout ca-key.pem -out ca-cert.pem"));
    sign(dir, "now", "server", name);
}

fn sign(dir: &Path, date: &str, who: &str, name: &str) {
    let files = format!("-keyout {who}-key.pem -out {who}-cert.pem");
    let names = format!("-addext subjectAltName={name}");
    openssl(dir, date, &format!("{NEW} {SIGNED} -subj /CN={who} {names} {files}"));
}

/// A server with the certificate in `dir`, and `server` in front of its flags.
fn serve(dir: TempDir) -> Fixture {
    let file = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    let (cert, key, ca) = (file("server-cert.pem"), file("server-key.pem"), file("ca-cert.pem"));
    let flags = ["--http-tls-cert", &cert, "--http-tls-key", &key, "--http-tls-client-ca", &ca];
    Fixture::with(dir, &flags)
}

fn address(fixture: &Fixture) -> String {
    format!("https://{}", fixture.http_address().0)
}

/// Lists volumes at an address with more flags.
fn list(server: &str, flags: &[&str]) -> Ran {
    let mut command = hindsight();
    command.args(["volume", "list", "--server", server]).args(flags);
    Ran::of(command.output().expect("run"))
}

fn path(fixture: &Fixture, name: &str) -> String {
    fixture.path(name).to_str().expect("plain").to_owned()
}

#[test]
fn a_server_under_tls_is_known_by_its_authority_and_knows_its_client() {
    let dir = tempfile::tempdir().expect("directory");
    authority(dir.path(), "IP:127.0.0.1,DNS:localhost");
    sign(dir.path(), "now", "ops", "DNS:ops");
    let fixture = serve(dir);
    let (place, token) = fixture.http_address();
    let server = address(&fixture);
    let line = format!("http {server}/?token={token}");
    assert!(fixture.lines.contains(&line), "{:?}", fixture.lines);
    let ca = path(&fixture, "ca-cert.pem");
    let (cert, key) = (path(&fixture, "ops-cert.pem"), path(&fixture, "ops-key.pem"));
    for (at, flags) in [
        (format!("{server}/?token={token}"), &["--ca", &ca][..]),
        (server.clone(), &["--ca", &ca, "--token", token]),
        (server.replace("127.0.0.1", "localhost"), &["--ca", &ca, "--token", token]),
        (server.clone(), &["--ca", &ca, "--cert", &cert, "--key", &key]),
    ] {
        let ran = list(&at, flags);
        assert_eq!(ran.code, 0, "{at} {flags:?}: {ran:?}");
    }
    // Files in the environment, the key in that of the certificate, and large answers and bodies.
    let both = path(&fixture, "both.pem");
    let text = [&cert, &key].map(|file| fs::read_to_string(file).expect("text")).concat();
    fs::write(&both, text).expect("written");
    let run = |arguments: &[&str]| {
        let mut command = hindsight();
        command.args(arguments).env("HINDSIGHT_SERVER", &server);
        command.env("HINDSIGHT_CA", &ca).env("HINDSIGHT_CERT", &both);
        Ran::of(command.output().expect("run"))
    };
    assert_eq!(run(&["volume", "create", "pg", "--size", "1MiB"]).code, 0);
    let audit = fixture.ok(&["pool", "audit", "--json"]);
    assert!(audit.contains("cert:ops"), "{audit}");
    let page = run(&["page"]);
    assert!(page.out.starts_with(&format!("https://{place}/#enter=")), "{page:?}");
    let page = fixture.ok(&["page"]);
    assert!(page.starts_with(&format!("https://{place}/#enter=")), "{page}");
    // Over the unix socket a key is of nothing.
    let mut keyed = fixture.command(&["volume", "list"]);
    let keyed = Ran::of(keyed.env("HINDSIGHT_KEY", "/nonexistent").output().expect("run"));
    assert_eq!(keyed.code, 0, "{keyed:?}");
    let told = fixture.run(&["page", "--json"]).json();
    assert!(told["url"].as_str().is_some_and(|url| url.starts_with("https://")), "{told}");
    // A program that a command runs asks the same server.
    let ran = run(&["complete", "--", "volume", "show", ""]);
    assert!(ran.out.contains("pg"), "{ran:?}");
}

#[test]
fn a_server_that_is_not_to_be_believed_is_told_by_why_and_what_to_do() {
    let dir = tempfile::tempdir().expect("directory");
    authority(dir.path(), "DNS:localhost");
    sign(dir.path(), "2020-01-01", "late", "DNS:late");
    let fixture = serve(dir);
    let others = tempfile::tempdir().expect("directory");
    authority(others.path(), "IP:127.0.0.1");
    let other = |name: &str| others.path().join(name).to_str().expect("plain").to_owned();
    let ca = path(&fixture, "ca-cert.pem");
    let local = address(&fixture).replace("127.0.0.1", "localhost");
    let (late, late_key) = (path(&fixture, "late-cert.pem"), path(&fixture, "late-key.pem"));
    let (foreign, foreign_key) = (other("server-cert.pem"), other("server-key.pem"));
    let (unread, no_pem) = (other("nowhere.pem"), other("ca-key.pem"));
    // No address is told that the certificate would not be good for.
    let page = fixture.ok(&["page"]);
    assert!(page.starts_with("https://localhost:"), "{page}");
    let plain = Fixture::new();
    let untls = format!("https://{}", plain.http_address().0);
    let unplain = local.replace("https", "http");
    let (abroad, nameless) = ("http://192.0.2.1:9".to_owned(), "https://a_b..c".to_owned());
    for (server, flags, code, said, hint) in [
        (&local, &[][..], 2, "needs --ca", "--ca FILE"),
        (&local, &["--ca", &other("ca-cert.pem")], 1, "no authority of --ca", "somebody else"),
        (&address(&fixture), &["--ca", &ca], 1, "of other names", "subjectAltName"),
        (&untls, &["--ca", &ca], 1, "does not speak TLS", "http://"),
        (&unplain, &["--token", "x"], 2, "this is plain HTTP", "https://"),
        (&abroad, &["--ca", &ca, "--token", "x"], 2, "has no TLS", "https://"),
        (&nameless, &["--ca", &ca], 2, "has no name", "https://host:port"),
        (&local, &["--ca", &ca, "--cert", &late, "--key", &late_key], 12, "take the", "expired"),
        (
            &local,
            &["--ca", &ca, "--cert", &foreign, "--key", &foreign_key],
            12,
            "take",
            "client_ca",
        ),
        (&local, &["--ca", &ca, "--key", &late_key], 2, "no --cert", ""),
        (&local, &["--ca", &unread], 1, "cannot use", ""),
        (&local, &["--ca", &no_pem], 1, "holds no certificate", ""),
        (&local, &["--ca", &ca, "--cert", &late, "--key", &foreign_key], 1, "cannot use", ""),
        (&local, &["--ca", &ca], 12, "need the server's token", "--token-file"),
    ] {
        let ran = list(server, flags);
        assert_eq!(ran.code, code, "{server} {flags:?}: {ran:?}");
        let (error, told) = ran.err.split_once('\n').expect("a line");
        assert!(error.contains(said), "{server} {flags:?}: {ran:?}");
        assert!(told.contains(hint) && (hint.is_empty() || told.starts_with("hint: ")), "{ran:?}");
    }
}

#[test]
fn a_hangup_puts_another_certificate_in_use_and_a_bad_one_does_not() {
    let dir = tempfile::tempdir().expect("directory");
    authority(dir.path(), "IP:127.0.0.1");
    let fixture = serve(dir);
    let server = format!("{}/?token={}", address(&fixture), fixture.http_address().1);
    let at = |name: &str| -> PathBuf { fixture.path(name) };
    let ca = path(&fixture, "ca-cert.pem");
    let says = |text: &str| {
        fixture.signal("HUP");
        loop {
            let metrics = fixture.path("pool/api.sock");
            let mut curl = Command::new("curl");
            curl.args(["-s", "--unix-socket"]).arg(metrics).arg("http://localhost/metrics");
            let metrics = curl.output().expect("curl: scripts/install-packages test").stdout;
            let metrics = String::from_utf8(metrics).expect("UTF-8");
            if metrics.contains(&format!("hindsight_config_last_reload_successful {text}\n")) {
                return;
            }
        }
    };
    // It is told that its key is none: the old pair goes on.
    let right = fs::read(at("server-key.pem")).expect("read");
    fs::write(at("server-key.pem"), "no PEM").expect("written");
    says("0");
    let ran = list(&server, &["--ca", &ca]);
    assert_eq!(ran.code, 0, "{ran:?}");
    // One that has expired is served, with a warning, and clients say so.
    fs::write(at("server-key.pem"), right).expect("written");
    sign(fixture.dir.path(), "2020-01-01", "server", "IP:127.0.0.1");
    says("1");
    let ran = list(&server, &["--ca", &ca]);
    assert!(ran.code == 1 && ran.err.contains("has expired"), "{ran:?}");
    assert!(ran.err.contains("systemctl reload hindsight"), "{ran:?}");
    // That of an authority is none of a server.
    for (from, to) in [("ca-cert.pem", "server-cert.pem"), ("ca-key.pem", "server-key.pem")] {
        fs::copy(at(from), at(to)).expect("copied");
    }
    fixture.signal("HUP");
    loop {
        let ran = list(&server, &["--ca", &ca]);
        assert_eq!(ran.code, 1, "{ran:?}");
        if !ran.err.contains("has expired") {
            assert!(ran.err.contains("certificate of an authority"), "{ran:?}");
            break;
        }
    }
    let (code, said, _dir) = fixture.stop();
    assert_eq!(code, 0);
    let said = said.join("\n");
    assert!(said.contains("the configuration stays as it was"), "{said}");
    assert!(said.contains("HTTP clients over TCP will refuse the certificate"), "{said}");
}
