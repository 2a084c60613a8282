//! The past as a picture, the audit log from its newest end, and the page itself over TCP.

use api::{HistoryQuery, TimelineQuery};
use serde_json::Value;

use crate::fixture::{Fixture, kind};

fn ask(fixture: &Fixture, path: &str) -> Value {
    let (status, body) = fixture.send("GET", path, "");
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).expect("JSON")
}

#[test]
fn a_timeline_has_what_history_has_and_counts_events_where_there_are_many() {
    let fixture = Fixture::with_volume();
    for block in 0..40 {
        fixture.write(block, 1);
    }
    let query = |points| TimelineQuery { points, ..TimelineQuery::default() };
    let told = fixture.client.timeline("v", &query(Some(7))).expect("told");
    assert_eq!((told.seqs.len(), told.bytes.len(), told.flushes.len()), (8, 7, 7));
    let history = fixture.client.history("v", &HistoryQuery::default()).expect("history");
    let writes: u64 = history.buckets.iter().map(|bucket| bucket.writes).sum();
    assert_eq!(told.seqs[7] - told.seqs[0], writes);
    assert_eq!(told.bytes.iter().sum::<u64>(), 40 * 4096);
    assert_eq!(told.events, Some(history.events));
    assert_eq!((told.latest.seq, told.oldest.seq), (40, 0));
    assert!(told.event_counts.is_empty());
    let default = fixture.client.timeline("v", &query(None)).expect("told");
    assert_eq!(default.bytes.len(), 800);

    let volume = fixture.server().pool().volume("v").expect("v");
    for turn in 0..520 {
        fixture.write(turn % 8, 2);
        volume.create_version("").expect("captured");
    }
    let told = fixture.client.timeline("v", &query(Some(9))).expect("told");
    assert_eq!(told.events, None, "there are more than 500");
    let count = |kind: &str| -> u64 {
        told.event_counts.iter().filter(|one| one.kind == kind).map(|one| one.count).sum()
    };
    assert_eq!((count("version"), count("created")), (520, 1));
    assert!(told.event_counts.iter().all(|one| one.column < 9));
    for wrong in [Some(0), Some(4001)] {
        assert_eq!(kind(fixture.client.timeline("v", &query(wrong))), api::ProblemKind::Malformed);
    }
    assert_eq!(kind(fixture.client.timeline("w", &query(None))), api::ProblemKind::NotFound);
}

#[test]
fn a_map_of_what_differs_says_which_parts_and_how_much_of_each() {
    let fixture = Fixture::with_volume();
    fixture.write(0, 1);
    let at = fixture.write(255, 1);
    fixture.write(0, 2);
    fixture.write(100, 2);
    let heat = ask(&fixture, &format!("/volumes/v/heat?from=seq:{at}&cells=4"));
    assert_eq!(heat["blocks"], serde_json::json!([1, 1, 0, 0]));
    assert_eq!((&heat["cell_bytes"], &heat["changed_bytes"]), (&262_144.into(), &8192.into()));
    assert_eq!((&heat["from"]["seq"], &heat["to"]["seq"]), (&at.into(), &4.into()));
    for wrong in ["from=seq:1&cells=0", "from=seq:1&cells=16385", "cells=4"] {
        let (status, body) = fixture.send("GET", &format!("/volumes/v/heat?{wrong}"), "");
        assert_eq!(status, 400, "{wrong}: {body}");
    }
    let (status, _) = fixture.send("GET", "/volumes/v/heat?from=seq:99", "");
    assert_eq!(status, 410, "it is not written yet");
}

#[test]
fn the_server_says_which_it_is_and_since_when() {
    let fixture = Fixture::new();
    let server = ask(&fixture, "/server");
    assert_eq!(server["version"], env!("CARGO_PKG_VERSION"));
    let started = server["started"].as_str().expect("a time");
    assert!(started <= server["time"].as_str().expect("a time"), "{server}");
    assert_eq!(server["nbd_socket"], fixture.nbd_socket().display().to_string());
}

#[test]
fn the_audit_log_is_read_from_its_newest_end_and_on_to_its_oldest() {
    let fixture = Fixture::with_volume();
    let volume = fixture.server().pool().volume("v").expect("v");
    for turn in 1..8 {
        let before = units::Moment::Seq(units::Seq(fixture.write(0, turn)));
        fixture.write(0, 0);
        volume.revert(&before, false).expect("reverted");
    }
    let numbers = |page: &Value| -> Vec<u64> {
        let records = page.as_array().expect("an array").iter();
        records.map(|record| record["number"].as_u64().expect("a number")).collect()
    };
    let oldest_first = numbers(&ask(&fixture, "/audit"));
    assert!(oldest_first.is_sorted() && oldest_first.len() >= 8, "{oldest_first:?}");
    let mut all = Vec::new();
    let mut path = "/audit?newest=true&limit=3".to_owned();
    loop {
        let page = numbers(&ask(&fixture, &path));
        let Some(&last) = page.last() else { break };
        all.extend(page);
        path = format!("/audit?newest=true&limit=3&next={last}");
    }
    all.reverse();
    assert_eq!(all, oldest_first, "each once");
    let request = "GET /api/v1/audit?newest=true&limit=3 HTTP/1.1\r\nHost: localhost\r\n\
                   Connection: close\r\n\r\n";
    let whole = fixture.whole(&fixture.with_token(request));
    let newest = oldest_first[oldest_first.len() - 3];
    let link = format!("</api/v1/audit?limit=3&next={newest}&newest=true>; rel=\"next\"");
    assert!(whole.contains(&link), "{whole}");
}

#[test]
fn the_page_is_had_without_the_token_and_nothing_else_is() {
    let fixture = Fixture::with_volume();
    let ask = |method: &str, path: &str, header: &str| {
        fixture.whole(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n"
        ))
    };
    for path in ["/", "/?token=wrong", "/app.css", "/js/main.js", "/vendor/LICENSES"] {
        let answer = ask("GET", path, "");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        let head = answer.split("\r\n\r\n").next().expect("a head").to_ascii_lowercase();
        assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
        assert!(head.contains("referrer-policy: no-referrer"), "{head}");
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("a tag");
        let again = ask("GET", path, &format!("If-None-Match: {tag}\r\n"));
        assert!(again.starts_with("HTTP/1.1 304 "), "{again}");
        let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
        assert!(ask("GET", path, link).starts_with("HTTP/1.1 200 "), "a link leads to it");
    }
    for path in ["/js/", "/index.html", "/vendor/", "/api/v1/volumes", "/metrics", "//"] {
        let answer = ask("GET", path, "");
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
    }
    assert!(ask("POST", "/", "").starts_with("HTTP/1.1 405 "));
    assert!(ask("HEAD", "/", "").starts_with("HTTP/1.1 200 "));
    let evil = "Origin: http://evil.example\r\n";
    assert!(ask("GET", "/", evil).starts_with("HTTP/1.1 403 "));
}
