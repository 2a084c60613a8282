//! The token of the HTTP API over TCP: made once, kept in the pool's directory, compared in the
//! same time whatever is wrong with it.
//!
//! Every user of the machine reaches a loopback port; only the owner of the pool reads `DIR/token`.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use env::{Entropy, RealEntropy};
use subtle::ConstantTimeEq;

use crate::StartError;

/// The file in the pool's directory.
pub(crate) const TOKEN_FILE: &str = "token";
/// The same until it is whole.
pub(crate) const UNFINISHED_TOKEN_FILE: &str = "token.new";
/// Random words of 64 bits in a token made here: 32 digits.
const WORDS: usize = 2;
/// Characters of a token that an operator put there.
const CHARACTERS: std::ops::RangeInclusive<usize> = 16..=256;
/// Permissions of anybody but the owner.
const OTHERS: u32 = 0o077;

/// The secret that a request over TCP must show.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// The token in the pool's directory; one is made where there is none. Says whether it was.
    pub(crate) fn load_or_make(dir: &Path) -> Result<(Token, bool), StartError> {
        let path = dir.join(TOKEN_FILE);
        let failed = |source| StartError::Path { path: path.clone(), source };
        match fs::read_to_string(&path) {
            Ok(text) => {
                let metadata = fs::metadata(&path).map_err(failed)?;
                Token::check(&path, text.trim(), &metadata).map(|token| (token, false))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let entropy = RealEntropy::default();
                let token: String =
                    (0..WORDS).map(|_| format!("{:016x}", entropy.next_u64())).collect();
                keep(dir, &token).map_err(failed)?;
                Ok((Token(token), true))
            }
            Err(e) => Err(failed(e)),
        }
    }

    /// Takes away what [`Token::load_or_make`] made for a server that did not start.
    pub(crate) fn remove(dir: &Path) {
        // The server's error is the one to tell; the token is good for the next start.
        let _ = fs::remove_file(dir.join(TOKEN_FILE));
    }

    fn check(path: &Path, text: &str, metadata: &fs::Metadata) -> Result<Token, StartError> {
        let path = path.display();
        if metadata.mode() & OTHERS != 0 {
            return Err(StartError::setting(
                format!("the token in {path} can be read by others"),
                "take it away (a new one is made), or: chmod 600",
            ));
        }
        // These need no escape in a URL or a header.
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        if CHARACTERS.contains(&text.len()) && text.bytes().all(is_plain) {
            return Ok(Token(text.to_owned()));
        }
        Err(StartError::setting(
            format!("{path} holds no token"),
            "give it 16 to 256 letters, digits, dots, dashes, underscores, or take it away",
        ))
    }

    /// Whether `shown` is the token: in a time that says nothing of where they differ.
    pub(crate) fn is(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }

    /// The token itself: for its owner's eyes.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Writes the file whole or not at all.
fn keep(dir: &Path, token: &str) -> io::Result<()> {
    let unfinished = dir.join(UNFINISHED_TOKEN_FILE);
    // A file that an interrupted start left may have other permissions.
    match fs::remove_file(&unfinished) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    fs::rename(&unfinished, dir.join(TOKEN_FILE))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::Token;

    #[test]
    fn a_token_is_made_once_and_is_its_owners_alone() {
        let dir = tempfile::tempdir().expect("directory");
        let (made, is_new) = Token::load_or_make(dir.path()).expect("made");
        let path = dir.path().join("token");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).expect("text").trim(), made.text());
        let (kept, is_new_again) = Token::load_or_make(dir.path()).expect("kept");
        assert_eq!((kept.text(), is_new, is_new_again), (made.text(), true, false));
        let other = tempfile::tempdir().expect("directory");
        assert_ne!(Token::load_or_make(other.path()).expect("made").0.text(), made.text());
        let text = made.text();
        assert!(made.is(text) && text.len() == 32);
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace(&text[..1], "g")] {
            assert!(!made.is(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_others_read_or_that_is_no_token_is_refused() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("token");
        let put = |text: &str, mode| {
            fs::write(&path, text).expect("write");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
            Token::load_or_make(dir.path())
                .map(|t| t.0.text().to_owned())
                .map_err(|e| e.to_string())
        };
        assert_eq!(put("an-operators-own\n", 0o600), Ok("an-operators-own".to_owned()));
        assert!(put("an-operators-own\n", 0o640).is_err_and(|e| e.contains("read by others")));
        for wrong in ["", "short", "with a space in it.", "an&ampersand=in-it"] {
            assert!(put(wrong, 0o600).is_err_and(|e| e.contains("holds no token")), "{wrong}");
        }
    }
}
