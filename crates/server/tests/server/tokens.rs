//! Tokens: made, shown, refused, revoked; and what logs and audit records say of them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use api::{Client, ListQuery, ProblemKind, SpanInput};
use units::{Role, Span};

use crate::fixture::{Fixture, kind, new_volume};
use crate::rights::{ask, client_of, secret, token};

/// The audit records of an action.
pub fn audited(fixture: &Fixture, action: &str) -> Vec<api::AuditRecord> {
    let mut records = fixture.client.audit(&ListQuery::default()).expect("audit").entries;
    records.retain(|record| record.action == action);
    records
}

#[test]
fn a_token_is_told_once_lets_in_until_it_is_revoked_and_outlives_a_restart() {
    let mut fixture = Fixture::with_volume();
    let made = fixture.client.create_token(&token("nightly", Role::Keeper, &["v*"])).expect("made");
    let text = secret(&made);
    assert!(text.starts_with(&format!("{}_", made.prefix)) && text.len() == 64, "{text}");
    let client = client_of(&fixture, &made);
    client.create_version("v", &Default::default()).expect("captured");
    assert_eq!(kind(client.delete_version("v", 0)), ProblemKind::Forbidden);
    let shown = fixture.client.token("nightly").expect("there");
    assert_eq!((shown.secret.clone(), shown.role.0), (None, Role::Keeper));
    let today = client.server().expect("told").time.to_string()[..10].to_owned();
    assert_eq!(shown.last_used.expect("used").to_string(), format!("{today}T00:00:00.000000000Z"));
    let own = fixture.client.server().expect("told").who.expect("somebody").name;
    assert_eq!(shown.made_by, Some(own.clone()));
    let again = fixture.client.create_token(&token("nightly", Role::Admin, &[]));
    assert_eq!(kind(again), ProblemKind::Exists);

    fixture.restart();
    let client = client_of(&fixture, &made);
    client.create_version("v", &Default::default()).expect("captured");
    let shown = fixture.client.tokens().expect("listed");
    assert_eq!(shown.len(), 1);
    assert!(shown[0].last_used.is_some() && shown[0].volumes == ["v*"], "{:?}", shown[0].prefix);

    fixture.client.revoke_token("nightly").expect("revoked");
    assert_eq!(kind(client.volumes()), ProblemKind::Unauthorized);
    assert_eq!(kind(fixture.client.revoke_token("nightly")), ProblemKind::NotFound);
    fixture.restart();
    assert_eq!(kind(client_of(&fixture, &made).volumes()), ProblemKind::Unauthorized);

    let [create] = &audited(&fixture, "token-create")[..] else { panic!("one") };
    let id = made.prefix.trim_start_matches("hs1_");
    assert_eq!(create.detail, format!("token nightly ({id}): keeper, volumes v*"));
    assert_eq!((create.who.as_deref(), create.from.as_deref()), (Some(&*own), None));
    assert_eq!(audited(&fixture, "token-revoke").len(), 1);
    let all = fixture.client.audit(&ListQuery::default()).expect("audit").entries;
    let all = serde_json::to_string(&all).expect("JSON");
    assert!(!all.contains(&text) && !all.contains(&text[15..50]), "a secret was written down");
}

#[test]
fn a_token_is_not_good_beyond_its_time() {
    let fixture = Fixture::with_volume();
    let mut spec = token("short", Role::Viewer, &[]);
    spec.expires = Some(SpanInput(Span(300_000_000)));
    let made = fixture.client.create_token(&spec).expect("made");
    let client = client_of(&fixture, &made);
    client.volumes().expect("still good");
    while !fixture.client.token("short").expect("there").expired {
        std::thread::yield_now();
    }
    let refused = crate::fixture::problem(client.volumes());
    assert_eq!(refused.problem_kind(), Some(ProblemKind::Unauthorized));
    assert!(refused.detail.contains("the token short has expired"), "{}", refused.detail);
    spec.expires = Some(SpanInput(Span(0)));
    spec.name = "never".to_owned();
    assert_eq!(kind(fixture.client.create_token(&spec)), ProblemKind::Invalid);
    assert_eq!(fixture.client.tokens().expect("listed").len(), 1);
}

