//! Who is let in over TCP, and whose name audit records carry.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use api::{Client, ListQuery, ProblemKind};
use hindsight_server::{Config, Server};

use crate::fixture::{Fixture, kind, new_volume, settings};

#[test]
fn over_tcp_nothing_but_health_is_told_without_the_token() {
    let mut fixture = Fixture::with_volume();
    let ask = |fixture: &Fixture, method: &str, path: &str, header: &str| {
        fixture.bare(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n"
        ))
    };
    let token = fixture.http_address().1.to_owned();
    let wrong = format!("{}x", &token[1..]);
    for header in [
        String::new(),
        format!("Authorization: Bearer {wrong}\r\n"),
        format!("Authorization: Basic {token}\r\n"),
        format!("Authorization: {token}\r\n"),
    ] {
        for (method, path) in [
            ("GET", "/api/v1/volumes"),
            ("DELETE", "/api/v1/volumes/v"),
            ("GET", "/metrics"),
            ("GET", "/api/v1/openapi.json"),
            ("GET", "/nowhere"),
        ] {
            let (status, body) = ask(&fixture, method, path, &header);
            assert_eq!(status, 401, "{method} {path} {header}: {body}");
            assert!(body.contains("\"urn:hindsight:problem:unauthorized\""), "{body}");
        }
        assert_eq!(ask(&fixture, "GET", "/healthz", &header).0, 200);
        assert_eq!(ask(&fixture, "GET", "/readyz", &header).0, 200);
    }
    assert_eq!(fixture.client.volumes().expect("list").len(), 1, "nothing was deleted");
    let right = format!("Authorization: bearer {token}\r\n");
    assert_eq!(ask(&fixture, "GET", "/metrics", &right).0, 200);
    let resolve = format!("/api/v1/volumes/v/resolve?token={token}&at=latest");
    assert_eq!(ask(&fixture, "GET", &resolve, "").0, 200);
    let wrong = format!("/api/v1/volumes?token={wrong}");
    assert_eq!(ask(&fixture, "GET", &wrong, "").0, 401);

    let kept = fs::read_to_string(fixture.dir.path().join("pool/token")).expect("the token");
    assert_eq!(kept.trim(), token);
    fixture.restart();
    assert_eq!(fixture.http_address().1, token, "it is kept over restarts");
}

#[test]
fn bodies_that_never_come_lock_nobody_out_and_end_in_time() {
    const CLIENTS: usize = 300;
    let dir = tempfile::tempdir().expect("directory");
    let mut config = Config::from_settings(settings(&dir.path().join("pool"))).expect("config");
    config.http_patience = Duration::from_secs(1);
    let fixture = Fixture::of(Server::start(&config).expect("start"), dir);
    let head = "POST /api/v1/volumes HTTP/1.1\r\nHost: localhost\r\n\
                Content-Type: application/json\r\nContent-Length: 100\r\n\r\n";
    let head = fixture.with_token(head);
    let mut waiting = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(fixture.http_address().0).expect("connect");
        stream.write_all(head.as_bytes()).expect("send");
        waiting.push(stream);
    }
    for _ in 0..3 {
        fixture.client.volumes().expect("the unix socket is served");
    }
    let answer = |stream: &mut TcpStream| {
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("an answer");
        answer
    };
    // The last of them was let in only after others had been ended.
    assert_eq!(&answer(&mut waiting[0]), b"HTTP/1.1 408");
    assert_eq!(&answer(&mut waiting[CLIENTS - 1]), b"HTTP/1.1 408");
}

#[test]
fn an_audit_record_says_who_asked_for_it() {
    let fixture = Fixture::with_volume();
    let (address, token) = fixture.http_address();
    let url = format!("http://{address}/?token={token}");
    let client = Client::new(url.parse().expect("an address")).expect("client");
    client.create_volume(&new_volume("w", 1 << 20)).expect("created over TCP");
    let bare = Client::new(format!("http://{address}").parse().expect("an address"));
    let refused = kind(bare.expect("client").delete_volume("w", true));
    assert_eq!(refused, ProblemKind::Unauthorized);
    let records = fixture.client.audit(&ListQuery::default()).expect("audit").entries;
    let caller = |volume: &str| {
        let made = records.iter().find(|r| r.action == "volume-create" && r.volume == volume);
        let record = made.expect("a record");
        (record.who.clone().expect("somebody"), record.from.clone())
    };
    let (who, from) = caller("v");
    assert!(who.starts_with(&format!("unix:{}", rustix::process::getuid().as_raw())), "{who}");
    assert_eq!(from, None);
    let (who, from) = caller("w");
    assert_eq!(who, "pool-token");
    assert!(from.is_some_and(|from| from.starts_with("127.0.0.1:")));
}

#[test]
fn pages_of_other_sites_and_other_host_names_are_refused() {
    let fixture = Fixture::new();
    let get = |head: &str| {
        fixture.raw(&format!("GET /api/v1/pool HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n")).0
    };
    assert_eq!(get("Host: localhost:1"), 200);
    assert_eq!(get("Host: 127.0.0.1"), 200);
    assert_eq!(get("Host: evil.example"), 403);
    assert_eq!(get("Host: localhost\r\nOrigin: http://evil.example"), 403);
    assert_eq!(get("Host: localhost\r\nOrigin: http://localhost"), 200);
}

#[test]
fn a_form_of_another_site_cannot_make_anything() {
    let fixture = Fixture::new();
    let body = "{\"name\": \"v\", \"size\": 4096}";
    let (status, _) = fixture.raw(&format!(
        "POST /api/v1/volumes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(status, 415);
    assert!(fixture.client.volumes().expect("list").is_empty());
}

#[test]
fn no_body_is_an_empty_one_and_a_body_of_no_type_is_refused() {
    let fixture = Fixture::with_volume();
    let post = |target: &str, body: &str| {
        fixture.raw(&format!(
            "POST /api/v1/{target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    assert_eq!(post("volumes/v/versions", "").0, 201);
    assert_eq!(post("volumes/v/versions", "{}").0, 415);
    let (status, problem) = post("volumes/v/revert", "");
    assert_eq!(status, 400);
    assert!(problem.contains("`to`"), "{problem}");
    assert_eq!(fixture.client.versions("v", &ListQuery::default()).expect("list").entries.len(), 1);
}

#[test]
fn what_is_not_http_ends_that_connection_alone() {
    let fixture = Fixture::new();
    let (status, _) = fixture.bare("\u{1}\u{2} nonsense\r\n\r\n");
    assert_eq!(status, 400);
    assert!(fixture.client.volumes().expect("list").is_empty());
}
