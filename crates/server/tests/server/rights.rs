//! Who may what: every route, each role, and volumes that a caller sees or does not.
//!
//! The oracle is written from the rule, not from the server's table: to look is a viewer's, but for
//! data and tokens; a keeper makes versions and marks; an operator writes; all else is an admin's.

use std::collections::BTreeSet;

use api::{
    AccessToken, Client, CreateClone, CreateGroup, CreateTarget, CreateToken, DeleteQuery, NewLun,
    Pattern, ProblemKind, RoleName, SetSchedule,
};
use units::Role;

use crate::fixture::{Fixture, kind, new_volume, problem};
use crate::tokens::over_unix;

pub fn token(name: &str, role: Role, volumes: &[&str]) -> CreateToken {
    let pattern = |text: &&str| Pattern(text.parse().expect("a pattern"));
    let volumes = volumes.iter().map(pattern).collect();
    CreateToken { name: name.to_owned(), role: RoleName(role), volumes, expires: None, chap: false }
}

pub fn secret(made: &AccessToken) -> String {
    made.secret.clone().expect("told once")
}

/// A client over TCP that shows a token.
pub fn client_of(fixture: &Fixture, made: &AccessToken) -> Client {
    let url = format!("http://{}/?token={}", fixture.http_address().0, secret(made));
    Client::new(url.parse().expect("an address")).expect("client")
}

/// One request over a connection of its own.
pub fn ask(fixture: &Fixture, token: &str, route: (&str, &str), body: &str) -> (u16, String) {
    let (method, target) = route;
    fixture.bare(&format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// The role that a route needs.
fn needed(method: &str, path: &str) -> Role {
    let last = path.rsplit('/').next().expect("a part");
    let is_data = path.starts_with("/shares/{share}/") || ["trace", "open-files"].contains(&last);
    match (method, last) {
        ("GET", _) if path.starts_with("/tokens") => Role::Admin,
        ("DELETE", "login") => Role::Viewer,
        ("GET", _) if is_data => Role::Reader,
        ("GET", _) => Role::Viewer,
        ("POST", "versions" | "marks" | "verifications") => Role::Keeper,
        ("POST", "revert" | "clones" | "compact" | "uncompact" | "undelete") => Role::Operator,
        ("POST", "archive" | "restores" | "repairs") => Role::Operator,
        // Of the rest of it more is asked: see below.
        ("PATCH" | "DELETE", "{volume}") if path == "/volumes/{volume}" => Role::Operator,
        _ => Role::Admin,
    }
}

/// Whether a route is about the pool as a whole.
fn is_of_pool(method: &str, path: &str) -> bool {
    let part = path.split('/').nth(1).expect("a part");
    match part {
        "audit" | "tokens" | "codes" | "imports" | "metrics" => true,
        "pool" | "groups" | "made-targets" => method != "GET" && !path.contains("{group}"),
        _ => false,
    }
}

fn may(role: Role, needed: Role) -> bool {
    match needed {
        Role::Viewer => true,
        Role::Reader => [Role::Reader, Role::Operator, Role::Admin].contains(&role),
        Role::Keeper => [Role::Keeper, Role::Operator, Role::Admin].contains(&role),
        Role::Operator => [Role::Operator, Role::Admin].contains(&role),
        Role::Admin => role == Role::Admin,
    }
}

/// Method and path of each route of the document, below the API's.
fn routes() -> Vec<(String, String)> {
    let document: serde_json::Value = serde_json::from_str(api::OPENAPI_JSON).expect("JSON");
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            let path = path.strip_prefix("/api/v1").unwrap_or(path);
            // These ask for no credentials.
            let is_open = ["/healthz", "/readyz"].contains(&path);
            if !is_open && (path, &**method) != ("/login", "post") {
                routes.push((method.to_uppercase(), path.to_owned()));
            }
        }
    }
    routes
}

