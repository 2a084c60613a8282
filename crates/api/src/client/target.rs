//! Paths and queries of requests, percent-encoded.

use std::fmt;

use serde::Serialize;

/// A path below the API's prefix, with its query.
#[derive(Clone, Debug)]
pub(super) struct Target {
    path: String,
    query: String,
}

impl Target {
    pub(super) fn new(path: &str) -> Target {
        Target { path: path.to_owned(), query: String::new() }
    }

    /// One more part of the path.
    pub(super) fn part(mut self, part: &str) -> Target {
        self.path.push('/');
        encode(part, &mut self.path);
        self
    }

    /// One more field of the query.
    pub(super) fn field(mut self, name: &str, value: &str) -> Target {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        encode(name, &mut self.query);
        self.query.push('=');
        encode(value, &mut self.query);
        self
    }

    /// Every field of a query type that is set.
    pub(super) fn query(self, query: &impl Serialize) -> Target {
        let value = serde_json::to_value(query).expect("our own types always serialise");
        let fields = value.as_object().cloned().unwrap_or_default();
        fields.iter().fold(self, |target, (name, value)| match value {
            serde_json::Value::Null => target,
            serde_json::Value::String(text) => target.field(name, text),
            other => target.field(name, &other.to_string()),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, self.query)
    }
}

/// Appends `text` with everything but the unreserved characters of RFC 3986 as `%XX`.
fn encode(text: &str, into: &mut String) {
    use fmt::Write;
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                into.push(char::from(byte));
            }
            _ => write!(into, "%{byte:02X}").expect("a String takes everything"),
        }
    }
}

/// The number after `next=` in `<...?next=N&...>; rel="next"`.
pub(super) fn next_of_link(link: &str) -> Option<u64> {
    let (target, rest) = link.strip_prefix('<')?.split_once('>')?;
    if !rest.contains("rel=\"next\"") {
        return None;
    }
    let query = target.split_once('?')?.1;
    query.split('&').find_map(|field| field.strip_prefix("next="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Target, next_of_link};
    use crate::ListQuery;

    #[test]
    fn what_is_special_in_a_url_is_encoded() {
        let target = Target::new("/volumes").part("a/b c").field("at", "2026-11-21T10:00:00+01:00");
        assert_eq!(target.to_string(), "/volumes/a%2Fb%20c?at=2026-11-21T10%3A00%3A00%2B01%3A00");
    }

    #[test]
    fn a_query_holds_what_is_set() {
        let query = ListQuery { limit: Some(5), next: None };
        assert_eq!(Target::new("/audit").query(&query).to_string(), "/audit?limit=5");
    }

    #[test]
    fn the_next_page_is_found_in_the_link() {
        assert_eq!(next_of_link("</api/v1/audit?limit=5&next=7>; rel=\"next\""), Some(7));
        assert_eq!(next_of_link("</api/v1/audit?next=7>; rel=\"prev\""), None);
        assert_eq!(next_of_link("nonsense"), None);
    }
}
