//! Access control: a caller over TCP shows the token, and no web page of another site may call.
//!
//! Every user of this machine reaches a loopback port, and a browser on it can be made to talk to
//! one by any page: such a request carries an Origin, or comes under a host name of the attacker's
//! (DNS rebinding). A unix socket lets in whom its mode lets in.

use std::sync::Arc;

use api::ProblemKind;
use axum::extract::{Extension, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer::Refusal;
use super::page;
use crate::token::Token;

/// These paths say nothing secret, and machines without the token ask for them.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// How a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Over a unix socket: no browser can.
    Unix,
    /// Over TCP on a loopback address.
    Loopback,
    /// Over TCP on another address, which the operator opened with `--insecure`.
    Open,
}

/// The peer of a connection, as the log and audit records name it.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) Arc<str>);

tokio::task_local! {
    /// The caller of a task that changes something.
    static CALLER: Caller;
}

/// The caller of this task, if it changes something.
pub(super) fn caller() -> Option<Caller> {
    CALLER.try_with(Clone::clone).ok()
}

/// Lets a request pass, or refuses it. `token` is what it has to show.
pub(crate) async fn check(
    State(token): State<Option<Token>>,
    Extension(door): Extension<Door>,
    mut request: Request,
    next: Next,
) -> Response {
    // Taken off in any case: handlers refuse fields that they do not know.
    let in_query = take_token(request.uri_mut());
    let is_page = page::has(request.uri().path());
    let is_open = is_page || OPEN_PATHS.contains(&request.uri().path());
    let refused = refusal(door, is_page, request.headers()).or_else(|| {
        let token = token.filter(|_| !is_open)?;
        unauthorized(&token, request.headers(), in_query.as_deref())
    });
    if let Some(refusal) = refused {
        return refusal.into_response();
    }
    match request.extensions().get::<Caller>().cloned() {
        Some(caller) if !request.method().is_safe() => {
            CALLER.scope(caller, next.run(request)).await
        }
        _ => next.run(request).await,
    }
}

fn unauthorized(token: &Token, headers: &HeaderMap, in_query: Option<&str>) -> Option<Refusal> {
    let in_header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let in_header =
        in_header.and_then(|value| value.split_once(' ')).and_then(|(scheme, shown)| {
            scheme.eq_ignore_ascii_case("bearer").then(|| shown.trim_matches(' '))
        });
    if in_header.into_iter().chain(in_query).any(|shown| token.is(shown)) {
        return None;
    }
    let detail = match in_header.or(in_query) {
        Some(_) => "this is not the server's token",
        None => "requests over TCP need the server's token",
    };
    let hint = "it is in DIR/token of the pool: --token-file DIR/token, or the header \
                Authorization: Bearer TOKEN; the unix socket needs none";
    Some(Refusal::new(ProblemKind::Unauthorized, detail).with_hint(hint))
}

/// Takes `token=` out of a query, and says what it was.
fn take_token(uri: &mut Uri) -> Option<String> {
    let query = uri.query()?;
    let (tokens, others): (Vec<&str>, Vec<&str>) =
        query.split('&').partition(|field| field.starts_with("token="));
    let token = tokens.first()?["token=".len()..].to_owned();
    let mut target = uri.path().to_owned();
    if !others.is_empty() {
        target.push('?');
        target.push_str(&others.join("&"));
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    *uri = Uri::from_parts(parts).ok()?;
    Some(token)
}

fn refusal(door: Door, is_page: bool, headers: &HeaderMap) -> Option<Refusal> {
    let text = |name| headers.get(name).map(|v| v.to_str().unwrap_or("\u{0}"));
    let host = text(HOST);
    let refuse = |detail: &str| Some(Refusal::new(ProblemKind::Forbidden, detail));
    if let Some(origin) = text(ORIGIN) {
        let own = host.is_some_and(|host| origin == format!("http://{host}"));
        if !own {
            return refuse("the request comes from a web page of another site");
        }
    }
    // A link to the page may stand anywhere; to follow it shows nobody anything.
    let is_followed = is_page && headers.get("sec-fetch-mode").is_some_and(|m| m == "navigate");
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") && !is_followed {
        return refuse("the request comes from a web page of another site");
    }
    if door == Door::Loopback && !host.is_some_and(names_this_machine) {
        return refuse("the Host header is neither localhost nor an address");
    }
    None
}

/// Whether a Host header is `localhost` or a literal address, either with a port or without.
fn names_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::{Door, refusal, take_token};

    #[test]
    fn the_token_is_taken_out_of_a_query() {
        for (uri, token, left) in [
            ("/a?token=x", Some("x"), "/a"),
            ("/a?at=-5min&token=x&b", Some("x"), "/a?at=-5min&b"),
            ("/a?tokens=x", None, "/a?tokens=x"),
            ("http://h:1/a?token=x", Some("x"), "http://h:1/a"),
            ("/a", None, "/a"),
        ] {
            let mut taken = uri.parse().expect("a URI");
            assert_eq!(take_token(&mut taken).as_deref(), token, "{uri}");
            assert_eq!(taken.to_string(), left);
        }
    }

    fn passes(door: Door, fields: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, value.parse().expect("header"));
        }
        refusal(door, false, &headers).is_none()
    }

    #[test]
    fn addresses_and_localhost_are_let_in_over_loopback() {
        for host in ["127.0.0.1:9820", "localhost", "LOCALHOST:1", "[::1]:9820", "127.0.0.1"] {
            assert!(passes(Door::Loopback, &[("host", host)]), "{host}");
        }
        for host in ["evil.example:9820", "localhost.evil.example", "", "127.0.0.1.evil.example"] {
            assert!(!passes(Door::Loopback, &[("host", host)]), "{host}");
        }
        assert!(!passes(Door::Loopback, &[]));
    }

    #[test]
    fn pages_of_other_sites_are_refused_everywhere() {
        for door in [Door::Unix, Door::Loopback, Door::Open] {
            let host = ("host", "localhost:9820");
            assert!(!passes(door, &[host, ("origin", "http://evil.example")]));
            assert!(!passes(door, &[host, ("origin", "null")]));
            assert!(!passes(door, &[host, ("sec-fetch-site", "cross-site")]));
            assert!(passes(door, &[host, ("origin", "http://localhost:9820")]));
        }
    }

    #[test]
    fn a_link_of_another_site_leads_to_the_page_and_to_nothing_else() {
        let headers = |mode: &'static str| {
            let all = [("host", "localhost:9820"), ("sec-fetch-site", "cross-site")];
            let all = all.into_iter().chain([("sec-fetch-mode", mode)]);
            all.map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("text")))
                .collect::<HeaderMap>()
        };
        let lets_in = |is_page, mode| refusal(Door::Loopback, is_page, &headers(mode)).is_none();
        assert!(lets_in(true, "navigate"));
        assert!(!lets_in(true, "no-cors") && !lets_in(false, "navigate"));
    }

    #[test]
    fn other_names_are_let_in_where_the_operator_opened_the_door() {
        assert!(passes(Door::Open, &[("host", "storage.example:9820")]));
        assert!(passes(Door::Unix, &[]));
    }
}
