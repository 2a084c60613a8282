//! Access control: whoever calls is somebody, and no web page of another site may call.
//!
//! Every user of this machine reaches a loopback port, and a browser on it can be made to talk to
//! one by any page: such a request carries an Origin, or comes under a host name of the attacker's
//! (DNS rebinding). A unix socket lets in whom its mode lets in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use api::ProblemKind;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, RETRY_AFTER};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use env::{Clock, RealClock};
use rustls::ServerConfig;

use super::answer::Refusal;
use super::context::Context;
use super::{page, queries, rights};
use crate::tls::Tls;
use crate::token::Token as PoolToken;
use crate::who::bearer::{self, PREFIX};
use crate::who::guesses::Guesses;
use crate::who::{Caller, for_caller, note_use, token_named};

/// The path of a login, which is for those who are nobody yet.
pub(super) const LOGIN_PATH: &str = "/api/v1/login";

/// Why a code lets nobody in.
pub(super) const WRONG_CODE: &str = "the code lets nobody in: it is good once, and for a minute";
/// These paths say nothing secret, and machines without the token ask for them.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// How a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Over a unix socket: no browser can.
    Unix,
    /// Over TCP on a loopback address.
    Loopback,
    /// Over TCP on another address, which has TLS or was opened with `--insecure`.
    Open,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// Of a unix socket, which knows who comes.
    Unix(Caller),
    /// Of TCP: the address, its text, and the certificate that it showed.
    Tcp(SocketAddr, Arc<str>, Option<ShownCertificate>),
}

impl Peer {
    /// Where it is, for audit records: its address, or its user over a unix socket.
    pub(super) fn told(&self) -> Arc<str> {
        match self {
            Peer::Tcp(_, text, _) => Arc::clone(text),
            Peer::Unix(caller) => Arc::clone(&caller.who),
        }
    }

    /// Its address, over TCP.
    pub(super) fn address(&self) -> Option<&Arc<str>> {
        match self {
            Peer::Tcp(_, text, _) => Some(text),
            Peer::Unix(_) => None,
        }
    }

    /// The same with the TLS of now, and whether it is: since certificates were loaded again, that
    /// of a client on an open connection proves nothing, as its authority may be another.
    pub(crate) fn as_of(&self, now: &Tls) -> (Peer, bool) {
        match self {
            Peer::Tcp(address, text, Some(shown))
                if !now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &shown.by)) =>
            {
                (Peer::Tcp(*address, Arc::clone(text), None), false)
            }
            peer => (peer.clone(), true),
        }
    }
}

/// A certificate that TLS has verified.
#[derive(Clone, Debug)]
pub(crate) struct ShownCertificate {
    /// Its common name, if it has one.
    pub(crate) name: Option<Arc<str>>,
    /// The TLS that verified it.
    pub(crate) by: Arc<ServerConfig>,
}

/// The state of a guard: the door it stands at, and what is shown there.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) door: Door,
    /// Whether it is under TLS.
    pub(crate) is_tls: bool,
    /// The pool's own token.
    pub(crate) token: Option<PoolToken>,
    pub(crate) guesses: Arc<Guesses>,
    pub(crate) context: Context,
}

