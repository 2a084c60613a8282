//! Patterns of names: `*` stands for any characters, `?` for one, all else for itself.

use std::fmt;
use std::str::FromStr;

use crate::{Malformed, NAME_CHARS_MAX};

/// A pattern of names of volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    /// Whether a name is one of those.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut at, mut of) = (0, 0);
        // Where to go on after the last star if the rest does not fit: one character later.
        let mut again = None;
        while of < name.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    again = Some((at, of));
                    at += 1;
                }
                Some(&p) if p == b'?' || p == name[of] => (at, of) = (at + 1, of + 1),
                _ => {
                    let Some((star, from)) = again else { return false };
                    again = Some((star, from + 1));
                    (at, of) = (star + 1, from + 1);
                }
            }
        }
        pattern[at..].iter().all(|&p| p == b'*')
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for NamePattern {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<NamePattern, Malformed> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-*?".contains(&b);
        if (1..=NAME_CHARS_MAX).contains(&text.len()) && text.bytes().all(fits) {
            return Ok(NamePattern(text.to_owned()));
        }
        let shown: String = text.chars().take(32).collect();
        let hint = "give 1 to 128 letters, digits, dots, dashes, underscores; * stands for any of \
                    them, ? for one";
        Err(Malformed::new(format!("`{shown}` is no pattern of names"), hint))
    }
}

#[cfg(test)]
mod tests {
    use super::NamePattern;

    #[test]
    fn patterns_match_as_a_slow_one_does() {
        // The definition itself.
        fn slow(pattern: &[u8], name: &[u8]) -> bool {
            match (pattern.split_first(), name.split_first()) {
                (None, None) => true,
                (Some((b'*', rest)), _) => {
                    slow(rest, name) || !name.is_empty() && slow(pattern, &name[1..])
                }
                (Some((p, rest)), Some((n, names))) => (*p == b'?' || p == n) && slow(rest, names),
                _ => false,
            }
        }
        let words = |letters: &[u8], longest: u32| -> Vec<String> {
            let word = |mut number: usize, length: u32| {
                let letter = |_| {
                    let letter = letters[number % letters.len()];
                    number /= letters.len();
                    char::from(letter)
                };
                (0..length).map(letter).collect()
            };
            let of = |length| (0..letters.len().pow(length)).map(move |n| word(n, length));
            (1..=longest).flat_map(of).collect()
        };
        let names = words(b"ab", 5);
        for pattern in words(b"ab*?", 4) {
            let read: NamePattern = pattern.parse().expect("a pattern");
            for name in &names {
                let is = slow(pattern.as_bytes(), name.as_bytes());
                assert_eq!(read.matches(name), is, "{pattern} {name}");
            }
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_and_a_hostile_one_is_fast() {
        for text in ["", "a b", "a/b", "a@b", "\u{e4}*", &"a".repeat(129)] {
            assert!(text.parse::<NamePattern>().is_err(), "{text}");
        }
        let slow: NamePattern = "*a".repeat(64).parse().expect("a pattern");
        assert!(!slow.matches(&"a".repeat(126).replace("aa", "ab")));
        assert_eq!(slow.to_string(), "*a".repeat(64));
    }
}