#[test]
fn wrong_tokens_are_counted_told_of_and_hold_up_no_right_one() {
    let fixture = Fixture::with_volume();
    let made = fixture.client.create_token(&token("right", Role::Viewer, &[])).expect("made");
    let right = secret(&made);
    let other = fixture.client.create_token(&token("other", Role::Viewer, &[])).expect("made");
    let other = secret(&other);
    fixture.client.revoke_token("other").expect("revoked");
    let swapped = format!("{}{}", &right[..15], &other[15..]);
    let get = |token: &str| ask(&fixture, token, ("GET", "/api/v1/volumes"), "");
    let whole = |text: &str| text.contains("not whole");
    for (wrong, is_whole) in [
        (&*other, true),
        (&*swapped, false),
        (&right[..63], false),
        (&*format!("{right}0"), false),
        ("hs1_", false),
    ] {
        let (status, text) = get(wrong);
        assert_eq!((status, whole(&text)), (401, !is_whole), "{wrong}: {text}");
        assert!(!text.contains(&wrong[4..]) || wrong.len() == 4, "{text}");
    }
    for _ in 5..10 {
        assert_eq!(get("nonsense").0, 401);
    }
    for wrong in [&*other, "nonsense"] {
        let answer = fixture.whole(&format!(
            "GET /api/v1/volumes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Authorization: Bearer {wrong}\r\n\r\n"
        ));
        assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("\r\nretry-after: "));
        assert!(answer.contains("urn:hindsight:problem:too-many"), "{answer}");
        assert_eq!(get(&right).0, 200, "a right one is let in");
    }
    let mut records = audited(&fixture, "login-refused");
    while records.is_empty() {
        records = audited(&fixture, "login-refused");
    }
    assert_eq!(records.len(), 1, "{records:?}");
    assert!(records[0].from.as_deref().is_some_and(|from| from.starts_with("127.0.0.1:")));
    let records = format!("{records:?}");
    assert!(![&*other, &*swapped, &other[15..]].iter().any(|secret| records.contains(secret)));
}

/// An answer over the unix socket to whoever shows a token there.
pub fn over_unix(fixture: &Fixture, method: &str, path: &str, token: &str) -> String {
    let socket = fixture.dir.path().join("pool/api.sock");
    let mut stream = UnixStream::connect(socket).expect("connect");
    let head = format!(
        "{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("send");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answer");
    answer
}

#[test]
fn whoever_shows_a_token_over_the_unix_socket_is_that_tokens_and_no_more() {
    let fixture = Fixture::with_volume();
    let made = fixture.client.create_token(&token("t", Role::Viewer, &[])).expect("made");
    let shown = secret(&made);
    assert!(over_unix(&fixture, "GET", "/volumes", &shown).starts_with("HTTP/1.1 200"));
    assert!(over_unix(&fixture, "DELETE", "/volumes/v", &shown).starts_with("HTTP/1.1 403"));
    assert!(over_unix(&fixture, "GET", "/volumes", "hs1_wrong").starts_with("HTTP/1.1 401"));
    // A proxy passes on what its own callers show it.
    assert!(over_unix(&fixture, "GET", "/volumes", "eyJhbGciOi").starts_with("HTTP/1.1 200"));
    let in_query = format!("/volumes?token={shown}");
    let (status, _) = ask(&fixture, &shown, ("GET", &format!("/api/v1{in_query}")), "");
    assert_eq!(status, 200, "the header is what counts");
    let bare = fixture.bare(&format!(
        "GET /api/v1{in_query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    ));
    assert_eq!(bare.0, 401, "addresses end in histories: {}", bare.1);
}

#[test]
fn audit_records_name_the_token_and_where_it_came_from() {
    let fixture = Fixture::new();
    let made = fixture.client.create_token(&token("maker", Role::Admin, &["w"])).expect("made");
    client_of(&fixture, &made).create_volume(&new_volume("w", 1 << 20)).expect("made");
    let record = audited(&fixture, "volume-create").pop().expect("a record");
    assert_eq!(record.who.as_deref(), Some("token:maker"));
    assert_eq!(record.caller, record.who);
    assert!(record.from.is_some_and(|from| from.starts_with("127.0.0.1:")));
}

#[test]
fn names_and_patterns_that_cannot_be_are_refused() {
    let fixture = Fixture::new();
    let url = fixture.http_address();
    let client = Client::new(format!("http://{}/?token={}", url.0, url.1).parse().expect("url"));
    let client = client.expect("client");
    for name in ["", "-x", "a b", "\u{e4}", &"x".repeat(129)] {
        let refused = kind(client.create_token(&token(name, Role::Viewer, &[])));
        assert_eq!(refused, ProblemKind::Invalid, "{name}");
    }
    for body in [
        r#"{"name": "t"}"#,
        r#"{"name": "t", "role": "root"}"#,
        r#"{"name": "t", "role": "viewer", "volumes": ["a/b"]}"#,
        r#"{"name": "t", "role": "viewer", "volumes": [""]}"#,
        r#"{"name": "t", "role": "viewer", "secret": "mine"}"#,
    ] {
        assert_eq!(fixture.send("POST", "/tokens", body).0, 400, "{body}");
    }
    let many = token("t", Role::Viewer, &["x"; 65]);
    assert_eq!(kind(client.create_token(&many)), ProblemKind::Invalid);
    assert!(client.tokens().expect("listed").is_empty());
}