/// Volumes that callers of `pg*` see, and `zulu`s that they do not, entangled.
fn entangled() -> Fixture {
    let fixture = Fixture::new();
    let client = &fixture.client;
    for name in ["pg", "zulu", "zulu-gone", "pg-gone"] {
        client.create_volume(&new_volume(name, 1 << 20)).expect("made");
    }
    let clone = |of: &str, name: &str| {
        let body = CreateClone { name: name.to_owned(), ..CreateClone::default() };
        client.create_clone(of, &body).expect("cloned");
    };
    for name in ["pg", "zulu"] {
        client.create_version(name, &Default::default()).expect("captured");
        let body = r#"{"every": "1h", "keep": {"last": 3}}"#;
        let schedule: SetSchedule = serde_json::from_str(body).expect("a schedule");
        client.set_schedule(name, &schedule).expect("set");
        client.compact_version(name, 0).expect("begun");
    }
    clone("zulu", "pg-clone");
    clone("pg", "zulu-of-pg");
    for (name, members) in [("mixed", ["pg", "zulu"]), ("whole", ["pg", "pg-clone"])] {
        let volumes = members.map(str::to_owned).to_vec();
        client.create_group(&CreateGroup { name: name.to_owned(), volumes }).expect("grouped");
        let luns = (0..).zip(members).map(|(lun, volume)| {
            let text = format!(r#"{{"lun": {lun}, "volume": "{volume}"}}"#);
            serde_json::from_str::<NewLun>(&text).expect("a unit")
        });
        let luns = luns.collect::<Vec<_>>();
        let body = format!(r#"{{"name": "t-{name}", "luns": []}}"#);
        let body: CreateTarget = serde_json::from_str(&body).expect("a target");
        client.create_target(&CreateTarget { luns, ..body }).expect("made");
    }
    for share in ["pg-files", "zulu-files"] {
        let body = format!(r#"{{"name": "{share}"}}"#);
        client.create_share(&serde_json::from_str(&body).expect("a share")).expect("made");
    }
    for name in ["zulu-gone", "pg-gone"] {
        client.remove_volume(name, &DeleteQuery::default()).expect("deleted");
    }
    fixture
}

/// Names for the parameters of a path: such as are seen, not seen, or not there.
fn fill(fixture: &Fixture, path: &str, which: usize) -> String {
    let gone = |name: &str| {
        let trash = fixture.client.trash().expect("trash");
        trash.iter().find(|one| one.name == name).map_or(0, |one| one.id).to_string()
    };
    let id = || match path.starts_with("/jobs") {
        true => ["pg.0", "zulu.0", "none.0"][which].to_owned(),
        false => [gone("pg-gone"), gone("zulu-gone"), "987654".to_owned()][which].clone(),
    };
    let mut filled = path
        .replace("{volume}", ["pg", "zulu", "none"][which])
        .replace("{share}", ["pg-files", "zulu-files", "none"][which])
        .replace("{group}", ["whole", "mixed", "none"][which])
        .replace("{target}", "no-target")
        .replace("{token}", "no-token")
        .replace("{mark}", "no-mark")
        .replace("{number}", "77");
    if filled.contains("{id}") {
        filled = filled.replace("{id}", &id());
    }
    assert!(!filled.contains('{'), "{filled}");
    let prefix = if path == "/metrics" { "" } else { "/api/v1" };
    // Nothing is done: what is let in is refused for this. Of jobs the handler says what is seen.
    format!("{prefix}{filled}{}", if path.starts_with("/jobs/") { "" } else { "?bogus=1" })
}

#[test]
fn every_route_lets_in_each_role_that_may_and_hides_what_it_does_not_see() {
    let fixture = entangled();
    let mut asked = 0;
    for role in [Role::Viewer, Role::Reader, Role::Keeper, Role::Operator, Role::Admin] {
        let make = |scope: &str, volumes: &[&str]| {
            let made =
                fixture.client.create_token(&token(&format!("{role}-{scope}"), role, volumes));
            secret(&made.expect("made"))
        };
        let (all, some) = (make("all", &[]), make("some", &["pg*"]));
        for (method, path) in routes() {
            // A group that is deleted has to be there for the next.
            if (&*method, &*path) == ("DELETE", "/groups/{group}") && role == Role::Admin {
                continue;
            }
            let body = if ["GET", "DELETE"].contains(&&*method) { "" } else { r#"{"bogus": 1}"# };
            let has_name =
                path.contains('{') && !["{target}", "{token}"].iter().any(|p| path.contains(p));
            let is_allowed = may(role, needed(&method, &path));
            for (token, which) in [(&all, 0), (&all, 1), (&some, 0), (&some, 1)] {
                let target = fill(&fixture, &path, which);
                let (status, text) = ask(&fixture, token, (&method, &target), body);
                let about = format!("{role} {which} {method} {target}: {status} {text}");
                asked += 1;
                let is_some = token == &some;
                if !is_allowed || is_some && is_of_pool(&method, &path) {
                    assert_eq!(status, 403, "{about}");
                    assert!(text.contains("\"urn:hindsight:problem:forbidden\""), "{about}");
                } else if is_some && which == 1 && has_name {
                    let none = fill(&fixture, &path, 2);
                    let (absent, of_absent) = ask(&fixture, token, (&method, &none), body);
                    let (name, no_name) = (name_in(&path, &target), name_in(&path, &none));
                    assert_eq!((status, absent), (404, 404), "{about}");
                    assert_eq!(text, of_absent.replace(&no_name, &name), "{about}");
                } else {
                    assert!(status != 401 && status != 403, "{about}");
                    assert!(path.starts_with("/jobs/") || status >= 400, "it was done: {about}");
                }
            }
        }
    }
    assert!(asked > 1500, "{asked} requests");
}

/// The name in a path that was filled: the second part.
fn name_in(path: &str, filled: &str) -> String {
    let at = path.split('/').position(|part| part.starts_with('{')).expect("a name");
    let filled = filled.trim_start_matches("/api/v1");
    let part = filled.split(['/', '?']).nth(at).expect("a part");
    // A job's has the number of a version behind it.
    part.split('.').next().expect("a name").to_owned()
}

#[test]
fn nothing_that_a_caller_is_told_names_a_volume_that_it_does_not_see() {
    let fixture = entangled();
    let mut told = BTreeSet::new();
    for role in [Role::Operator, Role::Admin] {
        let made = fixture.client.create_token(&token(role.name(), role, &["pg*"]));
        let secret = secret(&made.expect("made"));
        for of in ["", "/history", "/timeline"] {
            let of = format!("/api/v1/volumes/pg-clone{of}");
            let (status, text) = ask(&fixture, &secret, ("GET", &of), "");
            assert!(status == 200 && !text.contains("zulu"), "{of}: {status} {text}");
            let is_told = text.contains("\"cloned\"") || of.ends_with("clone");
            assert!(is_told, "that it is a clone is told: {text}");
        }
        for (method, path) in routes().into_iter().filter(|(method, _)| method == "GET") {
            for query in ["", "at=latest", "from=v:0", "at=seq:0", "since=seq:0&until=seq:0"] {
                let filled = fill(&fixture, &path, 0).replace("77", "0");
                let filled = filled.replace("?bogus=1", &format!("?{query}"));
                if filled.contains("/trace") {
                    continue;
                }
                let (status, text) = ask(&fixture, &secret, (&method, &filled), "");
                assert!(!text.contains("zulu"), "{filled}: {text}");
                if status == 200 && text.contains("pg") {
                    told.insert(path.clone());
                }
            }
        }
    }
    // The test looks at what has names.
    for path in ["/volumes", "/shares", "/trash", "/groups", "/schedules", "/jobs", "/targets"] {
        assert!(path == "/targets" || told.contains(path), "{path} told nothing: {told:?}");
    }
    let made = fixture.client.create_token(&token("all", Role::Viewer, &[])).expect("made");
    let (_, text) = ask(&fixture, &secret(&made), ("GET", "/api/v1/volumes"), "");
    assert!(text.contains("zulu-of-pg") && text.contains(r#""volume":"zulu""#), "{text}");
}

#[test]
fn names_in_bodies_and_queries_are_seen_or_are_not_there() {
    let fixture = entangled();
    let made = fixture.client.create_token(&token("some", Role::Admin, &["pg*"])).expect("made");
    let secret = secret(&made);
    let ask = |method, path: &str, body: &str| {
        let target = format!("/api/v1{path}");
        let (status, text) = ask(&fixture, &secret, (method, &target), body);
        (status, text)
    };
    let shared = "/shares/pg-files/diff?from=latest&to_share=";
    for (path, none, text) in [
        ("/volumes/pg/diff?from=v:0&to_volume=zulu-of-pg", "zulu-of-pg", ""),
        (&*format!("{shared}zulu-files"), "zulu-files", ""),
        ("/volumes", "zulu", r#"{"name":"pg-2","size":4096,"architecture":"auto","like":"zulu"}"#),
    ] {
        let method = if text.is_empty() { "GET" } else { "POST" };
        let of_absent = ask(method, &path.replace(none, "none"), &text.replace(none, "none"));
        let of_unseen = ask(method, path, text);
        assert_eq!(of_unseen.0, 404, "{of_unseen:?}");
        assert_eq!(of_unseen.1, of_absent.1.replace("none", none));
    }
    let gone = fixture.client.trash().expect("trash");
    let gone = gone.iter().find(|one| one.name == "pg-gone").expect("deleted").id;
    for (path, body) in [
        ("/volumes", r#"{"name": "zulu-2", "size": 4096}"#),
        ("/volumes", r#"{"name": "zulu", "size": 4096}"#),
        ("/shares", r#"{"name": "zulu-2"}"#),
        ("/volumes/pg/clones", r#"{"name": "zulu-2"}"#),
        ("/volumes/pg/rename", r#"{"name": "zulu-2"}"#),
        ("/groups/whole/clones", r#"{"name": "zulu"}"#),
        (&*format!("/trash/{gone}/undelete"), r#"{"name": "zulu-2"}"#),
    ] {
        let (status, text) = ask("POST", path, body);
        assert_eq!(status, 403, "{path} {body}: {text}");
        assert!(text.contains("pg*"), "{text}");
    }
    for (path, body) in [
        ("/volumes", r#"{"name": "pg-2", "size": 4096}"#),
        ("/volumes/pg/clones", r#"{"name": "pg-3"}"#),
        ("/groups/whole/clones", r#"{"name": "pgs"}"#),
        ("/volumes/pg-2/rename", r#"{"name": "pg-4"}"#),
    ] {
        let (status, text) = ask("POST", path, body);
        assert!(status == 200 || status == 201, "{path} {body}: {status} {text}");
    }
}

#[test]
fn an_operator_makes_volumes_larger_and_changes_nothing_else() {
    let fixture = Fixture::with_volume();
    let made = fixture.client.create_token(&token("op", Role::Operator, &["v"])).expect("made");
    let secret = secret(&made);
    let patch = |body: &str| ask(&fixture, &secret, ("PATCH", "/api/v1/volumes/v"), body).0;
    assert_eq!(patch(r#"{"size": "2MiB"}"#), 200);
    for body in [
        r#"{"size": "1MiB"}"#,
        r#"{"window": "1h"}"#,
        r#"{"size": "3MiB", "window": "1h"}"#,
        r#"{"hook": null}"#,
        r#"{"dedup": true}"#,
    ] {
        assert_eq!(patch(body), 403, "{body}");
    }
    let keeper = fixture.client.create_token(&token("keep", Role::Keeper, &["v"])).expect("made");
    let capture = |body: &str| {
        let route = ("POST", "/api/v1/volumes/v/versions");
        ask(&fixture, &keeper.secret.clone().expect("told"), route, body).0
    };
    assert_eq!((capture("{}"), capture(r#"{"hook": "none"}"#)), (201, 403), "a hook is a command");
    let volume = fixture.client.volume("v").expect("there");
    assert_eq!((volume.size, volume.window.0.to_string()), (2 << 20, "1d".to_owned()));
}

#[test]
fn an_operator_deletes_scratch_clones_and_no_other_volume() {
    let fixture = Fixture::with_volume();
    let made = fixture.client.create_token(&token("op", Role::Operator, &["v*"])).expect("made");
    let secret = secret(&made);
    let of_v = "/api/v1/volumes/v/clones";
    let clone = |body: &str| {
        let (status, text) = ask(&fixture, &secret, ("POST", of_v), body);
        assert_eq!(status, 201, "{text}");
        serde_json::from_str::<api::Volume>(&text).expect("a volume").name
    };
    let scratch = clone(r#"{"scratch": "1h"}"#);
    let stays = clone(r#"{"name": "v-stays"}"#);
    let delete = |name: &str, query: &str| {
        let path = format!("/api/v1/volumes/{name}{query}");
        ask(&fixture, &secret, ("DELETE", &path), "").0
    };
    for name in ["v", &stays] {
        for query in ["", "?dry_run=true", "?now=true", "?force=true"] {
            assert_eq!(delete(name, query), 403, "{name}{query}");
        }
    }
    assert_eq!(delete(&scratch, "?force=true&now=true"), 204);
    let left: Vec<_> = fixture.client.volumes().expect("listed");
    assert_eq!(left.iter().map(|volume| &*volume.name).collect::<Vec<_>>(), ["v", "v-stays"]);
}

#[test]
fn remote_deletes_can_be_taken_from_everybody_but_the_unix_socket() {
    let fixture = Fixture::with(|settings, _| settings.access.remote_deletes = Some(false));
    fixture.client.create_volume(&new_volume("v", 1 << 20)).expect("made");
    fixture.client.create_version("v", &Default::default()).expect("captured");
    let made = fixture.client.create_token(&token("boss", Role::Admin, &[])).expect("made");
    let pools = fixture.http_address().1.to_owned();
    // Over the unix socket a token takes as much as it may.
    fixture.client.create_volume(&new_volume("w", 1 << 20)).expect("made");
    let gone = over_unix(&fixture, "DELETE", "/volumes/w", &secret(&made));
    assert!(gone.starts_with("HTTP/1.1 204"), "{gone}");
    for secret in [secret(&made), pools] {
        for (method, path, body) in [
            ("DELETE", "/volumes/v", ""),
            ("DELETE", "/volumes/v?dry_run=true", ""),
            ("DELETE", "/volumes/v/versions/0", ""),
            ("DELETE", "/volumes/v/marks?name=m", ""),
            ("POST", "/volumes/v/retention", "{}"),
            ("PUT", "/volumes/v/schedule", r#"{"every": "1h", "keep": {"last": 1}}"#),
            ("PATCH", "/volumes/v", r#"{"window": "1s"}"#),
            ("PATCH", "/volumes/v", r#"{"grace": "0s"}"#),
            ("PATCH", "/volumes/v", r#"{"size": 4096}"#),
            ("PATCH", "/volumes/v", r#"{"granularity": "1h"}"#),
            ("PUT", "/pool/scrub", r#"{"every": null}"#),
            ("POST", "/tokens", r#"{"name": "t", "role": "admin"}"#),
            ("DELETE", "/tokens/boss", ""),
        ] {
            let target = format!("/api/v1{path}");
            let (status, text) = ask(&fixture, &secret, (method, &target), body);
            assert_eq!(status, 403, "{method} {path}: {text}");
            assert!(text.contains("remote_deletes"), "{text}");
        }
        let (status, text) = ask(&fixture, &secret, ("POST", "/api/v1/volumes/v/versions"), "{}");
        assert_eq!(status, 201, "{text}");
    }
    // Over the unix socket all of it is taken, but of whoever shows a token there.
    fixture.client.delete_version("v", 0).expect("deleted");
    let query = DeleteQuery { force: true, ..DeleteQuery::default() };
    fixture.client.remove_volume("v", &query).expect("deleted");
}

#[test]
fn a_scoped_admin_makes_no_token_and_reads_no_log_of_others() {
    let fixture = entangled();
    let made = fixture.client.create_token(&token("half", Role::Admin, &["pg*"])).expect("made");
    let client = client_of(&fixture, &made);
    assert_eq!(kind(client.create_token(&token("more", Role::Admin, &[]))), ProblemKind::Forbidden);
    assert_eq!(kind(client.tokens()), ProblemKind::Forbidden);
    let refused = problem(client.audit(&Default::default()));
    assert_eq!(refused.problem_kind(), Some(ProblemKind::Forbidden));
    assert!(refused.detail.contains("token:half sees only some"), "{}", refused.detail);
    let who = client.server().expect("told").who.expect("somebody");
    assert_eq!(
        (&*who.name, who.role.0, who.volumes),
        ("token:half", Role::Admin, vec!["pg*".to_owned()])
    );
}
