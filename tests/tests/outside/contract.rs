//! Bad input and trouble: the statuses, exit codes and errors of the contract, and a server that
//! lives on.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hindsight_tests::client::Client;
use hindsight_tests::http::{Answer, escape};
use hindsight_tests::nbd::{EINVAL, ENOSPC, Reply, Request};
use hindsight_tests::random::Random;
use hindsight_tests::server;
use serde_json::{Value, json};

use crate::stage::Stage;

const VOL: &str = "/api/v1/volumes/vol";

/// A problem must look as RFC 9457 and the contract say.
fn check_problem(answer: &Answer, allowed: &[u16], what: &str) -> Result<Value> {
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    ensure!(
        allowed.contains(&answer.status),
        "{what}: {} instead of {allowed:?}: {body}",
        answer.status
    );
    let kind = answer.header("content-type").unwrap_or_default();
    ensure!(kind.starts_with("application/problem+json"), "{what}: content type {kind}");
    let problem = answer.json().with_context(|| what.to_owned())?;
    ensure!(problem["type"].is_string() && problem["title"].is_string(), "{what}: {body}");
    ensure!(problem["status"] == answer.status, "{what}: {body}");
    Ok(problem)
}

#[test]
fn bad_moments_are_refused_with_a_hint_or_the_valid_range() -> Result<()> {
    let stage = Stage::new("vol", "8MiB")?;
    let http = stage.server.http();
    for (moment, allowed) in [
        ("-5m", &[400u16][..]),
        ("", &[400]),
        ("yesterday noon", &[400]),
        ("seq:", &[400]),
        ("seq:-1", &[400]),
        ("seq:99999999999999999999999", &[400]),
        ("v:x", &[400]),
        ("2026-13-45T99:00:00Z", &[400]),
        ("2026-11-21T10:00:00", &[400]),
        ("v:7", &[404]),
        ("mark:none", &[404]),
        ("seq:999999", &[410]),
        ("1999-01-01T00:00:00Z", &[410]),
        ("-30d", &[410]),
        ("0001-01-01T00:00:00Z", &[410]),
        ("9999-12-31T23:59:59Z", &[410]),
        ("2026-11-21T10:00:00+24:00", &[400]),
    ] {
        let target = format!("{VOL}/resolve?at={}", escape(moment));
        let problem = check_problem(&http.call("GET", &target, None)?, allowed, moment)?;
        if moment == "-5m" {
            let hint = problem["hint"].as_str().unwrap_or_default();
            ensure!(hint.contains("min") && hint.contains("mo"), "-5m: hint {hint:?}");
        }
        if allowed == [410] {
            ensure!(problem["oldest"]["time"].is_string(), "{moment}: no valid range: {problem}");
        }
        let refused = stage.server.connect(&format!("vol@{moment}"));
        ensure!(refused.is_err(), "vol@{moment} opens over NBD");
    }
    for target in ["/resolve", "/resolve?at=latest&more=1", "/diff", "/history?step=0s"] {
        let answer = http.call("GET", &format!("{VOL}{target}"), None)?;
        check_problem(&answer, &[400, 422], target)?;
    }
    Ok(())
}

#[test]
fn bad_volumes_are_refused() -> Result<()> {
    let stage = Stage::new("vol", "8MiB")?;
    let http = stage.server.http();
    let long = "x".repeat(129);
    for name in ["", "a/b", "a@b", "-a", ".a", "a b", "\u{e4}", "a\nb", long.as_str()] {
        let body = json!({ "name": name, "size": 8192 });
        let answer = http.call("POST", "/api/v1/volumes", Some(&body))?;
        check_problem(&answer, &[400, 422], name)?;
    }
    for size in
        [json!(0), json!(-1), json!(1000), json!(u64::MAX), json!("10XB"), json!(1.5), json!(null)]
    {
        let body = json!({ "name": "new", "size": size });
        let answer = http.call("POST", "/api/v1/volumes", Some(&body))?;
        check_problem(&answer, &[400, 422], &size.to_string())?;
    }
    for (more, value) in [
        ("architecture", json!("sideways")),
        ("granularity", json!("often")),
        ("granularity", json!("0s")),
        ("window", json!("-1h")),
        ("extent", json!(512)),
        ("extent", json!("24KiB")),
        ("extent", json!("128KiB")),
        ("no_such_field", json!(1)),
    ] {
        let mut body = json!({ "name": "new", "size": 8192 });
        body[more] = value;
        let answer = http.call("POST", "/api/v1/volumes", Some(&body))?;
        check_problem(&answer, &[400, 422], &body.to_string())?;
    }
    let taken = json!({ "name": "vol", "size": 8192 });
    check_problem(&http.call("POST", "/api/v1/volumes", Some(&taken))?, &[409], "taken")?;
    let list = http.get("/api/v1/volumes")?;
    ensure!(list.as_array().is_some_and(|list| list.len() == 1), "something was made: {list}");
    Ok(())
}

