//! Who is let in over TCP.

use api::ListQuery;

use crate::fixture::Fixture;

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
    let (status, _) = fixture.raw("\u{1}\u{2} nonsense\r\n\r\n");
    assert_eq!(status, 400);
    assert!(fixture.client.volumes().expect("list").is_empty());
}
