//! Bad requests get the status and type that `docs/http.md` lists.

use api::{CreateMark, Problem, ProblemKind, Revert};

use crate::fixture::{Fixture, kind, new_volume, problem};

fn answered(fixture: &Fixture, method: &str, path: &str, body: &str) -> (u16, ProblemKind) {
    let (status, text) = fixture.send(method, path, body);
    let problem: Problem = serde_json::from_str(&text).unwrap_or_else(|e| {
        panic!("{method} {path} {body}: {status} is not a problem ({e}): {text}")
    });
    assert_eq!(problem.status, status);
    (status, problem.problem_kind().expect("a known kind"))
}

#[test]
fn bad_bodies_are_refused() {
    let fixture = Fixture::new();
    let post = |body: &str| answered(&fixture, "POST", "/volumes", body);
    let malformed = (400, ProblemKind::Malformed);
    let invalid = (422, ProblemKind::Invalid);
    assert_eq!(post("{"), malformed);
    assert_eq!(post(""), malformed);
    assert_eq!(post("[]"), malformed);
    assert_eq!(post("{\"name\": \"v\"}"), malformed);
    assert_eq!(post("{\"name\": \"v\", \"size\": \"ten\"}"), malformed);
    assert_eq!(post("{\"name\": \"v\", \"size\": -1}"), malformed);
    assert_eq!(post("{\"name\": \"v\", \"size\": 4096, \"sise\": 1}"), malformed);
    assert_eq!(post("{\"name\": \"v\", \"size\": 4096, \"window\": \"5m\"}"), malformed);
    assert_eq!(post("{\"name\": \"v\", \"size\": 100}"), invalid);
    assert_eq!(post("{\"name\": \"v\", \"size\": 0}"), invalid);
    assert_eq!(post("{\"name\": \"../v\", \"size\": 4096}"), invalid);
    assert_eq!(post("{\"name\": \"\", \"size\": 4096}"), invalid);
    assert_eq!(post("{\"name\": \"v\", \"size\": 18446744073709551615}"), invalid);
    // That of the contract that is not there yet is refused too, never replaced in silence.
    for name in ["raid", "auto"] {
        let unknown = format!("{{\"name\": \"v\", \"size\": 4096, \"architecture\": \"{name}\"}}");
        assert_eq!(post(&unknown), invalid, "{name}");
        let (_, text) = fixture.send("POST", "/volumes", &unknown);
        let there = "logging, split-stream, redirect, checkpointing, split-downstream, hybrid";
        assert!(text.contains(there), "what there is: {text}");
    }
    for extent in ["512", "6144", "\"128KiB\"", "0"] {
        let body = format!("{{\"name\": \"v\", \"size\": 4096, \"extent\": {extent}}}");
        assert_eq!(post(&body), invalid, "{extent}");
        let (_, text) = fixture.send("POST", "/volumes", &body);
        assert!(text.contains("give one of 4KiB, 8KiB, 16KiB, 32KiB, 64KiB"), "{text}");
    }
    assert_eq!(post(&"[".repeat(100_000)), malformed);
    let (status, text) = fixture.send("POST", "/volumes", "{\"name\": \"v\", \"size\": 65536.0}");
    assert_eq!(status, 201, "{text}");
}

#[test]
fn a_change_that_names_no_setting_is_refused_and_changes_nothing() {
    let fixture = Fixture::with_volume();
    let (status, text) = fixture.send("PUT", "/pool/scrub", "{\"every\": \"30d\"}");
    assert_eq!(status, 200, "{text}");
    fixture.send("POST", "/groups", "{\"name\": \"g\", \"volumes\": [\"v\"]}");
    for body in ["", "{}"] {
        let schedule = answered(&fixture, "PUT", "/volumes/v/schedule", body);
        assert_eq!(schedule, (422, ProblemKind::Invalid), "`{body}`");
        for (method, path) in [
            ("PUT", "/pool/scrub"),
            ("PATCH", "/pool"),
            ("PATCH", "/volumes/v"),
            ("PATCH", "/groups/g"),
        ] {
            let (status, kind) = answered(&fixture, method, path, body);
            assert_eq!((status, kind), (400, ProblemKind::Malformed), "{method} {path} `{body}`");
        }
    }
    let every = fixture.client.pool().expect("pool").scrub_every;
    assert!(every.is_some(), "scrubs go on");
    let (status, text) = fixture.send("PUT", "/pool/scrub", "{\"every\": null}");
    assert_eq!(status, 200, "{text}");
    assert!(fixture.client.pool().expect("pool").scrub_every.is_none());
}

