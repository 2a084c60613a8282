//! Codes: made by an admin, good once and for a minute, and what is had for one.

use api::{AccessToken, Client, CreateCode, Login, ProblemKind, RoleName, SpanInput};
use units::{Role, Span};

use crate::fixture::{Fixture, kind};
use crate::rights::{client_of, secret, token};
use crate::tokens::audited;

/// Somebody over TCP who shows nothing.
fn stranger(fixture: &Fixture) -> Client {
    let url = format!("http://{}/", fixture.http_address().0);
    Client::new(url.parse().expect("an address")).expect("client")
}

fn wanted(role: Role, volumes: &[&str]) -> CreateCode {
    let volumes = token("any", role, volumes).volumes;
    CreateCode { role: RoleName(role), volumes, expires: None }
}

fn code(client: &Client, body: &CreateCode) -> Login {
    Login { code: client.create_code(body).expect("made").code }
}

fn listed(fixture: &Fixture) -> Vec<AccessToken> {
    fixture.client.tokens().expect("listed")
}

#[test]
fn a_code_lets_somebody_in_once_as_a_token_that_can_be_revoked_and_leaves() {
    let fixture = Fixture::with_volume();
    let (client, nobody) = (&fixture.client, stranger(&fixture));
    let login = code(client, &wanted(Role::Reader, &["v*"]));
    assert!(listed(&fixture).is_empty(), "nothing is made before the code is used");
    let made = nobody.login(&login).expect("let in");
    assert_eq!((made.role.0, &made.volumes[..]), (Role::Reader, &["v*".to_owned()][..]));
    assert!(secret(&made).starts_with("hs1_") && made.name.starts_with("page-2"), "{made:?}");
    let hours = made.expires.expect("a time").0.as_nanos() - made.created.0.as_nanos();
    assert!((hours / 1_000_000_000).abs_diff(12 * 60 * 60) < 60, "{hours}");
    let own = client.server().expect("told").who.expect("somebody").name;
    assert_eq!(listed(&fixture)[0].made_by, Some(format!("code:{own}")));
    let from = audited(&fixture, "token-create")[0].from.clone();
    assert!(from.is_some_and(|from| from.starts_with("127.0.0.1:")), "where it was used");

    let reader = client_of(&fixture, &made);
    assert_eq!(reader.volumes().expect("seen").len(), 1);
    assert_eq!(kind(reader.create_version("v", &Default::default())), ProblemKind::Forbidden);
    assert_eq!(kind(nobody.login(&login)), ProblemKind::Unauthorized);
    assert_eq!(listed(&fixture).len(), 1);
    reader.logout().expect("left");
    assert_eq!(kind(reader.volumes()), ProblemKind::Unauthorized);
    assert!(listed(&fixture).is_empty());
    assert_eq!(kind(nobody.logout()), ProblemKind::Unauthorized);
    // What no login made is not ended by leaving.
    assert_eq!(kind(client.logout()), ProblemKind::Forbidden);
    for name in ["boss", "page-boss"] {
        let admin = client.create_token(&token(name, Role::Admin, &[])).expect("made");
        assert_eq!(kind(client_of(&fixture, &admin).logout()), ProblemKind::Forbidden);
    }
}

#[test]
fn of_many_who_use_a_code_at_once_one_is_let_in_and_logins_do_not_hinder_each_other() {
    let fixture = Fixture::with_volume();
    let short =
        CreateCode { expires: Some(SpanInput(Span(1_000_000))), ..wanted(Role::Viewer, &[]) };
    for _ in 0..8 {
        stranger(&fixture).login(&code(&fixture.client, &short)).expect("let in");
    }
    let shared = code(&fixture.client, &wanted(Role::Viewer, &[]));
    let own: Vec<Login> =
        (0..8).map(|_| code(&fixture.client, &wanted(Role::Reader, &[]))).collect();
    std::thread::scope(|threads| {
        let of_shared: Vec<_> =
            (0..8).map(|_| threads.spawn(|| stranger(&fixture).login(&shared).is_ok())).collect();
        for login in &own {
            threads.spawn(|| stranger(&fixture).login(login).expect("let in"));
        }
        let let_in = of_shared.into_iter().map(|one| one.join().expect("asked"));
        assert_eq!(let_in.filter(|is_in| *is_in).count(), 1);
    });
    let tokens = listed(&fixture);
    assert_eq!(tokens.iter().filter(|token| !token.expired).count(), 9);
}

