//! CHAP (RFC 1994) as texts of a login. The digest itself, and whether it agrees, are the caller's.
//!
//! The initiator names algorithms; the target chooses one and challenges; the initiator gives its
//! name and its response, and may challenge in turn; the target answers that.

use super::text::{Pair, binary, hexadecimal_text, number, put, value};

/// A digest algorithm of CHAP, by its registered number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The one that every initiator has.
    Md5,
    /// Not offered by default.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA3-256; not offered by default.
    Sha3,
}

impl Algorithm {
    /// The algorithm of a number.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Algorithm> {
        match number {
            5 => Some(Algorithm::Md5),
            6 => Some(Algorithm::Sha1),
            7 => Some(Algorithm::Sha256),
            8 => Some(Algorithm::Sha3),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Algorithm::Md5 => 5,
            Algorithm::Sha1 => 6,
            Algorithm::Sha256 => 7,
            Algorithm::Sha3 => 8,
        }
    }

    /// Bytes of its digest.
    #[must_use]
    pub const fn digest_bytes(self) -> usize {
        match self {
            Algorithm::Md5 => 16,
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 | Algorithm::Sha3 => 32,
        }
    }
}

/// Why a text is no step of CHAP: the login fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ChapError(pub &'static str);

/// A challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Its number: the first byte that the digest covers.
    pub identifier: u8,
    /// Random bytes, of 1 to 1024.
    pub bytes: Vec<u8>,
}

/// The initiator's name and response, and its own challenge if it wants the target to prove itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its digest; as long as the algorithm's is for the caller to check.
    pub response: Vec<u8>,
    /// Its challenge.
    pub challenge: Option<Challenge>,
}

/// The first algorithm of the initiator's list (`CHAP_A`) that is allowed.
///
/// # Errors
/// When there is no list, or nothing in common.
pub fn choose(pairs: &[Pair<'_>], allowed: &[Algorithm]) -> Result<Algorithm, ChapError> {
    let list = value(pairs, "CHAP_A").ok_or(ChapError("CHAP_A is missing"))?;
    list.split(',')
        .filter_map(|word| Algorithm::from_number(number(word)?))
        .find(|algorithm| allowed.contains(algorithm))
        .ok_or(ChapError("no algorithm of CHAP_A is allowed"))
}

/// Appends the target's choice and challenge.
pub fn put_challenge(algorithm: Algorithm, challenge: &Challenge, out: &mut Vec<u8>) {
    put("CHAP_A", &algorithm.number().to_string(), out);
    put_own_challenge(challenge, out);
}

/// Appends a challenge without an algorithm, as an initiator's is.
pub fn put_own_challenge(challenge: &Challenge, out: &mut Vec<u8>) {
    put("CHAP_I", &challenge.identifier.to_string(), out);
    put("CHAP_C", &hexadecimal_text(&challenge.bytes), out);
}

/// Appends a name and a response, of either side.
pub fn put_response(name: &str, response: &[u8], out: &mut Vec<u8>) {
    put("CHAP_N", name, out);
    put("CHAP_R", &hexadecimal_text(response), out);
}

/// The initiator's answer to a challenge.
///
/// # Errors
/// When a key is missing or holds no value of its kind.
pub fn answer<'a>(pairs: &[Pair<'a>]) -> Result<Answer<'a>, ChapError> {
    let name = value(pairs, "CHAP_N").ok_or(ChapError("CHAP_N is missing"))?;
    let response = value(pairs, "CHAP_R").ok_or(ChapError("CHAP_R is missing"))?;
    let response = binary(response).ok_or(ChapError("CHAP_R is no binary value"))?;
    Ok(Answer { name, response, challenge: challenge(pairs)? })
}

/// The challenge in a text, if there is one.
///
/// # Errors
/// When one half is missing, or holds no value of its kind.
pub fn challenge(pairs: &[Pair<'_>]) -> Result<Option<Challenge>, ChapError> {
    match (value(pairs, "CHAP_I"), value(pairs, "CHAP_C")) {
        (None, None) => Ok(None),
        (Some(identifier), Some(bytes)) => {
            let identifier = number(identifier).and_then(|number| u8::try_from(number).ok());
            Ok(Some(Challenge {
                identifier: identifier.ok_or(ChapError("CHAP_I is no byte"))?,
                bytes: binary(bytes).ok_or(ChapError("CHAP_C is no binary value"))?,
            }))
        }
        _ => Err(ChapError("CHAP_I and CHAP_C go together")),
    }
}
