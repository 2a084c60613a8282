//! Where a server listens: `unix:/path`, or `http://host:port` with the token it asks for there,
//! or the same under TLS, `https://host:port`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of a server's HTTP API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A unix socket, and a token to show there: without one, the caller is who the process is.
    Unix(PathBuf, Option<Token>),
    /// Over TCP.
    Http {
        /// Host and port, as in the URL (an IPv6 host in brackets).
        authority: String,
        /// Whether under TLS.
        is_tls: bool,
        /// The token that the server asks for there.
        token: Option<Token>,
    },
}

/// A server's token. It is shown to that server only.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl ServerAddress {
    /// The same with a token, where it has none.
    #[must_use]
    pub fn with_token(mut self, text: String) -> ServerAddress {
        match &mut self {
            ServerAddress::Unix(_, token @ None)
            | ServerAddress::Http { token: token @ None, .. } => {
                *token = Some(Token(text));
            }
            _ => {}
        }
        self
    }
}

/// The default port of the HTTP API.
const HTTP_PORT: u16 = 9820;

impl ServerAddress {
    /// Whether nobody between here and there can listen.
    #[must_use]
    pub fn is_of_this_machine(&self) -> bool {
        let ServerAddress::Http { authority, .. } = self else { return true };
        let host = authority.rsplit_once(':').map_or(&**authority, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback())
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerAddress, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return unix(path, text);
        }
        if text.starts_with('/') {
            return unix(text, text);
        }
        let plain = text.strip_prefix("http://").map(|rest| (rest, false));
        let tls = || text.strip_prefix("https://").map(|rest| (rest, true));
        if let Some((rest, is_tls)) = plain.or_else(tls) {
            // As `serve` prints it.
            let (rest, token) = match rest.split_once("?token=") {
                Some((rest, token)) => (rest, Some(Token(token.to_owned()))),
                None => (rest, None),
            };
            let authority = rest.strip_suffix('/').unwrap_or(rest);
            // No error tells the token.
            let shown = text.split(['?', '#']).next().unwrap_or_default();
            let authority = http(authority, shown)?;
            return Ok(ServerAddress::Http { authority, is_tls, token });
        }
        let shown = text.split(['?', '#']).next().unwrap_or_default();
        Err(format!("'{shown}' is not a server: give unix:/path, or http:// or https://host:port"))
    }
}

fn unix(path: &str, text: &str) -> Result<ServerAddress, String> {
    if path.is_empty() || path.contains('\0') {
        return Err(format!("'{text}' names no socket: give unix:/path"));
    }
    Ok(ServerAddress::Unix(PathBuf::from(path), None))
}

fn http(authority: &str, text: &str) -> Result<String, String> {
    let wrong = |c: char| c.is_whitespace() || c.is_control() || "/?#@".contains(c);
    if authority.is_empty() || authority.contains(wrong) {
        return Err(format!("'{text}' is not a server: give http:// or https://host:port"));
    }
    let after_host = authority.rsplit_once(']').map_or(authority, |(_, rest)| rest);
    let with_port = match after_host.rsplit_once(':') {
        Some((_, port)) => {
            port.parse::<u16>().map_err(|_| format!("'{port}' is not a port in '{text}'"))?;
            authority.to_owned()
        }
        None => format!("{authority}:{HTTP_PORT}"),
    };
    Ok(with_port)
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Unix(path, _) => write!(f, "unix:{}", path.display()),
            ServerAddress::Http { authority, is_tls, .. } => {
                write!(f, "http{}://{authority}", if *is_tls { "s" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ServerAddress;

    #[test]
    fn addresses_are_read_and_printed() {
        for (text, printed) in [
            ("unix:/run/hindsight/api.sock", "unix:/run/hindsight/api.sock"),
            ("unix:///a", "unix:/a"),
            ("/a", "unix:/a"),
            ("http://127.0.0.1:9820", "http://127.0.0.1:9820"),
            ("http://localhost/", "http://localhost:9820"),
            ("http://[::1]", "http://[::1]:9820"),
            ("http://[::1]:7", "http://[::1]:7"),
            ("https://storage.example", "https://storage.example:9820"),
            ("https://[::1]:7/?token=x", "https://[::1]:7"),
        ] {
            assert_eq!(text.parse::<ServerAddress>().expect(text).to_string(), printed);
        }
    }

    #[test]
    fn a_token_comes_with_a_url_or_beside_it_and_is_not_printed() {
        let parse = |text: &str| text.parse::<ServerAddress>().expect(text);
        let url = parse("http://127.0.0.1:7/?token=secret");
        let ServerAddress::Http { authority, token, .. } = &url else { panic!("{url}") };
        assert_eq!(
            (&authority[..], &token.as_ref().expect("token").0[..]),
            ("127.0.0.1:7", "secret")
        );
        assert!(!format!("{url} {url:?}").contains("secret"), "{url:?}");
        assert_eq!(url.clone().with_token("other".to_owned()), url);
        assert_eq!(parse("http://127.0.0.1:7").with_token("secret".to_owned()), url);
        let unix = parse("unix:/a");
        let shown = unix.clone().with_token("secret".to_owned());
        assert!(shown != unix && !format!("{shown} {shown:?}").contains("secret"), "{shown:?}");
    }

    #[test]
    fn a_token_of_an_address_that_is_none_is_not_told() {
        for text in [
            "https://a:99999/?token=secret",
            "http://a//?token=secret",
            "http://a/#token=secret",
            "ftp://a/?token=secret",
        ] {
            let error = text.parse::<ServerAddress>().expect_err(text);
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        let is_own = |text: &str| text.parse::<ServerAddress>().expect(text).is_of_this_machine();
        for text in ["unix:/a", "http://localhost", "http://127.0.0.1:7", "https://[::1]:7"] {
            assert!(is_own(text), "{text}");
        }
        for text in ["http://storage.example", "http://10.0.0.5:9820", "https://localhost.example"]
        {
            assert!(!is_own(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "unix:", "http://", "http://a:b", "https://a/b", "ftp://a", "https://"] {
            assert!(text.parse::<ServerAddress>().is_err(), "{text}");
        }
    }
}
