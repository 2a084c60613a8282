//! The text of a token: `hs1_`, ten letters that name it, `_`, 43 letters and digits of secret, six
//! of checksum. Scanners for secrets know it, a slip of the pen is told from a wrong token, and the
//! ten letters may be shown.
//!
//! The secret has 256 random bits, so that its hash needs neither salt nor slowness.

use crc_fast::{CrcAlgorithm, checksum};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

/// The beginning of every token.
pub(crate) const PREFIX: &str = "hs1_";
const ID_LETTERS: usize = 10;
const SECRET_DIGITS: usize = 43;
const SUM_DIGITS: usize = 6;
const CHAP_DIGITS: usize = 16;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// 64 signs that no configuration file of an initiator takes for anything else.
const CHAP_SIGNS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";

/// A token that was made: its text, for its owner alone, and what is kept of it.
pub(crate) struct Made {
    pub(crate) text: String,
    pub(crate) id: String,
    pub(crate) secret_sha256: [u8; 32],
}

/// A token that was shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown<'a> {
    pub(crate) id: &'a str,
    secret_sha256: [u8; 32],
}

impl Shown<'_> {
    /// Whether its secret has this hash: in a time that says nothing of where they differ.
    pub(crate) fn is(&self, secret_sha256: &[u8; 32]) -> bool {
        self.secret_sha256.ct_eq(secret_sha256).into()
    }
}

/// Makes a token; none if the machine has no randomness.
pub(crate) fn make() -> Option<Made> {
    let id = random(LETTERS, ID_LETTERS)?;
    let secret = random(DIGITS, SECRET_DIGITS)?;
    let text = format!("{PREFIX}{id}_{secret}");
    let text = format!("{text}{}", sum(&text));
    Some(Made { text, id, secret_sha256: hash(&secret) })
}

/// Makes a secret for CHAP, of as many characters as every initiator takes: 96 bits.
pub(crate) fn make_chap() -> Option<String> {
    random(CHAP_SIGNS, CHAP_DIGITS)
}

/// Makes a code that is good once: as good a secret as a token's.
pub(crate) fn make_code() -> Option<String> {
    random(DIGITS, SECRET_DIGITS)
}

/// Reads a token; none if it is none, or not as it was made.
pub(crate) fn read(text: &str) -> Option<Shown<'_>> {
    let length = PREFIX.len() + ID_LETTERS + 1 + SECRET_DIGITS + SUM_DIGITS;
    if !text.is_ascii() || text.len() != length || !text.starts_with(PREFIX) {
        return None;
    }
    let (before, shown_sum) = text.split_at(length - SUM_DIGITS);
    let (id, secret) = before[PREFIX.len()..].split_once('_')?;
    let is_whole = id.len() == ID_LETTERS
        && id.bytes().all(|b| LETTERS.contains(&b))
        && secret.bytes().all(|b| DIGITS.contains(&b))
        && sum(before) == shown_sum;
    is_whole.then(|| Shown { id, secret_sha256: hash(secret) })
}

/// The hash of a secret: that is what is kept.
pub(crate) fn hash(secret: &str) -> [u8; 32] {
    let digest = digest(&SHA256, secret.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn sum(text: &str) -> String {
    let mut rest = checksum(CrcAlgorithm::Crc32IsoHdlc, text.as_bytes());
    let digit = |_| {
        let digit = DIGITS[(rest % 62) as usize];
        rest /= 62;
        char::from(digit)
    };
    (0..SUM_DIGITS).map(digit).collect()
}

/// So many random characters, each as likely as the others.
fn random(alphabet: &[u8], count: usize) -> Option<String> {
    let source = SystemRandom::new();
    let fair = 256 - 256 % alphabet.len();
    let mut text = String::with_capacity(count);
    let mut bytes = [0; 64];
    while text.len() < count {
        source.fill(&mut bytes).ok()?;
        let fair = bytes.iter().map(|&byte| usize::from(byte)).filter(|&byte| byte < fair);
        let letters = fair.map(|byte| char::from(alphabet[byte % alphabet.len()]));
        text.extend(letters.take(count - text.len()));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::{make, read};

    #[test]
    fn a_token_is_read_as_it_was_made_and_no_other_text_is() {
        let (one, other) = (make().expect("random"), make().expect("random"));
        assert!(one.text != other.text && one.id != other.id);
        assert_eq!((one.text.len(), &one.text[..4]), (64, "hs1_"));
        let shown = read(&one.text).expect("whole");
        assert_eq!(shown.id, one.id);
        assert!(shown.is(&one.secret_sha256) && !shown.is(&other.secret_sha256));
        for at in 0..one.text.len() {
            for letter in ['0', 'a', '_', ' ', '\u{e4}'] {
                let mut changed: Vec<char> = one.text.chars().collect();
                if changed[at] != letter {
                    changed[at] = letter;
                    let changed: String = changed.into_iter().collect();
                    assert_eq!(read(&changed), None, "{at} {letter}");
                }
            }
            assert_eq!(read(&one.text[..at]), None);
        }
        assert_eq!(read(&format!("{}0", one.text)), None);
        // The checksum is of all of it: halves of two do not make one.
        let swapped = format!("{}{}", &one.text[..15], &other.text[15..]);
        assert_eq!(read(&swapped), None);
    }
}