#[test]
fn with_remote_deletes_taken_away_codes_are_made_near_and_used_everywhere() {
    let fixture = Fixture::with(|settings, _| settings.access.remote_deletes = Some(false));
    let admin = fixture.client.create_token(&token("boss", Role::Admin, &[])).expect("made");
    let far = client_of(&fixture, &admin).create_code(&wanted(Role::Viewer, &[]));
    assert_eq!(kind(far), ProblemKind::Forbidden);
    let login = code(&fixture.client, &wanted(Role::Admin, &[]));
    let made = stranger(&fixture).login(&login).expect("let in");
    let page = client_of(&fixture, &made);
    assert_eq!(kind(page.create_code(&wanted(Role::Viewer, &[]))), ProblemKind::Forbidden);
    page.logout().expect("it is its own");
    // Over the unix socket it is told who used it.
    let made = fixture.client.login(&code(&fixture.client, &wanted(Role::Viewer, &[])));
    let created = audited(&fixture, "token-create");
    let own = fixture.client.server().expect("told").who.expect("somebody").name;
    let of_login = created.iter().find(|r| r.detail.contains(&made.as_ref().expect("in").name));
    assert_eq!(of_login.expect("recorded").from.as_ref(), Some(&own));
}

#[test]
fn only_who_makes_tokens_makes_codes_and_no_code_outlives_its_makers_rights() {
    let mut fixture = Fixture::with_volume();
    for (role, volumes) in [(Role::Operator, &[][..]), (Role::Keeper, &[]), (Role::Admin, &["v"])] {
        let made = fixture.client.create_token(&token("t", role, volumes)).expect("made");
        let refused = client_of(&fixture, &made).create_code(&wanted(Role::Viewer, &[]));
        assert_eq!(kind(refused), ProblemKind::Forbidden, "{role}");
        fixture.client.revoke_token("t").expect("revoked");
    }
    let boss = fixture.client.create_token(&token("boss", Role::Admin, &[])).expect("made");
    let login = code(&client_of(&fixture, &boss), &wanted(Role::Admin, &[]));
    fixture.client.revoke_token("boss").expect("revoked");
    assert_eq!(kind(stranger(&fixture).login(&login)), ProblemKind::Unauthorized);
    let login = code(&fixture.client, &wanted(Role::Admin, &[]));
    fixture.restart();
    assert_eq!(kind(stranger(&fixture).login(&login)), ProblemKind::Unauthorized);
    assert!(listed(&fixture).is_empty());
    // Another login takes away what earlier ones left and lets nobody in any more.
    let short =
        CreateCode { expires: Some(SpanInput(Span(300_000_000))), ..wanted(Role::Viewer, &[]) };
    let nobody = stranger(&fixture);
    let passed = nobody.login(&code(&fixture.client, &short)).expect("let in");
    while !fixture.client.token(&passed.name).expect("there").expired {
        std::thread::yield_now();
    }
    assert_eq!(kind(client_of(&fixture, &passed).volumes()), ProblemKind::Unauthorized);
    let kept = nobody.login(&code(&fixture.client, &wanted(Role::Viewer, &[]))).expect("let in");
    let names: Vec<String> = listed(&fixture).into_iter().map(|token| token.name).collect();
    assert_eq!(names, [kept.name]);
}

#[test]
fn wrong_codes_count_as_wrong_tokens_do_and_a_right_one_is_let_in() {
    let fixture = Fixture::with_volume();
    let nobody = stranger(&fixture);
    let wrong = Login { code: "x".repeat(43) };
    for _ in 0..10 {
        assert_eq!(kind(nobody.login(&wrong)), ProblemKind::Unauthorized);
    }
    assert_eq!(kind(nobody.login(&wrong)), ProblemKind::TooMany);
    nobody.login(&code(&fixture.client, &wanted(Role::Viewer, &[]))).expect("let in");
    let long = format!("{{\"code\": \"{}\"}}", "x".repeat(1024));
    assert_eq!(fixture.send("POST", "/login", &long).0, 413);
    for body in ["", "{}", r#"{"code": 5}"#, r#"{"code": "x", "token": "y"}"#] {
        assert_eq!(fixture.send("POST", "/login", body).0, 400, "{body}");
    }
    assert_eq!(fixture.send("POST", "/login?x=1", r#"{"code": "x"}"#).0, 400);
    let other_site = fixture.bare(
        "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Origin: http://evil.example\r\nContent-Type: application/json\r\n\
         Content-Length: 13\r\n\r\n{\"code\": \"x\"}",
    );
    assert_eq!(other_site.0, 403, "{other_site:?}");
    for body in [r#"{"role": "root"}"#, "{}", r#"{"role": "viewer", "volumes": ["a/b"]}"#] {
        assert_eq!(fixture.send("POST", "/codes", body).0, 400, "{body}");
    }
    let never = CreateCode { expires: Some(SpanInput(Span(0))), ..wanted(Role::Viewer, &[]) };
    for body in [never, wanted(Role::Viewer, &["x"; 65])] {
        assert_eq!(kind(fixture.client.create_code(&body)), ProblemKind::Invalid);
    }
}
