//! Text of Login and Text: pairs of a key and a value, each ended by a zero byte.
//!
//! A text may go on over several PDUs (their C bit); the caller joins their data, up to
//! [`TEXT_BYTES_MAX`], and parses the whole.

use super::limits::{BINARY_BYTES_MAX, KEY_BYTES_MAX, PAIRS_MAX, TEXT_BYTES_MAX, VALUE_BYTES_MAX};

/// Why a text cannot be used: the login fails, or the request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// It breaks the rules of texts.
    #[error("{0}")]
    Malformed(&'static str),
    /// It is longer than anything that has to be taken.
    #[error("{0}")]
    TooLong(&'static str),
}

/// A key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: &'a str,
}

/// The pairs of a text, in order.
///
/// # Errors
/// When it is malformed, names a key twice, or passes a limit.
pub fn parse(text: &[u8]) -> Result<Vec<Pair<'_>>, TextError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(TextError::TooLong("a text of more than 64 KiB"));
    }
    // The last pair's zero may have been taken for padding.
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for piece in text.split(|&byte| byte == 0).filter(|piece| !piece.is_empty()) {
        if pairs.len() == PAIRS_MAX {
            return Err(TextError::TooLong("more than 256 pairs in a text"));
        }
        let pair = pair(piece)?;
        if pairs.iter().any(|earlier| earlier.key == pair.key) {
            return Err(TextError::Malformed("a key stands in a text twice"));
        }
        pairs.push(pair);
    }
    Ok(pairs)
}

fn pair(piece: &[u8]) -> Result<Pair<'_>, TextError> {
    let piece =
        std::str::from_utf8(piece).map_err(|_| TextError::Malformed("a text is not UTF-8"))?;
    let (key, value) =
        piece.split_once('=').ok_or(TextError::Malformed("a key without a value"))?;
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(TextError::Malformed("a key holds no name"));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(TextError::TooLong("a key of more than 63 bytes"));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(TextError::TooLong("a value of more than 8192 bytes"));
    }
    Ok(Pair { key, value })
}

/// The value of a key in a text.
#[must_use]
pub fn value<'a>(pairs: &[Pair<'a>], key: &str) -> Option<&'a str> {
    pairs.iter().find(|pair| pair.key == key).map(|pair| pair.value)
}

/// Appends a pair.
///
/// # Panics
/// When the key or the value holds a zero byte, or the key a `=`.
pub fn put(key: &str, value: &str, out: &mut Vec<u8>) {
    assert!(!key.contains(['=', '\0']) && !value.contains('\0'), "a pair ends at a zero byte");
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value.as_bytes());
    out.push(0);
}

/// A number, decimal or hexadecimal (`0x`).
#[must_use]
pub fn number(value: &str) -> Option<u64> {
    let (digits, radix) = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (value, 10),
    };
    // `from_str_radix` would take a sign.
    let is_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_digits { u64::from_str_radix(digits, radix).ok() } else { None }
}

/// A truth value.
#[must_use]
pub fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// How a truth value is written.
#[must_use]
pub const fn boolean_text(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// The bytes of a binary value: hexadecimal (`0x`) or base64 (`0b`), of up to 1024 bytes.
///
/// An odd count of hexadecimal digits lacks a leading zero.
#[must_use]
pub fn binary(value: &str) -> Option<Vec<u8>> {
    let (prefix, digits) = value.split_at_checked(2)?;
    let bytes = match prefix {
        "0x" | "0X" => hexadecimal(digits.as_bytes())?,
        "0b" | "0B" => base64(digits.as_bytes())?,
        _ => return None,
    };
    (!bytes.is_empty()).then_some(bytes)
}

fn hexadecimal(digits: &[u8]) -> Option<Vec<u8>> {
    if digits.len().div_ceil(2) > BINARY_BYTES_MAX {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let mut bytes = Vec::with_capacity(digits.len().div_ceil(2));
    let (first, rest) = digits.split_at(digits.len() % 2);
    for &lone in first {
        bytes.push(digit(lone)?);
    }
    for pair in rest.chunks_exact(2) {
        bytes.push(digit(pair[0])? << 4 | digit(pair[1])?);
    }
    Some(bytes)
}

fn base64(digits: &[u8]) -> Option<Vec<u8>> {
    let unpadded = digits.strip_suffix(b"==").or_else(|| digits.strip_suffix(b"="));
    // Padding, where there is some, fills the last group of four.
    if unpadded.is_some() && !digits.len().is_multiple_of(4) {
        return None;
    }
    let digits = unpadded.unwrap_or(digits);
    let length = digits.len() * 6 / 8;
    if length > BINARY_BYTES_MAX || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(length);
    let mut held = 0_u32;
    let mut held_bits = 0;
    for &digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = held << 6 | u32::from(value);
        held_bits += 6;
        if held_bits >= 8 {
            held_bits -= 8;
            let [.., byte] = (held >> held_bits).to_be_bytes();
            bytes.push(byte);
        }
    }
    Some(bytes)
}

/// Bytes as a hexadecimal value.
#[must_use]
pub fn hexadecimal_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("0x");
    for byte in bytes {
        for digit in [byte >> 4, byte & 0xf] {
            text.push(char::from_digit(u32::from(digit), 16).expect("four bits"));
        }
    }
    text
}

/// A question of SendTargets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendTargets<'a> {
    /// All targets; only in a discovery session.
    All,
    /// The target of this session.
    This,
    /// One target.
    Named(&'a str),
}

impl<'a> SendTargets<'a> {
    /// The question of a value.
    #[must_use]
    pub fn of(value: &'a str) -> SendTargets<'a> {
        match value {
            "All" => SendTargets::All,
            "" => SendTargets::This,
            name => SendTargets::Named(name),
        }
    }
}

/// Appends a target to the answer to SendTargets, with its portals: each an address with its port
/// (`192.0.2.1:3260`, `[2001:db8::1]:3260`) and its portal group.
pub fn put_target(name: &str, portals: &[(&str, u16)], out: &mut Vec<u8>) {
    put("TargetName", name, out);
    for (address, group) in portals {
        put("TargetAddress", &format!("{address},{group}"), out);
    }
}