#[test]
fn bad_requests_get_a_problem_and_harm_nothing() -> Result<()> {
    let stage = Stage::new("vol", "8MiB")?;
    let http = stage.server.http();
    let send = |method: &str, target: &str, kind: &str, body: &[u8], allowed: &[u16]| {
        let what =
            format!("{method} {target} {}", String::from_utf8_lossy(&body[..body.len().min(40)]));
        check_problem(&http.send(method, target, kind, body)?, allowed, &what)
    };
    let json_type = "application/json";
    for body in
        [&b"{"[..], b"[]", b"null", b"\xff\xfe", b"{\"name\":\"x\"}", b"{\"name\":1,\"size\":2}"]
    {
        send("POST", "/api/v1/volumes", json_type, body, &[400, 422])?;
    }
    send("POST", "/api/v1/volumes", "text/plain", b"{\"name\":\"x\",\"size\":8192}", &[415])?;
    send("POST", "/api/v1/volumes", json_type, &vec![b' '; 9 << 20], &[413])?;
    send("POST", "/api/v1/volumes", json_type, b" [\"x\", 8192]", &[400])?;
    send("PATCH", VOL, json_type, b"[]", &[400])?;
    send("POST", &format!("{VOL}/versions"), json_type, b"{\"label\":\"a\\nb\"}", &[422])?;
    let deep = "[".repeat(100_000);
    send("POST", "/api/v1/volumes", json_type, deep.as_bytes(), &[400, 413])?;
    for (method, target, allowed) in [
        ("GET", "/api/v1/no-such-thing", &[404u16][..]),
        ("PUT", "/api/v1/volumes", &[405]),
        ("GET", "/api/v1/volumes/none", &[404]),
        ("DELETE", "/api/v1/volumes/none", &[404]),
        ("DELETE", "/api/v1/volumes/vol/versions/3", &[404]),
        ("DELETE", "/api/v1/volumes/vol/marks?name=none", &[404]),
        ("GET", "/api/v1/volumes/vol/versions/x", &[400, 404]),
        ("GET", "/api/v1/volumes/..%2f..%2fetc", &[400, 404]),
    ] {
        check_problem(&http.call(method, target, None)?, allowed, target)?;
    }
    for (target, body, allowed) in [
        ("/revert", json!({ "to": "-5m" }), &[400u16][..]),
        ("/revert", json!({ "to": "seq:99999" }), &[410]),
        ("/revert", json!({}), &[400, 422]),
        ("/clones", json!({ "name": "vol" }), &[409]),
        ("/clones", json!({ "name": "a b", "at": "latest" }), &[400, 422]),
        ("/clones", json!({ "name": "new", "at": "v:9" }), &[404]),
        ("/marks", json!({ "name": "" }), &[400, 422]),
        ("/marks", json!({ "name": "a/b" }), &[400, 422]),
    ] {
        let answer = http.call("POST", &format!("{VOL}{target}"), Some(&body))?;
        check_problem(&answer, allowed, &format!("{target} {body}"))?;
    }
    http.get(VOL).map(drop)
}

