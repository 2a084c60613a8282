//! Tokens by command: made into a file, used, revoked; and what the log says of them.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::fixture::{Fixture, Ran, hindsight};

fn over_tcp(fixture: &Fixture, token: &str, arguments: &[&str]) -> Ran {
    let server = format!("http://{}", fixture.http_address().0);
    let mut command = hindsight();
    command.args(arguments).env("HINDSIGHT_SERVER", server).env("HINDSIGHT_TOKEN", token);
    Ran::of(command.output().expect("run"))
}

#[test]
fn a_token_is_made_into_a_file_of_its_owner_and_used_until_it_is_revoked() {
    let fixture = Fixture::new();
    fixture.ok(&["volume", "create", "pg", "--size", "1MiB"]);
    fixture.ok(&["volume", "create", "mail", "--size", "1MiB"]);
    let path = fixture.path("nightly.token");
    let file = path.to_str().expect("plain");
    let create = ["token", "create", "nightly", "--role", "keeper", "--volume", "pg*"];
    let made = [&create[..], &["--expires", "90d", "--output", file]].concat();
    assert_eq!(fixture.ok(&made), "");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    let token = fs::read_to_string(&path).expect("text").trim().to_owned();
    // It is refused where the file is there, and makes no token then.
    let again = ["token", "create", "other", "--role", "admin", "--output", file];
    assert_eq!(fixture.run(&again).code, 1);
    let listed = fixture.ok(&["token", "list"]);
    assert!(listed.contains("nightly  hs1_") && !listed.contains("other"), "{listed}");
    assert!(!listed.contains(&token[15..]), "{listed}");
    assert!(fixture.ok(&["token", "show", "nightly", "--json"]).contains("\"keeper\""));

    let names = |ran: Ran| {
        let all = ran.json();
        let all = all.as_array().expect("a list").iter();
        all.map(|one| one["name"].as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(over_tcp(&fixture, &token, &["volume", "list", "--json"])), ["pg"]);
    assert_eq!(over_tcp(&fixture, &token, &["version", "create", "pg"]).code, 0);
    let ran = over_tcp(&fixture, &token, &["volume", "show", "mail"]);
    assert_eq!((ran.code, ran.err.contains("there is no volume mail")), (10, true), "{ran:?}");
    let ran = over_tcp(&fixture, &token, &["version", "delete", "pg", "0"]);
    assert_eq!(ran.code, 12, "{ran:?}");
    assert!(ran.err.contains("error: this needs the role admin; token:nightly is keeper"));
    assert_eq!(over_tcp(&fixture, &token, &["revert", "pg", "--to", "v:0"]).code, 12);
    assert_eq!(over_tcp(&fixture, &token, &["pool", "audit"]).code, 12);

    // Over the unix socket a token that is shown counts, too.
    let shown = ["version", "delete", "pg", "0", "--token-file", file];
    let ran = fixture.run(&shown);
    assert!(ran.code == 12 && ran.err.contains("token:nightly is keeper"), "{ran:?}");
    assert_eq!(names(fixture.run(&["volume", "list", "--json", "--token-file", file])), ["pg"]);
    assert_eq!(fixture.run(&["volume", "list", "--token-file", "/nonexistent"]).code, 1);
    // What nobody would look at is not taken for no token.
    let empty = fixture.path("empty.token");
    File::create(&empty).expect("made");
    let empty = empty.to_str().expect("plain");
    for wrong in [["--token-file", empty], ["--token", ""], ["--token", "garbage"]] {
        let ran = fixture.run(&[&["volume", "list"], &wrong[..]].concat());
        assert_eq!(ran.code, 2, "{wrong:?}: {ran:?}");
    }
    // A file that the line names counts, and not the variable.
    let mut command = fixture.command(&["volume", "list", "--json", "--token-file", file]);
    let ran = Ran::of(command.env("HINDSIGHT_TOKEN", "hs1_other").output().expect("run"));
    assert_eq!(names(ran), ["pg"]);

    assert_eq!(fixture.run(&["token", "revoke", "nightly", "--dry-run"]).code, 0);
    assert_eq!(over_tcp(&fixture, &token, &["volume", "list"]).code, 0);
    fixture.ok(&["token", "revoke", "nightly"]);
    assert_eq!(over_tcp(&fixture, &token, &["volume", "list"]).code, 12);
    assert_eq!(fixture.run(&["token", "revoke", "nightly"]).code, 10);
    for wrong in [&["--role", "root"][..], &["--role", "viewer", "--volume", "a/b"], &[]] {
        let ran = fixture.run(&[&["token", "create", "t"], wrong].concat());
        assert_eq!(ran.code, 2, "{wrong:?}: {ran:?}");
    }
}

#[test]
fn the_page_is_entered_by_an_address_that_may_less() {
    let fixture = Fixture::new();
    let url = fixture.ok(&["page", "--role", "reader", "--volume", "pg*", "--for", "1h"]);
    let (place, code) = url.trim().split_once("#enter=").expect("a code");
    assert_eq!(place, format!("http://{}/", fixture.http_address().0));
    let elsewhere = fixture.ok(&["page", "--url", "https://store.example/"]);
    assert!(elsewhere.starts_with("https://store.example/#enter="), "{elsewhere}");
    let client = api::Client::new(place.parse().expect("an address")).expect("a client");
    let login = api::Login { code: code.to_owned() };
    let token = client.login(&login).expect("let in").secret.expect("a secret");
    assert_eq!(over_tcp(&fixture, &token, &["volume", "list"]).code, 0);
    assert_eq!(over_tcp(&fixture, &token, &["mark", "create", "pg", "m"]).code, 12);
    assert!(client.login(&login).is_err(), "it is good once");
    let tokens = fixture.run(&["token", "list", "--json"]).json();
    assert_eq!((&tokens[0]["role"], &tokens[0]["volumes"][0]), (&"reader".into(), &"pg*".into()));
    assert_eq!(tokens.as_array().expect("all").len(), 1, "codes are no tokens yet");
}

#[test]
fn no_secret_of_a_token_is_in_a_log() {
    let dir = tempfile::tempdir().expect("directory");
    let log = dir.path().join("log");
    let mut serve = hindsight();
    serve.args(["serve", "--pool-size", "1GiB", "--memory", "32MiB", "--log-level", "trace"]);
    serve.args(["--http", "127.0.0.1:0", "--pool"]).arg(dir.path().join("pool"));
    serve.stdout(Stdio::null()).stderr(File::create(&log).expect("a file"));
    let mut server = serve.spawn().expect("spawn");
    let said = || fs::read_to_string(&log).expect("a log");
    while !said().lines().any(|line| line == "ready") {
        assert!(server.try_wait().expect("wait").is_none(), "{}", said());
        std::thread::yield_now();
    }
    let url = said();
    let url = url.lines().find_map(|line| line.strip_prefix("http http://")).expect("HTTP");
    let (address, pools) = url.split_once("/?token=").expect("a token");
    let ask = |token: &str, arguments: &[&str]| {
        let mut command = hindsight();
        command.args(arguments).env("HINDSIGHT_TOKEN", token);
        command.env("HINDSIGHT_SERVER", format!("http://{address}"));
        Ran::of(command.output().expect("run"))
    };
    let make = |name| {
        let ran = ask(pools, &["token", "create", name, "--role", "admin"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out.trim().to_owned()
    };
    let (good, revoked) = (make("good"), make("gone"));
    assert_eq!(ask(&good, &["volume", "create", "v", "--size", "1MiB"]).code, 0);
    assert_eq!(ask(&good, &["token", "revoke", "gone"]).code, 0);
    let cut = &good[..40];
    let wrong = format!("{}{}", &good[..20], &revoked[20..]);
    for token in [&*revoked, cut, &wrong, "a-token-of-somebody-elses"] {
        assert_eq!(ask(token, &["volume", "list"]).code, 12);
    }
    let audit = ask(&good, &["pool", "audit", "--json"]).out;
    assert!(audit.contains("token-create") && audit.contains("\"token:good\""), "{audit}");
    server.kill().expect("killed");
    server.wait().expect("ended");
    let log = said();
    assert!(
        log.contains("token:good") && log.contains("a login was refused"),
        "it says what it did"
    );
    for secret in [&good[15..35], &good[35..], &revoked[15..35], &revoked[35..], "somebody-elses"] {
        assert!(!log.contains(secret) && !audit.contains(secret), "a secret was written down");
    }
    // The pool's own is printed once, for its owner.
    assert_eq!(log.matches(pools).count(), 1);
}