#[test]
fn a_change_of_which_a_part_is_refused_is_refused_whole() {
    let fixture = Fixture::with_volume();
    let before = fixture.client.volume("v").expect("show");
    for bad in [
        "\"cache\": \"64KiB\", \"cache_dirty_percent\": 101",
        "\"encode_after\": \"1s\"",
        "\"architecture\": \"split-stream\"",
    ] {
        let body = format!("{{\"size\": \"32KiB\", \"window\": \"7h\", {bad}}}");
        let (status, kind) = answered(&fixture, "PATCH", "/volumes/v", &body);
        assert_eq!((status, kind), (422, ProblemKind::Invalid), "{body}");
        let after = fixture.client.volume("v").expect("show");
        assert_eq!((after.size, after.window), (before.size, before.window), "{body}");
        assert_eq!(after.latest.seq, before.latest.seq, "{body}");
    }
}

#[test]
fn a_body_that_is_too_long_is_not_read() {
    let fixture = Fixture::new();
    let body = format!("{{\"name\": \"{}\"}}", "x".repeat(1 << 20));
    let asked = answered(&fixture, "POST", "/volumes", &body);
    assert_eq!(asked, (413, ProblemKind::TooLarge));
}

#[test]
fn bad_queries_and_paths_are_refused() {
    let fixture = Fixture::with_volume();
    let get = |path: &str| answered(&fixture, "GET", path, "");
    let malformed = (400, ProblemKind::Malformed);
    assert_eq!(get("/volumes/v/resolve"), malformed);
    assert_eq!(get("/volumes/v/resolve?at=yesterday"), malformed);
    assert_eq!(get("/volumes/v/resolve?at=-5m"), malformed);
    assert_eq!(get("/volumes/v/resolve?at=latest&nonsense=1"), malformed);
    assert_eq!(get("/volumes/v/history?step=0s"), malformed);
    assert_eq!(get("/volumes/v/history?next=tomorrow"), malformed);
    assert_eq!(get("/volumes/v/versions?limit=0"), malformed);
    assert_eq!(get("/volumes/v/versions/x"), malformed);
    assert_eq!(get("/volumes/v/versions/7"), (404, ProblemKind::NotFound));
    assert_eq!(get("/volumes/nobody"), (404, ProblemKind::NotFound));
    assert_eq!(get("/volumes/v/resolve?at=v:7"), (404, ProblemKind::NotFound));
    assert_eq!(get("/nonsense"), (404, ProblemKind::NoRoute));
    assert_eq!(get("/volumes/%ff"), malformed);
    assert_eq!(answered(&fixture, "PUT", "/volumes", "{}"), (405, ProblemKind::Method));
}

#[test]
fn a_query_where_there_is_none_is_refused_and_nothing_is_done() {
    let fixture = Fixture::with_volume();
    fixture.client.create_version("v", &Default::default()).expect("captured");
    let ask = |method: &str, path: &str, body: &str| answered(&fixture, method, path, body);
    for (method, path, body) in [
        ("DELETE", "/volumes/v/versions/0?dry_run=true", ""),
        ("DELETE", "/volumes/v/versions/0?dry%5Frun=true", ""),
        ("DELETE", "/volumes/v/schedule?dry_run=true", ""),
        ("POST", "/volumes/v/revert?dry_run=true", r#"{"to": "seq:0"}"#),
        ("POST", "/volumes/v/rename?dry_run=true", r#"{"to": "w"}"#),
        ("GET", "/volumes/v?bogus=1", ""),
    ] {
        let malformed = (400, ProblemKind::Malformed);
        assert_eq!(ask(method, path, body), malformed, "{method} {path}");
    }
    assert_eq!(fixture.client.version("v", 0).expect("it is there").number, 0);
}

#[test]
fn a_moment_outside_the_window_states_the_range() {
    let fixture = Fixture::with_volume();
    let seq = fixture.write(0, 1);
    let refused = problem(fixture.client.resolve("v", "2001-01-01T00:00:00Z"));
    assert_eq!((refused.status, refused.problem_kind()), (410, Some(ProblemKind::OutsideWindow)));
    assert_eq!(refused.oldest.expect("oldest").seq, 0);
    assert_eq!(refused.latest.expect("latest").seq, seq);
    assert_eq!(kind(fixture.client.resolve("v", "seq:999")), ProblemKind::OutsideWindow);
    let revert = Revert { to: "seq:999".to_owned(), dry_run: false, force: false };
    assert_eq!(kind(fixture.client.revert("v", &revert)), ProblemKind::OutsideWindow);
}

#[test]
fn names_that_are_taken_are_refused() {
    let fixture = Fixture::with_volume();
    let again = fixture.client.create_volume(&new_volume("v", 4096));
    assert_eq!(kind(again), ProblemKind::Exists);
    let mark = CreateMark { name: "m".to_owned(), at: None, pin: false };
    fixture.client.create_mark("v", &mark).expect("mark");
    assert_eq!(kind(fixture.client.create_mark("v", &mark)), ProblemKind::Exists);
}