#[test]
fn the_valid_range_that_is_stated_begins_with_what_can_be_opened() -> Result<()> {
    let stage = Stage::new("vol", "8MiB")?;
    stage.server.run(&[
        "volume",
        "create",
        "od",
        "--size",
        "1MiB",
        "--granularity",
        "on-demand",
    ])?;
    let http = stage.server.http();
    for name in ["vol", "od"] {
        let path = format!("/api/v1/volumes/{name}");
        let mut link = stage.server.connect(name)?;
        let check = || -> Result<()> {
            let outside = http.call("GET", &format!("{path}/resolve?at=seq:999"), None)?;
            let stated = check_problem(&outside, &[410], name)?["oldest"].clone();
            ensure!(http.get(&path)?["oldest"] == stated, "{name}: {stated}");
            let at = http.get(&format!("{path}/resolve?at=seq:{}", stated["seq"]))?;
            ensure!(at["exact"] == true && at["seq"] == stated["seq"], "{name}: {stated} {at}");
            Ok(())
        };
        check()?;
        for byte in 1..4 {
            link.demand(&Request::Write { offset: 0, bytes: vec![byte; 4096], fua: false })?;
            check()?;
        }
        http.expect("POST", &format!("{path}/versions"), Some(&json!({})))?;
        link.demand(&Request::Write { offset: 0, bytes: vec![9; 4096], fua: false })?;
        check()?;
    }
    Ok(())
}

#[test]
fn history_ends_where_it_is_asked_to() -> Result<()> {
    let stage = Stage::new("vol", "8MiB")?;
    let http = stage.server.http();
    http.expect("POST", &format!("{VOL}/versions"), Some(&json!({})))?;
    stage.server.connect("vol")?.demand(&Request::Write {
        offset: 0,
        bytes: vec![1],
        fua: false,
    })?;
    http.expect("POST", &format!("{VOL}/versions"), Some(&json!({})))?;
    let events = |until: &str| -> Result<Vec<String>> {
        let page = http.get(&format!("{VOL}/history?until={}", escape(until)))?;
        let events = page["events"].as_array().context("events")?;
        Ok(events.iter().map(|e| format!("{} {}", e["kind"], e["detail"])).collect())
    };
    let second = http.get(&format!("{VOL}/versions/1"))?;
    let at = second["time"].as_str().context("a time")?;
    for until in ["latest", "-0s", "seq:1", "v:1", at] {
        ensure!(events(until)?.len() == 3, "until {until}: {:?}", events(until)?);
    }
    for until in ["seq:0", "v:0"] {
        ensure!(events(until)?.len() == 2, "until {until}: {:?}", events(until)?);
    }
    Ok(())
}

#[test]
fn commands_end_with_the_exit_code_of_the_contract() -> Result<()> {
    let stage = Stage::new("vol", "8MiB")?;
    stage.server.run(&["volume", "create", "busy", "--size", "1MiB"])?;
    let _attached = stage.server.connect("busy")?;
    for (arguments, code) in [
        (&["volume", "show", "none"][..], 10),
        (&["version", "delete", "vol", "4"], 10),
        (&["mark", "delete", "vol", "none"], 10),
        (&["resolve", "vol@v:4"], 10),
        (&["resolve", "vol@mark:none"], 10),
        (&["resolve", "vol@1999-01-01T00:00:00Z"], 13),
        (&["revert", "vol", "--to", "seq:99999"], 13),
        (&["volume", "delete", "busy"], 11),
        (&["revert", "busy", "--to", "seq:0"], 11),
        (&["revert", "vol", "--to=-5m"], 2),
        (&["resolve", "vol@non:sense"], 2),
        (&["resolve", "vol@nonsense"], 10),
        (&["volume", "create", "a b", "--size", "1MiB"], 2),
        (&["volume", "create", "new", "--size", "10XB"], 2),
        (&["volume", "create", "new"], 2),
        (&["no-such-noun"], 2),
        (&["volume", "create", "vol", "--size", "1MiB"], 1),
        (&["volume", "import", "new", "/no/such/file"], 1),
    ] {
        let output = stage.server.output(arguments)?;
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(code), "{arguments:?}: {}: {talk}", output.status);
        ensure!(output.stdout.is_empty(), "{arguments:?} printed on standard output");
        ensure!(talk.lines().any(|l| l.starts_with("error:")), "{arguments:?} said {talk}");
        if arguments.iter().any(|a| a.contains("-5m")) {
            ensure!(
                talk.lines().any(|l| l.trim().starts_with("hint:")),
                "{arguments:?} said {talk}"
            );
        }
    }
    let mut alone = Command::new(server::program()?);
    alone.args(["--server", "unix:/no/such/socket", "volume", "list"]);
    let output = alone.output()?;
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1) && talk.starts_with("error:"), "no server: {talk}");
    Ok(())
}

