//! Keeps web pages of other sites away from the API.
//!
//! A browser on this machine can be made to talk to a loopback port by any page. Such a request
//! carries an Origin, or comes under a host name of the attacker's (DNS rebinding); both are
//! refused.

use api::ProblemKind;
use axum::extract::{Extension, Request};
use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer::Refusal;

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

/// Lets a request pass, or refuses it.
pub(crate) async fn check(
    Extension(door): Extension<Door>,
    request: Request,
    next: Next,
) -> Response {
    match refusal(door, request.headers()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

fn refusal(door: Door, headers: &HeaderMap) -> Option<Refusal> {
    let text = |name| headers.get(name).map(|v| v.to_str().unwrap_or("\u{0}"));
    let host = text(HOST);
    let refuse = |detail: &str| Some(Refusal::new(ProblemKind::Forbidden, detail));
    if let Some(origin) = text(ORIGIN) {
        let own = host.is_some_and(|host| origin == format!("http://{host}"));
        if !own {
            return refuse("the request comes from a web page of another site");
        }
    }
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
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

    use super::{Door, refusal};

    fn passes(door: Door, fields: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, value.parse().expect("header"));
        }
        refusal(door, &headers).is_none()
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
    fn other_names_are_let_in_where_the_operator_opened_the_door() {
        assert!(passes(Door::Open, &[("host", "storage.example:9820")]));
        assert!(passes(Door::Unix, &[]));
    }
}