/// Lets a request pass, or refuses it.
pub(crate) async fn check(
    State(guard): State<Guard>,
    path: Option<MatchedPath>,
    names: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Response {
    // Taken off in any case: handlers refuse fields that they do not know.
    let in_query = take_token(request.uri_mut());
    let is_page = page::has(request.uri().path());
    let is_open = is_page || OPEN_PATHS.contains(&request.uri().path());
    if let Some(refusal) = refusal((guard.door, guard.is_tls), is_page, request.headers()) {
        return refusal.into_response();
    }
    let Some(peer) = request.extensions().get::<Peer>().cloned() else {
        let text = "a connection without a peer";
        return Refusal::new(ProblemKind::Internal, text).into_response();
    };
    if request.method() == Method::POST && request.uri().path() == LOGIN_PATH {
        if let Err(refusal) = queries::check(&Method::POST, LOGIN_PATH, request.uri().query()) {
            return refusal.into_response();
        }
        // The caller is nobody yet; a wrong code counts as a wrong token does.
        let response = next.run(request).await;
        let is_wrong = response.status() == StatusCode::UNAUTHORIZED;
        return if is_wrong { guard.refuse(&peer, Failed::Code).await } else { response };
    }
    let caller = match guard.caller(&peer, request.headers(), in_query.as_deref()) {
        Ok(caller) => caller,
        // They tell it to anybody.
        Err(_) if is_open => return next.run(request).await,
        Err(failed) => return guard.refuse(&peer, failed).await,
    };
    let changes = !request.method().is_safe();
    if !is_open {
        let method = request.method().clone();
        let asked = path
            .as_ref()
            .map_or(Ok(()), |path| queries::check(&method, path.as_str(), request.uri().query()));
        let route = (path, names.ok());
        let checked = rights::check(&guard.context, &caller, &method, route);
        if let Err(refusal) = for_caller(&caller, false, checked).await {
            tracing::info!(who = &*caller.who, %method, path = request.uri().path(), "forbidden");
            return refusal.into_response();
        }
        if let Err(refusal) = asked {
            return refusal.into_response();
        }
    }
    let mut response = for_caller(&caller, changes, next.run(request)).await;
    // For the log.
    response.extensions_mut().insert(caller);
    response
}

/// Why nobody is known to call.
enum Failed {
    /// No token was shown, nor a certificate.
    Nothing,
    /// No token, and a certificate that is none's.
    Unnamed(String),
    /// One that is none of this server's.
    Wrong(&'static str),
    /// One that was good.
    Expired(String),
    /// A code that nobody made, was used, or is too old.
    Code,
}

impl Guard {
    /// The caller of a request.
    fn caller(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        in_query: Option<&str>,
    ) -> Result<Caller, Failed> {
        let from = peer.address();
        let in_header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let in_header =
            in_header.and_then(|value| value.split_once(' ')).and_then(|(scheme, shown)| {
                scheme.eq_ignore_ascii_case("bearer").then(|| shown.trim_matches(' '))
            });
        // Somebody there is known. Other tokens are of a proxy's own callers.
        if let Peer::Unix(caller) = peer
            && !in_header.is_some_and(|shown| shown.starts_with(PREFIX))
        {
            return Ok(caller.clone());
        }
        let is_pools = |shown| self.token.as_ref().is_some_and(|token| token.is(shown));
        if in_header.into_iter().chain(in_query).any(is_pools) {
            return Ok(Caller::of_pool_token(from));
        }
        // Addresses stand in histories and logs of proxies: only the pool's own token is taken
        // from one, as `serve` prints it.
        let Some(shown) = in_header else {
            let has_header = headers.contains_key(AUTHORIZATION);
            return match (in_query, peer) {
                (Some(_), _) => Err(Failed::Wrong("the token in the address is not the pool's")),
                // A caller who means to show a token, and shows none, is not taken for a
                // certificate.
                (None, Peer::Tcp(_, from, Some(shown))) if !has_header => {
                    self.certified(shown, from)
                }
                (None, _) => Err(Failed::Nothing),
            };
        };
        let Some(shown) = bearer::read(shown) else {
            return Err(Failed::Wrong(match shown.starts_with(PREFIX) {
                true => "the token is not whole: some of its letters are wrong or missing",
                false => "this is not the server's token",
            }));
        };
        let pool = &self.context.pool;
        let found = pool.token_by_id(shown.id).filter(|token| shown.is(&token.spec.secret_sha256));
        let token =
            found.ok_or(Failed::Wrong("this is not a token of the server, or it was revoked"))?;
        let now = RealClock::new().wall();
        if token.is_expired(now) {
            return Err(Failed::Expired(token.spec.name.clone()));
        }
        note_use(pool, &token);
        Ok(Caller::of_token(&token, from))
    }

    /// The caller with a certificate, by the same rules as over NBD.
    fn certified(&self, shown: &ShownCertificate, from: &Arc<str>) -> Result<Caller, Failed> {
        let name = shown.name.as_deref();
        let named = |name: &str| {
            token_named(&self.context.pool, name)
                .inspect(|token| note_use(&self.context.pool, token))
        };
        let caller = Caller::of_certificate(name, named, &self.context.access, from);
        caller.ok_or_else(|| {
            Failed::Unnamed(match name {
                Some(name) if self.context.pool.token(name).is_ok() => {
                    format!("the token {name}, which the certificate is called as, has expired")
                }
                Some(name) => format!("no token is called {name:?}, as the certificate is"),
                None => "the certificate has no common name that a token could have".to_owned(),
            })
        })
    }

    /// Answers somebody who is nobody.
    async fn refuse(&self, peer: &Peer, failed: Failed) -> Response {
        let hint = match failed {
            Failed::Code => "`hindsight page` makes another",
            _ => {
                "--token-file DIR/token names the pool's own, --token-file FILE another; over \
                 HTTP it is the header Authorization: Bearer TOKEN; the unix socket needs none"
            }
        };
        let unauthorized =
            |detail: &str| Refusal::new(ProblemKind::Unauthorized, detail).with_hint(hint);
        let why = match failed {
            Failed::Nothing => {
                let text = "requests over TCP need the server's token";
                return unauthorized(text).into_response();
            }
            // The authority knows it, so it is no guess.
            Failed::Unnamed(why) => {
                tracing::info!(
                    from = peer.address().map(|text| &**text),
                    why,
                    "a certificate was not let in"
                );
                return unauthorized(&why).into_response();
            }
            Failed::Wrong(why) => why.to_owned(),
            Failed::Expired(name) => format!("the token {name} has expired"),
            Failed::Code => WRONG_CODE.to_owned(),
        };
        let address = match peer {
            Peer::Tcp(address, ..) => Some(address.ip()),
            Peer::Unix(_) => None,
        };
        let judged = self.guesses.note(address, Instant::now());
        if let Some(count) = judged.line {
            self.tell(count, &why, peer.address().cloned());
        }
        let Some(wait) = judged.wait else { return unauthorized(&why).into_response() };
        let text = "too many wrong tokens were shown within a minute";
        let mut response = Refusal::new(ProblemKind::TooMany, text).into_response();
        let wait = HeaderValue::from(wait.as_secs() + 1);
        response.headers_mut().insert(RETRY_AFTER, wait);
        response
    }

    /// Tells the log and the audit log of wrong tokens.
    fn tell(&self, count: u32, why: &str, from: Option<Arc<str>>) {
        let pool = Arc::clone(&self.context.pool);
        let detail = format!("{count} since the last line of this address: {why}");
        tracing::warn!(from = from.as_deref(), count, why, "a login was refused");
        tokio::task::spawn_blocking(move || {
            let note = || pool.note_access("login-refused", detail);
            if let Err(error) = volume::on_behalf_of("nobody", from.as_deref(), note) {
                tracing::warn!(%error, "a refused login could not be written down");
            }
        });
    }
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

fn refusal((door, is_tls): (Door, bool), is_page: bool, headers: &HeaderMap) -> Option<Refusal> {
    let text = |name| headers.get(name).map(|v| v.to_str().unwrap_or("\u{0}"));
    let host = text(HOST);
    let refuse = |detail: &str| Some(Refusal::new(ProblemKind::Forbidden, detail));
    if let Some(origin) = text(ORIGIN) {
        let scheme = if is_tls { "https" } else { "http" };
        let own = host.is_some_and(|host| origin == format!("{scheme}://{host}"));
        if !own {
            return refuse("the request comes from a web page of another site");
        }
    }
    // A link to the page may stand anywhere; to follow it shows nobody anything.
    let is_followed = is_page && headers.get("sec-fetch-mode").is_some_and(|m| m == "navigate");
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") && !is_followed {
        return refuse("the request comes from a web page of another site");
    }
    // Under TLS no name of an attacker's leads here: the certificate has none of it.
    if door == Door::Loopback && !is_tls && !host.is_some_and(names_this_machine) {
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
        refusal((door, false), false, &headers).is_none()
    }

    #[test]
    fn under_tls_an_origin_is_one_of_tls_and_the_certificate_has_the_names() {
        let passes = |door, host: &str, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert("host", host.parse().expect("header"));
            if let Some(origin) = origin {
                headers.insert("origin", origin.parse().expect("header"));
            }
            refusal((door, true), false, &headers).is_none()
        };
        for door in [Door::Loopback, Door::Open] {
            assert!(passes(door, "storage.example:9820", None));
            assert!(passes(door, "storage.example:9", Some("https://storage.example:9")));
            assert!(!passes(door, "storage.example:9", Some("http://storage.example:9")));
            assert!(!passes(door, "storage.example:9", Some("https://evil.example")));
        }
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
        let lets_in =
            |is_page, mode| refusal((Door::Loopback, false), is_page, &headers(mode)).is_none();
        assert!(lets_in(true, "navigate"));
        assert!(!lets_in(true, "no-cors") && !lets_in(false, "navigate"));
    }

    #[test]
    fn other_names_are_let_in_where_the_operator_opened_the_door() {
        assert!(passes(Door::Open, &[("host", "storage.example:9820")]));
        assert!(passes(Door::Unix, &[]));
    }
}