#[test]
fn a_server_refuses_what_it_must_not_start_with() -> Result<()> {
    let stage = Stage::new("vol", "8MiB")?;
    let own = stage.text("own");
    let pool = stage.server.pool().display().to_string();
    let none = ["--nbd", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let exposed = ["--nbd", "0.0.0.0:0", "--http", "127.0.0.1:0"];
    for (what, pool, listeners) in [
        ("a pool that is served already", &pool, none),
        ("a listener beyond this machine", &own, exposed),
    ] {
        let mut command = Command::new(server::program()?);
        command.args(["serve", "--pool", pool]).args(listeners).stdin(Stdio::null());
        let output = command.output()?;
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && talk.contains("error:"), "{what}: {talk}");
    }
    stage.server.http().get(VOL).map(drop)
}

#[test]
fn a_bad_request_over_nbd_gets_its_errno_and_the_connection_lives_on() -> Result<()> {
    let stage = Stage::new("vol", "8MiB")?;
    let mut link = stage.server.connect("vol")?;
    let end: u64 = 8 << 20;
    let write = |offset, length| Request::Write { offset, bytes: vec![1; length], fua: false };
    let zero = |offset, length| Request::Zero { offset, length, no_hole: false, fast: false };
    for (request, errno) in [
        (Request::Read { offset: end, length: 1 }, EINVAL),
        (Request::Read { offset: end - 1, length: 2 }, EINVAL),
        (Request::Read { offset: u64::MAX, length: 2 }, EINVAL),
        (Request::Read { offset: 0, length: 0 }, EINVAL),
        (write(end, 1), ENOSPC),
        (write(end - 1, 2), ENOSPC),
        (write(u64::MAX - 1, 4), ENOSPC),
        (Request::Trim { offset: end, length: 1, fua: false }, EINVAL),
        (zero(end - 1, 2), ENOSPC),
        (Request::Status { offset: end, length: 1 }, EINVAL),
        (Request::Status { offset: 0, length: 0 }, EINVAL),
        (Request::Cache { offset: end, length: 1 }, EINVAL),
    ] {
        let what = hindsight_tests::nbd::describe(&request);
        match link.ask(&request).with_context(|| what.clone())? {
            Reply::Error(found) if found == errno => {}
            // A request of no bytes is unspecified; being served is as good as being refused.
            other if what.contains("length: 0") && !matches!(other, Reply::Error(5)) => {}
            other => anyhow::bail!("{what}: {other:?} instead of errno {errno}"),
        }
    }
    link.demand(&write(5, 1))?;
    ensure!(link.read(5, 1)? == [1]);
    Ok(())
}

#[test]
fn garbage_on_the_sockets_harms_nobody_else() -> Result<()> {
    let mut stage = Stage::new("vol", "8MiB")?;
    let mut bystander = stage.server.connect("vol")?;
    let mut random = Random::new(5);
    for socket in ["pool/nbd.sock", "pool/api.sock"] {
        for round in 0..60 {
            let mut stream = UnixStream::connect(stage.path(socket))?;
            stream.set_read_timeout(Some(Duration::from_millis(20)))?;
            stream.set_write_timeout(Some(Duration::from_secs(1)))?;
            let mut bytes = vec![0; random.index(3000) + 1];
            random.fill(&mut bytes);
            // Some of it begins as it should, to get further in.
            if round % 3 == 1 {
                bytes.splice(0..0, *b"\0\0\0\x03IHAVEOPT\0\0\0\x07");
            } else if round % 3 == 2 {
                bytes.splice(0..0, *b"GET /api/v1/volumes?");
            }
            // The server may hang up at once.
            let _ = stream.write_all(&bytes);
            let mut answer = [0; 1000];
            let _ = stream.read(&mut answer);
        }
        bystander.demand(&Request::Write { offset: 7, bytes: vec![9; 700], fua: true })?;
        ensure!(bystander.read(7, 700)? == [9; 700]);
    }
    stage.server.check()?;
    stage.server.http().get(VOL).map(drop)
}

#[test]
fn thousands_of_connections_come_and_go() -> Result<()> {
    let mut stage = Stage::new("vol", "8MiB")?;
    for round in 0..2000 {
        let link = stage.server.connect("vol").with_context(|| format!("connection {round}"))?;
        if round % 2 == 0 {
            link.disconnect()?;
        }
    }
    stage.server.check()?;
    stage.server.stop()
}
