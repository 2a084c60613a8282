//! iSCSI names (RFC 7143 section 4.2.7, RFC 3722), and the names of our targets.
//!
//! `BASE:VOLUME` is a volume's present, `BASE:VOLUME:at:MOMENT` a moment of it. Names of volumes
//! and of marks hold upper case and `_`, iSCSI names do not: `_` is written `:0`, and an upper-case
//! letter `:1` and its lower case. Names of volumes and marks have no colon of their own, so that a
//! name leads back to one volume and one moment. Whether a moment can be parsed, and whether there
//! is such a volume, is the caller's.

use super::limits::NAME_BYTES_MAX;

/// Why a text is no iSCSI name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// More than 223 bytes.
    #[error("an iSCSI name has at most 223 bytes")]
    TooLong,
    /// Not of one of the three forms.
    #[error("an iSCSI name begins with iqn., eui. or naa.")]
    Form,
    /// A character that no name holds.
    #[error("an iSCSI name holds a to z, 0 to 9, dot, hyphen and colon only")]
    Character,
}

/// The name with upper case folded, if it is one.
///
/// # Errors
/// When it is too long, of no known form, or holds what no name holds.
pub fn fold(name: &str) -> Result<String, NameError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong);
    }
    let name = name.to_ascii_lowercase();
    if !name.bytes().all(is_legal) {
        return Err(NameError::Character);
    }
    let is_hex = |digits: &str, counts: &[usize]| {
        counts.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_form = match name.split_once('.') {
        Some(("iqn", rest)) => !rest.is_empty(),
        Some(("eui", digits)) => is_hex(digits, &[16]),
        Some(("naa", digits)) => is_hex(digits, &[16, 32]),
        _ => false,
    };
    if is_form { Ok(name) } else { Err(NameError::Form) }
}

/// The name of an initiator with upper case folded, if it can be one. Initiators are known by names
/// that break the rules, so that only control characters, spaces and commas are refused: a comma
/// ends the name in the name of a port.
///
/// # Errors
/// When it is empty, too long, or holds one of those.
pub fn fold_initiator(name: &str) -> Result<String, NameError> {
    if name.is_empty() {
        return Err(NameError::Form);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong);
    }
    if name.contains(|c: char| c.is_control() || c.is_whitespace() || c == ',') {
        return Err(NameError::Character);
    }
    Ok(name.to_ascii_lowercase())
}

const fn is_legal(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b':')
}

/// A volume's or a mark's name as part of an iSCSI name; `None` if it holds what cannot be written.
#[must_use]
pub fn escape(name: &str) -> Option<String> {
    let mut escaped = String::with_capacity(name.len() + 8);
    for character in name.chars() {
        match character {
            '_' => escaped.push_str(":0"),
            'A'..='Z' => {
                escaped.push_str(":1");
                escaped.push(character.to_ascii_lowercase());
            }
            'a'..='z' | '0'..='9' | '.' | '-' => escaped.push(character),
            _ => return None,
        }
    }
    Some(escaped)
}

/// The volume's or mark's name of which [`escape`] makes `escaped`; `None` if there is none.
#[must_use]
pub fn unescape(escaped: &str) -> Option<String> {
    let (name, rest) = unescape_start(escaped)?;
    rest.is_empty().then_some(name)
}

/// The name at the start, up to a colon that escapes nothing, and the rest from that colon.
fn unescape_start(escaped: &str) -> Option<(String, &str)> {
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped.as_bytes();
    loop {
        match rest {
            [b':', b'0', after @ ..] => {
                name.push('_');
                rest = after;
            }
            [b':', b'1', letter @ b'a'..=b'z', after @ ..] => {
                name.push(char::from(letter.to_ascii_uppercase()));
                rest = after;
            }
            [byte @ (b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-'), after @ ..] => {
                name.push(char::from(*byte));
                rest = after;
            }
            [] | [b':', ..] => return Some((name, &escaped[escaped.len() - rest.len()..])),
            _ => return None,
        }
    }
}

/// A volume, at a moment or in the present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetName {
    /// The volume's name.
    pub volume: String,
    /// The moment's expression; none is the present. That of a mark is `mark:NAME`, with the mark's
    /// own name; all others are in lower case.
    pub moment: Option<String>,
}

/// The iSCSI name of a volume at a moment; `None` if there is none, or it is too long.
#[must_use]
pub fn join(base: &str, volume: &str, moment: Option<&str>) -> Option<String> {
    let mut name = format!("{base}:{}", escape(volume).filter(|name| !name.is_empty())?);
    if let Some(moment) = moment {
        name.push_str(AT);
        match moment.strip_prefix(MARK) {
            Some(mark) => {
                name.push_str(MARK);
                name.push_str(&escape(mark)?);
            }
            None => name.push_str(&moment.to_ascii_lowercase()),
        }
    }
    fold(&name).ok().filter(|folded| *folded == name)
}

/// The volume and moment of an iSCSI name with upper case folded; `None` if it is not of this base,
/// or not one that [`join`] makes.
#[must_use]
pub fn split(base: &str, name: &str) -> Option<TargetName> {
    let rest = name.strip_prefix(base)?.strip_prefix(':')?;
    let (volume, rest) = unescape_start(rest).filter(|(volume, _)| !volume.is_empty())?;
    if rest.is_empty() {
        return Some(TargetName { volume, moment: None });
    }
    let moment = rest.strip_prefix(AT).filter(|moment| !moment.is_empty())?;
    let moment = match moment.strip_prefix(MARK) {
        Some(mark) => format!("{MARK}{}", unescape(mark)?),
        None => moment.to_owned(),
    };
    Some(TargetName { volume, moment: Some(moment) })
}

const AT: &str = ":at:";
const MARK: &str = "mark:";
